"""What a node does when its callbacks fail or are cancelled, and when an answer of the engine is late."""

import asyncio

import pytest

from leadsman.errors import LeaseStoreRefused, LeaseStoreUnreachable
from leadsman.extensions.nodes.cluster.node import ClusterNode
from leadsman.extensions.nodes.cluster.placement import pools_of, shard_of
from leadsman.extensions.nodes.lease.lease import Member, Terms
from leadsman.testing import VirtualLoop
from leadsman_rigs.memory_engine import EngineAway, MemoryEngine, MemoryStore, timeout_of

TERMS = Terms("house", ttl=8.0, shards=4)
POOLS = pools_of({shard_of(f"meter-{number}", (), TERMS.shards) for number in range(40)})


@pytest.fixture
def loop():
    loop = VirtualLoop()
    yield loop
    loop.close()


class ShardCallbacks:
    """Notes what is polled. An end takes `seconds`, and fails as often as `errors` says."""

    def __init__(self, seconds=0.0, errors=0):
        self.polled = set()
        self.seconds = seconds
        self.errors = errors

    async def begin(self, tokens):
        self.polled |= set(tokens)

    async def end(self, keys):
        await asyncio.sleep(self.seconds)
        if self.errors:
            self.errors -= 1
            raise OSError("the bus hangs")
        self.polled -= set(keys)


class Checked(MemoryStore):
    """Fails the test if a lease is released whose shard is polled."""

    callbacks: ShardCallbacks
    refuses = False

    async def release(self, leases):
        assert not self.callbacks.polled & {lease.key for lease in leases}
        await super().release(leases)

    async def renew(self, leases):
        if self.refuses:
            raise LeaseStoreRefused("the password was changed; write the new one")
        return await super().renew(leases)


def node_of(engine, name, callbacks, store_type=Checked):
    member = Member(name, "1")
    store = store_type(engine, member, TERMS)
    store.callbacks = callbacks
    return ClusterNode(store, member, TERMS, POOLS, engine.clock(name), callbacks), store


def test_a_shard_whose_end_was_cancelled_is_ended_before_its_lease_is_released(loop):
    async def run():
        engine, callbacks = MemoryEngine(TERMS), ShardCallbacks(seconds=0.5)
        node, _ = node_of(engine, "a", callbacks)
        task = asyncio.ensure_future(node.run())
        await asyncio.sleep(3.0)
        other = asyncio.ensure_future(node_of(engine, "b", ShardCallbacks())[0].run())
        await asyncio.sleep(0.3)
        assert len(callbacks.polled) == 4  # the end of two of them is under way
        task.cancel()
        await asyncio.wait([task])
        other.cancel()
        await asyncio.wait([other])
        return callbacks.polled, task.cancelled()

    assert loop.run_until_complete(run()) == (set(), True)


def test_a_shard_that_was_lost_is_ended_although_the_node_is_cancelled_meanwhile(loop):
    async def run():
        engine, callbacks = MemoryEngine(TERMS), ShardCallbacks(seconds=0.5)
        node, _ = node_of(engine, "a", callbacks)
        task = asyncio.ensure_future(node.run())
        await asyncio.sleep(3.0)
        engine.delete("any.0")
        while len(node.held.keys) == 4:
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])
        return callbacks.polled

    assert loop.run_until_complete(run()) == set()


def test_shards_whose_leases_were_granted_later_end_in_time_after_an_end_that_took_long(loop):
    leaves_at, slow = 12.9, 1.0

    async def run():
        engine, callbacks = MemoryEngine(TERMS, [EngineAway(leaves_at + 0.1, 60.0)]), ShardCallbacks()
        tasks = [
            asyncio.ensure_future(node_of(engine, name, its)[0].run())
            for name, its in [("a", callbacks), ("b", ShardCallbacks())]
        ]
        await asyncio.sleep(leaves_at)
        assert len(callbacks.polled) == 2
        tasks[1].cancel()
        await asyncio.sleep(0.1)
        assert (
            len(callbacks.polled) == 4
        )  # the leases of two are younger than those of the others, and none will be renewed
        callbacks.seconds = slow
        while callbacks.polled:
            await asyncio.sleep(0.01)
        ended_at = engine.now()
        tasks[0].cancel()
        await asyncio.wait(tasks)
        return ended_at

    assert loop.run_until_complete(run()) < leaves_at + TERMS.ttl


def test_a_node_whose_duties_fail_ends_and_keeps_the_leases_of_what_may_still_be_polled(loop):
    async def run():
        engine, callbacks = MemoryEngine(TERMS), ShardCallbacks(errors=9)
        node, _ = node_of(engine, "a", callbacks)
        task = asyncio.ensure_future(node.run())
        await asyncio.sleep(3.0)
        engine.delete("any.0")
        await asyncio.wait([task])
        assert isinstance(task.exception(), OSError)
        assert set(engine.table.snapshot(engine.now()).leases) == callbacks.polled - {"any.0"}
        await asyncio.sleep(TERMS.ttl)
        return [key for key in callbacks.polled if node.allows(key)]

    assert loop.run_until_complete(run()) == []


class HalfEnds(ShardCallbacks):
    """An end that fails has stopped the polls all the same."""

    async def end(self, keys):
        self.polled -= set(keys)
        await super().end(keys)


def test_what_a_node_could_not_end_is_polled_again_after_the_fault(loop):
    async def run():
        engine, callbacks = MemoryEngine(TERMS), HalfEnds(errors=2)
        node, _ = node_of(engine, "a", callbacks)
        task = asyncio.ensure_future(node.run())
        await asyncio.sleep(3.0)
        engine.delete("any.0")
        await asyncio.wait([task])
        assert isinstance(task.exception(), OSError)
        task = asyncio.ensure_future(node.run())
        await asyncio.sleep(3.0)
        polled, keys = set(callbacks.polled), node.held.keys
        task.cancel()
        await asyncio.wait([task])
        return polled, keys

    polled, keys = loop.run_until_complete(run())
    assert polled == keys == {f"any.{number}" for number in range(4)}


