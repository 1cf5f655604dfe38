"""The circuit breaker: three states as values, and permits that cannot come back too late.

=============  =====================================================  ==========================================
state          who is admitted                                        what ends it
=============  =====================================================  ==========================================
`Closed`       every cycle                                            `threshold` failed cycles in a row → `Open`
`Open`         nobody, for exactly one poll                           the next poll after it → `HalfOpen`
`HalfOpen`     up to `probes` cycles of one call each, no retries     `successes` of them → `Closed`; a failure → `Open`
=============  =====================================================  ==========================================

The breaker counts **cycles**: a poll with all its retries is one failure. A permit carries the generation of the state
that issued it; an outcome from an older generation counts for nothing. In half-open a permit also has a lease: a probe
that never reports gives its place back when the lease ends, so half-open always ends.

There are three outcomes, not two. *Abandoned* is neither success nor failure: the cycle was cancelled, or failed with
something the user declared neutral. It hands the permit back.

Pure: `now` is monotonic seconds, and asking a state never moves it.
"""

from enum import Enum
from typing import NamedTuple

from leadsman.errors import InvalidType, InvalidValue
from leadsman.resilience.failure import exception_types
from leadsman.value import Value


class CircuitBreaker(Value):
    """The specification of a breaker. It holds no state: every handler that it is given to gets its own.

    Args:
        threshold: failed cycles in a row that open the circuit, 1 or more.
        probes: cycles admitted at the same time in half-open, 1 or more.
        successes: probes that must succeed before the circuit closes, 1 or more.
        ignore: exception types that are neutral: neither a success nor a failure.

    Raises:
        InvalidValue, InvalidType: at construction.
    """

    __slots__ = ("ignore", "probes", "successes", "threshold")
    threshold: int
    probes: int
    successes: int
    ignore: tuple[type[Exception], ...]

    def __init__(
        self,
        threshold: int = 5,
        *,
        probes: int = 1,
        successes: int = 1,
        ignore: type[Exception] | tuple[type[Exception], ...] = (),
    ) -> None:
        for name, value in (("threshold", threshold), ("probes", probes), ("successes", successes)):
            if isinstance(value, bool) or not isinstance(value, int):
                raise InvalidType(f"{name} is {value!r}; it must be a whole number")
            if value < 1:
                raise InvalidValue(f"{name} is {value!r}; it must be 1 or more")
        ignored = exception_types(ignore, "ignore") if ignore != () else ()
        self._hold(threshold=threshold, probes=probes, successes=successes, ignore=ignored)


class Outcome(Enum):
    """How an admitted cycle ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    ABANDONED = "abandoned"


class Permit(NamedTuple):
    """Leave to run one cycle. `number` tells the probes of one generation apart."""

    generation: int
    number: int
    probe: bool


class Closed(NamedTuple):
    """All cycles pass; `failures` failed in a row."""

    generation: int = 0
    failures: int = 0


class Open(NamedTuple):
    """No cycle passes until `refusals` more polls were turned away. `opens`: openings since the last success."""

    generation: int
    failures: int
    since: float
    opens: int
    refusals: int = 1


class HalfOpen(NamedTuple):
    """`out` maps the number of each probe under way to the end of its lease."""

    generation: int
    failures: int
    since: float
    opens: int
    out: tuple[tuple[int, float], ...] = ()
    issued: int = 0
    succeeded: int = 0


Circuit = Closed | Open | HalfOpen
CLOSED = Closed()
_NAMES: dict[type, str] = {Closed: "closed", Open: "open", HalfOpen: "half_open"}


def name_of(circuit: Circuit) -> str:
    """``closed``, ``open`` or ``half_open``, as the heartbeat and the logs say it."""
    return _NAMES[type(circuit)]


def admit(rule: CircuitBreaker, circuit: Circuit, now: float, lease: float) -> tuple[Circuit, Permit | None]:
    """Ask leave to run one cycle at `now`; `lease` seconds is how long a probe may hold its permit."""
    match circuit:
        case Closed():
            return circuit, Permit(circuit.generation, 0, probe=False)
        case Open(refusals=refusals) if refusals > 0:
            return circuit._replace(refusals=refusals - 1), None
        case Open():
            half_open = HalfOpen(circuit.generation + 1, circuit.failures, circuit.since, circuit.opens)
            return admit(rule, half_open, now, lease)
        case HalfOpen():
            held = tuple(permit for permit in circuit.out if permit[1] > now)
            if len(held) >= rule.probes:
                return circuit, None
            number = circuit.issued
            return (
                circuit._replace(out=(*held, (number, now + lease)), issued=number + 1),
                Permit(circuit.generation, number, probe=True),
            )


def settle(rule: CircuitBreaker, circuit: Circuit, permit: Permit, outcome: Outcome, now: float) -> Circuit:
    """Report how an admitted cycle ended. A permit of an older generation, or one handed back before, changes nothing."""
    if permit.generation != circuit.generation:
        return circuit
    match circuit, outcome:
        case Closed(), Outcome.SUCCEEDED:
            return circuit if circuit.failures == 0 else Closed(circuit.generation)
        case Closed(), Outcome.FAILED:
            failures = circuit.failures + 1
            if failures < rule.threshold:
                return Closed(circuit.generation, failures)
            return Open(circuit.generation + 1, failures, since=now, opens=1)
        case HalfOpen(), _ if permit.number in (number for number, _ in circuit.out):
            return _settle_probe(rule, circuit, permit, outcome)
    return circuit


def _settle_probe(rule: CircuitBreaker, circuit: HalfOpen, permit: Permit, outcome: Outcome) -> Circuit:
    out = tuple(held for held in circuit.out if held[0] != permit.number)
    match outcome:
        case Outcome.ABANDONED:
            return circuit._replace(out=out)
        case Outcome.FAILED:
            return Open(circuit.generation + 1, circuit.failures + 1, circuit.since, circuit.opens + 1)
        case Outcome.SUCCEEDED:
            succeeded = circuit.succeeded + 1
            if succeeded >= rule.successes:
                return Closed(circuit.generation + 1)
            return circuit._replace(out=out, succeeded=succeeded)
