"""The circuit of a handler, and the circuit that several handlers share.

`CircuitGuard` joins `leadsman.resilience.breaker`, which only decides, to the clock, the events and one handler. If the
breaker names a circuit that several handlers share, the guard asks that one, and is one of its members.

A shared circuit counts **rounds**. A round has failed once each member has failed since the last round; a success of
any member ends it at once. So one dead device among eight never opens the circuit, and eight dead ones open it after
`threshold` rounds, not within the first one. Members that are not polled at the moment, because they are held or
deferred, do not delay a round.

When the circuit is open, each member skips one poll, its own next one. The first member that is due again makes the
probe for all of them.
"""

import math

from leadsman.errors import NoFreeThread
from leadsman.events import CircuitMoved
from leadsman.resilience import breaker
from leadsman.resilience.breaker import (
    CLOSED,
    Circuit,
    CircuitBreaker,
    CircuitWord,
    Closed,
    CycleOutcome,
    Disabled,
    Isolated,
    OnStrategyError,
    Open,
    Permit,
)
from leadsman.resilience.decision import Document
from leadsman.resilience.environment import Caller, Environment, Snapshot
from leadsman.resilience.failure import RetryRequested, matches

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

    __slots__ = ("_caller", "_entity", "_environment", "_rule", "_shared", "deferred_until", "held", "state")

    def __init__(
        self,
        entity: str,
        rule: CircuitBreaker | None,
        environment: Environment,
        shared: "SharedCircuit | None",
        caller: Caller | None,
    ) -> None:
        self.state: Circuit = CLOSED
        self.deferred_until = -math.inf
        """No cycle is admitted before this time, because the device asked for a pause; monotonic seconds."""
        self.held = False
        """Whether the handler is held: no cycle is requested until a person releases it."""
        self._entity = entity
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
        return Snapshot(self.name, circuit.failures, opened_at, until, opens, self.refusals, attempts, waits, deferred)

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
        if not isinstance(error, Exception) or isinstance(error, RetryRequested | NoFreeThread):
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
        self.deferred_until = -math.inf
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
            self._environment.events.emit(CircuitMoved(self._entity, self.name, circuit.failures, by_hand=by_hand))
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
        if self.deferred_until > now:
            found["deferred"] = self.deferred_until - now
        return found

    def restore(self, document: Document, now: float, away: float) -> None:
        """Go on with what `to_json` returned `away` seconds ago.

        Raises:
            TypeError, ValueError: the document was not made by `to_json`.
        """
        circuit = breaker.from_json(document["circuit"], now, away) if "circuit" in document else None
        if circuit is not None and self._shared is not None:
            self._shared.restore(self, circuit)
        elif circuit is not None:
            self.moved(circuit)
        if "deferred" in document:
            self.deferred_until = now + float(document["deferred"]) - away


class SharedCircuit:
    """One circuit for several handlers."""

    __slots__ = ("_failed", "_refused", "circuit", "members", "rule")

    def __init__(self, rule: CircuitBreaker) -> None:
        self.rule = rule
        self.circuit: Circuit = CLOSED
        self.members: list[CircuitGuard] = []
        self._failed: set[int] = set()
        self._refused: set[int] = set()

    def refusals(self, member: CircuitGuard) -> int:
        """How many polls of a member the open circuit will still turn away."""
        circuit = self.circuit
        return circuit.refusals if isinstance(circuit, Open) and id(member) not in self._refused else 0

    def admit(self, member: CircuitGuard, now: float, lease: float) -> Permit | None:
        """Ask for permission to run a cycle; see `leadsman.resilience.breaker.admit`."""
        circuit = self.circuit
        if isinstance(circuit, Open) and now >= circuit.until:
            if self.refusals(member):
                self._refused.add(id(member))
                return None
            circuit = circuit._replace(refusals=0)
        circuit, permit = breaker.admit(self.rule, circuit, now, lease)
        self.move(circuit)
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
        if not permit.probe and permit.generation == self.circuit.generation:
            if outcome is CycleOutcome.SUCCEEDED:
                self._failed.clear()
            elif outcome is CycleOutcome.FAILED:
                self._failed.add(id(member))
                if any(id(each) not in self._failed and each.is_polled(now) for each in self.members):
                    return
                self._failed.clear()
        self.move(breaker.settle(self.rule, self.circuit, permit, outcome, now, on_strategy_error))

    def move(self, circuit: Circuit, *, by_hand: bool = False) -> None:
        """Set the circuit of all members; `by_hand`: because a person wants it so."""
        if circuit is self.circuit:
            return
        if not isinstance(circuit, Closed):
            self._failed.clear()
        self._refused.clear()
        self._become(circuit, by_hand)

    def restore(self, member: CircuitGuard, circuit: Circuit) -> None:
        """Go on with the circuit that a member remembers from before a restart."""
        if isinstance(circuit, Open) and not circuit.refusals:
            self._refused.add(id(member))
            circuit = circuit._replace(refusals=breaker.refusals_of(self.rule))
        self._become(circuit)

    def _become(self, circuit: Circuit, by_hand: bool = False) -> None:
        self.circuit = circuit
        for member in self.members:
            member.moved(circuit, by_hand=by_hand)
