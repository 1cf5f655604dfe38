"""What discovery retains is in the registry, so that nothing is left when a device, discovery or the app goes."""

import json

import pytest

from leadsman import App, Context, Discovery, Finds
from leadsman.core.introspection.retained import Listed
from leadsman.testing import Harness, Scripted

HOMEASSISTANT = Discovery()


def config(key, prefix="homeassistant"):
    return f"{prefix}/device/house/{key}/config"


def house(*names, discovery=HOMEASSISTANT):
    app = App("house", discovery=discovery)
    for name in names:
        app.add_telemetry(name, Scripted({"t": 1}), interval=10)
    return app


class Life:
    """One broker and, one after the other, runs of an app at it."""

    def __init__(self, exact_only=False):
        self.retained, self.exact_only = {}, exact_only

    def run(self, app, before=lambda broker: None):
        with Harness(app) as harness:
            harness.broker.retained.update(self.retained)
            harness.broker.exact_only = self.exact_only
            before(harness.broker)
            harness.run("70m")  # a ledger is published each hour
        self.retained = dict(harness.broker.retained)
        return harness

    @property
    def listed(self):
        found = Listed("house")
        for topic, delivered in self.retained.items():
            found.add(topic, delivered.payload)
        return dict(found.topics())

    @property
    def not_listed(self):
        return set(self.retained) - {topic for each in self.listed.values() for topic in each}


@pytest.fixture(params=[False, True], ids=["", "a filter with a wildcard brings nothing"])
def life(request):
    return Life(request.param)


def test_every_retained_topic_is_in_the_registry(life):
    life.run(house("a", "b"))

    assert life.not_listed == {"house/status", "house/registry"}
    assert {"house/a/health", config("a")} <= set(life.listed["a"])
    assert life.listed[""] == (config("leadsman_app"),)


def test_a_device_that_is_gone_leaves_nothing_and_each_topic_is_removed_once(life):
    life.run(house("a", "b"))

    again = life.run(house("a"))

    assert [topic for topic in life.retained if "/b/" in topic] == []
    removed = [message.topic for message in again.broker.log if not message.payload]
    assert sorted(removed) == [
        config("b"),
        *(f"house/b/{word}" for word in ("availability", "health", "ledger", "state")),
    ]
    assert life.not_listed == {"house/status", "house/registry"}


def test_the_description_of_a_device_that_is_gone_is_removed_seconds_before_its_other_topics(life):
    life.run(house("a", "b"))  # Home Assistant would take an empty state for a broken one

    with Harness(house("a")) as harness:
        harness.broker.retained.update(life.retained)
        harness.run("3s")
        assert [message.topic for message in harness.broker.log if not message.payload] == [config("b")]
        harness.run("5s")
        assert [topic for topic in harness.broker.retained if "/b/" in topic] == []


def test_where_discovery_is_off_the_descriptions_are_removed_seconds_before_the_health_topics_too(life):
    life.run(house("a", "b"))

    with Harness(house("a", discovery=None)) as harness:
        harness.broker.retained.update(life.retained)
        harness.run("4s")
        removed = [message.topic for message in harness.broker.log if not message.payload]
        assert sorted(removed) == sorted(map(config, ("a", "b", "leadsman_app")))
        harness.run("5s")
        assert [topic for topic in harness.broker.retained if "/b/" in topic or topic.endswith("/health")] == []


def test_a_device_with_another_name_keeps_the_configuration_that_it_took_over(life):
    life.run(house("old"))

    again = life.run(house("new", discovery=Discovery(ids={"new": "old"})))

    assert [each.payload for each in again.broker.messages(config("old")) if not each.payload] == []
    assert config("old") in life.listed["new"]
    assert [topic for topic in life.retained if topic.startswith("house/old/")] == []


@pytest.mark.parametrize("discovery", [None, Discovery(prefix="ha")])
def test_discovery_that_is_off_or_elsewhere_leaves_nothing_at_its_former_topics(life, discovery):
    life.run(house("a"))

    life.run(house("a", discovery=discovery))

    assert [topic for topic in life.retained if topic.startswith("homeassistant/")] == []
    assert ("house/a/health" in life.retained) == (discovery == Discovery(prefix="ha"))
    assert life.not_listed == {"house/status", "house/registry"}


def test_the_configuration_of_another_program_is_not_listed_and_not_removed():
    life = Life()  # where a filter with a wildcard brings nothing, the app cannot know of it
    other = json.dumps({"o": {"name": "another"}}).encode()

    def taken(broker):
        broker.retained[config("a")] = broker.retained[config("a")]._replace(payload=other)

    life.run(house("a"))
    life.run(house("a"), before=taken)

    assert config("a") not in life.listed["a"]
    life.run(house("b"))
    life.run(house("b", discovery=None))
    assert life.retained[config("a")].payload == other


def test_a_device_that_is_found_again_while_its_topics_are_removed_keeps_its_description(life):
    def gateway(patience):
        app = App("house", discovery="homeassistant")

        @app.telemetry("gateway", interval="10m", finds=Finds(dict[str, float]))
        async def gateway(context: Context) -> None:
            for number in range(20):
                await context.sleep(patience)
                context.device(f"s{number}").publish({"t": 1.0})

        return app

    life.run(gateway("1ms"))
    before = sorted(life.retained)
    assert config("s19") in before

    life.run(gateway("400ms"))

    assert sorted(life.retained) == before
    for number in range(20):
        assert life.retained[f"house/s{number}/availability"].payload == b"online"
