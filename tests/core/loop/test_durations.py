from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.core.loop.durations import human, positive_seconds, seconds
from leadsman.core.resilience.failure import MAX_REQUEST_SECONDS, RetryRequested
from leadsman.errors import InvalidType, InvalidValue


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("5m", 300),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        ("2m30s", 150),
        ("250ms", 0.25),
        ("1d", 86_400),
        ("1.5h", 5400),
        (" 30s ", 30),
        (timedelta(minutes=2), 120),
        (45, 45),
        (0.5, 0.5),
        (0, 0),
    ],
)
def test_a_duration_is_read_as_people_write_it(written, meant):
    assert seconds(written) == meant


@pytest.mark.parametrize(
    "text", ["5", "", "m", "5 m", "m5", "30s5m", "5m5m", "-5m", "+5m", "5minutes", "1h-30m", "nan", "inf", "٥m "]
)
def test_text_that_is_no_duration_is_refused_with_an_example(text):
    with pytest.raises(InvalidValue, match="such as '90s'"):
        seconds(text, "interval")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1, -0.001, timedelta(seconds=-1)])
def test_a_number_that_is_no_duration_is_refused(value):
    with pytest.raises(InvalidValue, match="timeout"):
        seconds(value, "timeout")


@pytest.mark.parametrize("value", [True, None, [], b"5m", {"secs": 5}])
def test_a_thing_that_is_no_duration_is_refused_by_its_type(value):
    with pytest.raises(InvalidType, match="write seconds"):
        seconds(value)


def test_zero_is_no_positive_duration():
    with pytest.raises(InvalidValue, match="greater than zero"):
        positive_seconds(0, "interval")


@given(st.integers(0, 10**12))
def test_what_human_writes_seconds_reads(milliseconds):
    assert seconds(human(milliseconds / 1000)) == pytest.approx(milliseconds / 1000)


@pytest.mark.parametrize(
    ("amount", "written"),
    [(6.3, "6.3s"), (0.25, "250ms"), (5400, "1h30m"), (90.5, "1m30.5s"), (0, "0s"), (1.0004, "1s"), (3600, "1h")],
)
def test_human_writes_a_fraction_of_a_second_with_a_point(amount, written):
    assert human(amount) == written


@pytest.mark.parametrize("value", [1e300, 10**12, "999999999d", timedelta.max, 36_526 * 86_400.0])
def test_a_time_of_more_than_a_hundred_years_is_refused(value):
    with pytest.raises(InvalidValue, match="wait is .*; it must be at most a hundred years"):
        seconds(value, "wait")


@pytest.mark.parametrize("value", [1e300, 10**12, "999999999d", timedelta.max])
def test_a_device_that_asks_for_a_longer_pause_gets_the_longest_one(value):
    assert RetryRequested(value).delay == MAX_REQUEST_SECONDS
