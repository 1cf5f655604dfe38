"""Filters of a field: each makes a number of a number, as readings come. Pure: they are handed the time of a reading.

A filter is a value without state, as it is written at a registration. `Filter.begin` makes the state that belongs to
one field of one device. A field that is None, or is not in a reading, changes no state. Those that gather readings over
a time are in `leadsman.core.readings.windows`.
"""

import functools
import inspect
import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from enum import Enum
from numbers import Integral, Real
from typing import Any, ClassVar, Final, Protocol, runtime_checkable

from leadsman.core.loop.durations import Duration, number, positive_seconds, whole
from leadsman.core.readings.sensor import Sensor
from leadsman.core.text import describe
from leadsman.core.value import Value
from leadsman.errors import InvalidType, InvalidValue, ResultError

Number = int | float
State = Sequence[Any]
"""The state of a filter as JSON-compatible values."""


class Pending(Enum):
    """The answer of an aggregate whose window is still open."""

    OPEN = "open"


OPEN: Final = Pending.OPEN
Output = Number | None | Pending

MAX_READINGS = 1001
"""Readings of a `Median` or an `Outlier`. They are sorted at each reading."""
_WHOLE = "write a whole number"
_number = functools.partial(number, kind="write a number")
SIGMA = 1.4826
"""The median of the absolute deviations from the median, times this, is the standard deviation where values are
normally distributed: 1/Φ⁻¹(3/4). F. R. Hampel, "The influence curve and its role in robust estimation", J. Am. Stat.
Assoc. 69 (1974)."""
DESCRIPTION = frozenset({"unit", "device_class", "state_class", "precision", "icon", "category", "deadband"})
"""The declarations of a `Sensor` that a filter may leave true of its output. Its name is that of the field."""


class Step(Protocol):
    """A filter at work at one field of one device."""

    def take(self, value: Number | None, now: float) -> Output:
        """The output for the next value, which is finite; None if there is none. `now` is monotonic seconds."""
        ...

    def to_json(self) -> State:
        """Its state, for `restore`."""
        ...

    def restore(self, state: State, later: float) -> None:
        """Go on with a state. The monotonic times in it are `later` seconds later now.

        Raises:
            LookupError, TypeError, ValueError: the state was not made by `to_json`.
        """
        ...


class OwnStep(Protocol):
    """An own filter at work at one field of one device."""

    def take(self, value: Number, now: float) -> Number | None:
        """The output for the next value; None if there is none. Called on the event loop for each reading, so it waits
        for nothing. A poll fails with what it raises, and if it returns anything but a number or None.

        Args:
            value: the value of the field, which is finite. A field that is None stays None, and is not passed.
            now: when the reading was taken, monotonic seconds.
        """
        ...


@runtime_checkable
class Filter(Protocol):
    """Changes the numbers of a field, in `filters=`. `Median` and the others here do, and so does any object with this
    method. One filter of a registration serves all its devices.

    An own filter begins again at each start: only those here keep their state. Its output has the unit of the field;
    if it has another one, write a `Sensor` after it.
    """

    def begin(self) -> OwnStep:
        """The filter at work at one field of one device, with the state of no reading; also called once at the
        registration. It has a method ``take(value, now)``."""
        ...


class BuiltInFilter(Value):
    """The base class of the filters here. One without state is its own `Step`."""

    __slots__ = ()
    keeps: ClassVar[frozenset[str]] = DESCRIPTION
    """The declarations of a `Sensor` that are still true of the output."""
    nullable: ClassVar[bool] = False
    """Whether the output may be None where the field is not."""

    def begin(self) -> Step:
        """The filter at work, with the state of no reading."""
        return self

    def take(self, value: Number | None, now: float) -> Output:
        """See `Step`."""
        raise NotImplementedError  # a filter with state has a `Step` that takes the values

    def to_json(self) -> State:
        """See `Step`."""
        return ()

    def restore(self, state: State, later: float) -> None:
        """See `Step`."""


FilterList = Sequence[BuiltInFilter | Filter | Sensor]
"""The filters of an output, in their order, and what it is then."""


