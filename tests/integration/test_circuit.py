import asyncio
import logging

import pytest

from leadsman import App, CircuitBreaker, RetryRequested
from leadsman.errors import InvalidValue
from leadsman.testing import Outages, Scripted, fail

READING = {"t": 21.5}


def app_with(handler, **words):
    app = App("app")
    app.add_telemetry("d", handler, **{"interval": "1m", **words})
    return app


def test_an_open_circuit_skips_exactly_one_poll_then_probes(harness):
    sensor = Scripted(fail(99))

    harness(app_with(sensor, circuit_breaker=CircuitBreaker(2))).run("9m")

    assert [round(call) for call in sensor.calls] == [0, 60, 180, 300, 420, 540]


def test_a_probe_is_a_single_call_without_retries(harness):
    sensor = Scripted(fail(99))

    harness(app_with(sensor, retry=3, interval="5m", circuit_breaker=CircuitBreaker(1))).run("50m")

    assert [round(call) for call in sensor.calls[4:]] == [600, 1200, 1800, 2400, 3000]


def test_the_circuit_closes_when_a_probe_succeeds(harness):
    app = harness(app_with(Outages(READING, [("0s", "3m")]), circuit_breaker=CircuitBreaker(1)))

    app.run("10m")

    assert app.statuses("d") == ["starting", "circuit_open", "ok"]
    assert app.availability("d") == ["offline", "online"]  # it failed before the broker could be told of it


@pytest.mark.parametrize("words", [{"retry": 0}, {"retry": 2}, {"retry": 2, "retry_on": KeyError}])
def test_every_cycle_that_failed_for_good_counts_once_whatever_was_retried(harness, words):
    app = harness(app_with(Scripted(fail(99)), interval="2m", circuit_breaker=CircuitBreaker(3), **words))

    app.run("3m30s")
    before = app.statuses("d")
    app.run("2m45s")

    assert before == ["starting", "error"]
    assert app.statuses("d") == ["starting", "error", "circuit_open"]


def test_an_ignored_error_neither_opens_nor_closes_the_circuit(harness):
    quiet = app_with(Scripted(fail(99, KeyError("rate limit"))), circuit_breaker=CircuitBreaker(2, ignore=KeyError))
    probing = Scripted(fail(1), fail(3, KeyError("rate limit")), READING)
    loud = app_with(probing, circuit_breaker=CircuitBreaker(1, ignore=KeyError))

    first, second = harness(quiet), harness(loud)
    first.run("10m")
    second.run("4m30s")

    assert "circuit_open" not in first.statuses("d")
    assert second.statuses("d") == ["starting", "circuit_open"]
    assert [round(call) for call in probing.calls] == [0, 120, 180, 240]
    second.run("1m")
    assert second.statuses("d")[-1] == "ok"


def test_a_result_that_cannot_be_published_counts_as_a_failed_cycle(harness):
    app = harness(app_with(Scripted({"odd": {1, 2}}), circuit_breaker=CircuitBreaker(2)))

    app.run("3m")

    assert app.statuses("d") == ["starting", "error", "circuit_open"]
    assert app.errors("d")[0]["type"] == "ResultError"


def test_one_specification_given_to_many_handlers_opens_for_the_failing_one_only(harness):
    app, breaker = App("app"), CircuitBreaker(3)
    app.add_telemetry("indoor", Scripted(fail(99)), interval="1m", circuit_breaker=breaker)
    app.add_telemetry("outdoor", Scripted(READING), interval="1m", circuit_breaker=breaker)
    running = harness(app)

    running.run("10m")

    assert running.statuses("indoor")[-1] == "circuit_open"
    assert running.statuses("outdoor") == ["starting", "ok"]


def test_the_status_never_flaps_between_error_and_circuit_open(harness):
    app = harness(app_with(Scripted(fail(9999)), retry=2, circuit_breaker=CircuitBreaker(3)))

    app.run("6h")

    assert app.statuses("d") == ["starting", "error", "circuit_open"]


