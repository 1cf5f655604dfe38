"""The types of requests to a running app, of their answers, and of what a stream of happenings says. The documents in
the answers have theirs in `leadsman.introspection.document`."""

from typing import (
    Literal,
    NotRequired,  # pydantic wants this one before Python 3.12
)

from typing_extensions import TypedDict

from leadsman.introspection.document import AppSection, CircuitWord, MqttSection
from leadsman.mqtt.answers import Json


class Request(TypedDict, total=False):
    """A request at ``{prefix}/introspect``. An empty payload requests all sections but the last four."""

    sections: list[
        Literal["app", "mqtt", "adapters", "devices", "jobs", "trace", "words", "ledger", "recent", "fields"]
    ]
    devices: list[str]
    after: int
    """Only rows of the trace with a higher number."""
    since: float
    """Only rows of the trace, and hours and gaps of the ledger, from this time on, epoch seconds."""
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


class PollAnswer(TypedDict):
    """What a poll gave that was requested over HTTP."""

    device: str
    reading: dict[str, Json] | None
    """Its fields; null if there was nothing to publish."""


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


class Happening(TypedDict):
    """Something that happened, for people who watch. Which of the other fields it has depends on its type: those of the
    event of that name in `leadsman.events`."""

    type: Literal[
        "reading",
        "reading_taken",
        "attempt_failed",
        "poll_failed",
        "poll_skipped",
        "poll_deferred",
        "poll_missed",
        "device_left",
        "device_held",
        "device_released",
        "circuit_moved",
        "circuit_requested",
        "fields_left_out",
        "command_done",
        "link_up",
        "link_down",
        "link_settled",
        "prefix_shared",
        "link_limited",
        "message_dropped",
        "message_refused",
        "subscription_failed",
        "message_failed",
        "adapter_failed",
        "adapter_reopened",
        "state_failed",
        "state_written",
        "app_fault",
    ]
    """``reading`` has the `fields` of a reading; ``reading_taken`` says that a poll succeeded."""
    at: str
    device: NotRequired[str]
    error_type: NotRequired[str]
    error_message: NotRequired[str]
    failing_since: NotRequired[str]
    fields: NotRequired[dict[str, Json] | list[str]]
    duration: NotRequired[float]
    attempt: NotRequired[int]
    attempts: NotRequired[int]
    delay: NotRequired[float | None]
    reason: NotRequired[str | None]
    cycle: NotRequired[int]
    circuit: NotRequired[str]
    requested: NotRequired[bool]
    seconds: NotRequired[float]
    by: NotRequired[str]
    polls: NotRequired[int]
    cause: NotRequired[str]
    state: NotRequired[str]
    failures: NotRequired[int]
    by_hand: NotRequired[bool]
    action: NotRequired[str]
    session: NotRequired[int]
    protocol: NotRequired[str]
    client: NotRequired[str]
    broker: NotRequired[str | None]
    """If there are several: the one that is connected, or is tried next."""
    retry_in: NotRequired[float]
    clash: NotRequired[bool]
    allowed: NotRequired[int]
    topic: NotRequired[str | None]
    messages: NotRequired[int]
    topic_filter: NotRequired[str]
    adapter: NotRequired[str]
    how: NotRequired[str]
    file: NotRequired[str]
    where: NotRequired[str]


class Beat(TypedDict):
    """What the stream of happenings says every few seconds, so that a watcher knows that the connection works."""

    type: Literal["beat"]
    at: str
    app: AppSection
    mqtt: MqttSection


class Reset(TypedDict):
    """The first message of a stream that cannot go on where the watcher left it: happenings were lost, so the watcher
    must read the whole state again."""

    type: Literal["reset"]


class HealthCheck(TypedDict):
    """One component in the health document."""

    componentType: Literal["component", "datastore", "system"]
    observedValue: str | float | bool | None
    observedUnit: NotRequired[str]
    status: Literal["pass", "warn", "fail"]
    time: str
    output: NotRequired[str]


class HealthDocument(TypedDict):
    """The health of the app, in the format of draft-inadarei-api-health-check. ``fail``: no device has fresh data.
    ``warn``: a device, the broker or a state file is in trouble."""

    status: Literal["pass", "warn", "fail"]
    version: str
    releaseId: str
    serviceId: str
    notes: list[str]
    checks: dict[str, list[HealthCheck]]
    """By component and measurement, such as ``boiler:status``. The devices that are well are left out."""


class Probe(TypedDict):
    """The answer to a probe of a supervisor, such as a container runtime."""

    status: Literal["pass", "fail"]


class Problem(TypedDict):
    """Why an HTTP request was refused or failed (RFC 9457)."""

    title: str
    status: int
    detail: str


class By(TypedDict, total=False):
    """The body of an HTTP request about a device. It may be left out."""

    by: str
    """The sender, for the log and the trace."""
