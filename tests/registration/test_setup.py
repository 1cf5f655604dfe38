"""What an app is set up with, before and after its settings are loaded."""

import pytest
from pydantic import BaseModel

from leadsman.errors import InvalidType, InvalidValue
from leadsman.mqtt.broker import Broker, Brokers
from leadsman.mqtt.topics import Topics
from leadsman.registration.declaration import Declaration, declared_settings
from leadsman.registration.registry import Registry
from leadsman.registration.router import Registration
from leadsman.registration.setup import Setup
from leadsman.resilience.catalogue import named_policy
from leadsman.resilience.policy import immediate
from leadsman.settings.sources import Where


class Settings(BaseModel):
    rooms: list[str] = []


class Port:
    async def __aenter__(self): ...

    async def __aexit__(self, *exc_info): ...


class PortTwin(Port):
    pass


async def read(): ...


async def read_port(port: Port): ...


def registration(names="d", handler=read, kind="telemetry", **options):
    return Registration(kind, names, handler, {"interval": 60, **options})


def setup(**declared):
    defaults = {"brokers": None, "adapters": (), "model": None, "settings": None, "twins": None}
    return Setup(Declaration("app", Topics("app"), "", **defaults | declared))


def load(setup, flags=None):
    setup.load(Where.nowhere(flags or {}, {}))
    return setup


def test_before_the_settings_are_loaded_nothing_is_known_that_depends_on_them():
    bare = setup(model=Settings)

    with pytest.raises(InvalidValue, match="the settings are not loaded yet"):
        _ = bare.settings
    with pytest.raises(InvalidValue, match="the broker is not known yet"):
        _ = bare.brokers
    assert (bare.rows, bare.loaded_from) == ((), None)


def test_names_and_broker_come_from_the_settings():
    given = {"mqtt.host": "broker.lan", "mqtt.topic_prefix": "house/app", "mqtt.client_id": "me"}
    loaded = load(setup(), given)

    assert (loaded.brokers.primary.host, loaded.topics.prefix, loaded.client_id) == ("broker.lan", "house/app", "me")
    assert loaded.state_name == "app@house+app"


def test_a_broker_that_the_author_declared_is_replaced_by_that_of_the_settings():
    declared = Brokers(Broker("declared.lan"))

    assert load(setup(brokers=declared)).brokers is declared
    assert load(setup(brokers=declared), {"mqtt.host": "flag.lan"}).brokers.primary.host == "flag.lan"


def test_registrations_whose_names_come_from_the_settings_wait_for_them():
    waiting = setup(model=Settings)
    waiting.register(registration(lambda settings: settings.rooms))
    assert waiting.registry.everything == []

    load(waiting, {"rooms": ["a", "b"]})

    assert list(waiting.registry.telemetries) == ["a", "b"]


def test_names_that_come_from_settings_need_settings():
    with pytest.raises(InvalidValue, match="settings=Settings"):
        setup().register(registration(lambda settings: ["a"]))


def test_unloaded_it_has_the_same_registrations_and_nothing_else_of_before():
    before = setup(model=Settings, adapters=(Port(),))
    before.register(registration(lambda settings: settings.rooms))
    before.register(registration("fixed", read_port))
    load(before, {"rooms": ["a"], "mqtt.topic_prefix": "other"})

    after = before.unloaded()
    assert (list(after.registry.telemetries), after.topics.prefix) == (["fixed"], "app")
    load(after, {"rooms": ["b", "c"]})

    assert sorted(after.registry.telemetries) == ["b", "c", "fixed"]
    assert sorted(before.registry.telemetries) == ["a", "fixed"]


def test_unloaded_it_may_get_other_adapters():
    port = PortTwin()
    before = setup(adapters=(Port(),))
    before.register(registration(handler=read_port))

    assert before.unloaded((port,)).adapter(Port) is port
    assert type(before.adapter(Port)) is Port


def test_twins_replace_adapters_of_their_type_and_name():
    twins = {"a": PortTwin(), "b": PortTwin()}
    real = setup(adapters={"a": Port(), "b": Port()}, twins=lambda settings: twins)

    real.use_twins()

    assert [real.adapter(Port, name) for name in ("a", "b")] == list(twins.values())


def test_each_adapter_needs_a_twin():
    with pytest.raises(InvalidValue, match="twins contains no twin for Port 'b'"):
        setup(adapters={"a": Port(), "b": Port()}, twins=lambda settings: {"a": PortTwin()}).use_twins()
    with pytest.raises(InvalidValue, match="the app has no twins"):
        setup(adapters=(Port(),)).use_twins()


def test_an_adapter_is_found_by_its_type_only_if_there_is_one():
    both = setup(adapters={"a": Port(), "b": Port()})

    with pytest.raises(InvalidValue, match="the app has 2 adapters of the type Port; it has: Port 'a', Port 'b'"):
        both.adapter(Port)
    with pytest.raises(InvalidValue, match="the app has no adapters of the type Registry"):
        both.adapter(Registry)


def test_policies_are_named_before_the_settings_are_loaded():
    gentle = named_policy("gentle", immediate().max_retries(1))
    named = setup()
    named.name_policy(gentle)
    named.register(registration(policy="gentle"))
    load(named)

    assert named.registry.telemetries["d"].guards.policy == gentle.policy
    with pytest.raises(InvalidValue, match="policy 'gentle': the settings are already loaded"):
        named.name_policy(gentle)


def test_a_policy_of_a_family_is_found_without_any_named_by_the_user():
    families = setup()
    families.register(registration(policy="serial"))
    load(families)

    assert families.registry.telemetries["d"].policy_name == "serial"
    assert families.registry.telemetries["d"].guards.policy != immediate()


def test_an_app_without_named_policies_has_no_catalogue():
    plain = setup()
    plain.register(registration(retry=3))

    assert load(plain).catalogue is None


@pytest.mark.parametrize(
    ("registrations", "told"),
    [
        ([], "it registers nothing"),
        ([registration(enabled=False)], "all its devices are disabled"),
        ([registration(lambda settings: settings.rooms)], "it has no devices, because 'rooms' is empty"),
        ([registration(lambda settings: settings.rooms[:0])], "it has no device"),
    ],
)
def test_an_app_with_nothing_to_do_says_what_to_write(registrations, told):
    idle = setup(model=Settings)
    for each in registrations:
        idle.register(each)

    assert told in load(idle).idle_reason


def test_an_app_with_something_to_do_is_not_idle():
    busy = setup()
    busy.register(registration())

    assert load(busy).idle_reason is None


def test_settings_are_a_model_or_filled_already():
    filled = Settings(rooms=["a"])

    assert declared_settings(None) == (None, None)
    assert declared_settings(Settings) == (Settings, None)
    assert declared_settings(filled) == (Settings, filled)
    with pytest.raises(InvalidType, match="write a pydantic model"):
        declared_settings({"rooms": []})
