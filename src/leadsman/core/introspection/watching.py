"""What an app keeps for people who watch it: what happened, the last values and outcomes, and the lag of the loop. It
exists only while the HTTP endpoint is on.

What happens becomes numbered documents while somebody watches. The latest are kept, so that a watcher who was away for
a moment misses nothing. A watcher who takes them too slowly is cut off.
"""

import asyncio
from array import array
from collections import defaultdict, deque
from types import NoneType
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar, cast

from leadsman.core.event_bus import EventBus, Phase
from leadsman.core.events import AttemptFailed, Event, PollDeferred, PollFailed, PollMissed, PollSkipped, ReadingTaken
from leadsman.core.loop.clock import Clock, rfc3339
from leadsman.core.loop.slots import FINE
from leadsman.core.loop.timers import Timers
from leadsman.core.monitoring.bugs import message_of
from leadsman.core.mqtt.answers import Json
from leadsman.core.mqtt.topics import encode
from leadsman.core.readings.reading import JsonObject, JsonValue, Reading
from leadsman.core.text import clean

if TYPE_CHECKING:
    from leadsman.core.introspection.document import Happening, OutcomeWord, Recent

N = TypeVar("N", int, float)
MAX_HAPPENINGS = 1000
"""Happenings that are kept."""
KEPT_BYTES = 2**20
"""Bytes of happenings that are kept; whichever bound comes first. One of an app with small readings has about 200."""
MAX_WAITING = 500
"""Happenings that may wait for a watcher."""
MAX_WAITING_BYTES = 2**19
"""Bytes of happenings that may wait for a watcher."""
MAX_HAPPENING_BYTES = 2**15
"""Bytes of one happening. Of a larger one only the type, the time and the device are kept."""
MAX_FIELDS = 32
"""Values of a reading in a happening."""
MAX_TEXT_CHARS = 100
"""Characters of a text in a reading. A longer one is left out."""
_PLAIN = frozenset({int, float, bool, NoneType})
"""The types of values that are shown as they are."""
_DEPTH = 4
"""How deep lists and objects in a reading are shown; what is deeper is left out."""
_NOT_SHOWN = frozenset(
    {"at", "wall", "since", "outage", "first", "entity", "device", "error", "due", "isolated", "empty"}
)
"""Fields of events that are written in another form."""
_ALWAYS_SHOWN = frozenset({"type", "at", "device"})
"""Fields of a happening that is too large."""
KEPT_VALUES = 60
"""Values of a field, and outcomes of a device, that are kept."""
MAX_SERIES = 4
"""Fields of a device whose values are kept. The others have their last value only."""
OUTCOMES: "tuple[OutcomeWord, ...]" = ("ok", "failed", "skipped", "deferred", "missed")
_KINDS: dict[type, int] = {ReadingTaken: 0, PollFailed: 1, PollSkipped: 2, PollDeferred: 3, PollMissed: 4}
PERIOD = 1.0
"""Seconds between two measurements of the lag."""
MEASURED = 10
"""Measurements that are kept: the lag is the largest of them."""


class NumberedHappening(NamedTuple):
    """A happening with its number, as JSON."""

    number: int
    text: bytes


class Happenings:
    """Numbers and keeps what happens, as long as somebody watches or can go on where it was. An observer of the event
    bus, and of readings.

    Args:
        first: lower than the first number, and higher than those of an earlier run, so that nobody takes the happenings
            of one for those of the other.
        kept: how many are kept.
        kept_bytes: how many bytes of them are kept; at least `MAX_HAPPENING_BYTES`.
    """

    def __init__(self, first: int, kept: int = MAX_HAPPENINGS, kept_bytes: int = KEPT_BYTES) -> None:
        self._next = first
        self._most, self._most_bytes = kept, kept_bytes
        self._texts: deque[bytes] = deque()
        self._bytes = 0
        self._watchers: list[HappeningsWatcher] = []
        self._needed = False
        """Whether somebody may ask for what happens. Nobody does before there is a watcher, nor once more has happened
        without one than is kept."""
        self._unwatched = 0
        """How many happened since there is no watcher."""

    def observe(self, event: Event) -> None:
        """Add an event."""
        if self._needed:
            self._add(happening(event))

    def on_reading(self, reading: Reading) -> None:
        """Add a reading."""
        if self._needed:
            fields = small_fields(reading.fields)
            self._add({"type": "reading", "at": rfc3339(reading.wall), "device": reading.entity, "fields": fields})

    def watch(self, after: int | None = None) -> "HappeningsWatcher":
        """Begin to watch: from now on, or with what came after the number `after`.

        `HappeningsWatcher.reset` shows whether something after that number is no longer kept.
        """
        if not self._needed:
            self._needed = True
            self._next += 1  # one number for all that happened meanwhile
        missed: list[NumberedHappening] = []
        reset = False
        if after is not None:
            oldest = self._next - len(self._texts)
            reset = not oldest - 1 <= after < self._next
            entries = map(NumberedHappening, range(oldest, self._next), self._texts)
            missed = [] if reset else [entry for entry in entries if entry.number > after]
        first = missed[0].number if missed else self._next
        watcher = HappeningsWatcher(self, missed, first - 1, reset=reset)
        self._watchers.append(watcher)
        return watcher

    @property
    def watchers(self) -> int:
        """How many watch at the moment."""
        return len(self._watchers)

    def close(self) -> None:
        """End all watchers."""
        for watcher in list(self._watchers):
            watcher.close()

    def remove(self, watcher: "HappeningsWatcher") -> None:
        """Forget a watcher. One that was removed before changes nothing."""
        if watcher in self._watchers:
            self._watchers.remove(watcher)
            self._unwatched = 0

    def _add(self, document: "Happening") -> None:
        text = _encode(document)
        self._texts.append(text)
        self._bytes += len(text)
        while len(self._texts) > self._most or self._bytes > self._most_bytes:
            self._bytes -= len(self._texts.popleft())
        entry = NumberedHappening(self._next, text)
        self._next += 1
        if self._watchers:
            for watcher in list(self._watchers):
                watcher.put(entry)
        elif self._unwatched < self._most:
            self._unwatched += 1
        else:
            self._needed, self._bytes = False, 0
            self._texts.clear()


