import asyncio
import contextvars
import gc
import threading
import time
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leadsman.core.loop import threads
from leadsman.core.runtime.thread_pool import AT_ONCE, FREE_THREAD_WAIT, IDLE, ThreadPool
from leadsman.errors import NoFreeThread
from leadsman.testing import VirtualLoop
from leadsman_rigs.examples import examples


class Caller:
    """Takes a thread, makes one call in it, and may stop waiting."""

    def __init__(self, pool, name="caller", limit=60.0):
        self.pool, self.name, self.limit = pool, name, limit
        self.thread = None

    async def call(self, function):
        self.thread = await self.pool.acquire(self, self.limit)
        return await self.thread.run(function)


def run(main, patience=0.1):
    loop = VirtualLoop(patience=patience)
    try:
        return loop.run_until_complete(asyncio.wait_for(main, 3600))
    finally:
        loop.close()


async def until(true):
    """Wait in real time: the virtual one does not wait for calls that are known to hang."""
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.001)
        await asyncio.sleep(0)


async def let_go(pool, *events):
    """Let calls that hang end."""
    for event in events:
        event.set()
    await until(lambda: not any(thread.running for thread in pool._all))
    await asyncio.sleep(0.001)  # the loop sees that no call hangs any more


async def hang(pool, release, count=1):
    """Calls that hang until `release` is set."""
    tasks = [asyncio.create_task(Caller(pool, f"hanging {n}").call(release.wait)) for n in range(count)]
    while sum(thread.running for thread in pool._all) < count:
        await asyncio.sleep(FREE_THREAD_WAIT)
    return tasks


def test_many_short_calls_of_one_moment_share_a_few_threads():
    async def main():
        pool = ThreadPool("handlers", 64)
        found = await asyncio.gather(*(Caller(pool).call(threading.get_ident) for _ in range(50)))
        return found, len(pool)

    found, alive = run(main(), patience=60)

    assert len(set(found)) == alive <= AT_ONCE
    assert threading.get_ident() not in found


def test_calls_that_hang_hold_up_nobody():
    release = threading.Event()

    async def main():
        pool = ThreadPool("handlers", 64)
        hanging = await hang(pool, release, 20)
        for task in hanging:
            task.cancel()
        return await asyncio.gather(*(Caller(pool).call(lambda: "served") for _ in range(45))), len(pool)

    served, alive = run(main())
    release.set()

    assert served == ["served"] * 45
    assert alive <= 20 + AT_ONCE


def test_a_call_without_a_thread_is_told_who_has_them():
    release = threading.Event()

    async def main():
        pool = ThreadPool("handlers", 5)
        await hang(pool, release, 5)
        await asyncio.sleep(10)
        with pytest.raises(NoFreeThread) as refused:
            await Caller(pool, limit=3).call(int)
        await let_go(pool, release)
        served = await Caller(pool).call(lambda: "served")
        return str(refused.value), served, len(pool)

    told, served, alive = run(main())

    assert told.startswith("no thread of handlers was free within 3s: all 5 are busy with hanging 0 (for 1")
    assert told.endswith(" and 2 others; set a timeout on the blocking calls there")
    assert served == "served"
    assert alive == 5


def test_a_machine_without_threads_is_named(monkeypatch):
    def refuse(*arguments, **options):
        raise RuntimeError("can't start new thread")

    async def main():
        with pytest.raises(NoFreeThread, match="the system cannot start another thread"):
            await Caller(ThreadPool("handlers", 5), limit=1).call(int)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    run(main())


def test_threads_without_calls_end_but_one():
    release = threading.Event()

    async def main():
        pool = ThreadPool("handlers", 64)
        hanging = await hang(pool, release, 12)
        await let_go(pool, release)
        await asyncio.gather(*hanging)
        busy = len(pool)
        await asyncio.sleep(IDLE - 1)
        before = len(pool)
        await asyncio.sleep(2)
        return busy, before, len(pool)

    assert run(main(), patience=0.2) == (12, 12, 1)


def test_the_order_of_those_that_wait_is_that_of_their_requests():
    release, served = threading.Event(), []

    async def main():
        pool = ThreadPool("bus", 1)
        hanging = await hang(pool, release)
        waiting = [asyncio.create_task(Caller(pool).call(lambda n=n: served.append(n))) for n in range(5)]
        await asyncio.sleep(1)
        waiting[2].cancel()
        await asyncio.sleep(0)
        release.set()
        await until(lambda: len(served) == 4)
        await asyncio.gather(*hanging, *waiting, return_exceptions=True)
        return len(pool)

    assert run(main()) == 1
    assert served == [0, 1, 3, 4]


