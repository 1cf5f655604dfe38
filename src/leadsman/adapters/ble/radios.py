"""Several radios as one backend: the adapter of this machine and proxies in other rooms.

Each radio is started, kept and started again for itself, so that one that is away or hangs delays no other. What they
hear becomes one, and a device is connected to by the radio that hears it best.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from leadsman.adapters.ble.advertisement import MAX_DEVICES, MAX_ENTRIES, Advertisement, name_and_services
from leadsman.adapters.ble.backend import AdvertisementListener, Backend, GattConnection, Handle, start_scanner
from leadsman.core.loop.durations import human
from leadsman.core.resilience.backoff import ExponentialBackoff
from leadsman.core.text import describe, log_fields
from leadsman.errors import DeviceError, DeviceTimeout, DeviceUnavailable, PermanentError

START_TIMEOUT = 15.0
"""Seconds for starting one radio: a board on weak Wi-Fi takes some to find, to connect to and to agree on keys with."""
FIRST_TIMEOUT = 4.0
"""Seconds in which a scan waits for its first radio; the others join later."""
STEADY = 60.0
"""Seconds after which a radio that has worked begins with the first wait again."""
WAITS = ExponentialBackoff(2.0, 60.0)
"""The waits between two attempts to start a radio."""
WINDOW = 2.0
"""Seconds within which radios deliver the same transmission. A proxy collects up to 16 advertisements before it sends
them, at most 0.1 s, and a lost packet on Wi-Fi costs some tenths of a second."""
SIGNAL = 30.0
"""Seconds for which the strength of a signal counts: a device that moves is soon heard best elsewhere."""
Part = tuple[str, object, object]
"""A kind of data, its key and its value: one service or manufacturer."""

logger = logging.getLogger("leadsman")


class RadioBackend(Backend, Protocol):
    """The backend of one radio among several."""

    @property
    def lost(self) -> "asyncio.Future[DeviceError] | None":
        """Set with the reason when it hears nothing more; None if it cannot detect that."""
        ...


class KeptRadio:
    """One radio among several, and whether it works.

    Args:
        name: in messages and in introspection.
        silence: seconds without any advertisement after which a radio that cannot detect its loss is started again.
        hear: called with each advertisement.
        changed: called when it works, or works no more.
    """

    def __init__(
        self,
        name: str,
        backend: RadioBackend,
        silence: float,
        hear: Callable[[str, Advertisement, Handle], None],
        changed: Callable[["KeptRadio"], None],
    ) -> None:
        self.name = name
        self.backend = backend
        self.running = False
        self.fault: DeviceError | None = None
        """Why it does not work; None if it works, or that is not known yet."""
        self._silence = silence
        self._hear = hear
        self._changed = changed
        self._task: asyncio.Task[None] | None = None
        self._logged = ""
        """Its failure as logged; empty if it works."""
        self._failures = 0
        self._retry_at = 0.0
        self._received_at = 0.0

    def begin(self) -> None:
        """Start it, and again whenever it fails; not before its wait is over."""
        if self.fault is not None and asyncio.get_running_loop().time() >= self._retry_at:
            self.fault = None
        self._task = asyncio.create_task(self._keep())

    async def end(self) -> None:
        """Stop it."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        await self._stop()

    async def _keep(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            if self.fault is not None:
                await asyncio.sleep(max(0.0, self._retry_at - clock()))
            try:
                await self._start()
                began = clock()
                error = await self._until_lost()
                if clock() - began >= STEADY:
                    self._failures = 0
            except DeviceError as failure:
                error = failure
            await self._stop()
            if error is not None:
                self._fail(error)

    async def _start(self) -> None:
        late = DeviceTimeout(f"{self.name} did not answer within {human(START_TIMEOUT)}")
        await start_scanner(self.backend, self._on_advertisement, START_TIMEOUT, late)
        self._received_at = asyncio.get_running_loop().time()
        self.running = True
        if self._logged:
            logger.info("radio %s works again", self.name, extra=log_fields("radio works again", radio=self.name))
        self.fault, self._logged = None, ""
        self._changed(self)

    async def _until_lost(self) -> DeviceError | None:
        """Why it is lost; None if it is to be started again for its silence."""
        lost, clock = self.backend.lost, asyncio.get_running_loop().time
        if lost is not None:
            return await asyncio.shield(lost)
        while True:
            left = self._received_at + self._silence - clock()
            if left <= 0:
                return None
            await asyncio.sleep(left)

    async def _stop(self) -> None:
        if self.running:
            self.running = False
            with contextlib.suppress(DeviceError):  # a lost radio scans no more
                await self.backend.stop()

    def _fail(self, error: DeviceError) -> None:
        self._failures += 1
        wait = WAITS.delay(self._failures)
        self._retry_at = asyncio.get_running_loop().time() + wait
        if self._logged != str(error):
            self._logged = str(error)
            logger.warning(
                "a radio does not work: %s; it is tried again in %s, and later every %s",
                describe(error),
                human(round(wait, 1)),
                human(WAITS.cap),
                extra=log_fields("radio failed", radio=self.name, error=describe(error)),
            )
        self.fault = error
        self._changed(self)

    def _on_advertisement(self, advertisement: Advertisement, handle: Handle) -> None:
        self._received_at = asyncio.get_running_loop().time()
        self._hear(self.name, advertisement, handle)


class Signal(NamedTuple):
    """How a radio hears a device."""

    rssi: int
    at: float
    handle: Handle


class _Device:
    """The reception of one device."""

    __slots__ = ("latest", "passed", "signals")

    def __init__(self, advertisement: Advertisement) -> None:
        self.signals: dict[str, Signal] = {}
        self.latest = advertisement
        self.passed: dict[Part, tuple[str, float]] = {}
        """Which radio delivered a value, and when: the last ones."""

    def accept(self, radio: str, advertisement: Advertisement, now: float) -> bool:
        """Take what a radio delivers. Returns whether it is another transmission than those before."""
        parts = _parts(advertisement)
        if all(self._is_late(part, radio, now) for part in parts):
            return False
        for part in parts:
            self.passed.pop(part, None)
            self.passed[part] = radio, now
        while len(self.passed) > MAX_ENTRIES:
            del self.passed[next(iter(self.passed))]
        self.latest = name_and_services(self.latest, advertisement)
        return True

    def _is_late(self, part: Part, radio: str, now: float) -> bool:
        """Whether another radio has delivered it just now."""
        deliverer, at = self.passed.get(part, (radio, now))
        return deliverer != radio and now - at < WINDOW


class Reception:
    """The devices that several radios hear, as if one radio heard them. Pure; `now` is monotonic seconds.

    Each transmission is passed on once, from the radio that delivers it first. What follows from other radios within
    `WINDOW` is the same transmission, late; a repetition by the same radio is another one, and passes, as with one
    radio. The signal strength is that of the radio that hears the device best.
    """

    def __init__(self) -> None:
        self._devices: dict[str, _Device] = {}

    def hear(self, radio: str, advertisement: Advertisement, handle: Handle, now: float) -> Advertisement | None:
        """The advertisement to pass on when a radio delivers one: its own data, the name and the services that the
        device sent before in other packets, and the best signal. None if another radio has delivered it."""
        device = self._devices.pop(advertisement.address, None) or _Device(advertisement)
        self._devices[advertisement.address] = device
        if len(self._devices) > MAX_DEVICES:
            del self._devices[next(iter(self._devices))]
        device.signals[radio] = Signal(advertisement.rssi, now, handle)
        if not device.accept(radio, advertisement, now):
            return None
        return device.latest._replace(rssi=self.signals(advertisement.address, now)[0][1].rssi)

    def signals(self, address: str, now: float) -> list[tuple[str, Signal]]:
        """The radios that hear a device, the best one first."""
        device = self._devices.get(address)
        if device is None:
            return []
        heard = [each for each in device.signals.items() if now - each[1].at < SIGNAL]
        return sorted(heard, key=lambda each: each[1].rssi, reverse=True)

    def leave(self, radio: str) -> None:
        """Forget what a radio heard: it hears nothing more."""
        for device in self._devices.values():
            device.signals.pop(radio, None)

    def devices_of(self, radio: str, now: float) -> int:
        """How many devices a radio hears."""
        heard = [device.signals.get(radio) for device in self._devices.values()]
        return sum(each is not None and now - each.at < SIGNAL for each in heard)


def _parts(advertisement: Advertisement) -> set[Part]:
    data: set[Part] = {("manufacturer", *each) for each in advertisement.manufacturer.items()}
    data |= {("service", *each) for each in advertisement.service_data.items()}
    return data or {("name", advertisement.name, advertisement.services)}


class Radios:
    """The backend of a `BleRadio` with several radios. A device's handle is its address: which radio hears it best is
    decided when it is connected to.

    Args:
        backends: by the name of the radio.
        silence: see `KeptRadio`.
    """

    def __init__(self, backends: Mapping[str, RadioBackend], silence: float) -> None:
        self._radios = [KeptRadio(name, each, silence, self._on, self._on_change) for name, each in backends.items()]
        self._reception = Reception()
        self._listener: AdvertisementListener | None = None
        self._news = asyncio.Event()

    @property
    def health(self) -> dict[str, str]:
        """For introspection: each radio, and what it hears or why it does not work."""
        return {f"radio {radio.name}": self._health_of(radio) for radio in self._radios}

    async def start(self, on_advertisement: AdvertisementListener) -> None:
        """Start the radios. Returns when one of them works.

        Raises:
            DeviceUnavailable, PermanentError: none of them works.
        """
        self._listener = on_advertisement
        for radio in self._radios:
            radio.begin()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FIRST_TIMEOUT):
                    while not any(radio.running for radio in self._radios) and None in self._faults():
                        self._news.clear()
                        await self._news.wait()
            faults = [fault for fault in self._faults() if fault is not None]
            if len(faults) == len(self._radios):
                raise _join_faults(faults)
        except BaseException:  # also if nobody waits for it any more
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop the radios."""
        self._listener = None
        await asyncio.gather(*(radio.end() for radio in self._radios))

    async def close(self) -> None:
        """Give up all connections."""
        await asyncio.gather(*(radio.backend.close() for radio in self._radios))

    async def connect(self, handle: Handle, on_lost: Callable[[], None], timeout: float) -> GattConnection:
        """Connect to a device by the radio that hears it best, or by the next one that can. Each but the last has half
        of the time that is left."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout
        radios = {radio.name: radio for radio in self._radios}
        signals = self._reception.signals(handle, loop.time())
        faults: list[DeviceError] = []
        for number, (name, signal) in enumerate(signals, 1):
            left = until - loop.time()
            share = left if number == len(signals) else left / 2
            try:
                async with asyncio.timeout(share):
                    return await radios[name].backend.connect(signal.handle, on_lost, share)
            except DeviceError as error:
                faults.append(error)
            except TimeoutError:
                faults.append(DeviceTimeout(f"{name} made no connection to {handle} within {human(round(share, 1))}"))
        if not faults:
            raise DeviceUnavailable(f"no radio hears {handle} any more; the next call searches for it again")
        raise _join_faults(faults)

    def _on(self, name: str, advertisement: Advertisement, handle: Handle) -> None:
        now = asyncio.get_running_loop().time()
        heard = self._reception.hear(name, advertisement, handle, now)
        if heard is not None and self._listener is not None:
            self._listener(heard, heard.address)

    def _on_change(self, radio: KeptRadio) -> None:
        if not radio.running:
            self._reception.leave(radio.name)
        self._news.set()

    def _faults(self) -> list[DeviceError | None]:
        return [radio.fault for radio in self._radios]

    def _health_of(self, radio: KeptRadio) -> str:
        if radio.fault is not None:
            return f"{type(radio.fault).__name__}: {describe(radio.fault)}"
        if not radio.running:
            return "starts when somebody listens" if self._listener is None else "starting"
        heard = self._reception.devices_of(radio.name, asyncio.get_running_loop().time())
        return f"hears {heard} device{'' if heard == 1 else 's'}"


def _join_faults(faults: list[DeviceError]) -> DeviceError:
    """One error for what several radios raised. It is permanent only if each of them is."""
    if len(faults) == 1:
        return faults[0]
    kind = PermanentError if all(isinstance(each, PermanentError) for each in faults) else DeviceUnavailable
    return kind("; ".join(str(each) for each in faults))
