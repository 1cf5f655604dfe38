"""An app with two real brokers: the first one is killed, frozen, or refuses the password; and a broker that names
another one. No reading is lost, and what is retained is retained where the app is."""

import contextlib
import json
import re
import subprocess
import sys
import time

import mqtt5
import pytest
from benchmarks.ear import Ear

from leadsman.testing import Mosquitto
from leadsman_rigs.byte_broker import ByteBroker

COUNTER = """
n = 0
@app.telemetry("counter", interval=0.05)
async def counter():
    global n
    n += 1
    return {"n": n}
"""
SOON_BACK = "import leadsman.core.mqtt.broker_choice as choice\nchoice.RETURN = 2.0\n" + COUNTER
USE_ANOTHER = mqtt5.ConnAckReasonCode.USE_ANOTHER_SERVER
RETAINED = {"sys/counter/availability", "sys/counter/state", "sys/registry", "sys/status"}


def until(condition, what, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@contextlib.contextmanager
def listening(*brokers):
    """The numbers of the readings that come to each broker."""
    ears = [Ear(each.port, ("sys/counter/state",)) for each in brokers]
    try:
        yield [lambda ear=ear: [each.reading["n"] for each in list(ear.heard)] for ear in ears]
    finally:
        for ear in ears:
            ear.close()


def retained(broker):
    """What a broker retains, by topic."""
    ear = Ear(broker.port, ("#",))
    time.sleep(0.2)
    ear.close()
    return {each.topic: each.payload for each in ear.heard if each.retained}


def all_came(*heard):
    """Whether every reading came to one broker or another."""
    numbers = {number for each in heard for number in each}
    return numbers == set(range(1, max(numbers) + 1))


@pytest.fixture
def pair():
    with Mosquitto() as first, Mosquitto() as second:
        yield first, second


def urls(*brokers):
    return ",".join(each.url for each in brokers)


@pytest.mark.usefixtures("client")
def test_the_primary_is_killed_and_the_replacement_gets_every_reading_and_all_that_is_retained(pair, start_app):
    first, second = pair
    with listening(*pair) as (at_first, at_second):
        app = start_app(COUNTER, urls(*pair))
        until(lambda: len(at_first()) >= 20, "the primary gets readings")
        first.kill()
        killed = time.monotonic()
        until(at_second, "the replacement gets readings")
        assert time.monotonic() - killed < 10
        until(lambda: len(at_second()) >= 40, "the replacement gets more readings")
        until(lambda: retained(second).keys() >= RETAINED, "the replacement retains everything")
        status = json.loads(retained(second)["sys/status"])
        app.end()

    assert all_came(at_first(), at_second())
    assert (status["state"], status["mqtt"]["broker"], status["mqtt"]["breaks"]) == ("online", second.url, 1)
    assert f"connected to the broker {second.url}" in app.log


def test_the_app_goes_back_when_the_primary_returns_and_loses_nothing(pair, start_app):
    first, second = pair
    with listening(second) as (at_second,):
        app = start_app(SOON_BACK, urls(*pair))
        app.wait_for(f"connected to the broker {first.url}")
        first.kill()
        until(lambda: len(at_second()) >= 20, "the replacement gets readings")
        first.start()
        with listening(first) as (at_first,):
            until(lambda: len(at_first()) >= 20, "the primary gets readings again")
            status = json.loads(retained(first)["sys/status"])
            app.end()

    came = at_second() + at_first()
    assert set(range(min(came), max(came) + 1)) == set(came)
    assert status["mqtt"]["broker"] == first.url
    assert "the primary can be reached again" in app.log


def test_a_frozen_primary_is_left_for_the_replacement(pair, start_app):
    first, second = pair
    with listening(second) as (at_second,):
        app = start_app(COUNTER, urls(*pair))
        until(lambda: "sys/counter/state" in retained(first), "the primary gets readings")
        first.freeze()
        until(lambda: len(at_second()) >= 250, "the replacement gets the readings that waited, and new ones")
        app.end()
        first.thaw()

    came = at_second()
    assert set(range(min(came), max(came) + 1)) == set(came)
    assert "no acknowledgement within 10 s" in app.log


def test_a_primary_that_refuses_the_password_is_passed_over(guarded, start_app):
    with Mosquitto() as second, listening(second) as (at_second,):
        wrong = guarded.url.replace("mqtt://", "mqtt://house:wrong-canary@")
        app = start_app(COUNTER, f"{wrong},{second.url}")
        until(lambda: len(at_second()) >= 20, "the replacement gets readings")
        app.end()

    assert all_came(at_second())
    assert "bad user name or password" in app.log or "not authorized" in app.log
    assert "wrong-canary" not in app.log


def sends_away_at_once(address):
    def behaviour(peer):
        peer.packet()
        peer.send(mqtt5.ConnAckPacket(reason_code=USE_ANOTHER, server_reference=address))

    return behaviour


def sending_to(other):
    """A broker that names another one."""
    return ByteBroker(sends_away_at_once(f"127.0.0.1:{other.port}"))


def test_a_server_reference_is_not_followed(start_app):
    with Mosquitto() as second, sending_to(second) as first, listening(second) as (at_second,):
        app = start_app(COUNTER, first.url)
        until(lambda: first.connections >= 3, "the first broker is tried again")
        app.end()

    assert at_second() == []
    assert f"it names '127.0.0.1:{second.port}' as the broker to use" in app.log


def command(*words, **environment):
    done = subprocess.run(
        [sys.executable, "-m", "leadsman", *words], capture_output=True, text=True, env=environment, timeout=60
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("given", ["code", "variable"])
def test_the_tools_find_the_app_at_the_replacement(pair, start_app, given):
    first, second = pair
    app = start_app(COUNTER, f"mqtt://127.0.0.1:1,{second.url}")
    app.wait_for("connected to the broker")
    until(lambda: "sys/registry" in retained(second), "the registry is retained")
    where = ["--mqtt", urls(first, second)] if given == "code" else []
    variables = {} if where else {"MQTT__URL": json.dumps([first.url, second.url])}

    code, told = command("why", "counter", *where, **variables)
    assert code == 0, told
    code, told = command("inspect", "--live", *where, **variables)
    assert code == 0, told
    assert second.url in told
    assert re.search("mqtt://127.0.0.1:1 .*refused", told)
    code, told = command("doctor", "--prefix", "sys", *where, **variables)
    assert f"replacement {second.url}" in told
