"""A handler that says itself when to ask again, and retries until the next poll."""

import itertools
import random

import pytest

from leadsman import (
    UNTIL_NEXT_POLL,
    App,
    CircuitBreaker,
    Context,
    ExponentialBackoff,
    RetryRequested,
    exponential,
    immediate,
    periodic,
    prop,
)
from leadsman.testing import Outages, Scripted, fail

READING = {"t": 21.5}
STEADY = ExponentialBackoff(jitter=0)


def app_with(handler, **words):
    app = App("app")
    app.add_telemetry("d", handler, **{"interval": "25m", **words})
    return app


def gaps(calls):
    return [round(after - before, 1) for before, after in itertools.pairwise(calls)]


def asked(times, *arguments, **words):
    return fail(times, RetryRequested(*arguments, **words))


def test_a_request_is_honoured_to_the_second_without_any_retry_of_the_app(harness):
    sensor = Scripted(asked(2, "30s", "busy"), READING)
    app = harness(app_with(sensor))

    app.run("10m")

    assert gaps(sensor.calls) == [30, 30]
    assert app.states("d") == [READING]
    assert app.errors("d") == []
    assert app.statuses("d") == ["starting", "ok"]


def test_a_request_without_a_delay_waits_as_the_backoff_says(harness):
    sensor = Scripted(asked(3), READING)

    harness(app_with(sensor, backoff=STEADY)).run("10m")

    assert gaps(sensor.calls) == [2, 4, 8]


def test_a_request_at_once_cannot_spin(harness):
    sensor = Scripted(asked(10**6, 0))

    harness(app_with(sensor)).run("10s")

    assert len(sensor.calls) <= 101


def test_a_request_beyond_the_next_poll_defers_the_polls_until_then(harness):
    sensor = Scripted(READING, asked(1, "130s", "rate limited"), READING)
    app = harness(app_with(sensor, interval="1m", stale_after="1h"))

    app.run("7m")

    assert [round(call) for call in sensor.calls] == [0, 60, 190, 240, 300, 360, 420]
    assert app.errors("d") == []
    assert app.statuses("d") == ["starting", "ok", "deferred", "ok"]


def test_requests_that_go_on_for_minutes_are_no_outage_either(harness):
    app = harness(app_with(Scripted(fail(20, RetryRequested("30s")), {"t": 21.5})))

    app.run("20m")

    assert app.errors("d") == []
    assert app.states("d") == [{"t": 21.5}]


def test_requests_are_neutral_for_the_breaker(harness):
    sensor = Scripted(asked(20, "2m"), READING)
    app = harness(app_with(sensor, interval="1m", stale_after="10h", circuit_breaker=CircuitBreaker(1)))

    app.run("2h")

    assert app.availability("d") == ["online"]
    assert app.states("d")


def test_requests_are_bounded_by_the_budget_and_then_told_as_a_failure(harness):
    sensor = Scripted(asked(99, "40s", "busy"))
    app = harness(app_with(sensor, budget="100s"))

    app.run("20m")

    assert len(sensor.calls) == 3
    assert [error["type"] for error in app.errors("d")] == ["RetryRequested"]


def test_a_poll_asked_for_while_polls_are_deferred_is_refused_with_how_long_it_lasts(harness):
    sensor = Scripted(READING, asked(1, "10m"), READING)
    app = harness(app_with(sensor, interval="1m"))
    app.run("90s")

    app.broker.send("app/d/get", b"")
    app.run("5s")

    assert len(sensor.calls) == 2


def test_a_device_sees_how_often_it_was_asked_again_until_its_poll_has_failed(harness):
    seen = []
    app = App("app")

    @app.telemetry("d", interval="25m", retry=2, backoff=STEADY)
    async def read(context: Context):
        seen.append(context.attempts)
        if len(seen) == 2:
            raise RetryRequested("1s")
        if len(seen) < 5:
            raise OSError
        return READING

    harness(app).run("51m")

    assert seen == [0, 1, 2, 3, 0, 0]


