"""Keeps the health record of each device, computed from events.

The heartbeat, the availability topics and introspection all read these records, so they cannot contradict each other.
Reading
changes nothing. The status of a device is the first that applies:

==================  ====================================================================================================
``held``            it failed, and is not polled until a person releases it
``isolated``        a person isolated its circuit, so it is left alone on purpose
``circuit_open``    it failed poll after poll, and is only probed now and then
``deferred``        it asked for a pause
``stale``           its last reading is too old
``error``           its last poll failed; or its current poll is failing, and it was never read or has failed for a
minute
``starting``        it has not been read yet
``ok``              its last poll succeeded
==================  ====================================================================================================

An open circuit takes precedence over the error that opened it, and over staleness, so that the status does not flap
between
them. Staleness is then reported beside it.
"""

import math
from typing import Any, NamedTuple

from leadsman.events import (
    LONG,
    AttemptFailed,
    CircuitMoved,
    CircuitRequested,
    DeviceHeld,
    DeviceReleased,
    Event,
    PollDeferred,
    PollFailed,
    PollMissed,
    ReadingTaken,
    failing_early,
)
from leadsman.text import describe

HELD, ISOLATED, CIRCUIT_OPEN, DEFERRED = "held", "isolated", "circuit_open", "deferred"
STALE, ERROR, STARTING, OK = "stale", "error", "starting", "ok"
OFFLINE = frozenset({HELD, ISOLATED, CIRCUIT_OPEN, STALE})
"""In these a device's availability topic says ``offline``: there is no fresh reading, and none is about to come."""
WELL = frozenset({OK, STARTING, DEFERRED, ISOLATED})
"""In these nothing is wrong that nobody knows of: the device works, or was asked to wait by itself or by a person."""
QUIET = frozenset({HELD, ISOLATED, DEFERRED})
"""In these no fresh reading can be expected."""


UNASKED = frozenset({"open", "half_open"})
"""Circuits that keep polls from a device by themselves."""


class Trying(NamedTuple):
    """The poll under way, once a call of it failed."""

    calls: int
    """Calls that failed."""
    error_type: str
    error_message: str
    next_at: float | None
    """When it is called again, monotonic seconds."""


class Health(NamedTuple):
    """What is known of one entity. `at` fields are monotonic seconds, `wall` fields epoch seconds.

    The first four fields are those that a success changes: see `fold`.
    """

    fresh_at: float = 0.0
    """The last success, or before it the first poll."""
    success_wall: float | None = None
    duration: float | None = None
    """Seconds that the last successful poll took."""
    successes: int = 0
    """Polls that succeeded since the start."""
    stale_after: float = math.inf
    """Seconds without a successful poll until the entity is stale."""
    failures: int = 0
    """Failed polls in a row."""
    failing_wall: float | None = None
    """The first call since the last success that gave no reading: an outage begins with it."""
    error_type: str | None = None
    error_message: str | None = None
    trying: Trying | None = None
    deferred_until: float | None = None
    """No poll before it, because the device asked for that; kept until the next outcome. Monotonic seconds."""
    deferred_reason: str | None = None
    circuit: str = "closed"
    missed: int = 0
    held: bool = False
    """Whether the handler is held: not polled until it is released."""
    polled: bool = True
    """False: it only takes commands, and there is nothing to wait for."""
    failed_polls: int = 0
    """Polls that failed since the start."""
    failed_calls: int = 0
    """Calls that failed since the start."""
    retries: int = 0
    """Calls repeated after a failure, since the start."""
    retried_polls: int = 0
    """Polls since the start that succeeded only after a call of them had failed."""

    @property
    def polls(self) -> int:
        """Polls that ended since the start."""
        return self.successes + self.failed_polls

    @property
    def failing_since(self) -> float | None:
        """When the outage began, epoch seconds; None where there is none."""
        return None if self.error_type is None else self.failing_wall


def fold(health: Health, event: Event) -> Health:
    """What is known after `event`, which must be about this entity."""
    match event:
        case ReadingTaken():
            if health.failing_wall is not None or health.deferred_until is not None:
                health = _well_again(health)
            # Nearly every event there is: a tuple of tuples costs a third of `_replace`.
            return Health(event.at, event.wall, event.duration, health.successes + 1, *health[4:])
        case AttemptFailed():
            return _call_failed(health, event)
        case PollFailed():
            return health._replace(
                failures=health.failures + 1,
                failed_polls=health.failed_polls + 1,
                failed_calls=health.failed_calls + (health.trying is None),  # one that hung never raised
                failing_wall=event.wall if health.failing_wall is None else health.failing_wall,
                error_type=type(event.error).__name__,
                error_message=describe(event.error),
                trying=None,
                deferred_until=None,
                deferred_reason=None,
            )
        case PollDeferred(at=at, seconds=rest, reason=reason):
            until = at + rest if rest > 0 else None
            return health._replace(trying=None, deferred_until=until, deferred_reason=reason)
        case DeviceReleased() | CircuitRequested(action="close"):
            return health._replace(
                held=health.held and not isinstance(event, DeviceReleased), deferred_until=None, deferred_reason=None
            )
        case DeviceHeld():
            return health._replace(held=True)
        case CircuitMoved():
            return health._replace(circuit=event.state)
        case PollMissed():
            return health._replace(missed=health.missed + event.polls)
    return health


