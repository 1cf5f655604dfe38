"""Functions of an app that are told what happens."""

import asyncio
import contextlib
import threading

import pytest

from leadsman import App, CircuitBreaker
from leadsman.errors import InvalidType, InvalidValue
from leadsman.notices import (
    KINDS,
    BrokerConnected,
    BrokerLost,
    CircuitClosed,
    CircuitOpened,
    DeviceFailed,
    DeviceHeld,
    DeviceRecovered,
    DeviceReleased,
)
from leadsman.testing import Outages, Scripted

READING = {"t": 1.0}


def house(*outages, **options):
    app = App("house")
    app.add_telemetry("boiler", Outages(READING, outages), interval="10s", **options)
    return app


def told(app, *kinds):
    notices = []
    for kind in kinds:
        app.on(kind)(notices.append)
    return notices


def test_an_outage_is_told_once_at_its_begin_and_once_at_its_end(harness):
    app = house(("1m", "3m"), circuit_breaker=CircuitBreaker(3))
    notices = told(app, DeviceFailed, CircuitOpened, CircuitClosed, DeviceRecovered)
    harness(app).run("10m")

    assert {type(each) for each in notices} == {DeviceFailed, CircuitOpened, CircuitClosed, DeviceRecovered}
    assert len(notices) == 4
    failed, opened = notices[:2]
    assert (failed.device, failed.calls, opened.failures) == ("boiler", 1, 3)
    assert isinstance(failed.error, OSError)
    assert (opened.at - failed.at).total_seconds() == pytest.approx(20, abs=1)
    (recovered,) = [each for each in notices if isinstance(each, DeviceRecovered)]
    assert 110 <= recovered.seconds <= 150


def test_holds_and_the_connection_are_told(harness):
    app = house()
    notices = told(app, DeviceHeld, DeviceReleased, BrokerLost, BrokerConnected)
    running = harness(app)
    running.run("1m")
    running.broker.send("house/boiler/hold/set", {"by": "anna"})
    running.run("1m")
    running.broker.send("house/boiler/release/set", {"by": "ben"})
    running.run("1m")
    running.broker.stop()
    running.run("1m")
    running.broker.start()
    running.run("2m")

    kinds = [type(each) for each in notices]
    assert kinds == [BrokerConnected, DeviceHeld, DeviceReleased, BrokerLost, BrokerConnected]
    assert (notices[1].by, notices[2].by) == ("anna", "ben")


def test_a_listener_that_raises_costs_nobody_else_anything(harness):
    app = house(("1m", "2m"), ("3m", "4m"))

    @app.on(DeviceFailed)
    async def broken(notice):
        raise RuntimeError("no mail server")

    notices = told(app, DeviceFailed)
    running = harness(app)
    running.run("6m")

    assert len(notices) == 2
    assert [each["where"].rpartition(".")[2] for each in running.faults()] == ["broken"] * 2
    assert running.status()["devices"]["boiler"]["status"] == "ok"


def test_a_listener_that_hangs_is_called_no_second_time_and_costs_nobody_else_anything(harness):
    app, calls = house(*[(60 * n, 60 * n + 30) for n in range(1, 10)]), []

    @app.on(DeviceFailed)
    async def hangs(notice):
        calls.append(notice)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(1e6)
        await asyncio.sleep(1e6)  # it goes on after its cancellation

    notices = told(app, DeviceFailed)
    running = harness(app)
    running.run("12m")

    assert (len(calls), len(notices)) == (1, 9)
    (fault,) = running.faults()
    assert fault["where"].startswith("the listener ")
    running.stop()
    assert running.stopped_in <= 2


def test_a_plain_function_runs_in_a_thread_of_its_own(harness):
    app, threads = house(("1m", "2m")), []

    @app.on(DeviceRecovered)
    def plain(notice):
        threads.append(threading.current_thread())

    harness(app).run("5m")

    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()


def test_a_plain_function_that_returns_what_nobody_awaits_is_reported(harness):
    async def mail(notice): ...

    app = house(("1m", "2m"))
    app.on(DeviceFailed)(lambda notice: mail(notice))
    running = harness(app)
    running.run("3m")

    (fault,) = running.faults()
    assert "register an 'async def'" in str(fault)


@pytest.mark.slow
def test_notices_for_a_slow_listener_are_bounded(harness, caplog):
    app = App("house")
    for number in range(150):
        app.add_telemetry(f"d{number}", Outages(READING, [("1m", "1h")]), interval="10s", spread=0)

    @app.on(DeviceFailed)
    async def slow(notice):
        await asyncio.sleep(20)

    harness(app).run("2m")

    assert caplog.text.count("slow is too slow: 100 notices wait") == 1


@pytest.mark.parametrize("kind", [int, "DeviceFailed", Scripted])
def test_what_is_no_notice_is_refused(kind):
    with pytest.raises(InvalidType, match="on takes a notice"):
        App("house").on(kind)


def test_a_function_that_takes_no_notice_is_refused():
    with pytest.raises(InvalidType, match="must take the notice"):
        App("house").on(DeviceFailed)(lambda: None)


def test_a_listener_cannot_come_while_the_app_runs(harness):
    app = house()
    harness(app).run(1)

    with pytest.raises(InvalidValue, match="the app is running"):
        app.on(DeviceFailed)


def test_each_notice_has_its_time_first():
    assert {kind._fields[0] for kind in KINDS} == {"at"}
