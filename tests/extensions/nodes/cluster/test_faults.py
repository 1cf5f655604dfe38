"""Clusters whose nodes are killed, stopped, cut off and set to other times: no device has two nodes, and none is left
alone for long."""

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from leadsman.extensions.nodes.lease.lease import Terms
from leadsman_rigs.examples import examples
from leadsman_rigs.memory_engine import ClockStep, EngineAway, Partition, Pause
from leadsman_rigs.virtual_cluster import Drain, History, Run, Sent, Work, simulate

TTL = 8.0
TERMS = Terms("house", ttl=TTL, shards=12)
DEVICES = {f"meter-{number}": () for number in range(60)}
QUIET = 3 * TTL
"""Seconds after the last fault."""
SETTLED = 9 * TTL
"""Seconds after the last fault, when the shards lie evenly again, those included that were left over."""
NODES = st.sampled_from(["a", "b", "c"])
TIMES = st.floats(0.0, 100.0)
LENGTHS = st.floats(0.1, 3 * TTL)


@st.composite
def faults(draw):
    start, node = draw(TIMES), draw(NODES)
    end = start + draw(LENGTHS)
    return draw(
        st.sampled_from(
            [
                Partition(node, start, end),
                Partition(node, start, end, answers_only=True),
                Pause(node, start, end),
                EngineAway(start, end),
                ClockStep(start, draw(st.sampled_from([-3600.0, 3600.0, 86400.0])), node),
            ]
        )
    )


@st.composite
def runs(draw):
    """A node that runs for a while, ends in some way, and comes back."""
    node, end = draw(NODES), draw(TIMES)
    again = end + draw(st.floats(0.0, TTL))
    return [Run(node, 0.0, end, killed=draw(st.booleans())), Run(node, again)]


@pytest.mark.slow
@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(faults(), max_size=6), st.lists(runs(), max_size=3, unique_by=lambda run: run[0].node), st.booleans())
@example([Partition("a", 30.0, 54.0, answers_only=True), Partition("b", 40.0, 64.0, answers_only=True)], [], True)
@example([Partition(node, 30.0, 54.0, answers_only=True) for node in "abc"], [], False)
def test_no_device_ever_has_two_nodes_no_fenced_one_publishes_and_all_have_one_when_the_faults_are_over(
    faults, runs, by_revision
):
    ends = [fault.at if isinstance(fault, ClockStep) else fault.end for fault in faults]
    seconds = max([*ends, *(again.start for _, again in runs), 0.0]) + SETTLED
    always = [Run(node, 0.0) for node in "abc" if node not in {run[0].node for run in runs}]
    everyone = [*always, *(part for run in runs for part in run)]
    history = simulate(DEVICES, everyone, TERMS, seconds, faults, beat=0.5, by_revision=by_revision)
    assert not history.overlaps()
    assert not history.token_falls()
    assert history.sent
    assert not history.sent_late()
    shards = history.at_work(seconds - 0.01)
    assert sum(len(keys) for keys in shards.values()) == TERMS.shards
    assert sorted(map(len, shards.values())) == [4, 4, 4]


def test_a_message_that_a_fenced_node_sends_is_known_by_its_token():
    works = (Work("any.1", "a", 1, 0.0, 10.0), Work("any.1", "b", 2, 12.0, 20.0), Work("any.2", "a", 3, 0.0, 20.0))
    sent = (Sent("any.1", "a", 1, 9.0), Sent("any.1", "b", 2, 13.0), Sent("any.2", "a", 3, 13.0))
    late = Sent("any.1", "a", 1, 13.0)
    assert History(works, 20.0, (*sent, late)).sent_late() == [late]


def gap(runs, faults=(), start=QUIET, **engine):
    history = simulate(DEVICES, runs, TERMS, 120.0, faults, **engine)
    assert not history.overlaps()
    assert not history.token_falls()
    assert len(history.gaps()) == TERMS.shards
    return max(history.gaps(start).values())


THREE = [Run("b", 0.0), Run("c", 0.0)]


def test_devices_of_a_node_that_is_killed_have_another_one_within_one_and_a_half_ttl():
    assert TTL / 2 < gap([*THREE, Run("a", 0.0, 50.0)]) <= 1.5 * TTL


def test_devices_of_a_node_that_is_told_to_end_have_another_one_at_once():
    assert gap([*THREE, Run("a", 0.0, 50.0, killed=False)]) < 0.1


