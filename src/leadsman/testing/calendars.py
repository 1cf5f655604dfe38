"""The twin of `CalDav`, with calendars in memory. It is separate from the other twins, since it needs what
``leadsman[caldav]`` installs."""

from collections.abc import Iterable, Mapping
from datetime import date, tzinfo
from typing import Any

from leadsman.adapters.caldav.backend import CalendarBackend, CalendarChanges
from leadsman.adapters.caldav.calendar import CalDav
from leadsman.errors import PermanentError
from leadsman.text import suggestion


class CalDavTwin(CalDav):
    """A `CalDav` with calendars in memory.

    Args:
        calendars: iCalendar texts by the calendar's name; a text may contain several events.
        options: those of `CalDav`, such as ``zone=``.
    """

    def __init__(self, calendars: Mapping[str, Iterable[str]] | None = None, **options: Any) -> None:
        self.texts = {name: list(texts) for name, texts in (calendars or {}).items()}
        """The contents of the calendars. They may be changed at any time."""
        self._store = _Calendars(self.texts)
        super().__init__("https://twin.invalid/", **options)

    def fail(self, error: Exception | None) -> None:
        """Raise this error from now on; None answers normally again."""
        self._store.error = error

    def _create_backend(self) -> CalendarBackend:
        return self._store


class _Calendars:
    def __init__(self, texts: dict[str, list[str]]) -> None:
        self.texts = texts
        self.error: Exception | None = None
        self.searches = 0

    def search(self, calendar: str | None, start: date, end: date, zone: tzinfo) -> list[str]:
        self.searches += 1
        return list(self._texts(calendar))

    def search_all(self, calendar: str | None) -> list[str]:
        self.searches += 1
        return list(self._texts(calendar))

    def changes(self, calendar: str | None, token: str | None) -> CalendarChanges:
        texts = self._texts(calendar)
        now = str(hash(tuple(texts)))
        return CalendarChanges(now, 0 if now == token else len(texts))

    def names(self) -> list[str]:
        self._answer()
        return list(self.texts)

    def close(self) -> None:
        pass

    def _texts(self, calendar: str | None) -> list[str]:
        self._answer()
        if calendar is None:
            return [text for texts in self.texts.values() for text in texts]
        if calendar not in self.texts:
            raise PermanentError(f"there is no calendar {calendar!r}; {suggestion(calendar, self.texts)}")
        return self.texts[calendar]

    def _answer(self) -> None:
        if self.error is not None:
            raise self.error
