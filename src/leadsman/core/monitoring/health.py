"""Keeps the health record of each device, computed from events.

The heartbeat, the availability topics and introspection all read these records, so they cannot contradict each other.
Reading changes nothing. The status of a device is the first that applies:

==================  ====================================================================================================
``held``            it failed, or a person holds it; it is not polled until a person releases it
``isolated``        a person isolated its circuit, so it is left alone on purpose
``circuit_open``    it failed poll after poll, and is only probed now and then
``deferred``        it asked for a pause, or its handler marked it as unavailable
``stale``           its last reading is too old, or it was never read and nothing has failed
``error``           its last poll failed; or its current poll fails, and it was never read or has failed for a minute
``starting``        it has not been read yet
``ok``              its last poll succeeded
==================  ====================================================================================================

An open circuit takes precedence over the error that opened it, and over staleness, so that the status does not flap
between them, and so does the error of a device that was never read: it has no reading that could be too old. Staleness
is then reported beside it.
"""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from leadsman.core.events import (
    LONG_PAUSE_SECONDS,
    AttemptFailed,
    CircuitMoved,
    CircuitRequested,
    DeviceHeld,
    DeviceLeft,
    DeviceReleased,
    Event,
    PollDeferred,
    PollFailed,
    PollMissed,
    ReadingTaken,
    failing_early,
)
from leadsman.core.monitoring.bugs import message_of
from leadsman.errors import ResultError

if TYPE_CHECKING:
    from leadsman.core.monitoring.document import StatusWord
    from leadsman.core.resilience.breaker import CircuitWord

HELD: Final = "held"
ISOLATED: Final = "isolated"
CIRCUIT_OPEN: Final = "circuit_open"
DEFERRED: Final = "deferred"
STALE: Final = "stale"
ERROR: Final = "error"
STARTING: Final = "starting"
OK: Final = "ok"
OFFLINE = frozenset({HELD, ISOLATED, CIRCUIT_OPEN, STALE})
"""The availability topic of a device in one of these is ``offline``: no fresh reading is expected soon."""
WELL = frozenset({OK, STARTING, DEFERRED, ISOLATED})
"""In these there is no unknown trouble: the device works, or it waits because it or a person asked for that."""
WITHOUT_READINGS = frozenset({HELD, ISOLATED, DEFERRED})
"""In these no fresh reading can be expected."""
MARKED_UNAVAILABLE = "marked unavailable"
"""Stands before the reason of a device that is marked as unavailable."""
BLOCKING = frozenset({"open", "half_open"})
"""States of a circuit that keep polls from a device because it failed."""
COUNTERS_VERSION = 1
"""The version of what `EarlierLives.to_json` writes. One that means something else gets another number."""
MAX_COUNTER = 2**53
"""A counter in the file that is larger is damage: JSON carries integers exactly up to here (RFC 8259 §6)."""

Errors = tuple[type[BaseException], ...]
"""Those that make an entity offline."""
Json = Any
"""What JSON can represent."""


class Trying(NamedTuple):
    """The current poll, once a call of it has failed."""

    calls: int
    """Calls that failed."""
    error_type: str
    error_message: str
    next_at: float | None
    """The time of the next call, monotonic seconds; None if there is none."""


class Trouble(NamedTuple):
    """What is wrong with an entity. All entities without trouble share one value, since there may be thousands."""

    failures: int = 0
    """Failed polls in a row."""
    failing_wall: float | None = None
    """When the first call since the last success began that gave no reading: an outage begins with it."""
    error_type: str | None = None
    error_message: str | None = None
    trying: Trying | None = None
    deferred_until: float | None = None
    """Polls before this time are skipped, because the device asked for a pause. Kept until the next outcome. Monotonic
    seconds."""
    deferred_reason: str | None = None
    left: str | None = None
    """Why the device was marked as unavailable; None if it was not, or was read since."""
    offline: bool = False
    """Whether its last error is one that makes it offline."""


class FailureCounts(NamedTuple):
    """The counts since the start, besides successes. All entities that never failed share one value."""

    missed_polls: int = 0
    failed_polls: int = 0
    """Polls that failed."""
    failed_calls: int = 0
    """Calls that failed."""
    retries: int = 0
    """Calls repeated after a failure."""
    retried_polls: int = 0
    """Polls that succeeded after at least one failed call."""
    opens: int = 0
    """Times at which the circuit opened; one more each time a probe fails."""
    deferrals: int = 0
    """Polls that ended with a pause that the device asked for."""


