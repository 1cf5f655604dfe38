"""Whole apps whose state is damaged, locked, removed or full: polling goes on, it is said once, and nothing healthy is
lost."""

import json
import os
import sqlite3
from contextlib import closing

import pytest

from leadsman import UNTIL_NEXT_POLL, App, CircuitBreaker, Context
from leadsman.core.monitoring.heartbeat import Heartbeat
from leadsman.core.runtime.statefile import StateFile
from leadsman.testing import Scripted, fail

READING = {"t": 21.5}
EVIL = ["NaN", "-Infinity", "-1e308", "1e308", "1e400", "1" + "0" * 400, "-62135596801"]


@pytest.fixture
def directory(tmp_path):
    return tmp_path


@pytest.fixture
def life(harness, directory):
    """Starts one life of an app with a device d: ``life(handler, **words)``."""

    def begin(handler, **words):
        app = App("app", keep_state=True)
        app.add_telemetry("d", handler, **{"interval": "1m", **words})
        return harness(app, state_directory=directory)

    return begin


@pytest.fixture
def held(life):
    """A life in which d was held."""
    running = life(Scripted(fail(99)), on_failure="hold")
    running.run("10s")
    running.stop()


def file_of(directory):
    return directory / "resilience.db"


def change_document(directory, change):
    """Change what the file holds of d, as text, so that it may be no JSON."""
    with closing(sqlite3.connect(file_of(directory))) as database, database:
        ((document,),) = database.execute("SELECT document FROM handler WHERE name = 'd'")
        database.execute("UPDATE handler SET document = ? WHERE name = 'd'", (change(json.loads(document)),))


def with_number(document, path, number):
    """The document as text, with a number at a path that JSON of Python may not write itself."""
    *parents, last = path
    place = document
    for each in parents:
        place = place[each]
    place[last] = "the number"
    return json.dumps(document).replace('"the number"', number)


@pytest.mark.parametrize(
    ("path", "number"),
    [
        *((("health", "since"), number) for number in EVIL),
        (("health", "failures"), "1e308"),
        (("health", "lasted"), "NaN"),
        (("success",), "NaN"),
        (("execution", "pending"), "NaN"),
        (("execution", "streak", "wall"), "NaN"),
        (("execution", "streak", "elapsed"), "-1e308"),
        (("execution", "circuit", 1), "1" + "0" * 400),
        (("execution", "circuit", 2), "NaN"),
        (("execution", "circuit", 5), "1e308"),
    ],
)
def test_a_number_that_makes_no_sense_costs_the_row_and_is_reported_once(life, directory, caplog, path, number):
    words = {"retry": UNTIL_NEXT_POLL, "circuit_breaker": CircuitBreaker(1, recovery="10m")}
    running = life(Scripted(fail(99)), **words)
    running.run("2m10s")
    running.stop()
    change_document(directory, lambda document: with_number(document, path, number))

    sensor = Scripted(READING)
    second = life(sensor, **words)
    second.run("5m")
    second.stop()
    third = life(Scripted(READING), **words)
    third.run("1m")
    third.stop()

    assert len(sensor.calls) == 6
    assert second.statuses("d")[:2] == ["starting", "ok"]
    assert caplog.text.count("is damaged") == 1
    assert "An observer failed" not in caplog.text


@pytest.mark.parametrize("wall", ["9e999", "'text'", "x'00'", "1e300"])
def test_a_time_of_the_write_that_makes_no_sense_costs_the_row(life, held, directory, caplog, wall):
    with closing(sqlite3.connect(file_of(directory))) as database, database:
        database.execute(f"UPDATE handler SET wall = {wall}")
    sensor = Scripted(READING)

    running = life(sensor)
    running.run("5m")

    assert len(sensor.calls) == 6
    assert caplog.text.count("is damaged") == 1


def test_a_row_that_is_no_json_costs_that_row_and_not_its_neighbours(life, directory, harness):
    def begin(bad, good):
        app = App("app", keep_state=True)
        app.add_telemetry("bad", bad, interval="1m", on_failure="hold")
        app.add_telemetry("good", good, interval="1m", on_failure="hold")
        running = harness(app, state_directory=directory)
        running.run("10s")
        running.stop()

    begin(Scripted(fail(99)), Scripted(fail(99)))
    with closing(sqlite3.connect(file_of(directory))) as database, database:
        database.execute("UPDATE handler SET document = '{' WHERE name = 'bad'")
    bad, good = Scripted(READING), Scripted(READING)
    begin(bad, good)

    assert len(bad.calls) == 1
    assert good.calls == []


def test_a_goodbye_that_fails_skips_neither_the_state_nor_the_disconnect(life, directory, monkeypatch):
    monkeypatch.setattr(Heartbeat, "goodbye", lambda self: 1 / 0)
    running = life(Scripted(fail(99)), on_failure="hold")
    running.run("10s")
    running.stop()

    assert running.status()["state"] == "offline"
    assert [fault["where"] for fault in running.faults()] == ["the last status"]
    assert json.loads(StateFile(file_of(directory)).read()["d"].document)["held"]