@pytest.mark.parametrize("words", [{"budget": "30m"}, {"within": "30m"}, {"retry": 3, "budget": "30m"}])
def test_a_request_that_is_refused_still_keeps_the_polls_away(harness, words):
    sensor = Scripted(asked(99, "1h", "429"))
    app = harness(app_with(sensor, interval="1m", **words))

    app.run("1h")

    assert sensor.calls == [0, 3600]


def test_give_up_after_five_gives_up_though_each_request_defers_the_polls(harness):
    seen, app = [], App("app")

    @app.telemetry("d", interval="10s")
    async def read(context: Context):
        seen.append(context.attempts)
        if context.attempts > 5:
            raise RuntimeError("give up")
        raise RetryRequested(60)

    running = harness(app)
    running.run("365s")

    assert seen == [0, 1, 2, 3, 4, 5, 6]
    assert running.errors("d")[0]["message"].startswith("give up (test_requests.py:")


def test_a_group_of_requests_is_a_request_with_the_longest_delay(harness):
    group = ExceptionGroup("two", [RetryRequested("30s"), ExceptionGroup("in", [RetryRequested("50s", "busy")])])
    sensor = Scripted(fail(1, group), READING)
    app = harness(app_with(sensor))

    app.run("10m")

    assert gaps(sensor.calls) == [50]
    assert app.errors("d") == []


def test_beside_failures_the_requests_of_a_group_are_left_out(harness):
    group = ExceptionGroup("two", [RetryRequested("30m"), OSError("away")])
    sensor = Scripted(fail(99, group))
    app = harness(app_with(sensor, retry=1, backoff=STEADY))

    app.run("10m")

    assert gaps(sensor.calls) == [2]
    assert app.errors("d")[0]["message"] == "two (1 sub-exception)"


def test_a_command_is_made_once_even_when_its_handler_asks_for_more(harness):
    calls = []
    app = App("app")

    @app.command("d")
    async def switch(payload: dict):
        calls.append(payload)
        raise RetryRequested("1s", "busy")

    running = harness(app)
    running.at("5s", lambda: running.broker.send("app/d/set", b"{}"))
    running.run("1m")

    assert len(calls) == 1
    (result,) = running.broker.messages("app/d/set/result")
    assert "busy" in result.json["error"]
    assert "asked for another attempt" in result.json["error"]


def test_a_budget_ends_the_retries_of_an_outage_but_not_its_polls(harness):
    sensor = Scripted(fail(99))

    harness(app_with(sensor, retry=10, budget="30s", backoff=STEADY, interval="5m")).run("16m")

    assert gaps(sensor.calls) == [2, 4, 8, 16, 270, 300, 300]


def test_within_ends_them_by_the_time_since_the_first_failure(harness):
    sensor = Scripted(fail(99))

    harness(app_with(sensor, retry=10, within="10s", backoff=STEADY, interval="5m")).run("11m")

    assert gaps(sensor.calls) == [2, 4, 294, 300]


def test_a_policy_of_the_algebra_takes_the_place_of_the_words(harness):
    sensor = Scripted(fail(99, OSError(5, "io")))
    policy = immediate().max_retries(1) >> periodic("10s").max_retries(2).only_when(prop("errno") == 5)

    harness(app_with(sensor, policy=policy)).run("24m")

    assert gaps(sensor.calls) == [0, 10, 10]


def test_a_policy_may_ask_about_the_handler(harness):
    sensor = Scripted(fail(99))
    policy = periodic("1s").max_retries(5).only_when((prop("handler") == "d") & (prop("attempts") < 2))

    harness(app_with(sensor, policy=policy)).run("24m")

    assert gaps(sensor.calls) == [1, 1]


def test_a_policy_that_breaks_is_told_once_and_polling_goes_on(harness):
    class Broken(type(immediate())):
        __slots__ = ()

        def step(self, state, failure, draw):
            raise ZeroDivisionError("of mine")

    sensor = Scripted(fail(3), READING)
    app = harness(app_with(sensor, policy=Broken(), interval="1m"))

    app.run("5m")

    assert gaps(sensor.calls) == [60, 60, 60, 60, 60]
    assert [fault["type"] for fault in app.faults()] == ["ZeroDivisionError"]


