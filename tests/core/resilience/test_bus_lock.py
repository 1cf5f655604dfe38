import asyncio

import pytest
from tests.core.resilience.callers import raised

from leadsman.core.resilience.guards import BusLock, in_turn


@pytest.fixture
def lock():
    return BusLock()


def user(loop, log, name, seconds=1.0):
    async def call():
        log.append((name, loop.time()))
        await asyncio.sleep(seconds)
        return name

    return call


def test_calls_on_one_bus_are_made_one_after_the_other_in_the_order_of_the_requests(loop, lock):
    async def all_at_once():
        calls = [in_turn(user(loop, log, name), lock, object()) for name in "abc"]
        return await asyncio.gather(*(call() for call in calls))

    log = []

    assert loop.run_until_complete(all_at_once()) == ["a", "b", "c"]
    assert log == [("a", 0), ("b", 1), ("c", 2)]


def test_calls_on_two_buses_are_made_at_the_same_time(loop, lock):
    async def all_at_once():
        await asyncio.gather(*(in_turn(user(loop, log, name), BusLock(), object())() for name in "ab"))

    log = []
    loop.run_until_complete(all_at_once())

    assert log == [("a", 0), ("b", 0)]


def test_a_call_that_fails_gives_the_bus_back(loop, lock):
    async def fail():
        raise OSError("gone")

    async def one_after_the_other():
        error = await raised(in_turn(fail, lock, object()))
        return error, await in_turn(user(loop, [], "next"), lock, object())()

    error, result = loop.run_until_complete(one_after_the_other())

    assert isinstance(error, OSError)
    assert result == "next"


def test_a_call_that_is_cancelled_while_it_waits_takes_no_turn(loop, lock):
    async def cancelled():
        holder = asyncio.ensure_future(in_turn(user(loop, log, "holder"), lock, object())())
        waiting = asyncio.ensure_future(in_turn(user(loop, log, "waiting"), lock, object())())
        await asyncio.sleep(0.5)
        waiting.cancel()
        await holder
        await in_turn(user(loop, log, "next"), lock, object())()

    log = []
    loop.run_until_complete(cancelled())

    assert [name for name, _ in log] == ["holder", "next"]


def test_a_bus_that_was_taken_from_a_call_is_not_given_back_by_it_again(loop, lock):
    async def taken_away():
        hanging, next_one = object(), object()
        task = asyncio.ensure_future(in_turn(user(loop, log, "hanging", 10), lock, hanging)())
        await asyncio.sleep(1)
        lock.give_back(hanging)
        others = [in_turn(user(loop, log, name, 20), lock, next_one) for name in ("next", "last")]
        await asyncio.gather(task, *(call() for call in others))

    log = []
    loop.run_until_complete(taken_away())

    assert log == [("hanging", 0), ("next", 1), ("last", 21)]


def test_nobody_gives_back_a_bus_that_another_holds(loop, lock):
    async def not_mine():
        task = asyncio.ensure_future(in_turn(user(loop, log, "holder", 5), lock, object())())
        await asyncio.sleep(1)
        lock.give_back(object())
        await in_turn(user(loop, log, "next"), lock, object())()
        await task

    log = []
    loop.run_until_complete(not_mine())

    assert log == [("holder", 0), ("next", 5)]
