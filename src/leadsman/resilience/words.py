"""Says in plain English when a policy repeats a call that failed."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from leadsman.loop.durations import spoken
from leadsman.resilience import algebra
from leadsman.resilience import policy as leaves
from leadsman.resilience.algebra import Policy
from leadsman.resilience.backoff import BackoffStrategy, Jittered
from leadsman.resilience.failure import qualified
from leadsman.resilience.predicate import Both, Comparison, Constant, Either, IsA, Not, Predicate
from leadsman.text import counted

SHOWN = 4
"""Waits that are named, if they go on growing."""
_FAR = 40
"""The number of a wait that shows where a strategy ends."""
Node = Any
"""A policy of the class that a writer is for. `_POLICIES` finds the writer by the name of the class."""


def waits_in_words(strategy: BackoffStrategy, count: int | None = None) -> str:
    """The first `count` waits of a strategy, or all of them: ``after 2 s, 4 s, 8 s, 16 s, … up to 1 min (±20 %)``."""
    if not isinstance(strategy, Jittered):
        return f"after the waits of {qualified(type(strategy))}"
    last = strategy.wait(_FAR if count is None else min(count, _FAR))
    shown = [strategy.wait(1)]
    while len(shown) < (SHOWN if count is None else min(count, SHOWN)) and shown[-1] != last:
        shown.append(strategy.wait(len(shown) + 1))
    words = [spoken(wait) for wait in shown]
    if len(shown) == count:
        text = listed(words)
    elif shown[-1] != last:
        text = f"{', '.join(words)}, … up to {spoken(last)}"
    elif len(shown) == 1:
        text = f"{words[0]} each time"
    else:
        text = f"{listed(words[:-1])}, and then {words[-1]} each time"
    return f"after {text}" + (f" (±{strategy.jitter * 100:.0f} %)" if strategy.jitter else "")


def policy_in_words(policy: Policy) -> str:
    """When a policy repeats a call, to follow the words *a call that fails is repeated*."""
    write = _POLICIES.get(type(policy).__name__)
    return f"as {qualified(type(policy))} decides" if write is None else write(policy)


def condition_in_words(predicate: Predicate) -> str:
    """Which errors a predicate matches."""
    match predicate:
        case Constant(value=value):
            return "the error is any" if value else "never"
        case IsA(kinds=kinds):
            return f"the error is {listed([kind.__name__ for kind in kinds], 'or')}"
        case Comparison(name=name, how=how, value=value):
            return f"{name} exists" if how == "exists" else f"{name} {_COMPARED.get(how, how)} {value}"
        case Not(inner=inner):
            return f"not ({condition_in_words(inner)})"
        case Both(left=left, right=right):
            return f"({condition_in_words(left)}) and ({condition_in_words(right)})"
        case Either(left=left, right=right):
            return f"({condition_in_words(left)}) or ({condition_in_words(right)})"
        case _:
            return f"{qualified(type(predicate))} matches"


def listed(words: Sequence[str], last: str = "and") -> str:
    """Words as a sentence lists them: ``a, b and c``."""
    return "".join(words) if len(words) < 2 else f"{', '.join(words[:-1])} {last} {words[-1]}"


_COMPARED: Mapping[str, str] = {
    "eq": "is",
    "neq": "is not",
    "gt": ">",
    "gte": ">=",
    "lt": "<",
    "lte": "<=",
    "in": "is in",
}
"""Comparisons that a person writes otherwise than a policy file does."""
_SCOPES: Mapping[str, str] = {"cycle": "in one poll", "outage": "in one outage"}


def _boxed(policy: Node, text: str) -> str:
    return f"{policy_in_words(policy.inner)}, {text} {_SCOPES[policy.scope]}"


def _jitter(policy: Node) -> str:
    how = f"±{policy.fraction * 100:.0f} %" if policy.mode == "symmetric" else f"spread by chance ({policy.mode})"
    return f"{policy_in_words(policy.inner)}, {how}"


def _choice(policy: Node) -> str:
    return "; ".join(
        f"{each.name}, if {condition_in_words(each.condition)}: {policy_in_words(each.policy)}" for each in policy.among
    )


_POLICIES: Mapping[str, Callable[[Node], str]] = {
    leaves.Immediate.__name__: lambda _: "at once",
    leaves.Never.__name__: lambda _: "not at all",
    leaves.Waits.__name__: lambda policy: waits_in_words(policy.strategy),
    algebra.CountBox.__name__: lambda policy: _boxed(policy, f"at most {counted(policy.limit, 'time')}"),
    algebra.TimeBox.__name__: lambda policy: _boxed(policy, f"for at most {spoken(policy.limit)}"),
    algebra.Budget.__name__: lambda policy: _boxed(policy, f"with waits of at most {spoken(policy.limit)} in all"),
    algebra.Clamp.__name__: lambda policy: (
        f"{policy_in_words(policy.inner)}, each wait from {spoken(policy.low)} to {spoken(policy.high)}"
    ),
    algebra.AddDelay.__name__: lambda policy: f"{policy_in_words(policy.inner)}, each {spoken(policy.delay)} later",
    algebra.ObeysRetryAfter.__name__: lambda policy: (
        f"{policy_in_words(policy.inner)}, or later if the server asks for it"
    ),
    algebra.Jitter.__name__: _jitter,
    algebra.FilteredOn.__name__: lambda policy: (
        f"{policy_in_words(policy.inner)}, if {condition_in_words(policy.condition)}"
    ),
    algebra.AndThen.__name__: lambda policy: f"{policy_in_words(policy.left)}; then {policy_in_words(policy.right)}",
    algebra.Union.__name__: lambda policy: (
        f"the sooner of ({policy_in_words(policy.left)}) and ({policy_in_words(policy.right)})"
    ),
    algebra.Intersect.__name__: lambda policy: (
        f"the later of ({policy_in_words(policy.left)}) and ({policy_in_words(policy.right)}), while both go on"
    ),
    "Choice": _choice,
    "Lookup": lambda policy: f"as the policy {policy.name} says",
}
"""How each node is said, by the name of its class: whoever says a policy need not load the catalogue."""
