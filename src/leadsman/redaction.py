"""Redaction: the values of secret settings, and what matches patterns of the user's own, such as serial numbers.

A secret that the app was given is hidden by its value, wherever an error repeats it: as it is, quoted, percent-encoded,
in base64, and cut at the end of a text.

The patterns of an app apply to all text that `leadsman.text.clean` makes safe, in the whole process, as long as the app
object lives. Text from a device may be made to hurt: a pattern that takes too long on the worst of texts would block
the event loop. Python cannot interrupt a search, so such a pattern is refused when it is declared. The rule looks at
the pattern alone, and so a pattern is refused on every machine or on none.
"""

import base64
import json
import re
import warnings
from collections.abc import Iterable, Iterator
from re import _parser  # type: ignore[attr-defined]  # the only reader of patterns that there is
from typing import Any
from urllib.parse import quote, quote_plus
from weakref import WeakSet

from leadsman.errors import InvalidType, InvalidValue

LONGEST_TEXT = 2000
"""Characters that a pattern is applied to at most."""
MOST_STEPS = 10_000_000
"""Steps that a search may take on the worst text, about a tenth of a second: at each of its characters, each repeat may
be tried with each of its lengths, and each alternative."""
SHORTEST_SECRET = 6
"""Characters of a secret that is hidden by its value: a shorter one is a part of too many words."""
LONGEST_LINE = 20_000
"""Characters of a text in which secrets are looked for; what follows is not shown."""
HIDDEN = "***"
"""What takes the place of each match."""
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")


class Redaction:
    """The patterns of one app, compiled and checked.

    Raises:
        InvalidType, InvalidValue: see `pattern_of`.
    """

    __slots__ = ("__weakref__", "_shapes", "patterns")

    def __init__(self, patterns: Iterable[str]) -> None:
        if isinstance(patterns, str | bytes) or not isinstance(patterns, Iterable):
            raise InvalidType(
                f"redact is {patterns!r}; write a list of regular expressions, such as [r'SN-[0-9]{{8}}']"
            )
        self.patterns = tuple(pattern_of(pattern) for pattern in patterns)
        self._shapes: list[str] = []
        if self.patterns:
            _ACTIVE.add(self)

    def learn(self, secrets: Iterable[str]) -> None:
        """Hide these values from now on, instead of those that were learned before."""
        shapes = {shape for secret in secrets for shape in shapes_of(secret)}
        self._shapes = sorted(shapes, key=len, reverse=True)
        if shapes:
            _ACTIVE.add(self)

    def without_secrets(self, text: str) -> str:
        """The text, with `HIDDEN` in place of each secret that was learned."""
        for shape in self._shapes:
            if shape in text:
                text = text.replace(shape, HIDDEN)
        shown = text.rstrip("…'\". ")
        for shape in self._shapes:  # the text may have been cut in the middle of one
            at = shown.rfind(shape[:SHORTEST_SECRET])
            if at >= 0 and shape.startswith(shown[at:]):
                return f"{shown[:at]}{HIDDEN}"
        return text


_ACTIVE: WeakSet[Redaction] = WeakSet()


def shapes_of(secret: str) -> Iterator[str]:
    """How a secret may stand in a text: as it is, as Python and JSON quote it, percent-encoded (RFC 3986 §2.1), and
    inside base64 at each of its three positions (RFC 4648 §4), where a user and a colon may precede it. Of one that
    has several lines, each long line."""
    if len(secret) < SHORTEST_SECRET:
        return
    for each in (secret, *(line for line in secret.splitlines() if "\n" in secret and len(line) >= 16)):
        raw = each.encode(errors="surrogatepass")
        yield from (each, repr(each)[1:-1], json.dumps(each)[1:-1], json.dumps(each, ensure_ascii=False)[1:-1])
        encoded = quote(raw, safe=""), quote(raw), quote_plus(raw)
        yield from (*encoded, *(re.sub("%..", lambda found: found[0].lower(), text) for text in encoded))
        for before in range(3):
            for alphabet in (base64.b64encode, base64.urlsafe_b64encode):
                text = alphabet(b"\0" * before + raw).decode()
                inner = text[4 if before else 0 : len(text) // 4 * 4 - 4]  # without what its neighbours decide
                if len(inner) >= SHORTEST_SECRET:
                    yield inner


def without_secrets(text: str) -> str:
    """The text, with `HIDDEN` in place of each secret of an app in this process."""
    for redaction in tuple(_ACTIVE):
        text = redaction.without_secrets(text)
    return text


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
