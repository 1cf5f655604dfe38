import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from leadsman.testing.embedded import embedded_broker

HEADER = """\
import asyncio, os, sys, threading, time
from leadsman import *
app = App("sys", mqtt=os.environ["URL"])
"""


def pytest_collection_modifyitems(items):
    for item in items:
        if "system" in Path(item.fspath).parts:
            item.add_marker(pytest.mark.system)


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
        self.client.loop_stop()

    def on(self, topic):
        return [message for _, message in list(self.messages) if message.topic == topic]

    def times(self, topic):
        return [at for at, message in list(self.messages) if message.topic == topic]

    def wait_for(self, topic, count=1, timeout=10.0, where=lambda message: True):
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            found = [message for message in self.on(topic) if where(message)]
            if len(found) >= count:
                return found
            time.sleep(0.01)
        pytest.fail(
            f"{len(self.on(topic))} messages on {topic} within {timeout} s; heard {[m.topic for _, m in self.messages]}"
        )


class AppProcess:
    """An app in a process of its own."""

    def __init__(self, code, url, log):
        self.log_path = log
        environment = {**os.environ, "URL": url, "PYTHONWARNINGS": "error"}
        with log.open("wb") as stream:
            self.process = subprocess.Popen(
                [sys.executable, "-c", HEADER + code + "\napp.run()\n"], env=environment, stdout=stream, stderr=stream
            )

    @property
    def log(self):
        return self.log_path.read_text()

    def end(self, number=signal.SIGTERM, timeout=15.0):
        """Signal it; its exit code and how long it took, in seconds."""
        before = time.monotonic()
        self.process.send_signal(number)
        code = self.process.wait(timeout)
        return code, time.monotonic() - before


def listening():
    opened = []

    def start(port, **options):
        listener = Listener(port, **options).__enter__()
        opened.append(listener)
        return listener

    yield start
    for listener in opened:
        listener.__exit__()


@pytest.fixture
def listen():
    yield from listening()


@pytest.fixture(scope="module")
def listen_all_along():
    yield from listening()


def starting(directory):
    started = []

    def start(code, url):
        started.append(AppProcess(code, url, directory / f"app{len(started)}.log"))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait()
        assert "Traceback" not in each.log, each.log


@pytest.fixture
def start_app(tmp_path):
    yield from starting(tmp_path)


@pytest.fixture(scope="module")
def start_app_for_all(tmp_path_factory):
    yield from starting(tmp_path_factory.mktemp("apps"))


@pytest.fixture
def old_broker():
    with embedded_broker() as port:
        yield port


@pytest.fixture
def old_broker_that_allows():
    def start(*topics):
        allowed = {"anonymous": list(topics)}
        plugin = "amqtt.plugins.topic_checking.TopicAccessControlListPlugin"
        return embedded_broker({plugin: {"acl": allowed}})

    return start
