"""Which version of MQTT a broker speaks: found out once, without a warning, and remembered over a restart."""

import json
import threading
from pathlib import Path

import pytest

from leadsman import App
from leadsman.errors import ConnackMissing
from leadsman.mqtt.connection_state import INQUIRY
from leadsman.testing import Harness, Scripted


def house():
    app = App("house")
    app.add_telemetry("a", Scripted({"t": 1}), interval=1)
    return app


def lived(state, duration="10s", old="close"):
    with Harness(house(), settings={"outbox.durability": "acked-or-durable"}, state_directory=state) as harness:
        harness.broker.only_v311 = old
        harness.run(duration)
    return harness


def versions(harness):
    return [packet.protocol for _, packet in harness.broker.connects]


@pytest.mark.parametrize(
    ("old", "duration", "asked"), [("close", INQUIRY + 10, ["5.0", "3.1.1", "5.0"]), ("refuse", 10, ["5.0", "3.1.1"])]
)
def test_an_old_broker_is_found_out_without_a_warning_and_remembered(tmp_path, caplog, old, duration, asked):
    caplog.set_level("INFO")
    first = lived(tmp_path, duration, old=old)
    again = lived(tmp_path, old=old)

    assert (versions(first), versions(again)) == (asked, ["3.1.1"])
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == []
    assert caplog.text.count("; trying MQTT 3.1.1") == 1
    assert again.broker.messages("house/a/state")[0].at < 1


def test_an_upgraded_broker_is_asked_beside_the_connection_which_it_gives_up_then(tmp_path):
    lived(tmp_path, INQUIRY + 10)
    upgraded = lived(tmp_path, INQUIRY + 10, old=None)
    after = lived(tmp_path, old=None)

    assert versions(upgraded) == ["3.1.1", "5.0", "5.0"]
    assert upgraded.broker.connects[1][1].client_id == "house-newer"
    assert versions(after) == ["5.0"]


def test_a_start_of_a_new_broker_is_not_remembered_by_a_run_that_ends_before_it_is_asked(tmp_path):
    lived(tmp_path)

    assert versions(lived(tmp_path, old=None)) == ["5.0"]


def test_a_broker_that_refuses_the_client_id_of_the_inquiry_is_asked_on_the_next_connection_again(tmp_path):
    with Harness(house(), settings={"outbox.durability": "acked-or-durable"}, state_directory=tmp_path) as harness:
        harness.broker.only_v311 = "close"
        harness.run("10s")
        harness.broker.only_v311, harness.broker.refuse_connect = None, 0x87
        harness.run(INQUIRY)
        assert not (tmp_path / "brokers.json").exists()
        harness.broker.refuse_connect = None
        harness.broker.cut()
        harness.run(INQUIRY + 10)

    assert versions(harness) == ["5.0", "3.1.1", "5.0", "3.1.1", "5.0", "5.0"]


def test_an_old_broker_that_hangs_up_on_the_version_of_the_last_run_is_asked_about_the_url(tmp_path, caplog):
    lived(tmp_path, INQUIRY + 10)
    error = ConnackMissing("closed; is the password wrong?")
    error.hint = "; is the password wrong?"
    with Harness(house(), settings={"outbox.durability": "acked-or-durable"}, state_directory=tmp_path) as harness:
        harness.broker.refuse_connect = error
        harness.run("5s")

    assert versions(harness)[0] == "3.1.1"
    assert "is the password wrong?" in caplog.text


def test_a_broker_that_is_still_old_is_asked_once(tmp_path):
    assert versions(lived(tmp_path, 10 * INQUIRY)) == ["5.0", "3.1.1", "5.0"]


@pytest.mark.parametrize("content", [b"", b"[]", b'{"mqtt://localhost:1883": 5}', b"\xff" * 100_000])
def test_a_file_of_versions_that_makes_no_sense_is_passed_over(tmp_path, content):
    (tmp_path / "brokers.json").write_bytes(content)

    assert versions(lived(tmp_path, old=None)) == ["5.0"]


def test_a_broker_of_mqtt_5_leaves_no_file(tmp_path):
    lived(tmp_path, old=None)

    assert not (tmp_path / "brokers.json").exists()


def test_a_write_that_takes_long_leaves_no_older_answer(tmp_path, monkeypatch):
    begun, go_on, replace = threading.Event(), threading.Event(), Path.replace
    written = []

    def slow(beside, path):
        if Path(path).name == "brokers.json":
            written.append(json.loads(beside.read_bytes()))
            if len(written) == 1:
                begun.set()
                go_on.wait(10)
        return replace(beside, path)

    monkeypatch.setattr(Path, "replace", slow)
    durable = {"outbox.durability": "acked-or-durable"}
    with Harness(house(), settings=durable, state_directory=tmp_path, patience=0.2) as harness:
        harness.broker.only_v311 = "refuse"
        harness.run("10s")
        assert begun.wait(10)
        for old in (None, "refuse", None):
            harness.broker.only_v311, harness.broker.only_v5 = old, old is None
            harness.broker.cut()
            harness.run("1m")
        go_on.set()

    assert versions(harness) == ["5.0", "3.1.1", "3.1.1", "5.0"] * 2
    assert len(written) == 2
    assert json.loads((tmp_path / "brokers.json").read_bytes()) == {}
