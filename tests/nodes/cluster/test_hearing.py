"""Gateways that hear the same sensors: one publishes each. Which one follows the signal, and not the noise."""

import math
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.nodes.cluster.gateways import Gateway, House, Sensor, Silence

from leadsman.nodes.cluster.hearing import (
    BETTER,
    IN_A_ROW,
    STAY,
    UNHEARD,
    Hearing,
    Hearings,
    Other,
    gives,
    hear,
    is_heard,
    key_of,
    merge,
    takes_at,
)
from leadsman.nodes.cluster.placement import pool_of
from leadsman.nodes.lease.lease import Lease, Member, Terms, check_keys
from leadsman.nodes.lease.store import ClusterSnapshot
from leadsman_rigs.examples import examples
from leadsman_rigs.memory_engine import EngineAway, Partition, Pause

TTL = 9.0
TERMS = Terms("house", ttl=TTL)
INTERVAL = TTL / 3
QUIET = 4 * TTL
"""Seconds after the last fault."""
A, B, C = Gateway("a"), Gateway("b"), Gateway("c")


def steady(**levels):
    return lambda node, now: levels.get(node)


def step(at, before, after):
    return lambda node, now: (before if now < at else after).get(node)


def house(level, *, period=1.0, noise=0.0, faults=(), seed=0):
    return House([Sensor("attic", period, level, noise)], TERMS, faults, seed)


NODES = st.sampled_from(["a", "b", "c"])
TIMES, LENGTHS = st.floats(0.0, 80.0), st.floats(0.1, 3 * TTL)


@st.composite
def faults(draw):
    start, node = draw(TIMES), draw(NODES)
    end = start + draw(LENGTHS)
    kinds = [Partition(node, start, end), Partition(node, start, end, answers_only=True), Pause(node, start, end)]
    return draw(st.sampled_from([*kinds, EngineAway(start, end), Silence(node, start, end)]))


@st.composite
def lives(draw):
    """A gateway that runs for a while, ends in some way, and comes back."""
    node, end = draw(NODES), draw(TIMES)
    return [Gateway(node, 0.0, end, killed=draw(st.booleans())), Gateway(node, end + draw(st.floats(0.0, TTL)))]


@st.composite
def sensors(draw):
    """A sensor that is carried about. In the end each gateway hears it."""
    names = st.sampled_from([0.3, 1.0, 7.0])
    places = draw(st.lists(st.tuples(TIMES, NODES, st.one_of(st.none(), st.floats(-95, -40))), max_size=8))
    last = {node: draw(st.floats(-95, -40)) for node in "abc"}

    def level(node, now):
        if now >= 80.0:
            return last[node]
        heard = [signal for at, who, signal in sorted(places, key=lambda place: place[0]) if who == node and at <= now]
        return heard[-1] if heard else -60.0

    return Sensor(draw(st.sampled_from(["attic", "cellar"])), draw(names), level, draw(st.floats(0.0, 5.0)))


@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(sensors(), min_size=1, max_size=2, unique_by=lambda sensor: sensor.name),
    st.lists(faults(), max_size=5),
    st.lists(lives(), max_size=2, unique_by=lambda life: life[0].node),
    st.integers(0, 99),
)
def test_a_sensor_never_has_two_publishers_and_has_one_when_the_faults_are_over(sensors, faults, lives, seed):
    over = max([80.0, *(fault.end for fault in faults), *(again.start for _, again in lives)])
    always = [Gateway(node) for node in "abc" if node not in {life[0].node for life in lives}]
    story = House(sensors, TERMS, faults, seed).run([*always, *(each for life in lives for each in life)], over + QUIET)

    assert list(story.token_falls()) == []
    assert story.twice() == []
    for sensor in sensors:
        assert story.gap(sensor.name, start=over) <= 1.5 * TTL + 2 * sensor.period
        last = [each.at for each in story.published if each.device == sensor.name][-1]
        assert last >= over + QUIET - 2 * sensor.period


@pytest.mark.parametrize("period", [0.3, 2.0, 10.0])
def test_noise_of_5_db_does_not_move_a_sensor(period):
    story = house(steady(a=-60.0, b=-60.0), period=period, noise=5.0, seed=7).run([A, Gateway("b", 2.0)], 3600.0)
    assert story.owners() == ["a"]
    assert story.gap() <= 2 * period


@pytest.mark.parametrize("difference", [3.0, 5.5, 6.0, 8.0])
def test_with_noise_of_5_db_a_sensor_moves_once_to_the_better_gateway_and_not_back(difference):
    level = steady(a=-60.0, b=-60.0 + difference)
    story = house(level, noise=5.0, seed=3).run([A, Gateway("b", 2.0)], 3600.0)
    assert story.owners() in (["a"], ["a", "b"])


