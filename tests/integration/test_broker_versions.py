"""Which version of MQTT a broker speaks is found out without a warning, at each start."""

import pytest

from leadsman import App
from leadsman.testing import Harness, Scripted


@pytest.mark.parametrize(("old", "asked"), [("close", ["5.0", "5.0", "3.1.1"]), ("refuse", ["5.0", "3.1.1"])])
def test_an_old_broker_is_found_out_without_a_warning(caplog, old, asked):
    caplog.set_level("INFO")
    app = App("house")
    app.add_telemetry("a", Scripted({"t": 1}), interval=1)
    with Harness(app) as harness:
        harness.broker.only_v311 = old
        harness.run("10s")

    assert [packet.protocol for _, packet in harness.broker.connects] == asked
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == []
    assert caplog.text.count("; trying MQTT 3.1.1") == 1
    assert harness.broker.messages("house/a/state")[0].at < 2
