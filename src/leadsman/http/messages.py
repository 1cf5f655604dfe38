"""The messages of the HTTP endpoint: requests, and who answers which; and responses: short ones, documents that are
made in slices, and streams of happenings. As much of ASGI as that needs.

ASGI (asgi.readthedocs.io, HTTP connection scope) has a request as a mapping, and a body as messages. The paths have at
most one part that varies, the name of a device.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import parse_qsl

from leadsman.introspection.happenings import Watcher
from leadsman.introspection.service import Service
from leadsman.loop.slices import Slices, Work
from leadsman.mqtt.topics import encode

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
"""As ASGI defines them."""

NOT_MODIFIED = 304
"""The status of a response without a body: what the client has is current (RFC 9110 §15.4.5)."""
SENDING = 60.0
"""Seconds in which a client must take an answer that is made in slices. A few clients that read slowly would otherwise
keep all others from large answers for minutes."""
BEAT = 5.0
"""Seconds between two signs of life in a stream."""
GATHERING = 0.05
"""Seconds between two messages of a stream: what happens meanwhile is sent together."""
RETRY = 2000
"""Milliseconds after which a browser connects again, when a stream has ended."""


class Reply:
    """A response in one piece.

    Args:
        body: its body.
        status: its status.
        headers: its headers, in lower case, besides those that follow from the body.
        media_type: the type of the body; empty if there is none.
    """

    def __init__(
        self, body: bytes = b"", status: int = 200, headers: Mapping[str, str] | None = None, media_type: str = ""
    ) -> None:
        self._body = body
        self._status = status
        self._headers = dict(headers or {})
        if status != NOT_MODIFIED:
            self._headers["content-length"] = str(len(body))
        if media_type:
            self._headers["content-type"] = f"{media_type}; charset=utf-8" if media_type[:5] == "text/" else media_type

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in self._headers.items()]
        await send({"type": "http.response.start", "status": self._status, "headers": headers})
        await send({"type": "http.response.body", "body": self._body})


class Text(Protocol):
    """A text that is made in slices."""

    def end(self) -> list[bytes]:
        """Its pieces."""
        ...


class Exposition(Text, Protocol):
    """The text for Prometheus; see `leadsman.http.metrics`."""

    def write(self) -> Work:
        """Write it, in slices."""
        ...


class Made:
    """A response that is made in slices, and sent in pieces."""

    def __init__(self, service: Service, slices: Slices, text: Text, work: Work, media_type: str) -> None:
        self._service = service
        self._slices = slices
        self._text = text
        self._work = work
        self._media_type = media_type

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._service.under_way():
            pieces = await self._pieces()
            length = sum(map(len, pieces))
            headers = [(b"content-type", self._media_type.encode()), (b"content-length", str(length).encode())]
            headers.append((b"cache-control", b"no-store"))
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            try:
                async with asyncio.timeout(SENDING):
                    for piece in pieces:
                        await send({"type": "http.response.body", "body": piece, "more_body": True})
                        await asyncio.sleep(0)  # the socket may take all of them in one turn of the loop
            except TimeoutError:
                return  # the server ends a connection whose answer is not complete
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _pieces(self) -> list[bytes]:
        made: asyncio.Future[list[bytes]] = asyncio.get_running_loop().create_future()

        def work() -> Work:
            try:
                yield from self._work
                pieces = self._text.end()
            except Exception as error:
                if not made.done():
                    made.set_exception(error)
            else:
                if not made.done():
                    made.set_result(pieces)

        self._slices.begin("an answer over HTTP", work())
        return await made


class Stream:
    """A stream of happenings, as server-sent events. It ends when the client or the app does, and when the client takes
    them too slowly."""

    def __init__(self, watcher: Watcher, beat: Callable[[], bytes]) -> None:
        self._watcher = watcher
        self._beat = beat

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def until_disconnected() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            self._watcher.close()

        listening = asyncio.get_running_loop().create_task(until_disconnected())
        try:
            headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await self._send_all(send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._watcher.close()
            listening.cancel()

    async def _send_all(self, send: Send) -> None:
        watcher = self._watcher
        first = b"data: %b\n\n" % encode({"type": "reset"}) if watcher.reset else b""
        text = b"retry: %d\n\n%bid: %d\ndata: %b\n\n" % (RETRY, first, watcher.last, self._beat())
        beat_at = asyncio.get_running_loop().time() + BEAT
        while True:
            await send({"type": "http.response.body", "body": text, "more_body": True})
            await asyncio.sleep(GATHERING)
            now = asyncio.get_running_loop().time()
            entries = await watcher.take(max(0.0, beat_at - now))
            if entries is None:
                return
            text = b"".join(b"id: %d\ndata: %b\n\n" % entry for entry in entries)
            if asyncio.get_running_loop().time() >= beat_at or not entries:
                text += b"data: %b\n\n" % self._beat()
                beat_at = asyncio.get_running_loop().time() + BEAT


Answer = Callable[[Scope, Receive, Send], Awaitable[None]]
"""Sends a response, as an ASGI application does."""
DEVICE = "{device}"
"""Stands in a path for the name of a device."""


class HttpError(Exception):
    """A request is answered with a problem. The message says why.

    Attributes:
        status: the status of the response.
        headers: headers of the response.
    """

    def __init__(self, status: int, detail: str = "", headers: Mapping[str, str] | None = None) -> None:
        self.status = status
        self.headers = dict(headers or {})
        super().__init__(detail or HTTPStatus(status).phrase)


class DisconnectedError(Exception):
    """The client went before its request was complete. Nobody waits for an answer."""


class Request:
    """One request.

    Args:
        scope: what ASGI says of it.
        receive: gives the messages of its body.
        device: the name in its path; empty if the path has none.
    """

    def __init__(self, scope: Scope, receive: Receive, device: str) -> None:
        self._scope = scope
        self._receive = receive
        self.device = device
        self.method: str = scope["method"]
        self.path: str = scope["path"]

    @property
    def client(self) -> str:
        """The address that it came from; ``HTTP`` over a unix socket."""
        client = self._scope.get("client")
        return "HTTP" if not client else str(client[0])

    @property
    def query(self) -> list[tuple[str, str]]:
        """The names and values of its query, in their order."""
        return parse_qsl(self._scope["query_string"].decode("latin-1"), keep_blank_values=True)

    def header(self, name: str) -> str | None:
        """See `header_of`."""
        return header_of(self._scope, name)

    async def body(self, most: int) -> bytes:
        """Its body.

        Raises:
            HttpError: it has more than `most` bytes.
            DisconnectedError: the client went.
        """
        body = bytearray()
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise DisconnectedError
            body += message.get("body", b"")
            if len(body) > most:
                raise HttpError(413, f"a body may have {most} bytes")
            if not message.get("more_body", False):
                return bytes(body)


Handler = Callable[[Request], Awaitable[Answer]]
"""Answers the requests of one path."""


class Routes:
    """Finds who answers a request.

    Args:
        gets, posts: the handlers of GET and of POST, by their paths. Who answers GET answers HEAD too, whose body the
            server leaves out. A path may have `DEVICE` as one of its levels.
    """

    def __init__(self, gets: Mapping[str, Handler], posts: Mapping[str, Handler]) -> None:
        self.paths = {path: {"GET", "HEAD"} for path in gets} | {path: {"POST"} for path in posts}
        """The methods of each path."""
        handlers = {**gets, **posts}
        self._patterns = [(_pattern(path), methods, handlers[path]) for path, methods in self.paths.items()]

    def find(self, method: str, path: str) -> tuple[Handler, str]:
        """The handler, and the name of the device in the path.

        Raises:
            HttpError: nothing is at this path, or the method is another one.
        """
        for pattern, methods, handler in self._patterns:
            if (match := pattern.fullmatch(path)) is not None:
                if method not in methods:
                    raise HttpError(405, headers={"allow": ", ".join(sorted(methods))})
                return handler, "".join(match.groups())
        raise HttpError(404)


def _pattern(path: str) -> re.Pattern[str]:
    return re.compile("([^/]+)".join(map(re.escape, path.split(DEVICE))))


def header_of(scope: Scope, name: str) -> str | None:
    """A header of a request, the first one of that name in lower case; None if there is none."""
    wanted = name.encode("latin-1")
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == wanted), None)
