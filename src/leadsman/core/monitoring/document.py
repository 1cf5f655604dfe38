"""The types of what an app publishes about itself and its devices without being asked: status, errors, health. Also the
parts of them that introspection has; see `leadsman.core.introspection.document`.

Times are RFC 3339 in UTC; durations and ages are seconds.
"""

from typing import (
    Literal,
    NotRequired,  # pydantic wants this one before Python 3.12
)

from typing_extensions import TypedDict

from leadsman.core.document import Bytes, Seconds, Time
from leadsman.core.mqtt.topic_faults import FaultKind
from leadsman.core.resilience.breaker import CircuitWord

StatusWord = Literal["held", "isolated", "circuit_open", "deferred", "stale", "error", "starting", "ok"]
"""The status of a device: the first that applies; see `leadsman.core.monitoring.health`."""


class PollUnderWay(TypedDict):
    """A poll some of whose calls have failed, and that will try again."""

    failed_calls: int
    """The calls of this poll that have failed so far."""
    last_error: str
    """Why the last of them failed."""
    next_call_at: Time
    """When the handler is called again."""


class StatusDevice(TypedDict, total=False):
    """A device in the heartbeat. Most fields are present only if its status is not ``ok``."""

    status: StatusWord
    """The first status that applies."""
    stale: bool
    """True if the last reading is older than `stale_after`. Present only then."""
    missed_polls: int
    """Polls since the start of the app that came due while an earlier one still ran. Left out if there were none."""
    poll_under_way: PollUnderWay
    """Present only while the poll retries, whatever the status."""
    deferred_until: Time
    """Polls before this time are skipped, because the device asked for a pause. Present only while it pauses."""
    deferred_reason: str | None
    """Why the device asked for a pause, or why it was marked as unavailable. Present only while it is so."""
    opened_at: Time
    """When the circuit opened. Present only while it is not closed."""
    opens: int
    """Openings of the circuit since the last success. Present only while it is not closed."""
    circuit: CircuitWord
    """The state of the circuit. Left out while the device is ok or starting, as are all fields below."""
    consecutive_failures: int
    """Failed polls since the last success."""
    attempts: int
    """Calls of the current poll, or of the last one that failed."""
    retries: int
    """Calls since the start of the app that repeated a failed one."""
    polls: int
    """Polls that ended since the start of the app."""
    failed_polls: int
    """Those of them that gave no reading."""
    failing_since: Time | None
    """When the first call without a reading began; null if the last poll succeeded."""
    last_error: str | None
    """Why the device fails; null if it does not."""
    last_success_at: Time | None
    """When the last poll succeeded; null if none did."""
    next_poll_at: Time | None
    """When the device is polled next; null if that is not known, as of a device that is held."""


class StoredReadings(TypedDict):
    """Readings on disk. Left out as long as none had to be written since the start of the app."""

    store: Literal["opening", "ok", "full", "locked", "memory"]
    """``full``: the disk has no room, and what comes waits in memory. ``locked``: another process has the file.
    ``memory``: it cannot be used."""
    readings: int
    """Those on disk that did not arrive."""
    only: int
    """Those of them that do not wait in memory as well."""
    replayed: int
    """Readings that were read back since the start."""
    dead: int
    """Readings since the start that the broker does not accept. They are on disk, too."""
    room: Bytes | None
    """Bytes that the disk takes before the oldest readings are deleted, or nothing is written any more; null if that is
    not known."""


class DroppedBy(TypedDict, total=False):
    """Messages that were dropped since the start, by cause; causes of none are left out."""

    full: int
    """The outbox was full; the oldest go first."""
    expired: int
    """They were older than their expiry, or than `max_age` of the outbox."""
    too_large: int
    """Too large for the outbox."""
    refused: int
    """The broker refused them for good, closed the connection on them, or has a limit that they exceed."""
    damaged: int
    """The file on the disk was damaged, or replaced."""
    fenced: int
    """Another node of the cluster may have had their device by the time they could be sent."""


