"""The disk: full, damaged, shared, lost. These rows know what an outbox on disk must do, and nothing of how it is made.

They look for its files as any file of a database in the state directory of the app.
"""

import contextlib
import os
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from fault_matrix.broker import FIVE
from fault_matrix.row import MOUNT, P0, P1, P2, Absent, covered, row
from fault_matrix.stand import WITHIN, Job, Stand
from leadsman.testing import Mosquitto
from leadsman_rigs.proxy import Proxy

DATABASE = b"SQLite format 3\0"


def databases(state: Path) -> list[Path]:
    """The files of databases in a state directory."""
    files = [path for path in state.rglob("*") if path.is_file()] if state.exists() else []
    return [path for path in files if path.read_bytes()[: len(DATABASE)] == DATABASE]


def stored(stand: Stand, name: str = "app") -> tuple[Mosquitto, Proxy, Job, float]:
    """An app that was killed while its broker was away, some time after it took readings; and when."""
    stand.tally.clear()
    broker = stand.broker()
    proxy = stand.proxy(broker.port)
    stand.listen(broker.port)
    stand.lead_nowhere(proxy)
    app = stand.app(proxy.url, FIVE, name)
    stand.until(lambda: app.readings >= 80, "80 readings are taken")
    time.sleep(WITHIN)
    app.kill()
    return broker, proxy, app, time.time()


@contextlib.contextmanager
def small_disk(directory: Path) -> Iterator[Path]:
    """A tmpfs of 1 MiB."""
    directory.mkdir(parents=True, exist_ok=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(directory)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        raise Absent(f"no tmpfs can be mounted: {mounted.stderr.strip()}")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=False)


covered(
    "16",
    P0,
    "a power cut: what was not synced is kept, dropped or torn",
    "what was committed is there, and each file opens",
    "tests/core/spool/test_power.py::test_a_power_cut_loses_no_accepted_row",
)


@row("17", P0, "the disk is full while the broker is away", "lives, keeps what was accepted, counts drops", MOUNT)
def full(stand: Stand) -> None:
    broker = stand.broker()
    proxy = stand.proxy(broker.port)
    stand.listen(broker.port)
    stand.lead_nowhere(proxy)
    with small_disk(stand.directory / "app-state") as disk:
        ballast = disk / "ballast"
        app = stand.app(proxy.url, FIVE)
        stand.until(lambda: app.readings >= 50, "50 readings are taken")
        time.sleep(WITHIN)
        stand.expect(databases(disk), "nothing is written to the disk")
        with contextlib.suppress(OSError), ballast.open("wb") as stream:
            while True:
                stream.write(bytes(4096))
                stream.flush()
        stand.until(lambda: app.readings >= 150, "100 readings more")
        stand.expect(app.process.poll() is None, "the process ended")
        ballast.unlink()
        time.sleep(3)
        proxy.target = broker.port
        stand.until(lambda: stand.tally.came, "a reading")
        stand.until(lambda: "connected to the broker" in app.log, "a connection")
        stand.arrive(app)
        stand.stop(app)


def damage_header(path: Path) -> None:
    """Write over the beginning of a file."""
    with path.open("r+b") as stream:
        stream.write(b"no database any more" * 10)


def replace_by_text(path: Path) -> None:
    """Make it a text file."""
    path.write_text("hello\n")


