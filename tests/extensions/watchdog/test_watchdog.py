"""What the watchdog says of an app: whether any data is fresh, and a summary in one line. The app goes on whether that
is read or not, and whether the disk answers or not."""

import contextlib
import math
import socket
import threading
import time
from types import SimpleNamespace

import pytest

from leadsman.core.events import CircuitMoved, DeviceHeld, DeviceLeft, PollDeferred, PollFailed, ReadingTaken
from leadsman.core.monitoring.health import HealthRecords
from leadsman.core.monitoring.health_file import read_health
from leadsman.core.monitoring.statuses import Statuses
from leadsman.core.storage import files
from leadsman.extensions.watchdog.watchdog import HealthWriter, Notifier, Watchdog

STALE_AFTER = 100.0


class Watched:
    """A watchdog over devices that were read at 0 s."""

    def __init__(self, *devices, jobs=(), commands=(), never_stale=()):
        self.records = HealthRecords()
        for name in (*devices, *jobs):
            self.records.register(name, STALE_AFTER, 0.0)
        for name in never_stale:
            self.records.register(name, math.inf, 0.0)
        for name in commands:
            self.records.register_idle(name, 0.0)
        self.statuses = Statuses(self.records, 0.0, None, frozenset(jobs))
        self.watchdog = Watchdog({}, self.statuses, SimpleNamespace(up=True), None)
        for name in (*devices, *jobs, *never_stale):
            self.see(ReadingTaken(name, 0.0, 0.0, 0.1))

    def see(self, event):
        self.records(event)
        self.statuses.status_change(event.entity, event.at)

    def sign_of_life(self, now):
        while self.statuses.next_at <= now:
            self.statuses.advance(now, 1000)
        return self.watchdog.sign_of_life(now)


def test_all_is_well():
    assert Watched("attic", "cellar").sign_of_life(1.0) == (True, "2 of 2 devices ok; connected")


def test_what_fails_is_named():
    watched = Watched("attic", "cellar", "hall", "loft", "barn")
    for name in ("loft", "hall", "cellar", "barn"):
        watched.see(PollFailed(name, OSError("away"), 1, 1.0, 1.0))

    assert watched.sign_of_life(2.0) == (True, "1 of 5 devices ok (not barn, cellar, hall …); connected")


def test_nothing_is_fresh_once_every_device_is_stale():
    watched = Watched("attic", "cellar")

    assert watched.sign_of_life(STALE_AFTER)[0]
    watched.see(ReadingTaken("attic", 50.0, 50.0, 0.1))
    assert watched.sign_of_life(STALE_AFTER + 1)[0]
    assert not watched.sign_of_life(STALE_AFTER + 51)[0]


def test_an_open_circuit_is_not_fresh_for_ever():
    watched = Watched("attic")
    watched.see(CircuitMoved("attic", "open", 3, 1.0, 1.0))

    assert watched.sign_of_life(STALE_AFTER)[0]
    assert not watched.sign_of_life(STALE_AFTER + 1)[0]


def test_staleness_is_seen_even_if_the_statuses_are_late():
    watched = Watched("attic")

    assert not watched.watchdog.sign_of_life(STALE_AFTER + 1)[0]


WAITS = {
    "held": DeviceHeld("attic", "", 1.0, 1.0),
    "isolated": CircuitMoved("attic", "isolated", 0, 1.0, 1.0),
    "deferred": PollDeferred("attic", 20 * STALE_AFTER, "sleeps", 1.0, 1.0),
    "left": DeviceLeft("attic", "its battery is low", 1.0, 1.0),
}


@pytest.mark.parametrize("event", WAITS.values(), ids=WAITS)
def test_a_device_that_waits_on_purpose_is_no_reason_for_a_restart(event):
    watched = Watched("attic")
    watched.see(event)

    assert watched.sign_of_life(10 * STALE_AFTER)[0]


@pytest.mark.parametrize("event", WAITS.values(), ids=WAITS)
def test_a_device_that_waits_on_purpose_is_no_sign_of_life_for_the_others(event):
    watched = Watched("attic", "cellar", "hall")
    watched.see(event)

    assert watched.sign_of_life(STALE_AFTER)[0]
    assert not watched.sign_of_life(STALE_AFTER + 1)[0]
    watched.see(ReadingTaken("hall", STALE_AFTER + 2, 1.0, 0.1))
    assert watched.sign_of_life(STALE_AFTER + 3)[0]


def test_nothing_is_wrong_when_all_devices_wait_on_purpose_for_several_reasons():
    watched = Watched("attic", "cellar")
    watched.see(DeviceHeld("attic", "", 1.0, 1.0))
    watched.see(PollDeferred("cellar", 5 * STALE_AFTER, "sleeps", 1.0, 1.0))

    assert watched.sign_of_life(6 * STALE_AFTER)[0]
    assert not watched.sign_of_life(6 * STALE_AFTER + 2)[0]  # the pause is over, and no reading came


