"""The types of requests to a running app, and of their answers. The documents in the answers have theirs in
`leadsman.introspection.document`."""

from typing import (
    Literal,
    NotRequired,  # pydantic wants this one before Python 3.12
)

from typing_extensions import TypedDict

from leadsman.introspection.document import CircuitWord
from leadsman.mqtt.answers import Json


class Request(TypedDict, total=False):
    """A request at ``{prefix}/introspect``. An empty payload requests all sections but the trace."""

    sections: list[Literal["app", "mqtt", "adapters", "devices", "jobs", "trace", "words"]]
    devices: list[str]
    after: int
    """Only rows of the trace with a higher number."""
    since: float
    """Only rows of the trace from this time on, epoch seconds."""
    transaction: Json


class Plain(TypedDict, total=False):
    """A request at ``get``, ``hold/set`` or ``release/set`` of a device. The payload may be empty."""

    by: str
    """The sender, for the log and the trace."""
    transaction: Json


class CircuitRequest(TypedDict):
    """A request at ``circuit/set`` of a device. The action alone, as text, will do."""

    action: Literal["isolate", "close", "disable"]
    by: NotRequired[str]
    """The sender, for the log and the trace."""
    transaction: NotRequired[Json]


class HeldAnswer(TypedDict):
    """What became of a request to hold or to release a device."""

    device: str
    held: bool


class CircuitAnswer(TypedDict):
    """What became of a request about a circuit."""

    device: str
    circuit: CircuitWord


class Answer(TypedDict):
    """The answer to a request, or one page of it. The pages of an answer have the same transaction."""

    status: Literal["ok", "error"]
    data: Json
    """On a page: the sections, or the parts of sections, that are on it."""
    error: str | None
    at: str
    transaction: NotRequired[Json]
    page: NotRequired[int]
    """The number of this page, from 1. Left out if there is one page."""
    pages: NotRequired[int]
    """The number of pages of the answer."""


class CommandResult(Answer):
    """The result of a command."""
