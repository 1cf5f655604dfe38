"""Devices that send events: what reaches the broker, how they are, and what is said of them."""

from collections.abc import AsyncIterator
from threading import Thread
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from leadsman import App, Buffer, Context, Delivery, Finds, FixedBackoff, OnChange
from leadsman.core.introspection.topic_schemas import schemas
from leadsman.core.introspection.why import why
from leadsman.core.settings.sources import Where
from leadsman.errors import DeviceUnavailable
from leadsman.testing import Harness

Press = Literal["single", "double"]
KEPT = {"outbox.durability": "acked-or-durable"}
SET = 1_780_000_000.0
"""The time of a clock that is set, epoch seconds."""


class Gpio:
    """An adapter that is only open while its hardware is there, and buffers presses."""

    def __init__(self):
        self.there = True
        self.presses: Buffer[str] = Buffer(1000)

    async def __aenter__(self):
        if not self.there:
            raise DeviceUnavailable("/dev/gpiochip0 is not there")
        return self

    async def __aexit__(self, *exc_info):
        return None


class Rig:
    """An app with a button, and its adapter."""

    def __init__(self, **options):
        self.gpio = Gpio()
        self.app = App("house", adapters=(self.gpio,))
        self.fails: BaseException | None = None

        @self.app.event("button", **options)
        async def button(gpio: Gpio) -> AsyncIterator[Press]:
            if self.fails is not None:
                raise self.fails
            async for press in gpio.presses:
                if press == "pull":
                    raise OSError("the cable was pulled")
                yield press

    def press(self, *presses):
        for each in presses:
            self.gpio.presses.put(each)


def look(running, *sections, devices=("button",)):
    """What introspection says."""
    request = {"sections": [*sections], "devices": [*devices]} if devices else {"sections": [*sections]}
    running.broker.send("house/introspect", request, response_topic="house/answers")
    running.run(1)
    return running.broker.messages("house/answers")[-1].json["data"]


def runtime(running, device="button"):
    return look(running, "devices", devices=(device,))["devices"][device]["runtime"]


def verdict(running, device="button"):
    sections = ("app", "devices", "mqtt", "adapters", "fields")
    return why(device, look(running, *sections, devices=(device,)))


def test_each_event_is_published_with_its_time_and_none_is_retained(harness):
    rig = Rig()
    running = harness(rig.app)
    running.run(1)
    rig.press("single", "single", "double")
    running.run(1)

    sent = running.broker.messages("house/button/state")
    assert [each.json for each in sent] == [{"event_type": each} for each in ("single", "single", "double")]
    assert {each.retain for each in sent} == {False}
    assert all(each.taken_at is not None for each in sent)
    assert "house/button/state" not in running.broker.retained


@given(st.lists(st.sampled_from(["single", "double", None, "triple", ""]), max_size=30))
def test_every_event_arrives_in_its_order_and_what_is_none_does_not(presses):
    rig = Rig()
    with Harness(rig.app) as running:
        running.run(1)
        rig.press(*presses)
        running.run(20)

        known = [each for each in presses if each in ("single", "double")]
        assert [each["event_type"] for each in running.states("button")] == known


def test_a_device_that_sends_nothing_for_days_is_well(harness):
    rig = Rig()
    running = harness(rig.app)
    running.run("2d")

    assert running.statuses("button") == ["starting", "ok"]
    assert running.availability("button") == ["online"]
    assert running.status()["health"] == "ok"
    assert running.errors("button") == []


def test_it_is_offline_while_its_adapter_is_away_and_online_again_without_an_event(harness):
    rig = Rig()
    rig.gpio.there = False
    running = harness(rig.app)
    running.run("20s")
    assert running.availability("button")[-1] == "offline"
    assert verdict(running)["link"] == "adapter"

    rig.gpio.there = True
    running.run("2m")

    assert running.availability("button")[-1] == "online"
    assert runtime(running)["status"] == "ok"
    assert running.states("button") == []
    assert running.errors("button")[-1]["event"] == "recovered"


