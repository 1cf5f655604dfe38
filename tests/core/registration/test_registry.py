"""Registrations by name: which names are free, and what handlers must agree on."""

import functools
from typing import Annotated

import pytest
from pydantic import BaseModel

from leadsman import App, CircuitBreaker, Device, immediate
from leadsman.core.settings.sources import Where
from leadsman.errors import ConfigurationError, InvalidType, InvalidValue, ResultError


async def read(): ...


async def stream():
    yield {"t": 1}


async def take(value: int): ...


HANDLERS = {"telemetry": read, "periodic": read, "source": stream, "command": take}
OPTIONS = {"telemetry": {"interval": 60}, "periodic": {"interval": 60}, "source": {}, "command": {}}


def add(app, kind, names="d", **options):
    getattr(app, f"add_{kind}")(names, HANDLERS[kind], **{**OPTIONS[kind], **options})


@pytest.fixture
def app():
    return App("app")


def registered(app):
    return app.setup.registry.everything


def test_a_device_may_have_a_handler_and_a_command(app):
    add(app, "telemetry")
    add(app, "command")

    assert [type(each).__name__ for each in registered(app)] == ["Telemetry", "Command"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("telemetry", "telemetry"),
        ("telemetry", "source"),
        ("source", "telemetry"),
        ("command", "command"),
        ("periodic", "telemetry"),
        ("periodic", "command"),
        ("command", "periodic"),
    ],
)
def test_a_name_is_taken_only_once_of_a_kind_that_would_collide(app, first, second):
    add(app, first)

    with pytest.raises(InvalidValue, match=f"{second} 'd' is already registered"):
        add(app, second)
    assert len(registered(app)) == 1


def test_one_registration_may_define_many_devices_with_options_of_their_own(app):
    add(app, "telemetry", {"a": Device(interval=1), "b": Device(interval=2)})

    assert {name: each.interval for name, each in app.telemetries.items()} == {"a": 1.0, "b": 2.0}


class Rooms(BaseModel):
    rooms: list[str] = []


def test_names_may_come_from_the_settings():
    app = App("app", settings=Rooms(rooms=["a", "b"]))
    add(app, "telemetry", lambda settings: settings.rooms)
    app.load(Where.nowhere({}, {}))

    assert list(app.telemetries) == ["a", "b"]
    assert app.setup.registry.without_devices == []


def test_a_handler_for_which_the_settings_name_no_device_is_remembered():
    app = App("app", settings=Rooms)
    add(app, "telemetry", lambda settings: [])
    app.load(Where.nowhere({}, {}))

    assert registered(app) == []
    assert app.setup.registry.without_devices == ["read"]


def test_handlers_that_share_a_circuit_must_specify_it_alike(app):
    add(app, "telemetry", "a", circuit_breaker=CircuitBreaker(3, shared="bus"))
    add(app, "source", "b", circuit_breaker=CircuitBreaker(3, shared="bus"))

    with pytest.raises(InvalidValue, match="shared='bus' differs from that of 'a'"):
        add(app, "telemetry", "c", circuit_breaker=CircuitBreaker(4, shared="bus"))


def test_once_the_settings_are_loaded_a_fault_says_where_its_handler_is():
    app = App("app", settings=Rooms)
    add(app, "telemetry", lambda settings: ["d"], interval=-1)

    with pytest.raises(ConfigurationError, match=r"interval is -1.*\(test_registry.py line \d+\)"):
        app.load(Where.nowhere({}, {}))
    with pytest.raises(ConfigurationError) as before:
        add(App("app"), "telemetry", interval=-1)
    assert "test_registry.py" not in str(before.value)


def test_policies_are_put_in_place_once_the_settings_are_loaded(app):
    app.retry_policy("gentle", immediate())
    add(app, "telemetry", policy="gentle")
    assert app.telemetries["d"].guards.policy != immediate()

    app.load(Where.nowhere({}, {}))

    assert app.telemetries["d"].guards.policy == immediate()


def test_a_function_of_the_user_that_fails_is_named_with_its_line():
    app = App("app", adapters=lambda settings: settings["port"])

    with pytest.raises(InvalidValue, match=r"adapters: test_registry.py line \d+: TypeError"):
        app.load(Where.nowhere({}, {}))


def test_a_configuration_error_of_the_users_function_stays_as_it_is():
    def adapters(settings):
        raise InvalidValue("write a port")

    with pytest.raises(InvalidValue, match="^write a port$"):
        App("app", adapters=adapters).load(Where.nowhere({}, {}))


