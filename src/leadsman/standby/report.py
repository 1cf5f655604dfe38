"""What a node that shares an app says of itself, on the connection on which it observes the others: also while it
stands by, and has no other one."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from leadsman.log_lines import left_out_before, others
from leadsman.mqtt.connection import Received
from leadsman.mqtt.message import Message
from leadsman.mqtt.topics import Topics
from leadsman.nodes.document import LIFE, Brief, Lacking, NodeDocument, State, brief, encoded, named
from leadsman.nodes.others import Others
from leadsman.nodes.requests import Drain, DrainDoor, Drained, told
from leadsman.standby.snapshots import WORD
from leadsman.text import clean, log_fields
from leadsman.timing.clock import Clock, rfc3339

CAPABLE = ("active", "standby", "taking_over")
"""The states of nodes that poll the devices, or would take over."""

logger = logging.getLogger("leadsman")


class About(NamedTuple):
    """What does not change while the process runs."""

    node: str
    ttl: float
    """Seconds for which a lease holds."""
    version: str
    """Of the app."""
    leadsman: str


class Situation(NamedTuple):
    """What the node is at the moment."""

    state: State
    since: float
    """Since when, in seconds of `Clock.uptime`."""
    owner: str | None
    """The node that the lease names."""
    token: int | None
    """Of this node, while it owns the app."""
    takeovers: int


class NodeReport:
    """Publishes the document of one node, keeps those of the others, and takes requests to drain.

    Args:
        about: the node.
        topics: of the app.
        clock: the clocks.
        publish: sends a message, if there is a connection.
        situation: what the node is at the moment.
        drain: makes the node drain, or take part again.
    """

    def __init__(
        self,
        about: About,
        topics: Topics,
        clock: Clock,
        publish: Callable[[Message], None],
        situation: Callable[[], Situation],
        drain: Callable[[Drain], None],
    ) -> None:
        self.devices: Callable[[], Iterable[str]] = tuple
        """The devices of the app, which the owner polls."""
        self.others = Others(clock.uptime)
        """The nodes that are heard of, this one included."""
        self.topic = topics.of_node(about.node)
        """Where the document is."""
        self.topic_filters = (topics.of_node("+"), topics.drain(about.node))
        """What is heard."""
        self._about = about
        self._clock = clock
        self._topics = topics
        self._publish = publish
        self._situation = situation
        self._drain = drain
        self._lines = others()
        self._door = DrainDoor(topics, clock.wall, self._drained)
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None

    def takes(self, topic: str) -> bool:
        """Whether a message is about nodes. A device may be called ``nodes``."""
        return topic.startswith(self._topics.of_node("")) and not topic.endswith(f"/{WORD}")

    def received(self, message: Received) -> None:
        """Take a message."""
        if message.topic == self._topics.drain(self._about.node):
            if (answer := self._door.answer(message)) is not None:
                self._publish(answer)
            return
        node = message.topic.removeprefix(self._topics.of_node(""))
        if node != self._about.node:
            self.others.hear(node, message.payload)
        elif not message.payload and self._handle is not None:
            self.publish()  # the will of a former connection of ours, or somebody has deleted it

    def publish(self) -> None:
        """Publish the document, and do so again in a TTL."""
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self._loop.call_later(self._about.ttl, self.publish)
        expires = self._clock.monotonic() + LIFE * self._about.ttl
        self._publish(Message(self.topic, encoded(self.document()), 0, retain=True, expires=expires))

    def changed(self) -> None:
        """The node is something else now. Before the first connection nothing is said."""
        if self._handle is not None:
            self.publish()

    def goodbye(self) -> None:
        """Remove the document; the node ends."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
            self._publish(Message(self.topic, b"", 0, retain=True))

    def briefs(self) -> list[Brief]:
        """All nodes, this one included, by name."""
        mine = brief(self.document())
        return [each for _, each in sorted((dict(self.others.known()) | {mine["node"]: mine}).items())]

    def document(self) -> NodeDocument:
        """What is published."""
        about, now = self._about, self._situation()
        registered = [*self.devices()]
        devices = registered if now.token is not None else []
        document: NodeDocument = {
            "node": about.node,
            "kind": "standby",
            "state": now.state,
            "since": rfc3339(self._clock.wall() - self._clock.uptime() + now.since),
            "at": rfc3339(self._clock.wall()),
            "ttl_s": about.ttl,
            "version": clean(about.version),
            "leadsman": about.leadsman,
            "owner": None if now.owner is None else clean(now.owner),
            "labels": [],
            "devices": named(devices),
            "device_count": len(devices),
            "registered": len(registered),
            "handovers": {"takeovers": now.takeovers, "gained": 0, "lost": 0, "released": 0},
            "without_node": [],
        }
        if now.token is not None:
            document["token"] = now.token
        return document

    def _drained(self, request: Drain) -> Drained:
        self._drain(request)
        left_out = self._lines.left_out("drain", self._clock.monotonic())
        if left_out is not None:
            prefix, node, more = self._topics.prefix, self._about.node, left_out_before(left_out)
            about = log_fields("drain", node=node, by=request.by)
            logger.info("%s: this node, %s, %s%s", prefix, node, told(request), more, extra=about)
        left = self._left() if request.draining else []
        return {
            "node": self._about.node,
            "draining": request.draining,
            "state": self._situation().state,
            "without_node": left,
        }

    def _left(self) -> list[Lacking]:
        """All devices, if no other node would take over."""
        others: Sequence[Brief] = tuple(self.others.known().values())
        if any(each["state"] in CAPABLE for each in others):
            return []
        return [{"needs": [], "devices": len([*self.devices()])}]