def test_a_source_that_fails_makes_it_offline_until_it_listens_again(harness):
    rig = Rig()
    running = harness(rig.app)
    running.run("10s")
    rig.press("pull")
    running.run("2s")
    assert running.availability("button") == ["online", "offline"]

    rig.fails = OSError("no cable")
    running.run("10m")
    assert running.availability("button") == ["online", "offline"]
    assert verdict(running)["link"] == "call"
    rig.fails = None
    running.run("15m")

    assert running.availability("button") == ["online", "offline", "online"]


def test_an_event_is_a_sign_of_life_before_the_source_counts_as_one_that_listens(harness):
    rig = Rig()
    running = harness(rig.app)
    rig.press("single")
    running.run("1s")

    assert running.status()["devices"]["button"]["status"] == "ok"


def test_what_is_no_event_is_reported_and_leaves_the_device_where_it_is(harness):
    rig = Rig()
    running = harness(rig.app)
    running.run("10s")
    rig.press("triple")
    running.run("2s")

    assert running.errors("button")[0]["type"] == "ResultError"
    assert running.availability("button") == ["online"]
    running.run("20s")
    assert runtime(running)["status"] == "ok"
    rig.press("single")
    running.run("1s")
    assert running.states("button") == [{"event_type": "single"}]


def test_what_is_no_event_does_no_harm_to_one_of_the_same_moment(harness):
    rig = Rig()
    running = harness(rig.app)
    running.run("10s")
    rig.press("single", "triple")
    running.run("10s")
    assert runtime(running)["status"] == "ok"


@pytest.mark.parametrize("yielded", [{"event_type": "triple"}, {"n": 1}, {"event_type": ["single"]}, {"event_type": 1}])
def test_a_dict_that_is_no_event_is_none(yielded, harness):
    class Known(BaseModel):
        event_type: Press

    app = App("house")

    @app.event("button")
    async def button(context: Context) -> AsyncIterator[Known | None]:
        yield yielded
        yield Known(event_type="single")
        await context.sleep("1h")

    running = harness(app)
    running.run("1s")
    assert running.states("button") == [{"event_type": "single"}]
    assert running.errors("button")[0]["type"] == "ResultError"


@pytest.mark.parametrize(("away", "arrive"), [(5, 3), (30, 0)])
@pytest.mark.parametrize("durability", ["memory", "acked-or-durable"])
def test_events_of_an_outage_arrive_if_they_are_young_enough(away, arrive, durability, harness, tmp_path):
    rig = Rig()
    running = harness(rig.app, settings={"outbox.durability": durability}, state_directory=tmp_path)
    running.at(10.5, running.broker.stop)
    running.at(10.5 + away, running.broker.start)
    running.at(11, lambda: rig.press("single", "single", "double"))
    running.run(60)

    assert len(running.states("button")) == arrive


@pytest.mark.parametrize(("options", "arrive"), [({}, 0), ({"expiry": None}, 3), ({"expiry": "2h"}, 3)])
@pytest.mark.parametrize("thread", [False, True])
def test_what_waited_in_a_buffer_while_its_source_did_not_run_is_as_old_as_it_is(options, arrive, thread, harness):
    rig = Rig(backoff=FixedBackoff(60), **options)
    running = harness(rig.app)

    def press():
        if thread:
            sender = Thread(target=rig.press, args=("single",) * 3)
            sender.start()
            sender.join()
        else:
            rig.press(*["single"] * 3)

    running.at("10s", lambda: rig.press("pull"))
    running.at("20s", press)
    running.run("3m")
    assert len(running.states("button")) == arrive
    assert rig.gpio.presses.dropped == 3 - arrive
    rig.press("double")
    running.run(1)
    assert running.states("button")[arrive:] == [{"event_type": "double"}]


@pytest.mark.parametrize(("options", "arrive"), [({}, 0), ({"expiry": None}, 2), ({"expiry": "2h"}, 2)])
def test_events_that_are_for_a_log_survive_a_kill_and_a_long_outage(options, arrive, tmp_path):
    rig = Rig(**options)
    with Harness(rig.app, settings=KEPT, state_directory=tmp_path) as first:
        first.run(10)
        first.broker.stop()
        rig.press("single", "single")
        first.run("2m")
        first.kill()
    rig = Rig(**options)
    with Harness(rig.app, settings=KEPT, state_directory=tmp_path, wall=first.loop.wall_time() + 600) as second:
        second.run(10)
        late = second.broker.messages("house/button/state")

    assert [each.json for each in late] == [{"event_type": "single"}] * arrive
    assert all(each.taken_at < first.loop.wall_time() for each in late)


