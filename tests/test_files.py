"""The files that leadsman writes and reads again. A newer version of leadsman may have written one: this one says so in
a sentence, and touches nothing. The table of docs/adr/state.md lists all of them."""

import ast
import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from leadsman import App, Context
from leadsman.core.monitoring import health_file
from leadsman.core.runtime import statefile
from leadsman.core.spool import tables
from leadsman.core.storage import owner
from leadsman.errors import LeadsmanError
from leadsman.extensions.sessions import session
from leadsman.testing import Harness, Scripted, fail
from leadsman.tools.difference import picture

HEALTH = "health.json"


async def valve(payload: str) -> None:
    """Takes all that comes."""


async def meter(context: Context):
    context.store["n"] = context.store.get("n", 0) + 1
    return {"n": context.store["n"]}


def run(directory):
    """One life of an app that leaves each file there is: it has a store and a device that fails, it subscribes, and its
    broker goes away. Returns what the probe of its container says while it runs."""
    app = App("house", keep_state=True)
    app.add_telemetry("meter", meter, interval="1s")
    app.add_telemetry("broken", Scripted(fail(1000)), interval="1s")
    app.add_command("valve", valve)
    health = directory.parent / HEALTH
    running = Harness(
        app,
        settings={"outbox.durability": "acked-or-durable"},
        state_directory=directory,
        environment={health_file.HEALTH_FILE: str(health)},
    )
    with running:
        running.run("2m")
        running.broker.stop()
        running.run("30s")
        said = health_file.read_health(health, running.loop.time())[1]
        kept = health.read_bytes()
    health.write_bytes(kept)  # the app has removed it
    return said


def in_state(name):
    """Writes a file of the state directory, among all others."""

    def write(place: Path) -> Path:
        run(place / "state")
        return place / "state" / name

    return write


def open_state(path, log):
    run(path.parent)
    return log()


def write_health(place):
    run(place / "state")
    return place / HEALTH


def open_health(path, log):
    at = json.loads(path.read_bytes())["at"]
    return health_file.read_health(path, at)[1]


def write_session(place):
    path = place / "kitchen.session"
    path.write_text(f"{session.head('kitchen', 1_800_000_000.0)}\n{session.end(1.0)}\n")
    return path


def write_picture(place):
    node = {"types": ["number"], "retained": [], "count": 1, "values": ["1"], "digest": "", "fields": {}}
    found = {"picture": picture.FORMAT, "app": "house", "leadsman": "0.1.0", "length": 60.0, "found": node}
    path = place / "old.json"
    path.write_text(json.dumps(found))
    return path


def said_by(read):
    """Opens a file as a command does that ends with an error."""

    def open_file(path, log):
        try:
            read(path)
        except LeadsmanError as error:
            return str(error)
        return ""

    return open_file


def renumber_database(path, number):
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA user_version = {number}")


def renumber_json(field):
    """Changes the number in the first line of a file."""

    def renumber(path: Path, number: int) -> None:
        first, *others = path.read_text().splitlines(keepends=True)
        path.write_text("".join([json.dumps(json.loads(first) | {field: number}) + "\n", *others]))

    return renumber


class Kind(NamedTuple):
    """A kind of file."""

    layout: int
    """The number that this version writes."""
    write: Callable
    renumber: Callable
    open: Callable
    """Opens it, and returns what is said."""
    beside: tuple[str, ...] = ()
    """Files that have no number, and follow that of this one."""


KINDS = {
    "outbox.db": Kind(tables.LAYOUT.number, in_state("outbox.db"), renumber_database, open_state),
    "resilience.db": Kind(statefile.LAYOUT.number, in_state("resilience.db"), renumber_database, open_state),
    "owner": Kind(
        owner.LAYOUT, in_state("owner"), renumber_json("layout"), open_state, ("meter.json", "subscriptions.json")
    ),
    "health file": Kind(health_file.LAYOUT, write_health, renumber_json("layout"), open_health),
    "session": Kind(session.VERSION, write_session, renumber_json("session"), said_by(session.read_session)),
    "picture": Kind(
        picture.FORMAT,
        write_picture,
        renumber_json("picture"),
        said_by(lambda path: picture.picture_in(path.read_text(), str(path))),
    ),
}
SIDE_FILES = {"outbox.db.lock"}
"""They are empty."""


@pytest.fixture
def log(caplog):
    return lambda: "\n".join(caplog.messages)


