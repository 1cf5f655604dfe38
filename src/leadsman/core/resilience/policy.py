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
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, Literal, NamedTuple

from leadsman.core.loop.durations import Duration, seconds, whole
from leadsman.core.resilience.backoff import (
    DEFAULT_BACKOFF,
    JITTER_MODES,
    MAX_WAIT_SECONDS,
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
    wait_of,
)
from leadsman.core.resilience.failure import MIN_REQUEST_SECONDS, Failure, RetryRequested, Scope, as_scope
from leadsman.core.resilience.predicate import Constant, IsA, Predicate, predicate
from leadsman.core.resilience.retry_after import pause_of
from leadsman.core.value import Value
from leadsman.errors import InvalidType, InvalidValue, TransientError


class Retry(NamedTuple):
    """Call again after `delay` seconds."""

    delay: float


class GiveUp(NamedTuple):
    """The cycle has failed. `reason` is a key of `REASONS`."""

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
"""The meaning of each reason, for a person."""

State = Any
"""None, a number, or a nested tuple of them: what a policy remembers."""
_AT_ONCE, _NEVER = Retry(0.0), GiveUp("never")
_COUNT, _TIME, _BUDGET, _FILTERED = (GiveUp(why) for why in ("count", "time", "budget", "filtered"))


class Policy(Value):
    """Decides about failed calls. Immutable; one object may serve any number of handlers."""

    __slots__ = ()

    def start(self) -> State:
        """The state before the first failure of an outage; None if it has none."""
        return None

    def step(self, state: State, failure: Failure, draw: Draw) -> tuple[State, Verdict]:
        """Decide about one failed call. Returns the state after it, and the verdict."""
        raise NotImplementedError

    @property
    def inside(self) -> tuple["Policy", ...]:
        """The policies that this one limits, changes or combines."""
        return ()

    @property
    def cap(self) -> float:
        """The longest wait, in seconds; a wait that was requested may be longer."""
        return max((each.cap for each in self.inside), default=0.0)

    def jittered_cap(self, fraction: float) -> float:
        """The longest wait once waits are spread by `fraction`: the cap that was given, or so much more than `cap`."""
        return max((each.jittered_cap(fraction) for each in self.inside), default=0.0)

    @property
    def strategy(self) -> BackoffStrategy:
        """The strategy of the first leaf, for a wait that nothing decides about, such as that of a source."""
        return self.inside[0].strategy if self.inside else DEFAULT_BACKOFF

    def pause(self, failure: Failure) -> float | None:
        """For how many seconds the device asked not to be called, as far as this policy listens; else None."""
        return max((asked for each in self.inside if (asked := each.pause(failure)) is not None), default=None)

    def max_retries(self, limit: int, scope: Scope = "cycle") -> "Policy":
        """At most `limit` retries in a poll, or in an outage; 0 allows none."""
        return CountBox(limit, self, scope)

    def within(self, limit: Duration, scope: Scope = "outage") -> "Policy":
        """No retry starts later than `limit` after the first failure; the time of the calls is counted."""
        return TimeBox(limit, self, scope)

    def budget(self, limit: Duration, scope: Scope = "outage") -> "Policy":
        """No retry whose wait would make the sum of all waits exceed `limit`."""
        return Budget(limit, self, scope)

    def clamp(self, low: Duration = 0.0, high: Duration = MAX_WAIT_SECONDS) -> "Policy":
        """Limit each wait to between `low` and `high`."""
        return Clamp(low, high, self)

    def plus(self, delay: Duration) -> "Policy":
        """Add `delay` to each wait."""
        return AddDelay(delay, self)

    def jitter(self, fraction: float = 0.2, mode: str = "symmetric", cap: Duration | None = None) -> "Policy":
        """Randomise the waits; see `Jitter`."""
        return Jitter(fraction, self, mode, cap)

    def obey_retry_after(self) -> "Policy":
        """Wait at least as long as an HTTP server asks for, by the header ``Retry-After`` of a 429 or 503. A pause
        that is longer than the time to the next poll defers the polls."""
        return ObeysRetryAfter(self)

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


class Immediate(Policy):
    """Retries at once."""

    __slots__ = ()

    def step(self, state: State, failure: Failure, draw: Draw) -> tuple[State, Verdict]:
        return state, _as_requested(failure, 0.0) if isinstance(failure.error, RetryRequested) else _AT_ONCE


