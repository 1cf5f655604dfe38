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
``"outage"``, which
ends with a success. Waits grow over the outage, and `TimeBox` and `Budget` count over it; `CountBox` and `AndThen`
start again
at each poll. So ``exponential("2s").max_retries(3)`` waits 2, 4, 8 | 16, 32, 60 | 60 …, as the option ``retry=3`` does.

**Requests** (`RetryRequested`) pass through: counts, filters and shapes do not change them. Only `TimeBox` and
`Budget` can
refuse them.

**Laws**, where nothing is random: ``|`` and ``&`` are commutative, associative and idempotent; ``never()`` is the unit
of
``|`` and of ``>>`` and absorbs ``&``; ``immediate()`` is the unit of ``&``; ``>>`` is associative;
``p.max_retries(3).max_retries(2)`` is ``p.max_retries(2)``, and ``p.max_retries(0)`` is ``never()``.

Pure: `draw` gives uniform numbers in [0, 1), and a step with the same arguments has the same result.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from leadsman.errors import InvalidType, InvalidValue
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
    fraction_of,
    jittered,
    wait_of,
)
from leadsman.resilience.failure import SHORTEST_REQUEST, Failure, RetryRequested
from leadsman.resilience.predicate import Predicate, predicate
from leadsman.timing.durations import Duration, seconds
from leadsman.value import Value

Scope = Literal["cycle", "outage"]
State = Any
"""None, a number, or a nested tuple of them: what a policy remembers."""


class Retry(NamedTuple):
    """Call again after `delay` seconds."""

    delay: float


class GiveUp(NamedTuple):
    """The poll has failed. `reason`: ``count``, ``time``, ``budget``, ``filtered`` or ``never``; of the runner, ``next-poll``,
    ``probe``, ``tokens``, ``deferred``, ``isolated`` or ``fault``."""

    reason: str


Verdict = Retry | GiveUp

REASONS: Mapping[str, str] = {
    "count": "gave up: no retries left",
    "filtered": "gave up: errors of this kind are not retried; see retry_on or the policy",
    "next-poll": "the next poll tries again",
    "budget": "gave up: the budget is used up",
    "time": "gave up: the time is up",
    "probe": "the probe failed",
    "tokens": "gave up: the adapter has no retries left",
    "never": "gave up: the policy is never",
    "deferred": "deferred, as the device asked",
    "isolated": "gave up: the circuit was isolated by hand",
    "fault": "gave up: the policy itself failed",
}
"""What a reason means, for a person."""

_AT_ONCE = Retry(0.0)
_COUNT, _TIME, _BUDGET, _FILTERED, _NEVER = (GiveUp(why) for why in ("count", "time", "budget", "filtered", "never"))


class Policy(Value):
    """Decides about failed calls. Immutable; one object may serve any number of handlers."""

    __slots__ = ()

    def start(self) -> State:
        """What is remembered before the first failure of an outage."""
        raise NotImplementedError

    def step(self, state: State, failure: Failure, draw: Draw) -> tuple[State, Verdict]:
        """Decide about one failed call; answers what is remembered after it, and the verdict."""
        raise NotImplementedError

    @property
    def cap(self) -> float:
        """No wait is longer, in seconds; a wait that was requested may be."""
        raise NotImplementedError

    def jittered_cap(self, fraction: float) -> float:
        """The cap once waits are spread by `fraction`: the one that was asked for, or so much more than `cap` where none was."""
        return self.cap

    @property
    def strategy(self) -> BackoffStrategy:
        """Of the first leaf: how long to wait where nobody asks whether to."""
        raise NotImplementedError

    def max_retries(self, limit: int, scope: Scope = "cycle") -> "Policy":
        """At most `limit` retries in a poll, or in an outage; 0 allows none."""
        return CountBox(limit, self, scope)

    def within(self, limit: Duration, scope: Scope = "outage") -> "Policy":
        """No retry starts later than `limit` after the first failure; the time of the calls is counted."""
        return TimeBox(limit, self, scope)

    def budget(self, limit: Duration, scope: Scope = "outage") -> "Policy":
        """No retry whose wait would make the sum of all waits exceed `limit`."""
        return Budget(limit, self, scope)

    def clamp(self, low: Duration = 0.0, high: Duration = LONGEST) -> "Policy":
        """Limit each wait to between `low` and `high`."""
        return Clamp(low, high, self)

    def plus(self, delay: Duration) -> "Policy":
        """Add `delay` to each wait."""
        return AddDelay(delay, self)

    def jitter(self, fraction: float = 0.2, mode: str = "symmetric", cap: Duration | None = None) -> "Policy":
        """Randomise the waits; see `Jitter`."""
        return Jitter(fraction, self, mode, cap)

    def only_when(self, condition: Predicate | bool) -> "Policy":
        """Give up unless `condition` holds for the failure."""
        return FilteredOn(condition, self)

    def __rshift__(self, other: object) -> "Policy":
        """Use this policy until it gives up, then `other`, in the same step."""
        return AndThen(self, as_policy(other))

    def __or__(self, other: object) -> "Policy":
        """Retry if either policy would, after the shorter wait."""
        return Union(self, as_policy(other))

    def __and__(self, other: object) -> "Policy":
        """Retry if both policies would, after the longer wait."""
        return Intersect(self, as_policy(other))


