import asyncio
import itertools
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.core.events import AppFault
from leadsman.core.loop.slots import BATCH, FINE
from leadsman.core.loop.timers import BEHIND, Timers
from leadsman.testing import VirtualLoop


class Bell:
    def __init__(self, action=None):
        self.rung = []
        self.action = action

    def ring(self, now):
        self.rung.append(now)
        if self.action:
            self.action(now)


class Call:
    """A call that an alarm begins; `task` is None once it has ended."""

    def __init__(self):
        self.task = object()
        self.armed = 0

    def arm(self):
        self.armed += 1


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


def test_no_alarm_rings_any_more_once_it_is_not_permitted(loop):
    allowed, asked = [True], []

    def permitted():
        asked.append(loop.time())
        return allowed[0]

    timers, first, second = Timers(loop, print, permitted=permitted), Bell(), Bell()
    timers.add(1.0, first)
    timers.add(2.0, second)
    loop.call_at(1.5, allowed.clear)
    loop.call_at(1.5, allowed.append, False)

    loop.run_until_complete(asyncio.sleep(5))

    assert (len(first.rung), len(second.rung)) == (1, 0)
    assert asked == pytest.approx([1.0, 2.0], abs=0.1)


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


def test_alarms_that_are_due_at_once_ring_a_batch_a_turn_in_their_order(loop, timers):
    turns, order = [0], []

    def turn():
        turns.append(0)
        loop.call_soon(turn)

    def rung(number):
        turns[-1] += 1
        order.append(number)

    for number in range(5 * BATCH + 3):
        timers.add(1.0 + 0.005 * (number > BATCH // 2), Bell(lambda now, number=number: rung(number)))
    loop.call_later(0.99, loop.block, 0.1)
    loop.call_later(0.99, turn)

    loop.run_until_complete(asyncio.sleep(0.99))
    while len(order) < 5 * BATCH + 3:
        loop.run_until_complete(asyncio.sleep(0))

    assert order == list(range(5 * BATCH + 3))
    assert max(turns) == BATCH


def test_a_limit_of_a_call_that_ends_while_alarms_ring_is_never_armed(loop, timers):
    short, long = Call(), Call()

    def begin(now):
        timers.limit(short)
        timers.limit(long)
        short.task = None

    timers.add(1.0, Bell(begin))
    timers.add(1.0, Bell(lambda now: 1 / 0))
    pass_time(loop, 2)

    assert (short.armed, long.armed) == (0, 1)


def test_limits_of_calls_that_no_alarm_begins_are_armed_in_the_next_turn_if_the_calls_still_run(loop, timers):
    short, long, later = Call(), Call(), Call()

    async def turns():
        timers.limit(short)
        timers.limit(long)
        short.task = None
        before = long.armed
        await asyncio.sleep(0)
        timers.limit(later)
        await asyncio.sleep(0)
        return before

    assert loop.run_until_complete(turns()) == 0
    assert (short.armed, long.armed, later.armed) == (0, 1, 1)


def test_a_limit_that_begins_again_and_again_in_one_turn_is_armed_once(loop, timers):
    call = Call()

    async def calls():
        for _ in range(1000):
            timers.limit(call)
        await asyncio.sleep(0)

    loop.run_until_complete(calls())

    assert call.armed == 1


def test_a_limit_that_is_armed_at_the_end_of_a_batch_rings_in_time(loop, timers):
    late = Bell()
    call = Call()
    call.arm = lambda: timers.add(1.5, late)
    timers.add(1.0, Bell(lambda now: timers.limit(call)))

    pass_time(loop, 2)

    assert late.rung == [pytest.approx(1.5)]


def test_an_alarm_taken_back_between_two_turns_does_not_ring(loop, timers):
    bells = [Bell() for _ in range(3 * BATCH)]
    slots = [timers.add(1.0, bell) for bell in bells]
    last = bells[-1]
    bells[0].action = lambda now: loop.call_soon(timers.remove, slots[-1], last)
    bells[1].action = lambda now: timers.remove(slots[2], bells[2])

    pass_time(loop, 2)

    assert [len(bell.rung) for bell in bells] == [1, 1, 0] + [1] * (3 * BATCH - 4) + [0]


def test_an_alarm_that_stops_the_timers_is_the_last_one_that_rings(loop, timers):
    bells = [Bell() for _ in range(2 * BATCH)]
    for bell in bells:
        timers.add(1.0, bell)
    bells[3].action = lambda now: timers.stop()

    pass_time(loop, 2)

    assert sum(len(bell.rung) for bell in bells) == 4


def test_a_socket_is_read_while_a_thousand_alarms_are_due():
    async def main():
        loop, rung, read_after = asyncio.get_running_loop(), [], []
        timers = Timers(loop, rung.append)
        here, there = socket.socketpair()
        with here, there:
            loop.add_reader(here, lambda: read_after.append((here.recv(1), len(rung))))

            def ring(now):
                if not rung:
                    there.send(b"x")
                rung.append(now)

            for _ in range(1000):
                timers.add(loop.time(), Bell(ring))
            while len(rung) < 1000:
                await asyncio.sleep(0)
            loop.remove_reader(here)
        return read_after

    [(data, count)] = asyncio.run(main())

    assert data == b"x"
    assert count <= 3 * BATCH


def test_alarms_that_stay_behind_leave_half_of_the_time_to_others(loop, timers):
    rung, others = [], []

    def ring(bell):
        loop.block(0.001)
        rung.append(loop.time())
        timers.add(loop.time(), bell)

    def other():
        others.append(loop.time())
        loop.call_later(0.001, other)

    for _ in range(4 * BATCH):
        bell = Bell()
        bell.action = lambda now, bell=bell: ring(bell)
        timers.add(0.0, bell)
    loop.call_later(1.0, other)
    pass_time(loop, 10)

    assert 0.45 * 10_000 <= len(rung) <= 0.55 * 10_000
    assert len(others) >= 0.4 * 9_000


def test_alarms_that_stay_behind_use_all_of_the_time_while_nothing_piles_up(loop, told):
    timers, rung, turns = Timers(loop, told.append, lambda: False), [], []

    def ring(bell):
        loop.block(0.001)
        rung.append(loop.time())
        timers.add(loop.time(), bell)

    def turn():
        turns.append(loop.time())
        loop.call_soon(turn)

    for _ in range(4 * BATCH):
        bell = Bell()
        bell.action = lambda now, bell=bell: ring(bell)
        timers.add(0.0, bell)
    loop.call_soon(turn)
    pass_time(loop, 10)

    assert len(rung) >= 0.95 * 10_000
    assert max(after - before for before, after in itertools.pairwise(turns)) <= BATCH * 0.001 + 0.001


def test_a_batch_that_blocks_the_loop_for_long_is_followed_by_a_short_pause(loop, timers):
    rung = []

    def ring(bell):
        loop.block(0.1)
        rung.append(loop.time())
        timers.add(loop.time(), bell)

    for _ in range(2 * BATCH):
        bell = Bell()
        bell.action = lambda now, bell=bell: ring(bell)
        timers.add(0.0, bell)
    pass_time(loop, 100)

    assert max(after - before for before, after in itertools.pairwise(rung)) <= 0.1 + BEHIND + 0.001


def test_alarms_of_one_moment_wait_for_nobody_else_if_they_take_less_than_that(loop, timers):
    rung = []

    def ring(now):
        loop.block(BEHIND / 100)
        rung.append(now)

    for _ in range(99):
        timers.add(1.0, Bell(ring))
    pass_time(loop, 2)

    assert rung[-1] == pytest.approx(1.0 + 98 * BEHIND / 100)


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), st.booleans()), max_size=200),
    st.integers(0, 300),
)
def test_each_alarm_rings_once_and_never_early_whatever_blocks_the_loop(alarms, blocked):
    loop = VirtualLoop()
    timers = Timers(loop, lambda event: pytest.fail(str(event)))
    rung = []
    for number, (tick, later, taken_back) in enumerate(alarms):
        slot = timers.add(tick * FINE, bell := Bell(lambda now, number=number: rung.append((number, now))))
        if taken_back:
            loop.call_at(later * FINE, timers.remove, slot, bell)
    loop.call_at(0.02, loop.block, blocked / 1000)

    pass_time(loop, 1)
    loop.close()

    numbers = [number for number, _ in rung]
    assert len(set(numbers)) == len(numbers)
    assert {number for number, (_, _, taken_back) in enumerate(alarms) if not taken_back} <= set(numbers)
    assert all(now >= alarms[number][0] * FINE - 1e-6 for number, now in rung)
