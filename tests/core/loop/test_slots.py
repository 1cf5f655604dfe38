from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.core.loop.slots import BATCH, FINE, GAP, MAX_SPREAD, offset_of, shifts


def devices(count, interval):
    return {f"device-{number}": interval for number in range(count)}


def batches(found):
    """How many devices lie at each place, in the order of the places."""
    return [count for _, count in sorted(Counter(round(shift, 6) for shift in found.values()).items())]


@given(st.text(min_size=1), st.floats(0, 1e6))
def test_an_offset_is_the_same_at_every_start_and_within_bounds(name, spread):
    assert 0 <= offset_of(name, spread) <= spread
    assert offset_of(name, spread) == offset_of(name, spread)


def test_a_hundred_names_are_spread_evenly():
    offsets = [offset_of(f"device-{n}", 10.0) for n in range(100)]

    assert all(sum(low <= offset < low + 2.5 for offset in offsets) >= 15 for low in (0, 2.5, 5, 7.5))


@pytest.mark.parametrize("count", [1, 2, BATCH])
def test_few_devices_stay_where_they_are(count):
    assert set(shifts(devices(count, 60.0)).values()) == {0.0}


def test_few_devices_of_each_of_many_intervals_stay_where_they_are():
    assert set(shifts({f"d{n}": 1.0 + n % 10 for n in range(100)}).values()) == {0.0}


def test_more_devices_lie_in_batches_a_gap_apart():
    found = shifts(devices(8 * BATCH, 60.0))

    assert batches(found) == [BATCH] * 8
    assert sorted(set(found.values())) == [pytest.approx(GAP * place) for place in range(8)]


def test_a_short_interval_is_filled_evenly():
    found = shifts(devices(8 * BATCH, 0.2))

    assert batches(found) == [BATCH] * 8
    assert sorted(set(found.values())) == [pytest.approx(0.025 * place) for place in range(8)]


def test_thousands_of_devices_share_the_longest_spread():
    found = shifts(devices(10_000, 60.0))

    assert batches(found) == [500] * 20
    assert max(found.values()) == pytest.approx(MAX_SPREAD - GAP)


def test_the_shortest_interval_has_room_for_two_places():
    assert batches(shifts(devices(400, 0.01))) == [200, 200]


@given(
    st.dictionaries(
        st.text("abc", min_size=1, max_size=5), st.sampled_from([0.01, 0.013, 0.2, 1.0, 1.5, 60.0]), max_size=300
    )
)
def test_shifts_are_slots_within_the_interval_and_depend_on_the_names_only(units):
    found = shifts(units)

    assert found.keys() == units.keys()
    for name, shift in found.items():
        assert 0 <= shift < min(units[name], MAX_SPREAD)
        slot = FINE if units[name] <= 1.0 else GAP
        assert shift / slot == pytest.approx(round(shift / slot))
    assert found == shifts(dict(reversed(units.items())))
    for interval in set(units.values()):
        counts = batches({name: shift for name, shift in found.items() if units[name] == interval})
        assert max(counts) - min(counts) <= 1
