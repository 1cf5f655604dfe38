"""What an app retains at the broker over its life: the registry lists it, and the next start removes what is gone."""

import json

import pytest

from leadsman import App, Context, Delivery, Finds
from leadsman.core.introspection.registry_publication import REMOVING
from leadsman.core.introspection.retained import Listed
from leadsman.testing import Harness, Scripted


def house(*names, name="house", disabled=(), delivery=None, **words):
    app = App(name, prefix="house", **words)
    for each in names:
        options = {} if delivery is None else {"delivery": delivery}
        app.add_telemetry(each, Scripted({"t": 1}), interval=10, enabled=each not in disabled, **options)
    app.add_periodic("cleanup", Scripted(None), interval="1h")
    return app


class Life:
    """One broker and, one after the other, runs of an app at it."""

    def __init__(self, exact_only=False):
        self.retained, self.exact_only = {}, exact_only

    def run(self, app, duration="70s", *, prepare=lambda harness: None, **words):
        with Harness(app, **words) as harness:
            harness.broker.retained.update(self.retained)
            harness.broker.exact_only = self.exact_only
            prepare(harness)
            harness.run(duration)
            self.harness = harness
        self.retained = dict(harness.broker.retained)
        return harness

    def below(self, device):
        return sorted(topic for topic in self.retained if topic.startswith(f"house/{device}/"))

    @property
    def devices(self):
        return self.retained["house/registry"].json["devices"]


@pytest.fixture(params=[False, True], ids=["", "a filter with a wildcard brings nothing"])
def life(request):
    return Life(request.param)


OF_A_DEVICE = ["availability", "state"]


def test_every_retained_topic_of_an_app_is_in_its_registry(life):
    app = house("a", "b", disabled=("b",))
    app.add_source("c", steady)
    app.add_command("d", accept)

    @app.telemetry("e", interval=10)
    async def e(context: Context) -> None:
        context.publish("map/floor", b"x", retain=True)
        context.publish("log", b"x")

    life.run(app, "1m")

    listed = Listed("house")
    for topic, delivered in life.retained.items():
        listed.add(topic, delivered.payload)
    topics = {topic for _, each in listed.topics() for topic in each}
    assert set(life.retained) - topics == {"house/status", "house/registry"}
    assert "house/e/map/floor" in topics
    assert "house/e/log" not in topics


def test_the_topics_of_a_removed_device_go_away_at_the_next_start(life, caplog):
    life.run(house("a", "b", "c"))
    assert life.below("b") == [f"house/b/{word}" for word in OF_A_DEVICE]
    caplog.set_level("INFO")

    again = life.run(house("a"))

    assert life.below("b") == life.below("c") == []
    assert life.below("a") == [f"house/a/{word}" for word in OF_A_DEVICE]
    assert sorted(life.devices) == ["a"]
    assert "removing 6 retained topics of 2 devices that this app no longer has: b, c" in caplog.text
    removed = [delivered for delivered in again.broker.log if not delivered.payload]
    assert {delivered.topic.split("/")[1] for delivered in removed} == {"b", "c"}
    registry = next(delivered.at for delivered in again.broker.log if delivered.topic == "house/registry")
    assert max(delivered.at for delivered in removed) <= registry, "the list is shortened when the topics are gone"

    life.run(house("a"))
    assert [each.topic for each in life.harness.broker.log if not each.payload] == []


def test_a_disabled_device_says_so_and_keeps_its_place(life):
    life.run(house("a", "b"))
    before = life.below("b")

    life.run(house("a", "b", disabled=("b",)))

    assert life.below("b") == before
    assert life.retained["house/b/availability"].payload == b"offline"
    assert life.devices["b"]["enabled"] is False
    assert "enabled" not in life.devices["a"]
    life.run(house("a", "b"))
    assert life.retained["house/b/availability"].payload == b"online"


def test_a_state_that_is_no_longer_retained_goes_away_as_well(life):
    life.run(house("a"))

    life.run(house("a", delivery=Delivery(retain=False)))

    assert life.below("a") == ["house/a/availability"]


def with_topics(*names):
    app = App("house")
    for name in names:

        @app.telemetry(name, interval=60)
        async def read(context: Context) -> None:
            context.publish("map", b"floor", retain=True)

    return app