def _well_again(health: Health) -> Health:
    retried = health.trying is not None
    return health._replace(
        failures=0, failing_wall=None, error_type=None, error_message=None, trying=None, deferred_until=None,
        deferred_reason=None, retried_polls=health.retried_polls + retried,
    )  # fmt: skip


def _call_failed(health: Health, event: AttemptFailed) -> Health:
    health = health._replace(failing_wall=event.outage if health.failing_wall is None else health.failing_wall)
    if event.requested:
        return _asked_to_wait(health, event)
    kind, message = type(event.error).__name__, describe(event.error)
    next_at = None if event.delay is None else event.at + event.delay
    if failing_early(event, never_read=health.success_wall is None):
        health = health._replace(error_type=kind, error_message=message)
    return health._replace(
        trying=Trying(event.attempt, kind, message, next_at),
        failed_calls=health.failed_calls + 1,
        retries=health.retries + (event.delay is not None),
        deferred_until=None,
        deferred_reason=None,
    )


def _asked_to_wait(health: Health, event: AttemptFailed) -> Health:
    """The device asked to be called again within the poll: it is deferred where it asks for long."""
    if event.delay is None:
        return health  # `PollDeferred` or `PollFailed` comes next, and says more
    until = event.at + event.delay
    if event.delay < LONG and until <= health.fresh_at + health.stale_after:
        return health
    return health._replace(deferred_until=until, deferred_reason=getattr(event.error, "reason", None))


def is_stale(health: Health, now: float) -> bool:
    """Whether the last success, or the start, is too long ago: seen by the clock, also when nothing failed."""
    return now > health.fresh_at + health.stale_after


def is_deferred(health: Health, now: float) -> bool:
    """Whether the device asked to be left alone, and the poll after that has not ended: it has `stale_after` to do so."""
    return health.deferred_until is not None and now <= health.deferred_until + health.stale_after


def status(health: Health, now: float) -> str:
    """The one word about an entity at `now`."""
    if health.held:
        return HELD
    if health.circuit != "closed":
        if health.circuit == "isolated":
            return ISOLATED
        if health.circuit in UNASKED:
            return CIRCUIT_OPEN
    if health.deferred_until is not None and is_deferred(health, now):
        return DEFERRED
    if is_stale(health, now):
        return STALE
    if health.error_type is not None:
        return ERROR
    return STARTING if health.success_wall is None and health.polled else OK


def is_offline(health: Health, now: float) -> bool:
    """Whether there is no fresh reading of an entity, and none about to come."""
    word = status(health, now)
    return word in OFFLINE or (word == DEFERRED and is_stale(health, now))


class Ledger:
    """The health of all entities, kept by observing. `register` each before its first event."""

    __slots__ = ("entities",)

    def __init__(self) -> None:
        self.entities: dict[str, Health] = {}

    def register(self, entity: str, stale_after: float, now: float) -> None:
        """Begin with an entity that has not been polled."""
        self.entities[entity] = Health(now, stale_after=stale_after)

    def register_idle(self, entity: str, now: float) -> None:
        """Begin with an entity that only takes commands, unless it is known already."""
        self.entities.setdefault(entity, Health(now, polled=False))

    def __call__(self, event: Event) -> None:
        """Observe."""
        entity = getattr(event, "entity", None)
        if entity is not None:
            self.entities[entity] = fold(self.entities[entity], event)

    def restore(self, entity: str, **known: Any) -> None:
        """Begin with what was known of an entity before a restart; names as the fields of `Health`."""
        self.entities[entity] = self.entities[entity]._replace(**known)

    def status(self, entity: str, now: float) -> str:
        """The one word about an entity."""
        return status(self.entities[entity], now)

    def next_change(self, now: float) -> float:
        """When time alone makes the next entity stale, or ends a deferral, if nothing succeeds until then; else infinity."""
        times = [health.fresh_at + health.stale_after for health in self.entities.values() if not is_stale(health, now)]
        for health in self.entities.values():
            if health.deferred_until is not None and is_deferred(health, now):
                times.append(health.deferred_until + health.stale_after)
        return min(times, default=math.inf)
