"""The types of the requests that an app takes, of its answers, and of the registry. Those that another room makes lie
there, in `leadsman.monitoring.document` and others. The schema of every topic is made from all of them
(`leadsman.introspection.schema`).

Times are RFC 3339 in UTC; durations and ages are seconds.
"""

from typing import (
    Annotated,
    Literal,
    NotRequired,  # pydantic wants this one before Python 3.12
)

from typing_extensions import TypedDict

from leadsman.ledger.document import DeviceLedger
from leadsman.monitoring.document import (
    Counters,
    LinkState,
    NodeSection,
    OutboxState,
    PollUnderWay,
    StatusWord,
)
from leadsman.mqtt.answers import Json
from leadsman.nodes.brief import Brief
from leadsman.readings.sensor import Sensor
from leadsman.resilience.breaker import CircuitWord
from leadsman.runtime.document import Counted


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
    """How readings are published."""

    qos: int
    retain: bool
    expiry: float | None
    keep: Literal["all", "newest"]
    """Which of the readings that wait for the broker arrive at the state topic: all of them, or the newest."""
    history: float | None
    """How long a reading at the history topic is wanted; None without such a topic."""


class LifeCounters(Counters):
    """The counters of a device over all lives of the app."""

    since: str
    """When counting began."""


class Subscribed(TypedDict):
    """What became of the messages of one subscription since the start of the app."""

    received: int
    failed: int
    """Messages whose payload was refused, or whose handler failed."""
    dropped: int
    """Messages that came faster than they were handled."""
    waiting: int
    received_at: str | None
    """When the last one came."""
    last_error: str | None
    """Why the last message failed; null if it did not."""
    device: str | None
    """The device that they feed, if the registration names it."""


Link = Literal[
    "app",
    "registration",
    "enabled",
    "hold",
    "isolation",
    "adapter",
    "deferral",
    "circuit",
    "call",
    "schedule",
    "staleness",
    "result",
    "broker's answer",
    "connection",
    "outbox",
    "publish rule",
    "retention",
    "expiry",
    "availability",
    "command",
    "job",
    "none",
]
"""The links of the chain from a device to a subscriber."""


class Verdict(TypedDict):
    """Why a device is silent: the first link of the chain that does not pass a reading on."""

    device: str
    link: Link
    """``none`` if a reading passes all of them."""
    state: Literal["ok", "intended", "broken"]
    """``intended``: it is silent because the app, the device or a person wants it so."""
    summary: str
    since: str | None
    """Since when the link has been so, as far as that is known."""
    cause: NotRequired[str]
    """Of a device that fails: its error, for how long, and how often leadsman tries it; one or two sentences."""
    evidence: list[str]
    """The facts that lead to the verdict, and the others that help; one line each."""
    advice: str
    """One thing to do."""


class ComparedField(TypedDict):
    """One field as the publish rule compared it; null where a reading lacks it."""

    published: Json
    read: Json


class Published(TypedDict):
    """What became of the readings of a device."""

    published_at: str | None
    """When the reading that was published last was taken."""
    suppressed: int
    """Readings since then that the publish rule did not publish."""
    rule_errors: NotRequired[int]
    """How often the publish rule raised an error since the start. Each of these readings was published."""
    compared: NotRequired[dict[str, ComparedField]]
    """If the publish rule did not publish the last reading: at most 20 of its fields."""


class DeviceOutbox(TypedDict):
    """The readings of a device that wait for the broker, at one of its topics."""

    topic: str
    """The state topic, or the history topic."""
    messages: int
    in_flight: int
    topics_before: int | None
    """Topics whose next message goes first; null if nothing of this one may be sent now, or if they are over 100."""
    oldest: float | None
    """The age of the oldest reading."""
    paused_for: float | None
    """Seconds until the topic is tried again, after the broker refused it."""
    refused: str | None
    """Why the broker refused the topic, until it takes a message of it."""


class OutboxSection(OutboxState):
    """The messages that wait for the broker, in introspection."""

    in_flight: int
    """The messages that were sent and not yet acknowledged."""
    delivered: int
    """The messages that the broker took since the start of the app."""


class CandidateBroker(TypedDict):
    """One of several brokers."""

    broker: str
    last_error: str | None
    """Why it is not in use; null for the one that works, and for one that was never tried."""


