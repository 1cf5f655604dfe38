"""A dry run beside the app itself, on one broker."""

import signal
import subprocess
import sys

import pytest

CODE = """\
from leadsman import App


class Meter:
    value = 412.5

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exc_info): ...


class Invented(Meter):
    value = 0.0


app = App("house", adapters=(Meter(),), twins=lambda settings: (Invented(),))


@app.telemetry("meter", interval="500ms")
async def meter(meter: Meter) -> dict[str, float]:
    return {"watts": meter.value}
"""


@pytest.fixture
def run(tmp_path):
    """Run the app with these arguments until the end of the test; its process and its log."""
    (tmp_path / "house.py").write_text(CODE)
    started = []

    def start(*arguments):
        command = [sys.executable, "-m", "leadsman", "run", "house:app", *arguments]
        log = tmp_path / f"{len(started)}.log"
        with log.open("wb") as stream:
            started.append(subprocess.Popen(command, cwd=tmp_path, stdout=stream, stderr=stream))
        return started[-1], log

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_a_dry_run_beside_the_app_leaves_its_topics_and_its_connection_alone(run, mosquitto, listen):
    listener = listen(mosquitto.port)
    live, live_log = run("--mqtt", mosquitto.url)
    listener.wait_for("house/meter/state")
    dry, dry_log = run("--mqtt", mosquitto.url, "--dry-run")
    listener.wait_for("dry-run/house/meter/state", 3)
    listener.wait_for("house/meter/state", 6)
    late = listen(mosquitto.port)
    late.wait_for("house/meter/state")
    dry.send_signal(signal.SIGKILL)
    (will,) = listener.wait_for("dry-run/house/status", where=lambda message: b"offline" in message.payload)

    assert {message.payload for message in listener.on("house/meter/state")} == {b'{"watts":412.5}'}
    assert {message.payload for message in listener.on("dry-run/house/meter/state")} == {b'{"watts":0.0}'}
    assert b'"dry_run":true' in will.payload
    assert not any(message.retain for _, message in late.messages if message.topic.startswith("dry-run/"))
    assert listen(mosquitto.port).wait_for("house/meter/state")[0].payload == b'{"watts":412.5}'
    live.send_signal(signal.SIGTERM)
    assert live.wait(60) == 0
    assert "another client" not in live_log.read_text()
    assert "DRY RUN" in dry_log.read_text().splitlines()[0]
