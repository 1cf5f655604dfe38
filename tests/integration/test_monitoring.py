"""What whoever watches sees of a device that fails, retries, waits or is left alone on purpose: heartbeat, inspect,
log."""

import asyncio
import contextlib
import itertools
import json
import logging

import pytest
from tests.integration.test_introspection import strictly

from leadsman import UNTIL_NEXT_POLL, App, CircuitBreaker, FixedBackoff, OnChange, RetryRequested
from leadsman.core.introspection.declared import documents_of
from leadsman.core.monitoring.document import Status
from leadsman.core.monitoring.log_format import Json
from leadsman.extensions.trace.trace import ROWS
from leadsman.testing import Outages, Scripted, fail

READING = {"t": 21.5}
STEADY = FixedBackoff(19, jitter=0)


def app_with(handler, **words):
    app = App("app")
    app.add_telemetry("d", handler, **{"interval": "25m", **words})
    return app


def device(running):
    return strictly(Status, running.status())["devices"]["d"]


def runtime(running):
    running.broker.send("app/introspect", b"")
    running.run("100ms")
    data = running.broker.messages("app/introspect/response")[-1].json["data"]
    return strictly(documents_of().introspection, data)["devices"]["d"]["runtime"]


def lines(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "leadsman"]


# A device that was never read


def test_a_device_that_never_answered_is_reported_with_its_first_failed_call(harness, caplog):
    running = harness(app_with(Scripted(fail(999)), retry=UNTIL_NEXT_POLL))

    running.run("1500ms")

    assert running.status()["health"] == "degraded"
    assert device(running)["status"] == "error"
    assert device(running)["last_error"] == "OSError: scripted"
    assert any("d: the first call failed: OSError: scripted (again in 2." in line for line in lines(caplog))
    assert running.availability("d") == ["online"]


def test_the_error_topic_hears_of_it_within_seconds_not_after_a_minute(harness):
    running = harness(app_with(Scripted(fail(999)), retry=UNTIL_NEXT_POLL))

    running.run("20s")

    (onset,) = running.errors("d")
    assert (onset["event"], onset["failures"], onset["since"]) == ("onset", 0, "2026-01-01T00:00:00.000Z")
    assert onset["retry_in"] > 0


def test_a_first_reading_that_took_a_retry_is_a_line_and_no_outage(harness, caplog):
    caplog.set_level(logging.INFO, "leadsman")
    running = harness(app_with(Scripted(fail(1), READING), retry=3))

    running.run("1m")

    assert running.errors("d") == []
    assert running.statuses("d") == ["starting", "error", "ok"]
    assert "d: answered for the first time, 2s after the first call failed" in lines(caplog)


# The poll under way


def test_heartbeat_and_inspect_show_the_calls_that_failed_in_the_poll_under_way(harness):
    running = harness(app_with(Scripted(READING, fail(999)), interval="5m", retry=UNTIL_NEXT_POLL, backoff=STEADY))

    running.run("331s")

    shown = runtime(running)["poll_under_way"]
    assert shown["failed_calls"] == 2
    assert shown["last_error"] == "OSError: scripted"
    assert shown["next_call_at"] == "2026-01-01T00:05:38.000Z"
    assert device(running) == {"status": "ok", "poll_under_way": shown}


def test_a_poll_that_succeeded_is_no_longer_under_way(harness):
    running = harness(app_with(Scripted(READING, fail(2), READING), interval="5m", retry=3))

    running.run("6m")

    assert runtime(running)["poll_under_way"] is None
    assert device(running) == {"status": "ok"}


# Since when


@pytest.fixture
def ladder(harness):
    """A device that fails from 60 s on, four calls 19 s apart, and answers again at 120 s."""
    handler = Scripted({"t": 1}, fail(4), {"t": 1})
    return harness(app_with(handler, interval="1m", retry=3, backoff=STEADY))


def test_an_outage_is_as_long_as_from_its_first_failed_call_to_the_reading(ladder):
    ladder.run("5m")

    onset, recovered = ladder.errors("d")
    assert (onset["since"], onset["outage_seconds"]) == ("2026-01-01T00:01:00.000Z", 57.0)
    assert (recovered["since"], recovered["outage_seconds"]) == ("2026-01-01T00:01:00.000Z", 60.0)


