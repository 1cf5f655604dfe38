"""Which readings a subscriber gets after an outage, and with which retain flags, from a real broker."""

import json
import signal
import time

import pytest
from paho.mqtt.subscribeoptions import SubscribeOptions

from leadsman.testing import Mosquitto
from leadsman.testing.mosquitto import free_port
from leadsman_rigs.listener import Listener

STATE, HISTORY = "sys/counter/state", "sys/counter/history"
COUNTER = """
n = 0
@app.telemetry("counter", interval=0.05, delivery=Delivery({delivery}))
async def counter():
    global n
    if os.environ.get("SILENT"):
        return None
    n += 1
    print("reading", n, flush=True)
    return {{"n": n}}
"""


class Subscriber(Listener):
    """Sees the retain flag with which a message was published (MQTT 5 §3.8.3.1, Retain As Published)."""

    def __init__(self, port):
        super().__init__(port)
        self.is_subscribed = False
        options = SubscribeOptions(qos=1, retainAsPublished=True)
        self.client.on_connect = lambda client, *_: client.subscribe("#", options=options)
        self.client.on_subscribe = self.subscribed

    def subscribed(self, *_):
        self.is_subscribed = True

    def numbers(self, topic=STATE):
        return [number for number, _ in self.flags(topic)]

    def flags(self, topic=STATE):
        return [(json.loads(message.payload)["n"], message.retain) for message in self.on(topic)]


@pytest.fixture
def subscribe():
    opened = []

    def start(port):
        opened.append(Subscriber(port).__enter__())
        until(lambda: opened[-1].is_subscribed)
        return opened[-1]

    yield start
    for each in opened:
        each.__exit__()


class Outage:
    """An app without a broker, which comes when `readings` wait."""

    def __init__(self, start_app, subscribe):
        self.port = free_port()
        self.start_app, self.subscribe = start_app, subscribe
        self.mosquitto = Mosquitto(port=self.port)

    def begin(self, delivery, readings=30, state=None):
        self.app = self.start_app(COUNTER.format(delivery=delivery), f"mqtt://127.0.0.1:{self.port}", state=state)
        until(lambda: taken(self.app) >= readings)

    def end(self):
        """Start the broker, with a subscriber that is there before the app. How many readings wait at least."""
        self.app.process.send_signal(signal.SIGSTOP)
        waiting = taken(self.app) - 1
        self.mosquitto.start()
        subscriber = self.subscribe(self.port)
        self.app.process.send_signal(signal.SIGCONT)
        return waiting, subscriber


@pytest.fixture
def outage(start_app, subscribe):
    outage = Outage(start_app, subscribe)
    yield outage
    outage.mosquitto.stop()


def taken(app):
    """How many readings the app has taken."""
    return app.log.count("reading ")


def until(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


@pytest.fixture(params=["memory", "acked-or-durable"])
def durability(request, monkeypatch):
    monkeypatch.setenv("OUTBOX__DURABILITY", request.param)
    return request.param


def test_all_readings_arrive_in_order_and_only_the_newest_is_sent_retained(outage, durability):
    outage.begin('keep="all"')
    waiting, subscriber = outage.end()
    until(lambda: len(subscriber.numbers()) >= waiting + 10)
    late = outage.subscribe(outage.port)
    until(lambda: len(late.numbers()) >= 2)

    assert subscriber.numbers() == list(range(1, len(subscriber.numbers()) + 1))
    assert not any(retained for number, retained in subscriber.flags() if number < waiting)
    until(lambda: subscriber.flags()[-1][1])
    assert late.numbers()[0] >= waiting
    assert late.flags()[0][1]


def test_one_message_arrives_of_the_readings_that_waited_where_the_newest_counts(outage, durability):
    outage.begin('keep="newest"')
    waiting, subscriber = outage.end()
    until(lambda: len(subscriber.numbers()) >= 10)
    late = outage.subscribe(outage.port)
    until(lambda: len(late.numbers()) >= 1)

    numbers = subscriber.numbers()
    assert numbers[0] >= waiting
    assert numbers == sorted(set(numbers))
    assert all(retained for _, retained in subscriber.flags())
    assert late.flags()[0][1]


def test_the_newest_reading_survives_the_app_and_arrives_alone_and_retained(outage, start_app, monkeypatch, tmp_path):
    outage.begin('keep="newest"', state=tmp_path)
    outage.app.process.send_signal(signal.SIGKILL)
    outage.app.process.wait()
    last = taken(outage.app)
    monkeypatch.setenv("SILENT", "1")
    outage.mosquitto.start()
    subscriber = outage.subscribe(outage.port)
    url = f"mqtt://127.0.0.1:{outage.port}"
    next_life = start_app(COUNTER.format(delivery='keep="newest"'), url, state=tmp_path)
    until(lambda: subscriber.numbers())
    next_life.process.terminate()
    assert next_life.process.wait(10) == 0

    ((number, retained),) = subscriber.flags()
    assert last - 20 <= number <= last
    assert retained
    assert dict(subscriber.on(STATE)[0].properties.UserProperty)["replayed"] == "1"
    assert outage.subscribe(outage.port).wait_for(STATE)[0].payload == subscriber.on(STATE)[0].payload


def test_the_history_has_all_readings_and_the_state_the_newest(outage, durability):
    outage.begin('history="1h"')
    waiting, subscriber = outage.end()
    until(lambda: len(subscriber.numbers(HISTORY)) >= waiting + 10)
    outage.app.process.terminate()
    assert outage.app.process.wait(10) == 0
    late = outage.subscribe(outage.port)
    until(lambda: late.numbers())

    numbers = subscriber.numbers(HISTORY)
    assert numbers == list(range(1, len(numbers) + 1))
    assert not any(retained for _, retained in subscriber.flags(HISTORY))
    assert subscriber.numbers()[0] >= waiting
    expiries = [message.properties.MessageExpiryInterval for message in subscriber.on(HISTORY)]
    assert all(3500 <= expiry <= 3600 for expiry in expiries)
    assert late.numbers() == [numbers[-1]]
    assert late.numbers(HISTORY) == []


def test_readings_that_expired_are_missing_in_the_history_and_the_newest_is_the_state(outage, durability):
    outage.begin('history="1s"', readings=60)
    waiting, subscriber = outage.end()
    until(lambda: len(subscriber.numbers(HISTORY)) >= 10)

    numbers = subscriber.numbers(HISTORY)
    assert numbers[0] > 10
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert subscriber.numbers()[0] >= waiting
