"""Plays readings to a publish rule, as a running app does, without an app."""

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from leadsman.core.loop.durations import Duration, positive_seconds
from leadsman.core.readings.publish import LastPublished, PublishRule

Fields = Mapping[str, Any]


def published_by(rule: PublishRule, readings: Iterable[Fields], interval: Duration = 1.0) -> list[Fields]:
    """The readings that a publish rule lets through, the first one always among them.

    It also checks what an app relies on: the rule answers True or False, gives one answer to one question, and changes
    neither what was published nor the reading.

    Args:
        rule: the rule.
        readings: the fields of one reading after the other.
        interval: seconds between two readings, more than 0, or text such as ``"10s"``.

    Raises:
        AssertionError: the rule does something else. What it raises itself is not caught.
    """
    step, published = positive_seconds(interval, "interval"), []
    previous: LastPublished | None = None
    for number, reading in enumerate(readings):
        if previous is None or _decided(rule, previous, reading, number * step):
            previous = LastPublished(reading, number * step)
            published.append(reading)
        else:
            previous = previous._replace(since=previous.since + 1)
    return published


def _decided(rule: PublishRule, previous: LastPublished, reading: Fields, now: float) -> bool:
    before = copy.deepcopy((previous.fields, reading))
    answer, again = (rule.decide(previous, reading, now) for _ in range(2))
    if (previous.fields, reading) != before:
        raise AssertionError(f"{rule!r} changed {before} to {(previous.fields, reading)}; a rule only compares")
    if not isinstance(answer, bool):
        raise AssertionError(f"{rule!r} answered {answer!r}; return True or False")
    if answer != again:
        raise AssertionError(
            f"{rule!r} answered {answer} and then {again} about {reading}; a rule keeps nothing between two calls,"
            " since it serves all devices of its registration"
        )
    return answer
