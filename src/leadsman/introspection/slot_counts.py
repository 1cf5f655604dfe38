"""Counts the slots of devices for metrics, whose counters must never fall.

A ledger forgets what is older than two days. So what it will not change any more is added up here, once an hour. That
costs nothing while nobody asks.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from leadsman.monitoring.ledger import BUFFERED, DISPOSITIONS, Counts, Ledger, availability, total
from leadsman.monitoring.ledger_reports import LedgerReports

FINAL = tuple(word for word in DISPOSITIONS if word != BUFFERED)
"""The dispositions that are counted: a reading that waits gets another one."""


class Slots(NamedTuple):
    """The slots of one device."""

    since_start: Mapping[str, int]
    """Those since the start of the app, by disposition. Those that wait for the broker are left out."""
    availability: float | None
    """The share of the slots in the ledger that gave a reading, 0 to 1; None if there are none."""


class _Sum(NamedTuple):
    """What does not change until a ledger begins its next period."""

    start: float
    """The start of its current period."""
    since_start: dict[str, int]
    kept: dict[str, int]
    """The slots in the ledger, those of earlier runs included."""
    last: Sequence[Counts]
    """The periods that could still change when somebody asked last."""


class SlotCounts:
    """Counts the slots of the devices of one running app.

    Args:
        ledgers: the ledgers of the devices.
    """

    def __init__(self, ledgers: LedgerReports) -> None:
        self._ledgers = ledgers
        self._sums: dict[str, _Sum] = {}

    def __contains__(self, name: str) -> bool:
        """Whether a device has slots: a source, which has no schedule, has none."""
        return name in self._ledgers and self._ledgers.has_slots(name)

    def look(self, name: str) -> Slots:
        """The slots of one device.

        Raises:
            KeyError: it has no ledger.
        """
        ledger = self._ledgers.ledger(name)
        current = ledger.open_periods()
        found = self._sums.get(name)
        if found is None or found.start != ledger.period.start:
            found = _added_up(ledger, current, found, self._ledgers.started)
        self._sums[name] = found._replace(last=current)
        counted = _added(found.since_start, current)
        counted.pop(BUFFERED, None)
        share = availability(_added(found.kept, current))
        return Slots(counted, None if share is None else share / 100)


def _added_up(ledger: Ledger, current: Sequence[Counts], before: _Sum | None, started: float) -> _Sum:
    """Add up what will not change.

    Args:
        ledger: the ledger of a device.
        current: its periods that may still change.
        before: what was added up before.
        started: when the app started; earlier periods are those of earlier runs.
    """
    periods, changing = list(ledger.periods()), {each.start for each in current}
    ended = [each for each in periods if each.start not in changing]
    if before is None:
        since_start = total([each for each in ended if each.start >= started])
    else:
        open_before, there = {each.start for each in before.last}, {each.start for each in periods}
        new = [each for each in ended if each.start in open_before or each.start > before.start]
        forgotten = [each for each in before.last if each.start not in there]
        since_start = _added(before.since_start, [*new, *forgotten])
    return _Sum(ledger.period.start, since_start, total(ended), current)


def _added(by: Mapping[str, int], periods: Sequence[Counts]) -> dict[str, int]:
    return total([Counts(0.0, 0, by), *periods])
