"""The long responses of the HTTP endpoint: documents that are made in slices, and streams of happenings. Each is an
ASGI application."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from leadsman.introspection.happenings import HappeningsWatcher
from leadsman.introspection.service import Service
from leadsman.loop.slices import Slices, Work
from leadsman.mqtt.topics import encode

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

SENDING = 60.0
"""Seconds in which a client must take an answer that is made in slices. A few clients that read slowly would otherwise
keep all others from large answers for minutes."""
BEAT = 5.0
"""Seconds between two signs of life in a stream."""
GATHERING = 0.05
"""Seconds between two messages of a stream: what happens meanwhile is sent together."""
RETRY = 2000
"""Milliseconds after which a browser connects again, when a stream has ended."""


class SlicedText(Protocol):
    """A text that is made in slices."""

    def end(self) -> list[bytes]:
        """Its pieces."""
        ...


class MetricsText(SlicedText, Protocol):
    """The text for Prometheus; see `leadsman.http.metrics`."""

    def write(self) -> Work:
        """Write it, in slices."""
        ...


class SlicedResponse:
    """A response that is made in slices, and sent in pieces."""

    def __init__(self, service: Service, slices: Slices, text: SlicedText, work: Work, media_type: str) -> None:
        self._service = service
        self._slices = slices
        self._text = text
        self._work = work
        self._media_type = media_type

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
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


class HappeningsStream:
    """A stream of happenings, as server-sent events. It ends when the client or the app does, and when the client takes
    them too slowly."""

    def __init__(self, watcher: HappeningsWatcher, beat: Callable[[], bytes]) -> None:
        self._watcher = watcher
        self._beat = beat

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
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

    async def _send_all(self, send: "Send") -> None:
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