class _Leaf(Policy):
    __slots__ = ()

    def start(self) -> State:
        return None


class Immediate(_Leaf):
    """At once."""

    __slots__ = ()

    def step(self, state: State, failure: Failure, draw: Draw) -> tuple[State, Verdict]:
        return state, _requested(failure, 0.0) if isinstance(failure.error, RetryRequested) else _AT_ONCE

    @property
    def cap(self) -> float:
        return 0.0

    @property
    def strategy(self) -> BackoffStrategy:
        return DEFAULT_BACKOFF


class Never(_Leaf):
    """Gives up."""

    __slots__ = ()

    def step(self, state: State, failure: Failure, draw: Draw) -> tuple[State, Verdict]:
        if not isinstance(failure.error, RetryRequested):
            return state, _NEVER
        return state, _requested(failure, DEFAULT_BACKOFF.delay(failure.attempts + 1, draw()))

    @property
    def cap(self) -> float:
        return 0.0

    @property
    def strategy(self) -> BackoffStrategy:
        return DEFAULT_BACKOFF


class Waits(Policy):
    """As long as a strategy says. State: the waits taken in the scope."""

    __slots__ = ("scope", "strategy")
    strategy: BackoffStrategy
    scope: Scope

    def __init__(self, strategy: BackoffStrategy, scope: Scope = "outage") -> None:
        self._hold(strategy=as_backoff(strategy), scope=_scope(scope))

    def start(self) -> State:
        return (0, 0)

    def step(self, state: State, failure: Failure, draw: Draw) -> tuple[State, Verdict]:
        request = failure.error if isinstance(failure.error, RetryRequested) else None
        if request is not None and request.delay is not None:
            return state, Retry(request.delay)
        key = failure.cycle if self.scope == "cycle" else 0
        attempt = state[1] + 1 if state[0] == key else 1
        delay = wait_of(self.strategy, attempt, draw, failure.on_strategy_error)
        return (key, attempt), Retry(delay) if request is None else _requested(failure, delay)

    @property
    def cap(self) -> float:
        strategy = self.strategy
        if isinstance(strategy, Jittered):
            return strategy.cap
        return float(getattr(strategy, "max_delay", None) or LONGEST)

    def jittered_cap(self, fraction: float) -> float:
        asked = getattr(self.strategy, "max_delay", None)
        return self.cap if asked is not None else min(self.cap * (1 + fraction), LONGEST)


class _Wrapper(Policy):
    """What has one policy inside."""

    __slots__ = ()
    inner: Policy

    @property
    def cap(self) -> float:
        return self.inner.cap

    def jittered_cap(self, fraction: float) -> float:
        return self.inner.jittered_cap(fraction)

    @property
    def strategy(self) -> BackoffStrategy:
        return self.inner.strategy


class CountBox(_Wrapper):
    """At most `limit` granted retries per scope. State: how many were granted, and the inner state."""

    __slots__ = ("inner", "limit", "scope")
    limit: int
    scope: Scope

    def __init__(self, limit: int, inner: Policy, scope: Scope = "cycle") -> None:
        if isinstance(limit, bool) or not isinstance(limit, int):
            raise InvalidType(f"max_retries is {limit!r}; it must be a whole number of retries")
        if limit < 0:
            raise InvalidValue(f"max_retries is {limit}; it must be 0 or more")
        self._hold(limit=limit, inner=as_policy(inner), scope=_scope(scope))

    def start(self) -> State:
        return ((0, 0), self.inner.start())

    def step(self, state: State, failure: Failure, draw: Draw) -> tuple[State, Verdict]:
        if isinstance(failure.error, RetryRequested):
            inner, verdict = self.inner.step(state[1], failure, draw)
            return (state[0], inner), verdict
        (began, granted), inner = state
        key = failure.cycle if self.scope == "cycle" else 0
        if began != key:
            granted = 0
        if granted >= self.limit:
            return ((key, granted), inner), _COUNT
        inner, verdict = self.inner.step(inner, failure, draw)
        if type(verdict) is Retry:
            granted += 1
        return ((key, granted), inner), verdict


