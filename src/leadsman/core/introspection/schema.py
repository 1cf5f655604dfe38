"""Makes the JSON Schema of every topic of an app, from its handlers' annotations and the types of its documents."""

import ast
import copy
import functools
import inspect
import itertools
import sys
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import PydanticUserError, TypeAdapter
from typing_extensions import get_original_bases, is_typeddict

from leadsman.core.extension import Extension
from leadsman.core.introspection import document
from leadsman.core.introspection.declared import documents_of
from leadsman.core.introspection.fields import terms_of
from leadsman.core.loop.durations import write_duration
from leadsman.core.monitoring import document as reports
from leadsman.core.mqtt.answers import Json
from leadsman.core.mqtt.topics import Topics
from leadsman.core.registration.annotation import result_of
from leadsman.core.registration.command import Command
from leadsman.core.registration.injection import Handler
from leadsman.core.registration.source import Source
from leadsman.core.registration.telemetry import Telemetry

if typing.TYPE_CHECKING:
    from leadsman.core.readings.filtering import Chain

DIALECT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Json]
"""A JSON Schema."""

MAX_DEPTH = 6
"""Objects within objects of which each value is listed; a type may contain itself."""
_ANY_OBJECT: Schema = {"type": "object"}


def schemas(
    topics: Topics,
    read: Mapping[str, Telemetry | Source],
    commands: Mapping[str, Command],
    *,
    shared: bool = False,
    own: tuple[Extension, ...] = (),
) -> Schema:
    """A schema for each topic, with ``"direction": "in"`` for the topics that the app subscribes to.

    Args:
        topics: of the app.
        read: what gives readings, by device.
        commands: the commands, by device.
        shared: whether several nodes share the app.
        own: the extensions that the app was given.
    """
    documents = documents_of(own)
    found: Schema = {
        topics.status: schema_of(documents.status),
        topics.error: schema_of(reports.FaultMessage),
        topics.registry: schema_of(document.RegistryDocument),
        f"{topics.registry}/+": schema_of(document.RegistryDocument),
        topics.introspect: schema_of(documents.request) | {"direction": "in"},
        f"{topics.introspect}/response": schema_of(document.Answer)
        | {"description": "Its data is described by #introspection."},
        "#introspection": schema_of(documents.introspection),
    }
    for added in documents.added:
        found |= {} if added.of_app is None else added.of_app(topics, shared)
    below = {word: kind for added in documents.added for word, kind in added.of_device.items()}
    for name, each in read.items():
        if not getattr(each, "job", False):
            readings = read_schema(each) | _event(each)
            if each.content is not None:
                content, word = each.content
                found[topics.of(name, word)] = {
                    "contentMediaType": content.content_type,
                    "description": f"The bytes themselves, at most {content.limit:,}.",
                }
            if each.layout != "fields":
                found[topics.state(name)] = readings
            if each.layout != "json":
                found |= _of_fields(topics, name, readings)
            if each.delivery.history is not None:
                found[topics.history(name)] = readings
            found[topics.availability(name)] = {"enum": ["online", "offline"]}
            found[topics.of(name, "health")] = schema_of(reports.DeviceHealth)
            error, where = schema_of(reports.OutageMessage), topics.device_error(name)
            found[where] = {"anyOf": [found[where], error]} if where in found else error  # the root device
            found |= {topics.of(name, word): schema_of(kind) for word, kind in below.items()}
            found[topics.of(name, "circuit/set")] = schema_of(document.CircuitRequest) | {"direction": "in"}
            if isinstance(each, Telemetry):
                for word in ("get", "hold/set", "release/set"):
                    found[topics.of(name, word)] = schema_of(document.Plain) | {"direction": "in"}
                if each.request is not None:
                    taken = schema_of(each.request.annotation, mode="validation")
                    found[topics.of(name, "get")] = taken | {"direction": "in"}
    for name, command in commands.items():
        found.setdefault(topics.state(name), result_schema(command.handler))
        found.setdefault(topics.availability(name), {"enum": ["online", "offline"]})
        found.setdefault(topics.of(name, "health"), schema_of(reports.DeviceHealth))
        payload = {} if command.payload is None else schema_of(command.annotation, mode="validation")
        found[topics.of(name, "set")] = payload | {"direction": "in"}
        found[topics.set_result(name)] = schema_of(document.CommandResult)
    return {"$schema": DIALECT, "topics": found}


