"""A connection with the codec over a transport in memory: what it writes, when, and what it makes of what it reads."""

import asyncio
import gc
import ssl
from itertools import pairwise

import mqtt5
import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from leadsman import Broker
from leadsman.core.loop.clock import system_clock
from leadsman.core.mqtt import codec_client
from leadsman.core.mqtt.codec_client import CodecConnection
from leadsman.core.mqtt.connection import Connect
from leadsman.core.mqtt.connection_state import ADMINISTRATIVE
from leadsman.core.mqtt.message import Message
from leadsman.errors import BrokerError, ConnackMissing, ConnectionRefused, SubscriptionRefused, TlsRefused
from leadsman.testing import VirtualLoop

DENIED = mqtt5.PubAckReasonCode.NOT_AUTHORIZED


class Pipe(asyncio.Transport):
    """A transport that keeps what is written. `room`: bytes that the socket takes before it is full."""

    def __init__(self, loop):
        super().__init__()
        self.loop, self.protocol = loop, None
        self.writes, self.room, self.reading, self.aborted = [], None, True, False

    def set_write_buffer_limits(self, high=None, low=None):
        pass

    def write(self, data):
        self.writes.append(bytes(data))
        if self.room is not None:
            self.room -= len(data)
            if self.room < 0:
                self.protocol.pause_writing()

    def drain(self):
        self.room = None
        self.protocol.resume_writing()

    def pause_reading(self):
        assert self.reading
        self.reading = False

    def resume_reading(self):
        self.reading = True

    def is_closing(self):
        return self.aborted

    def abort(self):
        if not self.aborted:
            self.aborted = True
            self.loop.call_soon(self.protocol.connection_lost, None)


class Session:
    """One connection, its listener, and the broker at the other end."""

    def __init__(self, broker=None, largest=1000):
        self.loop = VirtualLoop()
        self.acknowledgements, self.reasons, self.messages = [], [], []
        self.pipe = Pipe(self.loop)
        packet = Connect("me", "5.0", None, b"", largest)
        self.connection = self.loop.run_until_complete(self.made(broker or Broker(), packet))

    async def made(self, broker, packet):
        connection = CodecConnection(broker, packet, system_clock(self.loop), self)
        self.pipe.protocol = connection
        connection.connection_made(self.pipe)
        return connection

    def acknowledged(self, packet_id, code):
        self.acknowledgements.append((packet_id, code))

    def lost(self, reason, code=0):
        self.reasons.append((reason, code))

    def received(self, message):
        self.messages.append(message)

    def welcome(self, **options):
        self.send(mqtt5.ConnAckPacket(**options))
        self.loop.run_until_complete(self.connection.accepted())
        return self

    def send(self, *packets):
        self.receive(b"".join(p if isinstance(p, bytes) else p.write() for p in packets))

    def receive(self, data):
        """Hand bytes to the connection as a transport does."""
        for start in range(0, len(data), codec_client.READ):
            chunk = data[start : start + codec_client.READ]
            self.connection.get_buffer(-1)[: len(chunk)] = chunk
            self.connection.buffer_updated(len(chunk))

    def run(self, seconds=0.0):
        self.loop.run_until_complete(asyncio.sleep(seconds))

    def written(self):
        """The packets that were written."""
        data, packets = b"".join(self.pipe.writes), []
        while data:
            packet, used = mqtt5.read(memoryview(data))
            packets.append(packet)
            data = data[used:]
        return packets

    def end(self):
        self.connection.abort()
        self.run(1)
        self.loop.close()


@pytest.fixture
def session():
    session = Session()
    yield session
    session.end()


@pytest.fixture
def connected(session):
    return session.welcome()


def test_all_packets_of_one_turn_are_written_at_once(connected):
    ids = [connected.connection.publish(Message("a", b"%d" % number)) for number in range(3)]
    assert connected.pipe.writes == []
    connected.run()

    assert len(connected.pipe.writes) == 1
    assert [packet.packet_id for packet in connected.written()] == ids


def test_what_the_socket_does_not_take_waits_until_it_does(connected):
    connected.pipe.room = 10
    connected.connection.publish(Message("a", b"x" * 100))
    connected.run()
    connected.connection.publish(Message("b", b""))
    connected.connection.publish(Message("c", b""))
    connected.run(1)
    assert [packet.topic for packet in connected.written()] == ["a"]

    connected.pipe.drain()
    assert [packet.topic for packet in connected.written()] == ["a", "b", "c"]
    assert len(connected.pipe.writes) == 2


