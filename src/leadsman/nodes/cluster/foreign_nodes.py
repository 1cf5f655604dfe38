"""Detects nodes of another cluster below our prefix: two clusters with two engines would read every device twice.
Imported only in a cluster.

A node that starts is known to the engine before it says that it is online. So it is a foreign one if it is online at
two times, two TTLs apart, at which the engine does not have it. Nothing is concluded while the engine does not answer.
"""

from collections.abc import Callable, Collection

from leadsman.event_bus import EventBus
from leadsman.events import PrefixShared
from leadsman.mqtt.connection import Received
from leadsman.mqtt.link import Link
from leadsman.mqtt.topics import NODES, Topics
from leadsman.nodes.brief import is_online
from leadsman.text import clean

MOST = 256
"""Foreign nodes that are remembered."""
APART = 2.0
"""TTLs between two messages that prove that a node is foreign."""


class ForeignNodes:
    """Hears the status of all nodes.

    Args:
        topics: of the app.
        members: the names of the nodes that the engine has; None while it does not answer.
        ttl: seconds that a lease lasts.
        link: its `conflict` is set while there is a foreign node.
        events: `PrefixShared` is emitted when one is detected, and when it is gone.
        now: seconds of a clock that never goes back.
    """

    def __init__(
        self,
        topics: Topics,
        members: Callable[[], Collection[str] | None],
        ttl: float,
        link: Link,
        events: EventBus,
        now: Callable[[], float],
    ) -> None:
        self.topic_filter = f"{topics.prefix}/{NODES}/+/status"
        """Where they say it."""
        self._prefix = topics.prefix
        self._members = members
        self._ttl = ttl
        self._link = link
        self._events = events
        self._now = now
        self._seen: dict[str, float] = {}
        self._reported: str | None = None

    def received(self, message: Received) -> None:
        """Take the status of a node."""
        node, members = message.topic.split("/")[-2], self._members()
        if message.retain or members is None:
            return
        if node in members or not is_online(message.payload):
            self._seen.pop(node, None)
            if node == self._reported:
                self._reported = None
                self._report(None)
        elif len(self._seen) < MOST or node in self._seen:
            since = self._seen.setdefault(node, self._now())
            if self._reported is None and self._now() - since >= APART * self._ttl:
                self._reported = node
                self._report(
                    f"the node {clean(node)!r} publishes below {self._prefix + '/'!r}, and our engine does not know it,"
                    " so it has another engine. Give all nodes the same engine, or another prefix"
                )

    def _report(self, reason: str | None) -> None:
        self._link.conflict = reason
        self._events.emit(PrefixShared(reason))
