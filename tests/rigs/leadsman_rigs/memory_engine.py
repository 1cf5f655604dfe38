"""Leases in memory, for tests in virtual time: an engine, and for each node a store whose network,
process and clock fail by a script.

Faults are functions of time: what a node, its network, its clock or the engine suffers, and when. All times are seconds
of the loop's clock, which is zero at the start of a virtual loop.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from typing import NamedTuple, Self, TypeVar

from leadsman.core.loop.clock import Clock, system_clock
from leadsman.errors import LeaseStoreUnreachable
from leadsman.extensions.nodes.lease.lease import Lease, Member, Terms, check_keys
from leadsman.extensions.nodes.lease.store import Acquired, ClusterSnapshot


class Partition(NamedTuple):
    """A node and the engine do not reach each other."""

    node: str
    start: float
    end: float
    answers_only: bool = False
    """The engine gets what the node sends, and only the answers are lost."""


class Pause(NamedTuple):
    """The process of a node is stopped, as by SIGSTOP or by a virtual machine that is moved."""

    node: str
    start: float
    end: float


class EngineAway(NamedTuple):
    """The engine is down, and comes back with all that it had."""

    start: float
    end: float


class ClockStep(NamedTuple):
    """A wall clock is set, forward or, when negative, back."""

    at: float
    by: float
    """Seconds."""
    node: str = ""
    """The node whose clock it is; that of the engine without one."""


Fault = Partition | Pause | EngineAway | ClockStep


class Script:
    """A list of faults, asked by time."""

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        self._faults = tuple(faults)

    def request_lost(self, node: str, now: float) -> bool:
        """Whether a request that the node sends now does not arrive."""
        return any(isinstance(fault, EngineAway) or not fault.answers_only for fault in self._cuts(node, now))

    def answer_lost(self, node: str, now: float) -> bool:
        """Whether an answer that the engine sends to the node now does not arrive."""
        return next(iter(self._cuts(node, now)), None) is not None

    def resumes_at(self, node: str, now: float) -> float:
        """When the process of the node goes on; `now` unless it is stopped."""
        goes_on = now
        for fault in sorted(fault for fault in self._faults if isinstance(fault, Pause)):
            if fault.node == node and fault.start <= goes_on < fault.end:
                goes_on = fault.end
        return goes_on

    def clock_offset(self, node: str, now: float) -> float:
        """By how many seconds the wall clock of a node was set until now; that of the engine for the empty string."""
        steps = (fault for fault in self._faults if isinstance(fault, ClockStep))
        return sum(fault.by for fault in steps if fault.node == node and fault.at <= now)

    def _cuts(self, node: str, now: float) -> Iterator[Partition | EngineAway]:
        for fault in self._faults:
            if isinstance(fault, ClockStep | Pause) or not fault.start <= now < fault.end:
                continue
            if isinstance(fault, EngineAway) or fault.node == node:
                yield fault


T = TypeVar("T")

DELAY = 0.001
"""Seconds that a request takes to the engine, and an answer back: that of a local network."""
_MIN_SLEEP_SECONDS = 0.001
"""Seconds; a shorter one may not let virtual time pass at all."""


class _Row(NamedTuple):
    lease: Lease
    until: float


class LeaseTable:
    """What an engine keeps of one cluster: who has which key until when, and who is a member.

    It is the meaning of `LeaseStore` without a network. Every call takes `now`, the clock of the engine in seconds,
    and asking never changes anything. A lease counts while ``now < until``.

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

    def snapshot(self, now: float) -> ClusterSnapshot:
        """The leases and members that count at `now`."""
        leases = {key: row.lease for key, row in self._rows.items() if now < row.until}
        members = [member for member, until in self._members.values() if now < until]
        return ClusterSnapshot(leases, tuple(sorted(members, key=lambda member: (member.node, member.run))))

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


def timeout_of(terms: Terms) -> float:
    """Seconds after which a call that is not answered ends: a quarter of the TTL and at most 5, so that a node calls
    several times before it must stop."""
    return min(5.0, terms.ttl / 4)


