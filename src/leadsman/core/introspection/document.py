"""The types of the requests that an app takes, of its answers, and of the registry. Those that another room makes lie
there, in `leadsman.core.monitoring.document` and others. The schema of every topic is made from all of them
(`leadsman.core.introspection.schema`).

Times are RFC 3339 in UTC; durations and ages are seconds.
"""

from typing import (
    Annotated,
    Literal,
    NotRequired,  # pydantic wants this one before Python 3.12
)

from typing_extensions import TypedDict

from leadsman.core.document import Bytes, EpochTime, Seconds, Time
from leadsman.core.introspection.requests import Action
from leadsman.core.monitoring.document import (
    Counters,
    LinkState,
    OutboxState,
    PollUnderWay,
    StatusWord,
    TopicFault,
)
from leadsman.core.mqtt.answers import Json
from leadsman.core.readings.sensor import Sensor
from leadsman.core.resilience.breaker import CircuitWord
from leadsman.core.runtime.document import Counted


class BreakerTerms(TypedDict):
    """The specification of a circuit breaker."""

    threshold: int
    """Failures at which the circuit opens."""
    recovery: float | str | None
    """Seconds for which the circuit stays open at least, or the waits that say how long; null: for one poll."""
    shared: str | None
    """The name of a circuit that several handlers share; null if it is its own."""
    ignore: list[str]
    """Errors that are neutral: neither a success nor a failure."""


class DeliveryTerms(TypedDict):
    """How readings are published."""

    qos: int
    """The quality of service: 0, 1 or 2."""
    retain: bool
    """Whether the broker keeps the last reading."""
    expiry: Seconds | None
    """After how long a reading is not wanted any more; null: never."""
    keep: Literal["all", "newest"]
    """Which of the readings that wait for the broker arrive at the state topic: all of them, or the newest."""
    history: Seconds | None
    """How long a reading at the history topic is wanted; None without such a topic."""


class LifeCounters(Counters):
    """The counters of a device over all lives of the app."""

    since: Time
    """When counting began."""


class Subscribed(TypedDict):
    """What became of the messages of one subscription since the start of the app."""

    received: int
    """Messages that came."""
    failed: int
    """Messages whose payload was refused, or whose handler failed."""
    dropped: int
    """Messages that came faster than they were handled."""
    waiting: int
    """Messages that wait for the handler."""
    received_at: Time | None
    """When the last one came; null if none did."""
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
    """Its name."""
    link: Link
    """The first link that does not pass a reading on; ``none`` if all do."""
    state: Literal["ok", "intended", "broken"]
    """``intended``: it is silent because the app, the device or a person wants it so."""
    summary: str
    """What is wrong, in one sentence."""
    since: Time | None
    """Since when the link has been so; null if that is not known."""
    cause: NotRequired[str]
    """Of a device that fails: its error, for how long, and how often leadsman tries it; one or two sentences. Left out
    of others."""
    evidence: list[str]
    """The facts that lead to the verdict, and the others that help; one line each."""
    advice: str
    """One thing to do."""


class ComparedField(TypedDict):
    """One field as the publish rule compared it; null where a reading lacks it."""

    published: Json
    """Its value in the reading that was published last."""
    read: Json
    """Its value in the reading that was not published."""


class Published(TypedDict):
    """What became of the readings of a device."""

    published_at: Time | None
    """When the reading that was published last was taken; null if none was."""
    suppressed: int
    """Readings since then that the publish rule did not publish."""
    rule_errors: NotRequired[int]
    """How often the publish rule raised an error since the start. Each of these readings was published. Left out if it
    raised none."""
    compared: NotRequired[dict[str, ComparedField]]
    """At most 20 fields of the last reading. Present only if the publish rule did not publish it."""


class DeviceOutbox(TypedDict):
    """The readings of a device that wait for the broker, or were lost lately, at one of its topics."""

    topic: str
    """The state topic, or the history topic."""
    messages: int
    """The messages that wait there."""
    in_flight: int
    """Those of them that were sent and not yet acknowledged."""
    topics_before: int | None
    """Topics whose next message goes first; null if nothing of this one may be sent now, or if they are over 100."""
    oldest: Seconds | None
    """The age of the oldest reading; null if none waits."""
    paused_for: Seconds | None
    """How long until the topic is tried again, after the broker refused it; null if it is not paused."""
    refused: str | None
    """Why the broker does not accept its messages, or did not accept one lately; null if it accepts them."""
    fault: NotRequired[TopicFault]
    """Why its messages are not accepted, or were lost lately; left out if neither is so."""