NO_TROUBLE, NO_COUNTERS = Trouble(), FailureCounts()


class Totals(NamedTuple):
    """The counters of a device, in the order in which documents and the file have them: those of `FailureCounts`, all
    polls and calls, and the readings. A device whose every poll succeeds after two retries has the status ``ok``, and
    its counters show it."""

    polls: int = 0
    """Polls that ended with a reading, with nothing to publish, or with a failure."""
    failed_polls: int = 0
    retried_polls: int = 0
    calls: int = 0
    failed_calls: int = 0
    retries: int = 0
    opens: int = 0
    deferrals: int = 0
    missed_polls: int = 0
    published: int = 0
    """Readings that were handed to the outbox."""

    def plus(self, other: "Totals") -> "Totals":
        """The sum of both."""
        return Totals(*(one + another for one, another in zip(self, other, strict=True)))


class EarlierLives(NamedTuple):
    """The counters of the lives of the app before this one."""

    since: float
    """When counting began, epoch seconds."""
    before: Totals = Totals()

    def to_json(self, now: Totals) -> Json:
        """For the file: all lives, with what this one has counted until now."""
        return {"version": COUNTERS_VERSION, "since": self.since, **self.before.plus(now)._asdict()}


class Health:
    """The health record of one entity. `at` fields are monotonic seconds, `wall` fields epoch seconds. `fold` and
    `HealthRecords.restore` change it.

    Args:
        fresh_at: when the first poll is due.
        stale_after: seconds without a successful poll until the entity is stale.
        polled: False for an entity that only takes commands: it has no readings.
        offline_on: the errors with which the entity is offline as soon as its status is ``error``.
        pushed: whether it is a source, which goes on after a reading that cannot be published: it is offline with such
            a one only if `offline_on` names that error.
        source: the record of what gives its readings; None of one that is read by itself.
    """

    __slots__ = (
        "circuit",
        "counters",
        "duration",
        "found",
        "fresh_at",
        "held",
        "life",
        "offline_on",
        "polled",
        "pushed",
        "source",
        "stale_after",
        "success_wall",
        "successes",
        "trouble",
    )

    def __init__(
        self,
        fresh_at: float = 0.0,
        *,
        stale_after: float = math.inf,
        polled: bool = True,
        offline_on: Errors = (),
        pushed: bool = False,
        source: "Health | None" = None,
    ) -> None:
        self.fresh_at = fresh_at
        """The last success, or the first poll if there was none."""
        self.stale_after = stale_after
        self.polled = polled
        self.offline_on = offline_on
        self.pushed = pushed
        self.source = source
        self.found: dict[str, None] | None = None
        """The entities whose readings it gives; None without any."""
        self.success_wall: float | None = None
        self.duration: float | None = None
        """Seconds that the last successful poll took."""
        self.successes = 0
        """Polls that succeeded since the start."""
        self.trouble = NO_TROUBLE
        self.circuit: CircuitWord = "closed"
        self.held = False
        """Whether the handler is held: not polled until it is released."""
        self.counters = NO_COUNTERS
        self.life: EarlierLives | None = None
        """The counters before this start; None where the state is not kept."""

    @property
    def polls(self) -> int:
        """Polls that ended since the start."""
        return self.successes + self.counters.failed_polls

    def totals(self, published: int) -> Totals:
        """The counters since the start, with `published` readings that were handed to the outbox."""
        calls = self.successes + self.counters.failed_calls
        return Totals(polls=self.polls, calls=calls, published=published, **self.counters._asdict())

    @property
    def failing_since(self) -> float | None:
        """When the outage began, epoch seconds; None without an outage."""
        return None if self.trouble.error_type is None else self.trouble.failing_wall


def life_of(document: Json) -> EarlierLives:
    """Read what `EarlierLives.to_json` has written.

    Raises:
        LookupError, TypeError, ValueError: it is damaged, or a newer version wrote it.
    """
    if not isinstance(document, Mapping):
        raise TypeError("the counters are not an object")
    if document["version"] != COUNTERS_VERSION:
        raise ValueError(
            f"the counters have the version {document['version']!r}, and this leadsman reads {COUNTERS_VERSION}"
        )
    return EarlierLives(_number(document, "since"), Totals(*(_number(document, each) for each in Totals._fields)))


