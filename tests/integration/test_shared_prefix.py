"""Several apps on one prefix, which hear each other's status. What one of them says of another is in
`test_topics_left_behind.py`."""

import pytest

from leadsman import App
from leadsman.testing import Scripted


@pytest.fixture
def running(harness, caplog):
    """An app, a moment after its start."""
    caplog.set_level("INFO", "leadsman")
    app = App("house")
    app.add_telemetry("meter", Scripted({"t": 1}), interval=60)
    running = harness(app)
    running.run(5)
    return running


def hear(running, client_id, state="online"):
    running.broker.send("house/status", {"state": state, "client_id": client_id})
    running.run(0.01)


def named(caplog):
    """The apps that the log names, in order; None for a line that there is none any more."""
    found = []
    for text in caplog.messages:
        if "another app publishes below" in text:
            found.append(text.partition("client id is '")[2].partition("'")[0])
        elif "no other app publishes below" in text:
            found.append(None)
    return found


def test_apps_on_one_prefix_become_quiet_however_many_they_are(running, caplog):
    before = len(running.broker.messages("house/status"))
    for _ in range(100):
        for client_id in ("b", "c", "d"):
            hear(running, client_id)

    assert len(running.broker.messages("house/status")) - before <= 2
    assert named(caplog) == ["b"]


def test_the_app_that_is_named_stays_until_it_leaves_and_the_next_is_named_then(running, caplog):
    hear(running, "b")
    hear(running, "c")
    running.run(2)
    assert "'b'" in running.status()["mqtt"]["last_error"]
    hear(running, "b", "offline")
    running.run(2)
    assert "'c'" in running.status()["mqtt"]["last_error"]
    hear(running, "c", "offline")
    running.run(2)

    assert running.status()["mqtt"]["last_error"] is None


def test_an_app_that_falls_silent_is_forgotten(running, caplog):
    hear(running, "b")
    running.run("115s")
    assert None not in named(caplog)
    running.run("10s")

    assert named(caplog) == ["b", None]
    assert running.status()["mqtt"]["last_error"] is None


def test_changing_client_ids_are_remembered_in_bounded_number(running, caplog):
    for number in range(1000):
        hear(running, f"other-{number}")
    assert named(caplog) == ["other-0"]
    for number in range(16):
        hear(running, f"other-{number}", "offline")
    running.run(2)

    assert running.status()["mqtt"]["last_error"] is None, "16 are remembered"
