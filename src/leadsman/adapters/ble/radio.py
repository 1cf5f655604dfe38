"""The Bluetooth Low Energy adapter: one radio for all devices, with advertisements and short sessions.

It uses bleak, on Linux with BlueZ, and on macOS and Windows as far as bleak supports them. It adds what bleak leaves
to its
users: one scanner for all handlers, connections that take turns, a timeout for every step, errors that say what to do,
and
detection of a ``bluetoothd`` that died, which bleak does not notice.

::

    radio = BleRadio()

    async with radio.session("AA:BB:CC:DD:EE:FF") as device:        connect; disconnect at the end
        temperature = STANDARD["2a6e"].decode(await device.read("2a6e"))

    async for advert in radio.advertisements(name="Sensor*", every="10s"):
        ...
"""

import asyncio
import contextlib
import logging
import sys
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, Protocol, Self, TypeVar

from leadsman.adapters.ble.advertisement import MOST_KNOWN, Address, Advertisement, AdvertisementFilter, checked_address
from leadsman.adapters.ble.gatt import uuid_of
from leadsman.adapters.extras import check_found
from leadsman.errors import DeviceError, DeviceTimeout, DeviceUnavailable, GarbledData, InvalidType, InvalidValue
from leadsman.timing.durations import Duration, human, positive_seconds

DISCONNECT_TIMEOUT = 3.0
"""Seconds; bleak waits ten where bluetoothd was restarted, and a poll that has to end must end."""
STEP_TIMEOUT = 5.0
"""Seconds for starting the scanner, and for a subscription."""
STOP_TIMEOUT = 1.0
"""Seconds for stopping the scanner: an app ends within two."""
FRESH = 10.0
"""Seconds after an advertisement in which a device is connected to without hearing it again. BlueZ forgets after 30."""
MOST_UNREAD = 4096
"""Notifications kept for a handler that is busy."""
MOST_ADVERTS = 256
"""Advertisements kept for a handler that is busy; the oldest go first."""

_T = TypeVar("_T")

logger = logging.getLogger("leadsman")

__all__ = ["Address", "Advertisement", "BleDevice", "BleRadio", "checked_address"]


Heard = Callable[[Advertisement, Any], None]
"""Told of an advertisement, with whatever the backend needs to connect."""


class GattConnection(Protocol):
    """A connection, as a backend gives it. Raises `DeviceError` of all kinds."""

    async def read(self, uuid: str) -> bytes:
        """Read a characteristic."""
        ...

    async def write(self, uuid: str, data: bytes, response: bool | None) -> None:
        """Write a characteristic; with an acknowledgement, without, or as it offers."""
        ...

    async def subscribe(self, uuid: str, heard: Callable[[bytes], None]) -> None:
        """Have its notifications, or indications."""
        ...

    async def unsubscribe(self, uuid: str) -> None:
        """Have them no longer."""
        ...

    async def disconnect(self) -> None:
        """Hang up."""
        ...


class Backend(Protocol):
    """The layer below a radio: bleak, or a twin in memory. Its methods raise `DeviceError` and its subclasses."""

    async def start(self, heard: Heard) -> None:
        """Start to scan."""
        ...

    async def stop(self) -> None:
        """Stop."""
        ...

    async def connect(self, handle: Any, lost: Callable[[], None], timeout: float) -> GattConnection:
        """Connect to a device whose advertisement was received. `lost` is called when the connection ends by itself."""
        ...


