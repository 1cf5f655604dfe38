"""Values at topics of their own, at a real broker: what a subscriber without a parser gets, also after a restart."""

import signal
import subprocess
import time

import pytest

from leadsman.testing import Mosquitto
from leadsman.testing.mosquitto import free_port
from leadsman_rigs.listener import Listener
from leadsman_rigs.service import LEADSMAN

ROOM = """
n = 0
@app.telemetry("room", interval=0.1, layout="{layout}")
async def room():
    global n
    n += 1
    print("reading", n, flush=True)
    if os.environ.get("SMALL"):
        return {{"n": n}}
    return {{"n": n, "air": {{"co2": 612, "open": True}}, "note": None if n > 3 else "warm"}}
"""


@pytest.fixture
def broker():
    with Mosquitto() as broker:
        yield broker


def end(running):
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(30) == 0, running.log


def retained(port):
    """What a client that comes now is given below the device."""
    with Listener(port) as late:
        late.wait_for("sys/status")
        time.sleep(0.3)
        kept = [message for _, message in late.messages if message.retain]
    below = "sys/room/"
    return {each.topic.removeprefix(below): each.payload.decode() for each in kept if each.topic.startswith(below)}


def test_values_are_retained_as_plain_text_and_what_is_gone_is_not(broker, client, start_app, monkeypatch):
    with Listener(broker.port) as listener:
        first = start_app(ROOM.format(layout="fields"), broker.url)
        listener.wait_for("sys/room/n", where=lambda message: message.payload == b"5")
        end(first)

        kept = retained(broker.port)
        assert (kept["air/co2"], kept["air/open"]) == ("612", "true")
        assert int(kept["n"]) >= 5
        assert not {"note", "state"} & kept.keys()

        monkeypatch.setenv("SMALL", "yes")
        again = start_app(ROOM.format(layout="fields"), broker.url)
        listener.wait_for("sys/room/air/co2", where=lambda message: not message.payload)
        end(again)
    assert not {"air/co2", "air/open"} & retained(broker.port).keys()


def test_clean_removes_the_values_of_a_device_that_has_only_its_json_by_now(broker, start_app, tmp_path):
    (tmp_path / "again.py").write_text(
        f"import os\nfrom leadsman import App\n\napp = App('sys', mqtt={broker.url!r})\n{ROOM.format(layout='json')}"
    )
    with Listener(broker.port) as listener:
        app = start_app(ROOM.format(layout="both"), broker.url)
        listener.wait_for("sys/registry", where=lambda message: b"sys/room/air/co2" in message.payload)
        end(app)
    values = {"n", "air/co2", "air/open"}  # a note of null is kept nowhere

    done = [
        subprocess.run([*LEADSMAN, "clean", "again:app"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
        for _ in range(2)
    ]

    assert {line.removeprefix("sys/room/") for line in done[0].stdout.splitlines()[:-1]} == values, done[0].stderr
    assert done[1].stdout == "Nothing to remove.\n"
    assert "state" in (left := retained(broker.port))
    assert not values & left.keys()


def test_values_that_waited_on_disk_arrive_after_a_kill(start_app, tmp_path):
    with Mosquitto(port=free_port()) as broker:
        url = broker.url
        broker.stop()
        killed = start_app(ROOM.format(layout="both"), url, state=tmp_path)
        deadline = time.monotonic() + 60
        while killed.log.count("reading ") < 25:
            assert time.monotonic() < deadline, killed.log
            time.sleep(0.05)
        killed.process.kill()
        killed.process.wait()
        broker.start()
        with Listener(broker.port) as listener:
            running = start_app(ROOM.format(layout="both"), url, state=tmp_path)
            listener.wait_for("sys/room/state", where=lambda message: b'"n":20' in message.payload)
            listener.wait_for("sys/room/n", where=lambda message: message.payload == b"20")
            end(running)

            values = [int(message.payload) for message in listener.on("sys/room/n")]
    assert values[:20] == list(range(1, 21))
