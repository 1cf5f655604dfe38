"""The circuit breaker: its states as values, and permits whose outcomes cannot be counted too late.

=============  =====================================================  ==========================================
state          which cycles are admitted                              what ends it
=============  =====================================================  ==========================================
`Closed`       every cycle                                            `threshold` failed cycles in a row → `Open`
`Open`         none, for exactly one poll, or until a time            the next poll after it → `HalfOpen`
`HalfOpen`     one cycle of one call, no retries: the *probe*         a success → `Closed`; a failure → `Open`
`Isolated`     none                                                   a request of a person
`Disabled`     every cycle; failures are only counted                 a request of a person
=============  =====================================================  ==========================================

The breaker counts **cycles**: a poll with all its retries is one failure. A permit carries the generation of the state
that issued it; an outcome of an older generation is ignored. In half-open, a permit also has a lease: if a probe does
not report before its lease ends, another one may begin, so half-open always ends.

There are three outcomes, not two. *Neutral* is neither success nor failure: the cycle was cancelled, or failed with
an error that the user declared neutral. It returns the permit.

Pure: `now` is monotonic seconds, and reading a state never changes it.
"""

import math
from collections.abc import Callable, Container
from datetime import timedelta
from enum import Enum
from typing import Literal, NamedTuple

from leadsman.core.loop.durations import Duration, seconds, whole
from leadsman.core.resilience.backoff import BackoffStrategy, as_backoff, wait_of
from leadsman.core.resilience.failure import exception_types, ignore_error
from leadsman.core.value import Value
from leadsman.errors import InvalidType, at_key

OnStrategyError = Callable[[object, Exception], None]
"""Called with a user's strategy that raised, and with its error."""


class CircuitBreaker(Value):
    """The specification of a circuit breaker. It holds no state: each handler that uses it has a state of its own.

    Args:
        threshold: failed cycles in a row that open the circuit, 1 or more.
        recovery: how long the circuit stays open. None: for exactly one poll. A duration: until the first poll at or
            after it. 0: no poll is skipped, but each makes one call, without retries. A strategy such as
            ``ExponentialBackoff("5m", "2h")``: its wait, without jitter, for the number of openings since the last
            success.
        ignore: exception types that are neutral: neither a success nor a failure.
        shared: a name; all handlers with a breaker of this name share one circuit. It counts rounds, in which each of
            them failed and none succeeded. One probe is made for all.

    Raises:
        InvalidValue, InvalidType: at construction.
    """

    __slots__ = ("ignore", "recovery", "shared", "threshold")
    threshold: int
    recovery: float | BackoffStrategy | None
    ignore: tuple[type[Exception], ...]
    shared: str | None

    def __init__(
        self,
        threshold: int = 5,
        *,
        recovery: Duration | BackoffStrategy | None = None,
        ignore: type[Exception] | tuple[type[Exception], ...] = (),
        shared: str | None = None,
    ) -> None:
        with at_key("threshold"):
            whole(threshold, "threshold", 1)
        with at_key("recovery"):
            pause = _recovery(recovery)
        self._hold(
            threshold=threshold,
            recovery=pause,
            ignore=exception_types(ignore, "ignore") if ignore != () else (),
            shared=_name(shared),
        )

    def open_for(self, opens: int, on_strategy_error: OnStrategyError = ignore_error) -> float:
        """Seconds that the circuit stays open for the `opens`-th time since the last success. Minus infinity if polls
        are counted instead, or if none is skipped. If a strategy raises, `on_strategy_error` is called, and the default
        strategy is used."""
        if self.recovery is None or self.recovery == 0:
            return -math.inf
        if isinstance(self.recovery, float):
            return self.recovery
        return wait_of(self.recovery, opens, None, on_strategy_error)


def _name(value: object) -> str | None:
    if value is None or (isinstance(value, str) and value.strip()):
        return value
    raise InvalidType(f"shared is {value!r}; write a name such as 'serial'").at("shared")


