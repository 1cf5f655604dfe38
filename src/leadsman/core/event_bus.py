"""The event bus: stamps events, and delivers them to their observers in the order in which they happened.

An observer may cause another event: a heartbeat that is published can push a message out of the outbox. That event
waits until every observer has received the first one. So no observer gets an effect before its cause.
"""

import inspect
import logging
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from typing import Generic, NamedTuple, ParamSpec, TypeVar, cast

from leadsman.core.events import AppFault, Event, PollWithoutReading, ReadingTaken
from leadsman.core.loop.clock import Clock
from leadsman.errors import InvalidType

E = TypeVar("E", bound=Event)
F = TypeVar("F")
P = ParamSpec("P")
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


def observer_name(observer: object) -> str:
    """What the log calls a function that an extension has added: ``leadsman_alarm.Alarm.report``."""
    inner = getattr(observer, "func", observer)  # of a partial
    kind = inner if hasattr(inner, "__qualname__") else type(inner)
    return f"{kind.__module__}.{kind.__qualname__}"


def check_observer(what: str, observer: F) -> F:
    """See that it can be called at once. Raises `InvalidType`."""
    if not callable(observer):
        raise InvalidType(f"{what}: {observer!r} is no function; give one")
    if inspect.iscoroutinefunction(observer):
        raise InvalidType(f"{what}: {observer_name(observer)} is async, and nobody awaits it; write a plain def")
    return observer


class Observers(Generic[P]):
    """Functions that are called together, in the order in which they were added: what several parts of an app may want
    to know. What one of them raises is reported as a fault of the app, and costs no other one and no caller.

    Args:
        what: what the log calls them.
        emit: takes the faults.
    """

    __slots__ = ("_added", "_emit", "_what")

    def __init__(self, what: str, emit: Callable[[AppFault], None]) -> None:
        self._added: tuple[Callable[P, object], ...] = ()
        self._what = what
        self._emit = emit

    def __bool__(self) -> bool:
        return bool(self._added)

    def add(self, observer: Callable[P, object]) -> None:
        """Call `observer` from now on, after those that were added before.

        Raises:
            InvalidType: it is no function, or it is async.
        """
        self._added += (check_observer(self._what, observer),)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for observer in self._added:
            try:
                observer(*args, **kwargs)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # sys.exit() of one part must not end the others
                self._emit(AppFault(f"{self._what}, {observer_name(observer)}", error))


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
        self._waiting.append(event)
        if self._emitting:
            return
        self._emitting = True
        try:
            while self._waiting:
                event = self._waiting.popleft()
                observers = self._observers.get(type(event))
                for observer in self._observers_of(type(event)) if observers is None else observers:
                    try:
                        observer(event)
                    except KeyboardInterrupt:
                        raise
                    except BaseException:  # sys.exit() of one observer must not end the others
                        logging.getLogger("leadsman").exception("An observer failed at %s", type(event).__name__)
        finally:
            self._emitting = False

    def _observers_of(self, kind: type[Event]) -> list[Observer]:
        """Those that are called with events of a type, in their order. They are found once."""
        found = [each.observer for each in self._subscriptions if each.wants(kind)]
        self._observers[kind] = found
        return found
