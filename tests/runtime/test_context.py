"""The next time of day, also where the clock changes."""

from datetime import datetime

import pytest

from leadsman.errors import InvalidType, InvalidValue
from leadsman.runtime.context import _target
from leadsman.testing.loop import START


@pytest.mark.parametrize(
    ("when", "now", "expected"),
    [
        ("06:30", "2026-01-01T00:00Z", "2026-01-01T05:30Z"),
        ("06:30", "2026-01-01T05:30Z", "2026-01-02T05:30Z"),
        ("06:30", "2026-07-01T00:00Z", "2026-07-01T04:30Z"),
        ("02:30", "2026-03-28T22:00Z", "2026-03-29T01:30Z"),  # leapt over: 03:30 summer time
        ("02:30", "2026-10-24T22:00Z", "2026-10-25T00:30Z"),  # comes twice: the first
        ("06:00", "2026-03-28T12:00Z", "2026-03-29T04:00Z"),
    ],
)
def test_times_of_day_are_met_on_days_when_the_clock_changes(when, now, expected):
    wall = datetime.fromisoformat(now).timestamp()

    assert _target(when, "Europe/Berlin", wall) == datetime.fromisoformat(expected).timestamp()


@pytest.mark.parametrize(
    ("when", "error"),
    [("6 o'clock", InvalidValue), (datetime(2026, 1, 1), InvalidValue), (5, InvalidType), (None, InvalidType)],
)
def test_times_that_make_no_sense_are_refused(when, error):
    with pytest.raises(error):
        _target(when, "UTC", START)
