"""Makes the JSON Schema of a type: of what handlers return or take, from their annotations, and of documents. pydantic
makes it, and is imported for the first type that is more than JSON itself has."""

import copy
import typing
from collections.abc import Mapping, Sequence
from types import NoneType, UnionType
from typing import Any

from leadsman.core.introspection.fields import terms_of
from leadsman.core.mqtt.answers import Json
from leadsman.core.readings.sensor import Sensor
from leadsman.core.registration.annotation import result_of, split
from leadsman.core.registration.command import Command
from leadsman.core.registration.injection import Handler
from leadsman.core.registration.source import Source
from leadsman.core.registration.telemetry import Telemetry

if typing.TYPE_CHECKING:
    from leadsman.core.introspection.document import FieldTerms
    from leadsman.core.readings.filtering import Chain

Schema = dict[str, Json]
"""A JSON Schema."""

_ANY_OBJECT: Schema = {"type": "object"}
_OF_JSON: Mapping[object, Schema] = {
    NoneType: {"type": "null"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    Any: {},
    object: {},
}
"""The schemas of the types that JSON itself has, besides lists and objects."""


def read_schema(each: Telemetry | Source) -> Schema:
    """The schema of the readings of a device, as they come out of its filters."""
    if each.content is not None:
        from leadsman.core.introspection.document import ContentReading  # few have bytes

        return schema_of(ContentReading)
    schema = result_schema(each.handler)
    if each.field is not None:
        schema = {"type": "object", "properties": {each.field: schema}, "required": [each.field]}
    if each.filters is None:
        return schema
    schema = copy.deepcopy(schema)
    fields = {chain.source: _field(schema, chain.source) for chain in each.filters.chains}
    for source in fields:
        _object(schema, source).get("properties", {}).pop(source.rpartition(".")[2], None)
    for chain in each.filters.chains:
        around = _object(schema, chain.source)
        around.setdefault("properties", {})[chain.output] = _output(chain, fields[chain.source])
        if "required" in around:
            around["required"] = [name for name in around["required"] if name in around["properties"]]
    return schema


def shown_schema(each: Telemetry | Source | Command) -> Schema:
    """The schema of the readings of a registration, or of what a command returns."""
    return result_schema(each.handler) if isinstance(each, Command) else read_schema(each)


def terms_of_registration(each: Telemetry | Source | Command) -> "dict[str, FieldTerms]":
    """The terms that the types of the fields of `shown_schema` set; see `terms_of`."""
    return terms_of(shown_schema(each))


def _output(chain: "Chain", field: Schema) -> Schema:
    """The schema of an output of a field. It is a number, and has no limits: a filter may leave them."""
    about: Schema = {"type": "number"} if chain.sensor is None else schema_of(typing.Annotated[float, chain.sensor])
    if chain.sensor is None:
        kept = chain.keeps | {"discoverable", "homeassistant"}
        kept |= {"name", "title"} if chain.source == chain.path else set()
        for branch in (*field.get("anyOf", ()), field):
            about |= {word: value for word, value in branch.items() if word in kept}
    if not chain.filters:
        return field | about
    if chain.nullable or any(branch.get("type") == "null" for branch in field.get("anyOf", ())):
        del about["type"]
        return about | {"anyOf": [{"type": "number"}, {"type": "null"}]}
    return about


def _field(schema: Schema, path: str) -> Schema:
    found: Schema = _object(schema, path).get("properties", {}).get(path.rpartition(".")[2], {})
    return found


def _object(schema: Schema, path: str) -> Schema:
    """The schema of the object that has a field; a definition on the way to it takes the place of its reference."""
    around = schema
    for key in path.split(".")[:-1]:
        properties = around.setdefault("properties", {})
        properties[key], around = resolved(schema, properties.get(key, dict(_ANY_OBJECT)))
    return around


def resolved(schema: Schema, node: Schema) -> tuple[Schema, Schema]:
    """A node without a reference, and the object in it, beside which it may be null."""
    branches = node.get("anyOf", [node])
    objects = [branch for branch in branches if branch.get("type") != "null"]
    around = objects[0] if len(objects) == 1 else node
    found = copy.deepcopy(schema["$defs"][around["$ref"].rpartition("/")[2]]) if "$ref" in around else around
    if around is node:
        return found, found
    return {**node, "anyOf": [found if branch is around else branch for branch in branches]}, found


def schema_of(kind: Any, mode: typing.Literal["validation", "serialization"] = "serialization") -> Schema:
    """The schema of one type: any object if it has none. The texts below the fields of a document are in it."""
    if (plain := _of_json(kind)) is not None:
        return plain
    from pydantic import PydanticUserError, TypeAdapter

    from leadsman.core.introspection.document_texts import with_texts

    try:
        return with_texts(TypeAdapter(kind).json_schema(mode=mode), kind)
    except PydanticUserError:
        return dict(_ANY_OBJECT)


def _of_json(annotation: object) -> Schema | None:
    """The schema of a type that JSON itself has, or of a list, an object or a union of such, with the words of a
    `Sensor` beside it; None of another one. It is what pydantic makes of it."""
    kind, beside = split(annotation)
    origin, inner = typing.get_origin(kind) or kind, typing.get_args(kind)
    found: Schema | None = None
    if origin in (typing.Union, UnionType):
        found = _of_one_of(inner)
    elif origin is list:
        items = _of_json(inner[0] if inner else Any)
        found = None if items is None else {"type": "array", "items": items}
    elif origin in (dict, Mapping) and inner[:1] in ((), (str,)):
        values = _of_json(inner[1] if inner else Any)
        found = None if values is None else {"type": "object", "additionalProperties": values or True}
    elif isinstance(kind, type) and kind in _OF_JSON:
        found = dict(_OF_JSON[kind])
    for each in beside:
        found = found | each.words() if found is not None and isinstance(each, Sensor) else None
    return found


def _of_one_of(kinds: Sequence[object]) -> Schema | None:
    """The schema of a union; null is its last member. None if pydantic would join some of its members."""
    found = list[Schema]()
    for kind in sorted(kinds, key=lambda kind: kind is NoneType):
        each = _of_json(kind)
        if each is None or "anyOf" in each or each in found:
            return None
        found.append(each)
    return {"anyOf": found}


def result_schema(handler: Handler) -> Schema:
    """The schema of the values that a handler returns or yields."""
    kind = result_of(handler).whole
    kinds = [each for each in typing.get_args(kind) if each is not type(None)]
    if type(None) in typing.get_args(kind) and len(kinds) == 1:
        kind = kinds[0]  # None publishes nothing
    return dict(_ANY_OBJECT) if kind in (None, type(None), Any) else schema_of(kind)
