"""The statuses of all entities, kept up to date by events and by time: they must be what a look at each record says."""

import asyncio
import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.core.events import (
    AttemptFailed,
    CircuitMoved,
    DeviceHeld,
    DeviceReleased,
    PollDeferred,
    PollFailed,
    ReadingTaken,
)
from leadsman.core.monitoring.health import NO_TROUBLE, OK, STARTING, HealthRecords, is_offline, status
from leadsman.core.monitoring.statuses import SLOT, StatusChange, Statuses
from leadsman.errors import ResultError

NAMES = ("attic", "cellar", "hall")
ERROR = OSError("away")


def fail(fault):
    """Takes a fault of those who follow the statuses."""
    raise fault.error


def watched(*names, stale_after=100.0):
    records = HealthRecords()
    for name in names:
        records.register(name, stale_after, 0.0)
    return records, Statuses(records, 0.0, fail)


def taken(name, at):
    return ReadingTaken(name, at, at, 0.1)


def attempt(name, at):
    return AttemptFailed(name, ERROR, 1, 5.0, "retry", 0, at, at, "closed", at=at, wall=at)


events = st.one_of(
    st.builds(lambda name: lambda at: taken(name, at), st.sampled_from(NAMES)),
    st.builds(lambda name: lambda at: PollFailed(name, ERROR, 1, at, at), st.sampled_from(NAMES)),
    st.builds(lambda name: lambda at: attempt(name, at), st.sampled_from(NAMES)),
    st.builds(
        lambda name, pause: lambda at: PollDeferred(name, pause, "asked", at=at, wall=at),
        st.sampled_from(NAMES),
        st.floats(0.0, 50.0),
    ),
    st.builds(lambda name: lambda at: DeviceHeld(name, at=at, wall=at), st.sampled_from(NAMES)),
    st.builds(lambda name: lambda at: DeviceReleased(name, "ann", at=at, wall=at), st.sampled_from(NAMES)),
    st.builds(
        lambda name, state: lambda at: CircuitMoved(name, state, 3, at, at),
        st.sampled_from(NAMES),
        st.sampled_from(("open", "half_open", "closed", "isolated")),
    ),
)
steps = st.lists(st.tuples(st.floats(0.0, 30.0), st.none() | events), max_size=30)


@given(steps, st.integers(1, 3))
def test_they_are_what_a_look_at_each_record_says_at_most_a_slot_late(history, most):
    records, statuses = watched(*NAMES, stale_after=20.0)
    now = 0.0
    for pause, event in history:
        now += pause
        if event is not None:
            happened = event(now)
            records(happened)
            statuses.status_change(happened.entity, now)
        while statuses.next_at <= now:
            statuses.advance(now, most)

        for name in NAMES:
            health = records.entities[name]
            word, before = status(health, now), status(health, now - SLOT)
            assert statuses.words[name] in (word, before)
            offline = {is_offline(word, health, now), is_offline(before, health, now - SLOT)}
            assert (name in statuses.offline) in offline
            calm = health.trouble is NO_TROUBLE and statuses.words[name] in (OK, STARTING)
            assert (name in statuses.troubled) is not calm
        assert +statuses.counts == {
            word: list(statuses.words.values()).count(word) for word in set(statuses.words.values())
        }


@given(steps)
def test_after_a_refresh_they_are_those_of_that_moment_and_each_change_is_told(history):
    records, statuses = watched(*NAMES, stale_after=2.0)
    told, now = [], 0.0
    statuses.on_change.add(told.append)
    for pause, event in history:
        now += pause / 10
        if event is not None:
            happened = event(now)
            records(happened)
            statuses.status_change(happened.entity, now)
        before, offline = dict(statuses.words), set(statuses.offline)
        told.clear()

        statuses.refresh(now)

        for name in NAMES:
            word = status(records.entities[name], now)
            assert statuses.words[name] == word
            assert (name in statuses.offline) is is_offline(word, records.entities[name], now)
        went = {name for name in NAMES if statuses.words[name] != before[name]} | (offline ^ statuses.offline)
        assert sorted(change.entity for change in told) == sorted(went)
        waiting = sorted(itertools.chain.from_iterable(statuses._slots.values()))
        assert set(waiting) <= set(NAMES)
        assert len(waiting) == len(set(waiting))


@given(st.lists(st.floats(0.0, 10.0), min_size=1, max_size=50))
def test_each_entity_waits_in_one_slot_however_much_happens(pauses):
    records, statuses = watched(*NAMES, stale_after=3.0)
    now = 0.0
    for number, pause in enumerate(pauses):
        now += pause
        event = taken(NAMES[number % 3], now) if number % 2 else PollDeferred("attic", 5.0, "asked", at=now, wall=now)
        records(event)
        statuses.status_change(event.entity, now)
        while statuses.next_at <= now:
            statuses.advance(now, 100)

        assert sorted(itertools.chain.from_iterable(statuses._slots.values())) == sorted(NAMES)
        assert sorted(statuses._due) == sorted(statuses._slots)


