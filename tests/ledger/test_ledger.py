"""The ledger of a device: every slot has one disposition, whatever happens in whatever order."""

import itertools
import sys

from hypothesis import given
from hypothesis import strategies as st

from leadsman.ledger.ledger import (
    BUFFERED,
    DISABLED,
    DISPOSITIONS,
    DROPPED,
    FAILED,
    HELD,
    LATE,
    MISSED,
    MOST_GAPS,
    ONE_DELAY,
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
    st.sampled_from(["read", "read late", "late", "suppress", "begin", "under way", "deliver", "drop", *LOST]),
    max_size=80,
)


class Poll:
    """What polls a device: the ledger asks it for the poll under way."""

    due = None


def played(steps, tick=1.0):
    """A ledger after these steps, which are `tick` seconds apart, the slots that came due, what polls the device, and
    the readings that wait, with the time at which each was taken."""
    poll, slots, waiting = Poll(), 0, []
    ledger = Ledger(0.0, poll)
    for number, step in enumerate(steps):
        at, period = number * tick, ledger.period
        if step == "begin":
            ledger.begin(at, at)
        elif step == "deliver" and waiting:
            arrived(waiting.pop(0)[0], late=number % 2 == 0)
        elif step == "drop" and waiting:
            waiting[0][0].dropped(waiting.pop(0)[1])
        elif step == "under way" and poll.due is None:
            poll.due, slots = at, slots + 1
        elif step == "read late" and poll.due is not None:
            read(ledger, ledger.receipt(poll.due), waiting, at)
            poll.due = None
        elif step == "late" and ledger.gap is None:
            slots += 3
            ledger.late(at, 2)
            read(ledger, ledger.period, waiting, at)
        elif step in ("read", "suppress", *LOST):
            slots += 1
            if step == "read":
                read(ledger, period, waiting, at)
            elif step == "suppress":
                ledger.heard(at)
                period.suppressed += 1
            else:
                ledger.lost(period, step, "why", at)
    return ledger, slots, poll, waiting


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
def test_slots_are_the_sum_of_their_dispositions_and_the_poll_under_way(steps):
    ledger, slots, poll, waiting = played(steps)
    by = total(ledger.periods())

    assert sum(each.slots for each in ledger.periods()) == slots
    assert sum(by.values()) == slots - (poll.due is not None)
    assert by.get(BUFFERED, 0) == len(waiting)
    assert set(by) <= set(DISPOSITIONS)
    assert all(count > 0 for count in by.values())


@given(STEPS)
def test_what_waits_and_what_is_under_way_is_counted_in_the_period_of_its_slot(steps):
    ledger, _, poll, waiting = played(steps)
    periods = list(ledger.periods())
    open_slots = [(each.start, each.slots - sum(each.by.values())) for each in periods]
    begun = [each.start for each in periods if poll.due is not None and each.start <= poll.due]
    assert [(start, slots) for start, slots in open_slots if slots] == [(start, 1) for start in begun[-1:]]

    for period, _ in waiting:
        arrived(period)
    if poll.due is not None:
        ledger.lost(ledger.receipt(poll.due), FAILED, "at last", 1e6)
        poll.due = None

    after = list(ledger.periods())
    assert [(each.start, each.slots) for each in after] == [(each.start, each.slots) for each in periods]
    assert all(each.slots == sum(each.by.values()) for each in after)
    assert BUFFERED not in total(after)


def test_a_poll_that_ends_in_the_next_period_is_counted_in_that_in_which_it_came_due():
    poll = Poll()
    ledger = Ledger(1000.0, poll)
    poll.due = 7.0  # monotonic seconds
    ledger.begin(1010.0, 10.0)
    ledger.begin(1020.0, 20.0)
    assert [each.slots for each in ledger.periods()] == [1, 0, 0]

    ledger.receipt(7.0).suppressed += 1
    poll.due = 20.0
    assert [(each.slots, each.by) for each in ledger.periods()] == [(1, {SUPPRESSED: 1}), (0, {}), (1, {})]


@given(STEPS, st.sampled_from([0.25, 1.0]))
def test_a_gap_begins_with_a_slot_without_a_reading_and_ends_with_the_next_reading(steps, tick):
    ledger, *_ = played(steps, tick)
    gaps = [gap for gap in ledger.gaps() if DROPPED not in gap.slots]

    assert all(gap.until is not None for gap in gaps[:-1])
    assert [gap.since for gap in gaps] == sorted(gap.since for gap in gaps)
    assert all(before.until <= after.since for before, after in itertools.pairwise(gaps))
    if len(ledger.gaps()) < MOST_GAPS:
        lost = sum(count for word, count in total(ledger.periods()).items() if word in LOST)
        assert sum(sum(gap.slots.values()) for gap in gaps) == lost


