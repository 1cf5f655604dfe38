"""The terminal of ``leadsman watch``: its keys, and the screen, which is left as it was found."""

import contextlib
import os
import re
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Sequence

NAMES = {
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
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l\x1b[2J", "\x1b[?25h\x1b[?1049l"
"""The alternate screen, without a cursor."""


def keys_of(text: str) -> list[str]:
    """The keys in what a terminal sent: names of `NAMES`, or single characters. Keys without a meaning here, such as
    F5, are left out."""
    found = _KEY.findall(text)
    return [NAMES.get(key, key) for key in found if key in NAMES or len(key) == 1]


@contextlib.contextmanager
def full_screen() -> Iterator[Callable[[Sequence[str]], None]]:
    """Take the terminal, and give it back at the end, whatever happens. Yields a function that draws lines, which must
    leave the last column free: there, a terminal clears the last character with the rest of the line."""
    handle = sys.stdin.fileno()
    before = termios.tcgetattr(handle)

    def draw(lines: Sequence[str]) -> None:
        write("\x1b[H" + "\r\n".join(f"{line}\x1b[K" for line in lines) + "\x1b[J")

    def write(text: str) -> None:
        rest = memoryview(text.encode(errors="replace"))
        while rest:
            rest = rest[os.write(sys.stdout.fileno(), rest) :]

    try:
        tty.setraw(handle)
        write(_ENTER)
        yield draw
    finally:
        with contextlib.suppress(OSError, termios.error):  # the terminal may be gone
            termios.tcsetattr(handle, termios.TCSADRAIN, before)
            write(_LEAVE)
