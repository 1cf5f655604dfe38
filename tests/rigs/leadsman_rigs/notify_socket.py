"""The notify socket of a service manager."""

import contextlib
import socket
import time

import pytest


class NotifySocket:
    """A socket for ``$NOTIFY_SOCKET``, and all that was said there."""

    def __init__(self, path):
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.said = []

    def listen(self, timeout):
        deadline = time.monotonic() + timeout
        while (rest := deadline - time.monotonic()) > 0:
            self.socket.settimeout(rest)
            try:
                self.said += [(time.monotonic(), line) for line in self.socket.recv(65536).decode().splitlines()]
            except TimeoutError:
                return

    def forget(self):
        """Leave out all that was said until now."""
        self.socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while self.socket.recv(65536):
                pass
        self.said.clear()

    def wait_for(self, word, timeout=60.0):
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if any(word in line for _, line in self.said):
                return
            self.listen(0.1)
        pytest.fail(f"{word} was not said within {timeout} s; {self.said}")