@given(STEPS)
def test_gaps_of_missed_polls_that_follow_each_other_within_a_second_are_one_gap(steps):
    apart, close = (played(steps, tick)[0] for tick in (1.0, 0.25))
    if len(apart.gaps()) == MOST_GAPS:
        return
    expected = []
    for gap in (gap._replace(slots=dict(gap.slots)) for gap in apart.gaps() if DROPPED not in gap.slots):
        before = expected[-1] if expected else None
        delays = gap.slots.keys() == {MISSED} and before is not None and before.slots.keys() == {MISSED}
        delays = delays and gap.cause == before.cause
        if delays and gap.until is not None and (gap.since - before.until) * 0.25 < ONE_DELAY:
            before.slots[MISSED] += gap.slots[MISSED]
            expected[-1] = before._replace(until=gap.until)
        else:
            expected.append(gap)

    found = [gap for gap in close.gaps() if DROPPED not in gap.slots]
    if "drop" not in steps:
        assert [(gap.since * 4, gap.until and gap.until * 4, *gap[2:]) for gap in found] == expected
    assert [each.by for each in close.periods()] == [each.by for each in apart.periods()]


def delayed(ledger, at, slots=1):
    """The app was late at `at`, and read the device 0.01 s later."""
    ledger.lost(ledger.period, MISSED, LATE, at, slots)
    ledger.heard(at + 0.01)
    ledger.period.sent += 1
    ledger.period.published += 1


SECONDS = st.lists(st.tuples(st.sampled_from([0.01, 0.3, 0.99, 1.0, 2.0]), st.integers(1, 4)), max_size=40)
"""The seconds since the time before, and the slots that were missed."""


@given(SECONDS, st.sets(st.integers(0, 40)), st.sets(st.integers(0, 40)), st.sets(st.integers(0, 40)))
def test_slots_that_are_entered_together_are_as_those_that_are_entered_each_time(lateness, asked, begun, failed):
    together, apart, at = Ledger(0.0), Ledger(0.0), 10.0
    news = []
    together.on_news = lambda: news.append(at)
    for number, (passed, slots) in enumerate(lateness):
        at += passed
        if together.gap is None:
            together.late(at, slots)
        else:
            together.lost(together.period, MISSED, LATE, at, slots)
        apart.lost(apart.period, MISSED, LATE, at, slots)
        if number in asked:
            assert together.open_periods() == apart.open_periods()
            assert together.gaps() == apart.gaps()
        for ledger in (together, apart):
            if number in failed:
                ledger.lost(ledger.period, FAILED, "gone", at)
            else:
                ledger.heard(at + 0.004)
            if number in begun:
                ledger.begin(at + 0.005, at + 0.005)

    assert bool(news) == any(number not in failed for number in range(len(lateness)))
    assert together.gaps() == apart.gaps()
    assert list(together.periods()) == list(apart.periods())


def test_slots_that_wait_to_be_entered_come_before_what_follows():
    ledger = Ledger(0.0)
    for at in (1.0, 1.5):
        ledger.late(at, 2)
        ledger.heard(at + 0.1)
    ledger.lost(ledger.period, FAILED, "gone", 2.0)

    late, failed = ledger.gaps()
    assert late == Gap(1.0, 1.6, f"missed: {LATE}", {MISSED: 4})
    assert failed == Gap(2.0, None, "failed: gone", {FAILED: 1})
    assert total(ledger.periods()) == {MISSED: 4, FAILED: 1}


def test_the_gap_of_late_slots_goes_on_if_no_reading_follows_them():
    ledger = Ledger(0.0)
    ledger.late(1.0, 2)
    ledger.heard(1.1)
    ledger.late(1.5, 3)
    ledger.lost(ledger.period, FAILED, "gone", 9.0)

    before, now = ledger.gaps()
    assert before == Gap(1.0, 1.1, f"missed: {LATE}", {MISSED: 2})
    assert now == Gap(1.5, None, f"missed: {LATE}", {MISSED: 3, FAILED: 1})


def test_an_app_that_is_late_all_the_time_does_not_push_out_the_other_gaps():
    ledger = Ledger(0.0)
    ledger.lost(ledger.period, FAILED, "gone", 0.0)
    ledger.heard(5.0)
    for number in range(1000):
        delayed(ledger, 10.0 + 0.03 * number, 2)

    failed, late = ledger.gaps()
    assert failed == Gap(0.0, 5.0, "failed: gone", {FAILED: 1})
    assert late == Gap(10.0, 10.0 + 0.03 * 999 + 0.01, f"missed: {LATE}", {MISSED: 2000})
    assert total(ledger.periods()) == {FAILED: 1, MISSED: 2000, PUBLISHED: 1000}


def test_a_failure_between_missed_polls_is_a_gap_of_its_own():
    ledger = Ledger(0.0)
    delayed(ledger, 1.0)
    delayed(ledger, 1.1)
    ledger.lost(ledger.period, FAILED, "gone", 1.2)
    ledger.heard(1.3)
    delayed(ledger, 1.4)

    assert [(gap.since, gap.slots) for gap in ledger.gaps()] == [
        (1.0, {MISSED: 2}),
        (1.2, {FAILED: 1}),
        (1.4, {MISSED: 1}),
    ]


