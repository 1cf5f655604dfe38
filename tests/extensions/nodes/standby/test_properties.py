"""Two or three nodes and a broker through random faults, in virtual time."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.extensions.nodes.standby.model import ENDS_AFTER, FAULTS, TICK, TTL, World, apply, lease

from leadsman.extensions.nodes.standby.machine import MAX_WAIT_SECONDS, MAX_WAIT_TTLS
from leadsman.extensions.nodes.standby.renewal import MAX_TOKEN, MAX_TTL_SECONDS
from leadsman_rigs.examples import examples

schedules = st.lists(
    st.tuples(st.sampled_from(FAULTS), st.integers(0, 2), st.sampled_from([0.5, 1.0, 2.5, 5.0, 7.0, 12.0, 20.0])),
    max_size=10,
)
TAKEOVER = 1.5 * TTL + 2 * TICK


def run(world, schedule):
    world.run(20)
    for fault, number, seconds in schedule:
        apply(world, fault, number)
        world.run(seconds)


worlds = st.builds(
    World,
    nodes=st.integers(2, 3),
    codes=st.booleans(),
    expires=st.booleans(),
    timers_first=st.booleans(),
    offsets=st.tuples(*[st.floats(-1e6, 1e6)] * 3),
)


@settings(max_examples=examples(100), deadline=None)
@given(worlds, schedules)
def test_two_nodes_never_act_at_the_same_time(world, schedule):
    run(world, schedule)

    assert world.overlap == 0.0


@settings(max_examples=examples(40), deadline=None)
@given(worlds, schedules)
def test_the_tokens_of_accepted_readings_only_grow_while_somebody_remembers_them(world, schedule):
    kept = [each for each in schedule if each[0] not in ("broker empty", "kill", "end")]
    run(world, kept)

    tokens = [token for _, _, token in world.broker.accepted]
    assert tokens == sorted(tokens)


@settings(max_examples=examples(40), deadline=None)
@given(worlds, schedules)
def test_once_all_is_well_exactly_one_node_acts_and_the_session_stays(world, schedule):
    run(world, schedule)
    world.fix()
    world.run(4 * TTL)
    before = len(world.sessions)

    world.run(8 * TTL)

    assert len(world.acting) == 1
    assert world.sessions[before:] == [], "no ping-pong"


@pytest.mark.parametrize("codes", [True, False])
@pytest.mark.parametrize("fault", ["kill", "pause", "partition"])
@settings(max_examples=examples(10), deadline=None)
@given(after=st.floats(0, 30), expires=st.booleans())
def test_a_node_that_is_gone_is_replaced_within_one_and_a_half_ttl(codes, fault, after, expires):
    world = World(codes=codes, expires=expires)
    world.run(20 + after)
    owner = world.acting[0]

    apply(world, fault, owner.number)
    world.run(TAKEOVER)

    assert [node for node in world.acting if node is not owner]


@settings(max_examples=examples(20), deadline=None)
@given(worlds)
def test_a_node_that_ends_is_replaced_at_once(world):
    world.run(20)

    world.acting[0].end()
    world.run(3 * TICK)

    assert len(world.acting) == 1


forged = st.builds(
    lease,
    st.sampled_from(["evil", "n0", "z" * 200]),
    st.one_of(st.integers(1, MAX_TOKEN), st.sampled_from([1, MAX_TOKEN - 1, MAX_TOKEN])),
    st.one_of(st.floats(0.1, MAX_TTL_SECONDS), st.just(MAX_TTL_SECONDS)),
    st.floats(-MAX_TOKEN, MAX_TOKEN),
)


@settings(max_examples=examples(20), deadline=None)
@given(worlds, forged)
@example(World(), lease("evil", MAX_TOKEN))
@example(World(), lease("evil", 7, MAX_TTL_SECONDS))
def test_a_lease_that_anybody_else_wrote_stops_the_nodes_for_a_minute_at_the_most(world, written):
    world.run(20)

    world.broker.set_lease(world, written)
    world.run(max(MAX_WAIT_SECONDS, MAX_WAIT_TTLS * TTL) + 2 * TTL)

    assert len(world.acting) == 1
    assert world.overlap == 0


def test_a_frozen_node_publishes_and_polls_nothing_when_it_goes_on():
    world = World(timers_first=True)
    world.run(20)
    frozen = world.acting[0]
    frozen.paused = True
    world.run(2 * TTL)
    before = len(world.broker.accepted)

    frozen.paused = False
    world.run(10 * TTL)

    assert all(node is not frozen for _, node, _ in world.broker.accepted[before:])
    assert frozen not in world.acting


def test_a_node_that_stood_by_frozen_takes_nothing_over_when_it_goes_on():
    world = World(timers_first=True)
    world.run(20)
    owner, frozen = sorted(world.nodes, key=lambda node: not node.acts)
    frozen.paused = True
    world.run(3 * TTL)
    sessions = len(world.sessions)

    frozen.paused = False
    world.run(3 * TTL)

    assert world.acting == [owner]
    assert len(world.sessions) == sessions


def test_a_node_that_is_cut_off_stops_within_the_ttl_and_stands_by_again():
    world = World()
    world.run(20)
    owner = world.acting[0]
    world.partition(owner)

    world.run(TTL + TICK)

    assert owner not in world.acting
    world.run(2 * TTL)
    world.heal(owner)
    world.run(5 * TTL)
    assert [node.number for node in world.acting] == [1 - owner.number]


def test_after_a_long_outage_of_the_broker_the_node_whose_lease_is_left_goes_on_at_once():
    world = World(expires=False)
    world.run(20)
    owner = world.acting[0]
    world.restart_broker(forget=False)
    world.run(3 * TTL)

    world.broker_back()
    world.run(ENDS_AFTER + 3 * TICK)

    assert world.acting == [owner]


@settings(max_examples=examples(30), deadline=None)
@given(worlds, st.sampled_from([0.5, 1.0]), schedules)
def test_messages_that_are_late_let_polls_overlap_by_no_more_than_that(world, delay, schedule):
    world.delay = delay
    run(world, schedule)

    handovers = len(world.sessions)
    assert world.overlap <= handovers * (delay + TICK)


@settings(max_examples=examples(40), deadline=None)
@given(worlds, schedules)
def test_of_nodes_that_drain_none_acts_and_of_the_others_one(world, schedule):
    run(world, schedule)
    world.fix()
    world.run(4 * TTL)
    draining, *others = world.nodes
    draining.drain()
    world.run(4 * TTL)
    assert draining not in world.acting
    assert len(world.acting) == 1

    for node in others:
        node.drain()
    world.run(6 * TTL)
    assert world.acting == [], "also if nobody is left"
    draining.drain(False)
    world.run(4 * TTL)

    assert world.acting == [draining]


@settings(max_examples=examples(20), deadline=None)
@given(worlds)
def test_an_owner_that_drains_is_replaced_at_once_and_takes_nothing_back_when_that_is_undone(world):
    world.run(20)
    owner = world.acting[0]

    owner.drain()
    world.run(ENDS_AFTER + 3 * TICK)
    (successor,) = world.acting
    assert successor is not owner
    owner.drain(False)
    world.run(4 * TTL)

    assert world.acting == [successor]


@settings(max_examples=examples(20), deadline=None)
@given(worlds)
def test_a_drain_that_is_undone_while_the_app_stops_leaves_one_node_that_acts(world):
    world.run(20)

    world.acting[0].drain()
    world.acting[0].drain(False)
    world.run(4 * TTL)

    assert len(world.acting) == 1
