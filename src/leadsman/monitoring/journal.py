"""Sends log records to the journal of systemd with their fields, so that ``journalctl LEADSMAN_DEVICE=meter`` finds
those of a device. A line on stderr has a priority, and no other field.

See https://systemd.io/JOURNAL_NATIVE_PROTOCOL/: a record is one datagram.
"""

import json
import logging
import os
import re
import socket
from collections.abc import Mapping

from leadsman.text import clean

SOCKET = "/run/systemd/journal/socket"
"""Where journald takes records (systemd-journald.service(8))."""
PREFIX = "LEADSMAN_"
"""Begins the names of our own fields, so that they are told from those of the journal."""
MOST_NAME = 64
"""Characters of the name of a field (journal-fields(7))."""
_PRIORITIES = {"DEBUG": 7, "INFO": 6, "WARNING": 4, "ERROR": 3, "CRITICAL": 2}
"""Of syslog(3)."""


def priority_of(record: logging.LogRecord) -> int:
    """The priority of a record, as syslog(3) counts it."""
    return _PRIORITIES.get(record.levelname, 6)


def field_name(name: str) -> str:
    """The name of one of our fields in the journal, which takes capital letters, digits and underscores."""
    return (PREFIX + re.sub("[^A-Z0-9_]", "_", name.upper()))[:MOST_NAME]


def entry(fields: Mapping[str, str]) -> bytes:
    """The datagram of a record. A text with several lines goes with its length before it."""
    parts = []
    for name, text in fields.items():
        value = text.encode(errors="backslashreplace")
        if b"\n" in value:
            parts.append(name.encode() + b"\n" + len(value).to_bytes(8, "little") + value + b"\n")
        else:
            parts.append(name.encode() + b"=" + value + b"\n")
    return b"".join(parts)


def _text(value: object) -> str:
    return clean(value) if isinstance(value, str) else json.dumps(value)


class JournalHandler(logging.Handler):
    """Sends records to journald.

    Args:
        path: the socket of journald.
        instead: gets a record that cannot be sent, because journald is away, or the record is larger than a datagram.
    """

    def __init__(self, path: str, instead: logging.Handler) -> None:
        super().__init__()
        self._path = path
        self._instead = instead
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def emit(self, record: logging.LogRecord) -> None:
        """Send one record."""
        own = getattr(record, "fields", {})
        try:
            fields = {"MESSAGE": self.format(record), "PRIORITY": str(priority_of(record)), "LOGGER": record.name}
            fields |= {field_name(name): _text(value) for name, value in own.items()}
            self._socket.sendto(entry(fields), self._path)
        except Exception:  # stderr is left for what journald does not take, or cannot be written as a datagram
            self._instead.handle(record)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
        super().close()


def is_journal(stream_number: int, environment: Mapping[str, str]) -> bool:
    """Whether systemd connected a stream to the journal (systemd.exec(5), ``$JOURNAL_STREAM``)."""
    try:
        status = os.fstat(stream_number)
    except OSError:
        return False
    return environment.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"
