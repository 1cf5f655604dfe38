"""Aggregates of a field: filters that gather its values over a time, and give one number when that is over. Pure.

The first window begins with the first reading, and each one where the one before ended. The first reading at or after
the end of a window closes it, and belongs to the next one. A window without a value gives None. If several windows have
passed without a reading, the one that was open is given, and the empty ones are left out.
"""

import math
from collections.abc import Callable
from typing import ClassVar, Protocol

from leadsman.core.loop.durations import Duration, positive_seconds
from leadsman.core.readings.filters import (
    OPEN,
    BuiltInFilter,
    Number,
    Output,
    State,
    Step,
    check_wrap,
    increase,
    known,
)
from leadsman.errors import InvalidValue

GRID_TOLERANCE = 0.001
"""Of a window, by which the first one begins before its first reading: polls on a grid that divides the window must not
fall to one side of its end and then to the other, since each takes a little longer or shorter."""


class Gathered(Protocol):
    """The values that were gathered in one window."""

    def add(self, value: Number, now: float) -> None:
        """Take a value of the window."""
        ...

    def close(self, begin: float, end: float, following: float) -> Number | None:
        """The output for the window, which is over. The next one with a reading begins at `following`."""
        ...

    def to_json(self) -> State:
        """See `leadsman.core.readings.filters.Step`."""
        ...

    def restore(self, state: State, later: float) -> None:
        """See `leadsman.core.readings.filters.Step`."""
        ...


class Aggregate(BuiltInFilter):
    """The base class of aggregates.

    Args:
        window: how long values are gathered, more than 0.

    Raises:
        InvalidValue, InvalidType: at construction.
    """

    __slots__ = ("window",)
    nullable = True
    window: float

    def __init__(self, window: Duration) -> None:
        self._hold(window=positive_seconds(window, "window"))

    def begin(self) -> Step:
        """See `Filter`."""
        return _Window(self.window, self._gather())

    def _gather(self) -> Gathered:
        raise NotImplementedError  # each aggregate has its own


class Mean(Aggregate):
    """The arithmetic mean of the values of a window. Each reading counts the same. The sum is compensated, so that a
    window of a day loses no digits: A. Neumaier, "Rundungsfehleranalyse einiger Verfahren zur Summation endlicher
    Summen", Z. Angew. Math. Mech. 54 (1974).

    Args:
        window: how long values are gathered, more than 0.

    Raises:
        InvalidValue, InvalidType: at construction.
    """

    __slots__ = ()

    def _gather(self) -> Gathered:
        return _Sum()


class Minimum(Aggregate):
    """The smallest value of a window.

    Args:
        window: how long values are gathered, more than 0.

    Raises:
        InvalidValue, InvalidType: at construction.
    """

    __slots__ = ()

    def _gather(self) -> Gathered:
        return _One(min)


class Maximum(Aggregate):
    """The largest value of a window.

    Args:
        window: how long values are gathered, more than 0.

    Raises:
        InvalidValue, InvalidType: at construction.
    """

    __slots__ = ()

    def _gather(self) -> Gathered:
        return _One(max)


class Last(Aggregate):
    """The last value of a window.

    Args:
        window: how long values are gathered, more than 0.

    Raises:
        InvalidValue, InvalidType: at construction.
    """

    __slots__ = ()

    def _gather(self) -> Gathered:
        return _One(lambda _, value: value)


class Delta(Aggregate):
    """By how much a counter grew in a window: from the last value before it to its last value. What it grew while a
    counter was replaced is not known and not counted; None if nothing is known.

    Args:
        window: how long values are gathered, more than 0.
        wraps_at: the value at which the counter begins again at 0, such as ``2**32``; None: it does not. See `Rate`.

    Raises:
        InvalidValue, InvalidType: at construction.
    """

    __slots__ = ("wraps_at",)
    keeps: ClassVar[frozenset[str]] = frozenset({"unit", "precision", "icon"})
    wraps_at: Number | None

    def __init__(self, window: Duration, *, wraps_at: Number | None = None) -> None:
        self._hold(window=positive_seconds(window, "window"), wraps_at=check_wrap(wraps_at))

    def _gather(self) -> Gathered:
        return _Increase(self.wraps_at)


class Seen(Aggregate):
    """How much of a window was seen, 0 to 1: the share of its time that readings stand for. Beside a mean it shows
    whether an outage took a part of it.

    Args:
        window: how long values are gathered, more than 0.
        each: for how long a reading stands at most, until the next one: usually its interval.

    Raises:
        InvalidValue, InvalidType: at construction, also when `each` is longer than `window`.
    """

    __slots__ = ("each",)
    keeps: ClassVar[frozenset[str]] = frozenset()
    each: float

    def __init__(self, window: Duration, each: Duration) -> None:
        length, stands = positive_seconds(window, "window"), positive_seconds(each, "each")
        if stands > length:
            raise InvalidValue(f"each is {each!r}, which is longer than the window; write the interval of the readings")
        self._hold(window=length, each=stands)

    def _gather(self) -> Gathered:
        return _Covered(self.each)


