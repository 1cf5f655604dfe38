"""The files of the state, attacked: processes killed while they write, a disk without room, two processes on one
directory."""

import json
import resource
import subprocess
import sys
import time

import pytest

NOBODY = "mqtt://127.0.0.1:9"
COUNTING = """
@app.telemetry("d", interval=0.1)
async def count(context: Context) -> dict:
    context.store["n"] = context.store.get("n", 0) + 1
    context.store["by"] = os.environ["NAME"]
    context.store["much"] = "x" * 16000
    await asyncio.to_thread(context.store.save)
    return {"n": context.store["n"]}
"""


@pytest.fixture
def state(tmp_path, monkeypatch):
    directory = tmp_path / "state"
    monkeypatch.setenv("STATE_DIRECTORY", str(directory))
    monkeypatch.setenv("NAME", "first")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # a limit on the size of files cuts it for later tests
    return directory


def eventually(look, seconds=60.0):
    """What `look` finds, once it finds something."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)
    return found


def stored(state):
    """What the file of d holds; empty as long as there is none."""
    file = state / "d.json"
    return json.loads(file.read_text()) if file.exists() else {}


KILLED = """
import json, os, random, signal, sqlite3, sys, time
from pathlib import Path
from leadsman.core.runtime.statefile import StateFile
from leadsman.core.runtime.store import Store
from leadsman.core.storage.directory import StateDirectory
from leadsman.extensions.trace.saved import TraceTable
from leadsman.core.monitoring.trace_row import TraceRow

directory, lives, last, last_stored = Path(sys.argv[1]), 0, 0, 0

def store_in(directory):
    return Store(directory / "d.json", StateDirectory(directory, lambda file, error: print(file, error)))

def write(n):
    table, store = TraceTable([], dict), store_in(directory)
    file = StateFile(directory / "resilience.db", tables=[table])
    while True:
        n += 1
        table.keep([TraceRow(n, float(n), "d", "retry", traceback="x" * 500)])
        file.write({"d": str(n)}, float(n))
        store["n"] = n
        store.save()

random.seed(1)
while lives < 100 or last <= 50:  # a busy machine may give many of them no time to write
    lives += 1
    if not (child := os.fork()):
        write(last)
    time.sleep(random.uniform(0.005, 0.03))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    saved = StateFile(directory / "resilience.db").read()
    n = int(saved["d"].document) if saved else 0
    stored = store_in(directory).get("n", 0)
    assert n >= last and stored >= last_stored and stored <= n, (last, last_stored, n, stored)
    last, last_stored = n, stored
rows = sqlite3.connect(directory / "resilience.db").execute("SELECT number FROM trace").fetchall()
print(json.dumps({"last": last, "rows": len(rows), "files": sorted(os.listdir(directory))}))
"""


def test_of_a_hundred_processes_killed_while_they_write_none_leaves_a_broken_file(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)], capture_output=True, text=True, timeout=280, check=False
    )

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["rows"] == pytest.approx(found["last"], abs=100)
    assert not [name for name in found["files"] if ".bad-" in name]


def test_a_disk_without_room_is_reported_once_and_the_store_is_written_again_when_there_is(start_app, state):
    app = start_app(COUNTING, NOBODY)
    before = eventually(lambda: stored(state).get("n", 0))
    unlimited = resource.prlimit(app.process.pid, resource.RLIMIT_FSIZE)

    resource.prlimit(app.process.pid, resource.RLIMIT_FSIZE, (8000, unlimited[1]))
    eventually(lambda: "d.json cannot be read or written" in app.log)
    time.sleep(0.5)
    meanwhile = sorted(each.name for each in state.iterdir()), stored(state)["n"]
    resource.prlimit(app.process.pid, resource.RLIMIT_FSIZE, unlimited)
    eventually(lambda: "d.json is written again" in app.log)
    eventually(lambda: stored(state)["n"] >= meanwhile[1] + 5)
    code, _ = app.end()

    assert [name for name in meanwhile[0] if not name.startswith("outbox.db")] == ["d.json", "owner"]
    assert meanwhile[1] >= before
    assert app.log.count("d.json cannot be read or written") == 1
    assert code == 0


def test_two_processes_on_one_directory_the_second_says_so_and_leaves_the_files_alone(start_app, state, monkeypatch):
    first = start_app(COUNTING, NOBODY)
    eventually(lambda: stored(state))
    monkeypatch.setenv("NAME", "second")

    second = start_app(COUNTING, NOBODY)
    eventually(lambda: "This one keeps in memory what belongs into" in second.log)
    time.sleep(0.5)
    writers = {stored(state)["by"] for _ in range(20)}
    codes = second.end()[0], first.end()[0]

    assert writers | {stored(state)["by"]} == {"first"}
    assert "another process" not in first.log
    assert codes == (0, 0)


def test_a_second_process_says_that_it_starts_before_it_waits_and_misses_no_poll_for_another_reason(start_app, state):
    first = start_app(COUNTING, NOBODY)
    eventually(lambda: stored(state))
    stopped, patient = start_app(COUNTING, NOBODY), start_app(COUNTING, NOBODY)
    stopped.wait_for("waiting 5 s for it to end")
    stopped.end()

    starts, stops = (stopped.log.index(word) for word in ("sys starts", "sys stops"))
    assert starts < stopped.log.index("another process") < stops
    patient.wait_for("missed so far")
    assert "d: the app did not poll yet" in patient.log
    assert "has too much to do" not in patient.log.partition("did not poll yet")[0]
    patient.end()
    first.end()


def test_a_process_that_starts_while_its_predecessor_ends_goes_on_from_its_last_write(start_app, state, monkeypatch):
    first = start_app(COUNTING, NOBODY)
    eventually(lambda: stored(state))
    monkeypatch.setenv("NAME", "second")

    second = start_app(COUNTING, NOBODY)
    second.wait_for("waiting 5 s for it to end")
    first.process.kill()
    first.process.wait()
    last = stored(state)["n"]
    eventually(lambda: stored(state)["by"] == "second")
    second.end()

    assert stored(state)["n"] > last
    assert "This one keeps in memory" not in second.log
