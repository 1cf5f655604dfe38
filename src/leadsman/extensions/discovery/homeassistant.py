"""Home Assistant's convention: a retained configuration for each device, with its entities as components. Pure.

See https://www.home-assistant.io/integrations/mqtt/#mqtt-discovery. The topic of a configuration is
``homeassistant/device/{app}/{device}/config``, so that those of one app have a filter of their own. Keys are
abbreviated, since a thousand configurations are sent at once. Where one message would be longer than
`MAX_CONFIGURATION_BYTES`, further ones at ``…/{device}--1/config`` have the other entities of the same device: Home
Assistant joins them by the identifier of the device.

The templates of the entities use ``get``, so that a field that is None or absent makes the entity *unknown*, and no
template fails.
"""

import hashlib
import math
import re
import warnings
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from leadsman.core.introspection.fields import Field
from leadsman.core.introspection.retained import is_configuration_of, origin_of
from leadsman.core.monitoring.condition import Condition
from leadsman.core.mqtt.answers import object_in
from leadsman.core.mqtt.topics import Identity, Topics, encode
from leadsman.core.readings.device_classes import OF_BOOLEANS, OF_NUMBERS
from leadsman.core.text.identifiers import identifier, join_names, shorten
from leadsman.extensions.discovery.description import (
    CommandDescription,
    ControlDescription,
    DeviceDescription,
    EventDescription,
    RetainedMessage,
)
from leadsman.extensions.discovery.settings import APP, DiscoverySettings, birth_topic, identifiers_of, own_filter

if TYPE_CHECKING:
    from leadsman.core.monitoring.document import DeviceHealth

Document = dict[str, Any]
Component = dict[str, Any]
MAX_CONFIGURATION_BYTES = 4000
"""Bytes of a configuration, without the version of leadsman in it: a new version moves no entity."""
_UNLOAD = b'{"migrate_discovery":true}'
"""Lets go of all entities of a configuration, and keeps what people have set for them."""
_BETWEEN = "--"
"""Between the identifier of a device and the name of a further message. No identifier has it."""
_MAX_STATE_CHARS = 255
"""Characters of a state in Home Assistant."""
_UNBOUNDED = 1e9
"""The bound of a number that has none: Home Assistant would take 1 to 100."""
_SENDER = "Home Assistant"
"""Who asked, in the answers and in the trace."""
_ABOUT = ("_status", "_circuit", "_failures", "_success", "_poll", "_release", "_close")
"""The components of every device: how it is, and what a person may ask for."""
_PRESSED = frozenset({"button", "doorbell"})
"""The classes of events that trigger automations as a device, too: people look for a press there."""
_SWITCHES = frozenset({"On", "State", "Enabled", "Value", "Switch"})
"""Names of a switch that only repeat that it is one."""
_MOMENTS: Mapping[str, str] = {"timestamp": "datetime", "date": "date", "time": "time"}
"""The platforms of moments that a command sets, by the kinds of their fields. Home Assistant 2026.11 has them, and
2025.4 has not (https://www.home-assistant.io/integrations/datetime.mqtt/)."""
_ABBREVIATED = {
    "enabled_by_default": "en",
    "entity_picture": "ent_pic",
    "expire_after": "exp_aft",
    "force_update": "frc_upd",
}
RECENT = frozenset(_MOMENTS.values())
"""The platforms that a release of the last years may not have. It refuses a whole message that has one, so they are in
a message of their own."""
_RECENT = "recent"
"""The name of that message, or what the names of several begin with."""
MAIN_MESSAGE = ""
"""The message that there always is."""


def split_keys(
    keys: Sequence[str], fits: Callable[[str, Sequence[str]], bool], prefix: str = ""
) -> dict[str, Sequence[str]]:
    """The keys of each message, by the name of the message, which consists of ``0`` and ``1``.

    The place of a key follows from its own hash, as in extendible hashing (Fagin, Nievergelt, Pippenger and Strong,
    doi:10.1145/320083.320092). So a new key moves no other one, unless a message becomes too long by it: then the keys
    of that message alone are shared out anew, and those of one half stay where they are.

    Args:
        keys: the keys, each once. Those of a message are in the same order.
        fits: whether the message of this name is short enough with these keys. It is asked again with fewer until it
            agrees, or until one key is left; the first message may be left without any.
        prefix: what the hashes of these keys begin with. One half keeps the name of the whole: the zeros at the end of
            a name are left out.
    """
    name = prefix.rstrip("0")
    if not keys:
        return {MAIN_MESSAGE: keys} if name == MAIN_MESSAGE else {}
    if (len(keys) == 1 and name != MAIN_MESSAGE) or fits(name, keys):
        return {name: keys}
    halves = {bit: [key for key in keys if _bit(key, len(prefix)) == bit] for bit in "01"}
    return split_keys(halves["0"], fits, f"{prefix}0") | split_keys(halves["1"], fits, f"{prefix}1")


