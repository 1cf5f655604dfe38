"""Shards, and which of them a node should have: a pure function of the members and the leases that an engine shows.

A shard is a group of devices that one node polls, and that move from node to node together. There is a lease for each
shard and not for each device, so that the upkeep does not grow with the devices. Which shard a device belongs to
depends on its name, on what it needs of a node, and on the number of shards; every node computes the same.

Nodes do not talk to each other. Each has a quota, which is its part of the shards, and an order of preference, which is
rendezvous hashing (Thaler and Ravishankar, "Using name-based mappings to increase hit rates", 1998). A node with too
few shards takes free ones; a node with too many releases some. No node takes a shard that another one has. So a node
that dies costs only its own shards a move, and one that comes gets no more than its part.

Shards may be left over, since nobody takes them: a quota is counted in the shards that a node registers. In a rolling
upgrade those of the nodes differ, and then the quotas of all may be filled while a shard is free. A node that sees
it free for longer than any takeover lasts takes it in addition to its quota. Those that have the greater weight for it
wait less long, so that one of them is first.

A node that gets no answers of the engine says so once it has stopped, and has no quota from then on. Until then a shard
that it should take is free for so long, too. While all nodes run one version and another one has less than its part,
what was left over counts by the quota again after a while: the node has too many then, and the other one gets some. If
that takes none, they are left over again, for twice as long.
"""

import functools
import hashlib
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from leadsman.extensions.nodes.lease.lease import Lease, Member
from leadsman.extensions.nodes.lease.store import ClusterSnapshot

ANY = "any"
"""The pool of the devices that every node can poll."""
_DIGITS = 8
"""Of the hash that names a pool: 32 bits, which two of a hundred sets of labels share once in a million clusters."""


class Shard(NamedTuple):
    """Devices that need the same of a node."""

    pool: str
    """Stands for `needs` in a key: `ANY`, or eight hexadecimal digits."""
    number: int
    """0 to the number of shards less one."""
    needs: frozenset[str]
    """The labels that a node must have to poll them."""

    @property
    def key(self) -> str:
        """The key of its lease: ``any.17``."""
        return f"{self.pool}.{self.number}"


def shard_of(device: str, needs: Collection[str], shards: int) -> Shard:
    """The shard of a device.

    Args:
        device: the name of the device.
        needs: the labels that a node must have to poll it, such as ``ble``. The devices of one set of labels share
            their shards among the nodes that have these labels.
        shards: how many shards each set of labels has, at least 1.
    """
    number = int.from_bytes(_digest(device), "big") % shards
    return Shard(pool_of(needs), number, frozenset(needs))


def pool_of(needs: Collection[str]) -> str:
    """The word for a set of labels in the keys of its shards."""
    if not needs:
        return ANY
    return _digest("\0".join(sorted(needs))).hex()[:_DIGITS]


class Pool(NamedTuple):
    """The shards of the devices that need the same of a node."""

    name: str
    """See `Shard.pool`."""
    needs: frozenset[str]
    """See `Shard.needs`."""
    keys: tuple[str, ...]
    """Of its shards, in their order."""


def pools_of(shards: Iterable[Shard]) -> tuple[Pool, ...]:
    """The pools of shards, by name."""
    pools: dict[tuple[str, frozenset[str]], list[str]] = {}
    for shard in sorted(shards, key=lambda shard: (shard.pool, shard.number)):
        pools.setdefault((shard.pool, shard.needs), []).append(shard.key)
    return tuple(Pool(name, needs, tuple(keys)) for (name, needs), keys in pools.items())


def missing_labels(pools: Iterable[Pool], nodes: Iterable[Collection[str]]) -> tuple[Pool, ...]:
    """The pools that no node can poll, since none has all the labels that their devices need."""
    held = [frozenset(labels) for labels in nodes]
    return tuple(pool for pool in pools if not any(pool.needs <= labels for labels in held))


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest()


class Moves(NamedTuple):
    """The leases that a node should release and take now. Both are in the order in which to do it."""

    release: tuple[str, ...]
    """Keys that it has and should give back, those that others prefer most first."""
    acquire: tuple[str, ...]
    """Keys that are free, and that it should take: as many as it lacks."""