def test_a_damaged_page_is_kept_aside_by_the_write_that_finds_it_and_the_hold_is_not_forgotten(
    life, held, directory, caplog
):
    with closing(sqlite3.connect(file_of(directory))) as database:
        (page,) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 'trace'").fetchone()
    with file_of(directory).open("r+b") as handle:
        handle.seek((page - 1) * 4096)
        handle.write(b"\xff" * 4096)

    running = life(Scripted(fail(99)), on_failure="hold")
    running.run("10s")
    running.broker.send("app/d/release/set", b"")
    running.run("5m")
    running.stop()
    again = Scripted(READING)
    running = life(again, on_failure="hold")
    running.run("5m")

    assert again.calls == []
    assert list(directory.glob("resilience.db.bad-*"))
    assert caplog.text.count("is damaged") == 1


class Lock:
    """Another process that has the file for itself."""

    def __init__(self, path):
        self._database = sqlite3.connect(path)
        self._database.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._database.execute("BEGIN EXCLUSIVE")

    def release(self):
        self._database.close()


@pytest.fixture
def lock(directory):
    """Locks the file of the state."""
    locks = []

    def take():
        locks.append(Lock(file_of(directory)))
        return locks[-1]

    yield take
    for each in locks:
        each.release()


def test_a_hold_in_a_locked_file_is_remembered_if_the_lock_goes_within_seconds(life, held, lock):
    other, sensor = lock(), Scripted(READING)

    running = life(sensor, on_failure="hold")
    running.at("2s", other.release)
    running.run("5m")

    assert sensor.calls == []
    assert running.statuses("d") == ["held"]


def test_a_file_that_stays_locked_is_reported_and_the_app_goes_on_without(life, held, lock, caplog):
    caplog.set_level("INFO", "leadsman")
    other, sensor = lock(), Scripted(READING)

    running = life(sensor, on_failure="hold")
    running.at("2m", other.release)
    running.run("20m")
    running.stop()

    assert sensor.calls[0] <= 6
    assert len(sensor.calls) == 21
    assert caplog.text.count("is locked") == 1
    assert "is written again" in caplog.text


def test_a_stop_while_the_file_is_locked_is_obeyed(life, held, lock):
    lock()

    running = life(Scripted(READING))
    running.run("1s")
    running.stop()

    assert running.stopped_in <= 2


def test_a_second_app_on_the_same_directory_says_so_and_changes_no_file(life, held, directory, caplog):
    first, sensor = life(Scripted(fail(99)), on_failure="hold"), Scripted(READING)
    first.run("1m")
    before = file_of(directory).read_bytes()

    second = life(sensor, on_failure="hold")
    second.run("30m")
    second.broker.send("app/d/release/set", b"")
    second.run("30m")
    second.stop()

    assert len(sensor.calls) == 31  # it was held by what it read
    assert caplog.text.count(f"This one keeps in memory what belongs into {directory}") == 1
    assert [fault["where"] for fault in second.faults()] == [f"the state file {directory}"]
    assert file_of(directory).read_bytes() == before
    first.stop()


def bytes_written():
    """By this process so far, to whatever file."""
    with open("/proc/self/io") as counts:
        return {name: int(count) for name, count in (line.split(":") for line in counts)}["wchar"]


@pytest.mark.slow
def test_two_devices_that_always_fail_write_a_few_megabytes_a_day(harness, directory, monkeypatch):
    monkeypatch.setattr("leadsman.testing.loop._STEP", 0.001)
    app = App("app", keep_state=True)
    for name in ("a", "b"):
        app.add_telemetry(name, Scripted(fail(10**6)), interval="30s", retry=3)

    running = harness(app, state_directory=directory)
    running.run("1m")
    before = bytes_written()
    running.run("12h")
    running.stop()

    assert 2 * (bytes_written() - before) < 8_000_000


def test_a_store_that_cannot_be_written_degrades_the_heartbeat_until_it_can(harness, directory, monkeypatch):
    app = App("app")

    @app.telemetry("d", interval="1m")
    async def read(context: Context):
        context.store["n"] = context.store.get("n", 0) + 1
        return READING

    running = harness(app, state_directory=directory)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        running.run("5m10s")
    full, faults = running.status(), running.faults()
    running.run("2m")

    assert full["health"] == "degraded"
    assert full["state_files"] == {str(directory / "d.json"): "OSError: [Errno 28] No space left on device"}
    assert [fault["where"] for fault in faults] == [f"the state file {directory / 'd.json'}"]
    assert "state_files" not in running.status()
    assert running.status()["health"] == "ok"
    assert {each.name for each in directory.iterdir()} - {"owner", "subscriptions.json"} == {"d.json"}


def test_an_app_that_is_cancelled_lets_the_directory_go(life, held, caplog):
    killed = life(Scripted(READING), on_failure="hold")
    killed.run("1m")
    killed.kill()
    sensor = Scripted(READING)

    life(sensor, on_failure="hold").run("10m")

    assert sensor.calls == []
    assert "another process" not in caplog.text


def test_a_stop_while_another_process_has_the_directory_is_obeyed_without_a_word_about_the_disk(life, held, caplog):
    first, second = life(Scripted(READING)), life(Scripted(READING))
    first.run("1s")

    second.run("1s")
    second.stop()

    assert second.stopped_in < 1
    assert "the disk" not in caplog.text
