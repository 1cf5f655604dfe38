"""What a part of an app runs beside the polls, and how it ends, whatever it does there."""

import asyncio
import itertools
import os

import pytest

from leadsman import App, Extension
from leadsman.core.mqtt.link import Access
from leadsman.core.wiring.run import serve
from leadsman.extension import JoinPhase
from leadsman.testing import MemoryBroker, Scripted, VirtualLoop


class Recorder:
    """What the part of a test does, and when it began."""

    def __init__(self):
        self.began, self.beside, self.closes = [], None, []


class Recorded(Extension):
    """What joins the app of a test."""

    name = "recorded"

    def __init__(self, recorder):
        self._recorder = recorder

    def joins(self, plan):
        """See `Extension`."""
        return ((JoinPhase.DOORS, self._join),)

    def _join(self, core):
        recorder, loop = self._recorder, asyncio.get_running_loop()
        if recorder.beside is not None:

            async def beside():
                recorder.began.append(loop.time())
                await recorder.beside()

            core.life.beside.append(("the part", beside))
        core.life.close += recorder.closes


@pytest.fixture
def lived():
    """Runs an app with such a part for some seconds: how many calls did not end, its faults, and how long its end
    took."""
    loop, broker = VirtualLoop(), MemoryBroker()

    def live(recorder, seconds):
        app = App("house", mqtt="mqtt://broker", extensions=[Recorded(recorder)])
        app.add_telemetry("meter", Scripted({"t": 1}), interval=10)

        async def run():
            app.load()
            stopping = asyncio.Event()
            loop.call_later(seconds, stopping.set)
            plan = app.plan(os.environ)
            access = Access(plan.brokers, lambda _: broker.connect)
            alive = await serve(plan, access, stopping)
            return alive, loop.time() - seconds

        alive, ended_in = loop.run_until_complete(run())
        return alive, [(each.json["where"], each.json["message"]) for each in broker.messages("house/error")], ended_in

    yield live
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.close()


def waits(recorder):
    return [later - before for before, later in itertools.pairwise(recorder.began)]


def test_a_part_that_fails_is_reported_and_run_again_after_a_growing_wait(lived):
    recorder = Recorder()

    async def fail():
        raise SystemExit("no reason to end the app")

    recorder.beside = fail
    _, faults, _ = lived(recorder, 60)

    assert len(waits(recorder)) >= 3
    assert waits(recorder) == sorted(waits(recorder))
    assert waits(recorder)[-1] > 2 * waits(recorder)[0]
    assert {where for where, _ in faults} == {"the part"}


def test_a_part_that_ran_for_long_is_run_again_as_soon_as_after_its_first_failure(lived):
    recorder = Recorder()

    async def fail_late():
        await asyncio.sleep(120)
        raise OSError

    recorder.beside = fail_late
    lived(recorder, 1000)

    assert max(waits(recorder)) - 120 <= 2


def test_a_part_that_ends_by_itself_is_run_again_and_not_reported(lived):
    recorder = Recorder()
    recorder.beside = end
    _, faults, _ = lived(recorder, 10)

    assert len(recorder.began) > 2
    assert faults == []


async def end():
    pass


async def stubborn():
    while True:
        try:
            await asyncio.sleep(100)
            return
        except asyncio.CancelledError:
            continue


def test_what_does_not_end_beside_the_polls_costs_the_end_no_more_than_its_limit(lived):
    recorder = Recorder()
    recorder.beside = stubborn
    _, _, ended_in = lived(recorder, 10)

    assert ended_in <= 2


def test_what_does_not_close_is_logged_and_what_hangs_is_counted(lived, caplog):
    recorder = Recorder()

    async def broken():
        raise OSError("stuck")

    async def hanging():
        await asyncio.sleep(10)

    recorder.closes += [broken, hanging]
    alive, _, ended_in = lived(recorder, 10)

    assert alive == 1
    assert ended_in <= 2
    assert "closing a part of the app" in caplog.text
    assert "stuck" in caplog.text
