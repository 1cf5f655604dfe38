"""Corrects the times of readings that waited in the outbox while the wall clock was set.

A host without a battery for its clock starts in 1970, polls, and gets the time from the network a minute later. Its
earlier readings are published with the times that the clock, as it is now set, gives them.
"""

from leadsman.mqtt.message import Message
from leadsman.timing.clock import rfc3339

STEP = 1.0
"""Seconds; a clock is set by more than that, or its error is none to speak of."""


def is_off(message: Message, offset: float) -> bool:
    """Whether the wall clock, which is set to `offset` now, was set since the reading was taken. See `Clock.offset`."""
    return message.clock_offset is not None and not -STEP <= offset - message.clock_offset <= STEP


def retimed(message: Message, offset: float) -> Message:
    """A message whose reading `is_off`, with the right time; in its payload too, where `Delivery` has put it there."""
    if message.taken_at is None or message.clock_offset is None:
        return message
    taken_at = message.taken_at + offset - message.clock_offset
    before, after = (f'"taken_at":"{rfc3339(at)}"'.encode() for at in (message.taken_at, taken_at))
    payload = message.payload.replace(before, after)
    return message._replace(payload=payload, taken_at=taken_at, clock_offset=offset)
