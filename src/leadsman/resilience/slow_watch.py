"""The slow watch: notices calls that succeed, but take too long."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


def watched(
    call: Callable[[], Awaitable[T]],
    limit: float,
    monotonic: Callable[[], float],
    on_slow: Callable[[], None],
    excused: Callable[[], float] = float,
) -> Callable[[], Awaitable[T]]:
    """The call; `on_slow` is called before it returns if it took longer than `limit` seconds.

    Args:
        call: the call to watch. What it waits for is part of its time, such as the lock of a bus.
        limit: seconds.
        monotonic: the clock.
        on_slow: called after a slow call that succeeded. A call that fails counts as failed anyway.
        excused: seconds of the call that just ended which are not its own, such as its wait for a thread.
    """

    async def timed() -> T:
        began = monotonic()
        result = await call()
        if monotonic() - began - excused() > limit:
            on_slow()
        return result

    return timed
