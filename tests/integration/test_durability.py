"""Readings on disk while the broker is away, in virtual time."""

import errno
import os

import pytest

from leadsman import App
from leadsman.core.mqtt.outbox import Outbox
from leadsman.errors import ConfigurationError
from leadsman.testing import Harness

KEPT = {"outbox.durability": "acked-or-durable"}


class Counter:
    def __init__(self, first=0):
        self.taken = first

    async def __call__(self):
        self.taken += 1
        return {"n": self.taken}


def app_of(counters, interval=1):
    app = App("app")
    for name, counter in counters.items():
        app.add_telemetry(name, counter, interval=interval)
    return app


def no_room(path, mode=0o777):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def numbers(harness, device="d"):
    return [state["n"] for state in harness.states(device)]


@pytest.fixture
def state(tmp_path):
    return tmp_path / "state"


def test_readings_that_waited_when_the_app_was_killed_come_first_in_its_next_life(state):
    counter = Counter()
    with Harness(app_of({"d": counter}), settings=KEPT, state_directory=state) as first:
        first.run("10.5s")
        first.broker.stop()
        first.run("60s")
        first.kill()
    sent, taken = numbers(first), counter.taken

    with Harness(app_of({"d": counter}), settings=KEPT, state_directory=state, wall=first.loop.wall_time()) as second:
        second.run("10.5s")
        found, delivered = numbers(second), second.broker.messages("app/d/state")

    assert sent + found == list(range(1, counter.taken + 1))
    assert found[0] == sent[-1] + 1
    assert found[taken - len(sent)] == taken + 1
    times = [message.taken_at for message in delivered]
    assert times == sorted(times)
    assert times[0] < first.loop.wall_time() - 59
    assert [message.retain for message in delivered][: taken - len(sent) - 1] == [False] * (taken - len(sent) - 1)


def test_a_stop_keeps_what_the_broker_does_not_have(state, caplog):
    caplog.set_level("INFO")
    counter = Counter()
    with Harness(app_of({"d": counter}), settings=KEPT, state_directory=state) as first:
        first.broker.stop()
        first.run("10.05s")
    taken = counter.taken
    assert first.stopped_in < 2
    assert f"{taken} readings wait on disk for the broker, and the next start sends them" in caplog.text
    assert "as the process ends" not in caplog.text

    with Harness(app_of({"d": counter}), settings=KEPT, state_directory=state) as second:
        second.run("5s")

    assert numbers(second)[: taken + 2] == list(range(1, taken + 3))


@pytest.mark.parametrize("durability", ["memory", "acked-or-durable"])
def test_nothing_is_stored_while_the_broker_answers(state, durability):
    with Harness(app_of({"d": Counter()}), settings={"outbox.durability": durability}, state_directory=state) as app:
        app.run("60s")

    assert not state.exists() or {each.name for each in state.iterdir()} <= {"owner", "subscriptions.json"}


def test_memory_stores_nothing_at_all(state):
    with Harness(app_of({"d": Counter()}), settings={"outbox.durability": "memory"}, state_directory=state) as app:
        app.broker.stop()
        app.run("60s")

    assert not state.exists() or {each.name for each in state.iterdir()} <= {"owner", "subscriptions.json"}


def test_write_through_has_a_reading_on_disk_before_a_frozen_broker_is_noticed(state):
    counter = Counter()
    settings = {"outbox.durability": "write-through"}
    with Harness(app_of({"d": counter}), settings=settings, state_directory=state) as app:
        app.run("5.5s")
        app.broker.freeze()
        app.run("3.6s")
        waiting = [each for each in range(1, counter.taken + 1) if each not in numbers(app)]
        app.kill()

    with Harness(app_of({"d": Counter(100)}), settings=settings, state_directory=state) as second:
        second.run("0.5s")

    assert len(waiting) >= 3
    assert numbers(second)[: len(waiting)] == waiting


@pytest.mark.parametrize("below", ["", "app"])
def test_a_state_directory_that_cannot_be_one_is_reported_at_the_start_with_what_to_do(tmp_path, below, caplog):
    file = tmp_path / "state"
    file.write_text("")
    with Harness(app_of({"d": Counter()}), settings=KEPT, state_directory=file / below) as harness:
        harness.run(3)
        said, status = caplog.messages, harness.status()
        file.unlink()
        harness.run(60)

        assert [line.endswith("or give it another STATE_DIRECTORY") for line in said if "outbox.db" in line] == [True]
        assert status["health"] == "degraded"
        assert [*status["state_files"]] == [str(file / below / "outbox.db")]
        assert harness.status()["health"] == "ok"
        assert len(numbers(harness)) == 64


def test_a_disk_without_room_is_reported_at_the_start_and_a_directory_to_be_made_is_not(state, monkeypatch, caplog):
    with Harness(app_of({"d": Counter()}), settings=KEPT, state_directory=state / "deep" / "down") as harness:
        harness.run(3)
        assert harness.status()["health"] == "ok"
    assert not (state / "deep" / "down" / "outbox.db").exists()

    full = os.statvfs_result((4096, 4096, 1000, 0, 0, 10, 10, 10, 0, 255))
    monkeypatch.setattr("os.statvfs", lambda path: full)
    monkeypatch.setattr("os.mkdir", no_room)
    with Harness(app_of({"d": Counter()}), settings=KEPT, state_directory=state.with_name("full")) as harness:
        harness.run(3)
        assert harness.status()["health"] == "degraded"
    assert [line for line in caplog.messages if "No space left" in line]


def test_an_outage_longer_than_the_memory_costs_no_reading(state, monkeypatch):
    monkeypatch.setattr("leadsman.core.wiring.core.Outbox", lambda: Outbox(200))
    counters = {f"d{number}": Counter() for number in range(5)}
    with Harness(app_of(counters), settings=KEPT, state_directory=state) as app:
        app.run("5.5s")
        app.broker.stop()
        app.run("300s")
        app.broker.start()
        app.run("45s")
        status = app.status()

    for name, counter in counters.items():
        found = list(dict.fromkeys(numbers(app, name)))
        assert found == list(range(1, counter.taken + 1)), name
    assert status["mqtt"]["outbox"]["dropped"] == 0


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("durability", "always", "outbox.durability: 'always' is unknown; write 'acked-or-durable'"),
        ("max_bytes", "12", "outbox.max_bytes: 12 bytes are too few; write 1048576 or more"),
        ("max_bytes", "many", "outbox.max_bytes: 'many' is not a whole number of bytes"),
        pytest.param("max_bytes", "9" * 5000, "is not a whole number of bytes", id="digits"),
        ("max_age", True, "outbox.max_age: True is not a duration"),
        ("max_ages", "7d", "outbox.max_ages: unknown"),
    ],
)
def test_a_wrong_setting_is_named(key, value, message):
    with (
        pytest.raises(ConfigurationError, match=message.replace("(", r"\(")),
        Harness(app_of({"d": Counter()}), settings={f"outbox.{key}": value}),
    ):
        pass
