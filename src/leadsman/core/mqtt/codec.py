"""Writes and reads the packets of MQTT 5 with the codec `mqtt5`. Only this file uses that library.

`PacketReader` cuts the bytes of a connection into packets. Its memory is bounded: it keeps one packet that is not
complete yet, and a packet that is larger than we allow is an error as soon as its length is known.
"""

from typing import Protocol

import mqtt5
from mqtt5 import (
    ConnAckPacket,
    DisconnectPacket,
    PingRespPacket,
    PubAckPacket,
    PublishPacket,
    PubRecPacket,
    QoS,
    SubAckPacket,
    UnsubAckPacket,
)

from leadsman.core.mqtt.broker import Broker
from leadsman.core.mqtt.connection import (
    KEEPALIVE,
    RECEIVE_MAXIMUM,
    ConnAck,
    Connect,
    Received,
    seconds_left,
    taken_at,
    user_properties,
)
from leadsman.core.mqtt.connection_state import UNSUPPORTED_VERSION
from leadsman.core.mqtt.diagnosis import V311_REFUSALS
from leadsman.core.mqtt.message import Message

LIBRARY = "mqtt5"
PINGREQ = mqtt5.PingReqPacket().write()
_MAX_PACKET_BYTES = 5 + 0x0FFF_FFFF
"""Bytes of the largest packet that MQTT can express (§1.5.5)."""
_QUALITIES = (QoS.AT_MOST_ONCE, QoS.AT_LEAST_ONCE, QoS.EXACTLY_ONCE)
_PUBACK, _NO_SUBSCRIBERS = 0x40, 0x10
"""The first byte of a PUBACK, and its usual reason code beside 0 (MQTT 5 §3.4). Such PUBACKs are read here and not by
the library, since one comes for each reading."""
_CONNACK = 0x20
"""The first byte of a CONNACK (§3.2.1)."""
_FIRST_BYTES = 16
"""So many bytes of something that is not MQTT are reported: they show what it is."""
_SHOWN = 100
"""So many characters of a topic are reported that no message can have."""
_OLD_CONNACK = b"\x20\x02"
"""The first bytes of a CONNACK of MQTT 3.1.1; that of MQTT 5 is longer. Old brokers answer any version with theirs."""


_PUBLISH = 3
_FIRST_PROPERTY = {2: 2, 4: 3, 5: 3, 6: 3, 7: 3, 9: 2, 11: 2, 14: 1, 15: 1}
"""Where the properties of a packet begin, by its type, after the fixed header."""
_SUBSCRIPTION_IDENTIFIER = 0x0B
_FIXED = dict.fromkeys((0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A), 1)
_FIXED |= dict.fromkeys((0x13, 0x21, 0x22, 0x23), 2) | dict.fromkeys((0x02, 0x11, 0x18, 0x27), 4)
"""The bytes of properties of one length (§2.2.2.2)."""
_BINARY = frozenset({0x09, 0x16})
_STRINGS = dict.fromkeys((0x03, 0x08, 0x12, 0x15, 0x1A, 0x1C, 0x1F, *_BINARY), 1) | {0x26: 2}
"""How many strings, or binary data, a property has."""


class PacketError(Exception):
    """The broker sent bytes that no client can use."""


class TextError(PacketError):
    """A packet has text that is not UTF-8 (MQTT 5 §1.5.4), or a topic that no message can have (§3.3.2.1)."""


class PacketHandler(Protocol):
    """Takes the packets of the broker. The client does, which is above the codec."""

    def answered(self, code: int, connack: ConnAck, reference: str | None, reason: str | None) -> None:
        """CONNACK: the reason code, what the broker allows, its Server Reference and Reason String (MQTT 5 §3.2.2)."""
        ...

    def acknowledged(self, packet_id: int, code: int) -> None:
        """PUBACK, or PUBREC for a message of quality 2."""
        ...

    def arrived(self, message: Received) -> None:
        """PUBLISH; with a packet identifier it must be acknowledged."""
        ...

    def subscribed(self, packet_id: int, codes: list[int]) -> None:
        """SUBACK or UNSUBACK, with a reason code for each filter."""
        ...

    def disconnected(self, code: int, reference: str | None, reason: str | None) -> None:
        """DISCONNECT, with the Server Reference and the Reason String of the broker."""
        ...


