import asyncio
import threading
import time
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from leadsman import App, CircuitBreaker, Cron, Every, OnChange, RetryRequested
from leadsman.core.loop.slots import BATCH
from leadsman.errors import DeviceUnavailable
from leadsman.testing import Scripted, fail, hang
from leadsman.testing.loop import START

READING = {"t": 21.5}


def app_with(handler, **words):
    app = App("app")
    app.add_telemetry("d", handler, **words)
    return app


def slow(seconds):
    calls = []

    async def handler():
        calls.append(asyncio.get_running_loop().time())
        await asyncio.sleep(seconds)
        return READING

    handler.calls = calls
    return handler


@pytest.mark.slow
def test_polls_stay_on_the_grid_however_long_they_take(harness):
    minutely, slower = slow(2), slow(20)

    harness(app_with(minutely, interval=60)).run("24h1s")
    harness(app_with(slower, interval=1500)).run("600h1s")

    assert minutely.calls == [pytest.approx(60.0 * n) for n in range(1441)]
    assert slower.calls == [pytest.approx(1500.0 * n) for n in range(1441)]


def test_a_handler_is_never_polled_twice_at_a_time_and_missed_polls_are_counted(harness):
    handler = slow(150)
    app = harness(app_with(handler, interval=60, timeout=None))

    app.run("10m")

    assert handler.calls == [pytest.approx(180.0 * n) for n in range(4)]
    assert app.status()["devices"]["d"]["missed_polls"] in (6, 7)


def test_what_the_process_slept_through_is_not_replayed(harness):
    sensor = Scripted(READING)
    app = harness(app_with(sensor, interval=5))
    app.run("1m")

    app.loop.block(1800)
    app.run("1m")

    assert len(sensor.calls) == 13 + 1 + 12
    assert sensor.calls[13] == pytest.approx(1860, abs=1)


def test_the_first_poll_is_at_once_and_does_not_wait_for_the_broker(harness):
    sensor = Scripted(READING)
    app = harness(app_with(sensor, interval=60))
    app.broker.stop()

    app.run("1s")

    assert sensor.calls == [0]


def test_a_spread_starts_devices_apart_and_always_at_the_same_point(harness):
    first, second = App("app"), App("app")
    sensors = {}
    for app in (first, second):
        for number in range(20):
            sensors[app, number] = Scripted(READING)
            app.add_telemetry(f"d{number}", sensors[app, number], interval=60, spread=30)
        harness(app).run("5m")

    starts = [sensors[first, number].calls[0] for number in range(20)]
    assert starts == [sensors[second, number].calls[0] for number in range(20)]
    assert len({round(start) for start in starts}) > 10
    assert max(starts) <= 30.1


def test_many_devices_are_spread_by_default_after_a_first_poll_at_once(harness):
    app, sensors = App("app"), {}
    for number in range(5 * BATCH - 1):  # the bus is one more
        sensors[number] = Scripted(READING)
        app.add_telemetry(f"d{number}", sensors[number], interval=60)
    for name, words in {"all at once": {"spread": 0}, "bus": {"group": "bus"}, "bus too": {"group": "bus"}}.items():
        sensors[name] = Scripted(READING)
        app.add_telemetry(name, sensors[name], interval=60, **words)
    harness(app).run("10m30s")

    assert {sensor.calls[0] for sensor in sensors.values()} == {0}
    assert all(len(sensor.calls) == 11 for sensor in sensors.values())
    grid = {name: sensor.calls[1] - 60 for name, sensor in sensors.items()}
    assert {round(shift, 3) for shift in grid.values()} == {0, 0.05, 0.1, 0.15, 0.2}
    assert grid["all at once"] == pytest.approx(0)
    assert grid["bus"] == pytest.approx(grid["bus too"], abs=0.001)
    for name, sensor in sensors.items():
        assert sensor.calls[2:] == [pytest.approx(grid[name] + 60 * tick) for tick in range(2, 11)]


def test_a_few_devices_are_polled_together_in_a_group_or_not(harness):
    app, sensors = App("app"), [Scripted(READING) for _ in range(BATCH)]
    for number, sensor in enumerate(sensors):
        app.add_telemetry(f"d{number}", sensor, interval=60)
    harness(app).run("2m1s")

    assert [sensor.calls for sensor in sensors] == [[0, 60, 120]] * BATCH


