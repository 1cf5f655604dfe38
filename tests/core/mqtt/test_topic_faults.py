"""What is wrong with single topics, and until when."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.core.mqtt.topic_faults import (
    IN_A_ROW,
    LATELY,
    MAX_FAULT_SECONDS,
    MAX_TOPICS,
    OF_THE_BROKER,
    FaultKind,
    TopicFaults,
    advise,
)

TOPIC = "house/boiler/state"
OWN = sorted(set(get_args(FaultKind)) - OF_THE_BROKER)


def refuse(faults, now, kind="over_limit"):
    """The broker refuses a reading for good, and it is dropped."""
    faults.refused(TOPIC, kind, f"not {TOPIC}", now, for_good=True)
    faults.lost(TOPIC, "refused", "why", 1, now)


@given(
    st.sampled_from(sorted(OF_THE_BROKER)),
    st.floats(0.1, 0.99 * MAX_FAULT_SECONDS / IN_A_ROW),
    st.lists(st.integers(0, IN_A_ROW - 1), min_size=1, max_size=20),
)
def test_a_device_that_loses_at_least_one_reading_in_ten_is_never_well(kind, interval, runs):
    faults, now = TopicFaults(lambda topic: False), 0.0
    for lost, taken in enumerate(runs, 1):
        refuse(faults, now, kind)
        for _ in range(taken):
            now += interval
            faults.took(TOPIC)
            assert faults.of(TOPIC, now).lost == lost
        now += interval
        assert list(faults.standing(now)) == [TOPIC]


@given(st.sampled_from(sorted(OF_THE_BROKER)), st.integers(0, 30), st.floats(0.0, 2 * MAX_FAULT_SECONDS))
def test_a_fault_is_over_when_the_broker_has_taken_ten_in_a_row_and_a_minute_has_passed(kind, taken, since):
    faults = TopicFaults(lambda topic: False)
    refuse(faults, 0.0, kind)
    for _ in range(taken):
        faults.took(TOPIC)

    stands = not taken or since < LATELY or (taken < IN_A_ROW and since < MAX_FAULT_SECONDS)
    assert (faults.of(TOPIC, since) is not None) == stands
    assert bool(faults.standing(since)) == stands


@pytest.mark.parametrize("cause", OWN)
def test_what_the_outbox_lost_is_a_fault_for_a_minute(cause):
    faults = TopicFaults(lambda topic: False)
    faults.lost(TOPIC, cause, "outbox full", 5, 100.0)

    fault = faults.of(TOPIC, 100.0 + LATELY - 1)
    assert (fault.kind, fault.text, fault.lost) == (cause, f"messages of {TOPIC!r} were lost: outbox full", 5)
    assert faults.of(TOPIC, 100.0 + LATELY) is None


def test_what_waits_until_a_person_has_changed_the_access_list_is_a_fault_until_the_broker_takes_it():
    waiting = {TOPIC}
    faults = TopicFaults(waiting.__contains__)
    faults.refused(TOPIC, "denied", "denied", 0.0)
    assert faults.of(TOPIC, 10 * MAX_FAULT_SECONDS).kind == "denied"

    faults.took(TOPIC)

    assert not faults.found
    faults.refused(TOPIC, "denied", "denied", 0.0)
    waiting.clear()
    assert faults.of(TOPIC, 1.0) is None  # a newer one took its place, and was dropped with it


def test_another_broker_starts_without_faults_but_what_was_lost_stays_lost_for_a_minute():
    faults = TopicFaults(lambda topic: False)
    refuse(faults, 0.0)
    faults.refused("other", "denied", "denied", 0.0, for_good=True)

    assert faults.forget() == [TOPIC, "other"]

    assert list(faults.standing(1.0)) == [TOPIC]
    assert not faults.standing(LATELY)


def test_the_topics_are_bounded():
    faults = TopicFaults(lambda topic: True)
    for number in range(MAX_TOPICS + 5):
        faults.refused(f"t{number}", "denied", "denied", 0.0)

    assert len(faults.standing(0.0)) == MAX_TOPICS
    assert faults.of("t4", 0.0) is None


@pytest.mark.parametrize("kind", [*get_args(FaultKind), "of another version"])
def test_there_is_something_to_do_about_each_kind(kind):
    assert advise(kind, TOPIC)
    assert (TOPIC in advise(kind, TOPIC)) == (kind not in (*OWN, "over_limit"))
