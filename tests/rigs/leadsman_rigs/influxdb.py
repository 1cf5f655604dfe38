"""A real InfluxDB 1 in a temporary directory."""

import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.error import URLError
from urllib.parse import quote
from urllib.request import urlopen

from leadsman.testing.mosquitto import free_port

START_TIMEOUT = 60.0
_CONF = """
bind-address = "127.0.0.1:{rpc}"
reporting-disabled = true
[meta]
dir = "{directory}/meta"
[data]
dir = "{directory}/data"
wal-dir = "{directory}/wal"
[monitor]
store-enabled = false
[http]
bind-address = "127.0.0.1:{port}"
log-enabled = false
"""


class InfluxDb:
    """A server that runs inside a ``with`` block. It can be killed and started again, and keeps what it has."""

    def __init__(self):
        self.port = free_port()
        self.directory = Path(tempfile.mkdtemp(prefix="leadsman-influxdb-"))
        self.log = self.directory / "log"
        self.process = None

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *exc_info):
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def start(self):
        program = shutil.which("influxd") or shutil.which("influxd", path="/usr/sbin:/usr/local/sbin")
        assert program, "InfluxDB is not installed; type: make deps"
        file = self.directory / "influxdb.conf"
        file.write_text(_CONF.format(directory=self.directory, port=self.port, rpc=free_port()))
        with self.log.open("ab") as stream:
            self.process = subprocess.Popen([program, "run", "-config", file], stdout=stream, stderr=stream)
        deadline = time.monotonic() + START_TIMEOUT
        while True:
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            try:
                urlopen(f"{self.url}/ping", timeout=1).close()
                return
            except (URLError, OSError):
                time.sleep(0.05)

    def kill(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def ask(self, query, database="house"):
        """The rows of the one series of a query, each a dict by its columns."""
        with urlopen(f"{self.url}/query?db={database}&epoch=ms&q={quote(query)}", timeout=30) as answer:
            (result,) = json.load(answer)["results"]
        assert "error" not in result, result
        series = result.get("series", [{"columns": [], "values": []}])
        return [dict(zip(series[0]["columns"], row, strict=True)) for row in series[0]["values"]]
