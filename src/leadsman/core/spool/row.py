"""Rows of the spool, their checksum, and the quota: the rows, their size, and the answers of the store."""

import struct
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

ROW_BYTES = 60
"""Bytes that a row counts besides its topic and its payload: its other columns, and its share of the page."""
MIB = 1024 * 1024
DAY = 86_400.0

_FIXED = struct.Struct(">qqBdd")
_NEVER = float("inf")


class SpoolRow(NamedTuple):
    """One reading, as it waits."""

    id: int
    """Order of acceptance: unique in the file, and larger after a restart than anything in the file. 1 to
    `leadsman.core.storage.database.MAX_ROW_NUMBER`."""
    run: int
    """Random number of the process that took the reading, 0 to 2^63 - 1. Subscribers find duplicates by (run, id)."""
    topic: str
    payload: bytes
    qos: int
    """0 to 2."""
    retain: bool
    taken_at: float
    """Epoch seconds."""
    expires_at: float | None
    """Epoch seconds after which nobody wants it; None: only the quota limits its life."""
    latest: bool
    """Only the newest row of its topic counts: a row that is written replaces those of its topic that are `latest`."""


class Quota(NamedTuple):
    """How much waits at most."""

    most_bytes: int = 64 * MIB
    """Bytes of all rows, as `size` counts them."""
    most_age: float = 7 * DAY
    """Seconds since a reading was taken."""
    least_free: int = 16 * MIB
    """Bytes that the file system must have free, before a row is added."""


class Found(NamedTuple):
    """The contents of a file that was opened."""

    rows: int
    next_id: int
    """The smallest id that is larger than all in the file."""
    quarantined: str | None = None
    """The name of the damaged file that was put aside; it lies in the same directory."""
    salvaged: int = 0
    """Rows that were copied from the damaged file."""
    damaged: int = 0
    """Rows with a wrong checksum, which are among the dead letters."""
    unread: int | None = 0
    """Rows of the damaged file that could not be read. Where they were not counted before, it is how many numbers are
    missing between those that were read, and None if that is not known."""


class TopicRows(NamedTuple):
    """The rows of one topic in a file."""

    rows: int
    newest: int
    """The largest id that was accepted since the topic was last without rows."""
    latest: int | None = None
    """The id of its row with `SpoolRow.latest`, if there is one."""


class Evicted(NamedTuple):
    """Rows of one topic that were deleted, or not written, to obey the quota."""

    topic: str
    reason: str
    """`FULL` or `EXPIRED`: readings that are lost. `SUPERSEDED`: a newer row of a topic with `SpoolRow.latest` is
    there."""
    ids: list[int]
    """Their ids, in order."""


FULL = "outbox full"
EXPIRED = "expired"
SUPERSEDED = "superseded"
DAMAGED = "the checksum does not match"
"""Why a dead letter is one that was never sent: its bytes changed on the disk."""


class DeadLetter(NamedTuple):
    """A row that is not sent any more."""

    number: int
    """Its number among the dead letters, which is never used again."""
    row: SpoolRow
    died_at: float
    """Epoch seconds."""
    why: str

    @property
    def damaged(self) -> bool:
        """Whether its content is not the accepted one."""
        return self.why == DAMAGED


def flags(row: SpoolRow) -> int:
    """QoS, retain and latest as one number."""
    return row.qos | row.retain << 2 | row.latest << 3


def crc(row: SpoolRow) -> int:
    """The CRC-32 of all fields of a row (`zlib.crc32`). SQLite does not notice a bit that flips in a payload."""
    topic = row.topic.encode(errors="replace")
    expires_at = _NEVER if row.expires_at is None else row.expires_at
    fixed = _FIXED.pack(row.id, row.run, flags(row), row.taken_at, expires_at)
    return zlib.crc32(row.payload, zlib.crc32(b"%s%d:%s" % (fixed, len(topic), topic)))


def size(topic: str, payload: int) -> int:
    """The bytes that a row counts, with a payload of `payload` bytes."""
    return len(topic.encode(errors="replace")) + payload + ROW_BYTES


# Rows as the tables of the spool have them.

Columns = tuple[int, int, int, float, float | None, int, str, bytes]
"""The columns of the table `outbox`, in their order."""

INSERT = "INSERT OR REPLACE INTO outbox VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
INSERT_DEAD = "INSERT INTO dead VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


def columns(row: SpoolRow) -> Columns:
    """The columns of a row."""
    return row.id, row.run, flags(row), row.taken_at, row.expires_at, crc(row), row.topic, row.payload


def row_of(found: Sequence[Any]) -> tuple[SpoolRow, bool]:
    """The row of its columns, and whether its checksum matches. Of a damaged one, what can be understood.

    Raises:
        ValueError, TypeError: the columns have other types than those of a row.
    """
    key, run, bits, taken_at, expires_at, checksum, topic, payload = found
    if not isinstance(topic, str) or not isinstance(payload, bytes):
        raise TypeError("the topic is not text, or the payload is not bytes")
    if not all(isinstance(number, int) for number in (key, run, bits, checksum)):
        raise TypeError("one of its numbers is no number")
    expires_at = None if expires_at is None else float(expires_at)
    row = SpoolRow(key, int(run), topic, payload, bits & 3, bool(bits & 4), float(taken_at), expires_at, bool(bits & 8))
    try:
        return row, crc(row) == checksum
    except struct.error as error:  # a number is too large
        raise ValueError(str(error)) from error


def dead_columns(row: SpoolRow, died_at: float, why: str) -> tuple[object, ...]:
    """The columns of a dead letter, without its number."""
    return died_at, why, *columns(row)


def dead_letter(found: Sequence[Any]) -> DeadLetter:
    """The dead letter of its columns, in the order of the table."""
    number, died_at, why, *rest = found
    if not isinstance(died_at, int | float) or not isinstance(why, str):
        raise TypeError("its time is not a number, or its reason is not text")
    return DeadLetter(number, row_of(rest)[0], died_at, why)
