"""What happens after a poll that failed for good: hold, stop, fall back; and what a person does about it over MQTT."""

import asyncio
import json
import sys

import pytest

from leadsman import App, CircuitBreaker
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
    assert "leadsman release --prefix app --device d" in caplog.text


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
    assert answered(app, "app/d/release/set")["error"] == "PayloadError: d is not held"


def test_a_poll_asked_for_while_a_device_is_held_is_refused_with_what_to_do(harness):
    app = harness(app_with(Scripted(fail(9)), on_failure="hold"))
    app.run("10s")

    assert "release it first" in answered(app, "app/d/get")["error"]


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
    assert app.statuses("d")[-1] == "circuit_open"
    assert app.status()["devices"]["d"]["circuit"] == "isolated"
    assert answered(app, "app/d/circuit/set", b'{"action": "close"}')["data"]["circuit"] == "closed"
    app.run("2m")

    assert len(sensor.calls) >= 4
    assert app.statuses("d")[-1] == "ok"


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
    app._serving = None


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
