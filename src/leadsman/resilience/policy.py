"""Retry policies. They decide whether a failed call is repeated, and after how long. Small policies are combined into
larger ones.

A policy is a value. What it remembers of an outage is its **state**, a nested tuple that JSON can represent::

    state = policy.start()
    state, verdict = policy.step(state, failure, draw)      verdict: Retry(delay) or GiveUp(reason)

Leaves decide how long to wait. Other policies wrap them, to limit, change or combine their answers::

    exponential("2s", cap="1m").max_retries(3)                     three times in a poll, 2, 4, 8 … s
    periodic("1s").max_retries(2) >> exponential("10s")            twice after a second, then 10, 20, 40 … s
    exponential("2s").only_when(prop("errno") != 19).budget("5m")  not when the device is gone; 5 min of waits in all

**Scope.** Each policy that counts does so over a ``"cycle"``, which is a poll with its retries, or over an
``"outage"``, which ends with a success. Waits grow over the outage, and `TimeBox` and `Budget` count over it;
`CountBox` and `AndThen` start again at each poll. So ``exponential("2s").max_retries(3)`` waits 2, 4, 8 | 16, 32, 60 |
60 …, as the option ``retry=3`` does.

**Requests** (`RetryRequested`) pass through: counts, filters and shapes do not change them. Only `TimeBox` and `Budget`
can refuse them.

**Laws**, where nothing is random: ``|`` and ``&`` are commutative, associative and idempotent; ``never()`` is the unit
of ``|`` and of ``>>`` and absorbs ``&``; ``immediate()`` is the unit of ``&``; ``>>`` is associative;
``p.max_retries(3).max_retries(2)`` is ``p.max_retries(2)``, and ``p.max_retries(0)`` is ``never()``.

Pure: `draw` gives uniform numbers in [0, 1), and a step with the same arguments has the same result.
"""

import functools
import math
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final, Literal, NamedTuple

from leadsman.errors import InvalidType, InvalidValue, TransientError
from leadsman.loop.durations import Duration
from leadsman.resilience.algebra import Budget, CountBox, FilteredOn, Policy, State, TimeBox, as_policy
from leadsman.resilience.backoff import (
    DEFAULT_BACKOFF,
    LONGEST,
    BackoffStrategy,
    Draw,
    ExponentialBackoff,
    FibonacciBackoff,
    FixedBackoff,
    Jittered,
    LinearBackoff,
    SequenceBackoff,
    as_backoff,
    wait_of,
)
from leadsman.resilience.failure import SHORTEST_REQUEST, Failure, RetryRequested, Scope, as_scope
from leadsman.resilience.predicate import Constant, IsA, Predicate, predicate
from leadsman.resilience.verdict import GiveUp, Retry, Verdict

__all__ = [
    "GiveUp",
    "Policy",
    "Retry",
    "as_policy",
    "exponential",
    "fibonacci",
    "immediate",
    "linear",
    "never",
    "periodic",
    "sequence",
    "strategy",
]

_AT_ONCE, _NEVER = Retry(0.0), GiveUp("never")


class _Leaf(Policy):
    """A policy without one inside, and without state."""

    __slots__ = ()

    def start(self) -> State:
        return None

    @property
    def cap(self) -> float:
        return 0.0

    def jittered_cap(self, fraction: float) -> float:
        return 0.0

    @property
    def strategy(self) -> BackoffStrategy:
        return DEFAULT_BACKOFF


class Immediate(_Leaf):
    """Retries at once."""

    __slots__ = ()

    def step(self, state: State, failure: Failure, draw: Draw) -> tuple[State, Verdict]:
        return state, _as_requested(failure, 0.0) if isinstance(failure.error, RetryRequested) else _AT_ONCE


class Never(_Leaf):
    """Gives up."""

    __slots__ = ()

    def step(self, state: State, failure: Failure, draw: Draw) -> tuple[State, Verdict]:
        if failure.request is None:
            return state, _NEVER
        return state, _as_requested(failure, DEFAULT_BACKOFF.delay(failure.attempts + 1, draw()))


