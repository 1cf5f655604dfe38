"""Finds the place in the user's code where an error was raised or a call hangs, and the frames that led there."""

import asyncio
import functools
import gc
import inspect
import os
import sys
import traceback
from collections.abc import Awaitable, Iterable
from pathlib import Path
from types import FrameType

from leadsman.core.text import clean, without_secret_lines

MAX_FRAMES = 8
"""How many frames are shown, the innermost ones; a recursion has thousands of the same."""
MAX_STEPS = 1000
"""How many steps of what a task awaits are followed: a proxy may have an end of its chain nowhere."""
_OWN_CODE = str(Path(__file__).parents[2]) + os.sep
_NOBODYS = (_OWN_CODE, "<frozen ")
"""Where neither the user's code nor a library is: of leadsman, and of the interpreter's import."""


def place_of(error: BaseException) -> str | None:
    """``plant.py:57``: its frame, as in `frame_of`; None without frames."""
    frame = frame_of(error)
    return None if frame is None else _write_place(frame.filename, frame.lineno)


def frame_of(error: BaseException) -> traceback.FrameSummary | None:
    """The innermost frame of the user's code, else the innermost one outside leadsman, as of an app that is installed
    as a library, else the innermost one; None without frames."""
    frames = _from_the_user(error)
    own = [frame for frame in frames if not _foreign(frame.filename)]
    others = [frame for frame in frames if not frame.filename.startswith(_NOBODYS)]
    return next(reversed(own or others or frames), None)


def innermost(stack: Iterable[traceback.FrameSummary]) -> str | None:
    """The innermost frame of the user's code in a stack; None if there is none."""
    own = [frame for frame in stack if not _foreign(frame.filename)]
    return _write_place(own[-1].filename, own[-1].lineno) if own else None


def frames_of(error: BaseException) -> list[str]:
    """The traceback in lines, without the frames of leadsman that came before the user's."""
    frames = _from_the_user(error)[-MAX_FRAMES:]
    lines = without_secret_lines("".join(traceback.format_list(frames))).splitlines()
    return [f"  {clean(line)}" for line in lines]


def waiting_at(task: "asyncio.Task[object]") -> str | None:
    """``plant.py:57``: the innermost line of the user's code where a task waits; None if it waits elsewhere."""
    found = None
    at: object = task.get_coro()  # a coroutine, then whatever it awaits
    for _ in range(MAX_STEPS):
        if at is None:
            break
        frame = getattr(at, "cr_frame", None) or getattr(at, "gi_frame", None) or getattr(at, "ag_frame", None)
        if frame is not None and not _foreign(frame.f_code.co_filename):
            found = frame
        at = getattr(at, "cr_await", None) or getattr(at, "gi_yieldfrom", None) or getattr(at, "ag_await", None)
        if isinstance(at, Awaitable) and not hasattr(at, "cr_frame"):  # a step of an asynchronous generator
            at = next(filter(inspect.isasyncgen, gc.get_referents(at)), at)
    return None if found is None else _line(found)


def blocked_at(thread: int) -> str | None:
    """``plant.py:57``: the innermost line of the user's code where a thread is, by its identifier; None if it is
    elsewhere, or has ended."""
    frame = sys._current_frames().get(thread)  # noqa: SLF001  # the documented way; it is only spelled so
    while frame is not None and _foreign(frame.f_code.co_filename):
        frame = frame.f_back
    return None if frame is None else _line(frame)


def _from_the_user(error: BaseException) -> list[traceback.FrameSummary]:
    """The frames from the first one outside leadsman on; all of them if there is none."""
    frames = list(traceback.extract_tb(error.__traceback__))
    first = next((n for n, frame in enumerate(frames) if not _foreign(frame.filename)), None)
    if first is None:
        first = next((n for n, frame in enumerate(frames) if not frame.filename.startswith(_OWN_CODE)), 0)
    return frames[first:]


def program_of(frame: FrameType | None) -> str:
    """The file of the innermost code outside leadsman that led to a frame; empty text if there is none."""
    while frame is not None and frame.f_code.co_filename.startswith(_NOBODYS):
        frame = frame.f_back
    return "" if frame is None else os.path.abspath(frame.f_code.co_filename)


def _line(frame: FrameType) -> str:
    return _write_place(frame.f_code.co_filename, frame.f_lineno)


def _write_place(file: str, line: int | None) -> str:
    return clean(f"{Path(file).name}:{line}")


def _foreign(file: str) -> bool:
    """Whether a file is part of leadsman or of a library, also in an environment inside the user's directory."""
    return file.startswith((*_NOBODYS, *_libraries())) or "site-packages" in file


@functools.cache
def _libraries() -> tuple[str, ...]:
    """Where the libraries of this interpreter are."""
    import sysconfig  # only an app with a bug needs it

    paths = {sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib")}
    return tuple(path + os.sep for path in (str(Path(asyncio.__file__).parent.parent), *paths))
