"""Messages of other programs."""

import asyncio
import logging
import time
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from leadsman import App, Context, Received, Router, Sensor
from leadsman.core.mqtt.topics import check_filter, filters_overlap, topic_matches
from leadsman.errors import ConfigurationError, InvalidType, InvalidValue


class Settings(BaseModel):
    lamps: list[str] = ["hall", "attic"]
    base: str = "zigbee2mqtt"


class Plug(BaseModel):
    state: Literal["ON", "OFF"]
    power: Annotated[float, Field(ge=0)]


def counts(running):
    running.broker.send("app/introspect", {"sections": ["mqtt"]}, response_topic="app/answers")
    running.run(1)
    return running.broker.messages("app/answers")[-1].json["data"]["mqtt"]["subscriptions"]


def test_a_handler_gets_the_payload_and_the_message(harness):
    heard = []
    app = App("app")

    @app.subscribe("zigbee2mqtt/+/battery")
    async def battery(level: int, message: Received):
        heard.append((message.topic, level, message.retain))

    running = harness(app)
    running.run(1)
    running.broker.send("zigbee2mqtt/door/battery", b"77")
    running.broker.send("zigbee2mqtt/hall/battery", b"5", retain=True)
    running.broker.send("zigbee2mqtt/hall/state", b"on")
    running.run(1)

    assert heard == [("zigbee2mqtt/door/battery", 77, False), ("zigbee2mqtt/hall/battery", 5, True)]


def test_a_payload_may_be_a_model_and_keeps_a_field_named_transaction(harness):
    heard = []
    app = App("app")

    @app.subscribe("plugs/one")
    async def plug(plug: Plug):
        heard.append(plug)

    @app.subscribe("plugs/two")
    async def anything(value: dict):
        heard.append(value)

    running = harness(app)
    running.run(1)
    running.broker.send("plugs/one", {"state": "ON", "power": 2, "rssi": -60})
    running.broker.send("plugs/two", {"transaction": 7})
    running.run(1)

    assert heard == [Plug(state="ON", power=2), {"transaction": 7}]


def test_a_plain_handler_or_one_without_a_payload_works_too(harness):
    heard = []
    app = App("app")

    @app.subscribe("one")
    def plain(message: Received):
        heard.append(message.payload)

    @app.subscribe("two")
    async def trigger():
        heard.append("two")

    running = harness(app)
    running.run(1)
    running.broker.send("one", b"\xff\x00")
    running.broker.send("two", b"\xff\x00")
    running.run(1)

    assert sorted(map(str, heard)) == ["b'\\xff\\x00'", "two"]


def test_a_bad_payload_and_a_failing_handler_are_counted_and_logged_and_others_go_on(harness, caplog):
    heard = []
    app = App("app")

    @app.subscribe("one/+")
    async def one(level: int):
        if level == 13:
            raise LookupError("no such lamp")
        heard.append(level)

    running = harness(app)
    running.run(1)
    for payload in (b"many", b"13", b"{", b"\xff", b"14"):
        running.broker.send("one/x", payload)
    running.run(1)

    assert heard == [14]
    found = counts(running)["one/+"]
    assert found | {"received": 5, "failed": 4, "dropped": 0, "waiting": 0} == found
    assert found["received_at"] == "2026-01-01T00:00:01.000Z"
    assert found["last_error"] is None  # the last message was right
    running.broker.send("one/x", b"\xff")
    running.run(1)
    assert "UTF-8" in counts(running)["one/+"]["last_error"]
    assert "message at one/x: refused: Input should be a valid integer" in caplog.text
    assert "message at one/x: LookupError: no such lamp" in caplog.text


def test_the_log_of_a_flood_is_bounded(harness, caplog):
    app = App("app")

    @app.subscribe("one")
    async def one(level: int): ...

    running = harness(app)
    running.run(1)
    for _ in range(500):
        running.broker.send("one", b"many")
    running.run(1)

    assert sum("message at one" in record.message for record in caplog.records) < 10
    assert counts(running)["one"]["failed"] > 50