def test_the_devices_of_a_loop_share_their_guards():
    app = App("app")
    for name in ("a", "b", "c"):
        app.add_telemetry(name, read, interval=60, retry=3)
    app.add_telemetry("d", read, interval=60, retry=4)

    guards = [telemetry.guards for telemetry in app.telemetries.values()]

    assert guards[0] is guards[1] is guards[2]
    assert guards[2] != guards[3]


def test_a_device_of_a_loop_gets_what_its_own_settings_give():
    class Room:
        def __init__(self, floor):
            self.floor = floor

    async def read_room(room: Room):
        return {"floor": room.floor}

    app = App("app")
    rooms = {"cellar": Device(Room(-1)), "kitchen": Device(Room(0)), "attic": Device(Room(2), retry=1)}
    app.add_telemetry(rooms, read_room, interval=60, retry=3)

    found = {name: each.needs[0][1].get().floor for name, each in app.telemetries.items()}

    assert found == {"cellar": -1, "kitchen": 0, "attic": 2}
    guards = [each.guards for each in app.telemetries.values()]
    assert guards[0] is guards[1]
    assert guards[1] != guards[2]


def test_the_second_device_of_a_loop_is_checked_like_the_first():
    app = App("app")
    app.add_telemetry("a", read, interval=60, retry=1)

    with pytest.raises(InvalidType, match="retry is True"):
        app.add_telemetry("b", read, interval=60, retry=True)
    with pytest.raises(InvalidValue, match="'a' is already registered"):
        app.add_telemetry("a", read, interval=60, retry=1)
    with pytest.raises(InvalidValue, match="a/b"):
        app.add_telemetry("a/b", read, interval=60, retry=1)
    assert list(app.telemetries) == ["a"]


def test_each_handler_that_a_loop_makes_serves_its_own_device():
    app, handlers = App("app"), {}
    for name in ("a", "b", "c"):

        @app.telemetry(name, interval=60, retry=3)
        async def read_one() -> dict[str, float]:
            return {"t": 1}

        handlers[name] = read_one

    assert {name: each.handler for name, each in app.telemetries.items()} == handlers
    guards = [each.guards for each in app.telemetries.values()]
    assert guards[0] is guards[1] is guards[2]


@pytest.mark.parametrize("interval", [60, None])
def test_handlers_of_one_line_that_are_annotated_otherwise_are_told_apart(interval):
    app, kinds = App("app"), {"a": float, "b": dict[str, float], "c": "float", "d": "dict", "e": Annotated[str, []]}
    for number, (name, kind) in enumerate(kinds.items()):

        @app.telemetry(name, interval=interval or 60 + number)
        async def read_one() -> kind: ...

    assert {name: each.field for name, each in app.telemetries.items()} == {
        **dict.fromkeys("ace", "value"),
        **dict.fromkeys("bd", None),
    }


def test_text_of_an_annotation_is_what_its_name_is_at_each_turn_of_a_loop(monkeypatch):
    app = App("app")
    for name, kind in {"a": dict[str, float], "b": float}.items():
        monkeypatch.setitem(globals(), "Kind", kind)

        @app.telemetry(name, interval=60)
        async def read_one() -> "Kind": ...  # noqa: F821  # the loop gives the name its meaning

    assert [each.field for each in app.telemetries.values()] == [None, "value"]


def test_options_that_a_loop_changes_are_those_of_each_turn():
    app, errors, fields = App("app"), [ValueError], {"t": {"name": "first"}}
    for name in ("first", "second"):
        errors[:] = [OSError] if name == "second" else errors
        fields["t"]["name"] = name

        @app.telemetry(name, interval=60, offline_on=errors, fields=fields)
        async def read_one(): ...

    assert [each.offline_on for each in app.telemetries.values()] == [(ValueError,), (OSError,)]
    assert [each.fields["t"].name for each in app.telemetries.values()] == ["first", "second"]


def test_a_wrong_value_inside_an_option_is_found_where_an_equal_one_was_right():
    app = App("app")
    app.add_telemetry("a", read, interval=60, fields={"t": {"discoverable": True}})

    with pytest.raises(InvalidType, match="discoverable"):
        app.add_telemetry("b", read, interval=60, fields={"t": {"discoverable": 1}})


def test_handlers_of_one_line_may_be_renamed():
    app = App("app")
    for name in ("first", "second"):

        async def read_one() -> float: ...

        read_one.__qualname__ = name
        app.add_telemetry(name, read_one, interval=60)

    with pytest.raises(ResultError, match="second is annotated to return one value"):
        app.telemetries["second"].validate_result([])


def test_handlers_of_two_lines_are_told_apart_by_more_than_their_names():
    app = App("app")
    for name in ("a", "b"):
        if name == "a":

            async def read_one() -> float: ...
        else:

            def read_one() -> float: ...

        app.add_telemetry(name, read_one, interval=60)

    assert [each.plain for each in app.telemetries.values()] == [False, True]


