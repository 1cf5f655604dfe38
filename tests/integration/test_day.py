"""Half a day of everything at once: sources, commands, requests, wedged adapters, side jobs and a broker that comes and
goes."""

import gc
import json
import random

import pytest

from leadsman import App, CircuitBreaker, Context, FixedBackoff, Router
from leadsman.core.loop.timers import Timers
from leadsman.errors import DeviceTimeout, PayloadError

pytestmark = pytest.mark.slow

DAY = 86_400.0
GARBAGE = [b"{", b"", b"\xff", b"[" * 50, b'{"degrees": "x"}', b"nan", b'{"transaction": 1e999}', b"x" * 70_000]


class Stick:
    """A radio that wedges now and then, until it is opened again."""

    def __init__(self, dice):
        self.dice, self.opens, self.wedged = dice, 0, False

    async def __aenter__(self):
        self.opens += 1
        if self.dice.random() < 0.2:
            raise OSError("no such device")
        self.wedged = False
        return self

    async def __aexit__(self, *exc_info):
        if self.dice.random() < 0.2:
            raise OSError("busy")

    async def read(self):
        self.wedged = self.wedged or self.dice.random() < 0.01
        if self.wedged or self.dice.random() < 0.05:
            raise DeviceTimeout("no answer")
        return {"t": self.dice.random()}


@pytest.mark.parametrize("seed", [1])
def test_half_a_day_of_everything_at_once_loses_no_answer_and_leaves_nothing_behind(harness, tmp_path, seed):
    dice = random.Random(seed)
    app, router = App("app", adapters=(Stick(dice),)), Router("up")
    made = []

    @app.telemetry(["a", "b", "c"], interval=60, retry=2, circuit_breaker=CircuitBreaker(20), group="radio")
    async def poll(stick: Stick, context: Context):
        context.store["polls"] = context.store.get("polls", 0) + 1
        return await stick.read()

    @router.source("feed", silence="10m", backoff=FixedBackoff("10s"), circuit_breaker=CircuitBreaker(50))
    async def feed(stick: Stick, context: Context):
        for _ in range(dice.randrange(40)):
            yield await stick.read()
            await context.sleep(dice.choice([1, 30, 200, 900]))

    @app.command("a", timeout="5s", queue=3)
    async def command(degrees: dict, context: Context):
        made.append(degrees)
        await context.sleep(dice.choice([0, 0.1, 3, 20]))
        if dice.random() < 0.2:
            raise PayloadError("no")
        return {"t": 1.0}

    @app.periodic("job", schedule="*/7 * * * *")
    async def job():
        if dice.random() < 0.2:
            raise OSError("disk")

    app.include(router)
    running = harness(app, state_directory=tmp_path)
    sent = 0
    for minute in range(12 * 60):
        running.run(dice.uniform(30, 90))
        if dice.random() < 0.3:
            topic = dice.choice(["app/a/set", "app/a/get", "app/up_feed/get", "app/introspect", "app/nobody/set"])
            payload = dice.choice([b'{"degrees": 20}', *GARBAGE])
            up = running.broker.connected
            running.broker.send(topic, payload, response_topic="app/answers")
            sent += up
        if dice.random() < 0.002:
            running.run(30)  # what was sent is answered by now; a request dies with its broker
            dice.choice([running.broker.stop, running.broker.cut, running.broker.freeze])()
        if dice.random() < 0.05:
            running.broker.start()
            running.broker.thaw()
        if minute == 60:
            alarms = counted(running)
    running.broker.start()
    running.broker.thaw()
    running.run("90m")  # counts for the log wait up to an hour
    introspected = json.loads(running.broker.messages("app/answers")[-1].payload)
    left = min(counted_after(running, "7s") for _ in range(10))  # between two retries
    running.stop()

    answers = running.broker.messages("app/answers")
    assert introspected["status"] in ("ok", "error")
    assert len(made) >= 5
    assert len(answers) == sent > 150
    assert [fault for fault in running.faults() if "closing" not in fault["where"]] == []
    assert left <= alarms
    assert running.left_behind == 0
    assert running.stopped_in < 2
    assert json.loads((tmp_path / "a.json").read_text())["polls"] > 300
    assert len(running.states("up_feed")) > 100


def counted_after(running, time):
    running.run(time)
    return counted(running)


def counted(running):
    """Alarms in the heap of the app."""
    heaps = [each for each in gc.get_objects() if isinstance(each, Timers) and each._loop is running.loop]
    return sum(len(slot) for heap in heaps for slot in heap._slots.values())
