"""The HTTP adapter: reads devices and services that answer over HTTP or HTTPS, with one pool of connections.

A call is one chain of requests with one deadline. What the server does wrong becomes an error of leadsman, whose class
decides whether a retry may help. Only the framework retries.
"""

import asyncio
import base64
import contextlib
import json as json_
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, get_args, overload
from urllib.parse import unquote, urlencode, urlsplit, urlunsplit

from leadsman._version import __version__
from leadsman.adapters.http.answer import (
    ACCEPTED,
    REDIRECTS,
    AnswerTooLong,
    Body,
    HttpAnswer,
    HttpRefused,
    next_hop,
    status_error,
)
from leadsman.adapters.http.wire import HttpReply, HttpRequest, Login, RequestLine, Wire
from leadsman.adapters.server import check_url, display_url, is_url, origin_of, secret_in
from leadsman.core.adapters.resource import Resource
from leadsman.core.adapters.wires import wire_of
from leadsman.core.loop.clock import system_clock
from leadsman.core.loop.durations import Duration, human, positive_seconds
from leadsman.core.resilience.failure import RetryRequested
from leadsman.core.text import clean, describe
from leadsman.core.text.redaction import Secret, SecretValue, is_secret_value, reveal, secret_or_none
from leadsman.errors import (
    DeviceTimeout,
    DeviceUnavailable,
    GarbledData,
    InvalidType,
    InvalidValue,
    LeadsmanError,
    PermanentError,
)

MAX_ANSWER_BYTES = 1024 * 1024
"""Of one answer, unpacked, unless ``most_bytes=`` names another number."""
MAX_LIMIT_BYTES = 64 * 1024 * 1024
"""Bytes that ``most_bytes=`` may allow."""
MAX_ERROR_BYTES = 2048
"""Bytes that are read of an answer whose status is an error."""
CONDITIONS = frozenset({"if-none-match", "if-modified-since"})
"""Headers of a request to which 304 is an answer (RFC 9110 §13.1)."""
CLOSING = 3.0
"""The longest time in seconds to close all connections."""
EXAMPLE = "http://inverter.lan"
Authentication = Literal["basic", "digest"]
SECRET_NAME = re.compile(r"(?i)key|token|auth|secret|cookie|pass")
"""Names of headers whose values are hidden."""
SILENT = "the server accepted the request and did not answer"

_T = TypeVar("_T")


class _Progress:
    """How far a call got, for the message of its timeout."""

    def __init__(self, place: RequestLine) -> None:
        self.place = place
        self.text = "the answer did not come"

    def connecting(self, begun: bool) -> None:
        """A connection is made from now on, or stands."""
        _, host, port = origin_of(self.place.url)
        self.text = f"no connection to {clean(host)}:{port}" if begun else SILENT