class MqttSection(LinkState):
    """The connection to the broker."""

    brokers: NotRequired[list[CandidateBroker]]
    """The brokers, if there are several, in the order in which they are tried."""
    client_id: str
    connected: bool
    away_since: NotRequired[str]
    """When the connection failed; left out while it holds."""
    refusal: NotRequired[int]
    """The reason code with which the broker refused the last attempt to connect (MQTT 5 §3.2.2.2); left out if it did
    not."""
    not_listening: NotRequired[str]
    """The address at which nothing listened at the last attempt to connect; left out if something did."""
    session: int
    window: int
    """Messages that may be in flight."""
    outbox: OutboxSection
    subscriptions: NotRequired[dict[str, Subscribed]]
    """What became of the messages of other programs, by topic filter. Left out without any `@app.subscribe`."""


class FindsTerms(TypedDict):
    """Which devices a handler may find at run time."""

    most: int
    forget_after: float | None
    """Seconds without a reading after which a device is forgotten; null: never."""


class ContentReading(TypedDict):
    """The JSON of a reading that consists of bytes."""

    content_type: str
    size: Annotated[int, Sensor("B", device_class="data_size")]
    sha256: str
    """The SHA-256 of the bytes, in hexadecimal digits: the same for the same content."""


class ContentTerms(TypedDict):
    """The media type, the largest size and the topic of the bytes of a device."""

    content_type: str
    limit: int
    """The largest size, in bytes."""
    topic: str
    """The word below the device at which they are published."""


class SaidOfField(TypedDict, total=False):
    """What people see of a field, as in `leadsman.Sensor`."""

    name: str
    icon: str
    category: Literal["config", "diagnostic"]
    discoverable: bool
    homeassistant: dict[str, bool | int | str]


class Registered(TypedDict):
    """A registration with its options. Options that its kind does not have are left out."""

    kind: Literal["telemetry", "source", "event", "command", "periodic"]
    handler: str
    needs: list[str]
    """The adapters that the handler asks for."""
    enabled: bool
    title: NotRequired[str]
    """The name of the device for people. Present only if it has one beside its own."""
    area: NotRequired[str]
    """The room or the place that is suggested for the device. Present only if one is."""
    fields: NotRequired[dict[str, SaidOfField]]
    """What people see of some fields, in place of what their types set. Present only if something is set."""
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
    filters: NotRequired[dict[str, list[str]]]
    """Present only if it has filters: those of each output, in their order."""
    window: NotRequired[float]
    """Seconds; present only if a filter gathers readings: the shortest window. A reading is there when one is over."""
    delivery: NotRequired[DeliveryTerms]
    content: NotRequired[ContentTerms]
    """Present only if its readings are bytes with a topic of their own."""
    layout: NotRequired[Literal["fields", "both"]]
    """Present only if each value of a reading is published at a topic of its own."""
    group: NotRequired[str | None]
    spread: NotRequired[float | None]
    stale_after: NotRequired[float | None]
    offline_on: NotRequired[Literal["stale", "error"] | list[str]]
    """When the device is offline, besides while it is held, stale or its circuit is open: the names of the errors, or
    ``error`` for any."""
    event_types: NotRequired[list[str]]
    """The types of its events; present only if it sends events."""
    device_class: NotRequired[str | None]
    """What its events are of, such as a button."""
    throttle: NotRequired[float]
    """Seconds between two polls that are requested, at least."""
    request: NotRequired[str]
    """The parameter that takes the payload of a request at ``get``. Present only if the handler has one."""
    silence: NotRequired[float | None]
    finds: NotRequired[FindsTerms]
    """Present only if the handler may find devices at run time."""
    found_by: NotRequired[str]
    """The handler that has found the device at run time."""
    queue: NotRequired[int]
    when_full: NotRequired[Literal["reject", "drop-oldest"]]


class Runtime(Counted):
    """The state of a device."""

    status: StatusWord
    stale: bool
    circuit: CircuitWord
    consecutive_failures: int
    attempts: int
    """Calls of the current poll, or of the last one that failed."""
    retries_since_success: int
    """Retries since the last success."""
    opens: int
    """Openings of the circuit since the last success."""
    opened_at: str | None
    failing_since: str | None
    last_error: str | None
    last_success_at: str | None
    last_duration: float | None
    """Seconds that the last successful poll took, retries included."""
    next_poll_at: str | None
    deferred_until: str | None
    """Polls before this time are skipped, because the device asked for a pause."""
    deferred_reason: str | None
    """Why the device asked for a pause, or why it was marked as unavailable."""
    poll_under_way: PollUnderWay | None
    """Present only while the poll retries."""
    counters: Counters
    life: NotRequired[LifeCounters]
    """Present only with ``keep_state=True``."""
    held: bool
    """Whether the device is not polled until somebody releases it."""
    missed_polls: int
    finder_failed: NotRequired[bool]
    """Present only while the handler that has found it fails, and it is offline with that."""
    published: NotRequired[Published]
    """Left out for a side job."""
    outbox: NotRequired[DeviceOutbox]
    """Left out if nothing of the device waits, and the broker refused nothing."""


