"""Whether the last reading that a broker acknowledged is what it retains. MQTT 3.1.1 has no refusal, and some brokers
acknowledge what their access list denies; so only a look at the broker shows it. Pure."""

from datetime import datetime
from typing import NamedTuple

from leadsman.core.mqtt.answers import object_in

SKEW = 5.0
"""Seconds that the reading at the broker may be older: brokers and apps take their time, and clocks differ."""


class KeptReading(NamedTuple):
    """What a broker retains of a device, compared with what the app published."""

    is_there: bool
    """Whether it has a reading as new as the last one; also if it has one without a time."""
    kept_since: str | None = None
    """When the older one that it has was taken; None if it has none."""


def compare(published: str, payload: bytes | None, taken_at: str | None) -> KeptReading:
    """Compare what a broker retains at the topic of a device with the last reading that it acknowledged.

    Args:
        published: when that one was taken, RFC 3339.
        payload: what the broker retains; None for nothing.
        taken_at: when the reading there was taken, if its message has that (MQTT 5); the payload may have it, too.
    """
    if payload is None:
        return KeptReading(False)
    if taken_at is None:
        written = (object_in(payload) or {}).get("taken_at")
        taken_at = written if isinstance(written, str) else None
    if taken_at is None:
        return KeptReading(True)
    try:
        late = datetime.fromisoformat(published) - datetime.fromisoformat(taken_at)
    except (ValueError, TypeError):
        return KeptReading(True)
    return KeptReading(True) if late.total_seconds() <= SKEW else KeptReading(False, taken_at)
