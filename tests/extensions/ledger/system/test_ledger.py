"""The ledger of an app at a real broker that dies, against what a subscriber has counted."""

import json
import subprocess
import time
from collections import Counter

from leadsman.testing import Mosquitto
from leadsman_rigs.service import LEADSMAN

READINGS = 40
APP = f"""
n = 0
@app.telemetry("counter", interval=0.2)
async def counter():
    global n
    n += 1
    if n == 10:
        raise OSError("away")
    return {{"n": n}} if n <= {READINGS} else None
"""


def gaps(url, *more):
    done = subprocess.run(
        [*LEADSMAN, "gaps", "--prefix", "sys", "--mqtt", url, *more], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_ledger_agrees_with_a_subscriber_over_a_death_of_the_broker(listen, start_app, tmp_path):
    memory = f"persistence true\npersistence_location {tmp_path}/\nautosave_on_changes true\nautosave_interval 1\n"
    with Mosquitto(memory) as mosquitto:
        listener = listen(mosquitto.port)
        start_app(APP, mosquitto.url)
        listener.wait_for("sys/counter/state", 12)
        mosquitto.kill()
        time.sleep(3)
        mosquitto.start()
        listener.wait_for("sys/counter/state", where=lambda each: json.loads(each.payload)["n"] == READINGS)
        deadline = time.monotonic() + 60
        while "buffered" in (found := json.loads(gaps(mosquitto.url, "--json"))["counter"])["counts"]:
            assert time.monotonic() < deadline
        table = gaps(mosquitto.url, "counter")

    arrived = {json.loads(message.payload)["n"] for message in listener.on("sys/counter/state")}
    counts = Counter(found["counts"])
    assert counts["published"] + counts["replayed"] == len(arrived) == READINGS - 1
    assert counts["replayed"] > 5
    assert counts["failed"] == 1
    assert sum(counts.values()) in (found["slots"], found["slots"] - 1)
    causes = [gap["cause"] for gap in found["gaps"] if gap["cause"] != "late"]  # a busy machine misses polls
    assert causes == ["failed"]
    assert "failed 1" in table
