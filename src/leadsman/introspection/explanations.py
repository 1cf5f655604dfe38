"""The types of what explains why a device is silent: what became of its readings, and the verdict about it.

Times are RFC 3339 in UTC; durations and ages are seconds.
"""

from typing import (
    Literal,
    NotRequired,  # pydantic wants this one before Python 3.12
)

from typing_extensions import TypedDict

from leadsman.mqtt.answers import Json

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


class Away(TypedDict, total=False):
    """The field of `MqttSection` about a connection that is lost."""

    away_since: str


class Compared(TypedDict):
    """One field as the publish rule compared it; null where a reading lacks it."""

    published: Json
    read: Json


class Published(TypedDict):
    """What became of the readings of a device."""

    published_at: str | None
    """When the reading that was published last was taken."""
    suppressed: int
    """Readings since then that the publish rule did not publish."""
    compared: NotRequired[dict[str, Compared]]
    """If the publish rule did not publish the last reading: at most 20 of its fields."""


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
    """What the broker said of the topic, until it takes a message of it."""
