"""`SharedLine`: a lock for what several units share. It takes the place of `asyncio.Lock` in an adapter.

`leadsman.core.resilience.line` decides who is next and how long a turn may take; this joins it to the event loop. A
`LineUser` stands for the call of a handler: while it waits for a line, its deadline stands still, so that a wait for
others is no failure of the device.
"""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Hashable, Iterator
from contextvars import ContextVar
from typing import Any, Literal

from leadsman.core.loop.durations import human
from leadsman.core.resilience.deadline import Deadline
from leadsman.core.resilience.line import FIRST_TURN_SHARE, Turn, Turns
from leadsman.errors import DeviceTimeout, NoTurn

MAX_WAIT_SECONDS = 60.0
"""Seconds that a call with a deadline waits for its turn. Whoever holds the line for longer hangs."""


class LineUser:
    """The calls of one handler, one at a time, as the lines know them.

    Args:
        name: the device, for adapters that do not say which unit they ask.
        looks: whether its turns may be cut short. Not if a person waits for the answer, nor if a thread makes the call,
            which goes on when its turn is over.
    """

    __slots__ = ("_waits", "deadline", "lines", "looks", "name")

    def __init__(self, name: str, *, looks: bool) -> None:
        self.name = name
        self.looks = looks
        self.deadline: Deadline[Any] | None = None
        self.lines: list[SharedLine] = []
        """Those that it holds."""
        self._waits = 0

    @property
    def limited(self) -> bool:
        """Whether a deadline limits what runs now."""
        return self.deadline is not None and self.deadline.runs

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """While this lasts, it waits for a turn. A handler may do so in several tasks at once."""
        self._waits += 1
        if self._waits == 1 and self.deadline is not None:
            self.deadline.pause()
        try:
            yield
        finally:
            self._waits -= 1
            if not self._waits and self.deadline is not None:
                self.deadline.resume()


CALLER: ContextVar[LineUser | None] = ContextVar("leadsman_caller", default=None)
"""Whose call runs; None outside of handlers, and in those that use no adapter."""