def test_heartbeat_inspect_and_error_topic_say_the_same_since(ladder):
    ladder.run("119s")

    since = "2026-01-01T00:01:00.000Z"
    assert device(ladder)["failing_since"] == since
    assert runtime(ladder)["failing_since"] == since
    assert ladder.errors("d")[0]["since"] == since


def test_a_circuit_that_is_closed_by_hand_ends_no_outage(harness):
    running = harness(app_with(Scripted(fail(999)), interval="1m", circuit_breaker=CircuitBreaker(1)))
    running.run("90s")

    running.broker.send("app/d/circuit/set", b'{"action": "close", "by": "ann"}')
    running.run("10m")

    assert device(running)["failing_since"] == "2026-01-01T00:00:00.000Z"
    assert "recovered" not in {row.reason for row in running.app.trace("d")}


# Deferred


def deferred(harness, **words):
    handler = Scripted(READING, fail(1, RetryRequested("1h", "rate limited")), READING)
    return harness(app_with(handler, **{"interval": "1m", **words}))


def test_a_deferral_is_shown_with_its_end_and_its_reason(harness):
    running = deferred(harness)
    running.run("90s")

    shown = device(running)

    assert shown["status"] == "deferred"
    assert shown["deferred_until"] == "2026-01-01T01:01:00.000Z"
    assert shown["deferred_reason"] == "rate limited"
    assert shown["next_poll_at"] == "2026-01-01T01:01:00.000Z"
    assert running.status()["health"] == "ok"
    assert (runtime(running)["status"], runtime(running)["deferred_reason"]) == ("deferred", "rate limited")


def test_a_device_that_asked_to_wait_does_not_turn_into_a_fault_while_it_waits(harness):
    running = deferred(harness)

    running.run("62m")

    assert running.statuses("d") == ["starting", "ok", "deferred", "ok"]
    assert {message.json["health"] for message in running.broker.messages("app/status")} == {"ok"}
    assert running.errors("d") == []


def test_it_is_offline_once_its_reading_is_stale_since_none_is_about_to_come(harness):
    running = deferred(harness)

    running.run("10m")
    assert device(running)["stale"] is True
    assert running.availability("d") == ["online", "offline"]

    running.run("52m")
    assert running.availability("d") == ["online", "offline", "online"]


def test_a_device_that_gives_no_sign_after_its_deferral_is_stale(harness):
    handler = Scripted(READING, fail(1, RetryRequested("10m")))
    app = App("app")
    calls = 0

    @app.telemetry("d", interval="1m", timeout=None)
    async def d():
        nonlocal calls
        calls += 1
        if calls > 2:
            await running.loop.create_future()
        return await handler()

    running = harness(app)
    running.run("30m")

    assert running.statuses("d")[-2:] == ["deferred", "stale"]


def test_a_source_that_asks_for_a_pause_of_an_hour_is_deferred_meanwhile(harness):
    app = App("app")

    @app.source("d", silence=None, stale_after="5m")
    async def d():
        yield READING
        raise RetryRequested("1h", "maintenance")

    running = harness(app)
    running.run("10m")

    assert running.statuses("d")[-1] == "deferred"
    assert device(running)["deferred_reason"] == "maintenance"


def test_the_trace_says_for_how_long_a_device_is_deferred_and_why(harness):
    running = deferred(harness)
    running.run("2m")

    (row,) = running.app.trace("d")

    assert (row.reason, row.delay, row.error_message) == ("deferred", 3600.0, "rate limited")


# Circuits


def test_a_probe_is_seen_in_the_heartbeat(harness):
    app = App("app")
    started = []

    @app.telemetry("d", interval="1m", circuit_breaker=CircuitBreaker(1))
    async def d():
        started.append(running.now)
        if len(started) > 1:
            await running.loop.create_future()
        raise OSError("away")

    running = harness(app)
    running.run("122s")

    assert len(started) == 2
    assert device(running)["circuit"] == "half_open"


def test_what_a_person_does_to_a_circuit_is_logged_and_traced_with_who_asked(harness, caplog):
    caplog.set_level(logging.INFO, "leadsman")
    running = harness(app_with(Scripted(READING)))
    running.run("1s")

    running.broker.send("app/d/circuit/set", b'{"action": "isolate", "by": "ann@desk"}')
    running.run("1s")
    running.broker.send("app/d/circuit/set", b"close", response_topic="app/answers/bob")
    running.run("1s")

    said = [line for line in lines(caplog) if "(requested by" in line]
    assert "isolated" in said[0]
    assert said[0].endswith("(requested by ann@desk)")
    assert said[1].endswith("(requested by somebody at app/answers/bob)")
    rows = [(row.reason, row.by) for row in running.app.trace("d")]
    assert rows == [
        ("asked to isolate the circuit", "ann@desk"),
        ("circuit isolated", None),
        ("asked to close the circuit", "somebody at app/answers/bob"),
        ("circuit closed", None),
    ]


