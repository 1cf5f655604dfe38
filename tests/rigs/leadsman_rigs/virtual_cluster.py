"""A cluster in virtual time: the real nodes on leases in memory, whose network, processes and clocks fail by a script.

Devices are not polled one by one. What counts for a device is when some node works for its shard, so the gaps between
its readings follow from those times.
"""

import asyncio
import itertools
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Self, TypeVar

from leadsman.extensions.nodes.cluster.node import ClusterNode
from leadsman.extensions.nodes.cluster.placement import pools_of, shard_of
from leadsman.extensions.nodes.lease.lease import Lease, Member, Terms
from leadsman.extensions.nodes.lease.store import Acquired, ClusterSnapshot
from leadsman.testing import VirtualLoop
from leadsman_rigs.memory_engine import Fault, MemoryEngine, MemoryStore, Pause

T = TypeVar("T")


class Run(NamedTuple):
    """One run of a node."""

    node: str
    start: float
    """Seconds after which it starts."""
    end: float = math.inf
    """Seconds after which it ends."""
    killed: bool = True
    """Whether it ends as by ``kill -9`` or a power loss, and not as by SIGTERM."""
    labels: frozenset[str] = frozenset()


class Drain(NamedTuple):
    """A time during which a node drains, if it runs. A run that begins meanwhile knows nothing of it."""

    node: str
    start: float
    end: float = math.inf


class Work(NamedTuple):
    """A time during which a node polled the devices of a shard."""

    key: str
    node: str
    token: int
    start: float
    end: float


class Sent(NamedTuple):
    """A message that a node published for a shard."""

    key: str
    node: str
    token: int
    at: float


class History(NamedTuple):
    """What happened in a simulated cluster."""

    works: tuple[Work, ...]
    """In the order of shards, then of time."""
    seconds: float
    """How long it was simulated."""
    sent: tuple[Sent, ...] = ()
    """In the order of time."""

    def overlaps(self) -> list[tuple[Work, Work]]:
        """Works of one shard that two nodes did at a time."""
        return [(one, two) for one, two in _pairs(self.works) if two.start < one.end - _RESOLUTION]

    def token_falls(self) -> list[tuple[Work, Work]]:
        """Works that follow one with a greater token."""
        return [(one, two) for one, two in _pairs(self.works) if two.token <= one.token]

    def sent_late(self) -> list[Sent]:
        """Messages of a node that was fenced: another one had begun to work for their shard, with a greater token."""
        begun: dict[str, list[Work]] = {}
        for work in self.works:
            begun.setdefault(work.key, []).append(work)
        return [
            sent
            for sent in self.sent
            if any(work.token > sent.token and work.start < sent.at - _RESOLUTION for work in begun.get(sent.key, ()))
        ]

    def at_work(self, at: float) -> dict[str, list[str]]:
        """The shards of each node at a time."""
        shards: dict[str, list[str]] = {}
        for work in self.works:
            if work.start <= at < work.end:
                shards.setdefault(work.node, []).append(work.key)
        return shards

    def gaps(self, start: float = 0.0) -> dict[str, float]:
        """The longest time, in seconds, that nobody worked for each shard, from `start` to the end."""
        free_since: dict[str, float] = {}
        longest: dict[str, float] = {}
        for work in self.works:
            since = free_since.get(work.key, start)
            longest[work.key] = max(longest.get(work.key, 0.0), work.start - since)
            free_since[work.key] = max(since, work.end)
        return {key: max(gap, self.seconds - free_since[key]) for key, gap in longest.items()}


_RESOLUTION = 1e-6
"""Seconds. The virtual loop rounds to it."""


def simulate(
    devices: Mapping[str, Collection[str]],
    runs: Iterable[Run],
    terms: Terms,
    seconds: float,
    faults: Sequence[Fault | Drain] = (),
    beat: float = math.inf,
    *,
    by_revision: bool = False,
) -> History:
    """Run a cluster in virtual time.

    Args:
        devices: what each device needs of its node, by its name.
        runs: when which node runs.
        terms: the terms of the cluster.
        seconds: how long.
        faults: what goes wrong besides, and which node is drained; and when.
        beat: seconds between two messages of a node for each of its shards; none by default.
        by_revision: whether the engine takes a write of a lease by its last revision, as JetStream does, and calls wait
            as long as those to JetStream.
    """
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(_Cluster(devices, terms, faults, beat, by_revision).run(runs, seconds))
    finally:
        loop.close()


