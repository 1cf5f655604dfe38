"""The fold of a day: slots, gaps, open circuits, columns and figures."""

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from leadsman.tools.simulation.drawing import columns_of, count_in_columns, coverage
from leadsman.tools.simulation.outcome import (
    FAILED,
    MISSED,
    SKIPPED,
    DeviceDay,
    Figures,
    Lost,
    ReadingGap,
    figures_of,
    percentile,
)

END = 1000.0
TIMES = st.lists(st.integers(0, 999), unique=True, max_size=30).map(lambda times: tuple(map(float, sorted(times))))


def record_of(calls=(), failures=(), readings=(), lost=(), circuits=()):
    record = DeviceDay("a", END)
    record.calls += calls
    record.failures += failures
    record.readings += readings
    record.lost += lost
    record.circuits += circuits
    return record


@st.composite
def records(draw):
    calls = draw(TIMES)
    failed = draw(st.lists(st.booleans(), min_size=len(calls), max_size=len(calls)))
    failures = tuple(at for at, fails in zip(calls, failed, strict=True) if fails)
    readings = tuple(at + 0.5 for at, fails in zip(calls, failed, strict=True) if not fails)
    lost = tuple(
        Lost(at, draw(st.sampled_from([FAILED, SKIPPED, MISSED])), draw(st.integers(1, 3))) for at in draw(TIMES)
    )
    circuits = tuple((at, draw(st.sampled_from(["open", "half_open", "closed"]))) for at in draw(TIMES))
    return record_of(calls, failures, readings, lost, circuits)


def test_an_outage_that_is_over_at_the_first_retry_is_a_gap_of_seconds():
    record = record_of((0.0, 60.0, 62.0), (60.0,), (0.0, 62.0))

    assert record.gaps == (ReadingGap(60.0, 62.0, FAILED),)


def test_a_gap_lasts_over_polls_that_failed_and_polls_that_the_circuit_skipped():
    lost = (Lost(60.2, FAILED), Lost(120.0, SKIPPED), Lost(180.2, FAILED))
    day = record_of((0.0, 60.0, 180.0, 240.0), (60.0, 180.0), (0.0, 240.0), lost)

    assert day.gaps == (ReadingGap(60.0, 240.0, FAILED),)
    assert (day.slots, len(day.readings), day.causes) == (5, 2, {FAILED: 2, SKIPPED: 1})


def test_a_gap_at_the_end_of_the_day_is_not_over():
    assert record_of(failures=(900.0,)).gaps == (ReadingGap(900.0, END, FAILED, over=False),)


def test_a_day_without_trouble_has_no_gaps():
    day = record_of((0.0, 60.0), (), (0.0, 60.0))

    assert (day.gaps, day.causes, day.slots) == ((), {}, 2)


@given(records())
def test_gaps_are_in_order_and_apart_and_none_contains_a_reading(record):
    gaps = record.gaps

    assert all(0 <= gap.begin < gap.end <= END + 1 for gap in gaps)
    assert all(before.end <= after.begin for before, after in itertools.pairwise(gaps))
    assert not [at for at in record.readings for gap in gaps if gap.begin < at < gap.end]


@given(records())
def test_every_trouble_lies_in_a_gap_or_a_reading_came_at_the_same_moment(record):
    gaps = record.gaps

    for at in (*record.failures, *(each.at for each in record.lost)):
        assert any(gap.begin <= at <= gap.end for gap in gaps) or at in record.readings


@given(records())
def test_slots_are_the_sum_of_what_became_of_them(day):
    assert day.slots == len(day.readings) + sum(day.causes.values())


@given(records())
def test_open_times_are_in_order_and_within_the_day(record):
    spans = record.open

    assert all(0 <= begin < end <= END for begin, end in spans)
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))


@given(st.lists(records(), max_size=5), st.integers(1, 70))
def test_columns_hold_what_the_day_has(found, count):
    columns = columns_of(found, count, END)

    assert sum(columns.calls) == sum(len(record.calls) for record in found)
    assert sum(columns.failed) == sum(len(record.failures) for record in found)
    assert all(0 <= share <= 1 for share in (*columns.gaps, *columns.open))
    total = sum(min(gap.end, END) - gap.begin for day in found for gap in day.gaps)
    assert math.isclose(sum(columns.gaps) * END / count * (len(found) or 1), total, abs_tol=0.1)


def test_a_column_is_covered_as_far_as_the_span_goes():
    assert coverage([[(0.0, 15.0)], []], 4, 40.0, 2) == (0.5, 0.25, 0.0, 0.0)


def test_what_happens_at_the_end_belongs_to_the_last_column():
    assert count_in_columns([0.0, 9.9, 10.0, 40.0], 4, 40.0) == (2, 1, 0, 1)


@given(st.lists(st.floats(0, 1e6), min_size=1), st.sampled_from([0.5, 0.9, 0.99]))
def test_a_percentile_is_one_of_the_numbers_and_that_share_does_not_exceed_it(numbers, share):
    ordered = sorted(numbers)
    found = percentile(ordered, share)

    assert found in [round(number, 3) for number in ordered]
    assert sum(number <= found + 0.001 for number in ordered) >= share * len(ordered) - 1e-6


@given(st.lists(records(), max_size=5))
def test_figures_agree_with_each_other(found):
    figures = figures_of(found)

    assert figures.slots == figures.readings + figures.lost
    assert 0 <= figures.availability <= 100
    assert 0 <= figures.gap_p50 <= figures.gap_p90 <= figures.gap_p99 <= figures.gap_max <= figures.gap_total + 0.001
    assert figures.failed <= figures.attempts


def test_a_day_in_which_nothing_was_due_is_complete():
    assert figures_of([]) == Figures(0, 0, 0, 100.0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0, 0, 0, 0)
