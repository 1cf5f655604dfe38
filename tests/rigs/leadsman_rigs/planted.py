"""What somebody who may write to a state directory puts there, or what a broken card leaves there.

Each function makes one thing at a path. `EVERYWHERE` may stand in the place of any file, `DATABASES` in the place of a
database.
"""

import os
import socket
import sqlite3
import struct
from contextlib import closing

from leadsman.core.runtime.statefile import StateFile
from leadsman.core.spool.file import SpoolFile
from leadsman.core.spool.row import Quota, SpoolRow
from leadsman.core.storage.database import APPLICATION

ENDLESS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"


def directory(path):
    path.mkdir()
    (path / "precious").write_text("a thing of somebody")


def pipe(path):
    os.mkfifo(path)


def unix_socket(path):
    here = os.getcwd()
    os.chdir(path.parent)  # the address of a socket is short
    try:
        with closing(socket.socket(socket.AF_UNIX)) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def device(path):
    """A terminal of its own where no device may be made."""
    try:
        os.mknod(path, 0o600 | 0o020000, os.makedev(1, 5))
    except PermissionError:
        path.symlink_to("/dev/zero")


def dangling_link(path):
    path.symlink_to(path.parent / "nothing")


def link_to_zeros(path):
    path.symlink_to("/dev/zero")


def holes(path):
    with path.open("wb") as file:
        file.truncate(1 << 40)


def noise(path):
    path.write_bytes(bytes(range(256)) * 400)


def text(path):
    path.write_text("hello\n")


def deep(path):
    path.write_text("[" * 500_000)


