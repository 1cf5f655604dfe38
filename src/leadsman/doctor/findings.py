"""Findings: what a check says, and what to do about it."""

from collections.abc import Iterable
from typing import Literal, NamedTuple

Verdict = Literal["ok", "warn", "fail", "unknown"]
"""``warn``: the app works with less than it could have. ``fail``: something of the app does not work. ``unknown``: it
could not be seen from here."""
_RANK: tuple[Verdict, ...] = ("ok", "unknown", "warn", "fail")


class Result(NamedTuple):
    """The answer of one check."""

    verdict: Verdict
    text: str
    advice: str = ""
    """What to do, in one line; empty where there is nothing to do."""


class Finding(NamedTuple):
    """A result, with the check that found it."""

    group: str
    check: str
    verdict: Verdict
    text: str
    advice: str = ""


def ok(text: str) -> Result:
    """All is well."""
    return Result("ok", text)


def warn(text: str, advice: str) -> Result:
    """The app works with less than it could have."""
    return Result("warn", text, advice)


def fail(text: str, advice: str) -> Result:
    """Something does not work."""
    return Result("fail", text, advice)


def unknown(text: str, advice: str = "") -> Result:
    """It could not be seen."""
    return Result("unknown", text, advice)


def worst(findings: Iterable[Finding]) -> Verdict:
    """The verdict of the whole."""
    return max((each.verdict for each in findings), key=_RANK.index, default="ok")