class PacketReader:
    """The reading side of one connection.

    Args:
        handler: takes the packets.
        largest: bytes that one packet may have; None for any number.
    """

    def __init__(self, handler: PacketHandler, largest: int | None) -> None:
        self._handler = handler
        self._largest = _MAX_PACKET_BYTES if largest is None else largest
        self._data, self._at = b"", 0
        self._chunks: list[bytes] = []
        self._held = 0
        self._needed = 1
        """Bytes that must be there before it makes sense to read."""
        self._greeted = self._stopped = False
        self.packets = 0
        """Packets that were read."""

    @property
    def held(self) -> int:
        """Bytes that are not read yet."""
        return self._held

    def feed(self, data: bytes) -> None:
        """Take bytes from the socket."""
        self._chunks.append(data)
        self._held += len(data)

    def stop(self) -> None:
        """Read no more."""
        self._stopped = True

    def read(self, most: int) -> bool:
        """Hand at most `most` packets to the handler. Returns whether there may be more.

        Raises:
            PacketError: the connection is unusable.
        """
        if self._held < self._needed:
            return False
        if self._chunks:
            self._data, self._at = b"".join((self._data[self._at :], *self._chunks)), 0
            self._chunks.clear()
        data, end = self._data, len(self._data)
        view = memoryview(data)
        for _ in range(most):
            at = self._at
            if at == end or self._stopped:
                return False
            if data[at] == _PUBACK and self._greeted and at + 4 <= end:
                length = 2 + data[at + 1]
                if length == 4 or (length == 5 and at + 5 <= end and data[at + 4] == _NO_SUBSCRIBERS):
                    self._took(length)
                    packet_id = data[at + 2] << 8 | data[at + 3] or _no_packet_id("PUBACK")
                    self._handler.acknowledged(packet_id, 0 if length == 4 else _NO_SUBSCRIBERS)
                    continue
            packet = self._next(view[at:])
            if packet is None:
                return False
            self._dispatch(packet)
        return True

    def _next(self, rest: memoryview) -> mqtt5.Packet | None:
        """The first packet of `rest`; None if it is not complete."""
        if not self._greeted:
            if rest[0] != _CONNACK:
                first = bytes(rest[:_FIRST_BYTES])
                raise PacketError(f"the broker sent {first!r} where a CONNACK was due")
            if rest[:2] == _OLD_CONNACK:
                self._old_connack(rest)
                return None
        if not _is_text(rest):  # the codec would panic, and write so to stderr
            raise TextError("the broker sent a malformed packet: text that is not UTF-8")
        try:
            packet, used = mqtt5.read(rest)
        except IndexError:
            self._needed = self._length(rest)
            return None
        except ValueError as error:
            raise PacketError(f"the broker sent a malformed packet: {error}") from None
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # a fault of the codec; its exception is no `Exception`
                raise
            raise PacketError("the broker sent a malformed packet: the codec cannot read it") from None
        if used > self._largest:
            raise self._too_large(used)
        self._took(used)
        return packet

    def _took(self, length: int) -> None:
        """A packet of so many bytes was read."""
        self._at += length
        self._held -= length
        self._needed = 1
        self.packets += 1

    def _old_connack(self, rest: memoryview) -> None:
        if len(rest) < 4:
            self._needed = 4
            return
        self._greeted = self._stopped = True
        self._handler.answered(V311_REFUSALS.get(rest[3], UNSUPPORTED_VERSION), ConnAck(), None, None)

    def _length(self, rest: memoryview) -> int:
        """The bytes of a packet of which the first bytes are there, from its fixed header (MQTT 5 §2.1.4)."""
        length = 0
        for place in range(1, min(5, len(rest))):
            length |= (rest[place] & 0x7F) << 7 * (place - 1)
            if rest[place] < 0x80:
                total = 1 + place + length
                if total > self._largest:
                    raise self._too_large(total)
                return total
        return len(rest) + 1

    def _too_large(self, length: int) -> PacketError:
        text = f"the broker sent a packet of {length} bytes, and {self._largest} are allowed"
        return PacketError(text)

    def _dispatch(self, packet: mqtt5.Packet) -> None:
        handler = self._handler
        if isinstance(packet, PubAckPacket | PubRecPacket):
            handler.acknowledged(packet.packet_id or _no_packet_id(_name(packet)), int(packet.reason_code))
        elif isinstance(packet, PublishPacket):
            self._publish(packet)
        elif isinstance(packet, PingRespPacket):
            pass  # that a packet arrived is all that it means
        elif isinstance(packet, SubAckPacket | UnsubAckPacket):
            packet_id = packet.packet_id or _no_packet_id(_name(packet))
            handler.subscribed(packet_id, [int(code) for code in packet.reason_codes])
        elif isinstance(packet, DisconnectPacket):
            handler.disconnected(int(packet.reason_code), packet.server_reference, packet.reason_str)
        elif isinstance(packet, ConnAckPacket) and not self._greeted:
            self._greeted = True
            handler.answered(int(packet.reason_code), _connack(packet), packet.server_reference, packet.reason_str)
        else:
            raise PacketError(f"the broker sent {_name(packet)}, which was not due")

    def _publish(self, packet: PublishPacket) -> None:
        if packet.topic_alias is not None or not packet.topic:  # we allow none (§3.1.2.11.5)
            raise PacketError("the broker used a topic alias, and none is allowed")
        topic, qos = packet.topic, int(packet.qos)
        if "+" in topic or "#" in topic or "\0" in topic:
            raise TextError(f"the broker sent a message at {topic[:_SHOWN]!r}, and a topic has no wildcard and no NUL")
        if qos > 1:
            raise PacketError(f"the broker sent a message with QoS {qos}, which was not asked for")
        packet_id = (packet.packet_id or _no_packet_id("PUBLISH")) if qos else None
        response_topic, correlation, at = (
            packet.response_topic,
            packet.correlation_data,
            taken_at(packet.user_properties),
        )
        about = packet.retain, response_topic, correlation, at, packet_id, packet.duplicate
        self._handler.arrived(Received(topic, packet.payload, *about))