def _bit(key: str, number: int) -> str:
    """One bit of the hash of a key. Beyond its end all are ones."""
    bits = f"{int.from_bytes(hashlib.sha256(key.encode(errors='surrogatepass')).digest()):0256b}"
    return bits[number : number + 1] or "1"


class HomeAssistant:
    """Describes the devices of one app.

    Args:
        app: the app.
        devices: the names of all its devices.
        settings: the first levels of the topics, as configured in Home Assistant, and the names that devices had
            before.

    Raises:
        InvalidValue: two devices have one identifier.
    """

    def __init__(self, app: Identity, devices: Sequence[str], settings: DiscoverySettings) -> None:
        self._app = app
        self._prefix = settings.prefix
        self._node = identifier(app.topics.prefix)
        node = app.topics.node
        self._app_key = APP if node is None else f"{APP}--{identifier(node)}"  # no name of a device gives two dashes
        self._ids = identifiers_of(devices, settings.ids)
        self._origin = {"name": origin_of(app.topics.prefix), "sw": app.leadsman}
        self.topics: Mapping[str, str | None] = {
            self._topic(self._app_key): None,
            **{self._topic(key): name for name, key in self._ids.items()},
        }
        """The topics of all descriptions, in the order in which they are published, with the names of the devices; None
        is the app itself. If a device has several messages, this is the topic of the first one."""
        self.own = own_filter(settings.prefix, app.topics.prefix)
        """The topic filter of the descriptions of this app. Others may have descriptions there, too."""
        self._below = f"{settings.prefix}/device/{self._node}/"
        self.publishes = (app.topics.of("+", "health"), self.own)
        """The topic filters that the app publishes to."""
        self.births = birth_topic(settings.prefix)
        """Where Home Assistant announces its start."""

    def has_device(self, name: str) -> bool:
        """Whether it describes a device of that name."""
        return name in self._ids

    def is_birth(self, payload: bytes) -> bool:
        """Whether a message at `births` announces a start."""
        return payload == b"online"

    def first_of(self, topic: str) -> str:
        """The topic of the first message of a device, by that of any of its messages."""
        return self._topic(topic.removeprefix(self._below).removesuffix("/config").split(_BETWEEN, 1)[0])

    def describe(self, device: DeviceDescription) -> Sequence[RetainedMessage]:
        """The description of a device: in one message, or in several if one would be too long. The first one is at its
        topic in `topics`, and has the entities of leadsman itself."""
        key, topics = self._ids[device.name], self._app.topics
        unique = f"{self._node}--{key}"
        found = _with_ids(_components(device, topics), unique)
        head = {
            "dev": {"ids": [unique], "name": device.title or device.name, "mf": "leadsman", "mdl": self._app.name}
            | {"via_device": f"{self._node}--{self._app_key}"}
            | ({} if device.area is None else {"sa": device.area}),
            "o": self._origin,
            "avty": [_app_availability(topics.status), {"t": topics.availability(device.name)}],
            "avty_mode": "all",
        }

        def message(keys: Iterable[str]) -> bytes:
            return encode(_shorten({**head, "cmps": {each: found[each] for each in keys}}, topics.state(device.name)))

        most = MAX_CONFIGURATION_BYTES + len(self._app.leadsman)
        recent = [each for each in found if found[each]["p"] in RECENT]
        old = [each for each in found if each not in recent]
        about = [each for each in old if each in _ABOUT]
        shares: Mapping[str, Sequence[str]] = {MAIN_MESSAGE: old}
        if len(message(old)) > most:
            shares = split_keys(
                [each for each in old if each not in about],
                lambda name, keys: len(message([*keys, *about] if name == MAIN_MESSAGE else keys)) <= most,
            )
            shares = {**shares, MAIN_MESSAGE: [*shares[MAIN_MESSAGE], *about]}
        later = split_keys(recent, lambda _, keys: len(message(keys)) <= most) if recent else {}
        shares = {**shares, **{f"{_RECENT}{name}": keys for name, keys in later.items() if keys}}
        return [
            RetainedMessage(self._topic(key if name == MAIN_MESSAGE else f"{key}{_BETWEEN}{name}"), message(keys))
            for name, keys in shares.items()
        ]

    def describe_app(self) -> RetainedMessage:
        """The description of the app itself."""
        app, unique = self._app, f"{self._node}--{self._app_key}"
        document = {
            "dev": {"ids": [unique], "name": app.title, "mf": "leadsman", "mdl": app.name, "sw": app.version},
            "o": self._origin,
            "avty": _app_availability(app.topics.status),
            "cmps": _with_ids(_components_of_app(app.topics), unique),
        }
        return RetainedMessage(self._topic(self._app_key), encode(document))

    def is_ours(self, payload: bytes) -> bool:
        """Whether this app published a description: then it may replace or remove it."""
        return is_configuration_of(self._app.topics.prefix, payload)

    def condition(self, name: str, condition: Condition) -> RetainedMessage:
        """The message of the condition of a device. Its topic is always the same."""
        document: DeviceHealth = {
            "status": condition.status,
            "circuit": condition.circuit,
            "consecutive_failures": condition.failures,
            "last_success_at": condition.last_success_at,
        }
        return RetainedMessage(self._app.topics.of(name, "health"), encode(document))

    def steps(self, found: bytes, wanted: RetainedMessage) -> Sequence[RetainedMessage]:
        """The messages that lead from the one that the broker has at a topic to the wanted one. A component that is no
        longer wanted, or is of another platform, is first sent with its platform alone, which removes its entity."""
        topic, payload = wanted
        if found == payload:
            return ()
        if not found:
            return (wanted,)
        before, after = _platforms(_decode(found)), _decode(payload)
        now = _platforms(after)
        gone = {key: {"p": platform} for key, platform in before.items() if now.get(key) != platform}
        if not gone:
            return (wanted,)
        leaving = _with_components(after, gone)
        return (wanted,) if leaving is None else (RetainedMessage(topic, leaving), wanted)

    def moves(self, found: Mapping[str, bytes], wanted: Sequence[RetainedMessage]) -> Sequence[RetainedMessage]:
        """The messages with which Home Assistant is asked, one after the other, to prepare for a move: messages at some
        of these topics are about to replace those that the broker has, and an entity is at another topic from then on.
        They are not retained. Empty if nothing moves. An entity has one configuration, so the one that it leaves is
        unloaded first. That keeps its settings; those of an entity that is gone would be kept, too, so that one is
        removed before."""
        now = {
            key: (topic, platform)
            for topic, payload in wanted
            for key, platform in _platforms(_decode(payload)).items()
        }
        messages = []
        for topic, payload in found.items():
            document = _decode(payload)
            before = _platforms(document)
            gone = {key: {"p": platform} for key, platform in before.items() if now.get(key, ("", ""))[1] != platform}
            if all(key in gone or now[key][0] == topic for key in before):
                continue
            if gone and (leaving := _with_components(document, gone)) is not None:
                messages.append(RetainedMessage(topic, leaving))
            messages.append(RetainedMessage(topic, _UNLOAD))
        return messages

    def _topic(self, key: str) -> str:
        return f"{self._prefix}/device/{self._node}/{key}/config"


