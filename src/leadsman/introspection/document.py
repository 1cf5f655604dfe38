"""The types of the documents that an app publishes. The schema of every topic is made from them
(`leadsman.introspection.schema`).

Times are RFC 3339 in UTC; durations and ages are seconds.
"""

from typing import (
    Literal,
    NotRequired,  # pydantic wants this one before Python 3.12
)

from typing_extensions import TypedDict

from leadsman.introspection.connection_document import MqttSection, StatusMqtt
from leadsman.introspection.counters_document import Commands, Counters, Life
from leadsman.introspection.explanations import DeviceOutbox, Published
from leadsman.introspection.terms import BreakerTerms, DeliveryTerms
from leadsman.ledger.document import DeviceLedger
from leadsman.mqtt.answers import Json
from leadsman.nodes.document import Brief

StatusWord = Literal["held", "isolated", "circuit_open", "deferred", "stale", "error", "starting", "ok"]
"""The status of a device: the first that applies; see `leadsman.monitoring.health`."""


CircuitWord = Literal["closed", "open", "half_open", "isolated", "disabled"]
"""The state of a circuit; the last two are the work of a person."""


class FindsTerms(TypedDict):
    """Which devices a handler may find at run time."""

    most: int
    forget_after: float | None
    """Seconds without a reading after which a device is forgotten; null: never."""


class Registered(TypedDict):
    """A registration with its options. Options that its kind does not have are left out."""

    kind: Literal["telemetry", "source", "command", "periodic"]
    handler: str
    needs: list[str]
    """The adapters that the handler asks for."""
    enabled: bool
    title: NotRequired[str]
    """The name of the device for people. Present only if it has one beside its own."""
    interval: NotRequired[float | None]
    schedule: NotRequired[str | None]
    retry: NotRequired[int | Literal["until the next poll"]]
    retry_on: NotRequired[list[str]]
    backoff: NotRequired[str]
    budget: NotRequired[float]
    within: NotRequired[float]
    policy: NotRequired[str]
    """In the notation of a policy file, if the options above cannot express it."""
    policy_name: NotRequired[str]
    """The policy that the handler names, or the default policies that apply to it."""
    policy_where: NotRequired[dict[str, str | None]]
    """When each of these default policies applies, if that depends on the error; null: to any error."""
    circuit_breaker: NotRequired[BreakerTerms | None]
    timeout: NotRequired[float | None]
    overrun: NotRequired[Literal["next-poll", "finish"]]
    on_failure: NotRequired[str]
    publish: NotRequired[str | None]
    delivery: NotRequired[DeliveryTerms]
    group: NotRequired[str | None]
    spread: NotRequired[float | None]
    stale_after: NotRequired[float | None]
    offline_on: NotRequired[Literal["stale", "error"]]
    throttle: NotRequired[float]
    silence: NotRequired[float | None]
    finds: NotRequired[FindsTerms]
    """Present only if the handler may find devices at run time."""
    found_by: NotRequired[str]
    """The handler that has found the device at run time."""
    queue: NotRequired[int]
    when_full: NotRequired[Literal["reject", "drop-oldest"]]


class PollUnderWay(TypedDict):
    """A poll some of whose calls have failed, and that will try again."""

    failed_calls: int
    last_error: str
    next_call_at: str


class Runtime(TypedDict):
    """The state of a device."""

    status: StatusWord
    stale: bool
    circuit: CircuitWord
    consecutive_failures: int
    attempts: int
    """Calls of the current poll, or of the last one that failed."""
    retries: int
    """Retries since the last success."""
    opens: int
    """Openings of the circuit since the last success."""
    opened_at: str | None
    failing_since: str | None
    last_error: str | None
    last_success_at: str | None
    last_duration: float | None
    """Seconds that the last successful poll took, retries included."""
    next_due_at: str | None
    deferred_until: str | None
    """Polls before this time are skipped, because the device asked for a pause."""
    deferred_reason: str | None
    """Why the device asked for a pause, or why it has said goodbye."""
    poll_under_way: PollUnderWay | None
    """Present only while the poll retries."""
    counters: Counters
    life: NotRequired[Life]
    """Present only with ``keep_state=True``."""
    held: bool
    """Whether the device is not polled until somebody releases it."""
    missed_polls: int
    busy: NotRequired[bool]
    """True while a poll runs, or the thread of an earlier one."""
    published: NotRequired[Published]
    """Left out for a side job."""
    outbox: NotRequired[DeviceOutbox]
    """Left out if nothing of the device waits, and the broker refused nothing."""
    restarts: NotRequired[int]
    """How often the generator of a source was started again."""
    commands: NotRequired[Commands]
    found: NotRequired[int]
    """The devices that a handler has found and that are not forgotten. Present only if it may find some."""
    refused: NotRequired[int]
    """How often a device that it found was refused: there were too many, or its name was wrong or that of another."""


class DeviceSection(TypedDict):
    """One device, or one side job."""

    registrations: list[Registered]
    runtime: NotRequired[Runtime]
    """Left out if the app does not run, or if no registration of the device is enabled."""