class MemoryEngine:
    """The engine of one cluster.

    Args:
        terms: the terms of the cluster.
        faults: what goes wrong, and when.
        delay: seconds that a request takes to the engine, and an answer back.
        patient: calls wait as long as those to NATS, until the node must stop; else see `timeout_of`.
    """

    def __init__(
        self, terms: Terms, faults: Iterable[Fault] = (), delay: float = DELAY, *, patient: bool = False
    ) -> None:
        self.terms = terms
        self.timeout = terms.patience if patient else timeout_of(terms)
        self.delay = delay
        self.table = LeaseTable(terms.ttl)
        self.script = Script(faults)
        self._changed = asyncio.Event()
        self._watchers = 0
        self._timer: asyncio.TimerHandle | None = None

    def store(self, member: Member, terms: Terms | None = None) -> "MemoryStore":
        """The store of one node. `terms`: those of the node, if they differ from the engine's."""
        return MemoryStore(self, member, terms or self.terms)

    def now(self) -> float:
        """The engine's clock, in seconds."""
        at = asyncio.get_running_loop().time()
        return at + self.script.clock_offset("", at)

    def clock(self, node: str) -> Clock:
        """The clocks of a node. The script sets its wall clock."""
        real = system_clock(asyncio.get_running_loop())
        return Clock(
            real.monotonic, lambda: real.wall() + self.script.clock_offset(node, real.monotonic()), real.uptime
        )

    async def awake(self, node: str) -> None:
        """Wait while the process of a node is stopped. The code of a simulated node calls it before whatever a stopped
        process cannot do; its store does so by itself."""
        now = asyncio.get_running_loop().time()
        resumes = self.script.resumes_at(node, now)
        if resumes > now:
            await asyncio.sleep(resumes - now)

    def delete(self, key: str) -> None:
        """Delete a lease, as a person does by hand."""
        self.table.delete(key)
        self.changed()

    def changed(self) -> None:
        """Wake all watchers."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def change(self) -> None:
        """Wait until a lease or a member has come or gone."""
        self._watchers += 1
        if self._timer is None:
            self._sweep()
        try:
            await self._changed.wait()
        finally:
            self._watchers -= 1

    def _sweep(self) -> None:
        """Find what is over. While somebody watches, this is done when the next lease ends, and at least four times in
        a TTL since the clock may be set."""
        self._timer = None
        if not self._watchers:
            return
        now = self.now()
        if self.table.sweep(now):
            self.changed()
        end = self.table.next_end()
        until_end = self.terms.ttl if end is None else max(end - now, _MIN_SLEEP_SECONDS)
        self._timer = asyncio.get_running_loop().call_later(min(until_end, self.terms.ttl / 4), self._sweep)


class MemoryStore:
    """One node's access to a `MemoryEngine`: a `LeaseStore`."""

    def __init__(self, engine: MemoryEngine, member: Member, terms: Terms) -> None:
        self._engine = engine
        self._member = member
        self._terms = terms

    async def __aenter__(self) -> Self:
        where = f"the engine of cluster {self._engine.terms.cluster!r}"
        await self._call(lambda _: self._terms.compare(self._engine.terms.document(), where))
        await self.renew(())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        try:
            await self._call(lambda _: self._engine.table.leave(self._member))
        except LeaseStoreUnreachable:
            return  # the membership ends by itself
        self._engine.changed()

    async def acquire(self, keys: Iterable[str]) -> Acquired:
        """See `LeaseStore.acquire`."""
        chosen = check_keys(keys)
        return await self._call(lambda now: self._acquire(chosen, now))

    async def renew(self, leases: Iterable[Lease]) -> dict[str, Lease]:
        """See `LeaseStore.renew`."""
        chosen = list(leases)
        return await self._call(lambda now: self._renew(chosen, now))

    async def release(self, leases: Iterable[Lease]) -> None:
        """See `LeaseStore.release`."""
        chosen = list(leases)
        await self._call(lambda now: self._release(chosen, now))

    async def members(self) -> tuple[Member, ...]:
        """The nodes that renewed within the last TTL, sorted by node, then by run."""
        return (await self._call(self._engine.table.snapshot)).members

    def restate(self, member: Member) -> None:
        """See `LeaseStore.restate`."""
        self._member = member

    async def watch(self) -> AsyncGenerator[ClusterSnapshot, None]:
        """See `LeaseStore.watch`."""
        before = None
        while True:
            change = asyncio.ensure_future(self._engine.change())
            try:
                snapshot = await self._call(self._engine.table.snapshot)
                if snapshot != before:
                    before = snapshot
                    yield snapshot
                await change
            finally:
                change.cancel()

    def _acquire(self, keys: list[str], now: float) -> Acquired:
        answer = self._engine.table.acquire(keys, self._member.owner, now)
        if answer.granted:
            self._engine.changed()
        return answer

    def _renew(self, leases: list[Lease], now: float) -> dict[str, Lease]:
        before = self._engine.table.is_member(self._member, now)
        renewed = self._engine.table.renew(leases, self._member, now)
        if not before:
            self._engine.changed()
        return renewed

    def _release(self, leases: list[Lease], now: float) -> None:
        self._engine.table.release(leases, self._member.owner, now)
        self._engine.changed()

    async def _call(self, apply: Callable[[float], T]) -> T:
        """Send a request, and wait for its answer.

        A node that is stopped gets the answer when it goes on, however late: the worst case for its owner.
        """
        node, engine = self._member.node, self._engine
        loop = asyncio.get_running_loop()
        await engine.awake(node)
        sent = loop.time()
        await asyncio.sleep(engine.delay)
        if engine.script.request_lost(node, loop.time()):
            raise await self._timed_out(sent)
        answer = apply(engine.now())
        await asyncio.sleep(engine.delay)
        if engine.script.answer_lost(node, loop.time()):
            raise await self._timed_out(sent)
        await engine.awake(node)
        return answer

    async def _timed_out(self, sent: float) -> LeaseStoreUnreachable:
        await asyncio.sleep(sent + self._engine.timeout - asyncio.get_running_loop().time())
        await self._engine.awake(self._member.node)
        return LeaseStoreUnreachable(
            f"the engine of cluster {self._terms.cluster!r} did not answer within {self._engine.timeout:g} s; check"
            " that it runs, and that this machine reaches it"
        )
