"""The type of a reading, as the annotation of a handler names it: its fields, what a `Sensor` declares of each, and
whether each is a number. What is written about a field at a registration is checked against it."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from leadsman.core.readings.publish import Deadband
from leadsman.core.readings.sensor import Sensor
from leadsman.core.registration.annotation import Annotation, kept, read, result_of
from leadsman.core.registration.injection import Handler, name_of
from leadsman.core.text.suggestion import suggestion
from leadsman.errors import InvalidType, InvalidValue

if TYPE_CHECKING:
    from leadsman.core.readings.filtering import Filters

MAX_DEPTH = 20
"""Models within models; as many as a reading may have."""
_NO_NUMBERS = (str, bool, bytes, list, tuple, dict, set, frozenset)
_TEXTS = (str, bytes, date, time, timedelta)
"""The types that pydantic publishes as text."""
_FURTHER_TEXTS = {("decimal", "Decimal"), ("uuid", "UUID")}
"""Further ones, by module and name: most apps have no such field, and do not import these modules."""
_MOMENTS = (date, datetime, time, timedelta)
"""The types that it publishes as numbers, if the model is set so."""


class FieldType(NamedTuple):
    """One field of a reading."""

    kinds: tuple[object, ...]
    """Its types besides None."""
    sensor: Sensor | None
    choices: tuple[object, ...] = ()
    """The values that it may have, if these are listed; empty if not."""

    @classmethod
    def of(cls, annotation: object, beside: Iterable[object] = ()) -> "FieldType":
        """That of an annotation: its types besides None, the first `Sensor` in it, and the values that it lists.
        `beside` is what stands beside it elsewhere."""
        return cls.read(read(annotation, tuple(beside)))

    @classmethod
    def read(cls, annotation: Annotation) -> "FieldType":
        """As `of`, of an annotation that was read."""
        if Sensor in annotation.beside:
            raise InvalidType("a field has the class Sensor beside its type; write Sensor(…) with brackets")
        sensor = next((each for each in annotation.beside if isinstance(each, Sensor)), None)
        kinds: list[object] = []
        listed = []
        for kind in annotation.kinds:
            is_literal = get_origin(kind) is Literal
            values = tuple(each for each in get_args(kind) if each is not None) if is_literal else _members(kind)
            kinds += dict.fromkeys(map(type, values)) if is_literal else (kind,)
            listed.append(_published(values))
        choices = dict.fromkeys(each for values in listed for each in values) if all(listed) else ()
        found = cls(tuple(kinds), sensor, tuple(choices))
        return found.serialized() if any(hasattr(each, "when_used") for each in annotation.beside) else found

    def serialized(self) -> "FieldType":
        """Of a field for which the user sets what pydantic makes of it: what is text by itself may be anything."""
        return self._replace(kinds=(), choices=()) if any(map(_is_text, self.kinds)) else self

    def union(self, other: "FieldType") -> "FieldType":
        """The type of a field that is of one of two types."""
        kinds = (*self.kinds, *other.kinds) if self.kinds and other.kinds else ()
        choices = (*self.choices, *other.choices) if self.choices and other.choices else ()
        return FieldType(kinds, other.sensor or self.sensor, tuple(dict.fromkeys(choices)))

    @property
    def is_number(self) -> bool:
        """Whether it is a number, or may be one as far as can be seen."""
        return not self.kinds or any(_may_be_number(get_origin(kind) or kind) for kind in self.kinds)


def _may_be_number(kind: object) -> bool:
    """Whether a type may be a number in a reading. Of an enum, its values are published."""
    if kind in _NO_NUMBERS:
        return False
    if isinstance(kind, type) and issubclass(kind, Enum):
        return any(_may_be_number(type(each.value)) for each in kind)
    return not _is_text(kind)


def _is_text(kind: object) -> bool:
    if not isinstance(kind, type):
        return False
    return issubclass(kind, _TEXTS) or any((each.__module__, each.__name__) in _FURTHER_TEXTS for each in kind.__mro__)


_UNKNOWN = FieldType((), None)


class ReadingType(NamedTuple):
    """The type of a reading. Nested fields have dots in their names."""

    name: str
    fields: Mapping[str, FieldType]
    open: bool
    """Whether a reading may have fields that are not listed."""

    def check(self, names: Iterable[str], what: str) -> None:
        """Check that there are these fields. `what` names in the message what was written for them.

        Raises:
            InvalidValue: one does not exist. The message has the nearest name.
        """
        for name in names:
            if name not in self.fields and not self.open:
                near = suggestion(name, self.fields)
                raise InvalidValue(f"{what} names the field {name!r}, which {self.name} does not have; {near}")

    def union(self, other: "ReadingType | None") -> "ReadingType":
        """The type of a reading that is of one of two types. If the other one is not known, any field may be there."""
        if other is None:
            return self._replace(open=True)
        fields = dict(self.fields)
        for name, field in other.fields.items():
            fields[name] = fields[name].union(field) if name in fields else field
        return ReadingType(f"{self.name} or {other.name}", fields, self.open or other.open)

    def filtered(self, filters: "Filters") -> "ReadingType":
        """The type of what comes out of filters.

        Raises:
            InvalidType, InvalidValue: a field does not exist or is no number, or another field has the name of an
                output.
        """
        sources = dict.fromkeys(chain.source for chain in filters.chains)
        self.check(sources, "filters")
        found = {name: field for name, field in self.fields.items() if name not in sources}
        for chain in filters.chains:
            field = self.fields.get(chain.source, _UNKNOWN)
            if not field.is_number:
                kinds = " or ".join(getattr(kind, "__name__", repr(kind)) for kind in field.kinds)
                raise InvalidType(f"filters names the field {chain.source!r}, which is {kinds}; filters take numbers")
            if chain.path in found or any(name.startswith(f"{chain.path}.") for name in self.fields):
                raise InvalidValue(
                    f"filters has the output {chain.path!r}, and {self.name} has such a field; rename it"
                )
        outputs = {chain.path: self.fields.get(chain.source, _UNKNOWN) for chain in filters.chains}
        sensors = {chain.path: chain.sensor for chain in filters.chains if chain.sensor is not None}
        silent = {chain.path for chain in filters.chains if "deadband" not in chain.keeps}
        for path, field in outputs.items():
            found[path] = FieldType((), sensors.get(path, None if path in silent else field.sensor))
        return self._replace(fields=found)

    def filtered_where_known(self, filters: "Filters") -> "ReadingType":
        """As `filtered`, without the filters of fields that it does not have: devices that a handler finds share the
        filters of the handler's own readings."""
        known = (chain for chain in filters.chains if self.open or chain.source in self.fields)
        return self.filtered(filters._replace(chains=tuple(known)))

    @property
    def deadbands(self) -> dict[str, Deadband]:
        """The deadbands that stand beside the fields."""
        sensors = ((name, field.sensor) for name, field in self.fields.items())
        return {name: sensor.deadband for name, sensor in sensors if sensor is not None and sensor.deadband is not None}


