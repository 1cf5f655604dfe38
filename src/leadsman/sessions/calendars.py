"""The wire of a `CalDav`: what a server was asked for, and the texts that it has. All of it blocks, in a thread."""

from datetime import date, tzinfo

from leadsman.adapters.caldav.backend import CalendarBackend, CalendarChanges
from leadsman.sessions.player import Lanes
from leadsman.sessions.recorder import WireLog
from leadsman.sessions.session import Fields


def recorded(log: WireLog, name: str, wire: CalendarBackend) -> CalendarBackend:
    """The calendars of a server, with what they are asked written down."""
    return _RecordedCalendars(log, wire)


class _RecordedCalendars:
    def __init__(self, log: WireLog, backend: CalendarBackend) -> None:
        self._log = log
        self._backend = backend

    def search(self, calendar: str | None, start: date, end: date, zone: tzinfo) -> list[str]:
        call = lambda: self._backend.search(calendar, start, end, zone)  # noqa: E731  # a name for what is long
        return self._log.call(call, _found, "search", **_window(calendar, start, end, zone))

    def search_all(self, calendar: str | None) -> list[str]:
        return self._log.call(lambda: self._backend.search_all(calendar), _found, "search_all", calendar=calendar)

    def changes(self, calendar: str | None, token: str | None) -> CalendarChanges:
        call = lambda: self._backend.changes(calendar, token)  # noqa: E731  # as above
        return self._log.call(call, _changed, "changes", calendar=calendar, token=token)

    def names(self) -> list[str]:
        return self._log.call(self._backend.names, _found, "names")

    def close(self) -> None:
        self._backend.close()


def _window(calendar: str | None, start: date, end: date, zone: tzinfo) -> Fields:
    return {"calendar": calendar, "start": start.isoformat(), "end": end.isoformat(), "zone": str(zone)}


def _found(texts: list[str]) -> tuple[str, None, Fields]:
    return "found", None, {"texts": texts}


def _changed(changes: CalendarChanges) -> tuple[str, None, Fields]:
    return "changed", None, changes._asdict()


def played(lanes: Lanes, name: str) -> CalendarBackend:
    """Recorded calendars."""
    return _PlayedCalendars(lanes)


class _PlayedCalendars:
    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes

    def search(self, calendar: str | None, start: date, end: date, zone: tzinfo) -> list[str]:
        return [*self._lanes.ask("found", "search", **_window(calendar, start, end, zone)).more["texts"]]

    def search_all(self, calendar: str | None) -> list[str]:
        return [*self._lanes.ask("found", "search_all", calendar=calendar).more["texts"]]

    def changes(self, calendar: str | None, token: str | None) -> CalendarChanges:
        found = self._lanes.ask("changed", "changes", calendar=calendar, token=token).more
        return CalendarChanges(found["token"], found["objects"])

    def names(self) -> list[str]:
        return [*self._lanes.ask("found", "names").more["texts"]]

    def close(self) -> None:
        pass
