"""A device with very many fields is described in several messages, and a field may move from one to another."""

import json
from collections.abc import AsyncIterator

import pytest
from pydantic import create_model

from leadsman import App, Context, Discovery, Finds
from leadsman.testing import Harness
from leadsman_rigs.stage import URL, run_for

OWN = "homeassistant/device/house"
SETTLING = 3.0
"""Seconds that Home Assistant has for what a message asks for."""


def fields(*numbers):
    return [f"temperature_of_the_room_{number}" for number in numbers]


def readings_of(names):
    return create_model("Readings", **dict.fromkeys(names, (float | None, None)))


def house(names, discovery="homeassistant", name="cellar"):
    app, readings = App("house", discovery=discovery), readings_of(names)

    async def read():
        return readings()

    read.__annotations__["return"] = readings
    app.add_telemetry(name, read, interval="1h")
    return app


def configurations(broker):
    """What the broker has of the device, by topic."""
    return {topic: message.json for topic, message in broker.retained.items() if topic.startswith(f"{OWN}/cellar")}


class Reader:
    """What Home Assistant makes of these messages, where each does what it asks for before the next one comes."""

    def __init__(self):
        self.places = {}
        """The topic of each entity."""
        self.kept = set()
        """The entities whose settings it keeps."""

    def take(self, topic, payload):
        here = [key for key, place in self.places.items() if place == topic]
        document = json.loads(payload) if payload else {"cmps": {key: {"p": "sensor"} for key in here}}
        if document.get("migrate_discovery"):
            for key in here:
                del self.places[key]
            return
        for key, component in document["cmps"].items():
            if len(component) > 1:
                assert self.places.get(key, topic) == topic, f"{key} is still at {self.places[key]}"
                self.places[key] = topic
                self.kept.add(key)
            elif self.places.get(key) == topic:
                del self.places[key]
                self.kept.discard(key)


def read_by(reader, broker):
    for message in broker.log:
        if message.topic.startswith(f"{OWN}/cellar"):
            reader.take(message.topic, message.payload)


MANY = fields(*range(30))


def test_each_message_has_less_than_four_kilobytes_and_all_are_of_one_device(harness):
    running = harness(house(MANY))

    running.run("2s")

    found = configurations(running.broker)
    assert f"{OWN}/cellar/config" in found
    assert len(found) > 1
    assert {len(running.broker.retained[topic].payload) <= 4096 for topic in found} == {True}
    assert len({json.dumps(each["dev"]) for each in found.values()}) == 1
    assert sorted(key for each in found.values() for key in each["cmps"] if not key.startswith("_")) == sorted(MANY)


def test_a_restart_publishes_none_of_them_again():
    with Harness(house(MANY)) as before:
        before.run("2s")
    with Harness(house(MANY)) as after:
        after.broker.retained.update(before.broker.retained)
        after.run("20s")

        assert [m.topic for m in after.broker.log if m.topic.startswith(f"{OWN}/cellar")] == []
        assert configurations(after.broker) == configurations(before.broker)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (fields(*range(6)), MANY),
        (MANY, fields(*range(6))),
        (fields(*range(12)), fields(*range(3, 40))),
        (fields(*range(60)), fields(*range(30, 50))),
    ],
    ids=["more", "fewer", "more-and-others", "fewer-and-others"],
)
def test_a_field_that_moves_leaves_its_message_before_it_is_in_another_and_keeps_its_settings(first, second):
    reader = Reader()
    with Harness(house(first)) as before:
        before.run("2s")
        read_by(reader, before.broker)
    own = {key for key in reader.kept if key.startswith("_")}
    assert reader.kept == own | set(first)
    with Harness(house(second)) as after:
        after.broker.retained.update(before.broker.retained)
        after.run(2 + 20 * SETTLING)
        read_by(reader, after.broker)

        assert reader.places.keys() == reader.kept == own | set(second)
        wanted = {key: topic for topic, each in configurations(after.broker).items() for key in each["cmps"]}
        assert reader.places == wanted
    with Harness(house(second)) as fresh:
        fresh.run("2s")
        assert configurations(after.broker) == configurations(fresh.broker)


def test_a_connection_that_breaks_during_a_move_costs_no_configuration():
    with Harness(house(fields(*range(6)))) as before:
        before.run("2s")
    with Harness(house(MANY)) as after:
        after.broker.retained.update(before.broker.retained)
        after.at(2, after.broker.cut)
        after.run("20s")
        moved = configurations(after.broker)
    with Harness(house(MANY)) as fresh:
        fresh.run("2s")
        assert moved == configurations(fresh.broker)


