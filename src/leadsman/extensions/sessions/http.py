"""The wire of an `HttpClient`: requests and replies. A URL at the client's own server is kept as its path and query."""

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, AsyncIterator
from urllib.parse import urlsplit, urlunsplit

from leadsman.adapters.http.client import SECRET_NAME
from leadsman.adapters.http.wire import HttpReply, HttpRequest, Wire
from leadsman.adapters.server import origin_of
from leadsman.core.text.redaction import HIDDEN, Secret
from leadsman.extensions.sessions.player import Lanes, Playing
from leadsman.extensions.sessions.recorder import WireLog
from leadsman.extensions.sessions.session import Event, error_of

_QUERY = re.compile(r"([?&])([^=&#]+)=([^&#]*)")
_WORDS = rb"passw|token|secret|api_?key|authorization|cookie|credential"
_IN_JSON = re.compile(rb"(?i)(\"[^\"\\]{0,40}(?:" + _WORDS + rb")[^\"\\]{0,40}\"\s*:\s*\")(?:[^\"\\]|\\.)*+(\")")
_IN_FORM = re.compile(rb"(?i)((?:^|&)[\w.-]{0,40}(?:" + _WORDS + rb")[\w.-]{0,40}=)[^&\s]+")
_SHORT_NAMES = frozenset({"appid", "pin", "sid", "sig", "pwd"})
"""Further names of secrets in a query."""


class _RecordedWire(Wire):
    """The wire of a client, which writes down what goes over it."""

    def __init__(self, log: WireLog, wire: Wire) -> None:
        self._log = log
        self._wire = wire

    @contextlib.asynccontextmanager
    async def send(self, request: HttpRequest) -> AsyncIterator[HttpReply]:
        # A compressed body can neither be read by people nor masked.
        request = request._replace(headers={**request.headers, "Accept-Encoding": "identity"})
        headers = {key: _show_header(key, value) for key, value in request.headers.items()}
        url = _QUERY.sub(_without_secret, _below(self._log.name, request.url))
        asked, body = {"method": request.method, "url": url, "headers": headers}, _hide(request.body or b"")
        async with contextlib.AsyncExitStack() as stack:
            with self._log.exchange("ask", body, **asked) as n:
                found = await stack.enter_async_context(self._wire.send(request))
            headers = {key: _show_header(key, value) for key, value in found.headers.items()}
            self._log.answer(n, "answered", status=found.status, headers=headers)
            pieces = await stack.enter_async_context(contextlib.aclosing(self._pieces(n, found)))
            yield found._replace(pieces=pieces)

    async def _pieces(self, n: int, found: HttpReply) -> AsyncGenerator[bytes, None]:
        body, ended, failure = bytearray(), False, None
        try:
            async for piece in found.pieces:
                body += piece
                yield piece
            ended = True
        except Exception as error:
            failure = error
            raise
        finally:
            self._log.answer(n, "body", _hide(bytes(body)), ended=ended)
            if failure is not None:
                self._log.fail(n, failure)

    async def close(self) -> None:
        await self._wire.close()


class _PlayedWire(Wire):
    """A wire with recorded replies."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes

    @contextlib.asynccontextmanager
    async def send(self, request: HttpRequest) -> AsyncIterator[HttpReply]:
        url = _below(self._lanes.name, request.url)
        exchange = self._lanes.next_exchange("ask", request.body or b"", method=request.method, url=url)
        later: asyncio.Queue[Event] = asyncio.Queue()
        playing = Playing(lambda event: later.put_nowait(event) if event.what in ("body", "failed") else None)
        try:
            found = (await playing.reply(exchange, "answered")).more
            yield HttpReply(found["status"], found["headers"], _pieces(later))
        finally:
            playing.end()

    async def close(self) -> None:
        pass


async def _pieces(later: asyncio.Queue[Event]) -> AsyncIterator[bytes]:
    """The body. If it did not end, the app gave up, and does so again."""
    while True:
        event = await later.get()
        if event.what == "failed":
            raise error_of(event.more)
        yield event.data or b""
        if event.more["ended"]:
            return


def _below(name: str, url: str) -> str:
    """The path and the query of a URL at the server that a client is for; any other URL whole."""
    if not name or origin_of(name) != origin_of(url):
        return url
    return urlunsplit(("", "", *urlsplit(url)[2:])) or "/"


def _show_header(name: str, value: str) -> str:
    """The value of a header, as it is written."""
    if name == "location":
        return _QUERY.sub(_without_secret, value)
    if name == "www-authenticate":  # a challenge, and no answer to it
        return value
    return HIDDEN if isinstance(value, Secret) or SECRET_NAME.search(name) else value


def _hide(content: bytes) -> bytes:
    """Content without what a log-in sends and gets."""
    return _IN_FORM.sub(rb"\1***", _IN_JSON.sub(rb"\1***\2", content))


def _without_secret(found: re.Match[str]) -> str:
    hidden = SECRET_NAME.search(found[2]) or found[2].lower() in _SHORT_NAMES
    return f"{found[1]}{found[2]}={HIDDEN}" if hidden else found[0]


RECORDED, PLAYED = {"http": _RecordedWire}, {"http": _PlayedWire}
