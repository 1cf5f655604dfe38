"""``--show``: the readings of the app of this process in its terminal, and the calls that fail, as they come."""

import json
import os
import queue
import threading
import time
from collections.abc import Mapping
from typing import Self

from leadsman.core.events import AttemptFailed, PollFailed
from leadsman.core.introspection.watching import small_fields
from leadsman.core.loop.clock import rfc3339
from leadsman.core.loop.durations import human
from leadsman.core.monitoring.bugs import placed
from leadsman.core.readings.reading import JsonValue, Reading
from leadsman.core.text import count_noun, escape
from leadsman.tools.cli.screen import Line, text_of
from leadsman.tools.cli.times import local

MAX_WAITING = 500
"""What may wait for the terminal. Nothing waits for it in turn: further lines are left out, and counted."""
CLOSING = 0.5
"""Seconds that the last lines may take when the app has ended."""
_NAP = 0.05
"""Seconds to wait for an output that does not block and takes nothing now."""

What = Reading | PollFailed | AttemptFailed


class Show:
    """Writes lines in a thread of its own, until the end of the block.

    Args:
        handle: the descriptor to write to.
        colour: whether to use colours.
    """

    def __init__(self, handle: int, *, colour: bool) -> None:
        self._handle = handle
        self._colour = colour
        self._waiting: queue.Queue[tuple[What, Mapping[str, str]] | None] = queue.Queue(MAX_WAITING)
        self._left_out = 0
        self._thread = threading.Thread(target=self._run, name="leadsman show", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        try:
            self._waiting.put(None, timeout=CLOSING)
        except queue.Full:  # the terminal takes nothing
            return
        self._thread.join(CLOSING)

    def put(self, what: What, units: Mapping[str, str]) -> None:
        """Show a reading, with the units of its fields, or a failed call. Returns at once."""
        try:
            self._waiting.put_nowait((what, units))
        except queue.Full:
            self._left_out += 1

    def _run(self) -> None:
        told = 0
        try:
            while (waiting := self._waiting.get()) is not None:
                if line := line_of(*waiting):
                    self._write(line)
                if (left_out := self._left_out) > told and self._waiting.empty():
                    lines = count_noun(left_out - told, "line")
                    self._write([(f"… {lines} left out: the output was too slow", "yellow")])
                    told = left_out
        except OSError:  # nobody reads it any more, as after a pipe to head: the app goes on
            while self._waiting.get() is not None:
                pass

    def _write(self, line: Line) -> None:
        rest = memoryview(f"{text_of(line, colour=self._colour)}\n".encode(errors="replace"))
        while rest:
            try:
                rest = rest[os.write(self._handle, rest) :]
            except BlockingIOError:
                time.sleep(_NAP)


def line_of(what: What, units: Mapping[str, str]) -> Line:
    """What is shown; nothing for a call that the handler itself repeats, and for one that its `PollFailed` follows."""
    begin: Line = [(f"{local(rfc3339(what.wall), exact=True)}  ", "dim"), (f"{escape(what.entity)}  ", "bold")]
    if isinstance(what, Reading):
        shown = small_fields(what.fields)
        texts = [f"{name}={_text(value, name, units)}" for name, value in shown.items()]
        texts += [f"{name} is NaN or infinite" for name in what.left_out]
        more = "" if len(shown) == len(what.fields) else "  …"
        return [*begin, (escape("  ".join(texts)) + more, "")]
    if isinstance(what, PollFailed):
        return [*begin, (escape(placed(what.error)), "alarm")]
    if what.delay is None or what.requested:
        return []
    return [*begin, (f"{escape(placed(what.error))}; again in {human(round(what.delay, 1))}", "yellow")]


def _text(value: JsonValue, name: str, units: Mapping[str, str]) -> str:
    """A value as in JSON, with its unit; that of what is nested stands behind each number."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}={_text(each, f'{name}.{key}', units)}" for key, each in value.items()) + "}"
    text = json.dumps(value, ensure_ascii=False)
    unit = units.get(name)
    return text if unit is None or value is None else f"{text} {unit}"
