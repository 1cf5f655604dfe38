import asyncio

import pytest

from leadsman.events import AppFault
from leadsman.timing.timers import FINE, Timers


class Bell:
    def __init__(self, action=None):
        self.rung = []
        self.action = action

    def ring(self, now):
        self.rung.append(now)
        if self.action:
            self.action(now)


@pytest.fixture
def told():
    return []


@pytest.fixture
def timers(loop, told):
    return Timers(loop, told.append)


def pass_time(loop, seconds):
    loop.run_until_complete(asyncio.sleep(seconds))


def test_an_alarm_rings_at_the_first_slot_at_or_after_its_time(loop, timers):
    soon, later, exact = Bell(), Bell(), Bell()

    timers.add(0.0123, soon)
    timers.add(60.01, later)
    timers.add(120.0, exact)
    pass_time(loop, 200)

    assert soon.rung == [pytest.approx(0.015)]
    assert later.rung == [pytest.approx(60.05)]
    assert exact.rung == [pytest.approx(120.0)]


def test_alarms_of_one_slot_ring_in_the_order_they_were_added(loop, timers):
    order = []
    for name in "abc":
        timers.add(1.0, Bell(lambda now, name=name: order.append(name)))

    pass_time(loop, 2)

    assert order == ["a", "b", "c"]


def test_an_alarm_taken_back_does_not_ring(loop, timers):
    bell = Bell()

    timers.remove(timers.add(5.0, bell), bell)
    timers.remove(99, bell)
    pass_time(loop, 10)

    assert bell.rung == []


def test_an_earlier_alarm_added_later_still_rings_in_time(loop, timers):
    early, late = Bell(), Bell()

    timers.add(100.0, late)
    timers.add(10.0, early)
    pass_time(loop, 50)

    assert (early.rung, late.rung) == ([pytest.approx(10.0)], [])


def test_an_alarm_may_add_the_next_one_as_it_rings(loop, timers):
    bell = Bell(lambda now: timers.add(now + 60, bell))

    timers.add(0.0, bell)
    pass_time(loop, 86_400.5)

    assert len(bell.rung) == 1441
    assert bell.rung[-1] == pytest.approx(86_400)


def test_an_alarm_that_raises_is_told_and_stops_nobody(loop, timers, told):
    broken, sound = Bell(lambda now: 1 / 0), Bell()

    timers.add(1.0, broken)
    timers.add(1.0, sound)
    pass_time(loop, 2)

    assert sound.rung
    assert [type(event) for event in told] == [AppFault]


def test_a_sleep_ends_at_its_slot(loop, timers):
    async def slept():
        before = loop.time()
        await timers.sleep(3.3)
        return loop.time() - before

    assert loop.run_until_complete(slept()) == pytest.approx(3.3, abs=10 * FINE)


def test_a_cancelled_sleep_leaves_nothing_behind(loop, timers):
    async def cancelled():
        task = loop.create_task(timers.sleep(1000))
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.wait({task})
        return task.cancelled()

    assert loop.run_until_complete(cancelled())
    assert not any(timers._slots.values())


def test_after_stop_nothing_rings(loop, timers):
    bell = Bell()
    timers.add(1.0, bell)

    timers.stop()
    pass_time(loop, 5)

    assert bell.rung == []


def test_an_alarm_that_is_due_again_at_once_holds_up_neither_the_loop_nor_the_other_alarms(loop, timers):
    other = Bell()
    restless = Bell(lambda now: timers.add(now - 1, restless))
    timers.add(0.1, restless)
    timers.add(0.1, other)

    loop.call_at(0.1, lambda: loop.call_soon(timers.stop))
    loop.run_until_complete(asyncio.sleep(1))

    assert len(other.rung) == 1
    assert 1 <= len(restless.rung) < 10
