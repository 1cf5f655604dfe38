import asyncio
import functools
import itertools
import json
import logging
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import BaseModel

from leadsman import App, CircuitBreaker, Context, Device, Every, FixedBackoff, Router
from leadsman.errors import ConfigurationError, InvalidType, InvalidValue, ResultError
from leadsman.runtime.context import _target
from leadsman.runtime.store import Store, Stores, state_directory
from leadsman.settings.sources import Where
from leadsman.testing import MemoryBroker, Scripted, VirtualLoop, fail
from leadsman.testing.loop import START

READING = {"t": 21.5}


@pytest.fixture
def state(tmp_path):
    return tmp_path / "state"


@pytest.fixture
def harness(harness, state):
    return functools.partial(harness, state_directory=state)


class Room(BaseModel):
    address: int
    every: str = "10s"


class Bus(BaseModel):
    port: str = "/dev/bus"


class Settings(BaseModel):
    rooms: dict[str, Room] = {}
    bus: Bus = Bus()
    offset: float = 0.0


ROOMS = {"kitchen": Room(address=3), "attic": Room(address=4, every="20s")}


# Many devices


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
    with pytest.raises(InvalidValue, match="holds '/'"):
        app.add_telemetry({"a/b": None}, Scripted(READING), interval=5)
    with pytest.raises(InvalidValue, match="is registered already"):
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


def test_settings_and_their_sections_are_injected_by_type(harness):
    app = App("app", settings=Settings(offset=1.5, bus=Bus(port="/dev/x")))

    @app.telemetry("d", interval=10)
    async def read(settings: Settings, bus: Bus):
        return {"offset": settings.offset, "port": bus.port}

    running = harness(app)
    running.run(1)

    assert running.states("d") == [{"offset": 1.5, "port": "/dev/x"}]
    assert app.settings.offset == 1.5


def test_adapters_may_be_made_of_the_settings(harness):
    class Port:
        def __init__(self, path):
            self.path = path

        async def __aenter__(self):
            return self

        async def __aexit__(self, *exc_info): ...

    app = App("app", settings=Settings(bus=Bus(port="/dev/x")), adapters=lambda settings: (Port(settings.bus.port),))

    @app.telemetry("d", interval=10)
    async def read(port: Port):
        return {"path": port.path}

    running = harness(app)
    running.run(1)

    assert running.states("d") == [{"path": "/dev/x"}]


def test_settings_that_are_not_loaded_cannot_be_read():
    app = App("app", settings=Settings)
    with pytest.raises(InvalidValue, match="not loaded"):
        _ = app.settings
    with pytest.raises(InvalidValue, match="not known"):
        _ = app.broker
    with pytest.raises(InvalidType, match="pydantic model"):
        App("app", settings={"a": 1})


# Routers


def test_a_router_brings_its_registrations_with_a_prefix(harness):
    router = Router("upstairs")
    router.add_telemetry("bath", Scripted(READING), interval=10)
    router.add_command("lamp", Scripted({}))
    app = App("app")
    app.include(router)
    app.include(router, prefix="east")

    running = harness(app)
    running.run(1)

    assert running.states("upstairs_bath") == running.states("east_upstairs_bath") == [READING]
    assert set(app.commands) == {"upstairs_lamp", "east_upstairs_lamp"}


def test_routers_nest_and_prefix_names_of_every_kind():
    inner, outer = Router("b"), Router("a")
    inner.add_telemetry(["x", "y"], Scripted(READING), interval=5)
    inner.add_telemetry(lambda settings: settings.rooms, Scripted(READING), interval=5)
    inner.add_periodic({"z": None}, Scripted(None), interval=5)
    outer.include(inner)
    app = App("app", settings=Settings(rooms=ROOMS))
    app.include(outer)
    app.load()

    assert set(app.telemetries) == {"a_b_x", "a_b_y", "a_b_z", "a_b_kitchen", "a_b_attic"}


def test_only_routers_are_included():
    with pytest.raises(InvalidType, match="Router"):
        App("app").include(App("other"))


# Periodic


def test_a_side_job_runs_and_has_no_topics(harness):
    done = []
    app = App("app")

    @app.periodic("cleanup", interval="1m")
    async def cleanup():
        done.append(1)

    running = harness(app)
    running.run("5m1s")

    assert len(done) == 6
    assert not any(each.topic.startswith("app/cleanup") for each in running.broker.log)
    assert running.status()["jobs"] == {"cleanup": {"status": "ok"}}
    assert running.status()["devices"] == {}


