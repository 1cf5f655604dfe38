"""The Homie convention, version 5: a device for the app, and a child of it for each device. Pure.

See https://homieiot.github.io/specification/. The fields of a reading are properties of the node ``values``, those of a
nested model properties of a node of its own, and what a command sets without a reading that shows it is in the node
``command``. The device of the app is the root, since one connection has one will ("Last Will").
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from leadsman.discovery.description import (
    AppDescription,
    CommandDescription,
    Convention,
    DeviceDescription,
    Field,
    PropertyCommand,
    PropertyTopics,
    PropertyValue,
    RetainedMessage,
)
from leadsman.errors import PayloadError
from leadsman.introspection.retained import is_description_of, type_of
from leadsman.loop.durations import as_float
from leadsman.monitoring.condition import Condition
from leadsman.mqtt.answers import object_in
from leadsman.mqtt.topics import encode, is_topic
from leadsman.settings.discovery import homie_filters, homie_identifiers, homie_root
from leadsman.text.identifiers import distinct_identifiers

EMPTY = b"\x00"
"""An empty text: MQTT removes a retained message with an empty payload ("Empty string values")."""
MOST_INTEGER = 2**63 - 1
"""The largest integer ("Integer"); the smallest is one further from zero."""
MOST_SHOWN = 100
"""Characters of a refused payload that an error shows."""
_INTEGER = re.compile(rb"-?[0-9]+")
_FLOAT = re.compile(rb"-?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE]-?[0-9]+)?")
Attributes = dict[str, Any]


def datatype(field: Field) -> str:
    """The datatype of a field. An enum with a value that a format cannot list is text, and so is a date or a time of
    day alone."""
    match field.kind:
        case "number":
            return "integer" if field.whole else "float"
        case "boolean":
            return "boolean"
        case "timestamp":
            return "datetime"
        case "enum" if field.options and all(option and "," not in option for option in field.options):
            return "enum"
    return "string"


def attributes(field: Field) -> Attributes:
    """The datatype, format, name and unit of a field."""
    found: Attributes = {"name": field.name, "datatype": datatype(field)}
    if found["datatype"] == "enum":
        found["format"] = ",".join(field.options)
    elif field.kind == "number" and (limits := _limits(field)):
        found["format"] = limits
    if field.kind == "number" and field.unit is not None:
        found["unit"] = field.unit
    return found


def payload_of(field: Field, value: object) -> bytes:
    """A value as a payload; empty if there is none, or none that the datatype can express."""
    if value is None:
        return b""
    kind = datatype(field)
    if kind in ("integer", "float"):
        return _number(value, whole=kind == "integer")
    if kind == "boolean":
        return b"" if not isinstance(value, bool) else b"true" if value else b"false"
    text = value if isinstance(value, str) else encode(value).decode()
    if kind == "enum":
        return text.encode() if text in field.options else b""
    if kind == "datetime":
        return text.encode() if _is_time(text) else b""
    return text.encode() or EMPTY


def value_of(field: Field, payload: bytes) -> object:
    """The value that a payload sets.

    Raises:
        PayloadError: the payload does not match the datatype or the format.
    """
    kind = datatype(field)
    try:
        text = "" if payload == EMPTY else payload.decode()
    except UnicodeDecodeError:
        raise PayloadError(f"the payload {payload[:MOST_SHOWN]!r} is not UTF-8") from None
    if kind in ("integer", "float"):
        return _within(field, payload, whole=kind == "integer")
    if kind == "boolean" and payload in (b"true", b"false"):
        return payload == b"true"
    if kind == "enum" and text in field.options:
        return text if field.quoted else _plain(text)
    if kind == "datetime" and _is_time(text):
        return text
    if kind == "string" and payload:
        return text
    raise PayloadError(f"the payload {text[:MOST_SHOWN]!r} does not fit; {_expected(field, kind)}")


def _expected(field: Field, kind: str) -> str:
    match kind:
        case "boolean":
            return "send true or false"
        case "enum":
            return f"send one of: {', '.join(field.options)}"[: 2 * MOST_SHOWN]
        case "datetime":
            return "send a time as in 2026-11-22T20:00:00Z"
        case "string":
            return "send text; an empty text is one byte 0"
    limits = _limits(field)
    return f"send {'a whole number' if kind == 'integer' else 'a number'}{f' within {limits}' if limits else ''}"


def _number(value: object, *, whole: bool) -> bytes:
    if isinstance(value, str):  # a Decimal, which JSON carries as text
        found = value.encode()
        return found if (_INTEGER if whole else _FLOAT).fullmatch(found) else b""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(as_float(value)):
        return b""
    if not whole:
        return repr(value).replace("e+", "e").encode()
    return str(int(value)).encode() if value == int(value) and _is_integer(int(value)) else b""


def _is_integer(value: int) -> bool:
    return -MOST_INTEGER - 1 <= value <= MOST_INTEGER


def _within(field: Field, payload: bytes, *, whole: bool) -> int | float:
    """The number, rounded to the step; its limits are looked at after that ("Formats")."""
    refused = f"the payload {payload[:MOST_SHOWN]!r} does not fit; {_expected(field, 'integer' if whole else 'float')}"
    if len(payload) > MOST_SHOWN or not (_INTEGER if whole else _FLOAT).fullmatch(payload):
        raise PayloadError(refused)
    value = int(payload) if whole else float(payload)
    if not math.isfinite(value) or (whole and not _is_integer(int(value))):
        raise PayloadError(refused)
    if (step := _step(field)) is not None:
        value = round(value / step) * step
        value = int(value) if whole else float(f"{value:.12g}")
    if (field.minimum is not None and value < field.minimum) or (field.maximum is not None and value > field.maximum):
        raise PayloadError(refused)
    return value


def _limits(field: Field) -> str:
    """``min:max`` or ``min:max:step``; empty text if there are none."""
    lowest = _bound(field, field.minimum, math.ceil)
    highest = _bound(field, field.maximum, math.floor)
    step = _step(field)
    more = "" if step is None else f":{_number(step, whole=field.whole).decode()}"
    return "" if lowest == highest == more == "" else f"{lowest}:{highest}{more}"


def _bound(field: Field, bound: float | None, towards: Any) -> str:
    if bound is None:
        return ""
    return _number(towards(bound) if field.whole else bound, whole=field.whole).decode()


def _step(field: Field) -> float | None:
    """The step, if both agree on what it counts from: JSON Schema counts from zero, Homie from the minimum, or without
    one from the maximum."""
    step, base = field.step, field.minimum if field.minimum is not None else field.maximum
    if step is None or step <= 0 or (field.whole and (step != int(step) or not _is_integer(int(step)))):
        return None
    return step if base is None or math.isclose(math.remainder(base, step), 0.0, abs_tol=step * 1e-9) else None


def _plain(text: str) -> int | float:
    """The number that an option of an enum of numbers stands for."""
    return int(text) if _INTEGER.fullmatch(text.encode()) else float(text)


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return "T" in text


VALUES, COMMANDS = "values", "command"
"""The nodes of the fields of a reading, and of what a command sets that no reading shows."""
ALERTS = ("failing", "circuit")
"""The identifiers of alerts: the device fails; its circuit breaker keeps polls from it."""
ALONE = "run"
"""The property, and its only value, of a command without a payload."""
WHOLE = "payload"
"""The property of a command whose payload cannot be set field by field."""
MOST_VERSION = 2**63 - 1
"""The largest version of a description ("Payload", integer)."""
_DELIBERATE = ("held", "isolated")
Document = dict[str, Any]


class _Property(NamedTuple):
    """One property of a device."""

    node: str
    key: str
    field: Field | None
    """The value that it has; None for a command that takes no single value."""
    settable: bool
    retained: bool
    reads: bool
    """Whether readings have its value."""
    sends: tuple[str, ...] = ()
    """The keys that lead to it in the payload of the command; empty where it is the payload itself."""

    @property
    def attributes(self) -> Document:
        if self.field is not None:
            found = attributes(self.field)
        elif self.key == ALONE:
            found = {"name": "Run", "datatype": "enum", "format": ALONE}
        else:
            found = {"name": "Payload", "datatype": "json"}
        return found | ({"settable": True} if self.settable else {}) | ({} if self.retained else {"retained": False})


class Homie(Convention, PropertyTopics):
    """Describes the devices of one app, whose values have topics of their own.

    Args:
        app: the app.
        devices: the names of all its devices.
        prefix: the first level of the topics.
        device: describes one of them.
        number: the version of a description that the broker does not have, such as epoch seconds. It is larger than in
            any earlier run.

    Raises:
        InvalidValue: two devices have one identifier.
    """

    client = "homie"

    def __init__(
        self,
        app: AppDescription,
        devices: Sequence[str],
        prefix: str,
        device: Callable[[str], DeviceDescription],
        number: int,
    ) -> None:
        self._app = app
        self._base = f"{prefix}/5"
        self._root = homie_root(app.topics.prefix, app.topics.node)
        self._type = type_of(app.topics.prefix)
        self._number = number
        self._device = device
        self._ids = homie_identifiers(devices, app.ids, app.topics.prefix)
        self._names = {key: name for name, key in self._ids.items()}
        self._known: dict[str, tuple[_Property, ...]] = {}
        self.own, self.commands = homie_filters(prefix, app.topics.prefix)
        self.below = self._topic(f"{homie_root(app.topics.prefix)}-")
        self.removes = f"{self._base}/#"
        self.publishes = (f"{self._base}/+/#",)
        children: dict[str, str | None] = {self._topic(key, "$description"): name for name, key in self._ids.items()}
        self.topics = children | {self._topic(self._root, "$description"): None}  # the parent last ("Adding children")

    def has_device(self, name: str) -> bool:
        """See `Convention`."""
        return name in self._ids

    @property
    def properties(self) -> "Homie":
        """See `Convention`."""
        return self

    def first_of(self, topic: str) -> str:
        """See `Convention`. Each device has one description."""
        return topic

    def describe(self, device: DeviceDescription) -> Sequence[RetainedMessage]:
        """See `Convention`."""
        nodes: dict[str, Document] = {}
        for each in self._of(device.name):
            nodes.setdefault(each.node, {"properties": {}})["properties"][each.key] = each.attributes
        more = {"root": self._root, "parent": self._root, "nodes": nodes}  # some controllers have no default for it
        return (self._description(self._ids[device.name], device.title or device.name, more),)

    def describe_app(self) -> RetainedMessage:
        """See `Convention`."""
        return self._description(self._root, self._app.title, {"children": list(self._ids.values())})

    def _description(self, key: str, name: str, more: Document) -> RetainedMessage:
        document = {"homie": "5.0", "version": self._number, "name": name, "type": self._type, **more}
        return RetainedMessage(self._topic(key, "$description"), encode(document))

    def kept(self, topic: str) -> Sequence[str]:
        """See `Convention`."""
        key, name = self._key(topic), self.topics[topic]
        state, description = self._topic(key, "$state"), self._topic(key, "$description")
        if name is None:
            return (state, description)
        values = [self._topic(key, each.node, each.key) for each in self._of(name) if each.retained]
        return (state, description, *self._alerts(key), *values)

    def is_ours(self, payload: bytes) -> bool:
        """See `Convention`."""
        return is_description_of(self._app.topics.prefix, payload)

    def steps(self, found: bytes, wanted: RetainedMessage) -> Sequence[RetainedMessage]:
        """See `Convention`. A description changes only while the state is ``init`` ("Device Attributes"), and gets a
        higher version. What the device has no more is removed ("Device reconfiguration")."""
        before, after = object_in(found) or {}, object_in(wanted.payload) or {}
        version = before.get("version")
        known = version if isinstance(version, int) and 0 <= version < MOST_VERSION else -1
        if known >= 0 and {**before, "version": 0} == {**after, "version": 0}:
            return ()
        key = self._key(wanted.topic)
        document = encode({**after, "version": max(known + 1, after["version"])})
        gone = [each for each in self._retained_in(key, before) if each not in self._retained_in(key, after)]
        state = RetainedMessage(self._topic(key, "$state"), b"init")
        return (state, *(RetainedMessage(topic, b"") for topic in gone), RetainedMessage(wanted.topic, document))

    def removal(self, topic: str, found: bytes) -> Sequence[RetainedMessage]:
        """See `Convention`. The state comes first ("Device Lifecycle"), and the description last: a removal that is
        interrupted can be repeated."""
        key = self._key(topic)
        others = [*self._alerts(key), *self._retained_in(key, object_in(found) or {}), topic]
        return [RetainedMessage(each, b"") for each in (self._topic(key, "$state"), *others)]

    def condition(self, name: str, condition: Condition) -> Sequence[RetainedMessage]:
        """See `Convention`: alerts, which are removed when they no longer apply, and the state."""
        failing, circuit = self._alerts(key := self._ids[name])
        since = "" if condition.failing_since is None else f" since {condition.failing_since}"
        error = "" if condition.error is None else f": {condition.error}"
        fails = condition.failures > 0 or condition.status in ("error", "circuit_open")
        opened = condition.circuit in ("open", "half_open")
        return (
            RetainedMessage(failing, f"{name} fails{since}{error}".encode() if fails else b""),
            RetainedMessage(circuit, f"{name} is polled rarely: its circuit is open".encode() if opened else b""),
            RetainedMessage(self._topic(key, "$state"), _state(condition, read=self._device(name).read).encode()),
        )

    def device_of(self, topic: str) -> str | None:
        """See `PropertyTopics`."""
        return self._names.get(self._key(topic))

    def app_ready(self) -> RetainedMessage:
        """See `PropertyTopics`."""
        return RetainedMessage(self._topic(self._root, "$state"), b"ready")

    def app_lost(self) -> RetainedMessage:
        """See `PropertyTopics`. All children are lost with it ("Device Lifecycle")."""
        return RetainedMessage(self._topic(self._root, "$state"), b"lost")

    def goodbye(self, names: Sequence[str]) -> Sequence[RetainedMessage]:
        """See `PropertyTopics`."""
        keys = [*(self._ids[name] for name in names), self._root]
        return [RetainedMessage(self._topic(key, "$state"), b"disconnected") for key in keys]

    def values(self, name: str, fields: Mapping[str, Any]) -> Sequence[PropertyValue]:
        """See `PropertyTopics`."""
        key = self._ids[name]
        return [
            PropertyValue(
                self._topic(key, each.node, each.key), payload_of(each.field, _found(fields, each)), each.retained
            )
            for each in self._of(name)
            if each.reads and each.field is not None
        ]

    def command(self, topic: str, payload: bytes) -> PropertyCommand:
        """See `PropertyTopics`. A command that no reading shows is answered at ``$target`` ("Target attribute")."""
        name, levels = self.device_of(topic), topic.split("/")
        wanted = tuple(levels[-3:-1])
        for each in self._of(name) if name is not None else ():
            if (each.node, each.key) == wanted and each.settable and name is not None:
                target = None if each.reads else RetainedMessage(f"{topic.removesuffix('/set')}/$target", payload)
                return PropertyCommand(name, _sent(each, payload), target)
        raise PayloadError("there is no property that can be set; see the $description of the device")

    def _of(self, name: str) -> tuple[_Property, ...]:
        """The properties of a device."""
        if name not in self._known:
            self._known[name] = _properties(self._device(name))
        return self._known[name]

    def _alerts(self, key: str) -> tuple[str, ...]:
        return tuple(self._topic(key, "$alert", each) for each in ALERTS)

    def _retained_in(self, key: str, document: Document) -> list[str]:
        """The topics of the retained properties that a description names. What can be no topic is left out."""
        found = [
            self._topic(key, node, each)
            for node, inner in _objects(document.get("nodes"))
            for each, attributes in _objects(inner.get("properties"))
            if attributes.get("retained", True)
        ]
        return [topic for topic in found if is_topic(topic)]

    def _key(self, topic: str) -> str:
        """The identifier of the device of a topic."""
        return topic.removeprefix(f"{self._base}/").split("/", 1)[0]

    def _topic(self, *levels: str) -> str:
        return "/".join((self._base, *levels))


def _properties(device: DeviceDescription) -> tuple[_Property, ...]:
    """The properties of a device: its fields, and what its command sets. A field that both have is one property."""
    command = device.command
    parameter = None if command is None else command.parameter
    taken = () if command is None else _taken(command)
    settable = {each.path or (parameter or "",): each for each in taken}
    found = []
    fields = [each for each in device.fields if each.kind != "list"]  # no datatype is a list
    for field, (node, key) in zip(fields, _places(fields), strict=True):
        other = settable.get(field.path)
        if other is None or other.kind != field.kind:
            found.append(_Property(node, key, field, settable=False, retained=device.retained, reads=True))
        else:
            both = _set_as(field, other)
            found.append(_Property(node, key, both, True, device.retained, reads=True, sends=other.path))
            del settable[field.path]
    keys = distinct_identifiers("/".join(path) for path in settable)
    for path, each in settable.items():
        found.append(_Property(COMMANDS, keys["/".join(path)], each, True, False, reads=False, sends=each.path))
    if command is not None and not taken:
        key = ALONE if parameter is None else WHOLE
        found.append(_Property(COMMANDS, key, None, settable=True, retained=False, reads=False))
    return tuple(found)


def _taken(command: CommandDescription) -> tuple[Field, ...]:
    """The fields that a command sets, with those that Home Assistant shows as one control."""
    together = () if command.control is None else command.control.fields.values()
    return (*command.fields, *together)


def _places(fields: Sequence[Field]) -> list[tuple[str, str]]:
    """The node and the property of each field."""
    nodes = distinct_identifiers(
        dict.fromkeys(each.path[0] for each in fields if len(each.path) > 1), (VALUES, COMMANDS)
    )
    within: dict[str, list[str]] = {}
    for each in fields:
        within.setdefault(_node(each, nodes), []).append(_inner(each))
    keys = {node: distinct_identifiers(names) for node, names in within.items()}
    return [(node := _node(each, nodes), keys[node][_inner(each)]) for each in fields]


def _node(field: Field, nodes: Mapping[str, str]) -> str:
    return nodes[field.path[0]] if len(field.path) > 1 else VALUES


def _inner(field: Field) -> str:
    """The name of a field within its node."""
    return "/".join(field.path[1:] if len(field.path) > 1 else field.path)


def _set_as(shown: Field, taken: Field) -> Field:
    """A field of a reading with the limits that the command has."""
    return shown._replace(
        whole=shown.whole and taken.whole,
        minimum=taken.minimum,
        maximum=taken.maximum,
        step=taken.step,
        options=tuple(dict.fromkeys((*shown.options, *taken.options))),
        quoted=shown.quoted and taken.quoted,
    )


def _found(fields: Mapping[str, Any], each: _Property) -> object:
    """The value of a property in a reading; None if it has none."""
    value: object = fields
    for key in each.field.path if each.field is not None else ():
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def _sent(each: _Property, payload: bytes) -> bytes:
    """The payload of a command as the device takes it. Raises `PayloadError`."""
    field = each.field
    if field is None and each.key == ALONE:
        if payload != ALONE.encode():
            raise PayloadError(f"the payload {payload[:100]!r} does not fit; send {ALONE}")
        return b"{}"
    if field is None:
        if not isinstance(_json(payload), dict | list):
            raise PayloadError("the payload is neither an object nor an array of JSON")
        return payload
    value = value_of(field, payload)
    return encode({each.sends[0]: value} if each.sends else value)


def _state(condition: Condition, *, read: bool) -> str:
    """The state of a device ("Device Lifecycle")."""
    if condition.left or condition.status in _DELIBERATE:
        return "disconnected"
    if condition.offline:
        return "lost"
    if condition.status == "deferred":
        return "sleeping"
    return "init" if condition.status == "starting" and read else "ready"


def _objects(found: object) -> list[tuple[str, Document]]:
    """The members of an object that are objects themselves."""
    if not isinstance(found, dict):
        return []
    return [(key, each) for key, each in found.items() if isinstance(each, dict) and _is_level(key)]


def _is_level(key: str) -> bool:
    return bool(key) and not any(character in "/+#\0" for character in key)


def _json(payload: bytes) -> object:
    try:
        return json.loads(payload)
    except (ValueError, RecursionError):
        return None
