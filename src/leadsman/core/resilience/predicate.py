"""Predicates: questions that a policy asks about a failure, with three answers: yes, no, and unknown.

``prop("errno") == 19`` asks for one property; ``&``, ``|`` and ``~`` combine questions. If the failure does not have a
property, the answer is unknown, also under ``~``, as in Kleene's logic; as the final answer, unknown is no match. A
property with several values, such as ``error-bases``, answers yes if one of them does.
"""

import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from leadsman.core.resilience.failure import NUMBERS, PROPERTIES, Failure, Property, exception_types, matches
from leadsman.core.text.suggestion import suggestion
from leadsman.core.value import Value
from leadsman.errors import InvalidType, InvalidValue

Literal = str | int | float | bool


class Predicate(Value):
    """A question about a failure."""

    __slots__ = ()

    def answer(self, failure: Failure) -> bool | None:
        """Yes, no, or None for not known."""
        raise NotImplementedError

    def __and__(self, other: object) -> "Predicate":
        return Both(self, predicate(other))

    def __or__(self, other: object) -> "Predicate":
        return Either(self, predicate(other))

    def __invert__(self) -> "Predicate":
        return Not(self)

    def __bool__(self) -> bool:
        raise TypeError("join predicates with & | ~, not with and, or, not")


class Constant(Predicate):
    """Always the same answer."""

    __slots__ = ("value",)
    value: bool

    def __init__(self, value: bool) -> None:
        self._hold(value=value)

    def answer(self, failure: Failure) -> bool | None:
        return self.value


class IsA(Predicate):
    """Whether the error is of one of these classes; an exception group is when all its leaves are."""

    __slots__ = ("kinds",)
    kinds: tuple[type[Exception], ...]

    def __init__(self, *kinds: type[Exception]) -> None:
        self._hold(kinds=exception_types(kinds, "is_a"))

    def answer(self, failure: Failure) -> bool | None:
        return matches(failure.error, self.kinds)


class Comparison(Predicate):
    """One property held against something. `how` is a key of `TESTS`."""

    __slots__ = ("how", "name", "value")
    name: str
    how: str
    value: object

    def __init__(self, name: str, how: str, value: object = None) -> None:
        self._hold(name=_known(name), how=how, value=_check(name, how, value))

    def answer(self, failure: Failure) -> bool | None:
        found = failure.get(self.name)
        if self.how == "exists":
            return found is not None
        if found is None:
            return None
        ask = TESTS[self.how]
        if isinstance(found, tuple):
            answers = [ask(each, self.value) for each in found]
            if self.how == "neq":
                return all(answers)
            return True if True in answers else None if None in answers else False
        return ask(found, self.value)


class Not(Predicate):
    """The other answer; unknown stays unknown."""

    __slots__ = ("inner",)
    inner: Predicate

    def __init__(self, inner: Predicate) -> None:
        self._hold(inner=inner)

    def answer(self, failure: Failure) -> bool | None:
        answer = self.inner.answer(failure)
        return None if answer is None else not answer


class _Pair(Predicate):
    """Two questions."""

    __slots__ = ("left", "right")
    left: Predicate
    right: Predicate

    def __init__(self, left: Predicate, right: Predicate) -> None:
        self._hold(left=left, right=right)


class Both(_Pair):
    """Yes when both are yes, no when one is no."""

    __slots__ = ()

    def answer(self, failure: Failure) -> bool | None:
        left = self.left.answer(failure)
        if left is False:
            return False
        right = self.right.answer(failure)
        return right if left or right is False else None


class Either(_Pair):
    """Yes when one is yes, no when both are no."""

    __slots__ = ()

    def answer(self, failure: Failure) -> bool | None:
        left = self.left.answer(failure)
        if left:
            return True
        right = self.right.answer(failure)
        return right if left is False or right else None