class Never(Policy):
    """Gives up."""

    __slots__ = ()

    def step(self, state: State, failure: Failure, draw: Draw) -> tuple[State, Verdict]:
        if failure.request is None:
            return state, _NEVER
        return state, _as_requested(failure, DEFAULT_BACKOFF.delay(failure.attempts + 1, draw()))


class Waits(Policy):
    """Waits as long as a strategy sets. State: the waits taken in the scope."""

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
        return float(getattr(strategy, "max_delay", None) or MAX_WAIT_SECONDS)

    def jittered_cap(self, fraction: float) -> float:
        asked = getattr(self.strategy, "max_delay", None)
        return self.cap if asked is not None else min(self.cap * (1 + fraction), MAX_WAIT_SECONDS)


class _Wrapper(Policy):
    """A policy with one inside. State: the inner one, if it has none of its own."""

    __slots__ = ()
    inner: Policy

    @property
    def inside(self) -> tuple[Policy, ...]:
        return (self.inner,)

    def start(self) -> State:
        return self.inner.start()


class _Box(_Wrapper):
    """Ends the retries of the policy inside once a limit is reached in its scope."""

    __slots__ = ("inner", "limit", "scope")
    limit: float
    scope: Scope


class CountBox(_Box):
    """Grants at most `limit` retries in its scope. State: the key of the scope, the number granted; the inner state."""

    __slots__ = ()
    limit: int

    def __init__(self, limit: int, inner: Policy, scope: Scope = "cycle") -> None:
        self._hold(limit=whole(limit, "max_retries", 0), inner=as_policy(inner), scope=as_scope(scope))

    def start(self) -> State:
        return ((0, 0), self.inner.start())

    def step(self, state: State, failure: Failure, draw: Draw) -> tuple[State, Verdict]:
        (began, granted), inner = state
        if isinstance(failure.error, RetryRequested):
            inner, verdict = self.inner.step(inner, failure, draw)
            return (state[0], inner), verdict
        key = failure.cycle if self.scope == "cycle" else 0
        granted = granted if began == key else 0
        if granted >= self.limit:
            return ((key, granted), inner), _COUNT
        inner, verdict = self.inner.step(inner, failure, draw)
        if type(verdict) is Retry:
            granted += 1
        return ((key, granted), inner), verdict


class TimeBox(_Box):
    """Gives up once `limit` seconds have passed since the first failure in its scope, and already if the retry would
    start later. State: the key of the scope, when that failure was, in seconds of the outage; the inner state."""

    __slots__ = ()

    def __init__(self, limit: Duration, inner: Policy, scope: Scope = "outage") -> None:
        self._hold(limit=seconds(limit, "within"), inner=as_policy(inner), scope=as_scope(scope))

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


class Budget(_Box):
    """Gives up if the waits so far and the next one would exceed `limit` seconds; calls do not count. After a restart
    of the app it also gives up once `limit` has passed since the first failure. State: the key of the scope, the sum of
    the waits; the inner state."""

    __slots__ = ()

    def __init__(self, limit: Duration, inner: Policy, scope: Scope = "outage") -> None:
        self._hold(limit=seconds(limit, "budget"), inner=as_policy(inner), scope=as_scope(scope))

    def start(self) -> State:
        return ((0, 0.0), self.inner.start())

    def step(self, state: State, failure: Failure, draw: Draw) -> tuple[State, Verdict]:
        (began, slept), inner = state
        key = failure.cycle if self.scope == "cycle" else 0
        slept = slept if began == key else 0.0
        if failure.resumed and self.scope == "outage" and failure.elapsed >= self.limit:
            return state, _BUDGET
        after, verdict = self.inner.step(inner, failure, draw)
        if type(verdict) is not Retry:
            return ((key, slept), after), verdict
        if slept + verdict.delay > self.limit:
            return ((key, slept), inner), _BUDGET
        return ((key, slept + verdict.delay), after), verdict


class _Shape(_Wrapper):
    """A policy that changes the waits of the one inside."""

    __slots__ = ()

    def step(self, state: State, failure: Failure, draw: Draw) -> tuple[State, Verdict]:
        state, verdict = self.inner.step(state, failure, draw)
        if type(verdict) is Retry and not isinstance(failure.error, RetryRequested):
            return state, Retry(self._shaped(verdict.delay))
        return state, verdict

    @property
    def cap(self) -> float:
        return self._shaped(self.inner.cap)

    def jittered_cap(self, fraction: float) -> float:
        return self._shaped(self.inner.jittered_cap(fraction))

    def _shaped(self, delay: float) -> float:
        raise NotImplementedError


