"""The interface between a radio and the layer below it. `leadsman.adapters.ble.bleak_backend` implements it for real
adapters, `leadsman.testing.twins` in memory. All methods raise `DeviceError` and its subclasses."""

from collections.abc import Callable
from typing import Any, Protocol

from leadsman.adapters.ble.advertisement import Advertisement

Handle = Any
"""What a backend needs to connect to a device that it received. Only the backend looks inside."""
AdvertisementListener = Callable[[Advertisement, Handle], None]
"""Called for each received advertisement."""


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

    async def connect(self, handle: Handle, on_lost: Callable[[], None], timeout: float) -> GattConnection:
        """Connect to a device whose advertisement was received. `on_lost` is called when the connection ends by
        itself."""
        ...
