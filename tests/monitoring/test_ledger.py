"""The ledger of a device: every slot has one disposition, whatever happens in whatever order."""

import itertools
import sys

from hypothesis import given
from hypothesis import strategies as st

from leadsman.monitoring.ledger import (
    BUFFERED,
    DISABLED,
    DISPOSITIONS,
    DROPPED,
    FAILED,
    HELD,
    MISSED,
    MOST_GAPS,
    PERIODS,
    PUBLISHED,
    REPLAYED,
    SUPPRESSED,
    Counts,
    Gap,
    Ledger,
    availability,
    total,
)

LOST = (FAILED, "timed_out", "circuit_open", "deferred", HELD, MISSED, "starting")
STEPS = st.lists(
    st.sampled_from(["read", "read late", "suppress", "begin", "under way", "deliver", "drop", *LOST]), max_size=80
)


def played(steps):
    """A ledger after these steps, the slots that came due, the periods of polls under way, and the readings that wait,
    with the time at which each was taken."""
    ledger, slots, under_way, waiting = Ledger(0.0), 0, [], []
    for at, step in enumerate(steps):
        period = ledger.period
        if step == "begin":
            ledger.begin(float(at))
        elif step == "deliver" and waiting:
            arrived(waiting.pop(0)[0], late=at % 2 == 0)
        elif step == "drop" and waiting:
            waiting[0][0].dropped(waiting.pop(0)[1])
        elif step == "under way":
            period.slots, slots = period.slots + 1, slots + 1
            under_way.append(period)
        elif step == "read late" and under_way:
            read(ledger, under_way.pop(0), waiting, float(at))
        elif step in ("read", "suppress", *LOST):
            period.slots, slots = period.slots + 1, slots + 1
            if step == "read":
                read(ledger, period, waiting, float(at))
            elif step == "suppress":
                ledger.heard(float(at))
                period.suppressed += 1
            else:
                ledger.lost(period, step, "why", float(at))
    return ledger, slots, under_way, waiting


def read(ledger, period, waiting, at):
    ledger.heard(at)
    period.sent += 1
    waiting.append((period, at))


def arrived(period, late=False):
    """The outbox counts a reading that the broker acknowledged."""
    if late:
        period.replayed += 1
    else:
        period.published += 1


@given(STEPS)
def test_slots_are_the_sum_of_their_dispositions_and_the_polls_under_way(steps):
    ledger, slots, under_way, waiting = played(steps)
    by = total(ledger.periods())

    assert sum(each.slots for each in ledger.periods()) == slots
    assert sum(by.values()) == slots - len(under_way)
    assert by.get(BUFFERED, 0) == len(waiting)
    assert set(by) <= set(DISPOSITIONS)
    assert all(count > 0 for count in by.values())


@given(STEPS)
def test_what_waits_and_what_is_under_way_is_counted_in_the_period_of_its_slot(steps):
    ledger, _, under_way, waiting = played(steps)
    sums = [(each.slots, sum(each.by.values())) for each in ledger.periods()]
    assert sum(slots - known for slots, known in sums) == len(under_way)
    assert all(slots >= known for slots, known in sums)

    for period, _ in waiting:
        arrived(period)
    for period in under_way:
        ledger.lost(period, FAILED, "at last", 1e6)

    assert all(each.slots == sum(each.by.values()) for each in ledger.periods())
    assert BUFFERED not in total(ledger.periods())


@given(STEPS)
def test_a_gap_begins_with_a_slot_without_a_reading_and_ends_with_the_next_reading(steps):
    ledger, *_ = played(steps)
    gaps = [gap for gap in ledger.gaps() if DROPPED not in gap.slots]

    assert all(gap.until is not None for gap in gaps[:-1])
    assert [gap.since for gap in gaps] == sorted(gap.since for gap in gaps)
    assert all(before.until <= after.since for before, after in itertools.pairwise(gaps))
    if len(ledger.gaps()) < MOST_GAPS:
        lost = sum(count for word, count in total(ledger.periods()).items() if word in LOST)
        assert sum(sum(gap.slots.values()) for gap in gaps) == lost


def test_a_gap_has_the_cause_of_its_first_slot_and_counts_all():
    ledger = Ledger(0.0)
    ledger.lost(ledger.period, FAILED, "DeviceTimeout: no answer", 60.0)
    ledger.lost(ledger.period, "circuit_open", "after failures", 120.0)
    ledger.lost(ledger.period, "circuit_open", "after failures", 180.0)
    ledger.heard(200.0)

    (gap,) = ledger.gaps()
    assert gap == (60.0, 200.0, "failed: DeviceTimeout: no answer", {FAILED: 1, "circuit_open": 2})


