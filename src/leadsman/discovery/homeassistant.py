"""Home Assistant's convention: a retained configuration for each device, with its entities as components. Pure.

See https://www.home-assistant.io/integrations/mqtt/#mqtt-discovery. The topic of a configuration is
``homeassistant/device/{app}/{device}/config``, so that those of one app have a filter of their own. Keys are
abbreviated, since a thousand configurations are sent at once. Where one message would be longer than `MOST`, further
ones at ``…/{device}--1/config`` have the other entities of the same device: Home Assistant joins them by the identifier
of the device.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from leadsman.discovery import entities
from leadsman.discovery.description import AppDescription, DeviceDescription, RetainedMessage
from leadsman.discovery.entities import Component, DeviceTopics
from leadsman.introspection.retained import is_configuration_of, origin_of
from leadsman.monitoring.condition import Condition
from leadsman.mqtt.answers import object_in
from leadsman.mqtt.topics import encode
from leadsman.settings.discovery import APP, birth_topic, identifiers_of, own_filter
from leadsman.text.identifiers import identifier, shorten

if TYPE_CHECKING:
    from leadsman.monitoring.document import DeviceHealth

Document = dict[str, Any]
MOST = 4000
"""Bytes of a configuration, without the version of leadsman in it: a new version moves no entity."""
_UNLOAD = b'{"migrate_discovery":true}'
"""Lets go of all entities of a configuration, and keeps what people have set for them."""
_BETWEEN = "--"
"""Between the identifier of a device and the name of a further message. No identifier has it."""


RECENT = frozenset(entities.MOMENTS.values())
"""The platforms that a release of the last years may not know. It refuses a whole message that has one, so they are in
a message of their own."""
_RECENT = "recent"
"""The name of that message, or what the names of several begin with."""
FIRST = ""
"""The message that there always is."""


def split_keys(keys: Sequence[str], fits: Callable[[str, Sequence[str]], bool]) -> Mapping[str, Sequence[str]]:
    """The keys of each message, by the name of the message, which consists of ``0`` and ``1``.

    The place of a key follows from its own hash, as in extendible hashing (Fagin, Nievergelt, Pippenger and Strong,
    doi:10.1145/320083.320092). So a new key moves no other one, unless a message becomes too long by it: then the keys
    of that message alone are shared out anew, and those of one half stay where they are.

    Args:
        keys: the keys, each once. Those of a message are in the same order.
        fits: whether the message of this name is short enough with these keys. It is asked again with fewer until it
            agrees, or until one key is left; the first message may be left without any.
    """
    return _split_keys(keys, fits, "")


def _split_keys(
    keys: Sequence[str], fits: Callable[[str, Sequence[str]], bool], prefix: str
) -> dict[str, Sequence[str]]:
    """The messages with the keys whose hashes begin with `prefix`. One half keeps the name of the whole: it has no more
    than the zeros at the end are."""
    name = prefix.rstrip("0")
    if not keys:
        return {FIRST: keys} if name == FIRST else {}
    if (len(keys) == 1 and name != FIRST) or fits(name, keys):
        return {name: keys}
    halves = {bit: [key for key in keys if _bit(key, len(prefix)) == bit] for bit in "01"}
    return _split_keys(halves["0"], fits, f"{prefix}0") | _split_keys(halves["1"], fits, f"{prefix}1")


def _bit(key: str, number: int) -> str:
    """One bit of the hash of a key. Beyond its end all are ones."""
    bits = f"{int.from_bytes(hashlib.sha256(key.encode(errors='surrogatepass')).digest()):0256b}"
    return bits[number : number + 1] or "1"


class HomeAssistant:
    """Describes the devices of one app; a `leadsman.discovery.description.Convention`.

    Args:
        app: the app.
        devices: the names of all its devices.
        prefix: the first levels of the topics, as configured in Home Assistant.

    Raises:
        InvalidValue: two devices have one identifier.
    """

    def __init__(self, app: AppDescription, devices: Sequence[str], prefix: str) -> None:
        self._app = app
        self._prefix = prefix
        self._node = identifier(app.topics.prefix)
        node = app.topics.node
        self._app_key = APP if node is None else f"{APP}--{identifier(node)}"  # no name of a device gives two dashes
        self._ids = identifiers_of(devices, app.ids)
        self._origin = {"name": origin_of(app.topics.prefix), "sw": app.leadsman}

    @property
    def topics(self) -> Mapping[str, str | None]:
        """See `Convention`."""
        devices: dict[str, str | None] = {self._topic(key): name for name, key in self._ids.items()}
        return {self._topic(self._app_key): None} | devices

    @property
    def own(self) -> str:
        """See `Convention`."""
        return own_filter(self._prefix, self._app.topics.prefix)

    @property
    def below(self) -> str:
        """See `Convention`."""
        return f"{self._prefix}/device/{self._node}/"

    def knows(self, name: str) -> bool:
        """See `Convention`."""
        return name in self._ids

    @property
    def removes(self) -> str:
        """See `Convention`."""
        return self.own

    @property
    def publishes(self) -> Sequence[str]:
        """See `Convention`."""
        return (self._app.topics.of("+", "health"), self.own)

    @property
    def births(self) -> str:
        """See `Convention`."""
        return birth_topic(self._prefix)

    @property
    def has_health(self) -> bool:
        """See `Convention`."""
        return True

    @property
    def properties(self) -> None:
        """See `Convention`. Templates take the values from the readings."""
        return

    def is_birth(self, payload: bytes) -> bool:
        """See `Convention`."""
        return payload == b"online"

    def first_of(self, topic: str) -> str:
        """See `Convention`."""
        return self._topic(topic.removeprefix(self.below).removesuffix("/config").split(_BETWEEN, 1)[0])

    def describe(self, device: DeviceDescription) -> Sequence[RetainedMessage]:
        """See `Convention`. What leadsman itself says of the device is in the first message."""
        key, topics = self._ids[device.name], self._app.topics
        unique = f"{self._node}--{key}"
        places = DeviceTopics(topics, device.name, _app_availability(topics.status))
        found = _with_ids(entities.of_device(device, places), unique)
        head = {
            "dev": {"ids": [unique], "name": device.title or device.name, "mf": "leadsman", "mdl": self._app.name}
            | {"via_device": f"{self._node}--{self._app_key}"}
            | ({} if device.area is None else {"sa": device.area}),
            "o": self._origin,
            "avty": [places.app_availability, {"t": topics.availability(device.name)}],
            "avty_mode": "all",
        }

        def message(keys: Iterable[str]) -> bytes:
            return encode(_shorten({**head, "cmps": {each: found[each] for each in keys}}, topics.state(device.name)))

        most = MOST + len(self._app.leadsman)
        recent = [each for each in found if found[each]["p"] in RECENT]
        old = [each for each in found if each not in recent]
        about = [each for each in old if each in entities.ABOUT]
        shares: Mapping[str, Sequence[str]] = {FIRST: old}
        if len(message(old)) > most:
            shares = split_keys(
                [each for each in old if each not in about],
                lambda name, keys: len(message([*keys, *about] if name == FIRST else keys)) <= most,
            )
            shares = {**shares, FIRST: [*shares[FIRST], *about]}
        later = split_keys(recent, lambda _, keys: len(message(keys)) <= most) if recent else {}
        shares = {**shares, **{f"{_RECENT}{name}": keys for name, keys in later.items() if keys}}
        return [
            RetainedMessage(self._topic(key if name == FIRST else f"{key}{_BETWEEN}{name}"), message(keys))
            for name, keys in shares.items()
        ]

    def describe_app(self) -> RetainedMessage:
        """See `Convention`."""
        app, unique = self._app, f"{self._node}--{self._app_key}"
        document = {
            "dev": {"ids": [unique], "name": app.title, "mf": "leadsman", "mdl": app.name, "sw": app.version},
            "o": self._origin,
            "avty": _app_availability(app.topics.status),
            "cmps": _with_ids(entities.of_app(app.topics), unique),
        }
        return RetainedMessage(self._topic(self._app_key), encode(document))

    def is_ours(self, payload: bytes) -> bool:
        """See `Convention`."""
        return is_configuration_of(self._app.topics.prefix, payload)

    def kept(self, topic: str) -> Sequence[str]:
        """See `Convention`."""
        return (topic,)

    def removal(self, topic: str, found: bytes) -> Sequence[RetainedMessage]:
        """See `Convention`."""
        return (RetainedMessage(topic, b""),)

    def condition(self, name: str, condition: Condition) -> Sequence[RetainedMessage]:
        """See `Convention`."""
        document: DeviceHealth = {
            "status": condition.status,
            "circuit": condition.circuit,
            "consecutive_failures": condition.failures,
            "last_success_at": condition.last_success_at,
        }
        return (RetainedMessage(self._app.topics.of(name, "health"), encode(document)),)

    def steps(self, found: bytes, wanted: RetainedMessage) -> Sequence[RetainedMessage]:
        """See `Convention`. A component that is no longer wanted, or is of another platform, is first sent with its
        platform alone, which removes its entity."""
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
        """See `Convention`. An entity has one configuration, so the one that it leaves is unloaded first. That keeps
        its settings; those of an entity that is gone would be kept, too, so that one is removed before."""
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
    without a state, since it would inherit that topic; buttons and climate controls know no such topic."""
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
    """The document of a payload; an empty one if it is none."""
    return object_in(payload) or {}
