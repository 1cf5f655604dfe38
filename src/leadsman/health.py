"""Health: one record per entity, folded from events, and looked at by whoever reports.

The heartbeat, the availability topics and introspection all take their answer from here, so they cannot disagree.
Looking changes nothing. A device is, the first that applies: ``held``, ``circuit_open``, ``stale``, ``error``, ``starting``, ``ok``.
An open circuit wins over the error that opened it, and over staleness, so the status never flaps between them; that the
device is stale as well is said beside it.
"""

import math
from typing import Any, NamedTuple

from leadsman.events import (
    AttemptFailed,
    CircuitMoved,
    Event,
    Held,
    PollFailed,
    PollMissed,
    ReadingTaken,
    Released,
    long_failing,
)
from leadsman.wording import told

HELD, CIRCUIT_OPEN, STALE, ERROR, STARTING, OK = "held", "circuit_open", "stale", "error", "starting", "ok"
OFFLINE = frozenset({HELD, CIRCUIT_OPEN, STALE})
"""In these a device's availability topic says ``offline``: there is no fresh reading, and none is about to come."""


UNASKED = frozenset({"open", "half_open", "isolated"})
"""Circuits that keep polls from a device."""


class Health(NamedTuple):
    """What is known of one entity. `at` fields are monotonic seconds, `wall` fields epoch seconds."""

    stale_after: float
    """Seconds without a successful poll until the entity is stale."""
    fresh_at: float
    """The last success, or before it the first poll."""
    success_wall: float | None = None
    failures: int = 0
    """Failed polls in a row."""
    failing_wall: float | None = None
    error_type: str | None = None
    error_message: str | None = None
    circuit: str = "closed"
    missed: int = 0
    duration: float | None = None
    """Seconds that the last successful poll took."""
    held: bool = False
    """Whether it keeps still until somebody releases it."""
    polled: bool = True
    """False: it only takes commands, and there is nothing to wait for."""


def fold(health: Health, event: Event) -> Health:
    """What is known after `event`, which must be about this entity."""
    match event:
        case ReadingTaken():
            if health.error_type is not None:
                health = health._replace(failures=0, failing_wall=None, error_type=None, error_message=None)
            return health._replace(fresh_at=event.at, success_wall=event.wall, duration=event.duration)
        case PollFailed():
            return health._replace(
                failures=health.failures + 1,
                failing_wall=event.wall if health.failing_wall is None else health.failing_wall,
                error_type=type(event.error).__name__,
                error_message=told(event.error),
            )
        case AttemptFailed() if long_failing(event):
            return health._replace(
                failing_wall=event.outage, error_type=type(event.error).__name__, error_message=told(event.error)
            )
        case Held() | Released():
            return health._replace(held=isinstance(event, Held))
        case CircuitMoved():
            return health._replace(circuit=event.state)
        case PollMissed():
            return health._replace(missed=health.missed + event.polls)
    return health


def is_stale(health: Health, now: float) -> bool:
    """Whether the last success, or the start, is too long ago: seen by the clock, also when nothing failed."""
    return now > health.fresh_at + health.stale_after


def status(health: Health, now: float) -> str:
    """The one word about an entity at `now`."""
    if health.held:
        return HELD
    if health.circuit in UNASKED:
        return CIRCUIT_OPEN
    if is_stale(health, now):
        return STALE
    if health.error_type is not None:
        return ERROR
    return STARTING if health.success_wall is None and health.polled else OK


class Ledger:
    """The health of all entities, kept by observing. `register` each before its first event."""

    __slots__ = ("entities",)

    def __init__(self) -> None:
        self.entities: dict[str, Health] = {}

    def register(self, entity: str, stale_after: float, now: float) -> None:
        """Begin with an entity that has not been polled."""
        self.entities[entity] = Health(stale_after, now)

    def register_idle(self, entity: str, now: float) -> None:
        """Begin with an entity that only takes commands, unless it is known already."""
        self.entities.setdefault(entity, Health(math.inf, now, polled=False))

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

    def next_stale(self, now: float) -> float:
        """When the next entity that is fresh at `now` becomes stale, if nothing succeeds until then; else infinity."""
        fresh = (health for health in self.entities.values() if not is_stale(health, now))
        return min((health.fresh_at + health.stale_after for health in fresh), default=math.inf)
