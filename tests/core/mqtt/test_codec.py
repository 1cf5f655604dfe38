"""Packets of MQTT 5, written and read."""

from itertools import pairwise

import mqtt5
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman import Broker, Received
from leadsman.core.mqtt import codec
from leadsman.core.mqtt.codec import PacketError, PacketReader
from leadsman.core.mqtt.connection import ConnAck, Connect
from leadsman.core.mqtt.message import Message

CONNACK = mqtt5.ConnAckPacket().write()
WELCOME = ("answered", 0, ConnAck(), None, None)


class Log:
    """A handler that writes down what it is given."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        def call(*arguments):
            first = arguments[0]
            self.calls.append((name, *first, *arguments[1:]) if isinstance(first, tuple) else (name, *arguments))

        return call


def read(data, largest=None, most=1000):
    log = Log()
    reader = PacketReader(log, largest)
    reader.feed(data)
    while reader.read(most):
        pass
    return log.calls


def parsed(data):
    packet, used = mqtt5.read(memoryview(data))
    assert used == len(data)
    return packet


def test_connect_has_the_session_the_will_and_the_credentials():
    broker = Broker(username="ann", password="geheim€")
    packet = parsed(codec.connect(broker, Connect("me", "5.0", "house/status", b"gone", largest=1000)))

    assert (packet.client_id, packet.username, packet.password) == ("me", "ann", "geheim€".encode())
    assert (packet.clean_start, packet.session_expiry_interval, packet.keep_alive) == (False, 60, 15)
    assert packet.max_packet_size == 1000
    will = packet.will
    assert (will.topic, will.payload, will.qos, will.retain, will.will_delay_interval) == (
        "house/status",
        b"gone",
        1,
        True,
        10,
    )


def test_without_a_will_topic_there_is_no_will():
    assert parsed(codec.connect(Broker(), Connect("me", "5.0", None, b""))).will is None


@given(
    st.binary(max_size=300),
    st.sampled_from([0, 1, 2]),
    st.booleans(),
    st.none() | st.floats(0, 4e9),
    st.none() | st.binary(min_size=1, max_size=300),
    st.none() | st.floats(0, 1e12),
)
def test_a_message_is_written_with_all_that_it_has(payload, qos, retain, taken_at, correlation, expires):
    message = Message("a/b", payload, qos, retain, taken_at, expires, correlation=correlation)
    packet = parsed(codec.publish(message, 7, 100.0))

    assert (packet.topic, packet.payload, packet.qos, packet.retain) == ("a/b", payload, qos, retain)
    assert packet.packet_id == (7 if qos else None)
    assert packet.correlation_data == correlation
    assert [name for name, _ in packet.user_properties] == ([] if taken_at is None else ["taken_at"])
    if expires is None:
        assert packet.message_expiry_interval is None
    else:
        assert 1 <= packet.message_expiry_interval <= 0xFFFF_FFFF
        assert packet.message_expiry_interval >= min(expires - 100.0, 0xFFFF_FFFF)


def test_the_time_of_a_reading_is_a_user_property():
    message = Message("a", b"", taken_at=1_767_225_600.25)
    packet = parsed(codec.publish(message, 1, 0.0))
    late = parsed(codec.publish(message._replace(replayed=True), 1, 0.0))

    assert packet.user_properties == [("taken_at", "2026-01-01T00:00:00.250Z")]
    assert late.user_properties == [*packet.user_properties, ("replayed", "1")]


@pytest.mark.parametrize(("taken_at", "time"), [(None, []), (1.0, [("taken_at", "1970-01-01T00:00:01.000Z")])])
def test_the_token_of_a_node_of_a_cluster_is_a_user_property(taken_at, time):
    packet = parsed(codec.publish(Message("t", b"", taken_at=taken_at, fence=12), 1, 0.0))

    assert sorted(packet.user_properties) == [("fence", "12"), *time]


def test_connack_says_what_the_broker_allows():
    packet = mqtt5.ConnAckPacket(
        receive_max=20,
        max_packet_size=5000,
        max_qos=mqtt5.QoS.AT_MOST_ONCE,
        retain_available=False,
        server_keep_alive=7,
        topic_alias_max=5,
        assigned_client_id="another",
    )

    assert read(packet.write()) == [("answered", 0, ConnAck(20, 5000, 0, False, None, 7, 5), None, None)]


def test_the_answer_to_an_offered_message_is_its_acknowledgement():
    packet = mqtt5.PubRecPacket(4, reason_code=mqtt5.PubRecReasonCode.NOT_AUTHORIZED)

    assert read(CONNACK + packet.write()) == [WELCOME, ("acknowledged", 4, 0x87)]


def test_a_connection_says_how_long_its_session_and_its_will_wait():
    packet = parsed(codec.connect(Broker(), Connect("me", "5.0", "t", b"", will_delay=3, session_expiry=0)))

    assert (packet.session_expiry_interval, packet.will.will_delay_interval) == (0, 3)


STREAM = b"".join(
    (
        CONNACK,
        mqtt5.SubAckPacket(3, [mqtt5.SubAckReasonCode.NOT_AUTHORIZED]).write(),
        mqtt5.PublishPacket("a", b"x" * 200, response_topic="r", correlation_data=b"c").write(),
        mqtt5.PublishPacket("b", b"", qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=9, retain=True).write(),
        mqtt5.PingRespPacket().write(),
        mqtt5.PubAckPacket(4).write(),
        mqtt5.PubAckPacket(0x0102, reason_code=mqtt5.PubAckReasonCode.NO_MATCHING_SUBSCRIBERS).write(),
        b"\x40\x04\x00\x07\x00\x00",
        mqtt5.PubAckPacket(5, reason_code=mqtt5.PubAckReasonCode.NOT_AUTHORIZED).write(),
        mqtt5.DisconnectPacket(
            reason_code=mqtt5.DisconnectReasonCode.SERVER_MOVED, server_reference="b2", reason_str="bye"
        ).write(),
    )
)
CALLS = [
    WELCOME,
    ("subscribed", 3, [0x87]),
    ("arrived", *Received("a", b"x" * 200, False, "r", b"c")),
    ("arrived", *Received("b", b"", True, packet_id=9)),
    ("acknowledged", 4, 0),
    ("acknowledged", 0x0102, 0x10),
    ("acknowledged", 7, 0),
    ("acknowledged", 5, 0x87),
    ("disconnected", 0x9D, "b2", "bye"),
]


@given(st.lists(st.integers(0, len(STREAM))), st.integers(1, 5))
def test_the_same_packets_come_out_wherever_the_stream_is_cut(cuts, most):
    log = Log()
    reader = PacketReader(log, None)
    places = [0, *sorted(cuts), len(STREAM)]
    for start, end in pairwise(places):
        reader.feed(STREAM[start:end])
        while reader.read(most):
            pass

    assert log.calls == CALLS
    assert reader.held == 0


def test_a_batch_ends_after_as_many_packets_as_were_asked_for():
    log = Log()
    reader = PacketReader(log, None)
    reader.feed(STREAM)

    assert reader.read(2)
    assert log.calls == CALLS[:2]


def test_a_reader_that_is_stopped_hands_nothing_over():
    log = Log()
    reader = PacketReader(log, None)
    reader.feed(STREAM)
    reader.read(1)
    reader.stop()

    assert not reader.read(10)
    assert log.calls == CALLS[:1]


def test_a_long_packet_in_small_pieces_is_read_once_it_is_complete():
    log = Log()
    reader = PacketReader(log, None)
    data = CONNACK + mqtt5.PublishPacket("a", bytes(300_000)).write()
    for start in range(0, len(data), 1000):
        reader.feed(data[start : start + 1000])
        reader.read(10)

    assert [call[:2] for call in log.calls] == [WELCOME[:2], ("arrived", "a")]


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "only its header"])
def test_a_packet_larger_than_we_allow_is_an_error_as_soon_as_its_length_is_known(whole):
    data = CONNACK + mqtt5.PublishPacket("a", bytes(1000)).write()

    with pytest.raises(PacketError, match="a packet of 1007 bytes, and 500 are allowed"):
        read(data if whole else data[: len(CONNACK) + 3], largest=500)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "b'HTTP/1.1 400 Bad' where a CONNACK was due"),
        (b"\x15\x03\x03\x00\x02\x02\x28", "where a CONNACK was due"),  # a TLS alert
        (mqtt5.PubAckPacket(1).write(), "where a CONNACK was due"),
        (CONNACK + CONNACK, "CONNACK, which was not due"),
        (CONNACK + b"\xc0\x00", "PINGREQ, which was not due"),
        (CONNACK + b"\x30\x05\x00\x02\xff\xfe\x00", "text that is not UTF-8"),
        (CONNACK + mqtt5.PublishPacket("a", b"", topic_alias=3).write(), "topic alias"),
        (CONNACK + mqtt5.PublishPacket("a", b"", qos=mqtt5.QoS.EXACTLY_ONCE, packet_id=3).write(), "QoS 2"),
        (CONNACK + b"\x32\x06\x00\x01a\x00\x00\x00", "PUBLISH with the packet identifier 0"),
        (CONNACK + b"\x40\x02\x00\x00", "PUBACK with the packet identifier 0"),
        (CONNACK + b"\x40\x04\x00\x00\x87\x00", "PUBACK with the packet identifier 0"),
        (CONNACK + b"\x50\x02\x00\x00", "PUBREC with the packet identifier 0"),
        (CONNACK + b"\x90\x04\x00\x00\x00\x01", "SUBACK with the packet identifier 0"),
        (CONNACK + b"\x30\x06\x00\x03a/+\x00", r"a message at 'a/\+', and a topic has no wildcard and no NUL"),
        (CONNACK + b"\x30\x06\x00\x03a/#\x00", "a message at 'a/#', and"),
        (CONNACK + b"\x30\x06\x00\x03a/\x00\x00", r"a message at 'a/\\x00', and"),
        (CONNACK + b"\x30\xff\xff\xff\xff\x01", "malformed"),
    ],
)
def test_bytes_that_no_client_can_use_are_a_named_error(data, reason):
    with pytest.raises(PacketError, match=reason):
        read(data)


def test_a_connack_of_mqtt_3_1_1_refuses_our_version_whatever_it_says():
    assert read(b"\x20\x02\x00\x01") == [("answered", 0x84, ConnAck(), None, None)]
    assert read(b"\x20\x02\x00\x00") == [("answered", 0x84, ConnAck(), None, None)]
    assert read(b"\x20\x02\x00\x05") == [("answered", 0x87, ConnAck(), None, None)]
    assert read(b"\x20\x02\x00") == []


def fed(chunks):
    """What ended the reading of `chunks`, or None; and the reader."""
    reader = PacketReader(Log(), 1000)
    try:
        for chunk in chunks:
            reader.feed(chunk)
            while reader.read(3):
                pass
    except PacketError as error:
        return error, reader
    return None, reader


VALID = [STREAM, CONNACK, STREAM[len(CONNACK) :]]


@given(
    st.sampled_from(VALID),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=6),
    st.binary(max_size=40),
    st.lists(st.integers(0, 400), max_size=8),
)
def test_broken_bytes_end_in_a_named_error_or_are_read_and_memory_is_bounded(valid, changes, tail, cuts):
    data = bytearray(valid + tail)
    for place, byte in changes:
        data[place % len(data)] = byte
    places = [0, *sorted(place % len(data) for place in cuts), len(data)]
    ended, reader = fed([bytes(data[start:end]) for start, end in pairwise(places)])

    assert ended is None or str(ended)
    assert reader.held <= len(data)


@given(st.lists(st.binary(max_size=60), max_size=10))
def test_random_bytes_end_in_a_named_error_or_are_read(chunks):
    ended, reader = fed([CONNACK, *chunks])

    assert ended is None or str(ended)
    assert reader.held <= sum(map(len, chunks))


def test_a_reading_that_is_received_says_when_it_was_taken():
    at = "2026-01-01T00:00:00.000Z"
    properties = [("unit", "W"), ("taken_at", at)]

    received = read(CONNACK + mqtt5.PublishPacket("a", b"x", user_properties=properties).write())

    assert received == [WELCOME, ("arrived", *Received("a", b"x", False, taken_at=at))]


TEXTS = [
    mqtt5.ConnAckPacket(assigned_client_id="TEXT", server_keep_alive=9, server_reference="b").write(),
    mqtt5.ConnAckPacket(receive_max=3, reason_str="TEXT").write(),
    mqtt5.ConnAckPacket(user_properties=[("a", "b"), ("c", "TEXT")]).write(),
    *(
        CONNACK + packet.write()
        for packet in (
            mqtt5.PublishPacket("a/TEXT", b"x"),
            mqtt5.PublishPacket("a", b"x", qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=0xFFFF, response_topic="TEXT"),
            mqtt5.PublishPacket(
                "a", b"\xff" * 200, correlation_data=b"\xff", content_type="TEXT", message_expiry_interval=9
            ),
            mqtt5.PublishPacket("a", b"", subscription_ids=[300], user_properties=[("TEXT", "é")]),
            mqtt5.DisconnectPacket(reason_str="TEXT"),
            mqtt5.PubAckPacket(1, reason_str="TEXT"),
            mqtt5.SubAckPacket(1, [mqtt5.SubAckReasonCode.GRANTED_QOS_AT_MOST_ONCE], reason_str="TEXT"),
        )
    ),
]


@pytest.mark.parametrize("good", TEXTS)
@pytest.mark.parametrize("bad", [b"\xff\xfe\xff\xff", b"\xed\xa0\x80x", b"abc\xe2"])
def test_text_that_is_not_utf_8_is_a_named_error_and_nothing_is_written_to_stderr(capfd, good, bad):
    read(good)
    with pytest.raises(PacketError, match="text that is not UTF-8"):
        read(good.replace(b"TEXT", bad))

    assert capfd.readouterr() == ("", "")


@given(st.binary(max_size=4), st.sampled_from(TEXTS), st.integers(0, 100))
def test_a_packet_that_is_read_is_read_whole_or_in_parts(text, good, cut):
    data = good.replace(b"TEXT", text.ljust(4, b"x"))
    whole, _ = fed([data])
    parts, _ = fed([data[: cut % len(data)], data[cut % len(data) :]])

    assert str(whole) == str(parts)


acknowledgements = st.builds(
    lambda number, code: mqtt5.PubAckPacket(number, reason_code=code).write(),
    st.integers(1, 65_535),
    st.sampled_from([mqtt5.PubAckReasonCode.SUCCESS, mqtt5.PubAckReasonCode.NO_MATCHING_SUBSCRIBERS]),
)
subscribed = st.builds(
    lambda number: mqtt5.SubAckPacket(number, [mqtt5.SubAckReasonCode.GRANTED_QOS_AT_LEAST_ONCE]).write(),
    st.integers(1, 65_535),
)
publishes = st.builds(
    lambda topic, payload: mqtt5.PublishPacket(topic, payload=payload).write(),
    st.text("aé/", min_size=1, max_size=5),
    st.binary(max_size=20),
)


@given(st.lists(acknowledgements | subscribed | publishes, max_size=20))
def test_good_packets_that_arrive_together_are_all_read(packets):
    assert len(read(CONNACK + b"".join(packets))) == 1 + len(packets)


def test_the_text_of_a_packet_ends_with_the_packet():
    acknowledgement = b"\x40\x03\x00\x01\x10"

    assert codec._is_text(memoryview(acknowledgement + b"\x05\x1f\x00\x02\xff\xfe"))
