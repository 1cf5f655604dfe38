"""Leases in memory: a scripted network, scripted pauses and clocks, in virtual time."""

import asyncio
from contextlib import AsyncExitStack, aclosing

import pytest

from leadsman.errors import InvalidType, InvalidValue, LeaseStoreUnreachable, TermsDiffer
from leadsman.extensions.nodes.lease.lease import Member, Terms
from leadsman_rigs.memory_engine import ClockStep, EngineAway, MemoryEngine, Partition, Pause

TERMS = Terms("house", ttl=8.0, shards=4)
A = Member("a", "1", labels=["ble"], version="1.0")
B = Member("b", "1")


def run(loop, faults, story):
    async def scenario():
        engine = MemoryEngine(TERMS, faults)
        async with AsyncExitStack() as stack:
            stores = [await stack.enter_async_context(engine.store(member)) for member in (A, B)]
            return await story(engine, *stores)

    return loop.run_until_complete(scenario())


def test_a_request_that_is_lost_changes_nothing(loop):
    async def story(engine, a, b):
        with pytest.raises(LeaseStoreUnreachable, match="within 2 s; check"):
            await a.acquire(["k"])
        assert loop.time() == pytest.approx(2.0, abs=0.1)
        return (await b.acquire(["k"])).granted

    assert run(loop, [Partition("a", 0.01, 1000.0)], lambda *all: after(0.01, story, *all))["k"].node == "b"


def test_a_lease_whose_answer_was_lost_is_granted_again_and_nobody_else_gets_it(loop):
    async def story(engine, a, b):
        with pytest.raises(LeaseStoreUnreachable):
            await a.acquire(["k"])
        held = (await b.acquire(["k"])).held["k"]
        granted = (await a.acquire(["k"])).granted["k"]
        assert held.owner == granted.owner == A.owner
        assert granted.token > held.token

    run(loop, [Partition("a", 0.01, 1.0, answers_only=True)], lambda *all: after(0.01, story, *all))


def test_a_node_that_was_stopped_gets_its_answer_when_the_lease_may_be_over(loop):
    async def story(engine, a, b):
        lease = (await a.acquire(["k"])).granted["k"]
        assert loop.time() >= 20.0
        assert (await b.acquire(["k"])).granted["k"].token > lease.token
        assert await a.renew([lease]) == {}

    run(loop, [Pause("a", 0.0105, 20.0)], lambda *all: after(0.01, story, *all))


def test_an_engine_that_was_away_has_all_leases(loop):
    async def story(engine, a, b):
        lease = (await a.acquire(["k"])).granted["k"]
        await asyncio.sleep(1.0)
        with pytest.raises(LeaseStoreUnreachable):
            await a.renew([lease])
        await asyncio.sleep(1.0)
        assert await a.renew([lease]) == {"k": lease}

    run(loop, [EngineAway(0.5, 3.0)], story)


@pytest.mark.parametrize(("by", "granted"), [(3600.0, True), (-3600.0, False)])
def test_the_clock_of_the_engine_decides_when_a_lease_is_over(loop, by, granted):
    async def story(engine, a, b):
        await a.acquire(["k"])
        await asyncio.sleep(1.0 if by > 0 else 9.0)
        return "k" in (await b.acquire(["k"])).granted

    assert run(loop, [ClockStep(0.5, by)], story) is granted


def test_the_clock_of_a_node_decides_nothing_about_its_leases(loop):
    async def story(engine, a, b):
        lease = (await a.acquire(["k"])).granted["k"]
        await asyncio.sleep(1.0)
        assert engine.clock("a").wall() - engine.clock("b").wall() == 3600.0
        assert "k" in (await b.acquire(["k"])).held
        assert await a.renew([lease]) == {"k": lease}

    run(loop, [ClockStep(0.5, 3600.0, node="a")], story)


def test_watching_tells_of_a_release_at_once_and_of_an_end_in_time(loop):
    async def story(engine, a, b):
        seen = []

        async def look():
            async with aclosing(b.watch()) as snapshots:
                async for snapshot in snapshots:
                    seen.append((round(loop.time(), 1), sorted(snapshot.leases), [m.node for m in snapshot.members]))

        watching = asyncio.ensure_future(look())
        await asyncio.sleep(1.0)
        granted = (await a.acquire(["k", "l"])).granted
        await asyncio.sleep(1.0)
        await a.release([granted["k"]])
        for _ in range(5):
            await asyncio.sleep(2.0)
            await b.renew(())
        watching.cancel()
        return seen

    assert run(loop, [], story) == [
        (0.0, [], ["a", "b"]),
        (1.0, ["k", "l"], ["a", "b"]),
        (2.0, ["l"], ["a", "b"]),
        (8.0, ["l"], ["b"]),
        (9.0, [], ["b"]),
    ]


def test_a_node_with_other_terms_is_refused_and_told_both_values(loop):
    async def story(engine, a, b):
        with pytest.raises(TermsDiffer, match="shards is 8 here, and 4 in the engine of cluster 'house'; give all"):
            async with engine.store(Member("c", "1"), Terms("house", ttl=8.0, shards=8)):
                pass

    run(loop, [], story)


def test_a_node_that_leaves_is_no_member_any_more(loop):
    async def story(engine, a, b):
        async with engine.store(Member("c", "1")):
            assert [member.node for member in await a.members()] == ["a", "b", "c"]
        assert await a.members() == (A, B)

    run(loop, [], story)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Terms("two words"),
        lambda: Terms("house", ttl=0.5),
        lambda: Terms("house", ttl=float("nan")),
        lambda: Terms("house", ttl=True),
        lambda: Terms("house", shards=0),
        lambda: Terms("house", shards=1.5),
        lambda: Member("a b", "1"),
        lambda: Member(".a", "1"),
        lambda: Member("a", ""),
        lambda: Member("a", "1", labels=["a\nb"]),
        lambda: Member("a", "1", labels=[3]),
    ],
)
def test_a_wrong_argument_is_refused_with_an_example(wrong):
    with pytest.raises(InvalidValue, match="; write |: write "):
        wrong()


def test_one_string_is_no_list():
    with pytest.raises(InvalidType, match=r"\['ble'\]"):
        Member("a", "1", labels="ble")


async def after(seconds, story, *stores):
    loop = asyncio.get_running_loop()
    await asyncio.sleep(max(0.0, seconds - loop.time()))
    return await story(*stores)
