"""What happens, as numbered documents: their form, what is kept, and watchers that come back, wait or are too slow."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ConfigDict, TypeAdapter

from leadsman.core import events
from leadsman.core.introspection.document import Happening
from leadsman.core.introspection.watching import (
    KEPT_BYTES,
    MAX_FIELDS,
    MAX_HAPPENING_BYTES,
    MAX_HAPPENINGS,
    MAX_TEXT_CHARS,
    MAX_WAITING,
    MAX_WAITING_BYTES,
    Happenings,
    happening,
    small_fields,
)
from leadsman.core.readings.reading import Reading

Happening.__pydantic_config__ = ConfigDict(extra="forbid", strict=True)
ERROR = OSError("no answer from mqtt://ann:hunter2@gateway")
EVENTS = [
    events.ReadingTaken("d", 1.0, 1000.0, 0.123456789),
    events.AttemptFailed("d", ERROR, 1, 2.0, "retry", 0, 1.0, 900.0, "closed", False, 2.0, 1000.0),
    events.PollFailed("d", ERROR, 3, 2.0, 1000.0),
    events.PollSkipped("d", 2.0, 1000.0),
    events.PollDeferred("d", 5.0, "busy", 2.0, 1000.0),
    events.DeviceLeft("d", "it sleeps", 2.0, 1000.0),
    events.DeviceHeld("d", "ann", 2.0, 1000.0),
    events.DeviceReleased("d", "ann", 2.0, 1000.0),
    events.PollMissed("d", 2, 2.0, 1000.0),
    events.CircuitMoved("d", "open", 2, 2.0, 1000.0),
    events.CircuitRequested("d", "isolate", "ann", 2.0, 1000.0),
    events.FieldsLeftOut("d", ("t",), 2.0, 1000.0),
    events.PrefixShared("another app publishes below 'house/'", 2.0, 1000.0),
    events.CommandDone("d", 0.1, ERROR, 2.0, 1000.0),
    events.CommandDone("d", 0.1, None, 2.0, 1000.0),
    events.LinkUp(7, "5.0", "mqtt5", None, None, 2.0, 1000.0),
    events.LinkDown("gone", 1.5, False, "a/b", None, None, 2.0, 1000.0),
    events.LinkSettled(2.0, 1000.0),
    events.MessageRepeated("house/door/set", 2.0, 1000.0),
    events.LinkLimited(20, 2.0, 1000.0),
    events.MessageDropped("a/b", "full", 3, 2.0, 1000.0),
    events.MessageRefused("a/b", "quota", 2.0, 2.0, 1000.0),
    events.SubscriptionFailed("a/#", "not authorized", 2.0, 1000.0),
    events.MessageFailed("a/#", ERROR, 2.0, 1000.0),
    events.AdapterFailed("port", ERROR, 2.0, 2.0, 1000.0),
    events.AdapterReopened("port", "reset", 2.0, 1000.0),
    events.StateFailed("/x", ERROR, 2.0, 1000.0),
    events.StateWritten("/x", 2.0, 1000.0),
    events.AppFault("here", ERROR, 2.0, 1000.0),
]


def reading(number):
    return Reading("d", {"n": number}, (), 0.0, 1000.0)


def large_reading(number):
    """A reading of a few thousand bytes."""
    texts = {f"text{name}": "x" * MAX_TEXT_CHARS for name in range(MAX_FIELDS - 1)}
    return reading(1000 + number)._replace(fields={"n": 1000 + number} | texts)


def watched(first, *bounds):
    """Happenings that somebody watches, of which the next one has this number."""
    happenings = Happenings(first - 1, *bounds)
    happenings.watch()
    return happenings


def happening_of(found):
    """A reading as a happening."""
    happenings = watched(0)
    happenings.on_reading(found)
    (entry,) = asyncio.run(happenings.watch(-1).receive(0.01))
    return entry.text


def kept(happenings, after):
    """What a watcher gets who has seen everything up to a number."""
    watcher = happenings.watch(after)
    entries = asyncio.run(watcher.receive(0.01))
    watcher.close()
    return watcher.reset, [entry.number for entry in entries]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_each_event_is_a_document_of_the_type_without_secrets(event):
    document = json.loads(json.dumps(happening(event)))

    TypeAdapter(Happening).validate_python(document)
    assert document["at"] == "1970-01-01T00:16:40.000Z"
    assert "hunter2" not in str(document)


def test_every_event_is_covered_that_is_for_all_observers():
    assert {type(event) for event in EVENTS} == set(events.Event.__args__) - {events.PollWithoutReading}


def test_a_watcher_that_is_lost_before_it_took_anything_goes_on_where_it_was():
    happenings = watched(100)
    for number in range(4):
        happenings.on_reading(reading(number))

    assert happenings.watch(101).last == 101
    assert happenings.watch(103).last == 103
    assert happenings.watch(7).last == 103
    assert happenings.watch().last == 103


def test_a_watcher_gets_what_came_after_the_last_number_it_saw():
    happenings = watched(100)
    for number in range(5):
        happenings.on_reading(reading(number))

    assert kept(happenings, 99) == (False, [100, 101, 102, 103, 104])
    assert kept(happenings, 102) == (False, [103, 104])
    assert kept(happenings, 104) == (False, [])
    assert kept(happenings, None) == (False, [])


@given(st.integers(1, 20), st.integers(0, 60), st.integers(0, 200))
def test_a_watcher_misses_nothing_or_is_told_so(most, count, after):
    happenings = watched(100, most)
    for number in range(count):
        happenings.on_reading(reading(number))
    reset, numbers = kept(happenings, after)

    last = 99 + count
    complete = list(range(after + 1, last + 1))
    assert reset or numbers == complete
    assert reset == (not max(99, last - most) <= after <= last)
    assert not reset or numbers == []


@given(st.integers(1, 20), st.lists(st.tuples(st.integers(0, 5), st.integers(0, 30)), max_size=5))
def test_one_that_comes_back_misses_nothing_or_is_told_so_however_long_nobody_watched(most, stays):
    happenings, last, before = Happenings(100, most), None, 0
    for seen, missed in stays:
        watcher = happenings.watch(last)
        for number in range(seen):
            happenings.on_reading(reading(number))
        numbers = [entry.number for entry in asyncio.run(watcher.receive(0.01))]
        if last is not None:
            assert watcher.reset == (before > most)
            assert len(numbers) == seen + (0 if watcher.reset else before)
            assert numbers == list(range(watcher.last + 1, watcher.last + 1 + len(numbers)))
            assert watcher.last > last if watcher.reset else watcher.last == last
        last = numbers[-1] if numbers else watcher.last
        watcher.close()
        for number in range(missed):
            happenings.on_reading(reading(number))
        before = missed


class Untouched(dict):
    """Fields that nobody may look at."""

    def _looked(self, *_):
        raise AssertionError

    __iter__ = __len__ = __getitem__ = items = values = keys = _looked


def test_nothing_is_made_of_what_happens_before_somebody_watches_nor_once_nobody_can_go_on():
    unseen = Reading("d", Untouched(), (), 0.0, 1000.0)
    happenings = Happenings(0, 3)
    happenings.on_reading(unseen)
    happenings.watch().close()
    with pytest.raises(AssertionError):
        happenings.on_reading(unseen)
    for number in range(4):
        happenings.on_reading(reading(number))

    happenings.on_reading(unseen)


@given(st.integers(1, 20), st.integers(0, 60), st.integers(0, 200))
def test_what_is_kept_is_bounded_by_bytes_too(most, count, after):
    one = len(happening_of(large_reading(0)))
    happenings = watched(100, MAX_HAPPENINGS, most * one)
    for number in range(count):
        happenings.on_reading(large_reading(number))
    reset, numbers = kept(happenings, after)

    last = 99 + count
    assert reset == (not max(99, last - most) <= after <= last)
    assert numbers == ([] if reset else list(range(after + 1, last + 1)))


def test_large_readings_do_not_fill_the_memory():
    happenings = watched(0)
    for number in range(MAX_HAPPENINGS):
        happenings.on_reading(large_reading(number))

    watcher = happenings.watch(MAX_HAPPENINGS - KEPT_BYTES // len(happening_of(large_reading(0))) - 1)
    entries = asyncio.run(watcher.receive(0.01))
    assert not watcher.reset
    assert KEPT_BYTES * 0.99 < sum(len(entry.text) for entry in entries) <= KEPT_BYTES


def test_a_happening_that_is_too_large_keeps_its_type_time_and_device():
    happenings = watched(0)
    happenings.on_reading(Reading("d", {"x" * MAX_HAPPENING_BYTES: 1}, (), 0.0, 1000.0))
    happenings.observe(events.FieldsLeftOut("d", ("x" * MAX_HAPPENING_BYTES,), 2.0, 1000.0))

    entries = asyncio.run(happenings.watch(-1).receive(0.01))
    assert [json.loads(entry.text) for entry in entries] == [
        {"type": word, "at": "1970-01-01T00:16:40.000Z", "device": "d"} for word in ("reading", "fields_left_out")
    ]


def test_a_watcher_for_whom_too_many_bytes_wait_is_cut_off():
    count = MAX_WAITING_BYTES // len(happening_of(large_reading(0))) + 1

    async def watch():
        happenings = Happenings(0)
        slow, quick = happenings.watch(), happenings.watch()
        taken = 0
        for number in range(count):
            happenings.on_reading(large_reading(number))
            taken += len(await quick.receive(0.01))
        return await slow.receive(0.01), taken == count < MAX_WAITING, happenings.watchers

    assert asyncio.run(watch()) == (None, True, 1)


def test_a_watcher_that_is_too_slow_is_cut_off_and_the_others_are_not():
    async def watch():
        happenings = Happenings(1)
        slow, quick = happenings.watch(), happenings.watch()
        taken = 0
        for number in range(MAX_WAITING + 1):
            happenings.on_reading(reading(number))
            taken += len(await quick.receive(0.01))
        return await slow.receive(0.01), taken, happenings.watchers

    assert asyncio.run(watch()) == (None, MAX_WAITING + 1, 1)


def test_a_watcher_waits_for_what_happens_and_ends_when_it_is_closed():
    async def watch():
        happenings = Happenings(1)
        watcher = happenings.watch()
        nothing = await watcher.receive(0.01)
        asyncio.get_running_loop().call_later(0.01, happenings.on_reading, reading(1))
        one = await watcher.receive(5)
        asyncio.get_running_loop().call_later(0.01, happenings.close)
        return nothing, [json.loads(entry.text)["fields"] for entry in one], await watcher.receive(5)

    assert asyncio.run(watch()) == ([], [{"n": 1}], None)


def test_a_reading_is_shown_without_what_is_large():
    fields = {"n": 1, "on": True, "none": None, "word": "eco", "text": "x" * (MAX_TEXT_CHARS + 1)}
    events = [{"summary": "Paper", "notes": "x" * (MAX_TEXT_CHARS + 1)}, {"summary": "Glass", "notes": None}]

    assert small_fields(fields) == {"n": 1, "on": True, "none": None, "word": "eco"}
    assert small_fields({"events": events}) == {"events": [{"summary": "Paper"}, {"summary": "Glass", "notes": None}]}
    assert len(small_fields({"list": list(range(100))})["list"]) == MAX_FIELDS
    assert small_fields({"deep": [[[[[1]]]]]}) == {"deep": [[[]]]}
    assert len(small_fields({str(number): number for number in range(100)})) == MAX_FIELDS
