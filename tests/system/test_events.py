"""Events at a real broker: what an outage, a kill and a subscriber that was away leave of them."""

import json
import subprocess
import time

import pytest

from leadsman.testing import Mosquitto
from leadsman_rigs.listener import Listener

TOPIC = "sys/clock/state"
CLOCK = """
import asyncio, time
from typing import Literal
from collections.abc import AsyncIterator
from pydantic import BaseModel

class Tick(BaseModel):
    event_type: Literal["tick"] = "tick"
    at: float

@app.event("clock", expiry={expiry})
async def clock() -> AsyncIterator[Tick]:
    while True:
        tick = Tick(at=time.time())
        yield tick
        print("tick", tick.at, flush=True)
        await asyncio.sleep(0.1)
"""
LATE = 1.5
"""Seconds that a message may take on a busy machine."""


def ages(listener):
    """How old each event was when it came."""
    ahead = time.time() - time.monotonic()
    messages = [(at, json.loads(each.payload)) for at, each in list(listener.messages) if each.topic == TOPIC]
    return [at + ahead - event["at"] for at, event in messages]


@pytest.mark.parametrize(("expiry", "most"), [("'2s'", 2 + LATE), ("None", None)])
def test_after_an_outage_the_young_events_come_and_the_old_ones_only_where_they_are_for_a_log(
    start_app, expiry, most, client, tmp_path
):
    with Mosquitto() as broker, Listener(broker.port) as listener:
        app = start_app(CLOCK.format(expiry=expiry), broker.url, state=tmp_path)
        listener.wait_for(TOPIC, 3)
        broker.kill()
        time.sleep(6)
        app.kill()
        app = start_app(CLOCK.format(expiry=expiry), broker.url, state=tmp_path)
        while app.log.count("tick") < 10:
            time.sleep(0.1)
        broker.start()
        before = len(listener.on(TOPIC))
        listener.wait_for(TOPIC, before + 20)
        found = ages(listener)

    assert all(not each.retain for each in listener.on(TOPIC))
    if most is None:
        assert max(found) > 4
    else:
        assert max(found) < most
        assert max(found) > 0.5  # those of the second before the return came, too


def test_a_subscriber_that_was_away_gets_no_old_event_from_the_broker(start_app):
    with Mosquitto() as broker:
        away = ["mosquitto_sub", "-V", "mqttv5", "-p", str(broker.port), "-i", "away", "-c", "-x", "600", "-q", "1"]
        away += ["-t", TOPIC]
        subprocess.run([*away, "-E"], check=True, timeout=30)  # its session stays at the broker
        start_app(CLOCK.format(expiry="'1s'"), broker.url)
        with Listener(broker.port) as listener:
            listener.wait_for(TOPIC, 40)
        came = subprocess.run([*away, "-C", "20"], check=True, timeout=30, capture_output=True).stdout
        now = time.time()

    found = [now - json.loads(line)["at"] for line in came.splitlines()]
    assert max(found) < 2 + 1 + LATE  # 20 of them take two seconds, and the broker counts whole ones