def test_a_call_that_is_cancelled_when_threads_are_started_leaves_its_own_to_another():
    release = threading.Event()

    async def main():
        pool = ThreadPool("handlers", 64)
        hanging = await hang(pool, release, AT_ONCE)
        waiting = [asyncio.create_task(Caller(pool).call(lambda: "served")) for _ in range(2)]
        pool._first = lambda: None  # as if those that hang had just begun
        await asyncio.sleep(0)
        pool._growth.cancel()
        await asyncio.sleep(2 * FREE_THREAD_WAIT)
        waiting[0].cancel()
        pool._grow()
        served = await waiting[1]
        await let_go(pool, release)
        await asyncio.gather(*hanging)
        return served, len(pool), len(pool._free)

    assert run(main()) == ("served", AT_ONCE + 2, AT_ONCE + 2)


def test_stopping_ends_the_threads_also_those_that_have_a_call():
    release = threading.Event()
    before = set(threading.enumerate())

    async def main():
        pool = ThreadPool("handlers", 64)
        hanging = await hang(pool, release, 3)
        await Caller(pool).call(int)
        pool.stop()
        await let_go(pool, release)
        await asyncio.gather(*hanging)
        return len(pool)

    assert run(main()) == 0
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
        assert not thread.is_alive()


def test_a_call_that_ends_after_the_loop_ends_its_thread_quietly():
    release = threading.Event()
    before = set(threading.enumerate())

    async def main():
        for task in await hang(ThreadPool("handlers", 4), release, 3):
            task.cancel()

    run(main())
    release.set()

    for thread in set(threading.enumerate()) - before:
        thread.join(60)
        assert not thread.is_alive()
    assert threads.busy() == 0


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("x"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()]
)
def test_what_a_call_raises_reaches_the_caller(error):
    def failing():
        raise error

    async def main():
        try:
            await Caller(ThreadPool("handlers", 4)).call(failing)
        except BaseException as raised:
            return raised

    assert type(run(main())) is type(error)


def test_a_stop_iteration_reaches_the_caller_as_an_error():
    async def main():
        with pytest.raises(RuntimeError, match="raised StopIteration"):
            await Caller(ThreadPool("handlers", 4)).call(lambda: next(iter(())))

    run(main())


def test_context_variables_go_along():
    variable = contextvars.ContextVar("variable", default="outside")

    async def main():
        variable.set("inside")
        return await Caller(ThreadPool("handlers", 4)).call(variable.get)

    assert run(main()) == "inside"


def test_a_thread_without_a_call_keeps_nothing_alive():
    class Thing:
        pass

    async def main():
        pool = ThreadPool("handlers", 4)
        thing = await Caller(pool).call(Thing)
        found = weakref.ref(thing)
        del thing
        await asyncio.sleep(1)
        gc.collect()
        return found() is None, len(pool)

    assert run(main(), patience=60) == (True, 1)


STEPS = st.lists(
    st.tuples(st.sampled_from(["call", "hang", "cancel", "release", "wait"]), st.integers(0, 7)), max_size=40
)


@settings(max_examples=examples(25), deadline=None)
@given(STEPS, st.integers(1, 5))
def test_no_thread_is_lost_and_none_is_taken_twice(steps, most):
    """Whatever is called, cancelled and released: never more than `most` threads, one call in each, and all of them
    free in the end."""
    events, running, overlaps = [], {}, []

    def tracked(function):
        def call():
            ident = threading.get_ident()
            overlaps.extend([ident] if running.get(ident) else [])
            running[ident] = True
            function()
            running[ident] = False

        return call

    async def main():
        pool, tasks = ThreadPool("handlers", most), []
        for step, n in steps:
            if step in ("call", "hang"):
                release = threading.Event()
                events.append(release)
                function = tracked(int if step == "call" else release.wait)
                tasks.append(asyncio.create_task(Caller(pool, limit=5.0).call(function)))
            elif step == "cancel" and tasks:
                tasks[n % len(tasks)].cancel()
            elif step == "release" and events:
                events[n % len(events)].set()
            elif step == "wait":
                await asyncio.sleep((0, FREE_THREAD_WAIT, 1, 6)[n % 4])
            assert len(pool) <= most
        for release in events:
            release.set()
        await until(lambda: all(task.done() for task in tasks))
        await let_go(pool)
        await asyncio.sleep(IDLE + 1)
        assert not any(thread.holder or thread.running for thread in pool._all)
        assert not pool._waiting
        assert len(pool) == len(pool._free) <= 1
        last = asyncio.create_task(Caller(pool).call(lambda: "served"))
        await until(last.done)
        assert last.result() == "served"
        pool.stop()

    run(main(), patience=0.01)
    assert not overlaps
