"""Plays sessions to the adapters of an app."""

import asyncio
import json
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, TypeVar

from leadsman.core.adapters.wires import WireKind
from leadsman.core.loop import threads
from leadsman.core.loop.durations import human
from leadsman.core.text import clean
from leadsman.errors import DeviceUnavailable, SessionDiffers, TransientError
from leadsman.extensions.sessions.mask import same
from leadsman.extensions.sessions.recorder import MODULES
from leadsman.extensions.sessions.session import (
    SHAPES,
    Event,
    Fields,
    RecordedSession,
    ReplyShape,
    error_of,
    read_session,
)

T = TypeVar("T")
W = TypeVar("W")

LANES: Mapping[str, tuple[str, ...]] = {
    "http": ("url", "method", "data"),
    "bluetooth": ("address",),
    "i2c": ("address",),
    "onewire": ("thermometer",),
    "program": ("command",),
}
"""By the kind of a wire, what distinguishes the lane of a request from the others of that wire: its bytes or fields.
Others have one lane."""
ENDING = 2.0, 10.0
"""Seconds around the end of a session in which a further request is no difference: a twentieth of its length, but at
least and at most so many. The recording may have ended just before it, and began a bit before the app did."""

MAX_SHOWN_CHARS = 60
"""Characters of a value of a request in a message."""


class Exchange(NamedTuple):
    """A request of the app, and the events of the device then."""

    asked: Event
    answers: Sequence[Event]


class WireLane:
    """Exchanges in strict order."""

    def __init__(self) -> None:
        self.waiting: deque[Exchange] = deque()
        self.last: Exchange | None = None
        self.difference: SessionDiffers | None = None


Key = tuple[object, ...]