class OutboxSection(OutboxState):
    """The messages that wait for the broker, in introspection."""

    in_flight: int
    """The messages that were sent and not yet acknowledged."""
    delivered: int
    """The messages that the broker took since the start of the app."""


class CandidateBroker(TypedDict):
    """One of several brokers."""

    broker: str
    """Its address."""
    last_error: str | None
    """Why it is not in use; null for the one that works, and for one that was never tried."""


class MqttSection(LinkState):
    """The connection to the broker."""

    brokers: NotRequired[list[CandidateBroker]]
    """The brokers, in the order in which they are tried. Present only if there are several."""
    client_id: str
    """The client identifier of the connection."""
    connected: bool
    """Whether there is a connection."""
    away_since: NotRequired[Time]
    """When the connection failed; left out while it holds."""
    refusal: NotRequired[int]
    """The reason code with which the broker refused the last attempt to connect (MQTT 5 §3.2.2.2); left out if it did
    not."""
    not_listening: NotRequired[str]
    """The address at which nothing listened at the last attempt to connect; left out if something did."""
    session: int
    """The number of the connection, as in the heartbeat."""
    window: int
    """Messages that may be in flight."""
    outbox: OutboxSection
    """The messages that wait for the broker."""
    subscriptions: NotRequired[dict[str, Subscribed]]
    """What became of the messages of other programs, by topic filter. Left out without any `@app.subscribe`."""


class FindsTerms(TypedDict):
    """Which devices a handler may find at run time."""

    most: int
    """How many, at most."""
    forget_after: Seconds | None
    """For how long a device may give no reading before it is forgotten; null: for ever."""


class ContentReading(TypedDict):
    """The JSON of a reading that consists of bytes."""

    content_type: str
    """The media type."""
    size: Annotated[int, Sensor("B", device_class="data_size")]
    """How many bytes they are."""
    sha256: str
    """The SHA-256 of the bytes, in hexadecimal digits: the same for the same content."""


class ContentTerms(TypedDict):
    """The media type, the largest size and the topic of the bytes of a device."""

    content_type: str
    """The media type."""
    limit: Bytes
    """The largest size."""
    topic: str
    """The word below the device at which they are published."""


class FieldDescription(TypedDict, total=False):
    """What people see of a field, as in `leadsman.Sensor`. What the registration does not set is left out."""

    name: str
    """Its name for people. Left out if it is not set, as are all below."""
    icon: str
    """Its icon, such as ``mdi:pump``."""
    category: Literal["config", "diagnostic"]
    """What it is about, if not the main thing about the device."""
    discoverable: bool
    """Whether other programs are told of it."""
    homeassistant: dict[str, bool | int | str]
    """Further options of its entity in Home Assistant."""


Kind = Literal["telemetry", "source", "event", "command", "periodic"]
"""The decorators of registrations."""