def _app_availability(status: str) -> Document:
    return {"t": status, "val_tpl": "{{value_json.state}}"}


def _with_ids(found: Mapping[str, Component], unique: str) -> Document:
    """The components with identities that last. Nobody sees these, so they are short."""
    return {
        key: component
        if component["p"] == "device_automation"
        else {**component, "uniq_id": shorten(f"{unique}--{key}")}
        for key, component in found.items()
    }


def _shorten(document: Document, state: str) -> Document:
    """The same configuration with the topic of the readings written once, for all components. Not if there is one
    without a state, since it would inherit that topic; buttons and climate controls have no such topic."""
    found = document["cmps"].values()
    if not any(each.get("stat_t") == state for each in found):
        return document
    if any("stat_t" not in each and each["p"] not in ("button", "climate") for each in found):
        return document
    short = {
        key: {word: value for word, value in each.items() if (word, value) != ("stat_t", state)}
        for key, each in document["cmps"].items()
    }
    return {**document, "stat_t": state, "cmps": short}


def _with_components(document: Document, more: Mapping[str, Component]) -> bytes | None:
    """A configuration with more components; None if what the broker has of them cannot be written again."""
    try:
        return encode({**document, "cmps": {**document.get("cmps", {}), **more}})
    except (ValueError, RecursionError):
        return None