class Waits(Policy):
    """Waits as long as a strategy says. State: the waits taken in the scope."""

    __slots__ = ("scope", "strategy")
    strategy: BackoffStrategy
    scope: Scope

    def __init__(self, strategy: BackoffStrategy, scope: Scope = "outage") -> None:
        self._hold(strategy=as_backoff(strategy), scope=as_scope(scope))

    def start(self) -> State:
        return (0, 0)

    def step(self, state: State, failure: Failure, draw: Draw) -> tuple[State, Verdict]:
        request = failure.error if isinstance(failure.error, RetryRequested) else None
        if request is not None and request.delay is not None:
            return state, Retry(request.delay)
        key = failure.cycle if self.scope == "cycle" else 0
        attempt = state[1] + 1 if state[0] == key else 1
        delay = wait_of(self.strategy, attempt, draw, failure.on_strategy_error)
        return (key, attempt), Retry(delay) if request is None else _as_requested(failure, delay)

    @property
    def cap(self) -> float:
        strategy = self.strategy
        if isinstance(strategy, Jittered):
            return strategy.cap
        return float(getattr(strategy, "max_delay", None) or LONGEST)

    def jittered_cap(self, fraction: float) -> float:
        asked = getattr(self.strategy, "max_delay", None)
        return self.cap if asked is not None else min(self.cap * (1 + fraction), LONGEST)


class Named(NamedTuple):
    """A policy with a name."""

    name: str
    policy: Policy
    priority: int = 0
    condition: Predicate = Constant(True)  # a value, never changed


def named_policy(name: object, policy: object, priority: object = 0, condition: object = True) -> Named:
    """See that a named policy makes sense. Raises `InvalidValue`, `InvalidType`."""
    if not isinstance(name, str) or not name.strip():
        raise InvalidType(f"the name of a policy is {name!r}; write a word such as 'gentle'")
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise InvalidType(f"the priority of {name!r} is {priority!r}; write a whole number, the highest is asked first")
    return Named(name, as_policy(policy), priority, predicate(condition))


class Lookup(Policy):
    """Stands for a policy that is known by its name, until the settings are loaded."""

    __slots__ = ("name",)
    name: str

    def __init__(self, name: str) -> None:
        self._hold(name=name)


class Choice(Policy):
    """The first of several named policies whose predicate matches the failure. State: that of each of them."""

    __slots__ = ("among",)
    among: tuple[Named, ...]

    def __init__(self, among: Iterable[Named]) -> None:
        self._hold(among=tuple(sorted(among, key=lambda each: (-each.priority, each.name))))

    def start(self) -> State:
        return tuple(each.policy.start() for each in self.among)

    def step(self, state: State, failure: Failure, draw: Draw) -> tuple[State, Verdict]:
        for number, each in enumerate(self.among):
            if each.condition.answer(failure) is True:
                inner, verdict = each.policy.step(state[number], failure, draw)
                return (*state[:number], inner, *state[number + 1 :]), verdict
        if failure.request is None:
            return state, GiveUp("filtered")
        return state, Never().step(None, failure, draw)[1]

    @property
    def cap(self) -> float:
        return max((each.policy.cap for each in self.among), default=0.0)

    def jittered_cap(self, fraction: float) -> float:
        return max((each.policy.jittered_cap(fraction) for each in self.among), default=0.0)

    def pause(self, failure: Failure) -> float | None:
        for each in self.among:
            if each.condition.answer(failure) is True:
                return each.policy.pause(failure)
        return None

    @property
    def strategy(self) -> BackoffStrategy:
        return self.among[0].policy.strategy if self.among else DEFAULT_BACKOFF


def immediate() -> Policy:
    """Retry at once. Limit it: a device whose calls fail at once is called again and again."""
    return Immediate()


def never() -> Policy:
    """Never retry."""
    return Never()


def periodic(delay: Duration, scope: Scope = "outage") -> Policy:
    """Wait `delay` before every retry."""
    return Waits(FixedBackoff(delay, jitter=0), scope)


def exponential(
    base: Duration = 2.0, factor: float = 2.0, cap: Duration | None = 60.0, scope: Scope = "outage"
) -> Policy:
    """``min(base · factor^(n-1), cap)`` before retry n; a cap of None is ten years."""
    return Waits(ExponentialBackoff(base, LONGEST if cap is None else cap, factor=factor, jitter=0), scope)


def linear(step: Duration = 2.0, cap: Duration | None = 60.0, scope: Scope = "outage") -> Policy:
    """``min(step · n, cap)`` before retry n; a cap of None is ten years."""
    return Waits(LinearBackoff(step, LONGEST if cap is None else cap, jitter=0), scope)