def test_a_device_that_is_isolated_on_purpose_is_offline_but_no_fault(harness):
    running = harness(app_with(Scripted(READING), interval="1m"))
    running.run("90s")

    running.broker.send("app/d/circuit/set", b"isolate")
    running.run("1h")

    assert device(running)["status"] == "isolated"
    assert running.availability("d") == ["online", "offline"]
    assert running.status()["health"] == "ok"


def test_an_app_that_has_stopped_does_not_say_that_it_is_well(harness):
    running = harness(app_with(Scripted(READING)))
    running.run("1m")

    running.stop()

    assert (running.status()["state"], running.status()["health"]) == ("offline", "degraded")


# Counters


def test_calls_retries_and_failures_are_counted_since_the_start(harness):
    running = harness(app_with(Scripted(READING, fail(1), READING, fail(2), READING), interval="1m", retry=1))

    running.run("210s")

    assert runtime(running)["counters"] == {
        "polls": 4,
        "failed_polls": 1,
        "retried_polls": 1,
        "calls": 6,
        "failed_calls": 3,
        "retries": 2,
        "opens": 0,
        "deferrals": 0,
        "missed_polls": 0,
        "published": 3,
    }


def test_a_device_whose_polls_succeed_only_after_retries_is_named_and_named_again_when_it_is_steady(harness, caplog):
    caplog.set_level(logging.INFO, "leadsman")
    flaky = [each for _ in range(30) for each in (fail(1), READING)]
    running = harness(app_with(Scripted(READING, *flaky, READING), interval="1m", retry=2))

    running.run("2h")

    assert [line for line in lines(caplog) if "polls needed retries" in line] == [
        "d: flaky: 10 of its last 20 polls needed retries, the last one after OSError: scripted",
        "d: no longer flaky: 2 of its last 20 polls needed retries",
    ]
    assert running.errors("d") == []


@pytest.fixture
def flakiness(harness, caplog):
    """The numbers of the polls after which a device is reported as flaky or as steady again, by whether each poll
    needed a retry."""
    caplog.set_level(logging.INFO)

    def flakiness(retried, seconds=60):
        steps = [step for needed in retried for step in [OSError("no answer")] * needed + [READING]]
        running, found = harness(app_with(Scripted(*steps), interval=seconds, retry=1, backoff=FixedBackoff(1))), []
        running.run(5)
        for number in range(1, len(retried) + 1):
            for text, word in (("d: no longer flaky", "steady"), ("d: flaky", "flaky")):
                found += [(number, word)] * (text in caplog.text)
            caplog.clear()
            running.run(seconds)
        return found

    return flakiness


def test_a_device_is_flaky_once_half_of_its_last_polls_needed_retries(flakiness):
    assert flakiness([True, False] * 20)[0] == (19, "flaky")


def test_it_is_flaky_until_nearly_none_does(flakiness):
    assert flakiness([True] * 10 + [False] * 20) == [(10, "flaky"), (28, "steady")]


def test_a_device_that_needs_a_retry_at_every_third_poll_is_not_flaky(flakiness):
    assert flakiness([True, False, False] * 100) == []


def test_one_that_changes_its_mind_is_reported_once_an_hour(flakiness):
    found = flakiness(([True] * 10 + [False] * 20) * 20, seconds=10)

    flaky = [number for number, word in found if word == "flaky"]
    assert all(after - before >= 360 for before, after in itertools.pairwise(flaky))
    assert len(flaky) >= 2


def test_a_device_that_needs_a_retry_now_and_then_is_not_flaky(harness, caplog):
    now_and_then = [each for _ in range(30) for each in (fail(1), READING, READING, READING)]
    running = harness(app_with(Scripted(READING, *now_and_then, READING), interval="1m", retry=2))

    running.run("2h")

    assert lines(caplog) == []


# How much is logged


CAUSES = ["status 500", "status 401", "a web page", "no answer", "connection refused", "a reading without a number"]


