"""Scans and connects with bleak, for `leadsman.adapters.ble.radio`. Only this file imports bleak. Its errors say
what to do."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any, cast

from leadsman.adapters.ble.radio import Advertisement, Heard
from leadsman.adapters.extras import missing
from leadsman.errors import (
    DeviceError,
    DeviceTimeout,
    DeviceUnavailable,
    PermanentError,
    TransientError,
)
from leadsman.text import describe

try:
    from bleak import BleakClient, BleakScanner
    from bleak import exc as errors
except ImportError as error:
    raise missing("Bluetooth devices", "bleak", "ble") from error

_FOREVER = frozenset({0x01, 0x02, 0x03, 0x05, 0x06, 0x07, 0x08, 0x0A, 0x0B, 0x0C, 0x0D, 0x0F, 0x10, 0x13})
"""ATT errors that another attempt does not change (Core Specification, Vol 3, Part F, 3.4.1.1): permission, size, existence."""
_FLAGS = (b"\x02", b"\x04", b"\x05", b"\x06", b"\x1a")
"""Values of the flags that most devices advertise: BlueZ wants patterns for a passive scan."""


class Bleak:
    """A backend of `BleRadio`."""

    def __init__(self, adapter: str | None, passive: bool) -> None:
        self._bluez: Any = {} if adapter is None or sys.platform != "linux" else {"adapter": adapter}
        self._passive = passive
        self._scanner: BleakScanner | None = None

    async def start(self, heard: Heard) -> None:
        """Start to scan."""

        def detected(device: Any, data: Any) -> None:
            advert = Advertisement(
                device.address.upper(),
                data.local_name,
                data.rssi,
                tuple(uuid.lower() for uuid in data.service_uuids),
                dict(data.manufacturer_data),
                {uuid.lower(): bytes(value) for uuid, value in data.service_data.items()},
            )
            heard(advert, device)

        options: Any = dict(self._bluez)  # a typed dictionary with what this platform takes
        if self._passive and sys.platform == "linux":
            from bleak.args.bluez import OrPattern
            from bleak.assigned_numbers import AdvertisementDataType

            options["or_patterns"] = [OrPattern(0, AdvertisementDataType.FLAGS, flags) for flags in _FLAGS]
        with _translated("scanning"):
            self._scanner = BleakScanner(
                detected, scanning_mode="passive" if self._passive else "active", bluez=options
            )
            await self._scanner.start()

    async def stop(self) -> None:
        """Stop."""
        scanner, self._scanner = self._scanner, None
        if scanner is not None:
            with _translated("scanning"):
                await scanner.stop()

    async def connect(self, handle: Any, lost: Callable[[], None], timeout: float) -> BleakLink:
        """Connect to a device that was heard."""
        client = BleakClient(handle, lambda _: lost(), timeout=timeout, bluez=self._bluez)
        with _translated(f"connecting to {handle.address}"):
            await client.connect()
        return BleakLink(client)


class BleakLink:
    """A connection."""

    def __init__(self, client: BleakClient) -> None:
        self._client = client

    async def read(self, uuid: str) -> bytes:
        """Read a characteristic."""
        with _translated(f"reading {uuid} of {self._client.address}"):
            return bytes(await self._client.read_gatt_char(uuid))

    async def write(self, uuid: str, data: bytes, response: bool | None) -> None:
        """Write a characteristic."""
        with _translated(f"writing {uuid} of {self._client.address}"):
            await self._client.write_gatt_char(uuid, data, response=response)

    async def subscribe(self, uuid: str, heard: Callable[[bytes], None]) -> None:
        """Have its notifications."""
        with _translated(f"subscribing to {uuid} of {self._client.address}"):
            await self._client.start_notify(uuid, lambda _, data: heard(bytes(data)))

    async def unsubscribe(self, uuid: str) -> None:
        """Have them no longer."""
        with _translated(f"unsubscribing from {uuid} of {self._client.address}"):
            await self._client.stop_notify(uuid)

    async def disconnect(self) -> None:
        """Hang up."""
        with _translated(f"hanging up on {self._client.address}"):
            await self._client.disconnect()


@contextlib.contextmanager
def _translated(what: str) -> Iterator[None]:
    """What bleak and D-Bus raise, in our words."""
    try:
        yield
    except DeviceError:
        raise
    except Exception as error:
        raise _ours(error, what) from error


def _ours(error: Exception, what: str) -> DeviceError:
    words = f"{what}: {describe(error)}" if str(error) else f"{what}: {type(error).__name__}"
    match error:
        case TimeoutError():
            return DeviceTimeout(f"{what} took too long")
        case errors.BleakCharacteristicNotFoundError():
            return PermanentError(f"{what}: the device has no such characteristic")
        case errors.BleakGATTProtocolError():
            return _of_att(int(error.code), words)
        case errors.BleakBluetoothNotAvailableError():
            return DeviceUnavailable(
                f"{what}: Bluetooth is not there or off; type: bluetoothctl power on, or rfkill unblock bluetooth"
            )
        case errors.BleakDeviceNotFoundError():
            return DeviceUnavailable(f"{what}: the Bluetooth service has forgotten it; it is listened for again")
        case errors.BleakDBusError():
            return _of_dbus(error, words)
        case FileNotFoundError() | ConnectionRefusedError():
            return DeviceUnavailable(
                f"{what}: no D-Bus is there; is bluetoothd running? In a container, mount /run/dbus"
            )
    return DeviceUnavailable(words)


def _of_att(code: int, words: str) -> DeviceError:
    found: Any = PermanentError(words) if code in _FOREVER else TransientError(words)
    found.retry_properties = {"gatt-code": code}  # what a policy may ask for
    return cast(DeviceError, found)


def _of_dbus(error: errors.BleakDBusError, words: str) -> DeviceError:
    match error.dbus_error:
        case "org.bluez.Error.NotReady":
            return DeviceUnavailable(f"{words}; the adapter is off, type: bluetoothctl power on")
        case "org.freedesktop.DBus.Error.AccessDenied":
            return PermanentError(f"{words}; add the user to the group bluetooth")
        case "org.bluez.Error.NotPermitted" | "org.bluez.Error.NotSupported" | "org.bluez.Error.NotAuthorized":
            return PermanentError(words)
        case "org.freedesktop.DBus.Error.ServiceUnknown":
            return DeviceUnavailable(f"{words}; is bluetoothd running?")
    return DeviceUnavailable(words)
