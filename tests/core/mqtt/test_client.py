"""Which client a connection gets."""

import asyncio
import subprocess
import sys

import pytest

from leadsman import Broker
from leadsman.core.mqtt import aiomqtt_client, client, codec_client
from leadsman.core.mqtt.broker import PORTS
from leadsman.core.mqtt.connection import ConnAck, Connect
from leadsman.errors import ConnackMissing, ConnectionRefused, NotListening

PACKET = Connect("me", "5.0", "house/status", b"{}")


@pytest.mark.parametrize("scheme", ["mqtt", "mqtts", "mqtt+unix"])
def test_mqtt_5_goes_through_the_codec(scheme):
    assert client.choose(Broker(scheme=scheme), "5.0") is codec_client


@pytest.mark.parametrize(
    ("scheme", "protocol"), [("mqtt", "3.1.1"), ("ws", "5.0"), ("wss", "5.0"), ("mqtt+unix", "3.1.1")]
)
def test_the_old_version_and_websockets_go_through_aiomqtt(scheme, protocol):
    assert client.choose(Broker(scheme=scheme), protocol) is aiomqtt_client


@pytest.mark.parametrize("scheme", PORTS)
@pytest.mark.parametrize("protocol", ["5.0", "3.1.1"])
def test_a_broker_that_names_aiomqtt_gets_it_whatever_it_speaks(scheme, protocol):
    assert client.choose(Broker(scheme=scheme, client="aiomqtt"), protocol) is aiomqtt_client


@pytest.fixture
def without_codec(monkeypatch):
    monkeypatch.setitem(sys.modules, "mqtt5", None)
    for name in ("leadsman.core.mqtt.codec", "leadsman.core.mqtt.codec_client"):
        monkeypatch.delitem(sys.modules, name)


def test_without_a_codec_all_goes_through_aiomqtt(without_codec):
    assert client.choose(Broker(), "5.0") is aiomqtt_client


def test_a_fault_in_our_own_imports_is_not_taken_for_a_missing_codec(without_codec, monkeypatch):
    monkeypatch.setitem(sys.modules, "leadsman.core.mqtt.connection_state", None)
    monkeypatch.delitem(sys.modules, "mqtt5")

    with pytest.raises(ImportError, match="connection_state"):
        client.choose(Broker(), "5.0")


def test_with_the_codec_aiomqtt_is_not_imported():
    code = (
        "import sys; from leadsman.core.mqtt import client; from leadsman.core.mqtt.broker import Broker;"
        "client.choose(Broker(), '5.0'); print('mqtt5' in sys.modules, 'aiomqtt' in sys.modules, 'paho' in sys.modules)"
    )

    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == ["True", "False", "False"]


IMPORTED_TWICE = """
import asyncio, importlib.abc, sys, threading, time
from leadsman.core.mqtt import client
from leadsman.core.mqtt.broker import Broker
from leadsman.core.mqtt.connection import Connect

class Slow(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "leadsman.core.mqtt.codec":
            begun.set()
            time.sleep(0.5)

begun = threading.Event()
sys.meta_path.insert(0, Slow())
threading.Thread(target=client.choose, args=(Broker(), "5.0")).start()
begun.wait()
try:
    asyncio.run(client.connect(Broker(host="127.0.0.1", port=1), None, Connect("me", "5.0", None, b""), None))
except Exception as error:
    print(type(error).__name__)
"""


@pytest.mark.parametrize("protocol", ["5.0", "3.1.1"])
@pytest.mark.parametrize("scheme", ["mqtts", "wss"])
def test_certificates_are_read_only_where_something_listens(protocol, scheme):
    broker = Broker.from_url(f"{scheme}://127.0.0.1:1?ca=/nowhere/ca.pem")

    with pytest.raises(NotListening):
        asyncio.run(client.connect(broker, None, Connect("me", protocol, None, b""), None))


def test_a_client_that_another_thread_is_importing_is_waited_for():
    done = subprocess.run([sys.executable, "-c", IMPORTED_TWICE], capture_output=True, text=True, check=False)

    assert (done.stdout.strip(), done.stderr) == ("NotListening", "")


class Refusing:
    """A client whose broker refuses wills with the given codes, one after the other."""

    connack = ConnAck()

    def __init__(self, *codes, reason_string=None):
        self.codes, self.reason_string, self.packets = list(codes), reason_string, []

    async def connect(self, broker, clock, packet, listener):
        self.packets.append(packet)
        if self.codes:
            raise ConnectionRefused(self.codes.pop(0), "no", reason_string=self.reason_string)
        return self


def connect(monkeypatch, refusing, packet=PACKET):
    monkeypatch.setitem(sys.modules, "leadsman.core.mqtt.codec_client", refusing)
    return asyncio.run(client.connect(Broker(), None, packet, None))


def test_a_will_is_offered_again_without_what_the_broker_does_not_support(monkeypatch):
    refusing = Refusing(0x9A, 0x9B)

    assert connect(monkeypatch, refusing) is refusing
    assert [(packet.will_retained, packet.will_qos) for packet in refusing.packets] == [
        (True, 1),
        (False, 1),
        (False, 0),
    ]


