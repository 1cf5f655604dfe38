"""What ``leadsman cluster`` makes of what the broker retains about apps that several nodes share: messages in, one view
of each app out. Pure."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from leadsman.core.introspection.situation import when
from leadsman.core.mqtt.answers import Json, object_in
from leadsman.core.mqtt.connection import Received
from leadsman.extensions.nodes.brief import LIFE

if TYPE_CHECKING:
    from leadsman.extensions.nodes.document import Lacking, NodeDocument

OFFLINE, SILENT, LOST = "offline", "silent", "lost"
"""States besides those that a node publishes: its status is offline; its document is three TTL old; the
other nodes find it at the engine no more, as a moment after it died, or another one of a pair owns the app by now."""
_OWNS = ("active", "taking_over", "draining")
"""States in which a node of a pair may still own the app."""


class Shown(NamedTuple):
    """A node, as it is shown."""

    node: str
    state: str
    document: "NodeDocument | None"
    """None of a node of which only the status is there."""

    @property
    def is_here(self) -> bool:
        """Whether it runs, as far as can be seen."""
        return self.document is not None and self.state not in (OFFLINE, SILENT, LOST)


class Shared(NamedTuple):
    """An app that several nodes share."""

    prefix: str
    nodes: tuple[Shown, ...]
    """By name."""
    registered: int
    """How many devices it has."""
    unowned: tuple[str, ...]
    """The devices that no node owns, sorted, as far as their names are known."""
    unowned_count: int
    lacking: "tuple[Lacking, ...]"
    """The labels that no node has, and how many devices need them."""


def filters_of(prefix: str) -> list[str]:
    """The topic filters of what is retained about the nodes of an app. ``+`` stands for all prefixes of one level."""
    nodes = f"{prefix}/nodes/+"
    below = [f"{nodes}/{word}" for word in ("status", "registry", "registry/+")]
    return [nodes, *below, f"{prefix}/registry", f"{prefix}/registry/+", f"{prefix}/status"]


def apps(seen: Iterable[Received], now: float) -> list[Shared]:
    """The apps that have nodes, by prefix.

    Args:
        seen: what the broker retains at `filters_of`.
        now: epoch seconds.
    """
    found: dict[str, _HeardOfApp] = {}
    for message in seen:
        levels = message.topic.split("/")
        match levels[-3:]:
            case [*_, "nodes", node]:
                _of(found, levels[:-2]).documents[node] = message.payload
            case ["nodes", node, "status"]:
                _of(found, levels[:-3]).statuses[node] = object_in(message.payload)
            case _ if "registry" in levels[-2:]:
                _of(found, _above(levels)).pages.append(object_in(message.payload))
    heard = ((prefix, each) for prefix, each in sorted(found.items()) if each.documents or each.statuses)
    return [shown for shown in (_shared(prefix, each, now) for prefix, each in heard) if shown.nodes]


def devices_of(seen: Iterable[Received], now: float) -> list[tuple[str, list[str]]]:
    """The devices of each node, with the prefix of its app. The arguments are those of `apps`."""
    nodes = [(each.prefix, node.document) for each in apps(seen, now) for node in each.nodes]
    return [(prefix, document["devices"]) for prefix, document in nodes if document is not None]


def owners_of(seen: Iterable[Received], now: float, prefix: str) -> dict[str, list[str]]:
    """The devices of each node of one cluster that is there, by its name. Empty if the app is no cluster."""
    nodes = [node for each in apps(seen, now) if each.prefix == prefix for node in each.nodes]
    here = [each.document for each in nodes if each.is_here and each.document is not None]
    return {each["node"]: each["devices"] for each in here if each["kind"] == "cluster"}


class _HeardOfApp:
    """What is known of one app."""

    def __init__(self) -> None:
        self.documents: dict[str, bytes] = {}
        self.statuses: dict[str, dict[str, Json] | None] = {}
        self.pages: list[dict[str, Json] | None] = []


def _of(found: dict[str, _HeardOfApp], levels: list[str]) -> _HeardOfApp:
    return found.setdefault("/".join(levels), _HeardOfApp())


def _above(levels: list[str]) -> list[str]:
    """The prefix of a registry: of the app, or of a node of it."""
    above = levels[: len(levels) - 1 - levels[::-1].index("registry")]
    return above[:-2] if above[-2:-1] == ["nodes"] else above


def _shared(prefix: str, heard: _HeardOfApp, now: float) -> Shared:
    nodes = tuple(
        shown
        for node in sorted(heard.documents.keys() | heard.statuses.keys())
        if (shown := _shown(node, heard.documents.get(node, b""), heard.statuses.get(node), now)) is not None
    )
    nodes = _without_former_owners(_without_lost(nodes))
    known = frozenset(name for page in heard.pages for name in _devices(page))
    here = [each.document for each in nodes if each.is_here and each.document is not None]
    registered = max([len(known), *(each["registered"] for each in here)])
    names, count = _unowned(here, known, registered)
    return Shared(prefix, nodes, registered, names, count, _lacking(here))


def _shown(node: str, payload: bytes, status: Mapping[str, Json] | None, now: float) -> Shown | None:
    """None if there is neither a document nor a status."""
    document = None
    if payload:
        from leadsman.extensions.nodes.document import (
            read_document,
        )  # only where nodes share an app: it imports pydantic

        document = read_document(node, payload)
    gone = status is not None and status.get("state") == "offline"
    if document is None:
        return None if status is None else Shown(node, OFFLINE if gone else SILENT, None)
    return Shown(node, OFFLINE if gone else SILENT if _is_old(document, now) else document["state"], document)


def _without_lost(nodes: tuple[Shown, ...]) -> tuple[Shown, ...]:
    """The nodes of a cluster, with those that no other node finds at the engine as lost. A node that has not heard
    of the engine does not count."""
    seen: dict[str, list[str]] = {}
    for each in nodes:
        document = each.document
        knows = each.is_here and each.state != "taking_over"
        if document is not None and knows and document.get("engine", {}).get("reachable"):
            seen[each.node] = document.get("members", [])

    def is_lost(each: Shown) -> bool:
        others = [members for node, members in seen.items() if node != each.node]
        settled = each.is_here and each.state != "taking_over"
        return settled and bool(others) and not any(each.node in members for members in others)

    return tuple(each._replace(state=LOST) if is_lost(each) else each for each in nodes)


def _without_former_owners(nodes: tuple[Shown, ...]) -> tuple[Shown, ...]:
    """The nodes of a pair, with an owner as lost whose token is smaller than that of another one: it froze, and another
    node has taken over since."""
    documents = [each.document for each in nodes if each.is_here and each.document is not None]
    newest = max((each.get("token", 0) for each in documents if each["kind"] == "standby"), default=0)

    def is_former(each: Shown) -> bool:
        document = each.document
        if document is None or document["kind"] != "standby" or each.state != "active":
            return False
        return document.get("token", newest) < newest

    return tuple(each._replace(state=LOST) if is_former(each) else each for each in nodes)


def _is_old(document: "NodeDocument", now: float) -> bool:
    """Whether its node has not written it again for so long that a broker of MQTT 5 would have forgotten it. The clocks
    of both machines must agree for that; a document from the future is not old."""
    at: datetime | None = when(document["at"])
    return at is not None and now - at.timestamp() > LIFE * max(1.0, document["ttl_s"])


def _devices(page: Mapping[str, Json] | None) -> list[str]:
    """The devices of a page of a registry that are enabled."""
    devices = (page or {}).get("devices")
    if not isinstance(devices, dict):
        return []
    return [name for name, entry in devices.items() if not (isinstance(entry, dict) and entry.get("enabled") is False)]


def _unowned(here: "list[NodeDocument]", known: frozenset[str], registered: int) -> tuple[tuple[str, ...], int]:
    """The devices that no node owns, and how many they are.

    A document that is a moment older lists a shard as free which another node has taken since; so what some node
    owns is not free. Where a document does not name all of its devices, only the number is known.

    Args:
        here: the documents of the nodes that run.
        known: the devices in the registries.
        registered: how many devices the app has.
    """
    if all(each["kind"] == "standby" for each in here):
        owned = any(each["state"] in _OWNS and ("token" in each or each["state"] == "active") for each in here)
        return ((), 0) if owned else (tuple(sorted(known)), registered)  # the owner polls everything
    owned_names = {name for each in here for name in each["devices"]}
    free = {name for each in here for name in each.get("unowned", ())} - owned_names
    if all(len(each["devices"]) == each["device_count"] for each in here):
        counts = ((len(each.get("unowned", ())), each.get("unowned_count", 0)) for each in here)
        number = max([len(free), *(count for names, count in counts if names < count)])  # no room for all names
        return tuple(sorted(free)), number
    return (), max(0, registered - sum(each["device_count"] for each in here))


def _lacking(here: "list[NodeDocument]") -> "tuple[Lacking, ...]":
    """What no node can poll, as the nodes list it, each set of labels once."""
    found: dict[tuple[str, ...], int] = {}
    for document in here:
        for each in document["without_node"]:
            key = tuple(each["needs"])
            found[key] = max(found.get(key, 0), each["devices"])
    return tuple({"needs": list(needs), "devices": devices} for needs, devices in sorted(found.items()))