def _platforms(document: Document) -> dict[str, str]:
    """The platform of each component."""
    found = document.get("cmps")
    if not isinstance(found, dict):
        return {}
    return {key: each["p"] for key, each in found.items() if isinstance(each, dict) and isinstance(each.get("p"), str)}


def _decode(payload: bytes) -> Document:
    """The document of a payload; an empty one if it is not an object."""
    return object_in(payload) or {}


def _components(device: DeviceDescription, topics: Topics) -> dict[str, Component]:
    """The components of a device, by their keys: its fields, what its command sets, and those of leadsman."""
    found = {} if device.event is None else _event(device, device.event, topics.state(device.name))
    if device.update is not None:
        found |= _update(device.update, device, topics)
    versions = _versions(device)
    for field in () if device.event is not None else device.fields:
        if field.path in versions:
            continue
        place = _place(device, topics, field)
        if place is None:
            continue
        state, value = place
        found[join_names(*field.path)] = (
            _component_of_field(field, value) | {"stat_t": state} | _expiry(device) | _options(field)
        )
        if field.kind == "list":
            found[join_names(*field.path)]["json_attr_t"] = state
    if device.content is not None and device.content[1].startswith("image/"):
        word, content_type = device.content
        image = {"p": "image", "name": None, "img_t": topics.of(device.name, word), "cont_type": content_type}
        found["_image"] = image
    if device.command is not None:
        found |= _settings(device.command, device, topics)
        found = _controlled(found, device, topics)
    return found | _diagnostics(device, topics) | _buttons(device, topics)


def _components_of_app(topics: Topics) -> dict[str, Component]:
    """The components of the app itself."""
    diagnostic = {"p": "sensor", "stat_t": topics.status, "ent_cat": "diagnostic"}
    return {
        "_problem": {
            "p": "binary_sensor",
            "name": "Problem",
            "dev_cla": "problem",
            "stat_t": topics.status,
            "val_tpl": "{{'OFF' if value_json.health == 'ok' else 'ON'}}",
        },
        "_connected": diagnostic
        | {"name": "Connected since", "dev_cla": "timestamp"}
        | {"val_tpl": "{{(value_json.session / 1000) | as_datetime}}"},
        "_outbox": diagnostic
        | {"name": "Messages waiting", "stat_cla": "measurement"}
        | {"val_tpl": "{{value_json.get('mqtt', {}).get('outbox', {}).get('messages')}}"},
        "_outbox_age": diagnostic
        | {"name": "Oldest message", "dev_cla": "duration", "unit_of_meas": "s"}
        | {"val_tpl": "{{value_json.get('mqtt', {}).get('outbox', {}).get('oldest')}}"},
        "_version": diagnostic | {"name": "Version", "val_tpl": "{{value_json.version}}"},
    }


def _value(path: tuple[str, ...]) -> str:
    """The expression for a field in the JSON of a reading. ``repr`` writes text as Jinja reads it."""
    inner = "value_json"
    for key in path[:-1]:
        inner = f"({inner}.get({_quote(key)}) or {{}})"
    return f"{inner}.get({_quote(path[-1])})"


_PLAIN, _TEXT = "(value|from_json if value else none)", "(value or none)"
"""The expressions for a value that is a payload of its own, which is empty for none: what JSON writes, and text."""


def _quote(text: str) -> str:
    """Text as a literal of Jinja, in ASCII: other characters and quotes are escaped as in Python."""
    return ascii(text)


def _template(expression: str) -> str:
    return f"{{{{{expression}}}}}"


