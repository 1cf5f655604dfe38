"""What handlers have in common: a circuit that they share, and the tokens that their adapter allows for retries.

A shared circuit counts **rounds**. A round is over, and has failed, once each member has failed since the last round; a
success of any of them ends it at once. So one dead device among eight never opens the circuit, and eight dead ones open it
after `threshold` rounds, not inside the first one. When it is open, one member makes the probe for all.
"""

from typing import NamedTuple, Protocol

from leadsman.resilience import breaker
from leadsman.resilience.breaker import CLOSED, Circuit, CircuitBreaker, Closed, Open, Outcome, Permit


class Tokens:
    """A budget of retries for all handlers of one adapter: a retry takes a token, a first call that succeeds brings one back.

    Args:
        capacity: tokens at the start, and at the most.
    """

    __slots__ = ("capacity", "left")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.left = capacity

    def take(self) -> bool:
        """Take one, if there is any."""
        if self.left == 0:
            return False
        self.left -= 1
        return True

    def give_back(self) -> None:
        """Bring one back, unless all are there."""
        self.left = min(self.capacity, self.left + 1)


class Member(Protocol):
    """Who shares a circuit."""

    def moved(self, circuit: Circuit) -> None:
        """The circuit that all share is now this one."""
        ...

    def faulty(self, strategy: object, error: Exception) -> None:
        """Somebody's strategy broke."""
        ...


class Shared:
    """One circuit for several handlers."""

    __slots__ = ("_failed", "circuit", "members", "rule")

    def __init__(self, rule: CircuitBreaker) -> None:
        self.rule = rule
        self.circuit: Circuit = CLOSED
        self.members: list[Member] = []
        self._failed: set[int] = set()

    def admit(self, now: float, lease: float) -> Permit | None:
        """Ask for leave to run a cycle; see `leadsman.resilience.breaker.admit`."""
        circuit, permit = breaker.admit(self.rule, self.circuit, now, lease)
        self.move(circuit)
        return permit

    def settle(self, member: Member, permit: Permit, outcome: Outcome, now: float) -> None:
        """Report how an admitted cycle ended."""
        if not permit.probe and permit.generation == self.circuit.generation:
            if outcome is Outcome.SUCCEEDED:
                self._failed.clear()
            elif outcome is Outcome.FAILED:
                self._failed.add(id(member))
                if len(self._failed) < len(self.members):
                    return
                self._failed.clear()
        self.move(breaker.settle(self.rule, self.circuit, permit, outcome, now, member.faulty))

    def move(self, circuit: Circuit) -> None:
        """Make it this circuit for all members. One that opens turns away each of them once, where it goes by polls."""
        if circuit is self.circuit:
            return
        if isinstance(circuit, Open) and not isinstance(self.circuit, Open) and circuit.refusals:
            circuit = circuit._replace(refusals=len(self.members))
        if not isinstance(circuit, Closed):
            self._failed.clear()
        self.circuit = circuit
        for member in self.members:
            member.moved(circuit)


class Ties(NamedTuple):
    """What one handler has in common with others."""

    shared: Shared | None = None
    tokens: Tokens | None = None


NO_TIES = Ties()
"""Nothing: what most handlers have in common."""