@pytest.mark.parametrize("plain", [False, True])
def test_a_slow_handler_stops_no_other_and_its_oldest_messages_are_dropped(harness, plain):
    heard = []
    app = App("app")

    if plain:

        @app.subscribe("slow", queue=2)
        def slow_plain(n: int):
            if n == 0:
                time.sleep(0.2)
            heard.append(n)

    else:

        @app.subscribe("slow", queue=2)
        async def slow(n: int):
            await asyncio.sleep(1)
            heard.append(n)

    @app.subscribe("fast")
    async def fast(n: int):
        heard.append(-n)

    running = harness(app)
    running.run(1)
    for n in range(5):
        running.broker.send("slow", b"%d" % n)
    running.broker.send("fast", b"9")
    running.run(10)

    assert sorted(heard) == [-9, 0, 3, 4]
    assert heard[0] == -9 or plain
    assert [n for n in heard if n >= 0] == [0, 3, 4]
    found = counts(running)["slow"]
    assert found | {"received": 5, "failed": 0, "dropped": 2, "waiting": 0, "last_error": None} == found


def test_a_call_that_hangs_ends_with_its_timeout(harness, caplog):
    heard = []
    app = App("app")

    @app.subscribe("one", timeout="2s")
    async def one(n: int):
        if n == 0:
            await asyncio.Event().wait()
        heard.append(n)

    running = harness(app)
    running.run(1)
    running.broker.send("one", b"0")
    running.broker.send("one", b"1")
    running.run(5)

    assert heard == [1]
    assert "message at one: DeviceTimeout" in caplog.text


def test_the_app_stops_at_once_while_a_handler_runs(harness):
    app = App("app")

    @app.subscribe("one")
    async def one():
        await asyncio.Event().wait()

    running = harness(app)
    running.run(1)
    for _ in range(3):
        running.broker.send("one")
    running.run(1)
    running.stop()

    assert running.stopped_in < 1
    assert running.left_behind == 0


def test_subscriptions_are_renewed_on_every_connection(harness):
    heard = []
    app = App("app")

    @app.subscribe("one")
    async def one(n: int):
        heard.append(n)

    running = harness(app)
    running.run(1)
    running.broker.cut()
    running.run(5)
    running.broker.send("one", b"1")
    running.run(1)

    assert heard == [1]


def test_a_subscription_that_is_refused_is_reported_and_the_others_work(harness, caplog):
    heard = []
    app = App("app")

    @app.subscribe(["one", "two"])
    async def both(message: Received):
        heard.append(message.topic)

    running = harness(app)
    running.broker.refuse_subscriptions = {"one"}
    running.run(1)
    running.broker.send("one")
    running.broker.send("two")
    running.run(1)

    assert heard == ["two"]
    assert "refused the subscription to 'one'" in caplog.text


def test_filters_come_from_settings_and_handlers_ask_for_them(harness):
    heard = []
    app = App("app", settings=Settings)

    @app.subscribe(lambda settings: [f"{settings.base}/{lamp}" for lamp in settings.lamps])
    async def lamp(state: str, message: Received, settings: Settings):
        heard.append((settings.base, message.topic, state))

    running = harness(app, settings={"lamps": ["bed"]})
    running.run(1)
    running.broker.send("zigbee2mqtt/bed", b"on")
    running.broker.send("zigbee2mqtt/hall", b"on")
    running.run(1)

    assert heard == [("zigbee2mqtt", "zigbee2mqtt/bed", "on")]


def test_a_router_has_subscriptions_whose_topics_stay_as_they_are():
    router, app = Router("upstairs"), App("app")

    @router.subscribe("zigbee2mqtt/x")
    async def one(): ...

    app.include(router, prefix="house")

    assert list(app.setup.registry.subscriptions) == ["zigbee2mqtt/x"]


