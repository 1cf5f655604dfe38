"""A bug in code of the user has its place in the log, its traceback once, and a row in the trace, wherever it is."""

import contextlib
import inspect
from collections.abc import AsyncIterator
from typing import Literal

import pytest

from leadsman import App, PublishRule, Router

MARK = "BUG"


def bug():
    raise KeyError(MARK)


def telemetry(app):
    @app.telemetry("d", interval="10s")
    async def poll() -> dict[str, int]:
        return bug()


def periodic(app):
    @app.periodic("job", interval="10s")
    async def job() -> None:
        bug()


def source(app):
    @app.source("d")
    async def values():
        bug()
        yield {"v": 1}


def event(app):
    @app.event("d")
    async def presses() -> AsyncIterator[Literal["press"]]:
        bug()
        yield "press"


def command(app):
    @app.command("d")
    async def set_it(x: int) -> None:
        bug()


def subscribe(app):
    @app.subscribe("other/topic")
    async def other(x: int) -> None:
        bug()


def fed_by_messages(app):
    @app.subscribe("other/topic", device="d")
    async def other(x: int) -> dict[str, int]:
        return bug()


def plain_command(app):
    @app.command("d")
    def set_it(x: int) -> None:
        bug()


def lifespan(app):
    @contextlib.asynccontextmanager
    async def live(app):
        bug()
        yield

    return App("app", lifespan=live)


def on_failure(app):
    async def substitute(error):
        return bug()

    @app.telemetry("d", interval="10s", on_failure=substitute)
    async def poll() -> dict[str, int]:
        raise OSError("gone")


class Rule(PublishRule):
    def decide(self, previous, reading, now):
        return bug()


def publish_rule(app):
    @app.telemetry("d", interval="10s", publish=Rule())
    async def poll() -> dict[str, int]:
        return {"t": 1}


def wedged_adapter(app):
    app = App("app", adapters=(Stick(),))

    @app.on_wedged_adapter
    async def restart(adapter, failures):
        bug()

    @app.telemetry("d", interval="5s")
    async def poll(stick: Stick) -> dict[str, int]:
        raise OSError("gone")

    return app


def opening_adapter(app):
    app = App("app", adapters=(Typo(),))

    @app.telemetry("d", interval="5s")
    async def poll(typo: Typo) -> dict[str, int]:
        return {"t": 1}

    return app


class Typo:
    async def __aenter__(self):
        bug()

    async def __aexit__(self, *exc_info):
        pass


class Stick:
    async def __aenter__(self):
        return self

    async def __aexit__(self, *exc_info):
        pass


KINDS = {
    "telemetry": telemetry,
    "periodic": periodic,
    "source": source,
    "event": event,
    "command": command,
    "subscribe": subscribe,
    "subscribe, for a device": fed_by_messages,
    "plain command": plain_command,
    "lifespan": lifespan,
    "on_failure": on_failure,
    "publish rule": publish_rule,
    "on_wedged_adapter": wedged_adapter,
    "an adapter that opens": opening_adapter,
}
NO_KIND = {"register"}
"""Methods that register a handler of any of these kinds."""


def test_every_kind_of_registration_is_tried():
    decorators = {
        name
        for name, made in inspect.getmembers(Router, inspect.isfunction)
        if not name.startswith(("_", "add", "include"))
    }
    assert decorators - NO_KIND <= {*KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_a_bug_has_its_place_its_traceback_once_and_a_row_in_the_trace(harness, caplog, kind):
    app = App("app")
    app = KINDS[kind](app) or app
    running = harness(app)
    running.run("1s")
    for _ in range(3):
        running.broker.send("app/d/set", b"5")
        running.broker.send("other/topic", b"5")
        running.run("1m")

    place = f"test_bugs.py:{inspect.getsourcelines(bug)[1] + 1}"
    assert place in caplog.text
    assert caplog.text.count("raise KeyError(MARK)") == 1
    running.broker.send("app/introspect", {"sections": ["trace"]}, response_topic="app/answers")
    running.run("1s")
    rows = running.broker.messages("app/answers")[-1].json["data"]["trace"]
    assert any(row["error_type"] == "KeyError" and "test_bugs.py" in row["traceback"] for row in rows)