def test_what_a_handler_retained_goes_with_its_device_and_not_before(life):
    life.run(with_topics("a", "b"))
    assert (life.below("a")[-1], life.below("b")[-1]) == ("house/a/map", "house/b/map")

    quiet = App("house")

    @quiet.telemetry("a", interval=60)
    async def read(context: Context) -> None: ...

    life.run(quiet)

    assert life.below("b") == []
    assert "house/a/map" in life.below("a"), "the handler may publish there again"
    assert life.devices["a"]["others"] == ["house/a/map"]
    life.run(App("house"))
    assert life.below("a") == []


def test_what_a_handler_retained_goes_when_it_can_publish_there_no_more(life):
    life.run(with_topics("a"))

    life.run(house("a"))

    assert life.below("a") == ["house/a/availability", "house/a/state"]


def test_a_topic_that_a_handler_retains_changes_the_registry_once(life):
    harness = life.run(with_topics("a"), "5m")
    pages = [each for each in harness.broker.messages("house/registry") if b"house/a/map" in each.payload]

    assert life.devices["a"]["others"] == ["house/a/map"]
    assert len(pages) == 1
    again = life.run(with_topics("a"), "5m")
    assert len(again.broker.messages("house/registry")) == 1, "an earlier run listed it"


def test_a_topic_that_a_handler_takes_back_is_listed_no_more(life):
    app, payloads = App("house"), [b"floor", b""]

    @app.telemetry("a", interval=30)
    async def read(context: Context) -> None:
        context.publish("map", payloads[0] if len(payloads) == 2 else payloads[-1], retain=True)
        payloads[:] = payloads[-1:]

    life.run(app, "3m")

    assert "house/a/map" not in life.below("a")
    assert "others" not in life.devices["a"] or life.devices["a"]["others"] == []


def test_a_device_with_ever_new_topics_is_bounded_and_told_once(life, caplog):
    app = App("house")

    @app.telemetry("a", interval=60)
    async def read(context: Context) -> None:
        for number in range(300):
            context.publish(f"map/{number}", b"floor", retain=True)

    life.run(app, "5m")

    assert len(life.devices["a"]["others"]) == 256
    assert caplog.text.count("a retains more than 256 topics") == 1


@pytest.mark.parametrize(
    "other", [{"name": "cellar"}, {"settings": {"mqtt.client_id": "another"}}], ids=["another app", "another client id"]
)
def test_what_somebody_else_listed_is_never_removed(life, caplog, other):
    settings = other.get("settings")
    life.run(house("b", **({} if settings else other)), settings=settings)
    before = life.below("b")
    caplog.set_level("INFO")

    life.run(house("a"))

    assert life.below("b") == before
    assert "so no topic that it lists is removed" in caplog.text


@pytest.mark.parametrize("payload", [b"", b"null", b"{", b'{"devices": 5}', b'{"app": "house", "devices": {"b": 7}}'])
def test_a_registry_that_makes_no_sense_is_replaced(life, payload):
    life.run(house("a", "b"))
    life.retained["house/registry"] = life.retained["house/registry"]._replace(payload=payload)

    life.run(house("a"))

    assert sorted(life.devices) == ["a"]
    assert life.below("b") != []


def test_the_pages_that_a_shorter_registry_no_longer_has_go_away(life):
    life.run(house(*(f"device_{number}" for number in range(1200))), "60s")
    pages = [topic for topic in life.retained if topic.startswith("house/registry")]
    assert len(pages) > 2

    life.run(house("device_7"), "60s")

    assert [topic for topic in life.retained if topic.startswith("house/registry")] == ["house/registry"]
    assert {topic.split("/")[1] for topic in life.retained} == {"device_7", "status", "registry"}


def test_topics_that_the_broker_does_not_give_up_are_removed_at_a_later_start(life, caplog):
    life.run(house("a", "b"))

    def refuse(harness):
        harness.broker.refusals["house/b/state"] = 0x87

    life.run(house("a"), REMOVING + 20, prepare=refuse)
    assert life.below("b") == ["house/b/state"]
    assert life.retained["house/registry"].json["others"] == ["house/b/state"]
    assert "the broker has not removed 1 retained topic yet: house/b/state; the next start tries again" in caplog.text

    life.run(house("a"))
    assert life.below("b") == []
    assert "others" not in life.retained["house/registry"].json


def test_a_start_that_is_killed_in_between_is_made_up_for(life):
    life.run(house("a", "b"))

    with Harness(house("a")) as harness:
        harness.broker.retained.update(life.retained)
        harness.broker.refusals["house/b/state"] = 0x87
        harness.run("5s")
        harness.kill()
    life.retained = dict(harness.broker.retained)
    assert "b" in life.devices

    life.run(house("a"))
    assert life.below("b") == []