class Prop:
    """A property of a failure, to be compared: ``prop("errno") == 19``, ``prop("adapter").in_("ble", "serial")``."""

    __slots__ = ("_name",)
    __hash__ = None  # type: ignore[assignment]  # == makes a question of it, so it is no key

    def __init__(self, name: str) -> None:
        self._name = _known(name)

    def __eq__(self, value: object) -> Predicate:  # type: ignore[override]  # a question, as in SQL builders
        return Comparison(self._name, "eq", value)

    def __ne__(self, value: object) -> Predicate:  # type: ignore[override]  # a question, as in SQL builders
        return Comparison(self._name, "neq", value)

    def __gt__(self, value: float) -> Predicate:
        return Comparison(self._name, "gt", value)

    def __ge__(self, value: float) -> Predicate:
        return Comparison(self._name, "gte", value)

    def __lt__(self, value: float) -> Predicate:
        return Comparison(self._name, "lt", value)

    def __le__(self, value: float) -> Predicate:
        return Comparison(self._name, "lte", value)

    def exists(self) -> Predicate:
        """Whether the failure has this property."""
        return Comparison(self._name, "exists")

    def in_(self, *values: Literal) -> Predicate:
        """Whether the property is one of these values."""
        return Comparison(self._name, "in", values)

    def matches(self, pattern: str) -> Predicate:
        """Whether the property matches a glob: ``*`` is any text, ``?`` any character, ``[…]`` one of these characters.
        Case-sensitive. A glob of an error message or of a class needs one of these: `contains` asks for a part."""
        return Comparison(self._name, "matches", pattern)

    def regex(self, pattern: str) -> Predicate:
        """Whether a regular expression is found in the property."""
        return Comparison(self._name, "regex", pattern)

    def starts_with(self, prefix: str) -> Predicate:
        """Whether the property begins with this text."""
        return Comparison(self._name, "starts-with", prefix)

    def contains(self, part: str) -> Predicate:
        """Whether the property contains this text."""
        return Comparison(self._name, "contains", part)


def prop(name: str) -> Prop:
    """Refer to a property of a failure. The names are those of `leadsman.core.resilience.failure.PROPERTIES`; those
    that begin with ``x-`` are keys of an exception's mapping ``retry_properties``.

    Raises:
        InvalidValue: there is not a property of that name.
    """
    return Prop(name)


def is_a(*kinds: type[Exception]) -> Predicate:
    """Whether the error is an instance of one of these classes.

    Raises:
        InvalidType: one of them is not a subclass of `Exception`.
    """
    return IsA(*kinds)


def predicate(value: object) -> Predicate:
    """See that something is a question. Raises `InvalidType`."""
    if isinstance(value, Predicate):
        return value
    if isinstance(value, bool):
        return Constant(value)
    raise InvalidType(f"{value!r} is not a predicate; write prop('errno') == 19, is_a(OSError), True or False")


def simplify(question: Predicate, facts: Mapping[str, Property]) -> Predicate:
    """What is left to ask once some properties are known for good: a `Constant` where they alone decide."""
    match question:
        case Comparison(name=name) if name in facts:
            answer = question.answer(Failure(OSError(), facts))
            return question if answer is None else Constant(answer)
        case Not(inner=inner):
            rest = simplify(inner, facts)
            return Constant(not rest.value) if isinstance(rest, Constant) else Not(rest)
        case Both(left=left, right=right) | Either(left=left, right=right):
            decisive = isinstance(question, Either)  # the answer of one side that decides for both
            sides = [simplify(side, facts) for side in (left, right)]
            if any(isinstance(side, Constant) and side.value is decisive for side in sides):
                return Constant(decisive)
            open_ = [side for side in sides if not isinstance(side, Constant)]
            return type(question)(*open_) if len(open_) == 2 else open_[0] if open_ else Constant(not decisive)
    return question


Test = Callable[[Any, Any], bool | None]
"""Holds a property against a value, whose type `_check` has seen to; None where the two cannot be compared."""


def _equal(found: object, value: object) -> bool | None:
    if isinstance(found, bool) or isinstance(value, bool):
        return found is value
    if isinstance(found, str) == isinstance(value, str):
        return bool(found == value)
    left, right = _number(found), _number(value)
    return None if left is None or right is None else left == right


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def _compare_as(compare: Callable[[float, float], bool]) -> Test:
    def ask(found: object, value: object) -> bool | None:
        left, right = _number(found), _number(value)
        return None if left is None or right is None else compare(left, right)

    return ask