class _Window:
    """An aggregate at work."""

    __slots__ = ("_begin", "_gathered", "_length")

    def __init__(self, length: float, gathered: Gathered) -> None:
        self._length = length
        self._gathered = gathered
        self._begin: float | None = None

    def take(self, value: Number | None, now: float) -> Output:
        found: Output = OPEN
        if self._begin is None or now < self._begin:
            self._begin = now - GRID_TOLERANCE * self._length
        elif now - self._begin >= self._length:
            begin = self._begin
            self._begin += math.floor((now - begin) / self._length) * self._length
            found = self._gathered.close(begin, begin + self._length, self._begin)
        if value is not None:
            self._gathered.add(value, now)
        return found

    def to_json(self) -> State:
        return [self._begin, list(self._gathered.to_json())]

    def restore(self, state: State, later: float) -> None:
        begin, gathered = state
        if begin is not None:
            self._begin = known(begin) + later
            self._gathered.restore(gathered, later)


class _Sum:
    """The sum of values, and how many there are."""

    __slots__ = ("_count", "_lost", "_sum")

    def __init__(self) -> None:
        self._count, self._sum, self._lost = 0, 0.0, 0.0

    def add(self, value: Number, now: float) -> None:
        before, taken = self._sum, float(value)
        total = self._sum = before + taken
        self._lost += (before - total) + taken if abs(before) >= abs(taken) else (taken - total) + before
        self._count += 1

    def close(self, begin: float, end: float, following: float) -> Number | None:
        mean = (self._sum + self._lost) / self._count if self._count else None
        self._count, self._sum, self._lost = 0, 0.0, 0.0
        return mean

    def to_json(self) -> State:
        return [self._count, self._sum, self._lost] if math.isfinite(self._sum + self._lost) else [0, 0.0, 0.0]

    def restore(self, state: State, later: float) -> None:
        count, total, lost = state
        self._count, self._sum, self._lost = int(known(count)), float(known(total)), float(known(lost))


class _One:
    """The value of a window that a function has chosen, of the one before and each one that comes."""

    __slots__ = ("_choose", "_value")

    def __init__(self, choose: Callable[[Number, Number], Number]) -> None:
        self._choose = choose
        self._value: Number | None = None

    def add(self, value: Number, now: float) -> None:
        self._value = value if self._value is None else self._choose(self._value, value)

    def close(self, begin: float, end: float, following: float) -> Number | None:
        value, self._value = self._value, None
        return value

    def to_json(self) -> State:
        return [] if self._value is None else [self._value]

    def restore(self, state: State, later: float) -> None:
        for value in state:
            self._value = known(value)


class _Increase:
    """By how much a counter grew. Its last value stays for the next window."""

    __slots__ = ("_grown", "_value", "_wraps_at")

    def __init__(self, wraps_at: Number | None) -> None:
        self._wraps_at = wraps_at
        self._value: Number | None = None
        self._grown: Number | None = None

    def add(self, value: Number, now: float) -> None:
        grown = None if self._value is None else increase(self._value, value, self._wraps_at)
        if grown is not None:
            self._grown = grown + (self._grown or 0)
        self._value = value

    def close(self, begin: float, end: float, following: float) -> Number | None:
        grown, self._grown = self._grown, None
        return grown

    def to_json(self) -> State:
        return [self._value, self._grown]

    def restore(self, state: State, later: float) -> None:
        self._value, self._grown = (None if each is None else known(each) for each in state)


class _Covered:
    """For how much of a window readings stand. The last one may reach into the next window."""

    __slots__ = ("_covered", "_each", "_until")

    def __init__(self, each: float) -> None:
        self._each = each
        self._covered = 0.0
        self._until = -math.inf

    def add(self, value: Number, now: float) -> None:
        self._covered += self._each - max(0.0, min(self._until - now, self._each))
        self._until = now + self._each

    def close(self, begin: float, end: float, following: float) -> Number | None:
        covered = self._covered - max(0.0, self._until - end)
        self._covered = max(0.0, self._until - following)
        return min(1.0, max(0.0, covered / (end - begin)))

    def to_json(self) -> State:
        return [self._covered, self._until] if math.isfinite(self._until) else []

    def restore(self, state: State, later: float) -> None:
        if state:
            covered, until = state
            self._covered, self._until = float(known(covered)), known(until) + later
