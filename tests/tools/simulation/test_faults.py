"""The faults of a simulated day: chance, plans and the built-in days."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.tools.cli.commands import command
from leadsman.tools.simulation.scenario import (
    BROKER,
    DAY,
    FLAKY,
    OUTAGES,
    QUIET_DAY,
    SCENARIOS,
    Chance,
    FaultPlan,
    PlannedFault,
    chance,
    merge_spans,
    plan_of,
)

SPANS = st.lists(
    st.tuples(st.integers(0, 1000), st.integers(1, 100)).map(lambda pair: (float(pair[0]), float(sum(pair)))),
    max_size=20,
)
SEEDS = st.integers(-(2**70), 2**70)
NAMES = st.lists(st.text("abcäß_", min_size=1, max_size=5), unique=True, max_size=6)


@given(st.lists(st.integers() | st.text(), min_size=1))
def test_chance_is_a_number_from_zero_to_one_that_depends_on_nothing_but_what_it_is_about(about):
    assert 0 <= chance(*about) < 1
    assert chance(*about) == chance(*about)


def test_chance_is_the_same_on_every_machine():
    assert [round(chance(1, "flaky", name), 6) for name in ("a", "b")] == [0.140252, 0.032189]


def test_chance_is_spread_evenly():
    drawn = [chance(7, number) for number in range(2000)]

    assert all(160 < sum(low <= each * 10 < low + 1 for each in drawn) < 240 for low in range(10))


@given(SEEDS, st.text(), st.integers())
def test_the_luck_of_a_device_is_the_chance_of_the_moment(seed, device, moment):
    assert Chance(seed, device).at(moment) == chance(seed, device, moment)


@given(SPANS)
def test_merged_spans_cover_the_same_time_and_do_not_touch(spans):
    found = merge_spans(spans)

    assert all(before[1] < after[0] for before, after in itertools.pairwise(found))
    for at in range(1101):
        assert any(begin <= at < end for begin, end in found) == any(begin <= at < end for begin, end in spans)


@given(SEEDS, NAMES, NAMES, st.floats(60, 10 * DAY), st.sampled_from(list(SCENARIOS.values())))
def test_faults_lie_within_the_day_and_are_those_of_known_wires(seed, adapters, devices, length, scenario):
    plan = plan_of(scenario, adapters, devices, length, seed)

    assert all(0 <= fault.begin <= fault.end <= length for fault in plan.faults)
    assert {fault.wire for fault in plan.faults} <= {*adapters, *devices, BROKER}
    assert all(0 <= weakness.failing <= scenario.failing[1] for _, weakness in plan.weaknesses)
    assert all(0 < step.at < length for step in plan.steps)


@given(SEEDS, NAMES)
def test_a_device_more_changes_nothing_for_the_others(seed, devices):
    before = plan_of(FLAKY, ["radio"], devices, DAY, seed)

    after = plan_of(FLAKY, ["radio"], [*devices, "another one"], DAY, seed)

    assert [fault for fault in after.faults if fault.wire != "another one"] == list(before.faults)
    assert after.weaknesses[:-1] == before.weaknesses


def test_another_seed_is_another_day():
    days = {plan_of(OUTAGES, ["radio"], ["a"], DAY, seed).faults for seed in range(20)}

    assert len(days) == 20


def test_the_days_differ_as_their_names_say():
    away = {}
    for scenario in (QUIET_DAY, FLAKY, OUTAGES):
        plans = [plan_of(scenario, ["radio"], ["a", "b"], DAY, seed) for seed in range(30)]
        away[scenario.name] = sum(fault.end - fault.begin for plan in plans for fault in plan.faults) / 30

    assert away["quiet"] < 200 < away["flaky"] < 3 * 3600 < away["outages"]


def test_the_command_line_knows_all_days():
    (day,) = (each for each in command("simulate").arguments if each.flag == "--day")

    assert day.options["choices"] == tuple(SCENARIOS)
    assert [name for name in SCENARIOS if name not in day.help] == []


@pytest.mark.parametrize(("wires", "count"), [(("a",), 2), (("a", "b"), 3), (("c",), 0)])
def test_a_plan_finds_the_faults_of_a_wire_in_order(wires, count):
    plan = FaultPlan((PlannedFault("a", 9.0, 10.0), PlannedFault("b", 5.0, 6.0), PlannedFault("a", 1.0, 2.0)))

    found = plan.of(wires)

    assert len(found) == count
    assert list(found) == sorted(found, key=lambda fault: fault.begin)
