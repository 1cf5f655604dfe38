"""What the demo breaks on purpose: a simulated power meter behind a real pseudo-terminal, and the broker."""

import asyncio
import contextlib
import math
import random
import time
from collections.abc import Callable, Iterator

from leadsman.testing.mosquitto import Mosquitto
from leadsman.testing.pty import PtyDevice


class Meter(PtyDevice):
    """Answers each line it is asked with its power in watts."""

    def __init__(self) -> None:
        super().__init__()
        self.babbles = False
        """Whether it answers with garbage, as through a loose wire."""

    async def answer(self) -> None:
        """Answer until cancelled."""
        started = time.monotonic()
        while True:
            await asyncio.sleep(0.01)
            if self.receive():
                watts = 600 + 400 * math.sin((time.monotonic() - started) / 15) + random.gauss(0, 20)
                with contextlib.suppress(OSError, TimeoutError):
                    self.send(random.randbytes(24) + b"\n" if self.babbles else b"%.1f W\n" % watts, timeout=0.2)

    def babble(self) -> None:
        """Answer with garbage from now on."""
        self.babbles = True

    def speak(self) -> None:
        """Answer with readings again."""
        self.babbles = False


class Faults:
    """Breaks the broker and the meter in turn, and fixes them.

    Args:
        meter: is disturbed.
        mosquitto: the broker of the demo; None if the broker may not be killed.
        announce: is called with what is done, as it begins.
    """

    def __init__(self, meter: Meter, mosquitto: Mosquitto | None, announce: Callable[[str], None]) -> None:
        self._meter = meter
        self._mosquitto = mosquitto
        self._announce = announce
        self.lasted: dict[str, float] = {}
        """Seconds that each fault has lasted altogether, by its name."""

    async def make(self) -> None:
        """Break and fix until cancelled; what is broken then is fixed."""
        meter, broker = self._meter, self._mosquitto
        while True:
            if broker is not None:
                await self._pause("all is well")
                with self._broken("the broker was dead", broker.kill, broker.start):
                    await self._pause("on purpose: the broker is dead for 12 s; the app keeps its readings", 12)
            await self._pause("all is well")
            with self._broken("the meter sent garbage", meter.babble, meter.speak):
                await self._pause("on purpose: the meter sends garbage for 5 s", 5)
            await self._pause("all is well")
            with self._broken("the meter was unplugged", meter.unplug, meter.plug):
                await self._pause("on purpose: the meter is unplugged for 12 s", 12)

    async def _pause(self, note: str, seconds: float = 8) -> None:
        self._announce(note)
        await asyncio.sleep(seconds)

    @contextlib.contextmanager
    def _broken(self, name: str, begin: Callable[[], None], end: Callable[[], None]) -> Iterator[None]:
        began = time.monotonic()
        begin()
        try:
            yield
        finally:
            end()
            self.lasted[name] = self.lasted.get(name, 0.0) + time.monotonic() - began
