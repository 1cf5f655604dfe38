"""The notation of policies and predicates in TOML, YAML and JSON.

::

    {countBox: {maxRetries: 3, inner: {exponential: {baseDelay: 2s, factor: 2, cap: 1m}}}}
    {and: [{propEq: {property: adapter, value: ble}}, {not: {propEq: {property: errno, value: 19}}}]}

Each node is a mapping with its name as the only key, or its name alone if it takes nothing. Keys may be written in
camelCase or in snake_case; durations as text, seconds, or ``{secs, nanos}``; values plain, or as ``{text: …}``,
``{integer: …}``, ``{boolean: …}``. An error names the path to the faulty node.

`POLICIES` and `PREDICATES` are the tables of all nodes: the name and the keys of each. A node is read and written
from its row. What is written is on one line, without defaults::

    exponential("2s").max_retries(3)    {countBox: {maxRetries: 3, inner: {exponential: {baseDelay: 2s}}}}

What a file cannot express is written in the closest form: errors by their names, the jitter of a backoff as a node of
its own, and a user's own classes by their names.
"""

import functools
import json
import re
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, TypeVar

from leadsman.core.loop.durations import Duration, human, seconds
from leadsman.core.resilience.backoff import (
    ExponentialBackoff,
    FibonacciBackoff,
    FixedBackoff,
    Jittered,
    LinearBackoff,
    SequenceBackoff,
)
from leadsman.core.resilience.failure import qualified_name
from leadsman.core.resilience.policy import (
    AddDelay,
    AndThen,
    Budget,
    Choice,
    Clamp,
    CountBox,
    FilteredOn,
    Immediate,
    Intersect,
    Jitter,
    Lookup,
    Named,
    Never,
    ObeysRetryAfter,
    Policy,
    TimeBox,
    Union,
    Waits,
    exponential,
    fibonacci,
    linear,
    named_policy,
    periodic,
    sequence,
    widest,
)
from leadsman.core.resilience.predicate import Both, Comparison, Constant, Either, IsA, Not, Predicate
from leadsman.core.text import clean, is_nested_deeper
from leadsman.core.text.suggestion import suggestion
from leadsman.errors import ConfigurationError, InvalidType, InvalidValue, at_key

MAX_DEPTH = 50
"""Nodes within nodes; a file that nests deeper is not a policy."""
_BRACKETS = 4
"""Brackets that lie within each other for one node, at most: its own, and those of its fields."""
T = TypeVar("T")
Tree = Any
"""What a TOML, YAML or JSON file holds: mappings, lists, text, numbers, True and False."""
Node = Any
"""A policy, a predicate, a strategy, or a value of one."""


class Form(NamedTuple):
    """How a value is read from a tree at a path and a depth, and written in one."""

    read: Callable[[Tree, str, int], Node] = lambda value, *_: value
    write: Callable[[Node], Tree] = lambda value: value


class Key(NamedTuple):
    """A key of a node."""

    name: str
    """Its name in a file."""
    argument: str
    """Of what makes the node."""
    form: Form
    default: object = ...
    """The value that is not written; ``...``: the key may not be left out."""
    get: Callable[[Node], object] | None = None
    """Takes the value from a node. None: the attribute with the name of the argument has it."""

    @property
    def required(self) -> bool:
        """Whether it may not be left out."""
        return self.default is ...

    def of(self, node: Node) -> Node:
        """Its value in a policy or a predicate."""
        if self.get is not None:
            return self.get(node)
        return getattr(node.strategy if isinstance(node, Waits) and self.argument != "scope" else node, self.argument)


class Syntax(NamedTuple):
    """A node of the notation."""

    name: str
    of: Node
    """What is written as this node: a class of policies, predicates or strategies, or the way of a comparison."""
    keys: tuple[Key, ...] = ()
    make: Callable[..., Node] | None = None
    """Takes the arguments of the keys; None: the class does."""
    short: bool = False
    """Whether the value of the first key may stand in place of the mapping."""
    joined: bool = False
    """Whether it takes a list of two or more, which are joined from the left."""


