"""The log of a process, in each of its formats."""

import json
import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(("kind", "begins"), [("json", '{"at": "'), ("journal", "<6>sys: connected"), ("text", "20")])
def test_logs_come_as_they_are_asked_for(mosquitto, listen, start_app, monkeypatch, kind, begins):
    monkeypatch.setenv("LOG_FORMAT", kind)
    app = start_app(
        '@app.telemetry("d", interval=0.2)\nasync def d():\n    raise OSError("a\\nb\\x1b[31m")\n', mosquitto.url
    )
    listen(mosquitto.port).wait_for("sys/d/error")
    app.end()

    lines = app.log.splitlines()
    assert any(line.startswith(begins) for line in lines)
    assert "\x1b" not in app.log
    if kind == "json":
        assert all(json.loads(line)["level"] in ("info", "warning") for line in lines)


HOUSE = """
import asyncio, logging, threading, warnings
from pydantic import BaseModel, SecretStr
from leadsman import App

class Settings(BaseModel):
    pin: SecretStr

app = App("house", mqtt="mqtt://127.0.0.1:9", settings=Settings)
polls = 0

class Leaves:
    def __del__(self):
        raise OSError(text())

def text():
    return f"refused {app.settings.pin.get_secret_value()}\\n<0>2026-01-01 00:00:00 ERROR forged"

def fails():
    raise OSError(text())

async def nobody_waits():
    raise OSError(text())

@app.telemetry("d", interval="100ms")
async def read():
    global polls
    polls += 1
    warnings.warn(text())
    Leaves()
    threading.Thread(target=fails, name=text()).start()
    asyncio.create_task(nobody_waits())
    asyncio.get_running_loop().call_soon(fails)
    logging.getLogger("mine").error(text(), extra={"fields": {"mine": text()}})
    if polls == 3:
        app.stop()
"""


@pytest.mark.parametrize("kind", ["json", "journal", "text"])
def test_what_python_itself_reports_is_a_record_without_secrets(kind, tmp_path):
    (tmp_path / "house.py").write_text(HOUSE)
    given = {"HOUSE_PIN": "canary of python", "LOG_FORMAT": kind, "STATE_DIRECTORY": str(tmp_path)}
    command = [sys.executable, "-W", "always", "-m", "leadsman", "run", "house:app"]
    done = subprocess.run(
        command, cwd=tmp_path, env=os.environ | given, capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 0, done.stderr
    assert "canary" not in done.stderr + done.stdout
    reported = ("UserWarning: refused ***", "Leaves.__del__", "an exception ended the thread refused ***")
    assert [each for each in reported if each not in done.stderr] == []
    lines = done.stderr.splitlines()
    if kind == "json":
        assert all(json.loads(line)["level"] for line in lines)
    assert [line for line in lines if line.startswith(("<0>", "2026-01-01"))] == []