@pytest.mark.parametrize(("better", "intervals"), [(20.0, 5), (12.0, 5), (8.0, 6)])
def test_a_gateway_that_hears_a_sensor_better_has_it_after_three_reports(better, intervals):
    level = step(100.0, {"a": -60.0, "b": -70.0}, {"a": -60.0, "b": -60.0 + better})
    story = house(level).run([A, Gateway("b", 2.0)], 200.0)
    assert story.owners() == ["a", "b"]
    first = next(each.at for each in story.published if each.node == "b")
    assert IN_A_ROW * INTERVAL - INTERVAL <= first - 100.0 <= intervals * INTERVAL
    assert story.gap() <= 2.0


def test_a_gateway_that_hears_a_sensor_less_than_6_db_better_does_not_get_it():
    assert house(steady(a=-60.0, b=-54.5)).run([A, Gateway("b", 2.0)], 600.0).owners() == ["a"]


def test_an_owner_that_hears_a_sensor_no_more_gives_it_to_one_that_does():
    level = step(100.0, {"a": -50.0, "b": -90.0}, {"b": -90.0})
    story = house(level).run([A, Gateway("b", 2.0)], 200.0)
    assert story.owners() == ["a", "b"]
    assert story.gap() <= 6 * INTERVAL


@pytest.mark.parametrize(("killed", "most"), [(True, 1.5 * TTL), (False, 1.1)])
def test_another_gateway_takes_over_when_the_owner_ends(killed, most):
    story = house(steady(a=-50.0, b=-80.0, c=-70.0)).run(
        [Gateway("a", 0.0, 50.0, killed), Gateway("b", 2.0), Gateway("c", 2.0)], 100.0
    )
    assert story.owners() == ["a", "c"], "the one that hears it best"
    assert story.gap() <= most + 1.0


def test_the_second_best_gateway_waits_no_longer_than_a_third_of_a_ttl_for_the_best():
    """Which is cut off from the engine, and its membership is not over yet."""
    story = house(steady(a=-60.0, b=-80.0, c=-56.0), faults=[Partition("c", 49.0, 90.0)])
    story.run([Gateway("a", 0.0, 50.0, killed=False), Gateway("b", 2.0), Gateway("c", 2.0)], 70.0)
    assert story.owners() == ["a", "b"]
    assert INTERVAL <= story.gap() <= INTERVAL + 2.0