class Player:
    """Plays sessions while it is set as `leadsman.core.adapters.wires.WIRES`. Time begins with the first wire.

    Args:
        sessions: at least one; they begin together.
    """

    def __init__(self, sessions: Sequence[RecordedSession]) -> None:
        self.difference: SessionDiffers | None = None
        """The first one between the app and a session."""
        self.length = max(each.length for each in sessions)
        """Seconds."""
        self.began = min(each.began for each in sessions)
        """Epoch seconds."""
        self._names = ", ".join(each.name for each in sessions)
        self._sessions = {each.wire: session for session in sessions for each in session.events}
        self._lanes: dict[str, dict[Key, WireLane]] = {}
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._start = 0.0
        for session in sessions:
            for exchange in _exchanges(session.events):
                lanes = self._lanes.setdefault(exchange.asked.wire, {})
                lanes.setdefault(_key(exchange.asked), WireLane()).waiting.append(exchange)

    def wire(self, kind: WireKind, name: str, make: Callable[[], W]) -> W:
        """A wire that plays. Nothing real is made."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._start = self._loop.time()
        played: W = import_module(MODULES[kind]).PLAYED[kind](Lanes(self, self._wire_of(kind, name), name))
        return played

    def _wire_of(self, kind: str, name: str) -> str:
        """The wire of the sessions that an adapter gets: the one with its name, else the only one of its kind."""
        wanted = f"{kind} {name}".rstrip()
        of_kind = [each for each in self._lanes if each.partition(" ")[0] == kind]
        return wanted if wanted in self._lanes or len(of_kind) != 1 else of_kind[0]

    @property
    def left(self) -> list[Exchange]:
        """The exchanges that the app has not begun yet, in the order of the file."""
        left = [each for lanes in self._lanes.values() for lane in lanes.values() for each in lane.waiting]
        return sorted(left, key=lambda each: each.asked.line)

    def next_exchange(self, wire: str, what: str, data: bytes | None, more: Fields) -> Exchange:
        """See `Lanes.next_exchange`."""
        asked = Event(0.0, wire, 0, what, data, more)
        with self._lock:
            lane = self._lane_of(asked)
            if lane is not None and lane.difference is not None:
                raise lane.difference
            if lane is not None and (found := _no_request(lane, asked)) is not None:
                return found
            if lane is not None and lane.waiting and _same_request(lane.waiting[0].asked, asked):
                lane.last = lane.waiting.popleft()
                return lane.last
            if (lane is None or not lane.waiting) and self._is_ending(asked):
                return Exchange(asked, ())
            raise self._refusal(lane, asked)

    def wait(self, seconds: float) -> None:
        """Wait in a thread while virtual time goes on, which stands still for a thread at work."""
        loop, is_due = self._loop, threading.Event()
        assert loop is not None  # set by the first wire

        def begin() -> None:
            threads.count(-1)
            loop.call_later(seconds, end)

        def end() -> None:
            threads.count(+1)
            is_due.set()

        loop.call_soon_threadsafe(begin)
        is_due.wait()

    def _lane_of(self, asked: Event) -> WireLane | None:
        lanes, key = self._lanes.get(asked.wire, {}), _key(asked)
        if key in lanes:
            return lanes[key]
        if asked.what == "open" and lanes:
            return WireLane()
        masked = (lane for each, lane in lanes.items() if all(map(same, each, key)))
        return next(masked, None)

    def _is_ending(self, asked: Event) -> bool:
        """Whether the recording may have ended just before this request, which gets no answer then."""
        session = self._sessions.get(asked.wire)
        if session is None:
            return False
        least, most = ENDING
        return abs(self._now() - session.length) <= min(most, max(least, session.length / 20))

    def _refusal(self, lane: WireLane | None, asked: Event) -> Exception:
        """Why a request gets no answer: the session has ended, or it has another one."""
        session, now = self._sessions.get(asked.wire), self._now()
        where, expected = self._names, None if lane is None or not lane.waiting else lane.waiting[0].asked
        if session is None:
            there = ", ".join(map(repr, self._lanes)) or "nothing"
            recorded = (
                f"the session has nothing of {asked.wire!r}, but of {there}; give the adapter the name that it had"
            )
            return self._note(f"{where}: {recorded}")
        if expected is not None:
            where, recorded = f"{session.name} line {expected.line}", f"the session has {_request(expected)} next"
        elif now >= session.length:
            return DeviceUnavailable(f"{session.name} ends after {human(session.length)}; record a longer one")
        elif lane is not None:
            recorded = "the session has this not once more"
        else:
            waiting = [each.waiting[0].asked for each in self._lanes[asked.wire].values() if each.waiting]
            nearest = min(waiting, key=lambda each: (_key(each)[:1] != _key(asked)[:1], each.line), default=None)
            recorded = "the session has this nowhere" + (f", and {_request(nearest)} next" if nearest else "")
            where = session.name if nearest is None else f"{session.name} line {nearest.line}"
        error = self._note(
            f"{where}: {human(round(now, 3))} after the start, the app asks {_request(asked)}, and {recorded}; "
            "let it ask as it did, or record the session with this version of the app"
        )
        if lane is not None:
            lane.difference = error
        return error

    def _note(self, message: str) -> SessionDiffers:
        error = SessionDiffers(clean(message))
        self.difference = self.difference or error
        return error

    def _now(self) -> float:
        assert self._loop is not None  # set by the first wire
        return self._loop.time() - self._start


class Lanes:
    """The lanes of one wire, for the half of it that plays."""

    def __init__(self, player: Player, wire: str, name: str) -> None:
        self.name = name
        """That of the adapter."""
        self._player = player
        self._wire = wire

    def next_exchange(self, what: str, data: bytes | None = None, **more: object) -> Exchange:
        """The exchange that a request begins. It has these bytes and these fields.

        Raises:
            SessionDiffers: the app asks something else than was recorded.
            DeviceUnavailable: the session has ended.
        """
        return self._player.next_exchange(self._wire, what, data, more)

    def call(
        self, reply: ReplyShape[T], real: Callable[[], T], what: str, data: bytes | None = None, **more: object
    ) -> T:
        """Play a call that blocks, in a thread, and return as late as it was recorded. Raises as `take`, the recorded
        error, if there was one, and `TransientError` if there is no reply."""
        exchange = self.next_exchange(what, data, **more)
        event = next((each for each in exchange.answers if each.what in (reply.what, "failed")), None)
        if event is None:
            raise TransientError("the recording ended before there was an answer")
        if event.at > exchange.asked.at:
            self._player.wait(event.at - exchange.asked.at)
        if event.what == "failed":
            raise error_of(event.more)
        return reply.found(event)


class Playing:
    """A device on one connection: it answers each request, and does what it did by itself then.

    Args:
        deliver: takes the events that are no reply.
    """

    def __init__(self, deliver: Callable[[Event], object]) -> None:
        self._deliver = deliver
        self._tasks: set[asyncio.Task[None]] = set()
        self._coming: deque[tuple[float, Event]] = deque()
        """The events still to come of the exchange that began last, each with its time."""

    def begin(self, exchange: Exchange) -> None:
        """Let the device do what it did after a request."""
        self._begin(exchange, self._deliver)

    async def reply(self, exchange: Exchange, *whats: str) -> Event:
        """Do so, and return the first event of these. If there was none, the app had given up: wait until it does so
        again. Raises the recorded error, if there was one."""
        found: asyncio.Future[Event] = asyncio.get_running_loop().create_future()

        def take(event: Event) -> bool:
            if event.what in (*whats, "failed") and not found.done():
                found.set_result(event)
                return True
            self._deliver(event)
            return False

        self._begin(exchange, take)
        event = await found
        if event.what == "failed":
            raise error_of(event.more)
        return event

    def end(self, ahead: float = 0.0) -> None:
        """Do nothing more, but the events due within `ahead` seconds: do that now."""
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        until = asyncio.get_running_loop().time() + ahead
        while ahead and self._coming and self._coming[0][0] <= until:
            self._deliver(self._coming.popleft()[1])

    def _begin(self, exchange: Exchange, take: Callable[[Event], object]) -> None:
        if exchange.answers:
            began = asyncio.get_running_loop().time() - exchange.asked.at
            coming = self._coming = deque((began + each.at, each) for each in exchange.answers)
            task = asyncio.get_running_loop().create_task(_play(coming, take))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


async def _play(coming: deque[tuple[float, Event]], take: Callable[[Event], object]) -> None:
    """Take each at its time: as long after the request as it was recorded."""
    clock = asyncio.get_running_loop().time
    while coming:
        wait = coming[0][0] - clock()
        if wait > 0:
            await asyncio.sleep(wait)
        if take(coming.popleft()[1]):
            await asyncio.sleep(0)  # its waiter sees it before the next one


def _exchanges(events: Iterable[Event]) -> Iterable[Exchange]:
    """The exchanges, in the order in which they begin."""
    found: dict[int, tuple[Event, list[Event]]] = {}
    for each in events:
        if SHAPES[each.kind][each.what].asks:
            found[each.n] = each, []
        else:
            found[each.n][1].append(each)
    return [Exchange(asked, answers) for asked, answers in found.values()]


def _no_request(lane: WireLane, asked: Event) -> Exchange | None:
    """The exchange of a port that is opened where the session has a request, or nothing more, and of a radio that scans
    once more, and hears what it heard last; None of any other event. How often that happens depends on times, and no
    device notices it."""
    if asked.what == "scan" and not lane.waiting:
        return lane.last
    if asked.what != "open":
        while lane.waiting and lane.waiting[0].asked.what == "open":
            lane.waiting.popleft()
    elif not lane.waiting or lane.waiting[0].asked.what != "open":
        return Exchange(asked, (asked._replace(what="opened"),))
    return None


def _key(asked: Event) -> Key:
    """The key that distinguishes the lane of a request from the others of its wire."""
    return tuple(asked.data if each == "data" else asked.more.get(each) for each in LANES.get(asked.kind, ()))


def _same_request(recorded: Event, asked: Event) -> bool:
    return (
        recorded.what == asked.what
        and same(recorded.data, asked.data)
        and all(same(recorded.more.get(field), value) for field, value in asked.more.items())
    )


def _request(event: Event) -> str:
    """A request, as far as it is compared, and as the file has it."""
    compared = (*SHAPES[event.kind][event.what].fields, "event", "text", "hex")
    shown = {key: _shorten(value) for key, value in event.content.items() if key in compared}
    return json.dumps(shown, ensure_ascii=False)  # whole, as what hides secrets reads on to the end of a value


def _shorten(value: object) -> object:
    return value[:MAX_SHOWN_CHARS] + "…" if isinstance(value, str) and len(value) > MAX_SHOWN_CHARS else value


def player_of(files: Iterable[Path | str]) -> Player:
    """Plays the sessions of these files. Raises as `read_session`."""
    return Player([read_session(each) for each in files])
