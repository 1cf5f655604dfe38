"""Scripted handlers for tests: they fail, hang or answer according to a script."""

import asyncio
import math
import random
from collections.abc import Iterable, Sequence
from typing import Any

from leadsman.loop.durations import Duration, seconds


class _Fail:
    def __init__(self, times: int, error: Exception) -> None:
        self.times = times
        self.error = error


class _Hang:
    def __init__(self, duration: float, *, stubborn: bool) -> None:
        self.duration = duration
        self.stubborn = stubborn


def fail(times: int = 1, error: Exception | None = None) -> _Fail:
    """A step that fails this many calls, with `OSError` unless another error is given."""
    return _Fail(times, error or OSError("scripted"))


def hang(duration: Duration | None = None, *, stubborn: bool = False) -> _Hang:
    """A step that does not answer for `duration`, or never. A `stubborn` one ignores two cancellations: the
    timeout's and the shutdown's."""
    return _Hang(math.inf if duration is None else seconds(duration), stubborn=stubborn)


def garbage(size: int, seed: int = 0) -> bytes:
    """Random bytes that follow no protocol. A seed always gives the same bytes."""
    return random.Random(seed).randbytes(size)


class Scripted:
    """A handler that follows a script, one step per call, and repeats the last step for ever.

    A step is a result to return, an exception to raise, `fail` or `hang`. `calls` holds the virtual time of each call.
    """

    def __init__(self, *steps: object) -> None:
        self._steps = [step for given in steps for step in _unfolded(given)]
        self.calls: list[float] = []

    async def __call__(self) -> Any:
        """Follow the next step."""
        step = self._steps[min(len(self.calls), len(self._steps) - 1)]
        self.calls.append(asyncio.get_running_loop().time())
        if isinstance(step, _Hang):
            await _hung(step)
            return None
        if isinstance(step, BaseException):
            raise step
        return step


class Outages:
    """A handler that returns `reading` except during outages, which are pairs of start and end in virtual seconds.

    `calls` holds the time of each call, `answered` the times of those that succeeded.
    """

    def __init__(self, reading: object, outages: Iterable[Sequence[Duration]], error: Exception | None = None) -> None:
        self._reading = reading
        self._outages = [(seconds(start), seconds(end)) for start, end in outages]
        self._error = error or OSError("the device is away")
        self.calls: list[float] = []
        self.answered: list[float] = []

    async def __call__(self) -> Any:
        """Answer, or raise during an outage."""
        now = asyncio.get_running_loop().time()
        self.calls.append(now)
        if any(start <= now < end for start, end in self._outages):
            raise self._error
        self.answered.append(now)
        return self._reading() if callable(self._reading) else self._reading


def _unfolded(step: object) -> list[object]:
    return [step.error] * step.times if isinstance(step, _Fail) else [step]


async def _hung(step: _Hang) -> None:
    loop = asyncio.get_running_loop()
    end, swallowed = loop.time() + step.duration, 0
    while (left := end - loop.time()) > 0:
        try:
            await asyncio.sleep(min(left, 86_400.0))
        except asyncio.CancelledError:
            swallowed += 1
            if not step.stubborn or swallowed > 2:
                raise