def test_a_device_that_never_becomes_stale_is_no_sign_of_life_for_the_others():
    watched = Watched("attic", never_stale=["door"])

    assert watched.sign_of_life(STALE_AFTER)[0]
    assert not watched.sign_of_life(STALE_AFTER + 1)[0]


def test_an_app_whose_devices_never_become_stale_is_well():
    assert Watched(never_stale=["door"]).sign_of_life(1e6) == (True, "1 of 1 device ok; connected")


def test_side_jobs_and_devices_of_commands_do_not_count():
    watched = Watched("attic", jobs=["cleanup"], commands=["lamp"])
    watched.see(PollFailed("cleanup", OSError("away"), 1, 1.0, 1.0))
    watched.see(CircuitMoved("lamp", "isolated", 0, 1.0, 1.0))

    assert watched.sign_of_life(2.0) == (True, "1 of 1 device ok; connected")
    assert not watched.sign_of_life(STALE_AFTER + 1)[0]


def test_an_app_without_devices_is_well():
    assert Watched(commands=["lamp"]).sign_of_life(1e6) == (True, "no devices to poll; connected")


def test_devices_that_come_and_go_are_counted():
    watched = Watched()
    assert watched.sign_of_life(1.0)[1] == "no devices to poll; connected"

    watched.records.register("attic", STALE_AFTER, 1.0)
    watched.statuses.add("attic", 1.0)
    watched.see(ReadingTaken("attic", 1.0, 1.0, 0.1))
    assert watched.sign_of_life(2.0)[1] == "1 of 1 device ok; connected"

    watched.statuses.remove("attic")
    watched.records.remove("attic")
    assert watched.sign_of_life(3.0)[1] == "no devices to poll; connected"


def until(true):
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_health_file_whose_disk_does_not_answer_keeps_nobody_waiting_and_is_told_once(tmp_path, monkeypatch, caplog):
    answers, replace, written = threading.Event(), files.replace, []

    def slow(path, beside, data, mode, *, sync):
        assert answers.wait(60)
        replace(path, beside, data, mode, sync=sync)
        written.append(data)

    monkeypatch.setattr(files, "replace", slow)
    file = HealthWriter(tmp_path / "health.json")
    for second in range(0, 60, 10):
        file.write({"at": float(second), "period": 10.0, "fresh": True, "words": f"at {second}"})

    assert [line for line in caplog.messages if "cannot be written" in line] == [
        "The health file cannot be written: its disk does not answer; "
        "set LEADSMAN_HEALTH_FILE to a path that can be written"
    ]
    file.remove()  # as at the end, which does not wait for it
    answers.set()
    until(lambda: written and b"at 50" in written[-1] and not (tmp_path / "health.json").exists())


def test_a_fault_of_ours_in_the_thread_is_told_and_the_next_health_is_written(tmp_path, monkeypatch, caplog):
    faults, replace = [ValueError("embedded null byte"), TypeError("of ours")], files.replace

    def failing(*given, **words):
        if faults:
            raise faults.pop()
        replace(*given, **words)

    monkeypatch.setattr(files, "replace", failing)
    file = HealthWriter(tmp_path / "health.json")
    for left in (1, 0):
        file.write({"at": 1.0, "period": 10.0, "fresh": True, "words": "well"})
        until(lambda: len(faults) == left)  # noqa: B023  # at once
    file.write({"at": 2.0, "period": 10.0, "fresh": True, "words": "well"})

    until(lambda: (tmp_path / "health.json").exists())
    assert [line for line in caplog.messages if "cannot be written" in line] == [
        "The health file cannot be written: of ours; set LEADSMAN_HEALTH_FILE to a path that can be written"
    ]
    file.remove()


def test_the_newest_of_what_waits_is_in_the_health_file(tmp_path):
    file = HealthWriter(tmp_path / "health.json")
    for second in range(100):
        file.write({"at": float(second), "period": 10.0, "fresh": True, "words": f"at {second}"})

    until(lambda: read_health(tmp_path / "health.json", 99.0) == (True, "at 99"))
    file.remove()
    assert not (tmp_path / "health.json").exists()


def fill(sender, address):
    """Send as much as one socket may. Returns how many messages it was."""
    sender.setblocking(False)
    sent = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            sender.sendto(b"X=1", str(address))
            sent += 1
    return sent


def test_a_manager_that_reads_nothing_hears_that_the_app_is_ready_once_it_reads(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        notifier = Notifier(str(tmp_path / "notify"))
        with contextlib.closing(notifier), contextlib.ExitStack() as others:
            while fill(others.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)), tmp_path / "notify"):
                pass  # what one may send is bounded too, often below what the queue of the manager takes

            assert not notifier.send("READY=1")
            assert not notifier.send("STATUS=well")
            manager.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    manager.recv(100)
            assert notifier.send("STATUS=still well")
            assert notifier.send("WATCHDOG=1")
            assert [manager.recv(100), manager.recv(100)] == [b"READY=1\nSTATUS=still well", b"WATCHDOG=1"]