class AdapterSection(TypedDict):
    """One adapter."""

    adapter: str
    kind: NotRequired[Literal["serial", "bluetooth", "calendars"]]
    """What it needs of the machine or the network, if it declares that; see `leadsman.adapters.adapter.Resource`."""
    open: bool
    error: str | None
    reopened: int
    health: NotRequired[dict[str, Json]]
    """What the adapter reports about itself."""


class NodeSection(TypedDict):
    """The node that is active, of several that share the app; see `leadsman.standby`."""

    name: str
    token: int
    """Grows with each takeover, by whichever node."""
    since: str
    takeovers: int
    """How often this process took over, this time included."""


class AppSection(TypedDict):
    """The app."""

    name: str
    version: str
    prefix: str
    root: NotRequired[str]
    """The name of the root device, whose topics have no level for the device. Present only if there is one."""
    leadsman: str
    python: str
    started_at: NotRequired[str]
    uptime: NotRequired[float]
    loop_lag: NotRequired[float]
    """By how much the event loop was late at most in the last ten seconds. Measured only while the HTTP endpoint is
    on."""
    state_files: NotRequired[dict[str, str]]
    """Files of the app's state that cannot be written at the moment, and why."""
    node: NotRequired[NodeSection]
    """Only with ``--standby``."""
    nodes: NotRequired[list[Brief]]
    """The nodes that share the app, this one included. Only of an app that several share."""


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


OutcomeWord = Literal["ok", "failed", "skipped", "deferred", "missed"]
"""How a poll ended, or why there was none: the circuit is open (``skipped``), the device asked for a pause
(``deferred``), or an earlier poll still ran (``missed``)."""


class RecentSeries(TypedDict):
    """The last values of one field, oldest first, with their times."""

    at: list[float]
    values: list[float]


class RecentOutcomes(TypedDict):
    """The last outcomes of a device, oldest first, with their times."""

    at: list[float]
    words: list[OutcomeWord]


class Recent(TypedDict):
    """The last values and outcomes of a device. The times here are epoch seconds, since there are many of them."""

    at: float | None
    """The time of the last reading; null if there was none."""
    fields: dict[str, Json]
    """Its fields that are numbers, truth values, null, short text, or lists and objects of those."""
    series: dict[str, RecentSeries]
    outcomes: RecentOutcomes


class FieldTerms(TypedDict, total=False):
    """What the type of a field says about its values, as in `leadsman.sensor.Sensor`. What it does not say is left
    out."""

    unit: str
    device_class: str
    precision: int
    """Decimals to show."""
    name: str
    """For people."""


class Introspection(TypedDict, total=False):
    """The ``data`` of an answer of ``{prefix}/introspect``: all sections, or those of the request."""

    app: AppSection
    mqtt: MqttSection
    adapters: list[AdapterSection]
    devices: dict[str, DeviceSection]
    jobs: dict[str, DeviceSection]
    trace: list[TraceRow]
    """Present only if the request names this section."""
    words: dict[str, list[str]]
    """What the registrations of a device do, in plain English. Present only if the request names this section."""
    ledger: dict[str, DeviceLedger]
    """Present only if the request names this section."""
    recent: dict[str, Recent]
    """Present only if the request names this section. Kept only while the HTTP endpoint is on."""
    fields: dict[str, dict[str, FieldTerms]]
    """The fields of the readings of a device of which the type says more than its name; the keys that lead to a nested
    one are joined by a dot. Present only if the request names this section."""


class StatusDevice(TypedDict, total=False):
    """A device in the heartbeat. Most fields are present only if its status is not ``ok``."""

    status: StatusWord
    stale: bool
    missed_polls: int
    poll_under_way: PollUnderWay
    """Present only while the poll retries, whatever the status."""
    deferred_until: str
    deferred_reason: str | None
    opened_at: str
    opens: int
    circuit: CircuitWord
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


class Status(TypedDict):
    """The message at ``{prefix}/status``: birth, heartbeat, goodbye and will."""

    state: Literal["online", "offline"]
    session: int
    client_id: NotRequired[str]
    """Left out in a will."""
    health: Literal["ok", "degraded"]
    version: str
    at: NotRequired[str]
    """When the app wrote it; a will was written at the connect, and has none."""
    dry_run: NotRequired[bool]
    """Whether twins replace the hardware, and nothing is retained or stored."""
    uptime_s: NotRequired[float]
    mqtt: NotRequired[StatusMqtt]
    state_files: NotRequired[dict[str, str]]
    """Files of the app's state that cannot be written at the moment, and why."""
    devices: NotRequired[dict[str, StatusDevice]]
    jobs: NotRequired[dict[str, StatusDevice]]
    counts: NotRequired[dict[str, int]]
    node: NotRequired[NodeSection]
    """Present only with ``--standby``."""
    nodes: NotRequired[dict[str, int]]
    """How many nodes share the app, by what they are, such as ``standby``. Only of an app that several share."""


class DeviceError(TypedDict):
    """The message at ``{prefix}/{device}/error`` about an outage."""

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
    """The message at ``{prefix}/error``: a fault of the app itself."""

    event: Literal["fault"]
    where: str
    type: str
    message: str
    at: str