class TimeBox(_Wrapper):
    """Gives up once `limit` seconds have passed since the first failure it saw in its scope, and already when the retry
    would start later. State: when that failure was, in seconds of the outage; and the inner state."""

    __slots__ = ("inner", "limit", "scope")
    limit: float
    scope: Scope

    def __init__(self, limit: Duration, inner: Policy, scope: Scope = "outage") -> None:
        self._hold(limit=seconds(limit, "within"), inner=as_policy(inner), scope=_scope(scope))

    def start(self) -> State:
        return ((0, None), self.inner.start())

    def step(self, state: State, failure: Failure, draw: Draw) -> tuple[State, Verdict]:
        (began, since), inner = state
        key = failure.cycle if self.scope == "cycle" else 0
        if began != key or since is None:
            since = failure.elapsed
        spent = failure.elapsed - since
        if spent >= self.limit:
            return ((key, since), inner), _TIME
        after, verdict = self.inner.step(inner, failure, draw)
        if type(verdict) is Retry and spent + verdict.delay > self.limit:
            return ((key, since), inner), _TIME
        return ((key, since), after), verdict


class Budget(_Wrapper):
    """Gives up when the waits so far and the next one would exceed `limit` seconds; calls do not count. After a restart of
    the app it is used up, too, once `limit` has passed since the first failure. State: the sum of waits, and the inner state."""

    __slots__ = ("inner", "limit", "scope")
    limit: float
    scope: Scope

    def __init__(self, limit: Duration, inner: Policy, scope: Scope = "outage") -> None:
        self._hold(limit=seconds(limit, "budget"), inner=as_policy(inner), scope=_scope(scope))

    def start(self) -> State:
        return ((0, 0.0), self.inner.start())

    def step(self, state: State, failure: Failure, draw: Draw) -> tuple[State, Verdict]:
        (began, slept), inner = state
        key = failure.cycle if self.scope == "cycle" else 0
        if began != key:
            slept = 0.0
        if failure.resumed and self.scope == "outage" and failure.elapsed >= self.limit:
            return state, _BUDGET
        after, verdict = self.inner.step(inner, failure, draw)
        if type(verdict) is not Retry:
            return ((key, slept), after), verdict
        if slept + verdict.delay > self.limit:
            return ((key, slept), inner), _BUDGET
        return ((key, slept + verdict.delay), after), verdict


class Clamp(_Wrapper):
    """Waits between `low` and `high` seconds. State: the inner one."""

    __slots__ = ("high", "inner", "low")
    low: float
    high: float

    def __init__(self, low: Duration, high: Duration, inner: Policy) -> None:
        bottom, top = _duration(low, "clamp's low end"), _duration(high, "clamp's high end")
        if bottom > top:
            raise InvalidValue(f"clamp goes from {low!r} to {high!r}; the low end comes first")
        self._hold(low=bottom, high=top, inner=as_policy(inner))

    def start(self) -> State:
        return self.inner.start()

    def step(self, state: State, failure: Failure, draw: Draw) -> tuple[State, Verdict]:
        state, verdict = self.inner.step(state, failure, draw)
        if type(verdict) is Retry and not isinstance(failure.error, RetryRequested):
            if verdict.delay < self.low:
                return state, Retry(self.low)
            if verdict.delay > self.high:
                return state, Retry(self.high)
        return state, verdict

    @property
    def cap(self) -> float:
        return min(max(self.inner.cap, self.low), self.high)

    def jittered_cap(self, fraction: float) -> float:
        return min(max(self.inner.jittered_cap(fraction), self.low), self.high)