@pytest.mark.parametrize(
    ("before", "after"),
    [(100.0, SET), (SET, SET - 1800), (SET, 100.0), (200.0, 100.0)],
    ids=["set since", "set back", "not set any more", "never set"],
)
@pytest.mark.parametrize(("options", "arrive"), [({}, 0), ({"expiry": "2h"}, 1)])
def test_an_event_of_which_nobody_knows_the_age_arrives_only_if_it_is_for_a_log(
    options, arrive, before, after, tmp_path
):
    rig = Rig(**options)
    with Harness(rig.app, settings=KEPT, state_directory=tmp_path, wall=before) as first:
        first.run(10)
        first.broker.stop()
        rig.press("single")
        first.run(5)
        first.kill()
    rig = Rig(**options)
    with Harness(rig.app, settings=KEPT, state_directory=tmp_path, wall=after) as second:
        second.run(10)
        assert len(second.states("button")) == arrive


def test_a_log_of_all_events_and_a_topic_that_acts_on_the_newest_may_stand_side_by_side(harness):
    rig = Rig(delivery=Delivery(history="1d"))
    running = harness(rig.app)
    running.at(10.5, running.broker.stop)
    running.at(40.5, running.broker.start)
    running.at(11, lambda: rig.press("single", "double"))
    running.run(60)

    assert running.states("button") == []
    history = running.broker.messages("house/button/history")
    assert [each.json["event_type"] for each in history] == ["single", "double"]
    assert {each.retain for each in history} == {False}


def test_events_are_thinned_out_only_if_the_code_asks_for_it(harness):
    rig = Rig(publish=OnChange())
    running = harness(rig.app, settings={"outbox.durability": "memory"})
    running.run(1)
    rig.press("single", "single", "double")
    running.run(1)
    assert running.states("button") == [{"event_type": "single"}, {"event_type": "double"}]


def test_the_time_may_be_in_the_payload(harness):
    rig = Rig(delivery=Delivery(taken_at="payload"))
    running = harness(rig.app)
    running.run(1)
    rig.press("single")
    running.run(1)
    (state,) = running.states("button")
    assert state == {"event_type": "single", "taken_at": state["taken_at"]}


def test_a_long_silence_is_no_trouble_to_those_who_ask_why(harness):
    rig = Rig()
    running = harness(rig.app)
    running.run(1)
    assert (verdict(running)["state"], verdict(running)["link"]) == ("intended", "call")
    running.run("1h")
    assert verdict(running)["summary"] == "all is well: it listens, no event since the app started"
    rig.press("single")
    running.run("3h")

    found = verdict(running)
    assert (found["state"], found["link"]) == ("ok", "none")
    assert found["summary"].startswith("all is well: it listens, last event 3h")


def test_it_is_described_as_what_it_is(harness):
    rig = Rig(device_class="doorbell", expiry="1m")
    running = harness(rig.app)
    running.run(10)

    document = look(running, "devices")
    (registered,) = document["devices"]["button"]["registrations"]
    assert registered["kind"] == "event"
    assert registered["event_types"] == ["single", "double"]
    assert registered["device_class"] == "doorbell"
    assert registered["offline_on"] == "error"
    assert registered["stale_after"] is None
    assert (registered["delivery"]["retain"], registered["delivery"]["expiry"]) == (False, 60)


def test_a_subscription_feeds_events(harness):
    app = App("house")

    @app.subscribe("zigbee2mqtt/button/action", event="button")
    async def action(payload: str) -> Press | None:
        return payload or None

    running = harness(app)
    running.run("1h")
    assert running.availability("button") == ["online"]
    for payload in (b'"single"', b'""', b'"double"', b'"single"'):
        running.broker.send("zigbee2mqtt/button/action", payload)
    running.run(1)

    assert [each["event_type"] for each in running.states("button")] == ["single", "double", "single"]
    assert verdict(running)["state"] == "ok"