def test_a_sensor_that_is_carried_back_and_forth_moves_once_in_two_ttl_at_most():
    def level(node, now):
        return -40.0 if (node == "a") == (now // 12 % 2 == 0) else -90.0

    story = house(level, period=0.2).run([A, B], 600.0)
    assert len(story.owners()) <= 600.0 / (STAY * TTL) + 1


def test_gateways_that_do_not_hear_of_each_other_publish_one_stream():
    story = house(steady(a=-90.0, b=-40.0), faults=[Silence("a", 0.0, 1e9)]).run([A, Gateway("b", 2.0)], 100.0)
    assert story.owners() == ["a"]
    assert story.twice() == []


def test_keys_are_no_keys_of_shards_and_engines_take_them():
    key = key_of("a/b ü \ud800")
    assert check_keys([key]) == [key]
    assert is_heard(key)
    assert not is_heard(f"{pool_of(['ble'])}.17")
    assert not is_heard("any.17")


def test_reports_that_come_at_once_are_one():
    """As after a pause of the process, when its own advertisements are read later than the reports of the others."""
    known = Hearing(-60.0, 100.0, {"b": Other(-70.0, 99.0)}, owned_since=0.0)
    for _ in range(5):
        known = merge(known, "b", -40.0, 140.0, INTERVAL)
    assert known.others["b"].better == 1
    assert not gives(known, {"b"}, 140.0, TTL)


@given(st.lists(st.floats(-127, 20), min_size=1, max_size=50))
def test_an_average_stays_within_what_was_heard(signals):
    known = None
    for number, signal in enumerate(signals):
        known = hear(known, signal, float(number))
    assert min(signals) - 1e-9 <= known.signal <= max(signals) + 1e-9
    assert known.at == len(signals) - 1


@given(st.lists(st.tuples(st.floats(UNHEARD, 0), st.floats(UNHEARD, 0)), min_size=1, max_size=20))
def test_an_owner_gives_only_after_three_reports_in_a_row_that_are_better(pairs):
    known, run = hear(None, pairs[0][0], 0.0)._replace(owned_since=-1e6), 0
    for number, (own, other) in enumerate(pairs, 1):
        now = number * INTERVAL
        known = merge(known._replace(signal=own, at=now - 0.1), "b", other, now, INTERVAL)
        run = run + 1 if other - own >= BETTER else 0
        assert gives(known, {"a", "b"}, now, TTL) == (run >= IN_A_ROW)
        assert not gives(known, {"a"}, now, TTL), "it is no member"
        assert not gives(known._replace(owned_since=None), {"a", "b"}, now, TTL)
        assert not gives(known, {"a", "b"}, now + TTL + 1.0, TTL), "it says nothing any more"


def test_in_20_000_reports_noise_of_5_db_is_never_taken_for_a_better_gateway():
    """With one advertisement for each report, as of a sensor that sends seldom. Without an average it happens."""
    dice = random.Random(1)
    mine = yours = hear(None, -60.0, 0.0)
    for number in range(1, 20_001):
        now = number * INTERVAL
        mine, yours = (hear(each, -60.0 + dice.uniform(-5.0, 5.0), now - 0.1) for each in (mine, yours))
        mine = merge(mine, "b", yours.signal, now, INTERVAL)._replace(owned_since=0.0)
        assert not gives(mine, {"a", "b"}, now, TTL)


@given(st.dictionaries(NODES, st.tuples(st.floats(-100, -40), st.floats(0, 3 * TTL)), max_size=3), st.floats(-100, -40))
def test_of_those_that_hear_a_free_device_exactly_one_takes_it_at_once(others, signal):
    now = 100.0
    levels = {node: said for node, (said, age) in others.items() if age <= TTL and node != "a"} | {"a": signal}
    known = Hearing(signal, now, {node: Other(said, now - age) for node, (said, age) in others.items()}, None, now)
    best = max(levels, key=lambda node: (levels[node], node))
    assert takes_at(known, "a", {"a", "b", "c"}, now, TTL) == (now if best == "a" else now + INTERVAL)
    assert takes_at(known._replace(at=now - INTERVAL - 0.1), "a", {"a"}, now, TTL) is None


class TestHearings:
    def setup_method(self):
        self.member = Member("a", "1")
        self.hearings = Hearings(self.member, TTL)

    def snapshot(self, *leases):
        return ClusterSnapshot({lease.key: lease for lease in leases}, (self.member, Member("b", "1")))

    def plan(self, now, *leases, held=(), nodes=("a", "b")):
        return self.hearings.plan(self.snapshot(*leases), nodes, held, now)

    def test_a_device_is_reported_when_it_was_heard(self):
        self.hearings.hear("attic", -60.04, 0.0)
        assert self.hearings.report() == {"attic": -60.0}
        assert self.hearings.report() == {}

    def test_what_others_hear_is_kept_only_for_what_this_node_hears_and_from_members(self):
        self.hearings.hear("attic", -60.0, 0.0)
        self.plan(0.0)
        self.hearings.on_report("b", {"attic": -50.0, "cellar": -50.0}, 1.0)
        self.hearings.on_report("nobody", {"attic": -50.0}, 1.0)
        self.hearings.on_report("a", {"attic": -50.0}, 1.0)
        assert set(self.hearings.of("attic").others) == {"b"}
        assert self.hearings.of("cellar") is None
        self.plan(2.0, nodes=["a"])
        assert self.hearings.of("attic").others == {}

    def test_a_device_that_is_forgotten_is_left_to_those_that_hear_it(self):
        self.hearings.hear("attic", -60.0, 0.0)
        self.plan(0.0)
        self.hearings.on_report("b", {"attic": -50.0}, 1.0)
        assert self.hearings.forget("attic", 2.0)

    def test_a_device_that_is_forgotten_is_given_back(self):
        self.hearings.hear("attic", -60.0, 0.0)
        assert self.plan(0.0).acquire == (key_of("attic"),)
        assert not self.hearings.forget("attic", 1.0)
        assert not self.hearings.forget("attic", 1.0)
        assert self.hearings.of("attic") is None
        assert self.plan(1.0, held=[key_of("attic"), "any.3"]) == ((key_of("attic"),), ())
        assert self.hearings.report() == {}

    def test_a_device_of_another_node_is_left_to_it(self):
        self.hearings.hear("attic", -60.0, 0.0)
        plan = self.plan(0.0, Lease(key_of("attic"), "b/1", 1, TTL))
        assert plan == ((), ())
        assert self.hearings.of("attic").elsewhere
        assert self.hearings.again_at == math.inf

    def test_a_node_that_takes_no_part_gives_all_back_and_takes_nothing(self):
        self.hearings.hear("attic", -60.0, 0.0)
        self.hearings.hear("cellar", -60.0, 0.0)
        assert self.plan(0.0, held=[key_of("attic")], nodes=["b"]) == ((key_of("attic"),), ())

    def test_the_plan_is_asked_for_again_when_a_better_node_had_time_to_take_a_device(self):
        self.hearings.hear("attic", -60.0, 0.0)
        self.plan(0.0, Lease(key_of("attic"), "b/1", 1, TTL))
        self.hearings.on_report("b", {"attic": -50.0}, 1.0)
        self.hearings.hear("attic", -60.0, 2.0)
        assert self.plan(2.0) == ((), ())
        assert self.hearings.again_at == 2.0 + INTERVAL
        self.hearings.hear("attic", -60.0, 4.9)
        assert self.plan(2.0 + INTERVAL) == ((), (key_of("attic"),))
        assert self.hearings.again_at == math.inf

    def test_a_device_that_nobody_hears_any_more_is_kept(self):
        self.hearings.hear("attic", -60.0, 0.0)
        held = [key_of("attic")]
        assert all(self.plan(now, held=held) == ((), ()) for now in (1.0, 10.0, 1e6))

    @pytest.mark.parametrize("signal", [-1e9, 1e9])
    def test_a_signal_that_cannot_be_does_no_harm(self, signal):
        self.hearings.hear("attic", signal, 0.0)
        assert -127 <= self.hearings.report()["attic"] <= 20
