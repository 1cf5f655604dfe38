"""Messages of other programs, from a real broker, with both clients."""

import json
import time

import pytest

APP = """
@app.subscribe("zigbee2mqtt/+/battery")
async def battery(level: int, message: Received):
    heard.append({"topic": message.topic, "level": level, "retain": message.retain})

@app.subscribe("slow")
def slow():
    import time
    time.sleep(5)

@app.telemetry("heard", interval=0.1, publish=OnChange())
async def read():
    return {"heard": list(heard)}

heard = []
"""

pytestmark = pytest.mark.usefixtures("client")


def heard(message):
    return json.loads(message.payload)["heard"]


def publish(listener, topic, payload, **options):
    listener.client.publish(topic, payload, 1, **options).wait_for_publish(10)


def test_messages_of_others_arrive_with_their_flag_and_a_slow_handler_stops_none(mosquitto, listen, start_app):
    listener = listen(mosquitto.port)
    publish(listener, "zigbee2mqtt/door/battery", b"77", retain=True)
    app = start_app(APP, mosquitto.url)

    listener.wait_for("sys/heard/state", where=lambda message: len(heard(message)) == 1)
    publish(listener, "slow", b"")
    publish(listener, "zigbee2mqtt/hall/battery", b"many")
    began = time.monotonic()
    publish(listener, "zigbee2mqtt/hall/battery", b"5")
    found = listener.wait_for("sys/heard/state", where=lambda message: len(heard(message)) == 2)

    assert heard(found[-1]) == [
        {"topic": "zigbee2mqtt/door/battery", "level": 77, "retain": True},
        {"topic": "zigbee2mqtt/hall/battery", "level": 5, "retain": False},
    ]
    assert time.monotonic() - began < 5  # the slow handler still sleeps
    app.wait_for("message at zigbee2mqtt/hall/battery: refused: Input should be a valid integer")


def test_the_subscriptions_are_there_again_after_the_broker_has_died(mosquitto, listen, start_app):
    listener = listen(mosquitto.port)
    app = start_app(APP, mosquitto.url)
    listener.wait_for("sys/heard/state")

    mosquitto.kill()
    mosquitto.start()
    again = listen(mosquitto.port)
    deadline = time.monotonic() + 60
    while not any(heard(message) for message in again.on("sys/heard/state")):  # until the app has subscribed
        assert time.monotonic() < deadline, app.log
        publish(again, "zigbee2mqtt/hall/battery", b"5")
        time.sleep(0.2)