def test_a_side_job_that_fails_is_told_like_a_device(harness, caplog):
    app = App("app")
    app.add_periodic("cleanup", Scripted(fail(1), None), interval="1m", retry=0)
    running = harness(app)
    running.run("3m")

    assert "cleanup: failing" in caplog.text
    assert running.status()["jobs"]["cleanup"]["status"] == "ok"


def test_a_side_job_that_returns_something_is_told_so(harness):
    app = App("app")
    app.add_periodic("cleanup", Scripted(READING), interval="1m")
    running = harness(app)
    running.run(5)

    assert "periodic job" in running.status()["jobs"]["cleanup"]["last_error"]


def test_words_about_topics_are_not_for_side_jobs():
    with pytest.raises(InvalidType, match="'publish' is no option"):
        App("app").add_periodic("cleanup", Scripted(None), interval=5, publish=None)


# Lifespan


def test_the_lifespan_is_entered_before_the_first_poll_and_left_after_the_last(harness):
    log = []

    @asynccontextmanager
    async def lifespan(app):
        log.append("enter")
        await asyncio.sleep(1)
        yield
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


def test_a_lifespan_that_cannot_be_entered_is_tried_again_and_told(harness):
    tries = []

    @asynccontextmanager
    async def lifespan(app):
        tries.append(1)
        if len(tries) < 3:
            raise OSError("not there")
        yield

    app = App("app", lifespan=lifespan)
    app.add_telemetry("d", Scripted(READING), interval=10)
    running = harness(app)
    running.run(30)

    assert len(tries) == 3
    assert running.states("d")
    assert "lifespan" in running.faults()[0]["where"]


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


# Context


def test_attempts_count_retries_since_the_last_success(harness):
    seen = []
    app = App("app")

    @app.telemetry("d", interval="10m", retry=2, backoff=FixedBackoff(1))
    async def read(context: Context):
        seen.append(context.attempts)
        if len(seen) < 5:
            raise OSError("no answer")
        return READING

    running = harness(app)
    running.run("21m")

    assert seen == [0, 1, 2, 2, 3, 0]


def test_sleep_ends_with_the_app(harness):
    app = App("app")

    @app.telemetry("d", interval="1h", timeout=None)
    async def read(context: Context):
        await context.sleep("30m")
        return READING

    running = harness(app)
    running.run("10m")
    running.stop()

    assert running.stopped_in < 0.5
    assert running.left_behind == 0


def test_sleep_until_a_time_of_day(harness):
    woke = []
    app = App("app")

    @app.periodic("d", interval="24h", timeout=None)
    async def read(context: Context):
        await context.sleep_until("06:30", "Europe/Berlin")
        woke.append(asyncio.get_running_loop().wall_time())

    running = harness(app)
    running.run("12h")

    assert woke == [pytest.approx(datetime(2026, 1, 1, 5, 30, tzinfo=UTC).timestamp(), abs=0.1)]


@pytest.mark.parametrize(
    ("when", "now", "expected"),
    [
        ("06:30", "2026-01-01T00:00Z", "2026-01-01T05:30Z"),
        ("06:30", "2026-01-01T05:30Z", "2026-01-02T05:30Z"),
        ("06:30", "2026-07-01T00:00Z", "2026-07-01T04:30Z"),
        ("02:30", "2026-03-28T22:00Z", "2026-03-29T01:30Z"),  # leapt over: 03:30 summer time
        ("02:30", "2026-10-24T22:00Z", "2026-10-25T00:30Z"),  # comes twice: the first
        ("06:00", "2026-03-28T12:00Z", "2026-03-29T04:00Z"),
    ],
)
def test_times_of_day_are_met_on_days_when_the_clock_changes(when, now, expected):
    wall = datetime.fromisoformat(now).timestamp()

    assert _target(when, "Europe/Berlin", wall) == datetime.fromisoformat(expected).timestamp()


@pytest.mark.parametrize(
    ("when", "error"),
    [("6 o'clock", InvalidValue), (datetime(2026, 1, 1), InvalidValue), (5, InvalidType), (None, InvalidType)],
)
def test_times_that_make_no_sense_are_refused(when, error):
    with pytest.raises(error):
        _target(when, "UTC", START)


def test_a_handler_publishes_to_topics_of_its_own(harness):
    app = App("app")

    @app.telemetry("d", interval=10)
    async def read(context: Context):
        context.publish("raw/frame", b"\x01\x02")
        context.publish("note", "hello", retain=True)
        context.publish("more", {"a": [1, 2.5, None]})
        return READING

    running = harness(app)
    running.run(1)

    assert running.broker.messages("app/d/raw/frame")[0].payload == b"\x01\x02"
    assert running.broker.retained["app/d/note"].payload == b"hello"
    assert running.broker.messages("app/d/more")[0].json == {"a": [1, 2.5, None]}


