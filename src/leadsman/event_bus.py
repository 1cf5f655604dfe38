"""The event bus: stamps events, and delivers them to their observers in the order in which they happened.

An observer may cause another event: a heartbeat that is published can push a message out of the outbox. That event
waits until every observer has received the first one. So no observer learns of an effect before its cause.
"""

import logging
from collections import deque
from collections.abc import Callable
from enum import IntEnum

from leadsman.events import Event, ReadingTaken
from leadsman.timing.clock import Clock

Observer = Callable[[Event], None]
"""Takes an event. It must be quick and must not raise. If it raises, that is logged, and the others still get it."""


class Phase(IntEnum):
    """The order of the observers of one event. Within a phase they are called in the order of their subscriptions."""

    HEALTH = 0
    """What is known of the devices. All others may ask it."""
    REPORT = 1
    """The heartbeat, the error topics and the log."""
    TRACE = 2
    """The list of failures, with what was decided."""
    SAVE = 3
    """The state that survives a restart, the trace included."""
    ACT = 4
    """What changes something because of the event, such as the recovery of an adapter."""


class EventBus:
    """Delivers each event to every observer. `clock` stamps the events."""

    __slots__ = ("_clock", "_emitting", "_observers", "_of_readings", "_subscriptions", "_waiting")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._subscriptions: list[tuple[Phase, Observer, bool]] = []
        self._observers: list[Observer] = []
        self._of_readings: list[Observer] = []
        self._waiting: deque[Event] = deque()
        self._emitting = False

    def subscribe(self, observer: Observer, phase: Phase = Phase.REPORT, *, readings: bool = True) -> None:
        """Call `observer` with every event from now on, after the observers of earlier phases. With `readings` False,
        it is not called with `ReadingTaken`, the most frequent event."""
        self._subscriptions.append((phase, observer, readings))
        self._subscriptions.sort(key=lambda each: each[0])  # stable, so that the order within a phase stays
        self._observers = [observer for _, observer, _ in self._subscriptions]
        self._of_readings = [observer for _, observer, wanted in self._subscriptions if wanted]

    def emit(self, event: Event) -> None:
        """Stamp the event, unless it has a time already, and call all observers. While they are called, further
        events wait. Never raises."""
        if not event.wall:
            event = event._replace(at=self._clock.monotonic(), wall=self._clock.wall())
        if self._emitting:
            self._waiting.append(event)
            return
        self._emitting = True
        try:
            self._carry(event)
            while self._waiting:
                self._carry(self._waiting.popleft())
        finally:
            self._emitting = False

    def _carry(self, event: Event) -> None:
        for observer in self._of_readings if type(event) is ReadingTaken else self._observers:
            try:
                observer(event)
            except Exception:
                logging.getLogger("leadsman").exception("An observer failed at %s", type(event).__name__)