def test_one_that_is_not_enabled_is_not_subscribed(harness, caplog):
    app = App("app")

    @app.subscribe("one", enabled=False)
    async def one(): ...

    with caplog.at_level(logging.WARNING):
        running = harness(app)
        running.run(1)

    assert "does nothing" in caplog.text
    running.broker.send("app/introspect", {"sections": ["mqtt"]}, response_topic="app/answers")
    running.run(1)
    assert "subscriptions" not in running.broker.messages("app/answers")[-1].json["data"]["mqtt"]


@pytest.mark.parametrize("topic_filter", ["#", "+/#", "app/#", "app/+/state", "+/kitchen/state", "+/status", "app/x"])
def test_a_filter_that_covers_the_apps_own_topics_is_refused_by_name(topic_filter):
    app = App("app")
    app.add_subscription(topic_filter, lambda: None)

    with pytest.raises(InvalidValue, match="covers the app's own topics, those below app/; write a filter"):
        app.load()


def test_a_filter_that_covers_the_topics_of_a_dry_run_is_refused_too():
    app = App("app")
    app.add_subscription("dry-run/#", lambda: None)

    with pytest.raises(InvalidValue, match="those below dry-run/app/"):
        app.load()


def test_a_prefix_of_the_settings_is_what_counts(harness):
    app = App("app")
    app.add_subscription("house/#", lambda: None)

    with pytest.raises(InvalidValue, match="those below house/"), harness(app, settings={"mqtt.topic_prefix": "house"}):
        pass


@pytest.mark.parametrize(
    ("topic_filter", "options", "error", "said"),
    [
        (5, {}, InvalidType, "topic filter is 5|device name is 5"),
        ("", {}, InvalidValue, "1 to 400 printable"),
        ("a\n", {}, InvalidValue, "printable"),
        ("a/b#", {}, InvalidValue, "is not a level of its own"),
        ("a/#/b", {}, InvalidValue, "before its end"),
        ("a+/b", {}, InvalidValue, "is not a level of its own"),
        ("$share/group/a", {}, InvalidValue, "shared"),
        ("a/b", {"queue": 0}, InvalidValue, "subscription 'a/b': queue is 0"),
        ("a/b", {"queue": True}, InvalidType, "whole number"),
        ("a/b", {"timeout": 0}, InvalidValue, "timeout"),
        ("a/b", {"enabled": 1}, InvalidType, "True or False"),
        ("a/b", {"retry": 1}, InvalidType, "'retry' is not an option"),
    ],
)
def test_what_is_wrong_has_a_named_error(topic_filter, options, error, said):
    async def handler(): ...

    with pytest.raises(error, match=said):
        App("app").add_subscription(topic_filter, handler, **options)


def test_two_filters_that_overlap_are_refused_since_a_message_would_come_twice():
    app = App("app")
    app.add_subscription("a/+/battery", lambda: None)

    with pytest.raises(InvalidValue, match="overlaps with 'a/\\+/battery'; write one handler"):
        app.add_subscription("a/#", lambda: None)


def test_the_decorator_without_brackets_is_named():
    with pytest.raises(InvalidType, match="@app.subscribe\\('zigbee2mqtt/\\+/battery'\\)"):

        @App("app").subscribe
        async def one(): ...


levels = st.lists(st.sampled_from(["a", "b", "", "$SYS"]), min_size=1, max_size=4).map("/".join)
filters = st.builds(
    lambda given, end: "/".join([*given, *end]) if given or end else "+",
    st.lists(st.sampled_from(["a", "b", "", "$SYS", "+"]), max_size=4),
    st.sampled_from([[], ["#"]]),
)


def matches(topic_filter, topic):
    """MQTT 5 §4.7.2: wildcards do not match the broker's own topics."""
    own = topic.startswith("$") and topic_filter[:1] in ("+", "#")
    return topic_matches(topic_filter, topic) and not own


@given(filters, filters, levels)
def test_filters_that_match_one_topic_overlap(one, other, topic):
    if matches(one, topic) and matches(other, topic):
        assert filters_overlap(one, other)
        assert filters_overlap(other, one)


