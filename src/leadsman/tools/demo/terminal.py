"""Shows a demo: lines with the time, or a screen that is drawn anew, and what screens consist of."""

import asyncio
import shlex
import shutil
import sys
import textwrap
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from leadsman.extras import missing

try:
    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.text import Text
except ImportError as error:
    raise missing("demos", "rich", "demo", error) from error


REDRAW = 0.25
"""Seconds between two drawings."""


class Screen(Protocol):
    """What can be drawn."""

    def screen(self, now: float, width: int, height: int) -> RenderableType:
        """All of it at `now`, epoch seconds, on a terminal of that size."""
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


def finish(text: str) -> None:
    """Print the last words: on a terminal in lines that fit, elsewhere in one line."""
    width = shutil.get_terminal_size().columns
    print("\n".join(line.plain for line in wrapped(text, width)) if sys.stdout.isatty() else text)


async def show(board: Screen) -> None:
    """Draw the board until cancelled."""
    console = Console()
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(board.screen(time.time(), *console.size), refresh=True)
            await asyncio.sleep(REDRAW)


def heading(title: str, width: int) -> Text:
    """The line above a part of a screen."""
    return Text(f"── {title} ".ljust(width, "─"), "dim")


def wrapped(text: str, width: int, style: str = "") -> list[Text]:
    """A text in lines that are not longer than that, broken at words."""
    return [Text(line, style) for line in textwrap.wrap(text, width, subsequent_indent="  ")]


def exactly(lines: Iterable[Text], count: int) -> list[Text]:
    """So many lines, so that nothing below them moves."""
    return [*lines, *[Text("")] * count][:count]


def newest(events: Iterable[str], width: int, room: int) -> list[Text]:
    """The newest events, in the lines that are left for them."""
    if room <= 0:
        return []
    lines = [line for event in events for line in wrapped(event, width)]
    return exactly(lines[-room:] or [Text("nothing yet")], room)
