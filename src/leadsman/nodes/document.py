"""The document of a node, retained at ``{prefix}/nodes/{node}``: what it is, and what it owns.

Each node of an app that several share writes its own, at each change and once a TTL. With MQTT 5 a document ends three
TTL after its node has written it last. Anybody who may publish there can write anything, so a document of another node
is read field by field. Times are RFC 3339 in UTC, by the clock of the node.
"""

import json
from collections.abc import Iterable
from typing import (
    Literal,
    NotRequired,  # pydantic wants this one before Python 3.12
    get_args,
)

from typing_extensions import TypedDict

from leadsman.mqtt.answers import Json
from leadsman.mqtt.topics import encode

State = Literal["active", "standby", "taking_over", "fenced", "draining"]
"""``active``: it polls what it owns. ``standby``: it owns nothing, and would take over. ``taking_over``: it is about to
be active. ``fenced``: it may not act, and stops what it did. ``draining``: it gives everything away, or has done so,
and takes nothing."""
STATES: tuple[State, ...] = get_args(State)
LIFE = 3
"""TTL after which the broker forgets a document that is not written again (MQTT 5)."""
MOST_NAMED = 2000
"""Devices that a document names at most; it has the number of all."""
MOST_SHARDS = 500
"""Shards that a document names at most, in 35 kB; it has the number of all."""
MOST_BYTES = 48 * 1024
"""Of the names of the devices in a document; the largest packet of many brokers has 64 kB or more."""
LARGEST = 256 * 1024
"""Bytes of a document that is read."""
LONGEST = 200
"""Characters of a text that is read."""
LARGEST_COUNT = 2**63 - 1
"""What is read of a number: an engine has tokens up to there, and Python writes no number of more than 4300 digits."""


class Handovers(TypedDict):
    """What happened to what the node owns, since its process began."""

    takeovers: int
    """How often it took over the app. Of a node of a cluster, 0."""
    gained: int
    """Shards that it got. Of a node of a standby pair, 0, as are the next two."""
    lost: int
    """Shards that the engine took: a lease was over, or somebody deleted it."""
    released: int
    """Shards that it gave back."""


class OwnedShard(TypedDict):
    """A shard that a node owns."""

    token: int
    """The fencing token of its lease."""
    since: str
    """When the node began to poll its devices."""


class Engine(TypedDict):
    """What the node can say of the engine that has the leases."""

    reachable: bool
    unreachable_since: str | None


class Lacking(TypedDict):
    """Devices that no node can poll."""

    needs: list[str]
    """The labels that a node must have."""
    devices: int


class NodeDocument(TypedDict):
    """The message at ``{prefix}/nodes/{node}``. It is gone when the node has stopped, or its connection broke."""

    node: str
    kind: Literal["standby", "cluster"]
    """Whether one node at a time owns the whole app, or each some of its devices."""
    state: State
    since: str
    """Since when it is in this state."""
    at: str
    """When it wrote this."""
    ttl_s: float
    """Seconds for which a lease holds."""
    version: str
    """Of the app."""
    leadsman: str
    owner: NotRequired[str | None]
    """The node that the lease names; null if nobody owns the app. Left out in a cluster."""
    token: NotRequired[int]
    """The fencing token of the owner. Left out in a cluster, and while the node does not own the app."""
    labels: list[str]
    """What it has that others may lack, such as ``ble``."""
    shards: NotRequired[dict[str, OwnedShard]]
    """The shards that it owns, the first 500 of them. Only in a cluster, as are the next two."""
    shard_count: NotRequired[int]
    engine: NotRequired[Engine]
    devices: list[str]
    """Those that it owns, sorted: the first 2000, or as many as fit in 48 kB."""
    device_count: int
    registered: int
    """The devices that the app registers, whoever owns them."""
    unowned: NotRequired[list[str]]
    """The devices of shards that no node had when the node last heard of the engine: as many as there is room for, as
    of `devices`. Only in a cluster, as is the next one."""
    unowned_count: NotRequired[int]
    members: NotRequired[list[str]]
    """The nodes that the engine had as members then. Only in a cluster."""
    handovers: Handovers
    without_node: list[Lacking]
    """The devices that no node of the cluster can poll, since none has these labels, or all that have them drain."""