def _number(document: Mapping[str, Json], name: str) -> Any:
    value: Any = document[name]
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not (whole or (name == "since" and isinstance(value, float))) or not 0 <= value <= MAX_COUNTER:
        raise ValueError(f"the counter {name} is {value!r:.40}")
    return value


def fold(health: Health, event: Event) -> None:
    """Change the record by `event`, which must be about this entity."""
    match event:
        case ReadingTaken():
            _read(health, event)
        case AttemptFailed():
            _call_failed(health, event)
        case PollFailed():
            _poll_failed(health, event)
        case PollDeferred(at=at, seconds=pause, reason=reason):
            until = at + pause if pause > 0 else None
            health.counters = health.counters._replace(deferrals=health.counters.deferrals + 1)
            _troubled(health, trying=None, deferred_until=until, deferred_reason=reason)
        case DeviceLeft(reason=reason):
            _troubled(health, left=reason)
        case DeviceReleased():
            health.held = False
            _troubled(health, deferred_until=None, deferred_reason=None)
        case CircuitRequested(action="close"):
            _troubled(health, deferred_until=None, deferred_reason=None)
        case DeviceHeld():
            health.held = True
        case CircuitMoved():
            health.circuit = cast("CircuitWord", event.state)  # the events have no type of circuits
            if event.state == "open":
                health.counters = health.counters._replace(opens=health.counters.opens + 1)
        case PollMissed():
            health.counters = health.counters._replace(missed_polls=health.counters.missed_polls + event.polls)


def _troubled(health: Health, **changes: Any) -> None:
    """Change what is wrong; names as the fields of `Trouble`."""
    trouble = health.trouble._replace(**changes)
    health.trouble = NO_TROUBLE if trouble == NO_TROUBLE else trouble


def _read(health: Health, event: ReadingTaken) -> None:
    health.fresh_at, health.success_wall, health.duration = event.at, event.wall, event.duration
    health.successes += 1
    if health.trouble is not NO_TROUBLE:
        _well_again(health)


def _well_again(health: Health) -> None:
    if health.trouble.trying is not None:
        health.counters = health.counters._replace(retried_polls=health.counters.retried_polls + 1)
    health.trouble = NO_TROUBLE


def _poll_failed(health: Health, event: PollFailed) -> None:
    before, counters = health.trouble, health.counters
    hung = before.trying is None  # no call of it raised
    health.counters = counters._replace(
        failed_polls=counters.failed_polls + 1, failed_calls=counters.failed_calls + (1 if hung else 0)
    )
    health.trouble = Trouble(
        failures=before.failures + 1,
        failing_wall=event.outage if before.failing_wall is None else before.failing_wall,
        error_type=type(event.error).__name__,
        error_message=message_of(event.error),
        left=before.left,
        offline=_makes_offline(health, event.error),
    )


def _makes_offline(health: Health, error: BaseException) -> bool:
    """Whether an error makes the entity offline."""
    return isinstance(error, health.offline_on) and not (isinstance(error, ResultError) and _goes_on(health))


def makes_offline_by_name(health: Health, kind: str) -> bool:
    """Whether an error of an earlier run, of which the name of its class is known, makes the entity offline."""
    return kind in _names_of(health.offline_on) and not (kind == ResultError.__name__ and _goes_on(health))


def _goes_on(health: Health) -> bool:
    """Whether a reading that cannot be published is not what makes the entity offline; see `Health`."""
    return health.pushed and ResultError not in health.offline_on


def _call_failed(health: Health, event: AttemptFailed) -> None:
    if health.trouble.failing_wall is None:
        _troubled(health, failing_wall=event.outage)
    if event.requested:
        _deferred(health, event)
        return
    kind, message = type(event.error).__name__, message_of(event.error)
    next_at = None if event.delay is None else event.at + event.delay
    if failing_early(event, never_read=health.success_wall is None):
        _troubled(health, error_type=kind, error_message=message, offline=_makes_offline(health, event.error))
    trying, counters = Trying(event.attempt, kind, message, next_at), health.counters
    health.counters = counters._replace(
        failed_calls=counters.failed_calls + 1, retries=counters.retries + (event.delay is not None)
    )
    _troubled(health, trying=trying, deferred_until=None, deferred_reason=None)


def _deferred(health: Health, event: AttemptFailed) -> None:
    """The device asked for another call within the poll. It is deferred if it asked for a long pause."""
    if event.delay is None:
        return  # `PollDeferred` or `PollFailed` follows, with the details
    until = event.at + event.delay
    if event.delay >= LONG_PAUSE_SECONDS or until > health.fresh_at + health.stale_after:
        _troubled(health, deferred_until=until, deferred_reason=getattr(event.error, "reason", None))


