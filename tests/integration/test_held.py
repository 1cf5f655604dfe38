"""What happens after a poll that failed for good: hold, stop, fall back; and what a person does about it over MQTT."""

import asyncio
import json
import logging
import sys

import pytest

from leadsman import UNTIL_NEXT_POLL, App, CircuitBreaker, ExponentialBackoff
from leadsman.errors import Stopped
from leadsman.testing import Scripted, fail

READING = {"t": 21.5}


def app_with(handler, **words):
    app = App("app")
    app.add_telemetry("d", handler, **{"interval": "1m", **words})
    return app


def answered(running, topic, payload=b""):
    """The answer to a request, as ``leadsman release`` gets it."""
    running.broker.send(topic, payload, response_topic="app/answers")
    running.run("2s")
    return running.broker.messages("app/answers")[-1].json


def test_a_held_device_keeps_still_and_says_so(harness, caplog):
    sensor = Scripted(READING, fail(99))
    app = harness(app_with(sensor, retry=1, on_failure="hold"))

    app.run("10m")

    assert len(sensor.calls) == 3
    assert app.statuses("d") == ["starting", "ok", "held"]
    assert app.availability("d")[-1] == "offline"
    assert app.status()["devices"]["d"]["next_poll_at"] is None
    assert [error["event"] for error in app.errors("d")] == ["onset"]
    assert "leadsman release d --prefix app" in caplog.text


def test_a_held_device_is_polled_at_once_when_it_is_released_with_all_counts_anew(harness):
    sensor = Scripted(fail(2), READING)
    app = harness(app_with(sensor, on_failure="hold", circuit_breaker=CircuitBreaker(1)))
    app.run("90s")
    assert len(sensor.calls) == 1

    first = answered(app, "app/d/release/set", b'{"transaction": 7}')
    assert first["status"] == "ok"
    assert first["transaction"] == 7
    assert len(sensor.calls) == 2
    app.run("5m")
    assert len(sensor.calls) == 2

    answered(app, "app/d/release/set")
    app.run("2m")
    assert app.statuses("d")[-1] == "ok"
    assert app.availability("d")[-1] == "online"
    assert answered(app, "app/d/release/set")["error"] == "d is not held"


def test_a_poll_asked_for_while_a_device_is_held_is_refused_with_what_to_do(harness):
    app = harness(app_with(Scripted(fail(9)), on_failure="hold"))
    app.run("10s")

    assert "release it first" in answered(app, "app/d/get")["error"]


def test_a_person_holds_a_device_that_works_and_releases_it(harness, caplog):
    caplog.set_level("INFO")
    sensor = Scripted(READING)
    app = harness(app_with(sensor))
    app.run("90s")

    assert answered(app, "app/d/hold/set", b'{"by": "ann"}')["data"] == {"device": "d", "held": True}
    app.run("10m")
    assert len(sensor.calls) == 2
    assert app.statuses("d")[-1] == "held"
    assert "d: held by ann until it is released" in caplog.text
    assert [(row.reason, row.by) for row in app.app.trace("d")] == [("held", "ann")]
    assert answered(app, "app/d/hold/set")["error"] == "d is held already"

    answered(app, "app/d/release/set", b'{"by": "ann"}')
    assert len(sensor.calls) == 3
    assert app.statuses("d")[-1] == "ok"


def test_a_source_is_not_held(harness):
    async def stream():
        yield READING
        await asyncio.sleep(3600)

    app = App("app")
    app.add_source("d", stream)
    running = harness(app)
    running.run(1)

    assert "is a source, which cannot be held" in answered(running, "app/d/hold/set")["error"]
    assert answered(running, "app/d/release/set")["error"] == "d is not held"
    assert running.statuses("d")[-1] == "ok"


def test_a_request_to_release_nobody_is_answered_with_an_error(harness):
    app = harness(app_with(Scripted(READING)))
    app.run("1s")

    assert "no device 'x'" in answered(app, "app/x/release/set")["error"]
    assert answered(app, "app/d/release/set", b"\xff")["status"] == "error"


def test_a_retained_request_is_ignored_since_it_would_come_again_at_every_reconnect(harness):
    sensor = Scripted(fail(99))
    app = harness(app_with(sensor, on_failure="hold"))
    app.run("10s")

    app.broker.send("app/d/release/set", b"", retain=True)
    app.run("10s")

    assert len(sensor.calls) == 1


def test_an_isolated_device_is_left_alone_until_its_circuit_is_closed(harness):
    sensor = Scripted(READING)
    app = harness(app_with(sensor))
    app.run("90s")

    assert answered(app, "app/d/circuit/set", b'"isolate"')["data"]["circuit"] == "isolated"
    app.run("10m")
    assert len(sensor.calls) == 2
    assert app.statuses("d")[-1] == "isolated"
    assert app.status()["devices"]["d"]["circuit"] == "isolated"
    assert answered(app, "app/d/circuit/set", b'{"action": "close"}')["data"]["circuit"] == "closed"
    app.run("2m")

    assert len(sensor.calls) >= 4
    assert app.statuses("d")[-1] == "ok"


def test_retries_under_way_end_when_a_device_is_isolated(harness):
    sensor = Scripted(fail(99))
    app = harness(app_with(sensor, interval="25m", retry=UNTIL_NEXT_POLL, on_failure="hold"))
    app.run(20)
    calls = len(sensor.calls)

    answered(app, "app/d/circuit/set", b"isolate")
    app.run("1h")

    assert len(sensor.calls) == calls
    assert app.status()["devices"]["d"]["circuit"] == "isolated"
    assert answered(app, "app/d/circuit/set", b"close")["status"] == "ok"
    assert answered(app, "app/d/release/set")["error"] == "d is not held"


