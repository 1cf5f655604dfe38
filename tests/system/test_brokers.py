"""What leadsman does and says at each broker: one app, and one test for each promise. `scripts/which_broker.py` makes
the table in docs/how-to/which-broker.md of a run; what a broker cannot do is in `leadsman_rigs.brokers`."""

import json
import re
import time

import paho.mqtt.client as paho
import pytest

from leadsman.core.mqtt.topics import Topics
from leadsman.tools.cli.main import main
from leadsman_rigs.brokers import BROKERS, DENIED, LIMIT, PASSWORD
from leadsman_rigs.listener import Listener
from leadsman_rigs.processes import app_process

SOMETHING_FAILS = 4
"""The exit code of the doctor."""
APP = """
import itertools
from pydantic import BaseModel

class Counted(BaseModel):
    n: int
    ballast: str = ""

def device(large):
    numbers = itertools.count(1)
    async def read() -> Counted:
        n = next(numbers)
        return Counted(n=n, ballast="x" * (LARGE if large and n % 5 == 0 else 0))
    return read

app = App("sys", mqtt=os.environ["URL"], discovery="homeassistant", heartbeat="2s")
"""
DEVICES = """
app.add_telemetry("good", device(False), interval=0.2)
app.add_telemetry("large", device(True), interval=0.4)
app.add_telemetry("denied", device(False), interval=0.4)
"""
QUIET = """
os.environ["MQTT__TOPIC_PREFIX"] = "quiet"
app.add_telemetry("good", device(False), interval=2)
"""
"""Nothing of it is refused, and a busy machine lets it miss no poll."""
TOPICS = Topics("sys")


class Place:
    """A broker with the app, and a subscriber."""

    def __init__(self, broker, directory):
        self.broker = broker
        code = (APP + DEVICES).replace("LARGE", str(LIMIT + 5000 if broker.limits else 10))
        clean = {"clean_session": True} if broker.protocol == paho.MQTTv311 else {}
        self.listener = Listener(broker.port, broker.protocol, **clean)
        if broker.user is not None:
            self.listener.client.username_pw_set(broker.user, PASSWORD)
        self.listener.__enter__()
        self.app = app_process(code, broker.url(), directory / f"{broker.name}.log")

    def numbers(self, device="good"):
        return [json.loads(each.payload)["n"] for each in self.listener.on(TOPICS.state(device))]

    def connects(self):
        """How often the app has connected, as it says."""
        return json.loads(self.listener.on(TOPICS.status)[-1].payload)["mqtt"]["connects"]

    def run(self, capsys, *arguments, password=PASSWORD):
        """Type a command about the app. Its exit code, and what it prints."""
        capsys.readouterr()
        code = main([*arguments, "--mqtt", self.broker.url(password)])
        printed = capsys.readouterr()
        return code, " ".join((printed.out + printed.err).split())

    def kept(self, *topics):
        """What the broker keeps at exact topics."""
        found = {}
        client = paho.Client(
            paho.CallbackAPIVersion.VERSION2, protocol=self.broker.protocol, client_id=f"look-{time.time()}"
        )
        if self.broker.user is not None:
            client.username_pw_set(self.broker.user, PASSWORD)
        answered = []
        client.on_message = lambda client, userdata, message: found.setdefault(message.topic, message.payload)
        client.on_subscribe = lambda *_: answered.append(True)
        client.on_connect = lambda client, *_: client.subscribe([(each, 1) for each in topics])
        client.connect("127.0.0.1", self.broker.port)
        client.loop_start()
        try:
            passes(lambda: answered)
            passes(lambda: found.keys() >= set(topics), 3.0)
        finally:
            client.disconnect()
            client.loop_stop()
        return found


