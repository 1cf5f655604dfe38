"""Sends requests with the library aiohttp, which only this file imports. Most errors name a remedy."""

import asyncio
import contextlib
import errno
import socket
import ssl
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace

from leadsman.adapters.http.wire import HttpReply, HttpRequest, Login
from leadsman.adapters.server import origin_of
from leadsman.core.loop.durations import human
from leadsman.core.text import clean, describe
from leadsman.core.tls import client_context
from leadsman.errors import (
    DeviceTimeout,
    DeviceUnavailable,
    GarbledData,
    InvalidValue,
    LeadsmanError,
    PermanentError,
    missing,
)

try:
    import aiohttp
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace
    from yarl import URL
except ImportError as error:
    raise missing("devices over HTTP", "aiohttp", "http-client") from error

KEEP = 5.0
"""Seconds that a connection is kept for the next request. A poll often sends several; small devices have few
connections, which others want."""
GOODBYE = 0.5
"""Seconds that the end of TLS may take, if the server does not answer it."""
MAX_LOGINS = 10_000
"""Servers whose digests are remembered."""


class _Connector(aiohttp.TCPConnector):
    """Opens connections, and keeps about `most` of them. That of aiohttp keeps any number, each to another device."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._sockets: set[socket.socket] = set()
        with warnings.catch_warnings():  # asyncio waits 30 s for a silent server, and aiohttp 4 will do so again
            warnings.simplefilter("ignore", DeprecationWarning)
            super().__init__(
                limit=0, keepalive_timeout=KEEP, ssl_shutdown_timeout=GOODBYE, socket_factory=self._new_socket
            )

    def count(self) -> int:
        """How many connections are open."""
        self._sockets = {each for each in self._sockets if each.fileno() >= 0}
        return len(self._sockets)

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> Connection:
        """A connection, which ends with its request if too many are open."""
        connection = await super().connect(req, traces, timeout)
        if len(self._sockets) > self._most and self.count() > self._most and connection.protocol is not None:
            connection.protocol.force_close()
        return connection

    def _new_socket(self, info: aiohttp.AddrInfoType) -> socket.socket:
        made = socket.socket(*info[:3])
        self._sockets.add(made)
        return made


class AiohttpWire:
    """A pool of connections.

    Args:
        ca: a file with certificates that are trusted instead of the public ones.
        timeout: for a call, in seconds. A connection must stand after half of it.
        most_connections: how many are kept for the next request.
    """

    def __init__(self, ca: str | Path | None, timeout: float, most_connections: int) -> None:
        self._ca = ca
        self._patience = timeout / 2
        self._trust: ssl.SSLContext | None = None
        self._digests: dict[tuple[object, ...], aiohttp.DigestAuthMiddleware] = {}
        self._connector = _Connector(most_connections)
        self._session = aiohttp.ClientSession(
            connector=self._connector,
            auto_decompress=False,  # which would unpack whatever comes; `Body` has a limit
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, connect=self._patience),
            skip_auto_headers=("User-Agent", "Accept-Encoding"),
            trace_configs=[_trace_connections()],
        )

    @contextlib.asynccontextmanager
    async def send(self, request: HttpRequest) -> AsyncIterator[HttpReply]:
        """Send a request; see `leadsman.adapters.http.wire.Wire`."""
        digests = () if request.digest is None else (self._digest(request.url, request.digest),)
        with self._translate_errors(request):
            trust = await self._load_trust(request) if origin_of(request.url)[0] == "https" else True
            async with self._session.request(
                request.method,
                URL(request.url),
                headers=request.headers,
                data=request.body,
                allow_redirects=False,
                middlewares=digests,
                ssl=trust,
                trace_request_ctx=request,
            ) as response:
                headers: dict[str, str] = {}
                for name, value in response.headers.items():
                    key = name.lower()
                    headers[key] = f"{headers[key]}, {value}" if key in headers else value
                async with contextlib.aclosing(self._pieces(response, request)) as pieces:
                    yield HttpReply(response.status, headers, pieces)

    async def _pieces(self, response: aiohttp.ClientResponse, request: HttpRequest) -> AsyncGenerator[bytes, None]:
        with self._translate_errors(request):
            async for piece in response.content.iter_any():
                yield piece

    async def close(self) -> None:
        """Close all connections, also those that were given up a moment ago."""
        await self._session.close()
        for _ in range(100):
            if not self._connector.count():
                break
            await asyncio.sleep(GOODBYE / 50)

    def _digest(self, url: str, login: Login) -> aiohttp.DigestAuthMiddleware:
        """Answers the challenges of one server."""
        key = (*origin_of(url), login)
        if key not in self._digests:
            if len(self._digests) >= MAX_LOGINS:
                self._digests.clear()
            self._digests[key] = aiohttp.DigestAuthMiddleware(login.username, login.password)
        return self._digests[key]

    async def _load_trust(self, request: HttpRequest) -> ssl.SSLContext:
        """Which certificates are trusted. Reading them blocks, on a small machine for more than a second."""
        if self._trust is None:
            request.connecting(True)
            try:
                self._trust = await asyncio.to_thread(client_context, self._ca)
            except (OSError, ValueError) as error:  # an ssl.SSLError is an OSError
                raise PermanentError(
                    f"ca is {str(self._ca)!r}, which cannot be read: {describe(error)}; name a file of certificates"
                    " in PEM"
                ) from error
        return self._trust

    @contextlib.contextmanager
    def _translate_errors(self, request: HttpRequest) -> Iterator[None]:
        try:
            yield
        except LeadsmanError:
            raise
        except (aiohttp.ClientError, OSError, ValueError, RuntimeError) as error:
            if isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ClientError):
                raise  # the deadline of the call
            raise _leadsman_error(error, request, self._patience, self._ca) from error


def _trace_connections() -> aiohttp.TraceConfig:
    """Tells a request when its connection begins and when it stands."""

    async def begin(session: aiohttp.ClientSession, context: SimpleNamespace, _: object) -> None:
        context.trace_request_ctx.connecting(True)

    async def end(session: aiohttp.ClientSession, context: SimpleNamespace, _: object) -> None:
        context.trace_request_ctx.connecting(False)

    traced = aiohttp.TraceConfig()
    traced.on_connection_create_start.append(begin)
    traced.on_connection_create_end.append(end)
    traced.on_connection_reuseconn.append(end)
    return traced


def _leadsman_error(error: Exception, request: HttpRequest, patience: float, ca: str | Path | None) -> LeadsmanError:
    place = request.place
    _, host, port = origin_of(request.url)
    at = f"{clean(host)}:{port}"
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return PermanentError(f"{place}: {_certificate_fault(error.certificate_error, host, ca)}")
        case aiohttp.ClientConnectorDNSError():
            return DeviceUnavailable(f"{place}: the name {clean(host)!r} is not known: check url, or the DNS server")
        case aiohttp.ClientConnectorSSLError() if not isinstance(error.os_error, ssl.SSLEOFError):
            return PermanentError(f"{place}: {_tls_fault(error.os_error, at)}")
        case aiohttp.ClientConnectorError() if error.os_error.errno == errno.ECONNREFUSED:
            return DeviceUnavailable(f"{place}: nothing listens at {at}; check that the device is on, and its port")
        case aiohttp.ClientConnectorError():
            return DeviceUnavailable(f"{place}: no connection to {at}: {describe(error.os_error)}")
        case aiohttp.ServerTimeoutError():
            return DeviceTimeout(
                f"{place}: no connection to {at} within {human(patience)}; check that the device is on, and its address"
            )
        case aiohttp.ServerDisconnectedError():
            return DeviceUnavailable(f"{place}: {at} closed the connection without an answer")
        case aiohttp.ClientPayloadError():
            return DeviceUnavailable(f"{place}: the answer broke off")
        case aiohttp.ClientResponseError():
            return GarbledData(f"{place}: {at} answers something else than HTTP: {clean(error.message)}")
        case aiohttp.InvalidURL():
            return InvalidValue(f"{place}: this is no URL")
        case aiohttp.ClientConnectionError() | OSError():
            return DeviceUnavailable(f"{place}: the connection to {at} ended: {describe(error)}")
        case RuntimeError():
            return DeviceUnavailable(f"{place}: the client is closed")
        case _ if request.digest is not None:
            return GarbledData(f"{place}: the digest that {at} asks for cannot be made: {describe(error)}")
    return InvalidValue(f"{place}: the request cannot be sent: {describe(error)}")


def _certificate_fault(error: Exception, host: str, ca: str | Path | None) -> str:
    unknown = "give the certificate of its authority, or its own, as ca="
    if ca is not None:
        unknown = f"its authority is not in {str(ca)!r}, the file of ca=: name the right one"
    why = getattr(error, "verify_message", "") or str(error)
    advice = {
        10: "the certificate has expired: renew it, or set the clock of this machine",
        9: "the certificate is not valid yet: set the clock of this machine",
        62: f"the certificate is not for {clean(host)!r}: write the name that it has",
        64: f"the certificate is not for {clean(host)!r}: write the name that it has",
    }.get(getattr(error, "verify_code", 0), unknown)
    return f"the certificate of the server is not accepted ({clean(why)}); {advice}"


def _tls_fault(error: OSError, at: str) -> str:
    reason = getattr(error, "reason", None) or str(error)
    if reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"):
        return f"{at} does not speak TLS; write http:// if that is meant"
    return f"no TLS with {at}: {clean(str(reason))}"