def test_a_rolling_restart_leaves_no_device_alone():
    each = [
        part
        for number, node in enumerate("abc")
        for part in (Run(node, 0.0, 40.0 + 10 * number, killed=False), Run(node, 42.0 + 10 * number))
    ]
    assert gap(each) < 0.1


def test_a_node_that_comes_takes_its_part_without_a_gap():
    assert gap([*THREE, Run("a", 50.0)]) < 0.1


@pytest.mark.parametrize("seconds", [TTL / 2, 5 * TTL])
def test_owners_stop_in_time_while_the_engine_is_away_and_come_back_by_themselves(seconds):
    longest = gap([*THREE, Run("a", 0.0)], [EngineAway(50.0, 50.0 + seconds)])
    assert longest <= max(0.0, seconds - 0.5 * TTL) + 0.2 * TTL


@pytest.mark.parametrize("by_revision", [False, True])
@settings(max_examples=examples(10), deadline=None)
@given(start=st.floats(QUIET, QUIET + TTL), length=st.floats(0.1, 60.0))
@example(start=QUIET + 1.0, length=60.0)
def test_devices_of_a_node_whose_answers_alone_are_lost_have_another_one_within_half_a_ttl(start, length, by_revision):
    """Its requests arrive, so the engine would have it as an owner and as a member for as long as it asks."""
    lost = Partition("a", start, start + length, answers_only=True)
    assert gap([*THREE, Run("a", 0.0)], [lost], by_revision=by_revision) <= TTL / 2


@pytest.mark.parametrize("by_revision", [False, True])
def test_a_node_whose_answers_alone_were_lost_has_its_part_again_without_a_gap(by_revision):
    lost = Partition("a", 40.0, 80.0, answers_only=True)
    history = simulate(DEVICES, [*THREE, Run("a", 0.0)], TERMS, 120.0, [lost], by_revision=by_revision)
    assert "a" not in history.at_work(79.0)
    assert sorted(map(len, history.at_work(80.0 + TTL).values())) == [4, 4, 4]
    assert max(history.gaps(start=79.0).values()) < 0.1


def test_a_wall_clock_that_is_an_hour_off_changes_nothing():
    steps = [ClockStep(at, by, node) for node, at, by in [("a", 0.0, 3600.0), ("b", 50.0, -3600.0)]]
    assert gap([*THREE, Run("a", 0.0)], steps) == 0.0


def test_devices_that_no_node_can_poll_have_none_and_the_others_do():
    history = simulate({"a": ["ble"], "b": [], "c": ["lora"]}, [Run("n", 0.0, labels=frozenset(["ble"]))], TERMS, 20.0)
    assert len({work.key for work in history.works}) == 2


DRAINS = st.builds(lambda node, start, length: Drain(node, start, start + length), NODES, TIMES, LENGTHS)


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(faults(), max_size=5), st.lists(DRAINS, max_size=4), st.sets(NODES, max_size=3))
@example([Partition("a", 0.0, 8.0)], [Drain("b", 0.0, 9.0), Drain("c", 0.0, 9.0)], set())
def test_whatever_fails_while_nodes_drain_no_device_has_two_nodes_and_the_others_have_all_in_the_end(
    faults, drains, drained
):
    ends = [fault.at if isinstance(fault, ClockStep) else fault.end for fault in faults]
    last = max([*ends, *(drain.end for drain in drains), 0.0]) + 0.1
    everything = [*drains, *(Drain(node, last) for node in sorted(drained))]
    seconds = last + 2 * QUIET
    history = simulate(DEVICES, [Run(node, 0.0) for node in "abc"], TERMS, seconds, [*faults, *everything])
    assert not history.overlaps()
    assert not history.token_falls()
    shards = history.at_work(seconds - 0.01)
    left = {"a", "b", "c"} - drained
    assert shards.keys() == left, "also if nobody is left"
    assert sum(len(keys) for keys in shards.values()) == (TERMS.shards if left else 0)


def test_a_node_that_drains_leaves_no_device_alone_for_more_than_a_tenth_of_a_second():
    history = simulate(DEVICES, [Run(node, 0.0) for node in "abcd"], TERMS, 120.0, [Drain("b", 40.0, 80.0)])
    assert set(history.at_work(41.0)) == {"a", "c", "d"}
    assert set(history.at_work(119.0)) == {"a", "b", "c", "d"}
    assert max(history.gaps(start=3 * TTL).values()) < 0.1