def _component_of_field(field: Field, value: str) -> Component:
    """The component for a field of the readings; `value` is the expression for it."""
    found: Component = {"p": "sensor", "name": field.name}
    if field.kind == "boolean":
        found |= {"p": "binary_sensor", "pl_on": "True", "pl_off": "False"}
    elif field.kind in ("enum", "timestamp", "date"):
        found["dev_cla"] = field.kind
    elif field.kind == "list":  # its state is how many there are
        found["json_attr_tpl"] = _template(f"{{{_quote(field.path[-1])}: {value}}}|to_json")
        value = f"None if {value} is none else {value}|count"
    elif field.kind == "text":
        value = f"({value} | string)[:{_MAX_STATE_CHARS}]"
    if field.kind == "enum":
        found["ops"] = list(field.options)
    found |= {"val_tpl": _template(value)}
    known = OF_NUMBERS if field.kind == "number" else OF_BOOLEANS if field.kind == "boolean" else ()
    if field.device_class in known:
        found["dev_cla"] = field.device_class
    if field.kind == "number":
        found |= _given(unit_of_meas=field.unit, stat_cla=field.state_class, sug_dsp_prc=field.precision)
    return found | _given(ic=field.icon, ent_cat="diagnostic" if field.category == "diagnostic" else None)


def _event(device: DeviceDescription, event: EventDescription, state: str) -> dict[str, Component]:
    """The component for events, whose other fields are its attributes, and what a press triggers as that of a
    device (https://www.home-assistant.io/integrations/event.mqtt/, …/device_trigger.mqtt/)."""
    field = event.field
    found: Component = {"p": "event", "name": field.title, "stat_t": state, "evt_typ": list(field.options)}
    found |= _given(dev_cla=event.device_class, ic=field.icon) | _options(field)
    components = {join_names(*field.path): found}
    if event.device_class not in _PRESSED:
        return components
    trigger = {"p": "device_automation", "atype": "trigger", "t": state, "stype": device.title or device.name}
    trigger["val_tpl"] = _template(_value(field.path))
    keys = {each: f"_on_{join_names(each)}" for each in field.options}
    return components | {keys[each]: trigger | {"type": each, "pl": each} for each in field.options}


def _versions(device: DeviceDescription) -> Container[tuple[str, ...]]:
    """The paths of the fields that are shown as an update."""
    return () if device.update is None else {each.path for each in device.update.fields.values()}


def _update(update: ControlDescription, device: DeviceDescription, topics: Topics) -> dict[str, Component]:
    """The component for the versions of a program. While the newest one is not known, Home Assistant shows *unknown*.
    It ignores an empty text, and would take ``None`` for a version."""
    alone = all(each.path in _versions(device) for each in device.fields)
    installed, latest = (_place(device, topics, update.fields[role]) for role in ("installed", "latest"))
    if installed is None or latest is None:
        return {}
    found: Component = {"p": "update", "name": None if alone else "Update", "stat_t": installed[0]}
    found |= {"val_tpl": _template(f"{installed[1]} or ''"), "l_ver_t": latest[0]}
    return {"_update": found | {"l_ver_tpl": _template(f"{latest[1]} or ''")}}


def _place(device: DeviceDescription, topics: Topics, field: Field) -> tuple[str, str] | None:
    """The topic of a value, and the expression for it in a template; None if it has no topic of its own."""
    if not device.only_fields:
        return topics.state(device.name), _value(field.path)
    topic = topics.field(device.name, field.path)
    return None if topic is None else (topic, _PLAIN if field.kind in ("number", "boolean", "list") else _TEXT)


def _options(field: Field) -> Component:
    """The further options of its entity, abbreviated as the others are, so that none is there twice."""
    return {_ABBREVIATED[name]: value for name, value in field.homeassistant.items()}


def _expiry(device: DeviceDescription) -> Component:
    return {} if device.stale_after is None else {"exp_aft": max(1, math.ceil(device.stale_after))}


