"""A device asks for a pause beyond its next poll: it is polled once when the pause ends, and on its grid after it."""

import itertools
import logging
import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leadsman import UNTIL_NEXT_POLL, App, CircuitBreaker, Context, Cron, FixedBackoff, RetryRequested
from leadsman.core.introspection.why import why
from leadsman.testing import Harness, Scripted, fail, hang
from leadsman.testing.loop import START
from leadsman_rigs.examples import examples

READING = {"t": 21.5}


def app_with(handler, **words):
    app = App("app", keep_state=words.pop("keep_state", False))
    app.add_telemetry("d", handler, **words if "schedule" in words else {"interval": "25m", **words})
    return app


def asked(times, delay, reason="HTTP 429"):
    return fail(times, RetryRequested(delay, reason))


def look(running):
    running.broker.send("app/introspect", {"sections": ["app", "devices", "adapters", "mqtt"]})
    running.run(0.2)
    return running.broker.messages("app/introspect/response")[-1].json["data"]


@pytest.mark.parametrize(
    ("interval", "delay", "calls"),
    [
        ("25m", "24m", [0, 24 * 60, 25 * 60, 50 * 60]),
        ("25m", "26m", [0, 26 * 60, 50 * 60, 75 * 60]),
        ("20s", 13, [0, 13, 20, 40]),
        ("20s", 25, [0, 25, 40, 60]),
        ("5s", 7, [0, 7, 10, 15]),
        ("10s", 10, [0, 10, 20, 30]),
    ],
)
@pytest.mark.parametrize("words", [{}, {"retry": UNTIL_NEXT_POLL}, {"circuit_breaker": CircuitBreaker(1)}])
def test_a_device_is_polled_when_its_pause_ends_and_then_on_its_grid(harness, interval, delay, calls, words):
    sensor = Scripted(asked(1, delay), READING)

    harness(app_with(sensor, interval=interval, **words)).run(calls[-1] + 1)

    assert [round(call, 1) for call in sensor.calls] == calls


def test_so_is_one_with_a_cron_schedule(harness):
    sensor = Scripted(asked(1, "90m"), READING)

    harness(app_with(sensor, schedule=Cron("0 * * * *", zone="UTC"))).run("5h")

    assert [round(call) for call in sensor.calls] == [3600, 9000, 10800, 14400, 18000]


def test_one_that_asks_again_at_the_end_waits_again(harness):
    sensor = Scripted(asked(3, "26m"), READING)

    harness(app_with(sensor)).run("110m")

    assert [round(call / 60) for call in sensor.calls] == [0, 26, 52, 78, 100]


@pytest.mark.parametrize(
    ("throttle", "calls"), [("1s", [0, 18.5, 20, 30]), ("2s", [0, 20, 30]), (0, [0, 18.5, 20, 30])]
)
def test_a_poll_of_the_schedule_within_the_throttle_takes_its_place(harness, throttle, calls):
    sensor = Scripted(asked(1, 18.5), READING)

    running = harness(app_with(sensor, interval=10, throttle=throttle))
    running.run(1)
    assert look(running)["devices"]["d"]["runtime"]["next_poll_at"] == f"2026-01-01T00:00:{calls[1]:06.3f}Z"
    running.run(30)

    assert [round(call, 1) for call in sensor.calls] == calls


def test_a_request_after_it_is_throttled_like_one_after_another_request(harness):
    sensor = Scripted(asked(1, "26m"), READING)
    running = harness(app_with(sensor, throttle="1m"))
    running.at("26m10s", lambda: running.broker.send("app/d/get", b""))

    running.run("27m")

    assert [round(call / 60) for call in sensor.calls] == [0, 26]


def test_a_person_who_ends_the_pause_before_costs_no_second_poll(harness):
    sensor = Scripted(asked(1, "26m"), READING)
    running = harness(app_with(sensor))
    running.at("5m", lambda: running.broker.send("app/d/circuit/set", {"action": "close"}))

    running.run("49m")

    assert [round(call / 60) for call in sensor.calls] == [0, 25]


def test_one_that_is_held_meanwhile_is_not_polled(harness):
    sensor = Scripted(asked(1, "26m"), READING)
    running = harness(app_with(sensor))
    running.at("5m", lambda: running.broker.send("app/d/hold/set", {}))

    running.run("49m")

    assert len(sensor.calls) == 1


@pytest.mark.parametrize("words", [{"budget": "30s"}, {"within": "30s"}])
def test_one_whose_budget_is_used_up_is_polled_on_schedule_only(harness, words):
    sensor = Scripted(asked(99, "26m"), READING)
    running = harness(app_with(sensor, **words))

    running.run("10m")
    assert look(running)["devices"]["d"]["runtime"]["next_poll_at"] == "2026-01-01T00:50:00.000Z"
    running.run("70m")

    assert [round(call / 60) for call in sensor.calls] == [0, 50]


def test_one_whose_circuit_is_open_is_probed_on_schedule_only(harness):
    sensor = Scripted(READING, fail(2), asked(1, 25), READING)
    running = harness(app_with(sensor, interval=10, circuit_breaker=CircuitBreaker(2)))

    running.run("3m")

    assert all(call % 10 == 0 for call in sensor.calls)


