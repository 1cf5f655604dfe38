"""The committer with a file that is scripted, in virtual time."""

import asyncio
import sqlite3
import threading
import time
from contextlib import closing

import pytest

from leadsman.core.event_bus import EventBus
from leadsman.core.events import LinkUp, MessageDropped, StateFailed, StateWritten
from leadsman.core.loop.clock import system_clock
from leadsman.core.mqtt.message import Message
from leadsman.core.mqtt.outbox import Outbox
from leadsman.core.spool import file as spool_file
from leadsman.core.spool.committer import (
    AGAIN_SOON,
    DELETE_DELAY,
    LAST_DELETE_DELAY,
    LEAVING,
    OPEN_TIMEOUT,
    REOPEN_INTERVAL,
    Committer,
)
from leadsman.core.spool.row import EXPIRED, Evicted, Found, Quota, SpoolRow, TopicRows
from leadsman.errors import SpoolFull, SpoolLocked, SpoolReplaced, SpoolUnavailable


class File:
    """Rows in a dict. `faults` are raised one after the other, by the method that they are for."""

    def __init__(self):
        self.rows = {}
        self.dead = []
        self.faults = []
        self.calls = []
        self.room = 1000

    def _call(self, name):
        self.calls.append(name)
        if self.faults and self.faults[0][0] == name:
            raise self.faults.pop(0)[1]

    def open(self, list_topics):
        self._call("open")
        list_topics(frozenset(self.by_topic()))
        return Found(len(self.rows), max(self.rows, default=0) + 1)

    def by_topic(self):
        found = {}
        for number, row in sorted(self.rows.items()):
            before = found.get(row.topic, TopicRows(0, 0))
            found[row.topic] = TopicRows(before.rows + 1, number)
        return found

    def write(self, add, delete, dead=()):
        self._call("write")
        self.rows.update((row.id, row) for row in add)
        for number in delete:
            self.rows.pop(number, None)
        self.dead += dead
        return []

    def read(self, after, most_rows, most_bytes):
        self._call("read")
        return [row for number, row in sorted(self.rows.items()) if number > after][:most_rows]

    def taken_at(self, after):
        return next((row.taken_at for number, row in sorted(self.rows.items()) if number > after), None)

    def close(self):
        self._call("close")


class Link:
    up = True
    window = 20

    def __init__(self):
        self.outbox = Outbox(50)
        self.pumps = 0

    def pump(self):
        self.pumps += 1


class Rig:
    def __init__(self, loop, events, path):
        self.loop, self.link, self.events = loop, Link(), events
        self.path = path
        self.committer = None

    def start(self):
        async def make():
            clock = system_clock(self.loop)
            self.bus = EventBus(clock)
            self.bus.subscribe(self.events.append)
            self.committer = Committer(self.link, self.path, Quota(), clock, self.bus)
            self.committer.open()

        self.loop.run_until_complete(make())
        self.run(0.01)

    def run(self, seconds):
        self.loop.run_until_complete(asyncio.sleep(seconds))

    def put(self, *payloads, topic="t", taken_at=None, **fields):
        for payload in payloads:
            self.link.outbox.put(Message(topic, payload, taken_at=taken_at or self.loop.wall_time(), **fields))

    def write(self):
        self.committer.write(self.link.outbox.number)
        self.run(0.01)

    def deliver(self):
        found = []
        while (item := self.link.outbox.pop(0.0)[0]) is not None:
            found.append(item.message.payload)
            self.link.outbox.accept(item)
        return found

    @property
    def store(self):
        return self.link.outbox.on_disk.store

    def states(self):
        return [type(event) for event in self.events if isinstance(event, StateFailed | StateWritten)]


def dropped(rig):
    """What was reported as lost: topics, how many readings, and why."""
    found = [event for event in rig.events if isinstance(event, MessageDropped)]
    return [(event.topic, event.messages, event.reason) for event in found]


@pytest.fixture
def file(monkeypatch):
    made = File()
    monkeypatch.setattr(spool_file, "SpoolFile", lambda path, quota, now: made)
    return made


@pytest.fixture
def rig(loop, events, tmp_path, file):
    return Rig(loop, events, tmp_path / "outbox.db")


def row(number, payload=b"old", topic="t"):
    return SpoolRow(number, 9, topic, payload, 1, True, 5.0, None, False)


def payloads(file):
    return [row.payload for row in file.rows.values()]


def test_what_waits_is_written_and_deleted_within_a_second_of_its_arrival(rig, file):
    rig.start()
    rig.put(b"1", b"2")
    rig.write()
    assert (payloads(file), rig.store) == ([b"1", b"2"], "ok")

    assert rig.deliver() == [b"1", b"2"]
    rig.run(DELETE_DELAY + 0.1)

    assert file.rows == {}
    assert file.calls == ["open", "write", "write"]
    assert rig.states() == []


