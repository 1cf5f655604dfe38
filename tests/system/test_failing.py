"""What a person sees and does when a device fails for real: the trace of an unplugged port, hold and release, the
end."""

import contextlib
import json
import os
import pty
import signal
import sqlite3
import subprocess
import sys
import threading
import time

import pytest

from leadsman.testing import PtyDevice
from leadsman_rigs.trace_rows import trace_rows


@pytest.fixture
def leadsman(mosquitto):
    """The command line against the running app."""

    def run(*arguments, check=True):
        environment = {**os.environ, "MQTT__URL": mosquitto.url, "PYTHONWARNINGS": "error"}
        command = [sys.executable, "-m", "leadsman", *arguments, "--prefix", "sys"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        assert not check or done.returncode == 0, done.stderr
        return done

    return run


def answering(device):
    """Answer every request, until the device is unplugged."""

    def run():
        with contextlib.suppress(OSError):
            while True:
                if device.receive():
                    device.send(b"21.5\n")
                time.sleep(0.002)

    threading.Thread(target=run, daemon=True).start()


METER = """
from leadsman.adapters.serial import SerialPort
app = App("sys", mqtt=os.environ["URL"], adapters=(SerialPort({path!r}, timeout=0.5),))

@app.telemetry("meter", interval=2, retry=2, backoff=FixedBackoff(0.3), circuit_breaker=CircuitBreaker(2))
async def read(port: SerialPort) -> dict:
    return {{"v": float(await port.request(b"read\\n"))}}
"""


def test_the_trace_of_an_unplugged_port_tells_the_whole_story(mosquitto, listen, start_app, leadsman):
    broker = listen(mosquitto.port)
    with PtyDevice() as port:
        answering(port)
        app = start_app(METER.format(path=port.path), mosquitto.url)
        broker.wait_for("sys/meter/state")
        assert leadsman("trace").stdout == "No call has failed.\n"

        port.unplug()
        broker.wait_for("sys/meter/availability", where=lambda message: message.payload == b"offline")
        port.plug()
        answering(port)
        broker.wait_for("sys/meter/error", where=lambda message: json.loads(message.payload)["event"] == "recovered")

        told = leadsman("trace", "meter").stdout
        for part in ("retry in", "gave up: no retries left", "circuit open", "circuit closed", "recovered"):
            assert part in told, told
        rows = [json.loads(line) for line in leadsman("trace", "--json", "--since", "5m").stdout.splitlines()]
    own = [row for row in rows if row["handler"] == "meter"]
    assert "in request" in own[0]["traceback"]
    assert own[0]["policy"].startswith("retry=2, backoff=FixedBackoff")
    assert app.end()[0] == 0


def test_a_held_device_is_listed_released_and_isolated_from_the_command_line(mosquitto, listen, start_app, leadsman):
    broker = listen(mosquitto.port)
    app = start_app(
        """
calls = []

@app.telemetry("door", interval=1, on_failure="hold")
async def door() -> dict:
    calls.append(1)
    if len(calls) == 2:
        raise OSError("stuck")
    return {"open": False}
""",
        mosquitto.url,
    )
    broker.wait_for("sys/door/availability", where=lambda message: message.payload == b"offline")

    listed = leadsman("held", check=False)
    assert listed.returncode == 3
    assert "OSError: stuck" in listed.stdout
    assert leadsman("release", "door").stdout == "door: released\n"
    assert leadsman("held").stdout == "No device is held.\n"
    again = leadsman("release", "door", check=False)
    assert (again.returncode, again.stderr) == (1, "leadsman: door is not held\n")
    assert leadsman("circuit", "door", "--action", "isolate").stdout == "door: isolated\n"
    assert leadsman("circuit", "door", "--action", "close").stdout == "door: closed\n"
    misspelt = leadsman("release", "dor", check=False)
    assert misspelt.stderr == "leadsman: there is no device 'dor' that is read; did you mean 'door'?\n"
    assert app.end()[0] == 0


def test_held_says_by_its_exit_code_that_nobody_answered(mosquitto, leadsman):
    unheard = leadsman("held", "--timeout", "300ms", check=False)

    assert unheard.returncode == 1
    assert "check that the app is running there, and its prefix" in unheard.stderr


def test_who_waits_at_a_terminal_reads_for_what(mosquitto, listen):
    listen(mosquitto.port)  # somebody has subscribed to everything, so the broker cannot know that no app does
    main, other = pty.openpty()
    command = [sys.executable, "-m", "leadsman", "inspect", "--prefix", "sys", "--timeout", "1500ms"]
    environment = {**os.environ, "MQTT__URL": mosquitto.url}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=other, timeout=120)
    os.close(other)

    said = os.read(main, 10_000).decode().splitlines()
    os.close(main)
    assert done.returncode == 1
    assert said[0] == f"waiting for an answer at 'sys/introspect' on {mosquitto.url} …"
    assert "no answer at" in said[1]


def test_an_app_that_must_not_run_without_a_device_ends_with_69(mosquitto, listen, start_app):
    broker = listen(mosquitto.port)
    app = start_app(
        """

calls = []

@app.telemetry("door", interval=1, on_failure="stop")
async def door() -> dict:
    if calls:
        raise OSError("gone for good")
    calls.append(1)
    return {}
""",
        mosquitto.url,
    )

    assert app.process.wait(60) == 69
    assert "door failed for good" in app.log
    assert broker.wait_for("sys/status", where=lambda message: json.loads(message.payload)["state"] == "offline")


def heed_ctrl_c():
    """A shell that starts the tests in the background has all their programs ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def eventually(true, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


DEAD = """
import itertools
app = App("sys", mqtt=os.environ["URL"], keep_state=True)

@app.telemetry("door", interval=60, retry=UNTIL_NEXT_POLL, backoff=FixedBackoff(1.5, jitter=0))
async def door() -> dict:
    raise OSError("stuck")
"""


def rows_in(file):
    with contextlib.suppress(sqlite3.OperationalError):  # the app has locked it
        return len(trace_rows(file))
    return 0


def test_an_outage_goes_on_where_it_was_after_a_kill(mosquitto, start_app, tmp_path, monkeypatch):
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    file = tmp_path / "state" / "resilience.db"
    for life in range(1, 4):
        app = start_app(DEAD, mosquitto.url)
        eventually(lambda least=life: rows_in(file) >= least)
        app.process.kill()
        app.process.wait()

    rows = trace_rows(file)
    assert len(rows) >= 3
    assert {row["reason"] for row in rows} == {"retry"}
    assert [row["cycle"] for row in rows][-1] >= 1
