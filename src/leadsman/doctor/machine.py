"""Collects facts about the machine. Its functions block, and change nothing."""

import ctypes
import os
import platform
import shutil
import stat
import time
import warnings
from pathlib import Path

from leadsman._version import __version__
from leadsman.doctor.facts import Disk, MachineFacts, StateFacts
from leadsman.text import describe

_UNSYNCHRONISED = 5
"""TIME_ERROR of adjtimex(2)."""
_TIMEX = 512
"""Bytes, more than ``struct timex`` has on any machine."""


def look(state: Path | None) -> MachineFacts:
    """Look at the machine.

    Args:
        state: the state directory; None if nothing is kept there.
    """
    zone, fault = _zone()
    return MachineFacts(
        platform.python_version(),
        __version__,
        time.time(),
        zone,
        fault,
        _synchronised(),
        _disks([Path.cwd()] if state is None else [_existing(state), Path.cwd()]),
        None if state is None else state_of(state),
    )


def state_of(path: Path) -> StateFacts:
    """Look at the state directory."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return StateFacts(path, False, os.access(_existing(path), os.W_OK | os.X_OK))
    except OSError:
        return StateFacts(path, True, False)
    return StateFacts(path, True, path.is_dir() and os.access(path, os.W_OK | os.X_OK), mode)


def _existing(path: Path) -> Path:
    """The directory, or the nearest one above it that exists."""
    return next((each for each in (path, *path.parents) if each.is_dir()), Path("/"))


def _disks(paths: list[Path]) -> tuple[Disk, ...]:
    """The file systems of these paths, each once."""
    found: dict[int, Disk] = {}
    for path in paths:
        try:
            found.setdefault(path.stat().st_dev, Disk(path, shutil.disk_usage(path).free))
        except OSError:
            continue
    return tuple(found.values())


def _zone() -> tuple[str | None, str | None]:
    from tzlocal import get_localzone_name

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            name = get_localzone_name()
    except Exception as error:  # a file or a variable that names no zone
        return None, describe(error)
    return (name, None) if name else (None, "the system names no time zone")


def _synchronised() -> bool | None:
    """What the kernel says of its clock; None where it says nothing."""
    try:
        status = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX))
    except (OSError, AttributeError):
        return None
    return None if status < 0 else status != _UNSYNCHRONISED
