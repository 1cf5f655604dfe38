"""A TCP proxy before a real server, that makes a bad network: far, slow, silent, damaged, cut.

It runs in a thread with an event loop of its own. Each connection has two lines, one per direction. A line keeps what
it is given in order, and many chunks are on it at once, as on a long cable. The proxy itself acknowledges what TCP
brings it, so a delay holds up the bytes, but not TCP's own acknowledgements.
"""

import asyncio
import contextlib
import enum
import random
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self, TypeVar

FULL = 1 << 20
"""Bytes on a line from which on its sender is not read any more; half of it, and it is read again."""
SEGMENT = 1460
"""Bytes: larger chunks are divided where the line has a rate; the payload of an Ethernet frame."""
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER on, for no time: closing the socket sends RST."""
T = TypeVar("T")


@dataclass
class Way:
    """What a direction does to bytes. The attributes may be changed at any time; they count for the bytes that come
    later."""

    delay: float = 0.0
    """Seconds from one end to the other."""
    rate: float | None = None
    """Bytes a second; None is as fast as it goes."""
    flip_every: int | None = None
    """The mean number of bytes from one byte with a flipped bit to the next; None flips none."""
    cut_every: int | None = None
    """The mean number of bytes after which the connection is reset, in the middle of what is sent; None never."""


@dataclass
class Done:
    """What was done to bytes and connections so far."""

    accepted: int = 0
    """Connections that clients made."""
    flipped: int = 0
    """Bytes in which a bit was flipped."""
    cuts: int = 0
    """Connections that were reset, by `Way.cut_every` or by `Proxy.cut`."""


class End(enum.Enum):
    """How a line ends."""

    CLOSED = enum.auto()
    RESET = enum.auto()


class Line:
    """The bytes that are under way in one direction of one connection. It has no loop and no clock.

    Args:
        way: what happens to the bytes.
        dice: decides which bytes are flipped and where the connection is cut.
        done: where it counts.
    """

    def __init__(self, way: Way, dice: random.Random, done: Done) -> None:
        self.way, self.done = way, done
        self.waiting = 0
        """The bytes under way."""
        self._dice = dice
        self._parts: deque[tuple[float, bytes | End]] = deque()
        self._sent = self._last = float("-inf")  # when the sender has sent all; when the last part comes out
        self._gaps: dict[str, float] = {}  # the bytes before the next flip, and before the next cut
        self._ended = False

    @property
    def due(self) -> float | None:
        """When the next part comes out; None if nothing is under way."""
        return self._parts[0][0] if self._parts else None

    def push(self, now: float, chunk: bytes) -> None:
        """Send bytes at `now`, in seconds of any clock. What follows an end is lost."""
        if self._ended:
            return
        cut = next(iter(self._places("cut", self.way.cut_every, len(chunk))), None)
        chunk = self._damaged(chunk[:cut])
        size = SEGMENT if self.way.rate else max(1, len(chunk))
        for at in range(0, len(chunk), size):
            piece = chunk[at : at + size]
            self._sent = max(now, self._sent) + len(piece) / self.way.rate if self.way.rate else now
            self._append(self._sent + self.way.delay, piece)
        if cut is not None:
            self.done.cuts += 1
            self.end(now, End.RESET)

    def end(self, now: float, end: End) -> None:
        """Close or reset the connection behind the bytes that are under way."""
        if not self._ended:
            self._append(max(now, self._sent) + self.way.delay, end)
            self._ended = True

    def pop(self, now: float) -> bytes | End | None:
        """The next part that has come out by `now`; None if there is none."""
        if not self._parts or self._parts[0][0] > now:
            return None
        part = self._parts.popleft()[1]
        if isinstance(part, bytes):
            self.waiting -= len(part)
        return part

    def _append(self, due: float, part: bytes | End) -> None:
        self._last = max(self._last, due)  # a shorter delay overtakes nothing
        self._parts.append((self._last, part))
        if isinstance(part, bytes):
            self.waiting += len(part)

    def _damaged(self, chunk: bytes) -> bytes:
        places = self._places("flip", self.way.flip_every, len(chunk))
        if not places:
            return chunk
        damaged = bytearray(chunk)
        for place in places:
            damaged[place] ^= 1 << self._dice.randrange(8)
        self.done.flipped += len(places)
        return bytes(damaged)

    def _places(self, fault: str, every: int | None, length: int) -> list[int]:
        """Where in the next `length` bytes the fault strikes."""
        if every is None:
            self._gaps.pop(fault, None)
            return []
        at, places = self._gaps.get(fault) or self._dice.expovariate(1 / every), []
        while at < length:
            places.append(int(at))
            at = places[-1] + 1 + self._dice.expovariate(1 / every)
        self._gaps[fault] = at - length
        return places


class _Side(asyncio.Protocol):
    """One of the two sockets of a connection. What it receives goes through its line to its peer."""

    transport: asyncio.Transport

    def __init__(self, pair: "_Pair", line: Line) -> None:
        self.pair, self.line, self.peer = pair, line, self
        self.full = True
        """Whether nothing more may be written: it is not connected yet, or its buffer is full."""
        self._paused = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.pair.opened(self)
        self.resume_writing()

    def data_received(self, data: bytes) -> None:
        self.line.push(self.pair.loop.time(), data)
        if self.line.waiting > FULL and not self._paused:
            self._paused = True
            self.transport.pause_reading()
        self.pump()

    def connection_lost(self, exc: Exception | None) -> None:
        self.line.end(self.pair.loop.time(), End.CLOSED if exc is None else End.RESET)
        self.pair.lost(self)
        self.pump()

    def pause_writing(self) -> None:
        self.full = True

    def resume_writing(self) -> None:
        self.full = False
        self.peer.pump()

    def pump(self) -> None:
        """Give the peer what has come out of the line, and come again for the rest."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while not self._held and (part := self.line.pop(self.pair.loop.time())) is not None:
            if part is End.RESET:
                self.pair.reset()
            elif part is End.CLOSED:
                self.peer.transport.close()
            elif not self.peer.transport.is_closing():
                self.peer.transport.write(part)
        if self._paused and self.line.waiting < FULL / 2 and not self.transport.is_closing():
            self._paused = False
            self.transport.resume_reading()
        if self.line.due is not None and not self._held:
            self._timer = self.pair.loop.call_at(self.line.due, self.pump)

    @property
    def _held(self) -> bool:
        return self.pair.proxy.stalled or self.peer.full

    def reset(self) -> None:
        with contextlib.suppress(OSError):
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.transport.abort()