def test_when_all_of_a_topic_arrived_its_rows_are_deleted_at_once_so_that_no_other_life_sends_them_after_newer_ones(
    rig, file
):
    rig.start()
    rig.put(b"1", b"2")
    rig.put(b"other", b"another", topic="u")
    rig.write()

    for _ in range(3):
        rig.link.outbox.accept(rig.link.outbox.pop(0.0)[0])
    rig.run(LAST_DELETE_DELAY + 0.01)

    assert payloads(file) == [b"another"]


def test_while_others_of_a_topic_wait_on_disk_its_rows_are_deleted_in_larger_numbers(rig, file):
    rig.start()
    rig.put(b"1", b"2")
    rig.write()
    rig.link.outbox.accept(rig.link.outbox.pop(0.0)[0])
    rig.run(LAST_DELETE_DELAY + 0.01)

    assert payloads(file) == [b"1", b"2"]


def test_what_arrived_is_deleted_with_the_next_write(rig, file):
    rig.start()
    rig.put(b"1")
    rig.write()
    rig.deliver()
    rig.put(b"2")
    rig.write()

    assert payloads(file) == [b"2"]
    assert file.calls == ["open", "write", "write"]


def test_rows_of_an_earlier_life_are_sent_first(rig, file):
    file.rows = {4: row(4), 5: row(5, b"older", "u")}
    rig.start()
    rig.put(b"new")
    rig.run(0.1)

    assert rig.deliver() == [b"old", b"older", b"new"]
    rig.run(DELETE_DELAY + 0.1)
    assert file.rows == {}
    assert rig.link.pumps > 0


def test_rows_are_read_when_there_is_a_connection(rig, file):
    file.rows = {4: row(4)}
    rig.link.up = False
    rig.start()
    rig.run(1.0)
    assert "read" not in file.calls

    rig.link.up = True
    rig.bus.emit(LinkUp(1, "5", "codec"))
    rig.run(0.1)

    assert rig.deliver() == [b"old"]


def test_the_age_of_the_oldest_reading_counts_those_that_are_on_disk_only(rig, file):
    file.rows = {
        4: row(4)._replace(taken_at=rig.loop.wall_time() - 7200),
        5: row(5)._replace(taken_at=rig.loop.wall_time() - 3600),
        6: row(6, topic="u")._replace(taken_at=5.0),  # before the clock was set, so that its age is not known
    }

    offset = rig.loop.wall_time() - rig.loop.time()

    def age():
        oldest = rig.link.outbox.oldest(offset)
        return None if oldest is None else round(rig.loop.time() - oldest)

    rig.link.up = False
    rig.start()
    assert age() == 7200
    rig.link.outbox.put(Message("t", b"held", taken_at=rig.loop.wall_time() - 5, clock_offset=offset))
    assert age() == 7200

    del file.rows[4]  # as the quota does
    rig.put(b"another", topic="live")
    rig.write()
    assert age() == 3600

    del file.rows[5]
    rig.put(b"one more", topic="live")
    rig.write()
    assert age() is None


def test_rows_are_read_though_nothing_else_happens(rig, file):
    file.rows = {4: row(4)}
    for number in range(40):
        rig.link.outbox.put(Message(f"status/{number}", b"online"))
    rig.start()
    assert "read" not in file.calls
    rig.deliver()

    rig.run(2 * DELETE_DELAY)

    assert rig.deliver() == [b"old"]


@pytest.mark.slow
def test_readings_do_not_wait_for_a_disk_that_hangs(rig, file, monkeypatch):
    goes_on = threading.Event()
    opens = file.open
    monkeypatch.setattr(file, "open", lambda list_topics: goes_on.wait(30) and opens(list_topics))
    file.rows = {4: row(4)}
    rig.start()
    rig.put(b"5")
    rig.run(OPEN_TIMEOUT - 1)
    assert rig.deliver() == []

    rig.run(2)
    assert rig.deliver() == [b"5"]
    assert rig.store == "memory"

    goes_on.set()
    assert until(rig, rig.deliver) == [b"old"]
    assert rig.states() == [StateFailed, StateWritten]


@pytest.mark.slow
def test_only_topics_that_may_have_rows_wait_for_the_file_to_be_counted(rig, file, monkeypatch):
    counted = threading.Event()
    opens = file.open
    monkeypatch.setattr(file, "open", lambda list_topics: (opens(list_topics), counted.wait(30))[0])
    file.rows = {4: row(4)}
    rig.start()
    pumps = until(rig, lambda: rig.link.pumps)
    rig.put(b"5")
    rig.put(b"6", topic="live")
    assert (pumps, rig.deliver(), rig.store) == (1, [b"6"], "opening")

    counted.set()

    found = []
    until(rig, lambda: found.extend(rig.deliver()) or len(found) == 2)
    assert found == [b"old", b"5"]