class Clamp(_Shape):
    """Waits between `low` and `high` seconds."""

    __slots__ = ("high", "inner", "low")
    low: float
    high: float

    def __init__(self, low: Duration, high: Duration, inner: Policy) -> None:
        bottom, top = _duration(low, "clamp's low end"), _duration(high, "clamp's high end")
        if bottom > top:
            raise InvalidValue(f"clamp goes from {low!r} to {high!r}; the low end comes first")
        self._hold(low=bottom, high=top, inner=as_policy(inner))

    def _shaped(self, delay: float) -> float:
        return min(max(delay, self.low), self.high)


class AddDelay(_Shape):
    """Waits longer by `delay` seconds, up to ten years."""

    __slots__ = ("delay", "inner")
    delay: float

    def __init__(self, delay: Duration, inner: Policy) -> None:
        self._hold(delay=_duration(delay, "the added delay"), inner=as_policy(inner))

    def _shaped(self, delay: float) -> float:
        return min(delay + self.delay, MAX_WAIT_SECONDS)

    def jittered_cap(self, fraction: float) -> float:
        return min(self.inner.jittered_cap(fraction) + self.delay * (1 + fraction), MAX_WAIT_SECONDS)


class Jitter(_Wrapper):
    """Spreads waits by chance, by one of `JITTER_MODES`, up to `ceiling` seconds.

    `exponential` keeps its cap; ``periodic(10)`` is spread from 8 to 12 s. ``decorrelated`` remembers the last wait."""

    __slots__ = ("ceiling", "fraction", "inner", "mode")
    fraction: float
    mode: str
    ceiling: float

    def __init__(self, fraction: float, inner: Policy, mode: str = "symmetric", cap: Duration | None = None) -> None:
        if mode not in tuple(JITTER_MODES):  # a settings file may hold a list, which has no hash
            raise InvalidValue(f"the mode of jitter is {mode!r}; it must be one of {', '.join(JITTER_MODES)}")
        part, within = fraction_of(fraction), as_policy(inner)
        ceiling = widest(within, part, mode) if cap is None else _duration(cap, "the cap of jitter")
        self._hold(fraction=part, inner=within, mode=mode, ceiling=ceiling)

    def start(self) -> State:
        return (0.0, self.inner.start()) if JITTER_MODES[self.mode].remembers else self.inner.start()

    def step(self, state: State, failure: Failure, draw: Draw) -> tuple[State, Verdict]:
        spread, _, remembers = JITTER_MODES[self.mode]
        before, inner = state if remembers else (0.0, state)
        inner, verdict = self.inner.step(inner, failure, draw)
        if type(verdict) is Retry and not isinstance(failure.error, RetryRequested):
            before = spread(verdict.delay, self.fraction, self.ceiling, before, draw())
            verdict = Retry(before)
        return (before, inner) if remembers else inner, verdict

    @property
    def cap(self) -> float:
        return self.ceiling

    def jittered_cap(self, fraction: float) -> float:
        return self.ceiling


def widest(inner: Policy, fraction: float, mode: str) -> float:
    """The cap of a jitter around `inner` that was given none."""
    return JITTER_MODES[mode].cap(inner.cap, inner.jittered_cap(fraction), fraction)


class ObeysRetryAfter(_Wrapper):
    """Waits at least as long as the header ``Retry-After`` of the failure asks for."""

    __slots__ = ("inner",)

    def __init__(self, inner: Policy) -> None:
        self._hold(inner=as_policy(inner))

    def step(self, state: State, failure: Failure, draw: Draw) -> tuple[State, Verdict]:
        state, verdict = self.inner.step(state, failure, draw)
        asked = self.pause(failure)
        if type(verdict) is Retry and asked is not None:
            return state, Retry(max(verdict.delay, asked))
        return state, verdict

    def pause(self, failure: Failure) -> float | None:
        return pause_of(failure.error, failure.get("status-code"), failure.wall)


