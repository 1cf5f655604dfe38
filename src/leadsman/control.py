"""What a person does to a device that fails: release it when it is held, isolate, close or disable its circuit.

Asked for at ``{prefix}/{device}/release/set`` and ``{prefix}/{device}/circuit/set``, and answered at the response topic, or
at the topic itself with ``/response`` behind it.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from leadsman.command import decode
from leadsman.dispatch import answer_to
from leadsman.errors import PayloadError
from leadsman.mqtt.connection import Received
from leadsman.outlet import Mail
from leadsman.poll import Poller
from leadsman.resilience.execution import Execution
from leadsman.wording import clean, explained, suggestion

if TYPE_CHECKING:
    from leadsman.feed import Feed

ACTIONS = ("isolate", "close", "disable")


class Control:
    """Takes these requests for one running app."""

    def __init__(self, mail: Mail, poller: Poller, feeds: "Mapping[str, Feed]") -> None:
        self._mail = mail
        self._poller = poller
        self._feeds = feeds

    def on_set(self, received: Received) -> None:
        """Somebody asks for something. A retained message is nobody who asks."""
        device = self._mail.topics.device_of(received.topic)
        word = received.topic.split("/")[-2]
        if received.retain or word not in ("release", "circuit"):
            return
        transaction, data, error = None, None, None
        try:
            request, transaction = decode(received.payload)
            data = self._release(device) if word == "release" else self._circuit(device, request)
        except PayloadError as refused:
            error = explained(refused)
        topic = received.response_topic or f"{received.topic}/response"
        try:
            status = "ok" if error is None else "error"
            answer = answer_to(received._replace(response_topic=topic), self._mail, status, data, error, transaction)
        except PayloadError:
            return  # nobody can be told
        self._mail.send(answer)

    def _release(self, device: str) -> dict[str, Any]:
        if device not in self._poller.polls:
            meant = suggestion(device, self._poller.polls)
            raise PayloadError(f"there is no device {clean(device)!r} that is polled; {meant}")
        if not self._poller.release(device):
            raise PayloadError(f"{device} is not held")
        return {"device": device, "held": False}

    def _circuit(self, device: str, request: Any) -> dict[str, Any]:
        execution = self._execution(device)
        action = request.get("action") if isinstance(request, dict) else request
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

    def _execution(self, device: str) -> Execution:
        if device in self._poller.polls:
            return self._poller.polls[device].execution
        if device in self._feeds:
            return self._feeds[device].execution
        meant = suggestion(device, (*self._poller.polls, *self._feeds))
        raise PayloadError(f"there is no device {clean(device)!r} with a circuit; {meant}")
