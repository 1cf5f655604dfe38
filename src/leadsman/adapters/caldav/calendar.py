"""The CalDAV adapter (RFC 4791): reads which events take place in the next days.

The library caldav blocks, so it runs in a thread of its own. Events are requested only when something changed; servers
with sync tokens (RFC 6578) report that. A small calendar is requested whole, since several servers leave recurring
events out of a search by time. Recurrences are expanded here, since servers get them wrong across a change to or from
daylight saving time.
"""

import asyncio
import functools
from collections.abc import AsyncGenerator, Callable, Mapping
from datetime import date, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Literal, NamedTuple, Self, TypeVar, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from leadsman.adapters.caldav.backend import Account, CalendarBackend, ReplyTooLarge
from leadsman.adapters.caldav.recurrence import CalendarEvent, load, occurrences
from leadsman.adapters.server import check_url, display_url
from leadsman.core.adapters.resource import CalendarSearch, Resource, Way
from leadsman.core.adapters.wires import wire_of
from leadsman.core.loop.clock import system_clock
from leadsman.core.loop.durations import Duration, positive_seconds
from leadsman.core.loop.host_zone import host_zone
from leadsman.core.loop.threads import Worker
from leadsman.core.text.redaction import SecretValue, secret_or_none
from leadsman.errors import GarbledData, InvalidValue, PermanentError

MAX_DAYS = 3660
"""Days of a window: ten years."""
MAX_OBJECTS = 500
"""Objects of a calendar that is requested whole: some 400 kB, and half a second of a server."""
MAX_COMPARED_CALENDARS = 20
"""Calendars of which the doctor compares two searches."""
COMPARED_DAYS = 366
"""Days of that comparison, in which each yearly event takes place."""
Search = Literal["auto", "all"]

_T = TypeVar("_T")

__all__ = ["CalDav", "CalendarEvent"]


class _Answer(NamedTuple):
    """The latest answer for one calendar."""

    token: str | None
    window: tuple[date, date, str] | None
    """None: the answer is the whole calendar."""
    texts: list[str]