def _recovery(value: object) -> float | BackoffStrategy | None:
    if value is None or isinstance(value, str | int | float | timedelta):
        return None if value is None else seconds(value, "recovery")
    return as_backoff(value, "recovery")


class CycleOutcome(Enum):
    """How an admitted cycle ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    NEUTRAL = "neutral"


class Permit(NamedTuple):
    """Permission to run one cycle. `number` distinguishes the probes of one generation."""

    generation: int
    number: int
    probe: bool


class Closed(NamedTuple):
    """All cycles pass; `failures` failed in a row."""

    generation: int = 0
    failures: int = 0


class Open(NamedTuple):
    """No cycle passes before `until` and until `refusals` more polls were turned away. `opens`: openings since the last
    success. Times are monotonic seconds."""

    generation: int
    failures: int
    since: float
    opens: int
    refusals: int = 1
    until: float = -math.inf


class HalfOpen(NamedTuple):
    """`out` maps the number of each probe under way to the end of its lease. There are several only where handlers
    share the circuit."""

    generation: int
    failures: int
    since: float
    opens: int
    out: tuple[tuple[int, float], ...] = ()
    issued: int = 0


class Isolated(NamedTuple):
    """No cycle is admitted, because a person requested that."""

    generation: int
    failures: int
    since: float
    opens: int = 0


class Disabled(NamedTuple):
    """All cycles are admitted, because a person requested that; `failures` failed in a row."""

    generation: int
    failures: int = 0


Circuit = Closed | Open | HalfOpen | Isolated | Disabled
CLOSED = Closed()
CircuitWord = Literal["closed", "open", "half_open", "isolated", "disabled"]
"""The state of a circuit; the last two are the work of a person."""
_NAMES: dict[type, CircuitWord] = {
    Closed: "closed",
    Open: "open",
    HalfOpen: "half_open",
    Isolated: "isolated",
    Disabled: "disabled",
}


def name_of(circuit: Circuit) -> CircuitWord:
    """``closed``, ``open``, ``half_open``, ``isolated`` or ``disabled``, as in the heartbeat and the logs."""
    return _NAMES[type(circuit)]


def admit(
    rule: CircuitBreaker, circuit: Circuit, now: float, lease: float, yielding: Container[int] = ()
) -> tuple[Circuit, Permit | None]:
    """Request permission to run one cycle at `now`; `lease` is how long a probe may hold its permit, in seconds.
    `yielding`: the numbers of probes under way beside which one more may begin."""
    match circuit:
        case Closed() | Disabled():
            return circuit, Permit(circuit.generation, 0, probe=False)
        case Isolated():
            return circuit, None
        case Open(until=until) if now < until:
            return circuit, None
        case Open(refusals=refusals) if refusals > 0:
            return circuit._replace(refusals=refusals - 1), None
        case Open():
            half_open = HalfOpen(circuit.generation + 1, circuit.failures, circuit.since, circuit.opens)
            return admit(rule, half_open, now, lease)
        case HalfOpen():
            out = tuple(permit for permit in circuit.out if permit[1] > now)
            if any(number not in yielding for number, _ in out):
                return circuit, None
            number = circuit.issued
            return (
                circuit._replace(out=(*out, (number, now + lease)), issued=number + 1),
                Permit(circuit.generation, number, probe=True),
            )


def settle(
    rule: CircuitBreaker,
    circuit: Circuit,
    permit: Permit,
    outcome: CycleOutcome,
    now: float,
    on_strategy_error: OnStrategyError = ignore_error,
) -> Circuit:
    """The circuit after an admitted cycle ended. A permit of an older generation, or one that was returned before,
    changes nothing. If the strategy of `recovery` raises, `on_strategy_error` is called."""
    if permit.generation != circuit.generation:
        return circuit
    match circuit, outcome:
        case Closed(), CycleOutcome.SUCCEEDED | CycleOutcome.FAILED:
            failures = circuit.failures + 1 if outcome is CycleOutcome.FAILED else 0
            if failures < rule.threshold:
                return circuit._replace(failures=failures) if failures != circuit.failures else circuit
            until = now + rule.open_for(1, on_strategy_error)
            return Open(circuit.generation + 1, failures, now, 1, refusals_of(rule), until)
        case Disabled(), CycleOutcome.SUCCEEDED | CycleOutcome.FAILED:
            return circuit._replace(failures=circuit.failures + 1 if outcome is CycleOutcome.FAILED else 0)
        case HalfOpen(), _ if permit.number in (number for number, _ in circuit.out):
            return _settle_probe(rule, circuit, permit, outcome, now, on_strategy_error)
    return circuit


def unchanging(circuit: Circuit) -> Permit | None:
    """A permit for any number of cycles, if a success leaves the circuit as it is; None if it would change it."""
    if isinstance(circuit, Closed) and not circuit.failures:
        return Permit(circuit.generation, 0, probe=False)
    return None


def isolate(circuit: Circuit, now: float) -> Circuit:
    """Admit no cycle until a person closes or disables the circuit."""
    return Isolated(circuit.generation + 1, circuit.failures, now)


def close(circuit: Circuit) -> Circuit:
    """The circuit as after a success."""
    return Closed(circuit.generation + 1)


def disable(circuit: Circuit) -> Circuit:
    """Admit every cycle until a person closes or isolates the circuit."""
    return Disabled(circuit.generation + 1, circuit.failures)


def to_json(circuit: Circuit, now: float) -> tuple[object, ...] | None:
    """The circuit as JSON-compatible values, with durations in place of points in time; None if nothing failed."""
    match circuit:
        case Closed(failures=failures):
            return ("closed", failures) if failures else None
        case Open():
            remaining = circuit.until - now if math.isfinite(circuit.until) else None
            return ("open", circuit.failures, now - circuit.since, circuit.opens, circuit.refusals, remaining)
        case HalfOpen():  # its probes end with the process
            return ("open", circuit.failures, now - circuit.since, circuit.opens, 0, None)
        case Isolated():
            return ("isolated", circuit.failures, now - circuit.since)
        case Disabled():
            return ("disabled", circuit.failures)


def from_json(value: object, now: float, away: float) -> Circuit:
    """The circuit of which `to_json` made `value`, `away` seconds later. Raises `ValueError` for any other value."""
    match value:
        case ["closed", int(failures)]:
            return Closed(1, failures)
        case ["open", int(failures), float(age), int(opens), int(refusals), None | float() as remaining]:
            until = -math.inf if remaining is None else now + remaining - away
            return Open(1, failures, now - age - away, opens, refusals, until)
        case ["isolated", int(failures), float(age)]:
            return Isolated(1, failures, now - age - away)
        case ["disabled", int(failures)]:
            return Disabled(1, failures)
    raise ValueError("it is not a circuit")


def refusals_of(rule: CircuitBreaker) -> int:
    """How many polls a circuit turns away after it has opened."""
    return 1 if rule.recovery is None else 0


def _settle_probe(
    rule: CircuitBreaker,
    circuit: HalfOpen,
    permit: Permit,
    outcome: CycleOutcome,
    now: float,
    on_strategy_error: OnStrategyError,
) -> Circuit:
    out = tuple(probe for probe in circuit.out if probe[0] != permit.number)
    match outcome:
        case CycleOutcome.NEUTRAL:
            return circuit._replace(out=out)
        case CycleOutcome.FAILED:
            failures, opens = circuit.failures + 1, circuit.opens + 1
            until = now + rule.open_for(opens, on_strategy_error)
            return Open(circuit.generation + 1, failures, circuit.since, opens, refusals_of(rule), until)
        case CycleOutcome.SUCCEEDED:
            return Closed(circuit.generation + 1)
