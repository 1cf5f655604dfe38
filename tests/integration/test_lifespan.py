"""What surrounds the whole life of an app."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from leadsman import App
from leadsman.core.settings.sources import Where
from leadsman.errors import InvalidValue
from leadsman.testing import MemoryBroker, Scripted, VirtualLoop

READING = {"t": 21.5}


def test_the_lifespan_is_entered_before_the_first_poll_and_left_after_the_last(harness):
    log, tasks = [], []

    @asynccontextmanager
    async def lifespan(app):
        log.append("enter")
        tasks.append(asyncio.current_task())
        await asyncio.sleep(1)
        yield
        tasks.append(asyncio.current_task())
        log.append("leave")

    async def read():
        log.append("read")
        return READING

    app = App("app", lifespan=lifespan)
    app.add_telemetry("d", read, interval=10)
    running = harness(app)
    running.run(5)
    running.stop()

    assert log == ["enter", "read", "leave"]
    assert tasks[0] is tasks[1], "many context managers demand one task"


def test_a_lifespan_that_cannot_be_entered_is_tried_again_and_told(harness):
    tries = []

    @asynccontextmanager
    async def lifespan(app):
        tries.append(1)
        if len(tries) < 3:
            raise (OSError("not there"), GeneratorExit())[len(tries) - 1]
        yield

    app = App("app", lifespan=lifespan)
    app.add_telemetry("d", Scripted(READING), interval=10)
    running = harness(app)
    running.run(30)

    assert len(tries) == 3
    assert running.states("d")
    assert "lifespan" in running.faults()[0]["where"]


def test_a_lifespan_that_cannot_be_left_is_told_and_ends_with_the_app(harness, caplog):
    @asynccontextmanager
    async def lifespan(app):
        yield
        raise OSError("it does not close")

    app = App("app", lifespan=lifespan)
    app.add_telemetry("d", Scripted(READING), interval=10)
    running = harness(app)
    running.run(5)
    running.stop()

    assert running.left_behind == 0
    assert "it does not close" in caplog.text


def test_an_app_can_be_stopped_while_its_lifespan_hangs(harness):
    @asynccontextmanager
    async def lifespan(app):
        await asyncio.sleep(10_000)
        yield

    app = App("app", lifespan=lifespan)
    app.add_telemetry("d", Scripted(READING), interval=10)
    running = harness(app)
    running.run(5)
    running.stop()

    assert running.stopped_in < 2
    assert running.left_behind == 0
    assert running.states("d") == []


def test_a_lifespan_whose_configuration_is_wrong_ends_the_app_and_leaves_nothing_running():
    @asynccontextmanager
    async def lifespan(app):
        await asyncio.sleep(1)
        raise InvalidValue("the port is no port")
        yield

    async def main():
        app = App("app", lifespan=lifespan)
        app.load(Where.nowhere({}))
        app.add_telemetry("d", Scripted(READING), interval=10)
        with pytest.raises(InvalidValue, match="no port"):
            await app.serve(broker.connect)
        return asyncio.all_tasks() - {asyncio.current_task()}

    broker, loop = MemoryBroker(), VirtualLoop()
    assert loop.run_until_complete(main()) == set()
    loop.close()