def test_a_pause_goes_on_over_a_restart(tmp_path):
    sensor = Scripted(asked(1, "26m"), READING)
    app = app_with(sensor, keep_state=True)
    with Harness(app, state_directory=tmp_path) as running:
        running.run("10m")
    with Harness(app, state_directory=tmp_path, wall=START + 600) as on:
        on.run("24m")

    assert [round(call / 60) for call in sensor.calls] == [0, 16]


def test_the_poll_at_the_end_may_use_its_retries_until_the_next_slot(harness):
    sensor = Scripted(asked(1, "26m"), fail(2), READING)

    harness(app_with(sensor, retry=3, backoff=FixedBackoff(10, jitter=0))).run("30m")

    assert [round(call) for call in sensor.calls] == [0, 1560, 1570, 1580]


def test_the_documents_name_the_pause_until_its_poll_has_ended(harness):
    sensor = Scripted(READING, asked(1, 11), hang(20), READING)
    running = harness(app_with(sensor, interval=10, stale_after="5m", timeout="30s"))
    running.run(15)

    document = look(running)
    verdict = why("d", document)
    assert document["devices"]["d"]["runtime"]["next_poll_at"] == "2026-01-01T00:00:21.000Z"
    assert verdict["summary"] == "the device asked for a pause: HTTP 429"
    assert any("next poll is due at 2026-01-01 00:00:21Z" in line for line in verdict["evidence"])

    running.run(10)
    verdict = why("d", look(running))
    assert verdict["summary"] == "the device asked for a pause: HTTP 429"
    assert "a poll is under way" in verdict["evidence"]
    assert not any("None" in line for line in verdict["evidence"])
    report = running.status()["devices"]["d"]
    assert (report["status"], report["deferred_reason"]) == ("deferred", "HTTP 429")


@settings(max_examples=examples(20))
@given(
    st.floats(1, 60).map(lambda number: round(number, 1)),
    st.lists(st.none() | st.floats(0.5, 100).map(lambda number: round(number, 1)), min_size=1, max_size=6),
    st.sampled_from([0, 1, 5]),
)
def test_no_device_is_read_in_its_pause_nor_long_after_it_nor_twice_within_the_throttle(interval, pauses, throttle):
    calls, ends = [], []
    app = App("app")

    @app.telemetry("d", interval=interval, throttle=throttle)
    async def read(context: Context):
        now = running.now
        calls.append(now)
        pause = pauses[len(calls) - 1] if len(calls) <= len(pauses) else None
        if pause is None:
            return READING
        ends.append((now, now + pause))
        raise RetryRequested(pause)

    with Harness(app) as running:
        running.run(1000)
    at_the_end_of_a_pause = {next(call for call in calls if call > since) for since, _ in ends}
    by_schedule = [call for call in calls if call not in at_the_end_of_a_pause]
    for since, until in ends:
        following = next(call for call in calls if call > since)
        assert until - 0.01 <= following <= until + max(throttle, 0.1) + 0.1
        if math.floor(until / interval) > math.floor(since / interval):  # beyond the next poll
            near = any(following < other < following + throttle - 0.11 for other in by_schedule)
            assert not near or throttle > interval


def test_a_pause_has_a_line_in_the_log_when_it_begins_and_one_an_hour_if_there_are_more(harness, caplog):
    caplog.set_level(logging.INFO)
    sensor = Scripted(READING, asked(1000, "3m", "HTTP 429"), READING)
    running = harness(app_with(sensor, interval="1m"))

    running.run("150m")

    lines = [each for each in caplog.messages if "asked for a pause" in each]
    assert len(lines) == 3
    assert lines[0].startswith("d: the device asked for a pause of 3m, until ")
    assert lines[0].endswith(": HTTP 429")
    assert "pauses since the last such line" in lines[1]


def test_a_short_pause_within_a_poll_has_one_too(harness, caplog):
    caplog.set_level(logging.INFO)

    harness(app_with(Scripted(asked(1, 30), READING))).run("1m")

    assert any("asked for a pause of 30s, until " in each for each in caplog.messages)


@pytest.mark.parametrize("gives_up", [RuntimeError, OSError])
@pytest.mark.parametrize("words", [{}, {"retry": 2}, {"interval": "1h"}])
def test_a_handler_that_gives_up_after_some_requests_asks_its_device_again(harness, gives_up, words):
    calls, away = [], True
    app = App("app")

    @app.telemetry("d", **{"interval": "1m", **words})
    async def read(context: Context):
        if context.attempts > 5:
            raise gives_up("give up")
        calls.append(running.now)
        if away:
            raise RetryRequested(2**context.attempts)
        return READING

    running = harness(app)
    running.run("2h")
    asked_while_away = len(calls)
    away = False
    running.run("3h")

    assert asked_while_away > 6
    assert len(running.states("d")) >= 2
    assert "RetryRequested" not in {error["type"] for error in running.errors("d")}
    assert all(after - before <= 3700 for before, after in itertools.pairwise(calls))


@pytest.mark.parametrize("delay", [1e12, 1e300, 4e9])
def test_a_pause_of_many_years_lasts_one_and_breaks_no_document(harness, delay):
    running = harness(app_with(Scripted(asked(1, delay), READING), interval="1h"))
    running.run("2h")

    until = datetime.fromisoformat(look(running)["devices"]["d"]["runtime"]["deferred_until"])
    assert timedelta(days=364) < until - datetime.fromtimestamp(START, UTC) < timedelta(days=367)
