"""Kills a process that writes to a spool, again and again, and counts the rows that were accepted and are gone.

Usage: ``python tests/rigs/leadsman_rigs/kill_loop.py DIRECTORY KILLS SEED``. Prints a JSON object, and exits with 1 if
a row is lost.

The writer reports each write before and after it. So each file that is found must hold what was reported as written,
with or without the one write that was under way; all of it or nothing of it.
"""

import json
import os
import random
import select
import signal
import struct
import sys
import time
from pathlib import Path

from leadsman.core.spool.file import SpoolFile
from leadsman.core.spool.row import Quota, SpoolRow

QUOTA = Quota(least_free=0)
_REPORT = struct.Struct(">c3q")
"""B(egin) or D(one), the first id to add, the number of rows, and the id up to which all rows are settled."""


def row(number):
    """The row with this id; its content follows from it."""
    return SpoolRow(
        number, 5, f"house/{number // 40}/state", b"%d " % number * (number % 60), 1, False, 1.8e9, None, False
    )


def write(path, first, seed, report):
    """Write batches until the process is killed."""
    dice = random.Random(seed)
    spool = SpoolFile(path, QUOTA, lambda: 1.8e9)
    spool.open()
    settled = spool.read(0, 1, 1)[0].id - 1 if spool.found.rows else spool.found.next_id - 1
    first = max(first, spool.found.next_id)
    while True:
        count = dice.choice([0, 1, 1, 5, 40])
        upto = min(first - 1, settled + dice.choice([0, 0, 1, 5, 40]))
        os.write(report, _REPORT.pack(b"B", first, count, upto))
        spool.write([row(number) for number in range(first, first + count)], range(settled + 1, upto + 1))
        os.write(report, _REPORT.pack(b"D", first, count, upto))
        first, settled = first + count, upto
        if dice.random() < 0.02:  # with a checkpoint
            spool.close()
            spool.open()


def one_life(path, held, seed, dice):
    """Start a writer and kill it. Returns the rows that must be there, and those that may be there instead."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        try:
            write(path, max(held, default=0) + 1, seed, writer)
        finally:
            os._exit(70)
    os.close(writer)
    if dice.random() < 0.8:  # else it is killed while it opens the file
        select.select([reader], [], [], 10.0)
    time.sleep(dice.choice([0.001, 0.005, 0.03]) * dice.random())
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        raise SystemExit("the writer failed")
    with open(reader, "rb") as reports:
        data = reports.read()
    sure, maybe, count = set(held), None, 0
    for at in range(0, len(data), _REPORT.size):
        kind, first, rows, upto = _REPORT.unpack_from(data, at)
        after = {number for number in sure if number > upto} | set(range(first, first + rows))
        sure, maybe = (after, None) if kind == b"D" else (sure, after)
        count += kind == b"D"
    return sure, maybe, count


def run(directory, kills, seed):
    """The figures of so many kills."""
    dice, path = random.Random(seed), directory / "outbox.db"
    held, lost, strange, commits, damaged, slowest = set(), 0, 0, 0, 0, 0.0
    for number in range(kills):
        sure, maybe, count = one_life(path, held, f"{seed} {number}", dice)
        commits += count
        spool = SpoolFile(path, QUOTA, lambda: 1.8e9)
        begun = time.perf_counter()
        listed = []
        spool.open(listed.append)
        slowest = max(slowest, time.perf_counter() - begun)
        rows = spool.read(0, 10**6, 10**9)
        found = {each.id for each in rows}
        damaged += spool.found.quarantined is not None or any(
            each != row(each.id) or each.topic not in listed[0] for each in rows
        )
        if found != maybe:
            lost += len(sure - found)
            strange += len(found - sure)
        spool.close()
        held = found
    return {
        "kills": kills,
        "commits": commits,
        "rows_written": max(held, default=0),
        "rows_lost": lost,
        "rows_invented": strange,
        "files_damaged": damaged,
        "slowest_open_ms": round(slowest * 1000, 1),
    }


if __name__ == "__main__":
    figures = run(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    sys.stdout.write(json.dumps(figures) + "\n")
    sys.exit(bool(figures["rows_lost"] or figures["rows_invented"] or figures["files_damaged"]))