def policy_of(value: object, path: str) -> Policy:
    """Read a policy; `path` is where it is written.

    Raises:
        InvalidValue, InvalidType: the message begins with the path to the node that is wrong.
    """
    policy: Policy = _read_policy(value, path, MAX_DEPTH + 1)
    return policy


def predicate_of(value: object, path: str) -> Predicate:
    """Read a predicate; as `policy_of`."""
    predicate: Predicate = _read_predicate(value, path, MAX_DEPTH + 1)
    return predicate


def named_of(value: object, path: str) -> Named:
    """Read a policy with a name; as `policy_of`."""
    named: Named = _make(NAMED, value, path, MAX_DEPTH + 1)
    return named


def duration_of(value: object, path: str) -> Duration:
    """Read a duration: text, seconds, or ``{secs, nanos}``. The caller checks its value."""
    if isinstance(value, Mapping):
        fields = _fields(value, path, ("secs", "nanos"))
        parts = [fields[name][1] if name in fields else 0 for name in ("secs", "nanos")]
        if any(isinstance(part, bool) or not isinstance(part, int) or part < 0 for part in parts):
            raise InvalidType(f"{path}: secs and nanos are whole numbers, 0 or more")
        if max(parts) > sys.maxsize:
            raise InvalidValue(f"{path}: secs and nanos are {sys.maxsize} at most")
        return float(parts[0]) + float(parts[1]) / 1e9
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InvalidType(f"{path}: {value!r} is not a duration; write '5m', '1h30m' or seconds")
    return value


def _read_policy(value: object, path: str, depth: int) -> Node:
    return _read("policy", POLICIES, value, path, depth - 1)


def _read_predicate(value: object, path: str, depth: int) -> Node:
    written = str(value).lower() if isinstance(value, bool) else value
    return _read("predicate", PREDICATES, written, path, depth - 1)


def _read(kind: str, known: Mapping[str, Syntax], value: object, path: str, depth: int) -> Node:
    if depth <= 0:
        raise InvalidValue(f"{path}: nested deeper than {MAX_DEPTH} nodes")
    if isinstance(value, str):
        return _read_node(kind, known, _camel(value), None, path, depth)
    if isinstance(value, Mapping) and len(value) == 1:
        (key, inside), *_ = value.items()
        with at_key(key):
            return _read_node(kind, known, _camel(str(key)), inside, path, depth)
    raise InvalidType(f"{path}: {value!r} is not a {kind}; write a mapping with one key, the name of the node")


def _read_node(kind: str, known: Mapping[str, Syntax], name: str, inside: Tree, path: str, depth: int) -> Node:
    if name not in known:
        raise InvalidValue(f"{path}: {name!r} is not a {kind}; {suggestion(name, known)}")
    here = f"{path}.{name}"
    try:
        return _make(known[name], inside, here, depth)
    except ConfigurationError as error:
        if str(error).startswith(path):
            raise
        raise error.reworded(f"{here}: {error}") from None


def _make(node: Syntax, value: Tree, path: str, depth: int) -> Node:
    make = node.make or node.of
    if not node.keys:
        if value not in (None, {}):
            raise InvalidType(f"{path}: it takes nothing; write the name alone")
        return make()
    first = node.keys[0]
    if node.joined:
        if not isinstance(value, list) or len(value) < 2:
            raise InvalidType(f"{path}: {node.name} takes a list of two or more")
        return functools.reduce(make, _read_list(value, path, lambda each, at: first.form.read(each, at, depth)))
    if node.short and not (isinstance(value, Mapping) and first.name in value):
        return make(**{first.argument: first.form.read(value, path, depth)})
    if not isinstance(value, Mapping):
        names = ", ".join(key.name if key.required else f"{key.name}?" for key in node.keys)
        raise InvalidType(f"{path}: {node.name} takes {names}; write them as a mapping")
    fields = _fields(value, path, [key.name for key in node.keys])
    for key in node.keys:
        if key.required and key.name not in fields:
            raise InvalidValue(f"{path}: {node.name} lacks {key.name!r}")
    arguments = {}
    for key in node.keys:
        if key.name in fields:
            written, given = fields[key.name]
            with at_key(written):
                arguments[key.argument] = key.form.read(given, f"{path}.{key.name}", depth)
    return make(**arguments)


