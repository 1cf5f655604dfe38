"""A comparison for people. Pure."""

import json
from collections.abc import Iterable, Iterator, Sequence

from leadsman.core.loop.durations import human
from leadsman.core.text import count_noun
from leadsman.tools.difference.difference import Change, unsteady
from leadsman.tools.difference.picture import Picture

MAX_LINES = 20
"""Lines of a group. The command has all of them with ``--json``."""
GROUPS = ("settings", "topics", "payload fields", "entities of Home Assistant")
SIGNS = {"appears": "+", "disappears": "-", "type": "~", "value": "~"}
MAX_CHARS = 60
"""Characters of a value."""
ERROR = ("type", "message")
"""The fields of a device's error that say what it is."""
LATER = "(a later value)"
"""In place of a value that is not among the first."""


def lines_of(before: Picture, after: Picture, found: Sequence[Change]) -> Iterator[str]:
    """The lines of a comparison: what changes, and what to do."""
    yield f"{after['app']}, {human(after['length'])}: + appears, - disappears, ~ changes"
    yield from _listed("fails now", [*_newly_failing(after, found)])
    for group in GROUPS:
        yield from _listed(group, [line_of(each) for each in found if group_of(each) == group])
    yield ""
    yield _conclusion(found)
    if count := max(unsteady(before["found"]), unsteady(after["found"])):
        yield f"{count_noun(count, 'value differs', 'values differ')} from run to run, and cannot be compared."


def _listed(heading: str, lines: Sequence[str]) -> Iterator[str]:
    """The first lines below their heading; nothing if there are none."""
    if lines:
        yield ""
        yield f"{heading}:"
        yield from (f"  {each}" for each in lines[:MAX_LINES])
    if len(lines) > MAX_LINES:
        yield f"  and {len(lines) - MAX_LINES} more, which --json prints"


def _conclusion(found: Sequence[Change]) -> str:
    if not found:
        return "Nothing changes: what reads these topics goes on as before."
    return (
        f"{count_noun(len(found), 'change', 'changes')}. Look at what reads these topics; if all of it is "
        "meant, install it, else keep what runs."
    )


def _newly_failing(after: Picture, found: Iterable[Change]) -> Iterator[str]:
    """Which devices fail only after, each with its first error: what the other changes come from."""
    for change in found:
        match change:
            case Change(path=("topics", str(topic)), how="appears") if topic.endswith("/error"):
                fields = after["found"]["fields"]["topics"]["fields"][topic]["fields"]["payload"]["fields"]
                first = [fields[name]["values"][:1] for name in ERROR if name in fields]
                said = [" ".join(str(each).replace(r"\n", " ").split()) for values in first for each in values]
                yield ": ".join((topic.removesuffix("/error"), *said))


def group_of(change: Change) -> str:
    """The heading below which a change stands."""
    match change.path:
        case ("settings", *_):
            return "settings"
        case ("entities", *_):
            return "entities of Home Assistant"
        case ("topics", _, "payload", *_):
            return "payload fields"
    return "topics"


def line_of(change: Change) -> str:
    """A change in one line."""
    what = f"{SIGNS[change.how]} {name_of(change)}"
    match change.how:
        case "appears" | "disappears":
            return what
        case "type":
            return f"{what}: {change.before} → {change.after}"
    return f"{what}: {_value(change.before)} → {_value(change.after)}"


def name_of(change: Change) -> str:
    """The place of a change in words."""
    match change.path:
        case (_, name, "payload", *fields) if group_of(change) == "payload fields":
            return " ".join((name, *_dotted(fields)))
        case (_, name, *fields):
            return " ".join((name, *_dotted(fields)))
    return " ".join(change.path)


def _dotted(names: Iterable[str]) -> tuple[str, ...]:
    joined = ".".join(names)
    return (joined,) if joined else ()


def _value(value: object) -> str:
    text = LATER if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]}…"
