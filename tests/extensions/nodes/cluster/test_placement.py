"""Which shards each node should have."""

from hypothesis import given, settings
from hypothesis import strategies as st

from leadsman.extensions.nodes.cluster.placement import Shard, plan, pools_of, quota_of, serving
from leadsman.extensions.nodes.lease.lease import Lease, Member
from leadsman.extensions.nodes.lease.store import ClusterSnapshot
from leadsman_rigs.examples import examples

BLE = frozenset(["ble"])
OUT = st.sets(st.sampled_from(["drains", "unanswered"]))
"""Why a node takes no part."""


def pool(count, name="any", needs=()):
    return pools_of(Shard(name, index, frozenset(needs)) for index in range(count))[0]


def nodes(count, labels=()):
    return [Member(f"n{number}", "1", labels) for number in range(count)]


def rounds(members, pools, owners, most=10):
    """Let the nodes do what they plan, one after the other, until nobody wants anything. `owners`: node by key."""
    for number in range(most):
        moved = False
        for member in members:
            leases = {key: Lease(key, owner.owner, 1, 15.0) for key, owner in owners.items()}
            held = {key for key, owner in owners.items() if owner == member}
            release, acquire = plan(member, ClusterSnapshot(leases, tuple(members)), pools, held)
            moved = moved or bool(release or acquire)
            assert set(release) <= held
            assert not set(acquire) & set(leases), "a node takes only what is free"
            for key in release:
                del owners[key]
            owners.update(dict.fromkeys(acquire, member))
        if not moved:
            return number
    raise AssertionError("the nodes never come to rest")


@given(st.integers(1, 300), st.sets(st.text("abcdef", min_size=1, max_size=4), min_size=1, max_size=40))
def test_the_quotas_add_up_to_the_shards_and_differ_by_one_at_most(shards, names):
    quotas = [quota_of(name, pool(shards), names) for name in names]
    assert sum(quotas) == shards
    assert max(quotas) - min(quotas) <= 1


@settings(max_examples=examples(40))
@given(st.integers(1, 80), st.integers(1, 9), st.data())
def test_the_nodes_come_to_rest_with_each_shard_at_one_node_and_an_even_part_each(shards, count, data):
    everything, members = [pool(shards)], nodes(count)
    placed = data.draw(st.dictionaries(st.sampled_from(everything[0].keys), st.sampled_from(members)))
    owners = dict(placed)
    assert rounds(members, everything, owners) <= 3
    parts = [sum(owner == member for owner in owners.values()) for member in members]
    assert sorted(owners) == sorted(everything[0].keys)
    assert max(parts) - min(parts) <= 1


@given(st.integers(2, 8))
def test_a_node_that_dies_costs_only_its_own_shards_a_move(count):
    everything, members = [pool(64)], nodes(count)
    owners = {}
    rounds(members, everything, owners)
    before = dict(owners)
    dead, *rest = members
    owners = {key: owner for key, owner in owners.items() if owner != dead}
    rounds(rest, everything, owners)
    assert {key: owner for key, owner in before.items() if owner != dead}.items() <= owners.items()


def test_a_node_that_comes_gets_its_part_and_nothing_else_moves():
    everything, members = [pool(256)], nodes(4)
    owners = {}
    rounds(members[:3], everything, owners)
    before = dict(owners)
    rounds(members, everything, owners)
    moved = [key for key in owners if owners[key] != before[key]]
    assert len(moved) == 64
    assert {owners[key] for key in moved} == {members[3]}


def test_devices_go_only_to_nodes_that_have_what_they_need():
    ble, bare = Member("ble", "1", ["ble", "loud"]), Member("bare", "1")
    everything = [pool(8), pool(5, "0badcafe", BLE)]
    owners = {}
    rounds([ble, bare], everything, owners)
    assert {owners[key] for key in everything[1].keys} == {ble}
    assert sum(owner == bare for owner in owners.values()) == 4


def test_a_node_that_lost_a_label_releases_what_needs_it():
    member, needy = Member("a", "2"), pool(3, "0badcafe", BLE)
    assert set(plan(member, ClusterSnapshot({}, (member,)), [needy], needy.keys).release) == set(needy.keys)


def test_a_shard_that_no_registration_has_any_more_is_released():
    member = Member("a", "1")
    assert plan(member, ClusterSnapshot({}, (member,)), [pool(1)], {"any.0", "any.77"}).release == ("any.77",)


def test_a_node_that_restarts_is_one_node_while_its_former_run_is_still_a_member():
    former, other, member = Member("a", "1"), Member("b", "1"), Member("a", "2")
    snapshot = ClusterSnapshot({}, (former, other))
    assert len(plan(member, snapshot, [pool(10)], ()).acquire) == 5


def test_a_lease_whose_answer_was_lost_is_asked_for_again():
    member = Member("a", "1")
    snapshot = ClusterSnapshot({"any.0": Lease("any.0", member.owner, 7, 15.0)}, (member,))
    assert plan(member, snapshot, [pool(1)], ()).acquire == ("any.0",)


@settings(max_examples=examples(40))
@given(st.integers(1, 60), st.lists(OUT, min_size=1, max_size=8), st.data())
def test_nodes_that_take_no_part_end_with_nothing_and_the_others_with_an_even_part_of_everything(shards, out, data):
    everything = [pool(shards)]
    members = [
        member.drained("drains" in why).unanswered("unanswered" in why)
        for member, why in zip(nodes(len(out)), out, strict=True)
    ]
    owners = dict(data.draw(st.dictionaries(st.sampled_from(everything[0].keys), st.sampled_from(members))))
    assert rounds(members, everything, owners) <= 3
    parts = {member: sum(owner == member for owner in owners.values()) for member in members}
    assert not any(parts[member] for member, why in zip(members, out, strict=True) if why)
    left = [parts[member] for member, why in zip(members, out, strict=True) if not why]
    assert sum(left) == (shards if left else 0), "with nobody left, nobody takes anything"
    assert max(left, default=0) - min(left, default=0) <= 1


@given(st.integers(2, 7), st.integers(0, 6))
def test_a_drain_that_is_undone_gives_the_node_what_it_had_and_moves_nothing_between_others(count, which):
    everything, members = [pool(64)], nodes(count)
    owners, drains = {}, members[which % count]
    rounds(members, everything, owners)
    before = dict(owners)
    drained = [member.drained(member == drains) for member in members]
    owners = {key: owner for key, owner in owners.items() if owner != drains}
    rounds(drained, everything, owners)
    assert {key: owner for key, owner in before.items() if owner != drains}.items() <= owners.items()
    moved = dict(owners)
    rounds(members, everything, owners)
    assert {owners[key] for key in owners if owners[key] != moved[key]} == {drains}
    assert sum(owner == drains for owner in owners.values()) == sum(owner == drains for owner in before.values())


def test_a_node_counts_as_what_it_says_now_and_not_as_what_the_engine_has_of_it():
    member, other = nodes(2)
    assert serving(member.drained(True), (member, other)).keys() == {"n1"}
    assert serving(member, (member.drained(True), other)).keys() == {"n0", "n1"}
    assert serving(member, (member.unanswered(True), other)).keys() == {"n0", "n1"}
