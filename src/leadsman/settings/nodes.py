"""Reads the sections ``standby`` and ``cluster`` of the settings: how this node shares the app with others."""

import re
import socket
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

from leadsman.errors import ConfigurationError, InvalidType, InvalidValue, raise_together
from leadsman.settings.sources import Entry
from leadsman.text import nearest
from leadsman.timing.durations import Duration, positive_seconds

SHORTEST_TTL, LONGEST_TTL = 3.0, 600.0
"""Seconds of a TTL. A standby renews each third of it, and MQTT 5 counts the expiry of a message in whole seconds
(§3.3.2.3.3); in a cluster the end of polls must fit into a fifth of it. Nothing is polled for as long as it after a
power cut."""
ENGINES = ("nats", "tls", "postgresql", "postgres")
"""The schemes of the URLs of engines."""
TTL = 15.0
"""Seconds; see `leadsman.nodes.lease.lease.DEFAULT_TTL`."""
SHARDS, MOST_SHARDS = 256, 65_536
"""How many shards each set of labels has, by default and at most. Ten nodes share 256 of them evenly."""
LONGEST_NODE = 64
"""Characters of the name of a node, which is a level of topics and ends a client id."""
LONGEST_LABEL = 128
"""Characters."""
_NODE = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off", "")

_Reader = Callable[[object], object]


class StandbySettings(NamedTuple):
    """How this node shares the whole app with others, one of which acts."""

    ttl: float = TTL
    """Seconds for which a lease holds that is not renewed."""


class ClusterSettings(NamedTuple):
    """How this node shares the devices of the app with others."""

    engine: str
    """The URL of the engine, with its credentials."""
    node: str
    """The name of this node, which no other one has, and which stays over restarts."""
    labels: frozenset[str] = frozenset()
    """What this node has that others may lack, such as ``ble``."""
    ttl: float = TTL
    """Seconds for which a lease holds that is not renewed."""
    shards: int = SHARDS
    """How many shards each set of labels has."""


def standby_of(entries: Mapping[str, Entry]) -> StandbySettings | None:
    """Read the section ``standby``. None if this node does not stand by.

    Raises:
        ConfigurationError: values are wrong, one a line; the message names their origins.
    """
    found, faults = _read("standby", entries, {"enabled": _switch, "ttl": _ttl})
    raise_together(faults)
    return StandbySettings(found.get("ttl", TTL)) if found.get("enabled") else None


def check_one_broker(brokers: int, *, follows: bool) -> None:
    """See that all nodes that stand by have the same arbiter.

    Raises:
        InvalidValue: there are several brokers, or the app may be sent to another one.
    """
    if brokers > 1:
        raise InvalidValue(
            f"standby: the app has {brokers} brokers, and two nodes at two brokers would both be active; name one"
        )
    if follows:
        raise InvalidValue(
            "standby: a broker that sends nodes elsewhere would let two be active; leave follow_server_reference out"
        )


def cluster_of(entries: Mapping[str, Entry]) -> ClusterSettings | None:
    """Read the section ``cluster``. None if this node shares the devices with no other: there is no engine, or it is
    empty text.

    Raises:
        ConfigurationError: values are wrong, one a line; the message names their origins.
    """
    readers: dict[str, _Reader] = {"engine": _engine, "node": _node, "labels": _labels, "ttl": _ttl, "shards": _shards}
    found, faults = _read("cluster", entries, readers)
    engine = found.pop("engine", "")
    if not engine and found and "engine" not in entries:
        faults.append(InvalidValue("cluster.engine: missing; write engine = 'nats://host:4222' in [cluster]"))
    raise_together(faults)
    if not engine:
        return None
    if "node" not in found:
        found["node"] = _host()
    return ClusterSettings(engine, **found)


def _read(
    section: str, entries: Mapping[str, Entry], readers: Mapping[str, _Reader]
) -> tuple[dict[str, Any], list[ConfigurationError]]:
    """The values that are there, by key, and what is wrong with the others."""
    found: dict[str, Any] = {}
    faults: list[ConfigurationError] = []
    for key, read in readers.items():
        if key in entries:
            try:
                found[key] = read(entries[key].value)
            except ConfigurationError as error:
                faults.append(type(error)(f"{section}.{key}: {error} (from {entries[key].origin})"))
    return found, faults


def _switch(value: object) -> bool:
    if isinstance(value, bool):
        return value
    text = value.lower() if isinstance(value, str) else None
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise InvalidValue(f"{value!r} is neither true nor false; write one of them")


def _ttl(value: object) -> float:
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise InvalidType(f"{value!r} is not a duration; write one such as '15s'")
    seconds = positive_seconds(cast("Duration", value), "it")
    if not SHORTEST_TTL <= seconds <= LONGEST_TTL:
        raise InvalidValue(f"{seconds:g} s is too {'short' if seconds < SHORTEST_TTL else 'long'}; write 3s to 10m")
    return seconds


def _host() -> str:
    """The name of this machine, as the name of a node. Raises `InvalidValue` if nothing of it can be one."""
    name = socket.gethostname()
    try:
        return _node(name)
    except ConfigurationError as error:
        raise type(error)(f"cluster.node: the name of this machine cannot be used: {error}") from None


def _engine(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidType("it is not text; write 'nats://host:4222' or 'postgresql://user:password@host/database'")
    scheme, separator, rest = value.partition("://")
    if value and (not separator or not rest or scheme not in ENGINES):
        close = nearest(scheme, ENGINES) if separator else None
        meant = f"; did you mean {close}://?" if close else ""
        raise InvalidValue(
            f"it begins with no known engine{meant}; write nats://host:4222 or postgresql://user:password@host/database"
        )
    return value


def _node(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidType(f"{value!r} is not text; write a name such as 'gateway-1'")
    if len(value) > LONGEST_NODE or not _NODE.fullmatch(value):
        raise InvalidValue(f"{value!r}: write letters, digits, ., _ and -, at most {LONGEST_NODE}, such as 'gateway-1'")
    return value


def _labels(value: object) -> frozenset[str]:
    """A list, or text with commas as a variable has it."""
    given = [each.strip() for each in value.split(",")] if isinstance(value, str) else value
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise InvalidType(f"{value!r} is not a list of labels; write one such as ['ble']")
    found = frozenset(each for each in given if each)
    for label in found:
        if len(label) > LONGEST_LABEL or not label.isprintable():
            raise InvalidValue(f"{label!r}: a label has 1 to {LONGEST_LABEL} printable characters, such as 'ble'")
    return found


def _shards(value: object) -> int:
    number = int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 9 else value
    if isinstance(number, bool) or not isinstance(number, int):
        raise InvalidType(f"{value!r} is not a whole number; write one such as {SHARDS}")
    if not 1 <= number <= MOST_SHARDS:
        raise InvalidValue(f"{number} is out of range; write 1 to {MOST_SHARDS}")
    return number
