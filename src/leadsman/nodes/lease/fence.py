"""The leases that a node has, and how long it may trust each of them without asking the engine."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from leadsman.nodes.lease.lease import Lease

RENEW_AT = 0.25
"""A node renews after this part of the TTL."""
FENCE_AT = 0.8
"""A node stops after this part of the TTL without a renewal. The rest, 3 s of 15, is for clocks that run at different
speeds, and for what has begun already."""


class Held(NamedTuple):
    """A lease, and when the node asked for it.

    All times are those of `Clock.uptime`: the monotonic clock of a loop stands still while the host sleeps, and a node
    that wakes would trust a lease that somebody else has by now.
    """

    lease: Lease
    asked_at: float
    """When the `acquire` or `renew` that confirmed it was *sent*: the answer may have taken long."""

    @property
    def renew_at(self) -> float:
        """When to renew it."""
        return self.asked_at + RENEW_AT * self.lease.ttl

    @property
    def fence_at(self) -> float:
        """From when on it must not be used."""
        return self.asked_at + FENCE_AT * self.lease.ttl

    def usable(self, now: float) -> bool:
        """Whether the node may act on it. Ask before each poll and before each publish."""
        return now < self.fence_at


class HeldLeases:
    """The leases of one node. It does no more than to keep them; the caller asks the engine."""

    def __init__(self) -> None:
        self._held: dict[str, Held] = {}
        self.gained = 0
        """How many shards the node got since its start, those included that it had before."""
        self.lost = 0
        """How many the engine took: a lease was over, or somebody deleted it."""
        self.released = 0
        """How many it gave back."""

    @property
    def keys(self) -> frozenset[str]:
        """The keys of all leases, those that must not be used included."""
        return frozenset(self._held)

    def leases(self, keys: Iterable[str] | None = None) -> list[Lease]:
        """The leases of some keys, or all."""
        chosen = self._held if keys is None else keys
        return [self._held[key].lease for key in chosen if key in self._held]

    def usable(self, key: str, now: float) -> bool:
        """Whether the node may poll and publish for a shard. Ask before each poll and each publish."""
        return key in self._held and self._held[key].usable(now)

    def fence_at(self, now: float) -> float | None:
        """When the next lease that is usable ceases to be so; None without any."""
        return min((held.fence_at for held in self._held.values() if held.usable(now)), default=None)

    def unusable(self, now: float) -> frozenset[str]:
        """The keys of leases that must not be used, and may become usable by a renewal."""
        return frozenset(key for key, held in self._held.items() if not held.usable(now))

    def gain(self, leases: Iterable[Lease], asked_at: float) -> None:
        """The engine granted leases, as it was asked at `asked_at`."""
        for lease in leases:
            self._held[lease.key] = Held(lease, asked_at)
            self.gained += 1

    def renew(self, renewed: Mapping[str, Lease], asked: Iterable[Lease], asked_at: float) -> frozenset[str]:
        """The engine renewed these of the leases that it was asked for. Returns the keys of the others, which are
        lost."""
        lost: set[str] = set()
        for lease in asked:
            held = self._held.get(lease.key)
            if held is None or held.lease.token != lease.token:
                continue
            if lease.key in renewed:
                self._held[lease.key] = Held(renewed[lease.key], asked_at)
            else:
                del self._held[lease.key]
                self.lost += 1
                lost.add(lease.key)
        return frozenset(lost)

    def drop(self, keys: Iterable[str]) -> None:
        """The node gave these back."""
        for key in keys:
            if self._held.pop(key, None) is not None:
                self.released += 1