def test_a_message_that_is_no_event_is_what_why_finds_until_one_is(harness):
    app = App("house")

    @app.subscribe("wall/bell", event="bell")
    async def bell(presses: int) -> Press:
        return {1: "single", 2: "double"}[presses]

    running = harness(app)
    running.run(10)
    assert verdict(running, "bell")["state"] == "ok"
    running.broker.send("wall/bell", b"7")
    running.run(1)

    found = verdict(running, "bell")
    assert (found["state"], found["link"]) == ("broken", "call")
    assert found["summary"] == "the last message at wall/bell failed, and was no event"
    assert "KeyError" in " ".join(found["evidence"])
    assert running.availability("bell") == ["online"]
    running.broker.send("wall/bell", b"2")
    running.run(1)
    assert verdict(running, "bell")["state"] == "ok"


def test_devices_that_are_found_send_events_too(harness):
    class Action(BaseModel):
        event_type: Press

    app = App("house")

    @app.event("gateway", finds=Finds(Action))
    async def gateway(context: Context) -> AsyncIterator[None]:
        yield
        button = context.device("hall")
        button.publish(Action(event_type="single"))
        button.publish({"event_type": "triple"})
        button.publish(Action(event_type="single"))
        await context.sleep("30d")

    running = harness(app)
    running.run("1h")

    assert running.states("hall") == [{"event_type": "single"}] * 2
    assert "house/hall/state" not in running.broker.retained
    assert running.status()["devices"]["hall"]["status"] == "ok"


def test_no_setting_for_many_devices_makes_events_stale_or_fewer(harness):
    rig = Rig()
    rig.app.add_telemetry("meter", lambda: {"n": 1}, interval=1)
    settings = {"devices.*.stale_after": "5m", "devices.*.publish": "OnChange()", "devices.button.expiry": "off"}
    running = harness(rig.app, settings=settings)
    running.run("10m")
    rig.press("single", "single")
    running.run(1)

    assert len(running.states("button")) == 2
    assert rig.app.sources["button"].delivery.expiry is None
    assert running.availability("button") == ["online"]


def test_an_event_is_not_sent_again_after_a_restart(tmp_path):
    rig = Rig()
    rig.app = App("house", adapters=(rig.gpio,), keep_state=True)

    @rig.app.event("button")
    async def button(gpio: Gpio) -> AsyncIterator[Press]:
        async for press in gpio.presses:
            yield press

    with Harness(rig.app, state_directory=tmp_path) as first:
        first.run("10s")
        rig.press("single")
        first.run("2m")
    with Harness(rig.app, state_directory=tmp_path, wall=first.loop.wall_time() + 60) as second:
        second.run("10s")
        assert second.availability("button") == ["online"]
        assert second.states("button") == []


def test_the_last_state_of_a_device_that_sends_events_from_now_on_is_removed(tmp_path):
    before = App("house")
    before.add_telemetry("button", lambda: {"event_type": "single"}, interval="1m")
    with Harness(before, state_directory=tmp_path) as first:
        first.run("1m")
    assert "house/button/state" in first.broker.retained
    with Harness(Rig().app, state_directory=tmp_path) as second:
        second.broker.retained.update(first.broker.retained)
        second.run("2m")
    assert "house/button/state" not in second.broker.retained


def test_the_schema_of_an_event_says_what_may_happen_and_how_long_it_counts():
    rig = Rig(expiry="1m")
    rig.app.load(Where.nowhere({}))
    topics = schemas(rig.app.topics, rig.app.sources, {})["topics"]
    assert topics["house/button/state"] == {
        "type": "object",
        "properties": {"event_type": {"enum": ["single", "double"], "type": "string"}},
        "required": ["event_type"],
        "description": "An event. It is not retained, and arrives within 1 min.",
    }


def test_a_flood_of_events_arrives(harness):
    rig = Rig()
    rig.gpio.presses = Buffer(10_000)
    running = harness(rig.app)
    running.run(1)
    rig.press(*["single"] * 5000)
    running.run(30)

    assert len(running.states("button")) == 5000
