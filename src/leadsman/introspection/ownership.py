"""Which retained topics an app may remove, whatever a registry at the broker says.

Anybody who may write the registry of an app could list topics of other programs there. So a topic is removed only if it
is below the prefix of the app and means nothing to a running one; or if it belongs to a description of discovery whose
content says that this app published it. Pure.
"""

from collections.abc import Iterable
from typing import NamedTuple

from leadsman.mqtt.answers import object_in
from leadsman.mqtt.topics import RESERVED
from leadsman.settings.discovery import homie_filters, homie_root, own_filter
from leadsman.text.identifiers import identifier

_NOT_RETAINED = RESERVED - {"state", "history", "availability", "health", "ledger", "resilience"}
"""Levels below the prefix, or below a device, that belong to the app itself, or at which it takes requests: an empty
message there would be one."""
_DESCRIPTION = "/$description"
"""Ends the topic of a description of Homie."""


class Claim(NamedTuple):
    """A topic outside the prefix of the app that it may have published to."""

    document: str
    """The topic of the description that says whose it is."""
    topic_filter: str
    """The descriptions at the same place."""


def may_be_removed(topic: str, prefix: str) -> bool:
    """Whether a topic is below the prefix of an app, and is one that devices retain."""
    if not topic.startswith(f"{prefix}/"):
        return False
    return _NOT_RETAINED.isdisjoint(topic[len(prefix) + 1 :].split("/", 2)[:2])


def claim_of(topic: str, prefix: str) -> Claim | None:
    """What would prove that a topic outside the prefix is the app's; None if nothing can. The topics are those of
    Home Assistant, ``{discovery}/device/{app}/{device}/config``, and of Homie, ``{discovery}/5/{app}-{device}/…``."""
    levels = topic.split("/")
    if len(levels) >= 5 and levels[-1] == "config" and levels[-4:-2] == ["device", identifier(prefix)]:
        return Claim(topic, own_filter("/".join(levels[:-4]), prefix))
    root = homie_root(prefix)
    if len(levels) >= 4 and levels[1] == "5" and f"{levels[2]}-".startswith(f"{root}-") and levels[-1] != "set":
        return Claim("/".join((*levels[:3], "$description")), homie_filters(levels[0], prefix)[0])
    return None


def origin_of(prefix: str) -> str:
    """The name of the origin of a configuration of Home Assistant, ``o.name``. No other app at the broker has it."""
    return f"leadsman {prefix}"


def type_of(prefix: str) -> str:
    """The type of a device of Homie, ``type``. No other app at the broker has it."""
    return f"leadsman/{prefix}"


def is_configuration_of(prefix: str, payload: bytes) -> bool:
    """Whether an app published a configuration of Home Assistant."""
    origin = (object_in(payload) or {}).get("o")
    return isinstance(origin, dict) and origin.get("name") == origin_of(prefix)


def is_description_of(prefix: str, payload: bytes) -> bool:
    """Whether an app published a description of Homie. Most are of others, and not read."""
    return type_of(prefix).encode() in payload and (object_in(payload) or {}).get("type") == type_of(prefix)


def proves(claim: Claim, prefix: str, payload: bytes) -> bool:
    """Whether the description of a claim says that the app published it. `payload` is empty if the broker keeps none:
    what is left of a device of Homie without a description is nobody else's."""
    if not claim.document.endswith(_DESCRIPTION):
        return is_configuration_of(prefix, payload)
    return not payload or is_description_of(prefix, payload)


def in_order(topics: Iterable[str]) -> list[str]:
    """The topics in the order in which they are removed: descriptions last, so that a removal that is interrupted can
    be repeated."""
    return sorted(topics, key=lambda topic: topic.endswith(_DESCRIPTION))