class Registered(TypedDict):
    """A registration with its options. Options that its kind does not have are left out."""

    kind: Kind
    """What it is."""
    handler: str
    """The name of its function."""
    needs: list[str]
    """The adapters that the handler asks for."""
    enabled: bool
    """Whether it runs."""
    title: NotRequired[str]
    """The name of the device for people. Present only if it has one beside its own."""
    area: NotRequired[str]
    """The room or the place that is suggested for the device. Present only if one is."""
    fields: NotRequired[dict[str, FieldDescription]]
    """What people see of some fields, in place of what their types set. Present only if something is set."""
    interval: NotRequired[Seconds | None]
    """The interval of its polls; null if a schedule says when."""
    schedule: NotRequired[str | None]
    """The times of its polls in the notation of cron; null if it has an interval."""
    retry: NotRequired[int | Literal["until the next poll"]]
    """How often a failed call is repeated."""
    retry_on: NotRequired[list[str]]
    """The errors after which it is."""
    backoff: NotRequired[str]
    """The waits before the retries, in the notation of policies."""
    budget: NotRequired[Seconds]
    """How long all calls and waits of a poll may take together."""
    within: NotRequired[Seconds]
    """How long after its begin a poll may still be repeated."""
    policy: NotRequired[str]
    """In the notation of a policy file, if the options above cannot express it."""
    policy_name: NotRequired[str]
    """The policy that the handler names, or the default policies that apply to it."""
    policy_where: NotRequired[dict[str, str | None]]
    """When each of these default policies applies, if that depends on the error; null: to any error."""
    circuit_breaker: NotRequired[BreakerTerms | None]
    """The specification of its circuit breaker; null without one."""
    timeout: NotRequired[Seconds | None]
    """How long a call may take; null: without a limit."""
    overrun: NotRequired[Literal["next-poll", "finish"]]
    """What becomes of a poll that is still retrying when the next one is due."""
    on_failure: NotRequired[str]
    """What follows a failed poll, such as ``hold``."""
    publish: NotRequired[str | None]
    """Its publish rule; null: every reading."""
    filters: NotRequired[dict[str, list[str]]]
    """Present only if it has filters: those of each output, in their order."""
    window: NotRequired[Seconds]
    """The shortest window of its filters; a reading is there when one is over. Present only if a filter gathers
    readings."""
    delivery: NotRequired[DeliveryTerms]
    """How its readings are published."""
    content: NotRequired[ContentTerms]
    """Present only if its readings are bytes with a topic of their own."""
    layout: NotRequired[Literal["fields", "both"]]
    """Present only if each value of a reading is published at a topic of its own."""
    group: NotRequired[str | None]
    """The name of a group whose polls run one after the other; null without one."""
    spread: NotRequired[Seconds | None]
    """By how much its polls are moved away from those of other devices; null: leadsman decides."""
    stale_after: NotRequired[Seconds | None]
    """The age at which its reading is too old; null: never."""
    offline_on: NotRequired[Literal["stale", "error"] | list[str]]
    """When the device is offline, besides while it is held, stale or its circuit is open: the names of the errors, or
    ``error`` for any."""
    event_types: NotRequired[list[str]]
    """The types of its events; present only if it sends events."""
    device_class: NotRequired[str | None]
    """What its events are of, such as a button; null if it says nothing."""
    throttle: NotRequired[Seconds]
    """The shortest time between two polls that are requested."""
    request: NotRequired[str]
    """The parameter that takes the payload of a request at ``get``. Present only if the handler has one."""
    silence: NotRequired[Seconds | None]
    """How long a source may give nothing before it is started again; null: for ever."""
    finds: NotRequired[FindsTerms]
    """Present only if the handler may find devices at run time."""
    found_by: NotRequired[str]
    """The handler that has found the device at run time."""
    queue: NotRequired[int]
    """How many commands may wait."""
    when_full: NotRequired[Literal["reject", "drop-oldest"]]
    """What becomes of a command when that many wait: it is refused, or the oldest is."""
    of_extensions: NotRequired[dict[str, float | bool | str | None]]
    """The options that extensions add, by their names. Present only if there are any."""


class Runtime(Counted):
    """The state of a device."""

    status: StatusWord
    """The first status that applies."""
    stale: bool
    """Whether the last reading is older than `stale_after`."""
    circuit: CircuitWord
    """The state of the circuit."""
    consecutive_failures: int
    """Failed polls since the last success."""
    attempts: int
    """Calls of the current poll, or of the last one that failed."""
    retries_since_success: int
    """Calls since the last success that repeated a failed one."""
    opens: int
    """Openings of the circuit since the last success."""
    failed_probes: NotRequired[dict[str, int]]
    """The devices that have failed probes since the circuit that the device shares with them opened, and how many.
    Present only if there are any. Where one has failed each probe and the others none, the fault is its own."""
    opened_at: Time | None
    """When the circuit opened; null while it is closed."""
    failing_since: Time | None
    """When the first call without a reading began; null if the last poll succeeded."""
    last_error: str | None
    """Why the device fails; null if it does not."""
    last_success_at: Time | None
    """When the last poll succeeded; null if none did."""
    last_duration: Seconds | None
    """How long the last successful poll took, retries included; null if none succeeded."""
    next_poll_at: Time | None
    """When the device is polled next; null if that is not known, as of a device that is held."""
    deferred_until: Time | None
    """Polls before this time are skipped, because the device asked for a pause; null if it did not."""
    deferred_reason: str | None
    """Why the device asked for a pause, or why it was marked as unavailable; null if neither."""
    poll_under_way: PollUnderWay | None
    """The poll that is being retried; null if none is."""
    counters: Counters
    """What was counted since the start of the app."""
    life: NotRequired[LifeCounters]
    """What was counted over all lives of the app. Present only with ``keep_state=True``."""
    held: bool
    """Whether the device is not polled until somebody releases it."""
    missed_polls: int
    """Polls since the start of the app that came due while an earlier one still ran."""
    finder_failed: NotRequired[bool]
    """Present only while the handler that has found it fails, and it is offline with that."""
    published: NotRequired[Published]
    """What became of its readings. Left out for a side job."""
    outbox: NotRequired[DeviceOutbox]
    """Its readings that wait for the broker. Left out if nothing of the device waits, and the broker refused
    nothing."""