class HappeningsWatcher:
    """Waits for happenings. `Happenings.watch` makes it."""

    def __init__(self, happenings: Happenings, missed: list[NumberedHappening], last: int, *, reset: bool) -> None:
        self.reset = reset
        """Whether happenings were lost: the watcher must look at the whole state again."""
        self.last = last
        """The number before that of the first happening that this watcher gets."""
        self._happenings = happenings
        self._waiting = missed
        self._bytes = sum(len(entry.text) for entry in missed)
        self._most = len(missed) + MAX_WAITING
        self._most_bytes = self._bytes + MAX_WAITING_BYTES
        self._closed = False
        self._came = asyncio.Event()
        if missed:
            self._came.set()

    def put(self, entry: NumberedHappening) -> None:
        """Pass a happening on. If too many wait already, or too many bytes, the watcher is cut off."""
        self._bytes += len(entry.text)
        if len(self._waiting) >= self._most or self._bytes > self._most_bytes:
            self.close()
            return
        self._waiting.append(entry)
        self._came.set()

    def close(self) -> None:
        """End it. What waits is lost."""
        self._closed = True
        self._waiting = []
        self._happenings.remove(self)
        self._came.set()

    async def receive(self, patience: float) -> list[NumberedHappening] | None:
        """Wait at most `patience` seconds for happenings, and return them. None if the watcher has ended."""
        try:
            async with asyncio.timeout(patience):
                await self._came.wait()
        except TimeoutError:
            return []
        if self._closed:
            return None
        taken, self._waiting = self._waiting, []
        self._bytes = 0
        self._came.clear()
        return taken


def happening(event: Event) -> "Happening":
    """An event as a document."""
    fields = event._asdict()
    found: dict[str, Json] = {"type": _type_of(event), "at": rfc3339(event.wall)}
    device = fields.get("entity") or fields.get("device")
    if device is not None:
        found["device"] = device
    error = fields.get("error")
    if error is not None:
        found |= {"error_type": type(error).__name__, "error_message": message_of(error)}
    for name, value in fields.items():
        if name not in _NOT_SHOWN:
            found[name] = _shorten(value)
    if isinstance(event, AttemptFailed):
        found["failing_since"] = rfc3339(event.outage)
    return cast("Happening", found)  # tests compare it with the schema


def _encode(document: "Happening") -> bytes:
    """A happening as JSON of at most `MAX_HAPPENING_BYTES` bytes."""
    text = encode(document)
    if len(text) <= MAX_HAPPENING_BYTES:
        return text
    return encode({name: value for name, value in document.items() if name in _ALWAYS_SHOWN})


def _shorten(value: Json) -> Json:
    if isinstance(value, str):
        return clean(value)
    return round(value, 6) if isinstance(value, float) else value


def small_fields(fields: JsonObject) -> JsonObject:
    """The fields of a reading that are numbers, truth values, null, short text, or lists and objects of those; the
    first `MAX_FIELDS` values of them all. The fields themselves, if these are all: most readings are numbers."""
    plain = len(fields) <= MAX_FIELDS
    for value in fields.values():
        if type(value) not in _PLAIN and (type(value) is not str or len(value) > MAX_TEXT_CHARS):
            plain = False
            break
    return fields if plain else _small_object(fields, _Room(MAX_FIELDS), _DEPTH)