def test_missed_polls_of_another_cause_or_a_second_later_are_a_gap_of_their_own():
    ledger = Ledger(0.0)
    delayed(ledger, 1.0)
    delayed(ledger, 2.5)
    ledger.lost(ledger.period, MISSED, "the poll before still ran", 2.6)
    ledger.heard(2.7)

    assert [(gap.since, gap.cause) for gap in ledger.gaps()] == [
        (1.0, f"missed: {LATE}"),
        (2.5, f"missed: {LATE}"),
        (2.6, "missed: the poll before still ran"),
    ]


def test_a_gap_of_missed_polls_and_one_of_dropped_readings_grow_side_by_side():
    ledger = Ledger(0.0)
    ledger.period.sent += 100
    for number in range(100):
        delayed(ledger, 0.02 * number)
        ledger.period.dropped(0.02 * number + 0.005)

    assert [gap.slots for gap in ledger.gaps()] == [{DROPPED: 100}, {MISSED: 100}]


def test_a_gap_has_the_cause_of_its_first_slot_and_counts_all():
    ledger = Ledger(0.0)
    ledger.lost(ledger.period, FAILED, "DeviceTimeout: no answer", 60.0)
    ledger.lost(ledger.period, "circuit_open", "after failures", 120.0)
    ledger.lost(ledger.period, "circuit_open", "after failures", 180.0)
    ledger.heard(200.0)

    (gap,) = ledger.gaps()
    assert gap == Gap(60.0, 200.0, "failed: DeviceTimeout: no answer", {FAILED: 1, "circuit_open": 2})


def test_readings_that_were_dropped_are_one_gap_at_the_times_of_the_readings():
    ledger = Ledger(0.0)
    ledger.period.sent += 3
    for at in (10.0, 20.0, 30.0):
        ledger.period.dropped(at)
    ledger.explain("outbox full")

    assert ledger.gaps() == [Gap(10.0, 30.0, "dropped: outbox full", {DROPPED: 3})]


@given(st.lists(st.booleans(), min_size=1, max_size=60))
def test_readings_that_arrive_between_those_that_were_dropped_are_counted_in_their_gap(dropped):
    ledger = Ledger(0.0)
    for number, lost in enumerate(dropped):
        ledger.period.sent += 1
        if lost:
            ledger.period.dropped(10.0 * number)
        else:
            arrived(ledger.period)
        if number % 7 == 6:
            ledger.begin(10.0 * number, 10.0 * number)

    inner = dropped[dropped.index(True) : len(dropped) - dropped[::-1].index(True)] if any(dropped) else []
    expected = [(inner.count(True), inner.count(False))] if inner else []
    assert [(gap.slots[DROPPED], gap.arrived) for gap in ledger.gaps()] == expected


def test_a_poll_that_fails_after_its_gap_began_moves_the_beginning_of_the_gap():
    ledger = Ledger(0.0)
    under_way = ledger.period
    ledger.lost(ledger.period, MISSED, "the poll before still ran", 60.0)
    ledger.lost(under_way, FAILED, "gone", 0.0)

    assert ledger.gap.since == 0.0


def test_what_the_broker_does_not_have_at_the_end_is_dropped():
    ledger = Ledger(0.0)
    ledger.period.sent = 2
    arrived(ledger.period)
    ledger.begin(3600.0, 3600.0)
    ledger.end(4000.0, "the app ended")

    assert total(ledger.periods()) == {PUBLISHED: 1, DROPPED: 1}
    assert ledger.gaps()[-1].cause == "dropped: the app ended"


def test_history_is_bounded():
    ledger = Ledger(0.0)
    for hour in range(3 * PERIODS):
        ledger.lost(ledger.period, FAILED, "x" * 1000, hour * 3600.0)
        ledger.heard(hour * 3600.0 + 60)
        ledger.begin(hour * 3600.0, hour * 3600.0)

    assert len(list(ledger.periods())) == PERIODS + 1
    assert len(ledger.gaps()) == MOST_GAPS
    assert all(len(gap.cause) <= 200 for gap in ledger.gaps())


def test_an_hour_takes_less_than_200_bytes():
    ledger = Ledger(0.0)
    for word in LOST:
        ledger.lost(ledger.period, word, "why", 0.0, 100_000)
    ledger.begin(3600.0, 3600.0)
    ledger.begin(7200.0, 7200.0)
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
    assert [each.cause for each in kept] == [gap.cause for gap in gaps]


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
        Gap(10.0, 15.0, "dropped: outbox full", {DROPPED: 2}),
        Gap(20.0, 30.0, "failed: gone", {FAILED: 1}),
        Gap(40.0, 40.0, "dropped", {DROPPED: 1}),
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
