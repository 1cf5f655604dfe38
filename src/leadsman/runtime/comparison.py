"""What a publish rule compares a reading with: the last one that was accepted.

A reading counts as soon as the outbox has it. The outbox drops the newest reading of a topic only if it is too large,
if it expires, if the broker refuses it for good, or if its row on disk is damaged. Then the reading before it counts
again, or none. Pure.
"""

from leadsman.readings.publish import Fields, LastPublished

DOUBT = 1.0
"""Seconds. A reading that was read back from disk is known by its time to that precision, since the clock may have been
set between."""


class Comparison:
    """The last accepted reading of a device. It is the receipt of readings that belong to no slot of the schedule."""

    __slots__ = ("_before", "_taken", "last", "published", "replayed")

    def __init__(self) -> None:
        self.last: LastPublished | None = None
        """None before the first reading, and when it is not known whether the broker has one."""
        self.published = self.replayed = 0
        """See `leadsman.mqtt.message.Receipt`."""
        self._before: Fields | None = None
        self._taken = 0.0

    def accepted(self, fields: Fields, at: float, taken: float) -> None:
        """The outbox is given a reading of the monotonic time `at`. `taken` is the same in seconds of
        `leadsman.loop.clock.Clock.uptime`, as the outbox knows it."""
        self._before = None if self.last is None else self.last.fields
        self.last = LastPublished(fields, at)
        self._taken = taken

    def passed_over(self, last: LastPublished) -> None:
        """A reading was not published, since the rule compared it with this one."""
        self.last = last._replace(since=last.since + 1)

    def dropped(self, at: float, messages: int = 1) -> None:
        """See `leadsman.mqtt.message.Receipt`. How long ago the last publication was does not change: the rule sets the
        pace of what the broker refuses, too."""
        before, self._before = self._before, None
        if self.last is None or at < self._taken - DOUBT:
            return
        if at == self._taken and before is not None:
            self.last = self.last._replace(fields=before)
        else:
            self.last = None

    def replaced(self) -> None:
        """See `leadsman.mqtt.message.Receipt`. A newer reading counts already."""
        self._before = None