class SharedLine(asyncio.Lock):
    """What several units share, such as a serial line: one call at a time, and fair.

    In an adapter of your own, write ``self._line = SharedLine()``, and ``async with self._line.turn(unit):`` around
    each exchange.

    As in an `asyncio.Lock`, turns are given in the order in which they are asked for. But units that are silent go
    last, and get a short look first, so that the others do not pay for them; and a handler that waits for its turn
    does not use up its timeout. `leadsman.core.resilience.line` has the rules.

    Args:
        cuts: whether a turn may be cut: not if a thread makes the exchange, which goes on when nobody waits for it.
    """

    def __init__(self, *, cuts: bool = True) -> None:
        super().__init__()
        self._cuts = cuts
        self._turns = Turns()
        self._granted: dict[Turn, asyncio.Future[None]] = {}
        self._limit: asyncio.Timeout | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._scope: contextlib.AbstractAsyncContextManager[SharedLine] | None = None
        self._unused = False

    def locked(self) -> bool:
        """Whether somebody has the line."""
        return self._turns.holder is not None

    @property
    def was_cut(self) -> bool:
        """Whether the turn under way is over because the line is needed, and no answer came."""
        return self._limit is not None and self._limit.expired()

    @contextlib.asynccontextmanager
    async def turn(self, unit: Hashable | None = None) -> AsyncIterator["SharedLine"]:
        """Wait for a turn, and have it until the end of the context.

        Args:
            unit: who is asked, such as an address. None: the device whose handler asks.

        Raises:
            DeviceTimeout: there was no answer, and the line is needed for others. A retry may help.
            NoTurn: somebody has had the line for `MAX_WAIT_SECONDS`.
        """
        caller = CALLER.get()
        turn = await self._take(unit, caller)
        limit = asyncio.timeout(None)
        answered: bool | None = False
        if caller is not None:
            caller.lines.append(self)
        try:
            async with limit:
                self._limit = limit
                self._step()
                yield self
            answered = None if self._unused else True
        except TimeoutError as late:
            if not limit.expired() or isinstance(late, DeviceTimeout):
                raise
            took = asyncio.get_running_loop().time() - turn.began
            raise DeviceTimeout(f"no answer within {human(round(took, 3))}, and others wait for the line") from late
        finally:
            if caller is not None:
                caller.lines.remove(self)
            self.end(turn, answered=answered)

    def opening(self) -> None:
        """The line is being opened in the turn under way, which is no time of the unit; `begin` follows."""
        self._turns.opening()
        self._step()

    def begin(self) -> None:
        """A request goes out now: what came before it in the turn under way was no time of the unit."""
        self._turns.begin(asyncio.get_running_loop().time())
        self._step()

    def unused(self) -> None:
        """Nothing is asked in the turn under way."""
        self._unused = True

    def end(self, turn: Turn, *, answered: bool | None) -> None:
        """End a turn. Nothing happens if it is over."""
        if self._turns.holder is turn:
            self._turns.end(turn, asyncio.get_running_loop().time(), answered=answered)
            self._limit, self._unused = None, False
            self._step()

    @property
    def holder(self) -> Turn | None:
        """The turn under way."""
        return self._turns.holder

    async def acquire(self) -> Literal[True]:
        """Wait for a turn, which `release` ends; it is never cut."""
        await self._take(None, CALLER.get(), look=False)
        return True

    def release(self) -> None:
        """End the turn that `acquire` has waited for."""
        holder = self._turns.holder
        if holder is None:
            raise RuntimeError("the lock is not acquired")
        self.end(holder, answered=None)

    async def __aenter__(self) -> None:
        """As `turn`."""
        scope = self.turn()
        await scope.__aenter__()
        self._scope = scope

    async def __aexit__(self, *exc_info: object) -> None:
        """The turn is over."""
        scope, self._scope = self._scope, None
        assert scope is not None  # of `__aenter__`; one has the line at a time
        await scope.__aexit__(*exc_info)  # type: ignore[arg-type]

    async def _take(self, unit: Hashable | None, caller: LineUser | None, *, look: bool = True) -> Turn:
        loop = asyncio.get_running_loop()
        if caller is not None:
            unit = caller.name if unit is None else unit
            look = look and caller.looks and not any(line is not self for line in caller.lines)
        first = (
            FIRST_TURN_SHARE * caller.deadline.seconds
            if caller is not None and caller.deadline and caller.limited
            else math.inf
        )
        turn = self._turns.ask(unit, loop.time(), look=look and caller is not None, first=first)
        self._step()
        if self._turns.holder is turn:
            return turn
        granted = self._granted[turn] = loop.create_future()
        limited = caller is not None and caller.limited and not self._turns.is_silent(unit)
        try:
            with contextlib.nullcontext() if caller is None else caller.waiting():
                async with asyncio.timeout(MAX_WAIT_SECONDS if limited else None):
                    await granted
        except BaseException as error:
            if self._turns.holder is turn:
                self.end(turn, answered=None)
            self._granted.pop(turn, None)
            self._turns.leave(turn)
            if isinstance(error, TimeoutError):
                raise NoTurn(
                    f"another call has had the line for more than {human(MAX_WAIT_SECONDS)}; "
                    "set a timeout on each handler"
                ) from error
            raise
        return turn

    def _step(self) -> None:
        loop = asyncio.get_running_loop()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        at = self._turns.step(loop.time())
        holder = self._turns.holder
        if holder is None:
            if math.isfinite(at):
                self._alarm = loop.call_at(at, self._step)
            return
        granted = self._granted.pop(holder, None)
        if granted is not None and not granted.done():
            granted.set_result(None)
        elif self._cuts and self._limit is not None and not self._limit.expired():
            self._limit.reschedule(at if math.isfinite(at) else None)
