"""The ledger in the state file: what was written comes back, and the time between is accounted for."""

import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman import Cron
from leadsman.core.loop.schedule import slots_between
from leadsman.extensions.ledger.ledger import CAUSES, DISPOSITIONS, Gap, Ledger, total
from leadsman.extensions.ledger.saved import LedgerRow, Now, restore, rows

WALL = 1_700_000_000.0
COUNTS = st.dictionaries(st.sampled_from([word for word in DISPOSITIONS if word != "buffered"]), st.integers(1, 5000))


def every(interval):
    return lambda origin, since, until: slots_between(None, interval, origin, since, until)


def saved(ledger, uptime, *, stopped=True):
    """The rows as they come out of the file."""
    written = rows(ledger, Now(uptime, WALL + uptime), WALL, stopped=stopped)
    return sorted(LedgerRow(key, json.loads(json.dumps(document))) for key, document in written)


@given(COUNTS, st.floats(0, 40 * 3600), st.integers(10, 7200))
def test_a_restart_keeps_the_sum_and_counts_what_was_missed(counts, away, interval):
    before = Ledger(0.0)
    for word, count in counts.items():
        before.period.add(word, count)
        before.period.sent += count if word == "dropped" else 0
    found = saved(before, 3000.0)

    after = Ledger(5.0)
    restore(after, found, Now(5.0, WALL + 3000.0 + away), every(interval))

    missed = counts.get("missed", 0) + int((away + 1e-6) // interval)
    assert {"missed": 0, **total(after.periods())} == {**counts, "missed": missed}
    assert all(each.slots == sum(each.by.values()) for each in after.periods())


def test_the_time_between_is_a_gap_that_says_whether_the_app_had_stopped():
    for stopped, cause in ((True, "stopped"), (False, "killed")):
        after = Ledger(5.0)
        restore(after, saved(Ledger(0.0), 60.0, stopped=stopped), Now(5.0, WALL + 660.0), every(60))
        gap = after.gap
        assert (gap.since, gap.until, gap.cause, gap.slots) == (5.0 - 600.0, None, cause, {"missed": 10})


def test_a_gap_that_had_not_ended_goes_on():
    before = Ledger(0.0)
    before.lost(before.period, "failed", 30.0)

    after = Ledger(5.0)
    restore(after, saved(before, 60.0), Now(5.0, WALL + 660.0), every(60))

    assert after.gap.cause == "failed"
    assert after.gap.slots == {"failed": 1, "missed": 10}


def test_a_short_restart_is_no_gap():
    after = Ledger(5.0)
    restore(after, saved(Ledger(0.0), 60.0), Now(5.0, WALL + 65.0), every(60))
    assert after.gaps() == []


def test_what_waited_for_the_broker_when_the_app_was_killed_is_dropped_once():
    before = Ledger(0.0)
    before.period.sent = 3
    before.period.published += 1
    found = saved(before, 60.0, stopped=False)

    after = Ledger(5.0)
    changed = restore(after, found, Now(5.0, WALL + 65.0), every(60))
    assert total(after.periods()) == {"published": 1, "dropped": 2}

    (row,) = changed
    again = Ledger(6.0)
    restore(again, [found[0], row], Now(6.0, WALL + 66.0), every(60))
    assert total(again.periods()) == {"published": 1, "dropped": 2}
    assert again.gaps() == []


def test_what_waited_on_disk_when_the_app_was_killed_is_replayed():
    before = Ledger(0.0)
    before.period.sent = 3
    before.period.published += 1

    after = Ledger(5.0)
    restore(after, saved(before, 60.0, stopped=False), Now(5.0, WALL + 65.0), every(60), durable=True)

    assert total(after.periods()) == {"published": 1, "replayed": 2}
    assert after.gaps() == []


def test_a_poll_under_way_when_the_app_was_killed_is_missed():
    before = Ledger(0.0, SimpleNamespace(due=30.0))
    after = Ledger(5.0)
    restore(after, saved(before, 60.0, stopped=False), Now(5.0, WALL + 65.0), every(600))
    assert total(after.periods()) == {"missed": 1}


def test_slots_of_cron_are_counted_while_the_app_did_not_run():
    cron = Cron("0 * * * *", zone="Europe/Berlin")
    after = Ledger(5.0)
    restore(
        after,
        saved(Ledger(0.0), 0.0),
        Now(5.0, WALL + 5 * 3600),
        lambda origin, since, until: slots_between(cron, 0.0, origin, since, until),
    )
    assert total(after.periods()) == {"missed": 5}
    assert len([each for each in after.periods() if each.slots]) == 5


def test_a_clock_that_was_set_back_makes_the_stop_no_time():
    after = Ledger(5.0)
    restore(after, saved(Ledger(0.0), 60.0), Now(5.0, WALL - 1e6), every(60))
    assert after.gaps() == []


@pytest.mark.parametrize(
    "by", [{"dropped": 2**32 - 1, "buffered": 1}, {"missed": 2**32 - 1}, {"odd": 1}], ids=["sum", "slots", "word"]
)
def test_counts_that_no_period_can_have_are_damage_and_change_nothing(by):
    head = LedgerRow(0, {"at": WALL, "stopped": True, "gaps": []})
    gap = LedgerRow(0, head.document | {"gaps": [[WALL - 60, WALL, "failed", by]]})
    period = LedgerRow(7, {"start": WALL - 60, "slots": 2**32 - 1, "by": by})
    for found in ([head, period], [gap]):
        after = Ledger(5.0)
        with pytest.raises(ValueError, match=r"disposition|not a number"):
            restore(after, found, Now(5.0, WALL), every(60))
        assert (total(after.periods()), after.gaps()) == ({}, [])


@pytest.mark.parametrize(
    ("gap", "why"),
    [
        ([WALL - 60, WALL, "odd", {}], "'odd' is no cause"),
        ([WALL - 60, WALL, "dropped", {"failed": 1}], "how many"),
        ([WALL - 60, None, "dropped", {"dropped": 1}], "has not ended"),
    ],
)
def test_a_gap_that_no_ledger_has_is_damage(gap, why):
    after = Ledger(5.0)
    with pytest.raises(ValueError, match=why):
        restore(after, [LedgerRow(0, {"at": WALL, "stopped": True, "gaps": [gap]})], Now(5.0, WALL), every(60))
    assert after.gaps() == []


SECONDS = st.integers(0, 86_400_000).map(lambda milliseconds: milliseconds / 1000)
"""Those of a shorter time are not kept, so two gaps that begin in one millisecond may change places."""


@given(st.lists(st.tuples(st.sampled_from(CAUSES), COUNTS, SECONDS, SECONDS), max_size=5))
def test_gaps_come_back_as_they_were(found):
    before, after = Ledger(0.0), Ledger(0.0)
    for cause, slots, since, lasted in found:
        lost = {"dropped": 1} if cause == "dropped" else {}
        before.remember_gap(Gap(since, since + lasted, cause, lost | slots))

    restore(after, saved(before, 0.0), Now(0.0, WALL), every(60))

    assert [(gap.cause, gap.slots) for gap in after.gaps()] == [(gap.cause, gap.slots) for gap in before.gaps()]
    for gap, kept in zip(before.gaps(), after.gaps(), strict=True):
        assert (kept.since, kept.until) == pytest.approx((gap.since, gap.until), abs=1e-5)


DAMAGE = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)


@given(st.lists(st.tuples(st.integers(0, 2**40), DAMAGE), max_size=3))
def test_damaged_rows_change_nothing(found):
    after = Ledger(5.0)
    with pytest.raises((LookupError, TypeError, ValueError, AttributeError)):
        restore(after, [LedgerRow(*each) for each in found], Now(5.0, WALL), every(60))
    assert total(after.periods()) == {}
