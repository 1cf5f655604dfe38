"""Publish rules. They decide whether a reading is published.

A rule is a value without state. It compares a reading with the last *published* one, not with the last one read, so
that a slow drift adds up until it is published. A published reading that the outbox dropped, or that the broker refused
for good, does not count. Each handler has its own `LastPublished`. The first reading is always published.

``OnChange() | Every("10m")`` publishes a change at once, and any reading every ten minutes; ``OnChange() &
Every("1m")`` publishes changes, but at most one a minute.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

from leadsman.errors import InvalidType, InvalidValue
from leadsman.loop.durations import Duration, as_float, positive_seconds
from leadsman.value import Value

Fields = Mapping[str, Any]
"""The fields of a reading: values that JSON can represent, by name."""

_NOISE = 1e-12
"""Of a value: 20.1 and 20.2 differ by 0.1 as people count, though not as floats do."""


class LastPublished(NamedTuple):
    """The last publication: its fields, its time (monotonic seconds), and the number of readings since, not counting
    the current one."""

    fields: Fields
    at: float
    since: int = 0


class PublishRule(Value, ABC):
    """The base class of publish rules. Rules are combined with ``|`` and ``&``."""

    __slots__ = ()

    @abstractmethod
    def wants(self, last: LastPublished, fields: Fields, now: float) -> bool:
        """Whether to publish `fields` at `now` (monotonic seconds), given what was last published."""

    def __or__(self, other: "PublishRule") -> "AnyOf":
        return AnyOf(self, _rule(other))

    def __and__(self, other: "PublishRule") -> "AllOf":
        return AllOf(self, _rule(other))


class _Pair(PublishRule):
    """Two rules joined."""

    __slots__ = ("left", "right")
    left: PublishRule
    right: PublishRule

    def __init__(self, left: PublishRule, right: PublishRule) -> None:
        self._hold(left=left, right=right)


class AnyOf(_Pair):
    """Publishes when at least one of two rules wants it."""

    __slots__ = ()

    def wants(self, last: LastPublished, fields: Fields, now: float) -> bool:
        return self.left.wants(last, fields, now) or self.right.wants(last, fields, now)


class AllOf(_Pair):
    """Publishes when both rules want it."""

    __slots__ = ()

    def wants(self, last: LastPublished, fields: Fields, now: float) -> bool:
        return self.left.wants(last, fields, now) and self.right.wants(last, fields, now)


class OnChange(PublishRule):
    """Publishes when a value differs from the one last published.

    Args:
        deadband: numbers must differ by *more* than this, in their own unit. Zero publishes every difference. Text,
            booleans and lists are always compared exactly. A field that appears or disappears is a change.
        fields: deadbands for single fields, which override `deadband`. Nested fields have dots: ``{"air.co2": 50}``.

    Raises:
        InvalidValue, InvalidType: at construction.
    """

    __slots__ = ("deadband", "fields")
    deadband: float
    fields: tuple[tuple[str, float], ...]

    def __init__(self, deadband: float = 0.0, *, fields: Mapping[str, float] | None = None) -> None:
        width = _deadband(deadband, "deadband")
        if fields is not None and not isinstance(fields, Mapping):
            raise InvalidType(f"fields is {fields!r}; write a dict of deadbands such as {{'co2': 50}}")
        pairs = tuple((name, _deadband(width, f"fields[{name!r}]")) for name, width in (fields or {}).items())
        self._hold(deadband=width, fields=pairs)

    def wants(self, last: LastPublished, fields: Fields, now: float) -> bool:
        return self._differ(last.fields, fields, "")

    def _differ(self, old: Fields, new: Fields, path: str) -> bool:
        if old.keys() != new.keys():
            return True
        for name, value in new.items():
            before = old[name]
            if value == before and type(value) is type(before):
                continue
            if isinstance(value, Mapping) and isinstance(before, Mapping):
                if self._differ(before, value, f"{path}{name}."):
                    return True
            elif _is_number(value) and _is_number(before):
                width = dict(self.fields).get(f"{path}{name}", self.deadband)
                if abs(value - before) > width + _NOISE * max(abs(value), abs(before)):
                    return True
            else:
                return True
        return False


class Every(PublishRule):
    """Publishes at intervals, by time or by count: ``Every(seconds=300)``, ``Every("5m")``, ``Every(n=10)``.

    Args:
        seconds: publish when at least this much time has passed since the last publication.
        n: publish every n-th reading, 1 or more. With both, whichever comes first.

    Raises:
        InvalidValue, InvalidType: at construction, also when neither is given.
    """

    __slots__ = ("n", "seconds")
    seconds: float | None
    n: int | None

    def __init__(self, seconds: Duration | None = None, *, n: int | None = None) -> None:
        if seconds is None and n is None:
            raise InvalidValue("Every() needs a time or a number; write Every('5m') or Every(n=10)")
        if n is not None and (isinstance(n, bool) or not isinstance(n, int)):
            raise InvalidType(f"n is {n!r}; it must be a whole number")
        if n is not None and n < 1:
            raise InvalidValue(f"n is {n!r}; it must be 1 or more")
        self._hold(seconds=None if seconds is None else positive_seconds(seconds, "seconds"), n=n)

    def wants(self, last: LastPublished, fields: Fields, now: float) -> bool:
        if self.n is not None and last.since + 1 >= self.n:
            return True
        # A millisecond of grace: polls on a grid of the same length must not miss by the last bit of a float.
        return self.seconds is not None and now - last.at >= self.seconds - 0.001


def checked(rule: object) -> PublishRule:
    """Check at registration that an object is a publish rule.

    Raises:
        InvalidType: a class, text, or anything else.
    """
    if isinstance(rule, type) and issubclass(rule, PublishRule):
        raise InvalidType(f"publish is the class {rule.__name__}; write {rule.__name__}(…) with brackets")
    return _rule(rule)


def _rule(rule: object) -> PublishRule:
    if not isinstance(rule, PublishRule):
        raise InvalidType(f"publish is {rule!r}; write OnChange(), Every('5m') or the two joined by | or &")
    return rule


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _deadband(value: object, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidType(f"{what} is {value!r}; it must be a number in the unit of the field")
    if not math.isfinite(as_float(value)) or value < 0:
        raise InvalidValue(f"{what} is {value!r}; it must be finite and not negative")
    return float(value)