class DeviceSection(TypedDict):
    """One device, or one side job."""

    registrations: list[Registered]
    """What the app registers under its name."""
    runtime: NotRequired[Runtime]
    """Its state. Left out if the app does not run, or if no registration of the device is enabled."""


class AdapterSection(TypedDict):
    """One adapter."""

    adapter: str
    """Its name."""
    kind: NotRequired[Literal["serial", "bluetooth", "calendars", "http", "i2c", "onewire"]]
    """What it needs of the machine or the network; see `leadsman.core.adapters.resource.Resource`. Left out if it does
    not declare that."""
    open: bool
    """Whether it is open."""
    reopened: int
    """How often it was opened again since the start."""
    health: NotRequired[dict[str, Json]]
    """The report of the adapter about itself. Left out if it makes none."""
    error: str | None
    """Why it is not open; null if it is."""


class AppSection(TypedDict):
    """The app."""

    name: str
    """Its name."""
    version: str
    """Its version."""
    prefix: str
    """The first levels of its topics."""
    root: NotRequired[str]
    """The name of the root device, whose topics have no level for the device. Present only if there is one."""
    leadsman: str
    """The version of leadsman."""
    python: str
    """The version of Python."""
    started_at: NotRequired[Time]
    """When it started. Left out if it does not run."""
    uptime: NotRequired[Seconds]
    """How long it has run. Left out if it does not."""
    loop_lag: NotRequired[Seconds]
    """By how much the event loop was late at most in the last ten seconds. Present only while the HTTP endpoint is
    on."""
    state_files: NotRequired[dict[str, str]]
    """Files of the app's state that cannot be written at the moment, and why. Left out if there are none."""


OutcomeWord = Literal["ok", "failed", "skipped", "deferred", "missed"]
"""How a poll ended, or why there was none: the circuit is open (``skipped``), the device asked for a pause
(``deferred``), or an earlier poll still ran (``missed``)."""


class RecentSeries(TypedDict):
    """The last values of one field, oldest first, with their times."""

    at: list[EpochTime]
    """When each value was read."""
    values: list[float]
    """The values."""


class RecentOutcomes(TypedDict):
    """The last outcomes of a device, oldest first, with their times."""

    at: list[EpochTime]
    """When each poll ended."""
    words: list[OutcomeWord]
    """How it ended."""


class Recent(TypedDict):
    """The last values and outcomes of a device. The times here are epoch seconds, since there are many of them."""

    at: EpochTime | None
    """When the last reading was taken; null if there was none."""
    fields: dict[str, Json]
    """Its fields that are numbers, truth values, null, short text, or lists and objects of those."""
    series: dict[str, RecentSeries]
    """The last values of each field that is a number."""
    outcomes: RecentOutcomes
    """How the last polls ended."""


class FieldTerms(TypedDict, total=False):
    """What the type of a field sets for its values, as in `leadsman.Sensor`. What it does not set is left out."""

    unit: str
    """The unit of its values. Left out if it has none."""
    device_class: str
    """What it measures, in the words of Home Assistant. Left out if its type does not say."""
    precision: int
    """Decimals to show. Left out if its type does not say."""
    name: str
    """For people. Left out if its type does not say."""


class StandardSections(TypedDict, total=False):
    """The sections of an answer to a request that names none."""

    app: AppSection
    """The app. Left out if the request names other sections, as are the next four."""
    mqtt: MqttSection
    """The connection to the broker."""
    adapters: list[AdapterSection]
    """The adapters."""
    devices: dict[str, DeviceSection]
    """The devices, by name."""
    jobs: dict[str, DeviceSection]
    """The side jobs, by name."""


