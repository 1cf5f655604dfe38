"""Plain ``def`` handlers: none of them costs another one a poll, a delay or a bad name."""

import sys
import threading
import time

import pytest

from leadsman import App, CircuitBreaker
from leadsman.core.loop import threads as workers
from leadsman.core.runtime import handler_calls
from leadsman.core.runtime.thread_pool import AT_ONCE

READING = {"t": 21.5}


def until(true):
    ends = time.monotonic() + 60
    while not true():
        assert time.monotonic() < ends
        time.sleep(0.001)


class Blocking:
    """A plain handler each of whose calls blocks until it is let go."""

    def __init__(self):
        self.releases = []

    def __call__(self):
        release = threading.Event()
        self.releases.append(release)
        release.wait()
        return READING

    def let_go(self):
        """Let the call go on, and wait in real time until it has ended: virtual time does not wait for what hangs."""
        until(lambda: self.hanging)
        before = workers.busy()
        self.releases[-1].set()
        until(lambda: workers.busy() < before)

    @property
    def hanging(self):
        """Whether a call blocks."""
        return bool(self.releases) and not self.releases[-1].is_set()


class Bus:
    """An adapter that several plain handlers share."""

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exc_info):
        pass


@pytest.fixture
def blocking():
    found = []

    def make():
        found.append(Blocking())
        return found[-1]

    yield make
    for each in found:
        if each.hanging:
            each.let_go()


class Timed:
    """A plain handler that notes when it is called."""

    def __init__(self):
        self.at, self.clock = [], None

    def __call__(self):
        self.at.append(round(self.clock(), 3))
        return READING


def test_a_neighbour_that_hangs_costs_no_poll_and_no_blame(harness, blocking):
    app, quick = App("app"), Timed()
    app.add_telemetry("hangs", blocking(), interval="1m", spread=0)
    app.add_telemetry("quick", quick, interval="5s", retry=2, spread=0)
    running = harness(app, patience=0.2)
    quick.clock = running.loop.time

    running.run("121s")

    assert quick.at == [5.0 * n for n in range(25)]
    assert running.errors("quick") == []
    assert [error["type"] for error in running.errors("hangs")] == ["DeviceTimeout"]


def test_a_slow_neighbour_delays_no_reading(harness, blocking):
    app, slow, quick = App("app"), blocking(), Timed()
    app.add_telemetry("slow", slow, interval="4s", spread=0)
    app.add_telemetry("quick", quick, interval="4s", spread=0)
    running = harness(app, patience=0.2)
    quick.clock = running.loop.time
    for n in range(5):
        running.at(4 * n + 2.5, slow.let_go)

    running.run("19s")

    assert quick.at == [4.0 * n for n in range(5)]
    assert len(running.states("slow")) == 5


def test_a_handler_that_exits_is_told_by_its_own_error(harness, blocking):
    app = App("app")
    app.add_telemetry("hangs", blocking(), interval="1m")
    app.add_telemetry("exits", lambda: sys.exit(3), interval="5s")
    running = harness(app, patience=0.2)

    running.run("20s")

    assert {error["type"] for error in running.errors("exits")} == {"SystemExit"}


def test_fifty_handlers_of_which_five_hang_lose_no_other_poll(harness, blocking):
    app, before = App("app"), set(threading.enumerate())
    for n in range(5):
        app.add_telemetry(f"hangs{n}", blocking(), interval="10s")
    for n in range(45):
        app.add_telemetry(f"quick{n}", lambda: READING, interval="10s")
    running = harness(app, patience=0.2)

    running.run("95s")

    assert {len(running.states(f"quick{n}")) for n in range(45)} == {10}
    assert all("missed_polls" not in device for name, device in running.status()["devices"].items() if "quick" in name)
    begun = set(threading.enumerate()) - before
    assert len([thread for thread in begun if thread.name == "leadsman handlers"]) <= 5 + AT_ONCE


def test_a_poll_while_the_earlier_call_still_hangs_is_missed_by_that_handler_alone(harness, blocking):
    app, hangs = App("app"), blocking()
    app.add_telemetry("hangs", hangs, interval="10s", retry=1)
    running = harness(app, patience=0.2)

    running.run("35s")
    hangs.let_go()
    running.run("10s")

    [error] = running.errors("hangs")[:1]
    assert error["message"].startswith("the thread of an earlier call is still busy")
    assert len(hangs.releases) == 2
    assert running.status()["devices"]["hangs"]["missed_polls"] == 3