def test_a_connection_that_breaks_in_between_is_made_up_for(life):
    life.run(house("a", "b", "c"))

    def breaking(harness):
        harness.broker.refusals["house/b/state"] = 0x87
        harness.at("3s", harness.broker.cut)
        harness.at("3s", harness.broker.refusals.clear)

    life.run(house("a"), "60s", prepare=breaking)

    assert life.below("b") == life.below("c") == []
    assert sorted(life.devices) == ["a"]


def test_a_broker_that_says_nothing_about_the_registry_delays_it_only_for_seconds(life):
    def refuse(harness):
        harness.broker.refuse_subscriptions |= {"house/registry/#"}

    life.run(house("a"), "20s", prepare=refuse)

    assert sorted(life.devices) == ["a"]


def test_a_dry_run_hears_and_removes_nothing(life):
    life.run(house("a", "b"))
    before = sorted(life.retained)

    life.run(house("a"), dry_run=True)

    assert sorted(life.retained)[: len(before)] == before or set(before) <= set(life.retained)
    assert [each for each in life.harness.broker.log if not each.payload] == []


# Two at one prefix


def beat(client_id="other", **more):
    return {"state": "online", "session": 1, "client_id": client_id, **more}


def test_another_app_below_the_prefix_is_told_in_the_log_and_in_the_heartbeat(life, caplog):
    caplog.set_level("INFO")

    def say(harness):
        harness.at("5s", lambda: harness.broker.send("house/status", beat()))
        harness.at("15s", lambda: harness.broker.send("house/status", beat()))

    harness = life.run(house("a"), "20s", prepare=say)
    told = "another app publishes below 'house/': its client id is 'other'. Stop one of them, or run one with another"
    documents = [delivered.json for delivered in harness.broker.messages("house/status")]

    assert caplog.text.count(told) == 1
    assert [document["mqtt"]["last_error"] for document in documents if document["state"] == "online"][-1].startswith(
        told
    )
    first = next(
        delivered.at for delivered in harness.broker.messages("house/status") if told.encode() in delivered.payload
    )
    assert 5 <= first <= 7, "the other one hears it, too"


@pytest.mark.parametrize(
    "end", [lambda send: send(beat(state="offline")), lambda send: None], ids=["goodbye", "silence"]
)
def test_it_is_told_when_the_other_app_is_gone(life, caplog, end):
    caplog.set_level("INFO")

    def say(harness):
        harness.at("5s", lambda: harness.broker.send("house/status", beat()))
        harness.at("6s", lambda: end(lambda document: harness.broker.send("house/status", document)))

    harness = life.run(house("a"), "3m", prepare=say)

    assert caplog.text.count("no other app publishes below house/ any more") == 1
    assert [each.json for each in harness.broker.messages("house/status")][-2]["mqtt"]["last_error"] is None


@pytest.mark.parametrize(
    "message",
    [
        beat("house"),
        {"state": "offline", "session": 1, "client_id": "other"},
        {"state": "online", "session": 1},
        b"online",
        b"[" * 100_000,
        b"",
    ],
)
def test_what_proves_no_other_app_is_passed_over(life, message):
    def say(harness):
        harness.at("5s", lambda: harness.broker.send("house/status", message))
        harness.at("6s", lambda: harness.broker.send("house/status", beat(), retain=True))

    harness = life.run(house("a"), "20s", prepare=say)

    assert b"another app" not in b"".join(each.payload for each in harness.broker.messages("house/status"))


async def steady():
    yield {"t": 1}


async def accept(payload: dict) -> dict:
    return json.loads("{}")


def test_a_device_that_is_found_again_while_its_topics_are_removed_keeps_them(life):
    def gateway(patience):
        app = App("house")

        @app.telemetry("gateway", interval="10m", finds=Finds(dict[str, float]))
        async def gateway(context: Context) -> None:
            for number in range(20):
                await context.sleep(patience)
                context.device(f"s{number}").publish({"t": 1.0})

        return app

    life.run(gateway("1ms"))
    before = sorted(life.retained)
    assert "house/s19/state" in before

    life.run(gateway("400ms"))

    assert sorted(life.retained) == before
    for number in range(20):
        assert life.retained[f"house/s{number}/availability"].payload == b"online"
