"""The five calls that leadsman asks of the engine, and what they mean.

*Whose clock.* A lease lasts `Lease.ttl` from the moment at which the engine handled the call that granted or renewed
it, by the engine's clock. No store compares a time of the engine with a clock of the node. A node that counts how long
its lease still lasts begins when it *sent* the call, on a clock that goes on while the host sleeps; see `HeldLeases`.

*When the clock of the engine is set.* Set forward, leases end early: their owners hear so at their next renewal, and
until then two nodes may work. Set back, the leases of a node that died last longer by as much.

*One at a time.* Calls of one store may run at the same time, except `acquire`, `renew` and `release` of the same key.

*When a call fails.* `LeaseStoreUnreachable` leaves open whether the engine did what it was asked. A lease that
was granted without the node's knowledge is granted again by the next `acquire`, or ends by itself.
"""

from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import NamedTuple, Protocol, Self

from leadsman.extensions.nodes.lease.lease import Lease, Member


class Acquired(NamedTuple):
    """The answer to `LeaseStore.acquire`. A key that changed hands during the call may be in neither."""

    granted: dict[str, Lease]
    """The keys that this node has now."""
    held: dict[str, Lease]
    """The keys that another owner has, with its leases."""


class ClusterSnapshot(NamedTuple):
    """A cluster as its engine has it."""

    leases: Mapping[str, Lease]
    """By key. A key that is missing is free."""
    members: tuple[Member, ...]
    """The nodes that renewed within the last TTL, sorted by node, then by run."""
    unread: frozenset[str] = frozenset()
    """What the engine has under the name of the cluster and what is no lease and no member, by its name there. It
    counts for nothing."""


class LeaseStore(Protocol):
    """One node's access to the leases of its cluster. It is used in an ``async with`` block: entering it connects,
    compares the terms of the cluster and makes the node a member; leaving it ends the membership, and releases no
    lease.

    Raises of every call, and of entering:
        LeaseStoreUnreachable: the engine did not answer within `Terms.patience`, or the connection to it is lost. Try
            again; a store reconnects by itself.
        LeaseStoreRefused: the engine does not accept the credentials, or does not permit the call. A person must
            fix it.
        TermsDiffer: the engine has other terms for this cluster, or holds something else under its name. A person must
            fix it.
    """

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc_info: object) -> None: ...

    async def acquire(self, keys: Iterable[str]) -> Acquired:
        """Take those of these keys that are free: those never leased, released, deleted or over.

        A key that this run of the node has already is granted again, with a greater token, and its former token is
        void; so an `acquire` whose answer was lost can be made again. Another run of the same node is another owner,
        and waits like everybody else. Nothing is ever taken away from a live owner.

        Raises:
            InvalidValue, InvalidType: see `check_keys`.
        """
        ...

    async def renew(self, leases: Iterable[Lease]) -> dict[str, Lease]:
        """Make these leases last for another TTL. Returns those that this node still has, by key, with their tokens
        unchanged. One that is missing is lost: it was over, was deleted by hand, or its token is not the newest.

        It renews the membership of the node too, and makes a node whose membership was over a member again. A node
        without leases calls it with none.
        """
        ...

    async def release(self, leases: Iterable[Lease]) -> None:
        """Give these leases back: their keys are free at once. One that is not held any more, or whose token is not
        the newest, is ignored, so it may be called twice."""
        ...

    def restate(self, member: Member) -> None:
        """Change the labels of this run from the next `renew` on. The call sends nothing to the engine."""
        ...

    def watch(self) -> AsyncGenerator[ClusterSnapshot, None]:
        """Yield the cluster as it is, then again whenever a lease or a member came, went or has other
        labels. Renewals are no change.
        Changes that come close together are yielded as one. A release is yielded as soon as the engine reports it, the
        end of a lease or of a membership within a quarter of the TTL.

        It may stay silent while the engine is lost, which `renew` notices first, or end with an error; then call it
        again. Close it (`contextlib.aclosing`) when done.
        """
        ...