def _settings(command: CommandDescription, device: DeviceDescription, topics: Topics) -> dict[str, Component]:
    """The components for what a command sets. A field of the readings with the same name shows its state, and needs no
    component of its own, unless it has a state class: Home Assistant has statistics of sensors alone."""
    topic = topics.of(device.name, "set")
    if command.parameter is None:
        return {"_run": {"p": "button", "name": "Run" if device.fields else None, "cmd_t": topic, "pl_prs": "{}"}}
    shown = {each.path: each for each in device.fields}
    found = {}
    for field in command.fields:
        component, path = _setting(field) | {"cmd_t": topic}, field.path or (command.parameter,)
        if (
            field.title is None
            and field.name in _SWITCHES
            and component["p"] == "switch"
            and shown.keys() <= {path}
            and len(command.fields) == 1
        ):
            component["name"] = None  # as the device: a lamp is called "Lamp", and not "Lamp On"
        state = shown.get(path)
        if state is not None and state.title is not None and field.title is None:
            component["name"] = state.title
        if state is None:
            found[join_names(*path)] = component
        elif state.kind != field.kind or component["p"] == "button":
            found[f"_set_{join_names(*path)}"] = component
        else:
            text = f"({_value(path)} or '')[:{_MAX_STATE_CHARS}]"  # an entity for text has no unknown
            value = text if component["p"] == "text" else _value(path)
            component |= {"stat_t": topics.state(device.name), "val_tpl": _template(value)}
            component |= {"stat_on": "True", "stat_off": "False"} if field.kind == "boolean" else {}
            found[join_names(*path) if state.state_class is None else f"_set_{join_names(*path)}"] = component
    return found


def _controlled(found: dict[str, Component], device: DeviceDescription, topics: Topics) -> dict[str, Component]:
    """The components with that of the control, which has its fields, except those with statistics."""
    control = None if device.command is None else device.command.control
    if control is None:
        return found
    shown = {each.path: each for each in device.fields}
    paths = (each.path for each in control.fields.values())
    shared = [join_names(*path) for path in paths if path in shown and shown[path].state_class is None]
    rest = {key: each for key, each in found.items() if key not in shared}
    at = _At(topics.of(device.name, "set"), topics.state(device.name), shown)
    named_as_device: Component = {"p": control.kind, "name": None}
    return {f"_{control.kind}": named_as_device | _CONTROLS[control.kind](control, at)} | rest


class _At(NamedTuple):
    """Where a control takes commands, and shows its state."""

    command: str
    state: str
    shown: Container[tuple[str, ...]]
    """The paths of the fields of the readings."""


def _light(light: ControlDescription, at: _At) -> Component:
    """Home Assistant counts its brightness from 1 to 255."""
    switch, dimmed = light.fields["on"], light.fields.get("brightness")
    on = _payload(switch, "true")[:-1]
    found: Component = {"schema": "template", "cmd_t": at.command}
    found["cmd_off_tpl"] = _template(_quote(_payload(switch, "false")))
    if dimmed is None:
        found["cmd_on_tpl"] = _template(_quote(f"{on}}}"))
    else:
        key = _quote("," + _payload(dimmed, "")[1:-1])
        share = f"(brightness*{dimmed.maximum}/255)|round"
        scaled = _template(f"[{share}|int,1]|max" if dimmed.whole else f"{share}(3)")
        found["cmd_on_tpl"] = (
            f"{_template(_quote(on))}{{% if brightness is defined %}}{_template(key)}{scaled}{{% endif %}}}}"
        )
    if switch.path not in at.shown:
        return found
    found |= {"stat_t": at.state, "stat_tpl": _choice(switch, "on", "off")}
    if dimmed is not None:
        found["bri_tpl"] = _template(f"(({_value(dimmed.path)} or 0)*255/{dimmed.maximum})|round|int or ''")
    return found


def _climate(climate: ControlDescription, at: _At) -> Component:
    target, mode = climate.fields["target"], climate.fields.get("mode")
    bounds = _range(target)
    found: Component = {"temp_unit": "F" if target.unit == "°F" else "C"}
    found |= {"temp_cmd_t": at.command, "temp_cmd_tpl": _command(target, "value"), "temp_step": bounds["step"]}
    found |= _given(min_temp=target.minimum, max_temp=target.maximum)
    if target.path in at.shown:
        found |= {"temp_stat_t": at.state, "temp_stat_tpl": _template(_value(target.path))}
    if climate.current is not None and climate.current in at.shown:
        found |= {"curr_temp_t": at.state, "curr_temp_tpl": _template(_value(climate.current))}
    if mode is None:
        return found | {"modes": ["heat"], "mode_stat_t": at.state, "mode_stat_tpl": "heat"}
    found |= {"modes": list(mode.options), "mode_cmd_t": at.command, "mode_cmd_tpl": _command(mode, "value | to_json")}
    if mode.path in at.shown:
        found |= {"mode_stat_t": at.state, "mode_stat_tpl": _template(_value(mode.path))}
    return found


