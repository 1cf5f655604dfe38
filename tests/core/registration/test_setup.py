"""What an app is set up with, before and after its settings are loaded."""

import pytest
from pydantic import BaseModel

from leadsman import App, Broker, immediate
from leadsman.core.settings.sources import Where
from leadsman.errors import InvalidType, InvalidValue


class Settings(BaseModel):
    rooms: list[str] = []


class Port:
    async def __aenter__(self): ...

    async def __aexit__(self, *exc_info): ...


class PortTwin(Port):
    pass


async def read(): ...


async def read_port(port: Port): ...


def add(app, names="d", handler=read, **options):
    app.add_telemetry(names, handler, **{"interval": 60, **options})


def load(app, flags=None):
    """What the app is set up with, once its settings are loaded."""
    app.load(Where.nowhere(flags or {}, {}))
    return app.setup


def test_before_the_settings_are_loaded_nothing_is_known_that_depends_on_them():
    bare = App("app", settings=Settings).setup

    with pytest.raises(InvalidValue, match="the settings are not loaded yet"):
        _ = bare.settings
    with pytest.raises(InvalidValue, match="the broker is not known yet"):
        _ = bare.brokers
    assert (bare.rows, bare.loaded_from) == ((), None)


def test_names_and_broker_come_from_the_settings():
    given = {"mqtt.host": "broker.lan", "mqtt.topic_prefix": "house/app", "mqtt.client_id": "me"}
    loaded = load(App("app"), given)

    assert (loaded.brokers.primary.host, loaded.topics.prefix, loaded.client_id) == ("broker.lan", "house/app", "me")
    assert loaded.identity.state_name == "app@house+app"


def test_a_broker_that_the_author_declared_is_replaced_by_that_of_the_settings():
    declared = Broker("declared.lan")

    assert load(App("app", mqtt=declared)).brokers.primary is declared
    assert load(App("app", mqtt=declared), {"mqtt.host": "flag.lan"}).brokers.primary.host == "flag.lan"


def test_registrations_whose_names_come_from_the_settings_wait_for_them():
    waiting = App("app", settings=Settings)
    add(waiting, lambda settings: settings.rooms)
    assert waiting.telemetries == {}

    load(waiting, {"rooms": ["a", "b"]})

    assert list(waiting.telemetries) == ["a", "b"]


def test_names_that_come_from_settings_need_settings():
    with pytest.raises(InvalidValue, match="settings=Settings"):
        add(App("app"), lambda settings: ["a"])


def test_unloaded_it_has_the_same_registrations_and_nothing_else_of_before():
    app = App("app", settings=Settings, adapters=(Port(),))
    add(app, lambda settings: settings.rooms)
    add(app, "fixed", read_port)
    before = load(app, {"rooms": ["a"], "mqtt.topic_prefix": "other"})

    after = before.unloaded()
    assert (list(after.registry.telemetries), after.topics.prefix) == (["fixed"], "app")
    after.load(Where.nowhere({"rooms": ["b", "c"]}, {}))

    assert sorted(after.registry.telemetries) == ["b", "c", "fixed"]
    assert sorted(before.registry.telemetries) == ["a", "fixed"]


def test_unloaded_it_may_get_other_adapters():
    port = PortTwin()
    app = App("app", adapters=(Port(),))
    add(app, handler=read_port)

    assert app.setup.unloaded((port,)).adapter(Port) is port
    assert type(app.setup.adapter(Port)) is Port


def test_twins_replace_adapters_of_their_type_and_name():
    twins = {"a": PortTwin(), "b": PortTwin()}
    real = App("app", adapters={"a": Port(), "b": Port()}, twins=lambda settings: twins).setup

    real.use_twins()

    assert [real.adapter(Port, name) for name in ("a", "b")] == list(twins.values())


def test_each_adapter_needs_a_twin():
    with pytest.raises(InvalidValue, match="twins contains no twin for Port 'b'"):
        App("app", adapters={"a": Port(), "b": Port()}, twins=lambda settings: {"a": PortTwin()}).setup.use_twins()
    with pytest.raises(InvalidValue, match="the app has no twins"):
        App("app", adapters=(Port(),)).setup.use_twins()


def test_an_adapter_is_found_by_its_type_only_if_there_is_one():
    both = App("app", adapters={"a": Port(), "b": Port()}).setup

    with pytest.raises(InvalidValue, match="the app has 2 adapters of the type Port; it has: Port 'a', Port 'b'"):
        both.adapter(Port)
    with pytest.raises(InvalidValue, match="the app has no adapters of the type Settings"):
        both.adapter(Settings)


def test_policies_are_named_before_the_settings_are_loaded():
    app = App("app")
    app.retry_policy("gentle", immediate().max_retries(1))
    add(app, policy="gentle")
    load(app)

    assert app.telemetries["d"].guards.policy == immediate().max_retries(1)
    with pytest.raises(InvalidValue, match="policy 'gentle': the settings are already loaded"):
        app.retry_policy("gentle", immediate())


def test_a_policy_of_a_family_is_found_without_any_named_by_the_user():
    app = App("app")
    add(app, policy="serial")
    load(app)

    assert app.telemetries["d"].policy_name == "serial"
    assert app.telemetries["d"].guards.policy != immediate()


def test_an_app_without_named_policies_has_no_catalogue():
    app = App("app")
    add(app, retry=3)

    assert load(app).catalogue is None


@pytest.mark.parametrize(
    ("registrations", "told"),
    [
        ([], "it registers nothing"),
        ([{"enabled": False}], "all its devices are disabled"),
        ([{"names": lambda settings: settings.rooms}], "it has no devices, because 'rooms' is empty"),
        ([{"names": lambda settings: settings.rooms[:0]}], "it has no device"),
    ],
)
def test_an_app_with_nothing_to_do_says_what_to_write(registrations, told):
    idle = App("app", settings=Settings)
    for each in registrations:
        add(idle, **each)

    assert told in load(idle).idle_reason


def test_an_app_with_something_to_do_is_not_idle():
    busy = App("app")
    add(busy)

    assert load(busy).idle_reason is None


def test_settings_are_a_model_or_filled_already():
    filled = Settings(rooms=["a"])

    with pytest.raises(InvalidValue, match="the settings are not loaded yet"):
        _ = load(App("app")).settings
    assert load(App("app", settings=Settings)).settings == Settings()
    assert load(App("app", settings=filled)).settings == filled
    with pytest.raises(InvalidType, match="write a pydantic model"):
        App("app", settings={"rooms": []})
