"""Keeps a replay off the real world: no connection, no program, no device, and no file but temporary ones.

It is an audit hook of Python (PEP 578), so it sees what any library does, and an adapter of the user's own, which no
session answers for. A hook cannot be removed; this one is installed once, and does nothing outside of its block. It is
no sandbox: it finds mistakes, and does not stop an attacker.
"""

import os
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from leadsman.core.loop.user_code import innermost
from leadsman.core.text import clean
from leadsman.errors import PermanentError

_NETWORK = {
    "socket.connect": "connects to {1}",
    "socket.bind": "binds a socket to {1}",
    "socket.sendto": "sends to {1}",
    "socket.sendmsg": "sends to {1}",
    "socket.getaddrinfo": "looks up {0}",
    "socket.gethostbyname": "looks up {0}",
    "socket.gethostbyaddr": "looks up {0}",
    "socket.getnameinfo": "looks up {0}",
    "syslog.syslog": "writes to the log of the system",
}
_PROGRAMS = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty"}
_SIGNALS = {"os.kill", "os.killpg"}
_CHANGES: Mapping[str, tuple[tuple[int, int | None], ...]] = {
    "os.remove": ((0, 1),),
    "os.rmdir": ((0, 1),),
    "os.mkdir": ((0, 2),),
    "os.rename": ((0, 2), (1, 3)),
    "os.link": ((1, 3),),
    "os.symlink": ((1, 2),),
    "os.truncate": ((0, None),),
    "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),),
    "os.utime": ((0, 3),),
}
"""Which arguments of these events are the paths that change, and which are the directories they are relative to."""
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC


class RealWorldError(PermanentError):
    """The app tried to reach something real during a replay."""


class Touch(NamedTuple):
    """What the app tried to do."""

    what: str
    place: str | None
    """The line of the user's code, such as ``house.py:12``."""


class _State:
    active = False
    installed = False
    touch: Touch | None = None


_own = threading.local()
"""Of each thread: whether the hook itself works, which may read files."""


@contextmanager
def refuse_real_world() -> Iterator[None]:
    """Refuse to touch the real world inside the block."""
    if not _State.installed:
        sys.addaudithook(_hook)
        _State.installed = True
    tempfile.gettempdir()  # the first call tries directories out, under a lock, and the hook asks for it, too
    before = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    _State.active, _State.touch = True, None
    try:
        yield
    finally:
        _State.active = False
        sys.dont_write_bytecode = before


def first_touch() -> Touch | None:
    """The first attempt to touch the real world since the block began."""
    return _State.touch


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if not _State.active or getattr(_own, "busy", False):
        return
    what = _what(event, arguments)
    if what is not None:
        _own.busy = True
        try:
            touch = Touch(clean(what), innermost(traceback.extract_stack()))
            _State.touch = _State.touch or touch
        finally:
            _own.busy = False
        raise RealWorldError(f"a replay touches nothing real, and this {touch.what}")


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
    if event in _SIGNALS:
        return f"sends a signal to the process {arguments[0]}" if arguments[1] else None
    if event in _CHANGES:
        return _change(event, arguments)
    if event == "sqlite3.connect" and (path := _database(arguments[0])) not in ("", ":memory:"):
        return _file(path, "opens the database", writes=True)
    return None


def _database(address: object) -> object:
    """The file of a database, which may be named by a URI; empty, or ``:memory:``, where it has none."""
    named = os.fsdecode(address) if isinstance(address, bytes) else address
    if not isinstance(named, str) or not named.startswith("file:"):
        return named
    parts = urlsplit(named)
    return "" if "memory" in parse_qs(parts.query).get("mode", ()) else unquote(parts.path)


def _change(event: str, arguments: tuple[object, ...]) -> str | None:
    for at, directory in _CHANGES[event]:
        base = -1 if directory is None else arguments[directory]
        what = _file(arguments[at], f"calls {event} on", writes=True, base=base)
        if what is not None:
            return what
    return None


def _file(path: object, verb: str, *, writes: bool, base: object = -1) -> str | None:
    """What is done to a file; None for one that may be used. `base` is the open directory that a path is relative to,
    or -1."""
    if isinstance(path, int) or path is None:
        return None
    name = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else str(path)
    if isinstance(base, int) and base >= 0:
        try:
            name = os.path.join(os.readlink(f"/proc/self/fd/{base}"), name)
        except OSError:  # not on Linux
            return None
    name = os.path.abspath(name)
    device = name.startswith("/dev/") and name not in (os.devnull, "/dev/urandom", "/dev/random")
    temporary = name.startswith(os.path.join(tempfile.gettempdir(), ""))
    return f"{verb} {name}" if device or (writes and not temporary and name != os.devnull) else None