def test_a_device_is_not_stale_before_it_was_asked_at_all(harness):
    app = App("app")
    for name in "abcdefgh":
        app.add_telemetry(name, Scripted(READING), interval=60, spread=600)
    running = harness(app)

    running.run("15m")

    assert {tuple(running.statuses(name)) for name in "abcdefgh"} == {("starting", "ok")}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ({"on_failure": "hold"}, None),
        ({}, "00:05"),
        ({"circuit_breaker": CircuitBreaker(1)}, "00:10"),
        ({"circuit_breaker": CircuitBreaker(1, recovery="12m")}, "00:15"),
    ],
)
def test_when_a_cron_device_is_asked_next_is_told_as_it_will_be(harness, words, expected):
    sensor = Scripted(fail(99))
    app = harness(app_with(sensor, schedule=Cron("*/5 * * * *", zone="UTC", at_start=True), **words))
    app.run(10)

    told = app.status()["devices"]["d"]["next_poll_at"]
    app.run("20m")

    assert told == (expected and f"2026-01-01T{expected}:00.000Z")
    assert [time.strftime("%H:%M", time.gmtime(call)) for call in sensor.calls[1:2]] == ([expected] if expected else [])


def test_a_cron_device_that_asked_to_be_left_alone_says_when_it_is_asked_next(harness):
    sensor = Scripted(fail(1), RetryRequested("17m"), READING)
    app = harness(app_with(sensor, schedule=Cron("*/5 * * * *", zone="UTC", at_start=True)))
    app.run(345)

    told = app.status()["devices"]["d"]["next_poll_at"]
    app.run("25m")

    assert told == "2026-01-01T00:22:00.000Z"
    assert sensor.calls == [0, 300, 1320, 1500, 1800]


def test_a_disabled_handler_is_registered_but_not_polled(harness):
    sensor = Scripted(READING)
    app = harness(app_with(sensor, interval=1, enabled=False))

    app.run("1m")

    assert sensor.calls == []
    assert app.status()["devices"] == {}


def test_devices_with_one_rule_object_each_keep_their_own_account(harness):
    rule, app = Every(n=5), App("app")
    for number in range(5):
        app.add_telemetry(f"d{number}", Scripted(READING), interval=1, publish=rule)
    running = harness(app)

    running.run("58s")

    assert {len(running.states(f"d{number}")) for number in range(5)} == {12}


def test_on_change_tells_the_first_reading_and_then_changes(harness):
    app = harness(
        app_with(Scripted({"t": 20.0}, {"t": 20.0}, {"t": 20.3}, {"t": 20.6}), interval=1, publish=OnChange(0.5))
    )

    app.run("10s")

    assert app.states("d") == [{"t": 20.0}, {"t": 20.6}]


def test_a_handler_may_return_one_dict_again_and_again(harness):
    fields = {"n": 0}

    async def handler():
        fields["n"] += 1
        return fields

    app = harness(app_with(handler, interval=1, publish=OnChange()))

    app.run("3s")

    assert [state["n"] for state in app.states("d")] == [1, 2, 3, 4]


def test_failed_polls_between_do_not_disturb_the_rule(harness):
    app = harness(app_with(Scripted({"t": 1}, fail(3), {"t": 1}, {"t": 2}), interval=1, publish=OnChange()))

    app.run("10s")

    assert app.states("d") == [{"t": 1}, {"t": 2}]


def test_a_rule_that_raises_is_told_and_the_reading_published(harness):
    class Broken(OnChange):
        def decide(self, previous, reading, now):
            raise ZeroDivisionError

    app = harness(app_with(Scripted(READING), interval=1, publish=Broken()))

    app.run("3s")

    assert len(app.states("d")) == 4
    assert app.faults()[0]["where"] == "publish rule of d"


def test_none_publishes_nothing_and_counts_as_a_success(harness):
    app = harness(app_with(Scripted(None), interval=1))

    app.run("1m")

    assert app.states("d") == []
    assert app.statuses("d")[-1] == "ok"


