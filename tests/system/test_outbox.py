"""Readings survive the app and the broker, whichever is killed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from leadsman.core.spool.file import SpoolFile
from leadsman.core.spool.row import Quota, SpoolRow
from leadsman.testing import Mosquitto
from leadsman.testing.mosquitto import free_port

EVERY = 0.05
FURTHER = 60
"""Readings without a broker. Of them 20 may be in the socket of a frozen one, and `are_all` forgives 20."""
COUNTER = """
import sys
n = 0
@app.telemetry("counter", interval=0.05)
async def counter():
    global n
    n += 1
    print("reading", n, flush=True)
    return {"life": os.environ["LIFE"], "n": n}
"""


@pytest.fixture
def lives(start_app, monkeypatch, tmp_path):
    """Start the app, each time as another life of it, with the same state."""
    started = []

    def start(url):
        monkeypatch.setenv("LIFE", str(len(started)))
        started.append(start_app(COUNTER, url, tmp_path / "state"))
        return started[-1]

    return start


def taken(app):
    """How many readings the app has taken."""
    return app.log.count("reading ")


def until(condition, seconds=15.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def kill(app):
    """End it with SIGKILL; how many readings it had taken."""
    app.process.send_signal(signal.SIGKILL)
    app.process.wait()
    return taken(app)


def arrived(listener):
    """The numbers of each life, in the order in which they first came."""
    found = {}
    for message in listener.on("sys/counter/state"):
        reading = json.loads(message.payload)
        found.setdefault(int(reading["life"]), {})[reading["n"]] = message
    return found


def are_all(numbers, last):
    """Whether these are all readings of a life, in order, up to those of its last quarter of a second. A machine that
    does much else writes later."""
    return list(numbers) == list(range(1, len(numbers) + 1)) and len(numbers) >= last - 1.0 / EVERY


def remembering(directory):
    return f"persistence true\npersistence_location {directory}/\nautosave_on_changes true\nautosave_interval 1\n"


def test_an_app_that_is_killed_without_a_broker_sends_its_readings_in_its_next_life(lives, listen):
    port = free_port()
    url = f"mqtt://127.0.0.1:{port}"
    first = lives(url)
    until(lambda: taken(first) >= 30)
    last, killed = kill(first), time.time()

    with Mosquitto(port=port) as mosquitto:
        listener = listen(mosquitto.port)
        second = lives(url)
        until(lambda: len(arrived(listener).get(1, ())) >= 5)
        kill(second)
        found = arrived(listener)

    assert are_all(found[0], last), (list(found[0]), last)
    assert are_all(found[1], 5)
    order = [json.loads(message.payload)["life"] for message in listener.on("sys/counter/state")]
    assert order == sorted(order)
    times = [dict(message.properties.UserProperty)["taken_at"] for message in found[0].values()]
    assert times == sorted(times)
    assert times[-1] <= time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(killed + 1))


def test_an_app_that_is_stopped_without_a_broker_loses_nothing(lives, listen):
    port = free_port()
    url = f"mqtt://127.0.0.1:{port}"
    first = lives(url)
    until(lambda: taken(first) >= 10)
    first.process.terminate()
    assert first.process.wait(5) == 0
    assert "on disk for the broker, and the next start sends them" in first.log

    with Mosquitto(port=port) as mosquitto:
        listener = listen(mosquitto.port)
        second = lives(url)
        until(lambda: 1 in arrived(listener))
        found = arrived(listener)

    assert list(found[0]) == list(range(1, taken(first) + 1))
    assert "on disk for the broker from an earlier run" in second.log


def test_app_and_broker_are_killed_in_turns_and_every_reading_arrives_in_order(lives, listen, tmp_path):
    random.seed(5)
    with Mosquitto(remembering(tmp_path)) as mosquitto:
        listener = listen(mosquitto.port)
        last = []
        for turn in range(6):
            app = lives(mosquitto.url)
            until(lambda app=app: taken(app) >= 5)
            time.sleep(random.uniform(0, 0.5))
            before = taken(app)
            if turn % 3 == 1:
                mosquitto.kill()
            if turn % 3 == 2:
                mosquitto.freeze()
            if turn % 3:
                until(lambda app=app, before=before: taken(app) >= before + FURTHER)
            time.sleep(random.uniform(0, 0.6))
            last.append(kill(app))
            if turn % 3 == 1:
                mosquitto.start()
            if turn % 3 == 2:
                mosquitto.thaw()
        app = lives(mosquitto.url)
        until(lambda: len(last) in arrived(listener))
        found = arrived(listener)

    for life, taken_then in enumerate(last):
        numbers = found.get(life, {})  # none, if it could not write before it was killed
        assert are_all(numbers, taken_then), (life, list(numbers), taken_then)


def test_nothing_is_written_while_the_broker_answers(lives, mosquitto, listen):
    """Of three apps: one may have waited longer than 0.15 s for an answer, on a machine that does much else."""
    listener = listen(mosquitto.port)

    assert any(writes_nothing(lives(mosquitto.url), life, listener) for life in range(3))


def writes_nothing(app, life, listener):
    """Whether an app has no file of readings after forty of them."""
    until(lambda: len(arrived(listener).get(life, ())) >= 40)
    app.process.terminate()
    app.process.wait(5)
    state = app.log_path.parent / "state"
    written = [Path(place, name) for place, _, names in os.walk(state) for name in names]
    for path in written:
        path.unlink()
    return {path.name for path in written} <= {"subscriptions.json", "owner"}


def test_mosquitto_pub_sends_a_dead_letter_again(tmp_path, listen):
    topic, payload = "house/boiler/state", '{"t": 21.5, "name": "ä\\n"}'
    file = SpoolFile(tmp_path / "outbox.db", Quota(least_free=0))
    file.open()
    dead = SpoolRow(1, 7, topic, payload.encode(), 1, False, time.time(), None, False)
    file.write((), (), [(dead, "not authorized")])
    file.close()
    command = [sys.executable, "-m", "leadsman", "outbox", "--state-directory", str(tmp_path), "--json"]

    with Mosquitto() as broker:
        listener = listen(broker.port)
        document = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        (letter,) = document["dead"]
        publish = ["mosquitto_pub", "-p", str(broker.port), "-q", "1", "-s", "-t", letter["topic"]]
        subprocess.run(publish, input=letter["payload"].encode(), check=True)
        until(lambda: listener.on(topic))

    assert [each.payload.decode() for each in listener.on(topic)] == [payload]