class Brief(TypedDict):
    """A node, as the other nodes know it."""

    node: str
    state: State
    since: NotRequired[str]
    labels: list[str]
    devices: NotRequired[int]
    """How many it owns. Left out where that is not known."""
    shards: NotRequired[int]
    """How many it owns. Only in a cluster."""
    version: str


def named(names: Iterable[str]) -> list[str]:
    """The names that a document has room for, sorted."""
    chosen: list[str] = []
    left = MOST_BYTES
    for name in sorted(names)[:MOST_NAMED]:
        left -= len(name.encode()) + 3
        if left < 0:
            break
        chosen.append(name)
    return chosen


def encoded(document: NodeDocument) -> bytes:
    """The document as it is published."""
    return encode(document)


def brief(document: NodeDocument) -> Brief:
    """What others keep of a node."""
    found: Brief = {
        "node": document["node"],
        "state": document["state"],
        "since": document["since"],
        "labels": document["labels"],
        "devices": document["device_count"],
        "version": document["version"],
    }
    if "shard_count" in document:
        found["shards"] = document["shard_count"]
    return found


def decoded(node: str, payload: bytes) -> NodeDocument | None:
    """Read the document of a node. None if it is none. A field that is missing or wrong gets a value that says nothing.

    Args:
        node: the last level of the topic. A document that names another one is none.
        payload: the message.
    """
    try:
        found = json.loads(payload) if len(payload) <= LARGEST else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or found.get("node") != node or found.get("state") not in STATES:
        return None
    if (kind := found.get("kind")) not in ("standby", "cluster"):
        return None
    devices, labels = _texts(found.get("devices")), _texts(found.get("labels"))
    handovers = _object(found.get("handovers"))
    document: NodeDocument = {
        "node": node,
        "kind": kind,
        "state": found["state"],
        "since": _text(found.get("since")),
        "at": _text(found.get("at")),
        "ttl_s": _seconds(found.get("ttl_s")),
        "version": _text(found.get("version")),
        "leadsman": _text(found.get("leadsman")),
        "labels": labels,
        "devices": devices,
        "device_count": max(len(devices), _count(found.get("device_count"))),
        "registered": max(len(devices), _count(found.get("registered"))),
        "handovers": {
            "takeovers": _count(handovers.get("takeovers")),
            "gained": _count(handovers.get("gained")),
            "lost": _count(handovers.get("lost")),
            "released": _count(handovers.get("released")),
        },
        "without_node": [
            {"needs": _texts(each.get("needs")), "devices": _count(each.get("devices"))}
            for each in map(_object, _list(found.get("without_node")))
        ],
    }
    if kind == "standby":
        document["owner"] = _text(found.get("owner")) or None
        if "token" in found:
            document["token"] = _count(found["token"])
        return document
    shards = [(_text(key), _object(each)) for key, each in [*_object(found.get("shards")).items()][:MOST_SHARDS]]
    document["shards"] = {
        key: {"token": _count(each.get("token")), "since": _text(each.get("since"))} for key, each in shards
    }
    document["shard_count"] = max(len(shards), _count(found.get("shard_count")))
    document["unowned"] = unowned = _texts(found.get("unowned"))
    document["unowned_count"] = max(len(unowned), _count(found.get("unowned_count")))
    document["members"] = _texts(found.get("members"))
    engine = _object(found.get("engine"))
    document["engine"] = {
        "reachable": engine.get("reachable") is not False,
        "unreachable_since": _text(engine.get("unreachable_since")) or None,
    }
    return document


def told(counts: Json) -> str:
    """How many nodes there are of each kind, as a heartbeat says it: ``1 active, 2 standby``. Empty for what is no such
    count."""
    found = _object(counts)
    numbers = ((state, _count(found.get(state))) for state in STATES)
    return ", ".join(f"{number} {state.replace('_', ' ')}" for state, number in numbers if number)


def _object(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def _list(value: Json) -> list[Json]:
    return value[:MOST_NAMED] if isinstance(value, list) else []


def _text(value: Json) -> str:
    """Text that UTF-8 can carry: JSON may have half a surrogate pair, which nobody could be told again."""
    return value[:LONGEST].encode(errors="replace").decode() if isinstance(value, str) else ""


def _texts(value: Json) -> list[str]:
    return [_text(each) for each in _list(value) if isinstance(each, str)]


def _count(value: Json) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST_COUNT else 0


def _seconds(value: Json) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e6 else 0.0
