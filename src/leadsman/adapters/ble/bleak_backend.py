"""The backend of real adapters: scans and connects with bleak. Only this file imports bleak. Its errors name
the remedy."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from leadsman.adapters.ble.advertisement import Advertisement
from leadsman.adapters.ble.backend import AdvertisementListener, att_error
from leadsman.core.text import describe
from leadsman.errors import (
    DeviceError,
    DeviceTimeout,
    DeviceUnavailable,
    PermanentError,
    missing,
)

if TYPE_CHECKING:
    from bleak.args.bluez import BlueZClientArgs, BlueZScannerArgs
    from bleak.backends.device import BLEDevice
    from bleak.backends.scanner import AdvertisementData

try:
    from bleak import BleakClient, BleakScanner
    from bleak import exc as errors
except ImportError as error:
    raise missing("Bluetooth devices", "bleak", "ble") from error

_FLAGS = (b"\x02", b"\x04", b"\x05", b"\x06", b"\x1a")
"""Values of the flags that most devices advertise: BlueZ wants patterns for a passive scan."""

_DATA = ("ManufacturerData", "ServiceData")
"""Properties of a device that BlueZ sets to what was in a packet (``doc/org.bluez.Device.rst``)."""
_MAX_DEVICES = 4096
"""Devices of BlueZ whose properties are remembered. BlueZ forgets one that it has not heard for 30 s."""

_OFF = "Bluetooth is missing or off; type: bluetoothctl power on, or rfkill unblock bluetooth"
_DENIED = "the system refuses Bluetooth to this user; add the user to the group bluetooth, or allow it in its settings"
_ABSENT = {
    "NO_BLUETOOTH": "there is no Bluetooth adapter; plug one in, and check that bluetoothctl list shows it",
    "NO_BLE_CENTRAL_ROLE": "no Bluetooth adapter here can do Bluetooth Low Energy; plug in another one",
    "DENIED_BY_USER": _DENIED,
    "DENIED_BY_SYSTEM": _DENIED,
    "DENIED_BY_UNKNOWN": _DENIED,
}
"""The cause and the remedy, by the reason that bleak gives."""


class BleakBackend:
    """The backend of a `BleRadio`.

    Args:
        adapter: such as ``hci1``; None takes the first one. Only BlueZ has a choice.
        passive: scan without asking devices for more data.
    """

    def __init__(self, adapter: str | None, passive: bool) -> None:
        self._adapter = adapter if sys.platform == "linux" else None
        self._passive = passive
        self._scanner: BleakScanner | None = None
        self._properties = _DeviceProperties(joined=passive)

    async def start(self, on_advertisement: AdvertisementListener) -> None:
        """Start the scanner."""

        def detected(device: BLEDevice, data: AdvertisementData) -> None:
            manufacturer: Mapping[int, bytes] = data.manufacturer_data
            service_data: Mapping[str, bytes] = data.service_data
            if sys.platform == "linux":
                path, properties = data.platform_data
                manufacturer, service_data = self._properties.new(path, device, properties)
            advertisement = Advertisement(
                device.address.upper(),
                data.local_name,
                data.rssi,
                tuple(uuid.lower() for uuid in data.service_uuids),
                {company: bytes(value) for company, value in manufacturer.items()},
                {uuid.lower(): bytes(value) for uuid, value in service_data.items()},
            )
            on_advertisement(advertisement, device)

        options: BlueZScannerArgs = {} if self._adapter is None else {"adapter": self._adapter}
        if not self._passive:
            options["filters"] = {"DuplicateData": True}
        if self._passive and sys.platform == "linux":
            from bleak.args.bluez import OrPattern
            from bleak.assigned_numbers import AdvertisementDataType

            options["or_patterns"] = [OrPattern(0, AdvertisementDataType.FLAGS, flags) for flags in _FLAGS]
        with _translate_errors("scanning"):
            if sys.platform == "linux":
                self._properties.begin(await _known_properties())
            self._scanner = BleakScanner(
                detected, scanning_mode="passive" if self._passive else "active", bluez=options
            )
            await self._scanner.start()

    async def stop(self) -> None:
        """Stop the scanner."""
        scanner, self._scanner = self._scanner, None
        if scanner is not None:
            with _translate_errors("scanning"):
                await scanner.stop()

    @property
    def lost(self) -> None:
        """A scanner of BlueZ cannot detect that it hears nothing more."""

    async def close(self) -> None:
        """Nothing is kept between scans."""

    async def connect(self, handle: BLEDevice, on_lost: Callable[[], None], timeout: float) -> BleakConnection:
        """Connect to a device whose advertisement was received."""
        options: BlueZClientArgs = {} if self._adapter is None else {"adapter": self._adapter}
        client = BleakClient(handle, lambda _: on_lost(), timeout=timeout, bluez=options)
        with _translate_errors(f"connecting to {handle.address}"):
            await client.connect()
        return BleakConnection(client)


async def _known_properties() -> dict[str, Mapping[str, Any]]:
    """The properties of the devices that BlueZ knows already, by their paths, as bleak has them."""
    from bleak.backends.bluezdbus.manager import get_global_bluez_manager

    objects: Mapping[str, Mapping[str, Any]] = getattr(await get_global_bluez_manager(), "_properties", {})
    return {path: each["org.bluez.Device1"] for path, each in objects.items() if "org.bluez.Device1" in each}


class _DeviceProperties:
    """What BlueZ says of its devices, and what of it is new.

    BlueZ keeps what a device has advertised, and signals which properties change: its signal strength, say. bleak then
    gives all properties. Those that were in the signal are other objects than before, and only those are of the packet
    that was heard. Of a device that BlueZ has not known before, all are.

    With the filter ``DuplicateData``, BlueZ signals the data of each packet, and keeps no other. A passive scan has no
    such filter: BlueZ signals data that changes, together with that of earlier packets.

    Args:
        joined: whether a property has data of earlier packets, too.
    """

    def __init__(self, *, joined: bool) -> None:
        self._joined = joined
        self._known: dict[str, tuple[BLEDevice | None, Mapping[str, Any]]] = {}
        """By path: bleak's device, which is another one after BlueZ has forgotten it, or None if it has not been heard
        since the scan began; and its properties."""

    def begin(self, known: Mapping[str, Mapping[str, Any]]) -> None:
        """A scan begins, and BlueZ knows these devices."""
        self._known = {path: (None, dict(properties)) for path, properties in known.items()}

    def new(self, path: str, device: BLEDevice, properties: Mapping[str, Any]) -> list[Mapping[Any, bytes]]:
        """The manufacturer data and the service data that are new."""
        last, before = self._known.pop(path, (device, {}))
        self._known[path] = device, properties
        if len(self._known) > _MAX_DEVICES:
            del self._known[next(iter(self._known))]
        if last not in (None, device):
            before = {}
        return [self._new(before.get(key, {}), properties.get(key, {})) for key in _DATA]

    def _new(self, before: Mapping[Any, bytes], data: Mapping[Any, bytes]) -> Mapping[Any, bytes]:
        if data is before:
            return {}
        return {key: data[key] for key in data if before.get(key) != data[key]} if self._joined else data


class BleakConnection:
    """A connection to one device."""

    def __init__(self, client: BleakClient) -> None:
        self._client = client

    def has(self, uuid: str) -> bool:
        """Whether the device has a characteristic."""
        with _translate_errors(f"looking for {uuid} of {self._client.address}"):
            return any(each.uuid == uuid for each in self._client.services.characteristics.values())

    async def read(self, uuid: str) -> bytes:
        """Read a characteristic."""
        with _translate_errors(f"reading {uuid} of {self._client.address}"):
            return bytes(await self._client.read_gatt_char(uuid))

    async def write(self, uuid: str, data: bytes, response: bool | None) -> None:
        """Write a characteristic."""
        with _translate_errors(f"writing {uuid} of {self._client.address}"):
            await self._client.write_gatt_char(uuid, data, response=response)

    async def subscribe(self, uuid: str, on_notification: Callable[[bytes], None]) -> None:
        """Subscribe to the notifications of a characteristic."""
        with _translate_errors(f"subscribing to {uuid} of {self._client.address}"):
            await self._client.start_notify(uuid, lambda _, data: on_notification(bytes(data)))

    async def unsubscribe(self, uuid: str) -> None:
        """End a subscription."""
        with _translate_errors(f"unsubscribing from {uuid} of {self._client.address}"):
            await self._client.stop_notify(uuid)

    async def disconnect(self) -> None:
        """End the connection."""
        with _translate_errors(f"disconnecting from {self._client.address}"):
            await self._client.disconnect()


@contextlib.contextmanager
def _translate_errors(what: str) -> Iterator[None]:
    """Raise what bleak and D-Bus raise as a `DeviceError`."""
    try:
        yield
    except DeviceError:
        raise
    except Exception as error:
        raise _device_error(error, what) from error


def _device_error(error: Exception, what: str) -> DeviceError:
    text = f"{what}: {describe(error)}" if str(error) else f"{what}: {type(error).__name__}"
    match error:
        case TimeoutError():
            return DeviceTimeout(f"{what} took too long")
        case errors.BleakCharacteristicNotFoundError():
            return PermanentError(f"{what}: the device has no such characteristic")
        case errors.BleakGATTProtocolError():
            return att_error(int(error.code), text)
        case errors.BleakBluetoothNotAvailableError():
            return DeviceUnavailable(f"{what}: {_ABSENT.get(error.reason.name, _OFF)}")
        case errors.BleakDeviceNotFoundError():
            return DeviceUnavailable(
                f"{what}: the Bluetooth service has forgotten the device; the next call searches for it again"
            )
        case errors.BleakDBusError():
            return _dbus_error(error, text)
        case FileNotFoundError() | ConnectionRefusedError():
            return DeviceUnavailable(
                f"{what}: D-Bus is missing; is bluetoothd running? Type: apt-get install bluez; in a container, "
                "mount /run/dbus"
            )
        case errors.BleakError() if str(error).startswith("adapter "):
            return DeviceUnavailable(f"{text}; type: bluetoothctl list")
    return DeviceUnavailable(text)


def _dbus_error(error: errors.BleakDBusError, text: str) -> DeviceError:
    match error.dbus_error:
        case "org.bluez.Error.NotReady":
            return DeviceUnavailable(f"{text}; the adapter is off, type: bluetoothctl power on")
        case "org.freedesktop.DBus.Error.AccessDenied":
            return PermanentError(f"{text}; add the user to the group bluetooth")
        case "org.bluez.Error.NotPermitted" | "org.bluez.Error.NotSupported" | "org.bluez.Error.NotAuthorized":
            return PermanentError(text)
        case "org.freedesktop.DBus.Error.ServiceUnknown":
            return DeviceUnavailable(f"{text}; is bluetoothd running? Type: systemctl start bluetooth")
    return DeviceUnavailable(text)