class OwnFilter(BuiltInFilter):
    """A filter of the user's.

    Args:
        own: the filter.
        what: its place in the registration, for errors.

    Raises:
        InvalidType: it is not a filter.
    """

    __slots__ = ("own", "what")
    nullable = True
    own: Filter
    what: str

    def __init__(self, own: Filter, what: str) -> None:
        self._hold(own=own, what=what)
        take = getattr(self._begin(), "take", None)
        if not callable(take):
            raise InvalidType(f"begin of {self.name} in {what} returns no object with take(value, now); return one")
        if inspect.iscoroutinefunction(take):
            raise InvalidType(f"take of {self.name} in {what} is async; write def, since a filter waits for nothing")
        try:
            inspect.signature(take).bind(0.0, 0.0)
        except TypeError:
            raise InvalidType(
                f"take of {self.name} in {what} does not accept (value, now); add both parameters"
            ) from None
        except ValueError:  # a function in C tells no signature
            pass

    @property
    def name(self) -> str:
        """The name of its class."""
        return type(self.own).__qualname__

    def begin(self) -> Step:
        """See `Filter`."""
        return _OwnStep(self, self._begin())

    def _begin(self) -> OwnStep:
        try:
            return self.own.begin()
        except Exception as error:
            raise InvalidType(f"begin of {self.name} in {self.what} fails: {describe(error)}; correct it") from error

    def __repr__(self) -> str:
        return f"{self.name}()"  # the same at each start: the filters beside it keep their state


class _OwnStep:
    """A filter of the user's at work."""

    __slots__ = ("_made_by", "_step")

    def __init__(self, made_by: OwnFilter, step: OwnStep) -> None:
        self._made_by = made_by
        self._step = step

    def take(self, value: Number | None, now: float) -> Output:
        if value is None:
            return None
        found: object = self._step.take(value, now)
        if found is None or type(found) is float or type(found) is int:
            return found
        if not isinstance(found, bool):
            if isinstance(found, Integral):  # such as numpy.int64
                return int(found)
            if isinstance(found, Real):  # such as numpy.float32
                return float(found)
        where = f"take of {self._made_by.name} in {self._made_by.what}"
        raise ResultError(f"{where} returned {found!r}; return a number or None")

    def to_json(self) -> State:
        return ()

    def restore(self, state: State, later: float) -> None:
        pass


class Round(BuiltInFilter):
    """Rounds to decimals: a half goes to the even neighbour, as Python's `round` does it. 0 decimals give an int.

    Args:
        decimals: 0 to 9.

    Raises:
        InvalidValue, InvalidType: at construction.
    """

    __slots__ = ("decimals",)
    decimals: int

    def __init__(self, decimals: int) -> None:
        self._hold(decimals=whole(decimals, "decimals", 0, 9, kind=_WHOLE))

    def take(self, value: Number | None, now: float) -> Output:
        """See `Step`."""
        if value is None:
            return None
        return round(value, self.decimals) + 0.0 if self.decimals else round(value)  # + 0.0: no negative zero


class Scale(BuiltInFilter):
    """Multiplies by a factor and adds an offset, such as those of a calibration: ``factor * value + offset``.

    Args:
        factor: any number but 0.
        offset: in the unit of the output.

    Raises:
        InvalidValue, InvalidType: at construction.
    """

    __slots__ = ("factor", "offset")
    factor: Number
    offset: Number

    def __init__(self, factor: Number, offset: Number = 0) -> None:
        if _number(factor, "factor") == 0:
            raise InvalidValue("factor is 0, which makes every value the same; write the factor of the calibration")
        self._hold(factor=factor, offset=_number(offset, "offset"))

    def take(self, value: Number | None, now: float) -> Output:
        """See `Step`."""
        return None if value is None else self.factor * value + self.offset


class Clamp(BuiltInFilter):
    """Limits a value: one below `low` becomes `low`, and one above `high` becomes `high`.

    Args:
        low: the smallest output; None: no limit.
        high: the largest output; None: no limit.

    Raises:
        InvalidValue, InvalidType: at construction, also when both are None, or `low` is above `high`.
    """

    __slots__ = ("high", "low")
    low: Number | None
    high: Number | None

    def __init__(self, low: Number | None = None, high: Number | None = None) -> None:
        if low is None and high is None:
            raise InvalidValue("Clamp() has no limit; write Clamp(low=0) or Clamp(0, 100)")
        if low is not None and high is not None and _number(low, "low") > _number(high, "high"):
            raise InvalidValue(f"low is {low!r}, which is above high, {high!r}; exchange them")
        for limit, what in ((low, "low"), (high, "high")):
            if limit is not None:
                _number(limit, what)
        self._hold(low=low, high=high)

    def take(self, value: Number | None, now: float) -> Output:
        """See `Step`."""
        if value is None:
            return None
        if self.low is not None and value < self.low:
            return self.low
        return self.high if self.high is not None and value > self.high else value