def test_fields_that_are_not_finite_are_left_out_and_told_once(harness, caplog):
    nan = float("nan")
    app = harness(
        app_with(
            Scripted({"t": nan, "h": 45}, {"t": nan, "h": 45}, {"t": 21, "h": 45}, {"t": nan, "h": 45}), interval=1
        )
    )

    app.run("3s")

    assert app.states("d") == [{"h": 45}, {"h": 45}, {"t": 21, "h": 45}, {"h": 45}]
    assert sum("left out" in record.getMessage() for record in caplog.records) == 2


def test_a_plain_function_is_polled_in_a_thread(harness):
    threads = []

    def handler():
        threads.append(threading.current_thread())
        return READING

    app = harness(app_with(handler, interval=1))

    app.run("5.5s")

    assert len(app.states("d")) == 6
    assert len(set(threads)) == 1
    assert threads[0].daemon
    assert threads[0] is not threading.main_thread()


def test_virtual_time_stands_still_while_a_thread_works(harness):
    def handler():
        time.sleep(0.05)
        return READING

    app = harness(app_with(handler, interval=1, timeout=0.5))

    app.run("5.5s")

    assert len(app.states("d")) == 6


def test_a_blocked_plain_handler_starves_nobody(harness):
    release = threading.Event()

    def blocked():
        release.wait()
        return READING

    app = App("app")
    app.add_telemetry("blocked", blocked, interval=60, timeout=10)
    app.add_telemetry("plain", lambda: READING, interval=60)
    app.add_telemetry("asynchronous", Scripted(READING), interval=60)
    running = harness(app, patience=0.2)

    running.run("10m")
    release.set()

    assert running.errors("blocked")[0]["type"] == "DeviceTimeout"
    assert len(running.states("plain")) >= 9
    assert len(running.states("asynchronous")) == 11


def test_a_blocked_plain_handler_is_not_called_again_while_its_thread_lives(harness):
    release, calls = threading.Event(), []

    def blocked():
        calls.append(1)
        release.wait()

    running = harness(app_with(blocked, interval=60, timeout=10), patience=0.2)

    running.run("10m")
    release.set()

    assert calls == [1]


def test_a_retry_does_not_call_a_plain_handler_whose_thread_is_still_blocked(harness):
    release, calls = threading.Event(), []

    def blocked():
        calls.append(1)
        release.wait()

    running = harness(app_with(blocked, interval="10m", timeout=10, retry=3), patience=0.2)

    running.run("5m")
    release.set()

    assert calls == [1]
    line = blocked.__code__.co_firstlineno + 2
    assert running.errors("d")[0]["message"] == f"the thread of an earlier call is still busy (test_polling.py:{line})"


def test_a_plain_function_that_returns_a_coroutine_is_a_named_failure(harness):
    async def read():
        return READING

    app = harness(app_with(lambda: read(), interval=60))

    app.run("1s")

    assert (
        app.errors("d")[0]["message"] == "the handler returned a coroutine; declare it 'async def', or await inside it"
    )


def test_an_adapter_that_cannot_be_opened_degrades_only_its_handlers(harness):
    class Bus:
        opened = 0

        async def __aenter__(self):
            self.opened += 1
            if self.opened < 4:
                raise OSError("no such device")
            return self

        async def __aexit__(self, *exc_info):
            self.closed = True

    bus = Bus()
    app = App("app", adapters=(bus,))

    @app.telemetry("needy", interval=2)
    async def needy(bus: Bus):
        return READING

    app.add_telemetry("sound", Scripted(READING), interval=2)
    running = harness(app)

    running.run("30s")
    running.stop()

    assert running.errors("needy")[0]["message"] == "Bus is not open: OSError: no such device"
    assert running.errors("needy")[-1]["event"] == "recovered"
    assert len(running.states("sound")) == 16
    assert bus.closed


def test_an_adapter_that_hangs_while_opening_or_closing_holds_up_nobody(harness):
    class Stuck:
        async def __aenter__(self):
            await asyncio.sleep(3600)

        async def __aexit__(self, *exc_info):
            await asyncio.sleep(3600)

    class Sticky(Stuck):
        async def __aenter__(self):
            return self

    app = App("app", adapters=(Stuck(), Sticky()))
    app.add_telemetry("sound", Scripted(READING), interval=60)
    running = harness(app)

    running.run("10m")
    running.stop()

    assert len(running.states("sound")) == 11
    assert running.stopped_in <= 2
    assert running.left_behind == 1


