"""Handles requests of a person about a failing device: release it if it is held; isolate, close or disable its circuit.

Requests arrive at ``{prefix}/{device}/release/set`` and ``{prefix}/{device}/circuit/set``. They are answered at the
response topic, or at the topic itself with ``/response`` appended.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from leadsman.errors import PayloadError
from leadsman.events import CircuitRequested
from leadsman.mqtt.connection import Received
from leadsman.mqtt.requests import Json, answered
from leadsman.resilience.execution import Execution
from leadsman.runtime.poller import Poller
from leadsman.runtime.publisher import PublisherContext
from leadsman.text import clean, suggestion

if TYPE_CHECKING:
    from leadsman.runtime.sources import SourceRunner

_LONGEST_NAME = 100
"""Characters of the sender's name that are kept."""
ACTIONS = ("isolate", "close", "disable")


class OperatorRequests:
    """Takes these requests for one running app."""

    def __init__(self, mail: PublisherContext, poller: Poller, feeds: "Mapping[str, SourceRunner]") -> None:
        self._mail = mail
        self._poller = poller
        self._feeds = feeds

    def on_set(self, received: Received) -> None:
        """Handle a request. Retained messages are ignored."""
        device = self._mail.topics.device_of(received.topic)
        word = received.topic.split("/")[-2]
        if received.retain or word not in ("release", "circuit"):
            return

        def handle(request: Json) -> Json:
            by = _who(received, request)
            return self._release(device, by) if word == "release" else self._circuit(device, request, by)

        self._mail.send(answered(received, self._mail.topics, self._mail.environment.clock.wall(), handle))

    def _release(self, device: str, by: str) -> dict[str, Any]:
        if device not in self._poller.polls:
            meant = suggestion(device, self._poller.polls)
            raise PayloadError(f"there is no device {clean(device)!r} that is polled; {meant}")
        if not self._poller.release(device, by):
            raise PayloadError(f"{device} is not held")
        return {"device": device, "held": False}

    def _circuit(self, device: str, request: Json, by: str) -> dict[str, Any]:
        execution = self._execution(device)
        action = request.get("action") if isinstance(request, dict) else request
        if isinstance(action, str) and action in ACTIONS:
            self._mail.environment.events.emit(CircuitRequested(device, action, by))
        match action:
            case "isolate":
                execution.isolate()
            case "close":
                execution.close()
            case "disable":
                execution.disable()
            case _:
                raise PayloadError(f"{action!r} is unknown; {suggestion(str(action), ACTIONS)}")
        return {"device": device, "circuit": execution.snapshot().circuit}

    def _execution(self, device: str) -> Execution[object]:
        if device in self._poller.polls:
            return self._poller.polls[device].execution
        if device in self._feeds:
            return self._feeds[device].execution
        meant = suggestion(device, (*self._poller.polls, *self._feeds))
        raise PayloadError(f"there is no device {clean(device)!r} with a circuit; {meant}")


def _who(received: Received, request: Json) -> str:
    """The sender of a request, as far as MQTT tells: the name in the request, else its response topic, else its
    topic."""
    named = request.get("by") if isinstance(request, dict) else None
    if isinstance(named, str) and named:
        return clean(named[:_LONGEST_NAME])
    return clean(f"somebody at {received.response_topic or received.topic}")
