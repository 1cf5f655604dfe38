import asyncio
import contextvars
import threading
import time

import pytest

from leadsman import Worker
from leadsman.core.loop import threads as workers
from leadsman.core.loop.threads import DaemonExecutor
from leadsman.errors import DeviceTimeout, DeviceUnavailable


def test_calls_are_made_one_after_another_on_one_thread():
    worker = Worker("bus")

    threads = [worker.submit(threading.get_ident).result(60) for _ in range(5)]

    assert len(set(threads)) == 1
    assert threads[0] != threading.get_ident()
    worker.stop()


def test_what_a_call_raises_reaches_the_caller():
    async def failing():
        await asyncio.wrap_future(Worker("bus").submit(lambda: 1 / 0))

    with pytest.raises(ZeroDivisionError):
        asyncio.run(failing())


def test_context_variables_go_along():
    variable = contextvars.ContextVar("variable", default="outside")
    variable.set("inside")

    assert Worker("bus").submit(variable.get).result(60) == "inside"


def test_a_blocked_call_that_was_given_up_holds_up_nobody():
    worker, release = Worker("handlers"), threading.Event()
    blocked = worker.submit(release.wait)
    until(lambda: worker._current is blocked)
    waiting = worker.submit(lambda: "served")

    worker.give_up(blocked)

    assert waiting.result(60) == "served"
    release.set()
    assert blocked.result(60)
    assert worker.submit(lambda: "still served").result(60) == "still served"


def test_giving_up_a_call_that_waits_or_has_ended_changes_nothing():
    worker = Worker("handlers")
    ended = worker.submit(int)
    ended.result(60)

    worker.give_up(ended)

    assert not worker._stuck


def test_too_many_blocked_threads_are_refused_with_what_to_do():
    worker, release = Worker("handlers"), threading.Event()
    for _ in range(workers.MAX_STUCK_THREADS):
        blocked = worker.submit(release.wait)
        while worker._current is not blocked:
            time.sleep(0.001)
        worker.give_up(blocked)

    with pytest.raises(DeviceUnavailable, match="set a timeout on the blocking call"):
        worker.submit(int)
    release.set()


def test_to_thread_gets_a_daemon_thread_per_call_that_nobody_waits_for():
    executor, release = DaemonExecutor(), threading.Event()

    blocked = [executor.submit(release.wait) for _ in range(20)]
    served = executor.submit(lambda: threading.current_thread().daemon)

    assert served.result(60) is True
    executor.shutdown()
    release.set()
    assert all(each.result(60) for each in blocked)


def test_too_many_blocked_calls_are_refused_with_what_blocks():
    executor, release = DaemonExecutor(), threading.Event()
    for _ in range(workers.MAX_THREADS - 1):
        executor.submit(release.wait)

    async def wait():
        asyncio.get_running_loop().set_default_executor(executor)
        blocked = asyncio.create_task(asyncio.to_thread(time.sleep, 0.5))
        await asyncio.sleep(0)
        with pytest.raises(
            DeviceUnavailable, match=r"by 127 × Event\.wait, 1 × sleep; set a timeout on the blocking calls"
        ):
            await asyncio.to_thread(int)
        release.set()
        await blocked

    asyncio.run(wait())
    assert executor.submit(lambda: "served").result(60) == "served"


def test_a_machine_that_has_no_thread_for_the_moment_gives_one_later(monkeypatch):
    worker, executor, start = Worker("bus"), DaemonExecutor(), threading.Thread.start

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    for _ in range(workers.MAX_THREADS + 1):
        with pytest.raises(DeviceUnavailable, match="no thread for leadsman call: can't start new thread"):
            executor.submit(int)
        with pytest.raises(DeviceUnavailable, match="no thread for leadsman bus"):
            worker.submit(int)
    monkeypatch.setattr(threading.Thread, "start", start)

    assert executor.submit(lambda: "served").result(60) == "served"
    assert worker.submit(lambda: "served").result(60) == "served"


@pytest.mark.parametrize("submitting", [Worker("bus"), DaemonExecutor()], ids=["worker", "executor"])
def test_a_stop_iteration_reaches_the_caller_as_an_error(submitting):
    async def failing():
        async with asyncio.timeout(60):
            await asyncio.wrap_future(submitting.submit(lambda: next(iter(()))))

    with pytest.raises(RuntimeError, match="StopIteration"):
        asyncio.run(failing())


def until(true):
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_busy_counts_calls_under_way():
    worker, release = Worker("bus"), threading.Event()
    until(lambda: workers.busy() == 0)  # what an earlier test left behind has ended

    call = worker.submit(release.wait)
    until(lambda: workers.busy() == 1)
    release.set()
    call.result(60)

    until(lambda: workers.busy() == 0)


def test_a_call_returns_its_value_or_raises_its_error():
    async def refuse():
        return await Worker("bus").call(lambda: 1 / 0, 60)

    async def time_out_by_itself():
        def fail():
            raise TimeoutError("its own")

        return await Worker("bus").call(fail, 60, lambda future: pytest.fail("it was not given up"))

    assert asyncio.run(Worker("bus").call(lambda: 5, 60)) == 5
    with pytest.raises(ZeroDivisionError):
        asyncio.run(refuse())
    with pytest.raises(TimeoutError, match="its own"):
        asyncio.run(time_out_by_itself())


@pytest.mark.parametrize("how", ["late", "cancelled"])
def test_a_call_that_is_late_or_cancelled_is_given_up_and_the_next_one_is_made(how):
    worker, release, entered, given_up = Worker("bus"), threading.Event(), threading.Event(), []

    def hang():
        entered.set()
        return release.wait(60)

    async def wait():
        call = asyncio.create_task(worker.call(hang, 0.1 if how == "late" else 60, given_up.append))
        await asyncio.to_thread(entered.wait, 60)
        if how == "cancelled":
            call.cancel()
        kind, words = (DeviceTimeout, "bus took longer than 100ms") if how == "late" else (asyncio.CancelledError, None)
        with pytest.raises(kind, match=words):
            await call
        return await worker.call(lambda: "served", 60)

    assert asyncio.run(wait()) == "served"
    release.set()
    assert given_up[0].result(60) is True


def test_a_worker_that_is_renewed_again_and_again_leaves_no_more_blocked_threads_behind():
    worker, release, began = Worker("bus"), threading.Event(), threading.Semaphore(0)

    def hang():
        began.release()
        release.wait(60)

    for _ in range(workers.MAX_STUCK_THREADS):
        future = worker.submit(hang)
        assert began.acquire(timeout=60)
        worker.give_up(future)
        worker = worker.renew()

    with pytest.raises(DeviceUnavailable, match="8 threads of bus are blocked"):
        worker.submit(int)
    release.set()
    until(lambda: not any(thread.is_alive() for thread in worker._stuck))
    assert worker.submit(lambda: "served").result(60) == "served"
