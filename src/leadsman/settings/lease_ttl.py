"""Reads how long a lease holds that is not renewed: the same for a standby and for a cluster."""

from typing import cast

from leadsman.errors import InvalidType, InvalidValue
from leadsman.timing.durations import Duration, positive_seconds

SHORTEST, LONGEST = 3.0, 600.0
"""Seconds of a TTL. A standby renews each third of it, and MQTT 5 counts the expiry of a message in whole seconds
(§3.3.2.3.3); in a cluster the end of polls must fit into a fifth of it. Nothing is polled for as long as it after a
power cut."""


def ttl_of(value: object) -> float:
    """The seconds of a TTL. Raises `InvalidType` and `InvalidValue`; the messages say what to write."""
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise InvalidType(f"{value!r} is not a duration; write one such as '15s'")
    seconds = positive_seconds(cast("Duration", value), "it")
    if not SHORTEST <= seconds <= LONGEST:
        raise InvalidValue(f"{seconds:g} s is too {'short' if seconds < SHORTEST else 'long'}; write 3s to 10m")
    return seconds
