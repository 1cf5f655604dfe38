"""Guards that several handlers share: a circuit, and the retry tokens of an adapter.

A shared circuit counts **rounds**. A round has failed once each member has failed since the last round; a success of
any member ends it at once. So one dead device among eight never opens the circuit, and eight dead ones open it after
`threshold` rounds, not within the first one. Members that are not polled at the moment, because they are held or
deferred, do not delay a round.

When the circuit is open, each member skips one poll, its own next one. The first member that is due again makes the
probe for all of them.
"""

from typing import NamedTuple, Protocol

from leadsman.resilience import breaker
from leadsman.resilience.breaker import CLOSED, Circuit, CircuitBreaker, Closed, OnStrategyError, Open, Outcome, Permit


class RetryTokenBucket:
    """A budget of retries for all handlers of one adapter. A retry takes a token; a first call that succeeds returns
    one back.

    Args:
        capacity: the number of tokens at the start, and the most there can be.
    """

    __slots__ = ("capacity", "left")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.left = capacity

    def take(self) -> bool:
        """Take a token. False if none is left."""
        if self.left == 0:
            return False
        self.left -= 1
        return True

    def give_back(self) -> None:
        """Return a token, up to the capacity."""
        self.left = min(self.capacity, self.left + 1)


class Member(Protocol):
    """A handler that shares a circuit."""

    def moved(self, circuit: Circuit, *, by_hand: bool = False) -> None:
        """The shared circuit is now this one; `by_hand`: because a person wants it so."""
        ...

    def is_polled(self, now: float) -> bool:
        """Whether its polls would reach the device now if the circuit were closed."""
        ...


class SharedCircuit:
    """One circuit for several handlers."""

    __slots__ = ("_failed", "_refused", "circuit", "members", "rule")

    def __init__(self, rule: CircuitBreaker) -> None:
        self.rule = rule
        self.circuit: Circuit = CLOSED
        self.members: list[Member] = []
        self._failed: set[int] = set()
        self._refused: set[int] = set()

    def refusals(self, member: Member) -> int:
        """How many polls of a member the open circuit will still turn away."""
        circuit = self.circuit
        return circuit.refusals if isinstance(circuit, Open) and id(member) not in self._refused else 0

    def admit(self, member: Member, now: float, lease: float) -> Permit | None:
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
        self, member: Member, permit: Permit, outcome: Outcome, now: float, on_strategy_error: OnStrategyError
    ) -> None:
        """Report how an admitted cycle ended."""
        if not permit.probe and permit.generation == self.circuit.generation:
            if outcome is Outcome.SUCCEEDED:
                self._failed.clear()
            elif outcome is Outcome.FAILED:
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

    def restore(self, member: Member, circuit: Circuit) -> None:
        """Go on with the circuit that a member remembers from before a restart."""
        if isinstance(circuit, Open) and not circuit.refusals:
            self._refused.add(id(member))
            circuit = circuit._replace(refusals=breaker.refusals_of(self.rule))
        self._become(circuit)

    def _become(self, circuit: Circuit, by_hand: bool = False) -> None:
        self.circuit = circuit
        for member in self.members:
            member.moved(circuit, by_hand=by_hand)


class SharedGuards(NamedTuple):
    """The guards that one handler shares with others."""

    circuit: SharedCircuit | None = None
    tokens: RetryTokenBucket | None = None


NO_SHARED_GUARDS = SharedGuards()
"""No shared guards, as for most handlers."""
