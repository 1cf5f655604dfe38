"""What a node of a cluster says of itself, and what it can be asked. Imported only in a cluster."""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable

from leadsman.cluster.hearing import is_heard
from leadsman.cluster.shards import Pool
from leadsman.errors import Busy, PayloadError
from leadsman.lease.lease import DRAINING
from leadsman.log_lines import left_out_before, others
from leadsman.mqtt.answers import EXPIRY
from leadsman.mqtt.connection import Received
from leadsman.mqtt.link import Link
from leadsman.mqtt.message import Message
from leadsman.nodes.document import LIFE, MOST_NAMED, MOST_SHARDS, Brief, Lacking, NodeDocument, State, encoded, named
from leadsman.nodes.requests import Drain, DrainDoor, Drained, told
from leadsman.text import clean, log_fields
from leadsman.timing.clock import Clock, rfc3339
from leadsman.wiring.cluster import Cluster
from leadsman.wiring.plan import Plan

LOOKS = 4
"""Times in a TTL that a node looks whether it has something new to say, as when another node has taken a shard."""

logger = logging.getLogger("leadsman")


class ClusterReport:
    """Publishes the document of this node, and takes requests to drain it.

    Args:
        cluster: this node.
        plan: the app, with all its devices.
        link: the connection to the broker.
        clock: of the node.
    """

    def __init__(self, cluster: Cluster, plan: Plan, link: Link, clock: Clock) -> None:
        self._cluster = cluster
        self._node = cluster.member.node
        self._plan = plan
        self._link = link
        self._clock = clock
        self._state: State = "taking_over"
        self._since = clock.wall()
        self._said: NodeDocument | None = None
        self._said_at = 0.0
        self._handle: asyncio.TimerHandle | None = None
        self._lines = others()
        self._door = DrainDoor(plan.topics, clock.wall, self._drained)
        jobs = plan.jobs
        self._devices = {key: [each for each in names if each not in jobs] for key, names in cluster.devices.items()}
        self.requests = plan.topics.drain(self._node)
        """The topic of the requests. They come in as all requests do."""

    def start(self) -> None:
        """Begin to say what the node is."""
        self._cluster.on_change.append(self._look)
        self._look()

    def goodbye(self) -> None:
        """Remove the document; the node ends."""
        if self._handle is not None:
            self._handle.cancel()
            self._cluster.on_change.remove(self._look)
            self._link.put(Message(self._topic, b"", 1, retain=True, latest=True))

    def briefs(self) -> list[Brief]:
        """All nodes as the engine has them, this one included, by name."""
        snapshot = self._cluster.node.snapshot
        found: dict[str, Brief] = {}
        if snapshot is not None:
            shards, devices = Counter[str](), Counter[str]()
            for key, lease in snapshot.leases.items():
                shards[lease.node] += 0 if is_heard(key) else 1
                devices[lease.node] += 1 if is_heard(key) else len(self._devices.get(key, ()))
            for member in snapshot.members:
                found[member.node] = {
                    "node": member.node,
                    "state": "draining" if member.draining else "active",
                    "labels": sorted(member.labels - {DRAINING}),
                    "devices": devices[member.node],
                    "shards": shards[member.node],
                    "version": clean(member.version),
                }
        self._note(self._clock.wall())
        found[self._node] = {
            "node": self._node,
            "state": self._state,
            "since": rfc3339(self._since),
            "labels": sorted(self._cluster.member.labels),
            "devices": len(self._owned()),
            "shards": len(self._cluster.owned),
            "version": clean(self._plan.version),
        }
        return [each for _, each in sorted(found.items())]

    def document(self) -> NodeDocument:
        """What is published."""
        cluster, clock = self._cluster, self._clock
        node, holdings, now = cluster.node, cluster.node.holdings, clock.wall()
        self._note(now)
        devices = self._owned()
        unowned = self._unowned()
        lost = node.unreachable_since
        return {
            "node": self._node,
            "kind": "cluster",
            "state": self._state,
            "since": rfc3339(self._since),
            "at": rfc3339(now),
            "ttl_s": cluster.terms.ttl,
            "version": clean(self._plan.version),
            "leadsman": self._plan.leadsman,
            "labels": sorted(cluster.member.labels),
            "shards": {
                key: {"token": cluster.owned[key].token, "since": rfc3339(cluster.owned[key].since)}
                for key in sorted(cluster.owned)[:MOST_SHARDS]
            },
            "shard_count": len(cluster.owned),
            "engine": {
                "reachable": lost is None,
                "unreachable_since": None if lost is None else rfc3339(now - clock.uptime() + lost),
            },
            "devices": named(devices),
            "device_count": len(devices),
            "registered": sum(map(len, self._devices.values())),
            "unowned": named(unowned),
            "unowned_count": len(unowned),
            "members": sorted({each.node for each in node.snapshot.members} if node.snapshot else ())[:MOST_NAMED],
            "handovers": {
                "takeovers": 0,
                "gained": holdings.gained,
                "lost": holdings.lost,
                "released": holdings.released,
            },
            "without_node": self._without_node(),
        }

    @property
    def _topic(self) -> str:
        return self._plan.topics.of_node(self._node)

    def _look(self) -> None:
        """Publish the document if it is another one than before, or a TTL old."""
        ttl = self._cluster.terms.ttl
        if self._handle is not None:
            self._handle.cancel()
        self._handle = asyncio.get_running_loop().call_later(ttl / LOOKS, self._look)
        document, now = self.document(), self._clock.monotonic()
        said = self._said
        if said is None or now >= self._said_at + ttl or document != {**said, "at": document["at"]}:
            self._said, self._said_at = document, now
            expires = now + LIFE * ttl
            self._link.put(Message(self._topic, encoded(document), 1, retain=True, latest=True, expires=expires))

    def _note(self, now: float) -> None:
        """Note since when the node is what it is."""
        node = self._cluster.node
        state: State = "active"
        if node.member.draining:
            state = "draining"
        elif node.unreachable_since is not None and not self._cluster.owned:
            state = "fenced"
        elif node.snapshot is None:
            state = "taking_over"
        if state != self._state:
            self._state, self._since = state, now

    def _owned(self) -> set[str]:
        """The devices of this node, those that were found at run time included."""
        cluster = self._cluster
        devices = set(self._names(cluster.owned))
        heard = () if cluster.heard is None else cluster.heard.names(cluster.node.holdings.keys)
        return devices | {found for found, finder in cluster.finders.items() if finder in devices} | {*heard}

    def _names(self, keys: Iterable[str]) -> list[str]:
        """The devices of shards that this node knows of."""
        return [name for key in keys for name in self._devices.get(key, ())]

    def _unowned(self) -> list[str]:
        """The devices of shards that no node had when the engine was last heard of."""
        snapshot = self._cluster.node.snapshot
        if snapshot is None:
            return []
        return self._names(self._devices.keys() - snapshot.leases.keys() - self._cluster.owned.keys())

    def _without_node(self) -> list[Lacking]:
        pools: Iterable[Pool] = self._cluster.node.without_node()
        found = ((pool.needs, len(self._names(pool.keys))) for pool in pools)
        return [{"needs": sorted(needs), "devices": devices} for needs, devices in found if devices]

    def handle(self, received: Received) -> None:
        """Carry a request out, and answer it."""
        if (answer := self._door.answer(received)) is not None:
            self._send(answer)

    def refuse(self, received: Received, error: Busy | PayloadError) -> None:
        """Answer a request whose turn does not come."""
        self._send(self._door.refusal(received, error))

    def _send(self, answer: Message) -> None:
        self._link.put(answer._replace(expires=self._clock.monotonic() + EXPIRY))

    def _drained(self, request: Drain) -> Drained:
        node = self._cluster.node
        before = node.member.draining
        node.drain(request.draining)
        left_out = self._lines.left_out("drain", self._clock.monotonic())
        if left_out is not None:
            about, more = log_fields("drain", node=self._node, by=request.by), left_out_before(left_out)
            logger.info("this node, %s, %s%s", self._node, told(request), more, extra=about)
        if (
            self._handle is not None and before != request.draining
        ):  # else a flood of requests would cost a document each
            self._look()
        self._note(self._clock.wall())
        return {
            "node": self._node,
            "draining": request.draining,
            "state": self._state,
            "without_node": self._without_node(),
        }
