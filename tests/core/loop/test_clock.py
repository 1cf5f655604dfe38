from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.core.loop.clock import rfc3339

YEAR_1, YEAR_9999 = -62_135_596_800, 253_402_300_799


@pytest.mark.parametrize(
    ("wall", "text"),
    [
        (0.0, "1970-01-01T00:00:00.000Z"),
        (1763676660.25, "2025-11-20T22:11:00.250Z"),
        (1763676660.9996, "2025-11-20T22:11:01.000Z"),
        (-0.5, "1969-12-31T23:59:59.500Z"),
    ],
)
def test_a_time_is_written_in_utc_to_the_nearest_millisecond(wall, text):
    assert rfc3339(wall) == text


@given(st.integers(YEAR_1 * 1000, YEAR_9999 * 1000))
def test_it_reads_back_as_the_same_millisecond(milliseconds):
    back = datetime.fromisoformat(rfc3339(milliseconds / 1000))

    assert (back - datetime.fromtimestamp(0, UTC)) / timedelta(milliseconds=1) == milliseconds
