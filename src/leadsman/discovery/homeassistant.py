"""Home Assistant's convention: one retained configuration for each device, with its entities as components. Pure.

See https://www.home-assistant.io/integrations/mqtt/#mqtt-discovery. The topic of a configuration is
``homeassistant/device/{app}/{device}/config``, so that those of one app have a filter of their own. Keys are
abbreviated, since a thousand configurations are sent at once.
"""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from leadsman.discovery import components
from leadsman.discovery.components import Component, Places
from leadsman.discovery.description import AppDescription, Condition, Device, Retained
from leadsman.identifiers import identifier, shortened
from leadsman.mqtt.topics import encode
from leadsman.settings.discovery import APP, birth_topic, identifiers_of, own_filter

if TYPE_CHECKING:
    from leadsman.introspection.document import CircuitWord, StatusWord
    from leadsman.introspection.health_document import DeviceHealth

Document = dict[str, Any]


class HomeAssistant:
    """Describes the devices of one app; a `leadsman.discovery.description.Convention`.

    Args:
        app: the app.
        devices: the names of all its devices.
        prefix: the first levels of the topics, as configured in Home Assistant.

    Raises:
        InvalidValue: two devices have one identifier, or `app.ids` names no device.
    """

    def __init__(self, app: AppDescription, devices: Sequence[str], prefix: str) -> None:
        self._app = app
        self._prefix = prefix
        self._node = identifier(app.topics.prefix)
        self._ids = identifiers_of(devices, app.ids)
        self._origin = {"name": f"leadsman {app.topics.prefix}", "sw": app.leadsman}

    @property
    def topics(self) -> Mapping[str, str | None]:
        """See `Convention`."""
        devices: dict[str, str | None] = {self._topic(key): name for name, key in self._ids.items()}
        return {self._topic(APP): None} | devices

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

    def describe(self, device: Device) -> Retained:
        """See `Convention`."""
        key, topics = self._ids[device.name], self._app.topics
        unique = f"{self._node}--{key}"
        places = Places(topics, device.name, _app_availability(topics.status))
        document = {
            "dev": {"ids": [unique], "name": device.name, "mf": "leadsman", "mdl": self._app.name}
            | {"via_device": f"{self._node}--{APP}"},
            "o": self._origin,
            "avty": [places.app_availability, {"t": topics.availability(device.name)}],
            "avty_mode": "all",
            "cmps": _with_ids(components.of_device(device, places), unique),
        }
        return Retained(self._topic(key), encode(_shortened(document, topics.state(device.name))))

    def describe_app(self) -> Retained:
        """See `Convention`."""
        app, unique = self._app, f"{self._node}--{APP}"
        document = {
            "dev": {"ids": [unique], "name": app.topics.prefix, "mf": "leadsman", "mdl": app.name, "sw": app.version},
            "o": self._origin,
            "avty": _app_availability(app.topics.status),
            "cmps": _with_ids(components.of_app(app.topics), unique),
        }
        return Retained(self._topic(APP), encode(document))

    def is_ours(self, payload: bytes) -> bool:
        """See `Convention`. The origin names the app's prefix, which no other app at the broker has."""
        document = _decoded(payload)
        origin = document.get("o")
        return isinstance(origin, dict) and origin.get("name") == self._origin["name"]

    def kept(self, topic: str) -> Sequence[str]:
        """See `Convention`."""
        return (topic,)

    def removal(self, topic: str, found: bytes) -> Sequence[Retained]:
        """See `Convention`."""
        return (Retained(topic, b""),)

    def condition(self, name: str, condition: Condition) -> Sequence[Retained]:
        """See `Convention`."""
        document: DeviceHealth = {
            "status": cast("StatusWord", condition.status),
            "circuit": cast("CircuitWord", condition.circuit),
            "consecutive_failures": condition.failures,
            "last_success_at": condition.last_success_at,
        }
        return (Retained(self._app.topics.of(name, "health"), encode(document)),)

    def steps(self, found: bytes, wanted: Retained) -> Sequence[Retained]:
        """See `Convention`. A component that is no longer wanted, or is of another platform, is first sent with its
        platform alone, which removes its entity."""
        topic, payload = wanted
        if found == payload:
            return ()
        before, after = _platforms(_decoded(found)), _decoded(payload)
        now = _platforms(after)
        gone = {key: {"p": platform} for key, platform in before.items() if now.get(key) != platform}
        if not gone:
            return (wanted,)
        return Retained(topic, encode({**after, "cmps": {**after.get("cmps", {}), **gone}})), wanted

    def _topic(self, key: str) -> str:
        return f"{self._prefix}/device/{self._node}/{key}/config"


def _app_availability(status: str) -> Document:
    return {"t": status, "val_tpl": "{{value_json.state}}"}


def _with_ids(found: Mapping[str, Component], unique: str) -> Document:
    """The components with identities that last. Nobody sees these, so they are short."""
    return {key: {**component, "uniq_id": shortened(f"{unique}--{key}")} for key, component in found.items()}


def _shortened(document: Document, state: str) -> Document:
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


def _platforms(document: Document) -> dict[str, str]:
    """The platform of each component."""
    found = document.get("cmps")
    if not isinstance(found, dict):
        return {}
    return {key: each["p"] for key, each in found.items() if isinstance(each, dict) and isinstance(each.get("p"), str)}


def _decoded(payload: bytes) -> Document:
    """The document of a payload; an empty one if it is none."""
    try:
        found = json.loads(payload)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
