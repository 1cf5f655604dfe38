"""Requests calendars from a server with the library caldav, which blocks. Only this file imports caldav. Its errors
name the remedy."""

import contextlib
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta, tzinfo
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from leadsman.adapters.caldav.backend import Account, CalendarChanges, ReplyTooLarge
from leadsman.adapters.server import display_url, secret_in
from leadsman.core.resilience.failure import RetryRequested
from leadsman.core.resilience.retry_after import MAX_PAUSE_SECONDS
from leadsman.core.text import clean, describe
from leadsman.core.text.redaction import Secret
from leadsman.core.text.suggestion import suggestion
from leadsman.core.tls import client_context
from leadsman.errors import (
    DeviceError,
    DeviceTimeout,
    DeviceUnavailable,
    GarbledData,
    LeadsmanError,
    PermanentError,
    missing,
)

try:
    import niquests
    from caldav.davclient import DAVClient
    from caldav.lib import error as errors
    from lxml import etree
except ImportError as error:
    raise missing("calendars", "caldav", "caldav") from error

DavObject = Any
"""An object of caldav or of its HTTP client. Its annotations promise a result or a coroutine, whichever client is
used."""
MAX_REPLY_BYTES = 8 * 1024 * 1024
"""Of one reply, decompressed. A calendar of ten years has about one megabyte."""
MAX_REPLY_TAGS = 100_000
"""Tags of one reply, which take a second to read. One event has about 14."""

_WEB_PAGE = "not a calendar, but maybe a web page: a log-in page, a captive portal, or the wrong url"


class Client:
    """The requests to one server. They block."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._connected: DavObject = None
        self._read: Secret | None = None
        """The password in the file, hidden as long as this lives."""
        self._components: dict[str, list[str] | None] = {}
        """Of which kinds the objects of a collection may be, by its URL; None if the server does not say."""

    def search(self, calendar: str | None, start: date, end: date, zone: tzinfo) -> list[str]:
        """Return the iCalendar texts of all objects with an event in the window."""
        with self._translate_errors("asking for events"):
            # A day more on both sides: servers put whole days and floating times into their own zone (RFC 4791, 9.9).
            day = timedelta(days=1)
            first, last = (datetime.combine(each, time(), zone) for each in (start - day, end + day))
            found = self._calendar(calendar).search(event=True, start=first, end=last, expand=False, post_filter=False)
            return [_text_of(each) for each in found]

    def search_all(self, calendar: str | None) -> list[str]:
        """Return the iCalendar texts of all objects with an event."""
        with self._translate_errors("asking for events"):
            found = self._calendar(calendar).search(event=True, expand=False, post_filter=False)
            return [_text_of(each) for each in found]

    def changes(self, calendar: str | None, token: str | None) -> CalendarChanges:
        """Return the current sync token (RFC 6578), and how many objects changed since `token`, or exist. Both are None
        if the server has no tokens, or has forgotten this one."""
        with self._translate_errors("asking for changes"):
            request = self._calendar(calendar).get_objects_by_sync_token
            try:
                found = request(sync_token=token, load_objects=False, disable_fallback=True)
            except errors.RateLimitError:
                raise
            except errors.AuthorizationError:
                if token is None:
                    raise
                return CalendarChanges(None, None)  # RFC 6578, 3.2: the answer to a token that is too old
            except errors.DAVError:
                return CalendarChanges(None, None)
            return CalendarChanges(str(found.sync_token), len(list(found)))

    def names(self) -> list[str]:
        """Return the names of the user's calendars, and the paths of those whose name another one has, too."""
        with self._translate_errors("asking for calendars"):
            by_name = {name: self._with_events(found) for name, found in self._by_name().items()}
            return [name if len(found) == 1 else self._path(each) for name, found in by_name.items() for each in found]

    def close(self) -> None:
        """Disconnect. The next request connects again."""
        client, self._connected = self._connected, None
        self._components.clear()
        if client is not None:
            with contextlib.suppress(Exception):  # it is unusable, however it ends
                client.close()

    def _calendar(self, calendar: str | None) -> DavObject:
        client = self._client()
        if calendar is None:
            return client.calendar(url=self._account.url)
        if "/" in calendar:
            return client.calendar(url=self._account.url.rstrip("/") + "/" + calendar.lstrip("/"))
        known = self._by_name()
        if calendar not in known:
            raise PermanentError(f"there is no calendar {clean(calendar)!r}; {suggestion(calendar, known)}")
        found = self._with_events(known[calendar])
        paths = ", ".join(map(self._path, found or known[calendar]))
        if not found:
            raise PermanentError(f"the calendar {clean(calendar)!r} ({paths}) is for tasks, and has no events")
        if len(found) > 1:
            raise PermanentError(
                f"{len(found)} calendars are called {clean(calendar)!r}; write the path of one of them instead: {paths}"
            )
        return found[0]

    def _by_name(self) -> dict[str, list[DavObject]]:
        found: dict[str, list[DavObject]] = {}
        for each in self._client().principal().calendars():
            found.setdefault(clean(str(each.get_display_name() or each.id)), []).append(each)
        return found

    def _with_events(self, calendars: list[DavObject]) -> list[DavObject]:
        """Those that may have events: Nextcloud and others give a task list the name of a calendar
        (home-assistant/core#71461). The set of a collection stays as it is (RFC 4791, 5.2.3)."""
        for each in calendars:
            if str(each.url) not in self._components:
                try:
                    components = each.get_supported_components(with_fallback=False)
                except (errors.PropfindError, errors.NotFoundError):  # without the property, it takes all
                    components = None
                self._components[str(each.url)] = components
        return [
            each
            for each in calendars
            if not (kinds := self._components[str(each.url)]) or "VEVENT" in map(str.upper, map(str, kinds))
        ]

    def _path(self, calendar: DavObject) -> str:
        """The path of a calendar below the URL, as `_calendar` takes it."""
        path, base = urlsplit(str(calendar.url)).path, urlsplit(self._account.url).path.rstrip("/") + "/"
        return path.removeprefix(base) if path.startswith(base) else path

    def _client(self) -> DavObject:
        if self._connected is None:
            account = self._account
            password = account.token or account.password
            if isinstance(password, Path):
                password = self._read = secret_in(password)
            self._connected = DAVClient(
                url=account.url,
                username=account.username,
                password=password,
                auth_type="bearer" if account.token else None,
                timeout=account.timeout,  # type: ignore[arg-type]  # parts of a second are as good
                ssl_verify_cert=account.ca or True,
                enable_rfc6764=False,
                rate_limit_handle=False,
            )
            self._connected.session.mount("https://", _adapter(account.ca))
            self._connected.session.request = _limit_size(self._connected.session.request)
        return self._connected

    @contextlib.contextmanager
    def _translate_errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except (DeviceError, RetryRequested):
            raise
        except Exception as error:
            self.close()
            raise _leadsman_error(error, f"{what} of {display_url(self._account.url)}", self._account.ca) from error