def test_the_default_of_a_parameter_that_a_request_gives_is_checked_for_each_handler_of_a_loop():
    app = App("app")

    def add(name, default):
        async def read_days(days: int = default): ...

        app.add_telemetry(name, read_days, interval=60, request="days")

    add("a", 30)
    with pytest.raises(InvalidValue, match="the default of the parameter 'days' does not fit its type"):
        add("b", "soon")


def test_a_handler_of_a_loop_without_the_default_of_the_others_lacks_an_adapter():
    app = App("app")

    def handlers():
        async def read_days(days: int): ...

        read_days.__defaults__ = (30,)
        yield read_days

    (first,), (second,) = handlers(), handlers()
    second.__defaults__ = None
    app.add_telemetry("a", first, interval=60)
    with pytest.raises(InvalidValue, match="asks for int"):
        app.add_telemetry("b", second, interval=60)


class Server:
    """An adapter that names itself."""

    def __init__(self, name):
        self.name, self.works = name, True

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exc_info): ...

    def ask(self):
        if not self.works:
            raise OSError("the server is away")
        return {"from": self.name}


class Port(Server):
    """One of another class."""


@pytest.fixture
def servers():
    return {"home": Server("home"), "club": Server("club"), "port": Port("port")}


async def ask(server: Server):
    return server.ask()


def of_club(kind, servers, handler, **options):
    app = App("app", adapters=servers)
    names = {"waste": Device(adapter="club"), "birthdays": Device(adapter="home")}
    getattr(app, f"add_{kind}")(names, handler, **options)
    return app


def test_a_device_may_say_which_of_several_adapters_it_uses(servers, harness):
    del servers["port"]
    running = harness(of_club("telemetry", servers, ask, interval="10s", retry=0))
    servers["home"].works = False
    running.run(15)

    assert running.states("waste")[-1] == {"from": "club"}
    assert running.states("birthdays") == []
    assert running.errors("waste") == []
    assert running.errors("birthdays")[0]["message"] == "the server is away"


def test_what_else_a_handler_asks_for_is_not_changed_by_the_adapter_of_its_device(servers, harness):
    async def both(server: Annotated[Server, "club"], port: Port):
        return {"server": server.name, "port": port.name}

    app = App("app", adapters=servers)
    app.add_telemetry({"waste": Device(adapter="club")}, both, interval="10s")
    running = harness(app)
    running.run(5)

    assert running.states("waste") == [{"server": "club", "port": "port"}]


def test_the_command_of_a_device_uses_its_adapter_too(servers, harness):
    del servers["port"]

    async def again(server: Server):
        return server.ask()

    running = harness(of_club("command", servers, again))
    running.run(1)
    for name in ("waste", "birthdays"):
        running.broker.send(f"app/{name}/set", b"")
    running.run(1)

    assert [running.states(name)[-1]["from"] for name in ("waste", "birthdays")] == ["club", "home"]


@pytest.mark.parametrize(
    ("adapters", "name", "error", "told"),
    [
        (("home", "club"), "clup", InvalidValue, "no adapter has the name 'clup'; did you mean 'club'"),
        (("home", "club"), "\x1b[31m", InvalidValue, r"telemetry 'waste': no adapter .*x1b"),
        (("home", "club"), 7, InvalidType, "telemetry 'waste': adapter is 7; write the name of an adapter"),
        ((), "club", InvalidValue, "no adapter has the name 'club'; name them"),
    ],
)
def test_an_adapter_that_a_device_names_wrongly_is_told_at_the_registration(adapters, name, error, told):
    app = App("app", adapters={each: Server(each) for each in adapters} or (Server("x"),))

    with pytest.raises(error, match=told):
        app.add_telemetry({"waste": Device(adapter=name)}, ask, interval=60)


class Unhashable(list[float]):
    """A handler that is a list, which has no hash."""

    async def __call__(self, days: int = 1) -> dict[str, float]:
        return {"t": self[0]}


def test_a_handler_may_be_an_object_without_a_hash():
    app = App("app")
    app.add_telemetry("boiler", Unhashable([1.0]), interval=60, fields={"t": {"name": "T"}})
    app.add_telemetry("cellar", Unhashable([1.0]), interval=60, request="days")
    app.add_command("lamp", functools.partial(Unhashable([2.0]), 3))

    assert [*app.telemetries, *app.commands] == ["boiler", "cellar", "lamp"]
    assert app.telemetries["boiler"].handler is not app.telemetries["cellar"].handler
