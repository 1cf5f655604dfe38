"""The server of the HTTP endpoint: connections, their limits and their ends. Only this file imports uvicorn.

uvicorn runs as a task of the app's loop. It gets a socket that is bound already, installs no signal handlers, and does
not touch the configuration of the log. What uvicorn has no limit for is limited here: the time in which a request must
arrive, the time in which an answer must be taken, and the number of connections.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Iterator

from leadsman.errors import missing

try:
    import h11
    from uvicorn import Config
    from uvicorn import Server as UvicornServer
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ImportError as error:
    raise missing("HTTP endpoints", "uvicorn", "http") from error

MAX_CONNECTIONS = 64
"""Connections at the same time. One more ends the one that has waited longest for its request."""
MAX_REQUESTS = 128
"""Requests at the same time, those included whose client has gone."""
MAX_HEAD_BYTES = 16 * 1024
"""Bytes of the request line and the headers, if they arrive in several pieces."""
HEAD_TIMEOUT = 10.0
"""Seconds in which the head of a request must arrive."""
IDLE_TIMEOUT = 15
"""Seconds that a connection without a request is kept."""
WRITE_TIMEOUT = 10.0
"""Seconds in which a client must take the content of our buffer, if that is full."""
BACKLOG = 32
"""Connections that are accepted in one turn of the loop."""

_SILENT_LOGGER = logging.Logger("uvicorn", logging.CRITICAL + 1)
"""Messages of uvicorn about a single connection: anyone could fill the log with it."""


async def serve(application: Callable[..., Awaitable[None]], listener: socket.socket) -> None:
    """Serve a bound socket until cancelled. All connections end then, whatever they do; the socket is closed.

    Args:
        application: an ASGI application.
        listener: the socket.
    """
    config = Config(
        application,
        http=BoundedConnection,
        ws="none",
        lifespan="off",
        log_config=None,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        limit_concurrency=MAX_REQUESTS,
        timeout_keep_alive=IDLE_TIMEOUT,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        backlog=BACKLOG,
    )
    server = Server(config)
    try:
        await server.serve([listener])
    finally:
        server.end()
        listener.close()


class Server(UvicornServer):
    """uvicorn's server, without its signal handlers, and with an end that waits for nobody."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to the app."""
        yield

    async def main_loop(self) -> None:
        """Wait for the end, which is a cancellation. uvicorn wakes up ten times a second to look for another one, and
        to make a date, which no answer has."""
        await asyncio.Event().wait()

    def end(self) -> None:
        """Accept no more connections, and end those that there are, with their requests, whatever they do."""
        for server in getattr(self, "servers", ()):  # none before the start
            server.close()
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        for request in list(self.server_state.tasks):
            request.cancel()


class _Requests(h11.Connection):
    """Reads requests, each with one length at most: with two, a proxy in between may see another end of the request
    than we do (RFC 9112 §6.1)."""

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """See `h11.Connection`. Raises `h11.RemoteProtocolError`."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = {name for name, _ in event.headers}
            if b"transfer-encoding" in names and (b"content-length" in names or event.http_version < b"1.1"):
                raise h11.RemoteProtocolError("two lengths")
        return event


class BoundedConnection(H11Protocol):
    """One connection, with deadlines."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        self.logger, self.access_log = _SILENT_LOGGER, False
        self.conn = _Requests(h11.SERVER, MAX_HEAD_BYTES)
        self._writing: asyncio.TimerHandle | None = None
        self.reading = self.loop.call_later(HEAD_TIMEOUT, self._too_slow)
        """Ends the connection unless a request arrives in time."""
        self.waiting_since = self.loop.time()
        """Since when the next request may come."""
        if len(self.connections) > MAX_CONNECTIONS:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        super().connection_lost(exc)
        self.reading.cancel()
        if self._writing is not None:
            self._writing.cancel()

    def on_response_complete(self) -> None:
        """See `H11Protocol`: a response is complete, so the next request may come."""
        self.reading.cancel()
        self.reading = self.loop.call_later(IDLE_TIMEOUT + HEAD_TIMEOUT, self._too_slow)
        self.waiting_since = self.loop.time()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`: the buffer is full."""
        super().pause_writing()
        self._writing = self.loop.call_later(WRITE_TIMEOUT, self.transport.abort)

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`: the client has emptied the buffer."""
        super().resume_writing()
        if self._writing is not None:
            self._writing.cancel()

    def send_400_response(self, msg: str) -> None:
        """See `H11Protocol`. A client that breaks the protocol in the middle of an answer gets no other one."""
        if self.is_waiting:
            super().send_400_response(msg)
        else:
            self.transport.abort()

    @property
    def is_waiting(self) -> bool:
        """Whether no request is being answered."""
        cycle: object = self.cycle  # uvicorn declares that it is never None
        return cycle is None or self.cycle.response_complete

    @property
    def may_make_room(self) -> bool:
        """Whether nothing is lost but a connection if this one ends."""
        return self.is_waiting and not self.transport.is_closing()

    def _too_slow(self) -> None:
        """The next request should have arrived by now."""
        if self.is_waiting:
            self.transport.abort()

    def _make_room(self) -> None:
        """There are too many connections: end the one that has waited longest for its request; or else this one. One
        that is ending already makes no room a second time: many connections may come in one turn of the loop."""
        waiting = [each for each in self.connections if isinstance(each, BoundedConnection) and each.may_make_room]
        oldest = min(waiting, key=lambda each: each.waiting_since, default=self)
        oldest.transport.abort()
