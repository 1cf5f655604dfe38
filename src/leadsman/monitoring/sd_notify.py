"""Notifies the service manager: sd_notify(3) without a library, one datagram at a time."""

import contextlib
import os
import socket
from collections.abc import Mapping
from typing import Self


class Notifier:
    """Sends states to ``$NOTIFY_SOCKET``. It never raises, because the app runs without a manager too."""

    def __init__(self, address: str, watchdog: float | None = None) -> None:
        self.watchdog = watchdog
        """The longest time between two notifications, in seconds; None without a watchdog (sd_watchdog_enabled(3))."""
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self | None:
        """The notifier for the manager in the environment; None without one."""
        address = environment.get("NOTIFY_SOCKET", "")
        if address[:1] not in ("/", "@") or not hasattr(socket, "AF_UNIX"):
            return None
        usec, pid = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID")
        ours = pid is None or pid == str(os.getpid())
        return cls(address, int(usec) / 1e6 if ours and usec.isdecimal() and int(usec) > 0 else None)

    def send(self, *states: str) -> None:
        """Send states such as ``READY=1`` in one datagram."""
        with contextlib.suppress(OSError):
            self._socket.sendto("\n".join(states).encode(), self._address)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
