import asyncio
import itertools
import logging
import random

import pytest

from leadsman import App, CircuitBreaker, ExponentialBackoff, FixedBackoff
from leadsman.core.loop.durations import human
from leadsman.testing import Outages, Scripted, fail, hang

READING = {"t": 21.5}
STEADY = ExponentialBackoff(jitter=0)


def app_with(handler, **words):
    app = App("app")
    app.add_telemetry("d", handler, **{"interval": "25m", **words})
    return app


def gaps(calls):
    return [round(after - before, 1) for before, after in itertools.pairwise(calls)]


def test_one_failed_read_costs_seconds_not_the_interval(harness):
    sensor = Scripted(fail(1), READING)

    harness(app_with(sensor, retry=3)).run("1m")

    assert len(sensor.calls) == 2
    assert sensor.calls[1] <= 2.5


def test_retry_three_is_four_calls_with_waits_of_two_four_and_eight_seconds(harness):
    sensor = Scripted(fail(99))

    harness(app_with(sensor, retry=3, backoff=STEADY)).run("24m")

    assert gaps(sensor.calls) == [2, 4, 8]


def test_an_outage_over_polls_goes_on_backing_off_without_a_hole(harness):
    sensor = Scripted(fail(99))

    harness(app_with(sensor, retry=3, backoff=STEADY)).run("74m")

    waits = [gap for gap in gaps(sensor.calls) if gap <= 60]
    assert waits == [2, 4, 8, 16, 32, 60, 60, 60, 60]


def test_a_success_begins_the_waits_anew(harness):
    sensor = Scripted(fail(3), READING, fail(2), READING)

    harness(app_with(sensor, retry=3, backoff=STEADY)).run("50m")

    assert gaps(sensor.calls)[:3] == [2, 4, 8]
    assert gaps(sensor.calls)[4:6] == [2, 4]


def test_retries_in_between_are_neither_published_nor_counted_as_failures(harness):
    app = harness(app_with(Scripted(READING, fail(3), READING), retry=3))

    app.run("26m")

    assert app.errors("d") == []
    assert app.states("d") == [READING, READING]
    assert app.statuses("d") == ["starting", "ok"]


@pytest.mark.parametrize("interval", [30, 60, 300])
def test_retrying_never_makes_fewer_calls_than_polling_alone_nor_larger_gaps(harness, interval):
    outage = [("1m", "121m")]
    alone, retried = Outages(READING, outage), Outages(READING, outage)

    harness(app_with(alone, interval=interval)).run("3h")
    harness(app_with(retried, interval=interval, retry=3)).run("3h")

    assert len(retried.calls) >= len(alone.calls)
    assert max(gaps(retried.calls)) <= interval
    assert set(alone.calls) <= set(retried.calls)


def test_overrun_finish_lets_the_retries_delay_the_next_poll(harness):
    sensor = Scripted(fail(3), READING)

    harness(app_with(sensor, interval=5, retry=3, backoff=FixedBackoff(4, jitter=0), overrun="finish", timeout=5)).run(
        "21s"
    )

    assert [round(call, 1) for call in sensor.calls] == [0, 4, 8, 12, 15, 20]


def test_what_is_no_transient_error_is_not_retried(harness):
    sensor = Scripted(fail(1, ValueError("a bug")), READING)

    harness(app_with(sensor, retry=3)).run("10m")

    assert len(sensor.calls) == 1


@pytest.mark.slow
def test_two_days_without_a_device_leave_the_poller_alive(harness):
    sensor = Outages(READING, [("0s", "48h")])
    app = harness(app_with(sensor, interval=30, retry=3))

    app.run("48h")
    app.run("1m")

    assert len(sensor.calls) > 5760
    assert app.states("d") != []
    assert app.faults() == []