class Median(BuiltInFilter):
    """The median of the last readings: a single wrong value disappears, and a step comes through later by half of the
    readings. Of an even number of them, as before `readings` are there, it is the mean of the two in the middle. J. W.
    Tukey, "Exploratory Data Analysis" (1977), chapter 7.

    Args:
        readings: how many, 2 to 1001; an odd number is usual.

    Raises:
        InvalidValue, InvalidType: at construction.
    """

    __slots__ = ("readings",)
    readings: int

    def __init__(self, readings: int) -> None:
        self._hold(readings=whole(readings, "readings", 2, MAX_READINGS, kind=_WHOLE))

    def begin(self) -> Step:
        """See `Filter`."""
        return _Recent(self.readings, median)


class Outlier(BuiltInFilter):
    """Replaces a value that is far from the last ones by their median; others pass as they are. Far is more than
    `limit` standard deviations from the median of the last readings, this one included. The deviation is estimated from
    the median of the absolute deviations, which an outlier does not change: the Hampel filter. R. K. Pearson, "Outliers
    in process modeling and identification", IEEE Trans. Control Syst. Technol. 10 (2002).

    Args:
        readings: how many are compared, 3 to 1001. A step comes through later by half of them.
        limit: standard deviations, more than 0.
        least: a value that is no further than this from the median passes, in the unit of the field. Values that are
            mostly equal, such as rounded ones, need the width of one step here.

    Raises:
        InvalidValue, InvalidType: at construction.
    """

    __slots__ = ("least", "limit", "readings")
    readings: int
    limit: Number
    least: Number

    def __init__(self, readings: int, *, limit: Number = 3.0, least: Number = 0.0) -> None:
        if _number(limit, "limit") <= 0:
            raise InvalidValue(f"limit is {limit!r}; it must be more than 0 standard deviations")
        if _number(least, "least") < 0:
            raise InvalidValue(f"least is {least!r}; it must not be negative")
        self._hold(readings=whole(readings, "readings", 3, MAX_READINGS, kind=_WHOLE), limit=limit, least=least)

    def begin(self) -> Step:
        """See `Filter`."""
        return _Recent(self.readings, self._judge)

    def _judge(self, recent: Sequence[Number]) -> Number:
        value, ordered, (half, odd) = recent[-1], sorted(recent), divmod(len(recent), 2)
        middle = ordered[half] if odd else between(ordered[half - 1], ordered[half])
        distance = abs(value - middle)
        if distance <= self.least:
            return value
        nearest = distance / (self.limit * SIGMA)
        if odd:  # the median of the deviations is less than `nearest` if most deviations are
            near = bisect_left(ordered, middle + nearest) - bisect_right(ordered, middle - nearest)
            return middle if near > half else value
        return middle if median([abs(each - middle) for each in ordered]) < nearest else value


class LowPass(BuiltInFilter):
    """Smooths, by elapsed time: after one time constant the output has followed 63 % of a step, after three 95 %. The
    first-order low-pass y += (1 - exp(-Δt / T)) (x - y), which is exact for a value that lasted since the reading
    before, however irregular readings are. A. Eckner, "Algorithms for unevenly spaced time series: moving averages and
    other rolling operators" (2019), where it is the exponential moving average with the next point.

    Args:
        time_constant: T, more than 0.

    Raises:
        InvalidValue, InvalidType: at construction.
    """

    __slots__ = ("time_constant",)
    time_constant: float

    def __init__(self, time_constant: Duration) -> None:
        self._hold(time_constant=positive_seconds(time_constant, "time_constant"))

    def begin(self) -> Step:
        """See `Filter`."""
        return _Smoothed(self.time_constant)