def _cover(cover: ControlDescription, at: _At) -> Component:
    """Home Assistant takes a position that can be set only beside one that is shown."""
    position, stop = cover.fields["position"], cover.fields.get("stop")
    found: Component = {"cmd_t": at.command, "pl_stop": None if stop is None else _payload(stop, "true")}
    found |= {"pl_open": _payload(position, str(_whole(position))), "pl_cls": _payload(position, "0")}
    if position.path not in at.shown:
        return found
    found |= {"set_pos_t": at.command, "set_pos_tpl": _command(position, "position"), "pos_open": _whole(position)}
    value = _value(position.path)
    return found | {"pos_t": at.state, "pos_tpl": _template(f"'' if {value} is none else {value}")}


def _valve(valve: ControlDescription, at: _At) -> Component:
    position = valve.fields["position"]
    found: Component = {"cmd_t": at.command, "cmd_tpl": _command(position, "value"), "pos": True}
    found["pos_open"] = _whole(position)
    return found | _state(at, position, val_tpl=_template(_value(position.path)))


def _fan(fan: ControlDescription, at: _At) -> Component:
    on, speed = fan.fields["on"], fan.fields.get("speed")
    found = _on_and_off(on, at)
    if speed is None:
        return found
    found |= {"pct_cmd_t": at.command, "pct_cmd_tpl": _command(speed, "value"), "spd_rng_max": _whole(speed)}
    if speed.path in at.shown:
        found |= {"pct_stat_t": at.state, "pct_val_tpl": _template(_value(speed.path))}
    return found


def _lock(lock: ControlDescription, at: _At) -> Component:
    locked = lock.fields["locked"]
    found = {"cmd_t": at.command, "pl_lock": _payload(locked, "true"), "pl_unlk": _payload(locked, "false")}
    return found | _state(at, locked, val_tpl=_choice(locked, "LOCKED", "UNLOCKED"))


def _siren(siren: ControlDescription, at: _At) -> Component:
    return {"sup_dur": False, "sup_vol": False} | _on_and_off(siren.fields["on"], at)


_CONTROLS: Mapping[str, Callable[[ControlDescription, _At], Component]] = {
    "climate": _climate,
    "cover": _cover,
    "fan": _fan,
    "light": _light,
    "lock": _lock,
    "siren": _siren,
    "valve": _valve,
}
"""The options of each kind of control."""


def _on_and_off(on: Field, at: _At) -> Component:
    """The commands and the states of a control that is switched, where Home Assistant has one word for a payload and
    for the state that it leads to."""
    found = {"cmd_t": at.command, "cmd_tpl": _command(on, "'true' if value == 'ON' else 'false'")}
    return found | _state(at, on, stat_val_tpl=_choice(on, "ON", "OFF"))


def _state(at: _At, field: Field, **template: str) -> Component:
    """The state of a control, if the readings show that field."""
    return {"stat_t": at.state, **template} if field.path in at.shown else {}


def _choice(field: Field, true: str, false: str) -> str:
    """The template that makes a word of a boolean; none is unknown."""
    value = _value(field.path)
    return _template(f"None if {value} is none else '{true}' if {value} else '{false}'")


def _whole(field: Field) -> int:
    """The largest value of a field for whole numbers; its limit may be written as 100.0."""
    return int(field.maximum or 0)


_OF_ONE_DIALECT = re.compile(r"\\[zZ]|\(\?(?!:)|&&|~~|--")
"""What not all of these three have, or read in another way: ends of the text (Python has ``\\z`` from 3.14 on), flags,
names of groups, and operations on classes."""


def _setting(field: Field) -> Component:
    """The component for a field of a command's payload."""
    common = {"name": field.name} | _given(ic=field.icon, ent_cat=field.category)
    if field.kind == "boolean":
        return common | {"p": "switch", "pl_on": _payload(field, "true"), "pl_off": _payload(field, "false")}
    if field.kind == "enum" and len(field.options) == 1:
        option = field.options[0]
        return common | {"p": "button", "pl_prs": _payload(field, encode(option).decode() if field.quoted else option)}
    if field.kind == "enum":
        template = _command(field, "value | to_json" if field.quoted else "value")
        return common | {"p": "select", "ops": list(field.options), "cmd_tpl": template}
    if field.kind == "number":
        return common | {"p": "number", "cmd_tpl": _command(field, "value")} | _range(field)
    if field.kind in _MOMENTS:
        return common | {"p": _MOMENTS[field.kind], "cmd_tpl": _command(field, "value.isoformat() | to_json")}
    longest = _MAX_STATE_CHARS if field.maximum is None else min(_MAX_STATE_CHARS, int(field.maximum))
    found = common | {"p": "text", "cmd_tpl": _command(field, "value | to_json"), "max": longest}
    return found | _given(
        min=None if field.minimum is None else min(int(field.minimum), longest), ptrn=_portable(field.pattern)
    )