def fibonacci(first: Duration, second: Duration, cap: Duration | None = 60.0, scope: Scope = "outage") -> Policy:
    """`first`, `second`, and then the sum of the two before, up to `cap`; a cap of None is ten years."""
    return Waits(FibonacciBackoff(first, second, LONGEST if cap is None else cap, jitter=0), scope)


def sequence(delays: Sequence[Duration], then: Literal["last", "stop"] = "last", scope: Scope = "outage") -> Policy:
    """Use these waits one after the other; then repeat the last one, or stop retrying."""
    if then not in ("last", "stop"):
        raise InvalidValue(f"then is {then!r}; it must be 'last' or 'stop'")
    waits = Waits(SequenceBackoff(delays, jitter=0), scope)
    return waits if then == "last" else CountBox(len(delays), waits, scope)


def strategy(backoff: BackoffStrategy, scope: Scope = "outage") -> Policy:
    """Any object with ``delay(attempt) -> seconds`` as a policy."""
    return Waits(backoff, scope)


def _as_requested(failure: Failure, delay: float) -> Retry:
    """The retry that a handler requested: after its own delay, or after this one, but not at once."""
    request = failure.request
    given = None if request is None else request.delay
    return Retry(max(SHORTEST_REQUEST, delay) if given is None else given)


# Converts the retry options of a decorator, ``retry``, ``retry_on``, ``backoff``, ``budget`` and ``within``, into one
# policy.

DEFAULT_RETRY_ON: tuple[type[Exception], ...] = (OSError, TransientError)
"""The errors that are retried by default, together with the adapter's `transient_errors`. `TimeoutError` is an
`OSError`."""


class Until(Enum):
    """The type of `UNTIL_NEXT_POLL`."""

    NEXT_POLL = "until the next poll"


UNTIL_NEXT_POLL: Final = Until.NEXT_POLL
"""For ``retry``: retry as often as the backoff allows until the next poll is due, whatever the interval."""


@functools.lru_cache(maxsize=256)
def _compile(
    retries: int | Until, kinds: tuple[type[Exception], ...], backoff: BackoffStrategy, budget: float, within: float
) -> Policy:
    inner: Policy = Waits(backoff, "outage")
    if math.isfinite(budget):
        inner = Budget(budget, inner)
    if math.isfinite(within):
        inner = TimeBox(within, inner)
    inner = FilteredOn(IsA(*kinds), inner)
    return inner if isinstance(retries, Until) else CountBox(retries, inner)


def from_options(
    retries: int | Until = 0,
    kinds: Iterable[type[Exception]] = DEFAULT_RETRY_ON,
    backoff: BackoffStrategy = DEFAULT_BACKOFF,
    budget: float = math.inf,
    within: float = math.inf,
) -> Policy:
    """Convert the retry options of a decorator into a policy. Equal options return the same object, so that a thousand
    devices share one."""
    try:
        return _compile(retries, tuple(kinds), backoff, budget, within)  # type: ignore[arg-type]  # see below
    except TypeError:  # somebody's strategy that is no key
        return _compile.__wrapped__(retries, tuple(kinds), backoff, budget, within)


class RetryOptions(NamedTuple):
    """What `from_options` takes."""

    retries: int | Until
    kinds: tuple[type[Exception], ...]
    backoff: BackoffStrategy
    budget: float = math.inf
    within: float = math.inf


def options_of(policy: Policy) -> RetryOptions | None:
    """The options that `from_options` converts into this policy; None if there are none."""
    retries: int | Until = UNTIL_NEXT_POLL
    if isinstance(policy, CountBox) and policy.scope == "cycle":
        retries, policy = policy.limit, policy.inner
    if not isinstance(policy, FilteredOn) or not isinstance(policy.condition, IsA):
        return None
    kinds, policy = policy.condition.kinds, policy.inner
    within = budget = math.inf
    if isinstance(policy, TimeBox) and policy.scope == "outage":
        within, policy = policy.limit, policy.inner
    if isinstance(policy, Budget) and policy.scope == "outage":
        budget, policy = policy.limit, policy.inner
    if not isinstance(policy, Waits) or policy.scope != "outage":
        return None
    return RetryOptions(retries, kinds, policy.strategy, budget, within)


ONCE = from_options()
"""No retries."""
