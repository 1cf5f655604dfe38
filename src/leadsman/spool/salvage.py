"""Copies the rows of a damaged file into a new one.

It reads the pages of the SQLite file one by one (https://sqlite.org/fileformat2.html). SQLite itself finds rows through
the pages above them: with a damaged first page it finds none. Here each page is looked
at alone, so that it costs the rows of the damaged pages and no others, and the checksum of each row is checked. Pages
that are free are left out, if the list of the free pages can be read: they contain rows that were deleted.
"""

import contextlib
import errno
import os
import sqlite3
import struct
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from leadsman.mqtt.message import LARGEST
from leadsman.spool.row import (
    DAMAGED,
    INSERT_DEAD,
    NOTE,
    DeadLetter,
    SpoolRow,
    columns,
    dead_columns,
    dead_letter,
    row_of,
)
from leadsman.spool.tables import BUSY, MOST_DEAD, PAGE, bury, prepare
from leadsman.storage.database import MOST_NUMBER, Work, connect, transact

_LEAF = 0x0D
"""The type of a page with the rows of a table."""
_WAL_HEADER, _FRAME_HEADER = 32, 24
_MOST_COLUMNS = 32
_MOST_FOLLOWED = 4
"""Times the pages of a file: how many ends of rows are read of it. Each page is the end of one row at the most."""
_LONGEST = LARGEST + (1 << 20)
"""Bytes of a row, at the most."""
_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
"""Bytes of an integer, by its serial type."""
_CONSTANTS = {0: None, 8: 0, 9: 1}
"""Values without bytes, by their serial type."""

Record = list[int | float | str | bytes | None]


