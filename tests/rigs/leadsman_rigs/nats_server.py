"""Real NATS servers with JetStream, alone or as a cluster."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from leadsman.testing.mosquitto import free_port

START_TIMEOUT = 60.0


class NatsServer:
    """A NATS server that runs inside a ``with`` block. `conf`: further lines of configuration. `host`: the address that
    it listens at, 0.0.0.0 for all of this machine."""

    def __init__(self, conf="", name="one", jetstream=True, host="127.0.0.1"):
        self.host = host
        self.port, self.name, self.conf, self.jetstream = free_port(), name, conf, jetstream
        self.directory = Path(tempfile.mkdtemp(prefix="leadsman-nats-"))
        self.log = self.directory / "log"
        self.process = None

    @property
    def url(self):
        return f"nats://127.0.0.1:{self.port}"

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *exc_info):
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def start(self):
        file = self.directory / "nats.conf"
        file.write_text(
            f"server_name: {self.name}\nlisten: {self.host}:{self.port}\n"
            + (f"jetstream {{ store_dir: {json.dumps(str(self.directory / 'data'))} }}\n" if self.jetstream else "")
            + f"{self.conf}\n"
        )
        program = shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin:/usr/local/sbin")
        assert program, "nats-server is not installed; type: make deps"
        with self.log.open("ab") as stream:
            self.process = subprocess.Popen([program, "-c", file], stdout=stream, stderr=stream)
        deadline = time.monotonic() + START_TIMEOUT
        while True:
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), 0.2).close()
                return
            time.sleep(0.01)

    def kill(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def freeze(self):
        os.kill(self.process.pid, signal.SIGSTOP)

    def thaw(self):
        os.kill(self.process.pid, signal.SIGCONT)


@contextlib.contextmanager
def nats_cluster(count=3):
    """Servers that form a cluster."""
    routes = [free_port() for _ in range(count)]
    known = ", ".join(f'"nats-route://127.0.0.1:{port}"' for port in routes)
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(
                NatsServer(
                    f"cluster {{ name: house, listen: 127.0.0.1:{port}, routes: [{known}] }}", name=f"server-{number}"
                )
            )
            for number, port in enumerate(routes)
        ]