@pytest.mark.parametrize("codes", [(0x87,), (0x9A, 0x9A), (0x9B, 0x9B)])
def test_another_refusal_or_the_same_again_is_raised(monkeypatch, codes):
    with pytest.raises(ConnectionRefused) as caught:
        connect(monkeypatch, Refusing(*codes))

    assert caught.value.code == codes[-1]


@pytest.mark.parametrize(
    ("code", "reason_string"),
    [
        (0x90, None),
        (0x90, "Publishing to this will topic is forbidden by service policy"),
        (0x87, "Last-Will topic denied"),
        (0x87, "will-topic not allowed"),
        (0x87, "Not authorized: Will."),
    ],
)
def test_a_client_whose_will_is_refused_connects_without_it(monkeypatch, code, reason_string):
    refusing = Refusing(code, reason_string=reason_string)

    assert connect(monkeypatch, refusing).connack.will_refused == "no"
    assert [packet.will_topic for packet in refusing.packets] == ["house/status", None]


@pytest.mark.parametrize(
    ("code", "reason_string"),
    [
        (0x87, None),
        (0x87, "you will be banned"),
        (0x87, "You will not be let in, at WILLOW"),
        (0x88, "Server will restart soon"),
        (0x89, "the will of many clients"),
    ],
)
def test_a_refusal_that_only_speaks_of_the_future_is_none_of_the_will(monkeypatch, code, reason_string):
    refusing = Refusing(code, reason_string=reason_string)

    with pytest.raises(ConnectionRefused):
        connect(monkeypatch, refusing)
    assert len(refusing.packets) == 1


class Closing:
    """A client whose broker of MQTT 3.1.1 closes the connection on wills that it does not take, and at first on all."""

    def __init__(self, *taken, away=0):
        self.taken, self.away, self.accepted, self.closed, self.aborted = taken, away, [], 0, False

    async def connect(self, broker, clock, packet, listener):
        self.away -= 1
        if self.away >= 0 or (packet.will_qos, packet.will_retained) not in self.taken:
            raise ConnackMissing("the connection was lost")
        made = Accepted(self)
        self.accepted.append((packet.client_id, packet.will_qos, packet.will_retained))
        return made


class Accepted:
    def __init__(self, client):
        self.client, self.connack = client, ConnAck()

    async def close(self):
        self.client.closed += 1

    def abort(self):
        self.client.aborted = True


ALL = ((1, True), (1, False), (0, True), (0, False))


@pytest.mark.parametrize(
    ("closing", "used", "most", "keeps"),
    [
        (Closing((0, False)), (0, False), 0, False),
        (Closing((1, False), (0, False)), (1, False), 2, False),
        (Closing((0, True), (0, False)), (0, True), 0, True),
        (Closing(*ALL, away=1), (1, True), 2, True),
        (Closing(*ALL), (1, True), 2, True),
    ],
    ids=["least", "keeps nothing", "QoS 0", "was away", "takes all"],
)
def test_a_broker_of_3_1_1_that_closes_the_connection_on_a_will_gets_what_it_takes(
    monkeypatch, closing, used, most, keeps
):
    monkeypatch.setitem(sys.modules, "leadsman.core.mqtt.aiomqtt_client", closing)
    monkeypatch.setattr(client, "_imported", {"leadsman.core.mqtt.aiomqtt_client"})
    connection = asyncio.run(client.connect(Broker(), None, PACKET._replace(protocol="3.1.1"), None))

    assert (connection.connack.maximum_qos, connection.connack.retain_available) == (most, keeps)
    assert closing.accepted[-1] == ("me", *used) or closing.accepted == [("me", *used)]
    assert closing.closed == len(closing.accepted) - 1, "no other connection is left"


def test_a_broker_of_3_1_1_that_is_away_is_asked_twice_in_an_attempt_and_no_more(monkeypatch):
    closing = Closing(*ALL, away=2)
    monkeypatch.setitem(sys.modules, "leadsman.core.mqtt.aiomqtt_client", closing)
    monkeypatch.setattr(client, "_imported", {"leadsman.core.mqtt.aiomqtt_client"})
    with pytest.raises(ConnackMissing):
        asyncio.run(client.connect(Broker(), None, PACKET._replace(protocol="3.1.1"), None))

    assert closing.away == 0


def test_an_app_that_stops_while_it_finds_what_such_a_broker_takes_leaves_no_connection(monkeypatch):
    class Hanging(Closing):
        async def connect(self, broker, clock, packet, listener):
            if packet.client_id != "me":
                await asyncio.Event().wait()
            return await super().connect(broker, clock, packet, listener)

    async def stop():
        async with asyncio.timeout(0.01):
            await client.connect(Broker(), None, PACKET._replace(protocol="3.1.1"), None)

    hanging = Hanging((0, False))
    monkeypatch.setitem(sys.modules, "leadsman.core.mqtt.aiomqtt_client", hanging)
    monkeypatch.setattr(client, "_imported", {"leadsman.core.mqtt.aiomqtt_client"})
    with pytest.raises(TimeoutError):
        asyncio.run(stop())

    assert hanging.aborted
