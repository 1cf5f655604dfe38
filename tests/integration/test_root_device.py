"""The root device: its topics have no level for the device, and elsewhere it has the name of the app."""

import pytest
from pydantic import TypeAdapter

from leadsman import App, CircuitBreaker, Context, Finds, Router
from leadsman.core.introspection.document import RegistryDocument
from leadsman.core.mqtt.topics import topic_matches
from leadsman.errors import InvalidType, InvalidValue
from leadsman.testing import Harness, Scripted, fail
from leadsman_rigs.stage import access_of


def gas(*script, **options):
    app = App("gas")
    app.add_telemetry(None, Scripted(*(script or ({"m3": 1},))), interval=10, **options)
    return app


def test_its_topics_are_those_of_a_device_without_its_level(harness):
    running = harness(gas())
    running.run(25)

    assert running.states("gas") == [{"m3": 1}, {"m3": 1}, {"m3": 1}]
    assert running.broker.retained["gas/state"].json == {"m3": 1}
    assert running.broker.retained["gas/availability"].payload == b"online"
    assert running.status()["devices"] == {"gas": {"status": "ok"}}
    assert not [each.topic for each in running.broker.log if each.topic.startswith("gas/gas")]


def test_it_stands_beside_other_devices(harness):
    app = gas()
    app.add_telemetry("attic", Scripted({"t": 1}), interval=10)

    running = harness(app)
    running.run(5)

    assert running.broker.retained["gas/state"].json == {"m3": 1}
    assert running.broker.retained["gas/attic/state"].json == {"t": 1}


def test_its_outage_is_reported_at_the_error_topic_of_the_app(harness):
    running = harness(gas(fail(1), {"m3": 1}))
    running.run(35)

    assert [error["event"] for error in running.faults()] == ["onset", "recovered"]


def test_the_registry_lists_its_topics_and_a_later_start_without_it_removes_them():
    with Harness(gas()) as one:
        one.run("70s")
        registry = TypeAdapter(RegistryDocument).validate_python(one.broker.retained["gas/registry"].json)
        retained = dict(one.broker.retained)
    other = App("gas")
    other.add_telemetry("meter", Scripted({"m3": 1}), interval=10)
    with Harness(other) as two:
        two.broker.retained.update(retained)
        two.run("70s")

        assert registry["root"] == "gas"
        assert registry["devices"]["gas"]["topics"]["state"] == "gas/state"
        assert "gas/state" not in two.broker.retained
        assert "gas/availability" not in two.broker.retained
        assert two.broker.retained["gas/meter/state"].json == {"m3": 1}


@pytest.mark.parametrize("topic", ["gas/get", "gas/gas/get"])
def test_it_is_polled_on_request_at_both_of_its_addresses(harness, topic):
    running = harness(gas())
    running.run(5)
    running.broker.send(topic, b"")
    running.run(2)

    assert len(running.states("gas")) == 2


@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize("topic", ["gas/hold/set", "gas/gas/hold/set"])
def test_it_is_held_by_request_also_beside_devices_with_commands(harness, topic, others):
    app = gas()
    for number in range(others):
        app.add_command(f"lamp{number}", accept)

    running = harness(app)
    running.run(5)
    running.broker.send(topic, b"")
    running.run(2)

    assert running.status()["devices"]["gas"]["status"] == "held"


async def accept(on: bool) -> dict[str, bool]:
    return {"on": on}


def test_it_takes_commands(harness):
    app = App("lamp")
    app.add_command(None, accept)
    app.add_command("other", accept)

    running = harness(app)
    running.run(1)
    running.broker.send("lamp/set", b"true")
    running.broker.send("lamp/other/set", b"false")
    running.run(1)

    assert running.broker.retained["lamp/state"].json == {"on": True}
    assert running.broker.messages("lamp/set/result")[-1].json["status"] == "ok"
    assert running.broker.retained["lamp/other/state"].json == {"on": False}


