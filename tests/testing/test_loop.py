import asyncio
import contextlib
import threading
import time

import pytest

from leadsman import Worker
from leadsman.core.loop import threads
from leadsman.core.runtime.thread_pool import ThreadPool
from leadsman.testing import Harness, Outages, Scripted, VirtualLoop, fail, garbage, hang


def test_a_year_passes_in_no_time(loop):
    before = time.monotonic()

    loop.run_until_complete(asyncio.sleep(365 * 86_400))

    assert loop.time() == 365 * 86_400
    assert time.monotonic() - before < 30


def test_timeouts_inside_any_library_are_virtual(loop):
    async def impatient():
        async with asyncio.timeout(3600):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        loop.run_until_complete(impatient())
    assert loop.time() == 3600


def test_a_program_that_waits_for_ever_is_told_instead_of_hanging(loop):
    with pytest.raises(RuntimeError, match="nothing is due"):
        loop.run_until_complete(asyncio.Event().wait())


def test_the_wall_clock_may_be_set_while_the_monotonic_one_goes_on(loop):
    before = loop.wall_time()

    loop.step_wall(-3600)
    loop.run_until_complete(asyncio.sleep(10))

    assert (loop.time(), loop.wall_time() - before) == (10, -3590)


def test_time_stands_still_while_a_thread_works(loop):
    async def both():
        return await asyncio.gather(asyncio.to_thread(time.sleep, 0.1), asyncio.sleep(5))

    loop.run_until_complete(both())

    assert loop.time() == 5


class SlowToWake(VirtualLoop):
    """A loop whose wake-ups by threads take long before and after they reach it."""

    def call_soon_threadsafe(self, *args, **kwargs):
        time.sleep(0.02)
        handle = super().call_soon_threadsafe(*args, **kwargs)
        time.sleep(0.02)
        return handle


class _Taker:
    name = "taker"


async def _with_a_worker():
    return await Worker("bus").call(lambda: "done", 60)


async def _with_to_thread():
    return await asyncio.to_thread(lambda: "done")


async def _with_a_thread_of_the_pool():
    thread = await ThreadPool("handlers", 1).acquire(_Taker(), 60)
    return await thread.run(lambda: "done")


@pytest.mark.parametrize("call", [_with_a_worker, _with_to_thread, _with_a_thread_of_the_pool])
def test_a_call_is_under_way_until_its_caller_is_woken_and_no_longer(call):
    """Else virtual time goes on before the caller has its result, or waits in real time for a call that has ended."""
    loop = SlowToWake()

    async def main():
        before = threads.busy()
        result = await call()
        return result, threads.busy() - before, loop.time()

    assert loop.run_until_complete(asyncio.wait_for(main(), 3600)) == ("done", 0, 0)
    loop.close()


def test_a_thread_that_hangs_does_not_hold_the_time_for_ever():
    loop = VirtualLoop(patience=0.1)
    release = threading.Event()
    task = loop.create_task(asyncio.to_thread(release.wait, 100))
    before = time.monotonic()

    loop.run_until_complete(asyncio.sleep(3600))

    assert time.monotonic() - before < 50
    release.set()
    task.cancel()
    loop.run_until_complete(asyncio.wait({task}))
    loop.close()


def test_a_script_is_followed_and_its_last_step_repeated(loop):
    script = Scripted(fail(2, ValueError("odd")), {"t": 1}, None)

    async def call():
        try:
            return await script()
        except ValueError as error:
            return str(error)

    assert [loop.run_until_complete(call()) for _ in range(6)] == ["odd", "odd", {"t": 1}, None, None, None]
    assert len(script.calls) == 6


def test_a_hang_lasts_as_long_as_it_is_told(loop):
    assert loop.run_until_complete(Scripted(hang("90s"))()) is None
    assert loop.time() == 90


def test_outages_come_and_go_on_time(loop):
    device = Outages({"t": 1}, [("10s", "20s")])

    async def polled():
        for _ in range(6):
            with contextlib.suppress(OSError):
                await device()
            await asyncio.sleep(5)

    loop.run_until_complete(polled())

    assert device.calls == [0, 5, 10, 15, 20, 25]
    assert device.answered == [0, 5, 20, 25]


def test_garbage_is_the_same_for_a_seed():
    assert garbage(20, 1) == garbage(20, 1) != garbage(20, 2)


def test_a_harness_tells_what_the_app_raised(monkeypatch):
    from leadsman import App
    from leadsman.core.monitoring.heartbeat import Heartbeat

    def fail(*_):
        raise RuntimeError("a fault of ours")

    with Harness(App("app")) as harness:
        harness.run(1)
        with monkeypatch.context() as patched:
            patched.setattr(Heartbeat, "document", fail)
            harness.run("1m")
        assert "the heartbeat" in [fault["where"] for fault in harness.faults()]


def test_a_thread_that_is_given_little_of_the_cpu_does_not_hang():
    def compute():
        for _ in range(20):
            until = time.thread_time() + 0.01
            while time.thread_time() < until:
                pass
            time.sleep(0.05)  # as where other programs have the CPU

    async def wait():
        async with asyncio.timeout(1):
            await asyncio.to_thread(compute)

    loop = VirtualLoop(patience=0.6)
    try:
        loop.run_until_complete(wait())
    finally:
        loop.close()