@pytest.mark.slow
def test_cron_polls_at_its_local_hour_through_both_clock_changes(harness):
    zone = ZoneInfo("Europe/Berlin")
    for start in (datetime(2026, 3, 27, tzinfo=zone), datetime(2026, 10, 23, tzinfo=zone)):
        sensor = Scripted(READING)
        app = harness(app_with(sensor, schedule=Cron("0 6 * * *", zone="Europe/Berlin")), wall=start.timestamp())

        app.run("5d")

        polled = [datetime.fromtimestamp(start.timestamp() + call, zone) for call in sensor.calls]
        assert [(when.hour, when.minute) for when in polled] == [(6, 0)] * 5


def test_cron_notices_a_clock_that_is_set_forward(harness):
    sensor = Scripted(READING)
    app = harness(app_with(sensor, schedule=Cron("0 12 * * *", zone="UTC")))
    app.run("10m")

    app.loop.step_wall(11 * 3600 + 45 * 60)
    app.run("6m")

    assert len(sensor.calls) == 1


def test_cron_notices_a_clock_that_is_set_back(harness):
    sensor = Scripted(READING)
    noon = datetime(2026, 1, 1, 12, 30, tzinfo=UTC).timestamp()
    app = harness(app_with(sensor, schedule=Cron("0 * * * *", zone="UTC")), wall=noon)
    app.run("10m")

    app.loop.step_wall(-6 * 3600)
    app.run("25m")

    assert [round(call) for call in sensor.calls] == [1800]


def test_cron_does_not_poll_a_slot_twice_when_the_clock_slews_back(harness):
    sensor = Scripted(READING)
    app = harness(app_with(sensor, schedule=Cron("* * * * *", zone="UTC")))
    for _ in range(60):
        app.run("30s")
        app.loop.step_wall(-0.2)
        app.run("30s")

    assert len(sensor.calls) in (59, 60)


def test_a_cron_time_in_the_doubled_hour_hangs_nothing(harness):
    start = datetime(2026, 10, 25, 1, 45, tzinfo=ZoneInfo("Europe/Berlin")).timestamp()
    nightly, other = Scripted(READING), Scripted(READING)
    app = app_with(nightly, schedule=Cron("30 2 * * *", zone="Europe/Berlin"))
    app.add_telemetry("other", other, interval="1m")

    harness(app, wall=start).run("2d")

    assert [round(call) for call in nightly.calls] == [45 * 60, 45 * 60 + 25 * 3600]
    assert len(other.calls) == 2 * 1440 + 1


def test_cron_polls_nothing_because_a_machine_without_a_clock_learns_the_time(harness):
    sensor = Scripted(READING)
    app = harness(app_with(sensor, schedule=Cron("0 3 * * *", zone="UTC")), wall=0.0)
    app.at(60, lambda: app.loop.step_wall(START + 12 * 3600))

    app.run("16h")

    assert [round(call) for call in sensor.calls] == [15 * 3600]


def test_cron_polls_a_slot_again_that_comes_again_after_the_clock_was_set_back(harness):
    sensor = Scripted(READING)
    app = harness(app_with(sensor, schedule=Cron("0 * * * *", zone="UTC")))
    app.at(3700, lambda: app.loop.step_wall(-600))

    app.run(4300)

    assert sensor.calls == [3600, 4200]


def test_cron_slots_that_the_process_slept_through_are_counted_as_missed(harness):
    sensor = Scripted(READING)
    app = harness(app_with(sensor, schedule=Cron("*/10 * * * *", zone="UTC")))
    app.at(601, lambda: app.loop.block(3600))

    app.run("2h")

    assert app.status()["devices"]["d"]["missed_polls"] == 5
    assert [round(call, -1) for call in sensor.calls] == [600, 4200, 4800, 5400, 6000, 6600, 7200]


def test_cron_polls_at_the_start_only_if_asked(harness):
    asked, unasked = Scripted(READING), Scripted(READING)
    app = app_with(asked, schedule=Cron("0 12 * * *", zone="UTC", at_start=True))
    app.add_telemetry("u", unasked, schedule=Cron("0 12 * * *", zone="UTC"))

    harness(app).run("13h")

    assert [round(call) for call in asked.calls] == [0, 43_200]
    assert [round(call) for call in unasked.calls] == [43_200]


