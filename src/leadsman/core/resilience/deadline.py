"""Deadlines: a call that takes too long is cancelled, and one that does not end even then is abandoned.

::

    called ─── deadline ───▶ expired: cancelled ─── GRACE ───▶ abandoned: reported, and left alone
       │                         │                                 │
       ╰─ it ends: its result    ╰─ it ends: DeviceTimeout         ╰─ it ends at last: Abandoned

Like `asyncio.timeout`, a deadline cancels the task that makes the call, and takes the cancellation back once the call
has ended. There are three differences. The deadline is an alarm in the heap that all calls share; a call gets one only
if it outlives the turn of the event loop, which most do not. A call that ignores its cancellation
has no result, even if it returns one later. And nobody waits for a call that does not end: the caller is informed after
`CANCEL_SECONDS` seconds, while the task goes on.

The errors name the line of the user's code that hung. It is looked for when the alarm rings, so a call in time pays
nothing for it.

A cancellation that arrives while the app stops is the app's, and is passed through.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import ClassVar, Generic, TypeVar

from leadsman.core.loop.durations import human
from leadsman.core.loop.user_code import blocked_at, waiting_at
from leadsman.core.resilience.environment import Abandons, Environment
from leadsman.errors import Abandoned, DeviceTimeout

T = TypeVar("T")
TimedOut = TypeVar("TimedOut", bound=DeviceTimeout)

CANCEL_SECONDS = 5.0
"""Seconds that a call may take to end after it was cancelled. After that it is abandoned."""

_AT_ONCE = 0.001
"""Seconds. A deadline that is no further ahead is due now."""

_IN_TIME, _EXPIRED, _ABANDONED, _INTERRUPTED = range(4)


class Deadline(Generic[T]):
    """Limits the time of calls, one call at a time. It is the limited call itself, and its alarm.

    Args:
        call: the call to limit; a coroutine function without arguments.
        seconds: the time that it may take.
        environment: timers and clock, and whether the app stops.
        caller: is informed of a call that does not end.
        thread: the identifier of the thread that makes the call; None while there is none. Without `thread`, the task
            makes the call itself.
    """

    __slots__ = (
        "_began",
        "_call",
        "_caller",
        "_environment",
        "_paused_at",
        "_place",
        "_slot",
        "_state",
        "_thread",
        "seconds",
        "task",
    )
    _LATE: ClassVar[str] = "no answer within"
    _SINCE: ClassVar[str] = "its timeout of"

    def __init__(
        self,
        call: Callable[[], Awaitable[T]],
        seconds: float,
        environment: Environment,
        caller: Abandons,
        thread: Callable[[], int | None] | None = None,
    ) -> None:
        self.seconds = seconds
        self._call = call
        self._environment = environment
        self._caller = caller
        self._thread = thread
        self._place: str | None = None  # where the call was when its time was over
        self._began = 0.0
        self._paused_at: float | None = None
        self._slot: int | None = None
        self._state = _IN_TIME
        self.task: asyncio.Task[object] | None = None
        """See `Limit`: the task that makes the call."""

    @property
    def expired(self) -> bool:
        """Whether the call under way was cancelled by this deadline."""
        return self._state in (_EXPIRED, _ABANDONED)

    async def __call__(self) -> T:
        """Make the call.

        Raises:
            DeviceTimeout: the call was cancelled at its deadline, and has ended.
            Abandoned: the call has ended after it was abandoned.
            Exception: the call's own error, also one that its clean-up made of the cancellation.
        """
        environment = self._environment
        self.task = task = asyncio.current_task()
        self._began = environment.clock.monotonic()
        environment.timers.limit(self)
        try:
            result = await self._call()
        except BaseException as error:
            if self._state:
                self._end(task, error)
            raise
        finally:
            self.task = None  # release the finished task, about 1 kB
            if self._slot is not None:
                environment.timers.remove(self._slot, self)
                self._slot = None
        if self._state:
            self._end(task, None)
        return result

    def _end(self, task: "asyncio.Task[object] | None", error: BaseException | None) -> None:
        """The call has ended after its cancellation: take the cancellation back. If the call has no result or error of
        its own to go on with, raise one."""
        state, self._state = self._state, _IN_TIME
        if state == _INTERRUPTED or task is None:
            return
        task.uncancel()
        if isinstance(error, asyncio.CancelledError):
            replaced = not self._environment.stopping.is_set()
        else:
            replaced = error is None or (state == _ABANDONED and isinstance(error, Exception))
        if replaced and state == _ABANDONED:
            raise Abandoned("the call ended, but only after it was abandoned") from error
        if replaced:
            raise _placed(DeviceTimeout(f"{self._LATE} {human(self.seconds)}"), self._place) from error

    @property
    def runs(self) -> bool:
        """Whether a call is under way."""
        return self.task is not None

    def pause(self) -> None:
        """The call waits for others: this is not its time."""
        if self.task is not None:
            self._paused_at = self._environment.clock.monotonic()
            if self._slot is not None and self._state == _IN_TIME:
                self._environment.timers.remove(self._slot, self)
                self._slot = None

    def resume(self) -> None:
        """The call goes on."""
        paused_at, self._paused_at = self._paused_at, None
        if paused_at is not None and self.task is not None and self._state == _IN_TIME:
            self._began += self._environment.clock.monotonic() - paused_at
            self.arm()

    def arm(self) -> None:
        """See `Limit`."""
        if self.task is not None and self._slot is None and self._paused_at is None:
            self._slot = self._environment.timers.add(self._began + self.seconds, self)

    def ring(self, now: float) -> None:
        """Cancel the call, as its deadline has passed. If it still runs `CANCEL_SECONDS` seconds later, abandon it."""
        if self.task is None:
            return
        self._place = self._waiting_at(self.task)
        if self._state == _IN_TIME:
            self._state = _EXPIRED
            self.task.cancel()
            self._slot = self._environment.timers.add(now + CANCEL_SECONDS, self)
            return
        since = self._since()
        if self._state == _EXPIRED:
            self._state = _ABANDONED
        text = f"still running {human(CANCEL_SECONDS)} after {since}; it is not called again while it runs"
        self._caller.abandoned(_placed(Abandoned(text), self._place))

    def _waiting_at(self, task: "asyncio.Task[object]") -> str | None:
        if self._thread is None:
            try:
                return waiting_at(task)
            except Exception:  # what the user's code awaits may answer anything, and the call must be cancelled
                return None
        thread = self._thread()
        return None if thread is None else blocked_at(thread)

    def _since(self) -> str:
        return f"{self._SINCE} {human(self.seconds)}"


def _placed(error: TimedOut, place: str | None) -> TimedOut:
    error.place = place
    return error


class Silence(Deadline[T]):
    """A deadline that each reading of a source postpones: the source may not be silent for longer than `seconds`.

    Args:
        excused: is asked once `seconds` have passed in silence, and then again each `seconds`, with the task of the
            call. If it returns True, the call goes on.
    """

    __slots__ = ("_excused", "_heard_at", "_interrupted_by")
    _LATE: ClassVar[str] = "silent for"
    _SINCE: ClassVar[str] = "its silence of"

    def __init__(
        self,
        call: Callable[[], Awaitable[T]],
        seconds: float,
        environment: Environment,
        caller: Abandons,
        excused: Callable[["asyncio.Task[object]"], bool],
    ) -> None:
        super().__init__(call, seconds, environment, caller)
        self._excused = excused
        self._heard_at = -math.inf
        self._interrupted_by = ""

    def heard(self, now: float) -> None:
        """A reading arrived at `now`, monotonic seconds."""
        self._heard_at = now

    def interrupted(self, why: str) -> None:
        """The task of the call was cancelled for another reason. The cancellation is passed through; a call that does
        not end `CANCEL_SECONDS` seconds later is abandoned."""
        if self.task is not None and self._state == _IN_TIME:
            timers, now = self._environment.timers, self._environment.clock.monotonic()
            self._state, self._interrupted_by = _INTERRUPTED, why
            if self._slot is not None:
                timers.remove(self._slot, self)
            self._slot = timers.add(now + CANCEL_SECONDS, self)

    def ring(self, now: float) -> None:
        """Cancel the call if the source has been silent, and is not excused; wait for the rest of the time
        otherwise."""
        if self.task is not None and self._state == _IN_TIME:
            due = self._heard_at + self.seconds
            if due <= now + _AT_ONCE and self._excused(self.task):
                due = now + self.seconds
            if due > now + _AT_ONCE:
                self._slot = self._environment.timers.add(due, self)
                return
        super().ring(now)

    def _since(self) -> str:
        return self._interrupted_by if self._state == _INTERRUPTED else super()._since()
