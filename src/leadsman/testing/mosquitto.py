"""A real mosquitto broker for tests, on a port of its own. It can be killed, frozen and restarted."""

import contextlib
import getpass
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

from leadsman.errors import LeadsmanError

START_TIMEOUT = 60.0
"""Seconds."""
END_TIMEOUT = 5.0
"""Seconds until a signal is sent again: mosquitto forgets one that comes while it starts."""
ENDS = 12
"""How many times."""
FIRST_PORT = 10_000
"""The lowest port that `free_port` returns, unless the system chooses one. Well-known ones are below it."""
_OUTGOING_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""The first and the last port of outgoing connections; ip(7)."""
_CONF = """\
user {user}
listener {port} 127.0.0.1
persistence false
log_type none
set_tcp_nodelay true
max_queued_messages 0
"""
"""`user`: started by root it would become another user, who cannot read what the tests write. `set_tcp_nodelay`:
without it Nagle holds acknowledgements back for 40 ms. `max_queued_messages 0`: the default of 1000 silently loses
messages of a slow subscriber (mosquitto.conf(5))."""


def executable() -> str | None:
    """The path of mosquitto, also in ``/usr/sbin`` if the search path lacks it; None if it is not installed."""
    return shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")


def free_port() -> int:
    """A free TCP port of the loopback interface. If possible, one that the system never gives to an outgoing
    connection, which could take it before it is used."""
    dice = random.SystemRandom()  # tests set the seed of the other one
    below = _first_outgoing_port()
    candidates = [dice.randrange(FIRST_PORT, below) for _ in range(100)] if below > FIRST_PORT else []
    for candidate in (*candidates, 0):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", candidate))
            port: int = probe.getsockname()[1]
            return port
    raise LeadsmanError("no TCP port is free")


def _first_outgoing_port() -> int:
    with contextlib.suppress(OSError):
        return int(_OUTGOING_PORTS.read_text().split()[0])
    return FIRST_PORT


class Mosquitto:
    """A mosquitto process that runs inside a ``with`` block.

    Args:
        conf: further lines of configuration.
        anonymous: accept every client; if False, `conf` must set which clients are accepted.
        port: the port to listen on; None takes a free one.
    """

    def __init__(self, conf: str = "", *, anonymous: bool = True, port: int | None = None) -> None:
        self.port = port or free_port()
        self.directory = Path(tempfile.mkdtemp(prefix="leadsman-mosquitto-"))
        self._conf = self.directory / "mosquitto.conf"
        allow = f"allow_anonymous {'true' if anonymous else 'false'}\n"
        self._conf.write_text(_CONF.format(port=self.port, user=getpass.getuser()) + allow + conf)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """For `App(mqtt=…)`."""
        return f"mqtt://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def start(self) -> None:
        """Start, and wait until it listens.

        Raises:
            LeadsmanError: it is not installed, or did not start.
        """
        program = executable()
        if program is None:
            raise LeadsmanError("mosquitto is not installed; on Debian: apt-get install mosquitto")
        self._process = subprocess.Popen(
            [program, "-c", str(self._conf)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            self._wait_until_it_listens(f"mosquitto did not start; try: {program} -c {self._conf}")
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop it as a service manager does."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Stop it as a crash does."""
        self._end(signal.SIGKILL)

    def reload(self) -> None:
        """Make it read its password file and access list again."""
        self._signal(signal.SIGHUP)

    def freeze(self) -> None:
        """Make it hang, with its connections open."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue after `freeze`."""
        self._signal(signal.SIGCONT)

    def _wait_until_it_listens(self, complaint: str) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline and self._process is not None and self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), 0.2).close()
            except OSError:
                time.sleep(0.005)
            else:
                return
        raise LeadsmanError(complaint)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        os.kill(process.pid, signal.SIGCONT)
        for _ in range(ENDS):
            os.kill(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_TIMEOUT)
                return
        raise LeadsmanError(f"mosquitto did not end; its process is {process.pid}")

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            os.kill(self._process.pid, number)