def test_a_node_that_the_engine_refuses_ends_what_it_polls(loop):
    async def run():
        engine, callbacks = MemoryEngine(TERMS), ShardCallbacks()
        node, store = node_of(engine, "a", callbacks)
        task = asyncio.ensure_future(node.run())
        await asyncio.sleep(1.0)
        store.refuses = True
        await asyncio.wait([task])
        assert isinstance(task.exception(), LeaseStoreRefused)
        return callbacks.polled, dict(engine.table.snapshot(engine.now()).leases)

    assert loop.run_until_complete(run()) == (set(), {})


class LateReleases(Checked):
    """The first release is given up, and reaches the engine a second after that."""

    late = True

    async def release(self, leases):
        if not self.late:
            await super().release(leases)
            return
        self.late, chosen = False, list(leases)
        asyncio.get_running_loop().call_later(timeout_of(TERMS) + 1, lambda: self._release(chosen, self._engine.now()))
        await asyncio.sleep(timeout_of(TERMS))
        raise LeaseStoreUnreachable("no answer; check that the engine runs")


def test_a_release_that_arrives_late_releases_no_shard_that_is_polled(loop):
    async def run():
        engine, callbacks = MemoryEngine(TERMS), ShardCallbacks()
        node, _ = node_of(engine, "a", callbacks, LateReleases)
        task = asyncio.ensure_future(node.run())
        await asyncio.sleep(3)
        async with engine.store(Member("b", "1")):  # for as long as this one is there, the first has too many
            await asyncio.sleep(1)
            assert len(callbacks.polled) == 2
        await asyncio.sleep(timeout_of(TERMS) + 0.1)
        answer = await engine.store(Member("c", "1")).acquire([key for pool in POOLS for key in pool.keys])
        polled = set(callbacks.polled)
        task.cancel()
        await asyncio.wait([task])
        return polled & answer.granted.keys(), len(polled)

    assert loop.run_until_complete(run()) == (set(), 4)


class NoAnswers(Checked):
    """It has no answer to a release."""

    async def release(self, leases):
        await asyncio.sleep(timeout_of(TERMS))
        raise LeaseStoreUnreachable("no answer; check that the engine runs")


def test_a_node_leaves_within_the_timeouts_of_an_engine_that_never_answers(loop):
    async def run():
        engine, callbacks = MemoryEngine(TERMS), ShardCallbacks()
        node, _ = node_of(engine, "a", callbacks, NoAnswers)
        task = asyncio.ensure_future(node.run())
        await asyncio.sleep(3.0)
        began = asyncio.get_running_loop().time()
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled(), callbacks.polled, asyncio.get_running_loop().time() - began

    cancelled, polled, seconds = loop.run_until_complete(run())
    assert cancelled
    assert not polled
    assert seconds <= 2 * timeout_of(TERMS)


async def begun(engine, *names):
    """Nodes that have run for a while: of each its `ClusterNode`, its callbacks and its task."""
    found = []
    for name in names:
        callbacks = ShardCallbacks()
        node, _ = node_of(engine, name, callbacks)
        found.append((node, callbacks, asyncio.ensure_future(node.run())))
    await asyncio.sleep(TERMS.ttl)
    return found


def test_a_node_that_drains_hands_over_at_once_and_takes_part_again_when_that_is_undone(loop):
    async def run():
        engine = MemoryEngine(TERMS)
        (one, polled, task), (_, others, second) = await begun(engine, "a", "b")
        assert len(polled.polled) == len(others.polled) == 2
        one.drain(True)
        await asyncio.sleep(0.2)
        handed_over = len(polled.polled), len(others.polled)
        await asyncio.sleep(2 * TERMS.ttl)
        drained = len(polled.polled), len(others.polled), one.member.draining, one.without_node()
        one.drain(False)
        await asyncio.sleep(0.2)
        again = len(polled.polled), len(others.polled), one.member.draining
        for each in (task, second):
            each.cancel()
        await asyncio.wait([task, second])
        return handed_over, drained, again

    assert loop.run_until_complete(run()) == ((0, 4), (0, 4, True, ()), (2, 2, False))


def test_the_last_node_that_drains_says_what_stays_without_a_node(loop):
    async def run():
        engine = MemoryEngine(TERMS)
        ((one, callbacks, task),) = await begun(engine, "a")
        assert one.without_node() == ()
        one.drain(True)
        alone = one.without_node()
        await asyncio.sleep(9 * TERMS.ttl)
        left = callbacks.polled, one.without_node()
        task.cancel()
        await asyncio.wait([task])
        return alone, left

    assert loop.run_until_complete(run()) == (POOLS, (set(), POOLS))


def test_a_drain_that_the_engine_does_not_hear_of_is_told_when_it_answers_again(loop):
    async def run():
        engine = MemoryEngine(TERMS, [EngineAway(TERMS.ttl + 0.5, TERMS.ttl + 3.0)])
        (one, polled, task), (_, others, second) = await begun(engine, "a", "b")
        await asyncio.sleep(1.0)
        one.drain(True)
        await asyncio.sleep(TERMS.ttl)
        for each in (task, second):
            each.cancel()
        await asyncio.sleep(0)
        left = len(polled.polled), len(others.polled)
        await asyncio.wait([task, second])
        return left

    assert loop.run_until_complete(run()) == (0, 4)
