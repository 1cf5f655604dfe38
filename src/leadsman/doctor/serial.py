"""Collects facts about serial ports without opening one: that would toggle DTR, which resets some devices, and take
bytes from the app. Its functions block."""

import contextlib
import os
import socket
import stat
from pathlib import Path
from urllib.parse import urlsplit

from leadsman.adapters.serial.port import BY_ID, stable_name
from leadsman.doctor.facts import SerialFacts
from leadsman.text import clean, describe


def look(url: str, processes: Path = Path("/proc")) -> SerialFacts:
    """Look at a port.

    Args:
        url: a path, or the URL of a gateway.
        processes: where the kernel lists processes.
    """
    if "://" in url:
        return _gateway(url)
    try:
        found = os.stat(url)
    except OSError:
        present = sorted(str(each) for each in BY_ID.iterdir()) if BY_ID.is_dir() else []
        return SerialFacts(url, exists=False, present=tuple(present))
    return SerialFacts(
        url,
        device=stat.S_ISCHR(found.st_mode),
        allowed=os.access(url, os.R_OK | os.W_OK),
        group=_group(found.st_gid),
        member=found.st_gid in (*os.getgroups(), os.getegid()),
        stable=stable_name(url),
        holders=holders(os.path.realpath(url), processes),
    )


def holders(path: str, processes: Path) -> tuple[str, ...]:
    """The programs that have a file open, as far as this user may see: ``python3 (1234)``."""
    found = []
    for process in processes.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int(process.name) != os.getpid() and _holds(process, path):
                found.append(f"{clean((process / 'comm').read_text().strip())} ({process.name})")
    return tuple(sorted(found))


def _holds(process: Path, path: str) -> bool:
    for each in (process / "fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            if os.readlink(each) == path:
                return True
    return False


def _group(number: int) -> str:
    import grp  # not on Windows

    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


def _gateway(url: str) -> SerialFacts:
    try:
        parts = urlsplit(url)
        socket.getaddrinfo(parts.hostname, parts.port, type=socket.SOCK_STREAM)
    except ValueError as error:  # a port or a name that cannot be one
        return SerialFacts(url, fault=describe(error))
    except OSError as error:
        return SerialFacts(url, fault=error.strerror or describe(error))
    return SerialFacts(url)
