"""Stores of handlers, over restarts and with a disk that fails."""

import functools
import json

import pytest

from leadsman import App, Context
from leadsman.core.runtime.store import Store


@pytest.fixture
def state(tmp_path):
    return tmp_path / "state"


@pytest.fixture
def harness(harness, state):
    return functools.partial(harness, state_directory=state)


def counter(app):
    @app.telemetry("d", interval=1)
    async def read(context: Context):
        context.store["n"] = context.store.get("n", 0) + 1
        return {"n": context.store["n"]}

    return app


def test_a_store_survives_a_restart(harness, state):
    first = harness(counter(App("app")))
    first.run(9.5)
    first.stop()

    second = harness(counter(App("app")))
    second.run(0.5)

    assert second.states("d") == [{"n": 11}]
    assert json.loads((state / "d.json").read_text()) == {"n": 10}
    assert (state / "d.json").stat().st_mode & 0o777 == 0o600


def test_a_store_is_written_at_most_once_a_minute(harness, state, monkeypatch):
    writes = []
    save = Store.save
    monkeypatch.setattr(Store, "save", lambda store: (writes.append(1), save(store)))
    running = harness(counter(App("app")))

    running.run("10m1s")

    assert len(writes) == 10


@pytest.mark.parametrize(
    "content", [b"{", b"[1]", b"\xff\xfe", b"", b"[" * 100_000, b'{"n": NaN}', b'{"n": "\\ud800"}']
)
def test_a_broken_store_is_kept_aside_and_told(harness, state, caplog, content):
    state.mkdir()
    (state / "d.json").write_bytes(content)

    running = harness(counter(App("app")))
    running.run(0.5)

    assert running.states("d") == [{"n": 1}]
    (aside,) = state.glob("d.json.bad-*")
    assert aside.read_bytes() == content
    assert f"it is kept as {aside.name}, and the store starts empty" in caplog.text


def test_three_broken_stores_of_a_device_are_kept(harness, state):
    state.mkdir()
    for number in range(5):
        (state / "d.json").write_text(f"broken {number}")
        running = harness(counter(App("app")))
        running.run(0.5)
        running.stop()

    assert {each.read_text() for each in state.glob("d.json.bad-*")} == {"broken 2", "broken 3", "broken 4"}


def test_a_store_that_cannot_be_written_costs_one_line(harness, state, caplog):
    state.write_text("a file where a directory should be")

    running = harness(counter(App("app")))
    running.run("5m1s")

    assert len(running.states("d")) == 302
    assert caplog.text.count("cannot be") <= 2
