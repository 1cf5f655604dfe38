"""Many devices of one handler, and registrations that are wrong."""

import pytest
from pydantic import BaseModel
from tests.integration.rooms import ROOMS, Room, Settings

from leadsman import App, CircuitBreaker, Context, Device, Every
from leadsman.core.settings.sources import Where
from leadsman.errors import InvalidType, InvalidValue
from leadsman.testing import Scripted

READING = {"t": 21.5}


def test_one_handler_serves_many_devices_with_settings_of_their_own(harness):
    app = App("app", settings=Settings(rooms=ROOMS))

    @app.telemetry(lambda settings: {name: Device(room, interval=room.every) for name, room in settings.rooms.items()})
    async def read(room: Room):
        return {"address": room.address}

    running = harness(app)
    running.run(40.5)

    assert running.states("kitchen") == [{"address": 3}] * 5
    assert running.states("attic") == [{"address": 4}] * 3


def test_each_device_has_its_own_rule_breaker_and_counters(harness):
    app = App("app")
    calls = {"good": 0, "bad": 0}

    @app.telemetry(["good", "bad"], interval=10, publish=Every(n=3), circuit_breaker=CircuitBreaker(2))
    async def read(context: Context):
        calls[context.name] += 1
        if context.name == "bad":
            raise OSError("no answer")
        return READING

    running = harness(app)
    running.run(119)

    assert calls["good"] == 12
    assert len(running.states("good")) == 4
    assert running.statuses("good")[-1] == "ok"
    assert running.statuses("bad")[-1] == "circuit_open"


def test_names_that_are_wrong_or_twice_are_refused():
    app = App("app")
    with pytest.raises(InvalidValue, match="contains '/'"):
        app.add_telemetry({"a/b": None}, Scripted(READING), interval=5)
    with pytest.raises(InvalidValue, match="is already registered"):
        app.add_telemetry(["a", "a"], Scripted(READING), interval=5)
    with pytest.raises(InvalidType, match="list of names"):
        app.add_telemetry(5, Scripted(READING), interval=5)
    with pytest.raises(InvalidValue, match="settings=Settings"):
        app.add_telemetry(lambda settings: ["a"], Scripted(READING), interval=5)


def test_a_decorator_without_brackets_is_refused():
    app = App("app")
    for decorator in (app.telemetry, app.source, app.command, app.periodic):
        with pytest.raises(InvalidType, match=r"write @app\."):

            @decorator
            async def handler(): ...


def test_a_plain_handler_without_brackets_is_told_from_a_function_that_makes_names():
    class Port: ...

    def handler(): ...

    def with_port(port: Port): ...

    def names(settings: Settings):
        return {name: Device(room, interval=room.every) for name, room in settings.rooms.items()}

    app = App("app", settings=Settings(rooms=ROOMS))
    for bare in (handler, with_port):
        with pytest.raises(InvalidType, match=r"write @app\.telemetry"):
            app.telemetry(bare)
    app.telemetry(names)(handler)
    app.load(Where.nowhere({}))

    assert {name: each.interval for name, each in app.telemetries.items()} == {"kitchen": 10.0, "attic": 20.0}


def test_a_wrong_word_of_one_device_names_it():
    app = App("app")
    with pytest.raises(InvalidType, match=r"telemetry 'b': .*did you mean 'interval'"):
        app.add_telemetry({"a": Device(), "b": Device(intervall=5)}, Scripted(READING), interval=5)


def test_one_list_of_devices_serves_a_device_that_is_read_and_takes_commands(harness):
    app, switched = App("app"), []
    pumps = {"attic": Device(interval="10s", timeout="3s", retry=2), "cellar": Device(interval="20s")}

    @app.telemetry(pumps)
    async def pump(context: Context) -> dict[str, str]:
        return {"name": context.name}

    @app.command(pumps)
    async def switch(on: bool, context: Context) -> None:
        switched.append((context.name, on))

    running = harness(app)
    running.run("1s")
    running.broker.send("app/cellar/set", b"true")
    running.run("40s")

    assert switched == [("cellar", True)]
    assert len(running.states("attic")) == 5
    assert app.commands["attic"].timeout == 3
    assert app.commands["cellar"].timeout == 30


def test_an_option_that_no_decorator_has_is_refused_for_a_command_too():
    app = App("app")

    with pytest.raises(InvalidType, match="'intervall' is no"):

        @app.command({"attic": Device(intervall="10s")})
        async def switch(on: bool) -> None: ...


def test_a_registration_that_turns_out_wrong_with_the_settings_names_the_file_and_the_line_of_its_handler():
    app = App("app", settings=type("Settings", (BaseModel,), {}))

    @app.telemetry(lambda settings: ["late"], intervall=5)
    async def late() -> None: ...

    line = late.__code__.co_firstlineno
    with pytest.raises(InvalidType, match=rf"^telemetry 'late': 'intervall'.* \(test_devices\.py line {line}\)$"):
        app.load()
