"""Keeps a simulation off the real world: no connection, no program, no device, and no file but temporary ones.

It is an audit hook of Python (PEP 578), so it sees what any library does. A hook cannot be removed; this one is
installed with the first simulation of a process, and does nothing outside of one. It is no sandbox: it finds mistakes,
and does not stop an attacker.
"""

import os
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from leadsman.errors import PermanentError
from leadsman.places import innermost
from leadsman.text import clean

DEVICE: ContextVar[str | None] = ContextVar("leadsman_simulated_device", default=None)
"""The device whose handler runs."""
_NETWORK = {
    "socket.connect": "connects to {1}",
    "socket.bind": "binds a socket to {1}",
    "socket.sendto": "sends to {1}",
    "socket.getaddrinfo": "looks up {0}",
    "socket.gethostbyname": "looks up {0}",
}
_PROGRAMS = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty"}
_CHANGES = {"os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.truncate", "os.link", "os.symlink"}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC


class RealWorldError(PermanentError):
    """A handler tried to reach something real during a simulation."""


class Touch(NamedTuple):
    """What a handler tried to do."""

    device: str | None
    what: str
    place: str | None
    """The line of the user's code, such as ``house.py:12``."""


class _State:
    active = False
    installed = False
    touch: Touch | None = None


@contextmanager
def guarded() -> Iterator[None]:
    """Refuse to touch the real world inside the block."""
    if not _State.installed:
        sys.addaudithook(_hook)
        _State.installed = True
    before = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    _State.active, _State.touch = True, None
    try:
        yield
    finally:
        _State.active = False
        sys.dont_write_bytecode = before


def touched() -> Touch | None:
    """The first attempt to touch the real world since the block began."""
    return _State.touch


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if not _State.active:
        return
    what = _what(event, arguments)
    if what is not None:
        _State.active = False  # finding the place reads files
        try:
            touch = Touch(DEVICE.get(), clean(what), innermost(traceback.extract_stack()))
            _State.touch = _State.touch or touch
        finally:
            _State.active = True
        raise RealWorldError(f"a simulation touches nothing real, and this {touch.what}")


def _what(event: str, arguments: tuple[object, ...]) -> str | None:
    """What the event does to the real world; None if it does nothing."""
    if event == "open":
        path, _, flags = (*arguments, None, None, None)[:3]
        writes = isinstance(flags, int) and bool(flags & _WRITING)
        return _file(path, "writes" if writes else "opens", writes=writes)
    if event in _NETWORK:
        return _NETWORK[event].format(*arguments, "?", "?")
    if event in _PROGRAMS:
        return f"starts the program {arguments[0]!r}" if arguments else "starts a process"
    if event in _CHANGES:
        return _file(arguments[0], f"calls {event} on", writes=True)
    if event == "sqlite3.connect" and arguments[0] != ":memory:":
        return _file(arguments[0], "opens the database", writes=True)
    return None


def _file(path: object, verb: str, *, writes: bool) -> str | None:
    if isinstance(path, int) or path is None:
        return None
    name = os.path.abspath(os.fsdecode(path)) if isinstance(path, str | bytes | os.PathLike) else str(path)
    device = name.startswith("/dev/") and name not in (os.devnull, "/dev/urandom", "/dev/random")
    temporary = name.startswith(os.path.join(tempfile.gettempdir(), ""))
    return f"{verb} {name}" if device or (writes and not temporary and name != os.devnull) else None