class DamagedFile:
    """The pages of a file, those in its write-ahead log included.

    Args:
        path: the file. Its log is `<path>-wal`.
        size: bytes of a page.
    """

    def __init__(self, path: Path, size: int) -> None:
        self._size = size
        self._file = path.open("rb")
        wal = Path(f"{path}-wal")
        self._wal: BinaryIO | None = wal.open("rb") if wal.is_file() else None
        self._logged = {} if self._wal is None else _frames(self._wal, size)
        self._count = max([self._file.seek(0, 2) // size, *self._logged])
        self._followed = 0
        self._numbers = sorted({*self._logged, *_find_written(self._file, size)})

    def close(self) -> None:
        """Close the files."""
        self._file.close()
        if self._wal is not None:
            self._wal.close()

    def records(self) -> Iterator[tuple[int, Record]]:
        """The row id and the columns of each row of each table. What makes no sense is left out."""
        free = self._free()
        for number in self._numbers:
            if number not in free:
                yield from self._rows(self._page(number), 100 if number == 1 else 0)

    def _page(self, number: int) -> bytes:
        """A page; empty if it is not in the file."""
        if self._wal is not None and number in self._logged:
            self._wal.seek(self._logged[number])
            return self._wal.read(self._size)
        if not 1 <= number <= self._count:
            return b""
        self._file.seek((number - 1) * self._size)
        page = self._file.read(self._size)
        return page if len(page) == self._size else b""

    def _free(self) -> set[int]:
        """The numbers of the free pages, as far as their list can be read."""
        found: set[int] = set()
        head = self._page(1)
        trunk = int.from_bytes(head[32:36]) if head.startswith(b"SQLite format 3\0") else 0
        while 0 < trunk <= self._count and trunk not in found:
            found.add(trunk)
            page = self._page(trunk)
            leaves = min(int.from_bytes(page[4:8]), self._size // 4 - 2)
            found.update(int.from_bytes(page[8 + 4 * each : 12 + 4 * each]) for each in range(leaves))
            trunk = int.from_bytes(page[:4])
        return found

    def _rows(self, page: bytes, start: int) -> Iterator[tuple[int, Record]]:
        if page[start : start + 1] != bytes([_LEAF]):
            return
        for place in range(min(int.from_bytes(page[start + 3 : start + 5]), self._size // 4)):
            pointer = start + 8 + 2 * place
            try:
                yield self._row(page, int.from_bytes(page[pointer : pointer + 2]))
            except (ValueError, IndexError, struct.error):
                continue

    def _row(self, page: bytes, at: int) -> tuple[int, Record]:
        length, at = _varint(page, at)
        row_id, at = _varint(page, at)
        if length > min(self._count * self._size, _LONGEST):
            raise ValueError("longer than the file, or than any row of leadsman")
        local = self._local(length)
        content = bytearray(page[at : at + local])
        following = int.from_bytes(page[at + local : at + local + 4]) if local < length else 0
        while len(content) < length:
            overflow = self._page(following)
            self._followed += 1
            if not overflow or self._followed > _MOST_FOLLOWED * self._count:
                raise ValueError("its end is missing, or has no end")
            content += overflow[4 : 4 + length - len(content)]
            following = int.from_bytes(overflow[:4])
        return row_id - (1 << 64 if row_id >= 1 << 63 else 0), _columns(bytes(content))

    def _local(self, length: int) -> int:
        """How many bytes of a row are on the leaf; the others are on overflow pages."""
        most = self._size - 35
        if length <= most:
            return length
        least = (self._size - 12) * 32 // 255 - 23
        share = least + (length - least) % (self._size - 4)
        return share if share <= most else least


def _find_written(file: BinaryIO, size: int) -> Iterator[int]:
    """The numbers of the pages that are no hole in the file (`lseek(2)`): a file of terabytes may have none."""
    end, at = file.seek(0, 2), 0
    while at < end:
        try:
            begin = os.lseek(file.fileno(), at, os.SEEK_DATA)
            at = os.lseek(file.fileno(), begin, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # there is only a hole from here on
                return
            begin, at = 0, end  # a file system without holes
        except AttributeError:  # a system without them
            begin, at = 0, end
        yield from range(begin // size + 1, min(end, at + size - 1) // size + 1)


def _frames(wal: BinaryIO, size: int) -> dict[int, int]:
    """Where the newest committed version of each page is in a write-ahead log. A log is begun again with another salt,
    so frames with another one than the first are of earlier times. The checksums of the frames are not needed."""
    found: dict[int, int] = {}
    uncommitted: dict[int, int] = {}
    salt = None
    at = _WAL_HEADER
    wal.seek(at)
    while len(frame := wal.read(_FRAME_HEADER + size)) == _FRAME_HEADER + size:
        number, pages_after_commit = struct.unpack_from(">II", frame)
        salt = salt or frame[8:16]
        if not number or frame[8:16] != salt:
            break
        uncommitted[number] = at + _FRAME_HEADER
        if pages_after_commit:
            found |= uncommitted
            uncommitted.clear()
        at += _FRAME_HEADER + size
    return found


def _columns(content: bytes) -> Record:
    header, at = _varint(content, 0)
    types = list[int]()
    while at < header and len(types) < _MOST_COLUMNS:
        kind, at = _varint(content, at)
        types.append(kind)
    at, found = header, Record()
    for kind in types:
        value, at = _value(content, at, kind)
        found.append(value)
    return found


def _value(content: bytes, at: int, kind: int) -> tuple[int | float | str | bytes | None, int]:
    if kind in _INTEGERS:
        end = at + _INTEGERS[kind]
        return int.from_bytes(content[at:end], signed=True), end
    if kind >= 12:
        end = at + (kind - 12) // 2
        if end > len(content):
            raise ValueError("too short")
        return (content[at:end].decode(errors="replace") if kind % 2 else content[at:end]), end
    if kind == 7:
        return struct.unpack_from(">d", content, at)[0], at + 8
    if kind in _CONSTANTS:
        return _CONSTANTS[kind], at
    raise ValueError("no such type")


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """A number of one to nine bytes, and where it ends."""
    number = 0
    for place in range(8):
        byte = content[at + place]
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            return number, at + place + 1
    return number << 8 | content[at + 8], at + 9


_KEEP = "INSERT OR IGNORE INTO outbox VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_BATCH = 2_000
"""Rows of one transaction."""
_COLUMNS, _DEAD_COLUMNS = 8, 11
"""Columns of the two tables, which distinguish a row from a dead letter."""


def salvage(path: Path, new: Path, now: float, overtaken: Mapping[str, int]) -> tuple[int, int]:
    """Copy all rows of a damaged file and its log into a new file, which is whole and synced at the end.

    Args:
        path: the damaged file.
        new: an empty file.
        now: epoch seconds, for the dead letters.
        overtaken: `leadsman.spool.row.TopicRows.overtaken`, as far as it is known.

    Returns:
        How many rows were copied, and how many had a wrong checksum: these are among the dead letters now.

    Raises:
        sqlite3.Error, OSError: the new file cannot be written, or the damaged one not be read at all.
    """
    with contextlib.closing(DamagedFile(path, PAGE)) as pages, contextlib.closing(connect(new, BUSY)) as database:
        return _copy(pages, database, new, now, overtaken)


def _copy(
    pages: DamagedFile, database: sqlite3.Connection, new: Path, now: float, overtaken: Mapping[str, int]
) -> tuple[int, int]:
    prepare(database, new)
    database.execute("PRAGMA synchronous = OFF")  # until the end, for if it fails, the file is thrown away
    damaged: deque[SpoolRow] = deque(maxlen=MOST_DEAD)
    letters: deque[DeadLetter] = deque(maxlen=MOST_DEAD)
    rows = _sort_out(pages, damaged, letters)
    while batch := list(islice(rows, _BATCH)):
        transact(database, [(_KEEP, [columns(row) for row in batch])])
    there = "SELECT 1 FROM outbox WHERE id = ?"
    lost = [row for row in damaged if not database.execute(there, (row.id,)).fetchall()]
    dead: Work = [(INSERT_DEAD, [dead_columns(each.row, each.died_at, each.why) for each in letters])]
    transact(database, [*dead, *bury([(row, DAMAGED) for row in lost], now), (NOTE, list(overtaken.items()))])
    count = database.execute("SELECT count(*) FROM outbox").fetchall()[0][0]
    database.execute("PRAGMA synchronous = FULL")
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return count, len(lost)


def _sort_out(pages: DamagedFile, damaged: deque[SpoolRow], letters: deque[DeadLetter]) -> Iterator[SpoolRow]:
    """The rows whose checksum matches. The others, and the dead letters, are added to the lists."""
    for key, record in pages.records():
        try:
            if len(record) == _DEAD_COLUMNS:
                letter = _dead_letter(key, record)
                if letter is not None and letter.row.id <= MOST_NUMBER:
                    letters.append(letter)
            elif len(record) == _COLUMNS:
                row, is_whole = row_of([key, *record[1:]])
                if row.id > MOST_NUMBER:
                    continue
                if is_whole:
                    yield row
                else:
                    damaged.append(row)
        except (ValueError, TypeError, OverflowError):  # not a row
            continue


def _dead_letter(number: int, record: Record) -> DeadLetter | None:
    """The dead letter of a record; None if it is damaged: it was reported when it died."""
    _, is_whole = row_of(record[3:])
    letter = dead_letter([number, *record[1:]])
    return letter if is_whole or letter.damaged else None
