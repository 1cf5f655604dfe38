"""Polls that the app's own code asks for."""

import asyncio
import contextlib
import logging

import pytest

from leadsman import App, CircuitBreaker, Context
from leadsman.errors import InvalidValue, UnknownDevice


class Boiler:
    """A device that takes a second to answer."""

    def __init__(self):
        self.target = 20
        self.reads = []


def app_with(boiler, write, *, interval="1h", **options):
    app = App("app")

    @app.telemetry("boiler", interval=interval, **options)
    async def read(context: Context):
        boiler.reads.append(asyncio.get_running_loop().time())
        await context.sleep(1)
        return {"target": boiler.target}

    app.add_command("boiler", write)
    return app


def test_a_command_reads_the_device_back_after_its_write(harness):
    boiler = Boiler()

    async def write(target: int, context: Context):
        boiler.target = target
        context.poll()

    running = harness(app_with(boiler, write))
    running.run(10)
    running.broker.send("app/boiler/set", b"25")
    running.run(2)

    assert running.states("boiler") == [{"target": 20}, {"target": 25}]


def test_the_read_back_comes_after_what_the_command_returns(harness):
    boiler = Boiler()

    async def write(target: int, context: Context):
        context.poll()
        await context.sleep(2)
        boiler.target = target
        return {"target": "asked for"}

    running = harness(app_with(boiler, write))
    running.run(10)
    running.broker.send("app/boiler/set", b"25")
    running.run(5)

    assert running.states("boiler") == [{"target": 20}, {"target": "asked for"}, {"target": 25}]


def test_a_plain_command_asks_from_its_thread(harness):
    boiler = Boiler()

    def write(target: int, context: Context):
        boiler.target = target
        context.poll()

    running = harness(app_with(boiler, write))
    running.run(10)
    running.broker.send("app/boiler/set", b"25")
    running.run(3)

    assert running.states("boiler")[-1] == {"target": 25}


def test_a_poll_under_way_is_followed_by_another_one(harness):
    boiler = Boiler()

    async def write(target: int, context: Context):
        boiler.target = target
        context.poll()

    running = harness(app_with(boiler, write, interval="10s"))
    running.at(10.5, lambda: running.broker.send("app/boiler/set", b"25"))
    running.run(14)

    assert boiler.reads == pytest.approx([0, 10, 11], abs=0.1)
    assert running.states("boiler")[-1] == {"target": 25}


def test_many_commands_are_read_back_once(harness):
    boiler = Boiler()

    async def write(target: int, context: Context):
        await context.sleep(0.1)
        boiler.target = target
        context.poll()

    running = harness(app_with(boiler, write))
    running.run(10)
    for target in range(21, 29):
        running.broker.send("app/boiler/set", b"%d" % target)
    running.run(10)

    assert len(boiler.reads) == 2
    assert running.states("boiler")[-1] == {"target": 28}


def test_a_request_within_the_throttle_comes_when_it_is_over(harness):
    boiler = Boiler()

    async def write(target: int, context: Context):
        boiler.target = target
        context.poll()

    running = harness(app_with(boiler, write, throttle="5s"))
    running.at(10, lambda: running.broker.send("app/boiler/set", b"25"))
    running.at(12, lambda: running.broker.send("app/boiler/set", b"26"))
    running.at(13, lambda: running.broker.send("app/boiler/set", b"27"))
    running.run(30)

    assert boiler.reads == pytest.approx([0, 10, 15], abs=0.1)
    assert running.states("boiler")[-1] == {"target": 27}


def test_a_read_back_waits_for_its_turn_on_the_bus(harness):
    boiler = Boiler()
    app = App("app")

    @app.telemetry("boiler", interval="1h", group="bus")
    async def read():
        return {"target": boiler.target}

    @app.command("boiler", group="bus")
    async def write(target: int, context: Context):
        context.poll()
        await context.sleep(2)
        boiler.target = target

    running = harness(app)
    running.run(10)
    running.broker.send("app/boiler/set", b"25")
    running.run(3)

    assert running.states("boiler") == [{"target": 20}, {"target": 25}]


def test_an_open_circuit_refuses_and_says_so_once_and_the_command_succeeds(harness, caplog):
    app = App("app")

    @app.telemetry("boiler", interval="10s", circuit_breaker=CircuitBreaker(1, recovery="1h"))
    async def read():
        raise OSError("no answer")

    @app.command("boiler")
    async def write(target: int, context: Context):
        context.poll()

    running = harness(app)
    running.run(1)
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            running.broker.send("app/boiler/set", b"25")
            running.run(2)

    results = [each.json for each in running.broker.messages("app/boiler/set/result")]
    assert [each["status"] for each in results] == ["ok"] * 3
    said = [record.message for record in caplog.records if "asked for a poll" in record.message]
    assert len(said) == 1
    assert "the circuit is open" in said[0]


def test_a_held_device_is_not_polled(harness):
    boiler = Boiler()

    async def write(target: int, context: Context):
        context.poll()

    running = harness(app_with(boiler, write))
    running.run(2)
    running.broker.send("app/boiler/hold/set", b"")
    running.run(1)
    running.broker.send("app/boiler/set", b"25")
    running.run(5)

    assert len(boiler.reads) == 1


def test_a_request_is_published_whatever_the_publish_rule_says(harness):
    from leadsman import OnChange

    app = App("app")

    @app.telemetry("d", interval="1h", publish=OnChange())
    async def read():
        return {"t": 1}

    running = harness(app)
    running.run(5)
    app.poll("d")
    running.run(1)

    assert running.states("d") == [{"t": 1}, {"t": 1}]


def test_any_device_is_polled_from_a_lifespan_or_another_handler(harness):
    reads = []

    @contextlib.asynccontextmanager
    async def lifespan(app):
        task = asyncio.create_task(ask(app))
        yield
        task.cancel()

    async def ask(app):
        await asyncio.sleep(5)
        app.poll("d")

    app = App("app", lifespan=lifespan)

    @app.telemetry("d", interval="1h")
    async def read():
        reads.append(asyncio.get_running_loop().time())

    running = harness(app)
    running.run(6)

    assert reads == pytest.approx([0, 5], abs=0.1)


def test_a_device_that_is_not_polled_has_a_named_error(harness):
    errors = []
    app = App("app")

    @app.periodic("job", interval="1h")
    async def job(): ...

    @app.command("valve")
    async def write(context: Context):
        try:
            context.poll()
        except UnknownDevice as error:
            errors.append(str(error))

    running = harness(app)
    running.run(1)
    running.broker.send("app/valve/set", b"")
    running.run(1)

    assert errors == ["there is no device 'valve' that can be polled; register one with @app.telemetry('valve', …)"]
    with pytest.raises(UnknownDevice, match="'job'"):
        app.poll("job")


def test_an_app_that_does_not_run_has_a_named_error(harness):
    app = App("app")

    @app.telemetry("d", interval="1h")
    async def read(): ...

    with pytest.raises(InvalidValue, match="call poll while it runs"):
        app.poll("d")
    running = harness(app)
    running.run(1)
    running.stop()
    with pytest.raises(InvalidValue, match="call poll while it runs"):
        app.poll("d")


def test_a_request_at_the_end_of_the_app_is_dropped(harness):
    boiler = Boiler()

    async def write(target: int, context: Context):
        context.poll()
        await context.sleep(60)

    running = harness(app_with(boiler, write))
    running.run(2)
    running.broker.send("app/boiler/set", b"25")
    running.run(1)
    running.stop()

    assert len(boiler.reads) == 1
