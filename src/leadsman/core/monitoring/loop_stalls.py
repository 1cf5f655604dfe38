"""Detects handlers that block the event loop, and logs their name and stack while they do.

The loop beats regularly, and a thread watches the beat. A blocking call cannot be interrupted from outside, but it can
be seen: when the beat is overdue, the thread reads the stack of the loop's thread and logs it, at most once a minute.
"""

import asyncio
import logging
import math
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from leadsman.core.text import count_noun, log_fields

BEAT_INTERVAL = 0.25
"""Seconds between two beats."""
STALL = 1.0
"""Seconds without a beat after which a stall is reported. All polls are late by that much."""
LOG_AGAIN = 60.0
"""Seconds between two log lines about stalls."""
_OWN_CODE = str(Path(__file__).parents[2])
_STANDARD = str(Path(asyncio.__file__).parent.parent)
_EVENTS = str(Path(asyncio.__file__).parent / "events.py")
"""Where the loop calls what is due."""

logger = logging.getLogger("leadsman")


class StallWatch:
    """Watches the loop of the thread that makes it.

    Args:
        loop: that loop.
        stall: seconds without a beat after which a stall is reported.
        report: is called in the watching thread with the seconds so far, and what blocks the loop. None logs it.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        stall: float = STALL,
        report: Callable[[float, str], object] | None = None,
    ) -> None:
        self._report = report
        self.stalls = 0
        """Stalls seen since the start."""
        self._loop = loop
        self._stall = stall
        self._watched = threading.get_ident()
        self._beat_at = time.monotonic()
        self._logged_at = -math.inf
        self._stopped = threading.Event()
        self._handle = loop.call_soon(self._beat)
        threading.Thread(target=self._watch, name="leadsman stalls", daemon=True).start()

    def stop(self) -> None:
        """Stop watching."""
        self._stopped.set()
        self._handle.cancel()

    def _beat(self) -> None:
        self._beat_at = time.monotonic()
        self._handle = self._loop.call_later(BEAT_INTERVAL, self._beat)

    def _watch(self) -> None:
        seen = last = still = 0.0
        woke, worked = time.monotonic(), time.process_time()
        while not self._stopped.wait(BEAT_INTERVAL):
            now, slept, work = time.monotonic(), time.monotonic() - woke, time.process_time() - worked
            woke, worked, beat = now, worked + work, self._beat_at
            if beat != last:
                last, still = beat, 0.0
            if slept > 2 * BEAT_INTERVAL:
                # This thread stood still, too. What the process did not work meanwhile is the time of a SIGSTOP or of a
                # busy machine, and no handler blocked it; one that kept the interpreter's lock worked.
                still += max(0.0, slept - BEAT_INTERVAL - work)
            if now - beat - still > self._stall and beat != seen:
                seen = beat
                self._log(now, now - beat - still)

    def _log(self, now: float, blocked: float) -> None:
        self.stalls += 1
        if self._report is None and now - self._logged_at < LOG_AGAIN:
            return
        self._logged_at = now
        frame = sys._current_frames().get(self._watched)  # noqa: SLF001  # the documented way; it is only spelled so
        if self._report is not None:
            self._report(blocked, "an unknown function" if frame is None else _blocking(frame))
            return
        if frame is None:
            return
        stack = "".join(traceback.format_stack(frame)[-8:]).rstrip()
        logger.warning(
            "The event loop has been blocked for %.1f s by %s; %s so far. Declare the handler 'def' without async, or "
            "await asyncio.to_thread(…).\n%s",
            blocked,
            _blocking(frame),
            count_noun(self.stalls, "time"),
            stack,
            extra=log_fields("loop stalled", stalls=self.stalls, seconds=round(blocked, 3)),
        )


def _blocking(frame: FrameType) -> str:
    """The name and place of the handler: the outermost function that leadsman called, else the innermost function."""
    chosen, at = frame, frame
    while at.f_back is not None and at.f_code.co_filename != _EVENTS:  # what the loop calls, and nothing around it
        caller = at.f_back.f_code.co_filename
        if caller.startswith(_OWN_CODE) and not at.f_code.co_filename.startswith(
            (_OWN_CODE, _STANDARD + os.sep + "asyncio")
        ):
            chosen = at
        at = at.f_back
    return f"{chosen.f_code.co_qualname} ({Path(chosen.f_code.co_filename).name}:{chosen.f_lineno})"