def test_acknowledgements_are_reported_in_any_order_and_unknown_ones_are_ignored(connected):
    ids = [connected.connection.publish(Message("a", b"")) for _ in range(3)]
    connected.send(*(mqtt5.PubAckPacket(each) for each in reversed(ids)))
    connected.send(mqtt5.PubAckPacket(ids[0]), mqtt5.PubAckPacket(4711, reason_code=DENIED))

    assert connected.acknowledgements == [(each, 0) for each in reversed(ids)]
    assert connected.reasons == []


def test_a_refused_message_has_its_reason_code(connected):
    packet_id = connected.connection.publish(Message("a", b""))
    connected.send(mqtt5.PubAckPacket(packet_id, reason_code=DENIED))

    assert connected.acknowledgements == [(packet_id, 0x87)]


def test_a_packet_identifier_that_is_unanswered_is_not_used_again(connected):
    first = connected.connection.publish(Message("a", b""))
    for _ in range(70_000):
        packet_id = connected.connection.publish(Message("a", b""))
        assert packet_id != first
        connected.send(mqtt5.PubAckPacket(packet_id))


def test_65535_unanswered_packets_are_the_most(connected):
    ids = {connected.connection.publish(Message("a", b"")) for _ in range(65_535)}

    assert ids == set(range(1, 65_536))
    with pytest.raises(BrokerError, match="65535 packets are unanswered"):
        connected.connection.publish(Message("a", b""))


def test_a_message_of_quality_0_is_done_when_the_socket_has_taken_it(connected):
    connected.pipe.room = 10
    packet_id = connected.connection.publish(Message("a", b"x" * 100, qos=0))
    connected.run(1)
    assert connected.acknowledgements == []

    connected.pipe.drain()
    assert connected.acknowledgements == [(packet_id, 0)]


def test_a_broker_without_retained_messages_or_acknowledgements_gets_neither(session):
    session.welcome(retain_available=False, max_qos=mqtt5.QoS.AT_MOST_ONCE)
    packet_id = session.connection.publish(Message("a", b"", qos=1, retain=True))
    session.run()

    (packet,) = session.written()
    assert (packet.qos, packet.retain) == (0, False)
    assert session.acknowledgements == [(packet_id, 0)]


def test_a_message_that_cannot_be_written_is_a_named_error(connected):
    with pytest.raises(BrokerError, match="the message to 'a+' could not be written"):
        connected.connection.publish(Message("a" * 70_000, b""))
    with pytest.raises(BrokerError, match="cannot subscribe"):
        connected.loop.run_until_complete(connected.connection.subscribe("a" * 70_000))


def test_the_limits_of_the_broker_are_in_connack(session):
    session.welcome(receive_max=20, max_packet_size=4000)

    assert (session.connection.connack.receive_maximum, session.connection.connack.maximum_packet_size) == (20, 4000)


def test_another_client_id_than_ours_is_accepted(session):
    session.welcome(assigned_client_id="another")

    assert session.reasons == []


def pings(session):
    return [packet for packet in session.written() if isinstance(packet, mqtt5.PingReqPacket)]


@pytest.mark.parametrize(("asked", "interval"), [(None, 15), (4, 4), (0, 15), (60, 60)])
def test_a_ping_is_sent_after_the_keep_alive_of_the_broker_without_packets(session, asked, interval):
    session.welcome(server_keep_alive=asked)
    session.run(interval - 0.5)
    assert pings(session) == []

    session.run(1)
    assert len(pings(session)) == 1


def test_traffic_in_both_directions_makes_pings_needless(connected):
    for _ in range(40):
        connected.run(2)
        connected.send(mqtt5.PubAckPacket(connected.connection.publish(Message("a", b""))))

    assert pings(connected) == []


def test_a_broker_that_only_sends_gets_pings_and_so_does_one_that_only_receives(connected):
    for _ in range(10):
        connected.run(2)
        connected.send(mqtt5.PublishPacket("a", b""))
    assert len(pings(connected)) == 1
    connected.send(mqtt5.PingRespPacket())
    for _ in range(10):
        connected.run(2)
        connected.connection.publish(Message("a", b"", qos=0))
    assert len(pings(connected)) == 2


