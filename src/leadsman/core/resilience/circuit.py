"""The circuit of a handler, and the circuit that several handlers share.

`CircuitGuard` joins `leadsman.core.resilience.breaker`, which only decides, to the clock, the events and one handler.
If the breaker names a circuit that several handlers share, the guard asks that one, and is one of its members.

A shared circuit counts **rounds**. A round has failed once each member has failed since the last round; a success of
any member ends it at once. So one dead device among eight never opens the circuit, and eight dead ones open it after
`threshold` rounds, not within the first one. Members that are not polled at the moment, because they are held or
deferred, do not delay a round.

When the circuit is open, each member skips one poll, its own next one. Then the **probes go round**, because a member
may be dead while the bus works. The first member that is due again makes a probe. If it succeeds, the circuit closes
for all. If it fails, the circuit opens again for that member alone, and the next probe is of another one, at that
one's next poll. Once all have failed, the circuit opens again for all of them. Meanwhile a member that has failed may
probe again after its own rest, so a member that is polled once a day holds nobody up; but that probe keeps no member
away that failed longer ago, or not yet. So each member of `n` is turned away `n` times at most for the probes of
others.
"""

import math
from typing import NamedTuple

from leadsman.core.events import CircuitMoved
from leadsman.core.loop.durations import NEVER
from leadsman.core.resilience import breaker
from leadsman.core.resilience.breaker import (
    CLOSED,
    Circuit,
    CircuitBreaker,
    CircuitWord,
    Closed,
    CycleOutcome,
    Disabled,
    HalfOpen,
    Isolated,
    OnStrategyError,
    Open,
    Permit,
)
from leadsman.core.resilience.decision import Document
from leadsman.core.resilience.environment import Caller, Environment, Snapshot
from leadsman.core.resilience.failure import RetryRequested, matches
from leadsman.errors import NoFreeThread, NoTurn

PASS = Permit(0, 0, probe=False)
"""The permit of a circuit that has never moved."""

_COUNTING = CircuitBreaker(2**31)
"""The breaker of a handler without one, while a person has isolated or disabled its circuit. It never opens."""
_UNOPENED = (Closed, Disabled)
"""In these states a circuit has no opening to report."""


