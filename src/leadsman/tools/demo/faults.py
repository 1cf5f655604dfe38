"""What the demo breaks on purpose: a simulated power meter behind a real pseudo-terminal, a timetable of faults, and an
account of how long each of them lasted."""

import asyncio
import contextlib
import math
import random
import threading
import time
from collections.abc import Callable, Iterator

from leadsman.loop.durations import human
from leadsman.testing.mosquitto import Mosquitto
from leadsman.testing.pty import PtyDevice

BROKER_DEAD, GARBAGE, UNPLUGGED = "the broker was dead", "the meter sent garbage", "the meter was unplugged"


class Meter:
    """Answers each line it is asked with its power in watts. Starts with ``with``."""

    def __init__(self) -> None:
        self.device = PtyDevice()
        self.babbling = threading.Event()
        """While set it answers with garbage, as through a loose wire."""
        self._stopped = threading.Event()
        self._plugged = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="simulated meter", daemon=True)

    def __enter__(self) -> "Meter":
        self.device.plug()
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stopped.set()
        self._thread.join(1.0)
        self.device.__exit__()

    def unplug(self) -> None:
        """Disappear."""
        with self._plugged:
            self.device.unplug()

    def plug(self) -> None:
        """Come back."""
        with self._plugged:
            self.device.plug()

    def _run(self) -> None:
        started = time.monotonic()
        while not self._stopped.wait(0.01):
            with self._plugged, contextlib.suppress(OSError, TimeoutError):
                if self.device.receive():
                    watts = 600 + 400 * math.sin((time.monotonic() - started) / 15) + random.gauss(0, 20)
                    self.device.send(
                        random.randbytes(24) + b"\n" if self.babbling.is_set() else b"%.1f W\n" % watts, timeout=0.2
                    )


class Faults:
    """A minute of faults, over and over.

    Args:
        meter: is disturbed.
        mosquitto: the broker of the demo; None if the broker may not be killed.
        announce: is called with what is done, as it begins.
    """

    def __init__(self, meter: Meter, mosquitto: Mosquitto | None, announce: Callable[[str], None]) -> None:
        self._meter = meter
        self._mosquitto = mosquitto
        self._announce = announce
        self._lasted: dict[str, float] = {}
        """Seconds, by fault."""

    async def make(self) -> None:
        """Break and mend until cancelled; what is broken then is mended."""
        while True:
            await self._now("all is well", 8)
            if self._mosquitto is not None:
                with self._broken(BROKER_DEAD, self._mosquitto.kill, self._mosquitto.start):
                    await self._now("on purpose: the broker is dead for 12 s; the app keeps its readings", 12)
                await self._now("the broker is back; the app delivers what it kept", 6)
            with self._broken(GARBAGE, self._meter.babbling.set, self._meter.babbling.clear):
                await self._now("on purpose: the meter sends garbage for 5 s", 5)
            await self._now("all is well", 6)
            with self._broken(UNPLUGGED, self._meter.unplug, self._meter.plug):
                await self._now("on purpose: the meter is unplugged for 12 s", 12)
            await self._now("the meter is back; a probe will close its circuit", 8)

    @property
    def account(self) -> str:
        """What was broken, and for how long altogether."""
        if not self._lasted:
            return "Nothing was broken"
        parts = [f"{fault} for {human(max(1, round(seconds)))}" for fault, seconds in self._lasted.items()]
        text = ", ".join(parts)
        return text[0].upper() + text[1:]

    async def _now(self, note: str, seconds: float) -> None:
        self._announce(note)
        await asyncio.sleep(seconds)

    @contextlib.contextmanager
    def _broken(self, fault: str, break_it: Callable[[], None], mend_it: Callable[[], None]) -> Iterator[None]:
        began = time.monotonic()
        break_it()
        try:
            yield
        finally:
            mend_it()
            self._lasted[fault] = self._lasted.get(fault, 0.0) + time.monotonic() - began
