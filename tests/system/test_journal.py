"""The log of an app in a real journal, which has a namespace of its own (systemd-journald.service(8))."""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

ROOT = [] if os.geteuid() == 0 else ["sudo", "--non-interactive"]
HOUSE = """
import logging
from leadsman.core.monitoring.log_format import JournalHandler

handler = JournalHandler("{path}", logging.StreamHandler())
logging.getLogger("leadsman").addHandler(handler)
logging.getLogger("leadsman").setLevel("INFO")

@app.telemetry("meter", interval="1h")
async def meter() -> None:
    raise OSError("first\\nsecond")
"""


@pytest.fixture
def namespace():
    """The name of a namespace whose journald runs."""
    name = f"leadsman{os.getpid()}"
    daemon = next(
        each
        for each in map(Path, ("/usr/lib/systemd/systemd-journald", "/lib/systemd/systemd-journald"))
        if each.exists()
    )
    running = subprocess.Popen([*ROOT, daemon, name])
    path = Path(f"/run/systemd/journal.{name}/socket")
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, "journald did not start"
        time.sleep(0.02)
    yield name
    running.terminate()
    running.wait(60)
    for left in (path.parent, *Path("/run/log/journal").glob(f"*.{name}")):
        subprocess.run([*ROOT, "rm", "-r", left], check=True)


def entries(namespace, *matches):
    command = [*ROOT, "journalctl", "--namespace", namespace, "--output", "json", *matches]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in found.splitlines()]


def test_the_journal_finds_the_lines_of_a_device(namespace, mosquitto, start_app):
    app = start_app(HOUSE.format(path=f"/run/systemd/journal.{namespace}/socket"), mosquitto.url)

    deadline = time.monotonic() + 60
    while not (found := entries(namespace, "LEADSMAN_DEVICE=meter")):
        assert time.monotonic() < deadline, (entries(namespace), app.log)
        time.sleep(0.05)

    assert (found[0]["PRIORITY"], found[0]["LOGGER"], found[0]["LEADSMAN_ERROR_TYPE"]) == ("4", "leadsman", "OSError")
    assert found[0]["MESSAGE"].startswith("meter: ")
    assert len(entries(namespace)) > len(found)
    assert app.log == ""