def test_a_plain_handler_publishes_from_its_thread(harness):
    app = App("app")

    @app.telemetry("d", interval=10)
    def read(context: Context):
        context.publish("note", "hello")

    running = harness(app)
    running.run(1.5)

    assert running.broker.messages("app/d/note")[0].payload == b"hello"


@pytest.mark.parametrize(
    ("topic", "payload", "error"),
    [
        ("state", "x", InvalidValue),
        ("set/result", "x", InvalidValue),
        ("a/#", "x", InvalidValue),
        ("a\x00", "x", InvalidValue),
        ("/a", "x", InvalidValue),
        ("a", float("nan"), ResultError),
        ("a", {"b": object()}, ResultError),
    ],
)
def test_what_cannot_be_published_is_a_named_failure(harness, topic, payload, error):
    app = App("app")

    @app.telemetry("d", interval=10)
    async def read(context: Context):
        context.publish(topic, payload)

    running = harness(app)
    running.run(1)

    assert running.errors("d")[0]["type"] == error.__name__


def test_the_log_of_a_handler_names_its_device(harness, caplog):
    caplog.set_level(logging.INFO)
    app = App("app")

    @app.telemetry("d", interval=10)
    async def read(context: Context):
        context.logger.info("read %d bytes", 5)

    harness(app).run(1)

    assert "d: read 5 bytes" in caplog.text


# The store


def counter(app):
    @app.telemetry("d", interval=1)
    async def read(context: Context):
        context.store["n"] = context.store.get("n", 0) + 1
        return {"n": context.store["n"]}

    return app


def test_a_store_survives_a_restart(harness, state):
    first = harness(counter(App("app")))
    first.run(9.5)
    first.stop()

    second = harness(counter(App("app")))
    second.run(0.5)

    assert second.states("d") == [{"n": 11}]
    assert json.loads((state / "d.json").read_text()) == {"n": 10}
    assert (state / "d.json").stat().st_mode & 0o777 == 0o600


def test_a_store_is_written_at_most_once_a_minute(harness, state, monkeypatch):
    writes = []
    save = Store.save
    monkeypatch.setattr(Store, "save", lambda store: (writes.append(1), save(store)))
    running = harness(counter(App("app")))

    running.run("10m1s")

    assert len(writes) == 10


@pytest.mark.parametrize(
    "content", [b"{", b"[1]", b"\xff\xfe", b"", b"[" * 100_000, b'{"n": NaN}', b'{"n": "\\ud800"}']
)
def test_a_broken_store_is_kept_aside_and_told(harness, state, caplog, content):
    state.mkdir()
    (state / "d.json").write_bytes(content)

    running = harness(counter(App("app")))
    running.run(0.5)

    assert running.states("d") == [{"n": 1}]
    assert (state / "d.broken").read_bytes() == content
    assert "broken" in caplog.text


def test_a_store_that_cannot_be_written_costs_one_line(harness, state, caplog):
    state.write_text("a file where a directory should be")

    running = harness(counter(App("app")))
    running.run("5m1s")

    assert len(running.states("d")) == 302
    assert caplog.text.count("cannot be") <= 2


def test_a_process_that_is_killed_while_it_writes_leaves_the_old_store(tmp_path, monkeypatch):
    stores = Stores(tmp_path)
    stores.of("d")["n"] = 1
    stores.save()
    stores.of("d")["n"] = 2
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            stores.save()

    assert dict(Stores(tmp_path).of("d")) == {"n": 1}
    stores.of("d")["n"] = 3
    stores.save()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d.json"]


def test_a_value_that_cannot_be_written_costs_no_other_store_and_is_tried_again(tmp_path, caplog):
    stores = Stores(tmp_path)
    stores.of("bad")["list"] = []
    stores.of("bad")["list"].append(object())
    stores.of("good")["n"] = 1
    stores.save()
    stores.save()
    told = caplog.text.count("cannot be written")
    stores.of("bad")["list"].clear()
    stores.save()

    assert told == 1
    assert dict(Stores(tmp_path).of("good")) == {"n": 1}
    assert dict(Stores(tmp_path).of("bad")) == {"list": []}


def test_a_store_is_written_once_the_disk_takes_it_again(tmp_path):
    (tmp_path / "state").write_text("in the way")
    stores = Stores(tmp_path / "state")
    stores.of("d")["n"] = 1
    stores.save()
    waiting = stores.changed
    (tmp_path / "state").unlink()
    stores.save()

    assert waiting
    assert not stores.changed
    assert dict(Stores(tmp_path / "state").of("d")) == {"n": 1}