@pytest.mark.parametrize("name", KINDS)
def test_a_file_of_a_newer_version_is_left_as_it_is_and_a_sentence_says_so(name, tmp_path, log, caplog):
    kind = KINDS[name]
    path = kind.write(tmp_path)
    files = [path, *(path.with_name(each) for each in kind.beside)]
    assert "newer version" not in kind.open(path, log)

    kind.renumber(path, kind.layout + 1)
    before = [each.read_bytes() for each in files]
    caplog.clear()
    said = kind.open(path, log)

    assert re.search(
        rf"written by a newer version of leadsman \(layout {kind.layout + 1}, this one knows {kind.layout}\); \w+", said
    )
    assert [each.read_bytes() for each in files] == before
    assert not [each.name for each in path.parent.iterdir() if ".bad-" in each.name or ".strange" in each.name]


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.renumber is renumber_database])
def test_a_database_of_a_newer_version_that_was_killed_has_all_its_rows_afterwards(name, tmp_path):
    path = KINDS[name].write(tmp_path)
    killed = """
import os, sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("PRAGMA wal_autocheckpoint = 0")
database.execute("PRAGMA user_version = 99")
database.execute("CREATE TABLE future (n INTEGER)")
database.execute("INSERT INTO future VALUES (42)")
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", killed, str(path)], check=True)
    assert path.with_name(f"{name}-wal").stat().st_size

    run(path.parent)

    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT n FROM future").fetchall() == [(42,)]
        assert database.execute("PRAGMA user_version").fetchone() == (99,)


def test_the_app_goes_on_where_it_was_when_the_newer_version_is_there_again(tmp_path):
    path = KINDS["owner"].write(tmp_path)
    KINDS["owner"].renumber(path, owner.LAYOUT + 1)
    before = json.loads(path.with_name("meter.json").read_bytes())["n"]
    run(path.parent)
    KINDS["owner"].renumber(path, owner.LAYOUT)
    run(path.parent)

    assert json.loads(path.with_name("meter.json").read_bytes())["n"] == 2 * before


def test_the_page_lists_each_kind_with_its_number():
    rows = re.findall(r"^\| `?([\w. ]+?)`? \| (\d+) \|", Path("docs/adr/state.md").read_text(), re.M)

    assert {name: int(number) for name, number in rows} == {name: kind.layout for name, kind in KINDS.items()}


def test_an_app_leaves_no_file_that_has_no_number(tmp_path):
    run(tmp_path / "state")
    known = {*KINDS, *SIDE_FILES, HEALTH, *(each for kind in KINDS.values() for each in kind.beside)}

    assert {each.name for each in tmp_path.rglob("*") if each.is_file()} <= known
    assert {each.name for each in (tmp_path / "state").iterdir()} >= {
        "outbox.db",
        "resilience.db",
        "owner",
        "meter.json",
    }


WRITERS = {
    "core/spool/file": "outbox.db",
    "core/spool/tables": "its lock, which is empty",
    "core/runtime/statefile": "resilience.db",
    "core/runtime/store": "owner",
    "core/storage/owner": "owner",
    "core/parts/subscription_record": "owner",
    "extensions/watchdog/watchdog": "health file",
    "tools/difference/commands/diff": "picture",
    "core/storage/database": "any database",
    "core/storage/files": "any file",
    "core/monitoring/log_format": "nothing: the null device",
    "tools/difference/side": "a pipe",
    "tools/difference/sides": "what a process answers, which is gone when it was read",
    "tools/simulation/commands/simulate": "a drawing, which nothing reads again",
    "tools/cli/commands/init": "the program of a new app",
    "testing/mosquitto": "the configuration of a broker",
}
"""The modules that write files, and which. A session is written to the standard output."""
WRITES = {"write_text", "write_bytes", "Database", "NamedTemporaryFile", "TemporaryFile", "mkstemp", "FileType"}


def writes_a_file(node):
    if not isinstance(node, ast.Call):
        return False
    text = ast.unparse(node)
    name = ast.unparse(node.func)
    if name.rpartition(".")[2] in WRITES or name in ("files.replace", "files.create"):
        return True
    return name.rpartition(".")[2] in ("open", "fdopen") and bool(
        re.search(r"['\"][rbt]*[wax][bt+]*['\"]|O_WRONLY|O_RDWR|O_CREAT", text)
    )


def test_each_module_that_writes_files_is_known():
    """If it fails: does anybody read the file again? Then it has a number, a row in `KINDS` and one on the page."""
    package = Path("src/leadsman")
    found = {
        str(path.relative_to(package).with_suffix(""))
        for path in package.rglob("*.py")
        if any(map(writes_a_file, ast.walk(ast.parse(path.read_text()))))
    }

    assert found == WRITERS.keys()