class TopicFault(TypedDict):
    """What is wrong with a topic: the broker does not accept its messages, or messages of it were lost lately."""

    kind: FaultKind
    """``denied``: the broker says that the app may not publish there. ``refused``: it refuses the messages for another
    reason. ``closes``: it closes the connection on them. ``over_limit``: they are larger than it takes. The others are
    those of `DroppedBy`."""
    error: str
    """An error message that names the topic."""
    since: Time
    """The first message of it that was refused or lost."""
    lost: int
    """Messages that were lost since then."""
    lost_at: NotRequired[Time]
    """When the last one was lost; left out if none was."""
    taken: NotRequired[int]
    """Messages of it that the broker took since then; left out if it took none."""


class LinkState(TypedDict):
    """The fields of each report about the connection to the broker."""

    broker: str
    """The address of the broker of the connection, or of the one that is tried next."""
    protocol: str
    """The version of MQTT, such as ``5.0`` or ``3.1.1``."""
    client: str | None
    """The library that speaks it; null before the first connection."""
    connects: int
    """Connections that were made since the start."""
    breaks: int
    """Connections that ended, since the start."""
    limited_by: Literal["receive_maximum"] | None
    """Not null while readings come faster than the broker accepts them, because of its Receive Maximum (MQTT 5). They
    arrive late then."""
    last_error: str | None
    """The fault of the connection, of a subscription or of a topic; the first one, if there are several."""
    faults: NotRequired[dict[str, TopicFault]]
    """The topics whose messages the broker does not accept, or of which messages were lost in the last minute; where
    the broker does not accept them, until it has accepted ten in a row. At most 20, the oldest fault first; left out if
    there is none. Answers to requests do not count."""


class OutboxState(TypedDict):
    """The messages that wait for the broker."""

    messages: int
    """The messages that wait in memory."""
    bytes: Bytes
    """Their size."""
    oldest: Seconds | None
    """The age of the oldest reading that waits; null if none does."""
    dropped: int
    """The messages that were dropped since the start of the app."""
    dropped_by: DroppedBy
    """Those messages by their cause."""
    on_disk: NotRequired[StoredReadings]
    """The readings on disk. Left out as long as none had to be written since the start of the app."""


class StatusOutbox(OutboxState):
    """The messages that wait for the broker, in the heartbeat."""

    dropped_last_minute: int
    """The messages that were dropped in the last 60 seconds. Answers to requests do not count."""


class StatusMqtt(LinkState):
    """The connection to the broker in the heartbeat."""

    outbox: StatusOutbox
    """The messages that wait for the broker."""


class NodeSection(TypedDict):
    """The node that is active, of several that share the app; see `leadsman.extensions.nodes.standby`."""

    name: str
    """The name of the node."""
    token: int
    """Grows with each takeover, by whichever node."""
    since: Time
    """Since when it is active."""
    takeovers: int
    """How often this process took over, this time included."""


class Status(TypedDict):
    """The heartbeat, at ``{prefix}/status``; also the birth, the last status and the will of the app. It comes after
    each connection, within a second of each change of a status, and every 30 s if nothing changes
    (``App(heartbeat=…)``). So an app whose heartbeat is older than twice that time does not run any more, or has lost
    its broker. It is retained.

    The will, which the broker publishes when the connection breaks, has only `state`, `session`, `health`, `version`
    and `dry_run`."""

    state: Literal["online", "offline"]
    """Whether the app is there. A will and the last status say ``offline``."""
    session: int
    """The number of the connection, which grows: the milliseconds since 1970 at which it was made. An ``offline`` with
    an older number than the last ``online`` came too late."""
    health: Literal["ok", "degraded"]
    """``ok`` if no device is held, stale, failing or has an open circuit, the connection has no error, no state file is
    in trouble, and the app is online; ``degraded`` otherwise."""
    version: str
    """The version of the app."""
    client_id: NotRequired[str]
    """The client identifier of its connection. Left out in a will."""
    dry_run: NotRequired[bool]
    """Whether twins replace the hardware, and nothing is retained or stored. Present only in a dry run."""
    node: NotRequired[NodeSection]
    """The node that is active. Present only with ``--standby``."""
    at: NotRequired[Time]
    """When the app wrote it. A will was written at the connect, and has none."""
    uptime: NotRequired[Seconds]
    """How long the app has run. Left out in a will."""
    mqtt: NotRequired[StatusMqtt]
    """The connection to the broker. Left out in a will."""
    state_files: NotRequired[dict[str, str]]
    """Files of the app's state that cannot be written at the moment, and why. Left out if there are none."""
    log_lines_left_out: NotRequired[int]
    """Lines of the log since the start of the process that had no room, because nobody read those before. Left out if
    there are none."""
    devices: NotRequired[dict[str, StatusDevice]]
    """The devices by name. Left out in a will; with `counts`, only the first of those that are not ok."""
    jobs: NotRequired[dict[str, StatusDevice]]
    """The side jobs by name. Left out if there are none."""
    counts: NotRequired[dict[str, int]]
    """How many devices have each status. Present only if the document would be larger than 64 KiB with all devices,
    from about 1,000 devices on."""
    nodes: NotRequired[dict[str, int]]
    """How many nodes share the app, by what they are, such as ``standby``. Present only in an app that several
    share."""


