"""Whether the averages of radon can be believed. Pure.

A sensor whose battery was changed has lost its averages. It reports 0 for both until it has measured for some hours.
Then the average of 24 hours is right again, and the long-term average is that of a few days. Nothing else in what it
sends says so, hence the long-term average of the reading before decides.
"""

from datetime import datetime, timedelta
from typing import TypedDict

from airthings2mqtt.payloads import Air

MIN_BECQUERELS = 20
"""Bq/m³: a long-term average below it says nothing when it falls."""
COLLAPSE = 4
"""A long-term average that falls to less than a quarter between two readings began anew: it covers months."""


class Memory(TypedDict):
    """What is remembered of a sensor."""

    long_term: int | None
    """Its last long-term average; 0 while it has none."""
    reset_at: str | None
    """When its averages began anew."""


def believed(air: Air, before: Memory | None, now: datetime, settle: timedelta) -> tuple[Air, Memory]:
    """The reading with what can be believed of its averages, and what is to be remembered of the sensor.

    Args:
        air: as the sensor sent it.
        before: what was remembered; None for a sensor that was never read.
        now: the time of the reading.
        settle: for how long a long-term average is provisional after a reset.
    """
    last, reset_at = (None, None) if before is None else (before["long_term"], before["reset_at"])
    long_term = air.radon_long_term_avg
    warming_up = not (air.radon_24h_avg or long_term)
    collapsed = last is not None and long_term is not None and last >= MIN_BECQUERELS and long_term * COLLAPSE < last
    begins_anew = last != 0 if warming_up else collapsed
    if begins_anew:
        reset_at = now.isoformat()
    since = None if reset_at is None else datetime.fromisoformat(reset_at)
    state = "warming_up" if warming_up else "ok" if since is None or now - since >= settle else "provisional"
    changes: dict[str, object] = {"measurement_state": state, "sensor_reset_at": since}
    if warming_up:
        changes |= {"radon_24h_avg": None, "radon_long_term_avg": None}
    long_term = 0 if warming_up else last if long_term is None else long_term
    return air.model_copy(update=changes), {"long_term": long_term, "reset_at": reset_at}
