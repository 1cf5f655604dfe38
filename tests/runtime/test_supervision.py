"""Tasks of the app that run until it ends."""

import asyncio
import itertools

import pytest

from leadsman.runtime.supervision import RESTARTING, cancel, close_all, keep_running


def run_for(loop, seconds, coroutine):
    async def run():
        task = loop.create_task(coroutine)
        await asyncio.sleep(seconds)
        task.cancel()
        await asyncio.wait([task])

    loop.run_until_complete(run())


def test_a_part_that_fails_is_reported_and_run_again_after_a_growing_wait(loop, environment, events):
    began = []

    async def part():
        began.append(loop.time())
        raise SystemExit("no reason to end the app")

    run_for(loop, 60, keep_running("the part", part, environment))

    waits = [later - before for before, later in itertools.pairwise(began)]
    assert len(waits) >= 3
    assert waits == sorted(waits)
    assert {event.where for event in events} == {"the part"}
    assert len(events) == len(began)


def test_a_part_that_ran_for_long_is_run_again_as_soon_as_after_its_first_failure(loop, environment):
    began = []

    async def part():
        began.append(loop.time())
        await asyncio.sleep(2 * RESTARTING.max_delay)
        raise OSError

    run_for(loop, 1000, keep_running("the part", part, environment))

    waits = [later - before - 2 * RESTARTING.max_delay for before, later in itertools.pairwise(began)]
    assert max(waits) < 2 * RESTARTING.delay(1)


def test_a_part_that_ends_by_itself_is_run_again_and_not_reported(loop, environment, events):
    runs = []

    async def part():
        runs.append(loop.time())

    run_for(loop, 10, keep_running("the part", part, environment))

    assert len(runs) > 2
    assert events == []


async def stubborn():
    while True:
        try:
            await asyncio.sleep(100)
            return
        except asyncio.CancelledError:
            continue


def test_cancelling_counts_the_tasks_that_go_on(loop):
    async def run():
        tasks = [loop.create_task(asyncio.sleep(100)), loop.create_task(stubborn())]
        await asyncio.sleep(0)
        return await cancel(tasks, 0.5), loop.time(), await asyncio.wait(tasks)

    alive, time, _ = loop.run_until_complete(run())

    assert (alive, time) == (1, pytest.approx(0.5))


def test_cancelling_nothing_takes_no_time(loop):
    assert loop.run_until_complete(cancel([], 5)) == 0
    assert loop.time() == 0


def test_what_does_not_close_is_reported_and_what_hangs_is_counted(loop, environment, events):
    async def broken():
        raise OSError("stuck")

    async def run():
        tasks = [loop.create_task(each) for each in (broken(), asyncio.sleep(0), asyncio.sleep(10))]
        return await close_all(tasks, 1.0, environment), await asyncio.wait(tasks)

    alive, _ = loop.run_until_complete(run())

    assert alive == 1
    assert [(event.where, str(event.error)) for event in events] == [("closing a part of the app", "stuck")]
