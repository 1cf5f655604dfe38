"""The types of the documents that an app publishes. The schema of every topic is made from them
(`leadsman.introspection.schema`).

Times are RFC 3339 in UTC; durations and ages are seconds.
"""

from typing import (
    Any,
    Literal,
    NotRequired,  # pydantic wants this one before Python 3.12
)

from typing_extensions import TypedDict

StatusWord = Literal["held", "isolated", "circuit_open", "deferred", "stale", "error", "starting", "ok"]
"""How a device is: the first that applies; see `leadsman.monitoring.health`."""


class BreakerTerms(TypedDict):
    """The specification of a circuit breaker."""

    threshold: int
    recovery: float | str | None
    window: int | None
    slow: float | None
    shared: str | None
    probes: int
    successes: int
    ignore: list[str]
    """Errors that are neutral: neither a success nor a failure."""


class DeliveryTerms(TypedDict):
    """How readings travel."""

    qos: int
    retain: bool
    expiry: float | None


class Registered(TypedDict):
    """What a decorator was told. Keys that make no sense for its kind are left out."""

    kind: Literal["telemetry", "source", "command", "periodic"]
    handler: str
    needs: list[str]
    """Adapters that it asks for."""
    enabled: bool
    interval: NotRequired[float | None]
    schedule: NotRequired[str | None]
    retry: NotRequired[int | Literal["until the next poll"]]
    retry_on: NotRequired[list[str]]
    backoff: NotRequired[str]
    budget: NotRequired[float]
    within: NotRequired[float]
    policy: NotRequired[str]
    """In the notation of a policy file, where the options above do not say it."""
    policy_name: NotRequired[str]
    """The name that the handler asks for, or the names of the policies that it takes as it says nothing about retries."""
    circuit_breaker: NotRequired[BreakerTerms | None]
    timeout: NotRequired[float | None]
    overrun: NotRequired[Literal["next-poll", "finish"]]
    on_failure: NotRequired[str]
    publish: NotRequired[str | None]
    delivery: NotRequired[DeliveryTerms]
    group: NotRequired[str | None]
    spread: NotRequired[float]
    stale_after: NotRequired[float]
    throttle: NotRequired[float]
    silence: NotRequired[float | None]
    queue: NotRequired[int]
    when_full: NotRequired[Literal["reject", "drop-oldest"]]


class Commands(TypedDict):
    """The commands of a device since the start."""

    done: int
    failed: int
    waiting: int


class PollUnderWay(TypedDict):
    """A poll some of whose calls have failed, and that calls again."""

    failed_calls: int
    last_error: str
    next_call_at: str


class Counters(TypedDict):
    """Of a device, since the start of the app."""

    polls: int
    """That ended."""
    failed_polls: int
    retried_polls: int
    """That succeeded, but only after a call of them had failed."""
    calls: int
    failed_calls: int
    retries: int


class Runtime(TypedDict):
    """How a device is doing."""

    status: StatusWord
    stale: bool
    circuit: Literal["closed", "open", "half_open", "isolated", "disabled"]
    consecutive_failures: int
    attempts: int
    """Calls of the poll under way, or of the last one that failed."""
    retries: int
    """Retries since the last success."""
    opens: int
    """Openings of the circuit since the last success."""
    opened_at: str | None
    failing_since: str | None
    last_error: str | None
    last_success_at: str | None
    last_duration: float | None
    """Of the last poll that succeeded, retries included."""
    next_due_at: str | None
    deferred_until: str | None
    """Polls before it are skipped, because the device asked for it."""
    deferred_reason: str | None
    poll_under_way: PollUnderWay | None
    """Only while it retries."""
    counters: Counters
    held: bool
    """Whether it keeps still until somebody releases it."""
    missed_polls: int
    restarts: NotRequired[int]
    """Of a source: how often its generator was started again."""
    commands: NotRequired[Commands]


class DeviceSection(TypedDict):
    """One device, or one side job."""

    registrations: list[Registered]
    runtime: NotRequired[Runtime]
    """Left out where the app does not run, or nothing of the device is enabled."""


class AdapterSection(TypedDict):
    """One adapter."""

    adapter: str
    open: bool
    error: str | None
    reopened: int
    health: NotRequired[dict[str, Any]]
    """What it says of itself."""


class OutboxSection(TypedDict):
    """What waits for the broker."""

    messages: int
    bytes: int
    in_flight: int
    delivered: int
    dropped: int
    oldest: float | None
    """Age of the oldest reading."""


class MqttSection(TypedDict):
    """The connection."""

    broker: str
    client_id: str
    connected: bool
    protocol: str
    session: int
    connects: int
    last_error: str | None
    outbox: OutboxSection


