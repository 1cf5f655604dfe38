"""Two processes of one app: prefix, client id and state are configured, and differ."""

import asyncio

import pytest

from leadsman import App, Context
from leadsman.core.settings.sources import Where
from leadsman.errors import ConfigurationError, SettingsError
from leadsman.testing import Harness, MemoryBroker, VirtualLoop


def meter(**words):
    app = App("meter", **words)

    @app.telemetry("gas", interval="1m")
    async def gas(context: Context) -> dict[str, int]:
        context.store["runs"] = context.store.get("runs", 0) + 1
        return {"runs": context.store["runs"]}

    return app


def loaded(app, tmp_path, flags=None, **environment):
    app.load(Where(environment, tmp_path, None, flags or {}, tmp_path / "secrets"))
    return app


def test_an_app_publishes_below_the_prefix_that_is_configured():
    with Harness(meter(), settings={"mqtt.topic_prefix": "house/second"}) as harness:
        harness.run("10s")

        assert harness.app.client_id == "house/second"
        assert set(harness.broker.retained) >= {"house/second/status", "house/second/gas/availability"}
        assert not [topic for topic in harness.broker.retained if topic.startswith("meter/")]


@pytest.mark.parametrize(
    ("words", "settings", "prefix", "client_id"),
    [
        ({}, {}, "meter", "meter"),
        ({"prefix": "a", "instance": "one"}, {}, "a", "a-one"),
        ({"prefix": "a", "instance": "one"}, {"MQTT__TOPIC_PREFIX": "b"}, "b", "b-one"),
        ({"prefix": "a"}, {"MQTT__TOPIC_PREFIX": "b", "MQTT__CLIENT_ID": "mine"}, "b", "mine"),
        ({}, {"MQTT__CLIENT_ID": "mine"}, "meter", "mine"),
        ({}, {"MQTT__INSTANCE": "two"}, "meter", "meter-two"),
        ({"instance": "one"}, {"MQTT__INSTANCE": "two", "MQTT__TOPIC_PREFIX": "b"}, "b", "b-two"),
        ({"instance": "one"}, {"MQTT__INSTANCE": "two", "MQTT__CLIENT_ID": "mine"}, "meter", "mine"),
    ],
)
def test_what_is_configured_wins_over_the_code(tmp_path, words, settings, prefix, client_id):
    app = loaded(meter(**words), tmp_path, **settings)

    assert (app.topics.prefix, app.client_id) == (prefix, client_id)


def test_a_broker_in_the_code_does_not_keep_the_prefix_from_being_configured(tmp_path):
    (tmp_path / "leadsman.toml").write_text("[mqtt]\ntopic_prefix = 'b'\n")
    app = loaded(meter(mqtt="mqtt://code"), tmp_path)

    assert (str(app.brokers), app.topics.prefix) == ("mqtt://code:1883", "b")
    assert next(row for row in app.setup.rows if row.path == "mqtt.topic_prefix").value == "'b'"


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        (
            {"MQTT__TOPIC_PREFIX": "a//b"},
            r"mqtt.topic_prefix: the prefix 'a//b' has an empty level; write 'a/b' \(from",
        ),
        ({"MQTT__TOPIC_PREFIX": "a/#"}, r"mqtt.topic_prefix: .*environment MQTT__TOPIC_PREFIX"),
        ({"MQTT__CLIENT_ID": "\n"}, r"mqtt.client_id: the client id is '\\n'; write 1 to 200 printable characters"),
        ({"MQTT__CLIENT_ID": "x" * 201}, r"mqtt.client_id: "),
        ({"MQTT__INSTANCE": "a/b"}, r"mqtt.instance: the instance 'a/b' contains '/'; .* such as 'a-b' \(from env"),
        ({"MQTT__INSTANCE": "+"}, r"mqtt.instance: the instance '\+' contains '\+'; .*not allowed in a topic"),
        ({"MQTT__TOPIC_PREFX": "a"}, r"mqtt.topic_prefx: unknown .*; did you mean 'topic_prefix'\?"),
    ],
)
def test_a_wrong_prefix_or_client_id_is_named(tmp_path, environment, told):
    with pytest.raises(ConfigurationError, match=told):
        loaded(meter(), tmp_path, **environment)


def test_a_wrong_prefix_and_a_wrong_port_are_told_in_one_run(tmp_path):
    with pytest.raises(SettingsError) as caught:
        loaded(meter(), tmp_path, MQTT__TOPIC_PREFIX="/", MQTT__PORT="x")

    assert len(str(caught.value).splitlines()) == 2


def test_two_of_one_app_do_not_share_their_state(tmp_path):
    names = [
        loaded(meter(), tmp_path, flags).setup.identity.state_name
        for flags in ({}, {"mqtt.topic_prefix": "house/second"}, {"mqtt.topic_prefix": "house+second"[:5]})
    ]

    assert names == ["meter", "meter@house+second", "meter@house"]


def test_the_state_of_the_second_one_lies_in_a_directory_of_its_own(tmp_path):
    runs = []
    for prefix in ("meter", "house/second", "meter"):
        app, broker, loop = meter(), MemoryBroker(), VirtualLoop()
        app.load(Where.nowhere({"mqtt.topic_prefix": prefix}))
        serving = loop.create_task(app.serve(broker.connect, environment={"XDG_STATE_HOME": str(tmp_path)}))
        loop.run_until_complete(asyncio.sleep(10))
        app.stop()
        loop.run_until_complete(serving)
        loop.close()
        runs += [delivered.json["runs"] for delivered in broker.messages(f"{prefix}/gas/state")]

    assert runs == [1, 1, 2]
    assert sorted(path.name for path in (tmp_path / "leadsman").iterdir()) == ["meter", "meter@house+second"]