def test_a_ping_without_an_answer_ends_the_connection(connected):
    connected.run(31)

    assert connected.reasons == [("the broker did not answer a ping within 15 s", 0)]
    assert connected.pipe.aborted


def test_half_a_packet_and_silence_ends_the_connection(connected):
    connected.send(mqtt5.PublishPacket("a", b"x" * 100).write()[:50])
    for _ in range(20):
        connected.run(2)
        connected.send(b"x")

    assert connected.reasons == [("the broker did not answer a ping within 15 s", 0)]


def test_a_connection_with_answered_pings_lives(connected):
    for _ in range(20):
        connected.run(10)
        connected.send(mqtt5.PingRespPacket())

    assert connected.reasons == []


def test_messages_are_acknowledged_after_they_were_handed_over(connected):
    connected.send(
        mqtt5.PublishPacket("a", b"1", qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=7), mqtt5.PublishPacket("b", b"2")
    )
    connected.run()

    assert [message.topic for message in connected.messages] == ["a", "b"]
    assert [packet.packet_id for packet in connected.written()] == [7]


def test_a_flood_of_messages_is_read_in_batches_and_the_loop_works_in_between(connected):
    turns = []

    def turn():
        turns.append(len(connected.messages))
        if len(turns) < 100:
            connected.loop.call_soon(turn)

    connected.loop.call_soon(turn)
    connected.send(mqtt5.PublishPacket("a", b"").write() * 5000)
    assert not connected.pipe.reading
    connected.run(0.01)

    assert len(connected.messages) == 5000
    assert connected.pipe.reading
    steps = [after - before for before, after in pairwise(turns)]
    assert 0 < max(steps) <= codec_client.BATCH


def test_a_turn_that_takes_long_on_a_busy_machine_reads_no_more(connected, monkeypatch):
    turns, clock = [], connected.loop.time
    monkeypatch.setattr(connected.loop, "time", lambda: clock() + len(connected.messages) * 0.002)

    def turn():
        turns.append(len(connected.messages))
        if len(turns) < 100:
            connected.loop.call_soon(turn)

    connected.loop.call_soon(turn)
    connected.send(mqtt5.PublishPacket("a", b"").write() * 1000)
    while len(connected.messages) < 1000:
        connected.run()

    assert max(after - before for before, after in pairwise(turns)) == codec_client.STEP


def test_acknowledgements_of_many_messages_gather_before_more_are_read(connected):
    ids = [connected.connection.publish(Message("a", b"")) for _ in range(20)]
    connected.run()
    connected.send(mqtt5.PubAckPacket(ids[0]))
    assert not connected.pipe.reading
    connected.run(2 * codec_client.GATHER)
    assert connected.pipe.reading
    connected.send(*(mqtt5.PubAckPacket(number) for number in ids[1:]))

    assert [number for number, _ in connected.acknowledgements] == ids
    assert connected.pipe.reading


def test_acknowledgements_that_messages_wait_for_are_read_as_they_come(connected):
    connected.connection.urgent = True
    ids = [connected.connection.publish(Message("a", b"")) for _ in range(20)]
    connected.run()
    for number in ids:
        connected.send(mqtt5.PubAckPacket(number))
        assert connected.pipe.reading

    assert [number for number, _ in connected.acknowledgements] == ids


def test_a_connection_that_gathers_acknowledgements_sees_that_the_broker_closes_it(connected):
    ids = [connected.connection.publish(Message("a", b"")) for _ in range(20)]
    connected.run()
    connected.send(mqtt5.PubAckPacket(ids[0]))

    closing = connected.loop.create_task(connected.connection.close())
    connected.run()

    assert connected.pipe.reading
    connected.loop.run_until_complete(closing)


def test_a_broker_that_sends_and_does_not_read_is_not_read_from_either(connected):
    connected.pipe.room = 0
    connected.connection.publish(Message("a", b""))
    connected.run()
    packet = mqtt5.PublishPacket("a", b"", qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=7).write()
    for _ in range(30):
        if connected.pipe.reading:
            connected.send(packet * 100)
        connected.run(0.1)
    assert len(connected.messages) <= codec_client.UNSENT_ACKNOWLEDGEMENTS + codec_client.BATCH
    assert not connected.pipe.reading

    connected.pipe.drain()
    connected.run(0.1)
    assert connected.pipe.reading
    assert sum(isinstance(packet, mqtt5.PubAckPacket) for packet in connected.written()) == len(connected.messages)


