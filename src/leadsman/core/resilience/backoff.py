"""Backoff strategies and jitter: how long to wait before the next attempt, and how chance spreads the waits.

A strategy is a value without state, so one object may serve any number of handlers. Attempts count from 1: the number
is that of the waits since the last success, plus one. So waits keep growing in an outage that spans several polls: 2,
4, 8 | 16, 32, 60 | 60 … for `ExponentialBackoff()` with three retries per poll.

Jitter is ±20 % of the wait, limited *inside* the cap: ``U(0.8·d, min(1.2·d, max_delay))``. No wait exceeds the cap, and
the waits do not pile up on it, as they would if the sum were clipped: half of all waits would then be equal again.
A policy has more modes of jitter to choose from, `JITTER_MODES`.
"""

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from leadsman.core.loop.durations import Duration, human, number, positive_seconds, seconds
from leadsman.core.value import Value
from leadsman.errors import InvalidType, InvalidValue

MAX_WAIT_SECONDS = 10 * 366 * 86_400.0
"""No wait is longer than ten years: a larger number is a mistake in its unit."""

Draw = Callable[[], float]
"""Gives uniform numbers in [0, 1)."""


@runtime_checkable
class BackoffStrategy(Protocol):
    """The interface of backoff strategies. You can write your own; if it raises, one line is logged and the default is
    used."""

    def delay(self, attempt: int) -> float:
        """Seconds to wait before retry number `attempt` (1, 2, 3, … since the last success), jitter included."""
        ...


def jittered(wait: float, jitter: float, cap: float, draw: float) -> float:
    """Spread a wait by ±`jitter` (a fraction) within `cap` seconds; `draw` is uniform in [0, 1)."""
    return _between(wait * (1.0 - jitter), wait * (1.0 + jitter), cap, draw)


def _between(low: float, high: float, cap: float, draw: float) -> float:
    low, high = min(low, cap), min(high, cap)
    return low + max(0.0, high - low) * draw


_DECORRELATED_CAP = 60.0


class JitterMode(NamedTuple):
    """One mode of jitter. Times are seconds; `u` is uniform in [0, 1)."""

    spread: Callable[[float, float, float, float, float], float]
    """The wait to take for a wait, a fraction, a cap, the wait taken before, which is 0 at first, and u."""
    cap: Callable[[float, float, float], float]
    """The cap if none is given: for the longest wait inside, the cap of `symmetric` jitter inside, and a fraction."""
    remembers: bool = False
    """Whether it depends on the wait taken before."""


JITTER_MODES: Mapping[str, JitterMode] = {
    "symmetric": JitterMode(lambda d, part, cap, _, u: jittered(d, part, cap, u), lambda _, symmetric, __: symmetric),
    "add": JitterMode(
        lambda d, part, cap, _, u: _between(d, d * (1 + part), cap, u),
        lambda longest, _, fraction: min(longest * (1 + fraction), MAX_WAIT_SECONDS),
    ),
    "full": JitterMode(lambda d, _, cap, __, u: min(d, cap) * u, lambda longest, _, __: longest),
    "equal": JitterMode(lambda d, _, cap, __, u: min(d, cap) * (0.5 + u / 2), lambda longest, _, __: longest),
    "decorrelated": JitterMode(
        lambda d, _, cap, before, u: _between(d, 3 * (before or min(d, cap)), cap, u),
        lambda _, __, ___: _DECORRELATED_CAP,
        remembers=True,
    ),
}
"""The modes of jitter: how a wait is spread by chance, and how long it may become.

================  =======================================  ===========================================================
mode              drawn from, within [0, cap]              the cap, if none is given
================  =======================================  ===========================================================
``symmetric``     d·(1 - fraction) to d·(1 + fraction)     that of the policy inside, if it was given one; else
                                                           `fraction` more than its longest wait
``add``           d to d·(1 + fraction)                    `fraction` more than the longest wait inside
``full``          0 to d                                   the longest wait inside
``equal``         d/2 to d                                 the longest wait inside
``decorrelated``  d to three times the wait before, at     60 s
                  first to three times d
================  =======================================  ===========================================================

``full``, ``equal`` and ``decorrelated`` are those of M. Brooker, "Exponential Backoff And Jitter", AWS Architecture
Blog, 2015.
"""


