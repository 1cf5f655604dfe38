"""The sections ``standby`` and ``cluster`` of the settings: how this node shares the app, or its devices, with other
nodes."""

import re
import socket
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, NamedTuple

from leadsman.core.mqtt.broker import Broker
from leadsman.core.mqtt.topics import NODES
from leadsman.core.registration.registry import Registry
from leadsman.core.settings.entry import Entries, SettingEntry
from leadsman.core.settings.sections import (
    MAX_LABEL_CHARS,
    Section,
    duration_reader,
    read_section,
    read_switch,
    read_words,
    whole_number_reader,
)
from leadsman.core.text.suggestion import nearest
from leadsman.errors import ConfigurationError, InvalidType, InvalidValue, collect, labelled, raise_together
from leadsman.extensions.nodes.lease.lease import DEFAULT_TTL, MAX_SHARDS

if TYPE_CHECKING:
    from leadsman.core.registration.setup import Setup

MIN_TTL_SECONDS, MAX_TTL_SECONDS = 3.0, 600.0
"""Seconds of a TTL. A standby renews each third of it, and MQTT 5 counts the expiry of a message in whole seconds
(§3.3.2.3.3); in a cluster the end of polls must fit into a fifth of it. Nothing is polled for as long as it after a
power cut."""
ENGINES = ("nats", "tls")
"""The schemes of the URL of an engine, which is NATS."""
SHARDS = 256
"""How many shards each set of labels has by default. Ten nodes share 256 of them evenly."""
MAX_NODE_CHARS = 64
"""Characters of the name of a node, which is a level of topics and ends a client id."""
IN_MEMORY = "memory"
"""The durability of an outbox that writes no reading to disk."""
_NODE = r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*"


def _labels(value: object) -> frozenset[str]:
    wrong = f"{value!r} is not a list of labels; write one such as ['ble']"
    found = frozenset(each for each in read_words(value, wrong) if each)
    for label in found:
        if len(label) > MAX_LABEL_CHARS or not label.isprintable():
            raise InvalidValue(f"{label!r}: a label has 1 to {MAX_LABEL_CHARS} printable characters, such as 'ble'")
    return found


def _engine(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidType("it is not text; write 'nats://host:4222'")
    scheme, separator, rest = value.partition("://")
    if value and (not separator or not rest or scheme not in ENGINES):
        close = nearest(scheme, ENGINES) if separator else None
        meant = f"; did you mean {close}://?" if close else ""
        raise InvalidValue(f"it is no URL of NATS{meant}; write nats://host:4222, or tls://host:4222")
    return value


def check_node(value: object) -> str:
    """Check the name of a node. Raises `InvalidType`, `InvalidValue`."""
    if not isinstance(value, str):
        raise InvalidType(f"{value!r} is not text; write a name such as 'gateway-1'")
    if len(value) > MAX_NODE_CHARS or not re.fullmatch(_NODE, value):
        raise InvalidValue(
            f"{value!r}: write letters, digits, ., _ and -, at most {MAX_NODE_CHARS}, such as 'gateway-1'"
        )
    return value


class StandbySettings(NamedTuple):
    """How this node shares the whole app with others, one of which acts."""

    enabled: Annotated[bool, read_switch] = False
    ttl: Annotated[float, duration_reader("15s", MIN_TTL_SECONDS, MAX_TTL_SECONDS)] = DEFAULT_TTL
    """Seconds for which a lease holds that is not renewed."""


class ClusterSettings(NamedTuple):
    """How this node shares the devices of the app with others."""

    engine: Annotated[str, _engine] = ""
    """The URL of the engine, with its credentials. Empty: this node shares them with no other."""
    node: Annotated[str, check_node] = ""
    """The name of this node, which no other one has, and which stays over restarts. By default that of the machine."""
    labels: Annotated[frozenset[str], _labels] = frozenset()
    """What this node has that others may lack, such as ``ble``."""
    ttl: Annotated[float, duration_reader("15s", MIN_TTL_SECONDS, MAX_TTL_SECONDS)] = DEFAULT_TTL
    """Seconds for which a lease holds that is not renewed."""
    shards: Annotated[int, whole_number_reader("shards", 1, MAX_SHARDS)] = SHARDS
    """How many shards each set of labels has."""


def _standby(standard: StandbySettings, entries: Entries) -> StandbySettings | None:
    """None if this node does not stand by."""
    found = read_section(standard, entries)
    return found if found.enabled else None


def _cluster(standard: ClusterSettings, entries: Entries) -> ClusterSettings | None:
    """None if this node shares the devices with no other: the engine is empty text."""
    faults: list[ConfigurationError] = []
    found = standard
    with collect(faults):
        found = read_section(standard, entries)
    if "engine" not in entries:
        faults.append(InvalidValue("cluster.engine: missing; write engine = 'nats://host:4222' in [cluster]"))
    raise_together(faults)
    if not found.engine:
        return None
    if found.node:
        return found
    with labelled("cluster.node: the name of this machine cannot be used"):
        return found._replace(node=check_node(socket.gethostname()))


def _check_standby(setup: "Setup", standby: object, brokers: Sequence[Broker]) -> None:
    if len(brokers) > 1:  # not all nodes would have the same arbiter
        raise InvalidValue(
            f"standby: the app has {len(brokers)} brokers, and two nodes at two brokers would both be active; name one"
        )
    setup.shares = "app"


def _check_cluster(setup: "Setup", cluster: ClusterSettings, brokers: Sequence[Broker]) -> None:
    """See that this node can share devices with others at its brokers, and name it."""
    if setup.sections.of(StandbySettings) is not None:
        raise InvalidValue("cluster: it takes over by itself; leave standby out, or the section [cluster]")
    setup.share_devices(cluster.node)
    if any(each.protocol == "3.1.1" for each in brokers):
        raise InvalidValue("cluster: it needs MQTT 5; leave protocol=3.1.1 out of the URL of the broker")


def _check_registered(setup: "Setup", cluster: object, entries: Mapping[str, Entries]) -> None:
    check_shared(setup.registry, entries["outbox"].get("durability"))


def _check_installed(cluster: object) -> None:
    """Import the client of the engine: a run needs it, too."""
    import_module("leadsman.extensions.nodes.lease.jetstream")


def check_shared(registry: Registry, durability: SettingEntry | None) -> None:
    """See that several nodes can share the devices of an app.

    Raises:
        InvalidValue: a device has the name of a level that the nodes use, or readings shall wait on disk.
    """
    if NODES in registry.devices:
        raise InvalidValue(f"cluster: no device may have the name {NODES!r}, where each node has its topics; rename it")
    if durability is not None and durability.value != IN_MEMORY:
        raise InvalidValue(
            f"cluster: a reading that waits on the disk of a node may be older than what the next one sent; leave"
            f" outbox.durability out, or write '{IN_MEMORY}' (from {durability.origin})"
        )


STANDBY = Section(StandbySettings, _standby, check=_check_standby)
CLUSTER = Section(
    ClusterSettings,
    _cluster,
    check=_check_cluster,
    check_registered=_check_registered,
    check_installed=_check_installed,
)