@pytest.mark.parametrize("answer", [float("nan"), float("inf"), -1.0, "soon", None, 1e300])
def test_a_strategy_that_answers_nonsense_is_told_once_and_replaced_by_the_default(harness, answer):
    class Broken:
        def delay(self, attempt):
            return answer

    sensor = Scripted(fail(99))
    app = harness(app_with(sensor, retry=2, backoff=Broken()))

    app.run("30m")

    assert len(sensor.calls) == 6
    assert 1.6 <= gaps(sensor.calls)[0] <= 2.5
    assert [fault["where"] for fault in app.faults()] == ["backoff of d; the default is used instead"]


def test_a_strategy_that_raises_does_not_end_the_poller(harness):
    class Broken:
        def delay(self, attempt):
            raise OverflowError("int too large")

    sensor = Scripted(fail(2), READING)
    app = harness(app_with(sensor, retry=2, backoff=Broken()))

    app.run("1m")

    assert app.states("d") == [READING]


def test_a_shutdown_during_a_wait_ends_it_without_another_call(harness):
    sensor = Scripted(fail(99))
    app = harness(app_with(sensor, retry=3))
    app.run("1s")

    app.stop()

    assert len(sensor.calls) == 1
    assert app.stopped_in < 0.1


def test_a_cancellation_that_clean_up_turns_into_an_error_is_still_a_cancellation(harness):
    calls = []

    async def handler():
        calls.append(1)
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            raise OSError("lost the connection while cleaning up") from None

    app = harness(app_with(handler, retry=3, timeout=None))
    app.run("1s")

    app.stop()

    assert calls == [1]
    assert app.left_behind == 0


@pytest.mark.parametrize(
    "error",
    [
        SystemExit(3),
        KeyboardInterrupt(),
        asyncio.CancelledError(),
        BaseException("odd"),
        StopAsyncIteration(),
        RecursionError(),
    ],
)
def test_whatever_a_handler_raises_it_ends_neither_itself_nor_its_neighbour_nor_the_process(harness, error):
    odd, sound = Scripted(error), Scripted(READING)
    app = app_with(odd, interval="1m", retry=3)
    app.add_telemetry("sound", sound, interval="1m")
    running = harness(app)

    running.run("10m")

    assert len(odd.calls) == len(sound.calls) == 11
    assert "error" in running.statuses("d")
    assert running.errors("d")[0]["type"] == type(error).__name__


def test_exits_and_cancellations_are_never_retried_nor_counted_by_the_breaker(harness):
    odd = Scripted(SystemExit(3))
    app = harness(app_with(odd, interval="1m", retry=3, circuit_breaker=CircuitBreaker(2)))

    app.run("10m")

    assert len(odd.calls) == 11
    assert "circuit_open" not in app.statuses("d")


def test_a_handler_that_hangs_is_failed_at_its_timeout_and_retried(harness):
    sensor = Scripted(hang(), READING)
    app = harness(app_with(sensor, retry=1))

    app.run("2m")

    assert 61 <= sensor.calls[1] <= 63
    assert app.states("d") == [READING]


def test_a_call_that_runs_past_the_next_poll_is_retried_in_its_place(harness):
    """Else the poll that it swallowed would cost a whole interval more."""
    sensor = Scripted(hang(), READING)
    app = harness(app_with(sensor, interval="10m", timeout="10m", retry=1))

    app.run("11m")

    assert app.states("d") == [READING]


def test_a_hang_is_visible_after_its_timeout_not_after_hours(harness):
    app = harness(app_with(Scripted(READING, hang()), interval="25m"))

    app.run("26m30s")

    assert app.errors("d")[0]["type"] == "DeviceTimeout"
    assert app.errors("d")[0]["message"] == "no answer within 1m"


def test_a_cron_handler_that_hangs_fails_at_a_minute(harness):
    app = App("app")
    app.add_telemetry("d", Scripted(hang()), schedule="0 * * * *")
    running = harness(app)

    running.run("1h2m")

    assert running.errors("d")[0]["type"] == "DeviceTimeout"


