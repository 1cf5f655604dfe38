"""The terminal of a person: its size, a line of progress, a screen of its own, and what its keys send."""

import asyncio
import contextlib
import os
import re
import shutil
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from typing import Self, TextIO

from leadsman.core.monitoring.log_format import wants_colour
from leadsman.core.text import clean
from leadsman.tools.cli.screen import Line, text_of

FRAME = 0.25
"""Seconds between two frames; a frame that takes long is followed by a pause of four times its length."""
_UNSIZED = (80, 24)
"""Columns and lines of a terminal that does not have its size, such as a serial console."""
KEYS = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\x1b[5~": "page-up",
    "\x1b[6~": "page-down",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x1b": "esc",
    "\x03": "ctrl-c",
}
"""What terminals send (ECMA-48, xterm) for the keys that have names."""
_KEY = re.compile("\x1b(?:\\[[0-?]*[ -/]*[@-~]|O.)|.", re.DOTALL)
"""What one key sends: a control sequence (ECMA-48 §5.4), a function key of xterm, or one character."""
_STDERR = 2
"""The descriptor of stderr, also where Python or a test has put another stream in its place."""
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l\x1b[2J", "\x1b[?25h\x1b[?1049l"
"""The alternate screen, without a cursor."""


def keys_of(text: str) -> list[str]:
    """The keys in what a terminal sent: names of `KEYS`, or single characters. Keys without a meaning here, such as
    F5, are left out."""
    found = _KEY.findall(text)
    return [KEYS.get(key, key) for key in found if key in KEYS or len(key) == 1]


def size() -> tuple[int, int]:
    """The columns that a screen may use, and its lines. The last column stays free: there, a terminal clears the last
    character with the rest of the line."""
    found = os.get_terminal_size(sys.stdout.fileno())
    return max(1, (found.columns or _UNSIZED[0]) - 1), found.lines or _UNSIZED[1]


class Progress:
    """One line that shows what goes on, until the end of its block. What is no terminal gets nothing.

    Args:
        stream: where it is written.
        after: seconds before it appears.
    """

    def __init__(self, stream: TextIO, after: float = 0.0) -> None:
        self._stream = stream
        self._from = time.monotonic() + after if stream.isatty() else float("inf")
        self._text = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._write("")

    def show(self, text: str) -> None:
        """Replace the line."""
        if time.monotonic() >= self._from:
            self._write(clean(text)[: shutil.get_terminal_size().columns - 1])

    def _write(self, text: str) -> None:
        if text != self._text:
            self._stream.write(f"\r\x1b[K{text}")
            self._stream.flush()
            self._text = text


@contextlib.contextmanager
def full_screen() -> Iterator[Callable[[Sequence[Line]], None]]:
    """Take the screen, and give it back at the end, whatever happens. Yields a function that draws lines, which must
    fit `size`."""

    def draw(lines: Sequence[Line]) -> None:
        colour = wants_colour(sys.stdout, os.environ)
        _write("\x1b[H" + "\r\n".join(f"{text_of(line, colour=colour)}\x1b[K" for line in lines) + "\x1b[J")

    try:
        _write(_ENTER)
        yield draw
    finally:
        with contextlib.suppress(OSError):  # the terminal may be gone
            _write(_LEAVE)


@contextlib.contextmanager
def stderr_to(take: Callable[[str], object]) -> Iterator[None]:
    """Hand over each line that this process writes to stderr, libraries in C included, until the end of the block: on
    the same terminal it would tear the screen. A stderr that is no terminal is left alone.

    Args:
        take: is given each line, in a thread of its own.
    """
    if not os.isatty(_STDERR):
        yield
        return
    before, (reading, writing) = os.dup(_STDERR), os.pipe()
    os.dup2(writing, _STDERR)
    os.close(writing)

    def listen() -> None:
        with open(reading, errors="replace") as lines:
            for line in lines:
                take(clean(line.rstrip()))

    listener = threading.Thread(target=listen, name="leadsman stderr", daemon=True)
    listener.start()
    try:
        yield
    finally:
        os.dup2(before, _STDERR)  # the pipe has no writer any more, so its reader ends
        os.close(before)
        listener.join(1.0)


@contextlib.contextmanager
def raw_keys() -> Iterator[None]:
    """Have each key come at once, Ctrl-C as well, and show none of them, until the end of the block."""
    handle = sys.stdin.fileno()
    before = termios.tcgetattr(handle)
    try:
        tty.setraw(handle)
        yield
    finally:
        with contextlib.suppress(OSError, termios.error):  # the terminal may be gone
            termios.tcsetattr(handle, termios.TCSADRAIN, before)


async def show(
    frame: Callable[[], Sequence[Line]], press: Callable[[Sequence[str]], bool], *works: Coroutine[None, None, None]
) -> None:
    """Draw frames, and again after each key, until somebody quits, SIGINT, SIGTERM or SIGHUP arrives, the terminal is
    gone, or a work ends.

    Args:
        frame: makes the lines of the next frame.
        press: is given the keys that were typed, as `keys_of` names them, and returns whether to quit.
        works: run meanwhile. Their errors are raised.
    """
    done, keyed = asyncio.Event(), asyncio.Event()

    def read() -> None:
        typed = b""
        with contextlib.suppress(OSError):
            typed = os.read(sys.stdin.fileno(), 1024)
        if not typed or press(keys_of(typed.decode(errors="ignore"))):
            done.set()
        keyed.set()

    async def draw_frames(draw: Callable[[Sequence[Line]], None]) -> None:
        while True:
            began = time.monotonic()
            try:
                draw(frame())
            except OSError:  # the terminal is gone
                return
            keyed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(FRAME, 4 * (time.monotonic() - began))):
                    await keyed.wait()

    loop = asyncio.get_running_loop()
    with raw_keys(), full_screen() as draw, signals_set(done):
        loop.add_reader(sys.stdin.fileno(), read)
        try:
            async with running(done, *works, draw_frames(draw)):
                await done.wait()
        finally:
            loop.remove_reader(sys.stdin.fileno())


@contextlib.contextmanager
def signals_set(done: asyncio.Event) -> Iterator[None]:
    """Have SIGINT, SIGTERM and SIGHUP set the event until the end of the block, and do then what they did before."""
    loop, numbers = asyncio.get_running_loop(), (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        loop.add_signal_handler(number, done.set)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


@contextlib.asynccontextmanager
async def running(done: asyncio.Event, *works: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Run these while the block runs. `done` is set if one of them ends, and its error is raised after the block."""
    tasks = [asyncio.create_task(work) for work in works]
    for task in tasks:
        task.add_done_callback(lambda _: done.set())
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
    for end in ends:
        if isinstance(end, Exception):
            raise end


def _write(text: str) -> None:
    rest = memoryview(text.encode(errors="replace"))
    while rest:
        rest = rest[os.write(sys.stdout.fileno(), rest) :]
