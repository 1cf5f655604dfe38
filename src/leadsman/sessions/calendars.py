"""The wire of a `CalDav`: what a server was asked for, and the texts that it has. All of it blocks, in a thread."""

from collections.abc import Callable
from datetime import date, tzinfo
from typing import Any, TypeVar

from leadsman.adapters.caldav.backend import CalendarBackend, Changes
from leadsman.errors import DeviceTimeout
from leadsman.sessions.fault import error_of
from leadsman.sessions.player import Lanes
from leadsman.sessions.recorder import Log
from leadsman.sessions.session import Fields

_T = TypeVar("_T")


def recorded(log: Log, name: str, wire: CalendarBackend) -> CalendarBackend:
    """The calendars of a server, with what they are asked written down."""
    return _RecordedCalendars(log, wire)


class _RecordedCalendars:
    def __init__(self, log: Log, backend: CalendarBackend) -> None:
        self._log = log
        self._backend = backend

    def search(self, calendar: str | None, start: date, end: date, zone: tzinfo) -> list[str]:
        asked = _window(calendar, start, end, zone)
        return self._asking("search", asked, lambda: self._backend.search(calendar, start, end, zone), _found)

    def search_all(self, calendar: str | None) -> list[str]:
        return self._asking("search_all", {"calendar": calendar}, lambda: self._backend.search_all(calendar), _found)

    def changes(self, calendar: str | None, token: str | None) -> Changes:
        asked = {"calendar": calendar, "token": token}
        return self._asking("changes", asked, lambda: self._backend.changes(calendar, token), _changed)

    def names(self) -> list[str]:
        return self._asking("names", {}, self._backend.names, _found)

    def close(self) -> None:
        self._backend.close()

    def _asking(
        self, what: str, asked: Fields, call: Callable[[], _T], answer: Callable[[_T], tuple[str, Fields]]
    ) -> _T:
        n = self._log.ask(what, **asked)
        try:
            found = call()
        except Exception as error:
            self._log.fail(n, error)
            raise
        event, more = answer(found)
        self._log.answer(n, event, **more)
        return found


def _window(calendar: str | None, start: date, end: date, zone: tzinfo) -> dict[str, Any]:
    return {"calendar": calendar, "start": start.isoformat(), "end": end.isoformat(), "zone": str(zone)}


def _found(texts: list[str]) -> tuple[str, Fields]:
    return "found", {"texts": texts}


def _changed(changes: Changes) -> tuple[str, Fields]:
    return "changed", changes._asdict()


def played(lanes: Lanes, name: str) -> CalendarBackend:
    """Recorded calendars."""
    return _PlayedCalendars(lanes)


class _PlayedCalendars:
    """Answers at once: virtual time stands still while a thread is at work."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes

    def search(self, calendar: str | None, start: date, end: date, zone: tzinfo) -> list[str]:
        return [*self._asked("search", "found", **_window(calendar, start, end, zone))["texts"]]

    def search_all(self, calendar: str | None) -> list[str]:
        return [*self._asked("search_all", "found", calendar=calendar)["texts"]]

    def changes(self, calendar: str | None, token: str | None) -> Changes:
        found = self._asked("changes", "changed", calendar=calendar, token=token)
        return Changes(found["token"], found["objects"])

    def names(self) -> list[str]:
        return [*self._asked("names", "found")["texts"]]

    def close(self) -> None:
        pass

    def _asked(self, what: str, reply: str, **asked: Any) -> Fields:
        exchange = self._lanes.take(what, **asked)
        answer = next((each for each in exchange.answers if each.what in (reply, "failed")), None)
        if answer is None:
            raise DeviceTimeout("the recording ended before the server answered")
        if answer.what == "failed":
            raise error_of(answer.more)
        return answer.more