class Rate(BuiltInFilter):
    """How fast a counter grows: its increase since the reading before, per time. None at the first reading after a
    start, and after a counter was replaced; see `increase`. Over an outage it is the mean rate.

    Args:
        per: the time of the unit: ``"1h"`` makes kW of a counter in kWh.
        wraps_at: the value at which the counter begins again at 0, such as ``2**32``; None: it does not.

    Raises:
        InvalidValue, InvalidType: at construction.
    """

    __slots__ = ("per", "wraps_at")
    keeps = frozenset()
    nullable = True
    per: float
    wraps_at: Number | None

    def __init__(self, per: Duration, *, wraps_at: Number | None = None) -> None:
        self._hold(per=positive_seconds(per, "per"), wraps_at=check_wrap(wraps_at))

    def begin(self) -> Step:
        """See `Filter`."""
        return _Growth(self.per, self.wraps_at)


class _Recent:
    """The last values, of which one is made."""

    __slots__ = ("_make", "_readings", "_values")

    def __init__(self, readings: int, make: Callable[[Sequence[Number]], Number]) -> None:
        self._readings = readings
        self._values: list[Number] = []
        self._make = make

    def take(self, value: Number | None, now: float) -> Output:
        if value is None:
            return None
        values = self._values
        values.append(value)
        if len(values) > self._readings:
            del values[0]
        return self._make(values)

    def to_json(self) -> State:
        return list(self._values)

    def restore(self, state: State, later: float) -> None:
        self._values = [known(each) for each in state][-self._readings :]


class _Smoothed:
    """A low-pass at work."""

    __slots__ = ("_at", "_time_constant", "_value")

    def __init__(self, time_constant: float) -> None:
        self._time_constant = time_constant
        self._value: float | None = None
        self._at = 0.0

    def take(self, value: Number | None, now: float) -> Output:
        if value is None:
            return None
        before, elapsed = self._value, max(0.0, now - self._at)
        smoothed = float(value)
        if before is not None:
            smoothed = before - math.expm1(-elapsed / self._time_constant) * (value - before)
        if not math.isfinite(smoothed):  # the difference of two huge values
            smoothed = float(value)
        self._value, self._at = smoothed, now
        return smoothed

    def to_json(self) -> State:
        return [] if self._value is None else [self._value, self._at]

    def restore(self, state: State, later: float) -> None:
        if state:
            value, at = state
            self._value, self._at = float(known(value)), known(at) + later


class _Growth:
    """The rate of a counter at work. It keeps no state over a restart: how long that took is known by the wall clock
    only, and where that was wrong, as at the start of a machine without a clock, so would be the rate."""

    __slots__ = ("_at", "_per", "_value", "_wraps_at")

    def __init__(self, per: float, wraps_at: Number | None) -> None:
        self._per = per
        self._wraps_at = wraps_at
        self._value: Number | None = None
        self._at = 0.0

    def take(self, value: Number | None, now: float) -> Output:
        elapsed = now - self._at
        if value is None or (self._value is not None and elapsed <= 0):
            return None
        grown = None if self._value is None else increase(self._value, value, self._wraps_at)
        self._value, self._at = value, now
        return None if grown is None else grown * self._per / elapsed

    def to_json(self) -> State:
        return []

    def restore(self, state: State, later: float) -> None:
        pass


def median(values: Sequence[Number]) -> Number:
    """The median of one value or more; of an even number, the mean of the two in the middle."""
    ordered, (half, odd) = sorted(values), divmod(len(values), 2)
    return ordered[half] if odd else between(ordered[half - 1], ordered[half])


def between(low: Number, high: Number) -> Number:
    """The mean of two values, whose sum may be too large."""
    return low if low == high else low / 2 + high / 2


def increase(before: Number, after: Number, wraps_at: Number | None) -> Number | None:
    """By how much a counter grew; None if that is not known, since a counter that falls was replaced or set back. One
    that wraps has grown over its end if that is less than half of its range."""
    if after >= before:
        return after - before
    if wraps_at is None:
        return None
    grown = after + wraps_at - before
    return grown if 0 <= grown < wraps_at / 2 else None


def check_wrap(wraps_at: object) -> Number | None:
    """Check where a counter begins again. Raises `InvalidType`, `InvalidValue`."""
    if wraps_at is not None and _number(wraps_at, "wraps_at") <= 0:
        raise InvalidValue(
            f"wraps_at is {wraps_at!r}; write the value at which the counter begins again, such as 2**32"
        )
    return wraps_at  # type: ignore[return-value]  # checked by `number`


def known(value: object) -> Number:
    """A number of a saved state. Raises `TypeError`, `ValueError`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is no number")
    if not math.isfinite(value):
        raise ValueError(f"{value!r} is not finite")
    return value
