"""Reads a tree that is written on one line, as `leadsman inspect` shows policies: ``{countBox: {maxRetries: 3, …}}``.

This is the part of YAML's flow style that policies need, and JSON. A TOML or YAML file holds the same tree.
"""

import json
import re
from typing import Any

from leadsman.errors import InvalidValue
from leadsman.text import clean

DEEPEST = 60
"""Brackets within brackets; a policy may have 50 nodes within nodes."""
Tree = Any
"""Mappings, lists, text, numbers, True, False and None."""
_TOKEN = re.compile(r'\s*(?:([{}\[\],:])|("(?:[^"\\]|\\.)*")|([^\s{}\[\],:"][^{}\[\],:"]*))')
_WORDS = {"true": True, "false": False, "null": None}


def tree_of(text: str) -> Tree:
    """Read a tree.

    Raises:
        InvalidValue: it is none; the message says where it ends to be one.
    """
    reader = _Reader(text)
    tree = reader.value(DEEPEST)
    if reader.token is not None:
        raise reader.wrong("the end")
    return tree


class _Reader:
    """Reads tokens, one ahead."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = self._end = 0
        self.token: str | None = None
        self._advance()

    def _advance(self) -> None:
        self._at = self._end
        match = _TOKEN.match(self._text, self._end)
        if match is None:
            self.token = None
            if self._text[self._end :].strip():
                raise self.wrong("text in two quotes")
            return
        self._end = match.end()
        self.token = (match[1] or match[2] or match[3]).strip()

    def wrong(self, wanted: str) -> InvalidValue:
        rest = clean(self._text[self._at :].strip()) or "the end"
        return InvalidValue(f"{clean(self._text)!r} is not a policy: at {rest!r} it lacks {wanted}")

    def _take(self, token: str) -> None:
        if self.token != token:
            raise self.wrong(repr(token))
        self._advance()

    def _next(self, end: str) -> None:
        if self.token != ",":
            raise self.wrong(f"',' or {end!r}")
        self._advance()

    def value(self, depth: int) -> Tree:
        if depth == 0:
            raise InvalidValue(f"the policy is nested deeper than {DEEPEST} brackets")
        if self.token == "{":
            return self._mapping(depth)
        if self.token == "[":
            return self._list(depth)
        return self._scalar()

    def _mapping(self, depth: int) -> dict[str, Tree]:
        found: dict[str, Tree] = {}
        self._take("{")
        while self.token != "}":
            if found:
                self._next("}")
            key = str(self._scalar())
            self._take(":")
            found[key] = self.value(depth - 1)
        self._take("}")
        return found

    def _list(self, depth: int) -> list[Tree]:
        found: list[Tree] = []
        self._take("[")
        while self.token != "]":
            if found:
                self._next("]")
            found.append(self.value(depth - 1))
        self._take("]")
        return found

    def _scalar(self) -> Tree:
        token = self.token
        if token is None or token in "{}[],:":
            raise self.wrong("a name or a value")
        self._advance()
        if token.startswith('"'):
            try:
                return json.loads(token)
            except ValueError:
                raise self.wrong("text in two quotes") from None
        if token in _WORDS:
            return _WORDS[token]
        for number in (int, float):
            try:
                return number(token)
            except ValueError:
                continue
        return token
