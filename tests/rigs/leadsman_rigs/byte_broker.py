"""A broker that answers as a test says, byte by byte: well, wrongly, or not at all.

Each connection runs a function of its `Peer` in a thread, and ends with it.
"""

import base64
import contextlib
import hashlib
import socket
import struct
import threading
import time

import mqtt5

AT_LEAST_ONCE = mqtt5.QoS.AT_LEAST_ONCE
CONNACK = {"3.1.1": b"\x20\x02\x00\x00", "5.0": b"\x20\x03\x00\x00\x00"}
"""What accepts a connection, in each version of MQTT."""
CONNECT_OF_311 = b"\x00\x04MQTT\x04"
"""The protocol name and level in a CONNECT (MQTT 3.1.1 §3.1.2)."""


class Gone(Exception):
    """The client closed the connection."""


class Peer:
    """The client at the other end of a connection.

    Args:
        sock: the connection.
        messages: where the messages that it publishes are written down, as (topic, payload).
    """

    def __init__(self, sock, messages):
        self.sock, self.messages = sock, messages
        self._data = b""

    def send(self, *packets):
        """Send packets, or bytes."""
        self.sock.sendall(b"".join(each if isinstance(each, bytes) else each.write() for each in packets))

    def packet(self):
        """The next packet. A client that asks for 3.1.1 is hung up on: this broker speaks 5.0 only."""
        while True:
            if CONNECT_OF_311 in self._data[:16]:
                raise Gone
            try:
                packet, used = mqtt5.read(memoryview(self._data))
            except IndexError:
                more = self.sock.recv(65_536)
                if not more:
                    raise Gone from None
                self._data += more
            else:
                self._data = self._data[used:]
                return packet

    def greet(self, **connack):
        """Take CONNECT, and accept the connection."""
        packet = self.packet()
        self.send(mqtt5.ConnAckPacket(**connack))
        return packet

    def answer(self, packet):
        """Answer one packet as a good broker does; True for a message."""
        match packet:
            case mqtt5.PublishPacket():
                self.messages.append((packet.topic, packet.payload))
                if packet.packet_id is not None:
                    self.send(mqtt5.PubAckPacket(packet.packet_id))
                return True
            case mqtt5.SubscribePacket():
                granted = mqtt5.SubAckReasonCode.GRANTED_QOS_AT_LEAST_ONCE
                self.send(mqtt5.SubAckPacket(packet.packet_id, [granted] * len(packet.topic_filters)))
            case mqtt5.PingReqPacket():
                self.send(mqtt5.PingRespPacket())
            case mqtt5.DisconnectPacket():
                raise Gone
        return False

    def serve(self, messages=None):
        """Be a good broker, until the client leaves or for so many messages."""
        while messages is None or messages > 0:
            if self.answer(self.packet()) and messages is not None:
                messages -= 1

    def hang(self):
        """Keep the connection, and say nothing."""
        with contextlib.suppress(OSError):
            while self.sock.recv(65_536):
                pass

    def reset(self):
        """End the connection by RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


class ByteBroker:
    """A server on a port of the loopback interface, inside a ``with`` block.

    Args:
        behaviours: functions of a `Peer`, one for each connection in turn; the last one serves all that follow.
        port: where; a free one if it is 0.
    """

    def __init__(self, *behaviours, port=0):
        self.behaviours = behaviours
        self.messages, self.connections, self.faults = [], 0, []
        self._server = socket.create_server(("127.0.0.1", port))
        self._open = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    @property
    def port(self):
        return self._server.getsockname()[1]

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    @property
    def url(self):
        return f"mqtt://{self.address}"

    def wait_for(self, condition, timeout=60.0):
        """Wait until `condition(messages)`."""
        deadline = time.monotonic() + timeout
        while not condition(self.messages):
            assert time.monotonic() < deadline, self.messages[-5:]
            time.sleep(0.02)

    def __enter__(self):
        self._threads[0].start()
        return self

    def __exit__(self, *exc_info):
        for each in [self._server, *self._open]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(60)
        self._server.close()
        assert self.faults == []

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._server.accept()
                behave = self.behaviours[min(self.connections, len(self.behaviours) - 1)]
                self.connections += 1
                self._open.append(sock)
                thread = threading.Thread(target=self._run, args=(behave, sock), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _run(self, behave, sock):
        try:
            with sock:
                behave(Peer(sock, self.messages))
        except (Gone, OSError):
            pass
        except Exception as error:
            self.faults.append(error)


class Line:
    """A connection as a broker has it, over TCP or a WebSocket."""

    def __init__(self, peer, scheme, greeting=b""):
        self.sock, self.sent = peer.sock, 0
        self._frame = scheme == "ws"
        if self._frame:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += self.sock.recv(1)
            key = next(each for each in head.split(b"\r\n") if each.lower().startswith(b"sec-websocket-key: "))[19:]
            accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
            self.sock.sendall(
                b"HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "
                + accept
                + b"\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
            )
        self.sock.recv(1000)  # CONNECT
        self.send(greeting)

    def send(self, packet, claimed=0):
        """Send a packet; one that is claimed to be longer is filled up with zeros."""
        length = max(len(packet), claimed)
        self.sock.sendall((b"\x82\x7f" + struct.pack("!Q", length) if self._frame else b"") + packet)
        left = length - len(packet)
        while left:
            left -= self.sock.send(bytes(min(left, 2**16)))
            self.sent = length - left