def test_members_of_a_group_poll_on_common_ticks_one_call_at_a_time(harness):
    under_way, most, calls = 0, 0, []

    async def on_the_bus():
        nonlocal under_way, most
        under_way, calls_at = under_way + 1, asyncio.get_running_loop().time()
        most = max(most, under_way)
        calls.append(calls_at)
        await asyncio.sleep(0.5)
        under_way -= 1
        return READING

    app = App("app")
    for number in range(6):
        app.add_telemetry(f"d{number}", on_the_bus, interval=60, group="bus", spread=30)
    running = harness(app)

    running.run("9m50s")

    ticks = [call for call in calls if round(call - calls[0], 3) % 60 == 0]
    assert most == 1
    assert len(ticks) == 10
    assert len(calls) == 60


def test_a_failing_member_of_a_group_does_not_starve_the_others(harness):
    app = App("app")
    app.add_telemetry("failing", Scripted(fail(9999)), interval=60, retry=3, group="bus")
    sound = Scripted(READING)
    app.add_telemetry("sound", sound, interval=1, group="bus")

    harness(app).run("1h")

    largest = max(after - before for before, after in zip(sound.calls, sound.calls[1:], strict=False))
    assert largest < 1.1
    assert len(sound.calls) == 3601


def test_a_retry_in_a_group_waits_behind_the_rest_of_the_batch(harness):
    order = []

    def member(name, steps):
        script = Scripted(*steps)

        async def handler():
            order.append(name)
            await asyncio.sleep(1)
            return await script()

        return handler

    app = App("app")
    app.add_telemetry("a", member("a", [fail(1), READING]), interval=60, retry=1, group="bus")
    for name in "bcd":
        app.add_telemetry(name, member(name, [READING]), interval=60, group="bus")

    harness(app).run("30s")

    assert order[0] == "a"
    assert order.index("a", 1) >= 3


def test_a_member_that_hangs_gives_the_bus_back_at_its_timeout(harness):
    app = App("app")
    app.add_telemetry("stuck", Scripted(hang(stubborn=True)), interval=60, timeout=10, group="bus")
    sound = Scripted(READING)
    app.add_telemetry("sound", sound, interval=5, group="bus")

    harness(app).run("10m")

    largest = max(after - before for before, after in zip(sound.calls, sound.calls[1:], strict=False))
    assert largest <= 20
    assert len(sound.calls) >= 118


def test_an_app_serves_once_at_a_time_and_takes_no_registrations_meanwhile(harness):
    app = app_with(Scripted(READING), interval=60)
    running = harness(app)
    running.run("1s")

    with pytest.raises(ValueError, match="register before it starts"):
        app.add_telemetry("late", Scripted(READING), interval=60)
    with pytest.raises(ValueError, match="running already"):
        running.loop.run_until_complete(app.serve(running.broker.connect))


def test_ten_devices_through_a_virtual_day(harness):
    app = App("app")
    for number in range(10):
        app.add_telemetry(f"d{number}", Scripted(READING), interval=60)
    running = harness(app)

    before = time.process_time()
    running.run("1d")

    assert time.process_time() - before < 20  # two seconds on a quiet machine; benchmarks measure it
    assert {len(running.states(f"d{number}")) for number in range(10)} == {1441}


def test_the_time_a_reading_was_taken_travels_with_it(harness):
    from leadsman import Delivery

    app = app_with(Scripted(READING), interval=60)
    app.add_telemetry("p", Scripted(READING), interval=60, delivery=Delivery(taken_at="payload", retain=False))
    running = harness(app)
    running.at("10s", running.broker.stop)
    running.at("150s", running.broker.start)

    running.run("200s")

    assert [message.taken_at - START for message in running.broker.messages("app/d/state")] == [0, 60, 120, 180]
    assert running.states("p")[2] == {"t": 21.5, "taken_at": "2026-01-01T00:02:00.000Z"}
    assert "app/p/state" not in running.broker.retained


def test_an_adapter_that_is_away_is_a_transient_error():
    assert issubclass(DeviceUnavailable, OSError)
