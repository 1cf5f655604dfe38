"""Nodes come and go while requests are lost, or arrive after they were given up, and ends of polls take their time."""

import asyncio
import random

import pytest

from leadsman.errors import LeaseStoreUnreachable
from leadsman.extensions.nodes.cluster.node import ClusterNode
from leadsman.extensions.nodes.cluster.placement import pools_of, shard_of
from leadsman.extensions.nodes.lease.lease import Member, Terms
from leadsman.testing import VirtualLoop
from leadsman_rigs.memory_engine import MemoryEngine, MemoryStore, timeout_of

TERMS = Terms("house", ttl=8.0, shards=6)
POOLS = pools_of({shard_of(f"meter-{number}", (), TERMS.shards) for number in range(60)})
SECONDS = 200.0
LOST, LATE = 0.05, 0.15
"""Parts of the requests."""
LATEST = 6.0
"""Seconds."""


class Unreliable(MemoryStore):
    dice: random.Random

    async def release(self, leases):
        chosen = list(leases)
        return await self.perhaps(lambda: self._release(chosen, self._engine.now()), super().release(chosen))

    async def acquire(self, keys):
        chosen = list(keys)
        return await self.perhaps(lambda: self._acquire(chosen, self._engine.now()), super().acquire(chosen))

    async def renew(self, leases):
        chosen = list(leases)
        return await self.perhaps(lambda: self._renew(chosen, self._engine.now()), super().renew(chosen))

    async def perhaps(self, arrive, request):
        fate = self.dice.random()
        if fate >= LOST + LATE:
            return await request
        request.close()
        if fate < LATE:
            asyncio.get_running_loop().call_later(self.dice.uniform(0, LATEST), arrive)
        await asyncio.sleep(timeout_of(TERMS))
        raise LeaseStoreUnreachable("no answer; check that the engine runs")


class Cluster:
    """Three nodes, and who polls which shard."""

    def __init__(self, seed):
        self.dice = random.Random(seed)
        self.polled = {}
        self.overlaps = []
        self.runs = 0

    async def run(self):
        engine = MemoryEngine(TERMS)
        lives = [asyncio.ensure_future(self.live(engine, name)) for name in "abc"]
        await asyncio.wait(lives)
        return self.overlaps, [life.exception() for life in lives if life.exception()]

    async def live(self, engine, name):
        loop = asyncio.get_running_loop()
        while loop.time() < SECONDS:
            self.runs += 1
            member = Member(name, str(self.runs))
            store = Unreliable(engine, member, TERMS)
            store.dice = self.dice
            node = ClusterNode(store, member, TERMS, POOLS, engine.clock(name), ShardCallbacks(self, member.owner))
            task = asyncio.ensure_future(node.run())
            await asyncio.sleep(self.dice.uniform(5, 60))
            task.cancel()
            await asyncio.wait([task])
            await asyncio.sleep(self.dice.uniform(0, 15))


class ShardCallbacks:
    def __init__(self, cluster, owner):
        self.cluster = cluster
        self.owner = owner

    async def begin(self, tokens):
        for key in tokens:
            others = self.cluster.polled.setdefault(key, set()) - {self.owner}
            self.cluster.overlaps += [(key, self.owner, other) for other in others]
            self.cluster.polled[key].add(self.owner)

    async def end(self, keys):
        await asyncio.sleep(self.cluster.dice.uniform(0, 0.3))
        for key in keys:
            self.cluster.polled[key].discard(self.owner)


@pytest.mark.parametrize("seed", range(10))
def test_no_shard_has_two_nodes_when_requests_arrive_late_and_ends_are_cancelled(seed):
    loop = VirtualLoop()
    cluster = Cluster(seed)

    overlaps, errors = loop.run_until_complete(cluster.run())
    loop.close()

    assert overlaps == []
    assert errors == []
    assert not any(cluster.polled.values())