def test_each_short_outage_has_its_cause_in_the_log_however_many_lines_there_are(harness, caplog):
    """Each outage opens the circuit, and has a recovery: four lines."""
    caplog.set_level(logging.INFO, "leadsman")
    outages = [step for cause in CAUSES for step in (fail(3, OSError(cause)), READING, READING)]
    running = harness(
        app_with(
            Scripted(*outages), interval="1s", circuit_breaker=CircuitBreaker(3, recovery=FixedBackoff(1, jitter=0))
        )
    )
    running.run("1m")

    about = [line for line in lines(caplog) if line.startswith("d: ")]
    onsets = [error["message"] for error in running.errors("d") if error["event"] == "onset"]
    assert onsets == CAUSES
    assert [cause for cause in CAUSES if not any(f"failing: OSError: {cause}" in line for line in about)] == []
    assert "lines about it left out before this one" in "".join(about)


@pytest.mark.slow
def test_a_device_that_fails_now_and_then_has_a_bounded_log_and_the_rest_is_counted(harness, caplog):
    caplog.set_level(logging.INFO, "leadsman")
    app = App("app")
    calls = 0

    @app.telemetry("d", interval=0.2)
    async def d():
        nonlocal calls
        calls += 1
        if calls % 10 == 5:
            raise OSError("now and then")
        return READING

    running = harness(app)
    running.run("30m")

    about = [line for line in lines(caplog) if line.startswith("d: ")]
    assert len(about) <= 6 * 31
    assert sum("lines about it left out before this one" in line for line in about) >= 28
    assert len([error for error in running.errors("d") if error["event"] == "onset"]) > 800


# Bugs


def test_a_bug_in_a_handler_has_its_place_and_its_traceback_once(harness, caplog):
    app = App("app")

    def parsed(answer):
        return answer["y"]

    @app.telemetry("d", interval="1m", retry=3)
    async def d():
        return parsed({})

    running = harness(app)
    running.run("30m")

    first = lines(caplog)[0].splitlines()
    assert first[0].startswith("d: failing: KeyError: 'y' (test_monitoring.py:")
    assert "errors of this kind are not retried" in first[0]
    assert "in d" in first[1]
    assert any("in parsed" in line for line in first)
    assert not any("retry_loop.py" in line for line in first)
    assert sum("in parsed" in line for line in lines(caplog)) == 1
    assert "(test_monitoring.py:" in running.errors("d")[0]["message"]


def test_a_device_that_is_away_needs_no_traceback(harness, caplog):
    running = harness(app_with(Outages(READING, [("0s", "10m")]), interval="1m"))

    running.run("5m")

    assert not any("File" in line for line in lines(caplog))


def test_a_handler_that_hangs_for_good_is_reported_with_where_it_waits(harness):
    app = App("app")

    async def stuck():
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(600)

    @app.telemetry("d", interval="1m", timeout="5s")
    async def d():
        await stuck()

    running = harness(app)
    running.run("20s")

    [message] = [error["message"] for error in running.errors("d")]
    assert message.startswith("still running 5s after its timeout of 5s; it is not called again while it runs")
    assert message.endswith(f"(test_monitoring.py:{stuck.__code__.co_firstlineno + 3})")


# Why it gave up


def test_the_log_and_the_error_topic_say_that_the_budget_ended_the_retries(harness, caplog):
    running = harness(app_with(Scripted(READING, fail(999)), interval="1m", retry=99, budget="12s"))

    running.run("2m")

    assert running.errors("d")[0]["reason"] == "budget"
    assert any("calls, gave up: the budget is used up)" in line for line in lines(caplog))


# Answers


def test_a_poll_that_is_refused_is_answered_and_logged_though_nobody_named_a_topic(harness, caplog):
    caplog.set_level(logging.INFO, "leadsman")
    running = harness(app_with(Scripted(fail(9)), interval="1m", on_failure="hold"))
    running.run("1s")

    running.broker.send("app/d/get", b'{"transaction": 1}')
    running.run("1s")

    answer = running.broker.messages("app/d/get/response")[-1].json
    assert (answer["status"], answer["transaction"]) == ("error", 1)
    assert "held" in answer["error"]
    assert any(line.startswith("app/d/get: the device is held") for line in lines(caplog))