class FieldsSection(TypedDict, total=False):
    """The section about the fields of readings."""

    fields: dict[str, dict[str, FieldTerms]]
    """The fields of the readings of a device whose type sets more than a name; the keys that lead to a nested one are
    joined by a dot. Present only if the request names this section."""


class Introspection(StandardSections, FieldsSection, total=False):
    """The ``data`` of an answer of ``{prefix}/introspect``: all sections, or those of the request. The
    others are left out."""


class RegistryDevice(TypedDict):
    """A device in the registry."""

    kinds: list[Literal["telemetry", "source", "event", "command"]]
    """What is registered under its name."""
    topics: dict[str, str]
    """Its topics, by what they are for."""
    retained: list[Literal["state", "availability", "ledger", "health"]]
    """Which of these topics the broker keeps."""
    others: NotRequired[list[str]]
    """Further retained topics of the device. Left out if there are none."""
    found_by: NotRequired[str]
    """The handler that has found the device at run time. Left out of others."""
    enabled: NotRequired[Literal[False]]
    """Present only if the device is not enabled: nothing is published but its availability, ``offline``."""


class RegistryHead(TypedDict):
    """The beginning of each page of the registry."""

    app: str
    """The name of the app."""
    version: str
    """Its version."""
    leadsman: str
    """The version of leadsman."""
    client_id: str
    """The client identifier of its connection."""
    introspect: str
    """The topic of requests."""
    status: str
    """The topic of the heartbeat."""
    root: NotRequired[str]
    """The name of the root device, whose topics have no level for the device. Present only if there is one."""


class RegistryDocument(RegistryHead):
    """The message at ``{prefix}/registry``, for tools that search for apps. The devices of a large app are on several
    pages; page 2 is at ``{prefix}/registry/2``."""

    devices: dict[str, RegistryDevice]
    """The devices of this page, by name."""
    others: NotRequired[list[str]]
    """Retained topics that belong to no device, besides the status and this registry; also those of removed devices
    that the broker has not forgotten yet. Left out if there are none."""
    page: NotRequired[int]
    """The number of this page, from 1. Left out if there is one page."""
    pages: NotRequired[int]
    """The number of pages. Pages with higher numbers are left from an earlier run. Left out if there is one page."""


class Request(TypedDict, total=False):
    """A request at ``{prefix}/introspect``. An empty payload requests the first five sections."""

    sections: list[str]
    """The sections that are wanted. If left out: the first five of this list."""
    devices: list[str]
    """The devices that are wanted. If left out: all."""
    after: int
    """Only rows of the trace with a higher number. May be left out."""
    since: EpochTime
    """Only rows of the trace, and hours and gaps of the ledger, from this time on. May be left out."""
    transaction: Json
    """Comes again in the answer. May be left out."""


class Plain(TypedDict, total=False):
    """A request at ``get``, ``hold/set`` or ``release/set`` of a device. The payload may be empty."""

    by: str
    """The sender, for the log and the trace. May be left out."""
    transaction: Json
    """Comes again in the answer. May be left out."""


class CircuitRequest(TypedDict):
    """A request at ``circuit/set`` of a device. The action alone, as text, will do."""

    action: Action
    """What to do with the circuit."""
    by: NotRequired[str]
    """The sender, for the log and the trace. May be left out."""
    transaction: NotRequired[Json]
    """Comes again in the answer. May be left out."""


class HeldAnswer(TypedDict):
    """What became of a request to hold or to release a device."""

    device: str
    """Its name."""
    held: bool
    """Whether it is held now."""


class CircuitAnswer(TypedDict):
    """What became of a request about a circuit."""

    device: str
    """Its name."""
    circuit: CircuitWord
    """The state of its circuit now."""


class PollAnswer(TypedDict):
    """What a poll gave that was requested over HTTP."""

    device: str
    """Its name."""
    reading: dict[str, Json] | None
    """Its fields; null if there was nothing to publish."""


