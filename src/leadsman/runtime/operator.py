"""Handles requests of a person about a failing device: release it if it is held; isolate, close or disable its circuit.

Requests arrive at ``{prefix}/{device}/release/set`` and ``{prefix}/{device}/circuit/set``. They are answered at the
response topic, or at the topic itself with ``/response`` appended.
"""

from collections.abc import Mapping

from leadsman.errors import PayloadError
from leadsman.events import CircuitRequested
from leadsman.mqtt.answers import Json, answered
from leadsman.mqtt.connection import Received
from leadsman.runtime.publisher import PublisherContext
from leadsman.runtime.runner import Reader
from leadsman.text import clean, suggestion

_LONGEST_NAME = 100
"""Characters of the sender's name that are kept."""
ACTIONS = ("isolate", "close", "disable")


class OperatorRequests:
    """Takes these requests for one running app.

    Args:
        context: the environment, the topics, and how to send.
        readers: the polls and sources of the app, by the names of their devices.
    """

    def __init__(self, context: PublisherContext, readers: Mapping[str, Reader]) -> None:
        self._context = context
        self._readers = readers

    def on_set(self, received: Received) -> None:
        """Handle a request. Retained messages are ignored."""
        device = self._context.topics.device_of(received.topic)
        kind = received.topic.split("/")[-2]
        if received.retain or kind not in ("release", "circuit"):
            return

        def handle(request: Json) -> Json:
            by, runner = _sender(received, request), self._reader(device)
            return self._release(runner, by) if kind == "release" else self._circuit(runner, request, by)

        self._context.send(answered(received, self._context.topics, self._context.environment.clock.wall(), handle))

    def _reader(self, device: str) -> Reader:
        runner = self._readers.get(device)
        if runner is None:
            meant = suggestion(device, self._readers)
            raise PayloadError(f"there is no device {clean(device)!r} that is read; {meant}")
        return runner

    def _release(self, runner: Reader, by: str) -> Json:
        if not runner.release(by):
            raise PayloadError(f"{runner.name} is not held")
        return {"device": runner.name, "held": False}

    def _circuit(self, runner: Reader, request: Json, by: str) -> Json:
        execution = runner.execution
        action = request.get("action") if isinstance(request, dict) else request
        if isinstance(action, str) and action in ACTIONS:
            self._context.environment.events.emit(CircuitRequested(runner.name, action, by))
        match action:
            case "isolate":
                execution.isolate()
            case "close":
                execution.close()
            case "disable":
                execution.disable()
            case _:
                raise PayloadError(f"{action!r} is unknown; {suggestion(str(action), ACTIONS)}")
        return {"device": runner.name, "circuit": execution.snapshot().circuit}


def _sender(received: Received, request: Json) -> str:
    """The sender of a request, as far as MQTT tells: the name in the request, else its response topic, else its
    topic."""
    named = request.get("by") if isinstance(request, dict) else None
    if isinstance(named, str) and named:
        return clean(named[:_LONGEST_NAME])
    return clean(f"somebody at {received.response_topic or received.topic}")