def test_a_polled_root_device_has_its_commands_and_a_second_one_is_refused():
    app = gas()
    app.add_command(None, accept)

    with pytest.raises(InvalidValue, match="has a root device already; give this one a name"):
        app.add_telemetry(None, Scripted({}), interval=5)
    with pytest.raises(InvalidValue, match="has a root device already"):
        app.add_command(None, accept)
    with pytest.raises(InvalidValue, match="'gas' is already registered"):
        app.add_telemetry("gas", Scripted({}), interval=5)


def test_what_cannot_be_the_root_device_is_refused():
    app, router = App("gas"), Router("upstairs")
    app.add_telemetry("gas", Scripted({}), interval=5)

    with pytest.raises(InvalidValue, match="has the name of the app, 'gas', and so has another device"):
        app.add_source(None, Scripted({}))
    with pytest.raises(InvalidValue, match="a side job has no topics"):
        app.add_periodic(None, Scripted(None), interval=5)
    with pytest.raises(InvalidValue, match="has a topic filter"):
        app.add_subscription(None, accept)
    with pytest.raises(InvalidType, match="needs a name"):
        router.add_telemetry(None, Scripted({}), interval=5)


def test_its_handler_publishes_at_one_level_below_the_prefix(harness):
    app, seen = App("gas"), []

    @app.telemetry(None, interval=10)
    async def read(context: Context) -> dict[str, int]:
        context.publish("raw", b"1", retain=True)
        try:
            context.publish("attic/state", b"1")
        except InvalidValue as error:
            seen.append(str(error))
        return {"m3": 1}

    running = harness(app)
    running.run(5)

    assert running.broker.retained["gas/raw"].payload == b"1"
    assert "write one" in seen[0]


def test_a_prefix_of_the_settings_and_a_dry_run_keep_it(harness):
    app = App("gas", prefix="house/meter")
    app.add_telemetry(None, Scripted({"m3": 1}), interval=10)

    running = harness(app, settings={"mqtt.topic_prefix": "attic"})
    running.run(5)
    running.stop()
    rehearsed = harness(app, dry_run=True)
    rehearsed.run(5)

    assert running.broker.retained["attic/state"].json == {"m3": 1}
    assert rehearsed.broker.messages("dry-run/house/meter/state")[0].json == {"m3": 1}


def test_found_devices_go_along_with_it(harness):
    app = App("gas")

    @app.source(None, finds=Finds(), silence=None)
    async def gateway(context: Context):
        context.device("attic").publish({"t": 1})
        yield {"heard": 1}
        await context.sleep("1h")

    running = harness(app)
    running.run(20)

    assert running.broker.retained["gas/attic/state"].json == {"t": 1}


def test_the_access_list_has_its_topics():
    app = gas()
    app.add_command("lamp", accept)

    access = access_of(app)

    assert {"gas/state", "gas/availability", "gas/get/response", "gas/error"} <= set(access.publish)
    assert "gas/get" in access.subscribe


def test_all_that_it_publishes_and_subscribes_to_is_in_the_access_list(harness):
    app = App("gas")
    app.add_telemetry(None, Scripted({"m3": 1}, *[fail()] * 20), interval=5, circuit_breaker=CircuitBreaker(2))
    app.add_command("lamp", accept)

    running = harness(app)
    running.at("20s", lambda: running.broker.send("gas/get", b""))
    running.at("25s", lambda: running.broker.send("gas/lamp/set", b"true"))
    running.run("2m")

    access = access_of(app)
    topics = {each.topic for each in running.broker.log}
    assert {"gas/state", "gas/error", "gas/availability", "gas/lamp/set/result"} <= topics
    assert [topic for topic in sorted(topics) if not any(topic_matches(each, topic) for each in access.publish)] == []
    heard = {each for client in running.broker._clients.values() for each in client.filters}
    assert [topic for topic in sorted(heard) if not any(topic_matches(each, topic) for each in access.subscribe)] == []


@pytest.mark.parametrize("word", ["lease", "resilience", "status", "health"])
def test_its_handler_cannot_publish_where_the_app_does(harness, word):
    app = App("gas")

    @app.telemetry(None, interval=10)
    async def read(context: Context) -> dict[str, int]:
        context.publish(word, "1", retain=True)
        return {"m3": 1}

    running = harness(app)
    running.run(5)

    assert running.errors("gas")[0]["type"] == "InvalidValue"
