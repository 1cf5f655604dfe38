"""Devices that an app finds while it runs, at a real broker: found over MQTT, forgotten, and known after a restart."""

import json

APP = """
app = App("sys", mqtt=os.environ["URL"], keep_state=True, discovery="homeassistant")
heard = Buffer(100)

@app.subscribe("radio/#")
async def radio(text: str, message: Received):
    heard.put((message.topic.removeprefix("radio/"), text))

@app.source("gateway", finds=Finds(most=3), silence=None)
async def gateway(context: Context):
    async for name, text in heard:
        device = context.device(name)
        device.forget() if text == "forget" else device.publish({"text": text})
        yield
"""
CONFIG = "homeassistant/device/sys/{}/config"


def devices(message):
    return set(json.loads(message.payload).get("devices", {})) if message.payload else None


def send(listener, topic, text):
    listener.client.publish(f"radio/{topic}", text, 1).wait_for_publish(10)


def test_a_device_is_found_and_forgotten_at_a_real_broker_and_known_after_a_restart(mosquitto, listen, start_app):
    listener = listen(mosquitto.port)
    app = start_app(APP, mosquitto.url)
    listener.wait_for("sys/registry", where=lambda message: devices(message) == {"gateway"})

    for name in ("attic", "a/b", "cellar", "one too many"):
        send(listener, name, "1")
    listener.wait_for("sys/a%2Fb/state", where=lambda message: json.loads(message.payload) == {"text": "1"})
    listener.wait_for(CONFIG.format("attic"))
    send(listener, "cellar", "forget")
    listener.wait_for("sys/cellar/state", where=lambda message: message.payload == b"")
    listener.wait_for("sys/registry", where=lambda message: devices(message) == {"gateway", "attic", "a%2Fb"})
    app.wait_for("gateway: refused the device 'one too many'", "cellar: forgotten")
    app.end()
    app.start()
    again = listen(mosquitto.port)
    again.wait_for("sys/status", where=lambda message: devices(message) == {"gateway", "attic", "a%2Fb"})
    again.wait_for("sys/registry", count=2)

    third = listen(mosquitto.port)
    third.wait_for(CONFIG.format("attic"))
    third.wait_for("sys/attic/state")
    assert [message.topic for _, message in third.messages if "cellar" in message.topic] == []
