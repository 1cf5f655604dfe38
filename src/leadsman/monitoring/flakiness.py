"""Finds flaky devices: their polls succeed, but too often only after retries, so that neither an error nor an outage
is reported.

A device is flaky when half of its last polls needed retries, and no longer when almost none did. It may change as
often as it
likes in between: it is reported once an hour at most.
"""

from typing import NamedTuple

WINDOW = 20
"""Polls that are looked at, the last ones."""
MANY, FEW = 10, 2
"""Of them: so many that needed retries make a device flaky; so few, and it no longer is."""
TELL_AGAIN = 3600.0
"""Seconds from one time that a device is told as flaky to the next."""


class Flaky(NamedTuple):
    """What is remembered of a device, some of whose last polls needed retries."""

    numbers: tuple[int, ...]
    """Which of its last polls, counted from the start."""
    told: bool = False
    """Whether it was told as flaky, and not yet that it no longer is."""
    told_at: float = float("-inf")
    """When, monotonic seconds."""


def step(flaky: Flaky | None, polls: int, now: float, *, retried: bool) -> tuple[Flaky | None, str | None]:
    """Take a poll that succeeded.

    Args:
        flaky: what is remembered.
        polls: polls since the start, this one included.
        now: monotonic seconds.
        retried: whether this one succeeded only after retries.

    Returns:
        What to remember, None for nothing, and ``"flaky"`` or ``"steady"`` where that is to be told.
    """
    before = flaky or Flaky(())
    numbers = tuple(number for number in before.numbers if number > polls - WINDOW)
    if retried:
        numbers += (polls,)
    after = before._replace(numbers=numbers)
    if not before.told and len(numbers) >= MANY and now - before.told_at >= TELL_AGAIN:
        return after._replace(told=True, told_at=now), "flaky"
    if before.told and len(numbers) <= FEW:
        return after._replace(told=False), "steady"
    return (after if numbers or after.told or now - after.told_at < TELL_AGAIN else None), None
