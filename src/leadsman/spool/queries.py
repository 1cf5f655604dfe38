"""The questions to the table of the rows. None of them is asked inside a transaction that writes."""

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from leadsman.mqtt.message import LARGEST
from leadsman.spool.eviction import FIRST_TIME, Aged, Index, Stored
from leadsman.spool.row import Quota, SpoolRow, row_of, size
from leadsman.spool.tables import COLUMNS
from leadsman.storage.database import MOST_NUMBER, Damage

MOST_TOPICS = 1_000_000
_MANY = 500
"""Rows in one query."""
_IDS = 100
"""Ids in one query. Its text is always the same: `sqlite3` keeps each of the last 128 texts compiled, which takes 170
bytes for each id."""
_BY_ID = f"SELECT id, topic, length(payload) FROM outbox WHERE id IN ({', '.join('?' * _IDS)})"
_STRETCH = 10_000
"""Rows that are counted at once, so that sorting them by topic needs little memory."""
_LATEST = 8
"""The bit of `SpoolRow.latest` in the column `flags`."""


def count(database: sqlite3.Connection) -> tuple[Index, float | None]:
    """The index of a file, and when its oldest reading was taken.

    Raises:
        Damage: a row is larger than any of ours. It would take the room of all others.
    """
    index, oldest, after = Index(), list[float](), -(1 << 63)
    while True:
        found = database.execute(
            "SELECT topic, count(*), sum(bytes), max(bytes), max(id), min(taken_at),"
            " max(CASE WHEN flags & ? THEN id END) FROM"
            " (SELECT id, topic, length(payload) AS bytes, taken_at, flags FROM outbox WHERE id > ?"
            " ORDER BY id LIMIT ?) GROUP BY topic",
            (_LATEST, after, _STRETCH),
        ).fetchall()
        for topic, rows, payloads, largest, newest, taken_at, latest in found:
            if largest > LARGEST:
                raise Damage(f"one of its rows has {largest:,} bytes")
            index.count(topic, rows, payloads, newest, None if latest is None else (latest, _bytes(database, latest)))
            oldest.append(taken_at)
        if sum(each[1] for each in found) < _STRETCH:
            return index, min(oldest, default=None)
        after = max(each[4] for each in found)


def _bytes(database: sqlite3.Connection, key: int) -> int:
    rows: list[tuple[int]] = database.execute("SELECT length(payload) FROM outbox WHERE id = ?", (key,)).fetchall()
    return rows[0][0]


def largest_dead_id(database: sqlite3.Connection) -> int:
    """The largest id that a dead letter had as a row; 0 without any."""
    rows: list[tuple[int]] = database.execute("SELECT coalesce(max(id), 0) FROM dead").fetchall()
    return rows[0][0]


def topics(database: sqlite3.Connection) -> frozenset[str]:
    """The topics that may have rows. No other one has any. They are few, and no row is read.

    Raises:
        Damage: they are more than an app has.
    """
    found = [topic for (topic,) in database.execute("SELECT topic FROM topics LIMIT ?", (MOST_TOPICS + 1,))]
    if len(found) > MOST_TOPICS or not all(isinstance(topic, str) for topic in found):
        raise Damage("it has topics that leadsman did not write")
    return frozenset(found)


def overtaken(database: sqlite3.Connection) -> dict[str, int]:
    """`leadsman.spool.row.TopicRows.overtaken` of the topics that have one.

    Raises:
        Damage: one of them is no number of a row.
    """
    found = dict(database.execute("SELECT topic, id FROM overtaken").fetchall())
    if not all(isinstance(topic, str) and isinstance(key, int) and key <= MOST_NUMBER for topic, key in found.items()):
        raise Damage("a topic has a number that leadsman did not write")
    return found


def taken_at(database: sqlite3.Connection, after: int) -> float | None:
    """When the first row with a larger id was taken; None if there is none."""
    query = "SELECT taken_at FROM outbox WHERE id > ? ORDER BY id LIMIT 1"
    rows: list[tuple[float]] = database.execute(query, (after,)).fetchall()
    return rows[0][0] if rows else None


def stored(database: sqlite3.Connection, ids: Iterable[int]) -> list[Stored]:
    """The rows with these ids that are in the file."""
    wanted, found = sorted(set(ids)), list[Stored]()
    for start in range(0, len(wanted), _IDS):
        some = wanted[start : start + _IDS]
        some += some[-1:] * (_IDS - len(some))  # an id that is asked for twice is found once
        found += [_stored(*each) for each in database.execute(_BY_ID, some).fetchall()]
    return found


def oldest(database: sqlite3.Connection) -> Iterator[Stored]:
    """All rows, in the order of their ids."""
    query = "SELECT id, topic, length(payload) FROM outbox WHERE id > ? ORDER BY id LIMIT ?"
    after = -(1 << 63)
    while found := database.execute(query, (after, _MANY)).fetchall():
        yield from (_stored(*each) for each in found)
        after = found[-1][0]


def aged(database: sqlite3.Connection, quota: Quota, now: float) -> list[Aged]:
    """The rows that may have expired."""
    query = (
        "SELECT id, topic, length(payload), taken_at, expires_at FROM outbox"
        " WHERE expires_at <= ? OR (taken_at < ? AND taken_at >= ?)"
    )
    found = database.execute(query, (now, now - quota.most_age, FIRST_TIME)).fetchall()
    return [Aged(_stored(key, topic, payload), taken_at, expires) for key, topic, payload, taken_at, expires in found]


def page(
    database: sqlite3.Connection, after: int, most_rows: int, most_bytes: int
) -> tuple[list[SpoolRow], list[SpoolRow]]:
    """Rows with larger ids, in order, at least one if there are any; and the damaged ones among them, which do not
    count."""
    rows, damaged, total = list[SpoolRow](), list[SpoolRow](), 0
    query = f"SELECT {COLUMNS} FROM outbox WHERE id > ? ORDER BY id"
    with contextlib.closing(database.execute(query, (after,))) as cursor:
        for found in cursor:
            row, is_whole = _row(found)
            if not is_whole:
                damaged.append(row)
                continue
            total += size(row.topic, len(row.payload))
            if rows and total > most_bytes:
                break
            rows.append(row)
            if len(rows) >= most_rows:
                break
    return rows, damaged


def _row(found: Sequence[Any]) -> tuple[SpoolRow, bool]:
    try:
        return row_of(found)
    except (TypeError, ValueError, OverflowError):  # the types of its columns are damaged
        return SpoolRow(found[0], 0, "", b"", 0, False, 0.0, None, False), False


def _stored(key: int, topic: str, payload: int) -> Stored:
    return Stored(key, topic, size(topic, payload))
