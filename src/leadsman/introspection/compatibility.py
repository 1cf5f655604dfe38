"""The changes from one document of `leadsman.introspection.schema` to the next, as those see them who read the topics
of an app, or send to them."""

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from leadsman.errors import InvalidValue
from leadsman.mqtt.answers import Json
from leadsman.text import join_words

_ANYTHING = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})
_NUMBERS = frozenset({"number", "integer"})
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}


class SchemaChanges(NamedTuple):
    """Sentences about what changed, each beginning with the topic."""

    breaking: list[str]
    """Changes that a consumer may stumble over."""
    compatible: list[str]
    """Additions, which disturb nobody."""


class _Rule(NamedTuple):
    """What the values of some types must be, besides what has a place of its own in `_Field`."""

    types: frozenset[str]
    text: str
    step: float = 0.0
    """They are multiples of this; 0: it is another rule."""

    def follows_from(self, others: frozenset["_Rule"]) -> bool:
        """Whether values for which these rules hold follow this one, too."""
        return self in others or any(self.step and each.step and each.step % self.step == 0 for each in others)


class _Field(NamedTuple):
    """The declarations of a schema for a field, in all its alternatives together."""

    types: frozenset[str]
    values: frozenset[str] | None
    """The values that are allowed, if they are listed."""
    units: frozenset[str]
    required: bool
    inside: str
    """The path of what it is a part of."""
    low: tuple[float, bool]
    """The lower bound, and whether it is excluded. Without numbers, it is above all of them."""
    high: tuple[float, bool]
    """The upper bound, and whether it is included."""
    rules: frozenset[_Rule]


def compare(before: Mapping[str, Json], after: Mapping[str, Json]) -> SchemaChanges:
    """Compare the topics of two documents.

    A reader stumbles over a field that is gone or may be missing, over a type or a listed value that is new, and over
    another unit. A sender stumbles over a field that is gone or must be there, over a type, a listed value or
    number or text that is no longer taken, and over another unit.

    Raises:
        InvalidValue: what a topic has is no schema.
    """
    changes = SchemaChanges([], [])
    for topic, schema in before.items():
        if topic not in after:
            changes.breaking.append(f"{topic} is gone")
            continue
        incoming = schema.get("direction") == "in"
        try:
            had = _fields(schema)
        except (AttributeError, TypeError, ValueError, RecursionError):
            raise InvalidValue(f"{topic} has no valid schema") from None
        has = _fields(after[topic])
        for path, field in had.items():
            where = f"{topic}: {path}" if path else topic
            told = (
                [f"{where} is gone"]
                if path not in has
                else [f"{where} {each}" for each in _breaks(field, has[path], incoming)]
            )
            changes.breaking.extend(told)
        for path in has.keys() - had.keys():
            must = incoming and has[path].required and has[path].inside in had
            (changes.breaking if must else changes.compatible).append(
                f"{topic}: {path} {'must be sent' if must else 'is new'}"
            )
    changes.compatible.extend(f"{topic} is new" for topic in after.keys() - before.keys())
    return SchemaChanges(sorted(changes.breaking), sorted(changes.compatible))


def _breaks(had: _Field, has: _Field, incoming: bool) -> Iterator[str]:
    sent, known = (had, has) if incoming else (has, had)
    if _with_integers(sent.types) - _with_integers(known.types):
        yield f"was {_named(had.types)} and is {_named(has.types)}"
    elif known.values is not None and (sent.values is None or sent.values - known.values):
        yield f"was {_named(had.values)} and is {_named(has.values)}"
    if had.units != has.units:
        yield f"was in {_named(had.units)} and is in {_named(has.units)}"
    if had.required != has.required and has.required == incoming:
        yield "must be sent" if incoming else "may be missing"
    if not incoming:
        return
    if had.types & has.types & _NUMBERS and (has.low > had.low or has.high < had.high):
        yield f"took {_range(had)} and takes {_range(has)}"
    for rule in sorted(has.rules):
        if rule.types & had.types and not rule.follows_from(had.rules):
            yield f"takes only {rule.text}"


def _range(field: _Field) -> str:
    (low, without), (high, included) = field.low, field.high
    least = "" if math.isinf(low) else f"more than {low:g}" if without else f"{low:g} and more"
    most = "" if math.isinf(high) else f"up to {high:g}" if included else f"less than {high:g}"
    if least and most:
        return f"{low:g} to {high:g}" if included and not without else f"{least}, {most}"
    return least or most or "any number"


def _with_integers(types: frozenset[str]) -> frozenset[str]:
    return types | {"integer"} if "number" in types else types