def _no_packet_id(name: str) -> int:
    """The packet identifier of a packet is 0, which none can have (§2.2.1)."""
    raise PacketError(f"the broker sent {name} with the packet identifier 0")


def _is_text(data: memoryview) -> bool:
    """Whether all text in the first packet of `data` is UTF-8 (MQTT 5 §1.5.4), as far as it is there. Whatever else may
    be wrong with it is left to the codec."""
    try:
        size, at = _number(data, 1)
        rest, kind = data[at : at + size], data[0] >> 4  # what follows belongs to other packets
        if kind == _PUBLISH:
            at = _after_text(rest, 0) + (2 if data[0] & 0x06 else 0)
        elif kind in _FIRST_PROPERTY:
            at = _FIRST_PROPERTY[kind]
        else:
            return True
        length, at = _number(rest, at)
        end = at + length
        while at < end:
            at = _after_property(rest, at)
    except UnicodeDecodeError:
        return False
    except (IndexError, KeyError):
        pass
    return True


def _after_property(rest: memoryview, at: int) -> int:
    """Where the property at `at` ends (§2.2.2.2). Raises UnicodeDecodeError for its text."""
    kind, at = rest[at], at + 1
    if kind == _SUBSCRIPTION_IDENTIFIER:
        return _number(rest, at)[1]
    if kind in _FIXED:
        return at + _FIXED[kind]
    for _ in range(_STRINGS[kind]):
        at = _after_text(rest, at, binary=kind in _BINARY)
    return at


def _after_text(rest: memoryview, at: int, *, binary: bool = False) -> int:
    """Where the text at `at`, or the binary data, ends (§1.5.4, §1.5.6). Raises IndexError if it is not complete."""
    end = at + 2 + (rest[at] << 8 | rest[at + 1])
    if end > len(rest):
        raise IndexError
    if not binary:
        str(rest[at + 2 : end], "utf-8")
    return end


def _number(data: memoryview, at: int) -> tuple[int, int]:
    """A variable byte integer (§1.5.5), and where it ends."""
    number = 0
    for shift in (0, 7, 14, 21):
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return number, at
    raise IndexError


def _connack(packet: ConnAckPacket) -> ConnAck:
    return ConnAck(
        packet.receive_max,
        packet.max_packet_size,
        int(packet.max_qos),
        packet.retain_available,
        packet.session_expiry_interval,
        packet.server_keep_alive,
        packet.topic_alias_max,
        packet.session_present,
    )


def _name(packet: mqtt5.Packet) -> str:
    return type(packet).__name__.removesuffix("Packet").upper()


def connect(broker: Broker, packet: Connect) -> bytes:
    """CONNECT.

    Raises:
        ValueError: a text is longer than MQTT can express, or is not UTF-8.
    """
    will = None
    if packet.will_topic is not None:
        will = mqtt5.Will(
            packet.will_topic,
            payload=packet.will_payload,
            qos=_QUALITIES[packet.will_qos],
            retain=packet.will_retained,
            will_delay_interval=packet.will_delay,
        )
    return mqtt5.ConnectPacket(
        packet.client_id,
        username=broker.username,
        password=None if broker.password is None else broker.password.encode(),
        clean_start=packet.clean,
        will=will,
        keep_alive=KEEPALIVE,
        session_expiry_interval=packet.session_expiry,
        receive_max=RECEIVE_MAXIMUM,
        max_packet_size=packet.largest,
    ).write()


def publish(message: Message, packet_id: int, now: float) -> bytes:
    """PUBLISH. `now`: monotonic seconds, which the expiry counts from.

    Raises:
        ValueError: a text is longer than MQTT can express, or is not UTF-8.
    """
    return PublishPacket(
        message.topic,
        message.payload,
        qos=_QUALITIES[message.qos],
        retain=message.retain,
        packet_id=packet_id if message.qos else None,
        message_expiry_interval=None if message.expires is None else seconds_left(message.expires, now),
        content_type=message.content_type,
        correlation_data=message.correlation,
        user_properties=user_properties(message) or None,
    ).write()


def puback(packet_id: int) -> bytes:
    """PUBACK, without a reason."""
    return PubAckPacket(packet_id).write()


def subscribe(packet_id: int, topic_filter: str, qos: int) -> bytes:
    """SUBSCRIBE to one filter.

    Raises:
        ValueError: the filter is longer than MQTT can express, or is not UTF-8.
    """
    wanted = mqtt5.TopicFilter(topic_filter, max_qos=_QUALITIES[qos], retain_as_published=False)
    return mqtt5.SubscribePacket(packet_id, [wanted]).write()


def unsubscribe(packet_id: int, topic_filter: str) -> bytes:
    """UNSUBSCRIBE from one filter."""
    return mqtt5.UnsubscribePacket(packet_id, [topic_filter]).write()


def disconnect() -> bytes:
    """DISCONNECT, after which the broker discards the will."""
    return DisconnectPacket(reason_code=mqtt5.DisconnectReasonCode(0)).write()