class DeviceSection(TypedDict):
    """One device, or one side job."""

    registrations: list[Registered]
    runtime: NotRequired[Runtime]
    """Left out if the app does not run, or if no registration of the device is enabled."""


class AdapterSection(TypedDict):
    """One adapter."""

    adapter: str
    kind: NotRequired[Literal["serial", "bluetooth", "calendars", "http", "i2c", "onewire"]]
    """What it needs of the machine or the network, if it declares that; see `leadsman.adapters.adapter.Resource`."""
    open: bool
    error: str | None
    reopened: int
    health: NotRequired[dict[str, Json]]
    """The report of the adapter about itself."""


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


class TraceEntry(TypedDict):
    """One row of the trace; see `leadsman.monitoring.trace.TraceRow`."""

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
    """What the type of a field sets for its values, as in `leadsman.Sensor`. What it does not set is left out."""

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
    trace: list[TraceEntry]
    """Present only if the request names this section."""
    words: dict[str, list[str]]
    """What the registrations of a device do, in plain English. Present only if the request names this section."""
    ledger: dict[str, DeviceLedger]
    """Present only if the request names this section."""
    recent: dict[str, Recent]
    """Present only if the request names this section. Kept only while the HTTP endpoint is on."""
    fields: dict[str, dict[str, FieldTerms]]
    """The fields of the readings of a device whose type sets more than a name; the keys that lead to a nested one are
    joined by a dot. Present only if the request names this section."""


class RegistryDevice(TypedDict):
    """A device in the registry."""

    kinds: list[Literal["telemetry", "source", "event", "command"]]
    topics: dict[str, str]
    retained: list[Literal["state", "availability", "ledger", "health"]]
    """Which of these topics the broker keeps."""
    others: NotRequired[list[str]]
    """Further retained topics of the device."""
    found_by: NotRequired[str]
    """The handler that has found the device at run time."""
    enabled: NotRequired[Literal[False]]
    """Present only if the device is not enabled: nothing is published but its availability, ``offline``."""


class RemovedEntry(TypedDict):
    """A description of discovery that the app removed in the last days."""

    topic: str
    payload: str
    until: float
    """Epoch seconds until which it is listed, for readers that were away when it was removed."""


class RegistryHead(TypedDict):
    """The beginning of each page of the registry."""

    app: str
    version: str
    leadsman: str
    client_id: str
    introspect: str
    status: str
    root: NotRequired[str]
    """The name of the root device, whose topics have no level for the device. Present only if there is one."""


class RegistryDocument(RegistryHead):
    """The message at ``{prefix}/registry``, for tools that search for apps. The devices of a large app are on several
    pages; page 2 is at ``{prefix}/registry/2``."""

    devices: dict[str, RegistryDevice]
    others: NotRequired[list[str]]
    """Retained topics that belong to no device, besides the status and this registry; also those of removed devices
    that the broker has not forgotten yet."""
    removed: NotRequired[list[RemovedEntry]]
    """The descriptions of discovery that were removed in the last 30 days, the oldest first, until a reader has started
    since."""
    page: NotRequired[int]
    """The number of this page, from 1. Left out if there is one page."""
    pages: NotRequired[int]
    """The number of pages. Pages with higher numbers are left from an earlier run."""


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
    """``reading`` has the `fields` of a reading; ``reading_taken`` means that a poll succeeded."""
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
    will_refused: NotRequired[str | None]
    """That the connection has no will, and why."""
    version: NotRequired[str | None]
    """The version of MQTT that is tried next, where the broker may only be an old one."""
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
    """Sent in the stream of happenings every few seconds, so that a watcher sees that the connection works."""

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


class ProbeAnswer(TypedDict):
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
    payload: Json
    """For a poll: what a handler takes from a request at ``get``."""
