"""Makes the JSON Schema of every topic of an app, from its handlers' annotations and the types of its documents."""

from collections.abc import Iterator, Mapping

from leadsman.core.extension import Extension
from leadsman.core.introspection import document
from leadsman.core.introspection.declared import documents_of
from leadsman.core.introspection.schema import Schema, read_schema, resolved, result_schema, schema_of
from leadsman.core.loop.durations import write_duration
from leadsman.core.monitoring import document as reports
from leadsman.core.mqtt.topics import Topics
from leadsman.core.registration.command import Command
from leadsman.core.registration.source import Source
from leadsman.core.registration.telemetry import Telemetry

DIALECT = "https://json-schema.org/draft/2020-12/schema"
MAX_DEPTH = 6
"""Objects within objects of which each value is listed; a type may contain itself."""


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
    whole, around = resolved(schema, node)
    inner = around.get("properties") if len(path) < MAX_DEPTH else None
    if not inner:
        yield path, whole
    for key, each in (inner or {}).items():
        yield from _leaves(schema, each, (*path, key))