class CalDav:
    """A CalDAV server, used with one account.

    Args:
        url: the server, the user's collection, or one calendar: ``https://cloud.example/remote.php/dav``.
        username: the name of the user.
        password: the user's password; often an application password; text or a `SecretStr`. A `Path` is a file that
            holds it, read at each connection.
        token: a bearer token instead of username and password; text or a `SecretStr`.
        search: how events are searched for. ``"auto"``: a calendar that has at most `MAX_OBJECTS` objects, and whose
            server has sync tokens, is read whole, and another one by a search by time on the server. ``"all"``: each
            calendar is read whole, for servers that leave events out of a search by time.
        zone: an IANA name such as ``Europe/Berlin``: the time zone in which days begin. None is the host's.
        ca: a file with the certificate of the authority, if it is not a public one.
        timeout: for one reply of the server; a call may take three times as long.
        retry_tokens: see `leadsman.core.adapters.adapter.LimitsRetries`.

    Raises:
        InvalidValue, InvalidType: at construction.
    """

    def __init__(
        self,
        url: str | SecretValue,
        username: str | None = None,
        password: str | SecretValue | Path | None = None,
        *,
        token: str | SecretValue | None = None,
        search: Search = "auto",
        zone: str | None = None,
        ca: str | None = None,
        timeout: Duration = 20.0,
        retry_tokens: int | None = None,
    ) -> None:
        self.retry_tokens = retry_tokens
        if password is not None and token is not None:
            raise InvalidValue("password and token are both set; write only one of them")
        if search not in get_args(Search):
            raise InvalidValue(f'search is {search!r}; it must be "auto" or "all"')
        self._search = search
        self._timeout = positive_seconds(timeout, "timeout")
        self._account = Account(
            check_url(url, "https://cloud.example/remote.php/dav"),
            username,
            password if isinstance(password, Path) else secret_or_none("password", password),
            secret_or_none("token", token),
            ca,
            self._timeout,
        )
        self._zone = None if zone is None else _check_zone(zone)
        self._lock = asyncio.Lock()
        self._answers: dict[str | None, _Answer] = {}
        self._reported: set[int] = set()
        self._worker = Worker(f"calendars of {display_url(self._account.url)}")

    def check_installed(self) -> None:
        """Raise `NotInstalled` if the libraries for calendars are missing; else load them, before an event waits."""
        load()
        self._backend  # noqa: B018  # making it imports what it needs

    async def __aenter__(self) -> Self:
        """Enter the context. The first request is sent when a handler asks."""
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Disconnect. The adapter may be entered again."""
        self._renew()
        self._worker = self._worker.renew()
        self._answers.clear()

    async def probe(self) -> None:
        """Check that the server accepts the user. Raises as `events`."""
        await self.calendars()

    async def _log_in(self) -> None:
        async with self:
            await self.probe()

    async def reset(self) -> None:
        """Discard the connection and all cached answers."""
        self._answers.clear()
        self._renew()

    @property
    def resource(self) -> Resource:
        """For ``leadsman doctor``: the server."""
        return Resource("calendars", display_url(self._account.url), self._log_in, self._compare)

    @property
    def health(self) -> Mapping[str, object]:
        """For introspection: the server's address, how many calendars were read, how many of them report changes, and
        how many were read whole."""
        return {
            "url": display_url(self._account.url),
            "calendars": len(self._answers),
            "with_sync_tokens": sum(answer.token is not None for answer in self._answers.values()),
            "read_whole": sum(answer.window is None for answer in self._answers.values()),
        }

    def today(self) -> date:
        """The current date in the adapter's time zone."""
        return _day(self._local())

    async def calendars(self) -> list[str]:
        """The names of the user's calendars. Raises as `events`."""
        async with self._lock:
            return await self._in_thread(self._backend.names)

    async def events(
        self, calendar: str | None = None, *, days: int = 14, start: date | None = None, zone: str | None = None
    ) -> list[CalendarEvent]:
        """Return the events in a window of days, in order. Each occurrence of a recurring event is one entry.

        Args:
            calendar: its name, or its path below the URL, with a slash; None if the URL is that of the calendar.
            days: the number of days, 1 to `MAX_DAYS`.
            start: the first day; None is today.
            zone: a time zone that overrides the adapter's.

        Raises:
            DeviceTimeout, DeviceUnavailable, GarbledData: a retry may help.
            PermanentError: the password is wrong, or there is no such calendar.
            RetryRequested: the server asks for a pause and names its length.
        """
        if type(days) is not int or not 1 <= days <= MAX_DAYS:
            raise InvalidValue(f"days is {days!r}; it must be 1 to {MAX_DAYS}")
        where = self._local() if zone is None else _check_zone(zone)
        first = _day(where) if start is None else start
        async with self._lock:
            answer = await self._in_thread(lambda: self._query(calendar, first, first + timedelta(days=days), where))
            return await self._in_thread(
                lambda: occurrences(answer.texts, first, first + timedelta(days=days), where, self._reported)
            )

    def _query(self, calendar: str | None, first: date, end: date, zone: tzinfo) -> _Answer:
        """Return the contents of a window or more. They are requested only if something changed. Blocks."""
        before, window = self._answers.get(calendar), (first, end, str(zone))
        if before is not None and before.window not in (None, window):
            before = None
        since = None if before is None else before.token
        token, objects = self._backend.changes(calendar, since)
        if before is not None and since is not None and objects == 0:
            answer = before._replace(token=token)
        else:
            if before is not None and since is not None:
                objects = len(before.texts) if before.window is None else None  # the reply counts changes
            texts = self._whole(calendar) if self._reads_whole(objects) else None
            if texts is None:
                answer = _Answer(token, window, self._within(calendar, first, end, zone))
            else:
                answer = _Answer(token, None, texts)
        self._answers[calendar] = answer
        return answer

    def _reads_whole(self, objects: int | None) -> bool:
        """Whether a calendar with this number of objects is read whole. None: the number is not known."""
        return self._search == "all" or (objects is not None and objects <= MAX_OBJECTS)

    def _whole(self, calendar: str | None) -> list[str] | None:
        """Return a whole calendar; None if the server refuses that, or it is too large, and a search by time may bring
        less of it. Blocks."""
        try:
            return self._backend.search_all(calendar)
        except (ReplyTooLarge, PermanentError) as error:
            if self._search == "auto":
                return None
            if isinstance(error, ReplyTooLarge):
                raise ReplyTooLarge(f'{error}; search="all" requests the whole calendar: divide it') from error
            raise

    def _within(self, calendar: str | None, first: date, end: date, zone: tzinfo) -> list[str]:
        """Return what the server finds by a search by time. Blocks."""
        try:
            return self._backend.search(calendar, first, end, zone)
        except ReplyTooLarge as error:
            raise ReplyTooLarge(f"{error}; request fewer days") from error

    async def _compare(self) -> AsyncGenerator[CalendarSearch, None]:
        """Compare the search by time with the whole of each calendar, and read nothing else. Raises as `events`."""
        async with self:
            where = self._local()
            first = _day(where)
            for calendar in (await self.calendars())[:MAX_COMPARED_CALENDARS]:
                async with self._lock:
                    found = await self._in_thread(functools.partial(self._compared, calendar, first, where))
                yield found

    def _compared(self, calendar: str, first: date, zone: tzinfo) -> CalendarSearch:
        """Blocks."""
        end = first + timedelta(days=COMPARED_DAYS)
        small = self._reads_whole(self._backend.changes(calendar, None).objects)
        read: Way = "whole" if self._search == "all" else "whole while small" if small else "by time"
        try:
            there, found = self._backend.search_all(calendar), self._backend.search(calendar, first, end, zone)
            missed = occurrences(set(there).difference(found), first, end, zone, self._reported)
            changed = occurrences(set(found).difference(there), first, end, zone, self._reported)
        except (GarbledData, PermanentError) as error:  # it is too large, makes no sense, or may not be read whole
            return CalendarSearch(calendar, read, fault=str(error))
        lost = {(each.uid, each.start): each.summary for each in missed}
        for each in changed:  # between the two searches, or by a server that writes an object anew for each reply
            lost.pop((each.uid, each.start), None)
        return CalendarSearch(calendar, read, tuple({uid: title for (uid, _), title in lost.items()}.values()))

    async def _in_thread(self, call: Callable[[], _T]) -> _T:
        return await self._worker.call(call, 3 * self._timeout, lambda _: self._renew())

    def _renew(self) -> None:
        self._worker.submit(self._backend.close)
        del self._backend  # the next request makes another one

    def _local(self) -> tzinfo:
        return host_zone() if self._zone is None else self._zone

    @functools.cached_property
    def _backend(self) -> CalendarBackend:
        return wire_of("calendars", display_url(self._account.url), self._create_backend)

    def _create_backend(self) -> CalendarBackend:
        from leadsman.adapters.caldav.client import Client  # an app that only names a calendar needs no library

        return Client(self._account)


def _day(zone: tzinfo) -> date:
    return datetime.fromtimestamp(system_clock(asyncio.get_running_loop()).wall(), zone).date()


def _check_zone(zone: object) -> tzinfo:
    try:
        if not isinstance(zone, str):
            raise TypeError(zone)
        return ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError, TypeError) as error:
        raise InvalidValue(f"zone is {zone!r}; write an IANA name such as 'Europe/Berlin'") from error