def _adapter(ca: str | None) -> DavObject:
    """The transport of a session, with the certificates that leadsman trusts."""
    context = client_context(ca)

    class Adapter(niquests.adapters.HTTPAdapter):
        def init_poolmanager(self, *args: DavObject, **kwargs: DavObject) -> None:
            super().init_poolmanager(*args, **kwargs, ssl_context=context)

    return Adapter(disable_http3=True)


def _limit_size(request: DavObject) -> DavObject:
    """A session's ``request`` that reads no more than `MAX_REPLY_BYTES`, whatever the server sends."""

    def ask(*args: DavObject, **kwargs: DavObject) -> DavObject:
        response = request(*args, **{**kwargs, "stream": True})
        content = bytearray()
        for piece in response.iter_content(65536):
            content += piece
            if len(content) > MAX_REPLY_BYTES:
                response.close()
                raise ReplyTooLarge(f"the server's reply is longer than {MAX_REPLY_BYTES // 1024 // 1024} MiB")
        if (tags := content.count(b"<")) > MAX_REPLY_TAGS:
            raise ReplyTooLarge(f"the server's reply has {tags:,} tags; {MAX_REPLY_TAGS:,} are allowed")
        if response.status_code < 300 and "html" in str(response.headers.get("Content-Type", "")):
            raise GarbledData(f"the reply is {_WEB_PAGE}")
        response._content, response._content_consumed = bytes(content), True  # noqa: SLF001  # as requests keeps it
        return response

    return ask


def _text_of(thing: DavObject) -> str:
    if not thing.data:
        thing.load()  # some servers answer a search without the objects
    return str(thing.data)


def _leadsman_error(error: Exception, what: str, ca: str | None) -> LeadsmanError:
    text = f"{what}: {describe(error)}"
    match error:
        case errors.RateLimitError():
            seconds = error.retry_after_seconds
            pause = None if seconds is None else min(max(0.0, float(seconds)), MAX_PAUSE_SECONDS)  # 0 for NaN
            return RetryRequested(pause, f"{what}: the server asks for a pause")
        case errors.AuthorizationError():
            return PermanentError(f"{what}: the server refuses; check username, password or token")
        case errors.NotFoundError():
            return PermanentError(f"{what}: there is nothing at this address; check url and calendar")
        case niquests.exceptions.SSLError():
            advice = "give the authority's certificate as ca=" if ca is None else f"is its authority in {ca!r}?"
            return PermanentError(f"{what}: {describe(error)}; {advice}")
        case niquests.exceptions.Timeout():
            return DeviceTimeout(f"{what}: no answer in time")
        case niquests.exceptions.RequestException() | OSError():
            return DeviceUnavailable(text)
        case TypeError() | etree.XMLSyntaxError() | errors.ResponseError():
            return GarbledData(f"{what}: the reply is {_WEB_PAGE}")
        case errors.DAVError():
            return DeviceUnavailable(text)
    return GarbledData(f"{what}: {type(error).__name__}: {describe(error)}")
