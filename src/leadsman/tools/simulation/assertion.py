"""Assertions about the figures of a day: ``gap_p99 < 10m and attempts < 4000``. Nothing in them is executed.

An assertion has comparisons with ``<``, ``<=``, ``>``, ``>=``, ``==`` and ``!=``, joined by ``and``, ``or``, ``not``
and brackets. Python's parser finds how they are joined. It gets underscores in place of figures and values, so it sees
nothing else.

A figure is compared with a value of its own kind: a count, a percentage, or a duration such as ``1h30m``. A zero fits
all of them. A percentage may stand without its sign if it is above 1; what is not could be meant as a fraction.
"""

import ast
import operator
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from leadsman.errors import InvalidValue
from leadsman.loop.durations import human, seconds
from leadsman.text import clean
from leadsman.text.suggestion import nearest
from leadsman.tools.simulation.outcome import DURATIONS, PERCENTAGES, Figures

MOST_BRACKETS = 50
"""Brackets and negations; no person writes more."""
_TOKEN = re.compile(
    r"(?P<space>\s+)|(?P<duration>(?:[0-9]+(?:\.[0-9]+)?(?:ms|[dhms]))+)(?!\w)|(?P<number>[0-9]+(?:\.[0-9]+)?%?)(?!\w)"
    r"|(?P<joint>(?i:and|or|not)\b)|(?P<figure>[A-Za-z_]\w*)|(?P<sign><=|>=|==|!=|[<>()])",
    re.ASCII,
)
_SIGNS: Mapping[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_ANY, _COUNT, _PERCENT, _DURATION = "a zero", "a count", "a percentage such as 99.5%", "a duration such as 10m"
Condition = Callable[[Figures], bool]


class Operand(NamedTuple):
    """A figure, or a value."""

    text: str
    kind: str
    value: float | None
    """None: the figure of that name."""

    def of(self, figures: Figures) -> float:
        """Its value."""
        return float(getattr(figures, self.text)) if self.value is None else self.value


class Assertion:
    """A condition for the figures of a day.

    Raises:
        InvalidValue: the text is no assertion. The message gives the place, and lists the names.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._code = text.strip()
        self._operands: dict[int, Operand] = {}
        code = self._masked()
        if code.count("(") + code.count("not") > MOST_BRACKETS:
            raise self._error(f"it has more than {MOST_BRACKETS} brackets and negations")
        if code.count("(") > code.count(")"):
            raise self._wrong(len(code), "')'")
        try:
            tree = ast.parse(code, mode="eval")
        except SyntaxError as error:  # an end that comes too soon has no offset
            raise self._wrong((error.offset or len(code) + 1) - 1, "expected here") from None
        self.holds = self._condition(tree.body)
        """Whether it is true for some figures."""
        self.figures = tuple(dict.fromkeys(each.text for each in self._operands.values() if each.value is None))
        """The names of the figures that it asks for, each once, in their order."""

    def _masked(self) -> str:
        """The assertion with underscores in place of its operands, which are kept by their places."""
        code = ""
        while len(code) < len(self._code):
            at = len(code)
            match = _TOKEN.match(self._code, at)
            if match is None:
                raise self._wrong(at, "a name, a number or a comparison")
            kind, token = match.lastgroup, match[0]
            if kind == "figure" or kind == "number" or kind == "duration":
                self._operands[at] = self._operand(kind, token)
                token = "_" * len(token)
            code += " " * len(token) if kind == "space" else token.lower()
        return code

    def _operand(self, kind: str, token: str) -> Operand:
        if kind == "duration":
            return Operand(token, _DURATION, seconds(token, "a duration in the assertion"))
        if kind == "number":
            number = float(token.rstrip("%"))
            return Operand(token, _PERCENT if token.endswith("%") else _COUNT if number else _ANY, number)
        if token not in Figures._fields:
            near, names = nearest(token, Figures._fields), f"he figures are {', '.join(Figures._fields)}"
            raise self._error(
                f"{token!r} is not a figure; {f't{names}' if near is None else f'did you mean {near!r}? T{names}'}"
            )
        return Operand(token, _DURATION if token in DURATIONS else _PERCENT if token in PERCENTAGES else _COUNT, None)

    def _condition(self, node: ast.expr) -> Condition:
        match node:
            case ast.BoolOp(op=op, values=values):
                parts, join = [self._condition(each) for each in values], all if isinstance(op, ast.And) else any
                return lambda figures: join(part(figures) for part in parts)
            case ast.UnaryOp(operand=operand):  # `not` is the only sign that can stand before an operand here
                inner = self._condition(operand)
                return lambda figures: not inner(figures)
            case ast.Compare(left=ast.Name() as left, ops=[sign], comparators=[ast.Name() as right]):
                return self._comparison(left, _SIGNS[type(sign)], right)
        raise self._wrong(node.col_offset, "one comparison")

    def _comparison(self, first: ast.Name, compare: Callable[[float, float], bool], second: ast.Name) -> Condition:
        left, right = self._operands[first.col_offset], self._operands[second.col_offset]
        if not _comparable(left, right):
            raise self._error(f"{left.text} is {left.kind}, and {right.text} is {right.kind}; compare two of one kind")
        if left.value is not None and right.value is not None:
            written = self._code[first.col_offset : second.end_col_offset]
            raise self._error(f"{written} compares no figure; the figures are {', '.join(Figures._fields)}")
        return lambda figures: compare(left.of(figures), right.of(figures))

    def _wrong(self, at: int, wanted: str) -> InvalidValue:
        rest = self._code[at:]
        match = _TOKEN.match(rest)
        token = rest.split()[0] if match is None and rest else match and match[0]
        found = f"{clean(token)!r} at character {at + 1}" if token else "the end"
        return self._error(
            f"{found} is not {wanted}; write, for example, 'gap_p99 < 10m and attempts < 4000', with the figures "
            f"{', '.join(Figures._fields)}"
        )

    def _error(self, problem: str) -> InvalidValue:
        return InvalidValue(f"the assertion {clean(self.text)!r}: {problem}")


def show_figure(name: str, value: float) -> str:
    """The value of a figure for a person: ``12m40s``, ``99.5%`` or ``4,012``."""
    if name in DURATIONS:
        return human(value)
    return f"{value:g}%" if name in PERCENTAGES else f"{value:,.0f}"


def _comparable(left: Operand, right: Operand) -> bool:
    """Whether both are of one kind. A number above 1 is one with a percentage."""
    kinds = {left.kind, right.kind}
    numbers = [each.value for each in (left, right) if each.kind == _COUNT and each.value is not None]
    return len(kinds) == 1 or _ANY in kinds or (_PERCENT in kinds and any(number > 1 for number in numbers))
