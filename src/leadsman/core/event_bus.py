"""The event bus: stamps events, and delivers them to their observers in the order in which they happened.

An observer may cause another event: a heartbeat that is published can push a message out of the outbox. That event
waits until every observer has received the first one. So no observer gets an effect before its cause.
"""

import logging
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple, TypeVar, cast

from leadsman.core.events import Event, PollWithoutReading, ReadingTaken
from leadsman.core.loop.clock import Clock

E = TypeVar("E", bound=Event)
Observer = Callable[[Event], None]
"""Takes an event. It must be quick and must not raise. If it raises, that is logged, and the others still get it."""


class Phase(IntEnum):
    """The order of the observers of one event. Within a phase they are called in the order of their subscriptions."""

    HEALTH = 0
    """The health records of the devices. All others may ask them."""
    REPORT = 1
    """The heartbeat, the error topics, the log, the registry and discovery."""
    TRACE = 2
    """The list of failures, with what was decided."""
    SAVE = 3
    """The state that survives a restart, the trace included."""
    ACT = 4
    """Observers that change something because of the event, such as the recovery of an adapter."""


class _Subscription(NamedTuple):
    phase: Phase
    observer: Observer
    wants: Callable[[type], bool]
    """Whether the observer is called with events of a type."""


class EventBus:
    """Delivers each event to every observer. `clock` stamps the events."""

    __slots__ = ("_clock", "_emitting", "_observers", "_subscriptions", "_waiting")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._subscriptions: list[_Subscription] = []
        self._observers: dict[type, list[Observer]] = {}  # of the types that have been emitted
        self._waiting: deque[Event] = deque()
        self._emitting = False

    def subscribe(self, observer: Observer, phase: Phase = Phase.REPORT, *, readings: bool = True) -> None:
        """Call `observer` with every event from now on, after the observers of earlier phases. `PollWithoutReading` is
        not among them. With `readings` False, it is not called with `ReadingTaken`, the most frequent event, either."""
        frequent = {PollWithoutReading} if readings else {PollWithoutReading, ReadingTaken}
        self._add(_Subscription(phase, observer, lambda kind: kind not in frequent))

    def subscribe_to(self, kind: type[E], observer: Callable[[E], None], phase: Phase = Phase.REPORT) -> None:
        """Call `observer` with the events of one type."""
        self._add(_Subscription(phase, cast("Observer", observer), lambda each: each is kind))

    def _add(self, subscription: _Subscription) -> None:
        self._subscriptions.append(subscription)
        self._subscriptions.sort(key=lambda each: each.phase)  # stable, so that the order within a phase stays
        self._observers.clear()

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
            while True:
                observers = self._observers.get(type(event))
                for observer in self._observers_of(type(event)) if observers is None else observers:
                    try:
                        observer(event)
                    except KeyboardInterrupt:
                        raise
                    except BaseException:  # sys.exit() of one observer must not end the others
                        logging.getLogger("leadsman").exception("An observer failed at %s", type(event).__name__)
                if not self._waiting:
                    break
                event = self._waiting.popleft()
        finally:
            self._emitting = False

    def _observers_of(self, kind: type[Event]) -> list[Observer]:
        """Those that are called with events of a type, in their order. They are found once."""
        found = [each.observer for each in self._subscriptions if each.wants(kind)]
        self._observers[kind] = found
        return found
