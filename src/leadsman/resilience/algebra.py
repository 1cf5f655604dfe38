"""Policies that limit, change and combine other policies: the nodes of a policy, without its leaves.

`leadsman.resilience.policy` has the leaves and explains the language. The methods of `Policy` name every class here.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from leadsman.errors import InvalidType, InvalidValue
from leadsman.loop.durations import Duration, seconds
from leadsman.resilience.backoff import LONGEST, BackoffStrategy, Draw, jittered
from leadsman.resilience.failure import Failure, RetryRequested, Scope, as_scope
from leadsman.resilience.numbers import fraction_of, whole
from leadsman.resilience.predicate import Predicate, predicate
from leadsman.resilience.retry_after import pause_of
from leadsman.resilience.verdict import GiveUp, Retry, Verdict
from leadsman.value import Value

_DECORRELATED_CAP = 60.0


class Mode(NamedTuple):
    """One mode of jitter. Times are seconds; `u` is uniform in [0, 1)."""

    spread: Callable[[float, float, float, float], float]
    """The wait to take for a wait, a fraction, a cap and u."""
    cap: Callable[[float, float, float], float]
    """The cap if none is given: for the longest wait inside, the cap of `symmetric` jitter inside, and a fraction."""


def _add(wait: float, fraction: float, cap: float, u: float) -> float:
    low = min(wait, cap)
    return low + (min(wait * (1 + fraction), cap) - low) * u


def decorrelated(wait: float, cap: float, before: float, u: float) -> float:
    """The wait to take after the wait `before`, which is 0 at first. It is the only mode that remembers one."""
    low = min(wait, cap)
    return low + max(0.0, min(3 * (before or low), cap) - low) * u


MODES: Mapping[str, Mode] = {
    "symmetric": Mode(jittered, lambda _, symmetric, __: symmetric),
    "add": Mode(_add, lambda longest, _, fraction: min(longest * (1 + fraction), LONGEST)),
    "full": Mode(lambda wait, _, cap, u: min(wait, cap) * u, lambda longest, _, __: longest),
    "equal": Mode(lambda wait, _, cap, u: min(wait, cap) * (0.5 + u / 2), lambda longest, _, __: longest),
    "decorrelated": Mode(lambda wait, _, cap, u: decorrelated(wait, cap, 0.0, u), lambda _, __, ___: _DECORRELATED_CAP),
}
"""The modes of jitter: how a wait is spread by chance, and how long it may become.

================  =======================================  ===========================================================
mode              drawn from, within [0, cap]              the cap, if none is given
================  =======================================  ===========================================================
``symmetric``     d·(1 - fraction) to d·(1 + fraction)     that of the policy inside, if it was given one; else
                                                           `fraction` more than its longest wait
``add``           d to d·(1 + fraction)                    `fraction` more than the longest wait inside
``full``          0 to d                                   the longest wait inside
``equal``         d/2 to d                                 the longest wait inside
``decorrelated``  d to three times the wait before, at     60 s
                  first to three times d
================  =======================================  ===========================================================

``full``, ``equal`` and ``decorrelated`` are those of M. Brooker, "Exponential Backoff And Jitter", AWS Architecture
Blog, 2015.

The first wait of ``decorrelated`` is in the table; those after it depend on the one before.
"""


State = Any
"""None, a number, or a nested tuple of them: what a policy remembers."""
_COUNT, _TIME, _BUDGET, _FILTERED = (GiveUp(why) for why in ("count", "time", "budget", "filtered"))


class Policy(Value):
    """Decides about failed calls. Immutable; one object may serve any number of handlers."""

    __slots__ = ()

    def start(self) -> State:
        """The state before the first failure of an outage."""
        raise NotImplementedError

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
        return max(each.cap for each in self.inside)

    def jittered_cap(self, fraction: float) -> float:
        """The longest wait once waits are spread by `fraction`: the cap that was given, or so much more than `cap`."""
        return max(each.jittered_cap(fraction) for each in self.inside)

    @property
    def strategy(self) -> BackoffStrategy:
        """The strategy of the first leaf, for a wait that nothing decides about, such as that of a source."""
        return self.inside[0].strategy

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

    def clamp(self, low: Duration = 0.0, high: Duration = LONGEST) -> "Policy":
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
        return min(delay + self.delay, LONGEST)

    def jittered_cap(self, fraction: float) -> float:
        return min(self.inner.jittered_cap(fraction) + self.delay * (1 + fraction), LONGEST)


class Jitter(_Wrapper):
    """Spreads waits by chance, as a mode of `leadsman.resilience.algebra` says, up to `ceiling` seconds.

    `exponential` keeps its cap; ``periodic(10)`` is spread from 8 to 12 s. ``decorrelated`` remembers the last wait."""

    __slots__ = ("ceiling", "fraction", "inner", "mode")
    fraction: float
    mode: str
    ceiling: float

    def __init__(self, fraction: float, inner: Policy, mode: str = "symmetric", cap: Duration | None = None) -> None:
        if mode not in tuple(MODES):  # a settings file may hold a list, which has no hash
            raise InvalidValue(f"the mode of jitter is {mode!r}; it must be one of {', '.join(MODES)}")
        part, within = fraction_of(fraction), as_policy(inner)
        ceiling = widest(within, part, mode) if cap is None else _duration(cap, "the cap of jitter")
        self._hold(fraction=part, inner=within, mode=mode, ceiling=ceiling)

    def start(self) -> State:
        return (0.0, self.inner.start()) if self.mode == "decorrelated" else self.inner.start()

    def step(self, state: State, failure: Failure, draw: Draw) -> tuple[State, Verdict]:
        remembers = self.mode == "decorrelated"
        before, inner = state if remembers else (0.0, state)
        inner, verdict = self.inner.step(inner, failure, draw)
        if type(verdict) is Retry and not isinstance(failure.error, RetryRequested):
            wait, cap, u = verdict.delay, self.ceiling, draw()
            spread = MODES[self.mode].spread
            before = decorrelated(wait, cap, before, u) if remembers else spread(wait, self.fraction, cap, u)
            verdict = Retry(before)
        return (before, inner) if remembers else inner, verdict

    @property
    def cap(self) -> float:
        return self.ceiling

    def jittered_cap(self, fraction: float) -> float:
        return self.ceiling


def widest(inner: Policy, fraction: float, mode: str) -> float:
    """The cap of a jitter around `inner` that was given none."""
    return MODES[mode].cap(inner.cap, inner.jittered_cap(fraction), fraction)


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
    """Gives up on failures for which `condition` is not known to hold; the policy inside does not see those."""

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
    return min(seconds(value, what), LONGEST)