@kept
def reading_type(handler: Handler, field: str | None = None) -> ReadingType | None:
    """The type of the readings that a handler is annotated to return or to yield; None if that type names no fields.
    `field` is the name of its one field, if it returns one value."""
    result = result_of(handler)
    if field is None:
        return _type_of(FieldType.read(result).kinds)
    return ReadingType(name_of(handler), {field: FieldType.read(result)}, open=False)


def type_of(annotation: object) -> ReadingType | None:
    """A type of readings; None if it does not name fields."""
    return _type_of(FieldType.of(annotation).kinds)


def _type_of(kinds: tuple[object, ...]) -> ReadingType | None:
    fields: dict[str, FieldType] = {}
    named = [found for kind in kinds if (found := _fields_of(kind)) is not None]
    if not named:
        return None
    complete = len(named) == len(kinds) and all(_listed(found, "", fields, MAX_DEPTH) for found in named)
    return ReadingType(" or ".join(getattr(kind, "__name__", repr(kind)) for kind in kinds), fields, not complete)


def _listed(found: Mapping[str, FieldType], path: str, into: dict[str, FieldType], depth: int) -> bool:
    """List the fields of one type. Returns whether these are all that it can have."""
    complete = depth > 0
    for key, (kinds, sensor, choices) in found.items() if depth else ():
        nested = [(kind, _fields_of(kind)) for kind in kinds]
        for kind, inner in nested:
            if inner is not None:
                complete = _listed(inner, f"{path}{key}.", into, depth - 1) and complete
            elif _is_mapping(kind):
                complete = False
        own = tuple(kind for kind, inner in nested if inner is None)
        if own or not nested:
            field, before = FieldType(own, sensor, choices), into.get(f"{path}{key}")
            into[f"{path}{key}"] = field if before is None else before.union(field)
    return complete


def _members(kind: object) -> Iterable[object]:
    """The members of an enum; of another type, nothing."""
    return kind if isinstance(kind, type) and issubclass(kind, Enum) else ()


def _published(values: Iterable[object]) -> tuple[object, ...]:
    """Values as a reading has them: of a member of an enum, its value."""
    return tuple(each.value if isinstance(each, Enum) else each for each in values)


def _is_mapping(kind: object) -> bool:
    bare = get_origin(kind) or kind
    return isinstance(bare, type) and issubclass(bare, Mapping)


def _fields_of(kind: object) -> Mapping[str, FieldType] | None:
    """The fields of a pydantic model, a dataclass or a TypedDict; None for anything else, and for a model that decides
    by itself what it becomes."""
    if not isinstance(kind, type):
        return None
    model: Mapping[str, Any] | None = getattr(kind, "model_fields", None)
    if model is not None:
        return _fields_of_model(kind, model)
    if not hasattr(kind, "__dataclass_fields__") and not hasattr(kind, "__total__"):
        return None
    try:
        hints = get_type_hints(kind, include_extras=True)
    except Exception:  # names that are there for type checkers only: nothing to check
        return None
    names: Iterator[str] = iter(getattr(kind, "__dataclass_fields__", hints))
    return {name: FieldType.of(hints[name]) for name in names}


def _fields_of_model(kind: Any, model: Mapping[str, Any]) -> Mapping[str, FieldType] | None:
    for name, each in model.items():
        if isinstance(each.default, Sensor):
            raise InvalidType(
                f"the field {name!r} of {kind.__name__} has a Sensor as its default; "
                f"write {name}: Annotated[…, Sensor(…)]"
            )
    config, decorators = kind.model_config, kind.__pydantic_decorators__
    if config.get("extra") == "allow" or config.get("serialize_by_alias") or decorators.model_serializers:
        return None
    found = {name: FieldType.of(each.annotation, each.metadata) for name, each in model.items() if not each.exclude}
    found |= {name: FieldType.of(each.return_type) for name, each in kind.model_computed_fields.items()}
    own = {name for each in decorators.field_serializers.values() for name in each.info.fields}
    if {config.get("ser_json_timedelta"), config.get("ser_json_temporal")} - {None, "iso8601"}:
        own |= {name for name, each in found.items() if any(kind in _MOMENTS for kind in each.kinds)}
    return {name: each.serialized() if name in own else each for name, each in found.items()}


def payload_names(annotation: object, parameter: str) -> ReadingType:
    """The fields of the payload of a command. One value is called as the parameter that gets it."""
    found = type_of(annotation)
    return ReadingType("the payload", {parameter: _UNKNOWN}, open=False) if found is None else found
