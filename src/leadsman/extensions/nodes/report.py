"""Publishes the document of a node that shares an app, and takes requests to drain it.

A request at ``{prefix}/nodes/{node}/drain`` asks the node to give away what it owns and to take nothing, or to take
part again. The answer comes at the response topic of the request, or at the topic with ``/response`` appended.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import (
    Literal,
    NotRequired,  # pydantic wants this one before Python 3.12
)

from typing_extensions import TypedDict

from leadsman.core.loop.clock import Clock, rfc3339
from leadsman.core.mqtt.answers import EXPIRY, Json, RetainedRequests, answer_request, refusal
from leadsman.core.mqtt.connection import Received
from leadsman.core.mqtt.message import Message
from leadsman.core.mqtt.topics import encode
from leadsman.core.text import clean, log_fields
from leadsman.core.text.log_lines import left_out_before, others
from leadsman.errors import Busy, PayloadError
from leadsman.extensions.nodes.brief import LIFE, Brief, State
from leadsman.extensions.nodes.document import Lacking, NodeDocument, NodeState, brief_of
from leadsman.extensions.nodes.shared_app import SharedApp

TIMER_TOLERANCE = 0.001
"""Seconds by which a timer may come before a document is a TTL old."""
MAX_SENDER_CHARS = 100
"""Characters of who asks."""

logger = logging.getLogger("leadsman")


class DrainRequest(TypedDict):
    """A request at ``{prefix}/nodes/{node}/drain``."""

    drain: bool
    """True: give everything away and take nothing, until false is sent or the process starts again."""
    by: NotRequired[str]
    """Who asks, for the log of the node. May be left out."""
    transaction: NotRequired[str]
    """Comes again in the answer. May be left out."""


class Drained(TypedDict):
    """The ``data`` of the answer."""

    node: str
    """Its name."""
    draining: bool
    """Whether it drains now."""
    state: State
    """What it does now."""
    without_node: list[Lacking]
    """The devices that no node polls as long as this one drains, by what they need of a node."""


class NodeReport(ABC):
    """Publishes the document of a node at each change and once a TTL, and takes requests to drain it. Subclasses have
    the state of the node.

    Args:
        app: the app.
        node: the name of the node.
        kind: see `NodeDocument.kind`.
        ttl: seconds for which a lease holds.
        clock: of the node.
        publish: sends a message, if there is a connection.
        qos: of the document.
        looks: times in a TTL that the report looks whether the node has changed without a call of publish_if_new.
    """

    def __init__(
        self,
        app: SharedApp,
        node: str,
        kind: Literal["standby", "cluster"],
        ttl: float,
        clock: Clock,
        publish: Callable[[Message], object],
        *,
        qos: int,
        looks: int = 1,
    ) -> None:
        self.topic = app.topics.of_node(node)
        """Where the document is."""
        self.drain_topic = app.topics.drain(node)
        """Where requests to drain are taken."""
        self._app = app
        self._node = node
        self._kind = kind
        self._ttl = ttl
        self._clock = clock
        self._publish = publish
        self._qos = qos
        self._looks = looks
        self._lines = others()
        self._retained = RetainedRequests()
        self._published: NodeState | None = None
        self._published_at = 0.0
        self._handle: asyncio.TimerHandle | None = None

    @abstractmethod
    def state(self) -> NodeState:
        """The state of the node at the moment."""

    @abstractmethod
    def states(self) -> Mapping[str, State]:
        """The state of each node, this one included, by name. A heartbeat counts them, so no document is made."""

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

    def publish_if_new(self) -> None:
        """Publish the document if it is another one than before, or a TTL old. Nothing is published before the first
        call of `publish`."""
        if self._handle is None:
            return
        state, due = self.state(), self._published_at + self._ttl - TIMER_TOLERANCE
        if state != self._published or self._clock.monotonic() >= due:
            self._publish_now(state)
        else:
            self._check_later()

    def goodbye(self) -> None:
        """Remove the document; the node ends."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
            self._publish(Message(self.topic, b"", self._qos, retain=True, latest=True))

    def asked(self, received: Received) -> None:
        """Take a request to drain, and answer it. One that was retained has no answer: it would come again with each
        connection."""
        if received.retain:
            self._retained.warn("drain")
        else:
            self._answer(answer_request(received, self._app.topics, self._clock.wall(), self._drained, self._lines))

    def refuse(self, received: Received, error: Busy | PayloadError) -> None:
        """Answer a request whose turn does not come."""
        self._answer(refusal(received, self._app.topics, self._clock.wall(), error, self._lines))

    def _answer(self, answer: Message) -> None:
        self._publish(answer._replace(expires=self._clock.monotonic() + EXPIRY))

    def briefs(self) -> list[Brief]:
        """All nodes, this one included, by name."""
        found = {**self.peers(), self._node: brief_of(self.document(self.state()))}
        return [each for _, each in sorted(found.items())]

    def document(self, state: NodeState) -> NodeDocument:
        """The document that publishes a state."""
        return {
            **state,
            "node": self._node,
            "kind": self._kind,
            "at": rfc3339(self._clock.wall()),
            "ttl_s": self._ttl,
            "version": clean(self._app.identity.version),
            "leadsman": self._app.identity.leadsman,
        }

    def _publish_now(self, state: NodeState) -> None:
        self._published, self._published_at = state, self._clock.monotonic()
        self._check_later()
        payload, expires = encode(self.document(state)), self._published_at + LIFE * self._ttl
        self._publish(Message(self.topic, payload, self._qos, retain=True, latest=True, expires=expires))

    def _check_later(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle = asyncio.get_running_loop().call_later(self._ttl / self._looks, self.publish_if_new)

    def _drained(self, request: Json) -> Drained:
        """Do what a request asks for.

        Raises:
            PayloadError: ``drain`` is missing, or is neither true nor false.
        """
        draining, by = (request.get("drain"), request.get("by")) if isinstance(request, dict) else (None, None)
        if not isinstance(draining, bool):
            raise PayloadError('send {"drain": true} to hand everything over, or {"drain": false} to take part again')
        by = clean(by)[:MAX_SENDER_CHARS] if isinstance(by, str) and by else "somebody"
        state, without_node = self.drain(draining)
        left_out = self._lines.left_out("drain", self._clock.monotonic())
        if left_out is not None:
            drains = "hands over its devices, and accepts none until undrain or a restart"
            now = drains if draining else "takes part again"
            about, more = log_fields("drain", node=self._node, by=by), left_out_before(left_out)
            text = "%s: this node, %s, %s, asked by %s%s"
            logger.info(text, self._app.topics.prefix, self._node, now, by, more, extra=about)
        return {"node": self._node, "draining": draining, "state": state, "without_node": without_node}
