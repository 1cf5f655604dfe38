"""Which version of MQTT a broker speaks: found out once, without a warning, and remembered over a restart."""

import pytest

from leadsman import App
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


@pytest.mark.parametrize("old", ["close", "refuse"])
def test_an_old_broker_is_found_out_without_a_warning_and_remembered(tmp_path, caplog, old):
    caplog.set_level("INFO")
    first = lived(tmp_path, old=old)
    again = lived(tmp_path, old=old)

    assert (versions(first), versions(again)) == (["5.0", "3.1.1"], ["3.1.1"])
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == []
    assert caplog.text.count("; trying MQTT 3.1.1") == 1
    assert again.broker.messages("house/a/state")[0].at < 1


def test_an_upgraded_broker_is_asked_beside_the_connection_which_it_gives_up_then(tmp_path):
    lived(tmp_path)
    upgraded = lived(tmp_path, INQUIRY + 10, old=None)
    after = lived(tmp_path, old=None)

    assert versions(upgraded) == ["3.1.1", "5.0", "5.0"]
    assert upgraded.broker.connects[1][1].client_id == "house-newer"
    assert versions(after) == ["5.0"]


def test_a_broker_that_is_still_old_is_asked_once(tmp_path):
    assert versions(lived(tmp_path, 10 * INQUIRY)) == ["5.0", "3.1.1", "5.0"]


@pytest.mark.parametrize("content", [b"", b"[]", b'{"mqtt://localhost:1883": 5}', b"\xff" * 100_000])
def test_a_file_of_versions_that_makes_no_sense_is_passed_over(tmp_path, content):
    (tmp_path / "brokers.json").write_bytes(content)

    assert versions(lived(tmp_path, old=None)) == ["5.0"]


def test_a_broker_of_mqtt_5_leaves_no_file(tmp_path):
    lived(tmp_path, old=None)

    assert not (tmp_path / "brokers.json").exists()
