"""Devices whose values are at topics of their own."""

import json
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from leadsman import App, Context, Delivery, Finds, OnChange, Sensor
from leadsman.core.introspection.topic_schemas import schemas
from leadsman.errors import InvalidValue
from leadsman.testing import Harness, Scripted


class Air(BaseModel):
    co2: Annotated[int, Sensor("ppm")] | None
    open: bool


class Room(BaseModel):
    temperature: Annotated[float, Sensor("°C")]
    air: Air
    tags: list[str]


ROOM = {"temperature": 21.5, "air": {"co2": 612, "open": True}, "tags": ["a", "b"]}


def house(*steps, layout="fields", **options):
    app = App("house")
    app.add_telemetry("d", Scripted(*steps), interval="10s", layout=layout, **options)
    return app


def below(harness, device="d"):
    """What the broker retains below a device, besides what each device has."""
    known = {f"house/{device}/{word}" for word in ("availability", "ledger", "error")}
    return {
        topic.removeprefix(f"house/{device}/"): delivered.payload.decode()
        for topic, delivered in harness.broker.retained.items()
        if topic.startswith(f"house/{device}/") and topic not in known
    }


PLAIN = {"temperature": "21.5", "air/co2": "612", "air/open": "true", "tags": '["a","b"]'}


def test_each_value_is_at_a_topic_of_its_own(harness):
    running = harness(house(ROOM))

    running.run("1s")

    assert below(running) == PLAIN
    assert running.states("d") == []


def test_both_layouts_at_once_with_the_json_after_the_values(harness):
    running = harness(house(ROOM, layout="both"))

    running.run("1s")

    assert below(running) == PLAIN | {"state": json.dumps(ROOM, separators=(",", ":"))}
    topics = [each.topic.removeprefix("house/d/") for each in running.broker.log if "/d/" in each.topic]
    assert topics.index("state") > max(topics.index(each) for each in PLAIN)


def test_a_value_that_a_reading_lacks_is_removed_and_so_is_none(harness):
    running = harness(house({"a": 1, "b": 2}, {"a": None, "c": float("nan"), "d": 4}, {"b": 3}))

    running.run("1s")
    assert below(running) == {"a": "1", "b": "2"}
    running.run("10s")
    assert below(running) == {"d": "4"}
    running.run("10s")
    assert below(running) == {"b": "3"}


def test_the_time_of_a_reading_is_a_value_and_the_last_one(harness):
    running = harness(house({"a": 1}, delivery=Delivery(taken_at="payload")))

    running.run("1s")

    assert below(running) == {"a": "1", "taken_at": "2026-01-01T00:00:00.000Z"}
    assert running.broker.messages("house/d/a")[0].taken_at == pytest.approx(1_767_225_600.0)


def test_what_is_not_retained_leaves_nothing(harness):
    running = harness(house({"a": 1}, {"b": 1}, delivery=Delivery(retain=False)))

    running.run("11s")

    assert below(running) == {}
    assert [each.payload for each in running.broker.messages("house/d/a")] == [b"1", b""]


def test_values_of_an_outage_of_the_broker_arrive_in_order_per_topic(harness):
    running = harness(house(*[{"a": n, "b": -n} for n in range(12)]))

    running.run("11s")
    running.broker.stop()
    running.run("60s")
    running.broker.start()
    running.run("40s")

    assert [int(each.payload) for each in running.broker.messages("house/d/a")] == list(range(12))
    assert [int(each.payload) for each in running.broker.messages("house/d/b")] == [-n for n in range(12)]
    assert below(running) == {"a": "11", "b": "-11"}


