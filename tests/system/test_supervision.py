"""A process that hangs, and the probe that looks at its health file."""

import json
import os
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.system

HANGS = """
@app.telemetry("blocking", interval=60)
async def blocking():
    print("blocks the loop", flush=True)
    time.sleep(300)
"""
FAILS = """
@app.telemetry("failing", interval=60, retry=3)
async def failing():
    raise OSError("away")
"""


def test_a_process_that_hangs_ends_with_its_own_code_and_shows_the_stack(mosquitto, start_app, monkeypatch):
    monkeypatch.setenv("SUPERVISION__EXIT_WHEN_HUNG", "5s")
    app = start_app(HANGS, mosquitto.url)

    assert app.process.wait(60) == 79
    assert "in blocking" in app.log  # a line of the stack
    assert "by blocking (" in app.log
    assert "the process ends (supervision.exit_when_hung)" in app.log


def test_a_process_writes_its_log_into_a_file_too_and_one_device_is_louder(mosquitto, start_app, monkeypatch, tmp_path):
    file = tmp_path / "logs" / "sys.log"
    monkeypatch.setenv("LOG__PATH", str(file))
    monkeypatch.setenv("LOG__DEVICES", '{"failing": "debug"}')
    app = start_app(FAILS, mosquitto.url)
    app.wait_for("failing: call 1 failed")
    app.end()

    assert "call 1 failed" in file.read_text()
    assert "starts with leadsman" not in file.read_text().partition("call 1 failed")[2]


@pytest.mark.parametrize(
    ("document", "code", "said"),
    [
        ({"fresh": True, "words": "2 of 2 devices ok; connected"}, 0, "2 of 2 devices ok; connected"),
        ({"fresh": False, "words": "0 of 1 \x1b[2J"}, 1, r"0 of 1 \x1b[2J"),
        (None, 1, "does not exist"),
    ],
)
def test_the_probe_answers_without_the_command_line(tmp_path, document, code, said):
    file = tmp_path / "health.json"
    if document is not None:
        file.write_text(json.dumps({"at": time.monotonic(), "period": 10.0, **document}))
    there = {**os.environ, "LEADSMAN_HEALTH_FILE": str(file)}

    command = [sys.executable, "-X", "importtime", "-m", "leadsman", "health"]
    done = subprocess.run(command, env=there, capture_output=True, text=True, check=False)

    assert done.returncode == code
    assert said in (done.stdout if code == 0 else done.stderr)
    assert "leadsman.core.monitoring.health_file" in done.stderr
    assert "leadsman.core.app" not in done.stderr
    assert "argparse" not in done.stderr