class _Cluster:
    def __init__(
        self,
        devices: Mapping[str, Collection[str]],
        terms: Terms,
        faults: Sequence[Fault | Drain],
        beat: float,
        by_revision: bool,
    ) -> None:
        self._terms = terms
        self._by_revision = by_revision
        self._faults = [each for each in faults if not isinstance(each, Drain)]
        self._drains = [each for each in faults if isinstance(each, Drain)]
        self._beat = beat
        self._pools = pools_of({shard_of(name, needs, terms.shards) for name, needs in devices.items()})
        self._works: list[Work] = []
        self._sent: list[Sent] = []

    async def run(self, runs: Iterable[Run], seconds: float) -> History:
        engine = MemoryEngine(self._terms, self._faults, patient=self._by_revision)
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(self._run(engine, run, number)) for number, run in enumerate(runs)]
            await asyncio.sleep(seconds)
            for task in running:
                task.cancel()
        works = (part for work in self._works for part in self._awake(work))
        return History(tuple(sorted(works, key=lambda work: (work.key, work.start))), seconds, tuple(self._sent))

    async def _run(self, engine: MemoryEngine, run: Run, number: int) -> None:
        await asyncio.sleep(run.start)
        duties = _Recorded(run.node, engine, self._works)
        member = Member(run.node, str(number), run.labels)
        store = (_ByRevision if self._by_revision else _Process)(engine.store(member))
        node = ClusterNode(store, member, self._terms, self._pools, engine.clock(run.node), duties)
        loop = asyncio.get_running_loop()
        for drain in self._drains:
            if drain.node == run.node and drain.start >= run.start:
                loop.call_at(drain.start, node.drain, True)
                if math.isfinite(drain.end):
                    loop.call_at(drain.end, node.drain, False)
        task = asyncio.ensure_future(node.run())
        sender = asyncio.ensure_future(self._send(engine, run.node, node, duties))
        try:
            async with asyncio.timeout(run.end - run.start if math.isfinite(run.end) else None):
                await asyncio.shield(task)
        except TimeoutError:
            store.killed = run.killed
        finally:
            sender.cancel()
            task.cancel()
            await asyncio.wait([task])

    async def _send(self, engine: MemoryEngine, name: str, node: ClusterNode, duties: "_Recorded") -> None:
        """Publish for each shard at work, as an app does: after it has asked whether it may."""
        if math.isinf(self._beat):
            return
        while True:
            await asyncio.sleep(self._beat)
            await engine.awake(name)
            now = asyncio.get_running_loop().time()
            self._sent += [Sent(key, name, token, now) for key, token in duties.tokens() if node.allows(key)]

    def _awake(self, work: Work) -> Iterable[Work]:
        """The parts of a work in which the process of its node was not stopped."""
        start = work.start
        for fault in sorted(fault for fault in self._faults if isinstance(fault, Pause) and fault.node == work.node):
            if fault.start < work.end and fault.end > start:
                if fault.start > start:
                    yield work._replace(start=start, end=fault.start)
                start = max(start, fault.end)
        if start < work.end:
            yield work._replace(start=start)


class _Recorded:
    """The duties of a node: to note from when until when it worked."""

    def __init__(self, node: str, engine: MemoryEngine, works: list[Work]) -> None:
        self._node = node
        self._engine = engine
        self._clock = engine.clock(node)
        self._works = works
        self._begun: dict[str, tuple[int, float]] = {}

    def tokens(self) -> Iterable[tuple[str, int]]:
        """The token of each shard at work."""
        return [(key, token) for key, (token, _) in self._begun.items()]

    async def begin(self, tokens: Mapping[str, int]) -> None:
        """See `ShardCallbacks`."""
        now = self._clock.uptime()
        self._begun |= {key: (token, now) for key, token in tokens.items()}

    async def end(self, keys: Collection[str]) -> None:
        """See `ShardCallbacks`. A process that is stopped ends nothing before it goes on."""
        await self._engine.awake(self._node)
        now = self._clock.uptime()
        for key in keys:
            token, start = self._begun.pop(key)
            self._works.append(Work(key, self._node, token, start, now))


class _Process:
    """The store of a process that may be killed: from then on it says nothing to the engine, and not that it leaves."""

    def __init__(self, store: MemoryStore) -> None:
        self.killed = False
        self._store = store

    async def __aenter__(self) -> Self:
        await self._store.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if not self.killed:
            await self._store.__aexit__(*exc_info)

    async def acquire(self, keys: Iterable[str]) -> Acquired:
        """See `LeaseStore`."""
        return await self._store.acquire(keys)

    async def renew(self, leases: Iterable[Lease]) -> dict[str, Lease]:
        """See `LeaseStore`."""
        return await self._store.renew(leases)

    async def release(self, leases: Iterable[Lease]) -> None:
        """See `LeaseStore`."""
        if not self.killed:
            await self._store.release(leases)

    def restate(self, member: Member) -> None:
        """See `LeaseStore`."""
        self._store.restate(member)

    def watch(self) -> AsyncGenerator[ClusterSnapshot, None]:
        """See `LeaseStore`."""
        return self._store.watch()


class _ByRevision(_Process):
    """The store of a process whose engine wants the last revision of a lease with each write of it. A write that was
    not answered may have made a new one, which must be read before the next write. So it is with its membership."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self._unsure: set[str] = set()

    async def renew(self, leases: Iterable[Lease]) -> dict[str, Lease]:
        """See `LeaseStore`."""
        chosen = list(leases)
        return await self._write({_MEMBERSHIP, *(lease.key for lease in chosen)}, super().renew, chosen)

    async def release(self, leases: Iterable[Lease]) -> None:
        """See `LeaseStore`."""
        chosen = list(leases)
        await self._write({lease.key for lease in chosen}, super().release, chosen)

    async def _write(self, keys: set[str], call: Callable[[list[Lease]], Awaitable[T]], leases: list[Lease]) -> T:
        if keys & self._unsure:
            await self._store.members()  # the revisions are read
        self._unsure |= keys
        answer = await call(leases)
        self._unsure -= keys
        return answer


_MEMBERSHIP = "membership"
"""Stands for it among the keys of leases."""


def _pairs(works: Sequence[Work]) -> Iterable[tuple[Work, Work]]:
    """Each work of another node than the one before it, with that one. Works of one shard lie together, in order of
    time."""
    for one, two in itertools.pairwise(works):
        if one.key == two.key and one.node != two.node:
            yield one, two