def _portable(pattern: str | None) -> str | None:
    """The pattern of a text, if it means the same to all who read it: to pydantic, which searches with Rust's regex
    (https://docs.rs/regex/latest/regex/#syntax); to Home Assistant, which matches the beginning with Python's re, and
    refuses the entity if re does not take it; and to its page, which matches the whole. None for others: the app checks
    the value anyway."""
    if pattern is None or not pattern.startswith("^") or not pattern.endswith("$") or pattern.endswith("\\$"):
        return None
    if "|" in re.sub(r"\\.|\[.*?\]|\(.*\)", "", pattern) or _OF_ONE_DIALECT.search(pattern):
        return None
    try:
        with warnings.catch_warnings(action="error", category=FutureWarning):  # it will mean something else
            re.compile(pattern)
    except (re.error, FutureWarning, RecursionError, OverflowError):
        return None
    return pattern


def _range(field: Field) -> Component:
    step = field.step
    if step is None:
        step = 1 if field.whole else 10.0 ** -(1 if field.precision is None else min(field.precision, 3))
    low = -_UNBOUNDED if field.minimum is None else field.minimum
    high = _UNBOUNDED if field.maximum is None else field.maximum
    open_end = field.minimum is None or field.maximum is None
    found = {"min": low, "max": max(low, high), "step": max(step, 0.001)} | ({"mode": "box"} if open_end else {})
    return found | _given(
        unit_of_meas=field.unit, dev_cla=field.device_class if field.device_class in OF_NUMBERS else None
    )


def _payload(field: Field, value: str) -> str:
    """The payload of a command that sets the field to a value, which is written in JSON."""
    return f"{{{encode(field.path[0]).decode()}:{value}}}" if field.path else value


def _command(field: Field, value: str) -> str:
    """The template that makes such a payload. The key is a literal, since it may contain what Jinja would read."""
    if not field.path:
        return _template(value)
    return f"{_template(_quote(_payload(field, '')[:-1]))}{_template(value)}}}"


def _diagnostics(device: DeviceDescription, topics: Topics) -> dict[str, Component]:
    """How the device is. These stay available while it is not."""
    common = {
        "p": "sensor",
        "ent_cat": "diagnostic",
        "stat_t": topics.of(device.name, "health"),
        "avty": _app_availability(topics.status),
    }
    found = {"_status": common | {"name": "Status", "val_tpl": "{{value_json.status}}"}}
    if device.circuit:
        found["_circuit"] = common | {"name": "Circuit", "val_tpl": "{{value_json.circuit}}"}
    if not device.read:
        return found
    failures = {"name": "Consecutive failures", "val_tpl": "{{value_json.consecutive_failures}}"}
    success = {"name": "Last success", "dev_cla": "timestamp", "val_tpl": "{{value_json.last_success_at}}"}
    return found | {"_failures": common | failures, "_success": common | success}


def _buttons(device: DeviceDescription, topics: Topics) -> dict[str, Component]:
    """The buttons for requests of a person. They stay available while the device is not."""
    common = {"p": "button", "ent_cat": "diagnostic", "avty": _app_availability(topics.status)}
    name = device.name
    sender = {"by": _SENDER}
    found: dict[str, Component] = {}
    if device.polled:
        release = {"name": "Release", "cmd_t": topics.of(name, "release/set"), "pl_prs": encode(sender).decode()}
        found["_poll"] = common | {"name": "Poll now", "cmd_t": topics.of(name, "get"), "pl_prs": "{}"}
        found["_release"] = common | release
    if device.circuit:
        close = encode({"action": "close", **sender}).decode()
        found["_close"] = common | {"name": "Close circuit", "cmd_t": topics.of(name, "circuit/set"), "pl_prs": close}
    return found


def _given(**options: object) -> Component:
    """The options that have a value."""
    return {name: value for name, value in options.items() if value is not None}
