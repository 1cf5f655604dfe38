"""The functions of an app that get notices of what happens. Each is called by itself: one that raises or hangs costs no
other, and no device."""

import asyncio
import contextvars
import inspect
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from leadsman.core.devices.roster import RosterPhase, forgetting
from leadsman.core.event_bus import Phase
from leadsman.core.events import AppFault, Event
from leadsman.core.loop.tasks import begin
from leadsman.core.loop.threads import DaemonExecutor
from leadsman.core.registration.injection import Handler, is_async, name_of
from leadsman.core.text import count_noun, log_fields
from leadsman.core.wiring.core import Core
from leadsman.errors import DeviceTimeout, InvalidType
from leadsman.notices import Notice, Notices

MAX_WAITING = 100
"""Notices that wait for one listener. A storm of 50 devices that fail together is 100: the outage and the circuit."""
TIMEOUT = 30.0
"""Seconds after which a call is reported. An async one is cancelled then."""

logger = logging.getLogger("leadsman")


def join(core: Core) -> None:
    """Notify them from the first connection on, until the goodbye."""
    emit, notices = core.environment.events.emit, Notices()
    listeners = [Listener(kind, function, emit) for kind, function in core.plan.live.listeners]

    def observe(event: Event) -> None:
        notice = notices.of(event)
        if notice is not None:
            for listener in listeners:
                if isinstance(notice, listener.kind):
                    listener.notify(notice)

    core.environment.events.subscribe(observe, Phase.ACT)
    core.roster.follow(RosterPhase.REPORT, forgetting(notices.forget))
    for number, listener in enumerate(listeners, 1):
        core.life.beside.append((f"{listener.name} ({number})", listener.run))


class Listener:
    """One function, and the notices that wait for it.

    Args:
        kind: the notices that it takes.
        function: ``async def``, or a plain ``def``, which runs in a thread.
        emit: takes the errors, as faults of the app.
    """

    def __init__(self, kind: type[Notice], function: Handler, emit: Callable[[AppFault], None]) -> None:
        self.kind = kind
        self.name = f"the listener {name_of(function)}"
        self.dropped = 0
        """Notices for which there was no room."""
        self._function = function
        self._emit = emit
        self._threads = DaemonExecutor()  # that of the loop may be one that a program waits for at its end
        self._waiting: deque[Notice] = deque()
        self._come = asyncio.Event()

    def notify(self, notice: Notice) -> None:
        """Let the function have a notice when those before it are done. The newest is dropped if too many wait."""
        if len(self._waiting) < MAX_WAITING:
            self._waiting.append(notice)
            self._come.set()
            return
        self.dropped += 1
        if self.dropped == 1:
            most = count_noun(MAX_WAITING, "notice waits", "notices wait")
            about = log_fields("notices dropped", listener=self.name)
            logger.warning("%s is too slow: %s, and further ones are dropped", self.name, most, extra=about)

    async def run(self) -> None:
        """Call the function with one notice after the other."""
        while True:
            self._come.clear()
            while self._waiting:
                await self._call(self._waiting.popleft())
            await self._come.wait()

    async def _call(self, notice: Notice) -> None:
        function: Any = self._function
        threaded = not is_async(function)
        task = begin(lambda: self._in_thread(notice) if threaded else function(notice))
        try:
            done, _ = await asyncio.wait({task}, timeout=TIMEOUT)
            if not done:
                self._emit(AppFault(self.name, DeviceTimeout(f"it did not end within {TIMEOUT:g} s")))
                if not threaded:  # a thread cannot be ended
                    task.cancel()
                await asyncio.wait({task})  # there is no second call beside one that hangs
            elif (error := task.result().error) is not None:
                self._emit(AppFault(self.name, error))
        except asyncio.CancelledError:  # the app ends
            task.cancel()
            raise

    async def _in_thread(self, notice: Notice) -> None:
        run = contextvars.copy_context().run
        found = await asyncio.wrap_future(self._threads.submit(run, self._function, notice))
        if inspect.isawaitable(found):  # such as that of a lambda around an async def
            if inspect.iscoroutine(found):
                found.close()
            raise InvalidType("it returned something to await, which nobody does; register an 'async def'")