def _fields(value: Mapping[object, Tree], path: str, known: Collection[str]) -> dict[str, tuple[object, Tree]]:
    """The keys as they are written, with their values, by their names."""
    fields = {_camel(str(key)): (key, each) for key, each in value.items()}
    for name, (key, _) in fields.items():
        if name not in known:
            raise InvalidValue(f"{path}: {name!r} is unknown here; {suggestion(name, known)}").at(key)
    return fields


def _read_list(values: list[Tree], path: str, read: Callable[[Tree, str], T]) -> list[T]:
    """What a function makes of each value of a list, and of the path to it."""
    found = []
    for number, each in enumerate(values):
        with at_key(number):
            found.append(read(each, f"{path}[{number}]"))
    return found


def _camel(name: str) -> str:
    return re.sub(r"[_-](\w)", lambda match: match[1].upper(), name)


def tree_of(policy: Policy) -> Tree:
    """A policy as a file would hold it."""
    match policy:
        case Lookup(name=name):
            return name
        case Choice(among=among):  # the named policies of a file, in the order in which they are asked
            return [_write_keys(each, NAMED) for each in among]
        case Waits(strategy=Jittered(jitter=jitter) as strategy) if jitter:
            capped = isinstance(strategy, FixedBackoff) and strategy.max_delay is not None
            cap = {"cap": _write_duration(strategy.cap)} if capped else {}
            return {"jitter": _factor(jitter) | {"inner": _write(policy, POLICIES)} | cap}
        case Jitter(fraction=fraction, mode=mode, ceiling=ceiling, inner=inner):
            fields = _factor(fraction) if mode in ("symmetric", "add") else {}
            fields |= {} if mode == "symmetric" else {"mode": mode}
            own = widest(inner, fraction, mode) != ceiling
            return {"jitter": fields | ({"cap": _write_duration(ceiling)} if own else {}) | {"inner": tree_of(inner)}}
    return _write(policy, POLICIES)


def condition_of(predicate: Predicate) -> Tree:
    """A predicate as a file would hold it."""
    match predicate:
        case Constant(value=value):
            return value
        case IsA(kinds=(kind,)):
            return {"propEq": {"property": "error-bases", "value": qualified_name(kind)}}
        case IsA(kinds=kinds):
            return {"propIn": {"property": "error-bases", "values": [qualified_name(kind) for kind in kinds]}}
    return _write(predicate, PREDICATES)


def _syntax_of(node: Policy | Predicate, known: Mapping[str, Syntax]) -> Syntax | None:
    match node:
        case Waits():
            kind: object = type(node.strategy)
        case Comparison(how=how):
            kind = how
        case _:
            kind = type(node)
    return next((each for each in known.values() if each.of == kind), None)


def _write(node: Policy | Predicate, known: Mapping[str, Syntax]) -> Tree:
    syntax = _syntax_of(node, known)
    if syntax is None:
        if isinstance(node, Waits):
            return {"strategy": qualified_name(type(node.strategy))}
        return qualified_name(type(node))
    if not syntax.keys:
        return syntax.name
    first = syntax.keys[0]
    if syntax.joined:
        return {syntax.name: [first.form.write(each) for each in _flat(node)]}
    fields = _write_keys(node, syntax)
    return {syntax.name: fields[first.name] if syntax.short and len(fields) == 1 else fields}


def _write_keys(node: Node, syntax: Syntax) -> dict[str, Tree]:
    return {key.name: key.form.write(value) for key in syntax.keys if (value := key.of(node)) != key.default}


def _flat(pair: Node) -> list[Node]:
    """The parts that were joined from the left, in order."""
    left = _flat(pair.left) if type(pair.left) is type(pair) else [pair.left]
    return [*left, pair.right]


def _factor(fraction: float) -> dict[str, Tree]:
    return {} if fraction == 0.2 else {"factor": fraction}


def _write_duration(amount: float) -> str | float:
    text = human(amount)
    return text if seconds(text) == amount else amount