def until(rig, look):
    """What `look` finds, as soon as that is something. The thread needs real time."""
    for _ in range(2000):
        if found := look():
            return found
        time.sleep(0.001)
        rig.run(0.01)
    raise AssertionError("it does not come")


def test_a_file_of_another_process_is_tried_again_soon_and_then_seldom(rig, file):
    file.faults = [("open", SpoolLocked("another process has it")) for _ in range(100)]
    rig.start()
    rig.put(b"1")
    assert rig.deliver() == [b"1"]  # nothing waits for that process
    rig.run(LEAVING + 1)
    soon = file.calls.count("open")
    rig.run(3 * REOPEN_INTERVAL)

    assert rig.store == "locked"
    assert LEAVING / AGAIN_SOON - 1 <= soon <= LEAVING / AGAIN_SOON + 2
    assert 2 <= file.calls.count("open") - soon <= 4
    file.faults = []
    rig.put(b"2")
    rig.run(REOPEN_INTERVAL + 1)
    assert payloads(file) == [b"2"]
    assert rig.states() == [StateFailed, StateWritten]


def test_a_full_disk_is_tried_again_each_second(rig, file):
    rig.start()
    file.faults = [("write", SpoolFull("full"))] * 3
    rig.put(b"1")
    rig.write()
    assert (rig.store, rig.states()) == ("full", [StateFailed])

    rig.run(3 * AGAIN_SOON + 0.5)

    assert (payloads(file), rig.store, rig.states()) == ([b"1"], "ok", [StateFailed, StateWritten])


def test_a_full_disk_still_lets_rows_be_deleted(rig, file):
    rig.start()
    rig.put(b"1")
    rig.write()
    rig.deliver()
    file.faults = [("write", SpoolFull("full"))]
    rig.put(b"2")
    rig.write()

    assert file.rows == {}


def test_a_full_disk_is_still_read(rig, file):
    file.rows = {number: row(number, b"%d" % number) for number in range(1, 5)}
    rig.link.up = False
    rig.start()
    file.faults = [("write", SpoolFull("full"))] * 1000
    rig.put(b"5")
    rig.write()
    rig.link.up = True
    rig.bus.emit(LinkUp(1, "5", "codec"))
    rig.run(0.1)

    assert rig.deliver() == [b"1", b"2", b"3", b"4", b"5"]


def test_a_sick_file_is_opened_again_after_half_a_minute(rig, file):
    rig.start()
    rig.put(b"1")
    rig.write()
    file.faults = [("write", SpoolUnavailable("I/O error"))]
    rig.put(b"2")
    rig.write()
    assert rig.store == "memory"

    rig.run(REOPEN_INTERVAL + 1)

    assert (payloads(file), rig.store) == ([b"1", b"2"], "ok")
    assert file.calls.count("open") == 2
    assert rig.deliver() == [b"1", b"2"]


def test_an_error_that_nobody_foresaw_is_a_sick_file(rig, file):
    file.faults = [("open", ValueError("what is this?"))]
    rig.start()
    rig.put(b"1")

    assert rig.store == "memory"
    assert rig.deliver() == [b"1"]


def test_a_file_that_was_replaced_is_written_again(rig, file):
    rig.start()
    rig.put(b"1")
    rig.write()
    file.rows.clear()
    file.faults = [("write", SpoolReplaced("it was deleted"))]
    rig.put(b"2")
    rig.write()
    rig.run(0.1)

    assert payloads(file) == [b"1", b"2"]
    assert rig.store == "ok"


def test_a_file_that_is_replaced_at_each_look_is_opened_once_a_second(rig, file):
    rig.start()
    file.faults = [("write", SpoolReplaced("it was deleted"))] * 1000
    rig.put(b"1")
    rig.write()
    rig.run(10 * AGAIN_SOON)
    opened = file.calls.count("open")
    file.faults = []
    rig.run(2 * AGAIN_SOON)

    assert 8 <= opened <= 12
    assert (payloads(file), rig.store) == ([b"1"], "ok")


def evicting(file, monkeypatch, fails=None):
    """Let each write delete row 4 because of its age, and those with new rows fail."""
    writes = file.write

    def write(add, delete, dead=()):
        if add and fails is not None:
            raise fails
        writes(add, [*delete, 4], dead)
        return [Evicted("old", EXPIRED, [4])]

    monkeypatch.setattr(file, "write", write)


