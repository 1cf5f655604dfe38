"""Keeps the part of one node: renews its leases, takes and releases shards, and stops what it may not do any more.

Three tasks share the leases that are held. One watches the engine; one renews, releases and takes; one fences, since
the other two may wait for an engine that does not answer. Nodes never message each other.

The engine may get the requests of a node that gets no answers. Each renewal of such a node would keep its leases from
the others, while it has stopped itself. So a node does not renew what it has stopped, and asks the engine to release
it, answered or not. It says that it takes no part until it is answered again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import aclosing, suppress
from typing import Protocol, TypeVar

from leadsman.core.loop.clock import Clock
from leadsman.errors import LeaseError, LeaseStoreUnreachable
from leadsman.extensions.nodes.cluster.placement import LeftoverShards, Moves, Pool, missing_labels, plan, serving
from leadsman.extensions.nodes.lease.lease import FENCE_AT, RENEW_AT, HeldLeases, Lease, Member, Terms
from leadsman.extensions.nodes.lease.store import ClusterSnapshot, LeaseStore

RETRY_AT = 0.05
"""A node asks again after this part of the TTL when the engine did not answer: 0.75 s at 15 s."""
LOST_AT = 0.35
"""An engine that has not answered for this part of the TTL counts as lost. With `RENEW_AT` that is 0.6 of the TTL after
the last renewal that was answered: a fifth before the node must stop, which is time to say so."""

S = TypeVar("S")
T = TypeVar("T")


class ShardCallbacks(Protocol):
    """The work of a node with its shards."""

    async def begin(self, tokens: Mapping[str, int]) -> None:
        """Begin to poll the devices of these shards, and send what they publish with these fencing tokens. It must not
        wait for a device: while it runs, the node stops nothing."""

    async def end(self, keys: Collection[str]) -> None:
        """Stop to poll the devices of these shards. When it returns, no poll of them runs, and none of their messages
        will be sent. It must not take longer than a fifth of the TTL, which remains of a lease when it is fenced. After
        an error or a cancellation it is called again with the same keys, and their leases are kept until it returns."""


class ClusterNode:
    """One node of a cluster.

    Args:
        store: its access to the leases.
        member: the node.
        terms: those of the cluster.
        pools: of all shards that have devices, the same on all nodes that run the same registrations.
        clock: of the node; the leases are timed by its `uptime`.
        callbacks: what is done with the shards.
    """

    def __init__(
        self,
        store: LeaseStore,
        member: Member,
        terms: Terms,
        pools: Iterable[Pool],
        clock: Clock,
        callbacks: ShardCallbacks,
    ) -> None:
        self.held = HeldLeases()
        self.snapshot: ClusterSnapshot | None = None
        """The cluster as the engine had it last; None until it answered for the first time."""
        self.unreachable_since: float | None = None
        """When the engine first did not answer, in seconds of `Clock.uptime`; None while it does. See `LOST_AT`."""
        self._store = store
        self._member = member
        self._ttl = terms.ttl
        self._pools = tuple(pools)
        self._clock = clock
        self._callbacks = callbacks
        self._at_work: set[str] = set()
        self._lapsed: set[str] = set()
        """Shards at work of which something was refused once. They are begun again, even if they were renewed at that
        moment: what was refused may have been the last of its kind."""
        self._to_release: list[Lease] = []
        """Leases that the engine was asked to release, or will be. They are used no more, whatever it answers: it may
        get a request late, after the node has given it up."""
        self._turn = asyncio.Lock()
        self._changed = asyncio.Event()
        self._answered_at = clock.uptime()
        """When the last renewal that was answered was sent."""
        self._unanswered = False
        """Whether the engine is told that this node takes no part, since it is not answered."""
        self._restated = False
        """Whether the node has changed since the engine last got it."""
        self._leftover = LeftoverShards(member, terms.ttl)
        self._at_rest: tuple[ClusterSnapshot, frozenset[str], frozenset[str]] | None = None
        """In which state the plan was to do nothing."""

    @property
    def member(self) -> Member:
        """This run of the node, as it is while the engine answers."""
        return self._member

    def drain(self, draining: bool) -> None:
        """Give everything away and take nothing, or take part again. The others see it with the next renewal, which
        is made at once. It lasts as long as the process."""
        if draining != self._member.draining:
            self._member = self._member.drained(draining)
            self._leftover.restate(self._member)
            self._at_rest = None
            self._restate()

    def stops_in(self) -> float | None:
        """Seconds until the node stops to read what it has, or a part of it, unless the engine answers; None if it has
        nothing."""
        now = self._clock.uptime()
        end = self.held.fence_at(now)
        return None if end is None else end - now

    def without_node(self) -> tuple[Pool, ...]:
        """The pools that no node polls: all nodes with the labels that their devices need are gone, or drain. Empty
        until the engine has answered."""
        if self.snapshot is None:
            return ()
        return missing_labels(self._pools, serving(self._member, self.snapshot.members).values())

    def allows(self, key: str) -> bool:
        """Whether the node may poll and publish for a shard now. Ask before each poll and each publish."""
        usable = self.held.usable(key, self._clock.uptime())
        if not usable and key in self._at_work:
            self._lapsed.add(key)
        return usable

    async def run(self) -> None:
        """Connect to the engine, and keep the part of the node until it is cancelled. Then all polls are stopped, and
        the leases are released.

        Raises:
            LeaseStoreRefused, TermsDiffer: a person must fix it. The polls are stopped.
        """
        while True:
            try:
                async with self._store:
                    await self._run()
            except LeaseStoreUnreachable:
                self._not_reached()
            await asyncio.sleep(RETRY_AT * self._ttl)

    async def _run(self) -> None:
        try:
            await self._end(frozenset(self._at_work))  # what an earlier run could not end is begun again
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._watch())
                tasks.create_task(self._fence())
                tasks.create_task(self._keep())
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            await self._leave()

    async def _watch(self) -> None:
        """Follow the cluster as it is."""
        while True:
            try:
                async with aclosing(self._store.watch()) as snapshots:
                    async for snapshot in snapshots:
                        self.snapshot = snapshot
                        self._changed.set()
            except LeaseStoreUnreachable:
                self._not_reached()
            await asyncio.sleep(RETRY_AT * self._ttl)

    async def _keep(self) -> None:
        """Renew in time; release and take when the cluster has changed."""
        renew_at = self._answered_at = self._clock.uptime()
        while True:
            self._changed.clear()
            try:
                if (now := self._clock.uptime()) >= renew_at or self._restated:
                    await self._renew(now)
                    renew_at = now + RENEW_AT * self._ttl
                await self._balance()
                self.unreachable_since = None
            except LeaseStoreUnreachable:
                self._not_reached()
                renew_at = self._clock.uptime()
                await asyncio.sleep(RETRY_AT * self._ttl)
                continue
            await self._pause(renew_at)

    async def _fence(self) -> None:
        """Stop what the node may not do any more, also while the engine does not answer, and give it up."""
        while True:
            now = self._clock.uptime()
            await self._end(self.held.unusable(now))
            self._to_release += self.held.give_up(now)
            end = self.held.fence_at(now)
            await asyncio.sleep(RENEW_AT * self._ttl if end is None else max(0.0, end - self._clock.uptime()))

    async def _renew(self, now: float) -> None:
        asked = self.held.leases()
        self._take_part(now - self._answered_at < FENCE_AT * self._ttl)
        self._restated = False
        renewed, released = await asyncio.gather(
            self._answer(self._store.renew, asked), self._release(), return_exceptions=True
        )
        for answer in (renewed, released):
            if isinstance(answer, BaseException):
                raise answer
        assert isinstance(renewed, dict)
        self._answered_at = now
        self._take_part(True)
        lost = self.held.renew(renewed, asked, now)
        await self._end(lost | self._lapsed)
        await self._begin(self.held.keys)

    async def _balance(self) -> None:
        """Release and take by the plan. Without a snapshot there is none: a node that sees no other one
        would take all."""
        await self._release()
        if self.snapshot is None:
            return
        release, acquire = self._planned(self.snapshot)
        if release:
            await self._end(release)
            self._to_release += self.held.leases(release)
            self.held.drop(release)
            await self._release()
        if acquire:
            asked_at = self._clock.uptime()
            answer = await self._answer(self._store.acquire, acquire)
            self.held.gain(answer.granted.values(), asked_at)
            await self._begin(answer.granted)

    def _planned(self, snapshot: ClusterSnapshot) -> Moves:
        """Which shards to release and take. A plan is made only if the cluster or what the node has has changed."""
        held = self.held.keys
        left_over = self._leftover.shards(snapshot, self._pools, held, self._clock.uptime())
        state = snapshot, held, left_over
        if self._at_rest == state:
            return Moves((), ())
        pools = [pool._replace(keys=tuple(key for key in pool.keys if key not in left_over)) for pool in self._pools]
        release, acquire = plan(self._member, snapshot, pools if left_over else self._pools, held - left_over)
        acquire += tuple(sorted(left_over - held))
        self._at_rest = None if release or acquire else state
        return Moves(release, acquire)

    async def _release(self) -> None:
        while leases := list(self._to_release):
            await self._answer(self._store.release, leases)
            del self._to_release[: len(leases)]

    async def _begin(self, keys: Iterable[str]) -> None:
        async with self._turn:
            begun = {key for key in keys if key not in self._at_work and self.allows(key)}
            if begun:
                self._at_work |= begun
                await self._callbacks.begin({lease.key: lease.token for lease in self.held.leases(begun)})

    async def _end(self, keys: Iterable[str]) -> None:
        async with self._turn:
            ended = self._at_work.intersection(keys)
            if ended:
                await self._callbacks.end(ended)
                self._at_work -= ended
                self._lapsed -= ended

    async def _leave(self) -> None:
        await self._end(frozenset(self._at_work))  # those included that are lost already, and whose end was cancelled
        self._to_release += self.held.leases()
        self.held.drop(self.held.keys)
        with suppress(LeaseError):  # they end by themselves
            await self._release()

    def _take_part(self, takes_part: bool) -> None:
        """Tell the engine with the next renewal whether this node has a part of the shards."""
        if takes_part is self._unanswered:
            self._unanswered = not takes_part
            self._restate()

    def _restate(self) -> None:
        self._store.restate(self._member.unanswered(self._unanswered))
        self._restated = True
        self._changed.set()

    async def _answer(self, call: Callable[[S], Awaitable[T]], what: S) -> T:
        """The answer to a request. The engine counts as lost when that is late, and not only when it was given up."""
        late = asyncio.get_running_loop().call_later(LOST_AT * self._ttl, self._not_reached)
        try:
            return await call(what)
        finally:
            late.cancel()

    def _not_reached(self) -> None:
        if self.unreachable_since is None:
            self.unreachable_since = self._clock.uptime()

    async def _pause(self, until: float) -> None:
        try:
            async with asyncio.timeout(max(0.0, until - self._clock.uptime())):
                await self._changed.wait()
        except TimeoutError:
            pass
