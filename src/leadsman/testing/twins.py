"""Twins: adapters for tests and dry runs, with a scripted device in memory instead of hardware.

A twin is a subclass of the real adapter, so that handlers get it by the same annotation. Only the wire is replaced:
locks, timeouts, framing and errors are those of the real adapter. One test suite covers both.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Self

from leadsman.adapters.ble.advertisement import Advertisement, check_address
from leadsman.adapters.ble.backend import AdvertisementListener, Backend, GattConnection
from leadsman.adapters.ble.gatt import uuid_of
from leadsman.adapters.ble.radio import BleRadio
from leadsman.adapters.program import MOST_BYTES, Finished, Programs
from leadsman.adapters.serial.port import Line, SerialPort
from leadsman.errors import DeviceUnavailable, PermanentError

ADVERTISING_INTERVAL = 0.2
"""Seconds between two advertisements of a device in memory."""

CharacteristicValue = bytes | Exception | Callable[[], bytes | Exception]
"""What reading a characteristic gives: bytes, an exception to raise, or a function that returns one of them."""


def _silent_device(data: bytes) -> bytes:
    return b""


class SerialTwin(SerialPort):
    """A `SerialPort` with a device in memory.

    Args:
        device: a function that gets the bytes sent to the port; it returns the bytes that the port receives.
        says: for a device that sends without requests: called repeatedly; returns the seconds until the next bytes,
            and the bytes.
        options: those of `SerialPort`, such as ``framer=``.
    """

    def __init__(
        self,
        device: Callable[[bytes], bytes] = _silent_device,
        *,
        says: Callable[[], tuple[float, bytes]] | None = None,
        **options: Any,
    ) -> None:
        super().__init__("twin", **options)
        self._device = device
        self._says = says
        self._talking: asyncio.Task[None] | None = None
        self._line: Line | None = None
        self._there = True

    def check_installed(self) -> None:
        """A twin needs no library."""

    def send(self, data: bytes) -> None:
        """Let the device send bytes without a request. They are lost while the port is closed."""
        if self._line is not None and self._line.lost is None:
            self._line.data_received(data)

    def unplug(self) -> None:
        """Unplug the device: reading and opening raise `DeviceUnavailable`."""
        self._there = False
        if self._line is not None and self._line.lost is None:
            self._line.connection_lost(OSError(5, "unplugged"))

    def plug(self) -> None:
        """Plug the device in again."""
        self._there = True

    async def _open(self, connection: Line) -> None:
        if not self._there:
            raise DeviceUnavailable(f"{self.url} cannot be opened: the port does not exist; is the device plugged in?")
        self._line = connection
        connection.connection_made(_Wire(connection, self._device))
        if self._says is not None:
            if self._talking is not None:
                self._talking.cancel()
            self._talking = asyncio.create_task(self._talk(self._says, connection))

    async def _talk(self, says: Callable[[], tuple[float, bytes]], connection: Line) -> None:
        while connection.lost is None:
            wait, data = says()
            await asyncio.sleep(wait)
            if connection.lost is None:
                connection.data_received(data)


class _Wire(asyncio.Transport):
    """Between a connection and a device in memory."""

    def __init__(self, connection: Line, device: Callable[[bytes], bytes]) -> None:
        super().__init__()
        self._connection = connection
        self._device = device

    def write(self, data: bytes | bytearray | memoryview) -> None:
        answer = self._device(bytes(data))
        if answer:
            asyncio.get_running_loop().call_soon(self._heard, answer)

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self._connection.lost is not None

    def abort(self) -> None:
        self._connection.connection_lost(None)

    def _heard(self, data: bytes) -> None:
        if self._connection.lost is None:
            self._connection.data_received(data)


class TwinDevice:
    """A Bluetooth device in memory. Its attributes may be changed at any time.

    Args:
        address: such as ``AA:BB:CC:DD:EE:FF``.
        values: the values of its characteristics, by UUID: bytes, a function that returns them, or an exception to
            raise.
        name: the name that it advertises.
        manufacturer: advertised data by company identifier.
        service_data: advertised data by UUID.
        notifies: the notification that a client gets as soon as it subscribes, by UUID: bytes, or a function that
            returns them.
        answers: the notification that a subscriber gets when something is written, by UUID: a function that is given
            what was written and returns bytes, or None for no answer.
    """

    def __init__(
        self,
        address: str,
        values: Mapping[str, CharacteristicValue] | None = None,
        *,
        name: str | None = None,
        manufacturer: Mapping[int, bytes] | None = None,
        service_data: Mapping[str, bytes] | None = None,
        notifies: Mapping[str, bytes | Callable[[], bytes]] | None = None,
        answers: Mapping[str, Callable[[bytes], bytes | None]] | None = None,
    ) -> None:
        self.address = check_address(address)
        self.values = {uuid_of(uuid): value for uuid, value in (values or {}).items()}
        self.name = name
        self.manufacturer = dict(manufacturer or {})
        self.service_data = {uuid_of(uuid): data for uuid, data in (service_data or {}).items()}
        self.notifies = {uuid_of(uuid): data for uuid, data in (notifies or {}).items()}
        self.answers = {uuid_of(uuid): answer for uuid, answer in (answers or {}).items()}
        self.silent = False
        """Whether it is out of range: it then neither advertises nor answers."""
        self.refuses: Exception | None = None
        """An exception that connecting raises, or None."""
        self.written: list[tuple[str, bytes]] = []
        """The written values with their characteristics, in order."""
        self.connections = 0
        """The number of connections so far."""
        self._subscribers: dict[str, Callable[[bytes], None]] = {}
        self._lost: Callable[[], None] | None = None

    def notify(self, characteristic: str, data: bytes) -> None:
        """Send a notification to the subscriber."""
        on_notification = self._subscribers.get(uuid_of(characteristic))
        if on_notification is not None:
            on_notification(data)

    def hang_up(self) -> None:
        """End the connection."""
        lost, self._lost = self._lost, None
        self._subscribers.clear()
        if lost is not None:
            lost()

    def advertisement(self) -> Advertisement:
        """The advertisement that it sends."""
        return Advertisement(
            self.address, self.name, -60, tuple(self.service_data), dict(self.manufacturer), dict(self.service_data)
        )

    async def connect(self, lost: Callable[[], None]) -> Self:
        """Connect. This, and what follows, is called by the radio."""
        if self.silent:
            await asyncio.Event().wait()
        if self.refuses is not None:
            raise self.refuses
        self.connections += 1
        self._lost = lost
        return self

    def has(self, uuid: str) -> bool:
        """Whether it has a characteristic."""
        return uuid in self.values

    async def read(self, uuid: str) -> bytes:
        """What a characteristic holds."""
        value = self._value(uuid, "reading")
        value = value() if callable(value) else value
        if self.silent:
            await asyncio.Event().wait()
        if isinstance(value, Exception):
            raise value
        return bytes(value)

    async def write(self, uuid: str, data: bytes, response: bool | None) -> None:
        """Remember what was written, and send the notifications of `answers`."""
        self._value(uuid, "writing")
        self.written.append((uuid, data))
        for answering, answer in self.answers.items():
            notification = answer(data)
            if notification is not None:
                asyncio.get_running_loop().call_soon(self.notify, answering, notification)

    async def subscribe(self, uuid: str, on_notification: Callable[[bytes], None]) -> None:
        """Pass on notifications: those of `notify`, and the one that the device sends on subscription."""
        first = self.notifies.get(uuid)
        if first is None and uuid not in self.answers:
            self._value(uuid, "subscribing to")
        self._subscribers[uuid] = on_notification
        if first is not None:
            asyncio.get_running_loop().call_soon(self.notify, uuid, first() if callable(first) else first)

    async def unsubscribe(self, uuid: str) -> None:
        """Pass on no more notifications."""
        self._subscribers.pop(uuid, None)

    async def disconnect(self) -> None:
        """Called when the radio hangs up."""
        self._lost = None
        self._subscribers.clear()

    def _value(self, uuid: str, what: str) -> CharacteristicValue:
        if uuid not in self.values:
            raise PermanentError(f"{what} {uuid} of {self.address}: the device has no such characteristic")
        return self.values[uuid]


class BleTwin(BleRadio):
    """A `BleRadio` with devices in memory.

    Args:
        devices: the devices in range.
        options: those of `BleRadio`, such as ``find=``.
    """

    def __init__(self, *devices: TwinDevice, **options: Any) -> None:
        super().__init__(**options)
        self.devices = {device.address: device for device in devices}

    def check_installed(self) -> None:
        """A twin needs no library."""

    def _create_backend(self) -> Backend:
        return _TwinBackend(self.devices)


class _TwinBackend:
    def __init__(self, devices: Mapping[str, TwinDevice]) -> None:
        self._devices = devices
        self._task: asyncio.Task[None] | None = None

    async def start(self, on_advertisement: AdvertisementListener) -> None:
        async def advertise() -> None:
            while True:
                for device in self._devices.values():
                    if not device.silent:
                        on_advertisement(device.advertisement(), device)
                await asyncio.sleep(ADVERTISING_INTERVAL)

        self._task = asyncio.create_task(advertise())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def close(self) -> None:
        """Nothing is kept between scans."""

    async def connect(self, handle: TwinDevice, on_lost: Callable[[], None], timeout: float) -> GattConnection:
        return await handle.connect(on_lost)


class ProgramsTwin(Programs):
    """A `Programs` without processes.

    Args:
        program: a function that gets the program and its arguments, and returns what it writes to stdout, or an
            exception to raise, such as ``ProgramFailed("no such sensor", 1)``.
        most_bytes: as that of `Programs`.
    """

    def __init__(self, program: Callable[..., str | bytes | Exception], *, most_bytes: int = MOST_BYTES) -> None:
        super().__init__(most_bytes=most_bytes)
        self._program = program

    async def _run(self, program: str, arguments: tuple[str, ...]) -> Finished:
        output = self._program(program, *arguments)
        if isinstance(output, Exception):
            raise output
        return Finished(0, output.encode() if isinstance(output, str) else output, b"")