class AddDelay(_Wrapper):
    """Waits longer by `delay` seconds, up to ten years. State: the inner one."""

    __slots__ = ("delay", "inner")
    delay: float

    def __init__(self, delay: Duration, inner: Policy) -> None:
        self._hold(delay=_duration(delay, "the added delay"), inner=as_policy(inner))

    def start(self) -> State:
        return self.inner.start()

    def step(self, state: State, failure: Failure, draw: Draw) -> tuple[State, Verdict]:
        state, verdict = self.inner.step(state, failure, draw)
        if type(verdict) is Retry and not isinstance(failure.error, RetryRequested):
            return state, Retry(min(verdict.delay + self.delay, LONGEST))
        return state, verdict

    @property
    def cap(self) -> float:
        return min(self.inner.cap + self.delay, LONGEST)

    def jittered_cap(self, fraction: float) -> float:
        return min(self.inner.jittered_cap(fraction) + self.delay * (1 + fraction), LONGEST)


class Jitter(_Wrapper):
    """Spreads a wait d by chance.

    ================  =========================================  =============================================
    mode              drawn from, within [0, cap]                the cap, where none is given
    ================  =========================================  =============================================
    ``symmetric``     d·(1 - fraction) to d·(1 + fraction)       that of the policy inside, where it was given one
    ``add``           d to d·(1 + fraction)                      none: `fraction` more than the longest wait inside
    ``full``          0 to d                                     that of the policy inside
    ``equal``         d/2 to d                                   that of the policy inside
    ``decorrelated``  d to three times the wait before,          60 s
                      at first to three times d
    ================  =========================================  =============================================

    So `exponential`, `linear` and `fibonacci` keep their cap, and ``periodic(10)`` is spread from 8 to 12 s. State: the inner
    one; ``decorrelated`` has the wait before it. ``full``, ``equal`` and ``decorrelated`` are those of M. Brooker,
    "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
    """

    __slots__ = ("ceiling", "fraction", "inner", "mode")
    fraction: float
    mode: str
    ceiling: float

    def __init__(self, fraction: float, inner: Policy, mode: str = "symmetric", cap: Duration | None = None) -> None:
        if mode not in _MODES:
            raise InvalidValue(f"the mode of jitter is {mode!r}; it must be one of {', '.join(_MODES)}")
        part, within = fraction_of(fraction), as_policy(inner)
        ceiling = widest(within, part, mode) if cap is None else _duration(cap, "the cap of jitter")
        self._hold(fraction=part, inner=within, mode=mode, ceiling=ceiling)

    def start(self) -> State:
        return (0.0, self.inner.start()) if self.mode == "decorrelated" else self.inner.start()

    def step(self, state: State, failure: Failure, draw: Draw) -> tuple[State, Verdict]:
        if self.mode == "decorrelated":
            return self._decorrelated(state, failure, draw)
        state, verdict = self.inner.step(state, failure, draw)
        if type(verdict) is not Retry or isinstance(failure.error, RetryRequested):
            return state, verdict
        wait, ceiling, u = verdict.delay, self.ceiling, draw()
        match self.mode:
            case "symmetric":
                wait = jittered(wait, self.fraction, ceiling, u)
            case "add":
                wait = min(wait, ceiling) + (min(wait * (1 + self.fraction), ceiling) - min(wait, ceiling)) * u
            case "full":
                wait = min(wait, ceiling) * u
            case _:
                wait = min(wait, ceiling) * (0.5 + u / 2)
        return state, Retry(wait)

    def _decorrelated(self, state: State, failure: Failure, draw: Draw) -> tuple[State, Verdict]:
        before, inner = state
        inner, verdict = self.inner.step(inner, failure, draw)
        if type(verdict) is not Retry or isinstance(failure.error, RetryRequested):
            return (before, inner), verdict
        low = min(verdict.delay, self.ceiling)
        wait = low + max(0.0, min(3 * (before or low), self.ceiling) - low) * draw()
        return (wait, inner), Retry(wait)

    @property
    def cap(self) -> float:
        return self.ceiling

    def jittered_cap(self, fraction: float) -> float:
        return self.ceiling


def widest(inner: Policy, fraction: float, mode: str) -> float:
    """No draw of a jitter without a cap of its own is longer."""
    match mode:
        case "symmetric":
            return inner.jittered_cap(fraction)
        case "add":
            return min(inner.cap * (1 + fraction), LONGEST)
        case "decorrelated":
            return 60.0
        case _:
            return inner.cap


_MODES = ("symmetric", "add", "full", "equal", "decorrelated")


