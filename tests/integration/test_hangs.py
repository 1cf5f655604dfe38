"""A call that hangs is reported with the line of the user's code where it hung, by all that report an error."""

import asyncio
import contextlib
import queue
import threading
from functools import partial

import pytest

from leadsman import App
from leadsman.core.introspection.why import why

READING = {"t": 21.5}


async def endless():
    await asyncio.Event().wait()


def asked(running, request=None):
    """What the running app answers to an introspection request; to one for all that is usual, if none is given."""
    running.broker.send("app/introspect", request or b"", response_topic="app/answers")
    running.run("1s")
    return running.broker.messages("app/answers")[-1].json["data"]


async def hang_directly():
    await asyncio.sleep(3600)


async def hang_in_a_helper():
    await endless()


async def hang_in_a_library():
    await asyncio.Queue().get()


async def hang_in_a_generator():
    async for _ in ticks():
        pass


async def ticks():
    await asyncio.Event().wait()
    yield READING


HANGS = {
    hang_directly: hang_directly.__code__.co_firstlineno + 1,
    hang_in_a_helper: endless.__code__.co_firstlineno + 1,
    hang_in_a_library: hang_in_a_library.__code__.co_firstlineno + 1,
    hang_in_a_generator: ticks.__code__.co_firstlineno + 1,
}


@pytest.mark.parametrize("handler", HANGS)
def test_an_async_handler_that_hangs_is_reported_with_its_line(harness, handler):
    app = App("app")
    app.add_telemetry("d", handler, interval="1m", timeout="5s")
    running = harness(app)

    running.run("20s")

    assert running.errors("d")[0]["message"] == f"no answer within 5s (test_hangs.py:{HANGS[handler]})"


class Thread:
    """Plain handlers that block, until `end` is set or something is put."""

    def __init__(self):
        self.end, self.items = threading.Event(), queue.Queue()

    def block(self):
        self.end.wait()
        return READING

    def block_in_a_library(self):
        self.items.get()
        return READING

    def let_go(self):
        self.end.set()
        self.items.put(None)


@pytest.fixture
def thread():
    made = Thread()
    yield made
    made.let_go()


@pytest.mark.parametrize("name", ["block", "block_in_a_library"])
def test_a_plain_handler_that_blocks_its_thread_is_reported_with_its_line(harness, thread, name):
    app, handler = App("app"), getattr(thread, name)
    app.add_telemetry("d", handler, interval="1m", timeout="5s")
    running = harness(app, patience=0.2)

    running.run("20s")

    line = handler.__code__.co_firstlineno + 1
    assert running.errors("d")[0]["message"] == f"no answer within 5s (test_hangs.py:{line})"


def test_a_retry_of_a_plain_handler_names_the_line_where_its_thread_still_is(harness, thread):
    app = App("app")
    app.add_telemetry("d", thread.block, interval="1m", timeout="5s", retry=1)
    running = harness(app, patience=0.2)

    running.run("30s")

    line = Thread.block.__code__.co_firstlineno + 1
    expected = f"the thread of an earlier call is still busy (test_hangs.py:{line})"
    assert running.errors("d")[0]["message"] == expected


def test_a_plain_handler_without_a_line_of_the_user_has_no_place(harness, thread):
    app = App("app")
    app.add_telemetry("d", partial(thread.items.get), interval="1m", timeout="5s")
    running = harness(app, patience=0.2)

    running.run("20s")

    assert running.errors("d")[0]["message"] == "no answer within 5s"


def test_an_async_handler_without_a_line_of_the_user_has_no_place(harness):
    app = App("app")
    app.add_telemetry("d", asyncio.Queue().get, interval="1m", timeout="5s")
    running = harness(app)

    running.run("20s")

    assert running.errors("d")[0]["message"] == "no answer within 5s"


def test_a_timeout_that_the_handler_raises_itself_has_no_place(harness):
    app = App("app")

    async def read():
        raise TimeoutError("nothing came")

    app.add_telemetry("d", read, interval="1m", timeout="5s")
    running = harness(app)

    running.run("20s")

    assert running.errors("d")[0]["message"] == "nothing came"


def test_a_source_that_falls_silent_is_reported_with_the_line_where_it_waits(harness):
    app = App("app")

    @app.source("d", silence="5s")
    async def d():
        yield READING
        await asyncio.Event().wait()

    running = harness(app)
    running.run("8s")

    assert running.errors("d")[0]["message"] == f"silent for 5s (test_hangs.py:{d.__code__.co_firstlineno + 3})"


def test_a_command_that_hangs_is_listed_with_its_line(harness):
    app = App("app")

    @app.command("d", timeout="5s")
    async def d():
        await asyncio.sleep(3600)

    running = harness(app)
    running.run("1s")
    running.broker.send("app/d/set", b"")
    running.run("10s")

    last = asked(running, {"sections": ["devices"]})["devices"]["d"]["runtime"]["commands"]["last_error"]
    assert last == f"DeviceTimeout: no answer within 5s (test_hangs.py:{d.__code__.co_firstlineno + 2})"


def test_log_heartbeat_trace_and_verdict_name_the_line(harness, caplog):
    app = App("app")
    app.add_telemetry("d", hang_directly, interval="1m", timeout="5s", retry=1)
    running = harness(app)

    running.run("50s")

    told = f"no answer within 5s (test_hangs.py:{HANGS[hang_directly]})"
    lines = [record.getMessage() for record in caplog.records]
    assert any(f"d: the first call failed: DeviceTimeout: {told}" in line for line in lines)
    assert any(f"d: failing: DeviceTimeout: {told}" in line for line in lines)
    assert running.status()["devices"]["d"]["last_error"] == f"DeviceTimeout: {told}"
    assert app.trace("d")[0].error_message == told
    assert told in why("d", asked(running))["cause"]


def test_the_verdict_about_a_call_that_ignores_its_cancellation_names_the_line(harness):
    app = App("app")

    async def stubborn():
        for _ in range(2):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(3600)

    app.add_telemetry("d", stubborn, interval="1m", timeout="5s")
    running = harness(app)
    running.run("20s")

    line = stubborn.__code__.co_firstlineno + 3
    assert why("d", asked(running))["advice"].startswith(
        f"set a timeout on the call at test_hangs.py:{line}, and restart the app"
    )
