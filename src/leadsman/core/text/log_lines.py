"""Limits the log lines about one subject: a device, or what other programs send."""

import math
from typing import NamedTuple

from leadsman.core.text import count_noun

MAX_LINES = 6
"""The most log lines about one device in a minute. The next line counts those that were left out."""
MAX_CAUSES = 20
"""The most causes of outages of a device that are logged in a minute however many lines there were."""
MINUTE = 60.0
MAX_CAUSED_LINES = 3
"""The most log lines about one subject in a period, if others cause them."""


MAX_SUBJECTS = 10_000
"""Subjects that are remembered. Past that number, the one that was first seen longest ago is forgotten."""
MAX_PERIOD = 3600.0
"""Seconds. The longest period of `Lines` about what others cause."""


class _Period(NamedTuple):
    began: float
    length: float
    lines: int
    left_out: int
    causes: frozenset[int] = frozenset()
    """Their hashes."""


class Lines:
    """Limits the lines about one subject in a period, and counts the rest. Lines that others cause, who may cause as
    many as they like, belong to `others`.

    Args:
        most: lines about one subject in one period.
        longest: seconds. The period is a minute. It doubles up to this value while lines are left out, and is a minute
            again after a period without any.
    """

    def __init__(self, most: int = MAX_LINES, longest: float = MINUTE) -> None:
        self._most = most
        self._longest = longest
        self._periods: dict[str, _Period] = {}

    def forget(self, entity: str) -> None:
        """Remove an entity."""
        self._periods.pop(entity, None)

    def left_out(self, entity: str, at: float, cause: str | None = None) -> int | None:
        """How many lines about `entity` were left out before this one. None: leave this one out, too.

        With a `cause`, such as that of an outage that begins, it is never left out while the log does not have that
        cause in this period, and has less than `MAX_CAUSES`.
        """
        period = self._periods.get(entity, _Period(-math.inf, 0.0, 0, 0))
        if not 0 <= at - period.began < period.length:
            grown = period.left_out and at - period.began < 2 * period.length
            length = min(2 * period.length, self._longest) if grown else MINUTE
            period = _Period(at, length, 0, period.left_out)
        causes = period.causes if cause is None else period.causes | {hash(cause)}
        is_due = period.lines < self._most or len(period.causes) < len(causes) <= MAX_CAUSES
        after = period._replace(lines=period.lines + 1, left_out=0, causes=causes)
        self._periods[entity] = after if is_due else period._replace(left_out=period.left_out + 1)
        if len(self._periods) > MAX_SUBJECTS:
            del self._periods[next(iter(self._periods))]
        return period.left_out if is_due else None


def others() -> Lines:
    """The limit of lines that others cause: a few of each subject, then one each period with a count. The subject is
    ours, such as a device that exists: it is not text that somebody sends."""
    return Lines(MAX_CAUSED_LINES, MAX_PERIOD)


def left_out_before(lines: int) -> str:
    """The end of a log line that follows lines that were left out."""
    return f" ({count_noun(lines, 'line')} about it left out before this one)" if lines else ""
