"""What random kills and power cuts measure."""

import json

import pytest

from fault_matrix.power_cuts import disordered, wrong_times


def test_only_readings_that_were_accepted_must_be_in_order():
    numbers = {"d0": [1, 3, 2, 5, 4], "d1": [2, 1]}

    assert disordered(numbers, {"d0": {1, 2, 3, 4, 5}}) == 2
    assert disordered(numbers, {"d0": {1, 3, 5}, "d1": {2}}) == 0


@pytest.mark.parametrize(("taken_at", "wrong"), [("2027-01-15T08:00:00.300Z", 0), ("2027-01-15T08:00:02Z", 1)])
def test_a_reading_must_have_the_time_that_its_device_says(taken_at, wrong):
    reading = json.dumps({"n": 1, "at": 1_800_000_000.0, "taken_at": taken_at}).encode()

    assert wrong_times([("row/d0/state", reading), ("row/status", b"{}")]) == wrong