def _read_durations(value: Tree, path: str, depth: int) -> list[Duration]:
    if not isinstance(value, list):
        raise InvalidType(f"{path}: it is a list of durations")
    return _read_list(value, path, duration_of)


def _read_literal(value: Tree, path: str, depth: int = 0) -> Tree:
    if isinstance(value, Mapping):
        kinds = {"text": str, "integer": int, "boolean": bool}
        (kind, inside), *more = value.items() or [("", None)]
        if more or kind not in kinds or type(inside) is not kinds[kind]:
            raise InvalidType(f"{path}: a typed value is {{text: …}}, {{integer: …}} or {{boolean: …}}")
        return inside
    return value


def _read_literals(value: Tree, path: str, depth: int) -> list[Tree]:
    if not isinstance(value, list):
        raise InvalidType(f"{path}: it is a list")
    return [_read_literal(each, path) for each in value]


PLAIN = Form()
DURATION = Form(lambda value, path, _: duration_of(value, path), _write_duration)
DURATIONS = Form(_read_durations, lambda waits: [_write_duration(wait) for wait in waits])
LITERAL = Form(_read_literal)
LITERALS = Form(_read_literals, list)
POLICY = Form(_read_policy, tree_of)
PREDICATE = Form(_read_predicate, condition_of)

_CAP = Key("cap", "cap", DURATION, 60.0)
_BASE, _FACTOR = Key("baseDelay", "base", DURATION), Key("factor", "factor", PLAIN, 2.0)
_FIRST, _SECOND = Key("first", "first", DURATION), Key("second", "second", DURATION)
_DELAY = Key("delay", "delay", DURATION, get=lambda policy: policy.strategy.wait(1))
_DELAYS = Key("delays", "delays", DURATIONS)
_THEN = Key("then", "then", PLAIN, "last", lambda _: "last")  # one that stops is written as a count box
_INNER = Key("inner", "inner", POLICY)
_RETRIES, _LIMIT = Key("maxRetries", "limit", PLAIN), Key("limit", "limit", DURATION)
_LOW, _HIGH = Key("minDelay", "low", DURATION), Key("maxDelay", "high", DURATION)
_FRACTION, _MODE = Key("factor", "fraction", PLAIN, 0.2), Key("mode", "mode", PLAIN, "symmetric")
_CEILING = Key("cap", "cap", DURATION, None)
_CONDITION = Key("predicate", "condition", PREDICATE)
_PER_POLL, _PER_OUTAGE = Key("scope", "scope", PLAIN, "cycle"), Key("scope", "scope", PLAIN, "outage")
_PAIR = (Key("left", "left", POLICY), Key("right", "right", POLICY))
_SIDES = (Key("left", "left", PREDICATE), Key("right", "right", PREDICATE))
_PROPERTY = Key("property", "name", PLAIN)


def _table(*rows: Syntax) -> Mapping[str, Syntax]:
    return {row.name: row for row in rows}


POLICIES = _table(
    Syntax("immediate", Immediate),
    Syntax("never", Never),
    Syntax("periodic", FixedBackoff, (_DELAY, _PER_OUTAGE), make=periodic, short=True),
    Syntax("exponential", ExponentialBackoff, (_BASE, _FACTOR, _CAP, _PER_OUTAGE), make=exponential),
    Syntax("linear", LinearBackoff, (Key("step", "step", DURATION), _CAP, _PER_OUTAGE), make=linear),
    Syntax("fibonacci", FibonacciBackoff, (_FIRST, _SECOND, _CAP, _PER_OUTAGE), make=fibonacci),
    Syntax("sequence", SequenceBackoff, (_DELAYS, _THEN, _PER_OUTAGE), make=sequence, short=True),
    Syntax("countBox", CountBox, (_RETRIES, _INNER, _PER_POLL)),
    Syntax("timeBox", TimeBox, (_LIMIT, _INNER, _PER_OUTAGE)),
    Syntax("budget", Budget, (_LIMIT, _INNER, _PER_OUTAGE)),
    Syntax("clamp", Clamp, (_LOW, _HIGH, _INNER)),
    Syntax("addDelay", AddDelay, (Key("delay", "delay", DURATION), _INNER)),
    Syntax("retryAfter", ObeysRetryAfter, (_INNER,)),
    Syntax("jitter", Jitter, (_FRACTION, _INNER, _MODE, _CEILING), make=lambda inner, **given: inner.jitter(**given)),
    Syntax("filteredOn", FilteredOn, (_CONDITION, _INNER)),
    Syntax("andThen", AndThen, _PAIR, joined=True),
    Syntax("union", Union, _PAIR, joined=True),
    Syntax("intersect", Intersect, _PAIR, joined=True),
)