def test_a_handler_that_outlives_its_cancellation_is_abandoned_and_not_called_again_while_it_lives(harness):
    stubborn = Scripted(READING, hang("10m", stubborn=True), READING)
    app = harness(app_with(stubborn, interval="1m", timeout="30s", circuit_breaker=CircuitBreaker(5)))

    app.run("9m")
    during = app.errors("d")
    app.run("6m")

    assert during[0]["type"] == "Abandoned"
    assert during[0]["outage_seconds"] == 35
    assert stubborn.calls[:2] == [0, 60]
    assert 660 <= stubborn.calls[2] <= 720
    assert app.errors("d")[-1]["event"] == "recovered"
    assert app.errors("d")[-1]["failures"] == 1


def test_a_handler_that_swallows_its_timeout_and_returns_has_still_failed(harness):
    async def swallows():
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            return {"stale": True}

    app = harness(app_with(swallows, interval="2m", timeout="10s"))

    app.run("1m")

    assert app.states("d") == []
    assert app.errors("d")[0]["type"] == "DeviceTimeout"


def test_a_timeout_inside_the_handler_is_its_own(harness):
    async def inner():
        async with asyncio.timeout(1):
            await asyncio.sleep(10)

    app = harness(app_with(inner, interval="2m", timeout="30s"))

    app.run("1m")

    assert app.errors("d")[0]["type"] == "TimeoutError"


def test_devices_that_fail_together_do_not_retry_together(harness):
    random.seed(7)
    app, sensors = App("app"), [Scripted(fail(1), READING) for _ in range(20)]
    for number, sensor in enumerate(sensors):
        app.add_telemetry(f"d{number}", sensor, interval="25m", retry=1)

    harness(app).run("1m")

    retries = sorted(sensor.calls[1] for sensor in sensors)
    assert max(sum(start <= retry < start + 0.1 for retry in retries) for start in retries) <= 8
    assert retries[-1] - retries[0] > 0.4


def test_a_later_failure_does_not_name_the_first_one_as_its_context(harness):
    app = app_with(Scripted(OSError("first"), TimeoutError("second"), READING), retry=3)

    harness(app).run("1m")

    assert "second" in app.trace("d")[1].traceback
    assert "first" not in app.trace("d")[1].traceback


def test_an_error_whose_text_breaks_is_told_as_any_other(harness):
    class Rude(OSError):
        def __str__(self):
            raise ZeroDivisionError

    app = harness(app_with(Scripted(fail(99, Rude())), interval=10, stale_after="1d"))

    app.run("1m")

    assert app.statuses("d") == ["starting", "error"]
    assert app.errors("d")[0]["message"] == "its text cannot be read: ZeroDivisionError"


@pytest.mark.parametrize("stubborn", [False, True])
@pytest.mark.parametrize("retry", [0, 2])
def test_an_outage_begins_with_its_first_call_wherever_it_is_told(harness, caplog, stubborn, retry):
    caplog.set_level(logging.INFO)
    app = App("app")
    script = Scripted(READING, hang(100, stubborn=stubborn), fail(9), READING)
    app.add_telemetry("d", script, interval=60, timeout=20, retry=retry, backoff=FixedBackoff(1, jitter=0))
    running = harness(app)
    running.run("3m30s")
    began = "2026-01-01T00:01:00.000Z"

    assert running.status()["devices"]["d"]["failing_since"] == began
    running.broker.send("app/introspect", {"sections": ["devices", "trace"]})
    running.run("10m")

    answer = running.broker.messages("app/introspect/response")[-1].json["data"]
    assert answer["devices"]["d"]["runtime"]["failing_since"] == began
    told = running.errors("d")
    assert {each["since"] for each in told} == {began}
    length = told[-1]["outage_seconds"]
    read = [each.at for each in running.broker.messages("app/d/state")]
    assert abs(read[1] - 60 - length) < 0.1
    assert any("recovered after" in line and human(round(length)) in line for line in caplog.messages)