def cut_in_half(path: Path) -> None:
    """Leave the first half."""
    with path.open("r+b") as stream:
        stream.truncate(path.stat().st_size // 2)


@row("18", P0, "the file of the outbox is damaged before a start", "loses nothing, or keeps it aside; goes on")
def damaged(stand: Stand) -> None:
    for damage in (damage_header, replace_by_text, cut_in_half):
        name = damage.__name__
        broker, proxy, app, killed = stored(stand, name)
        state = stand.directory / f"{name}-state"
        found = databases(state)
        stand.expect(found, f"{name}: there is no file to damage")
        for path in found:
            damage(path)
        before, readings = {path.name for path in state.rglob("*")}, app.readings
        expected = {device: numbers.copy() for device, numbers in app.accepted([killed]).items()}
        proxy.target = broker.port
        app.start()
        stand.until(lambda app=app, least=readings + 20: app.readings >= least, "20 new readings")
        stand.until(lambda app=app: "connected to the broker" in app.log, "a connection")
        time.sleep(3)
        lost = sum(map(len, stand.tally.lost(expected).values()))
        stand.figure(f"{name}: lost", lost)
        kept = [
            each for each in {path.name for path in state.rglob("*")} - before if not each.endswith(("-wal", "-shm"))
        ]
        stand.expect(kept or not lost, f"{name}: no file is kept aside")
        stand.expect(stand.tally.came >= 20, f"{name}: no new readings came")
        stand.stop(app)


@row("19", P0, "a second process on the same outbox", "is refused at once, or keeps away from it and reports that")
def shared(stand: Stand) -> None:
    broker = stand.broker()
    proxy = stand.proxy(broker.port)
    stand.listen(broker.port)
    stand.lead_nowhere(proxy)
    first = stand.app(proxy.url, FIVE)
    stand.until(lambda: first.readings >= 200, "200 readings are taken")  # the first ones are on disk by then
    second = stand.app(proxy.url, FIVE, "second", STATE_DIRECTORY=str(stand.directory / "app-state"))
    stand.until(lambda: second.readings or second.process.poll() is not None, "its first reading")
    refused = stand.until(lambda: "another process" in second.log or second.process.poll() is not None, "a word")
    stand.figure("reported after", refused, "s", most=10)
    second.kill()
    first.kill()
    killed = time.time()
    first.start()
    proxy.target = broker.port
    stand.arrive(first, 20, [killed])
    stand.stop(first)


@row("53", P1, "files of the state under umask 022", "directory 0700, files 0600")
def modes(stand: Stand) -> None:
    broker = stand.broker()
    stand.listen(broker.port)
    store = "app = App('row', mqtt=os.environ['URL'], settings=Settings, keep_state=True)\nos.umask(0o022)\n"
    app = stand.app(broker.url, store + FIVE)
    stand.until(lambda: stand.tally.came >= 20, "20 readings")
    stand.stop(app)
    state = stand.directory / "app-state"
    files = [path for path in state.rglob("*") if path.is_file()]
    stand.figure("files", len(files), least=1)
    stand.figure("files that others may read", sum(bool(path.stat().st_mode & 0o077) for path in files), most=0)
    stand.expect(not state.stat().st_mode & 0o077, "others may look into the directory")


covered(
    "44",
    P1,
    "a bit flips in a stored message",
    "the others are delivered, and it is a dead letter",
    "tests/core/spool/test_damage.py::test_a_bit_that_flips_in_a_payload_makes_one_dead_letter",
    "tests/core/spool/test_damage.py::test_damaged_rows_do_not_end_a_page",
)
covered(
    "45",
    P1,
    "the outbox cannot be written: full, sick, replaced, or without a directory",
    "it goes on in memory, reports that, and tries again",
    "tests/core/spool/test_committer.py::test_a_full_disk_is_tried_again_each_second",
    "tests/core/spool/test_committer.py::test_a_sick_file_is_opened_again_after_half_a_minute",
    "tests/core/spool/test_committer.py::test_a_file_that_was_replaced_is_written_again",
    "tests/core/spool/test_file.py::test_a_directory_that_cannot_be_made_is_reported",
)

KEEPER = """
app = App("row", mqtt=os.environ.get("URL"), settings=Settings, heartbeat=1, keep_state=True)

@app.telemetry("stored", interval=0.2)
async def stored(context: Context):
    context.store["n"] = context.store.get("n", 0) + 1
    return {"n": context.store["n"]}

meters(5, 0.05)
"""
PLANTS = {
    "a view that never ends": (
        "ALTER TABLE topics RENAME TO others",
        "CREATE VIEW topics AS WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n)"
        " SELECT 'row/' || n AS topic FROM n",
    ),
    "a row of 300 MB": (
        "INSERT INTO outbox SELECT max(id) + 1, 0, 0, 0.0, NULL, 0, 'row/d0/state', zeroblob(300000000) FROM outbox",
    ),
}


@row(
    "45b",
    P0,
    "somebody plants a view that never ends in the outbox, then a row of 300 MB, and pipes where other files belong",
    "polls begin at once; what is its own is delivered",
)
def planted(stand: Stand) -> None:
    memory, began = 0.0, 0.0
    for number, statements in enumerate(PLANTS.values()):
        stand.tally.clear()
        broker = stand.broker()
        proxy = stand.proxy(broker.port)
        stand.listen(broker.port)
        stand.lead_nowhere(proxy)
        app = stand.app(proxy.url, KEEPER, f"app{number}")
        stand.until(lambda app=app: app.readings >= 80, "80 readings are taken")
        time.sleep(WITHIN)
        app.kill()
        killed, state = time.time(), Path(app.environment["STATE_DIRECTORY"])
        with contextlib.closing(sqlite3.connect(state / "outbox.db")) as database, database:
            for statement in statements:
                database.execute(statement)
        for name in ("resilience.db", "stored.json", "stored.tmp", "outbox.db.new"):
            (state / name).unlink(missing_ok=True)
            os.mkfifo(state / name)
        before = app.readings
        proxy.target = broker.port
        started = time.monotonic()
        app = stand.app(proxy.url, KEEPER, f"app{number}")
        stand.until(lambda app=app, before=before: app.readings > before, "a poll")
        began = max(began, time.monotonic() - started)
        stand.arrive(app, kills=[killed])
        memory = max(memory, psutil.Process(app.process.pid).memory_info().rss / 2**20)
        stand.stop(app)
    stand.figure("the first poll after", began, "s", most=5)
    stand.figure("memory at most", memory, "MB", most=150)


covered(
    "57",
    P2,
    "an upgrade, and a downgrade, with messages in the outbox",
    "they are delivered; a newer file is refused politely and left as it is",
    "tests/core/spool/test_file.py::test_a_file_of_an_older_layout_is_brought_up_to_date",
    "tests/core/storage/test_layouts.py::test_a_newer_layout_is_refused_with_its_sentence_and_left_as_it_is",
)
