import asyncio
import sys
from contextvars import ContextVar

import pytest

from leadsman.core.loop.tasks import begin_at_once, in_the_next_turn, outcome, outcome_in_own_task

ERRORS = [OSError("gone"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit()]


async def give(value):
    await asyncio.sleep(1)
    return value


async def fail(error):
    await asyncio.sleep(1)
    raise error


async def clean_up_badly():
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        raise OSError("during clean-up") from None


def test_the_outcome_of_a_call_that_returns_is_its_value(loop):
    assert loop.run_until_complete(outcome(give(42), asyncio.Event())) == (42, None)


def test_what_is_begun_runs_in_a_task_with_a_context_of_its_own(loop):
    place = ContextVar("place", default="outside")
    seen = []

    async def quick():
        seen.append((asyncio.current_task(), place.get()))
        place.set("inside")
        return 42

    async def main():
        outer = asyncio.current_task()
        task = begin_at_once(quick(), loop)
        assert asyncio.current_task() is outer
        return task, await task

    task, value = loop.run_until_complete(main())

    assert value == 42
    assert seen == [(task, "outside")]
    assert place.get() == "outside"


def test_what_is_begun_may_wait_time_out_and_gather(loop):
    async def slow():
        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            tasks = [group.create_task(give(number)) for number in range(3)]
        try:
            async with asyncio.timeout(0.5):
                await asyncio.sleep(3600)
        except TimeoutError:
            return [task.result() for task in tasks]

    async def main():
        return await begin_at_once(slow(), loop)

    assert loop.run_until_complete(main()) == [0, 1, 2]


def test_what_is_begun_is_cancelled_at_its_first_wait_or_a_later_one(loop):
    async def main():
        task = begin_at_once(give(42), loop)
        task.cancel()
        await asyncio.wait({task})
        return task.cancelled()

    assert loop.run_until_complete(main())


def test_what_never_waits_is_done_as_it_is_begun_except_on_python_3_11(loop):
    async def quick():
        return 42

    async def main():
        task = begin_at_once(quick(), loop)
        return task.done(), await task

    assert loop.run_until_complete(main()) == (sys.version_info >= (3, 12), 42)


@pytest.mark.parametrize("error", ERRORS)
def test_whatever_a_call_raises_by_itself_is_a_value(loop, error):
    assert loop.run_until_complete(outcome(fail(error), asyncio.Event())) == (None, error)


@pytest.mark.parametrize("error", ERRORS)
def test_whatever_a_call_raises_in_a_task_of_its_own_is_a_value(loop, error):
    assert loop.run_until_complete(outcome_in_own_task(lambda: fail(error))) == (None, error)


def test_the_cancellation_that_ends_the_app_is_passed_on(loop):
    stopping = asyncio.Event()
    task = loop.create_task(outcome(give(42), stopping))
    loop.call_later(0.5, stopping.set)
    loop.call_later(0.5, task.cancel)

    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)


def test_the_end_of_the_app_stays_one_where_clean_up_makes_another_error_of_it(loop):
    stopping = asyncio.Event()
    task = loop.create_task(outcome(clean_up_badly(), stopping))
    loop.call_later(0.5, stopping.set)
    loop.call_later(0.5, task.cancel)

    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)


def test_a_cancellation_that_foreign_code_leaves_behind_does_not_cancel_what_follows(loop):
    async def cancel_oneself():
        asyncio.current_task().cancel()
        await asyncio.sleep(1)

    async def two_calls():
        first = await outcome(cancel_oneself(), asyncio.Event())
        return first, asyncio.current_task().cancelling(), await outcome(give(42), asyncio.Event())

    first, cancelling, second = loop.run_until_complete(two_calls())

    assert type(first.error) is asyncio.CancelledError
    assert cancelling == 0
    assert second.value == 42


def test_a_task_that_waits_for_another_was_cancelled_whatever_the_other_makes_of_it(loop):
    task = loop.create_task(outcome_in_own_task(clean_up_badly))
    loop.call_later(0.5, task.cancel)

    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)


def test_a_call_that_is_still_open_when_the_loop_has_ended_is_closed_quietly(loop):
    async def start():
        call = outcome(give(42), asyncio.Event())
        call.send(None)
        return call

    call = loop.run_until_complete(start())
    call.close()

    assert call.cr_frame is None


def test_in_a_block_a_coroutine_begins_in_the_next_turn_on_every_version():
    done = []

    async def work():
        done.append("begun")

    async def scenario():
        loop = asyncio.get_running_loop()
        with in_the_next_turn():
            task = begin_at_once(work(), loop)
            assert done == []
            await task
        before = len(done)
        later = begin_at_once(work(), loop)
        assert len(done) == before + (sys.version_info >= (3, 12))
        await later

    asyncio.run(scenario())
