"""A subscriber that costs little, so that it can keep up with many readings on the core of the broker."""

import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

CONNECT = b"\x00\x04MQTT\x04\x02\x00\x00"
"""MQTT 3.1.1, a clean session, no keep-alive."""


class Heard(NamedTuple):
    """A message and when it came: `at` in seconds of `time.perf_counter`, `wall` in those of `time.time`."""

    at: float
    wall: float
    topic: str
    payload: bytes
    retained: bool

    @property
    def reading(self) -> dict[str, float]:
        """The reading of the job."""
        value: dict[str, float] = json.loads(self.payload)
        return value

    @property
    def age(self) -> float:
        """Seconds since the reading was taken, of a job whose readings say when."""
        return self.wall - self.reading["at"]


class Ear:
    """Subscribes with QoS 0 and keeps what comes, or hands it on.

    A broker that is killed has given its subscribers what it acknowledged: it writes to them before it acknowledges.

    Args:
        port: of the broker.
        filters: what to subscribe to.
        hand_on: called in the thread of the ear for each message; without it `heard` keeps them.
    """

    def __init__(
        self, port: int, filters: Sequence[str] = ("+/+/state",), hand_on: Callable[[Heard], None] | None = None
    ) -> None:
        self.heard: list[Heard] = []
        self._hand_on = hand_on or self.heard.append
        self._subscribed = threading.Event()
        self._socket = socket.create_connection(("127.0.0.1", port), 10)
        self._socket.settimeout(None)
        self._send(0x10, CONNECT + _text(f"ear-{id(self)}"))
        self._send(0x82, b"\x00\x01" + b"".join(_text(each) + b"\x00" for each in filters))
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()
        if not self._subscribed.wait(10):
            raise TimeoutError("the broker acknowledged no subscription")

    def wait(self, timeout: float = 30.0) -> float:
        """The time of the first message that is kept."""
        end = time.perf_counter() + timeout
        while not self.heard:
            if time.perf_counter() > end:
                raise TimeoutError("no reading came")
            time.sleep(0.0005)
        return self.heard[0].at

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Send a message with QoS 0."""
        self._send(0x31 if retain else 0x30, _text(topic) + payload)

    def close(self) -> None:
        """Hear no more, once everything that the broker has sent by now has been read."""
        with contextlib.suppress(OSError):  # the broker is gone
            self._send(0xE0, b"")
        self._thread.join(30)
        self._socket.close()

    def _send(self, kind: int, body: bytes) -> None:
        assert len(body) < 128 * 128
        low, high = len(body) & 0x7F, len(body) >> 7
        self._socket.sendall(bytes((kind, low | 0x80, high) if high else (kind, low)) + body)

    def _listen(self) -> None:
        pending = b""
        while True:
            try:
                data = self._socket.recv(1 << 18)
            except OSError:
                return
            if not data:
                return
            pending = self._parsed(pending + data, time.perf_counter(), time.time())

    def _parsed(self, data: bytes, at: float, wall: float) -> bytes:
        """Take whole packets; what is left."""
        begin = 0
        while len(data) - begin >= 2:
            length, shift, place = 0, 0, begin + 1
            while place < len(data):
                byte = data[place]
                length |= (byte & 0x7F) << shift
                shift, place = shift + 7, place + 1
                if byte < 0x80:
                    break
            else:
                break
            if len(data) < place + length:
                break
            if data[begin] >> 4 == 3:
                size = int.from_bytes(data[place : place + 2], "big") + 2
                topic, payload = data[place + 2 : place + size], data[place + size : place + length]
                self._hand_on(Heard(at, wall, topic.decode(), payload, bool(data[begin] & 1)))
            elif data[begin] >> 4 == 9:
                self._subscribed.set()
            begin = place + length
        return data[begin:]


def _text(text: str) -> bytes:
    return struct.pack("!H", len(text)) + text.encode()
