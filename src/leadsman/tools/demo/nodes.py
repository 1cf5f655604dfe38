"""The processes of the demo of a cluster: a NATS server, and nodes that are killed and started again."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Self

from leadsman.errors import LeadsmanError
from leadsman.testing.mosquitto import free_port
from leadsman.tools.demo.cluster_app import NODE

START_TIMEOUT = 60.0
"""Seconds."""
STOP_TIMEOUT = 10.0
"""Seconds that a process has to end by SIGTERM."""
INSTALL = (
    "the demo of a cluster needs nats-server, which keeps the leases; on Debian: apt-get install nats-server;"
    " elsewhere: https://docs.nats.io/running-a-nats-service/introduction/installation"
)
LAST_LINES = 5
"""Of the log of a node that did not start."""


def nats_executable() -> str | None:
    """The path of nats-server, also in ``/usr/sbin`` if the search path lacks it; None if it is not installed."""
    return shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin:/usr/local/sbin")


class NatsServer:
    """A NATS server with JetStream on the loopback interface. Runs inside a ``with`` block."""

    def __init__(self) -> None:
        self._port = free_port()
        self._directory = Path(tempfile.mkdtemp(prefix="leadsman-nats-"))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """For ``[cluster] engine``."""
        return f"nats://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._process is not None:
            end(self._process)
        shutil.rmtree(self._directory, ignore_errors=True)

    def _start(self) -> None:
        program = nats_executable()
        if program is None:
            raise LeadsmanError(INSTALL)
        conf = self._directory / "nats.conf"
        store = json.dumps(str(self._directory / "data"))
        conf.write_text(f"listen: 127.0.0.1:{self._port}\njetstream {{ store_dir: {store} }}\n")
        self._process = subprocess.Popen(
            [program, "-c", str(conf)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline and self._process.poll() is None:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self._port), 0.2).close()
                return
            time.sleep(0.01)
        raise LeadsmanError(f"nats-server did not start; try: {program} -js -p {self._port}")


class NodeProcess:
    """One node: a process with a state of its own. It ends with the ``with`` block.

    Args:
        name: the name of the node.
        command: what it runs.
        directory: for its state and its log.
        environment: its variables beside those of this process.
    """

    def __init__(self, name: str, command: list[str], directory: Path, environment: dict[str, str]) -> None:
        self.name = name
        self._command = command
        self._directory = directory
        self._log = directory / f"{name}.log"
        self._environment = {NODE: name, "STATE_DIRECTORY": str(directory / name), **environment}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it; do not wait until it reads."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._directory,  # where no settings of another app lie
                env={**os.environ, **self._environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the demo, which ends its nodes itself
            )

    def stop(self) -> None:
        """End it as a service manager does."""
        process, self._process = self._process, None
        if process is not None:
            end(process)

    def kill(self) -> None:
        """End it as a power cut does."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def check(self) -> None:
        """See that it runs, if it should.

        Raises:
            LeadsmanError: it has ended by itself; with the end of its log.
        """
        if self._process is not None and (code := self._process.poll()) is not None:
            log = "\n".join(self._log.read_text(errors="replace").splitlines()[-LAST_LINES:])
            raise LeadsmanError(f"node {self.name} ended with exit code {code}:\n{log}")


def end(process: "subprocess.Popen[bytes]") -> None:
    """SIGTERM, and SIGKILL if that is not enough."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def node_command(target: str) -> list[str]:
    """What a node runs: an app, as ``leadsman run`` does."""
    return [sys.executable, "-m", "leadsman", "run", target]
