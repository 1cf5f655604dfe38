"""Which app wrote a state directory, and which process did so last.

Two programs may have one name, and then they have one directory. What waits there for the broker, and how devices
failed, must not be taken for one's own by the other. An app that was moved, renamed or edited is still the same app, so
it is another one only if it has none of the devices, and another program or another name.
"""

import json
import os
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from leadsman.core.storage import files
from leadsman.core.text import clean, written_by_newer

FILE = "owner"
"""In the state directory. No store has this name: those end in ``.json``."""
LAYOUT = 1
"""The number of the layout of the directory: of this file, of the stores, and of the subscriptions. A database has a
number of its own. Whoever changes one of these files raises it."""
MAX_FILE_BYTES = 1024 * 1024
"""Bytes of the file that are read: the names of some thousand devices."""
_OF_NO_LOSS = frozenset({FILE, "subscriptions.json"})
"""Files that cost an app nothing but a moment when another one replaces them."""
_SHOWN = 3
"""Devices that a sentence names."""


class Owner(NamedTuple):
    """An app, as the process that wrote the file knew it."""

    app: str
    program: str
    """The file in which the app is made."""
    devices: frozenset[str]
    pid: int = 0
    """Of the process; 0 if it is not known."""
    host: str = ""

    def is_other(self, owner: "Owner") -> bool:
        """Whether that is another app, as far as is known."""
        same = (self.app, self.program) == (owner.app, owner.program)
        return not (same or self.has_devices_of(owner))

    def has_devices_of(self, owner: "Owner") -> bool:
        """Whether they have a device in common, or one of them has none."""
        return bool(self.devices & owner.devices) or not (self.devices and owner.devices)

    def __str__(self) -> str:
        names = sorted(self.devices)
        more = [] if len(names) <= _SHOWN else [f"{len(names) - _SHOWN} more"]
        listed = ", ".join([*names[:_SHOWN], *more]) or "none"
        return clean(f"{self.program or 'an unknown program'} (devices: {listed})")


def this_process(app: str, program: str, devices: Iterable[str]) -> Owner:
    """The owner that this process is."""
    return Owner(app, program, frozenset(devices), os.getpid(), socket.gethostname())


def read_newer(directory: Path) -> str | None:
    """Why the files of a directory are left as they are: a newer version of leadsman wrote them. None if none did."""
    number = _document(directory).get("layout")
    if not isinstance(number, int) or number <= LAYOUT:
        return None
    about = written_by_newer(number, LAYOUT)
    return f"{directory} {about}; install that version again, or give this one another STATE_DIRECTORY"


def read(directory: Path) -> Owner | None:
    """The app that wrote a directory; None if that is not known."""
    found = _document(directory)
    app, program, host = found.get("app"), found.get("program"), found.get("host")
    devices, pid = found.get("devices"), found.get("pid")
    if not (isinstance(app, str) and isinstance(program, str) and isinstance(host, str) and isinstance(devices, list)):
        return None
    return Owner(app, program, frozenset(map(str, devices)), pid if isinstance(pid, int) else 0, host)


def _document(directory: Path) -> dict[str, object]:
    """What is in the file; nothing if there is none, or no JSON object in it."""
    try:
        found = json.loads(files.read(directory / FILE, MAX_FILE_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def write(directory: Path, owner: Owner) -> None:
    """Write down that this app writes the directory. It is not synced: without the file the directory is one's own.

    Raises:
        OSError: it cannot be written.
    """
    data = json.dumps({"layout": LAYOUT, **owner._asdict(), "devices": sorted(owner.devices)}).encode()
    files.replace(directory / FILE, directory / f"{FILE}.tmp", data, sync=False)


def holds_something(directory: Path) -> bool:
    """Whether an app has left something there that it would miss."""
    try:
        with os.scandir(directory) as found:
            return any(each.name not in _OF_NO_LOSS for each in found)
    except OSError:
        return False


def in_use(directory: Path) -> str:
    """The sentence for somebody who finds that another process has locked something in a directory."""
    owner = read(directory)
    where = "" if owner is None else _whereabouts(owner)
    return (
        f"another process of this app runs{where} and uses {directory}; stop it, or give this one a prefix of its own "
        "(--prefix, MQTT__TOPIC_PREFIX), and another STATE_DIRECTORY if that is set"
    )


def _whereabouts(owner: Owner) -> str:
    """Who it was that wrote the file, unless that process is gone, or is this one."""
    if owner.host == socket.gethostname() and (owner.pid == os.getpid() or not _is_alive(owner.pid)):
        return ""
    return clean(f" (process {owner.pid} on {owner.host}, {owner.program})")


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True  # of another user
    except (OSError, OverflowError):
        return False
    return pid > 0