def test_a_call_under_way_when_its_device_is_isolated_is_the_last_one(harness):
    app, calls = App("app"), []

    @app.telemetry("d", interval="25m", retry=3)
    async def read():
        calls.append(1)
        await asyncio.sleep(10)
        raise OSError("away")

    running = harness(app)
    running.run(5)
    answered(running, "app/d/circuit/set", b"isolate")
    running.run("20m")

    assert calls == [1]
    assert app.trace("d")[-1].reason == "isolated"


def test_whoever_asked_for_a_poll_is_answered_when_isolating_ends_it(harness):
    sensor = Scripted(READING, fail(99))
    app = harness(app_with(sensor, interval="25m", retry=UNTIL_NEXT_POLL))
    app.run(5)
    app.broker.send("app/d/get", b"", response_topic="app/polled")
    app.run(20)

    answered(app, "app/d/circuit/set", b"isolate")
    app.run("2m")

    assert "the circuit was isolated by hand" in app.broker.messages("app/polled")[-1].json["error"]


def test_the_run_of_a_source_ends_when_it_is_isolated_and_it_runs_again_when_its_circuit_is_closed(harness):
    app, ends = App("app"), []

    async def heard():
        try:
            while True:
                yield READING
                await asyncio.sleep(10)
        finally:
            ends.append(1)

    app.add_source("s", heard)
    running = harness(app)
    running.run(60)
    answered(running, "app/s/circuit/set", b"isolate")
    readings = len(running.states("s"))
    running.run("1h")

    assert (len(running.states("s")), ends) == (readings, [1])
    assert running.errors("s") == []
    assert running.statuses("s")[-1] == "isolated"

    answered(running, "app/s/circuit/set", b"close")
    running.run("2m")

    assert len(running.states("s")) > readings
    assert running.statuses("s")[-1] == "ok"


def test_closing_a_circuit_while_a_retry_is_waited_for_begins_the_waits_again_and_keeps_the_outage(harness):
    sensor = Scripted(fail(99, OSError("away")))
    app = harness(app_with(sensor, interval="25m", retry=UNTIL_NEXT_POLL, backoff=ExponentialBackoff(jitter=0)))
    app.run(20)

    answered(app, "app/d/circuit/set", b"close")
    app.run("2m")

    assert [round(call) for call in sensor.calls[:7]] == [0, 2, 6, 14, 30, 32, 36]
    assert {error["type"] for error in app.errors("d")} == {"OSError"}
    assert "recovered" not in {row.reason for row in app.app.trace("d")}


def test_a_disabled_circuit_never_opens(harness):
    sensor = Scripted(fail(99))
    app = harness(app_with(sensor, circuit_breaker=CircuitBreaker(1)))
    app.run("1s")

    answered(app, "app/d/circuit/set", b'"disable"')
    app.run("10m")

    assert len(sensor.calls) == 11
    assert app.statuses("d")[-1] in ("error", "stale")
    assert "did you mean 'isolate'" in answered(app, "app/d/circuit/set", b'"isolat"')["error"]


def test_stop_ends_the_app_in_order_and_says_which_device_it_was(harness):
    app = harness(app_with(Scripted(READING, fail(9)), on_failure="stop"))

    with pytest.raises(Stopped, match="d failed for good"):
        app.run("3m")

    assert json.loads(app.broker.retained["app/status"].payload)["state"] == "offline"


def test_a_fallback_may_give_a_reading_in_place_of_the_failed_one(harness):
    errors = []

    async def last_known(error):
        errors.append(error)
        return {"t": None, "estimated": True}

    app = harness(app_with(Scripted(READING, fail(99)), on_failure=last_known))

    app.run("150s")

    assert [type(error) for error in errors] == [OSError, OSError]
    assert app.states("d") == [READING, {"t": None, "estimated": True}, {"t": None, "estimated": True}]
    assert app.statuses("d") == ["starting", "ok", "error"]


def test_a_fallback_that_fails_or_hangs_costs_no_poll(harness):
    async def hangs(error):
        await asyncio.sleep(10**6)

    async def breaks(error):
        raise KeyError("mine")

    async def exits(error):
        sys.exit(3)

    async def gives_in(error):
        raise asyncio.CancelledError

    cases = ((hangs, "TimeoutError"), (breaks, "KeyError"), (exits, "SystemExit"), (gives_in, "CancelledError"))
    for fallback, kind in cases:
        sensor = Scripted(fail(99))
        app = harness(app_with(sensor, interval="2m", on_failure=fallback))
        app.run("9m")
        assert len(sensor.calls) == 5
        assert {fault["type"] for fault in app.faults()} == {kind}


@pytest.mark.parametrize("shared", [None, "bus"])
def test_the_log_of_a_circuit_that_was_closed_by_hand_does_not_say_that_the_device_is_well(harness, caplog, shared):
    app = App("app")
    for name in ("d", "e"):
        app.add_telemetry(name, Scripted(fail(99)), interval=10, circuit_breaker=CircuitBreaker(2, shared=shared))
    running = harness(app)
    running.run("1m")
    caplog.clear()
    caplog.set_level(logging.INFO)

    answered(running, "app/d/circuit/set", b"close")

    closed = [message for message in caplog.messages if "circuit closed" in message]
    assert len(closed) == 1
    assert "requested by" in closed[0]
