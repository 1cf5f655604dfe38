"""Requests to a node at ``{prefix}/nodes/{node}/drain``: to give away what it owns and to take nothing, and to take
part again. The answer comes at the response topic of the request, or at the topic with ``/response`` appended."""

from collections.abc import Callable
from typing import (
    NamedTuple,
    NotRequired,  # pydantic wants this one before Python 3.12
)

from typing_extensions import TypedDict

from leadsman.errors import Busy, PayloadError
from leadsman.mqtt.answers import Json, RetainedRequests, answer_request, refusal
from leadsman.mqtt.connection import Received
from leadsman.mqtt.message import Message
from leadsman.mqtt.topics import Topics
from leadsman.nodes.brief import State
from leadsman.nodes.document import Lacking
from leadsman.text import clean
from leadsman.text.log_lines import others

LONGEST_SENDER = 100
"""Characters of who asks."""


class DrainRequest(TypedDict):
    """A request at ``{prefix}/nodes/{node}/drain``."""

    drain: bool
    """True: give everything away and take nothing, until false is sent or the process starts again."""
    by: NotRequired[str]
    """Who asks, for the log of the node."""
    transaction: NotRequired[str]


class Drained(TypedDict):
    """The ``data`` of the answer."""

    node: str
    draining: bool
    state: State
    without_node: list[Lacking]
    """The devices that no node polls as long as this one drains, by what they need of a node."""


class DrainOrder(NamedTuple):
    """What a request asks for."""

    draining: bool
    by: str

    def describe(self) -> str:
        """The request, for the log."""
        if self.draining:
            return f"gives everything away, and takes nothing until undrain or a restart, asked by {self.by}"
        return f"takes part again, asked by {self.by}"


def drain_of(request: Json) -> DrainOrder:
    """Read a request.

    Raises:
        PayloadError: it does not say whether to drain.
    """
    wanted = request.get("drain") if isinstance(request, dict) else None
    if not isinstance(wanted, bool):
        raise PayloadError('send {"drain": true} to hand everything over, or {"drain": false} to take part again')
    by = request.get("by")
    return DrainOrder(wanted, clean(by)[:LONGEST_SENDER] if isinstance(by, str) and by else "somebody")


class DrainDoor:
    """Takes the requests to one node, and answers them.

    Args:
        topics: of the app.
        wall: epoch seconds.
        drain: does what is asked.
    """

    def __init__(self, topics: Topics, wall: Callable[[], float], drain: Callable[[DrainOrder], Drained]) -> None:
        self._topics = topics
        self._wall = wall
        self._drain = drain
        self._retained = RetainedRequests()
        self._lines = others()

    def answer(self, received: Received) -> Message | None:
        """The answer to a request; None for one that was retained, which would come again with each connection."""
        if received.retain:
            self._retained.warn("drain")
            return None
        return answer_request(
            received, self._topics, self._wall(), lambda request: self._drain(drain_of(request)), self._lines
        )

    def refusal(self, received: Received, error: Busy | PayloadError) -> Message:
        """The answer to a request whose turn does not come."""
        return refusal(received, self._topics, self._wall(), error, self._lines)
