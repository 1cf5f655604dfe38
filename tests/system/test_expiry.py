"""A retained reading that expires, at a real broker: it stays while its device is well, and vanishes when it fails."""

import time

import pytest

from leadsman.testing import Mosquitto
from leadsman_rigs.listener import Listener

STEADY = """
from pathlib import Path

@app.telemetry("steady", interval=0.25, publish=OnChange(), delivery=Delivery(expiry=2), layout="both")
async def steady():
    if Path(os.environ["AWAY"]).exists():
        raise OSError("away")
    return {"t": 1}
"""


@pytest.fixture
def broker():
    with Mosquitto() as broker:
        yield broker


def kept(port):
    """The values that the broker gives to a client that comes now."""
    with Listener(port) as late:
        late.wait_for("sys/status")
        time.sleep(0.2)
        return {message.topic for _, message in late.messages if message.topic in ("sys/steady/state", "sys/steady/t")}


def test_the_value_of_a_device_stays_until_the_device_fails(broker, client, start_app, monkeypatch, tmp_path):
    away = tmp_path / "away"
    monkeypatch.setenv("AWAY", str(away))
    with Listener(broker.port) as listener:
        start_app(STEADY, broker.url)
        messages = listener.wait_for("sys/steady/state", count=6)
        taken = {dict(each.properties.UserProperty)["taken_at"] for each in messages}
        assert len(taken) == 6
        assert kept(broker.port) == {"sys/steady/state", "sys/steady/t"}

        away.touch()
        listener.wait_for("sys/steady/error")
        time.sleep(3.5)  # mosquitto looks for what has expired each second
    assert kept(broker.port) == set()
