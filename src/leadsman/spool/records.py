"""Rows as the tables of the spool have them."""

import struct
from collections.abc import Sequence
from typing import Any

from leadsman.spool.row import DeadLetter, Row, crc, flags

Columns = tuple[int, int, int, float, float | None, int, str, bytes]
"""The columns of the table `outbox`, in their order."""

INSERT = "INSERT OR REPLACE INTO outbox VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
NOTE = "INSERT OR REPLACE INTO overtaken VALUES (?, ?)"
INSERT_DEAD = "INSERT INTO dead VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


def columns(row: Row) -> Columns:
    """The columns of a row."""
    return row.id, row.run, flags(row), row.taken_at, row.expires_at, crc(row), row.topic, row.payload


def row_of(found: Sequence[Any]) -> tuple[Row, bool]:
    """The row of its columns, and whether its checksum matches. Of a damaged one, what can be understood.

    Raises:
        ValueError, TypeError: the columns have other types than those of a row.
    """
    key, run, bits, taken_at, expires_at, checksum, topic, payload = found
    if not isinstance(topic, str) or not isinstance(payload, bytes):
        raise TypeError("the topic is not text, or the payload is not bytes")
    if not all(isinstance(number, int) for number in (key, run, bits, checksum)):
        raise TypeError("one of its numbers is none")
    expires_at = None if expires_at is None else float(expires_at)
    row = Row(key, int(run), topic, payload, bits & 3, bool(bits & 4), float(taken_at), expires_at, bool(bits & 8))
    try:
        return row, crc(row) == checksum
    except struct.error as error:  # a number is too large
        raise ValueError(str(error)) from error


def dead_columns(row: Row, died_at: float, why: str) -> tuple[object, ...]:
    """The columns of a dead letter, without its number."""
    return died_at, why, *columns(row)


def dead_letter(found: Sequence[Any]) -> DeadLetter:
    """The dead letter of its columns, in the order of the table."""
    number, died_at, why, *rest = found
    if not isinstance(died_at, int | float) or not isinstance(why, str):
        raise TypeError("its time is not a number, or its reason is not text")
    return DeadLetter(number, row_of(rest)[0], died_at, why)
