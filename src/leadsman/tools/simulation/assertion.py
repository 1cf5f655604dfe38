"""Assertions about the figures of a day: ``gap_p99 < 10m and attempts < 4000``. Nothing in them is executed.

::

    condition   = all { "or" all }
    all         = each { "and" each }
    each        = "not" each | "(" condition ")" | operand comparison operand
    comparison  = "<" | "<=" | ">" | ">=" | "==" | "!="
    operand     = the name of a figure | number | number "%" | duration

A figure is compared with a value of its own kind: a count, a percentage, or a duration such as ``1h30m``. A zero fits
all of them. A percentage may stand without its sign if it is above 1; what is not could be meant as a fraction.
"""

import operator
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from leadsman.errors import InvalidValue
from leadsman.loop.durations import human, seconds
from leadsman.text import clean, nearest
from leadsman.tools.simulation.outcome import DURATIONS, PERCENTAGES, Figures

DEEPEST = 50
"""Brackets within brackets; no person writes more."""
_TOKEN = re.compile(
    r"\s*(?:(?P<duration>(?:[0-9]+(?:\.[0-9]+)?(?:ms|[dhms]))+)"
    r"|(?P<number>[0-9]+(?:\.[0-9]+)?%?)|(?P<word>[A-Za-z_]\w*)|(?P<sign><=|>=|==|!=|<|>|\(|\)))",
    re.ASCII,
)
_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_ANY, _COUNT, _PERCENT, _DURATION = "a zero", "a count", "a percentage such as 99.5%", "a duration such as 10m"


class Operand(NamedTuple):
    """A figure, or a value."""

    text: str
    kind: str
    value: float | None
    """None: the figure of that name."""

    def of(self, figures: Figures) -> float:
        """Its value."""
        return float(getattr(figures, self.text)) if self.value is None else self.value


class Comparison(NamedTuple):
    """``left sign right``."""

    left: Operand
    sign: str
    right: Operand

    def holds(self, figures: Figures) -> bool:
        """Whether it is true."""
        return _COMPARISONS[self.sign](self.left.of(figures), self.right.of(figures))


class Negation(NamedTuple):
    """``not inner``."""

    inner: "Condition"

    def holds(self, figures: Figures) -> bool:
        """Whether it is true."""
        return not self.inner.holds(figures)


class Junction(NamedTuple):
    """Several conditions: all of them, or any."""

    every: bool
    parts: "tuple[Condition, ...]"

    def holds(self, figures: Figures) -> bool:
        """Whether it is true."""
        return (all if self.every else any)(part.holds(figures) for part in self.parts)


Condition = Comparison | Negation | Junction


def condition_of(text: str) -> Condition:
    """Read an assertion.

    Raises:
        InvalidValue: it is no assertion. The message says where, and lists the names.
    """
    reader = _Reader(text)
    found = reader.condition(DEEPEST)
    if reader.kind:
        raise reader.wrong("'and', 'or' or the end")
    return found


def figures_in(condition: Condition) -> tuple[str, ...]:
    """The names of the figures that a condition asks for, each once, in their order."""
    match condition:
        case Comparison(left, _, right):
            names = [each.text for each in (left, right) if each.value is None]
        case Negation(inner):
            names = list(figures_in(inner))
        case Junction(_, parts):
            names = [name for part in parts for name in figures_in(part)]
    return tuple(dict.fromkeys(names))


def shown(name: str, value: float) -> str:
    """The value of a figure for a person: ``12m40s``, ``99.5%`` or ``4,012``."""
    if name in DURATIONS:
        return human(value)
    return f"{value:g}%" if name in PERCENTAGES else f"{value:,.0f}"


