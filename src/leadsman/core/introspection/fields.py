"""Finds the fields of a payload in its JSON Schema, and what each of them is.

A field appears if its type is in this table:

==========================  =============================================================
type                        kind
==========================  =============================================================
``int``, ``float``          number
``bool``                    boolean
``Literal``, ``Enum``       enum, if all values are text or all are numbers
``datetime``, ``date``      timestamp, date
``time``                    time
other text                  text; a number if a `Sensor` gives it a unit or a state class
a model                     its fields, each with the names of both, at most four deep
a union                     the kind that all have; text if they differ; of models: the fields of all
``Any`` with a `Sensor`     number with a unit or a state class, else text
a list with a `Sensor`      list; so is a dict with any keys
==========================  =============================================================

None beside a type changes nothing. Other lists and dicts, and what is nested deeper, do not appear.
"""

import sys
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

if TYPE_CHECKING:
    from leadsman.core.introspection.document import FieldTerms

Schema = Mapping[str, Any]
MAX_KEYS = 4
"""Keys that lead to a field, at most."""
MAX_FIELDS = 100
"""Fields of a payload, at most: each is an entity that a person sees."""
_SENSOR = (
    *("unit", "device_class", "state_class", "precision", "icon", "category", "name", "discoverable"),
    "homeassistant",
)
_NUMBERS = ("number", "integer")
KNOWN = {
    word.lower().replace("₂", "2"): word
    for word in (
        *("CO₂", "NO₂", "VOC", "TVOC", "PM1", "PM2.5", "PM10", "UV", "pH", "RSSI", "dBm", "CPU", "RAM", "GPU", "IP"),
        *("MAC", "ID", "UUID", "MQTT", "USB", "LED", "GPS", "AC", "DC", "PV", "DHW", "kW", "kWh", "kVA", "Hz", "hPa"),
        "CO",
    )
} | {"pm25": "PM2.5"}
"""Words of field names that people write otherwise."""


Kind = Literal["number", "text", "boolean", "enum", "timestamp", "date", "time", "list"]
"""The kind of a value. A list is a field of readings alone; a dict with any keys counts as one. Whatever else JSON has
is no field."""


class Field(NamedTuple):
    """One value of a payload, with the options of its `leadsman.core.readings.sensor.Sensor`."""

    path: tuple[str, ...]
    """The keys that lead to it; empty where the payload itself is the value."""
    kind: Kind
    name: str
    """For people."""
    unit: str | None = None
    device_class: str | None = None
    state_class: str | None = None
    precision: int | None = None
    icon: str | None = None
    category: str | None = None
    options: tuple[str, ...] = ()
    """The values of an enum."""
    quoted: bool = True
    """Whether these are text in JSON, and no numbers."""
    whole: bool = False
    """Whether a number has no decimals."""
    minimum: float | None = None
    """The smallest number, or the length of the shortest text. Only the payloads of commands have bounds."""
    maximum: float | None = None
    step: float | None = None
    pattern: str | None = None
    title: str | None = None
    """The name that was declared; None if `name` is made of the path."""
    discoverable: bool = True
    """Whether it is announced to others."""
    homeassistant: Mapping[str, bool | int | str] = MappingProxyType({})
    """Further options of its entity in Home Assistant; see `leadsman.core.readings.sensor.ENTITY_OPTIONS`."""


def fields_of(schema: Schema) -> tuple[Field, ...]:
    """The fields of a payload, in the order in which its type lists them, at most `MAX_FIELDS`."""
    found: dict[tuple[str, ...], Field] = {}
    for field in _fields(schema, schema.get("$defs", {}), (), None):
        other = found.get(field.path)
        found[field.path] = field if other is None else _both(other, field)
    return tuple(found.values())[:MAX_FIELDS]


def terms_of(schema: Schema) -> "dict[str, FieldTerms]":
    """The terms that a schema declares for its fields: unit, device class, precision and name; by their keys, joined by
    a dot."""
    found: dict[str, FieldTerms] = {}
    for field in fields_of(schema):
        terms = {name: getattr(field, name) for name in ("unit", "device_class", "precision")} | {"name": field.title}
        given = {name: value for name, value in terms.items() if value is not None}
        if given:
            found[".".join(field.path)] = cast("FieldTerms", given)
    return found


def scalar(schema: Schema, parameter: str) -> Field | None:
    """The payload itself as a field, if it is one value; else None. It is called as the parameter that takes it."""
    defs = schema.get("$defs", {})
    field = _field(_resolve(schema, defs), defs, (), None)
    if field is not None and field.kind == "list":
        return None
    return field if field is None or field.title else field._replace(name=_name((parameter,)))


def settable(schema: Schema) -> tuple[Field, ...]:
    """The fields of a command's payload that can be sent alone: each one if none is required, or the one that is."""
    defs = schema.get("$defs", {})
    node = _resolve(schema, defs)
    required = node.get("required", [])
    fields = [field for field in _fields(node, defs, (), None) if len(field.path) == 1 and field.kind != "list"]
    if len(required) > 1:
        return ()
    return tuple(field for field in fields if not required or field.path[0] in required)


