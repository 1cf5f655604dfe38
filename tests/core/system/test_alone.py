"""An app of the core alone, with a real broker: retry, circuit breaker, heartbeat, outbox on disk, introspection. It
runs also where all that may be left out of the package is."""

import json
import subprocess
import sys
import time

from leadsman.testing import Mosquitto
from leadsman.testing.mosquitto import free_port

APP = """
calls = 0
@app.telemetry("meter", interval=0.1, timeout="1m", stale_after="10m", retry=3, backoff=FixedBackoff(0.02))
async def meter():
    global calls
    calls += 1
    if calls < 3:
        raise OSError("not yet")
    print("reading", calls, flush=True)
    return {"life": os.environ["LIFE"], "calls": calls}

@app.telemetry("dead", interval=0.1, circuit_breaker=CircuitBreaker(2))
async def dead():
    raise OSError("no answer")
"""


def wait_until_on_disk(directory, text):
    deadline = time.monotonic() + 60.0
    while not any(text in each.read_bytes() for each in directory.rglob("*.db*")):
        assert time.monotonic() < deadline, "no reading came to the disk"
        time.sleep(0.02)


def test_an_app_of_the_core_retries_opens_a_circuit_keeps_readings_on_disk_and_answers(
    start_app, listen, monkeypatch, tmp_path
):
    port = free_port()
    url = f"mqtt://127.0.0.1:{port}"
    monkeypatch.setenv("LIFE", "first")
    first = start_app(APP, url, tmp_path / "state")
    first.wait_for("reading 3")
    wait_until_on_disk(tmp_path / "state", b'"first"')
    first.kill()

    with Mosquitto(port=port) as broker:
        listener = listen(broker.port)
        monkeypatch.setenv("LIFE", "second")
        start_app(APP, url, tmp_path / "state")
        (kept, *_) = listener.wait_for("sys/meter/state", where=lambda message: b'"first"' in message.payload)
        (new, *_) = listener.wait_for("sys/meter/state", where=lambda message: b'"second"' in message.payload)
        (beat, *_) = listener.wait_for("sys/status", where=lambda message: b"circuit_open" in message.payload)
        asked = subprocess.run(
            [sys.executable, "-m", "leadsman", "inspect", "--prefix", "sys", "--mqtt", url, "--json"],
            capture_output=True,
            text=True,
            check=True,
        )

    assert json.loads(kept.payload) == {"life": "first", "calls": 3}
    assert json.loads(new.payload) == {"life": "second", "calls": 3}
    assert json.loads(beat.payload)["devices"]["dead"]["status"] == "circuit_open"
    devices = json.loads(asked.stdout)["devices"]
    assert devices["meter"]["runtime"]["status"] == "ok"
    assert devices["dead"]["runtime"]["circuit"] == "open"
