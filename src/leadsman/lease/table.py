"""What an engine knows about one cluster, as a value in memory: who has which key until when, and who is a member.

It is the meaning of `LeaseStore` without a network. Every call takes `now`, the engine's clock in seconds, and asking
never changes anything. There is one rule: a lease counts while ``now < until``.
"""

from collections.abc import Iterable
from typing import NamedTuple

from leadsman.lease.lease import Lease, Member
from leadsman.lease.store import Acquired, Snapshot


class _Row(NamedTuple):
    lease: Lease
    until: float


class LeaseTable:
    """The leases and the members of one cluster.

    Args:
        ttl: seconds that a lease lasts without a renewal.
    """

    def __init__(self, ttl: float) -> None:
        self._ttl = ttl
        self._rows: dict[str, _Row] = {}
        self._members: dict[str, tuple[Member, float]] = {}
        self._token = 0

    def acquire(self, keys: Iterable[str], owner: str, now: float) -> Acquired:
        """See `LeaseStore.acquire`."""
        answer = Acquired({}, {})
        for key in keys:
            row = self._rows.get(key)
            if row is not None and now < row.until and row.lease.owner != owner:
                answer.held[key] = row.lease
                continue
            self._token += 1
            lease = Lease(key, owner, self._token, self._ttl)
            self._rows[key] = _Row(lease, now + self._ttl)
            answer.granted[key] = lease
        return answer

    def renew(self, leases: Iterable[Lease], member: Member, now: float) -> dict[str, Lease]:
        """See `LeaseStore.renew`."""
        self._members[member.owner] = (member, now + self._ttl)
        renewed: dict[str, Lease] = {}
        for lease in leases:
            if lease.owner == member.owner and self._is_current(lease, now):
                self._rows[lease.key] = _Row(lease, now + self._ttl)
                renewed[lease.key] = lease
        return renewed

    def release(self, leases: Iterable[Lease], owner: str, now: float) -> None:
        """See `LeaseStore.release`."""
        for lease in leases:
            if lease.owner == owner and self._is_current(lease, now):
                del self._rows[lease.key]

    def is_member(self, member: Member, now: float) -> bool:
        """Whether the membership counts, as it is stated."""
        known = self._members.get(member.owner)
        return known is not None and now < known[1] and known[0] == member

    def leave(self, member: Member) -> None:
        """End a membership."""
        self._members.pop(member.owner, None)

    def delete(self, key: str) -> None:
        """Delete a lease, as a person does by hand."""
        self._rows.pop(key, None)

    def snapshot(self, now: float) -> Snapshot:
        """What counts at `now`."""
        leases = {key: row.lease for key, row in self._rows.items() if now < row.until}
        members = [member for member, until in self._members.values() if now < until]
        return Snapshot(leases, tuple(sorted(members, key=lambda member: (member.node, member.run))))

    def sweep(self, now: float) -> bool:
        """Forget what is over. Returns whether anything was."""
        keys = [key for key, row in self._rows.items() if row.until <= now]
        owners = [owner for owner, (_, until) in self._members.items() if until <= now]
        for key in keys:
            del self._rows[key]
        for owner in owners:
            del self._members[owner]
        return bool(keys or owners)

    def next_end(self) -> float | None:
        """When the next lease or membership is over unless it is renewed; None without any."""
        ends = [row.until for row in self._rows.values()] + [until for _, until in self._members.values()]
        return min(ends, default=None)

    def _is_current(self, lease: Lease, now: float) -> bool:
        row = self._rows.get(lease.key)
        return row is not None and now < row.until and row.lease.token == lease.token