class FilteredOn(_Wrapper):
    """Gives up on failures unless `condition` holds for certain; the policy inside does not see those."""

    __slots__ = ("condition", "inner")
    condition: Predicate

    def __init__(self, condition: Predicate | bool, inner: Policy) -> None:
        self._hold(condition=predicate(condition), inner=as_policy(inner))

    def step(self, state: State, failure: Failure, draw: Draw) -> tuple[State, Verdict]:
        if not isinstance(failure.error, RetryRequested) and self.condition.answer(failure) is not True:
            return state, _FILTERED
        return self.inner.step(state, failure, draw)


class _Joined(Policy):
    """Two policies joined. State: both inner states, after its own."""

    __slots__ = ()
    left: Policy
    right: Policy

    @property
    def inside(self) -> tuple[Policy, ...]:
        return (self.left, self.right)


class AndThen(_Joined):
    """`left` until it gives up, then `right` in the same step, and not back before the scope ends. A time box in
    `right` starts at the hand-over. State: the key of the scope, whether it is `right`'s turn; both inner states."""

    __slots__ = ("left", "right", "scope")
    scope: Scope

    def __init__(self, left: Policy, right: Policy, scope: Scope = "cycle") -> None:
        self._hold(left=as_policy(left), right=as_policy(right), scope=as_scope(scope))

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


class _Both(_Joined):
    """Two policies that both see every failure."""

    __slots__ = ("left", "right")

    def __init__(self, left: Policy, right: Policy) -> None:
        self._hold(left=as_policy(left), right=as_policy(right))

    def start(self) -> State:
        return (self.left.start(), self.right.start())

    def step(self, state: State, failure: Failure, draw: Draw) -> tuple[State, Verdict]:
        left, one = self.left.step(state[0], failure, draw)
        right, other = self.right.step(state[1], failure, draw)
        return (left, right), self._chosen(one, other)

    def _chosen(self, one: Verdict, other: Verdict) -> Verdict:
        raise NotImplementedError


class Union(_Both):
    """Retries if either would, after the shorter wait."""

    __slots__ = ()

    def _chosen(self, one: Verdict, other: Verdict) -> Verdict:
        if type(one) is Retry and type(other) is Retry:
            return one if one.delay <= other.delay else other
        return one if type(one) is Retry else other


class Intersect(_Both):
    """Retries if both would, after the longer wait."""

    __slots__ = ()

    def _chosen(self, one: Verdict, other: Verdict) -> Verdict:
        if type(one) is Retry and type(other) is Retry:
            return one if one.delay >= other.delay else other
        return other if type(one) is Retry else one


def as_policy(value: object) -> Policy:
    """Check that an object is a policy. Raises `InvalidType`."""
    if isinstance(value, Policy):
        return value
    if callable(getattr(value, "delay", None)) and not isinstance(value, type):
        raise InvalidType(f"{value!r} is a backoff; make a policy of it with strategy(…)")
    raise InvalidType(f"{value!r} is not a policy; write one such as exponential('2s').max_retries(3)")


def _duration(value: Duration, what: str) -> float:
    return min(seconds(value, what), MAX_WAIT_SECONDS)


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
    def inside(self) -> tuple[Policy, ...]:
        return tuple(each.policy for each in self.among)

    def pause(self, failure: Failure) -> float | None:
        for each in self.among:
            if each.condition.answer(failure) is True:
                return each.policy.pause(failure)
        return None


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
    return Waits(ExponentialBackoff(base, MAX_WAIT_SECONDS if cap is None else cap, factor=factor, jitter=0), scope)


def linear(step: Duration = 2.0, cap: Duration | None = 60.0, scope: Scope = "outage") -> Policy:
    """``min(step · n, cap)`` before retry n; a cap of None is ten years."""
    return Waits(LinearBackoff(step, MAX_WAIT_SECONDS if cap is None else cap, jitter=0), scope)


def fibonacci(first: Duration, second: Duration, cap: Duration | None = 60.0, scope: Scope = "outage") -> Policy:
    """`first`, `second`, and then the sum of the two before, up to `cap`; a cap of None is ten years."""
    return Waits(FibonacciBackoff(first, second, MAX_WAIT_SECONDS if cap is None else cap, jitter=0), scope)


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
    return Retry(max(MIN_REQUEST_SECONDS, delay) if given is None else given)


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
    """The arguments of `from_options`."""

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