class HttpClient:
    """A pool of connections to one server, or to many devices.

    With a `url`, paths lie below it, and only its server gets the credentials. Without one, each call names a whole
    URL, and each server that a call names gets the credentials. They never follow a redirect to another server.

    Cookies and the proxies of the environment are not used.

    Args:
        url: the server, and the beginning of all paths: ``http://inverter.lan`` or ``https://api.example/v1?key=…``.
            Its query is sent with each request.
        username: the name of the account; it may also stand in the URL.
        password: text or a `SecretStr`. A `Path` is a file that holds it, read when it is first needed, and again
            after the server refused it.
        token: a bearer token instead of username and password; the same types.
        auth: how the password is sent: ``"basic"`` or ``"digest"`` (RFC 7616).
        headers: names and values that go to the servers that get the credentials, such as an API key; a value may be
            a `SecretStr`.
        ca: a file with the certificate of the authority, or of the device itself, if that is not a public one.
        timeout: for one call with all that belongs to it: the wait for a free connection, redirects, and the body. A
            connection must stand after half of it.
        most_bytes: of one answer, unpacked; 1 to `MAX_LIMIT_BYTES`.
        most_connections: how many requests are under way at most; others wait. About as many connections are kept
            for the next request.
        retry_tokens: see `leadsman.core.adapters.adapter.LimitsRetries`.

    Raises:
        InvalidValue, InvalidType: at construction.
    """

    def __init__(
        self,
        url: str | SecretValue | None = None,
        username: str | None = None,
        password: str | SecretValue | Path | None = None,
        *,
        token: str | SecretValue | Path | None = None,
        auth: Authentication = "basic",
        headers: Mapping[str, str | SecretValue] | None = None,
        ca: str | Path | None = None,
        timeout: Duration = 10.0,
        most_bytes: int = MAX_ANSWER_BYTES,
        most_connections: int = 100,
        retry_tokens: int | None = None,
    ) -> None:
        self.retry_tokens = retry_tokens
        self._base = None if url is None else check_url(url, EXAMPLE)
        self._url = "" if self._base is None else display_url(self._base)
        self._timeout = positive_seconds(timeout, "timeout")
        self._most_bytes = _check_number("most_bytes", most_bytes, MAX_LIMIT_BYTES)
        self._most_connections = _check_number("most_connections", most_connections, 10_000)
        self._ca = ca
        self._headers = _check_headers(headers or {})
        if auth not in get_args(Authentication):
            raise InvalidValue(f'auth is {auth!r}; it must be "basic" or "digest"')
        self._kind: Literal["basic", "digest", "bearer"] = auth if token is None else "bearer"
        self._username, self._secret = self._account(username, password, token)
        self._credentials: Login | None = None
        self._wire: Wire | None = None
        self._slots = asyncio.Semaphore(self._most_connections)
        self._under_way = self._requests = 0

    def _account(
        self, username: str | None, password: str | SecretValue | Path | None, token: str | SecretValue | Path | None
    ) -> tuple[str | None, Secret | Path | None]:
        if password is not None and token is not None:
            raise InvalidValue("password and token are both set; write only one of them")
        name, secret = username, password if token is None else token
        if self._base is not None and (parts := urlsplit(str(self._base))).username is not None:
            if username is not None or secret is not None:
                raise InvalidValue(
                    "url has an account, and username, password or token are set as well; write only one of them"
                )
            name, secret = unquote(parts.username or ""), unquote(parts.password or "")
        _check_text("username", name)
        if name is not None and (":" in name or not name.isprintable()):
            raise InvalidValue("username has a colon or a control character, which HTTP cannot send")
        if token is None and (name is None) != (secret is None):
            raise InvalidValue("only one of username and password is set; write both or neither")
        if token is not None and name is not None:
            raise InvalidValue("username and token are both set; write only one of them")
        if token is not None and not isinstance(token, Path) and not str(reveal(token)).isprintable():
            raise InvalidValue("token has a control character, which HTTP cannot send")
        return name, secret if isinstance(secret, Path) else secret_or_none(
            "password" if token is None else "token", secret
        )

    def check_installed(self) -> None:
        """Raise `NotInstalled` if aiohttp is missing; else load it, before an event waits."""
        self._wire_class()

    def _wire_class(self) -> Callable[[str | Path | None, float, int], Wire]:
        from leadsman.adapters.http.aiohttp_wire import AiohttpWire  # an app that only names a client needs no library

        return AiohttpWire

    def _make_wire(self) -> Wire:
        return self._wire_class()(self._ca, self._timeout, self._most_connections)

    async def __aenter__(self) -> Self:
        """Open the pool. The first connection is opened when a handler asks."""
        self._slots = asyncio.Semaphore(self._most_connections)
        self._wire = wire_of("http", self._url, self._make_wire)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Close all connections. Calls that are under way fail. The adapter may be entered again."""
        wire, self._wire = self._wire, None
        self._credentials = None
        if wire is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSING):
                    await wire.close()

    @property
    def resource(self) -> Resource:
        """For ``leadsman doctor``: the server; without a name where each call names its own."""
        return Resource("http", self._url, None if self._base is None else self._log_in)

    async def _log_in(self) -> None:
        async with self:
            try:
                await self.request("GET")
            except HttpRefused as refused:
                if refused.status in (401, 403, 407):
                    raise
            except (RetryRequested, AnswerTooLong):  # it answers, and nobody wants this answer
                pass

    @property
    def health(self) -> Mapping[str, object]:
        """For introspection: the server's address, how many requests were sent since the start (one that a digest needs
        to be asked for is not counted), and how many calls are under way."""
        return {
            "url": self._url or None,
            "requests": self._requests,
            "under_way": self._under_way,
        }

    @overload
    async def get_json(self, path: str = "", *, params: Mapping[str, object] | None = None) -> Any: ...

    @overload
    async def get_json(self, path: str, kind: type[_T], *, params: Mapping[str, object] | None = None) -> _T: ...

    async def get_json(self, path: str = "", kind: Any = None, *, params: Mapping[str, object] | None = None) -> Any:
        """Read JSON.

        Args:
            path: below the URL, such as ``/status``; or a whole URL.
            kind: a model of pydantic, or any other type, that the JSON must fit. None: anything.
            params: parameters of the query. A value of None leaves its name out; a list is joined by commas.

        Raises:
            DeviceTimeout, DeviceUnavailable, HttpUnavailable, GarbledData: a retry may help.
            PermanentError: the address, the certificate, a redirect, the size, or the shape is wrong.
            HttpRefused: the server refuses: 401, 403, 404, and each other status that is not named here.
            RetryRequested: the server asks for a pause.
            InvalidValue: the path is no path, and no URL.
        """
        answer = await self.request("GET", path, params=params)
        return answer.json() if kind is None else answer.json(kind)

    async def get_text(self, path: str = "", *, params: Mapping[str, object] | None = None) -> str:
        """Read text, also a web page. Arguments and exceptions as for `get_json`."""
        return (await self.request("GET", path, params=params)).text()

    async def request(
        self,
        method: str,
        path: str = "",
        *,
        params: Mapping[str, object] | None = None,
        json: object = None,
        data: bytes | None = None,
        headers: Mapping[str, str | SecretValue] | None = None,
    ) -> HttpAnswer:
        """Send a request and return the answer. Only GET and HEAD follow redirects.

        Args:
            method: ``GET``, ``POST``, ``PUT``, …
            path: as for `get_json`.
            params: as for `get_json`.
            json: a body that is sent as JSON.
            data: a body that is sent as it is, instead of `json`.
            headers: sent with this request only, to its server. To ``If-None-Match`` or ``If-Modified-Since``, a
                status of 304 is an answer, without content.

        Raises:
            DeviceTimeout, DeviceUnavailable, HttpUnavailable, GarbledData: as `get_json`.
            HttpRefused, PermanentError, RetryRequested, InvalidValue: as `get_json`.
        """
        _check_text("method", method)
        _check_text("path", path)
        if not (method.isalpha() and method.isascii()):
            raise InvalidValue(f"method is {method!r}; write one such as 'GET'")
        url, own = self._url_of(path, params), _check_headers(headers or {})
        body = data
        if json is not None:
            if data is not None:
                raise InvalidValue("json and data: write one of them")
            try:
                body = json_.dumps(json, allow_nan=False).encode()
            except (ValueError, TypeError, RecursionError) as error:  # NaN, an object, a list that has itself
                raise InvalidValue(f"json cannot be sent: {describe(error)}") from error
            own = {"Content-Type": "application/json", **own}
        elif data is not None and not isinstance(data, bytes):
            raise InvalidType(f"data has the type {type(data).__name__}; write bytes")
        progress = _Progress(RequestLine(method.upper(), url))
        try:
            async with asyncio.timeout(self._timeout):
                return await self._follow(method.upper(), url, own, body, progress)
        except TimeoutError as error:
            if isinstance(error, LeadsmanError):
                raise
            raise DeviceTimeout(f"{progress.place}: {progress.text} within {human(self._timeout)}") from error

    async def _follow(
        self, method: str, url: str, own: Mapping[str, str], body: bytes | None, progress: _Progress
    ) -> HttpAnswer:
        """Send a request, and follow its redirects."""
        credentials = await self._read_credentials(progress.place) if self._trusts(url) else None
        given = dict(self._headers) if self._trusts(url) else {}
        headers = {"User-Agent": f"leadsman/{__version__}", "Accept-Encoding": ACCEPTED, **given, **own}
        if credentials is not None and self._kind != "digest":
            headers["Authorization"] = _authorization(self._kind, credentials)
        digest = credentials if self._kind == "digest" else None
        with_credentials = credentials is not None or bool(given or own)
        visited = [url]
        while True:
            request = HttpRequest(method, visited[-1], headers, body, digest, progress.connecting)
            answer = await self._exchange(request, progress)
            if isinstance(answer, HttpAnswer):
                return answer
            visited.append(next_hop(method, visited, answer, with_credentials=with_credentials))
            progress.place = RequestLine(method, visited[-1])

    async def _exchange(self, request: HttpRequest, progress: _Progress) -> HttpAnswer | str:
        """Send one request. Returns the answer, or where it is redirected."""
        progress.text = f"none of {self._most_connections} connections was free"
        async with self._slots:
            if (wire := self._wire) is None:
                raise DeviceUnavailable(f"{progress.place}: the client is closed")
            progress.text = SILENT
            self._requests += 1
            self._under_way += 1
            try:
                async with wire.send(request) as reply:
                    return await self._read(request, reply, progress)
            finally:
                self._under_way -= 1

    async def _read(self, request: HttpRequest, reply: HttpReply, progress: _Progress) -> HttpAnswer | str:
        """Read what follows the headers of a reply."""
        place, status = progress.place, reply.status
        if status in REDIRECTS and "location" in reply.headers:
            return reply.headers["location"]
        if status == 304 and not CONDITIONS.isdisjoint(map(str.lower, request.headers)):
            return HttpAnswer(status, reply.headers, b"", place)
        if not 200 <= status <= 299:
            if status == 401:
                self._credentials = None  # a file may have another password by now
            progress.text = f"the server answered with status {status}, and the answer did not end"
            start = await _start_of(reply)
            raise status_error(status, reply.headers, start, place, self._auth_scheme(request), self._wall())
        try:
            content = await _content_of(request.method, reply, self._most_bytes, progress)
        except (AnswerTooLong, GarbledData, PermanentError) as error:
            raise type(error)(f"{place}: {error}") from error
        return HttpAnswer(status, reply.headers, content, place)

    def _auth_scheme(self, request: HttpRequest) -> str | None:
        if request.digest is not None or "Authorization" in request.headers:
            return self._kind
        return None

    def _trusts(self, url: str) -> bool:
        """Whether the server of a URL gets the credentials."""
        return self._base is None or origin_of(url) == origin_of(self._base)

    async def _read_credentials(self, place: RequestLine) -> Login | None:
        if self._secret is None or self._credentials is not None:
            return self._credentials
        secret = self._secret
        if isinstance(secret, Path):
            try:
                secret = await asyncio.to_thread(secret_in, secret)
            except (OSError, ValueError) as error:
                raise PermanentError(f"{place}: the file of the password cannot be read: {describe(error)}") from error
            if not secret.isprintable():
                raise PermanentError(f"{place}: the password in {self._secret} has a control character")
        self._credentials = Login(self._username or "", secret)
        return self._credentials

    def _url_of(self, path: str, params: Mapping[str, object] | None) -> str:
        if not path.isprintable():
            raise InvalidValue(f"path is {path!r}; write one such as '/status', or a whole URL")
        if params is not None and not isinstance(params, Mapping):
            raise InvalidType(f"params has the type {type(params).__name__}; write a dict of names and values")
        try:
            query = urlencode({name: _query_text(value) for name, value in (params or {}).items() if value is not None})
        except UnicodeEncodeError as error:
            raise InvalidValue(f"params cannot be sent: {describe(error)}") from error
        if is_url(path):
            if urlsplit(path).username is not None:
                raise InvalidValue(f"the URL {display_url(path)} contains an account; pass it to HttpClient")
            parts = urlsplit(path)
        elif self._base is None or "://" in path.partition("?")[0]:
            raise InvalidValue(
                f"path is {clean(repr(path.partition('?')[0]))}; write a whole URL such as {EXAMPLE + '/status'!r}"
            )
        else:
            base, (way, _, asked) = urlsplit(str(self._base)), path.partition("?")
            joined = f"{base.path.rstrip('/')}/{way.lstrip('/')}" if way else base.path or "/"
            parts = base._replace(
                netloc=base.netloc.rpartition("@")[2], path=joined, query="&".join(filter(None, (base.query, asked)))
            )
        return urlunsplit(parts._replace(query="&".join(filter(None, (parts.query, query))), fragment=""))

    def _wall(self) -> float:
        return system_clock(asyncio.get_running_loop()).wall()


def _authorization(kind: str, login: Login) -> str:
    """The header ``Authorization``. That of a digest is made when the server has answered."""
    if kind == "bearer":
        return f"Bearer {login.password}"
    return "Basic " + base64.b64encode(f"{login.username}:{login.password}".encode()).decode()


async def _content_of(method: str, reply: HttpReply, most: int, progress: _Progress) -> bytes:
    """The whole content of a reply, unpacked."""
    if method == "HEAD":
        return b""
    body = Body(reply.headers.get("content-encoding", ""), most)
    async for piece in reply.pieces:
        body.feed(piece)
        progress.text = f"the answer began and did not end, with {len(body):,} bytes,"
    return body.finish()


async def _start_of(reply: HttpReply) -> bytes:
    """The beginning of the content of an error, as far as it can be read."""
    with contextlib.suppress(LeadsmanError):
        body = Body(reply.headers.get("content-encoding", ""), MAX_ERROR_BYTES)
        try:
            async for piece in reply.pieces:
                body.feed(piece)
                if len(body) >= MAX_ERROR_BYTES:
                    break
        except AnswerTooLong:
            pass
        return body.content
    return b""


def _check_text(name: str, value: object) -> None:
    if value is not None and not isinstance(value, str):
        raise InvalidType(f"{name} has the type {type(value).__name__}; write text")


def _check_number(name: str, value: int, most: int) -> int:
    if type(value) is not int or not 1 <= value <= most:
        raise InvalidValue(f"{name} is {value!r}; it must be 1 to {most:,}")
    return value


def _check_headers(headers: Mapping[str, str | SecretValue]) -> dict[str, str]:
    if not hasattr(headers, "items"):
        raise InvalidType(f"headers has the type {type(headers).__name__}; write a dict of names and values")
    found: dict[str, str] = {}
    for name, value in headers.items():
        _check_text("a name in headers", name)
        if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
            raise InvalidValue(f"headers has the name {name!r}; write one such as 'X-Api-Key'")
        _check_text(f"headers[{name!r}]", reveal(value))
        text = str(reveal(value))
        if is_secret_value(value) or SECRET_NAME.search(name):
            text = Secret(text)
        if not text or not text.isprintable():
            raise InvalidValue(f"headers[{name!r}] is empty or has a control character, which HTTP cannot send")
        found[name] = text
    return found


def _query_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(map(_query_text, value))
    return str(value)
