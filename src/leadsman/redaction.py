"""Redaction by patterns of the user's own: serial numbers, addresses and other secrets that only the app knows.

The patterns of an app apply to all text that `leadsman.text.clean` makes safe, in the whole process, as long as the app
object lives. Text from a device may be made to hurt: a pattern that takes too long on the worst of texts would block
the event loop. Python cannot interrupt a search, so such a pattern is refused when it is declared. The rule looks at
the pattern alone, and so a pattern is refused on every machine or on none.
"""

import re
import warnings
from collections.abc import Iterable, Iterator
from re import _parser  # type: ignore[attr-defined]  # the only reader of patterns that there is
from typing import Any
from weakref import WeakSet

from leadsman.errors import InvalidType, InvalidValue

LONGEST_TEXT = 2000
"""Characters that a pattern is applied to at most."""
MOST_STEPS = 10_000_000
"""Steps that a search may take on the worst text, about a tenth of a second: at each of its characters, each repeat may
be tried with each of its lengths, and each alternative."""
HIDDEN = "***"
"""What takes the place of each match."""
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")


class Redaction:
    """The patterns of one app, compiled and checked.

    Raises:
        InvalidType, InvalidValue: see `pattern_of`.
    """

    __slots__ = ("__weakref__", "patterns")

    def __init__(self, patterns: Iterable[str]) -> None:
        if isinstance(patterns, str | bytes) or not isinstance(patterns, Iterable):
            raise InvalidType(
                f"redact is {patterns!r}; write a list of regular expressions, such as [r'SN-[0-9]{{8}}']"
            )
        self.patterns = tuple(pattern_of(pattern) for pattern in patterns)
        if self.patterns:
            _ACTIVE.add(self)


_ACTIVE: WeakSet[Redaction] = WeakSet()


def redacted(text: str) -> str:
    """The text, with `HIDDEN` in place of each match of a pattern."""
    for redaction in tuple(_ACTIVE):
        for pattern in redaction.patterns:
            text = pattern.sub(HIDDEN, text[:LONGEST_TEXT])  # `HIDDEN` may be longer than what it hides
    return text


def pattern_of(pattern: object) -> re.Pattern[str]:
    """Compile a pattern.

    Raises:
        InvalidType: it is no text.
        InvalidValue: it is no regular expression, it matches empty text, or it may take too long.
    """
    if not isinstance(pattern, str):
        raise InvalidType(f"redact has {pattern!r}; write a regular expression as text")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)  # a pattern that will mean something else
            compiled = re.compile(pattern)
            steps = _steps(_parser.parse(pattern))
    except (re.error, OverflowError, RecursionError, FutureWarning) as error:
        raise InvalidValue(f"redact has {pattern!r}, which is no regular expression: {error}; mend it") from None
    if steps > MOST_STEPS:
        raise InvalidValue(
            f"redact has {pattern!r}, which may take too long on a long text; write an upper limit, such as {{1,40}}, "
            "instead of + and *, and nothing of variable length and no | inside a repeat"
        )
    if compiled.search("") is not None:
        raise InvalidValue(f"redact has {pattern!r}, which matches empty text; write a pattern that needs a character")
    return compiled


def _steps(parsed: Any) -> float:
    """The steps of a search on the worst text. Infinity if a repeat has parts whose length varies: one text can be
    divided among them in ways whose number doubles with each character."""
    steps: float = LONGEST_TEXT
    for operation, argument in _operations(parsed):
        if operation in _REPEATS:
            fewest, most, body = (argument[0], int(argument[1]), argument[2])
            if most > 1 and any(_varies(inner, value) for inner, value in _operations(body)):
                return float("inf")
            steps *= min(max(most, most - fewest + 1), LONGEST_TEXT)
        elif operation == "BRANCH":
            steps *= len(argument[1])
    return steps


def _varies(operation: str, argument: Any) -> bool:
    """Whether an operation may match texts of several lengths, or in several ways."""
    return operation in ("BRANCH", "GROUPREF", "GROUPREF_EXISTS") or (
        operation in _REPEATS and argument[1] > argument[0]
    )


def _operations(parsed: Any) -> Iterator[tuple[str, Any]]:
    """All operations of a parsed pattern, those inside of others included."""
    for operation, argument in parsed:
        yield str(operation), argument
        for inner in _inside(argument):
            yield from _operations(inner)


def _inside(argument: Any) -> Iterator[Any]:
    """The parsed patterns in the argument of an operation."""
    if isinstance(argument, _parser.SubPattern):
        yield argument
    elif isinstance(argument, tuple | list):
        for each in argument:
            yield from _inside(each)
