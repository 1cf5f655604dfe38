"""A dry run touches nothing real: not the devices, not the topics, not what is remembered."""

import json

import pytest
from pydantic import BaseModel

from leadsman import App, Context
from leadsman.adapters.serial import SerialPort
from leadsman.errors import InvalidValue
from leadsman.testing import Harness, MemoryBroker, SerialTwin, VirtualLoop


class Target(BaseModel):
    watts: int


@pytest.fixture
def app():
    app = App(
        "meter",
        prefix="house/meter",
        adapters=(SerialPort("/dev/nowhere"),),
        twins=lambda settings: (SerialTwin(lambda asked: b"412.5\n"),),
        keep_state=True,
    )

    @app.telemetry("power", interval="10s")
    async def power(port: SerialPort, context: Context) -> dict[str, float]:
        context.store["reads"] = context.store.get("reads", 0) + 1
        return {"watts": float(await port.request(b"?")), "reads": context.store["reads"]}

    @app.command("limit")
    async def limit(target: Target) -> dict[str, int]:
        return {"watts": target.watts}

    return app


def test_a_dry_run_publishes_below_a_prefix_of_its_own_and_retains_nothing(app):
    with Harness(app, dry_run=True) as harness:
        harness.run("30s")
        harness.broker.cut()
        harness.run("30s")

        assert {topic.split("/")[0] for topic in (message.topic for message in harness.broker.log)} == {"dry-run"}
        assert harness.states("power")[0] == {"watts": 412.5, "reads": 1}
        assert harness.broker.messages("dry-run/house/meter/registry")
        assert harness.broker.retained == {}
        assert not any(message.retain for message in harness.broker.log)


def test_a_dry_run_says_so_in_every_status_document_and_in_the_first_line_of_the_log(app, caplog):
    with Harness(app, dry_run=True) as harness:
        harness.run("1m")
        documents = [message.json for message in harness.broker.messages("dry-run/house/meter/status")]
        will = json.loads(harness.broker.connects[0][1].will_payload)

    assert all(document["dry_run"] for document in [*documents, will])
    assert caplog.messages[0].startswith("DRY RUN")
    assert "dry-run/house/meter" in caplog.messages[0]


def test_an_app_that_is_no_dry_run_does_not_say_so(app, caplog):
    with Harness(app, twins=True) as harness:
        harness.run("1m")
        assert "dry_run" not in harness.status()

    assert "DRY RUN" not in caplog.text


def test_a_dry_run_has_a_client_id_of_its_own_and_a_will_that_is_not_retained(app):
    with Harness(app, dry_run=True) as harness:
        harness.run("1s")
        (_, packet), *_ = harness.broker.connects
        harness.broker.cut()
        harness.broker.refuse_connect = 0x88  # so that the will is published
        harness.run("1m")
        (will,) = [each for each in harness.broker.messages(packet.will_topic) if each.json["state"] == "offline"]

    assert packet.client_id == "house/meter-dry-run"
    assert packet.will_topic == "dry-run/house/meter/status"
    assert not will.retain


def test_a_dry_run_does_not_hear_the_commands_of_the_real_app(app):
    with Harness(app, dry_run=True) as harness:
        harness.run("1s")
        harness.broker.send("house/meter/limit/set", {"watts": 1})
        harness.broker.send("dry-run/house/meter/limit/set", {"watts": 2})
        harness.run("1s")

        assert harness.states("limit") == [{"watts": 2}]


def test_a_dry_run_remembers_nothing_and_gives_no_sign_of_life(app, tmp_path, monkeypatch):
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    monkeypatch.setenv("LEADSMAN_HEALTH_FILE", str(tmp_path / "health.json"))
    app.rehearse()
    for _ in range(2):
        loop, broker = VirtualLoop(), MemoryBroker()
        loop.call_later(15.0, app.stop)
        loop.run_until_complete(app.serve(broker.connect))
        loop.close()
        assert [message.json["reads"] for message in broker.messages("dry-run/house/meter/power/state")] == [1, 2]

    assert list(tmp_path.iterdir()) == []


def test_what_is_a_dry_run_already_stays_one(app):
    with app.unloaded():
        app.rehearse()
        app.rehearse()
        assert app.topics.prefix == "dry-run/house/meter"
        assert app.client_id == "house/meter-dry-run"

    assert (app.dry_run, app.topics.prefix, app.client_id) == (False, "house/meter", "house/meter")


def test_without_twins_there_is_no_dry_run():
    app = App("meter", adapters=(SerialPort("/dev/a"),))

    with pytest.raises(InvalidValue, match="the app has no twins"):
        app.rehearse()
    assert not app.dry_run


def test_an_app_without_adapters_needs_no_twins_for_a_dry_run():
    app = App("meter")

    @app.telemetry("load", interval="10s")
    async def load() -> dict[str, float]:
        return {"load": 0.5}

    with Harness(app, dry_run=True) as harness:
        harness.run("11s")

        assert harness.broker.messages("dry-run/meter/load/state")