def test_a_slow_broker_gets_the_new_messages_seconds_after_the_request_to_let_go():
    with Harness(house(fields(*range(6)))) as before:
        before.run("2s")
    with Harness(house(MANY)) as after:
        after.broker.retained.update(before.broker.retained)
        after.at(0.5, after.broker.freeze)  # before the app describes anything
        after.at(7, after.broker.thaw)  # before it is given up
        after.run("40s")

        asked, *published = [m for m in after.broker.log if m.topic.startswith(f"{OWN}/cellar")]
        assert asked.json == {"migrate_discovery": True}
        assert not asked.retain
        assert min(m.at for m in published) - asked.at >= SETTLING
        assert {m.topic for m in published} == configurations(after.broker).keys()


def test_a_renamed_device_has_the_topics_and_the_entities_of_its_former_name(harness):
    running = harness(house(MANY))
    other = house(MANY, discovery=Discovery(ids={"attic": "cellar"}), name="attic")
    renamed = harness(other)

    running.run("2s")
    renamed.run("2s")

    assert unique(configurations(running.broker)) == unique(configurations(renamed.broker))
    assert {each["dev"]["name"] for each in configurations(renamed.broker).values()} == {"attic"}


def unique(found):
    return {topic: [each["uniq_id"] for each in document["cmps"].values()] for topic, document in found.items()}


@pytest.mark.parametrize("apart", [0.3, 20])
def test_all_messages_of_a_found_device_that_is_forgotten_are_removed(harness, apart):
    app = App("house", discovery="homeassistant")

    @app.source("gateway", finds=Finds(readings_of(MANY)), silence=None)
    async def gateway(context: Context) -> AsyncIterator[None]:
        device = context.device("cellar")
        device.publish({})
        yield
        await context.sleep(apart)
        device.forget()
        await context.sleep("365d")

    running = harness(app)
    running.run("10s")
    described = len(configurations(running.broker))
    running.run("50s")

    assert described > 1 if apart > 10 else described == 0
    assert configurations(running.broker) == {}


def test_all_messages_of_a_device_that_is_gone_are_removed():
    with Harness(house(MANY)) as before:
        before.run("2s")
    app = App("house", discovery="homeassistant")
    with Harness(app) as after:
        after.broker.retained.update(before.broker.retained)
        after.run("5s")

        assert configurations(after.broker) == {}


def test_all_messages_are_in_the_registry_and_go_when_discovery_is_switched_off():
    with Harness(house(MANY)) as before:
        before.run("5s")
        listed = before.broker.retained["house/registry"].json["devices"]["cellar"]
    assert set(configurations(before.broker)) <= {*listed["others"]}
    with Harness(house(MANY), settings={"discovery.convention": "off"}) as after:
        after.broker.retained.update(before.broker.retained)
        after.run("20s")

        assert configurations(after.broker) == {}


def test_clean_takes_all_messages_of_a_device_for_topics_that_it_has(harness, stage, capsys):
    running = harness(house(MANY))
    running.run("2s")
    registry = running.broker.retained["house/registry"].json
    registry["devices"] = {"old": registry["devices"]["cellar"]}
    stage.keep({topic: each.payload for topic, each in running.broker.retained.items()} | {"house/registry": registry})

    def removed(app):
        """What is removed with the device that is gone."""
        assert run_for(app, "clean", "--dry-run", "--mqtt", URL) == 0
        return {line for line in capsys.readouterr().out.splitlines() if line.startswith(OWN)}

    whole = {*configurations(running.broker)}
    assert len(whole) > 2
    assert removed(house(MANY)) == set()
    assert removed(house(fields(1))) == whole - {f"{OWN}/cellar/config"}
    assert removed(house(MANY, discovery=None)) == whole


def test_another_program_at_a_further_topic_keeps_what_it_published(caplog):
    with Harness(house(MANY)) as before:
        before.run("2s")
    (topic, *_) = [each for each in configurations(before.broker) if each != f"{OWN}/cellar/config"]
    foreign = before.broker.retained[topic]._replace(payload=b'{"o":{"name":"somebody"},"cmps":{}}')
    with Harness(house(MANY)) as after:
        after.broker.retained[topic] = foreign
        after.run("5s")
        after.broker.send("homeassistant/status", "online")
        after.run("10s")

        assert configurations(after.broker) == {topic: foreign.json}
    assert [each for each in caplog.messages if topic in each and "remove that configuration" in each]
