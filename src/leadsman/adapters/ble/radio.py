"""The Bluetooth Low Energy adapter: one radio for all devices, with advertisements and short sessions.

It uses bleak, on Linux with BlueZ, and on macOS and Windows as far as bleak supports them. It adds what bleak leaves to
its users: one scanner for all handlers, connections that take turns, a timeout for every step, errors that name the
remedy, and detection of a ``bluetoothd`` that died, which bleak does not notice.

::

    radio = BleRadio()

    async with radio.session("AA:BB:CC:DD:EE:FF") as device:        connect; disconnect at the end
        temperature = STANDARD["2a6e"].decode(await device.read("2a6e"))

    async for advertisement in radio.advertisements(name="Sensor*", every="10s"):
        ...
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Self

from leadsman.adapters.ble.advertisement import MAX_DEVICES, Advertisement, AdvertisementFilter, check_address
from leadsman.adapters.ble.backend import Backend, GattConnection, Handle, start_scanner
from leadsman.adapters.ble.device import BleDevice
from leadsman.adapters.ble.gatt import uuid_of
from leadsman.core.adapters.resource import Resource
from leadsman.core.adapters.wires import wire_of
from leadsman.core.loop.durations import Duration, human, positive_seconds
from leadsman.core.text import log_fields
from leadsman.errors import DeviceError, DeviceTimeout, DeviceUnavailable, InvalidType, InvalidValue, check_found

if TYPE_CHECKING:
    from leadsman.adapters.ble.proxy import Proxy
    from leadsman.adapters.ble.radios import RadioBackend, Radios

# One scanner for all listeners of a radio: it runs while there is a listener, and remembers which devices it received.
#
# A ``bluetoothd`` that was restarted does not report that it scans no more, and bleak does not notice it. So the
# scanner is restarted when it received nothing for a while.

START_TIMEOUT = 5.0
"""Seconds for starting the scanner."""
STOP_TIMEOUT = 1.0
"""Seconds for stopping the scanner: an app ends within two."""
FRESH = 10.0
"""Seconds after an advertisement in which a device is connected to without receiving another one. BlueZ forgets a
device after 30."""


class Scanner:
    """The scanner of one radio.

    Args:
        silence: seconds without any advertisement after which `restart_if_silent` restarts the scanner.
    """

    def __init__(self, silence: float) -> None:
        self.known: dict[str, tuple[Handle, float]] = {}
        """By address: the handle to connect with, and when the device was received last."""
        self.listeners: list[Callable[[Advertisement], None]] = []
        self.running = False
        self._silence = silence
        self._lock = asyncio.Lock()
        self._received_at = 0.0
        self._backend: Backend | None = None

    @property
    def backend(self) -> Backend:
        """The backend that scans and connects. Raises `DeviceUnavailable` before `open`."""
        if self._backend is None:
            raise DeviceUnavailable("the radio is not open; write `async with radio`, or pass it to App(adapters=…)")
        return self._backend

    def open(self, backend: Backend) -> None:
        """Use this backend. The scanner starts with the first listener."""
        self._backend = backend

    async def close(self) -> None:
        """Stop, and forget all devices."""
        async with self._lock:
            await self._stop()
            if self._backend is not None:
                await self._backend.close()
        self.known.clear()

    async def probe(self) -> None:
        """Check that the scanner starts. Raises `DeviceUnavailable`."""
        async with self._lock:
            await self._stop()
            await self._start()
            if not self.listeners:
                await self._stop()

    async def replace(self, create_backend: Callable[[], Backend]) -> None:
        """Go on with a new backend."""
        async with self._lock:
            await self._stop()
            await self.backend.close()
            self._backend = create_backend()
            if self.listeners:
                await self._start()

    @contextlib.asynccontextmanager
    async def listening(self, listener: Callable[[Advertisement], None]) -> AsyncIterator[None]:
        """Call `listener` for each advertisement until the end of the context. Raises `DeviceUnavailable`."""
        self.listeners.append(listener)  # BlueZ signals data once that stays the same, maybe while the scan starts
        try:
            async with self._lock:
                if not self.running:
                    await self._start()
            yield
        finally:
            self.listeners.remove(listener)
            async with self._lock:
                if not self.listeners:
                    await self._stop()

    async def locate(self, address: str, timeout: float) -> Handle:
        """Return the handle to connect to a device with, after its next advertisement if none was received just now.

        Raises:
            DeviceTimeout: the device was not received within `timeout` seconds.
            DeviceUnavailable: the adapter cannot scan.
        """
        known = self.known.get(address)
        if known is not None and asyncio.get_running_loop().time() - known[1] < FRESH:
            return known[0]
        found: asyncio.Future[Handle] = asyncio.get_running_loop().create_future()

        def listen(advertisement: Advertisement) -> None:
            if advertisement.address == address and not found.done():
                found.set_result(self.known[address][0])

        async with self.listening(listen):
            try:
                async with asyncio.timeout(timeout):
                    return await found
            except TimeoutError as error:
                await self.restart_if_silent()
                raise DeviceTimeout(
                    f"{address} was not heard within {human(timeout)}; "
                    "is it in range, awake, and not connected elsewhere?"
                ) from error

    def forget(self, address: str) -> None:
        """Let the next `locate` wait for an advertisement."""
        self.known.pop(address, None)

    async def restart_if_silent(self) -> None:
        """Restart if nothing was received from any device: bluetoothd may have been restarted."""
        async with self._lock:
            if asyncio.get_running_loop().time() - self._received_at >= self._silence:
                await self._stop()
                await self._start()

    async def _start(self) -> None:
        late = DeviceUnavailable(f"the Bluetooth scanner did not start within {human(START_TIMEOUT)}")
        await start_scanner(self.backend, self._on_advertisement, START_TIMEOUT, late)
        self.running = True
        self._received_at = asyncio.get_running_loop().time()

    async def _stop(self) -> None:
        if self.running:
            self.running = False
            with contextlib.suppress(TimeoutError, DeviceError):  # a service that is gone scans no more
                async with asyncio.timeout(STOP_TIMEOUT):
                    await self.backend.stop()

    def _on_advertisement(self, advertisement: Advertisement, handle: Handle) -> None:
        self._received_at = asyncio.get_running_loop().time()
        self.known.pop(advertisement.address, None)
        self.known[advertisement.address] = handle, self._received_at
        if len(self.known) > MAX_DEVICES:
            del self.known[next(iter(self.known))]
        for listener in tuple(self.listeners):
            listener(advertisement)


DISCONNECT_TIMEOUT = 3.0
"""Seconds; bleak waits ten where bluetoothd was restarted, and a poll that has to end must end."""
MAX_ADVERTISEMENTS = 256
"""Advertisements kept for a handler that is busy; the oldest go first."""

logger = logging.getLogger("leadsman")


class BleRadio:
    """A Bluetooth adapter, with proxies in other rooms as further radios. An app needs one for all its devices.

    Args:
        adapter: such as ``hci1``; None takes the first one. Linux only.
        proxies: ESPHome boards with `bluetooth_proxy`. How they scan is in their YAML.
        local: whether this machine has an adapter; without one, proxies are all that it hears with.
        connections: how many devices may be connected at once; cheap controllers support few.
        passive: scan without asking devices for more data, which saves their batteries. Linux with ``bluetoothd
            --experimental``.
        find: how long to wait for a device's advertisement before connecting.
        connect: how long connecting may take.
        timeout: for one read or write.
        silence: the scanner is restarted when nothing was received for this long.
        retry_tokens: see `leadsman.core.adapters.adapter.LimitsRetries`.

    Raises:
        InvalidValue, InvalidType: at construction.
    """

    def __init__(
        self,
        adapter: str | None = None,
        *,
        proxies: Iterable[Proxy] = (),
        local: bool = True,
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
            raise InvalidType(f"connections is {connections!r}; it must be a number")
        if connections < 1:
            raise InvalidValue(f"connections is {connections!r}; it must be 1 or more")
        if passive and sys.platform == "darwin":
            raise InvalidValue("passive is True, but macOS can only scan actively; leave passive out")
        self.retry_tokens = retry_tokens
        self._find = positive_seconds(find, "find")
        self._connect = positive_seconds(connect, "connect")
        self._timeout = positive_seconds(timeout, "timeout")
        self._silence = positive_seconds(silence, "silence")
        self._options = (adapter, passive)
        self._local = local
        self._proxies = _check_proxies(proxies)
        if not local and not self._proxies:
            raise InvalidValue("local is False and there are no proxies; name one, such as Proxy(host='attic.local')")
        if not local and adapter is not None:
            raise InvalidValue(f"adapter is {adapter!r} and local is False; leave out one of them")
        self._free_connections = asyncio.Semaphore(connections)
        self._connecting = asyncio.Lock()
        self._device_locks: dict[str, asyncio.Lock] = {}
        self._scanner = Scanner(min(self._silence, self._find))
        self._radios: Radios | None = None

    async def __aenter__(self) -> Self:
        """Prepare the radio. The scanner starts when the first handler needs it."""
        self._scanner.open(self._wire())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Stop scanning. The radio may be entered again."""
        await self._scanner.close()

    def check_installed(self) -> None:
        """Check that bleak, and aioesphomeapi for proxies, are installed. Raises `NotInstalled`."""
        if self._local:
            check_found("Bluetooth devices", "bleak", "ble", "bleak")
        if self._proxies:
            check_found("Bluetooth proxies", "aioesphomeapi", "ble-proxies", "aioesphomeapi")

    @property
    def resource(self) -> Resource | None:
        """For ``leadsman doctor``: the Bluetooth adapter of this machine, if it is used."""
        return Resource("bluetooth", self._options[0] or "") if self._local else None

    @property
    def health(self) -> Mapping[str, object]:
        """For introspection: whether it scans, the numbers of listeners, of sessions and of devices received recently,
        and the seconds since the last advertisement. If there are proxies, each radio with what it hears, or why it
        does not work."""
        scanner = self._scanner
        _, heard_at = next(reversed(scanner.known.values()), (None, None))
        silent_for = None if heard_at is None else round(asyncio.get_running_loop().time() - heard_at, 3)
        return {
            "scanning": scanner.running,
            "listeners": len(scanner.listeners),
            "sessions": sum(lock.locked() for lock in self._device_locks.values()),
            "known": len(scanner.known),
            "silent_for": silent_for,
            **(self._radios.health if self._radios is not None else {}),
        }

    async def probe(self) -> None:
        """Check that the adapter can scan, by starting or restarting the scanner. Raises `DeviceUnavailable`."""
        await self._scanner.probe()

    async def reset(self) -> None:
        """Discard the client of the Bluetooth service and make a new one."""
        await self._scanner.replace(self._wire)

    @contextlib.asynccontextmanager
    async def session(self, address: str) -> AsyncIterator[BleDevice]:
        """Connect to a device, and disconnect at the end in any case. Disconnecting takes at most `DISCONNECT_TIMEOUT`.

        Raises:
            DeviceTimeout, DeviceUnavailable: the device was not found, not connected, or is gone. A retry may help.
            InvalidValue: the address is invalid.
        """
        address = check_address(address)
        async with self._device_locks.setdefault(address, asyncio.Lock()), self._free_connections:
            lost = asyncio.Event()
            connection = await self._connect_to(address, lost)
            try:
                yield BleDevice(address, connection, lost, self._timeout)
            finally:
                lost.set()  # a listener for notifications learns that it is over
                await self._disconnect(address, connection)

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
        """Yield advertisements as they arrive; for `@app.source`. An advertisement must meet all given conditions. Each
        has the data of one packet, and a packet may have none: name a service or a manufacturer to get those with its
        data.

        Args:
            address: of one device.
            name: a glob, such as ``Airthings*``.
            service: a UUID that has service data in this packet, or is advertised by a device that sends no such data.
            manufacturer: a company identifier that has data in this packet.
            every: yield at most one advertisement of each device in this time.
            changed: yield only advertisements that say something else than the device said last, apart from the signal
                strength. A packet without data says nothing else.

        Raises:
            DeviceUnavailable: the adapter cannot scan. The source is restarted.
            InvalidValue, InvalidType: a condition is invalid.
        """
        wanted = AdvertisementFilter(
            None if address is None else check_address(address),
            name,
            None if service is None else uuid_of(service),
            manufacturer,
            0.0 if every is None else positive_seconds(every, "every"),
            changed,
        )
        unread, news = deque[Advertisement](maxlen=MAX_ADVERTISEMENTS), asyncio.Event()
        clock = asyncio.get_running_loop().time

        def listen(advertisement: Advertisement) -> None:
            if wanted.accepts(advertisement, clock()):
                unread.append(advertisement)
                news.set()

        async with self._scanner.listening(listen):
            while True:
                while unread:
                    yield unread.popleft()
                news.clear()
                try:
                    async with asyncio.timeout(self._silence):
                        await news.wait()
                except TimeoutError:
                    await self._scanner.restart_if_silent()

    async def _connect_to(self, address: str, lost: asyncio.Event) -> GattConnection:
        handle = await self._scanner.locate(address, self._find)
        async with self._connecting:  # BlueZ makes one connection after the other
            try:
                async with asyncio.timeout(self._connect):
                    return await self._scanner.backend.connect(handle, lost.set, self._connect)
            except TimeoutError as error:
                self._scanner.forget(address)
                raise DeviceTimeout(f"no connection to {address} within {human(self._connect)}") from error
            except DeviceError:
                self._scanner.forget(address)  # the next attempt waits for its advertisement first
                raise

    async def _disconnect(self, address: str, connection: GattConnection) -> None:
        try:
            async with asyncio.timeout(DISCONNECT_TIMEOUT):
                await connection.disconnect()
        except (TimeoutError, DeviceError) as error:  # it is not there any more, or the service is not
            logger.debug(
                "%s: disconnecting: %s",
                address,
                str(error) or "no answer",
                extra=log_fields("disconnecting failed", address=address),
            )
            self._scanner.forget(address)

    def _wire(self) -> Backend:
        return wire_of("bluetooth", self._options[0] or "", self._create_backend)

    def _create_backend(self) -> Backend:
        backends: dict[str, RadioBackend] = {}
        if self._local:
            from leadsman.adapters.ble.bleak_backend import BleakBackend  # bleak is optional, and loads D-Bus

            backends[self._options[0] or "this machine"] = BleakBackend(*self._options)
        if not self._proxies:
            return next(iter(backends.values()))
        from leadsman.adapters.ble.esphome_backend import EsphomeBackend  # aioesphomeapi is optional
        from leadsman.adapters.ble.radios import Radios

        backends |= {each.name: EsphomeBackend(each) for each in self._proxies}
        self._radios = Radios(backends, self._silence)
        return self._radios


def _check_proxies(proxies: Iterable[Proxy]) -> tuple[Proxy, ...]:
    if proxies == ():
        return ()
    from leadsman.adapters.ble.proxy import Proxy  # it loads much of pydantic

    found: dict[str, Proxy] = {}
    if isinstance(proxies, str | bytes | Mapping) or not isinstance(proxies, Iterable):
        raise InvalidType(
            f"proxies is {proxies!r}; write [Proxy(host='attic.local')], or the values() of a dict of them"
        )
    for each in proxies:
        if not isinstance(each, Proxy):
            raise InvalidType(f"proxies has {each!r}; write Proxy(host='attic.local')")
        if found.setdefault(each.name.casefold(), each) is not each:
            raise InvalidValue(f"proxies has {each.name} twice; a proxy serves one client at a time")
    return tuple(found.values())
