"""The process ends by itself when it has hung for too long, or when no device has given a reading for too long: in a
container that nothing else supervises, a process that hangs would hang for years."""

import asyncio
import contextlib
import faulthandler
import logging
import os
import sys
import threading

from leadsman.core.loop.durations import human
from leadsman.core.loop.output import flush_outputs
from leadsman.core.loop.timers import Timers
from leadsman.core.monitoring.loop_stalls import StallWatch
from leadsman.core.parts.kinds import STATUSES
from leadsman.core.text import log_fields
from leadsman.core.wiring.core import Core
from leadsman.errors import NoFreshData

HUNG = 79
"""The exit code of a process whose event loop was blocked for too long. sysexits.h ends at 78."""
MAX_CHECK_INTERVAL = 10.0
"""Seconds between two looks at the devices, at most."""
DUMP = 5.0
"""Seconds for the stacks to be written. A process whose log nobody reads ends without them."""

logger = logging.getLogger("leadsman")


def join(core: Core) -> None:
    """Watch the devices from the first polls on, and the event loop from now on, until the app has ended."""
    stale, hung = core.plan.sections.supervision
    if stale is not None:
        core.life.starts.append(StaleExit(core, stale).start)
    if hung is not None:
        watch = StallWatch(asyncio.get_running_loop(), hung, leave_hung)
        core.resources.callback(watch.stop)


class StaleExit:
    """Ends the app once no device has given a reading for too long. An alarm of `Timers`.

    Args:
        core: the app.
        limit: seconds.
    """

    def __init__(self, core: Core, limit: float) -> None:
        self._core = core
        self._limit = limit
        self._stale_since: float | None = None
        """When the time without a fresh reading of any device began; None while some data is fresh."""
        self._timers: Timers = core.environment.timers

    def start(self) -> None:
        """Look for the first time."""
        self.ring(self._core.environment.clock.monotonic())

    def ring(self, now: float) -> None:
        """Look at the devices, and end the app if that is due."""
        statuses = self._core.of(STATUSES)
        statuses.refresh(now)
        if statuses.is_fresh(now):
            self._stale_since = None
        elif self._stale_since is None:
            self._stale_since = now
        if self._stale_since is not None and now - self._stale_since >= self._limit:
            limit = human(self._limit)
            self._core.end(NoFreshData(f"no device gave a reading for {limit} (supervision.exit_when_stale)"))
        else:
            self._timers.add(now + min(MAX_CHECK_INTERVAL, self._limit / 4), self)


def leave_hung(seconds: float, culprit: str) -> None:
    """End the process at once, after the stacks of all its threads were written to stderr."""
    end = threading.Timer(DUMP, os._exit, (HUNG,))
    end.daemon = True
    with contextlib.suppress(RuntimeError):  # the system cannot start another thread, which may be why it hangs
        end.start()
    with contextlib.suppress(OSError, ValueError, AttributeError, RuntimeError):  # there may be no stderr
        faulthandler.dump_traceback(sys.stderr, all_threads=True)
    logger.critical(
        "The event loop has been blocked for %s by %s; the process ends (supervision.exit_when_hung)",
        human(round(seconds)),
        culprit,
        extra=log_fields("hung", seconds=round(seconds, 3)),
    )
    flush_outputs()
    os._exit(HUNG)