@given(st.lists(st.tuples(st.floats(0.0, 5.0), st.sampled_from(NAMES)), max_size=50))
def test_entities_that_come_and_go_leave_nothing_behind(history):
    records, statuses = watched("always", stale_after=3.0)
    now = 0.0
    for pause, name in history:
        now += pause
        if name in records.entities:
            statuses.remove(name)
            records.remove(name)
        else:
            records.register(name, 3.0, now)
            statuses.add(name, now)
        while statuses.next_at <= now:
            statuses.advance(now, 100)

        known = sorted(records.entities)
        assert sorted(statuses.words) == sorted(itertools.chain.from_iterable(statuses._slots.values())) == known
        assert statuses.characters == sum(map(len, known))
        assert statuses.offline | set(statuses.troubled) <= set(known)
        assert sum(statuses.counts.values()) == len(known)
        assert sorted(statuses._due) == sorted(statuses._slots)


def test_a_change_says_whether_the_device_went_offline():
    records, statuses = watched("attic")
    records(taken("attic", 1.0))

    assert statuses.status_change("attic", 1.0) == StatusChange("attic", None)
    assert statuses.status_change("attic", 2.0) is None
    assert statuses.advance(101.0, 10) == []
    assert statuses.advance(101.5, 10) == [StatusChange("attic", online=False)]
    records(taken("attic", 102.0))
    assert statuses.status_change("attic", 102.0) == StatusChange("attic", online=True)


def test_no_more_entities_are_looked_at_in_one_step_than_asked_for():
    names = [f"device-{number}" for number in range(10_000)]
    _, statuses = watched(*names)
    steps = []
    while statuses.next_at <= 101.0:
        steps.append(len(statuses.advance(101.0, 200)))

    assert steps == [200] * 50
    assert statuses.counts["stale"] == 10_000
    assert statuses.offline == set(names)


def test_devices_that_are_read_in_time_are_looked_at_about_once_per_staleness():
    records, statuses = watched("attic", stale_after=100.0)
    looks = 0
    for second in range(1000):
        records(taken("attic", float(second)))
        statuses.status_change("attic", float(second))
        if statuses.next_at <= second:
            looks += 1
            statuses.advance(float(second), 1)

    assert looks <= 10


def test_side_jobs_and_devices_of_commands_are_well_and_change_with_no_time():
    records = HealthRecords()
    records.register_idle("lamp", 0.0)
    statuses = Statuses(records, 0.0, fail, frozenset({"cleanup"}))

    assert statuses.next_at == math.inf
    assert statuses.advance(1e9, 10) == []
    assert statuses.well
    assert statuses.jobs == {"cleanup"}


def test_an_event_about_a_device_that_is_about_to_be_added_changes_nothing():
    records = HealthRecords()
    statuses = Statuses(records, 0.0, fail)
    records.register("boiler", 10.0, 0.0)

    assert statuses.status_change("boiler", 1.0) is None
    statuses.add("boiler", 1.0)
    assert statuses.words == {"boiler": "starting"}


failures = st.sampled_from((OSError("away"), TimeoutError("late"), ValueError("noise"), ResultError("no number")))
of_a_gateway = st.one_of(
    events,
    st.builds(lambda error, name: lambda at: PollFailed(name, error, 1, at, at), failures, st.sampled_from(NAMES)),
    st.sampled_from(NAMES),
)
"""Events, and a device that leaves or comes back."""


@given(st.lists(st.tuples(st.floats(0.0, 30.0), of_a_gateway), max_size=40))
def test_found_devices_are_offline_with_their_gateway_at_once_and_each_change_is_told_once(history):
    records, online, now = HealthRecords(), {}, 0.0
    records.register("attic", 1000.0, now, offline_on=(OSError,), pushed=True)
    for name in ("cellar", "hall"):
        records.register(name, 20.0, now, offline_on=(OSError,), pushed=True, found_by="attic")
    statuses = Statuses(records, now, fail)
    statuses.on_change.add(lambda change: noticed(change))
    told = []

    def noticed(change):
        told.append(change)
        if change.online is not None:
            assert online.get(change.entity, True) is not change.online
            online[change.entity] = change.online

    for pause, step in history:
        now += pause
        if isinstance(step, str):
            if step != "attic" and step in records.entities:
                statuses.remove(step)
                records.remove(step)
                online.pop(step, None)
            elif step != "attic":
                records.register(step, 20.0, now, offline_on=(OSError,), pushed=True, found_by="attic")
                statuses.add(step, now)
                online[step] = step not in statuses.offline
            continue
        happened = step(now)
        if happened.entity not in records.entities:
            continue
        records(happened)
        if (change := statuses.status_change(happened.entity, now)) is not None:
            noticed(change)
        statuses.refresh(now)

        gateway = records.entities["attic"]
        for name, health in records.entities.items():
            word = status(health, now)
            assert (name in statuses.offline) is is_offline(word, health, now) is not online.get(name, True)
            if health.source is gateway and gateway.trouble.offline:
                assert name in statuses.offline
        assert set(gateway.found) == set(records.entities) - {"attic"}


@pytest.mark.parametrize("error", [ZeroDivisionError(), SystemExit(3), asyncio.CancelledError()], ids=repr)
def test_who_follows_the_statuses_and_raises_costs_neither_a_status_nor_the_next_one(error):
    faults, told = [], []
    records = HealthRecords()
    records.register("attic", 2.0, 0.0)
    statuses = Statuses(records, 0.0, faults.append)

    def follow(change):
        raise error

    statuses.on_change.add(follow)
    statuses.on_change.add(told.append)
    statuses.refresh(10.0)

    assert statuses.words == {"attic": "stale"}
    assert told == [StatusChange("attic", False)]
    (fault,) = faults
    assert fault.error is error
    assert "test_statuses.test_who_follows" in fault.where