class _Reader:
    """Reads the tokens of an assertion, one ahead."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._end = 0
        self._begin = 0
        self.kind = ""
        self.token = ""
        self._advance()

    def _advance(self) -> None:
        rest = self._text[self._end :]
        self._begin = self._end + len(rest) - len(rest.lstrip())
        if not rest.strip():
            self.kind = self.token = ""
            return
        match = _TOKEN.match(rest)
        if match is None:
            self.kind, self.token = "?", rest.split()[0]
            raise self.wrong("a name, a number or a comparison")
        self.kind = match.lastgroup or ""
        self.token = match[self.kind]
        self._end += match.end()

    def wrong(self, wanted: str) -> InvalidValue:
        """The error for the current token."""
        found = f"{clean(self.token)!r} at character {self._begin + 1}" if self.token else "the end"
        return InvalidValue(
            f"the assertion {clean(self._text)!r}: {found} is not {wanted}; write, for example, "
            f"'gap_p99 < 10m and attempts < 4000', with the figures {', '.join(Figures._fields)}"
        )

    def _take(self, word: str) -> bool:
        if self.token.lower() != word:
            return False
        self._advance()
        return True

    def condition(self, depth: int) -> Condition:
        parts = [self._all(depth)]
        while self._take("or"):
            parts.append(self._all(depth))
        return parts[0] if len(parts) == 1 else Junction(False, tuple(parts))

    def _all(self, depth: int) -> Condition:
        parts = [self._each(depth)]
        while self._take("and"):
            parts.append(self._each(depth))
        return parts[0] if len(parts) == 1 else Junction(True, tuple(parts))

    def _each(self, depth: int) -> Condition:
        if depth == 0:
            raise InvalidValue(f"the assertion is nested deeper than {DEEPEST} brackets")
        if self._take("not"):
            return Negation(self._each(depth - 1))
        if self._take("("):
            inner = self.condition(depth - 1)
            if not self._take(")"):
                raise self.wrong("')'")
            return inner
        left = self._operand()
        sign = self.token
        if sign not in _COMPARISONS:
            raise self.wrong(f"a comparison, {' '.join(_COMPARISONS)}")
        self._advance()
        right = self._operand()
        if not _comparable(left, right):
            raise InvalidValue(
                f"the assertion {clean(self._text)!r}: {left.text} is {left.kind}, and {right.text} is {right.kind}; "
                "compare two of one kind"
            )
        if left.value is not None and right.value is not None:
            raise InvalidValue(
                f"the assertion {clean(self._text)!r}: {left.text} {sign} {right.text} compares no figure; "
                f"the figures are {', '.join(Figures._fields)}"
            )
        return Comparison(left, sign, right)

    def _operand(self) -> Operand:
        kind, token = self.kind, self.token
        if kind == "number":
            number = float(token.rstrip("%"))
            found = Operand(token, _PERCENT if token.endswith("%") else _COUNT if number else _ANY, number)
        elif kind == "duration":
            found = Operand(token, _DURATION, seconds(token, "a duration in the assertion"))
        elif kind == "word" and token.lower() not in ("and", "or", "not"):
            if token not in Figures._fields:
                raise InvalidValue(f"the assertion {clean(self._text)!r}: {token!r} is not a figure; {_instead(token)}")
            found = Operand(token, _kind_of(token), None)
        else:
            raise self.wrong("a figure or a value")
        self._advance()
        return found


def _comparable(left: Operand, right: Operand) -> bool:
    """Whether both are of one kind. A number above 1 is one with a percentage."""
    kinds = {left.kind, right.kind}
    numbers = [each.value for each in (left, right) if each.kind == _COUNT and each.value is not None]
    return len(kinds) == 1 or _ANY in kinds or (_PERCENT in kinds and any(number > 1 for number in numbers))


def _kind_of(name: str) -> str:
    return _DURATION if name in DURATIONS else _PERCENT if name in PERCENTAGES else _COUNT


def _instead(name: str) -> str:
    near = nearest(name, Figures._fields)
    figures = f"the figures are {', '.join(Figures._fields)}"
    return figures if near is None else f"did you mean {near!r}? {figures[0].upper()}{figures[1:]}"