def passes(condition, seconds=60.0):
    """Wait until something is true; whether it is."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.05)
    return True


@pytest.fixture(scope="module", params=BROKERS, ids=lambda broker: broker.name)
def place(request, tmp_path_factory):
    if (why := request.param.missing()) is not None:
        pytest.skip(why)
    with request.param() as broker:
        found = Place(broker, tmp_path_factory.mktemp("app"))
        try:
            found.listener.wait_for(TOPICS.state("good"), 10)
            yield found
        finally:
            found.listener.__exit__()
            found.app.kill()


def test_connect(place, tmp_path):
    topic = "quiet/good/state"
    heard = len(place.listener.on(topic))
    app = app_process(APP + QUIET, place.broker.url(), tmp_path / "quiet.log")
    try:
        place.listener.wait_for(topic, heard + 2)
        app.end()
    finally:
        app.kill()

    assert "connected to the broker with MQTT" in app.log
    assert "is this a TLS port" not in app.log
    assert re.findall(r"^\S+ \S+ (?!INFO ).*", app.log, re.MULTILINE) == []


def test_order(place):
    numbers = place.numbers()
    once = list(dict.fromkeys(numbers))

    assert once == list(range(once[0], once[0] + len(once)))


def test_discovery(place):
    topic = "homeassistant/device/sys/good/config"
    assert passes(lambda: topic in place.kept(topic))


def test_refusal(place, capsys):
    if not place.broker.denies:
        pytest.skip(place.broker.cannot["refusal"])

    def told():
        log = [line for line in place.app.log.splitlines() if DENIED in line and ("refuse" in line or "drop" in line)]
        code, doctor = place.run(capsys, "doctor", "--prefix", "sys")
        return DENIED in doctor and (log or (code == SOMETHING_FAILS and f"nothing arrives at {DENIED}" in doctor))

    assert passes(told, 60), (place.app.log[-3000:], place.run(capsys, "doctor", "--prefix", "sys"))
    assert DENIED not in place.kept(DENIED)


def test_size(place):
    if not place.broker.limits:
        pytest.skip(place.broker.cannot["size"])

    def steady():
        """Whether the connection outlives two more readings that are too large."""
        before, seen = place.connects(), len(place.numbers("large"))
        passes(lambda: len(place.numbers("large")) >= seen + 8, 20)
        return place.connects() == before and len(place.numbers("large")) >= seen + 8

    assert passes(steady, 90), place.app.log[-3000:]
    assert not any(each % 5 == 0 for each in place.numbers("large"))
    # one line has the drops of all topics: where another topic is refused for good, that may be the one it names
    assert "closes the connection on a message of" in place.app.log or "refused it for good" in place.app.log


def test_doctor(place, capsys):
    _, printed = place.run(capsys, "doctor", "--prefix", "sys")

    assert "address mqtt://127.0.0.1" in printed
    assert ("not at one with a wildcard" in printed) == (place.broker.name == "RabbitMQ")
    assert "mosquitto.conf" not in printed or place.broker.name == "mosquitto"
    assert "the will of the app" not in printed


def test_why(place, capsys):
    code, printed = place.run(capsys, "why", "good", "--prefix", "sys")

    assert code == 0, printed
    assert "good" in printed


def test_password(place, capsys):
    if place.broker.wrong_password is None:
        pytest.skip(place.broker.cannot["password"])
    code, printed = place.run(capsys, "doctor", "--prefix", "sys", password="wrong")

    assert code == SOMETHING_FAILS
    assert place.broker.wrong_password in printed
    assert ("TLS port" in printed) == ("sent no CONNACK" in place.broker.wrong_password)
    assert "version of MQTT" not in printed


def test_restart(place):
    place.broker.restart()
    heard = len(place.numbers())

    assert passes(lambda: len(place.numbers()) >= heard + 10), place.app.log
    assert passes(
        lambda: {TOPICS.registry, TOPICS.state("good")} <= place.kept(TOPICS.registry, TOPICS.state("good")).keys()
    )


def test_will(place):
    place.app.kill()

    def said():
        return json.loads(place.listener.on(TOPICS.status)[-1].payload)["state"] == "offline"

    assert passes(said), place.listener.on(TOPICS.status)[-1].payload


def test_clean(place, capsys):
    place.app.kill()
    place.broker.allow()
    place.app.start()
    heard = len(place.numbers())
    assert passes(lambda: len(place.numbers()) >= heard + 10), place.app.log
    place.app.end()
    found = []

    def cleaned():
        """Where the connection broke on a large message as the app ended, its will comes after ten seconds. With amqtt
        on a busy machine it took more than a minute."""
        found.append(place.run(capsys, "clean", "--prefix", "sys", "--all"))
        return found[-1][0] == 0

    assert passes(cleaned, 180.0), (found[-1], place.app.log[-3000:], place.listener.on(TOPICS.status)[-3:])
    printed = found[-1][1]
    assert "of 3 devices removed" in printed
    left = place.kept(TOPICS.registry, TOPICS.status, TOPICS.state("good"), "homeassistant/device/sys/good/config")
    assert {topic: payload for topic, payload in left.items() if payload} == {}
