"""Publish rules. They decide whether a reading is published.

A rule has no state. It compares a reading with the last *published* one, not with the last one read, so
that a slow drift adds up until it is published. A published reading that the outbox dropped, or that the broker refused
for good, does not count. Each handler has its own `LastPublished`. The first reading is always published.

``OnChange() | Every("10m")`` publishes a change at once, and any reading every ten minutes; ``OnChange() &
Every("1m")`` publishes changes, but at most one a minute.
"""

import inspect
import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

from leadsman.core.loop.durations import Duration, as_float, positive_seconds, whole
from leadsman.core.value import Value
from leadsman.errors import InvalidType, InvalidValue

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


@runtime_checkable
class PublishRule(Protocol):
    """Decides which readings of a device are published. `OnChange` and `Every` do, and so does any object with this
    method. ``|`` and ``&`` join it with one of those two.

    The rule of a registration serves all its devices, so it keeps nothing between two calls: `previous` has what it may
    compare with. It is not asked about the first reading, nor about one that a person or a program requested.
    """

    def decide(self, previous: LastPublished, reading: Fields, now: float) -> bool:
        """Whether to publish a reading. Called on the event loop for each reading, so it waits for nothing. If it
        raises, the reading is published.

        Args:
            previous: what was last published.
            reading: the fields of the reading, which it must not change.
            now: when the reading was taken, monotonic seconds.
        """
        ...


class JoinableRule(Value):
    """The base class of the rules here: they are joined with ``|`` and ``&``."""

    __slots__ = ()

    def decide(self, previous: LastPublished, reading: Fields, now: float) -> bool:
        """See `PublishRule`."""
        raise NotImplementedError  # each rule has its own

    def __or__(self, other: PublishRule) -> "AnyOf":
        return AnyOf(self, _rule(other))

    def __and__(self, other: PublishRule) -> "AllOf":
        return AllOf(self, _rule(other))

    def __ror__(self, other: PublishRule) -> "AnyOf":
        return AnyOf(_rule(other), self)

    def __rand__(self, other: PublishRule) -> "AllOf":
        return AllOf(_rule(other), self)


class _Pair(JoinableRule):
    """Two rules joined."""

    __slots__ = ("left", "right")
    left: PublishRule
    right: PublishRule

    def __init__(self, left: PublishRule, right: PublishRule) -> None:
        self._hold(left=left, right=right)


class AnyOf(_Pair):
    """Publishes when at least one of two rules wants it."""

    __slots__ = ()

    def decide(self, previous: LastPublished, reading: Fields, now: float) -> bool:
        """See `PublishRule`."""
        return self.left.decide(previous, reading, now) or self.right.decide(previous, reading, now)


class AllOf(_Pair):
    """Publishes when both rules want it."""

    __slots__ = ()

    def decide(self, previous: LastPublished, reading: Fields, now: float) -> bool:
        """See `PublishRule`."""
        return self.left.decide(previous, reading, now) and self.right.decide(previous, reading, now)


Deadband = float | str
"""By how much a number must differ to count as changed: in its own unit, or as text such as ``"1 %"`` in percent of the
value that was last published."""


class OnChange(JoinableRule):
    """Publishes when a value differs from the one last published.

    Args:
        deadband: numbers must differ by *more* than this: in their own unit, or as ``"1 %"`` of the value that was last
            published. Zero publishes every difference. A dict has deadbands for single fields, and the others are
            compared exactly: ``{"temperature": 0.2, "pressure": "1 %"}``. Text, booleans and lists are always compared
            exactly. A field that appears or disappears is a change.
        fields: deadbands for single fields, which override `deadband`. Nested fields have dots: ``{"air.co2": 50}``.

    A deadband of a `Sensor` counts for its field, unless `fields` or the dict has one.

    Raises:
        InvalidValue, InvalidType: at construction; at registration, if the type of the reading has no such field.
    """

    __slots__ = ("deadband", "fields")
    deadband: Deadband
    fields: tuple[tuple[str, Deadband], ...]

    def __init__(
        self, deadband: Deadband | Mapping[str, Deadband] = 0.0, *, fields: Mapping[str, Deadband] | None = None
    ) -> None:
        width: Deadband
        if isinstance(deadband, Mapping):
            if fields is not None:
                raise InvalidType("the deadbands of fields are given twice; leave fields= out")
            fields, width = deadband, 0.0
        else:
            width = check_deadband(deadband, "deadband")
        if fields is not None and not isinstance(fields, Mapping):
            raise InvalidType(f"fields is {fields!r}; write a dict of deadbands such as {{'co2': 50}}")
        for name in fields or ():
            if not isinstance(name, str):
                raise InvalidType(f"fields has {name!r}; write the names of fields, such as {{'co2': 50}}")
        pairs = tuple((name, check_deadband(each, f"fields[{name!r}]")) for name, each in (fields or {}).items())
        self._hold(deadband=width, fields=pairs)

    def decide(self, previous: LastPublished, reading: Fields, now: float) -> bool:
        """See `PublishRule`."""
        return self._differ(previous.fields, reading, "")

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
                if isinstance(width, str):
                    width = _share(width) * abs(before)
                if abs(value - before) > width + _NOISE * max(abs(value), abs(before)):
                    return True
            else:
                return True
        return False