class Answer(TypedDict):
    """The answer to a request, or one page of it. The pages of an answer have the same transaction."""

    status: Literal["ok", "error"]
    """Whether the request was executed."""
    data: Json
    """On a page: the sections, or the parts of sections, that are on it."""
    error: str | None
    """Why not; null if it was."""
    at: Time
    """When this was written."""
    transaction: NotRequired[Json]
    """That of the request. Left out if it had none."""
    page: NotRequired[int]
    """The number of this page, from 1. Left out if there is one page."""
    pages: NotRequired[int]
    """The number of pages of the answer. Left out if there is one page."""


class CommandResult(Answer):
    """The result of a command."""


class Happening(TypedDict):
    """Something that happened, for people who watch. Which of the other fields it has depends on its type: those of the
    event of that name in `leadsman.core.events`."""

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
        "message_repeated",
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
    at: Time
    """When it happened."""
    device: NotRequired[str]
    error_type: NotRequired[str]
    error_message: NotRequired[str]
    failing_since: NotRequired[Time]
    fields: NotRequired[dict[str, Json] | list[str]]
    duration: NotRequired[Seconds]
    attempt: NotRequired[int]
    attempts: NotRequired[int]
    delay: NotRequired[Seconds | None]
    reason: NotRequired[str | None]
    cycle: NotRequired[int]
    circuit: NotRequired[str]
    requested: NotRequired[bool]
    seconds: NotRequired[Seconds]
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
    retry_in: NotRequired[Seconds]
    will_refused: NotRequired[str | None]
    """That the connection has no will, and why."""
    version: NotRequired[str | None]
    """The version of MQTT that is tried next, where the broker may only be an old one."""
    clash: NotRequired[bool]
    allowed: NotRequired[int]
    topic: NotRequired[str | None]
    messages: NotRequired[int]
    is_answer: NotRequired[bool]
    topic_filter: NotRequired[str]
    adapter: NotRequired[str]
    how: NotRequired[str]
    file: NotRequired[str]
    where: NotRequired[str]


class Beat(TypedDict):
    """Sent in the stream of happenings every few seconds, so that a watcher sees that the connection works."""

    type: Literal["beat"]
    """Always ``beat``."""
    at: Time
    """When the app wrote it."""
    app: AppSection
    """The app."""
    mqtt: MqttSection
    """The connection to the broker."""


class Reset(TypedDict):
    """The first message of a stream that cannot go on where the watcher left it: happenings were lost, so the watcher
    must read the whole state again."""

    type: Literal["reset"]
    """Always ``reset``."""


class HealthCheck(TypedDict):
    """One component in the health document."""

    componentType: Literal["component", "datastore", "system"]
    """What it is: a device or the outbox, a state file, or the connection to the broker."""
    observedValue: str | float | bool | None
    """The status of a device, the messages that wait, or whether there is a connection or a file can be written."""
    observedUnit: NotRequired[str]
    """What is counted. Left out where nothing is."""
    status: Literal["pass", "warn", "fail"]
    """Whether it is well."""
    time: Time
    """When this was written."""
    output: NotRequired[str]
    """Its error. Left out if it has none."""


class HealthDocument(TypedDict):
    """The health of the app, in the format of draft-inadarei-api-health-check. ``fail``: no device has fresh data.
    ``warn``: a device, the broker or a state file is in trouble."""

    status: Literal["pass", "warn", "fail"]
    """The health of the whole app."""
    version: str
    """The version of the app."""
    releaseId: str
    """The version of leadsman."""
    serviceId: str
    """The client identifier of its connection to the broker."""
    notes: list[str]
    """How many devices are in trouble, and that no device has fresh data."""
    checks: dict[str, list[HealthCheck]]
    """By component and measurement, such as ``boiler:status``. The devices that are well are left out."""


class ProbeAnswer(TypedDict):
    """The answer to a probe of a supervisor, such as a container runtime."""

    status: Literal["pass", "fail"]
    """Whether the process answers, or polls its devices."""


class Problem(TypedDict):
    """Why an HTTP request was refused or failed (RFC 9457)."""

    title: str
    """What kind of problem it is."""
    status: int
    """The status code of the answer."""
    detail: str
    """What is wrong, and what to do."""


class By(TypedDict, total=False):
    """The body of an HTTP request about a device. It may be left out."""

    by: str
    """The sender, for the log and the trace."""
    payload: Json
    """For a poll: what a handler takes from a request at ``get``."""