def test_rows_that_are_deleted_on_a_full_disk_are_counted_as_what_they_are(rig, file, monkeypatch):
    file.rows = {number: row(number, b"%d" % number, "old") for number in (4, 5)}
    rig.link.up = False
    rig.start()
    rig.put(b"6")
    rig.write()
    rig.deliver()
    evicting(file, monkeypatch, SpoolFull("full"))
    rig.put(b"7")
    rig.write()
    monkeypatch.undo()
    rig.link.up = True
    rig.bus.emit(LinkUp(1, "5", "codec"))
    rig.run(0.1)

    assert dropped(rig) == [("old", 1, EXPIRED)]
    assert rig.deliver() == [b"7", b"5"]


def test_rows_that_are_deleted_when_the_file_is_opened_again_are_counted_as_what_they_are(rig, file, monkeypatch):
    file.rows = {number: row(number, b"%d" % number, "old") for number in (4, 5)}
    rig.link.up = False
    rig.start()
    rig.put(b"6")
    rig.write()
    file.faults = [("write", SpoolUnavailable("I/O error"))]
    rig.put(b"7")
    rig.write()
    rig.deliver()
    evicting(file, monkeypatch)
    rig.run(REOPEN_INTERVAL + 1)

    assert dropped(rig) == [("old", 1, EXPIRED)]
    assert (rig.store, payloads(file), rig.committer.backlog.rows) == ("ok", [b"5"], 1)


def test_what_was_written_is_counted_though_nothing_can_be_read_after_it(rig, file, monkeypatch):
    file.rows = {number: row(number, b"%d" % number, "old") for number in (4, 5)}
    rig.link.up = False
    rig.start()
    rig.put(b"6")
    evicting(file, monkeypatch)
    file.faults = [("read", SpoolUnavailable("I/O error"))]
    rig.link.up = True
    rig.write()
    assert (rig.store, payloads(file)) == ("memory", [b"5", b"6"])

    monkeypatch.undo()
    rig.run(REOPEN_INTERVAL + 1)

    assert dropped(rig) == [("old", 1, EXPIRED)]
    assert file.calls.count("write") == 1
    assert sorted(rig.deliver()) == [b"5", b"6"]


def test_a_lock_and_a_log_that_are_deleted_under_a_running_app_make_nothing_arrive_twice(loop, events, tmp_path):
    path = tmp_path / "outbox.db"
    before, after = Rig(loop, events, path), Rig(loop, events, path)
    before.link.up = False
    before.start()
    before.put(b"1", b"2", taken_at=time.time())  # which is the time of the file
    before.committer.write(2)
    until(before, lambda: before.committer.backlog.kept == 2)
    for name in ("outbox.db.lock", "outbox.db-wal"):
        path.with_name(name).unlink()
    before.put(b"3", taken_at=time.time())
    before.committer.write(3)
    until(before, lambda: before.committer.backlog.kept == 3)
    loop.run_until_complete(before.committer.finish())

    found = []
    after.start()
    until(after, lambda: found.extend(after.deliver()) or len(found) == 3)
    loop.run_until_complete(after.committer.finish())

    assert found == [b"1", b"2", b"3"]
    assert dropped(before) == dropped(after) == []
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT count(*) FROM outbox").fetchall() == [(0,)]


def test_the_end_writes_what_waits_and_closes_the_file(rig, file):
    rig.start()
    rig.put(b"1", b"2")
    rig.loop.run_until_complete(rig.committer.finish())

    assert payloads(file) == [b"1", b"2"]
    assert file.calls[-1] == "close"
    assert (rig.committer.backlog.kept, rig.link.outbox.unkept) == (2, 0)


def test_the_end_opens_the_file_if_it_must(rig, file):
    rig.put(b"1")

    async def make():
        clock = system_clock(rig.loop)
        rig.committer = Committer(rig.link, rig.path, Quota(), clock, EventBus(clock))
        await rig.committer.finish()

    rig.loop.run_until_complete(make())

    assert payloads(file) == [b"1"]
    assert file.calls == ["open", "write", "close"]


def test_the_end_does_not_wait_for_a_disk_that_is_full(rig, file):
    rig.start()
    file.faults = [("write", SpoolFull("full"))] * 100
    rig.put(b"1")
    rig.loop.run_until_complete(rig.committer.finish())

    assert file.calls == ["open", "write", "close"]


def test_a_dead_letter_is_written_with_its_reason(rig, file):
    rig.start()
    rig.put(b"1")
    item, _ = rig.link.outbox.pop(0.0)
    rig.link.outbox.drop(item, "refused")
    rig.run(DELETE_DELAY + 0.1)

    assert [(row.payload, why) for row, why in file.dead] == [(b"1", "refused")]


def test_what_an_earlier_run_left_is_logged(rig, file, caplog):
    caplog.set_level("INFO")
    file.rows = {4: row(4)}
    rig.start()

    assert "1 reading waits on disk for the broker from an earlier run" in caplog.text
