"""The report of a node of a cluster."""

from collections import Counter
from collections.abc import Iterable, Mapping

from leadsman.core.loop.clock import Clock, rfc3339
from leadsman.core.mqtt.link import Link
from leadsman.core.text import clean
from leadsman.extensions.nodes.brief import Brief, State
from leadsman.extensions.nodes.cluster.cluster import Cluster
from leadsman.extensions.nodes.document import MAX_NAMED_DEVICES, MAX_NAMED_SHARDS, Lacking, NodeState, fit
from leadsman.extensions.nodes.lease.lease import DRAINING, Member
from leadsman.extensions.nodes.report import NodeReport
from leadsman.extensions.nodes.shared_app import SharedApp

LOOKS = 4
"""Times in a TTL that a node looks whether it has something new to publish, as when another node has taken a shard."""


class ClusterReport(NodeReport):
    """The report of a node of a cluster.

    Args:
        cluster: this node.
        app: the app, with all its devices.
        link: the connection to the broker.
        clock: of the node.
    """

    def __init__(self, cluster: Cluster, app: SharedApp, link: Link, clock: Clock) -> None:
        node, ttl = cluster.member.node, cluster.terms.ttl
        super().__init__(app, node, "cluster", ttl, clock, link.put, qos=1, looks=LOOKS)
        self._cluster = cluster
        self._state: State = "taking_over"
        self._since = clock.wall()
        jobs = app.jobs
        self._devices = {key: [each for each in names if each not in jobs] for key, names in cluster.devices.items()}

    def start(self) -> None:
        """Begin to publish what the node is."""
        self._cluster.on_change.add(self.publish_if_new)
        self.publish()

    def states(self) -> Mapping[str, State]:
        """See `NodeReport`."""
        snapshot = self._cluster.node.snapshot
        found = {} if snapshot is None else {each.node: _state_of(each) for each in snapshot.members}
        return {**found, self._cluster.member.node: self._noted_state()}

    def peers(self) -> Mapping[str, Brief]:
        """See `NodeReport`. The nodes are those that the engine has."""
        snapshot = self._cluster.node.snapshot
        if snapshot is None:
            return {}
        shards, devices = Counter[str](), Counter[str]()
        for key, lease in snapshot.leases.items():
            shards[lease.node] += 1
            devices[lease.node] += len(self._devices.get(key, ()))
        return {
            member.node: {
                "node": member.node,
                "state": _state_of(member),
                "labels": sorted(member.labels - {DRAINING}),
                "devices": devices[member.node],
                "shards": shards[member.node],
                "version": clean(member.version),
            }
            for member in snapshot.members
        }

    def state(self) -> NodeState:
        """See `NodeReport`."""
        cluster, clock, node = self._cluster, self._clock, self._cluster.node
        state, devices, unowned, lost = self._noted_state(), self._owned(), self._unowned(), node.unreachable_since
        return {
            "state": state,
            "since": rfc3339(self._since),
            "labels": sorted(cluster.member.labels),
            "shards": {key: cluster.owned[key] for key in sorted(cluster.owned)[:MAX_NAMED_SHARDS]},
            "shard_count": len(cluster.owned),
            "engine": {
                "reachable": lost is None,
                "unreachable_since": None if lost is None else rfc3339(clock.wall() - clock.uptime() + lost),
            },
            "devices": fit(devices),
            "device_count": len(devices),
            "registered": sum(map(len, self._devices.values())),
            "unowned": fit(unowned),
            "unowned_count": len(unowned),
            "members": sorted({each.node for each in node.snapshot.members} if node.snapshot else ())[
                :MAX_NAMED_DEVICES
            ],
            "handovers": {
                "takeovers": 0,
                "gained": node.held.gained,
                "lost": node.held.lost,
                "released": node.held.released,
            },
            "without_node": self._without_node(),
        }

    def drain(self, draining: bool) -> tuple[State, list[Lacking]]:
        """See `NodeReport`."""
        node = self._cluster.node
        before = node.member.draining
        node.drain(draining)
        if before != draining:  # else a flood of requests would cost a document each
            self.publish_if_new()
        return self._noted_state(), self._without_node()

    def _noted_state(self) -> State:
        """The state of the node; it is noted since when."""
        node = self._cluster.node
        state: State = "active"
        if node.member.draining:
            state = "draining"
        elif node.unreachable_since is not None and not self._cluster.owned:
            state = "fenced"
        elif node.snapshot is None:
            state = "taking_over"
        if state != self._state:
            self._state, self._since = state, self._clock.wall()
        return state

    def _owned(self) -> set[str]:
        """The devices of this node, those that were found at run time included."""
        cluster = self._cluster
        devices = set(self._names(cluster.owned))
        return devices | {found for found, finder in cluster.finders.items() if finder in devices}

    def _unowned(self) -> list[str]:
        """The devices of shards that no node had when the engine was last heard of."""
        snapshot = self._cluster.node.snapshot
        if snapshot is None:
            return []
        return self._names(self._devices.keys() - snapshot.leases.keys() - self._cluster.owned.keys())

    def _names(self, keys: Iterable[str]) -> list[str]:
        """The devices of shards that this node registers."""
        return [name for key in keys for name in self._devices.get(key, ())]

    def _without_node(self) -> list[Lacking]:
        found = ((pool.needs, len(self._names(pool.keys))) for pool in self._cluster.node.without_node())
        return [{"needs": sorted(needs), "devices": devices} for needs, devices in found if devices]


def _state_of(member: Member) -> State:
    """The state of another node, as the engine has it."""
    return "draining" if member.draining else "active"