def add_deadbands(rule: PublishRule | None, fields: Mapping[str, Deadband]) -> PublishRule | None:
    """The rule, where each `OnChange` has these deadbands for the fields for which it has none itself. Without a rule,
    one that has them, if there are any. A rule of the user's own stays as it is."""
    if not fields:
        return rule
    match rule:
        case None:
            return OnChange(fields)
        case OnChange():
            own = dict(rule.fields)
            return OnChange(rule.deadband, fields={**own, **fields, **own})  # its own ones come first
        case AnyOf() | AllOf():
            left, right = (add_deadbands(each, fields) or each for each in (rule.left, rule.right))
            return type(rule)(left, right)
    return rule


def deadband_fields(rule: PublishRule | None) -> tuple[str, ...]:
    """The names of the fields for which a rule has deadbands."""
    match rule:
        case OnChange():
            return tuple(name for name, _ in rule.fields)
        case AnyOf() | AllOf():
            return deadband_fields(rule.left) + deadband_fields(rule.right)
    return ()


class Every(JoinableRule):
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
        length = None if seconds is None else positive_seconds(seconds, "seconds")
        self._hold(seconds=length, n=None if n is None else whole(n, "n", 1))

    def decide(self, previous: LastPublished, reading: Fields, now: float) -> bool:
        """See `PublishRule`."""
        if self.n is not None and previous.since + 1 >= self.n:
            return True
        # A millisecond of grace: polls on a grid of the same length must not miss by the last bit of a float.
        return self.seconds is not None and now - previous.at >= self.seconds - 0.001


def check_rule(rule: object) -> PublishRule:
    """Check at registration that an object is a publish rule.

    Raises:
        InvalidType: a class, a rule that is to be awaited, text, or anything else.
    """
    if isinstance(rule, JoinableRule) and type(rule).__module__ == __name__:
        return rule
    if isinstance(rule, type) and isinstance(rule, PublishRule):
        raise InvalidType(f"publish is the class {rule.__name__}; write {rule.__name__}(…) with brackets")
    return _rule(rule)


def _rule(rule: object) -> PublishRule:
    if isinstance(rule, type) or not isinstance(rule, PublishRule):
        raise InvalidType(
            f"publish is {rule!r}; write OnChange(), Every('5m'), an object with decide(previous, reading, now), or two"
            " of them joined by | or &"
        )
    if inspect.iscoroutinefunction(rule.decide):
        raise InvalidType(f"decide of {type(rule).__name__} is async; write def, since a rule waits for nothing")
    return rule


def check_deadband(value: object, what: str) -> Deadband:
    """Check a deadband; `what` is its name in the message.

    Raises:
        InvalidValue, InvalidType: it is no number from 0 on, and no text such as ``"1 %"``.
    """
    if isinstance(value, str) and value.rstrip().endswith("%"):
        try:
            share = _share(value)
        except ValueError:
            share = math.nan
        if not (math.isfinite(share) and share >= 0):
            raise InvalidValue(f"{what} is {value!r}; write a share that is not negative, such as '1 %'")
        return f"{100 * share:.12g} %"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidType(
            f"{what} is {value!r}; it must be a number in the unit of the field, or a share such as '1 %'"
        )
    if not math.isfinite(as_float(value)) or value < 0:
        raise InvalidValue(f"{what} is {value!r}; it must be finite and not negative")
    return float(value)


def _share(text: str) -> float:
    return float(text.rstrip().removesuffix("%")) / 100


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
