"""The slots of a device as counters: they never fall, whatever the ledger forgets."""

from collections import Counter, deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.extensions.ledger import ledger as module
from leadsman.extensions.ledger.ledger import DISPOSITIONS, Counts, Ledger, availability, total

HOUR = 3600.0
KEPT = 3
"""Hours that the ledger keeps in these tests."""


class Device:
    """A ledger in which everything happens by hand, and what must have been counted."""

    def __init__(self):
        self.hour, self.expected, self.waiting = 0, Counter(), deque()
        self.ledger = Ledger(0.0)
        self.before = Counter()

    def read(self):
        self.ledger.period.sent += 1
        self.waiting.append((self.ledger.period, self.hour))

    def deliver(self):
        if self.waiting:
            period, hour = self.waiting.popleft()
            period.published += 1
            if self.hour - hour <= KEPT:  # else the ledger has forgotten the slot
                self.expected["published"] += 1

    def fail(self):
        self.ledger.lost(self.ledger.period, "failed", self.hour * HOUR)
        self.expected["failed"] += 1

    def next_hour(self):
        self.hour += 1
        self.ledger.begin(self.hour * HOUR, self.hour * HOUR)

    def look(self):
        found = Counter(self.ledger.slots_since_start())
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
    device.ledger.remember(Counts(-HOUR, 4, {"published": 1, "missed": 2, "disabled": 1}))
    device.read()

    assert (device.ledger.slots_since_start(), device.ledger.availability()) == ({}, 50.0)
    device.deliver()
    assert (device.ledger.slots_since_start(), device.ledger.availability()) == ({"published": 1}, 50.0)
    device.next_hour()
    assert (device.ledger.slots_since_start(), device.ledger.availability()) == ({"published": 1}, 50.0)


WORDS = st.dictionaries(st.sampled_from(DISPOSITIONS), st.integers(1, 9), max_size=4)


@given(st.lists(WORDS, max_size=KEPT + 2), STEPS)
def test_the_availability_is_that_of_all_periods_that_are_kept(earlier, steps):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PERIODS", KEPT)
        device = Device()
        for number, by in enumerate(earlier):
            device.ledger.remember(Counts((number - 9) * HOUR, sum(by.values()), by))
        for step in ["look", *steps]:
            getattr(device, step)()
            assert device.ledger.availability() == availability(total(device.ledger.periods()))


def test_a_device_that_had_no_slot_for_two_days_keeps_its_counters_and_has_no_availability():
    device = Device()
    device.fail()
    device.look()
    for _ in range(module.PERIODS + 1):
        device.next_hour()
        device.look()

    assert (device.ledger.slots_since_start(), device.ledger.availability()) == ({"failed": 1}, None)