class CircuitGuard:
    """Admits the cycles of one handler and counts their outcomes.

    Args:
        entity: the name of the handler, for events.
        rule: the handler's breaker, if it has one.
        environment: clock and events.
        shared: the circuit that the handler shares with others, if any.
        caller: is informed when the circuit is isolated.
    """

    __slots__ = ("_caller", "_environment", "_rule", "_shared", "deferred_until", "entity", "held", "state")

    def __init__(
        self,
        entity: str,
        rule: CircuitBreaker | None,
        environment: Environment,
        shared: "SharedCircuit | None",
        caller: Caller | None,
    ) -> None:
        self.state: Circuit = CLOSED
        self.deferred_until = NEVER
        """No cycle is admitted before this time, because the device asked for a pause; monotonic seconds."""
        self.entity = entity
        self.held = False
        """Whether the handler is held: no cycle is requested until a person releases it."""
        self._rule = rule
        self._environment = environment
        self._shared = shared
        self._caller = caller
        if shared is not None:
            shared.members.append(self)

    @property
    def name(self) -> CircuitWord:
        """``closed``, ``open``, ``half_open``, ``isolated`` or ``disabled``."""
        return breaker.name_of(self.state)

    @property
    def isolated(self) -> bool:
        """Whether the circuit is isolated."""
        return isinstance(self.state, Isolated)

    @property
    def refusals(self) -> int:
        """How many polls the open circuit will still turn away before it admits a probe."""
        if not isinstance(self.state, Open):
            return 0
        return self.state.refusals if self._shared is None else self._shared.refusals(self)

    def snapshot(self, attempts: int, waits: int) -> Snapshot:
        """The state of the handler, which made `attempts` calls in this cycle and `waits` retries since a success."""
        circuit, opened_at, until, opens = self.state, None, None, 0
        if not isinstance(circuit, _UNOPENED):
            opened_at, opens = circuit.since, circuit.opens
        if isinstance(circuit, Open) and math.isfinite(circuit.until):
            until = circuit.until
        deferred = self.deferred_until if self.deferred_until > self._environment.clock.monotonic() else None
        probes = {} if self._shared is None else self._shared.failed_probes
        return Snapshot(
            self.name, circuit.failures, opened_at, until, opens, self.refusals, attempts, waits, deferred, probes
        )

    def is_polled(self, now: float) -> bool:
        """Whether its polls would reach the device now if the circuit were closed."""
        return not self.held and now >= self.deferred_until

    def admit(self, lease: float) -> Permit | None:
        """Ask for permission to run a cycle. A probe may hold its permit for `lease` seconds."""
        now = self._environment.clock.monotonic()
        if now < self.deferred_until:
            return None
        if self.state is CLOSED:
            return PASS
        if self._shared is not None:
            return self._shared.admit(self, now, lease)
        circuit, permit = breaker.admit(self._rule or _COUNTING, self.state, now, lease)
        self.moved(circuit)
        return permit

    def outcome_of(self, error: BaseException) -> CycleOutcome:
        """How a cycle that ended with this error counts."""
        if not isinstance(error, Exception) or isinstance(error, RetryRequested | NoFreeThread | NoTurn):
            return CycleOutcome.NEUTRAL
        ignored = self._rule is not None and matches(error, self._rule.ignore)
        return CycleOutcome.NEUTRAL if ignored else CycleOutcome.FAILED

    def settle(self, permit: Permit, outcome: CycleOutcome, on_strategy_error: OnStrategyError) -> None:
        """Report how an admitted cycle ended. `on_strategy_error` is called if the strategy of `recovery` raises."""
        if self._rule is None and self.state is CLOSED:
            return
        now = self._environment.clock.monotonic()
        if self._shared is not None:
            self._shared.settle(self, permit, outcome, now, on_strategy_error)
        else:
            self.moved(breaker.settle(self._rule or _COUNTING, self.state, permit, outcome, now, on_strategy_error))

    def isolate(self) -> None:
        """Admit no cycle until `close` or `disable` is called, because a person works at the device."""
        self._set(breaker.isolate(self.state, self._environment.clock.monotonic()))

    def close(self) -> None:
        """Close the circuit and end a deferral."""
        self.deferred_until = NEVER
        self._set(breaker.close(self.state))

    def disable(self) -> None:
        """Admit every cycle, whatever fails, until `close` or `isolate` is called."""
        self._set(breaker.disable(self.state))

    def _set(self, circuit: Circuit) -> None:
        if self._shared is not None:
            self._shared.move(circuit, by_hand=True)
        else:
            self.moved(circuit, by_hand=True)

    def moved(self, circuit: Circuit, *, by_hand: bool = False) -> None:
        """Store the new circuit, and emit an event if its state changed, with whether a person changed it."""
        before, self.state = self.state, circuit
        if type(before) is not type(circuit):
            self._environment.events.emit(CircuitMoved(self.entity, self.name, circuit.failures, by_hand=by_hand))
            if self.isolated and self._caller is not None:
                self._caller.isolated()

    def to_json(self, now: float) -> dict[str, object]:
        """The circuit and the deferral as JSON-compatible values; empty if there is nothing to keep."""
        found: dict[str, object] = {}
        circuit = self.state
        if isinstance(circuit, Open):
            circuit = circuit._replace(refusals=self.refusals)
        if (kept := breaker.to_json(circuit, now)) is not None:
            found["circuit"] = kept
        if self._shared is not None and (failed_at := self._shared.failed_at(self)) is not None:
            found["probe_failed"] = now - failed_at
        if self.deferred_until > now:
            found["deferred"] = self.deferred_until - now
        return found

    def leave(self) -> None:
        """The handler is no longer run: others that share its circuit do not wait for it."""
        if self._shared is not None:
            self._shared.leave(self)

    def restore(self, document: Document, now: float, away: float) -> None:
        """Go on with what `to_json` returned `away` seconds ago.

        Raises:
            TypeError, ValueError: the document was not made by `to_json`.
        """
        circuit = breaker.from_json(document["circuit"], now, away) if "circuit" in document else None
        if circuit is not None and self._shared is not None:
            failed = document.get("probe_failed")
            self._shared.restore(self, circuit, None if failed is None else now - float(failed) - away)
        elif circuit is not None:
            self.moved(circuit)
        if "deferred" in document:
            self.deferred_until = now + float(document["deferred"]) - away


