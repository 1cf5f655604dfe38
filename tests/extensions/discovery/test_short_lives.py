"""What a short life of an app retains at the broker can be removed afterwards: what may be published is listed before
it is published."""

import pytest

from leadsman import App, Context, Discovery, Finds
from leadsman.core.introspection.retained import FIRST_AHEAD, Listed
from leadsman.core.mqtt.topics import Topics
from leadsman.testing import Harness, Scripted
from leadsman.tools.cli.commands.clean import left_behind

MOMENTS = [each / 10 for each in range(1, 61)]
"""Seconds from the start of an app to its end."""


def house(*names, discovery=None):
    app = App("house", discovery=discovery)
    for name in names:
        app.add_telemetry(name, Scripted({"t": 1}), interval=10)
    return app


def live(app, duration, retained):
    """One life of an app at a broker that keeps this; returns what is kept then, and its messages."""
    with Harness(app) as harness:
        harness.broker.retained.update(retained)
        harness.run(duration)
    return dict(harness.broker.retained), harness.broker.log


def left_by_clean(retained):
    """What is left when everything was removed that `leadsman clean --all` removes."""
    listed = Listed("house")
    for topic, each in retained.items():
        listed.add(topic, each.payload)
    documents = {topic: each.payload for topic, each in retained.items()}
    removal = left_behind(listed, Topics("house"), documents, None)
    return retained.keys() - {*removal.topics, *removal.elsewhere, *removal.pages}


@pytest.mark.parametrize("convention", [None, "homeassistant"])
@pytest.mark.parametrize("first", [True, False])
def test_nothing_is_left_of_a_life_of_any_length(first, convention):
    discovery = None if convention is None else Discovery(convention)
    before = {} if first else live(house("a", "b", discovery=discovery), "30s", {})[0]

    for moment in MOMENTS:
        retained, _ = live(house("b", "c", discovery=discovery), moment, before)

        assert left_by_clean(retained) == set(), moment


@pytest.mark.parametrize("convention", [None, "homeassistant"])
def test_nothing_is_left_of_devices_that_were_found_and_of_what_handlers_publish(convention):
    def app():
        found = App("house", discovery=None if convention is None else Discovery(convention))

        @found.telemetry("finder", interval=0.5, finds=Finds(dict[str, float]))
        async def finder(context: Context) -> None:
            name = f"d{int(context.now().timestamp() * 2) % 20}"
            context.device(name).publish({"t": 1.0})
            context.publish(f"map/{name}", b"x", retain=True)

        return found

    for moment in MOMENTS:
        retained, _ = live(app(), moment, {})

        assert left_by_clean(retained) == set(), moment


@pytest.mark.parametrize("convention", [None, "homeassistant"])
def test_every_message_that_is_retained_was_listed_before(convention):
    discovery = None if convention is None else Discovery(convention)
    before, _ = live(house("a", discovery=discovery), "30s", {})
    _, log = live(house("a", "b", discovery=discovery), "30s", before)

    kept = dict(before)
    for each in log:
        if each.retain and each.payload:
            kept[each.topic] = each
            assert left_by_clean(kept) == set(), each.topic


def test_a_start_with_the_same_devices_lists_nothing_before_its_registry():
    retained, first = live(house("a", "b"), "30s", {})
    _, second = live(house("a", "b"), "30s", retained)

    ahead = f"house/registry/{FIRST_AHEAD}"
    assert [bool(each.payload) for each in first if each.topic == ahead] == [True, False]
    assert [each.topic for each in second if each.topic.startswith("house/registry")] == ["house/registry"]
    assert first[0].topic == ahead


def test_the_first_reading_is_published_at_once():
    retained, first = live(house("a"), "30s", {})
    _, second = live(house("a"), "30s", retained)

    for log in (first, second):
        assert next(each.at for each in log if each.topic == "house/a/state") == 0.0


def test_a_broker_that_refuses_the_registry_or_does_not_answer_gets_readings_all_the_same():
    for refused in ("house/registry/#", "house/status"):
        with Harness(house("a")) as harness:
            harness.broker.refuse_subscriptions.add(refused)
            harness.run("5s")
            assert harness.states("a")

    with Harness(house("a")) as harness:
        harness.broker.poison_filters.add("house/registry/#")
        harness.run("1m")
        assert harness.states("a")
