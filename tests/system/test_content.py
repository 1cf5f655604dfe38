"""Bytes with a content type, at a real broker, by both clients and both versions of MQTT."""

import hashlib
import json

import pytest

from leadsman.testing import Mosquitto
from leadsman_rigs.listener import Listener

CAMERA = """
from typing import Annotated
from leadsman import Content

@app.telemetry("camera", interval=0.2, field="image")
async def camera() -> Annotated[bytes, Content("image/jpeg")]:
    return bytes(range(256)) * 500
"""
PICTURE = bytes(range(256)) * 500


@pytest.fixture
def broker():
    with Mosquitto() as broker:
        yield broker


@pytest.mark.parametrize("protocol", ["5.0", "3.1.1"])
def test_bytes_arrive_as_they_are_with_their_type(broker, client, start_app, protocol):
    with Listener(broker.port) as listener:
        start_app(CAMERA, f"{broker.url}?protocol={protocol}")
        image = listener.wait_for("sys/camera/image", count=2)[-1]
        state = json.loads(listener.wait_for("sys/camera/state")[0].payload)

    assert image.payload == PICTURE
    assert getattr(image.properties, "ContentType", None) == ("image/jpeg" if protocol == "5.0" else None)
    assert state == {"content_type": "image/jpeg", "size": 128_000, "sha256": hashlib.sha256(PICTURE).hexdigest()}
    with Listener(broker.port) as late:
        kept = late.wait_for("sys/camera/image", where=lambda message: message.retain)[0]
    assert kept.payload == PICTURE
