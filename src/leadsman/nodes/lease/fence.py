"""How long a node may trust a lease without asking the engine."""

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
