"""A real PostgreSQL server in a temporary directory. It runs as another user if the tests run as root, who may not
start it."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from leadsman.testing.mosquitto import free_port

START_TIMEOUT = 60.0
PASSWORD = "secret-of-the-owner"
_CONF = """
listen_addresses = '127.0.0.1'
fsync = off
autovacuum = off
shared_buffers = 8MB
"""


def tool(name):
    """A program of PostgreSQL. Debian has them outside the search path, which has scripts that choose among servers."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    path = str(found[-1]) if found else shutil.which(name)
    assert path, "PostgreSQL is not installed; type: make deps"
    return path


class PostgresServer:
    """A server that runs inside a ``with`` block. Its owner is ``owner`` with `PASSWORD`."""

    def __init__(self):
        self.port = free_port()
        self.directory = Path(tempfile.mkdtemp(prefix="leadsman-postgres-"))
        self.data = self.directory / "data"
        self.log = self.directory / "log"
        self._user = {"user": "postgres"} if os.geteuid() == 0 else {}
        self.process = None

    def url(self, user="owner", password=PASSWORD, database="postgres"):
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/{database}"

    def __enter__(self):
        if self._user:
            os.chown(self.directory, pwd.getpwnam("postgres").pw_uid, -1)
        secret = self.directory / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        command = [tool("initdb"), "-D", self.data, "-U", "owner", "--auth-local=trust", "--auth-host=scram-sha-256"]
        options = [f"--pwfile={secret}", "--no-sync", "--locale=C", "--encoding=UTF8"]
        subprocess.run([*command, *options], check=True, stdout=subprocess.DEVNULL, cwd=self.directory, **self._user)
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.write(f"{_CONF}port = {self.port}\nunix_socket_directories = '{self.directory}'\n")
        self.start()
        return self

    def __exit__(self, *exc_info):
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def start(self):
        with self.log.open("ab") as stream:
            command = [tool("postgres"), "-D", self.data]
            self.process = subprocess.Popen(
                command, stdout=stream, stderr=stream, cwd=self.directory, start_new_session=True, **self._user
            )
        deadline = time.monotonic() + START_TIMEOUT
        # pg_isready is content with a server that refuses each session: what a test does first is a statement.
        while (tried := self._run("select 1")).returncode:
            assert self.process.poll() is None, self._happened(tried)
            assert time.monotonic() < deadline, self._happened(tried)
            time.sleep(0.02)

    def start_again(self):
        """Start it unless it runs: a test that failed half-way has left it killed."""
        if self.process is None or self.process.poll() is not None:
            self.kill()
            self.start()

    def kill(self):
        """End it, and its helpers, as a power cut does."""
        if self.process is not None:
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None
            (self.data / "postmaster.pid").unlink(missing_ok=True)

    def freeze(self):
        """Stop the server and the processes of its connections."""
        for pid in self._group():
            os.kill(pid, signal.SIGSTOP)

    def thaw(self):
        for pid in self._group():
            os.kill(pid, signal.SIGCONT)

    def sql(self, statement):
        """Run a statement as the owner; what it prints."""
        done = self._run(statement)
        assert done.returncode == 0, self._happened(done)
        return done.stdout.strip()

    def _run(self, statement):
        command = [tool("psql"), "-qAtX", "-h", self.directory, "-p", str(self.port), "-U", "owner", "-d", "postgres"]
        return subprocess.run([*command, "-c", statement], capture_output=True, text=True)

    def _happened(self, done):
        """What a statement and the log of the server have of an error, and how the server ended."""
        code = self.process.poll()
        return f"psql ended with {done.returncode}: {done.stderr}\nthe server: {code}\n{self.log.read_text()}"

    def _group(self):
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [self.process.pid, *map(int, children)]
