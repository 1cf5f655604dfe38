"""The types of what an app publishes about itself and its devices without being asked: status, errors, health. Also the
parts of them that introspection has; see `leadsman.introspection.document`.

Times are RFC 3339 in UTC; durations and ages are seconds.
"""

from typing import (
    Literal,
    NotRequired,  # pydantic wants this one before Python 3.12
)

from typing_extensions import TypedDict

from leadsman.resilience.breaker import CircuitWord

StatusWord = Literal["held", "isolated", "circuit_open", "deferred", "stale", "error", "starting", "ok"]
"""The status of a device: the first that applies; see `leadsman.monitoring.health`."""


class PollUnderWay(TypedDict):
    """A poll some of whose calls have failed, and that will try again."""

    failed_calls: int
    last_error: str
    next_call_at: str


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
    """Readings since the start that the broker does not take. They are on disk, too."""
    room: int | None
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


class LinkState(TypedDict):
    """The fields of each report about the connection to the broker."""

    broker: str
    """The address of the broker of the connection, or of the one that is tried next."""
    protocol: str
    client: str | None
    connects: int
    breaks: int
    """Connections that ended, since the start."""
    limited_by: Literal["receive_maximum"] | None
    """Not null while readings come faster than the broker takes them, because of its Receive Maximum (MQTT 5). Then the
    newest go first."""
    last_error: str | None


class OutboxState(TypedDict):
    """The messages that wait for the broker."""

    messages: int
    """The messages that wait in memory."""
    bytes: int
    """Their size."""
    oldest: float | None
    """The age of the oldest reading that waits; null if none does."""
    dropped: int
    """The messages that were dropped since the start of the app."""
    dropped_by: DroppedBy
    on_disk: NotRequired[StoredReadings]


class StatusOutbox(OutboxState):
    """The messages that wait for the broker, in the heartbeat."""

    dropped_last_minute: int
    """The messages that were dropped in the last 60 seconds."""


class StatusMqtt(LinkState):
    """The connection to the broker in the heartbeat."""

    outbox: StatusOutbox


class NodeSection(TypedDict):
    """The node that is active, of several that share the app; see `leadsman.nodes.standby`."""

    name: str
    token: int
    """Grows with each takeover, by whichever node."""
    since: str
    takeovers: int
    """How often this process took over, this time included."""


class Constants(TypedDict):
    """The constant members of the heartbeats of a run."""

    version: str
    client_id: NotRequired[str]
    """Left out in a will."""
    dry_run: NotRequired[bool]
    """Whether twins replace the hardware, and nothing is retained or stored."""
    node: NotRequired[NodeSection]
    """Present only with ``--standby``."""


class Status(Constants):
    """The message at ``{prefix}/status``: birth, heartbeat, goodbye and will."""

    state: Literal["online", "offline"]
    session: int
    health: Literal["ok", "degraded"]
    at: NotRequired[str]
    """When the app wrote it; a will was written at the connect, and has none."""
    uptime: NotRequired[float]
    mqtt: NotRequired[StatusMqtt]
    state_files: NotRequired[dict[str, str]]
    """Files of the app's state that cannot be written at the moment, and why."""
    devices: NotRequired[dict[str, StatusDevice]]
    jobs: NotRequired[dict[str, StatusDevice]]
    counts: NotRequired[dict[str, int]]
    nodes: NotRequired[dict[str, int]]
    """How many nodes share the app, by what they are, such as ``standby``. Only of an app that several share."""


class OutageMessage(TypedDict):
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


class FaultMessage(TypedDict):
    """The message at ``{prefix}/error``: a fault of the app itself."""

    event: Literal["fault"]
    where: str
    type: str
    message: str
    at: str


class DeviceHealth(TypedDict):
    """How a device is."""

    status: StatusWord
    circuit: CircuitWord
    consecutive_failures: int
    last_success_at: str | None
    """As it was when this was written. It alone is renewed once a minute."""


class Counters(TypedDict):
    """The counters of a device since the start of the app; see `leadsman.monitoring.health`."""

    polls: int
    """Polls that ended."""
    failed_polls: int
    retried_polls: int
    """Polls that succeeded after at least one failed call."""
    calls: int
    failed_calls: int
    retries: int
    opens: int
    """Times at which the circuit opened; one more each time a probe fails."""
    deferrals: int
    """Polls that ended with a pause that the device asked for."""
    missed_polls: int
    published: int
    """Readings that were handed to the outbox."""