def made(path, *statements):
    """A database with the marks of ours."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        for statement in (
            "PRAGMA page_size = 1024",
            f"PRAGMA application_id = {APPLICATION}",
            "PRAGMA user_version = 1",
            *statements,
        ):
            database.execute(statement)


def like_ours(path, *statements):
    """A database with the tables that the app makes at this path, and something else done to them."""
    if path.name.startswith("outbox.db"):
        spool = SpoolFile(path, Quota(least_free=0))
        spool.open()
        spool.write([SpoolRow(number, 7, "a", b"21.5", 1, True, 1.8e9, None, False) for number in range(1, 200)], ())
        spool.close()
        path.with_name(f"{path.name}.lock").unlink()
    else:
        with closing(StateFile(path)) as file:
            file.write({f"d{number}": "{}" for number in range(200)}, 1.8e9)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        for statement in statements:
            try:
                database.execute(statement)
            except sqlite3.Error:  # it is for the other file
                continue
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def endless_view(path):
    rows = (
        "i AS id, i AS run, 0 AS flags, 1.0 AS taken_at, NULL AS expires_at, 0 AS crc, 'a' || i AS topic,"
        " x'00' AS payload"
    )
    made(
        path,
        f"CREATE VIEW outbox AS {ENDLESS} SELECT {rows} FROM n",
        f"CREATE VIEW topics AS {ENDLESS} SELECT 'a' || i AS topic FROM n",
        f"CREATE VIEW dead AS {ENDLESS} SELECT i AS number, 1.0 AS died_at, 'w' AS why, {rows} FROM n",
        f"CREATE VIEW handler AS {ENDLESS} SELECT 'a' || i AS name, 1.0 AS wall, '{{}}' AS document FROM n",
        f"CREATE VIEW ledger AS {ENDLESS} SELECT i AS key, 'a' AS name, '{{}}' AS document FROM n",
        f"CREATE VIEW trace AS {ENDLESS} SELECT i AS number, '{{}}' AS document FROM n",
    )


def trigger(path):
    endless = f"BEGIN INSERT INTO spare {ENDLESS} SELECT i FROM n; END"
    like_ours(
        path,
        "CREATE TABLE spare (i)",
        f"CREATE TRIGGER t1 AFTER INSERT ON outbox {endless}",
        f"CREATE TRIGGER t2 AFTER INSERT ON handler {endless}",
        f"CREATE TRIGGER t3 AFTER UPDATE ON handler {endless}",
    )


def another_index(path):
    like_ours(path, "CREATE INDEX more ON outbox (topic)", "CREATE INDEX more ON handler (document)")


def another_statement(path):
    like_ours(
        path,
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_master SET sql = replace(sql, 'run INTEGER', 'run INTEGER CHECK (run IN (SELECT 1))')",
        "UPDATE sqlite_master SET sql = replace(sql, 'wall REAL', 'wall REAL DEFAULT (1)')",
    )


def many_tables(path):
    made(path, "BEGIN", *(f"CREATE TABLE t{number} (a)" for number in range(3000)), "COMMIT")


def large_blob(path):
    like_ours(
        path,
        "UPDATE outbox SET payload = zeroblob(300000000) WHERE id = 5",
        "UPDATE handler SET document = CAST(zeroblob(300000000) AS TEXT) WHERE name = 'd5'",
    )


def long_topic(path):
    like_ours(
        path,
        "INSERT INTO topics VALUES (CAST(zeroblob(100000000) AS TEXT))",
        "UPDATE handler SET name = CAST(zeroblob(100000000) AS TEXT) WHERE name = 'd5'",
    )


def wrong_types(path):
    like_ours(
        path,
        "UPDATE outbox SET taken_at = 'noon' WHERE id = 3",
        "UPDATE outbox SET topic = x'ff' WHERE id = 4",
        "UPDATE outbox SET payload = 'text' WHERE id = 5",
        "UPDATE outbox SET taken_at = 9e999 WHERE id = 6",
        "UPDATE outbox SET expires_at = 'never' WHERE id = 7",
        "UPDATE outbox SET id = -9 WHERE id = 8",
        "INSERT INTO topics VALUES (x'ff')",
        "UPDATE handler SET wall = 'noon' WHERE name = 'd3'",
        "UPDATE handler SET name = x'ff' WHERE name = 'd4'",
        "UPDATE handler SET document = x'ff' WHERE name = 'd5'",
    )


def last_numbers(path):
    like_ours(
        path,
        "UPDATE outbox SET id = 9223372036854775807 WHERE id = 9",
        "INSERT INTO sqlite_sequence VALUES ('dead', 9223372036854775807)",
        "UPDATE sqlite_sequence SET seq = 9223372036854775807",
        "INSERT INTO sqlite_sequence VALUES ('trace', 9223372036854775807)",
    )


def endless_tree(path):
    """The page above the rows of each table leads to the first page of rows, again and again: so deep that the rows
    have no end."""
    like_ours(path)
    size = 1024 if path.name.startswith("outbox.db") else 4096
    with closing(sqlite3.connect(path)) as database:
        roots = [root for (root,) in database.execute("SELECT rootpage FROM sqlite_master WHERE rootpage > 0")]
    data = bytearray(path.read_bytes())
    for root in roots:
        at = (root - 1) * size
        if data[at] != 0x05:  # no page above others
            continue
        leaf = struct.unpack_from(">I", data, at + struct.unpack_from(">H", data, at + 12)[0])[0]
        above = leaf
        for _ in range(8):
            number = len(data) // size + 1
            data += _above(above, size)
            above = number
        data[at : at + size] = _above(above, size)
    data[28:32] = struct.pack(">I", len(data) // size)
    path.write_bytes(data)


def _above(child, size):
    """A page of type 5 with as many cells as fit, all of which lead to one page."""
    cells = (size - 12) // 7
    page = bytearray(size)
    struct.pack_into(">BHHHBI", page, 0, 0x05, 0, cells, size - 5 * cells, 0, child)
    for each in range(cells):
        place = size - 5 * (each + 1)
        struct.pack_into(">H", page, 12 + 2 * each, place)
        struct.pack_into(">IB", page, place, child, each % 127)
    return bytes(page)


def endless_overflow(path):
    """The first page is destroyed, and each row of the others has an end that leads to itself."""
    like_ours(path, "UPDATE outbox SET payload = zeroblob(9000) WHERE id % 10 = 0")
    data = bytearray(path.read_bytes())
    data[:100] = bytes(100)
    for at in range(1024, len(data), 1024):
        if data[at] not in (0x02, 0x05, 0x0A, 0x0D):
            data[at : at + 4] = struct.pack(">I", at // 1024 + 1)
    path.write_bytes(data)


EVERYWHERE = (
    directory,
    pipe,
    unix_socket,
    device,
    dangling_link,
    link_to_zeros,
    holes,
    noise,
    text,
    deep,
)
DATABASES = (
    endless_view,
    trigger,
    another_index,
    another_statement,
    many_tables,
    large_blob,
    long_topic,
    wrong_types,
    last_numbers,
    endless_tree,
    endless_overflow,
)
