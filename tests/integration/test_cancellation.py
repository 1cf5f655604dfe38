"""Cancellations that somebody's code leaves behind in its task, as a task group of Python 3.11 does, or a timeout
written by hand."""

import asyncio
import itertools
from contextlib import asynccontextmanager

import pytest

from leadsman import App, CircuitBreaker, FixedBackoff, execute_with_retry, periodic
from leadsman.testing import Scripted, fail

READING = {"t": 21.5}


async def boom():
    raise OSError("away")


async def in_a_task_group():
    async with asyncio.TaskGroup() as group:
        group.create_task(boom())


async def with_a_timeout_by_hand():
    """As async_timeout before 4.0.3 has it: the cancellation is never taken back."""
    task = asyncio.current_task()
    asyncio.get_running_loop().call_later(1, task.cancel)
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        raise TimeoutError("by hand") from None


leaky = pytest.mark.parametrize("call", [in_a_task_group, with_a_timeout_by_hand])


@leaky
def test_a_handler_whose_cancellation_stays_behind_is_retried_and_told_and_counted(harness, call):
    calls, app = [], App("app")

    async def read():
        calls.append(1)
        await call()

    app.add_telemetry(
        "d", read, interval=60, retry=3, backoff=FixedBackoff(2, jitter=0), circuit_breaker=CircuitBreaker(2)
    )
    running = harness(app)
    running.run("1h")

    assert running.statuses("d")[:3] == ["starting", "error", "circuit_open"]
    assert len(calls) == 4 * 2 + 29
    assert running.errors("d")[0]["type"] in ("ExceptionGroup", "TimeoutError")
    assert len(app.trace("d")) > 8


@leaky
def test_a_retry_after_a_cancellation_that_stayed_behind_has_its_own_timeout(harness, call):
    calls, app = itertools.count(), App("app")

    async def read():
        if next(calls) == 0:
            await call()
        await asyncio.sleep(3600)

    app.add_telemetry("d", read, interval="10m", retry=1, timeout=5)
    running = harness(app)
    running.run("1m")

    line = read.__code__.co_firstlineno + 3
    assert [(error["type"], error["message"]) for error in running.errors("d")] == [
        ("DeviceTimeout", f"no answer within 5s (test_cancellation.py:{line})")
    ]


@leaky
def test_whoever_asks_for_a_poll_with_such_a_handler_is_answered(harness, call):
    app = App("app")
    app.add_telemetry("d", call, interval="1h")
    running = harness(app)
    running.run("2m")

    running.broker.send("app/d/get", b"", response_topic="app/answers")
    running.run("1m")

    assert running.broker.messages("app/answers")[-1].json["status"] == "error"


@leaky
def test_a_command_with_such_a_handler_is_answered_and_the_next_one_made(harness, call):
    app = App("app")
    app.add_command("boiler", call)
    running = harness(app)
    running.run(1)

    for _ in range(2):
        running.broker.send("app/boiler/set", b"")
    running.run("1m")

    results = running.broker.messages("app/boiler/set/result")
    assert [result.json["status"] for result in results] == ["error", "error"]


@leaky
def test_a_fallback_whose_cancellation_stays_behind_is_told(harness, call):
    async def fallback(error):
        await call()

    app = App("app")
    app.add_telemetry("d", Scripted(fail(99)), interval="1h", on_failure=fallback)
    running = harness(app)
    running.run("1m")

    assert running.faults()[0]["where"] == "on_failure of d"


@leaky
def test_a_source_whose_cancellation_stays_behind_is_started_again_and_falls_silent_by_its_own_clock(harness, call):
    starts, app = [], App("app")

    async def heard():
        starts.append(asyncio.get_running_loop().time())
        yield READING
        if len(starts) < 4:
            await call()
        await asyncio.sleep(1e6)

    app.add_source("s", heard, silence="5m", backoff=FixedBackoff(5, jitter=0))
    running = harness(app)
    running.run("7m")

    assert len(starts) == 5
    assert running.errors("s")[-1]["message"] == "silent for 5m"


