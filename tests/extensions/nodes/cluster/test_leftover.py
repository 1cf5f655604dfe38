"""Shards that the quotas of all nodes leave over."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.extensions.nodes.cluster.node import ClusterNode
from leadsman.extensions.nodes.cluster.placement import LeftoverShards, Pool
from leadsman.extensions.nodes.lease.lease import Lease, Member, Terms
from leadsman.extensions.nodes.lease.store import ClusterSnapshot
from leadsman.testing import VirtualLoop
from leadsman_rigs.memory_engine import MemoryEngine

TTL = 8.0
NAMES = [f"node-{number}" for number in range(5)]
KEYS = [f"any.{number}" for number in range(12)]


def pool(keys, needs=()):
    return Pool("any", frozenset(needs), tuple(keys))


def patient(name, labels=()):
    return LeftoverShards(Member(name, "1", labels), TTL)


def of(*names, leases=()):
    return ClusterSnapshot(dict(leases), tuple(Member(name, "1") for name in names))


def test_a_shard_is_left_over_once_it_was_free_for_a_ttl():
    patience = patient("one")
    looks = [patience.shards(of("one"), [pool(KEYS[:1])], (), now) for now in (100.0, 107.9, 108.0)]
    assert looks == [frozenset(), frozenset(), {KEYS[0]}]


def test_a_shard_that_somebody_had_meanwhile_is_waited_for_anew():
    patience, taken = patient("one"), {KEYS[0]: Lease(KEYS[0], "two/1", 1, TTL)}
    for now, leases in ((0.0, {}), (4.0, taken), (9.0, {}), (16.9, {})):
        assert patience.shards(of("one", "two", leases=leases), [pool(KEYS[:1])], (), now) == frozenset()


def test_a_shard_that_another_node_took_is_not_left_over_any_more():
    patience, taken = patient("one"), {KEYS[0]: Lease(KEYS[0], "two/1", 1, TTL)}
    patience.shards(of("one"), [pool(KEYS[:1])], (), 0.0)
    assert patience.shards(of("one"), [pool(KEYS[:1])], (), TTL)
    assert patience.shards(of("one", leases=taken), [pool(KEYS[:1])], (), TTL) == frozenset()


def test_what_was_free_while_a_node_drained_is_not_left_over_when_it_takes_part_again():
    patience, pools = patient("one"), [pool(KEYS)]
    patience.restate(Member("one", "1").drained(True))
    patience.shards(of("one"), pools, (), 0.0)
    patience.restate(Member("one", "1"))
    assert patience.shards(of("one"), pools, (), TTL) == frozenset()


def test_a_node_to_which_all_was_left_over_gives_another_one_its_part():
    patience, pools = patient("one"), [pool(KEYS)]
    leases = {key: Lease(key, "one/1", 1, TTL) for key in KEYS}
    patience.shards(of("one"), pools, (), 0.0)
    assert patience.shards(of("one"), pools, (), TTL) == set(KEYS)
    assert patience.shards(of("one", "two", leases=leases), pools, KEYS, 2 * TTL) == frozenset()


def test_a_node_without_the_label_waits_for_ever():
    patience = patient("one")
    for now in (0.0, 1e9):
        assert patience.shards(of("one"), [pool(KEYS, ["ble"])], (), now) == frozenset()


@given(st.sets(st.sampled_from(NAMES), min_size=1), st.sets(st.sampled_from(KEYS), min_size=1))
def test_one_node_is_first_and_all_have_had_their_turn_at_last(names, keys):
    nodes, turns = {name: patient(name) for name in names}, {}
    for turn in range(len(names) + 1):
        for name, node in nodes.items():
            for key in node.shards(of(*names), [pool(keys)], (), turn * TTL):
                turns.setdefault(key, {}).setdefault(name, turn)
    for key in keys:
        assert sorted(turns[key].values()) == list(range(1, len(names) + 1))


def test_what_was_left_over_counts_by_the_quota_again_while_another_node_of_the_version_has_less_than_its_part():
    patience, both = patient("one"), of("one", "two")
    keys = [pool(KEYS[:4])]
    now = 3 * TTL
    patience.shards(both, keys, KEYS[:2], 0.0)
    assert patience.shards(both, keys, KEYS[:2], now) == set(KEYS[2:4])  # the other node takes none of its two
    held = of("one", "two", leases={key: Lease(key, "one/1", 1, TTL) for key in KEYS[:4]})
    assert patience.shards(held, keys, KEYS[:4], now + 0.9 * TTL) == set(KEYS[2:4])
    assert patience.shards(held, keys, KEYS[:4], now + 1.1 * TTL) == frozenset()


def test_what_was_left_over_stays_so_while_nodes_run_different_versions():
    patience, keys = patient("one"), [pool(KEYS[:4])]
    other = ClusterSnapshot({key: Lease(key, "one/1", 1, TTL) for key in KEYS[:4]}, (Member("two", "1", version="2"),))
    patience.shards(of("one", "two"), keys, KEYS[:2], 0.0)
    patience.shards(of("one", "two"), keys, KEYS[:2], 3 * TTL)
    assert patience.shards(other, keys, KEYS[:4], 100 * TTL) == set(KEYS[2:4])


class ShardCallbacks:
    def __init__(self):
        self.at_work = set()

    async def begin(self, tokens):
        self.at_work |= set(tokens)

    async def end(self, keys):
        self.at_work -= set(keys)


@pytest.mark.parametrize("new", [1, 3, 8])
def test_nodes_that_know_different_shards_leave_none_alone(new):
    """Half of the nodes run a version with more shards, and one of these nodes dies."""
    loop, terms = VirtualLoop(), Terms("house", ttl=TTL, shards=16)

    async def play():
        engine, tasks, callbacks = MemoryEngine(terms), {}, {}
        for number in range(4):
            version = number % 2
            member, known = Member(f"node-{number}", "1", version=str(version)), KEYS if version else KEYS[:-new]
            callbacks[number] = ShardCallbacks()
            node = ClusterNode(
                engine.store(member), member, terms, [pool(known)], engine.clock(member.node), callbacks[number]
            )
            tasks[number] = loop.create_task(node.run())
        await asyncio.sleep(6 * TTL)
        at_work = [key for each in callbacks.values() for key in each.at_work]
        assert sorted(at_work) == sorted(KEYS)
        tasks.pop(3).cancel()
        await asyncio.sleep(6 * TTL)
        at_work = [key for each in callbacks.values() for key in each.at_work]
        assert sorted(at_work) == sorted(KEYS)
        for task in tasks.values():
            task.cancel()
        await asyncio.sleep(1)

    loop.run_until_complete(play())
    loop.close()