def test_readings_that_were_dropped_are_one_gap_at_the_times_of_the_readings():
    ledger = Ledger(0.0)
    ledger.period.sent += 3
    for at in (10.0, 20.0, 30.0):
        ledger.period.dropped(at)
    ledger.explain("outbox full")

    assert ledger.gaps() == [(10.0, 30.0, "dropped: outbox full", {DROPPED: 3})]


def test_a_poll_that_fails_after_its_gap_began_moves_the_beginning_of_the_gap():
    ledger = Ledger(0.0)
    under_way = ledger.period
    ledger.lost(ledger.period, MISSED, "the poll before still ran", 60.0)
    ledger.lost(under_way, FAILED, "gone", 0.0)

    assert ledger.gap.since == 0.0


def test_what_the_broker_does_not_have_at_the_end_is_dropped():
    ledger = Ledger(0.0)
    ledger.period.slots = ledger.period.sent = 2
    arrived(ledger.period)
    ledger.begin(3600.0)
    ledger.end(4000.0, "the app ended")

    assert total(ledger.periods()) == {PUBLISHED: 1, DROPPED: 1}
    assert ledger.gaps()[-1].cause == "dropped: the app ended"


def test_history_is_bounded():
    ledger = Ledger(0.0)
    for hour in range(3 * PERIODS):
        ledger.lost(ledger.period, FAILED, "x" * 1000, hour * 3600.0)
        ledger.heard(hour * 3600.0 + 60)
        ledger.begin(hour * 3600.0)

    assert len(list(ledger.periods())) == PERIODS + 1
    assert len(ledger.gaps()) == MOST_GAPS
    assert all(len(gap.cause) <= 200 for gap in ledger.gaps())


def test_an_hour_takes_less_than_200_bytes():
    ledger = Ledger(0.0)
    for word in LOST:
        ledger.period.slots += 100_000
        ledger.lost(ledger.period, word, "why", 0.0, 100_000)
    ledger.begin(3600.0)
    pointer = sys.getsizeof((None, None)) - sys.getsizeof((None,))

    assert sys.getsizeof(ledger._past[0]) + pointer <= 200  # what is kept of an hour


CAUSES = st.text(max_size=300) | st.text(st.characters(categories=["Cs", "Cc", "Lo"]), max_size=300)
SLOTS = st.dictionaries(st.sampled_from(DISPOSITIONS), st.integers(1, 2**40), max_size=4)


@given(st.lists(st.tuples(CAUSES, SLOTS, st.floats(0, 1e9), st.floats(0, 1e9)), max_size=5))
def test_gaps_that_have_ended_are_kept_as_they_were(found):
    ledger = Ledger(0.0)
    gaps = [Gap(since, since + lasted, f"failed: {cause}"[:200], slots) for cause, slots, since, lasted in found]
    for gap in gaps:
        ledger.remember_gap(gap)

    kept = ledger.gaps()
    assert [(each.since, each.until, each.slots) for each in kept] == [(g.since, g.until, g.slots) for g in gaps]
    assert [each.cause for each in kept] == [g.cause.encode(errors="backslashreplace").decode() for g in gaps]


def test_readings_that_are_dropped_before_and_after_a_gap_are_gaps_of_their_own():
    ledger = Ledger(0.0)
    ledger.period.sent += 3
    ledger.period.dropped(10.0)
    ledger.explain("outbox full")
    ledger.lost(ledger.period, FAILED, "gone", 20.0)
    ledger.period.dropped(15.0)
    ledger.heard(30.0)
    ledger.period.dropped(40.0)

    assert ledger.gaps() == [
        (10.0, 15.0, "dropped: outbox full", {DROPPED: 2}),
        (20.0, 30.0, "failed: gone", {FAILED: 1}),
        (40.0, 40.0, "dropped", {DROPPED: 1}),
    ]


def test_availability_is_the_share_of_slots_that_gave_a_reading():
    assert availability({PUBLISHED: 1, SUPPRESSED: 1, REPLAYED: 1, BUFFERED: 1, FAILED: 3, HELD: 1}) == 50.0
    assert availability({PUBLISHED: 3, DISABLED: 5}) == 100.0
    assert availability({DISABLED: 5}) is None
    assert availability({}) is None


def test_periods_of_an_earlier_run_come_first():
    ledger = Ledger(0.0)
    ledger.remember(Counts(-7200.0, 3, {PUBLISHED: 3}))
    ledger.remember(Counts(-3600.0, 2, {MISSED: 2}))

    assert [each.start for each in ledger.periods()] == [-7200.0, -3600.0, 0.0]
