"""What every `LeaseStore` does. A new implementation is added to `implementations.py`."""

import asyncio
from contextlib import aclosing

import pytest
from tests.extensions.nodes.lease.implementations import members_of

from leadsman.errors import InvalidType, InvalidValue, TermsDiffer
from leadsman.extensions.nodes.lease.lease import Lease, Member, Terms
from leadsman.extensions.nodes.lease.store import LeaseStore

TTL = 2.0
"""Seconds, where a lease has to end."""
SLACK = 0.3
"""Seconds that an engine may take to see that something is over."""


async def only(store: LeaseStore, key: str) -> Lease:
    granted, held = await store.acquire([key])
    assert held == {}
    return granted[key]


def test_a_free_key_is_granted_and_says_by_whom_and_for_how_long(play):
    async def scenario(cluster):
        a = await cluster.node("a")
        lease = await only(a, "k")
        assert (lease.key, lease.owner, lease.node, lease.ttl) == ("k", "a/1", "a", 20.0)
        assert lease.token > 0

    play(scenario)


def test_a_key_that_somebody_has_is_answered_with_that_lease(play):
    async def scenario(cluster):
        a, b = await cluster.node("a"), await cluster.node("b")
        lease = await only(a, "k")
        granted, held = await b.acquire(["k", "free"])
        assert held == {"k": lease}
        assert granted.keys() == {"free"}

    play(scenario)


def test_of_many_nodes_that_want_many_keys_each_key_goes_to_one(play):
    async def scenario(cluster):
        nodes = [await cluster.node(name) for name in "abcd"]
        keys = [f"shard.{number}" for number in range(32)]
        answers = await asyncio.gather(
            *(node.acquire(keys[offset:] + keys[:offset]) for offset, node in enumerate(nodes))
        )
        again = await asyncio.gather(*(node.acquire(keys) for node in nodes))  # a key may be in neither the first time
        owners = {}
        for answer in again:
            for key, lease in answer.granted.items():
                assert owners.setdefault(key, lease.owner) == lease.owner
        assert sorted(owners) == sorted(keys)
        for answer in answers:
            assert all(owners[key] == lease.owner for key, lease in answer.granted.items())

    play(scenario)


def test_the_same_run_gets_its_key_again_with_a_greater_token_and_the_former_one_is_void(play):
    async def scenario(cluster):
        a = await cluster.node("a")
        former = await only(a, "k")
        lease = await only(a, "k")
        assert lease.token > former.token
        assert await a.renew([former]) == {}
        assert await a.renew([lease, former]) == {"k": lease}
        await a.release([former])
        assert await a.renew([lease]) == {"k": lease}

    play(scenario)


def test_another_run_of_the_same_node_waits_like_everybody_else(play):
    async def scenario(cluster):
        former, latter = await cluster.node("a", "1"), await cluster.node("a", "2")
        lease = await only(former, "k")
        assert (await latter.acquire(["k"])).held == {"k": lease}
        assert await latter.renew([lease]) == {}
        await latter.release([lease])
        assert await former.renew([lease]) == {"k": lease}

    play(scenario)


def test_a_released_key_is_free_at_once_and_its_next_token_is_greater(play):
    async def scenario(cluster):
        a, b = await cluster.node("a"), await cluster.node("b")
        lease = await only(a, "k")
        await a.release([lease])
        assert (await only(b, "k")).token > lease.token
        assert await a.renew([lease]) == {}

    play(scenario)


def test_a_release_may_be_repeated_and_does_not_touch_the_next_owner(play):
    async def scenario(cluster):
        a, b = await cluster.node("a"), await cluster.node("b")
        lease = await only(a, "k")
        await a.release([lease])
        await a.release([lease])
        next_one = await only(b, "k")
        await a.release([lease])
        assert await b.renew([next_one]) == {"k": next_one}

    play(scenario)


def test_renewing_tells_which_of_many_leases_are_left_and_keeps_their_tokens(play):
    async def scenario(cluster):
        a = await cluster.node("a")
        granted = (await a.acquire([f"k.{number}" for number in range(100)])).granted
        await a.release([granted["k.7"]])
        kept = await a.renew(granted.values())
        assert kept == {key: lease for key, lease in granted.items() if key != "k.7"}
        assert await a.renew(kept.values()) == kept

    play(scenario)


def test_a_lease_that_is_deleted_by_hand_is_lost_and_its_next_token_is_greater(play):
    async def scenario(cluster):
        a, b = await cluster.node("a"), await cluster.node("b")
        lease = await only(a, "k")
        await cluster.delete("k")
        assert await a.renew([lease]) == {}
        assert (await only(b, "k")).token > lease.token

    play(scenario)


def test_a_lease_lasts_while_it_is_renewed_and_then_for_one_ttl(play):
    async def scenario(cluster):
        a, b = await cluster.node("a"), await cluster.node("b")
        lease = await only(a, "k")
        for _ in range(3):
            await asyncio.sleep(TTL / 2)
            assert await a.renew([lease]) == {"k": lease}
            assert (await b.acquire(["k"])).held == {"k": lease}
        await asyncio.sleep(TTL + SLACK)
        assert await a.renew([lease]) == {}
        assert (await only(b, "k")).token > lease.token

    play(scenario, ttl=TTL)


