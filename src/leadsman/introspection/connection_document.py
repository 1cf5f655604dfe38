"""The types of what heartbeat and introspection say of the connection to the broker and of the outbox; see
`leadsman.introspection.document`."""

from typing import (
    Literal,
    NotRequired,  # pydantic wants this one before Python 3.12
)

from typing_extensions import TypedDict

from leadsman.introspection.counters_document import Subscribed
from leadsman.introspection.explanations import StoredReadings


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


class OutboxSection(TypedDict):
    """The messages that wait for the broker."""

    messages: int
    bytes: int
    in_flight: int
    delivered: int
    dropped: int
    dropped_by: DroppedBy
    oldest: float | None
    """The age of the oldest reading."""
    on_disk: NotRequired[StoredReadings]


class CandidateBroker(TypedDict):
    """One of several brokers."""

    broker: str
    last_error: str | None
    """Why it is not in use; null for the one that works, and for one that was never tried."""


class Candidates(TypedDict, total=False):
    """The brokers, if there are several, in the order in which they are tried."""

    brokers: list[CandidateBroker]


class MqttSection(Candidates):
    """The connection to the broker."""

    broker: str
    """The address of the broker of the connection, or of the one that is tried next."""
    client_id: str
    connected: bool
    away_since: NotRequired[str]
    """When the connection failed; left out while it holds."""
    protocol: str
    client: str | None
    session: int
    connects: int
    breaks: int
    """Connections that ended, since the start."""
    window: int
    """Messages that may be in flight."""
    limited_by: Literal["receive_maximum"] | None
    """See `StatusMqtt`."""
    last_error: str | None
    outbox: OutboxSection
    subscriptions: NotRequired[dict[str, Subscribed]]
    """What became of the messages of other programs, by topic filter. Left out without any `@app.subscribe`."""


class StatusMqtt(TypedDict):
    """The connection to the broker in the heartbeat."""

    broker: str
    """Its address."""
    protocol: str
    client: str | None
    connects: int
    breaks: int
    """Connections that ended, since the start."""
    outbox_messages: int
    outbox_bytes: int
    on_disk: NotRequired[StoredReadings]
    oldest_s: NotRequired[float]
    """The age of the oldest reading that waits; left out if none does."""
    dropped: int
    dropped_by: DroppedBy
    dropped_last_minute: int
    limited_by: Literal["receive_maximum"] | None
    """Not null while readings come faster than the broker takes them, because of its Receive Maximum (MQTT 5). Then the
    newest go first."""
    last_error: str | None