def test_a_publish_rule_and_keep_newest_hold_for_all_values(harness):
    delivery = Delivery(keep="newest")
    running = harness(house(*[{"a": n // 2, "b": 0} for n in range(12)], publish=OnChange(), delivery=delivery))

    running.run("25s")
    running.broker.stop()
    running.run("60s")
    running.broker.start()
    running.run("20s")

    values = [int(each.payload) for each in running.broker.messages("house/d/a")]
    assert values[:2] == [0, 1]
    assert len(values) < 6
    assert values[-1] == 5


@pytest.mark.parametrize("name", ["state", "set", "availability", "ledger", "get", "hold"])
def test_a_field_with_the_name_of_another_topic_is_refused_where_its_type_is_known(name):
    app, kind = App("house"), type("Odd", (BaseModel,), {"__annotations__": {name: int}})

    async def read() -> Any: ...

    read.__annotations__["return"] = kind
    for layout in ("fields", "both"):
        with pytest.raises(InvalidValue, match=f"telemetry 'd': layout is '{layout}', and the topic of the field"):
            app.add_telemetry("d", read, interval="1m", layout=layout)
    app.add_telemetry("d", read, interval="1m", layout="json")


def test_a_field_with_such_a_name_is_escaped_where_it_is_not(harness):
    running = harness(house({"set": 1, "state": "on", "a/b": 2, "": 3}))

    running.run("1s")

    assert below(running) == {"%73et": "1", "%73tate": "on", "a%2Fb": "2"}


def test_fields_that_can_have_no_topic_are_named_once(harness, caplog):
    running = harness(house({"": 3, "a": 1} | {f"f{n}": n for n in range(300)}))

    running.run("35s")

    (warned,) = [each.getMessage() for each in caplog.records if "no topics of their own" in each.getMessage()]
    assert warned.startswith("d: these fields have no topics of their own: , f255, f256")
    assert len(below(running)) == 256


def test_the_registry_lists_the_topics_of_a_device_whose_fields_all_change(harness):
    running = harness(house({f"a{n}": n for n in range(256)}, {f"b{n}": n for n in range(256)}))

    running.run("15s")

    listed = running.broker.retained["house/registry"].json["devices"]["d"]["others"]
    assert set(listed) == {f"house/d/b{n}" for n in range(256)}
    assert len(below(running)) == 256


def test_a_topic_that_the_broker_refuses_is_shown_for_its_device(harness):
    running = harness(house({"a": 1, "b": 2}))
    running.broker.refusals["house/d/b"] = 0x87

    running.run("15s")
    running.broker.send("house/introspect", b'{"sections":["devices"]}')
    running.run("1s")

    waiting = running.broker.messages("house/introspect/response")[0].json["data"]["devices"]["d"]["runtime"]["outbox"]
    assert (waiting["topic"], waiting["messages"]) == ("house/d/b", 2)
    assert "(0x87)" in waiting["refused"]


def test_an_unknown_layout_is_refused_with_the_nearest_one():
    with pytest.raises(InvalidValue, match=r"telemetry 'd': layout is 'field'; did you mean 'fields'\?"):
        house({}, layout="field")


def test_a_device_that_takes_commands_keeps_its_json():
    app = house({"on": True})

    with pytest.raises(
        InvalidValue, match="'d' takes commands, whose state is shown from its JSON; write layout='both'"
    ):
        app.add_command("d", lambda: None)


def test_the_settings_set_the_layout_of_devices(harness):
    app = App("house")
    app.add_telemetry("a", Scripted({"t": 1}), interval="10s")
    app.add_telemetry("b", Scripted({"t": 1}), interval="10s", fixed={"layout"})

    running = harness(app, settings={"devices": {"*": {"layout": "fields"}}})
    running.run("1s")

    assert below(running, "a") == {"t": "1"}
    assert below(running, "b") == {"state": '{"t":1}'}


def test_devices_that_a_handler_finds_have_its_layout(harness):
    app = App("house")

    @app.source("gateway", layout="fields", finds=Finds())
    async def gateway(context: Context) -> Any:
        context.device("attic").publish({"t": 1})
        yield None
        await context.sleep("1h")

    running = harness(app)
    running.run("1s")

    assert below(running, "attic") == {"t": "1"}


class Life:
    """One broker and, one after the other, runs of an app at it."""

    def __init__(self):
        self.retained = {}

    def run(self, app):
        with Harness(app) as running:
            running.broker.retained.update(self.retained)
            running.run("70s")
        self.retained = dict(running.broker.retained)
        return running


@pytest.fixture
def life():
    return Life()


class TestLife:
    """An app that starts again."""

    def test_the_registry_lists_the_topics_and_another_layout_removes_them(self, life):
        life.run(house(ROOM))
        device = life.retained["house/registry"].json["devices"]["d"]
        assert set(device["others"]) == {f"house/d/{each}" for each in PLAIN}
        assert "state" not in device["topics"]

        assert set(below(life.run(house(ROOM, layout="json")))) == {"state"}
        assert below(life.run(house(ROOM))) == PLAIN

    def test_a_field_that_is_gone_since_the_last_run_is_removed(self, life):
        life.run(house({"a": 1, "b": 2}))

        running = life.run(house({"a": 1}))

        assert below(running) == {"a": "1"}

    def test_what_a_handler_published_by_itself_stays(self, life):
        def talking(*, talks):
            app = App("house")

            @app.telemetry("d", interval="10s", layout="fields")
            async def d(context: Context) -> dict[str, int]:
                if talks:
                    context.publish("map", b"x", retain=True)
                return {"a": 1}

            return app

        life.run(talking(talks=True))
        running = life.run(talking(talks=False))

        assert below(running) == {"a": "1", "map": "x"}

    def test_a_device_that_still_fails_keeps_its_values(self, life):
        life.run(house({"a": 1}))

        running = life.run(house(*[OSError("away")] * 20))

        assert running.states("d") == []
        assert below(running) == {"a": "1"}


def test_the_schema_has_each_value():
    app = App("house")

    async def read() -> Room:
        return Room(**ROOM)

    app.add_telemetry("d", read, interval="1m", layout="fields")
    topics = schemas(app.topics, app.telemetries, {})["topics"]

    assert topics["house/d/temperature"]["unit"] == "°C"
    assert topics["house/d/air/open"]["type"] == "boolean"
    assert topics["house/d/tags"]["type"] == "array"
    assert "house/d/state" not in topics


def test_the_root_device_has_values_of_one_level(harness):
    app = App("house")

    @app.telemetry(None, interval="1m", layout="fields")
    async def read() -> dict[str, Any]:
        return {"t": 1, "air": {"co2": 2}}

    with Harness(app) as running:
        running.run("1s")

        assert running.broker.retained["house/t"].payload == b"1"
        assert running.broker.retained["house/air"].payload == b'{"co2":2}'
