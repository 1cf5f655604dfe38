"""A subscriber by paho, which is not the client that leadsman uses in the same way."""

import contextlib
import time

import paho.mqtt.client as paho
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties


class Listener:
    """Subscribes to everything, and keeps what comes with the time it came."""

    def __init__(self, port, version=paho.MQTTv5, **options):
        self.port = port
        self.version = version
        self.messages = []
        self.client = paho.Client(
            paho.CallbackAPIVersion.VERSION2, protocol=version, client_id=f"listener-{id(self)}", **options
        )
        self.client.reconnect_delay_set(0.02, 0.05)
        self.client.on_connect = lambda client, *_: client.subscribe("#", 1)
        self.client.on_message = self.heard

    def heard(self, client, userdata, message):
        self.messages.append((time.monotonic(), message))

    def __enter__(self):
        options = {}
        if self.version == paho.MQTTv5:  # the broker keeps for it what comes while it is away
            options = {"clean_start": False, "properties": Properties(PacketTypes.CONNECT)}
            options["properties"].SessionExpiryInterval = 600
        self.client.connect("127.0.0.1", self.port, keepalive=60, **options)
        self.client.loop_start()
        return self

    def __exit__(self, *exc_info):
        self.client.disconnect()
        with contextlib.suppress(AttributeError):  # its thread ended between paho's look at it and the wait for it
            self.client.loop_stop()
        self.client.on_message = None  # no circle: paho closes its sockets with the client, and not with the garbage

    def on(self, topic):
        return [message for _, message in list(self.messages) if message.topic == topic]

    def times(self, topic):
        return [at for at, message in list(self.messages) if message.topic == topic]

    def wait_for(self, topic, count=1, timeout=60.0, where=lambda message: True):
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            found = [message for message in self.on(topic) if where(message)]
            if len(found) >= count:
                return found
            time.sleep(0.01)
        pytest.fail(
            f"{len(self.on(topic))} messages on {topic} within {timeout} s; heard {[m.topic for _, m in self.messages]}"
        )
