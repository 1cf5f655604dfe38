"""The ledger of a device: every slot has one disposition, whatever happens in whatever order."""

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.extensions.ledger.ledger import (
    CAUSES,
    DISPOSITIONS,
    MAX_GAPS,
    PERIODS,
    READ,
    SAME,
    SAME_DROPS,
    Counts,
    Gap,
    Ledger,
    availability,
    total,
)

LOST = ("failed", "timed_out", "circuit_open", "deferred", "held", "missed", "starting")
STEPS = st.lists(
    st.sampled_from(["read", "read late", "suppress", "begin", "under way", "deliver", "drop", *LOST]),
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
        elif step in ("read", "suppress", *LOST):
            slots += 1
            if step == "read":
                read(ledger, period, waiting, at)
            elif step == "suppress":
                ledger.heard(at)
                period.suppressed += 1
            else:
                ledger.lost(period, step, at)
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
    assert by.get("buffered", 0) == len(waiting)
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
        ledger.lost(ledger.receipt(poll.due), "failed", 1e6)
        poll.due = None

    after = list(ledger.periods())
    assert [(each.start, each.slots) for each in after] == [(each.start, each.slots) for each in periods]
    assert all(each.slots == sum(each.by.values()) for each in after)
    assert "buffered" not in total(after)


def test_a_poll_that_ends_in_the_next_period_is_counted_in_that_in_which_it_came_due():
    poll = Poll()
    ledger = Ledger(1000.0, poll)
    poll.due = 7.0  # monotonic seconds
    ledger.begin(1010.0, 10.0)
    ledger.begin(1020.0, 20.0)
    assert [each.slots for each in ledger.periods()] == [1, 0, 0]

    ledger.receipt(7.0).suppressed += 1
    poll.due = 20.0
    assert [(each.slots, each.by) for each in ledger.periods()] == [(1, {"suppressed": 1}), (0, {}), (1, {})]


@given(STEPS, st.sampled_from([0.25, 1.0]))
def test_a_gap_begins_with_a_slot_without_a_reading_and_ends_with_the_next_reading(steps, tick):
    ledger, *_ = played(steps, tick)
    gaps = [gap for gap in ledger.gaps() if "dropped" not in gap.slots]

    assert all(gap.until is not None for gap in gaps[:-1])
    assert [gap.since for gap in gaps] == sorted(gap.since for gap in gaps)
    assert all(before.until <= after.since for before, after in itertools.pairwise(gaps))
    if len(ledger.gaps()) < MAX_GAPS:
        lost = sum(count for word, count in total(ledger.periods()).items() if word in LOST)
        assert sum(sum(gap.slots.values()) for gap in gaps) == lost


def told(*gaps):
    """What gaps say."""
    return [(each.since, each.until, each.cause, each.slots) for each in gaps]


@given(STEPS)
def test_gaps_of_one_cause_that_follow_each_other_within_a_second_are_one_gap(steps):
    apart, close = (played(steps, tick)[0] for tick in (1.0, 0.25))
    if len(apart.gaps()) == MAX_GAPS:
        return
    expected = []
    for gap in (gap for gap in apart.gaps() if gap.cause != "dropped"):
        before = expected[-1] if expected else None
        if before is not None and gap.cause == before.cause and (gap.since - before.until) * 0.25 < SAME:
            slots = Counter(before.slots) + Counter(gap.slots)
            expected[-1] = Gap(before.since, gap.until, gap.cause, dict(slots))
        else:
            expected.append(gap)

    found = [gap for gap in close.gaps() if gap.cause != "dropped"]
    assert [(gap.since * 4, gap.until and gap.until * 4, gap.cause, gap.slots) for gap in found] == told(*expected)
    assert [each.by for each in close.periods()] == [each.by for each in apart.periods()]


def delayed(ledger, at, slots=1, cause="late"):
    """The app was late at `at`, and read the device 0.01 s later."""
    ledger.lost(ledger.period, "missed", at, slots, cause)
    ledger.heard(at + 0.01)
    ledger.period.sent += 1
    ledger.period.published += 1


def test_the_gap_of_late_slots_goes_on_if_no_reading_follows_them():
    ledger = Ledger(0.0)
    delayed(ledger, 1.0, 2)
    ledger.lost(ledger.period, "missed", 1.5, 3, "late")
    ledger.lost(ledger.period, "failed", 9.0)

    assert told(*ledger.gaps()) == [(1.0, None, "late", {"missed": 5, "failed": 1})]


@pytest.mark.parametrize("cause", ["late", "failed"])
def test_a_device_without_each_second_reading_does_not_push_out_the_other_gaps(cause):
    ledger = Ledger(0.0)
    ledger.lost(ledger.period, "timed_out", 0.0)
    ledger.heard(5.0)
    for number in range(1000):
        delayed(ledger, 10.0 + 0.03 * number, 2, cause)

    first, late = told(*ledger.gaps())
    assert first == (0.0, 5.0, "timed_out", {"timed_out": 1})
    assert late == (10.0, 10.0 + 0.03 * 999 + 0.01, cause, {"missed": 2000})
    assert total(ledger.periods()) == {"timed_out": 1, "missed": 2000, "published": 1000}


def test_a_failure_between_missed_polls_is_a_gap_of_its_own():
    ledger = Ledger(0.0)
    delayed(ledger, 1.0)
    delayed(ledger, 1.1)
    ledger.lost(ledger.period, "failed", 1.2)
    ledger.heard(1.3)
    delayed(ledger, 1.4)

    assert [(gap.since, gap.slots) for gap in ledger.gaps()] == [
        (1.0, {"missed": 2}),
        (1.2, {"failed": 1}),
        (1.4, {"missed": 1}),
    ]


def test_missed_polls_of_another_cause_or_a_second_later_are_a_gap_of_their_own():
    ledger = Ledger(0.0)
    delayed(ledger, 1.0)
    delayed(ledger, 2.5)
    ledger.lost(ledger.period, "missed", 2.6)
    ledger.heard(2.7)

    assert [(gap.since, gap.cause) for gap in ledger.gaps()] == [(1.0, "late"), (2.5, "late"), (2.6, "missed")]


def test_a_gap_of_missed_polls_and_one_of_dropped_readings_grow_side_by_side():
    ledger = Ledger(0.0)
    ledger.period.sent += 100
    for number in range(100):
        delayed(ledger, 0.02 * number)
        ledger.period.dropped(0.02 * number + 0.005)

    assert [gap.slots for gap in ledger.gaps()] == [{"missed": 100}, {"dropped": 100}]


def test_a_gap_has_the_cause_of_its_first_slot_and_counts_all():
    ledger = Ledger(0.0)
    ledger.lost(ledger.period, "failed", 60.0)
    ledger.lost(ledger.period, "circuit_open", 120.0)
    ledger.lost(ledger.period, "circuit_open", 180.0)
    ledger.heard(200.0)

    assert told(*ledger.gaps()) == [(60.0, 200.0, "failed", {"failed": 1, "circuit_open": 2})]


@given(st.permutations([10.0, 20.0, 30.0, 3000.0]))
def test_readings_that_were_dropped_within_an_hour_are_one_gap_at_the_times_of_the_readings(times):
    ledger = Ledger(0.0)
    ledger.period.sent += 5
    for at in times:
        ledger.period.dropped(at)
    ledger.period.dropped(3000.0 + SAME_DROPS + 1)

    assert told(*ledger.gaps()) == [
        (10.0, 3000.0, "dropped", {"dropped": 4}),
        (3000.0 + SAME_DROPS + 1, 3000.0 + SAME_DROPS + 1, "dropped", {"dropped": 1}),
    ]


def test_a_poll_that_fails_after_its_gap_began_moves_the_beginning_of_the_gap():
    ledger = Ledger(0.0)
    under_way = ledger.period
    ledger.lost(ledger.period, "missed", 60.0)
    ledger.lost(under_way, "failed", 0.0)

    assert ledger.gap.since == 0.0


def test_what_the_broker_does_not_have_at_the_end_is_dropped():
    ledger = Ledger(0.0)
    ledger.period.sent = 2
    arrived(ledger.period)
    ledger.begin(3600.0, 3600.0)
    ledger.end(4000.0)

    assert total(ledger.periods()) == {"published": 1, "dropped": 1}
    assert told(*ledger.gaps()) == [(4000.0, 4000.0, "dropped", {"dropped": 1})]


def test_history_is_bounded():
    ledger = Ledger(0.0)
    for hour in range(3 * PERIODS):
        ledger.lost(ledger.period, "failed", hour * 3600.0)
        ledger.heard(hour * 3600.0 + 60)
        ledger.begin(hour * 3600.0, hour * 3600.0)

    assert len(list(ledger.periods())) == PERIODS + 1
    assert len(ledger.gaps()) == MAX_GAPS
    assert {gap.cause for gap in ledger.gaps()} == {"failed"}


def test_readings_that_are_dropped_before_and_after_a_gap_are_a_gap_beside_it():
    ledger = Ledger(0.0)
    ledger.period.sent += 3
    ledger.period.dropped(10.0)
    ledger.lost(ledger.period, "failed", 20.0)
    ledger.period.dropped(15.0)
    ledger.heard(30.0)
    ledger.period.dropped(40.0)

    assert told(*ledger.gaps()) == [
        (10.0, 40.0, "dropped", {"dropped": 3}),
        (20.0, 30.0, "failed", {"failed": 1}),
    ]


@given(STEPS)
def test_each_reading_that_is_lost_is_in_a_gap_with_a_cause(steps):
    ledger, *_ = played(steps)
    lost = {word: count for word, count in total(ledger.periods()).items() if word not in (*READ, "disabled")}

    if len(ledger.gaps()) < MAX_GAPS:
        assert sum((Counter(gap.slots) for gap in ledger.gaps()), Counter()) == lost
    assert {gap.cause for gap in ledger.gaps()} <= set(CAUSES)


def test_availability_is_the_share_of_slots_that_gave_a_reading():
    assert availability({"published": 1, "suppressed": 1, "replayed": 1, "buffered": 1, "failed": 3, "held": 1}) == 50.0
    assert availability({"published": 3, "disabled": 5}) == 100.0
    assert availability({"disabled": 5}) is None
    assert availability({}) is None


def test_periods_of_an_earlier_run_come_first():
    ledger = Ledger(0.0)
    ledger.remember(Counts(-7200.0, 3, {"published": 3}))
    ledger.remember(Counts(-3600.0, 2, {"missed": 2}))

    assert [each.start for each in ledger.periods()] == [-7200.0, -3600.0, 0.0]


def test_a_reading_whose_place_a_newer_one_takes_is_suppressed_and_no_gap():
    ledger = Ledger(0.0)
    for at in range(3):
        ledger.receipt(float(at)).sent += 1
    ledger.receipt(0.0).replaced()
    ledger.receipt(1.0).replaced()
    ledger.receipt(2.0).published += 1

    assert ledger.period.counts().by == {"published": 1, "suppressed": 2}
    assert ledger.gaps() == []


def test_what_a_publish_rule_compares_with_learns_which_readings_never_arrive():
    class Comparison:
        def __init__(self):
            self.learned = []

        def dropped(self, at, messages=1):
            self.learned.append((at, messages))

        def replaced(self):
            self.learned.append("replaced")

    ledger = Ledger(0.0)
    ledger.comparison = Comparison()
    receipt = ledger.receipt(3.0)
    receipt.sent += 2
    receipt.dropped(3.0)
    receipt.replaced()

    assert ledger.comparison.learned == [(3.0, 1), "replaced"]
