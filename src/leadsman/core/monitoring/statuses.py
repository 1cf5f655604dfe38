"""Keeps the status of each entity up to date: by each event, and as time passes.

Nothing here looks at all entities at once, for there may be ten thousand. An entity is looked at when an event is about
it, and when time alone may have changed its status. Each entity with a time limit is in one slot of half a second. When
the slot is due, the entity is looked at and put into a later slot, at the next moment at which its status may change.
A slot is never too late: whatever happens to an entity, time alone changes its status no earlier than `stale_after`
from then on, and an entity stays in a slot no longer than that.

The writer of a document calls `refresh` first: then the statuses are those of that moment, and agree with all else
that is computed of it.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from leadsman.core.events import AppFault
from leadsman.core.monitoring.health import (
    NO_TROUBLE,
    OK,
    STARTING,
    WELL,
    WITHOUT_READINGS,
    Health,
    HealthRecords,
    is_offline,
    is_stale,
    next_change,
    status,
)
from leadsman.core.observers import Observers

if TYPE_CHECKING:
    from leadsman.core.monitoring.document import StatusWord

SLOT = 0.5
"""Seconds; the length of a slot, and the longest delay until a change by time is noticed if nobody asks."""


class StatusChange(NamedTuple):
    """The status of `entity` changed; it is `online` or not from now on, or None if that stayed."""

    entity: str
    online: bool | None


class Statuses:
    """The statuses of all entities.

    Args:
        records: the health records of the entities. One that is added later is passed to `add`.
        now: monotonic seconds.
        emit: takes the faults of those who follow the statuses.
        jobs: the entities that are side jobs, which have no topics.
    """

    def __init__(
        self,
        records: HealthRecords,
        now: float,
        emit: Callable[[AppFault], None],
        jobs: frozenset[str] = frozenset(),
    ) -> None:
        self.records = records.entities
        """The health record of each entity."""
        self.jobs = jobs
        self.words: dict[str, StatusWord] = {}
        """The status of each entity."""
        self.offline: set[str] = set()
        """The entities without a fresh reading, of which none is expected soon."""
        self.troubled: dict[str, None] = {}
        """The entities that are not well, that wait, or whose poll under way has failed. The first ones came first."""
        self.counts: Counter[str] = Counter()
        """The number of entities of each status."""
        self.characters = 0
        """How long the names of all entities are together."""
        self.on_change: Observers[[StatusChange]] = Observers("a status that changed", emit)
        """Called with each change that `refresh` finds, and with those of entities that follow another one."""
        self._made_offline: set[str] = set()
        """Those whose last failure makes them offline, and with them the entities whose readings they give."""
        self._slots: dict[int, dict[str, None]] = {}
        self._due: list[int] = []  # the heap of the slots
        for entity in records.entities:
            self.add(entity, now)

    def add(self, entity: str, now: float) -> None:
        """Add an entity, which has a health record by now."""
        health = self.records[entity]
        self.words[entity] = word = status(health, now)
        self.characters += len(entity)
        if is_offline(word, health, now):
            self.offline.add(entity)
        if _is_troubled(word, health):
            self.troubled[entity] = None
        if health.trouble.offline:
            self._made_offline.add(entity)
        self.counts[word] += 1
        self._wait(entity, health, now)

    def remove(self, entity: str) -> None:
        """Remove an entity, before its health record is removed."""
        self.counts[self.words.pop(entity)] -= 1
        self.characters -= len(entity)
        self.offline.discard(entity)
        self._made_offline.discard(entity)
        self.troubled.pop(entity, None)
        for waiting in self._slots.values():
            waiting.pop(entity, None)

    @property
    def well(self) -> bool:
        """Whether each entity works, or waits because it or a person asked for that."""
        return all(word in WELL for word, number in self.counts.items() if number)

    def is_fresh(self, now: float) -> bool:
        """Whether some device has fresh data, or all wait on purpose: the app shows a sign of life. Devices that never
        become stale prove nothing, and are left out."""
        devices = {
            name: health
            for name, health in self.records.items()
            if name not in self.jobs and health.polled and health.stale_after < math.inf
        }
        fresh = any(not is_stale(health, now) for health in devices.values())
        return fresh or all(self.words[name] in WITHOUT_READINGS for name in devices)

    @property
    def next_at(self) -> float:
        """When `advance` has something to do, monotonic seconds; infinity if time changes nothing."""
        return self._due[0] * SLOT if self._due else math.inf

    def stays_well(self, entity: str) -> bool:
        """Whether a reading changes nothing: the entity was well, and depends on no other one."""
        return self.words.get(entity) == OK and entity not in self.troubled and self.records[entity].source is None

    def status_change(self, entity: str, now: float) -> StatusChange | None:
        """Look at one entity, after an event about it. Returns what changed. One that is about to be added is left
        alone: a device that comes from another node goes on with its circuit before its status begins."""
        before = self.words.get(entity)
        if before is None:
            return None
        health = self.records[entity]
        word = status(health, now)
        if _is_troubled(word, health) != (entity in self.troubled):
            self._mark(entity)
        elif word == before and word in (OK, STARTING) and health.source is None:
            return None
        if health.trouble.offline != (entity in self._made_offline):
            self._follow(entity, health, now)
        return self._changed(entity, before, word, online=not is_offline(word, health, now))

    def _follow(self, entity: str, health: Health, now: float) -> None:
        """The entities whose readings this one gives are offline with it from now on, or not any more."""
        (self._made_offline.add if health.trouble.offline else self._made_offline.discard)(entity)
        for each in tuple(health.found or ()):
            change = self.status_change(each, now)
            if change is not None:
                self.on_change(change)

    def advance(self, now: float, most: int) -> list[StatusChange]:
        """Look at the entities whose status may have changed by time alone, at `most` so many. There are more while
        `next_at` is not after `now`. Returns what changed."""
        changes = []
        while self._due and most > 0 and self._due[0] * SLOT <= now:
            entities = self._slots[self._due[0]]
            for entity in self._taken(entities, most):
                most -= 1
                change = self.status_change(entity, now)
                if change is not None:
                    changes.append(change)
                self._wait(entity, self.records[entity], now)
            if not entities:
                del self._slots[heappop(self._due)]
        return changes

    def refresh(self, now: float) -> None:
        """Make all statuses those of `now`. Besides what is due, this looks at the entities of the slot in which `now`
        lies."""
        found: list[StatusChange | None] = [*self.advance(now, len(self.words))]
        waiting = self._slots.get(_slot_of(now))
        for entity in self._taken(waiting, len(waiting)) if waiting else ():
            found.append(self.status_change(entity, now))
            self._wait(entity, self.records[entity], now)
        for change in found:
            if change is not None:
                self.on_change(change)

    def _changed(self, entity: str, before: "StatusWord", word: "StatusWord", *, online: bool) -> StatusChange | None:
        was_online = entity not in self.offline
        if word == before and online == was_online:
            return None
        if word != before:
            self.words[entity] = word
            self.counts[before] -= 1
            self.counts[word] += 1
        if online == was_online:
            return StatusChange(entity, None)
        (self.offline.discard if online else self.offline.add)(entity)
        return StatusChange(entity, online)

    def _mark(self, entity: str) -> None:
        if entity in self.troubled:
            del self.troubled[entity]
        else:
            self.troubled[entity] = None

    def _wait(self, entity: str, health: Health, now: float) -> None:
        """Put an entity into the slot in which it must be looked at again, if time alone changes its status."""
        at = min(next_change(health, now), now + health.stale_after)
        if at == math.inf:
            return
        slot = _slot_of(at)
        if slot not in self._slots:
            self._slots[slot] = {}
            heappush(self._due, slot)
        self._slots[slot][entity] = None

    @staticmethod
    def _taken(entities: dict[str, None], most: int) -> Iterable[str]:
        """Take the last of `entities`, at `most` so many."""
        return reversed([entities.popitem()[0] for _ in range(min(most, len(entities)))])


def _is_troubled(word: str, health: Health) -> bool:
    return health.trouble is not NO_TROUBLE or word not in (OK, STARTING)


def _slot_of(at: float) -> int:
    """The slot that is due after `at`, not at it."""
    return math.floor(at / SLOT) + 1