def test_until_the_next_poll_reads_again_soon_after_the_device_is_back_whatever_the_interval(harness):
    for interval, minutes in (("25m", 130), ("2h", 500)):
        sensor = Outages(READING, [("1m", f"{minutes}m"), (f"{minutes * 2}m", f"{minutes * 2 + 3}m")])
        app = harness(app_with(sensor, interval=interval, retry=UNTIL_NEXT_POLL))

        app.run(f"{minutes + 10}m")

        back = min(at for at in sensor.answered if at > 60) - minutes * 60
        assert 0 <= back <= 60.1


@pytest.mark.slow
@pytest.mark.parametrize("interval", [2, 10, 30, 60, 61, 300])
def test_until_the_next_poll_never_makes_fewer_calls_nor_larger_gaps_than_polling_alone(harness, interval):
    random.seed(interval)
    outage = [("1m", "61m")]
    alone, retried = Outages(READING, outage), Outages(READING, outage)

    harness(app_with(alone, interval=interval)).run("2h")
    harness(app_with(retried, interval=interval, retry=UNTIL_NEXT_POLL)).run("2h")

    assert set(alone.calls) <= set(retried.calls)
    assert max(gaps(retried.calls)) <= interval


def test_once_the_circuit_is_open_it_makes_no_more_calls_than_polling_alone(harness):
    outage = [("1m", "10h")]
    alone, guarded = Outages(READING, outage), Outages(READING, outage)

    harness(app_with(alone, interval="5m")).run("10h")
    harness(app_with(guarded, interval="5m", retry=UNTIL_NEXT_POLL, circuit_breaker=CircuitBreaker(3))).run("10h")

    opened = 60 * 20
    assert len([at for at in guarded.calls if at > opened]) <= len([at for at in alone.calls if at > opened])


def test_an_outage_is_told_after_a_minute_though_its_poll_goes_on_for_hours(harness):
    sensor = Outages(READING, [("1s", "100m")])
    app = harness(app_with(sensor, interval="2h", retry=UNTIL_NEXT_POLL))
    app.run("119m")
    assert app.statuses("d") == ["starting", "ok"]

    sensor = Outages(READING, [("2h", "220m")])
    app = harness(app_with(sensor, interval="2h", retry=UNTIL_NEXT_POLL))
    app.run("239m")

    told = [(error["event"], error["failures"]) for error in app.errors("d")]
    assert told == [("onset", 0), ("reminder", 0), ("recovered", 0)]
    assert 60 <= app.errors("d")[0]["outage_seconds"] <= 130
    assert app.statuses("d") == ["starting", "ok", "error", "ok"]


POLICIES = {
    "words": {"retry": 3},
    "until next poll": {"retry": UNTIL_NEXT_POLL},
    "budget": {"retry": 9, "budget": "1m"},
    "immediate twice": {"policy": immediate().max_retries(2)},
    "immediate, then slow": {"policy": immediate().max_retries(1) >> exponential("5s")},
    "union": {"policy": periodic("10s").max_retries(3) | exponential("1s").within("1h")},
    "intersection": {"policy": periodic("10s") & exponential("1s")},
    "decorrelated": {"policy": periodic("2s").jitter(mode="decorrelated")},
    "full": {"policy": exponential("2s", cap=None).jitter(mode="full").clamp("1s", "5m")},
}


@pytest.mark.slow
@pytest.mark.parametrize("words", POLICIES.values(), ids=POLICIES.keys())
@pytest.mark.parametrize("breaker", [None, CircuitBreaker(3)], ids=["alone", "with a breaker"])
def test_a_virtual_day_of_outage_leaves_the_poller_alive(harness, words, breaker):
    sensor = Outages(READING, [("1m", "24h")])
    app = harness(app_with(sensor, interval="5m", circuit_breaker=breaker, **words))

    app.run("25h")

    assert app.statuses("d")[-1] == "ok"
    assert len([at for at in sensor.answered if at > 24 * 3600]) >= 11
    assert len(sensor.calls) < 20_000
    assert app.faults() == []
