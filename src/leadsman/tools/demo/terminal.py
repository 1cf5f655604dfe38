"""Shows a demo: lines with the time, or a screen that is drawn again and again, and what screens consist of."""

import asyncio
import shlex
import shutil
import sys
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from leadsman.text import escape
from leadsman.tools.cli import screen
from leadsman.tools.cli.screen import Line, cut
from leadsman.tools.cli.terminal import full_screen, size, stderr_to

REDRAW = 0.25
"""Seconds between two drawings."""


class Screen(Protocol):
    """What can be drawn, with lines of a log in it."""

    @property
    def events(self) -> deque[str]:
        """The lines of the log, the newest last."""
        ...

    def screen(self, now: float, width: int, height: int) -> list[Line]:
        """All of it at `now`, epoch seconds: so many lines of at most so many cells."""
        ...


def program() -> str:
    """What to type in another terminal to run the command ``leadsman`` of this process. A virtual environment that is
    not active there, as after ``make demo``, is named."""
    own = Path(sys.executable).with_name("leadsman")
    found = shutil.which(own.name)
    if not own.is_file() or (found is not None and Path(found).samefile(own)):
        return own.name
    near = own.relative_to(Path.cwd()) if own.is_relative_to(Path.cwd()) else own
    return shlex.quote(str(near))


def say(line: str) -> None:
    """Print a line with the time, at once."""
    print(time.strftime("%H:%M:%S"), line, flush=True)


async def show(board: Screen) -> None:
    """Draw the board until cancelled. What is written to stderr meanwhile goes to its log."""
    with full_screen() as draw, stderr_to(lambda line: board.events.append(f"{time.strftime('%H:%M:%S')} {line}")):
        while True:
            draw(board.screen(time.time(), *size()))
            await asyncio.sleep(REDRAW)


def heading(title: str, width: int) -> Line:
    """The line above a part of a screen."""
    return [(f"── {title} ".ljust(width, "─"), "dim")]


def wrap(text: str, width: int, style: str = "") -> list[Line]:
    """A text in lines that are not longer than that, broken at words."""
    return [[(line, style)] for line in screen.wrap(escape(text), width, "", "  ")]


def exactly(lines: Iterable[Line], count: int) -> list[Line]:
    """So many lines, so that nothing below them moves."""
    return [*lines, *([("", "")] for _ in range(count))][:count]


def with_newest(lines: list[Line], events: Iterable[str], width: int, height: int) -> list[Line]:
    """A screen of `height` lines: these lines, and in those that are left below them the newest events."""
    room = max(0, height - len(lines))
    log = [line for event in events for line in wrap(event, width)] or [[("nothing yet", "")]]
    return [cut(line, width) for line in (*lines[:height], *exactly(log[-room:], room))]
