"""Events reach their observers in the order in which they happened."""

import logging

from leadsman.core.event_bus import EventBus, Phase
from leadsman.core.events import (
    AppFault,
    DeviceHeld,
    LinkSettled,
    MessageDropped,
    PollMissed,
    PollWithoutReading,
    ReadingTaken,
)
from leadsman.core.loop.clock import Clock

CAUSE = PollMissed("d", 1, at=1.0, wall=2.0)
EFFECT = MessageDropped("a/d/state", "full", 1, at=1.0, wall=2.0)
CLOCK = Clock(lambda: 10.0, lambda: 1_000.0)


def test_no_observer_hears_an_effect_before_its_cause():
    heard = []
    bus = EventBus(CLOCK)
    bus.subscribe(lambda event: bus.emit(EFFECT) if event is CAUSE else None)
    bus.subscribe(heard.append)

    bus.emit(CAUSE)

    assert heard == [CAUSE, EFFECT]


def test_effects_of_effects_come_in_the_order_in_which_they_happened():
    first, second, third = (LinkSettled(at, 1_000.0 + at) for at in (1.0, 2.0, 3.0))
    follows = {first: [second, third], second: [CAUSE]}
    heard = []
    bus = EventBus(CLOCK)

    @bus.subscribe
    def chain(event):
        for each in follows.get(event, ()):
            bus.emit(each)

    bus.subscribe(heard.append)
    bus.emit(first)

    assert heard == [first, second, third, CAUSE]


def test_observers_are_called_by_phase_however_they_subscribed():
    heard = []
    bus = EventBus(CLOCK)
    for phase in (Phase.ACT, Phase.REPORT, Phase.HEALTH, Phase.SAVE, Phase.TRACE):
        bus.subscribe(lambda event, phase=phase: heard.append(phase), phase)
    bus.subscribe(lambda event: heard.append("later in its phase"), Phase.HEALTH)

    bus.emit(CAUSE)

    assert heard == [Phase.HEALTH, "later in its phase", Phase.REPORT, Phase.TRACE, Phase.SAVE, Phase.ACT]


def test_an_observer_that_breaks_is_logged_and_the_others_hear_what_follows(caplog):
    heard = []
    bus = EventBus(CLOCK)

    @bus.subscribe
    def broken(event):
        raise ZeroDivisionError

    bus.subscribe(heard.append)
    with caplog.at_level(logging.ERROR, "leadsman"):
        bus.emit(CAUSE)
        bus.emit(EFFECT)

    assert heard == [CAUSE, EFFECT]
    assert "An observer failed at PollMissed" in caplog.text


def test_an_event_is_stamped_when_it_is_emitted():
    heard = []
    bus = EventBus(CLOCK)
    bus.subscribe(heard.append)

    bus.emit(DeviceHeld("d"))

    assert heard == [DeviceHeld("d", at=10.0, wall=1_000.0)]


def test_a_reading_keeps_the_time_at_which_it_was_taken():
    heard = []
    bus = EventBus(CLOCK)
    bus.subscribe(heard.append)

    bus.emit(ReadingTaken("d", 7.5, 997.5, 0.1))

    assert heard == [ReadingTaken("d", 7.5, 997.5, 0.1)]


def test_an_event_that_waits_for_its_cause_carries_the_time_at_which_it_happened():
    times = iter(range(1, 100))
    heard = []
    bus = EventBus(Clock(lambda: float(next(times)), lambda: 1_000.0))

    @bus.subscribe
    def effect(event):
        if isinstance(event, DeviceHeld):
            bus.emit(AppFault("here", ZeroDivisionError()))
            next(times)

    bus.subscribe(heard.append)
    bus.emit(DeviceHeld("d"))

    assert [event.at for event in heard] == [1.0, 2.0]


def test_readings_reach_only_the_observers_that_want_them_and_in_the_order_of_the_phases():
    heard = []
    bus = EventBus(CLOCK)
    for phase in (Phase.TRACE, Phase.HEALTH):
        bus.subscribe(lambda event, phase=phase: heard.append(phase), phase)
    bus.subscribe(lambda event: heard.append("busy"), readings=False)

    bus.emit(ReadingTaken("d", 7.5, 997.5, 0.1))
    bus.emit(CAUSE)

    assert heard == [Phase.HEALTH, Phase.TRACE, Phase.HEALTH, "busy", Phase.TRACE]


def test_an_observer_of_one_type_is_called_with_nothing_else_and_in_its_phase():
    heard = []
    bus = EventBus(CLOCK)
    bus.subscribe(lambda event: heard.append("all"))
    bus.emit(CAUSE)
    bus.subscribe_to(PollMissed, heard.append, Phase.HEALTH)
    bus.emit(EFFECT)
    bus.emit(CAUSE)

    assert heard == ["all", "all", CAUSE, "all"]


def test_polls_without_a_reading_reach_only_the_observers_that_name_them():
    heard, named = [], []
    bus = EventBus(CLOCK)
    bus.subscribe(heard.append)
    bus.subscribe_to(PollWithoutReading, named.append)

    bus.emit(PollWithoutReading("d", "held", 7.0))

    assert heard == []
    assert named == [PollWithoutReading("d", "held", 7.0, 1, 10.0, 1_000.0)]