def test_an_open_circuit_is_seen_also_when_the_device_has_gone_stale_meanwhile(harness):
    app = harness(app_with(Scripted(fail(9999)), circuit_breaker=CircuitBreaker(1)))

    app.run("3602s")

    device = app.status()["devices"]["d"]
    assert (device["status"], device["stale"], device["circuit"]) == ("circuit_open", True, "open")
    assert device["consecutive_failures"] > 25
    assert device["last_error"] == "OSError: scripted"
    assert device["failing_since"] == "2026-01-01T00:00:00.000Z"
    assert device["last_success_at"] is None
    assert device["next_poll_at"].startswith("2026-01-01T01:0")
    assert device["opened_at"] == "2026-01-01T00:00:00.000Z"
    assert device["opens"] == device["consecutive_failures"]
    assert device["attempts"] == 1


def test_while_a_circuit_is_open_the_heartbeat_tells_when_the_device_will_be_asked_next(harness):
    sensor = Scripted(fail(9999))
    app = harness(app_with(sensor, circuit_breaker=CircuitBreaker(1)))

    app.run("30s")
    told = app.status()["devices"]["d"]["next_poll_at"]
    app.run("10m")

    assert told == "2026-01-01T00:02:00.000Z"
    assert round(sensor.calls[1]) == 120


@pytest.mark.slow
def test_a_day_with_an_open_circuit_is_a_few_dozen_log_lines(harness, caplog):
    caplog.set_level(logging.INFO, "leadsman")
    app = harness(app_with(Outages(READING, [("1m", "24h")]), interval=30, retry=3, circuit_breaker=CircuitBreaker(3)))

    app.run("25h")

    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) < 50
    assert sum("circuit open" in line for line in lines) == 1
    assert [line for line in lines if "recovered" in line] == [
        line for line in lines if "recovered after 23h59m" in line
    ]
    assert not any("/3)" in line for line in lines)


def test_recovery_zero_polls_on_schedule_without_retries(harness):
    sensor = Scripted(fail(99))

    harness(app_with(sensor, retry=3, circuit_breaker=CircuitBreaker(1, recovery=0))).run("5m")

    assert [round(call) for call in sensor.calls[4:]] == [60, 120, 180, 240, 300]


def test_a_timed_recovery_tells_when_the_device_is_asked_next(harness):
    app = harness(app_with(Scripted(fail(99)), circuit_breaker=CircuitBreaker(1, recovery="150s")))

    app.run("90s")

    assert app.status()["devices"]["d"]["next_poll_at"][14:19] == "03:00"


@pytest.mark.parametrize("shared", [None, "bus"])
def test_a_recovery_that_breaks_is_told_once_and_replaced_by_the_default(harness, shared):
    class Broken:
        def delay(self, attempt):
            return float("nan")

    sensor = Scripted(fail(999))
    app = App("app")
    app.add_telemetry("d", sensor, interval="1s", circuit_breaker=CircuitBreaker(1, recovery=Broken(), shared=shared))
    running = harness(app)

    running.run("5m")

    (fault,) = running.faults()
    assert "recovery of d; the default is used instead" in fault["where"]
    assert 6 <= len(sensor.calls) <= 12  # after 2, 4, 8 … 60 seconds


def shared_app(sensors, rule, **words):
    app = App("app")
    for name, sensor in sensors.items():
        app.add_telemetry(name, sensor, interval="1m", circuit_breaker=rule, **words)
    return app


def test_a_shared_circuit_counts_rounds_and_opens_after_threshold_times_members(harness):
    sensors = {f"d{n}": Scripted(fail(99)) for n in range(8)}

    harness(shared_app(sensors, CircuitBreaker(3, shared="serial"))).run("170s")

    assert sum(len(sensor.calls) for sensor in sensors.values()) == 24


def test_one_dead_device_of_eight_never_opens_the_circuit_that_they_share(harness):
    sensors = {"bad": Scripted(fail(999)), **{f"d{n}": Scripted(READING) for n in range(7)}}
    app = harness(shared_app(sensors, CircuitBreaker(3, shared="serial")))

    app.run("1h")

    assert len(sensors["bad"].calls) == 61
    assert app.availability("d0") == ["online"]


def test_an_open_shared_circuit_sends_one_probe_for_all_and_closes_for_all(harness):
    sensors = {f"d{n}": Outages(READING, [("0s", "210s")]) for n in range(4)}
    app = harness(shared_app(sensors, CircuitBreaker(2, shared="serial")))

    app.run("10m")

    calls = sorted(round(call) for sensor in sensors.values() for call in sensor.calls if call < 230)
    assert calls == [0] * 4 + [60] * 4 + [180]
    assert all(app.statuses(name)[-1] == "ok" for name in sensors)