class _Pair:
    """A connection of a client, and ours to the server."""

    def __init__(self, proxy: "Proxy", loop: asyncio.AbstractEventLoop) -> None:
        self.proxy, self.loop = proxy, loop
        self.client = _Side(self, Line(proxy.up, proxy.dice, proxy.done))
        self.server = _Side(self, Line(proxy.down, proxy.dice, proxy.done))
        self.client.peer, self.server.peer = self.server, self.client
        self.open: list[_Side] = []

    async def connect(self, accepted: socket.socket) -> None:
        try:
            await self.loop.create_connection(lambda: self.server, "127.0.0.1", self.proxy.target)
        except BaseException as error:
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            accepted.close()
            if not isinstance(error, OSError):
                raise
        else:
            await self.loop.connect_accepted_socket(lambda: self.client, accepted)

    def opened(self, side: _Side) -> None:
        self.open.append(side)
        self.proxy.pairs.add(self)

    def lost(self, side: _Side) -> None:
        self.open.remove(side)
        if not self.open:
            self.proxy.pairs.discard(self)

    def reset(self) -> None:
        for side in list(self.open):
            side.reset()

    def pump(self) -> None:
        for side in list(self.open):
            side.pump()


class Proxy:
    """Passes TCP connections on to a port of the loopback, and does to them what `up` and `down` say.

        with Mosquitto() as broker, Proxy(broker.port, Way(delay=0.2)) as proxy:
            App("house", mqtt=proxy.url)

    Args:
        target: the port of the server, on 127.0.0.1. While nothing listens there, a connection is reset.
        way: what both directions do at first; `up`, to the server, and `down`, to the client, are copies of it.
        seed: of the dice for flips and cuts. Which bytes they strike depends on how TCP divides the stream, too.
    """

    def __init__(self, target: int, way: Way | None = None, *, seed: int = 0) -> None:
        self.target, self.dice, self.done = target, random.Random(seed), Done()
        self.up, self.down = replace(way or Way()), replace(way or Way())
        self.stalled = False
        self.pairs: set[_Pair] = set()
        self._started = threading.Event()

    @property
    def url(self) -> str:
        """For `App(mqtt=…)`."""
        return f"mqtt://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=asyncio.run, args=(self._serve(),), daemon=True, name="proxy")
        self._thread.start()
        assert self._started.wait(60), "the proxy did not start"
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join(60)
        assert not self._thread.is_alive(), "the proxy did not end"

    def cut(self) -> int:
        """Reset all connections; how many they were. What is under way is lost, and a new connection is accepted."""

        def cut() -> int:
            pairs = list(self.pairs)
            for pair in pairs:
                pair.reset()
            self.done.cuts += len(pairs)
            return len(pairs)

        return self._ask(cut)

    def stall(self) -> None:
        """Let nothing through, in any connection, and keep all of them open."""
        self._ask(lambda: self._stall(True))

    def resume(self) -> None:
        """Let through what `stall` held up, and all that follows."""
        self._ask(lambda: self._stall(False))

    def _stall(self, stalled: bool) -> None:
        self.stalled = stalled
        for pair in list(self.pairs):
            pair.pump()

    def _ask(self, call: Callable[[], T]) -> T:
        """Call it in the thread of the proxy."""

        async def ask() -> T:
            return call()

        return asyncio.run_coroutine_threadsafe(ask(), self._loop).result(60)

    async def _serve(self) -> None:
        self._loop, self._ending = asyncio.get_running_loop(), asyncio.Event()
        with socket.create_server(("127.0.0.1", 0)) as listening:
            listening.setblocking(False)
            self.port: int = listening.getsockname()[1]
            self._started.set()
            accepting = asyncio.create_task(self._accept(listening))
            await self._ending.wait()
            accepting.cancel()
            await asyncio.wait([accepting])
        while self.pairs:
            for pair in list(self.pairs):
                pair.reset()
            await asyncio.sleep(0)

    async def _accept(self, listening: socket.socket) -> None:
        async with asyncio.TaskGroup() as connecting:
            while True:
                accepted, _ = await self._loop.sock_accept(listening)
                self.done.accepted += 1
                connecting.create_task(_Pair(self, self._loop).connect(accepted))
