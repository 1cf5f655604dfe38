import asyncio

import pytest

from leadsman import FixedBackoff
from leadsman.errors import Abandoned, DeviceTimeout, DeviceUnavailable, ResultError
from leadsman.events import PollFailed, PollSkipped, ReadingTaken
from leadsman.registration.source import register_source
from leadsman.runtime.sources import SourceRunner


@pytest.fixture
def run(bench):
    """Runs a generator as a source that is started again after a second."""

    def run(generator, **options):
        source = register_source("d", generator, {"backoff": FixedBackoff(1.0)} | options, ())
        runner = SourceRunner(source, bench.context, bench.resources)
        bench.task = bench.loop.create_task(runner.run())
        return runner

    return run


def test_each_reading_of_a_generator_is_reported_and_published(bench, run):
    async def read():
        for value in (1, 2):
            yield {"t": value}
            await asyncio.sleep(10)
        await asyncio.sleep(3600)

    runner = run(read, silence=None)
    bench.pass_time(25)

    assert bench.sent("app/d/state") == [{"t": 1}, {"t": 2}]
    assert [event.at for event in bench.of(ReadingTaken)] == pytest.approx([0.0, 10.0])
    assert runner.look()[1] is None


def test_a_generator_may_say_that_it_is_well_without_a_reading(bench, run):
    async def read():
        yield None
        await asyncio.sleep(3600)

    run(read)
    bench.pass_time(1)

    assert len(bench.of(ReadingTaken)) == 1
    assert bench.messages == []


def test_one_bad_reading_does_not_end_the_source(bench, run):
    async def read():
        yield {"t": {1, 2}}
        yield {"t": 1}
        await asyncio.sleep(3600)

    run(read)
    bench.pass_time(1)

    assert [type(event.error) for event in bench.of(PollFailed)] == [ResultError]
    assert bench.sent("app/d/state") == [{"t": 1}]


@pytest.mark.parametrize("error", [OSError("gone"), SystemExit(3), asyncio.CancelledError()])
def test_whatever_a_generator_raises_it_is_started_again(bench, run, error):
    async def read():
        if False:
            yield
        raise error

    runner = run(read)
    bench.pass_time(2.5)

    assert {event.error for event in bench.of(PollFailed)} == {error}
    assert runner.counters() == {"restarts": 2}


def test_a_run_that_ends_without_a_reading_has_failed(bench, run):
    async def read():
        return
        yield

    run(read)
    bench.pass_time(0.5)

    assert [type(event.error) for event in bench.of(PollFailed)] == [DeviceUnavailable]


def test_a_silent_source_is_cancelled_and_started_again(bench, run):
    async def read():
        yield {"t": 1}
        await asyncio.sleep(3600)

    run(read, silence=60)
    bench.pass_time(62)

    assert [type(event.error) for event in bench.of(PollFailed)] == [DeviceTimeout]
    assert len(bench.sent("app/d/state")) == 2


def test_a_run_that_does_not_end_when_it_is_cancelled_is_reported_once(bench, run):
    over = asyncio.Event()

    async def read():
        yield {"t": 1}
        while not over.is_set():
            try:
                await over.wait()
            except asyncio.CancelledError:
                continue

    run(read, silence=60)
    bench.pass_time(600)

    assert [type(event.error) for event in bench.of(PollFailed)] == [Abandoned]
    bench.call(over.set)


def test_an_isolated_source_ends_its_run_and_stays_away_until_it_is_closed(bench, run):
    async def read():
        yield {"t": 1}
        await asyncio.sleep(3600)

    runner = run(read)
    bench.pass_time(1)
    bench.call(runner.execution.isolate)
    bench.pass_time(5)

    assert bench.of(PollFailed) == []
    assert bench.of(PollSkipped)
    assert len(bench.sent("app/d/state")) == 1

    bench.call(runner.execution.close)
    bench.pass_time(5)
    assert len(bench.sent("app/d/state")) == 2


def test_the_end_of_the_app_ends_a_source_without_a_report(bench, run):
    async def read():
        yield {"t": 1}
        await asyncio.sleep(3600)

    run(read)
    bench.pass_time(1)
    before = list(bench.events)
    bench.stopping.set()
    bench.call(bench.task.cancel)

    assert bench.task.cancelled()
    assert bench.events == before


def test_a_source_is_not_held(bench, run):
    async def read():
        yield {"t": 1}

    runner = run(read)

    assert (runner.hold(), runner.release("me"), runner.execution.circuit.held) == (False, False, False)
