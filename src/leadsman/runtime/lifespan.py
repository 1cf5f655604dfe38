"""The lifespan of an app: the user's context manager around all polls."""

import asyncio
import contextlib
import functools
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from leadsman.adapters.managed import REOPENING
from leadsman.errors import ConfigurationError
from leadsman.events import AppFault
from leadsman.loop.tasks import outcome_in_own_task
from leadsman.resilience.environment import Environment

Make = Callable[[], AbstractAsyncContextManager[object]]
"""Makes the context manager. It is called for each attempt to enter it."""


class Lifespan:
    """Enters and leaves the user's context manager in one task, as many context managers demand. Begins at once.

    Args:
        make: makes it; None if the app has none.
        environment: timers and events.
    """

    def __init__(self, make: Make | None, environment: Environment) -> None:
        self._environment = environment
        self._entered = asyncio.Event()
        self._leave = asyncio.Event()
        self._task = None if make is None else asyncio.get_running_loop().create_task(self._live(make))

    async def entered_or(self, stopping: asyncio.Event) -> None:
        """Wait until it is entered, or the app is to stop.

        Raises:
            ConfigurationError: it raised that. Any other exception is reported, and entering is tried again.
        """
        if self._task is None:
            return
        waits = [asyncio.ensure_future(event.wait()) for event in (self._entered, stopping)]
        await asyncio.wait([*waits, self._task], return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        if self._task.done():
            self._task.result()

    async def leave(self) -> None:
        """Leave it, or give up entering it. Raises what leaving raises."""
        if self._task is None:
            return
        self._leave.set()
        if not self._entered.is_set():
            self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _live(self, make: Make) -> None:
        attempt = 0
        while True:
            attempt += 1
            error = (await outcome_in_own_task(functools.partial(self._once, make))).error
            if error is None:
                return
            if self._entered.is_set() or not isinstance(error, Exception | asyncio.CancelledError | GeneratorExit):
                raise error
            if isinstance(error, ConfigurationError):
                raise error
            self._environment.events.emit(AppFault("entering the lifespan, which is tried again", error))
            await self._environment.timers.sleep(REOPENING.delay(attempt))

    async def _once(self, make: Make) -> None:
        async with make():
            self._entered.set()
            await self._leave.wait()
