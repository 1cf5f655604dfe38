"""The document of a node, retained at ``{prefix}/nodes/{node}``: what it is, and what it owns.

Each node of an app that several share writes its own, at each change and once a TTL. With MQTT 5 a document ends three
TTL after its node has written it last. Anybody who may publish there can write anything, so beside the type of each
field stands how it is read: one that is missing or wrong gets a value without meaning, and one that is too long is cut.
Times are RFC 3339 in UTC, by the clock of the node.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import (
    Annotated,
    Literal,
    NotRequired,  # pydantic wants this one before Python 3.12
    cast,
    get_args,
    get_type_hints,
)

from typing_extensions import TypedDict

from leadsman.core.document import Written
from leadsman.core.mqtt.answers import Json
from leadsman.core.registration import annotation
from leadsman.extensions.nodes.brief import STATES, Brief, State

MAX_NAMED_DEVICES = 2000
"""Devices that a document names at most; it has the number of all."""
MAX_NAMED_SHARDS = 500
"""Shards that a document names at most, in 35 kB; it has the number of all."""
MAX_NAMES_BYTES = 48 * 1024
"""Of the names of the devices in a document; the largest packet of many brokers has 64 kB or more."""
MAX_DOCUMENT_BYTES = 256 * 1024
"""Bytes of a document that is read."""
MAX_TEXT_CHARS = 200
"""Characters of a text that is read."""
MAX_COUNT = 2**63 - 1
"""The largest number that is read: an engine has tokens up to there, and Python writes no number of more than 4300
digits."""


def _text(value: Json) -> str:
    """Text that UTF-8 can carry: JSON may have half a surrogate pair, which nobody could send on."""
    return value[:MAX_TEXT_CHARS].encode(errors="replace").decode() if isinstance(value, str) else ""


def _list(value: Json) -> list[Json]:
    return value[:MAX_NAMED_DEVICES] if isinstance(value, list) else []


def _object(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


class Reads:
    """How a field is read.

    Args:
        read: makes its value of what somebody has written; None of what is missing. It raises `ValueError` where that
            makes the document invalid.
    """

    def __init__(self, read: Callable[[Json], object]) -> None:
        self.read = read


def _one_of(words: tuple[str, ...]) -> Reads:
    """One of these words, and nothing else."""

    def read(value: Json) -> str:
        if isinstance(value, str) and value in words:
            return value
        raise ValueError(value)

    return Reads(read)


def _readers(kind: type) -> Mapping[str, Callable[[Json], object]]:
    """What reads each field of a document."""
    beside = {name: annotation.read(hint).beside for name, hint in get_type_hints(kind, include_extras=True).items()}
    return {name: next(each.read for each in found if isinstance(each, Reads)) for name, found in beside.items()}


def _part(kind: type) -> Callable[[Json], dict[str, object]]:
    """Reads a document within a document. What is no object has none of the fields."""
    readers = _readers(kind)
    return lambda value: {name: read(_object(value).get(name)) for name, read in readers.items()}


Kind = Literal["standby", "cluster"]
Text = Annotated[str, Reads(_text)]
OptionalText = Annotated[str | None, Reads(lambda value: _text(value) or None)]
Texts = Annotated[list[str], Reads(lambda value: [_text(each) for each in _list(value) if isinstance(each, str)])]
Count = Annotated[int, Reads(lambda value: value if type(value) is int and 0 <= value <= MAX_COUNT else 0)]
Seconds = Annotated[
    float,
    Reads(lambda value: float(value) if type(value) in (int, float) and 0 < value < 1e6 else 0.0),
    Written(unit="s"),
]
Yes = Annotated[bool, Reads(lambda value: value is not False)]
"""True unless it is denied."""


class Handovers(TypedDict):
    """The handovers of what the node owns, since its process began."""

    takeovers: Count
    """How often it took over the app. Of a node of a cluster, 0."""
    gained: Count
    """Shards that it got. Of a node of a standby pair, 0, as are the next two."""
    lost: Count
    """Shards that it lost: the engine did not confirm a lease in time, it was over, or somebody deleted it."""
    released: Count
    """Shards that it gave back."""


class OwnedShard(TypedDict):
    """A shard that a node owns."""

    token: Count
    """The fencing token of its lease."""
    since: Text
    """When the node began to poll its devices."""


class Engine(TypedDict):
    """The engine that has the leases, as the node sees it."""

    reachable: Yes
    """Whether it answers."""
    unreachable_since: OptionalText
    """Since when it does not; null while it does."""


class Lacking(TypedDict):
    """Devices that no node can poll."""

    needs: Texts
    """The labels that a node must have."""
    devices: Count
    """How many they are."""


_lacking, _shard = _part(Lacking), _part(OwnedShard)


def _shards(value: Json) -> dict[str, dict[str, object]]:
    return {_text(name): _shard(each) for name, each in islice(_object(value).items(), MAX_NAMED_SHARDS)}


class NodeState(TypedDict):
    """The state of a node, and what it owns: the part of its document that changes by itself."""

    state: Annotated[State, _one_of(STATES)]
    """What it does."""
    since: Text
    """Since when it is in this state."""
    owner: NotRequired[OptionalText]
    """The node that the lease names; null if nobody owns the app. Left out in a cluster."""
    token: NotRequired[Count]
    """The fencing token of the owner. Left out in a cluster, and while the node does not own the app."""
    labels: Texts
    """What it has that others may lack, such as ``ble``."""
    shards: NotRequired[Annotated[dict[str, OwnedShard], Reads(_shards)]]
    """The shards that it owns, the first 500 of them. Only in a cluster, as are the next two."""
    shard_count: NotRequired[Count]
    """How many shards it owns. Only in a cluster."""
    engine: NotRequired[Annotated[Engine, Reads(_part(Engine))]]
    """The engine that has the leases. Only in a cluster."""
    devices: Texts
    """Those that it owns, sorted: the first 2000, or as many as fit in 48 kB."""
    device_count: Count
    """How many devices it owns."""
    registered: Count
    """The devices that the app registers, of any owner."""
    unowned: NotRequired[Texts]
    """The devices of shards that no node had when the node last heard of the engine: as many as there is room for, as
    of `devices`. Only in a cluster, as is the next one."""
    unowned_count: NotRequired[Count]
    """How many they are. Only in a cluster."""
    members: NotRequired[Texts]
    """The nodes that the engine had as members then. Only in a cluster."""
    handovers: Annotated[Handovers, Reads(_part(Handovers))]
    """What it got and gave since its process began."""
    without_node: Annotated[list[Lacking], Reads(lambda value: [_lacking(each) for each in _list(value)])]
    """The devices that no node of the cluster can poll, since none has these labels, or all that have them drain."""


class NodeDocument(NodeState):
    """The message at ``{prefix}/nodes/{node}``. It is gone when the node has stopped, or its connection broke."""

    node: Annotated[str, Reads(str)]
    """Its name."""
    kind: Annotated[Kind, _one_of(get_args(Kind))]
    """Whether one node at a time owns the whole app, or each some of its devices."""
    at: Text
    """When it wrote this."""
    ttl_s: Seconds
    """Seconds for which a lease holds."""
    version: Text
    """Of the app."""
    leadsman: Text
    """The version of leadsman."""


_READERS = _readers(NodeDocument)
_OF_A_PAIR = frozenset({"owner", "token"})
_OF_A_CLUSTER = frozenset({"shards", "shard_count", "engine", "unowned", "unowned_count", "members"})


def fit(names: Iterable[str]) -> list[str]:
    """The names that a document has room for, sorted."""
    chosen: list[str] = []
    left = MAX_NAMES_BYTES
    for name in sorted(names)[:MAX_NAMED_DEVICES]:
        left -= len(name.encode()) + 3
        if left < 0:
            break
        chosen.append(name)
    return chosen


def brief_of(document: NodeDocument) -> Brief:
    """The brief that others keep of a node."""
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


def read_document(node: str, payload: bytes) -> NodeDocument | None:
    """Read the document of a node. None if it is invalid: a field that is missing or wrong makes it invalid only if it
    is the node, its kind or its state.

    Args:
        node: the last level of the topic. A document that names another node is invalid.
        payload: the message.
    """
    try:
        found = json.loads(payload) if len(payload) <= MAX_DOCUMENT_BYTES else None
        if not isinstance(found, dict) or found.get("node") != node:
            return None
        absent = _OF_A_PAIR if found.get("kind") == "cluster" else _OF_A_CLUSTER | ({"token"} - found.keys())
        read = {name: read(found.get(name)) for name, read in _READERS.items() if name not in absent}
    except (ValueError, RecursionError):
        return None
    document = cast(NodeDocument, read)  # tests compare it with the type
    devices = len(document["devices"])
    document["device_count"] = max(devices, document["device_count"])
    document["registered"] = max(devices, document["registered"])
    if document["kind"] == "cluster":
        document["shard_count"] = max(len(document["shards"]), document["shard_count"])
        document["unowned_count"] = max(len(document["unowned"]), document["unowned_count"])
    return document
