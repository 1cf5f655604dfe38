"""Shards that are left over, since nobody takes them: a pure answer to nodes that run different versions of an app.

A quota is counted in the shards that a node knows. In a rolling upgrade the nodes know different ones, and then the
quotas of all may be filled while a shard is free. A node that sees it free for longer than any takeover lasts takes
it in addition to its quota. Those that have the greater weight for it wait less long, so that one of them is first.

A shard is free for so long, too, if a node that should take it does not, since it hears no answers of the engine. While
all nodes run one version and another one has less than its part, what was left over counts by the quota again after a
while: the node has too many then, and the other one gets some. If that takes none, they are left over again, for twice
as long.
"""

from collections.abc import Collection, Iterable

from leadsman.nodes.cluster.placement import quota_of, score, serving
from leadsman.nodes.cluster.shards import Pool
from leadsman.nodes.lease.lease import Member
from leadsman.nodes.lease.store import ClusterSnapshot

LONGEST = 16
"""TTLs after which what was left over counts by the quota again, at the most."""


class LeftoverShards:
    """What one node takes in addition to its quota.

    Args:
        member: the node.
        ttl: seconds that a lease lasts. A shard is left over after one TTL and another one for each node that has a
            greater weight for it.
    """

    def __init__(self, member: Member, ttl: float) -> None:
        self._member = member
        self._ttl = ttl
        self._free_since: dict[str, float] = {}
        self._left_over: set[str] = set()
        self._lasts = ttl
        """Seconds for which shards are left over, at the least."""
        self._counts_at = 0.0
        """When they are over."""

    def restate(self, member: Member) -> None:
        """This node has changed. One that drains takes nothing, and waits from now on when it takes
        part again: what was free meanwhile is not left over."""
        self._member = member
        self._free_since.clear()
        if member.draining:
            self._left_over.clear()

    def look(
        self, snapshot: ClusterSnapshot, pools: Iterable[Pool], held: Collection[str], now: float
    ) -> frozenset[str]:
        """The shards that this node should have whatever its quota, `now` in seconds of a clock that never goes
        back."""
        free: dict[str, float] = {}
        for pool in pools:
            waits = None
            for key in pool.keys:
                lease = snapshot.leases.get(key)
                if lease is not None and lease.owner != self._member.owner:
                    self._left_over.discard(key)
                elif key not in held and key not in self._left_over:
                    waits = self._able(pool, snapshot) if waits is None else waits
                    free[key] = since = self._free_since.get(key, now)
                    if self._member.node in waits and now - since >= self._ttl * (1 + self._rank(key, waits)):
                        self._left_over.add(key)
                        self._counts_at = now + self._lasts
            if now >= self._counts_at and self._another_lacks(pool, snapshot):
                self._left_over.difference_update(pool.keys)
                self._lasts = min(2 * self._lasts, LONGEST * self._ttl)
        self._free_since = free
        return frozenset(self._left_over)

    def _another_lacks(self, pool: Pool, snapshot: ClusterSnapshot) -> bool:
        """Whether shards are left over, and another node of the same version has less than its part."""
        if self._left_over.isdisjoint(pool.keys):
            return False
        if any(member.version != self._member.version for member in snapshot.members):
            return False
        nodes = self._able(pool, snapshot)
        owners = [lease.node for key in pool.keys if (lease := snapshot.leases.get(key)) is not None]
        return any(owners.count(node) < quota_of(node, pool, nodes) for node in nodes - {self._member.node})

    def _able(self, pool: Pool, snapshot: ClusterSnapshot) -> set[str]:
        """The nodes that take part and have what the devices of a pool need."""
        nodes = serving(self._member, snapshot.members)
        return {node for node, labels in nodes.items() if pool.needs <= labels}

    def _rank(self, key: str, nodes: Iterable[str]) -> int:
        own = score(key, self._member.node)
        return sum(score(key, node) > own for node in nodes)
