"""Publishes the document of a node that shares an app, and takes requests to drain it."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from leadsman.errors import Busy, PayloadError
from leadsman.loop.clock import Clock, rfc3339
from leadsman.mqtt.answers import EXPIRY
from leadsman.mqtt.connection import Received
from leadsman.mqtt.message import Message
from leadsman.mqtt.topics import Topics, encode
from leadsman.nodes.brief import LIFE, Brief, State
from leadsman.nodes.document import Lacking, NodeDocument, NodeState, brief_of
from leadsman.nodes.requests import DrainDoor, Drained, DrainOrder
from leadsman.text import clean, log_fields
from leadsman.text.log_lines import left_out_before, others

EARLY = 0.001
"""Seconds by which a timer may come before a document is a TTL old."""

logger = logging.getLogger("leadsman")


class NodeIdentity(NamedTuple):
    """What does not change while the process runs."""

    node: str
    kind: Literal["standby", "cluster"]
    """See `NodeDocument.kind`."""
    ttl: float
    """Seconds for which a lease holds."""
    version: str
    """Of the app."""
    leadsman: str
    """The version of leadsman."""


class NodeReport(ABC):
    """Publishes the document of a node at each change and once a TTL, and takes requests to drain it. Subclasses know
    the state of the node.

    Args:
        identity: of the node.
        topics: of the app.
        clock: of the node.
        publish: sends a message, if there is a connection.
        qos: of the document.
        looks: times in a TTL that the report looks whether the node has changed without a call of `look`.
    """

    def __init__(
        self,
        identity: NodeIdentity,
        topics: Topics,
        clock: Clock,
        publish: Callable[[Message], object],
        *,
        qos: int,
        looks: int = 1,
    ) -> None:
        self.topic = topics.of_node(identity.node)
        """Where the document is."""
        self.drain_topic = topics.drain(identity.node)
        """Where requests to drain are taken."""
        self._identity = identity
        self._prefix = topics.prefix
        self._clock = clock
        self._publish = publish
        self._qos = qos
        self._looks = looks
        self._lines = others()
        self._door = DrainDoor(topics, clock.wall, self._drained)
        self._published: NodeState | None = None
        self._published_at = 0.0
        self._handle: asyncio.TimerHandle | None = None

    @abstractmethod
    def state(self) -> NodeState:
        """What the node is at the moment."""

    @abstractmethod
    def states(self) -> Mapping[str, State]:
        """What each node is, this one included, by name. A heartbeat counts them, so no document is made."""

    @abstractmethod
    def peers(self) -> Mapping[str, Brief]:
        """The other nodes, as far as they are known, by name."""

    @abstractmethod
    def drain(self, draining: bool) -> tuple[State, list[Lacking]]:
        """Drain, or take part again. Returns what the node is now, and the devices that have no node as long as it
        drains."""

    def publish(self) -> None:
        """Publish the document, and look for changes from now on."""
        self._publish_now(self.state())

    def look(self) -> None:
        """Publish the document if it is another one than before, or a TTL old. Nothing is published before the first
        call of `publish`."""
        if self._handle is None:
            return
        state, due = self.state(), self._published_at + self._identity.ttl - EARLY
        if state != self._published or self._clock.monotonic() >= due:
            self._publish_now(state)
        else:
            self._look_later()

    def goodbye(self) -> None:
        """Remove the document; the node ends."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
            self._publish(Message(self.topic, b"", self._qos, retain=True, latest=True))

    def asked(self, received: Received) -> None:
        """Take a request to drain, and answer it."""
        if (answer := self._door.answer(received)) is not None:
            self._answer(answer)

    def refuse(self, received: Received, error: Busy | PayloadError) -> None:
        """Answer a request whose turn does not come."""
        self._answer(self._door.refusal(received, error))

    def _answer(self, answer: Message) -> None:
        self._publish(answer._replace(expires=self._clock.monotonic() + EXPIRY))

    def briefs(self) -> list[Brief]:
        """All nodes, this one included, by name."""
        found = {**self.peers(), self._identity.node: brief_of(self.document(self.state()))}
        return [each for _, each in sorted(found.items())]

    def document(self, state: NodeState) -> NodeDocument:
        """What is published of a state."""
        identity = self._identity
        return {
            **state,
            "node": identity.node,
            "kind": identity.kind,
            "at": rfc3339(self._clock.wall()),
            "ttl_s": identity.ttl,
            "version": clean(identity.version),
            "leadsman": identity.leadsman,
        }

    def _publish_now(self, state: NodeState) -> None:
        self._published, self._published_at = state, self._clock.monotonic()
        self._look_later()
        payload, expires = encode(self.document(state)), self._published_at + LIFE * self._identity.ttl
        self._publish(Message(self.topic, payload, self._qos, retain=True, latest=True, expires=expires))

    def _look_later(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle = asyncio.get_running_loop().call_later(self._identity.ttl / self._looks, self.look)

    def _drained(self, request: DrainOrder) -> Drained:
        node = self._identity.node
        state, without_node = self.drain(request.draining)
        left_out = self._lines.left_out("drain", self._clock.monotonic())
        if left_out is not None:
            about, more = log_fields("drain", node=node, by=request.by), left_out_before(left_out)
            logger.info("%s: this node, %s, %s%s", self._prefix, node, request.describe(), more, extra=about)
        return {"node": node, "draining": request.draining, "state": state, "without_node": without_node}
