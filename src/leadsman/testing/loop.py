"""An event loop with virtual time: when nothing can run, the time jumps to the next timer.

The time belongs to the loop, not to a clock that is passed around, so `asyncio.timeout` and `asyncio.sleep` inside any
library are virtual too. A day of outages takes milliseconds.

Threads and child processes are real. While a call runs that was made through leadsman's workers or
`asyncio.to_thread`, the time stands still, unless the call makes no progress for `patience` real seconds: then it is
considered hung, and the time goes on. What computes makes progress until it has computed for so long, however busy
the machine is. So it is while a child process runs that asyncio has started, for `patience` real seconds after its
start, or after a signal from its handler, whatever it writes.
"""

import asyncio
import selectors
import time
from collections.abc import Callable, Coroutine
from typing import ParamSpec, TypeVar

from leadsman.core.loop import threads as workers

START = 1_767_225_600.0
"""2026-01-01T00:00:00Z in epoch seconds: the default start of a virtual wall clock."""
_STEP = 0.02
_AT_WORK = 0.01
"""Share of the CPU above which a thread computes; one that waits in a loop of short sleeps uses less."""
_MAX_WAITS = 12
"""How often `patience` is waited for calls that compute, at most: others may compute while these hang."""


P = ParamSpec("P")
T = TypeVar("T")
Start = Coroutine[object, object, tuple[asyncio.SubprocessTransport, T]]


def _waited_for(start: Callable[P, Start[T]]) -> Callable[P, Start[T]]:
    """A method of the loop that starts a child process, for which the time waits."""

    async def start_child(*args: P.args, **options: P.kwargs) -> tuple[asyncio.SubprocessTransport, T]:
        started = await start(*args, **options)
        loop = asyncio.get_running_loop()
        if isinstance(loop, VirtualLoop):
            loop.child_started(started[0])
        return started

    return start_child


class VirtualLoop(asyncio.SelectorEventLoop):
    """A selector event loop whose `time` begins at zero and jumps.

    Args:
        wall: the wall clock at the start, in epoch seconds.
        patience: real seconds to wait for a thread or a child process before the time goes on without it.
    """

    def __init__(self, wall: float = START, patience: float = 5.0) -> None:
        self._now = 0.0
        self._wall_offset = wall
        self._patience = patience
        self._children: list[tuple[float, asyncio.SubprocessTransport]] = []
        """The child processes, each with the real time until which the virtual one waits for it."""
        super().__init__(_JumpingSelector(self))
        # A nanosecond, the resolution of the real clock, is lost in the float after 97 days, and timers would never be
        # due.
        self._clock_resolution = 1e-6
        self.set_default_executor(workers.DaemonExecutor())

    def time(self) -> float:
        """Virtual monotonic seconds."""
        return self._now

    def wall_time(self) -> float:
        """Virtual epoch seconds."""
        return self._now + self._wall_offset

    subprocess_exec = _waited_for(asyncio.SelectorEventLoop.subprocess_exec)
    subprocess_shell = _waited_for(asyncio.SelectorEventLoop.subprocess_shell)

    def step_wall(self, seconds: float) -> None:
        """Set the wall clock forward, or back when negative, as NTP or a person does. The monotonic time goes on."""
        self._wall_offset += seconds

    def child_started(self, child: asyncio.SubprocessTransport) -> None:
        """Let the time wait for a child process."""

        def wait() -> None:
            self._children.append((time.monotonic() + self._patience, child))

        def waiting(send: Callable[..., None]) -> Callable[..., None]:
            def signal(*number: int) -> None:
                wait()  # one that hung ends now, in real time
                send(*number)

            return signal

        for name in ("send_signal", "terminate", "kill"):
            setattr(child, name, waiting(getattr(child, name)))
        wait()

    def _a_child_works(self) -> bool:
        if not self._children:
            return False
        now = time.monotonic()
        self._children = [each for each in self._children if now < each[0] and _is_under_way(each[1])]
        return bool(self._children)

    def block(self, seconds: float) -> None:
        """Let time pass while the loop is blocked, as by a handler that computes."""
        self._now += seconds


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop
        self._waiting: _Waiting | None = None
        self._hanging = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout == 0:
            self._waiting = None
            return super().select(0) if len(self.get_map()) > 1 else []  # only the pipe that wakes a loop which waits
        busy = workers.busy()  # before the look: a call that has ended by now has woken the loop
        ready = super().select(0)
        if ready:
            self._waiting = None
            return ready
        if self._a_thread_works(busy) or self._loop._a_child_works():  # noqa: SLF001  # as below
            return super().select(_STEP)
        if timeout is None:
            raise RuntimeError("nothing is due, and nothing will be: the program waits for ever")
        self._loop._now += timeout  # noqa: SLF001  # the other half of one thing
        return []

    def _a_thread_works(self, busy: int) -> bool:
        """Whether more calls are under way than those that hang."""
        self._hanging = min(self._hanging, busy)
        if busy == self._hanging:
            return False
        waiting = self._waiting = self._waiting or _Waiting()
        if waiting.in_vain(self._loop._patience):  # noqa: SLF001  # as above
            self._hanging, self._waiting = busy, None
            return False
        return True


class _Waiting:
    """A wait for calls in threads, as long as one of them may still end."""

    def __init__(self) -> None:
        self._left = _MAX_WAITS
        self._begun = self._looked_at = self._in_threads()
        self._since = time.monotonic()

    def in_vain(self, patience: float) -> bool:
        """Whether the calls hang: they have waited for so many real seconds, or computed for about as many."""
        now = time.monotonic()
        if now - self._since <= patience:
            return False
        before, self._looked_at = self._looked_at, self._in_threads()
        computes = self._looked_at - before >= _AT_WORK * (now - self._since)
        self._since, self._left = now, self._left - 1
        return not computes or not self._left or self._looked_at - self._begun > 0.8 * patience

    @staticmethod
    def _in_threads() -> float:
        """CPU seconds of the other threads of the process."""
        return time.process_time() - time.thread_time()


def _is_under_way(child: asyncio.SubprocessTransport) -> bool:
    """Whether it runs, or somebody may still write to its pipes: a process that it has started."""
    pipes = [child.get_pipe_transport(number) for number in (1, 2)]
    return child.get_returncode() is None or any(pipe is not None and not pipe.is_closing() for pipe in pipes)