@pytest.mark.parametrize("topic", ["app/introspect", "app/d/circuit/set", "app/d/release/set"])
def test_a_request_whose_answer_may_not_go_where_it_wants_is_answered_below_its_own_topic(harness, caplog, topic):
    running = harness(app_with(Scripted(READING)))
    running.run("1s")

    running.broker.send(topic, b'{"action": "isolate"}' if "circuit" in topic else b"", response_topic="other/answers")
    running.run("1s")

    assert len(running.broker.messages(f"{topic}/response")) == 1
    assert running.broker.messages("other/answers") == []
    assert any(
        f"The request at {topic} is answered at {topic}/response instead of its response topic: the response topic"
        in line
        for line in lines(caplog)
    )


def test_every_answer_says_when_it_was_given(harness):
    running = harness(app_with(Scripted(READING)))
    running.run("1s")

    running.broker.send("app/introspect", b"")
    running.run("1s")

    assert running.broker.messages("app/introspect/response")[-1].json["at"] == "2026-01-01T00:00:01.000Z"


# Start, and each call


def test_the_log_begins_with_what_is_started_and_with_what(harness, caplog):
    caplog.set_level(logging.INFO, "leadsman")
    app = app_with(Scripted(READING))
    app.add_telemetry("other", Scripted(READING), interval="1m")

    harness(app).run("1s")

    first = lines(caplog)[0]
    assert first.startswith("app starts with leadsman ")
    assert first.endswith(": 2 devices, broker mqtt://localhost:1883, topics below app/, no settings file")


def test_the_log_begins_with_how_many_of_each_kind_there_are(harness, caplog):
    caplog.set_level(logging.INFO, "leadsman")
    app = app_with(Scripted(READING))

    @app.source("air")
    async def air():
        yield READING
        await asyncio.Event().wait()

    @app.command("lamp")
    async def lamp(on: bool) -> None: ...

    @app.subscribe("others/+")
    async def others(payload: str) -> None: ...

    harness(app).run("1s")

    assert ": 3 devices, 1 source, 1 command, 1 subscription, broker mqtt" in lines(caplog)[0]


def test_the_first_reading_of_each_device_is_logged_once_and_not_after_an_outage(harness, caplog):
    caplog.set_level(logging.INFO, "leadsman")
    app = app_with(Scripted(READING, fail(2), READING), interval="1m")
    app.add_telemetry("other", Scripted(READING), interval="1m")

    harness(app).run("10m")

    first = [line for line in lines(caplog) if "first reading" in line]
    assert first == ["d: first reading, app/d/state", "other: first reading, app/other/state"]
    assert [line for line in lines(caplog) if "recovered" in line]


def test_a_device_whose_first_call_fails_is_read_for_the_first_time_in_one_line(harness, caplog):
    caplog.set_level(logging.INFO, "leadsman")
    harness(app_with(Scripted(fail(1), READING), interval="1m", retry=UNTIL_NEXT_POLL)).run("10m")

    assert len([line for line in lines(caplog) if "first reading" in line or "for the first time" in line]) == 1


@pytest.mark.parametrize(
    ("script", "before"),
    [
        ((None, None, READING), []),
        ((fail(1), None, READING), ["d: answered for the first time, 2s after the first call failed"]),
        ((RetryRequested(delay=50), READING), []),
    ],
)
def test_a_poll_that_gives_no_reading_is_no_first_reading(harness, caplog, script, before):
    caplog.set_level(logging.INFO, "leadsman")
    running = harness(app_with(Scripted(*script), interval="1m", retry=1))

    running.run("30s")
    assert [line for line in lines(caplog) if "first reading" in line or "first time" in line] == before

    running.run("2m")
    assert "d: first reading, app/d/state" in lines(caplog)


def test_a_source_that_yields_none_has_no_first_reading(harness, caplog):
    caplog.set_level(logging.INFO, "leadsman")
    app = App("app")

    @app.source("door")
    async def door():
        yield None
        await asyncio.sleep(60)
        yield READING
        await asyncio.Event().wait()

    running = harness(app)

    running.run("30s")
    assert [line for line in lines(caplog) if "first reading" in line] == []

    running.run("1m")
    assert "door: first reading, app/door/state" in lines(caplog)


def test_of_many_devices_some_first_readings_are_logged(harness, caplog):
    caplog.set_level(logging.INFO, "leadsman")
    app = App("app")
    for number in range(30):
        app.add_telemetry(f"d{number:02}", Scripted(READING), interval="1m")

    harness(app).run("5m")

    first = [line for line in lines(caplog) if "first reading" in line]
    assert len(first) == 20
    assert first[-1].endswith("; those of further devices are not logged")


