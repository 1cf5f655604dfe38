"""A TCP proxy before a broker that loses the PUBACKs of a client. It runs in threads, one for each direction."""

import contextlib
import socket
import threading

PUBACK = 4
"""The type of the packet (MQTT 5 §2.1.2)."""


def packets(buffer):
    """Take the complete packets out of a buffer."""
    while len(buffer) >= 2:
        length = place = 0
        while place < len(buffer) - 1:  # Variable Byte Integer (§1.5.5)
            place += 1
            length |= (buffer[place] & 0x7F) << 7 * (place - 1)
            if buffer[place] < 0x80:
                break
        else:
            return
        if len(buffer) < 1 + place + length:
            return
        yield bytes(buffer[: 1 + place + length])
        del buffer[: 1 + place + length]


class LosingProxy:
    """Passes connections on to a port of the loopback, inside a ``with`` block.

    Args:
        target: the port of the broker.
    """

    def __init__(self, target):
        self.target = target
        self.loses = False
        """Whether PUBACKs of clients are lost."""
        self.lost = threading.Event()
        """Set when one was."""
        self._open = []
        self._threads = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self.url = f"mqtt://127.0.0.1:{self.port}"

    def __enter__(self):
        self._begin(self._accept)
        return self

    def __exit__(self, *exc_info):
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self.cut()
        for thread in self._threads:
            thread.join(60)
        self._server.close()

    def cut(self):
        """End all connections."""
        ending, self._open = self._open, []
        for each in ending:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._server.accept()
                far = socket.create_connection(("127.0.0.1", self.target))
                self._open += [near, far]
                self._begin(self._both, near, far)

    def _begin(self, target, *arguments):
        self._threads.append(threading.Thread(target=target, args=arguments, daemon=True))
        self._threads[-1].start()

    def _both(self, near, far):
        down = threading.Thread(target=self._pump, args=(self._down, far, near), daemon=True)
        down.start()
        self._pump(self._up, near, far)
        down.join()
        near.close()
        far.close()

    def _pump(self, pump, source, sink):
        with contextlib.suppress(OSError):
            pump(source, sink)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _down(self, source, sink):
        while data := source.recv(65_536):
            sink.sendall(data)

    def _up(self, source, sink):
        buffer = bytearray()
        while data := source.recv(65_536):
            buffer += data
            for packet in packets(buffer):
                if self.loses and packet[0] >> 4 == PUBACK:
                    self.lost.set()
                else:
                    sink.sendall(packet)
