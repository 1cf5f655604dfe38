"""No two nodes trust a lease of one key at the same time, whatever fails, while the engine's clock is not set."""

import asyncio
import random

import pytest

from leadsman.errors import LeaseStoreUnreachable
from leadsman.extensions.nodes.lease.lease import Held, Lease, Member, Terms
from leadsman.testing import VirtualLoop
from leadsman_rigs.memory_engine import ClockStep, EngineAway, MemoryEngine, Partition, Pause

TERMS = Terms("house", ttl=8.0)
NODES = ("a", "b", "c")
DAY = 120.0
"""Virtual seconds of one schedule."""


def test_a_lease_is_renewed_at_a_quarter_and_not_trusted_from_four_fifths_of_its_ttl():
    held = Held(Lease("k", "a/1", 1, 8.0), asked_at=100.0)

    assert held.fence_at == pytest.approx(106.4)
    assert held.usable(106.3)
    assert not held.usable(106.4)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_no_two_nodes_trust_one_lease_over_fifty_random_schedules_each(part):
    for seed in range(50 * part, 50 * part + 50):
        use = used_under(random.Random(seed))
        tokens = [token for _, token in use]
        assert tokens == sorted(tokens), seed
        assert len({token for _, token in use}) == len(set(use)), seed
        assert use, seed


def used_under(dice):
    """Three nodes want one key. Each use of it, in the order of time: the node and its token."""
    loop = VirtualLoop()
    used = []

    async def node(engine, name):
        async with engine.store(Member(name, "1")) as store:
            held = None
            while loop.time() < DAY:
                asked_at = loop.time()
                try:
                    if held is None:
                        lease = (await store.acquire(["k"])).granted.get("k")
                    else:
                        lease = (await store.renew([held.lease])).get("k")
                    held = lease and Held(lease, asked_at)
                except LeaseStoreUnreachable:
                    pass
                for _ in range(4):
                    await engine.awake(name)
                    if held is not None and held.usable(loop.time()):
                        used.append((name, held.lease.token))
                    elif held is not None:
                        held = None
                        break
                    await asyncio.sleep(0.5)
                if held is not None and dice.random() < 0.05:
                    await store.release([held.lease])
                    held = None

    async def guarded(engine, name):
        while loop.time() < DAY:
            try:
                await node(engine, name)
            except LeaseStoreUnreachable:
                await asyncio.sleep(1.0)

    async def all_nodes():
        engine = MemoryEngine(TERMS, schedule(dice))
        await asyncio.gather(*(guarded(engine, name) for name in NODES))

    try:
        loop.run_until_complete(all_nodes())
    finally:
        loop.close()
    return used


def schedule(dice):
    def span():
        start = dice.uniform(0.0, DAY)
        return start, start + dice.expovariate(1 / 10.0)

    for _ in range(dice.randrange(1, 10)):
        name = dice.choice(NODES)
        match dice.randrange(4):
            case 0:
                yield Partition(name, *span(), answers_only=dice.random() < 0.5)
            case 1:
                yield Pause(name, *span())
            case 2:
                yield EngineAway(*span())
            case 3:
                yield ClockStep(dice.uniform(0.0, DAY), dice.choice([-3600.0, 3600.0]), node=name)