def is_source_offline(health: Health) -> bool:
    """Whether the readings of an entity come from another one, which has failed so that it is offline: the entity
    follows it."""
    return health.source is not None and health.source.trouble.offline


@lru_cache(maxsize=32)
def _names_of(errors: Errors) -> frozenset[str]:
    """The names of these classes of errors and of all their subclasses that there are in this process."""
    found, left = set(errors), list(errors)
    while left:
        more = [each for each in type.__subclasses__(left.pop()) if each not in found]
        found.update(more)
        left += more
    return frozenset(each.__name__ for each in found)


def is_stale(health: Health, now: float) -> bool:
    """Whether the last success, or the start, is too long ago. Time alone makes an entity stale, even if nothing
    failed."""
    return now > health.fresh_at + health.stale_after


def is_deferred(health: Health, now: float) -> bool:
    """Whether the device asked for a pause, and the poll after it is not overdue: it may take `stale_after`."""
    return health.trouble.deferred_until is not None and now <= health.trouble.deferred_until + health.stale_after


def status(health: Health, now: float) -> "StatusWord":
    """The status of an entity at `now`."""
    if health.held:
        return HELD
    if health.circuit != "closed":
        if health.circuit == "isolated":
            return ISOLATED
        if health.circuit in BLOCKING:
            return CIRCUIT_OPEN
    if health.trouble is not NO_TROUBLE and (health.trouble.left is not None or is_deferred(health, now)):
        return DEFERRED
    failing = health.trouble.error_type is not None
    if is_stale(health, now) and not (failing and health.success_wall is None):
        return STALE
    if failing:
        return ERROR
    return STARTING if health.success_wall is None and health.polled else OK


def is_offline(word: str, health: Health, now: float) -> bool:
    """Whether an entity, whose status at `now` is `word`, has no fresh reading, and none is expected soon."""
    if is_source_offline(health):
        return True
    if word == DEFERRED:
        return health.trouble.left is not None or is_stale(health, now)
    return word in OFFLINE or (word == ERROR and (health.trouble.offline or is_stale(health, now)))


def next_change(health: Health, now: float) -> float:
    """When time alone makes an entity stale or ends its deferral, whichever comes first, monotonic seconds; infinity if
    it does neither."""
    stale_at = health.fresh_at + health.stale_after
    until = health.trouble.deferred_until
    ends_at = math.inf if until is None or not is_deferred(health, now) else until + health.stale_after
    return ends_at if is_stale(health, now) else min(stale_at, ends_at)


class HealthRecords:
    """Keeps the health records of all entities by observing events. `register` each entity before its first event, and
    `remove` it after its last one."""

    __slots__ = ("entities",)

    def __init__(self) -> None:
        self.entities: dict[str, Health] = {}

    def register(
        self,
        entity: str,
        stale_after: float,
        now: float,
        *,
        offline_on: Errors = (),
        pushed: bool = False,
        found_by: str | None = None,
    ) -> None:
        """Add an entity that has not been polled. `found_by` has found it, and gives its readings; see `Health`."""
        source = None if found_by is None else self.entities.get(found_by)
        if source is not None:
            source.found = {} if source.found is None else source.found
            source.found[entity] = None
        self.entities[entity] = Health(
            now, stale_after=stale_after, offline_on=offline_on, pushed=pushed, source=source
        )

    def remove(self, entity: str) -> None:
        """Remove an entity, after its last event."""
        source = self.entities.pop(entity).source
        if source is not None and source.found is not None:
            source.found.pop(entity, None)

    def register_idle(self, entity: str, now: float) -> None:
        """Add an entity that only takes commands, unless it is known already."""
        self.entities.setdefault(entity, Health(now, polled=False))

    def on_reading(self, event: ReadingTaken) -> None:
        """Observe the most frequent event."""
        _read(self.entities[event.entity], event)

    def __call__(self, event: Event) -> None:
        """Observe any event."""
        entity = getattr(event, "entity", None)
        if entity is not None:
            fold(self.entities[entity], event)

    def restore(self, entity: str, **known: Any) -> None:
        """Restore fields of `Health` from before a restart."""
        for field, value in known.items():
            setattr(self.entities[entity], field, value)
