"""Filters joined to chains, a chain for each output of a field, and the readings that come out of them. Pure."""

import math
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from leadsman.core.loop.clock import Clock
from leadsman.core.loop.durations import as_float
from leadsman.core.readings.filters import DESCRIPTION, OPEN, BuiltInFilter, Filter, Number, OwnFilter, known
from leadsman.core.readings.reading import JsonObject, Reading, reading_of
from leadsman.core.readings.sensor import Sensor
from leadsman.core.readings.windows import Aggregate
from leadsman.errors import InvalidType, InvalidValue, ResultError

Document = Mapping[str, Any]


class Absent(Enum):
    """A field that is not in a reading."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT
MAX_FILTERS = 20
"""Filters of a chain: more than anybody needs for a sensor."""
_EXAMPLE = "write a list of filters such as [Median(5), Round(1)]"


class Chain(NamedTuple):
    """Filters that make one output of one field, in the order in which they are applied."""

    source: str
    """The field; a nested one has dots."""
    output: str
    """The name of the output, in the same object as the field."""
    filters: tuple[BuiltInFilter, ...]
    sensor: Sensor | None
    """The description of the output, if the chain ends with it."""

    @property
    def path(self) -> str:
        """The output with the objects around it, joined by dots."""
        around, dot, _ = self.source.rpartition(".")
        return f"{around}{dot}{self.output}"

    @property
    def gathers(self) -> bool:
        """Whether a filter gathers readings over a window."""
        return any(isinstance(each, Aggregate) for each in self.filters)

    @property
    def nullable(self) -> bool:
        """Whether the output may be None where the field is not."""
        return any(each.nullable for each in self.filters)

    @property
    def keeps(self) -> frozenset[str]:
        """The declarations of a `Sensor` that are still true of the output."""
        return DESCRIPTION.intersection(*(each.keeps for each in self.filters))


class Filters(NamedTuple):
    """The filters of a registration."""

    chains: tuple[Chain, ...]

    @property
    def window(self) -> float | None:
        """Seconds of the shortest window. A device has a reading when one is over; None: there is none."""
        filters = [each for chain in self.chains for each in chain.filters]
        return min((each.window for each in filters if isinstance(each, Aggregate)), default=None)

    def begin(self) -> "FilteredReadings":
        """The filters at work for one device, with the state of no reading."""
        return FilteredReadings(self)


def check_filters(given: object) -> Filters:
    """Check the filters of a registration: a list of filters for each field, or a dict with a list for each output.

    Raises:
        InvalidType, InvalidValue: they are something else. The message names the field.
    """
    if not isinstance(given, Mapping) or not given:
        raise InvalidType(f"filters is {given!r}; write a dict such as {{'temperature': [Median(5), Round(1)]}}")
    chains: list[Chain] = []
    for field, written in given.items():
        if not isinstance(field, str) or not field:
            raise InvalidType(f"filters names the field {field!r}; write its name as text")
        own = field.rpartition(".")[2]
        outputs = written if isinstance(written, Mapping) else {own: written}
        if not outputs:
            raise InvalidValue(f"filters[{field!r}] has no output; {_EXAMPLE}")
        for output, steps in outputs.items():
            if not isinstance(output, str) or not output or "." in output:
                raise InvalidType(f"filters[{field!r}] has the output {output!r}; write a name without dots")
            chains.append(_chain(field, output, steps, alone=outputs is not written))
    paths = [each.path for each in chains]
    twice = next((path for path in paths if paths.count(path) > 1), None)
    if twice is not None:
        raise InvalidValue(f"filters has two outputs {twice!r}; give one of them another name")
    for path in (each.path for each in chains if each.path != each.source):
        inner = next((each.source for each in chains if each.source.startswith(f"{path}.")), None)
        if inner is not None:
            raise InvalidValue(
                f"filters has the output {path!r}, which is the object of the field {inner!r}; rename it"
            )
    return Filters(tuple(chains))


def _chain(field: str, output: str, steps: object, *, alone: bool) -> Chain:
    what = f"filters[{field!r}]" if alone else f"filters[{field!r}][{output!r}]"
    if not isinstance(steps, list | tuple):
        raise InvalidType(f"{what} is {steps!r}; {_EXAMPLE}")
    if len(steps) > MAX_FILTERS:
        raise InvalidValue(f"{what} has {len(steps)} filters; {MAX_FILTERS} are the most")
    sensor = steps[-1] if steps and isinstance(steps[-1], Sensor) else None
    filters = tuple(steps if sensor is None else steps[:-1])
    for each in filters:
        if isinstance(each, type):
            raise InvalidType(f"{what} has the class {each.__name__}; write {each.__name__}(…) with brackets")
        if isinstance(each, Sensor):
            raise InvalidType(f"{what} has a Sensor before a filter; write it last, for it describes the output")
        if not isinstance(each, Filter):
            raise InvalidType(f"{what} has {each!r}, which is no filter; {_EXAMPLE}, or an object with begin()")
    checked = [each if isinstance(each, BuiltInFilter) else OwnFilter(each, what) for each in filters]
    return Chain(field, output, tuple(checked), sensor)


class FilteredReadings:
    """Makes the readings of one device, through its filters."""

    def __init__(self, filters: Filters) -> None:
        self._outputs = [_Output(chain) for chain in filters.chains]
        kept = {chain.path for chain in filters.chains}
        gone = dict.fromkeys(chain.source for chain in filters.chains if chain.source not in kept)
        self._gone = [tuple(path.split(".")) for path in gone]

    def reading_of(
        self, entity: str, result: object, clock: Clock, validate: Callable[[object], object] | None = None
    ) -> Reading | None:
        """As `leadsman.core.readings.reading.reading_of`. None also if the device has aggregates, and no window is
        over.

        Raises:
            ResultError: also if a field with filters is no number.
        """
        reading = reading_of(entity, result, clock, validate)
        return None if reading is None else self.apply(reading)

    def apply(self, reading: Reading) -> Reading | None:
        """A reading that was just made, as it is published; None if the device has aggregates, and no window is over.
        An aggregate whose field the device never had does not count: it may be one of the devices that this one finds.
        Its fields, which nothing else holds yet, are changed.

        Raises:
            ResultError: a field with filters is no number, or no field is left.
        """
        fields, at = reading.fields, reading.at
        over, finite = False, True
        for each in self._outputs:  # before one of them takes its value: a window would be over, and lost
            each.find_value(fields)
        for each in self._outputs:
            if each.advance(at):
                over = True
            if not each.finite:
                finite = False
        if not over and any(each.gathers and each.seen for each in self._outputs):
            return None
        for path in self._gone:
            if _value_at(fields, path) is not ABSENT:
                del _around(fields, path)[path[-1]]
        for each in self._outputs:
            if each.finite and (each.present or (each.gathers and each.seen)):
                around = fields if each.is_outermost else _around(fields, each.source)
                around[each.name] = each.value
        return reading if finite else self._without_infinite(reading)

    def _without_infinite(self, reading: Reading) -> Reading:
        """The reading without the outputs that are not finite."""
        infinite = [each for each in self._outputs if not each.finite]
        for each in infinite:
            _around(reading.fields, each.source).pop(each.name, None)
        left_out = (*reading.left_out, *(each.path for each in infinite))
        if not reading.fields:
            raise ResultError(f"every field is NaN or infinite: {', '.join(left_out)}")
        return reading._replace(left_out=left_out)

    def to_json(self, now: float) -> Document:
        """The state, for `restore` after a restart. `now` is monotonic seconds."""
        return {"now": now, "outputs": {each.path: each.to_json() for each in self._outputs}}

    def restore(self, document: Document, now: float, away: float) -> None:
        """Go on with the state that `to_json` returned `away` seconds ago. An output whose chain is another one now, or
        whose state makes no sense, begins again.

        Raises:
            LookupError, TypeError, ValueError: a state makes no sense. The others are restored.
        """
        later = now - away - float(known(document["now"]))
        fault: Exception | None = None
        for each in self._outputs:
            if each.path in document["outputs"]:
                try:
                    each.restore(document["outputs"][each.path], later)
                except (LookupError, TypeError, ValueError) as error:
                    fault = error
        if fault is not None:
            raise fault


class _Output:
    """One chain at work."""

    __slots__ = (
        "_chain",
        "_found",
        "_steps",
        "finite",
        "gathers",
        "is_outermost",
        "name",
        "path",
        "present",
        "seen",
        "source",
        "value",
    )

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._steps = [each.begin() for each in chain.filters]
        self._found: Number | None = None
        self.source = tuple(chain.source.split("."))
        self.is_outermost = len(self.source) == 1
        self.name = chain.output
        self.path = chain.path
        self.gathers = chain.gathers
        self.value: Number | None = None
        """The last output; that of an aggregate stays until the next window is over."""
        self.finite = True
        """Whether it is a number that JSON can carry, or None."""
        self.present = False
        """Whether the field was in the last reading."""
        self.seen = False
        """Whether it was in any reading."""

    def find_value(self, fields: JsonObject) -> None:
        """Find the value in a reading.

        Raises:
            ResultError: it is no number.
        """
        found = _value_at(fields, self.source)
        self.present = found is not ABSENT
        self.seen = self.seen or self.present
        self._found = None if found is ABSENT else found

    def advance(self, now: float) -> bool:
        """Take the value. Returns whether a window is over; the first one begins when the field is there."""
        if not self.seen:
            return False
        value, finite = self._found, True
        for step in self._steps:
            try:
                found = step.take(value, now)
            except OverflowError:  # an int that no float can be
                found = math.inf
            if found is OPEN:
                return False
            value = found
            if value is not None:
                finite = value - value == 0 and (type(value) is float or math.isfinite(as_float(value)))
                value = value if finite else None
        self.value, self.finite = value, finite
        return self.gathers

    def to_json(self) -> Document:
        steps = [list(step.to_json()) for step in self._steps]
        return {"filters": repr(self._chain.filters), "seen": self.seen, "value": self.value, "steps": steps}

    def restore(self, document: Document, later: float) -> None:
        if document["filters"] != repr(self._chain.filters):
            return
        value = document["value"]
        value = None if value is None else known(value)
        seen = document["seen"] is True
        try:
            for step, state in zip(self._steps, document["steps"], strict=True):
                step.restore(state, later)
        except (LookupError, TypeError, ValueError):
            self._steps = [each.begin() for each in self._chain.filters]
            raise
        self.value, self.seen = value, seen


def _value_at(fields: JsonObject, path: tuple[str, ...]) -> Number | Absent | None:
    value: Any = fields
    for key in path:
        if not isinstance(value, dict) or key not in value:
            return ABSENT
        value = value[key]
    if value is None or type(value) is float or type(value) is int:  # not a bool, which is an int
        return value
    name = ".".join(path)
    raise ResultError(f"{name!r} is {value!r}, and its filters take numbers; return a number or None")


def _around(fields: JsonObject, path: tuple[str, ...]) -> JsonObject:
    """The object of a field; one that is not there is made."""
    for key in path[:-1]:
        inner = fields.get(key)
        if not isinstance(inner, dict):
            inner = fields[key] = {}
        fields = inner
    return fields
