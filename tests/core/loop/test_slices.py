"""Long work in slices."""

import asyncio
import itertools

from leadsman.core.loop.slices import Slices
from leadsman.testing import VirtualLoop


def run(scenario):
    """Run an async function with a `Slices`, in virtual time. Returns the faults."""
    loop, faults = VirtualLoop(), []
    try:
        loop.run_until_complete(scenario(Slices(loop, faults.append)))
    finally:
        loop.close()
    return faults


async def turns(number):
    for _ in range(number):
        await asyncio.sleep(0)


def counting(done, name, slices, pause=0.0):
    for number in range(slices):
        done.append((name, number, asyncio.get_running_loop().time()))
        yield pause


def test_the_first_slice_is_done_at_once():
    done = []

    async def scenario(slices):
        slices.begin("a", counting(done, "a", 1))
        assert len(done) == 1

    assert run(scenario) == []


def test_one_slice_is_done_in_one_turn_of_the_loop_however_many_works_there_are():
    done, lengths = [], []

    async def scenario(slices):
        slices.begin("a", counting(done, "a", 3))
        slices.begin("b", counting(done, "b", 3))
        lengths.append(len(done))
        for _ in range(12):
            await turns(1)
            lengths.append(len(done))

    assert run(scenario) == []
    assert [(name, number) for name, number, _ in done] == [(name, n) for n in range(3) for name in "ab"]
    assert all(after - before <= 1 for before, after in itertools.pairwise(lengths))


def test_a_work_that_pauses_lets_the_others_go_on():
    done = []

    async def scenario(slices):
        slices.begin("slow", counting(done, "slow", 2, pause=1.0))
        slices.begin("quick", counting(done, "quick", 3))
        await asyncio.sleep(5)

    run(scenario)
    assert [at for name, _, at in done if name == "slow"] == [0.0, 1.0]
    assert [at for name, _, at in done if name == "quick"] == [0.0] * 3


def test_works_that_pause_for_the_same_time_go_on_in_one_slice_a_turn_too():
    done, lengths = [], []

    async def scenario(slices):
        for name in "abc":
            slices.begin(name, counting(done, name, 2, pause=1.0))
        await asyncio.sleep(0.999)
        while len(done) < 6:
            lengths.append(len(done))
            await turns(1) if len(done) > 3 else await asyncio.sleep(0.001)

    run(scenario)
    assert {3, 4, 5} <= set(lengths)


def test_a_work_that_raises_is_a_fault_and_ends_and_the_others_go_on():
    done = []

    def broken():
        yield 0.0
        raise ZeroDivisionError

    async def scenario(slices):
        slices.begin("the broken work", broken())
        slices.begin("a", counting(done, "a", 3))
        await turns(12)

    (fault,) = run(scenario)
    assert (fault.where, type(fault.error)) == ("the broken work", ZeroDivisionError)
    assert len(done) == 3


def test_nothing_is_done_after_the_stop():
    done = []

    async def scenario(slices):
        slices.begin("a", counting(done, "a", 100))
        slices.begin("paused", counting(done, "paused", 100, pause=1.0))
        await turns(6)
        slices.stop()
        before = len(done)
        slices.begin("late", counting(done, "late", 3))
        await asyncio.sleep(10)
        assert len(done) == before

    assert run(scenario) == []
    assert {name for name, _, _ in done} == {"a", "paused"}


def test_a_work_may_stop_everything():
    done = []

    async def scenario(slices):
        def stopping():
            slices.stop()
            yield 0.0
            done.append("more")

        slices.begin("a", stopping())
        slices.begin("b", counting(done, "b", 1))
        await turns(6)

    assert run(scenario) == []
    assert done == []
