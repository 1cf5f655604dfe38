"""A real Node-RED with one set of flows."""

import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

from leadsman.testing.mosquitto import free_port

PROGRAM = Path("build/node-red/node_modules/.bin/node-red")
WHERE_FROM = "Node-RED is tested at night; to run this test here, type: scripts/node-red build/node-red"
START_TIMEOUT = 120.0


class NodeRed:
    """A Node-RED that runs inside a ``with`` block. Its debug nodes write to its log, as JSON."""

    def __init__(self, flows):
        self.port = free_port()
        self.directory = Path(tempfile.mkdtemp(prefix="leadsman-node-red-"))
        self.log_path = self.directory / "log"
        nodes = [self._logged(each) if each["type"] == "debug" else each for each in flows]
        (self.directory / "flows.json").write_text(json.dumps(nodes))
        (self.directory / "settings.js").write_text(
            f"module.exports = {{uiPort: {self.port}, uiHost: '127.0.0.1', flowFile: 'flows.json',"
            " credentialSecret: false, telemetry: {enabled: false, updateNotification: false}}"
        )

    @staticmethod
    def _logged(node):
        return {**node, "console": True, "targetType": "jsonata", "complete": "$string(payload)"}

    def __enter__(self):
        with self.log_path.open("ab") as stream:
            self.process = subprocess.Popen(
                [PROGRAM.resolve(), "--userDir", self.directory],
                cwd=self.directory,
                env={**os.environ, "HOME": str(self.directory)},
                stdout=stream,
                stderr=stream,
            )
        self.wait_for("Started flows", START_TIMEOUT)
        return self

    def __exit__(self, *exc_info):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def log(self):
        return self.log_path.read_text(errors="replace")

    def wait_for(self, words, timeout=60.0):
        deadline = time.monotonic() + timeout
        while words not in self.log:
            assert self.process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.05)

    def said(self, name):
        """What a debug node was given."""
        lines = [line.partition(f"[debug:{name}] ")[2] for line in self.log.splitlines()]
        return [json.loads(line) if line.startswith(("{", "[")) else line for line in lines if line]

    def press(self, node):
        """Press the button of an inject node."""
        deadline = time.monotonic() + START_TIMEOUT
        while True:
            try:
                urlopen(Request(f"http://127.0.0.1:{self.port}/inject/{node}", method="POST"), timeout=10).close()
                return
            except (URLError, OSError):  # it listens a moment after its flows have started
                assert time.monotonic() < deadline, self.log
                time.sleep(0.1)