@given(filters, filters)
def test_filters_that_overlap_match_one_topic(one, other):
    assert filters_overlap(one, other) == filters_overlap(other, one)
    if filters_overlap(one, other):
        first, second = one.split("/"), other.split("/")
        longer, shorter = (first, second) if len(first) >= len(second) else (second, first)
        topic = [
            level
            if level not in ("+", "#")
            else shorter[i]
            if i < len(shorter) and shorter[i] not in ("+", "#")
            else "a"
            for i, level in enumerate(longer)
        ]
        candidates = {"/".join(topic), "/".join(topic[: len(shorter)]), "/".join(topic[:-1])}
        assert any(matches(one, each) and matches(other, each) for each in candidates)


@given(st.text("ab+#/$\n", max_size=6))
def test_every_text_is_a_filter_or_a_named_error(text):
    try:
        assert check_filter(text) == text
    except ConfigurationError as error:
        assert "write" in str(error) or "leave" in str(error)  # noqa: PT017  # most texts are filters


def test_a_subscription_that_asks_for_a_context_is_told_how_to_publish():
    app = App("house")

    async def sun(degrees: float, context: Context) -> None: ...

    with pytest.raises(InvalidValue, match=r"put the message into a Buffer, and let an @app.source take it out"):
        app.add_subscription("sun/position", sun)


class Door(BaseModel):
    open: bool
    level: Annotated[float | None, Sensor("%", device_class="battery")] = None


@pytest.mark.parametrize("plain", [False, True])
def test_what_a_handler_returns_is_a_reading_of_its_device(harness, plain):
    app = App("app")

    def read(shut: bool) -> Door | None:
        return None if shut else Door(open=True)

    async def read_async(shut: bool) -> Door | None:
        return read(shut)

    app.add_subscription(
        "zigbee/door", read if plain else read_async, device="door", stale_after="1m", title="Front door"
    )
    running = harness(app)
    running.run(1)
    for payload in (b"true", b"false", b"perhaps", b"false"):
        running.broker.send("zigbee/door", payload)
    running.run(1)

    assert running.states("door") == [{"open": True, "level": None}] * 2
    assert running.availability("door")[-1] == "online"
    running.run(120)
    assert running.status()["devices"]["door"]["status"] == "stale"
    running.broker.send("app/introspect", {"sections": ["devices", "fields"]}, response_topic="app/answers")
    running.run(1)
    document = running.broker.messages("app/answers")[-1].json["data"]
    assert document["fields"]["door"]["level"] == {"unit": "%", "device_class": "battery"}
    [registered] = document["devices"]["door"]["registrations"]
    assert (registered["kind"], registered["title"]) == ("source", "Front door")


def test_several_filters_feed_one_device(harness):
    app = App("app")

    @app.subscribe(["a/door", "b/door"], device="door")
    async def door(payload: int) -> dict[str, int]:
        return {"n": payload}

    running = harness(app)
    running.run(1)
    for number, topic in enumerate(["a/door", "b/door", "a/door"]):
        running.broker.send(topic, str(number).encode())
    running.run(1)

    found = [state["n"] for state in running.states("door")]
    assert sorted(found) == [0, 1, 2]
    assert found.index(0) < found.index(2)  # each filter has a line of its own


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"stale_after": "1m"}, InvalidValue, "stale_after is an option of a device; write device="),
        ({"device": "a/b"}, InvalidValue, "a/b"),
        ({"device": "taken"}, InvalidValue, "taken"),
        ({"device": "door", "every": "1s"}, InvalidType, "every"),
    ],
)
def test_what_is_wrong_about_its_device_has_a_named_error(options, error, said):
    app = App("app")

    @app.telemetry("taken", interval="1m")
    async def taken() -> None: ...

    with pytest.raises(error, match=said):

        @app.subscribe("tele/door", **options)
        async def door(payload: int) -> Door | None: ...


def test_a_handler_whose_result_is_no_reading_cannot_feed_a_device():
    app = App("app")

    with pytest.raises(InvalidType, match="annotated to return list"):

        @app.subscribe("tele/door", device="door")
        async def door(payload: int) -> list[float]:
            return [1.0]
