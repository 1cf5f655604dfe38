"""Keeps the part of one node: renews its leases, takes and releases shards, and stops what it may not do any more.

Three tasks share the holdings. One watches the engine; one renews, releases and takes; one fences, since the other two
may wait for an engine that does not answer. A node never tells another one anything.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from contextlib import aclosing, suppress
from typing import Protocol

from leadsman.cluster.holdings import Holdings
from leadsman.cluster.placement import plan
from leadsman.cluster.shards import Pool
from leadsman.errors import LeaseError, LeaseStoreUnreachable
from leadsman.lease.fence import RENEW_AT
from leadsman.lease.lease import Lease, Member, Terms
from leadsman.lease.store import LeaseStore, Snapshot
from leadsman.timing.clock import Clock

RETRY_AT = 0.05
"""A node asks again after this part of the TTL when the engine did not answer: 0.75 s at 15 s."""


class Duties(Protocol):
    """What a node does with its shards."""

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
        duties: what is done with the shards.
    """

    def __init__(
        self, store: LeaseStore, member: Member, terms: Terms, pools: Iterable[Pool], clock: Clock, duties: Duties
    ) -> None:
        self.holdings = Holdings()
        self.snapshot: Snapshot | None = None
        """The cluster as the engine had it last; None until it answered for the first time."""
        self.unreachable_since: float | None = None
        """When the engine first did not answer, in seconds of `Clock.uptime`; None while it does."""
        self._store = store
        self._member = member
        self._ttl = terms.ttl
        self._pools = tuple(pools)
        self._clock = clock
        self._duties = duties
        self._at_work: set[str] = set()
        self._to_release: list[Lease] = []
        """Leases that the engine was asked to release, or will be. They are used no more, whatever it answers: it may
        get a request late, after the node has given it up."""
        self._turn = asyncio.Lock()
        self._changed = asyncio.Event()
        self._at_rest: tuple[Snapshot, frozenset[str]] | None = None  # in which state the plan was to do nothing

    def allows(self, key: str) -> bool:
        """Whether the node may poll and publish for a shard now. Ask before each poll and each publish."""
        return self.holdings.usable(key, self._clock.uptime())

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
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._watch())
                tasks.create_task(self._fence())
                tasks.create_task(self._keep())
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            await self._leave()

    async def _watch(self) -> None:
        """Know the cluster as it is."""
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
        renew_at = self._clock.uptime()
        while True:
            self._changed.clear()
            try:
                if (now := self._clock.uptime()) >= renew_at:
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
        """Stop what the node may not do any more, also while the engine does not answer."""
        while True:
            now = self._clock.uptime()
            await self._end(self.holdings.unusable(now))
            end = self.holdings.fence_at(now)
            await asyncio.sleep(RENEW_AT * self._ttl if end is None else max(0.0, end - now))

    async def _renew(self, now: float) -> None:
        asked = self.holdings.leases()
        renewed = await self._store.renew(asked)
        await self._end(self.holdings.renew(renewed, asked, now))
        await self._begin(self.holdings.keys)

    async def _balance(self) -> None:
        """Release and take what the plan says. Without a snapshot there is none: a node that knows of no other one
        would take all."""
        await self._release()
        if self.snapshot is None or self._at_rest == (self.snapshot, self.holdings.keys):
            return
        state = self.snapshot, self.holdings.keys
        release, acquire = plan(self._member, self.snapshot, self._pools, self.holdings.keys)
        self._at_rest = None if release or acquire else state
        if release:
            await self._end(release)
            self._to_release += self.holdings.leases(release)
            self.holdings.drop(release)
            await self._release()
        if acquire:
            asked_at = self._clock.uptime()
            answer = await self._store.acquire(acquire)
            self.holdings.gain(answer.granted.values(), asked_at)
            await self._begin(answer.granted)

    async def _release(self) -> None:
        if self._to_release:
            await self._store.release(self._to_release)
            self._to_release.clear()

    async def _begin(self, keys: Iterable[str]) -> None:
        async with self._turn:
            begun = {key for key in keys if key not in self._at_work and self.allows(key)}
            if begun:
                self._at_work |= begun
                await self._duties.begin({lease.key: lease.token for lease in self.holdings.leases(begun)})

    async def _end(self, keys: Iterable[str]) -> None:
        async with self._turn:
            ended = self._at_work.intersection(keys)
            if ended:
                await self._duties.end(ended)
                self._at_work -= ended

    async def _leave(self) -> None:
        await self._end(frozenset(self._at_work))  # those included that are lost already, and whose end was cancelled
        self._to_release += self.holdings.leases()
        self.holdings.drop(self.holdings.keys)
        with suppress(LeaseError):  # they end by themselves
            await self._release()

    def _not_reached(self) -> None:
        if self.unreachable_since is None:
            self.unreachable_since = self._clock.uptime()

    async def _pause(self, until: float) -> None:
        try:
            async with asyncio.timeout(max(0.0, until - self._clock.uptime())):
                await self._changed.wait()
        except TimeoutError:
            pass
