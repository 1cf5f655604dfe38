"""Reads the section ``cluster`` of the settings: the engine that keeps the leases, and what this node is called and
has."""

import re
import socket
from collections.abc import Mapping
from typing import NamedTuple, cast

from leadsman.errors import ConfigurationError, InvalidType, InvalidValue, raise_together
from leadsman.settings.lease_ttl import ttl_of
from leadsman.settings.sources import Entry
from leadsman.text import nearest

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


def cluster_of(entries: Mapping[str, Entry]) -> ClusterSettings | None:
    """Read the section. None if this node shares the devices with no other: there is no engine, or it is empty text.

    Raises:
        ConfigurationError: values are wrong, one a line; the message names their origins.
    """
    faults: list[ConfigurationError] = []
    found: dict[str, object] = {}
    for key, read in _READ.items():
        entry = entries.get(key)
        if entry is None:
            continue
        try:
            found[key] = read(entry.value)
        except ConfigurationError as error:
            faults.append(type(error)(f"cluster.{key}: {error} (from {entry.origin})"))
    engine = found.pop("engine", "")
    if not engine and found and "engine" not in entries:
        faults.append(InvalidValue("cluster.engine: missing; write engine = 'nats://host:4222' in [cluster]"))
    raise_together(faults)
    if not engine:
        return None
    if "node" not in found:
        found["node"] = _host()
    return ClusterSettings(cast("str", engine), **cast("dict[str, str]", found))  # type: ignore[arg-type]  # each was read as its own type


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


_READ = {"engine": _engine, "node": _node, "labels": _labels, "ttl": ttl_of, "shards": _shards}
