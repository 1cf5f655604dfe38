"""What a handler gets with its `Context`."""

import asyncio
import logging
from datetime import UTC, datetime

import pytest

from leadsman import App, Context, FixedBackoff
from leadsman.errors import InvalidType, InvalidValue, ResultError

READING = {"t": 21.5}


def test_attempts_count_retries_since_the_last_success(harness):
    seen = []
    app = App("app")

    @app.telemetry("d", interval="10m", retry=2, backoff=FixedBackoff(1))
    async def read(context: Context):
        seen.append(context.attempts)
        if len(seen) < 5:
            raise OSError("no answer")
        return READING

    running = harness(app)
    running.run("21m")

    assert seen == [0, 1, 2, 2, 3, 0]


def test_sleep_ends_with_the_app(harness):
    app = App("app")

    @app.telemetry("d", interval="1h", timeout=None)
    async def read(context: Context):
        await context.sleep("30m")
        return READING

    running = harness(app)
    running.run("10m")
    running.stop()

    assert running.stopped_in < 0.5
    assert running.left_behind == 0


def test_sleep_until_a_time_of_day(harness):
    woke = []
    app = App("app")

    @app.periodic("d", interval="24h", timeout=None)
    async def read(context: Context):
        await context.sleep_until("06:30", "Europe/Berlin")
        woke.append(asyncio.get_running_loop().wall_time())

    running = harness(app)
    running.run("12h")

    assert woke == [pytest.approx(datetime(2026, 1, 1, 5, 30, tzinfo=UTC).timestamp(), abs=0.1)]


def test_a_handler_publishes_to_topics_of_its_own(harness):
    app = App("app")

    @app.telemetry("d", interval=10)
    async def read(context: Context):
        context.publish("raw/frame", b"\x01\x02")
        context.publish("note", "hello", retain=True)
        context.publish("more", {"a": [1, 2.5, None]})
        return READING

    running = harness(app)
    running.run(1)

    assert running.broker.messages("app/d/raw/frame")[0].payload == b"\x01\x02"
    assert running.broker.retained["app/d/note"].payload == b"hello"
    assert running.broker.messages("app/d/more")[0].json == {"a": [1, 2.5, None]}


def test_a_plain_handler_publishes_from_its_thread(harness):
    app = App("app")

    @app.telemetry("d", interval=10)
    def read(context: Context):
        context.publish("note", "hello")

    running = harness(app)
    running.run(1.5)

    assert running.broker.messages("app/d/note")[0].payload == b"hello"


@pytest.mark.parametrize(
    ("topic", "payload", "error"),
    [
        ("state", "x", InvalidValue),
        ("set/result", "x", InvalidValue),
        ("a/#", "x", InvalidValue),
        ("a\x00", "x", InvalidValue),
        ("/a", "x", InvalidValue),
        ("a", float("nan"), ResultError),
        ("a", {"b": object()}, ResultError),
    ],
)
def test_what_cannot_be_published_is_a_named_failure(harness, topic, payload, error):
    app = App("app")

    @app.telemetry("d", interval=10)
    async def read(context: Context):
        context.publish(topic, payload)

    running = harness(app)
    running.run(1)

    assert running.errors("d")[0]["type"] == error.__name__


def test_the_log_of_a_handler_names_its_device(harness, caplog):
    caplog.set_level(logging.INFO)
    app = App("app")

    @app.telemetry("d", interval=10)
    async def read(context: Context):
        context.logger.info("read %d bytes", 5)

    harness(app).run(1)

    assert "d: read 5 bytes" in caplog.text


@pytest.mark.parametrize(
    ("when", "now", "expected"),
    [
        ("06:30", "2026-01-01T00:00Z", "2026-01-01T05:30Z"),
        ("06:30", "2026-01-01T05:30Z", "2026-01-02T05:30Z"),
        ("06:30", "2026-07-01T00:00Z", "2026-07-01T04:30Z"),
        ("02:30", "2026-03-28T22:00Z", "2026-03-29T01:30Z"),  # leapt over: 03:30 summer time
        ("02:30", "2026-10-24T22:00Z", "2026-10-25T00:30Z"),  # comes twice: the first
        ("06:00", "2026-03-28T12:00Z", "2026-03-29T04:00Z"),
    ],
)
def test_times_of_day_are_met_on_days_when_the_clock_changes(harness, when, now, expected):
    woke = []
    app = App("app")

    @app.periodic("d", interval="48h", timeout=None)
    async def read(context: Context):
        await context.sleep_until(when, "Europe/Berlin")
        woke.append(asyncio.get_running_loop().wall_time())

    running = harness(app)
    running.loop.step_wall(datetime.fromisoformat(now).timestamp() - running.loop.wall_time())
    running.run("30h")

    assert woke == [pytest.approx(datetime.fromisoformat(expected).timestamp(), abs=0.1)]


@pytest.mark.parametrize(
    ("when", "error"),
    [("6 o'clock", InvalidValue), (datetime(2026, 1, 1), InvalidValue), (5, InvalidType), (None, InvalidType)],
)
def test_times_that_make_no_sense_are_refused(harness, when, error):
    raised = []
    app = App("app")

    @app.periodic("d", interval="48h")
    async def read(context: Context):
        with pytest.raises(error) as caught:
            await context.sleep_until(when)
        raised.append(caught.type)

    harness(app).run(1)

    assert raised == [error]


@pytest.mark.parametrize(("step", "woken_at"), [(3 * 3600, 2.5), (-3600, 6.5)])
def test_a_clock_that_is_set_while_somebody_sleeps_until_a_time_of_day_is_noticed(harness, step, woken_at):
    woke = []
    app = App("app")

    @app.periodic("d", interval="48h", timeout=None)
    async def read(context: Context):
        await context.sleep_until("05:30", "UTC")
        woke.append(asyncio.get_running_loop().time() / 3600)

    running = harness(app)
    running.at("1h", lambda: running.loop.step_wall(step))
    running.run("12h")

    assert woke == [pytest.approx(woken_at, abs=0.01)]
