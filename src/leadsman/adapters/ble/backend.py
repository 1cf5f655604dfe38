"""The interface between a radio and the layer below it. `leadsman.adapters.ble.bleak_backend` implements it for real
adapters, `leadsman.testing.twins` in memory. All methods raise `DeviceError` and its subclasses."""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from leadsman.adapters.ble.advertisement import Advertisement
from leadsman.errors import DeviceError, PermanentError, TransientError

Handle = Any
"""With it a backend connects to a device that it received. Only the backend looks inside."""
AdvertisementListener = Callable[[Advertisement, Handle], None]
"""Called for each received advertisement."""
_PERMANENT = frozenset({0x01, 0x02, 0x03, 0x05, 0x06, 0x07, 0x08, 0x0A, 0x0B, 0x0C, 0x0D, 0x0F, 0x10, 0x13})
"""ATT errors that another attempt does not change (Core Specification, Vol 3, Part F, 3.4.1.1): permission, size,
existence."""


class GattConnection(Protocol):
    """A connection to one device."""

    def has(self, uuid: str) -> bool:
        """Whether the device has a characteristic. Connecting has found all of them."""
        ...

    async def read(self, uuid: str) -> bytes:
        """Read a characteristic."""
        ...

    async def write(self, uuid: str, data: bytes, response: bool | None) -> None:
        """Write a characteristic, with an acknowledgement if `response` is set. None takes what it offers."""
        ...

    async def subscribe(self, uuid: str, on_notification: Callable[[bytes], None]) -> None:
        """Subscribe to the notifications or indications of a characteristic."""
        ...

    async def unsubscribe(self, uuid: str) -> None:
        """End a subscription."""
        ...

    async def disconnect(self) -> None:
        """End the connection."""
        ...


class Backend(Protocol):
    """A scanner and a maker of connections."""

    async def start(self, on_advertisement: AdvertisementListener) -> None:
        """Start the scanner."""
        ...

    async def stop(self) -> None:
        """Stop the scanner."""
        ...

    async def close(self) -> None:
        """Release the resources kept between scans. The scanner is stopped before."""
        ...

    async def connect(self, handle: Handle, on_lost: Callable[[], None], timeout: float) -> GattConnection:
        """Connect to a device whose advertisement was received. `on_lost` is called when the connection ends by
        itself."""
        ...


async def start_scanner(
    backend: Backend, on_advertisement: AdvertisementListener, seconds: float, late: DeviceError
) -> None:
    """Start a scanner. Raises `late` where that takes longer than so many seconds."""
    try:
        async with asyncio.timeout(seconds):
            await backend.start(on_advertisement)
    except TimeoutError as error:
        if isinstance(error, DeviceError):
            raise
        raise late from error


def att_error(code: int, text: str) -> DeviceError:
    """The error of a device that answers with an ATT error code."""
    error: DeviceError = PermanentError(text) if code in _PERMANENT else TransientError(text)
    error.retry_properties = {"gatt-code": code}  # type: ignore[attr-defined]  # what a policy may ask for
    return error
