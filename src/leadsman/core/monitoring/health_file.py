"""The health file, by which a container sees that its app works: where it is, what is in it, and its probe.

A probe runs every half a minute, beside the app, on the smallest of machines. So this module imports no other one: to
import the command line would take ten times as long as the rest.
"""

import json
import os
import stat
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leadsman.core.monitoring.document import HealthFile

HEALTH_FILE = "LEADSMAN_HEALTH_FILE"
LAYOUT = 1
"""The number of the layout of the file."""
PERIOD = 10.0
"""Seconds between two updates of the health file and of ``STATUS=``, at most."""
OVERDUE = 3
"""If the health file is older than this many periods, the process hangs or has ended."""
_MAX_FILE_BYTES = 64 * 1024
"""Bytes of a health file that are read."""


def read_health(path: str | os.PathLike[str], now: float) -> tuple[bool, str]:
    """Whether the health file at `path` shows an app in good health, and a summary or the reason why not."""
    try:
        health: HealthFile = json.loads(_read(path))
        if (number := health.get("layout", LAYOUT)) > LAYOUT:
            from leadsman.core.text import written_by_newer

            return False, f"{path} {written_by_newer(number, LAYOUT)}; probe the app with that version"
        if not isinstance(words := health["words"], str):
            raise TypeError("its words are no text")
        age, longest = now - health["at"], OVERDUE * float(health["period"])
        fresh = health["fresh"] is True
    except FileNotFoundError:
        return False, f"{path} does not exist; check that the app is running, with {HEALTH_FILE} set to this path"
    except OSError as error:
        return False, f"{path} cannot be read: {error.strerror}; name the file that the app writes, and see who owns it"
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError):
        return False, f"{path} is no health file; name the one that the app writes with {HEALTH_FILE}"
    if not -1.0 <= age <= longest:
        return False, f"the health file is {abs(age):.0f} s old; the app hangs or has ended"
    return fresh, words


def probe(file: str | None = None) -> tuple[bool, str]:
    """Whether the app runs and some data is fresh, and a line about how it is, in printable characters.

    Args:
        file: the health file; None: the one that the environment names.
    """
    path = file or health_file()
    if path is None:
        return (
            False,
            f"leadsman: no health file is configured; set {HEALTH_FILE} for the app and here, or name the file",
        )
    well, summary = read_health(path, time.monotonic())
    return well, "".join(each if each.isprintable() else ascii(each)[1:-1] for each in summary)


def health_file(environment: Mapping[str, str] = os.environ) -> str | None:
    """The path of the health file: ``$LEADSMAN_HEALTH_FILE``, else in systemd's ``$RUNTIME_DIRECTORY``; else None."""
    if given := environment.get(HEALTH_FILE):
        return given
    runtime = environment.get("RUNTIME_DIRECTORY", "").split(":")[0]
    return os.path.join(runtime, "health.json") if runtime else None


def _read(path: str | os.PathLike[str]) -> bytes:
    """The beginning of the file. One that is a pipe would keep the probe waiting."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(0, "it is not a regular file")
        return file.read(_MAX_FILE_BYTES)
