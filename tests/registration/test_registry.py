"""Registrations by name: which names are free, and what handlers must agree on."""

import pytest

from leadsman import CircuitBreaker
from leadsman.errors import ConfigurationError, InvalidType, InvalidValue
from leadsman.registration.registry import Registry, ask_user
from leadsman.registration.router import Device, Registration
from leadsman.registration.telemetry import Telemetry


async def read(): ...


async def stream():
    yield {"t": 1}


async def take(value: int): ...


HANDLERS = {"telemetry": read, "periodic": read, "source": stream, "command": take}
OPTIONS = {"telemetry": {"interval": 60}, "periodic": {"interval": 60}, "source": {}, "command": {}}


def add(registry, kind, names="d", settings=None, decide=None, **options):
    registration = Registration(kind, names, HANDLERS[kind], {**OPTIONS[kind], **options})
    registry.add(registration, settings, (), decide)


@pytest.fixture
def registry():
    return Registry("app")


def test_a_device_may_have_a_handler_and_a_command(registry):
    add(registry, "telemetry")
    add(registry, "command")

    assert [type(each).__name__ for each in registry.everything] == ["Telemetry", "Command"]


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
def test_a_name_is_taken_only_once_of_a_kind_that_would_collide(registry, first, second):
    add(registry, first)

    with pytest.raises(InvalidValue, match=f"{second} 'd' is already registered"):
        add(registry, second)
    assert len(registry.everything) == 1


def test_one_registration_may_define_many_devices_with_options_of_their_own(registry):
    add(registry, "telemetry", {"a": Device(interval=1), "b": Device(interval=2)})

    assert {name: each.interval for name, each in registry.telemetries.items()} == {"a": 1.0, "b": 2.0}


def test_names_may_come_from_the_settings(registry):
    add(registry, "telemetry", lambda settings: settings["rooms"], settings={"rooms": ["a", "b"]})

    assert list(registry.telemetries) == ["a", "b"]
    assert registry.without_devices == []


def test_a_handler_for_which_the_settings_name_no_device_is_remembered(registry):
    add(registry, "telemetry", lambda settings: [])

    assert registry.everything == []
    assert registry.without_devices == ["read"]


def test_handlers_that_share_a_circuit_must_specify_it_alike(registry):
    add(registry, "telemetry", "a", circuit_breaker=CircuitBreaker(3, shared="bus"))
    add(registry, "source", "b", circuit_breaker=CircuitBreaker(3, shared="bus"))

    with pytest.raises(InvalidValue, match="shared='bus' differs from that of 'a'"):
        add(registry, "telemetry", "c", circuit_breaker=CircuitBreaker(4, shared="bus"))


def test_once_the_settings_are_loaded_a_fault_says_where_its_handler_is(registry):
    with pytest.raises(ConfigurationError, match=r"interval is -1.*\(test_registry.py line \d+\)"):
        add(registry, "telemetry", interval=-1, decide=lambda telemetry: telemetry)
    with pytest.raises(ConfigurationError) as before:
        add(registry, "telemetry", interval=-1)
    assert "test_registry.py" not in str(before.value)


def test_policies_are_put_in_place_once_the_settings_are_loaded(registry):
    add(registry, "telemetry", decide=lambda telemetry: telemetry._replace(policy_name="gentle"))

    assert registry.telemetries["d"].policy_name == "gentle"
    assert isinstance(registry.telemetries["d"], Telemetry)


def test_a_function_of_the_user_that_fails_is_named_with_its_line():
    def adapters(settings):
        return settings["port"]

    with pytest.raises(InvalidValue, match=r"adapters: test_registry.py line \d+: TypeError"):
        ask_user("adapters", adapters, None)


def test_a_configuration_error_of_the_users_function_stays_as_it_is():
    def adapters(settings):
        raise InvalidValue("write a port")

    with pytest.raises(InvalidValue, match="^write a port$"):
        ask_user("adapters", adapters, None)


def test_the_devices_of_a_loop_share_their_guards():
    registry = Registry("app")
    for name in ("a", "b", "c"):
        registry.add(Registration("telemetry", name, read, {"interval": 60, "retry": 3}), None, [], None)
    registry.add(Registration("telemetry", "d", read, {"interval": 60, "retry": 4}), None, [], None)

    guards = [telemetry.guards for telemetry in registry.telemetries.values()]

    assert guards[0] is guards[1] is guards[2]
    assert guards[2] != guards[3]


def test_a_device_of_a_loop_gets_what_its_own_settings_give():
    class Room:
        def __init__(self, floor):
            self.floor = floor

    async def read_room(room: Room):
        return {"floor": room.floor}

    registry = Registry("app")
    rooms = {"cellar": Device(Room(-1)), "kitchen": Device(Room(0)), "attic": Device(Room(2), retry=1)}
    registry.add(Registration("telemetry", rooms, read_room, {"interval": 60, "retry": 3}), None, [], None)

    found = {name: each.needs[0][1].get().floor for name, each in registry.telemetries.items()}

    assert found == {"cellar": -1, "kitchen": 0, "attic": 2}
    guards = [each.guards for each in registry.telemetries.values()]
    assert guards[0] is guards[1]
    assert guards[1] != guards[2]


def test_the_second_device_of_a_loop_is_checked_like_the_first():
    registry = Registry("app")
    registry.add(Registration("telemetry", "a", read, {"interval": 60, "retry": 1}), None, [], None)

    with pytest.raises(InvalidType, match="retry is True"):
        registry.add(Registration("telemetry", "b", read, {"interval": 60, "retry": True}), None, [], None)
    with pytest.raises(InvalidValue, match="'a' is already registered"):
        registry.add(Registration("telemetry", "a", read, {"interval": 60, "retry": 1}), None, [], None)
    with pytest.raises(InvalidValue, match="a/b"):
        registry.add(Registration("telemetry", "a/b", read, {"interval": 60, "retry": 1}), None, [], None)
    assert list(registry.telemetries) == ["a"]