@leaky
def test_a_call_that_is_no_poll_is_repeated_after_a_cancellation_that_stayed_behind(harness, call):
    calls, app = [], App("app")

    async def fetch():
        calls.append(1)
        if len(calls) < 3:
            await call()
        return READING

    @app.telemetry("d", interval="1h")
    async def read():
        anything = periodic("2s").max_retries(5)
        return await execute_with_retry(fetch, retry=anything)

    running = harness(app)
    running.run("1m")

    assert running.states("d") == [READING]


@pytest.mark.parametrize("call", [in_a_task_group, with_a_timeout_by_hand, asyncio.CancelledError])
def test_an_adapter_whose_opening_ends_with_a_stray_cancellation_is_opened_again(harness, call):
    class Bus:
        opens = 0

        async def __aenter__(self):
            self.opens += 1
            if self.opens == 1:
                await _raised(call)
            return self

        async def __aexit__(self, *exc_info): ...

    bus = Bus()
    app = App("app", adapters=(bus,))

    @app.telemetry("d", interval=60)
    async def read(bus: Bus):
        return READING

    running = harness(app)
    running.run("5m")

    assert bus.opens == 2
    assert running.statuses("d")[-1] == "ok"


@pytest.mark.parametrize("call", [in_a_task_group, with_a_timeout_by_hand, asyncio.CancelledError])
def test_a_lifespan_whose_opening_ends_with_a_stray_cancellation_is_entered_again(harness, call):
    entered = []

    @asynccontextmanager
    async def lifespan(app):
        entered.append(1)
        if len(entered) == 1:
            await _raised(call)
        yield

    app = App("app", lifespan=lifespan)
    app.add_telemetry("d", Scripted(READING), interval=60)
    running = harness(app)
    running.run("5m")

    assert len(entered) == 2
    assert running.statuses("d")[-1] == "ok"


async def _raised(call):
    found = call()
    if isinstance(found, BaseException):
        raise found
    await found


def test_an_app_ends_at_once_though_its_handlers_leave_cancellations_behind(harness):
    app = App("app")

    async def hanging():
        try:
            await in_a_task_group()
        except ExceptionGroup:
            await asyncio.sleep(3600)

    async def heard():
        await hanging()
        yield

    app.add_telemetry("d", hanging, interval=60)
    app.add_source("s", heard)
    app.add_command("c", hanging)
    running = harness(app)
    running.run(1)
    running.broker.send("app/c/set", b"")
    running.run(1)

    running.stop()

    assert running.stopped_in < 1
    assert running.left_behind == 0


def test_a_loop_that_is_torn_down_under_an_app_ends_at_once():
    class Bus:
        async def __aenter__(self):
            raise OSError("away")

        async def __aexit__(self, *exc_info): ...

    async def heard():
        yield READING
        await asyncio.sleep(3600)

    async def read():
        await asyncio.sleep(3600)

    async def connect(*arguments):
        await asyncio.sleep(3600)

    async def main():
        app = App("app", adapters=(Bus(),))
        app.add_telemetry("d", read, interval=60)
        app.add_source("s", heard)
        serving = asyncio.create_task(app.serve(connect))
        await asyncio.sleep(0.1)
        assert not serving.done()

    asyncio.run(asyncio.wait_for(main(), 5))


def test_a_handler_that_raises_generator_exit_fails_its_poll(harness):
    app = App("app")
    app.add_telemetry("d", Scripted(GeneratorExit()), interval=60)
    running = harness(app)

    running.run("2m")

    assert running.errors("d")[0]["type"] == "GeneratorExit"


def test_a_poll_that_swallows_its_cancellation_does_not_hold_up_the_end_of_the_app_and_is_counted(harness):
    over = asyncio.Event()

    async def stubborn():
        while not over.is_set():
            try:
                await over.wait()
            except asyncio.CancelledError:
                continue

    app = App("app")
    app.add_telemetry("d", stubborn, interval=60)
    app.add_telemetry("e", Scripted({"t": 1}), interval=60)
    running = harness(app)
    running.run(1)

    running.stop()

    assert running.left_behind == 1
    over.set()
    running.loop.run_until_complete(asyncio.sleep(1))