class _Rest(NamedTuple):
    """How long the circuit stays open for a member whose probe failed at `at`, monotonic seconds, while others have not
    made theirs."""

    circuit: Open
    at: float


class SharedCircuit:
    """One circuit for several handlers."""

    __slots__ = ("_failed", "_probing", "_refused", "_rests", "_waiting", "circuit", "failed_probes", "members", "rule")

    def __init__(self, rule: CircuitBreaker) -> None:
        self.rule = rule
        self.circuit: Circuit = CLOSED
        """The circuit of the members that have not failed a probe in this round of probes."""
        self.members: list[CircuitGuard] = []
        self.failed_probes: dict[str, int] = {}
        """The members that have failed probes since the circuit opened, and how many."""
        self._failed: set[CircuitGuard] = set()  # in this round of polls, while it is closed
        self._refused: set[CircuitGuard] = set()  # those that the open circuit has turned away
        self._rests: dict[CircuitGuard, _Rest] = {}  # those that have failed in this round of probes
        self._probing: dict[int, CircuitGuard] = {}  # whose the probes under way are, by their numbers
        self._waiting: set[CircuitGuard] = set()  # those that were turned away because of the probe of another

    def refusals(self, member: CircuitGuard) -> int:
        """How many polls of a member the open circuit will still turn away."""
        if member in self._rests:
            return self._rests[member].circuit.refusals
        if member in self._refused or not isinstance(self.circuit, Open | HalfOpen):
            return 0
        return self.circuit.refusals if isinstance(self.circuit, Open) else breaker.refusals_of(self.rule)

    def failed_at(self, member: CircuitGuard) -> float | None:
        """When a member failed its probe, monotonic seconds; None if others have not waited for that."""
        rest = self._rests.get(member)
        return None if rest is None else rest.at

    def admit(self, member: CircuitGuard, now: float, lease: float) -> Permit | None:
        """Ask for permission to run a cycle; see `leadsman.core.resilience.breaker.admit`."""
        circuit = self.circuit
        rest = self._rests[member].circuit if member in self._rests else circuit
        if (isinstance(rest, Open) and now < rest.until) or self._turned_away(member):
            return None
        if isinstance(circuit, Open):
            circuit = circuit._replace(refusals=0)
        last = self._last_failure(member)
        later = {number for number, other in self._probing.items() if self._last_failure(other) > last}
        circuit, permit = breaker.admit(self.rule, circuit, now, lease, later)
        self.move(circuit)
        if permit is None:
            self._waiting.add(member)
        elif permit.probe:
            self._waiting.discard(member)
            self._probing[permit.number] = member
            member.moved(circuit)
        return permit

    def settle(
        self,
        member: CircuitGuard,
        permit: Permit,
        outcome: CycleOutcome,
        now: float,
        on_strategy_error: OnStrategyError,
    ) -> None:
        """Report how an admitted cycle ended."""
        if permit.generation != self.circuit.generation:
            return
        if permit.probe:
            self._probing.pop(permit.number, None)
            if outcome is CycleOutcome.FAILED:
                self._probe_failed(member, permit, now, on_strategy_error)
                return
        elif outcome is CycleOutcome.SUCCEEDED:
            self._failed.clear()
        elif outcome is CycleOutcome.FAILED:
            self._failed.add(member)
            if any(each not in self._failed and each.is_polled(now) for each in self.members):
                return
            self._failed.clear()
        self.move(breaker.settle(self.rule, self.circuit, permit, outcome, now, on_strategy_error))

    def move(self, circuit: Circuit, *, by_hand: bool = False) -> None:
        """Set the circuit of all members; `by_hand`: because a person wants it so."""
        if circuit is self.circuit:
            return
        if not isinstance(circuit, Closed):
            self._failed.clear()
        if not isinstance(circuit, HalfOpen):
            self._rests.clear()
            self._probing.clear()
            self._waiting.clear()
            self._refused.clear()
        if not isinstance(circuit, HalfOpen | Open):
            self.failed_probes = {}
        self._become(circuit, by_hand)

    def leave(self, member: CircuitGuard) -> None:
        """A member is no longer run."""
        if member in self.members:
            self.members.remove(member)
        for each in (self._failed, self._refused, self._waiting):
            each.discard(member)
        self._rests.pop(member, None)

    def restore(self, member: CircuitGuard, circuit: Circuit, failed_at: float | None) -> None:
        """Go on with the circuit that a member remembers from before a restart, and when it failed its probe, if
        others had not made theirs."""
        if isinstance(circuit, Open) and failed_at is not None:
            self._rests[member] = _Rest(circuit, failed_at)
            self.failed_probes = {**self.failed_probes, member.entity: 1}
            member.moved(circuit)
            if self.circuit is CLOSED:  # others may know more of it
                self._become(HalfOpen(circuit.generation, circuit.failures, circuit.since, circuit.opens))
            return
        if isinstance(circuit, Open) and not circuit.refusals:
            self._refused.add(member)
            circuit = circuit._replace(refusals=breaker.refusals_of(self.rule))
        self._become(circuit)

    def _probe_failed(
        self, member: CircuitGuard, permit: Permit, now: float, on_strategy_error: OnStrategyError
    ) -> None:
        """The circuit opens again: for this member as long as others have not made their probe, else for all."""
        circuit = self.circuit
        if not isinstance(circuit, HalfOpen) or permit.number not in (number for number, _ in circuit.out):
            return  # it came too late
        out = tuple(each for each in circuit.out if each[0] != permit.number)
        busy = {self._probing[number] for number, until in out if until > now and number in self._probing}
        others = {each for each in self.members if each not in self._rests and each.is_polled(now)} | busy
        others.discard(member)
        opens = circuit.opens
        if others and member in self._rests:
            opens = self._rests[member].circuit.opens
        elif not others:  # a quick member may have failed several times
            opens = max([opens, *(rest.circuit.opens - 1 for rest in self._rests.values())])
        opened = breaker.settle(
            self.rule, circuit._replace(opens=opens), permit, CycleOutcome.FAILED, now, on_strategy_error
        )
        name, failed = member.entity, self.failed_probes
        self.failed_probes = {**failed, name: failed.get(name, 0) + 1}
        if not others or not isinstance(opened, Open):
            self.move(opened)
            return
        if self.rule.recovery != 0:  # one more for each that waits, so that they do not all probe at once
            opened = opened._replace(refusals=opened.refusals + len(self._waiting.intersection(others)))
        self._rests[member] = _Rest(opened, now)
        self._refused.discard(member)
        member.moved(opened)
        self._become(circuit._replace(out=out, failures=circuit.failures + 1))

    def _turned_away(self, member: CircuitGuard) -> bool:
        """Whether the open circuit turns this poll of a member away, which it counts."""
        refusals = self.refusals(member)
        rest = self._rests.get(member)
        if not refusals:
            return False
        if rest is None:
            self._refused.add(member)
        else:
            rest = rest._replace(circuit=rest.circuit._replace(refusals=refusals - 1))
            self._rests[member] = rest
            member.moved(rest.circuit)
        return True

    def _last_failure(self, member: CircuitGuard) -> float:
        return self._rests[member].at if member in self._rests else NEVER

    def _become(self, circuit: Circuit, by_hand: bool = False) -> None:
        self.circuit = circuit
        for member in self.members:
            if member not in self._rests:
                member.moved(circuit, by_hand=by_hand)