class Jittered(Value, ABC):
    """The base class of our strategies: `wait` decides, and `delay` adds the jitter."""

    __slots__ = ()
    jitter: float

    @abstractmethod
    def wait(self, attempt: int) -> float:
        """Seconds before jitter. Exact for any attempt from 1 to 10⁹ and beyond; never above the cap."""

    @property
    @abstractmethod
    def cap(self) -> float:
        """The longest delay, in seconds."""

    def delay(self, attempt: int, draw: float | None = None) -> float:
        """Seconds to wait before retry `attempt`; `draw` in [0, 1) replaces the random number in tests."""
        return jittered(self.wait(attempt), self.jitter, self.cap, random.random() if draw is None else draw)


class _Capped(Jittered):
    """A strategy whose cap is given."""

    __slots__ = ()
    max_delay: float

    @property
    def cap(self) -> float:
        return self.max_delay


class ExponentialBackoff(_Capped):
    """``min(base · factor^(attempt-1), max_delay)`` seconds: 2, 4, 8, 16, 32, 60, 60, …

    Args:
        base: the first wait, greater than zero.
        max_delay: the cap; jitter stays below it.
        factor: growth per attempt, 1 or more.
        jitter: the fraction by which a wait may differ, 0 to 1.

    Raises:
        InvalidValue, InvalidType: at construction.
    """

    __slots__ = ("base", "factor", "jitter", "max_delay")
    base: float
    factor: float
    jitter: float

    def __init__(
        self, base: Duration = 2.0, max_delay: Duration = 60.0, *, factor: float = 2.0, jitter: float = 0.2
    ) -> None:
        factor = float(number(factor, "factor"))
        if factor < 1:
            raise InvalidValue(f"factor is {factor!r}; it must be 1 or more, or the waits would shrink")
        self._hold(factor=factor, **_checked(jitter, base=base, max_delay=max_delay))

    def wait(self, attempt: int) -> float:
        # Logarithms are compared, as factor^attempt would overflow, at attempt 1025 for 2.0.
        if (attempt - 1) * math.log(self.factor) >= math.log(self.max_delay) - math.log(self.base):
            return min(self.base, self.max_delay) if self.factor == 1 else self.max_delay
        return min(self.base * self.factor ** (attempt - 1), self.max_delay)


class LinearBackoff(_Capped):
    """``min(step · attempt, max_delay)`` seconds: 2, 4, 6, 8, …

    Args and raises: as `ExponentialBackoff`.
    """

    __slots__ = ("jitter", "max_delay", "step")
    step: float
    jitter: float

    def __init__(self, step: Duration = 2.0, max_delay: Duration = 60.0, *, jitter: float = 0.2) -> None:
        self._hold(**_checked(jitter, step=step, max_delay=max_delay))

    def wait(self, attempt: int) -> float:
        return min(self.step * attempt, self.max_delay)


class FixedBackoff(Jittered):
    """`delay` seconds every time. Jitter may exceed `delay`, but not `max_delay`, if that is given.

    Args and raises: as `ExponentialBackoff`.
    """

    __slots__ = ("jitter", "max_delay", "seconds")
    seconds: float
    max_delay: float | None
    jitter: float

    def __init__(self, delay: Duration = 5.0, max_delay: Duration | None = None, *, jitter: float = 0.2) -> None:
        if seconds(delay, "delay") == 0:
            raise InvalidValue(
                f"delay is {delay!r}; it must be greater than zero; "
                "for retries at once write policy=immediate().max_retries(3)"
            )
        self._hold(
            seconds=_wait(delay, "delay"),
            max_delay=None if max_delay is None else _wait(max_delay, "max_delay"),
            jitter=fraction_of(jitter),
        )

    @property
    def cap(self) -> float:
        return self.seconds * (1 + self.jitter) if self.max_delay is None else self.max_delay

    def wait(self, attempt: int) -> float:
        return min(self.seconds, self.cap)

    def __repr__(self) -> str:
        """The names of the parameters; a field `delay` would hide the method."""
        return f"FixedBackoff(delay={self.seconds!r}, max_delay={self.max_delay!r}, jitter={self.jitter!r})"