def test_an_open_shared_circuit_turns_each_member_away_at_its_own_next_poll(harness):
    fast, slow, breaker = Scripted(fail(99)), Scripted(fail(99)), CircuitBreaker(2, shared="bus")
    app = App("app")
    app.add_telemetry("fast", fast, interval=10, circuit_breaker=breaker)
    app.add_telemetry("slow", slow, interval=60, circuit_breaker=breaker)
    running = harness(app)

    running.run(62)
    told = {name: device["next_poll_at"] for name, device in running.status()["devices"].items()}
    running.run(240)

    assert told == {"fast": "2026-01-01T00:01:20.000Z", "slow": "2026-01-01T00:03:00.000Z"}
    assert [round(call) for call in fast.calls if call > 55][:5] == [60, 80, 100, 120, 140]
    assert [round(call) for call in slow.calls] == [0, 60, 180, 300]  # 120 is skipped; a probe of another is no reason


@pytest.mark.parametrize("recovery", [None, "10m"])
@pytest.mark.parametrize("dead", ["d0", "d1", "d3"])
def test_a_dead_member_keeps_no_healthy_one_away_when_the_bus_is_back(harness, dead, recovery):
    sensors = {name: Outages(READING, [("5m", "9h" if name == dead else "15m")]) for name in ("d0", "d1", "d2", "d3")}
    app = harness(shared_app(sensors, CircuitBreaker(3, shared="bus", recovery=recovery)))
    app.run("6h")

    assert min(len(app.states(name)) for name in sensors if name != dead) >= 340
    assert app.availability(dead)[-1] == "offline"


def test_introspection_says_at_each_member_who_failed_the_probes(harness):
    sensors = {f"d{n}": Scripted(fail(999)) for n in range(3)}
    app = harness(shared_app(sensors, CircuitBreaker(1, shared="bus")))
    app.run("130s")

    app.broker.send("app/introspect", {"sections": ["devices"]}, response_topic="app/answers")
    app.run("1s")

    devices = app.broker.messages("app/answers")[-1].json["data"]["devices"]
    assert [devices[name]["runtime"]["failed_probes"] for name in sensors] == [{"d0": 1}] * 3


@pytest.mark.parametrize(
    ("error", "words"),
    [(OSError("away"), {"on_failure": "hold"}), (RetryRequested("1d"), {})],
    ids=["held", "deferred"],
)
def test_a_member_that_is_not_asked_holds_up_no_round_and_costs_no_probe(harness, error, words):
    breaker = CircuitBreaker(2, shared="bus")
    app, dead = App("app"), Scripted(fail(99))
    app.add_telemetry("resting", Scripted(fail(99, error)), interval=60, circuit_breaker=breaker, **words)
    app.add_telemetry("dead", dead, interval=60, circuit_breaker=breaker)
    running = harness(app)

    running.run("10m")

    assert running.statuses("dead")[-1] == "circuit_open"
    assert [round(call) for call in dead.calls] == [0, 60, 180, 300, 420, 540]


def test_handlers_that_share_a_circuit_must_say_the_same_of_it():
    app = shared_app({"a": Scripted(READING)}, CircuitBreaker(3, shared="serial"))

    with pytest.raises(InvalidValue, match="differs from that of 'a'"):
        app.add_telemetry("b", Scripted(READING), interval="1m", circuit_breaker=CircuitBreaker(4, shared="serial"))


def test_tokens_of_an_adapter_bound_the_retries_of_all_its_handlers(harness):
    class Bus:
        retry_tokens = 5

        async def __aenter__(self):
            return self

        async def __aexit__(self, *exc_info): ...

    app, calls, up = App("app", adapters=(Bus(),)), [], []

    @app.telemetry([f"d{n}" for n in range(10)], interval="1m", retry=3)
    async def read(bus: Bus):
        calls.append(asyncio.get_running_loop().time())
        if not up:
            raise OSError("gone")
        return READING

    running = harness(app)
    running.run("50s")
    assert len(calls) == 10 + 5
    running.run("60s")
    assert len(calls) == 20 + 5
    up.append(True)
    running.run("60s")
    up.clear()
    running.run("60s")
    assert len(calls) == 20 + 5 + 10 + 10 + 5