def plan(member: Member, snapshot: ClusterSnapshot, pools: Iterable[Pool], held: Collection[str]) -> Moves:
    """The shards that a node should release and take.

    Args:
        member: the node.
        snapshot: the cluster as its engine has it. A node that is missing in it, such as this one, is added.
        pools: of all shards that have devices.
        held: the keys that the node has, or holds to be its own. They may differ from the snapshot, which is older.
    """
    labels = serving(member, snapshot.members)
    unknown = set(held)
    release: list[str] = []
    acquire: list[str] = []
    for pool in pools:
        unknown.difference_update(pool.keys)
        nodes = [node for node, has in labels.items() if pool.needs <= has]
        mine = [key for key in pool.keys if key in held]
        lacking = (quota_of(member.node, pool, nodes) if member.node in nodes else 0) - len(mine)
        if lacking < 0:
            mine.sort(key=lambda key: _preference(member.node, key, nodes), reverse=True)
            release += mine[:-lacking]
        elif lacking > 0:
            free = [key for key in pool.keys if key not in held and _is_free(snapshot.leases, key, member)]
            free.sort(key=lambda key: _preference(member.node, key, nodes))
            acquire += free[:lacking]
    return Moves((*sorted(unknown), *release), tuple(acquire))


def quota_of(node: str, pool: Pool, nodes: Collection[str]) -> int:
    """How many shards of a pool a node should have. The quotas of all nodes add up to the shards, and no two differ by
    more than one. Which nodes have the additional ones depends on the pool, so that small pools do not all lie on the
    same node."""
    share, rest = divmod(len(pool.keys), len(nodes))
    favoured = sorted(nodes, key=lambda name: score(pool.name, name), reverse=True)[:rest]
    return share + (node in favoured)


def serving(member: Member, members: Iterable[Member]) -> Mapping[str, frozenset[str]]:
    """The labels of each node that takes part (`Member.takes_part`); no other one has a quota. A node that restarts has
    two runs until the membership of the first is over; it is one node, with what the later of the two has.

    Args:
        member: the node that asks. It counts as it is now, since the engine may have an earlier state of it.
        members: all nodes, as the engine has them.
    """
    nodes = {other.node: other for other in members} | {member.node: member}
    return {name: node.labels for name, node in nodes.items() if node.takes_part}


@functools.lru_cache(maxsize=100_000)
def score(key: str, node: str) -> int:
    """The weight of a node for a key, which no other node or key influences: 64 bits."""
    return int.from_bytes(hashlib.blake2b(f"{key}\0{node}".encode(), digest_size=8).digest(), "big")


def _preference(node: str, key: str, nodes: Iterable[str]) -> tuple[int, int]:
    """Less for a key that the node is the better for: how many nodes have a greater weight for it."""
    own = score(key, node)
    return sum(score(key, other) > own for other in nodes), -own


def _is_free(leases: Mapping[str, Lease], key: str, member: Member) -> bool:
    lease = leases.get(key)
    return lease is None or lease.owner == member.owner


MAX_LEFTOVER_TTLS = 16
"""TTLs after which what was left over counts by the quota again, at most."""


class LeftoverShards:
    """The shards that one node takes in addition to its quota.

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
        """Seconds for which shards are left over, at least."""
        self._counts_at = 0.0
        """When they are over."""

    def restate(self, member: Member) -> None:
        """This node has changed. One that drains takes nothing, and waits from now on when it takes
        part again: what was free meanwhile is not left over."""
        self._member = member
        self._free_since.clear()
        if member.draining:
            self._left_over.clear()

    def shards(
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
                    if self._member.node not in waits:
                        continue
                    better, _ = _preference(self._member.node, key, waits)
                    if now - since >= self._ttl * (1 + better):
                        self._left_over.add(key)
                        self._counts_at = now + self._lasts
            if now >= self._counts_at and self._another_lacks(pool, snapshot):
                self._left_over.difference_update(pool.keys)
                self._lasts = min(2 * self._lasts, MAX_LEFTOVER_TTLS * self._ttl)
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