class OutageMessage(TypedDict):
    """The message at ``{prefix}/{device}/error`` about an outage. It comes with the first failed poll, with the 2nd,
    4th, 8th … in the first hour, once an hour after it, and with the next reading. It is not retained."""

    event: Literal["onset", "reminder", "recovered"]
    """What happened to the outage: it began, it still lasts, or it is over."""
    type: str
    """The class of the error."""
    message: str
    """Its text."""
    failures: int
    """Failed polls of the outage so far."""
    since: Time
    """The first call that gave no reading."""
    outage_seconds: Seconds
    """How long the outage has lasted."""
    reason: NotRequired[str]
    """Why the last failed call was not repeated, such as ``budget``. Left out if that is not known."""
    retry_in: NotRequired[Seconds]
    """How long until the poll under way calls again. Present only while a poll retries."""


class FaultMessage(TypedDict):
    """The message at ``{prefix}/error``: a fault of the app itself. It is not retained."""

    event: Literal["fault"]
    """Always ``fault``."""
    where: str
    """The part of the app that failed."""
    type: str
    """The class of the error."""
    message: str
    """Its text."""
    at: Time
    """When it happened."""


class DeviceHealth(TypedDict):
    """How a device is, at ``{prefix}/{device}/health``. It comes at each change, while discovery for Home Assistant is
    on. It is retained."""

    status: StatusWord
    """The first status that applies."""
    circuit: CircuitWord
    """The state of the circuit."""
    consecutive_failures: int
    """Failed polls since the last success."""
    last_success_at: Time | None
    """When the last poll succeeded, as it was when this was written; null if none did. It alone is renewed once a
    minute."""


class HealthFile(TypedDict):
    """The file that ``LEADSMAN_HEALTH_FILE`` names, for the probe of a container, ``leadsman health``. It is written
    every 10 s while the app runs, and removed when it ends."""

    layout: int
    """The number of its layout, 1."""
    at: Seconds
    """When it was written, by the monotonic clock of the system, which all its processes share."""
    period: Seconds
    """The longest time between two updates. A file that is older than three of them is of a process that hangs or has
    ended."""
    fresh: bool
    """Whether the app shows a sign of life: some data is fresh."""
    words: str
    """How the app is, in one line."""


class Counters(TypedDict):
    """The counters of a device since the start of the app; see `leadsman.core.monitoring.health`."""

    polls: int
    """Polls that ended."""
    failed_polls: int
    """Those of them that gave no reading."""
    retried_polls: int
    """Polls that succeeded after at least one failed call."""
    calls: int
    """Calls of the handler that ended, retries included."""
    failed_calls: int
    """Those of them that failed."""
    retries: int
    """Calls that repeated a failed one."""
    opens: int
    """Times at which the circuit opened; one more each time a probe fails."""
    deferrals: int
    """Polls that ended with a pause that the device asked for."""
    missed_polls: int
    """Polls that came due while an earlier one still ran."""
    published: int
    """Readings that were handed to the outbox."""