def test_if_all_threads_hang_a_poll_fails_with_the_names_of_those_that_have_them(harness, blocking, monkeypatch):
    monkeypatch.setattr(handler_calls, "MAX_THREADS", 3)
    app, hanging = App("app"), [blocking() for _ in range(3)]
    for n, each in enumerate(hanging):
        app.add_telemetry(f"hangs{n}", each, interval="1m", spread=0)
    app.add_telemetry("quick", lambda: READING, interval="5s", circuit_breaker=CircuitBreaker(2), spread=0)
    running = harness(app, patience=0.2)

    running.run("28s")
    error = running.errors("quick")[0]
    circuit = running.status()["devices"]["quick"].get("circuit", "closed")
    for each in hanging:
        each.let_go()
    running.run("30s")

    assert error["type"] == "NoFreeThread"
    assert error["message"].startswith(
        "no thread of handlers was free within 5s: all 3 are busy with hangs0 (for 5s), "
    )
    assert circuit == "closed"
    assert len(running.states("quick")) >= 5


def test_a_wait_for_the_thread_of_an_adapter_is_not_part_of_the_timeout(harness, blocking):
    app = App("app", adapters=(Bus(),))
    first, second = blocking(), blocking()

    @app.telemetry("first", interval="1m", timeout=5, spread=0)
    def read_first(bus: Bus):
        return first()

    @app.telemetry("second", interval="1m", timeout=5, circuit_breaker=CircuitBreaker(1), spread=0)
    def read_second(bus: Bus):
        return second()

    running = harness(app, patience=0.2)
    running.at(4, first.let_go)
    running.at(8, second.let_go)

    running.run("10s")

    assert running.states("first") == running.states("second") == [READING]
    assert running.errors("second") == []
    assert running.status()["devices"]["second"].get("circuit", "closed") == "closed"


def test_a_hang_of_an_adapter_is_told_of_the_handler_that_hangs(harness, blocking):
    app, hangs = App("app", adapters=(Bus(),)), blocking()

    @app.telemetry("hangs", interval="10m", timeout=20, spread=0)
    def read_first(bus: Bus):
        return hangs()

    @app.telemetry("quick", interval="1m", timeout=5, spread=0)
    def read_second(bus: Bus):
        return READING

    @app.command("lamp")
    def switch(bus: Bus):
        return READING

    running = harness(app, patience=0.2)
    running.run("1s")
    running.broker.send("app/lamp/set", b"")
    running.run("30s")
    hangs.let_go()
    running.run("40s")

    held = "it is busy with hangs (for 5s); set a timeout on the blocking calls there"
    assert running.errors("quick")[0]["message"].startswith("no thread of Bus was free within 5s: " + held)
    assert "busy with hangs" in running.broker.messages("app/lamp/set/result")[0].payload.decode()
    assert running.states("quick") == [READING]


def test_commands_and_messages_wait_for_no_handler_that_hangs(harness, blocking):
    app, heard = App("app"), []
    app.add_telemetry("hangs", blocking(), interval="1m")

    @app.command("lamp")
    def switch():
        return READING

    @app.subscribe("door/+")
    def hear():
        heard.append(1)

    running = harness(app, patience=0.2)
    running.run("1s")
    running.broker.send("app/lamp/set", b"")
    running.broker.send("door/front", b"")
    running.run("1s")

    assert running.states("lamp") == [READING]
    assert heard == [1]


def test_an_app_without_plain_handlers_starts_no_thread_for_them(harness):
    async def handler():
        return READING

    app, before = App("app"), set(threading.enumerate())
    app.add_telemetry("d", handler, interval="1s")
    running = harness(app)

    running.run("10s")

    assert not set(threading.enumerate()) - before


@pytest.mark.parametrize("interval", ["1s", "10s", "1m", "5m"])
def test_handlers_that_are_polled_together_have_the_same_threads_all_day(harness, interval):
    app, seen = App("app"), set()

    def read():
        seen.add(threading.current_thread())
        return READING

    for name in ("a", "b"):
        app.add_telemetry(name, read, interval=interval)

    harness(app).run("1h")

    assert len(seen) <= 2
