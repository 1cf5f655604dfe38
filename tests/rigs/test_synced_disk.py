"""The disk whose power can be cut below an app: what was synced is there, and the rest may be."""

import random
import shutil
import subprocess
import sys

import pytest

from leadsman_rigs.power import SECTOR
from leadsman_rigs.synced_disk import after_cut, cut_power

WRITER = """
import sys
from leadsman.core.spool import tables
if "lazy" in sys.argv:
    lazy = tuple(each.replace("= FULL", "= OFF") for each in tables.LAYOUT.settings)
    tables.LAYOUT = tables.LAYOUT._replace(settings=lazy)
from pathlib import Path
from leadsman.core.spool.file import SpoolFile
from leadsman.core.spool.row import Quota
from leadsman_rigs.power import row
from leadsman_rigs.synced_disk import install
disk = install(sys.argv[2])
spool = SpoolFile(Path(sys.argv[1]) / "outbox.db", Quota(least_free=0))
spool.open()
for number in range(spool.found.next_id, spool.found.next_id + 20):
    spool.write([row(number)], ())
print("written", flush=True)
sys.stdin.read()
"""
A, B, C = (letter * SECTOR for letter in (b"a", b"b", b"c"))


def test_what_was_not_synced_is_kept_torn_or_lost_sector_by_sector():
    fates = iter(["kept", "lost", "torn"])

    found = after_cut(A + A, B + B + B, lambda: next(fates))

    assert found == B + A + B[: SECTOR // 2]


def test_a_sector_that_did_not_change_has_no_fate():
    assert after_cut(A + B, A + B, lambda: pytest.fail("it was synced")) == A + B


def test_what_was_cut_off_without_a_sync_may_be_there_again():
    assert after_cut(A + B, A, lambda: "lost") == A + B
    assert after_cut(A + B, A, lambda: "kept") == A


def killed_after_writes(tmp_path, *words):
    """Write 20 rows, kill the process, cut the power; how many rows are found."""
    from leadsman.core.spool.file import SpoolFile
    from leadsman.core.spool.row import Quota

    state, synced = tmp_path / "state", tmp_path / "synced"
    command = [sys.executable, "-c", WRITER, str(state), str(synced), *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout.readline() == b"written\n"
        writer.kill()
    cut_power(state, synced, random.Random(2))
    spool = SpoolFile(state / "outbox.db", Quota(least_free=0))
    found = spool.open().rows
    spool.close()
    shutil.rmtree(synced)
    return found


def test_what_a_killed_process_had_synced_survives_the_cut(tmp_path):
    assert killed_after_writes(tmp_path) == 20


def test_what_it_had_not_synced_does_not(tmp_path):
    assert killed_after_writes(tmp_path, "lazy") < 20
