"""The slots of a device as counters: they never fall, whatever the ledger forgets."""

from collections import Counter, deque
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.introspection.slot_counts import FINAL, SlotCounts
from leadsman.monitoring import ledger as module
from leadsman.monitoring.ledger import BUFFERED, DISABLED, DISPOSITIONS, FAILED, MISSED, PUBLISHED, Counts, Ledger

HOUR = 3600.0
KEPT = 3
"""Hours that the ledger keeps in these tests."""


class Device:
    """A ledger in which everything happens by hand, and what must have been counted."""

    def __init__(self):
        self.hour, self.expected, self.waiting = 0, Counter(), deque()
        self.ledger = Ledger(0.0)
        self.counts = SlotCounts(SimpleNamespace(ledger=lambda name: self.ledger, started=0.0))
        self.before = Counter()

    def read(self):
        self.ledger.period.slots += 1
        self.ledger.period.sent += 1
        self.waiting.append((self.ledger.period, self.hour))

    def deliver(self):
        if self.waiting:
            period, hour = self.waiting.popleft()
            period.published += 1
            if self.hour - hour <= KEPT:  # else the ledger has forgotten the slot
                self.expected[PUBLISHED] += 1

    def fail(self):
        self.ledger.period.slots += 1
        self.ledger.lost(self.ledger.period, FAILED, "away", self.hour * HOUR)
        self.expected[FAILED] += 1

    def next_hour(self):
        self.hour += 1
        self.ledger.begin(self.hour * HOUR)

    def look(self):
        found = Counter(self.counts.look("d").since_start)
        assert all(found[word] >= count for word, count in self.before.items())
        self.before = found
        return found


STEPS = st.lists(st.sampled_from(["read", "read", "deliver", "deliver", "fail", "next_hour", "next_hour"]), max_size=60)


@given(STEPS)
def test_the_counters_count_every_slot_and_never_fall(steps):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PERIODS", KEPT)
        device = Device()
        for step in steps:
            getattr(device, step)()
            assert device.look() == device.expected


@given(STEPS, st.data())
def test_they_never_fall_either_where_few_ask(steps, data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PERIODS", KEPT)
        device = Device()
        for step in steps:
            getattr(device, step)()
            if data.draw(st.integers(0, 4)) == 0:
                assert device.look() <= device.expected


def test_the_availability_is_that_of_the_ledger_with_earlier_runs_and_the_counters_are_not():
    device = Device()
    device.ledger.remember(Counts(-HOUR, 4, {PUBLISHED: 1, MISSED: 2, DISABLED: 1}))
    device.read()

    assert device.counts.look("d") == ({}, 0.5)
    device.deliver()
    assert device.counts.look("d") == ({PUBLISHED: 1}, 0.5)
    device.next_hour()
    assert device.counts.look("d") == ({PUBLISHED: 1}, 0.5)


def test_a_device_that_had_no_slot_for_two_days_keeps_its_counters_and_has_no_availability():
    device = Device()
    device.fail()
    device.look()
    for _ in range(module.PERIODS + 1):
        device.next_hour()
        device.look()

    assert device.counts.look("d") == ({FAILED: 1}, None)


def test_each_disposition_is_counted_but_that_of_readings_that_wait():
    assert {*FINAL, BUFFERED} == set(DISPOSITIONS)