def _unequal(found: object, value: object) -> bool | None:
    same = _equal(found, value)
    return None if same is None else not same


def _among(found: object, values: Iterable[object]) -> bool | None:
    answers = [_equal(found, value) for value in values]
    return True if True in answers else None if None in answers else False


TESTS: Mapping[str, Test] = {
    "eq": _equal,
    "neq": _unequal,
    "gt": _compare_as(lambda left, right: left > right),
    "gte": _compare_as(lambda left, right: left >= right),
    "lt": _compare_as(lambda left, right: left < right),
    "lte": _compare_as(lambda left, right: left <= right),
    "in": _among,
    "matches": lambda found, pattern: fnmatch.fnmatchcase(str(found), pattern),
    "regex": lambda found, pattern: re.search(pattern, str(found)) is not None,
    "starts-with": lambda found, prefix: str(found).startswith(prefix),
    "contains": lambda found, part: part in str(found),
    "exists": lambda *_: True,
}
"""How a property is held against a value; None where the two cannot be compared."""
_TEXT = frozenset({"matches", "regex", "starts-with", "contains"})
_ORDER = frozenset({"gt", "gte", "lt", "lte"})
_CLASSES = frozenset({"error-type", "error-bases"})
"""Properties that are qualified names of classes."""


def _known(name: object) -> str:
    if not isinstance(name, str):
        raise InvalidType(f"the property is {name!r}; write its name, such as 'errno'")
    if name not in PROPERTIES and not name.startswith("x-"):
        raise InvalidValue(
            f"{name!r} is not a property of a failure; {suggestion(name, PROPERTIES)}; one of your own begins with 'x-'"
        )
    return name


def _check(name: str, how: str, value: object) -> object:
    if how == "in":
        values: Iterable[object] = value if isinstance(value, list | tuple | set | frozenset) else ()
        if not (checked := tuple(_check(name, "eq", each) for each in values)):
            raise InvalidValue(f"in of {name!r} has no values, so nothing would match")
        return checked
    if how in _TEXT:
        _check_text(name, how, value)
    if how in ("eq", "neq", *_ORDER):
        if not isinstance(value, str | int | float):
            raise InvalidType(f"{name!r} is compared with {value!r}; write text, a number, True or False")
        if (name in NUMBERS or how in _ORDER) and _number(value) is None:
            raise InvalidType(f"{name!r} is compared with {value!r}; write a number")
        if isinstance(value, float) and value != value:
            raise InvalidValue(f"{name!r} is compared with NaN, which equals nothing")
    return value


def _check_text(name: str, how: str, value: object) -> None:
    if not isinstance(value, str):
        raise InvalidType(f"{how} of {name!r} takes text, not {value!r}")
    if how == "regex":
        _check_pattern(name, value)
    if how == "matches" and _regular(name, value):
        raise InvalidValue(
            f"matches of {name!r} takes a glob such as '*timeout*', and {value!r} looks like a regular expression; "
            "write regex, in files propRegex"
        )

    if (
        how == "matches"
        and not re.search(r"[*?[]", value)
        and (name == "error-message" or (name in _CLASSES and "." not in value))
    ):
        raise InvalidValue(
            f"matches of {name!r} takes a glob, and {value!r} has no * or ?, so only just this text would match; "
            f"write '*{value}*' for a part, or == for equality, in files propEq"
        )


def _regular(name: str, pattern: str) -> bool:
    """Whether a pattern is a regular expression by its look: as a glob it would match nothing, in silence.

    Names of classes have a dot before what differs, so ``httpx.*`` is a glob of them.
    """
    dotted = name in _CLASSES and not pattern.startswith(".")
    return bool(re.search(r"^\^|\$$|\\|\||\(\?|\.\+" + ("" if dotted else r"|\.\*"), pattern))


def _check_pattern(name: str, pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise InvalidValue(f"regex of {name!r} is {pattern!r}: {error}") from None