def test_a_side_job_has_no_first_reading(harness, caplog):
    caplog.set_level(logging.INFO, "leadsman")
    app = app_with(Scripted(READING))

    @app.periodic("tidy", interval="1m")
    async def tidy() -> None: ...

    harness(app).run("5m")

    assert len([line for line in lines(caplog) if "first reading" in line]) == 1


def test_after_a_restart_the_log_says_which_devices_were_failing_already_and_since_when(harness, caplog, tmp_path):
    caplog.set_level(logging.INFO, "leadsman")
    for _ in range(2):
        caplog.clear()
        app = App("app", keep_state=True)
        app.add_telemetry("d", Scripted(fail(99)), interval="1m")
        running = harness(app, state_directory=tmp_path)
        running.run("150s")
        running.stop()

    assert lines(caplog)[1] == "d: still failing since 2026-01-01T00:00:00.000Z: OSError: scripted"


def test_an_outage_that_a_restart_interrupts_keeps_its_beginning(harness, tmp_path):
    sensor = Scripted(READING, fail(99))
    for _ in range(2):
        app = App("app", keep_state=True)
        app.add_telemetry("d", sensor, interval="1m", retry=1, backoff=STEADY)
        running = harness(app, state_directory=tmp_path)
        running.run("90s")
        running.stop()

    since = running.errors("d")[-1]["since"] if running.errors("d") else None
    assert since in (None, "2026-01-01T00:01:00.000Z")
    assert device(running)["failing_since"] == "2026-01-01T00:01:00.000Z"


def test_at_debug_each_successful_poll_has_a_line_with_what_it_read(harness, caplog):
    caplog.set_level(logging.DEBUG, "leadsman")
    running = harness(app_with(Scripted({"t": 21.5, "h": 40}), interval="1m"))

    running.run("90s")

    assert lines(caplog).count("d: poll succeeded in 0.000 s") == 2
    assert lines(caplog).count("d: published 2 fields in 17 bytes: t, h") == 2


def test_at_debug_a_reading_that_is_not_published_says_so(harness, caplog):
    caplog.set_level(logging.DEBUG, "leadsman")
    running = harness(app_with(Scripted(READING), interval="1m", publish=OnChange(1)))

    running.run("90s")

    assert "d: not published, because of its publish rule: 1 field in 10 bytes: t" in lines(caplog)


def test_at_debug_a_failed_call_has_its_type_and_a_verdict_in_words(harness, caplog):
    caplog.set_level(logging.DEBUG, "leadsman")
    running = harness(app_with(Scripted(READING, fail(2)), interval="1m", retry=1, backoff=STEADY))

    running.run("90s")

    assert "d: call 1 failed: OSError: scripted (again in 19.0 s)" in lines(caplog)
    assert "d: call 2 failed: OSError: scripted (gave up: no retries left)" in lines(caplog)


def test_json_logs_have_the_facts_of_a_line_in_fields(harness, caplog):
    running = harness(app_with(Scripted(fail(9)), interval="1m"))
    running.run("1s")

    record = next(record for record in caplog.records if record.getMessage().startswith("d: failing"))
    shown = json.loads(Json().format(record))

    assert (shown["device"], shown["event"], shown["error_type"]) == ("d", "onset", "OSError")
    assert shown["message"] == "d: failing: OSError: scripted"


# Rows of the trace


@pytest.mark.slow
def test_a_device_that_fails_each_second_takes_no_row_from_another(harness):
    app = App("app")
    app.add_telemetry("busy", Scripted(fail(9999)), interval="1s")
    app.add_telemetry("d", Scripted(fail(1), READING), interval="1m")

    harness(app).run("1h")

    assert [row.reason for row in app.trace("d")] == ["count", "recovered"]
    assert len(app.trace("busy")) == ROWS


def test_a_shared_circuit_that_is_probed_for_hours_leaves_the_beginning_of_the_outage_in_the_trace(harness):
    app, shared = App("app"), CircuitBreaker(2, shared="bus")
    for number in range(8):
        app.add_telemetry(f"d{number}", Scripted(fail(9999)), interval="30s", circuit_breaker=shared)

    harness(app).run("1h")

    rows = [row.reason for row in app.trace("d7")]
    own = ["circuit half_open", "probe", "circuit open"]  # of the probes of others there is nothing
    assert rows == ["count", "count", *(["circuit open", *own * 20][: len(rows) - 2])]
    assert 30 <= len(rows) <= 45  # each of them probes once in nine polls