class AppSection(TypedDict):
    """The app."""

    name: str
    version: str
    prefix: str
    leadsman: str
    python: str
    started_at: NotRequired[str]
    uptime: NotRequired[float]
    state_files: NotRequired[dict[str, str]]
    """Files of the app's state that cannot be written at the moment, and why."""


class TraceRow(TypedDict):
    """One row of the trace; see `leadsman.monitoring.trace.Row`."""

    number: int
    at: str
    handler: str
    reason: str
    cycle: int | None
    attempt: int | None
    delay: float | None
    error_type: str | None
    error_message: str | None
    traceback: str | None
    policy: str | None
    breaker: str | None
    outage_id: str | None
    by: str | None


class Introspection(TypedDict, total=False):
    """What ``{prefix}/introspect`` answers under ``data``: all sections, or those that were asked for."""

    app: AppSection
    mqtt: MqttSection
    adapters: list[AdapterSection]
    devices: dict[str, DeviceSection]
    jobs: dict[str, DeviceSection]
    trace: list[TraceRow]
    """Only for whoever names this section."""


class Request(TypedDict, total=False):
    """What ``{prefix}/introspect`` takes; nothing at all asks for everything."""

    sections: list[Literal["app", "mqtt", "adapters", "devices", "jobs", "trace"]]
    devices: list[str]
    after: int
    """Rows of the trace with a higher number."""
    since: float
    """Rows of the trace from this on, epoch seconds."""
    transaction: Any


class Plain(TypedDict, total=False):
    """What ``get`` and ``release/set`` of a device take; nothing at all will do."""

    by: str
    """Who asks, for log and trace."""
    transaction: Any


class CircuitRequest(TypedDict):
    """What ``circuit/set`` of a device takes; the bare word of the action will do."""

    action: Literal["isolate", "close", "disable"]
    by: NotRequired[str]
    """Who asks, for log and trace."""
    transaction: NotRequired[Any]


class Answer(TypedDict):
    """The answer to a request."""

    status: Literal["ok", "error"]
    data: Any
    error: str | None
    at: str
    transaction: NotRequired[Any]


class CommandResult(Answer):
    """What became of a command."""


class RegistryDevice(TypedDict):
    """A device in the registry."""

    kinds: list[Literal["telemetry", "source", "command"]]
    topics: dict[str, str]


class Registry(TypedDict):
    """What ``{prefix}/registry`` holds, for tools that look for apps."""

    app: str
    version: str
    leadsman: str
    introspect: str
    status: str
    devices: dict[str, RegistryDevice]


class StatusDevice(TypedDict, total=False):
    """A device in the heartbeat; all but the status only where it is not ok."""

    status: StatusWord
    stale: bool
    missed_polls: int
    poll_under_way: PollUnderWay
    """Only while it retries, also where it is ok."""
    deferred_until: str
    deferred_reason: str | None
    opened_at: str
    opens: int
    circuit: Literal["closed", "open", "half_open", "isolated", "disabled"]
    consecutive_failures: int
    attempts: int
    retries: int
    """Since the start of the app."""
    polls: int
    failed_polls: int
    failing_since: str | None
    last_error: str | None
    last_success_at: str | None
    next_poll_at: str | None


class StatusMqtt(TypedDict):
    """The connection in the heartbeat."""

    protocol: str
    connects: int
    outbox_messages: int
    outbox_bytes: int
    dropped: int
    dropped_last_minute: int
    last_error: str | None


class Status(TypedDict):
    """What ``{prefix}/status`` holds: birth, heartbeat, goodbye and will."""

    state: Literal["online", "offline"]
    session: int
    health: Literal["ok", "degraded"]
    version: str
    dry_run: NotRequired[bool]
    """Twins stand in for the hardware, and nothing is retained or remembered."""
    uptime_s: NotRequired[float]
    mqtt: NotRequired[StatusMqtt]
    state_files: NotRequired[dict[str, str]]
    """Files of the app's state that cannot be written at the moment, and why."""
    devices: NotRequired[dict[str, StatusDevice]]
    jobs: NotRequired[dict[str, StatusDevice]]
    counts: NotRequired[dict[str, int]]


class DeviceError(TypedDict):
    """What ``{prefix}/{device}/error`` tells of an outage."""

    event: Literal["onset", "reminder", "recovered"]
    type: str
    message: str
    failures: int
    since: str
    """The first call that gave no reading."""
    outage_seconds: float
    reason: NotRequired[str]
    """Why the last failed call was not repeated, such as ``budget``."""
    retry_in: NotRequired[float]
    """Seconds until the poll under way calls again."""


class Fault(TypedDict):
    """What ``{prefix}/error`` tells: the app itself is at fault."""

    event: Literal["fault"]
    where: str
    type: str
    message: str
    at: str
