"""The user's context manager: entered before the first poll, left after the last one."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from leadsman.errors import ConfigurationError
from leadsman.event_bus import EventBus
from leadsman.events import AppFault
from leadsman.loop.clock import system_clock
from leadsman.loop.timers import Timers
from leadsman.resilience.environment import Environment
from leadsman.runtime.lifespan import Lifespan
from leadsman.testing import VirtualLoop


class Recorder:
    """A context manager that fails as often as it has faults."""

    def __init__(self, *faults):
        self.faults = list(faults)
        self.log = []

    @asynccontextmanager
    async def __call__(self):
        if self.faults:
            self.log.append("failed")
            raise self.faults.pop(0)
        self.log.append(f"entered in {asyncio.current_task().get_name()}")
        try:
            yield
        finally:
            self.log.append(f"left in {asyncio.current_task().get_name()}")


@pytest.fixture
def live(events):
    """Runs a coroutine function with an environment and with the event that asks to stop."""

    def live(steps):
        loop = VirtualLoop()

        async def run():
            clock = system_clock(loop)
            bus = EventBus(clock)
            bus.subscribe(events.append)
            return await steps(Environment(Timers(loop, bus.emit), clock, bus), asyncio.Event())

        try:
            return loop.run_until_complete(run())
        finally:
            loop.close()

    return live


def test_one_task_enters_and_leaves_it(live):
    make = Recorder()

    async def steps(environment, stopping):
        lifespan = Lifespan(make, environment)
        await lifespan.entered_or(stopping)
        await lifespan.leave()

    live(steps)

    entered, left = make.log
    assert entered.removeprefix("entered") == left.removeprefix("left")


def test_an_app_without_a_lifespan_waits_for_nothing(live):
    async def steps(environment, stopping):
        lifespan = Lifespan(None, environment)
        await lifespan.entered_or(stopping)
        await lifespan.leave()
        return environment.clock.monotonic()

    assert live(steps) == 0.0


def test_one_that_cannot_be_entered_is_reported_and_tried_again(live, events):
    make = Recorder(OSError("no route"), GeneratorExit())

    async def steps(environment, stopping):
        lifespan = Lifespan(make, environment)
        await lifespan.entered_or(stopping)
        await lifespan.leave()
        return environment.clock.monotonic()

    assert live(steps) > 1.0
    assert [type(event) for event in events] == [AppFault, AppFault]
    assert make.log[:2] == ["failed", "failed"]
    assert len(make.log) == 4


def test_a_wrong_configuration_ends_the_app(live, events):
    async def steps(environment, stopping):
        await Lifespan(Recorder(ConfigurationError("write a path")), environment).entered_or(stopping)

    with pytest.raises(ConfigurationError, match="write a path"):
        live(steps)
    assert events == []


def test_a_request_to_stop_does_not_wait_until_it_is_entered(live):
    @asynccontextmanager
    async def hanging():
        await asyncio.sleep(1e9)
        yield

    async def steps(environment, stopping):
        lifespan = Lifespan(hanging, environment)
        asyncio.get_running_loop().call_later(3, stopping.set)
        await lifespan.entered_or(stopping)
        await lifespan.leave()
        return environment.clock.monotonic()

    assert live(steps) == pytest.approx(3.0)


def test_what_leaving_raises_is_passed_on(live):
    @asynccontextmanager
    async def broken():
        yield
        raise OSError("it does not close")

    async def steps(environment, stopping):
        lifespan = Lifespan(broken, environment)
        await lifespan.entered_or(stopping)
        await lifespan.leave()

    with pytest.raises(OSError, match="it does not close"):
        live(steps)