def _named(words: frozenset[str] | None) -> str:
    if words is None or words == _ANYTHING:
        return "anything"
    return join_words(sorted(words)) if words else "no unit"


def _fields(schema: Json) -> dict[str, _Field]:
    """The fields of a schema by their paths, such as ``position.valve`` and ``rooms[].name``; the whole is the empty
    path."""
    reader = _Reader(schema.get("$defs", {}), {})
    reader.read(schema, "", "", True, ())
    return reader.found


class _Reader(NamedTuple):
    """Walks through a schema."""

    defs: Mapping[str, Json]
    found: dict[str, _Field]

    def read(self, schema: Json, path: str, inside: str, required: bool, seen: tuple[str, ...]) -> None:
        """Note the field at a path, and what is in it. `seen` has the definitions on the way, each of which may contain
        itself."""
        name = str(schema.get("$ref", "")).rpartition("/")[2]
        if name in seen:
            return
        if name:
            schema, seen = {**self.defs.get(name, {}), **schema}, (*seen, name)
        alternatives = schema.get("anyOf") or schema.get("oneOf")
        if alternatives:
            unit = {"unit": schema["unit"]} if "unit" in schema else {}
            self._join(
                [self._alternative({**unit, **each}, path, inside, required, seen) for each in alternatives], path
            )
            return
        self.found[path] = _field(schema, inside, required)
        must = schema.get("required", ())
        for key, each in schema.get("properties", {}).items():
            self.read(each, f"{path}.{key}" if path else key, path, key in must, seen)
        for key, end in (("items", "[]"), ("additionalProperties", ".*")):
            if isinstance(schema.get(key), dict):
                self.read(schema[key], f"{path}{end}", path, False, seen)
        for n, each in enumerate(schema.get("prefixItems", ())):
            self.read(each, f"{path}[{n}]", path, n < schema.get("minItems", 0), seen)

    def _alternative(
        self, schema: Json, path: str, inside: str, required: bool, seen: tuple[str, ...]
    ) -> dict[str, _Field]:
        reader = _Reader(self.defs, {})
        reader.read(schema, path, inside, required, seen)
        return reader.found

    def _join(self, alternatives: list[dict[str, _Field]], path: str) -> None:
        """Note what is at a path and in it of one of several alternatives. A part that an object or a list among them
        does not have may be missing."""
        for alternative in alternatives:
            for name, field in alternative.items():
                had = self.found.get(name)
                self.found[name] = field if had is None else _either(had, field)
        around = [each for each in alternatives if path in each and each[path].types & {"object", "array"}]
        for name in {name for each in alternatives for name in each} - {path}:
            for each in around:
                if name not in each and self.found[name].inside in each:
                    self.found[name] = self.found[name]._replace(required=False)


def _field(schema: Json, inside: str, required: bool) -> _Field:
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if "type" in schema:
        types = frozenset([schema["type"]] if isinstance(schema["type"], str) else schema["type"])
    elif values is not None:
        types = frozenset(_TYPES.get(type(each), "object") for each in values)
    else:
        types = frozenset({"object"}) if "properties" in schema else _ANYTHING
    if types == {"null"}:
        values = [None]
    low, high, rules = (math.inf, True), (-math.inf, False), []
    if types & _NUMBERS:
        low = max((schema.get("minimum", -math.inf), False), (schema.get("exclusiveMinimum", -math.inf), True))
        high = min((schema.get("maximum", math.inf), True), (schema.get("exclusiveMaximum", math.inf), False))
    if "multipleOf" in schema:
        step = float(schema["multipleOf"])
        rules.append(_Rule(_NUMBERS, f"multiples of {step:g}", step))
    if "pattern" in schema:
        rules.append(_Rule(frozenset({"string"}), f"text that matches {schema['pattern']}"))
    return _Field(
        types,
        None if values is None else frozenset(map(repr, values)),
        frozenset([str(schema["unit"])] if "unit" in schema else ()),
        required,
        inside,
        low,
        high,
        frozenset(rules),
    )


def _either(one: _Field, other: _Field) -> _Field:
    """Two alternatives of one field."""
    return one._replace(
        types=one.types | other.types,
        values=None if one.values is None or other.values is None else one.values | other.values,
        units=one.units | other.units,
        required=one.required and other.required,
        low=min(one.low, other.low),
        high=max(one.high, other.high),
        rules=frozenset(
            rule
            for rule in one.rules | other.rules
            if all(rule in each.rules or not rule.types & each.types for each in (one, other))
        ),
    )