class FibonacciBackoff(_Capped):
    """`first`, `second`, and then the sum of the last two waits, up to `max_delay`: 1, 2, 3, 5, 8, … seconds.

    Args and raises: as `ExponentialBackoff`.
    """

    __slots__ = ("first", "jitter", "max_delay", "second")
    first: float
    second: float
    jitter: float

    def __init__(
        self, first: Duration = 1.0, second: Duration = 2.0, max_delay: Duration = 60.0, *, jitter: float = 0.2
    ) -> None:
        self._hold(**_checked(jitter, first=first, second=second, max_delay=max_delay))

    def wait(self, attempt: int) -> float:
        wait, following = self.first, self.second
        for _ in range(attempt - 1):  # it grows at least like 1.6^n, so the cap ends the loop
            if wait >= self.max_delay and following >= wait:
                break
            wait, following = following, wait + following
        return min(wait, self.max_delay)


class SequenceBackoff(Jittered):
    """These waits one after the other; then the last one is repeated.

    Args:
        delays: seconds or text, one or more; 0 retries at once.
        jitter: the fraction by which a wait may differ, 0 to 1. No wait exceeds the longest of `delays`.
    """

    __slots__ = ("delays", "jitter")
    delays: tuple[float, ...]
    jitter: float

    def __init__(self, delays: Sequence[Duration], *, jitter: float = 0.2) -> None:
        if isinstance(delays, str) or not isinstance(delays, Sequence):
            raise InvalidType(f"delays is {delays!r}; write a list such as ['1s', '5s', '30s']")
        if not delays:
            raise InvalidValue("delays is empty; write at least one wait, such as ['1s', '5s', '30s']")
        waits = tuple(_within(seconds(delay, f"delays[{n}]"), f"delays[{n}]") for n, delay in enumerate(delays))
        self._hold(delays=waits, jitter=fraction_of(jitter))

    @property
    def cap(self) -> float:
        return max(self.delays)

    def wait(self, attempt: int) -> float:
        return self.delays[min(attempt, len(self.delays)) - 1]


def as_backoff(strategy: object, what: str = "backoff") -> BackoffStrategy:
    """Check at registration that an object is a strategy, not at the first failure in production.

    Raises:
        InvalidType: a class, text, or an object without a ``delay(attempt)`` method.
    """
    if isinstance(strategy, type):
        raise InvalidType(f"{what} is the class {strategy.__name__}; write {strategy.__name__}() with brackets")
    if not callable(getattr(strategy, "delay", None)):
        raise InvalidType(
            f"{what} is {strategy!r}; "
            "write ExponentialBackoff(), LinearBackoff(), FixedBackoff() or an object with delay(attempt)"
        )
    return strategy  # type: ignore[return-value]  # it has the one method there is


def fraction_of(value: object) -> float:
    """Check that a jitter is a fraction. Raises `InvalidType`, `InvalidValue`."""
    fraction = float(number(value, "jitter"))
    if not 0 <= fraction <= 1:
        raise InvalidValue(f"jitter is {value!r}; it must be a fraction from 0 to 1, 0.2 for ±20 %")
    return fraction


def _checked(jitter: float, **waits: Duration) -> dict[str, float]:
    return {**{name: _wait(wait, name) for name, wait in waits.items()}, "jitter": fraction_of(jitter)}


def _wait(value: Duration, name: str) -> float:
    return _within(positive_seconds(value, name), name)


def _within(amount: float, name: str) -> float:
    if amount > MAX_WAIT_SECONDS:
        raise InvalidValue(f"{name} is {human(amount)}; a wait of more than ten years is a mistake in the unit")
    return amount


DEFAULT_BACKOFF = ExponentialBackoff()
"""2, 4, 8, … 60 s, ±20 %: what a handler with `retry` and no `backoff` gets."""


def wait_of(
    backoff: BackoffStrategy,
    attempt: int,
    draw: Draw | None,
    on_strategy_error: Callable[[object, Exception], None],
) -> float:
    """Ask a strategy for a wait, without its jitter if there is no `draw`. If it raises or returns an invalid number,
    that is reported and the default is used."""
    if not isinstance(backoff, Jittered):
        try:
            delay = float(backoff.delay(attempt))
            if 0.0 <= delay <= MAX_WAIT_SECONDS:
                return delay
            raise ValueError(f"{backoff!r} returned {delay!r} seconds for attempt {attempt}")
        except Exception as error:
            on_strategy_error(backoff, error)
            backoff = DEFAULT_BACKOFF
    if draw is None:
        return backoff.wait(attempt)
    return backoff.delay(attempt, draw() if backoff.jitter else 0.0)
