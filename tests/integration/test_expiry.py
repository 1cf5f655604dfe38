"""Retained readings that expire: they are published again while the device is well, and only then."""

from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from leadsman import App, Context, Delivery, Every, Maximum, OnChange
from leadsman.core.loop.slots import COARSE, FINE
from leadsman.core.runtime.publisher import REFRESHES
from leadsman.testing import Harness, Scripted, fail
from leadsman_rigs.examples import examples


def house(*steps, expiry=60.0, interval=10.0, **options):
    app = App("house")
    options = {"publish": OnChange(), "delivery": Delivery(expiry=expiry)} | options
    app.add_telemetry("d", Scripted(*steps), interval=interval, **options)
    return app


def sent(harness, topic="house/d/state"):
    """When each message came, and the seconds since the start at which its reading was taken."""
    messages = harness.broker.messages(topic)
    return [(round(each.at), round(each.taken_at - 1_767_225_600.0)) for each in messages]


@given(st.floats(1, 3600), st.floats(0.02, 0.99), st.booleans())
@example(2.0, 0.984375, False)
@settings(max_examples=examples(30), deadline=None)
def test_a_value_that_does_not_change_never_expires_while_its_device_is_read(expiry, share, plain):
    interval = min(max(0.01, expiry * share), expiry - FINE * COARSE - 0.001)  # a poll is that much late at most
    app = house({"t": 1}, expiry=expiry, interval=interval, **({"publish": Every("9d")} if plain else {}))
    with Harness(app) as harness:
        harness.run(4 * expiry)
        times = [each.at for each in harness.broker.messages("house/d/state")]

    assert len(times) > 3
    assert all(later - earlier < expiry for earlier, later in pairwise(times))
    assert harness.now - times[-1] < expiry
    if share < 1 / REFRESHES:
        assert len(times) <= 4 * REFRESHES + 1


def test_the_message_is_a_reading_that_was_taken_then(harness):
    running = harness(house({"t": 1}))

    running.run("65s")

    assert sent(running) == [(0, 0), (20, 20), (40, 40), (60, 60)]


def test_a_device_that_fails_is_not_refreshed(harness):
    running = harness(house({"t": 1}, fail(10, OSError("away")), {"t": 1}))

    running.run("109s")
    assert sent(running) == [(0, 0)]
    running.run("5s")
    assert sent(running) == [(0, 0), (110, 110)]


def test_a_poll_with_nothing_new_sends_the_last_reading_with_its_own_time(harness):
    running = harness(house({"t": 1}, *[None] * 6, fail(99, OSError("away")), publish=None))

    running.run("119s")

    assert sent(running) == [(0, 0), (20, 0), (40, 0), (60, 0)]


def test_an_open_window_sends_the_value_of_the_one_before(harness):
    running = harness(house({"t": 1}, publish=None, filters={"t": [Maximum("1m")]}, expiry=30))

    running.run("95s")

    assert sent(running) == [(60, 60), (70, 60), (80, 60), (90, 60)]


def test_a_value_at_a_topic_of_its_own_is_refreshed_too(harness):
    running = harness(house({"t": 1}, layout="fields"))

    running.run("45s")

    assert sent(running, "house/d/t") == [(0, 0), (20, 20), (40, 40)]


@pytest.mark.parametrize("delivery", [Delivery(), Delivery(expiry=60, retain=False)])
def test_what_does_not_vanish_at_the_broker_is_not_refreshed(harness, delivery):
    running = harness(house({"t": 1}, delivery=delivery))

    running.run("10m")

    assert sent(running) == [(0, 0)]


def test_a_source_is_refreshed_when_it_shows_that_its_device_is_there(harness):
    app = App("house")

    @app.source("d", publish=OnChange(), delivery=Delivery(expiry="60s"), stale_after=None)
    async def door(context: Context) -> AsyncIterator[dict[str, bool] | None]:
        yield {"open": True}
        for pause in (15, 15, 15, 500):
            await context.sleep(pause)
            yield None

    running = harness(app)
    running.run("546s")

    assert sent(running) == [(0, 0), (30, 0), (545, 0)]