class BleRadio:
    """A Bluetooth adapter. An app needs one for all its devices.

    Args:
        adapter: such as ``hci1``; None takes the first one. Linux only.
        connections: how many devices may be connected at once; cheap controllers support few.
        passive: scan without asking devices for more data, which saves their batteries. Linux with ``bluetoothd
            --experimental``.
        find: how long to wait for a device's advertisement before connecting.
        connect: how long connecting may take.
        timeout: for one read or write.
        silence: the scanner is restarted when nothing was received for this long.
        retry_tokens: see `leadsman.adapters.adapter.LimitsRetries`.

    Raises:
        InvalidValue, InvalidType: at construction.
    """

    def __init__(
        self,
        adapter: str | None = None,
        *,
        connections: int = 1,
        passive: bool = False,
        find: Duration = 30.0,
        connect: Duration = 20.0,
        timeout: Duration = 10.0,
        silence: Duration = 60.0,
        retry_tokens: int | None = None,
    ) -> None:
        if adapter is not None and not isinstance(adapter, str):
            raise InvalidType(f"adapter is {adapter!r}; write a name such as 'hci0'")
        if isinstance(connections, bool) or not isinstance(connections, int):
            raise InvalidType(f"connections is {connections!r}; it is a number")
        if connections < 1:
            raise InvalidValue(f"connections is {connections!r}; it is 1 or more")
        if passive and sys.platform == "darwin":
            raise InvalidValue("passive is True; macOS scans actively only")
        self.retry_tokens = retry_tokens
        self._find = positive_seconds(find, "find")
        self._connect = positive_seconds(connect, "connect")
        self._timeout = positive_seconds(timeout, "timeout")
        self._silence = positive_seconds(silence, "silence")
        self._options = (adapter, passive)
        self._slots = asyncio.Semaphore(connections)
        self._dialling = asyncio.Lock()
        self._devices: dict[str, asyncio.Lock] = {}
        self._known: dict[str, tuple[Any, float]] = {}
        self._listeners: list[Callable[[Advertisement], None]] = []
        self._scanning = asyncio.Lock()
        self._scans = False
        self._heard_at = 0.0
        self._backend: Backend | None = None

    async def __aenter__(self) -> Self:
        """Prepare the radio. The scanner starts when the first handler needs it."""
        self._backend = self._made()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Stop scanning. The radio may be entered again."""
        async with self._scanning:
            await self._quiet()
        self._known.clear()

    def check_installed(self) -> None:
        """Check that bleak is installed. Raises `NotInstalled`."""
        check_found("Bluetooth devices", "bleak", "ble", "bleak")

    @property
    def health(self) -> dict[str, Any]:
        """For introspection: whether it scans, and the numbers of listeners, of sessions and of devices received
        recently."""
        sessions = sum(lock.locked() for lock in self._devices.values())
        return {
            "scanning": self._scans,
            "listeners": len(self._listeners),
            "sessions": sessions,
            "known": len(self._known),
        }

    async def probe(self) -> None:
        """Check that the adapter can scan, by starting or restarting the scanner. Raises `DeviceUnavailable`."""
        async with self._scanning:
            await self._quiet()
            await self._loud()
            if not self._listeners:
                await self._quiet()

    async def reset(self) -> None:
        """Discard the client of the Bluetooth service and make a new one."""
        async with self._scanning:
            await self._quiet()
            self._backend = self._made()
            if self._listeners:
                await self._loud()

    @contextlib.asynccontextmanager
    async def session(self, address: str) -> "AsyncIterator[BleDevice]":
        """Connect to a device, and disconnect at the end in any case. Disconnecting takes at most `DISCONNECT_TIMEOUT`.

        Raises:
            DeviceTimeout, DeviceUnavailable: the device was not found, not connected, or is gone. A retry may help.
            InvalidValue: the address is invalid.
        """
        address = checked_address(address)
        async with self._devices.setdefault(address, asyncio.Lock()), self._slots:
            lost = asyncio.Event()
            link = await self._dial(address, lost)
            try:
                yield BleDevice(address, link, lost, self._timeout)
            finally:
                lost.set()  # whoever still listens hears that it is over
                await self._hang_up(address, link)

    async def read(self, address: str, *characteristics: str) -> list[bytes]:
        """Connect, read these characteristics, and disconnect. Raises as `session` and `BleDevice.read`."""
        async with self.session(address) as device:
            return [await device.read(each) for each in characteristics]

    async def advertisements(
        self,
        *,
        address: str | None = None,
        name: str | None = None,
        service: str | None = None,
        manufacturer: int | None = None,
        every: Duration | None = None,
        changed: bool = False,
    ) -> AsyncGenerator[Advertisement, None]:
        """Yield advertisements as they arrive; for `@app.source`. An advertisement must meet all given conditions.

        Args:
            address: of one device.
            name: a glob, such as ``Airthings*``.
            service: a UUID that is advertised, or has service data.
            manufacturer: a company identifier.
            every: yield at most one advertisement of each device in this time.
            changed: yield only advertisements that differ from the device's last one, apart from the signal strength.

        Raises:
            DeviceUnavailable: the adapter cannot scan. The source is restarted.
            InvalidValue, InvalidType: a condition is invalid.
        """
        wanted = AdvertisementFilter(
            None if address is None else checked_address(address),
            name,
            None if service is None else uuid_of(service),
            manufacturer,
            0.0 if every is None else positive_seconds(every, "every"),
            changed,
        )
        clock, unread, news = (
            asyncio.get_running_loop().time,
            deque[Advertisement](maxlen=MOST_ADVERTS),
            asyncio.Event(),
        )

        def listen(advert: Advertisement) -> None:
            if wanted.accepts(advert, clock()):
                unread.append(advert)
                news.set()

        async with self._listening(listen):
            while True:
                while unread:
                    yield unread.popleft()
                news.clear()
                try:
                    async with asyncio.timeout(self._silence):
                        await news.wait()
                except TimeoutError:
                    await self._wake()

    async def _dial(self, address: str, lost: asyncio.Event) -> GattConnection:
        handle = await self._located(address)
        async with self._dialling:  # BlueZ makes one connection after the other
            try:
                async with asyncio.timeout(self._connect):
                    return await self._ready().connect(handle, lost.set, self._connect)
            except TimeoutError as error:
                self._known.pop(address, None)
                raise DeviceTimeout(f"no connection to {address} within {human(self._connect)}") from error
            except DeviceError:
                self._known.pop(address, None)  # the next attempt listens for it first
                raise

    async def _hang_up(self, address: str, link: GattConnection) -> None:
        try:
            async with asyncio.timeout(DISCONNECT_TIMEOUT):
                await link.disconnect()
        except (TimeoutError, DeviceError) as error:  # it is not there any more, or the service is not
            logger.debug("%s: hanging up: %s", address, str(error) or "no answer")
            self._known.pop(address, None)

    async def _located(self, address: str) -> Any:
        known = self._known.get(address)
        if known is not None and asyncio.get_running_loop().time() - known[1] < FRESH:
            return known[0]
        found = asyncio.Event()
        handle: Any = None

        def listen(advert: Advertisement) -> None:
            nonlocal handle
            if advert.address == address:
                handle = self._known[address][0]
                found.set()

        async with self._listening(listen):
            try:
                async with asyncio.timeout(self._find):
                    await found.wait()
            except TimeoutError as error:
                await self._wake()
                raise DeviceTimeout(
                    f"{address} was not heard within {human(self._find)}; is it in range, awake, and not connected elsewhere?"
                ) from error
        return handle

    @contextlib.asynccontextmanager
    async def _listening(self, listener: Callable[[Advertisement], None]) -> AsyncIterator[None]:
        async with self._scanning:
            if not self._scans:
                await self._loud()
            self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)
            async with self._scanning:
                if not self._listeners:
                    await self._quiet()

    async def _wake(self) -> None:
        """Restart the scanner if nothing was received from any device: bluetoothd may have been restarted."""
        async with self._scanning:
            if asyncio.get_running_loop().time() - self._heard_at >= min(self._silence, self._find):
                await self._quiet()
                await self._loud()

    async def _loud(self) -> None:
        try:
            async with asyncio.timeout(STEP_TIMEOUT):
                await self._ready().start(self._on_advert)
        except TimeoutError as error:
            raise DeviceUnavailable(f"the Bluetooth scanner did not start within {human(STEP_TIMEOUT)}") from error
        self._scans = True
        self._heard_at = asyncio.get_running_loop().time()

    async def _quiet(self) -> None:
        if self._scans:
            self._scans = False
            with contextlib.suppress(TimeoutError, DeviceError):  # whoever is gone scans no more
                async with asyncio.timeout(STOP_TIMEOUT):
                    await self._ready().stop()

    def _on_advert(self, advert: Advertisement, handle: Any) -> None:
        self._heard_at = asyncio.get_running_loop().time()
        self._known.pop(advert.address, None)
        self._known[advert.address] = handle, self._heard_at
        if len(self._known) > MOST_KNOWN:
            del self._known[next(iter(self._known))]
        for listener in tuple(self._listeners):
            listener(advert)

    def _ready(self) -> Backend:
        if self._backend is None:
            raise DeviceUnavailable("the radio is not open; write `async with radio`, or give it to App(adapters=…)")
        return self._backend

    def _made(self) -> Backend:
        from leadsman.adapters.ble.bleak_backend import Bleak  # bleak is optional, and loads D-Bus

        return Bleak(*self._options)


class BleDevice:
    """A connected device, from `BleRadio.session`."""

    def __init__(self, address: str, link: GattConnection, lost: asyncio.Event, timeout: float) -> None:
        self.address = address
        self._link = link
        self._lost = lost
        self._timeout = timeout

    async def read(self, characteristic: str, timeout: Duration | None = None) -> bytes:
        """Read a characteristic.

        Raises:
            DeviceTimeout, DeviceUnavailable, TransientError: a retry may help.
            PermanentError: the characteristic does not exist, or may not be read.
        """
        uuid = uuid_of(characteristic)
        return await self._step(lambda: self._link.read(uuid), timeout, f"reading {characteristic}")

    async def write(
        self, characteristic: str, data: bytes, *, response: bool | None = None, timeout: Duration | None = None
    ) -> None:
        """Write a characteristic, with an acknowledgement if `response` is set. None takes what the characteristic
        offers. Raises as `read`."""
        uuid = uuid_of(characteristic)
        await self._step(lambda: self._link.write(uuid, bytes(data), response), timeout, f"writing {characteristic}")

    async def notifications(self, characteristic: str, silence: Duration = 60.0) -> AsyncGenerator[bytes, None]:
        """Yield all notifications of a characteristic, in order. On BlueZ, the result of a `read` in the meantime is
        yielded as well.

        Args:
            silence: the longest time without a notification. A Bluetooth service that dies does not report it.

        Raises:
            DeviceTimeout, DeviceUnavailable: nothing arrived for that long, or the device is gone. A retry may help.
            GarbledData: more than `MOST_UNREAD` notifications were waiting to be taken.
        """
        uuid, limit = uuid_of(characteristic), positive_seconds(silence, "silence")
        unread, news, missed = deque[bytes](), asyncio.Event(), False

        def heard(data: bytes) -> None:
            nonlocal missed
            if len(unread) < MOST_UNREAD:
                unread.append(data)
            else:
                missed = True
            news.set()

        await self._step(lambda: self._link.subscribe(uuid, heard), STEP_TIMEOUT, f"subscribing to {characteristic}")
        gone = asyncio.create_task(self._lost.wait())
        gone.add_done_callback(lambda _: news.set())
        try:
            while True:
                while unread:
                    yield unread.popleft()
                if missed:
                    raise GarbledData(f"{self.address} notifies faster than the handler takes it; some are lost")
                if self._lost.is_set():
                    raise DeviceUnavailable(f"{self.address} hung up")
                news.clear()
                try:
                    async with asyncio.timeout(limit):
                        await news.wait()
                except TimeoutError as error:
                    raise DeviceTimeout(f"{self.address} was silent for {human(limit)}") from error
        finally:
            gone.cancel()
            if not self._lost.is_set():
                with contextlib.suppress(TimeoutError, DeviceError):
                    async with asyncio.timeout(DISCONNECT_TIMEOUT):
                        await self._link.unsubscribe(uuid)

    async def next(self, characteristic: str, timeout: Duration = 10.0) -> bytes:
        """Subscribe, wait for one notification, and unsubscribe: for devices that notify on their own, or when a
        client subscribes. The answer to a `write` may arrive before the subscription; use `notifications` around the
        write.

        Args:
            timeout: how long to wait for the notification after subscribing.

        Raises:
            DeviceTimeout, DeviceUnavailable: nothing arrived, or the device is gone. A retry may help.
        """
        async with contextlib.aclosing(self.notifications(characteristic, timeout)) as notifications:
            return await anext(notifications)

    async def _step(self, step: Callable[[], Awaitable[_T]], timeout: Duration | None, what: str) -> _T:
        limit = self._timeout if timeout is None else positive_seconds(timeout, "timeout")
        if self._lost.is_set():
            raise DeviceUnavailable(f"{self.address} hung up")
        try:
            async with asyncio.timeout(limit):
                return await step()
        except TimeoutError as error:
            if isinstance(error, DeviceError):
                raise
            raise DeviceTimeout(f"{what} of {self.address} took longer than {human(limit)}") from error