def test_members_are_the_nodes_that_live_with_their_labels_and_versions(play):
    async def scenario(cluster):
        b = await cluster.node("b", labels=["serial:/dev/serial/by-id/usb meter"])
        async with cluster.store("a.example.org", "2", labels=["ble", "i2c"], version="1.4"):
            first, second = await members_of(b)
            assert first == Member("a.example.org", "2", ["i2c", "ble"], "1.4")
            assert second.labels == {"serial:/dev/serial/by-id/usb meter"}
        assert [member.node for member in await members_of(b)] == ["b"]

    play(scenario)


def test_a_membership_lasts_for_one_ttl_and_begins_again_with_the_next_renewal(play):
    async def scenario(cluster):
        a, b = await cluster.node("a"), await cluster.node("b")
        for _ in range(3):
            await asyncio.sleep(TTL / 2)
            await b.renew(())
        assert [member.node for member in await members_of(b)] == ["b"]
        await a.renew(())
        assert [member.node for member in await members_of(b)] == ["a", "b"]

    play(scenario, ttl=TTL)


def test_watching_yields_the_cluster_at_once_and_then_each_change(play):
    async def scenario(cluster):
        a, b = await cluster.node("a"), await cluster.node("b")
        lease = await only(a, "k")
        async with aclosing(b.watch()) as snapshots:
            first = await anext(snapshots)
            assert first.leases == {"k": lease}
            assert [member.node for member in first.members] == ["a", "b"]
            await a.renew([lease])  # no change
            await a.release([lease])
            assert (await within(1.0, snapshots)).leases == {}
            async with cluster.store("c"):
                assert [member.node for member in (await within(1.0, snapshots)).members] == ["a", "b", "c"]
            assert [member.node for member in (await within(1.0, snapshots)).members] == ["a", "b"]
            other = await only(a, "k")
            assert (await within(1.0, snapshots)).leases == {"k": other}

    play(scenario)


def test_what_a_node_says_of_itself_changes_with_its_next_renewal_and_whoever_watches_hears_it(play):
    async def scenario(cluster):
        a, b = await cluster.node("a", labels=["ble"]), await cluster.node("b")
        lease = await only(a, "k")
        async with aclosing(b.watch()) as snapshots:
            assert not (await anext(snapshots)).members[0].draining
            a.restate(Member("a", "1", ["ble"]).drained(True))
            assert await a.renew([lease]) == {"k": lease}, "its leases are as before"
            assert (await within(1.0, snapshots)).members[0] == Member("a", "1", ["ble"]).drained(True)
            a.restate(Member("a", "1", ["ble"]))
            await a.renew([lease])
            assert (await within(1.0, snapshots)).members[0] == Member("a", "1", ["ble"])

    play(scenario)


def test_watching_tells_of_an_end_within_a_quarter_of_the_ttl(play):
    async def scenario(cluster):
        a, b = await cluster.node("a"), await cluster.node("b")
        async with aclosing(b.watch()) as snapshots:
            await anext(snapshots)
            await only(a, "k")
            begun = asyncio.get_running_loop().time()
            assert (await within(1.0, snapshots)).leases.keys() == {"k"}
            while (await within(TTL * 1.25 + SLACK, snapshots)).leases:
                pass
            assert TTL - SLACK < asyncio.get_running_loop().time() - begun < TTL * 1.25 + SLACK

    play(scenario, ttl=TTL)


@pytest.mark.parametrize("differing", [{"shards": 8, "ttl": 20.0}, {"shards": 4, "ttl": 30.0}])
def test_a_node_with_other_terms_is_refused_and_the_others_go_on(play, differing):
    async def scenario(cluster):
        a = await cluster.node("a")
        lease = await only(a, "k")
        with pytest.raises(
            TermsDiffer, match=r"is \d+ here, and \d+(\.0)? in .*; give all nodes the same value, or stop"
        ):
            async with cluster.store("b", terms=Terms(cluster.terms.cluster, **differing)):
                pass
        assert await a.renew([lease]) == {"k": lease}
        assert [member.node for member in await members_of(a)] == ["a"]

    play(scenario)


def test_two_clusters_on_one_engine_know_nothing_of_each_other(play):
    async def scenario(cluster):
        a = await cluster.node("a")
        async with cluster.store("b", terms=Terms(f"{cluster.terms.cluster}x", ttl=30.0)) as b:
            await only(a, "k")
            await only(b, "k")
            assert [member.node for member in await members_of(b)] == ["b"]

    play(scenario)


def test_a_node_that_leaves_releases_nothing(play):
    async def scenario(cluster):
        b = await cluster.node("b")
        async with cluster.store("a") as a:
            lease = await only(a, "k")
        assert (await b.acquire(["k"])).held == {"k": lease}

    play(scenario)


def test_a_wrong_key_is_refused_with_an_example(play):
    async def scenario(cluster):
        a = await cluster.node("a")
        for wrong in ("", "a b", "a..b", ".a", "a*", "a>", "k" * 129, 7):
            with pytest.raises(InvalidValue, match=r"such as 'shard\.17'"):
                await a.acquire([wrong])
        with pytest.raises(InvalidType, match="write a list"):
            await a.acquire("k")
        for right in ("ble/aabbccddeeff", "shard.17", "k" * 128, "-", "A_b"):
            await only(a, right)

    play(scenario)


def test_no_keys_and_no_leases_are_fine(play):
    async def scenario(cluster):
        a = await cluster.node("a")
        assert await a.acquire([]) == ({}, {})
        assert await a.renew([]) == {}
        await a.release([])

    play(scenario)


async def within(seconds, snapshots):
    async with asyncio.timeout(seconds):
        return await anext(snapshots)
