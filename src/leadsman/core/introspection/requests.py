"""Reads requests of people and tools. A wrong one is cheap, however many devices the app has."""

import itertools
from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple, get_args

from leadsman.core.mqtt.answers import Json
from leadsman.core.mqtt.topics import MAX_NAME_BYTES
from leadsman.core.text import clean
from leadsman.core.text.suggestion import suggestion
from leadsman.errors import PayloadError, UnknownDevice

Standard = Literal["app", "mqtt", "adapters", "devices", "jobs"]
"""The sections of an answer to a request that names none."""
Action = Literal["isolate", "close", "disable"]
"""The actions that a person may take on a circuit."""
SECTIONS: tuple[Standard, ...] = get_args(Standard)
FIELDS = "fields"
"""The section of the core that a request must name. Others are of extensions."""
KEYS = ("sections", "devices", "after", "since")
"""The keys of a request."""
ACTIONS: tuple[Action, ...] = get_args(Action)
MAX_SENDER_CHARS = 100
"""Characters of the sender's name that are kept."""
MAX_SIMILAR_NAMES = 100
"""Names that are compared with a name that is wrong."""


class Query(NamedTuple):
    """A request that was understood."""

    sections: Sequence[str]
    names: Sequence[str]
    """The devices and side jobs to describe."""
    chosen: bool
    """Whether the request names these devices; else they are all that there are."""
    after: int
    since: float


def understood(request: Json, known: Collection[str], further: Sequence[str] = ()) -> Query:
    """Read a request to an app with these devices and side jobs, and these further sections.

    Raises:
        PayloadError: the request is wrong. The error explains how to correct it.
    """
    sections, devices = _wanted(request, known, further)
    after, since = (0.0, 0.0) if request == "" else (_number(request, key) for key in ("after", "since"))
    asked = None if devices is None else frozenset(devices)
    names = [name for name in known if asked is None or name in asked]
    return Query(sections, names, asked is not None, int(after), since)


def action_of(request: Json) -> str:
    """The action on a circuit that a request asks for: one of `ACTIONS`, as text or in an object.

    Raises:
        PayloadError: it is not one of them.
    """
    action = request.get("action") if isinstance(request, dict) else request
    if isinstance(action, str) and action in ACTIONS:
        return action
    raise PayloadError(f"{action!r} is unknown; {suggestion(str(action)[:MAX_NAME_BYTES], ACTIONS)}")


def sender_of(request: Json, otherwise: str) -> str:
    """The sender of a request: the name that it gives, else `otherwise`.

    Raises:
        PayloadError: the name is not text.
    """
    named = request.get("by", "") if isinstance(request, dict) else ""
    if not isinstance(named, str):
        raise PayloadError("'by' must be text, such as \"ann\"")
    return clean(named[:MAX_SENDER_CHARS] or otherwise)


def _wanted(
    request: Json, known: Collection[str], further: Sequence[str]
) -> tuple[Sequence[str], Sequence[str] | None]:
    if request == "":
        return SECTIONS, None
    if not isinstance(request, dict):
        raise PayloadError('send nothing, or an object such as {"sections": ["devices"], "devices": ["kitchen"]}')
    for key in request:
        if key not in KEYS:
            raise PayloadError(f"{clean(key)!r} is unknown; {suggestion(key[:MAX_NAME_BYTES], (*KEYS, 'transaction'))}")
    sections = _names(request, "sections", (*SECTIONS, *further, FIELDS))
    return SECTIONS if sections is None else sections, _names(request, "devices", known)


def _number(request: dict[str, Json], key: str) -> float:
    number = request.get(key, 0)
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number < 1e12:
        raise PayloadError(f"{key!r} must be a number, 0 or more")
    return number


def _names(request: dict[str, Json], key: str, known: Collection[str]) -> Sequence[str] | None:
    names = request.get(key)
    if names is None:
        return None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise PayloadError(f"{key!r} must be a list of names")
    for name in names:
        if name not in known:
            wrong = UnknownDevice if key == "devices" else PayloadError
            raise wrong(f"there is no {key.removesuffix('s')} {clean(name)!r}; {hint(name, known)}")
    return names


def hint(name: str, known: Collection[str]) -> str:
    """A hint at the name that may have been meant by a wrong one. Among many names, it is looked for only where the
    beginning is right: a comparison with each of ten thousand would block the app for a tenth of a second."""
    name = name[:MAX_NAME_BYTES]
    if len(known) <= MAX_SIMILAR_NAMES:
        return suggestion(name, known)
    alike = (each for each in known if each[:3] == name[:3])
    return suggestion(
        name, itertools.islice(alike, MAX_SIMILAR_NAMES), f"there are {len(known)}, which the registry lists"
    )