class FilteredOn(_Wrapper):
    """Gives up on failures for which `condition` is not known to hold; what is inside does not see those. State: the inner one."""

    __slots__ = ("condition", "inner")
    condition: Predicate

    def __init__(self, condition: Predicate | bool, inner: Policy) -> None:
        self._hold(condition=predicate(condition), inner=as_policy(inner))

    def start(self) -> State:
        return self.inner.start()

    def step(self, state: State, failure: Failure, draw: Draw) -> tuple[State, Verdict]:
        if not isinstance(failure.error, RetryRequested) and self.condition.answer(failure) is not True:
            return state, _FILTERED
        return self.inner.step(state, failure, draw)


class _Pair(Policy):
    __slots__ = ()
    left: Policy
    right: Policy

    @property
    def cap(self) -> float:
        return max(self.left.cap, self.right.cap)

    def jittered_cap(self, fraction: float) -> float:
        return max(self.left.jittered_cap(fraction), self.right.jittered_cap(fraction))

    @property
    def strategy(self) -> BackoffStrategy:
        return self.left.strategy


class AndThen(_Pair):
    """`left` until it gives up, then `right` in the same step, and not back before the scope ends. State: the scope, whether
    it is `right`'s turn, and both inner states. A time box in `right` starts at the hand-over."""

    __slots__ = ("left", "right", "scope")
    scope: Scope

    def __init__(self, left: Policy, right: Policy, scope: Scope = "cycle") -> None:
        self._hold(left=as_policy(left), right=as_policy(right), scope=_scope(scope))

    def start(self) -> State:
        return (0, 0, self.left.start(), self.right.start())

    def step(self, state: State, failure: Failure, draw: Draw) -> tuple[State, Verdict]:
        began, on_right, left, right = state
        key = failure.cycle if self.scope == "cycle" else 0
        if not on_right or began != key:
            left, verdict = self.left.step(left, failure, draw)
            if type(verdict) is Retry:
                return (key, 0, left, right), verdict
        right, verdict = self.right.step(right, failure, draw)
        return (key, 1, left, right), verdict


class Union(_Pair):
    """Retries when either would, after the shorter wait. State: both inner states; both see every failure."""

    __slots__ = ("left", "right")

    def __init__(self, left: Policy, right: Policy) -> None:
        self._hold(left=as_policy(left), right=as_policy(right))

    def start(self) -> State:
        return (self.left.start(), self.right.start())

    def step(self, state: State, failure: Failure, draw: Draw) -> tuple[State, Verdict]:
        left, one = self.left.step(state[0], failure, draw)
        right, other = self.right.step(state[1], failure, draw)
        if type(one) is Retry and type(other) is Retry:
            return (left, right), one if one.delay <= other.delay else other
        return (left, right), one if type(one) is Retry else other


class Intersect(_Pair):
    """Retries when both would, after the longer wait. State: both inner states; both see every failure."""

    __slots__ = ("left", "right")

    def __init__(self, left: Policy, right: Policy) -> None:
        self._hold(left=as_policy(left), right=as_policy(right))

    def start(self) -> State:
        return (self.left.start(), self.right.start())

    def step(self, state: State, failure: Failure, draw: Draw) -> tuple[State, Verdict]:
        left, one = self.left.step(state[0], failure, draw)
        right, other = self.right.step(state[1], failure, draw)
        if type(one) is Retry and type(other) is Retry:
            return (left, right), one if one.delay >= other.delay else other
        return (left, right), other if type(one) is Retry else one


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


def as_policy(value: object) -> Policy:
    """Check that an object is a policy. Raises `InvalidType`."""
    if isinstance(value, Policy):
        return value
    if callable(getattr(value, "delay", None)) and not isinstance(value, type):
        raise InvalidType(f"{value!r} is a backoff; make a policy of it with strategy(…)")
    raise InvalidType(f"{value!r} is not a policy; write one such as exponential('2s').max_retries(3)")


def as_state(value: object) -> State:
    """A state that was JSON for a while: lists are tuples again."""
    return tuple(as_state(each) for each in value) if isinstance(value, list | tuple) else value


def _requested(failure: Failure, delay: float) -> Retry:
    request = failure.request
    given = None if request is None else request.delay
    return Retry(max(SHORTEST_REQUEST, delay) if given is None else given)


def _duration(value: Duration, what: str) -> float:
    return min(seconds(value, what), LONGEST)


def _scope(value: object) -> Scope:
    if value == "cycle" or value == "outage":
        return value
    raise InvalidValue(
        f"scope is {value!r}; it must be 'cycle' (starts again with each poll) or 'outage' (until a success)"
    )
