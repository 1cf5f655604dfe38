"""The notation of policies and predicates in TOML, YAML and JSON: reads them from it, and shows them in it.

::

    {countBox: {maxRetries: 3, inner: {exponential: {baseDelay: 2s, factor: 2, cap: 1m}}}}
    {and: [{propEq: {property: adapter, value: ble}}, {not: {propEq: {property: errno, value: 19}}}]}

Each node is a mapping with its name as the only key, or its name alone if it takes nothing. Keys may be written in
camelCase or in snake_case; durations as text, seconds, or ``{secs, nanos}``; values plain, or as ``{text: …}``,
``{integer: …}``, ``{boolean: …}``. An error names the path to the faulty node.

What is shown is on one line, without defaults::

    exponential("2s").max_retries(3)    {countBox: {maxRetries: 3, inner: {exponential: {baseDelay: 2s}}}}

What a file cannot express is shown in the closest form: errors by their names, the jitter of a backoff as a node of its
own, and a user's own classes by their names.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from leadsman.errors import ConfigurationError, InvalidType, InvalidValue
from leadsman.loop.durations import Duration, human, seconds
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
from leadsman.resilience.predicate import Both, Comparison, Constant, Either, IsA, Not, Predicate
from leadsman.text import suggestion

DEEPEST = 50
"""Nodes within nodes; a file that nests deeper is not a policy."""


def policy_of(value: object, path: str) -> Policy:
    """Read a policy; `path` is where it is written.

    Raises:
        InvalidValue, InvalidType: the message begins with the path to the node that is wrong.
    """
    return _policy(value, path, DEEPEST)


def predicate_of(value: object, path: str) -> Predicate:
    """Read a predicate; as `policy_of`."""
    return _predicate(value, path, DEEPEST)


def duration_of(value: object, path: str) -> Duration:
    """Read a duration: text, seconds, or ``{secs, nanos}``. What it is worth, whoever takes it says."""
    if isinstance(value, Mapping):
        fields = _fields(value, path, ("secs", "nanos"))
        parts = [fields.get("secs", 0), fields.get("nanos", 0)]
        if any(isinstance(part, bool) or not isinstance(part, int) or part < 0 for part in parts):
            raise InvalidType(f"{path}: secs and nanos are whole numbers, 0 or more")
        return float(parts[0]) + float(parts[1]) / 1e9
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InvalidType(f"{path}: {value!r} is not a duration; write '5m', '1h30m' or seconds")
    return value


T = TypeVar("T")
Tree = Any
"""What a TOML, YAML or JSON file holds: mappings, lists, text, numbers, True and False."""


class _Node:
    """One node that is being read: its fields, with their paths."""

    def __init__(self, name: str, value: Tree, path: str, depth: int) -> None:
        self.name, self.value, self.path, self.depth = name, value, path, depth

    def fields(self, *names: str) -> "_Node":
        """See that it has these fields only; those with ``?`` may be missing."""
        if not isinstance(self.value, Mapping):
            raise InvalidType(f"{self.path}: {self.name} takes {', '.join(names)}; write them as a mapping")
        self.value = _fields(self.value, self.path, [name.rstrip("?") for name in names])
        for name in names:
            if not name.endswith("?") and name not in self.value:
                raise InvalidValue(f"{self.path}: {self.name} lacks {name!r}")
        return self

    def at(self, name: str) -> str:
        return f"{self.path}.{name}"

    def duration(self, name: str) -> Duration:
        return duration_of(self.value[name], self.at(name))

    def inner(self) -> Policy:
        return _policy(self.value["inner"], self.at("inner"), self.depth - 1)

    def options(self, *names: str) -> dict[str, Tree]:
        """Optional fields as they are written."""
        return {name: self.value[name] for name in names if name in self.value}

    def cap(self) -> dict[str, Tree]:
        """The cap, where it is written."""
        return {"cap": self.duration("cap")} if "cap" in self.value else {}

    def pair(self, read: Callable[[object, str, int], T], join: Callable[[T, T], T]) -> T:
        """A list of two or more, joined from the left."""
        if not isinstance(self.value, list) or len(self.value) < 2:
            raise InvalidType(f"{self.path}: {self.name} takes a list of two or more")
        parts = [read(each, f"{self.path}[{number}]", self.depth - 1) for number, each in enumerate(self.value)]
        joined = parts[0]
        for part in parts[1:]:
            joined = join(joined, part)
        return joined


def _exponential(node: _Node) -> Policy:
    node.fields("baseDelay", "factor?", "cap?", "scope?")
    return leaves.exponential(node.duration("baseDelay"), **node.cap(), **node.options("factor", "scope"))


def _linear(node: _Node) -> Policy:
    node.fields("step", "cap?", "scope?")
    return leaves.linear(node.duration("step"), **node.cap(), **node.options("scope"))


def _fibonacci(node: _Node) -> Policy:
    node.fields("first", "second", "cap?", "scope?")
    return leaves.fibonacci(node.duration("first"), node.duration("second"), **node.cap(), **node.options("scope"))


def _sequence(node: _Node) -> Policy:
    if isinstance(node.value, list):
        node.value = {"delays": node.value}
    node.fields("delays", "then?", "scope?")
    delays = node.value["delays"]
    if not isinstance(delays, list):
        raise InvalidType(f"{node.at('delays')}: it is a list of durations")
    waits = [duration_of(each, f"{node.at('delays')}[{number}]") for number, each in enumerate(delays)]
    return leaves.sequence(waits, **node.options("then", "scope"))


def _periodic(node: _Node) -> Policy:
    value = node.value
    if isinstance(value, Mapping) and "delay" in value:
        return leaves.periodic(node.fields("delay", "scope?").duration("delay"), **node.options("scope"))
    return leaves.periodic(duration_of(value, node.path))


def _count_box(node: _Node) -> Policy:
    node.fields("maxRetries", "inner", "scope?")
    return algebra.CountBox(node.value["maxRetries"], node.inner(), **node.options("scope"))


def _time_box(node: _Node) -> Policy:
    node.fields("limit", "inner", "scope?")
    return algebra.TimeBox(node.duration("limit"), node.inner(), **node.options("scope"))


def _budget(node: _Node) -> Policy:
    node.fields("limit", "inner", "scope?")
    return algebra.Budget(node.duration("limit"), node.inner(), **node.options("scope"))


def _clamp(node: _Node) -> Policy:
    node.fields("minDelay", "maxDelay", "inner")
    return algebra.Clamp(node.duration("minDelay"), node.duration("maxDelay"), node.inner())


def _add_delay(node: _Node) -> Policy:
    node.fields("delay", "inner")
    return algebra.AddDelay(node.duration("delay"), node.inner())


def _retry_after(node: _Node) -> Policy:
    node.fields("inner")
    return node.inner().obey_retry_after()


def _jitter(node: _Node) -> Policy:
    node.fields("factor?", "inner", "mode?", "cap?")
    return algebra.Jitter(node.value.get("factor", 0.2), node.inner(), **node.cap(), **node.options("mode"))


def _filtered_on(node: _Node) -> Policy:
    node.fields("predicate", "inner")
    condition = _predicate(node.value["predicate"], node.at("predicate"), node.depth - 1)
    return algebra.FilteredOn(condition, node.inner())


_POLICIES: Mapping[str, Callable[[_Node], Policy]] = {
    "immediate": lambda node: _alone(node, leaves.immediate()),
    "never": lambda node: _alone(node, leaves.never()),
    "periodic": _periodic,
    "exponential": _exponential,
    "linear": _linear,
    "fibonacci": _fibonacci,
    "sequence": _sequence,
    "countBox": _count_box,
    "timeBox": _time_box,
    "budget": _budget,
    "clamp": _clamp,
    "addDelay": _add_delay,
    "retryAfter": _retry_after,
    "jitter": _jitter,
    "filteredOn": _filtered_on,
    "andThen": lambda node: node.pair(_policy, lambda left, right: left >> right),
    "union": lambda node: node.pair(_policy, lambda left, right: left | right),
    "intersect": lambda node: node.pair(_policy, lambda left, right: left & right),
}
COMPARED = {
    "propEq": ("eq", "value"),
    "propNeq": ("neq", "value"),
    "propGt": ("gt", "value"),
    "propGte": ("gte", "value"),
    "propLt": ("lt", "value"),
    "propLte": ("lte", "value"),
    "propIn": ("in", "values"),
    "propMatches": ("matches", "pattern"),
    "propRegex": ("regex", "pattern"),
    "propStartsWith": ("starts-with", "prefix"),
    "propContains": ("contains", "substring"),
}


def _compared(node: _Node) -> Predicate:
    how, field = COMPARED[node.name]
    node.fields("property", field)
    value = node.value[field]
    if how == "in":
        if not isinstance(value, list):
            raise InvalidType(f"{node.at(field)}: it is a list")
        return Comparison(node.value["property"], how, [_literal(each, node.at(field)) for each in value])
    return Comparison(node.value["property"], how, _literal(value, node.at(field)))


def _exists(node: _Node) -> Predicate:
    name = node.fields("property").value["property"] if isinstance(node.value, Mapping) else node.value
    return Comparison(name, "exists")


_PREDICATES: Mapping[str, Callable[[_Node], Predicate]] = {
    "true": lambda node: _alone(node, Constant(True)),
    "false": lambda node: _alone(node, Constant(False)),
    **dict.fromkeys(COMPARED, _compared),
    "propExists": _exists,
    "and": lambda node: node.pair(_predicate, lambda left, right: left & right),
    "or": lambda node: node.pair(_predicate, lambda left, right: left | right),
    "not": lambda node: ~_predicate(node.value, node.path, node.depth - 1),
}


def _policy(value: object, path: str, depth: int) -> Policy:
    return _read("policy", value, path, depth, _POLICIES)


def _predicate(value: object, path: str, depth: int) -> Predicate:
    written = str(value).lower() if isinstance(value, bool) else value
    return _read("predicate", written, path, depth, _PREDICATES)


def _read(kind: str, value: object, path: str, depth: int, known: Mapping[str, Callable[[_Node], T]]) -> T:
    if depth <= 0:
        raise InvalidValue(f"{path}: nested deeper than {DEEPEST} nodes")
    if isinstance(value, str):
        name, inside = _camel(value), None
    elif isinstance(value, Mapping) and len(value) == 1:
        (key, inside), *_ = value.items()
        name = _camel(str(key))
    else:
        raise InvalidType(f"{path}: {value!r} is not a {kind}; write a mapping with one key, the name of the node")
    if name not in known:
        raise InvalidValue(f"{path}: {name!r} is not a {kind}; {suggestion(name, known)}")
    here = f"{path}.{name}"
    try:
        return known[name](_Node(name, inside, here, depth))
    except ConfigurationError as error:
        if str(error).startswith(path):
            raise
        raise type(error)(f"{here}: {error}") from None


def _alone(node: _Node, made: T) -> T:
    if node.value not in (None, {}):
        raise InvalidType(f"{node.path}: it takes nothing; write the name alone")
    return made


def _fields(value: Mapping[object, Tree], path: str, known: Collection[str]) -> dict[str, Tree]:
    fields = {_camel(str(key)): each for key, each in value.items()}
    for key in fields:
        if key not in known:
            raise InvalidValue(f"{path}: {key!r} is unknown here; {suggestion(key, known)}")
    return fields


def _literal(value: Tree, path: str) -> Tree:
    if isinstance(value, Mapping):
        kinds = {"text": str, "integer": int, "boolean": bool}
        (kind, inside), *more = value.items() or [("", None)]
        if more or kind not in kinds or type(inside) is not kinds[kind]:
            raise InvalidType(f"{path}: a typed value is {{text: …}}, {{integer: …}} or {{boolean: …}}")
        return inside
    return value


def _camel(name: str) -> str:
    return re.sub(r"[_-](\w)", lambda match: match[1].upper(), name)


Node = Any
"""A policy of the class that a writer is for. `_WRITERS` finds the writer by the name of the class."""
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
    write = _WRITERS.get(type(policy).__name__)
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


def _write_jitter(policy: algebra.Jitter) -> Tree:
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


_WRITERS: Mapping[str, Writer] = {
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
    algebra.Jitter.__name__: _write_jitter,
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
