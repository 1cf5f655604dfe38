"""Shows policies and predicates as text: in the notation of a policy file, on one line, without defaults.

::

    exponential("2s").max_retries(3)    {countBox: {maxRetries: 3, inner: {exponential: {baseDelay: 2s}}}}

What a file cannot express is shown in the closest form: errors by their names, the jitter of a backoff as a node of its
own, and a user's own classes by their names.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from leadsman.resilience import algebra
from leadsman.resilience import policy as leaves
from leadsman.resilience.algebra import Policy, widest
from leadsman.resilience.backoff import (
    ExponentialBackoff,
    FibonacciBackoff,
    FixedBackoff,
    Jittered,
    LinearBackoff,
    SequenceBackoff,
)
from leadsman.resilience.failure import qualified
from leadsman.resilience.notation import COMPARED
from leadsman.resilience.predicate import Both, Comparison, Constant, Either, IsA, Not, Predicate
from leadsman.timing.durations import human, seconds

T = TypeVar("T")
Tree = Any
"""What a YAML file would hold: mappings, lists, text and numbers."""
Node = Any
"""A policy of the class that a writer is for. `_POLICIES` finds the writer by the name of the class."""
Writer = Callable[[Node], Tree]
_PLAIN = re.compile(
    r"(?!(?:true|false|yes|no|on|off|null)$)[A-Za-z][\w.<>-]*|(?:[0-9]+(?:ms|[dhms]))+", re.ASCII | re.IGNORECASE
)
"""Text that YAML takes for text without quotes: names, and durations."""


def rendered(policy: Policy) -> str:
    """A policy on one line."""
    return text_of(tree_of(policy))


def text_of(tree: Tree) -> str:
    """A tree as YAML writes it between braces."""
    match tree:
        case dict():
            return f"{{{', '.join(f'{key}: {text_of(value)}' for key, value in tree.items())}}}"
        case list():
            return f"[{', '.join(text_of(each) for each in tree)}]"
        case str() if _PLAIN.fullmatch(tree):
            return tree
        case float() if tree.is_integer():
            return str(int(tree))
        case _:
            return json.dumps(tree, ensure_ascii=False)


def tree_of(policy: Policy) -> Tree:
    """A policy as a file would hold it."""
    write = _POLICIES.get(type(policy).__name__)
    return qualified(type(policy)) if write is None else write(policy)


def condition_of(predicate: Predicate) -> Tree:
    """A predicate as a file would hold it."""
    match predicate:
        case Constant(value=value):
            return value
        case IsA(kinds=(kind,)):
            return {"propEq": {"property": "error-bases", "value": qualified(kind)}}
        case IsA(kinds=kinds):
            return {"propIn": {"property": "error-bases", "values": [qualified(kind) for kind in kinds]}}
        case Comparison(name=name, how="exists"):
            return {"propExists": name}
        case Comparison(name=name, how=how, value=value):
            node, field = _COMPARISONS[how]
            return {node: {"property": name, field: list(value) if isinstance(value, tuple) else value}}
        case Not(inner=inner):
            return {"not": condition_of(inner)}
        case Both() | Either():
            return {"and" if isinstance(predicate, Both) else "or": [condition_of(each) for each in _flat(predicate)]}
        case _:
            return qualified(type(predicate))


_COMPARISONS: Mapping[str, tuple[str, str]] = {how: (node, field) for node, (how, field) in COMPARED.items()}


def _duration(amount: float) -> str | float:
    text = human(amount)
    return text if seconds(text) == amount else amount


def _flat(pair: Node) -> list[Node]:
    """What was joined from the left, in order."""
    left = _flat(pair.left) if type(pair.left) is type(pair) else [pair.left]
    return [*left, pair.right]


def _unless(default: T, name: str, value: T) -> dict[str, T]:
    """A field, unless it has its default."""
    return {} if value == default else {name: value}


def _waits(policy: leaves.Waits) -> Tree:
    strategy = policy.strategy
    if not isinstance(strategy, Jittered):
        return {"strategy": qualified(type(strategy))}
    leaf = _leaf(strategy, _unless("outage", "scope", policy.scope))
    if not strategy.jitter:
        return leaf
    capped = isinstance(strategy, FixedBackoff) and strategy.max_delay is not None
    cap = {"cap": _duration(strategy.cap)} if capped else {}
    return {"jitter": _unless(0.2, "factor", strategy.jitter) | {"inner": leaf} | cap}


def _leaf(strategy: Jittered, scope: dict[str, str]) -> Tree:
    cap = {name: _duration(value) for name, value in _unless(60.0, "cap", strategy.cap).items()}
    match strategy:
        case ExponentialBackoff(base=base, factor=factor):
            return {"exponential": {"baseDelay": _duration(base)} | _unless(2.0, "factor", factor) | cap | scope}
        case LinearBackoff(step=step):
            return {"linear": {"step": _duration(step)} | cap | scope}
        case FibonacciBackoff(first=first, second=second):
            return {"fibonacci": {"first": _duration(first), "second": _duration(second)} | cap | scope}
        case SequenceBackoff(delays=delays):
            waits = [_duration(delay) for delay in delays]
            return {"sequence": {"delays": waits} | scope if scope else waits}
        case FixedBackoff():
            wait = _duration(strategy.wait(1))
            return {"periodic": {"delay": wait} | scope if scope else wait}
        case _:
            return {"strategy": qualified(type(strategy))}


def _jitter(policy: algebra.Jitter) -> Tree:
    fraction = policy.fraction if policy.mode in ("symmetric", "add") else 0.2
    own = widest(policy.inner, policy.fraction, policy.mode) != policy.ceiling
    fields = _unless(0.2, "factor", fraction) | _unless("symmetric", "mode", policy.mode)
    return {"jitter": fields | ({"cap": _duration(policy.ceiling)} if own else {}) | {"inner": tree_of(policy.inner)}}


def _choice(policy: Node) -> Tree:
    """The named policies of a file, in the order in which they are asked."""
    return [
        {"name": each.name}
        | _unless(0, "priority", each.priority)
        | _unless(True, "predicate", condition_of(each.condition))
        | {"policy": tree_of(each.policy)}
        for each in policy.among
    ]


def _bounded(name: str, field: str, write: Callable[[float], object], default: str) -> Writer:
    return lambda policy: {
        name: {field: write(policy.limit), "inner": tree_of(policy.inner)} | _unless(default, "scope", policy.scope)
    }


def _joined(name: str) -> Writer:
    return lambda policy: {name: [tree_of(each) for each in _flat(policy)]}


_POLICIES: Mapping[str, Writer] = {
    leaves.Immediate.__name__: lambda _: "immediate",
    leaves.Never.__name__: lambda _: "never",
    leaves.Waits.__name__: _waits,
    algebra.CountBox.__name__: _bounded("countBox", "maxRetries", int, "cycle"),
    algebra.TimeBox.__name__: _bounded("timeBox", "limit", _duration, "outage"),
    algebra.Budget.__name__: _bounded("budget", "limit", _duration, "outage"),
    algebra.Clamp.__name__: lambda policy: {
        "clamp": {
            "minDelay": _duration(policy.low),
            "maxDelay": _duration(policy.high),
            "inner": tree_of(policy.inner),
        }
    },
    algebra.AddDelay.__name__: lambda policy: {
        "addDelay": {"delay": _duration(policy.delay), "inner": tree_of(policy.inner)}
    },
    algebra.ObeysRetryAfter.__name__: lambda policy: {"retryAfter": {"inner": tree_of(policy.inner)}},
    algebra.Jitter.__name__: _jitter,
    algebra.FilteredOn.__name__: lambda policy: {
        "filteredOn": {"predicate": condition_of(policy.condition), "inner": tree_of(policy.inner)}
    },
    algebra.AndThen.__name__: _joined("andThen"),
    algebra.Union.__name__: _joined("union"),
    algebra.Intersect.__name__: _joined("intersect"),
    "Choice": _choice,
    "Lookup": lambda policy: policy.name,
}
"""How each node is written, by the name of its class: whoever shows a policy need not load the catalogue."""
