"""One scanner for all listeners of a radio: it runs while there is a listener, and remembers which devices it received.

A ``bluetoothd`` that was restarted does not report that it scans no more, and bleak does not notice it. So the scanner
is restarted when it received nothing for a while.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from leadsman.adapters.ble.advertisement import MOST_KNOWN, Advertisement
from leadsman.adapters.ble.backend import Backend, Handle
from leadsman.errors import DeviceError, DeviceTimeout, DeviceUnavailable
from leadsman.timing.durations import human

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
        """By address: what is needed to connect, and when the device was received last."""
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
            self._backend = create_backend()
            if self.listeners:
                await self._start()

    @contextlib.asynccontextmanager
    async def listening(self, listener: Callable[[Advertisement], None]) -> AsyncIterator[None]:
        """Call `listener` for each advertisement until the end of the context. Raises `DeviceUnavailable`."""
        async with self._lock:
            if not self.running:
                await self._start()
            self.listeners.append(listener)
        try:
            yield
        finally:
            self.listeners.remove(listener)
            async with self._lock:
                if not self.listeners:
                    await self._stop()

    async def locate(self, address: str, timeout: float) -> Handle:
        """Return what is needed to connect to a device, after its next advertisement if none was received just now.

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
        try:
            async with asyncio.timeout(START_TIMEOUT):
                await self.backend.start(self._on_advertisement)
        except TimeoutError as error:
            raise DeviceUnavailable(f"the Bluetooth scanner did not start within {human(START_TIMEOUT)}") from error
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
        if len(self.known) > MOST_KNOWN:
            del self.known[next(iter(self.known))]
        for listener in tuple(self.listeners):
            listener(advertisement)
