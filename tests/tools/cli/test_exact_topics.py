"""What the commands find at a broker that sends what it keeps only for a filter that is the very topic, as RabbitMQ
does; and at one that sends it for wildcards, too."""

import json

import pytest

from leadsman import App, Received
from leadsman.testing import Harness, Scripted
from leadsman_rigs.stage import URL, run_for

ASKING = ("--prefix", "house", "--mqtt", URL)


def left_by(*names):
    """What an app retains, by topic."""
    app = App("house", discovery="homeassistant")
    for name in names:
        app.add_telemetry(name, Scripted({"t": 21.5}), interval=10)
    with Harness(app) as harness:
        harness.run("30s")
        running = dict(harness.broker.retained)
        harness.broker.send(
            "house/introspect", {"sections": ["app", "mqtt", "adapters", "devices", "jobs", "fields", "ledger"]}
        )
        harness.run("2s")
        (answer,) = harness.broker.messages("house/introspect/response")
    stopped = {topic: each.payload for topic, each in harness.broker.retained.items()}
    return answer.json["data"], {topic: each.payload for topic, each in running.items()}, stopped


@pytest.fixture(scope="module")
def house():
    return left_by("a", "b")


@pytest.fixture(params=[False, True], ids=["wildcards", "exact topics"])
def broker(stage, request, monkeypatch):
    for name in ("FORGETTING", "REMOVAL_WAIT"):
        monkeypatch.setattr(f"leadsman.tools.cli.commands.clean.{name}", 0.0)
    stage.broker().exact_only = request.param
    return stage.broker()


def test_clean_removes_all_that_an_app_left(stage, broker, house):
    stage.keep(house[2])
    another = {"homeassistant/device/house/garage/config": {"o": {"name": "another"}}}
    stage.keep(another)

    found = stage.run("clean", "--all", *ASKING)

    assert (found.code, found.err) == (0, "")
    assert broker.kept.keys() == another.keys()
    assert found.lines[-1].endswith("of 2 devices removed")


def test_clean_says_once_that_it_removed_the_topics_of_the_last_device(stage, broker, house, capsys):
    stage.keep(house[2])
    none, found = App("house", discovery="homeassistant"), []
    for _ in range(2):
        assert run_for(none, "clean", "--mqtt", URL) == 0
        found.append(capsys.readouterr().out.splitlines())

    config = "homeassistant/device/house/{}/config".format
    assert broker.kept.keys() == {"house/status", "house/registry", config("leadsman_app")}
    assert [line for line in found[0] if line.endswith("removed")] == [found[0][-1]]
    assert {config("a"), config("b"), "house/a/state"} < {*found[0]}
    assert [line for line in found[1] if line.endswith("removed")] == []
    assert found[1][-1].endswith("emptied, in case the broker hides what it keeps")


def test_clean_says_which_topics_are_still_there_although_the_broker_acknowledged_their_removal(stage, broker, house):
    stage.keep(house[2])
    broker.keeps = {"house/b/state"}

    found = stage.run("clean", "--all", *ASKING)

    assert found.code == 1
    assert [line for line in found.lines if "still there" in line] == ["house/b/state is still there"]
    assert "acknowledged that 1 retained topic be removed, and still keeps it; try again" in found.err


def test_why_knows_the_readings_that_the_broker_keeps(stage, broker, house):
    stage.keep(house[1])
    stage.answers("house/introspect", house[0])

    found = stage.run("why", *ASKING)

    assert (found.code, found.out) == (0, "No device is silent.\n")


def test_watch_shows_the_last_reading_of_each_device(stage, broker, house):
    stage.keep(house[1])
    stage.answers("house/introspect", house[0])

    found = stage.run("watch", "house", "--mqtt", URL, "--once", "--json")

    devices = json.loads(found.out)["devices"]
    assert [(each["device"], "21.5" in each["value"]) for each in devices] == [("a", True), ("b", True)]


def test_a_registry_of_several_pages_is_read_page_by_page(stage, broker, house):
    registry = json.loads(house[2]["house/registry"])
    devices = registry.pop("devices")
    pages = {"house/registry": registry | {"page": 1, "pages": 2, "devices": {"a": devices["a"]}}}
    pages |= {"house/registry/2": registry | {"page": 2, "pages": 2, "devices": {"b": devices["b"]}}}
    stage.keep(house[2] | {topic: json.dumps(page).encode() for topic, page in pages.items()})
    stage.keep(
        {"house/registry/9001": Received("house/registry/9001", json.dumps(pages["house/registry"]).encode(), True)}
    )

    found = stage.run("clean", "--all", *ASKING)

    assert (found.code, broker.kept) == (0, {})