def subscribe(session, answer=None):
    task = session.loop.create_task(session.connection.subscribe("t/#"))
    session.run()
    (packet,) = session.written()
    if answer is not None:
        session.send(mqtt5.SubAckPacket(packet.packet_id, [answer]))
    return session.loop.run_until_complete(task)


def test_a_subscription_is_granted_refused_in_words_or_unanswered(connected):
    subscribe(connected, mqtt5.SubAckReasonCode.GRANTED_QOS_AT_LEAST_ONCE)
    connected.pipe.writes.clear()
    with pytest.raises(SubscriptionRefused, match=r"'t/#': not authorized; check its access list \(0x87\)"):
        subscribe(connected, mqtt5.SubAckReasonCode.NOT_AUTHORIZED)
    connected.pipe.writes.clear()
    with pytest.raises(BrokerError, match="no answer within 5 s"):
        subscribe(connected)


def test_a_suback_that_nobody_waits_for_is_ignored(connected):
    connected.send(mqtt5.SubAckPacket(99, [mqtt5.SubAckReasonCode.NOT_AUTHORIZED]))

    assert connected.reasons == []


def test_the_reason_of_a_disconnect_is_told_in_words_with_the_broker_that_it_names(connected):
    connected.send(
        mqtt5.DisconnectPacket(
            reason_code=mqtt5.DisconnectReasonCode.SERVER_MOVED, server_reference="new.lan:1883", reason_str="bye"
        )
    )

    assert connected.reasons == [
        (
            "the broker closed the connection: it has moved (0x9d); it names 'new.lan:1883' as the broker to use; "
            "it says: bye",
            0x9D,
        )
    ]


def test_nothing_after_a_disconnect_counts(connected):
    packet_id = connected.connection.publish(Message("a", b""))
    connected.send(mqtt5.DisconnectPacket(), mqtt5.PubAckPacket(packet_id))
    connected.receive(b"garbage")
    connected.run(60)

    assert len(connected.reasons) == 1
    assert connected.acknowledgements == []
    with pytest.raises(BrokerError, match="closed"):
        connected.connection.publish(Message("a", b""))


def test_malformed_bytes_end_the_connection_and_the_broker_keeps_the_will(connected):
    connected.send(b"\x00\x00")
    connected.run()

    assert connected.reasons == [("the broker sent a malformed packet: Invalid PacketType value: 0", 0)]
    assert connected.written() == []  # no DISCONNECT, after which it would discard the will
    assert connected.pipe.aborted


def test_for_text_that_is_not_utf_8_neither_a_message_nor_another_client_is_blamed(connected):
    connected.send(b"\x30\x05\x00\x02\xff\xfe\x00")
    connected.run()

    assert connected.reasons == [("the broker sent a malformed packet: text that is not UTF-8", ADMINISTRATIVE)]


def test_an_error_of_the_listener_ends_the_connection_with_its_name(connected):
    connected.received = None
    connected.send(mqtt5.PublishPacket("a", b""))

    assert connected.reasons == [("TypeError: 'NoneType' object is not callable", 0)]


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (mqtt5.ConnAckPacket(reason_code=mqtt5.ConnAckReasonCode.NOT_AUTHORIZED), ConnectionRefused, "MQTT__PASSWORD"),
        (
            mqtt5.ConnAckPacket(
                reason_code=mqtt5.ConnAckReasonCode.USE_ANOTHER_SERVER, server_reference="b2", reason_str="full"
            ),
            ConnectionRefused,
            r"use another broker \(0x9c\); it names 'b2' as the broker to use; it says: full",
        ),
        (b"\x20\x02\x00\x01", ConnectionRefused, "does not speak this version"),
        (b"HTTP/1.1 400\r\n", ConnackMissing, "b'HTTP/1.1 400"),
        (b"\x20\x03\x00\x01\x00", ConnackMissing, "Invalid ConnAckReasonCode"),
    ],
)
def test_an_answer_that_accepts_nothing_is_a_named_error(session, answer, error, text):
    session.send(answer)

    with pytest.raises(error, match=text):
        session.loop.run_until_complete(session.connection.accepted())
    assert session.reasons == []
    assert session.pipe.aborted