def test_a_store_takes_only_what_json_carries(tmp_path):
    store = Store(tmp_path / "d.json")
    for value in (float("nan"), object(), b"x", {1: 2}):
        with pytest.raises(ResultError):
            store["a"] = value
    with pytest.raises(InvalidType):
        store[1] = 2
    store["a"] = {"b": [1]}
    store["a"]["b"].append(2)
    del store["a"]["b"]
    assert dict(store) == {"a": {}}


def test_a_change_inside_a_value_is_written_at_the_end(tmp_path):
    stores = Stores(tmp_path)
    stores.of("d")["list"] = [1]
    stores.save()
    stores.of("d")["list"].append(2)
    stores.save()

    assert dict(Stores(tmp_path).of("d")) == {"list": [1, 2]}


def test_a_device_name_leads_nowhere_else(tmp_path):
    for name in ("..", "a.b", "ä ö", "%2f"):
        Stores(tmp_path).of(name)["a"] = 1
        stores = Stores(tmp_path)
        stores.of(name)["a"] = 1
        stores.save()
        assert dict(Stores(tmp_path).of(name)) == {"a": 1}
    assert all(path.parent == tmp_path for path in tmp_path.rglob("*.json"))


def test_the_state_directory_is_systemds_or_the_users(monkeypatch, tmp_path):
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/house:/var/lib/other")
    assert str(state_directory("house")) == "/var/lib/house"
    monkeypatch.delenv("STATE_DIRECTORY")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert state_directory("house") == tmp_path / "leadsman" / "house"


def test_an_unknown_need_is_refused_with_what_there_is():
    class Nowhere: ...

    app = App("app", settings=Settings)
    with pytest.raises(ConfigurationError, match="Bus, Context, Settings"):

        @app.telemetry("d", interval=5)
        async def read(thing: Nowhere): ...


def test_a_test_reads_neither_environment_nor_files(harness, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("APP_OFFSET", "3")
    (tmp_path / "leadsman.toml").write_text("nonsense = ")
    app = App("app", settings=Settings)

    @app.telemetry(lambda settings: list(settings.rooms), interval=10)
    async def read(settings: Settings):
        return {"offset": settings.offset}

    running = harness(app, settings={"rooms": {"kitchen": {"address": 3}}, "bus.port": "/dev/x"})
    running.run(1)

    assert running.states("kitchen") == [{"offset": 0.0}]
    assert app.settings.bus.port == "/dev/x"


@pytest.mark.parametrize("where", ["names", "adapters"])
def test_a_function_of_the_settings_that_raises_is_a_named_error_with_its_line(where):
    def wrong(settings):
        raise KeyError("port")

    app = App("app", settings=Settings, adapters=wrong if where == "adapters" else ())
    app.add_telemetry(wrong if where == "names" else "d", Scripted(READING), interval=5)

    with pytest.raises(InvalidValue, match=rf"{where}.*: test_surface.py line \d+: KeyError: 'port'"):
        app.load(Where.nowhere({}))


def test_a_part_of_the_app_that_dies_is_told_and_started_again_ever_more_slowly(harness, monkeypatch):
    from leadsman.monitoring.heartbeat import Heartbeat

    deaths = []

    async def dying(heartbeat):
        deaths.append(asyncio.get_running_loop().time())
        raise ZeroDivisionError

    monkeypatch.setattr(Heartbeat, "run", dying)
    app = App("app")
    app.add_telemetry("d", Scripted(READING), interval=10)
    running = harness(app)
    running.run("5m")

    assert running.faults()[0]["where"] == "the heartbeat"
    assert len(running.states("d")) == 31
    waits = [after - before for before, after in itertools.pairwise(deaths)]
    assert waits[0] < 2 < waits[3] < 40
    assert 7 <= len(deaths) <= 11


@pytest.mark.parametrize(("step", "woken_at"), [(3 * 3600, 2.5), (-3600, 6.5)])
def test_a_clock_that_is_set_while_somebody_sleeps_until_a_time_of_day_is_noticed(harness, step, woken_at):
    woke = []
    app = App("app")

    @app.periodic("d", interval="48h", timeout=None)
    async def read(context: Context):
        await context.sleep_until("05:30", "UTC")
        woke.append(asyncio.get_running_loop().time() / 3600)

    running = harness(app)
    running.at("1h", lambda: running.loop.step_wall(step))
    running.run("12h")

    assert woke == [pytest.approx(woken_at, abs=0.01)]


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
    with pytest.raises(InvalidType, match=rf"^telemetry 'late': 'intervall'.* \(test_surface\.py line {line}\)$"):
        app.load()
