"""Finds flaky devices: their polls succeed, but too often only after retries, so that neither an error nor an outage is
reported.

A device becomes flaky when half of its last polls needed retries, and steady again when almost none did. It is reported
as flaky once an hour at most.
"""

from typing import NamedTuple

WINDOW = 20
"""How many of the last polls count."""
MANY, FEW = 10, 2
"""A device is flaky if at least `MANY` of these polls needed retries, and steady again if at most `FEW` did."""
REPORT_AGAIN = 3600.0
"""Seconds between two reports that a device is flaky."""


class Flaky(NamedTuple):
    """The record of a device some of whose last polls needed retries."""

    numbers: tuple[int, ...]
    """The numbers of these polls, counted from the start."""
    reported: bool = False
    """Whether the device was reported as flaky, and not yet as steady."""
    reported_at: float = float("-inf")
    """The time of the last report, monotonic seconds."""


def step(flaky: Flaky | None, polls: int, now: float, *, retried: bool) -> tuple[Flaky | None, str | None]:
    """Process a poll that succeeded.

    Args:
        flaky: the record of the device; None for a steady one.
        polls: the number of polls since the start, this one included.
        now: monotonic seconds.
        retried: whether this poll needed retries.

    Returns:
        The new record, and ``"flaky"`` or ``"steady"`` if that must be reported.
    """
    before = flaky or Flaky(())
    numbers = tuple(number for number in before.numbers if number > polls - WINDOW)
    if retried:
        numbers += (polls,)
    after = before._replace(numbers=numbers)
    if not before.reported and len(numbers) >= MANY and now - before.reported_at >= REPORT_AGAIN:
        return after._replace(reported=True, reported_at=now), "flaky"
    if before.reported and len(numbers) <= FEW:
        return after._replace(reported=False), "steady"
    return (after if numbers or after.reported or now - after.reported_at < REPORT_AGAIN else None), None