def test_a_connection_that_ends_without_a_connack_is_a_named_error(session):
    session.pipe.abort()
    session.run()

    with pytest.raises(ConnackMissing, match="sent no CONNACK: the connection was lost"):
        session.loop.run_until_complete(session.connection.accepted())


def test_bytes_may_come_in_slices_of_the_buffer(session):
    """So asyncio reads TLS: each record after the first goes into a slice of the buffer."""
    data = mqtt5.ConnAckPacket(reason_str="welcome").write()

    buffer = session.connection.get_buffer(-1)
    buffer[:3] = data[:3]
    rest = buffer[3:]
    rest[: len(data) - 3] = data[3:]
    session.connection.buffer_updated(len(data))

    session.loop.run_until_complete(session.connection.accepted())


def test_an_alert_of_tls_is_named():
    session = Session(Broker(scheme="mqtts"))

    session.connection.connection_lost(ssl.SSLError(1, "certificate required"))

    with pytest.raises(TlsRefused, match="certificate required.*cert="):
        session.loop.run_until_complete(session.connection.accepted())
    session.end()


class Heard:
    """A listener that keeps the acknowledgements."""

    def __init__(self):
        self.acknowledgements = []

    def acknowledged(self, packet_id, code):
        self.acknowledgements.append((packet_id, code))

    def lost(self, reason, code=0):
        self.acknowledgements.append(reason)


def test_packets_in_several_records_of_tls_that_come_at_once_are_all_read(tmp_path):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    packets = [b"\x40\x03\x00" + bytes((number, 0x10)) for number in range(1, 6)]

    async def broker(reader, writer):
        await reader.read(1000)
        writer.write(mqtt5.ConnAckPacket().write())
        await reader.readexactly(sum(len(codec_client.codec.publish(Message("a", b""), 1, 0.0)) for _ in packets))
        for packet in packets:
            writer.write(packet)  # a record each
        await reader.read()
        writer.close()

    async def scenario():
        async with await asyncio.start_server(broker, "127.0.0.1", 0, ssl=context) as server:
            port, heard = server.sockets[0].getsockname()[1], Heard()
            address = Broker.from_url(f"mqtts://127.0.0.1:{port}?ca={tmp_path}/ca.pem")
            clock = system_clock(asyncio.get_running_loop())
            connection = await codec_client.connect(address, clock, Connect("me", "5.0", None, b""), heard)
            for _ in packets:
                connection.publish(Message("a", b""))
            async with asyncio.timeout(60):
                while len(heard.acknowledgements) < len(packets):
                    await asyncio.sleep(0.01)
            await connection.close()
            return heard.acknowledgements

    assert asyncio.run(scenario()) == [(number, 0x10) for number in range(1, 6)]


def test_a_refusal_that_nobody_waits_for_leaves_no_warning(session, caplog):
    session.send(mqtt5.ConnAckPacket(reason_code=mqtt5.ConnAckReasonCode.BANNED))
    del session.connection, session.pipe.protocol._accepted
    gc.collect()

    assert caplog.messages == []
    session.connection = session.pipe.protocol


def test_closing_sends_disconnect_and_waits_for_the_broker_to_close(connected):
    task = connected.loop.create_task(connected.connection.close())
    connected.run(0.05)
    assert not task.done()
    assert isinstance(connected.written()[-1], mqtt5.DisconnectPacket)
    connected.connection.connection_lost(None)
    connected.run()

    assert task.done()
    assert connected.reasons == []


@pytest.mark.parametrize(("room", "longest"), [(None, 0.11), (0, 0.31)])
def test_closing_is_bounded_with_a_broker_that_hangs(connected, room, longest):
    connected.pipe.room = room
    connected.connection.publish(Message("a", b""))
    connected.run()
    before = connected.loop.time()
    connected.loop.run_until_complete(connected.connection.close())

    assert connected.loop.time() - before <= longest
    assert connected.pipe.aborted


@given(st.lists(st.binary(max_size=40), max_size=8), st.integers(0, 3))
def test_whatever_the_broker_sends_no_exception_escapes_and_the_loss_is_reported_once(chunks, published):
    session = Session().welcome()
    try:
        for _ in range(published):
            session.connection.publish(Message("a", b""))
        for chunk in chunks:
            session.receive(chunk)
            session.run()
        session.connection.connection_lost(None)
        session.run(1)

        assert len(session.reasons) == 1
        assert session.reasons[0][0]
    finally:
        session.end()