class _Room:
    """How many values fit."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


def _small_object(fields: JsonObject, room: _Room, depth: int) -> JsonObject:
    found: JsonObject = {}
    for name, value in fields.items():
        if not room.left:
            break
        if _fits(value, depth):
            found[name] = _small(value, room, depth)
    return found


def _fits(value: JsonValue, depth: int) -> bool:
    if isinstance(value, str):
        return len(value) <= MAX_TEXT_CHARS
    return depth > 1 or not isinstance(value, list | dict)


def _small(value: JsonValue, room: _Room, depth: int) -> JsonValue:
    if isinstance(value, dict):
        return _small_object(value, room, depth - 1)
    if isinstance(value, list):
        found = []
        for each in value:
            if not room.left:
                break
            if _fits(each, depth - 1):
                found.append(_small(each, room, depth - 1))
        return found
    room.left -= 1
    return value


_TYPES: dict[type, str] = {}


def _type_of(event: Event) -> str:
    """The name of an event in a document: ``PollFailed`` is ``poll_failed``."""
    kind = type(event)
    if kind not in _TYPES:
        _TYPES[kind] = "".join(f"_{c.lower()}" if c.isupper() else c for c in kind.__name__).lstrip("_")
    return _TYPES[kind]


class RecentValues:
    """The last values and outcomes of all devices. An observer of the event bus, and of readings."""

    def __init__(self) -> None:
        self._devices: defaultdict[str, _RecentOfDevice] = defaultdict(_RecentOfDevice)

    def observe(self, event: Event) -> None:
        """Keep an outcome. Other events change nothing."""
        kind = _KINDS.get(type(event))
        if kind is not None:
            self._devices[event.entity].outcomes.add(event.wall, kind)  # type: ignore[union-attr]  # those have one

    def on_reading(self, reading: Reading) -> None:
        """Keep the values of a reading."""
        self._devices[reading.entity].add_values(reading.wall, reading.fields)

    def recent(self, device: str) -> "Recent":
        """The last values and outcomes of a device."""
        found = self._devices.get(device)
        return _RecentOfDevice().recent() if found is None else found.recent()

    def forget(self, device: str) -> None:
        """Remove a device."""
        self._devices.pop(device, None)


class _Latest(Generic[N]):
    """The latest numbers, with their times: each takes the place of the one that is `KEPT_VALUES` older.

    Args:
        values: has room for these.
    """

    __slots__ = ("_count", "_times", "_values")

    def __init__(self, values: "array[N]") -> None:
        self._count = 0
        """How many came."""
        self._times = array("d", bytes(8 * KEPT_VALUES))
        """Epoch seconds."""
        self._values: array[N] = values

    def add(self, wall: float, value: N) -> None:
        place = self._count % KEPT_VALUES
        self._times[place] = wall
        self._values[place] = value
        self._count += 1

    def columns(self) -> tuple[list[float], list[N]]:
        """The times and the values, the oldest first."""
        places = [each % KEPT_VALUES for each in range(max(0, self._count - KEPT_VALUES), self._count)]
        return [round(self._times[each], 3) for each in places], [self._values[each] for each in places]


class _RecentOfDevice:
    __slots__ = ("_fields", "_series", "_wall", "outcomes")

    def __init__(self) -> None:
        self.outcomes = _Latest[int](array("b", bytes(KEPT_VALUES)))
        """Positions in `OUTCOMES`."""
        self._series: dict[str, _Latest[float]] = {}
        """The values of each field that has numbers."""
        self._fields: JsonObject = {}
        self._wall: float | None = None

    def add_values(self, wall: float, fields: JsonObject) -> None:
        self._wall, self._fields = wall, small_fields(fields)
        for name, value in self._fields.items():
            if type(value) is float or type(value) is int:
                if name in self._series:
                    self._series[name].add(wall, value)
                elif len(self._series) < MAX_SERIES:
                    series = self._series[name] = _Latest[float](array("d", bytes(8 * KEPT_VALUES)))
                    series.add(wall, value)

    def recent(self) -> "Recent":
        series = {name: each.columns() for name, each in self._series.items()}
        at, kinds = self.outcomes.columns()
        return {
            "at": None if self._wall is None else round(self._wall, 3),
            "fields": self._fields,
            "series": {name: {"at": at, "values": values} for name, (at, values) in series.items()},
            "outcomes": {"at": at, "words": [OUTCOMES[kind] for kind in kinds]},
        }


class LoopLag:
    """Measures by how much the event loop is late: what blocks it delays everything else. An alarm of `Timers`."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._lags: deque[float] = deque(maxlen=MEASURED)
        self._due = 0.0
        self._wait(timers.origin)

    @property
    def seconds(self) -> float:
        """The largest lag of the last seconds."""
        return max(self._lags, default=0.0)

    def ring(self, now: float) -> None:
        """Measure."""
        self._lags.append(max(0.0, now - self._due))
        self._wait(now)

    def _wait(self, now: float) -> None:
        self._due = self._timers.origin + self._timers.add(now + PERIOD, self) * FINE


class Watching:
    """Keeps these for one running app.

    Args:
        clock: the clock of the app.
        timers: the timers of the app.
        events: the events of the app.
    """

    def __init__(self, clock: Clock, timers: Timers, events: EventBus) -> None:
        self.happenings = Happenings(first=int(clock.wall() * 1000))
        self.recent = RecentValues()
        self.lag = LoopLag(timers)
        events.subscribe(self.recent.observe, Phase.REPORT)
        events.subscribe(self.happenings.observe, Phase.REPORT)

    def on_reading(self, reading: Reading) -> None:
        """Keep a reading."""
        self.recent.on_reading(reading)
        self.happenings.on_reading(reading)