def _fields(schema: Schema, defs: Schema, path: tuple[str, ...], title: str | None) -> Iterator[Field]:
    node = _resolve(schema, defs)
    field = _field(node, defs, path, title) if path else None
    if field is not None:
        yield field
        return
    branches = [_resolve(each, defs) for each in _alternatives(node)]
    if len(path) >= MAX_KEYS:
        return
    for branch in branches:
        for key, each in branch.get("properties", {}).items():
            yield from _fields(each, defs, (*path, key), _title(each, key))


def _field(node: Schema, defs: Schema, path: tuple[str, ...], title: str | None) -> Field | None:
    """The field that a node describes; None if it describes no field."""
    branches = [_resolve(each, defs) for each in _alternatives(node)]
    sensor = {name: node[name] for name in _SENSOR if name in node}
    for branch in branches:
        sensor = {name: branch[name] for name in _SENSOR if name in branch} | sensor
    kinds = {_kind(branch) for branch in branches}
    numeric = "unit" in sensor or "state_class" in sensor
    if sensor and branches and all(_holds_items(each) for each in branches):
        kinds = {"list"}
    if None in kinds or not kinds:
        if not sensor or kinds != {None} or any(each.get("type") for each in branches):
            return None
        kinds = {"text"}
    kind = cast("Kind", kinds.pop() if len(kinds) == 1 else "text")
    if kind == "text" and numeric:
        kind = "number"
    options = _options(branches) if kind == "enum" else ()
    title = sensor.pop("name", title)
    return Field(
        path,
        kind,
        title or _name(path),
        title=title,
        **sensor,
        options=tuple(str(each) for each in options),
        quoted=all(isinstance(each, str) for each in options),
        whole=all(each.get("type") == "integer" for each in branches),
        **_bounds(branches[0]) if len(branches) == 1 else {},
    )


def _holds_items(node: Schema) -> bool:
    """Whether a node is a list, or an object whose keys its type does not name."""
    return node.get("type") == "array" or (node.get("type") == "object" and "properties" not in node)


def _kind(node: Schema) -> Kind | None:
    options = _options([node])
    if options and all(isinstance(each, str) for each in options):
        return "enum"
    if options and all(isinstance(each, int | float) and not isinstance(each, bool) for each in options):
        return "enum"
    if options:
        return "boolean" if all(isinstance(each, bool) for each in options) else "text"
    match node.get("type"), node.get("format"):
        case (("number" | "integer"), _):
            return "number"
        case "boolean", _:
            return "boolean"
        case "string", "date-time":
            return "timestamp"
        case "string", "date":
            return "date"
        case "string", "time":
            return "time"
        case "string", _:
            return "text"
    return None


def _options(nodes: list[Schema]) -> list[Any]:
    """The values of enums, each once."""
    found = list[object]()
    for node in nodes:
        values = [node["const"]] if "const" in node else node.get("enum", [])
        found += [each for each in values if each is not None and each not in found]
    return found


def _bounds(node: Schema) -> dict[str, Any]:
    if node.get("type") in _NUMBERS:
        lowest = node.get("minimum", node.get("exclusiveMinimum"))
        highest = node.get("maximum", node.get("exclusiveMaximum"))
        bounds = {"minimum": lowest, "maximum": highest, "step": node.get("multipleOf")}
        return {word: value for word, value in bounds.items() if value is not None and abs(value) <= sys.float_info.max}
    lengths = {"minimum": node.get("minLength"), "maximum": node.get("maxLength")}
    return lengths | {"pattern": node.get("pattern")}


def _alternatives(node: Schema) -> list[Schema]:
    """The types that a node allows, without None."""
    branches = node.get("anyOf") or node.get("oneOf") or [node]
    return [branch for branch in branches if branch.get("type") != "null"]


def _resolve(node: Schema, defs: Schema) -> Schema:
    """The node with what it refers to. Its own keys come first."""
    seen: set[str] = set()
    while "$ref" in node or len(node.get("allOf", ())) == 1:
        inner = {"$ref": node["$ref"]} if "$ref" in node else node["allOf"][0]
        if "$ref" in inner:
            name = inner["$ref"].rsplit("/", 1)[-1]
            if name in seen:
                return {}
            seen.add(name)
            inner = defs.get(name, {})
        node = {**inner, **{key: value for key, value in node.items() if key not in ("$ref", "allOf")}}
    return node


def _both(first: Field, second: Field) -> Field:
    """One field for two of a union that have the same name."""
    if first.kind == second.kind == "enum":
        more = tuple(each for each in second.options if each not in first.options)
        return first._replace(options=first.options + more, quoted=first.quoted and second.quoted)
    return first if first.kind == second.kind else first._replace(kind="text", options=())


def _title(node: Schema, key: str) -> str | None:
    """The title that the author gave. Pydantic makes one of the name otherwise."""
    title = node.get("title")
    return title if isinstance(title, str) and title != key.replace("_", " ").title() else None


def _name(path: tuple[str, ...]) -> str:
    words = [word for each in path for word in each.replace("_", " ").split()]
    text = " ".join(KNOWN.get(word.lower(), word) for word in words)
    return (text[:1].upper() + text[1:] if words and words[0].lower() not in KNOWN else text) or "Value"
