"""What is kept for people who watch: recent values and outcomes, and the lag of the loop."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.core.event_bus import EventBus
from leadsman.core.events import PollDeferred, PollFailed, PollMissed, PollSkipped, ReadingTaken
from leadsman.core.introspection.watching import KEPT_VALUES, MAX_SERIES, RecentValues, Watching
from leadsman.core.loop.clock import system_clock
from leadsman.core.loop.timers import Timers
from leadsman.core.readings.reading import Reading
from leadsman.testing import VirtualLoop


def reading(wall, **fields):
    return Reading("d", fields, (), 0.0, wall)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=2 * KEPT_VALUES))
def test_the_last_values_of_a_field_are_kept_with_their_times(values):
    recent = RecentValues()
    for at, value in enumerate(values):
        recent.on_reading(reading(float(at), t=value, mode="eco", on=True))
    found = recent.recent("d")

    assert found["series"].get("t", {"values": []})["values"] == values[-KEPT_VALUES:]
    assert set(found["series"]) <= {"t"}
    if values:
        assert found["series"]["t"]["at"][-1] == found["at"] == len(values) - 1
        assert found["fields"] == {"t": values[-1], "mode": "eco", "on": True}


def test_only_the_first_fields_have_their_values_kept():
    recent = RecentValues()
    recent.on_reading(reading(1.0, **{f"f{number}": number for number in range(10)}))

    assert list(recent.recent("d")["series"]) == [f"f{number}" for number in range(MAX_SERIES)]
    assert len(recent.recent("d")["fields"]) == 10


def test_the_last_outcomes_are_kept_in_order():
    recent = RecentValues()
    events = (
        ReadingTaken("d", 0.0, 1.0, 0.1),
        PollFailed("d", OSError(), 1, 0.0, 2.0),
        PollSkipped("d", 0.0, 3.0),
        PollDeferred("d", 5.0, None, 0.0, 4.0),
        PollMissed("d", 2, 0.0, 5.0),
    )
    for event in events:
        recent.observe(event)

    words = ["ok", "failed", "skipped", "deferred", "missed"]
    assert recent.recent("d")["outcomes"] == {"at": [1.0, 2.0, 3.0, 4.0, 5.0], "words": words}
    for _ in range(KEPT_VALUES):
        recent.observe(events[1])
    assert recent.recent("d")["outcomes"]["words"] == ["failed"] * KEPT_VALUES


def test_a_device_without_readings_has_nothing():
    assert RecentValues().recent("d") == {"at": None, "fields": {}, "series": {}, "outcomes": {"at": [], "words": []}}


@pytest.mark.parametrize("blocked", [0.0, 0.3])
def test_the_lag_is_how_long_the_loop_was_blocked(blocked):
    loop = VirtualLoop()

    async def run():
        clock = system_clock(loop)
        bus = EventBus(clock)
        watching = Watching(clock, Timers(loop, bus.emit), bus)
        loop.call_at(2.0 - 0.001, loop.block, blocked)
        await asyncio.sleep(5)
        during = watching.lag.seconds
        await asyncio.sleep(20)
        return during, watching.lag.seconds

    during, after = loop.run_until_complete(run())
    loop.close()

    assert during == pytest.approx(blocked, abs=0.01)
    assert after == pytest.approx(0.0, abs=0.01)