def _event(each: Telemetry | Source) -> Schema:
    """The description of the messages of a device that sends events; empty for other ones."""
    if isinstance(each, Telemetry) or each.events is None:
        return {}
    expiry = each.delivery.expiry
    late = "however late" if expiry is None else f"within {write_duration(expiry)}"
    return {"description": f"An event. It is not retained, and arrives {late}."}


def _of_fields(topics: Topics, device: str, readings: Schema) -> Schema:
    """The schema of each value that has a topic of its own, where the type of the readings names them."""
    found: Schema = {}
    for path, node in _leaves(readings, readings, ()) if "properties" in readings else ():
        topic = topics.field(device, path)
        if topic is not None:
            defs = {"$defs": readings["$defs"]} if "$ref" in repr(node) else {}
            found[topic] = node | defs | {"description": "Plain text; empty for null."}
    return found


def _leaves(schema: Schema, node: Schema, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Schema]]:
    """The values of a reading with the keys on the way to each, as far as its type lists them."""
    whole, around = _resolved(schema, node)
    inner = around.get("properties") if len(path) < MAX_DEPTH else None
    if not inner:
        yield path, whole
    for key, each in (inner or {}).items():
        yield from _leaves(schema, each, (*path, key))


def read_schema(each: Telemetry | Source) -> Schema:
    """The schema of the readings of a device, as they come out of its filters."""
    if each.content is not None:
        return schema_of(document.ContentReading)
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


def terms_of_registration(each: Telemetry | Source | Command) -> "dict[str, document.FieldTerms]":
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
        properties[key], around = _resolved(schema, properties.get(key, dict(_ANY_OBJECT)))
    return around


def _resolved(schema: Schema, node: Schema) -> tuple[Schema, Schema]:
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
    try:
        found = TypeAdapter(kind).json_schema(mode=mode)
    except PydanticUserError:
        return dict(_ANY_OBJECT)
    if is_typeddict(kind):
        for part in parts_of(kind):
            add_texts(found if part is kind and "properties" in found else found["$defs"][part.__name__], part)
    return found


def add_texts(schema: Schema, kind: type) -> None:
    """Add the texts below the fields of a document to its schema."""
    for field, text in texts_of(kind).items():
        schema["properties"][field]["description"] = text


def parts_of(kind: Any) -> list[type]:
    """A document, and the documents that are parts of it, each once, in the order in which their fields name them."""
    found: list[type] = []
    waiting = [kind]
    while waiting:
        each = waiting.pop()
        if not is_typeddict(each):
            waiting.extend(reversed(typing.get_args(each)))
        elif each not in found:
            found.append(each)
            waiting.extend(reversed(typing.get_type_hints(each, include_extras=True).values()))
    return found


def texts_of(kind: type) -> dict[str, str]:
    """The texts below the fields of a document, those of its bases first. pydantic's ``use_attribute_docstrings`` reads
    only those of the class itself, and before 2.10 none of its parts."""
    found: dict[str, str] = {}
    for base in get_original_bases(kind):
        if is_typeddict(base):
            found |= texts_of(base)
    body = _classes(kind.__module__).get(kind.__name__, [])
    for field, below in itertools.pairwise(body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = " ".join(text.replace("``", "`").split())
    return found


@functools.cache
def _classes(module: str) -> dict[str, list[ast.stmt]]:
    """The statements of each class of a module; none where its source is not to be had."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except OSError:
        return {}
    return {each.name: each.body for each in tree.body if isinstance(each, ast.ClassDef)}


def result_schema(handler: Handler) -> Schema:
    """The schema of the values that a handler returns or yields."""
    kind = result_of(handler).whole
    kinds = [each for each in typing.get_args(kind) if each is not type(None)]
    if type(None) in typing.get_args(kind) and len(kinds) == 1:
        kind = kinds[0]  # None publishes nothing
    return dict(_ANY_OBJECT) if kind in (None, type(None), Any) else schema_of(kind)