NAMED = Syntax(
    "a named policy",
    Named,
    (
        Key("name", "name", PLAIN),
        Key("priority", "priority", PLAIN, 0),
        Key("predicate", "condition", PREDICATE, Constant(True)),
        Key("policy", "policy", POLICY),
    ),
    named_policy,
)


def _comparison(name: str, how: str, operand: str, form: Form = LITERAL) -> Syntax:
    return Syntax(name, how, (_PROPERTY, Key(operand, "value", form)), functools.partial(Comparison, how=how))


PREDICATES = _table(
    Syntax("true", True, make=lambda: Constant(True)),
    Syntax("false", False, make=lambda: Constant(False)),
    _comparison("propEq", "eq", "value"),
    _comparison("propNeq", "neq", "value"),
    _comparison("propGt", "gt", "value"),
    _comparison("propGte", "gte", "value"),
    _comparison("propLt", "lt", "value"),
    _comparison("propLte", "lte", "value"),
    _comparison("propIn", "in", "values", LITERALS),
    _comparison("propMatches", "matches", "pattern"),
    _comparison("propRegex", "regex", "pattern"),
    _comparison("propStartsWith", "starts-with", "prefix"),
    _comparison("propContains", "contains", "substring"),
    Syntax("propExists", "exists", (_PROPERTY,), functools.partial(Comparison, how="exists"), short=True),
    Syntax("and", Both, _SIDES, joined=True),
    Syntax("or", Either, _SIDES, joined=True),
    Syntax("not", Not, (Key("inner", "inner", PREDICATE),), short=True),
)


def render(policy: Policy) -> str:
    """A policy on one line, as YAML writes it between braces."""
    return _line(tree_of(policy))


def render_condition(predicate: Predicate) -> str:
    """A predicate on one line, as `render`."""
    return _line(condition_of(predicate))


_BARE = re.compile(
    r"(?!(?:true|false|yes|no|on|off|null)$)[A-Za-z][\w.<>-]*|(?:[0-9]+(?:ms|[dhms]))+", re.ASCII | re.IGNORECASE
)
"""Text that YAML takes for text without quotes: names, and durations."""


def _line(tree: Tree) -> str:
    match tree:
        case dict():
            return f"{{{', '.join(f'{key}: {_line(value)}' for key, value in tree.items())}}}"
        case list():
            return f"[{', '.join(_line(each) for each in tree)}]"
        case str() if _BARE.fullmatch(tree):
            return tree
        case float() if tree.is_integer():
            return str(int(tree))
        case _:
            return json.dumps(tree, ensure_ascii=False)


_TOKEN = re.compile(r'("(?:[^"\\]|\\.)*")|([^\s{}\[\],:"][^{}\[\],:"]*)')


def parse(text: str) -> Tree:
    """Read the tree on one line: JSON whose names and values may stand without quotes.

    Raises:
        InvalidValue: it is not a policy; the message has the place of the fault.
    """
    quoted = _TOKEN.sub(lambda match: match[1] or json.dumps(_scalar(match[2].strip())), text)
    if is_nested_deeper(quoted, _BRACKETS * MAX_DEPTH):
        raise InvalidValue(f"{clean(text)!r} is not a policy: it is nested deeper than {MAX_DEPTH} nodes; write fewer")
    try:
        return json.loads(quoted)
    except json.JSONDecodeError as error:
        rest = clean(quoted[error.pos :].strip()) or "the end"
        raise InvalidValue(f"{clean(text)!r} is not a policy: at {rest!r}: {error.msg}") from None


def _scalar(text: str) -> Tree:
    if text in ("true", "false", "null"):
        return {"true": True, "false": False, "null": None}[text]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text
