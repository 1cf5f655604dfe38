"""The report of a node of a pair, and what the node has of the others from their documents. Both go through the
connection on which the node observes them, since a node that stands by has no other one."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from leadsman.core.loop.clock import Clock, rfc3339
from leadsman.core.mqtt.connection import Received
from leadsman.core.mqtt.message import Message
from leadsman.core.text import clean
from leadsman.extensions.nodes.brief import LIFE, Brief, State
from leadsman.extensions.nodes.document import Lacking, NodeState, brief_of, fit, read_document
from leadsman.extensions.nodes.failure_state import WORD
from leadsman.extensions.nodes.report import NodeReport
from leadsman.extensions.nodes.shared_app import SharedApp

MAX_NODES = 256
"""Nodes that are kept."""
MIN_LIFE_SECONDS = 1.0
"""Seconds for which a document without a TTL is kept at least."""


class _Peer(NamedTuple):
    at: float
    life: float
    brief: Brief
    """Not the document, which may name 2000 devices."""

    def lives(self, now: float) -> bool:
        return now < self.at + self.life


class Peers:
    """Keeps what it hears of each node, until its document is gone or too old.

    Args:
        now: seconds of a clock that never goes back.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._heard: dict[str, _Peer] = {}

    def hear(self, node: str, payload: bytes) -> None:
        """Take the message at the topic of a node."""
        self._heard.pop(node, None)
        document = read_document(node, payload)
        if document is None:
            return
        now = self._now()
        if len(self._heard) >= MAX_NODES:
            self._heard = {name: heard for name, heard in self._heard.items() if heard.lives(now)}
        if len(self._heard) < MAX_NODES:
            self._heard[node] = _Peer(now, max(MIN_LIFE_SECONDS, LIFE * document["ttl_s"]), brief_of(document))

    def forget(self) -> None:
        """Nothing is heard any more."""
        self._heard.clear()

    def known(self) -> Mapping[str, Brief]:
        """The nodes by name."""
        now = self._now()
        return {node: heard.brief for node, heard in sorted(self._heard.items()) if heard.lives(now)}


CAPABLE = ("active", "standby", "taking_over")
"""The states of nodes that poll the devices, or would take over."""


class Role(NamedTuple):
    """The role of the node at the moment."""

    state: State
    since: float
    """Since when, in seconds of `Clock.uptime`."""
    owner: str | None
    """The node that the lease names."""
    token: int | None
    """Of this node, while it owns the app."""
    takeovers: int


class StandbyReport(NodeReport):
    """The report of a node of a pair. It hears the other nodes, too.

    Args:
        app: the app.
        node: the name of the node.
        ttl: seconds for which a lease holds.
        clock: the clocks.
        publish: sends a message, if there is a connection.
        role: what the machine of the node is at the moment.
        drain: makes the node drain, or take part again.
    """

    def __init__(
        self,
        app: SharedApp,
        node: str,
        ttl: float,
        clock: Clock,
        publish: Callable[[Message], None],
        role: Callable[[], Role],
        drain: Callable[[bool], None],
    ) -> None:
        super().__init__(app, node, "standby", ttl, clock, publish, qos=0)
        self.heard = Peers(clock.uptime)
        """The other nodes that are heard of."""
        self.topic_filters = (app.topics.of_node("+"), self.drain_topic)
        """The topics that are heard."""
        self._above = app.topics.of_node("")
        self._role = role
        self._drain = drain

    def takes(self, topic: str) -> bool:
        """Whether a message is about nodes. A device may be called ``nodes``."""
        return topic.startswith(self._above) and not topic.endswith(f"/{WORD}")

    def received(self, message: Received) -> None:
        """Take a message."""
        if message.topic == self.drain_topic:
            self.asked(message)
        elif message.topic != self.topic:
            self.heard.hear(message.topic.removeprefix(self._above), message.payload)
        elif not message.payload and self._handle is not None:
            self.publish()  # the will of a former connection of ours, or a client has deleted it

    def states(self) -> Mapping[str, State]:
        """See `NodeReport`."""
        return {**{node: each["state"] for node, each in self.peers().items()}, self._node: self._role().state}

    def peers(self) -> Mapping[str, Brief]:
        """See `NodeReport`."""
        return self.heard.known()

    def state(self) -> NodeState:
        """See `NodeReport`."""
        role, clock = self._role(), self._clock
        registered = self._app.devices()
        devices = [] if role.token is None else registered
        state: NodeState = {
            "state": role.state,
            "since": rfc3339(clock.wall() - clock.uptime() + role.since),
            "owner": None if role.owner is None else clean(role.owner),
            "labels": [],
            "devices": fit(devices),
            "device_count": len(devices),
            "registered": len(registered),
            "handovers": {"takeovers": role.takeovers, "gained": 0, "lost": 0, "released": 0},
            "without_node": [],
        }
        if role.token is not None:
            state["token"] = role.token
        return state

    def drain(self, draining: bool) -> tuple[State, list[Lacking]]:
        """See `NodeReport`. No device has a node if no other one would take over."""
        self._drain(draining)
        left = draining and not any(each["state"] in CAPABLE for each in self.heard.known().values())
        return self._role().state, [{"needs": [], "devices": len(self._app.devices())}] if left else []
