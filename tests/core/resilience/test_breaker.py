import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman import CircuitBreaker, ExponentialBackoff
from leadsman.core.resilience.breaker import (
    CLOSED,
    Closed,
    CycleOutcome,
    Disabled,
    HalfOpen,
    Isolated,
    Open,
    Permit,
    admit,
    close,
    disable,
    isolate,
    settle,
)
from leadsman.errors import InvalidType, InvalidValue

RULE = CircuitBreaker(threshold=2)
LEASE = 60.0


def run(rule, circuit, outcomes, now=0.0):
    """Poll once per outcome; a refused poll consumes none."""
    for outcome in outcomes:
        permit = None
        while permit is None:
            circuit, permit = admit(rule, circuit, now, LEASE)
        circuit = settle(rule, circuit, permit, outcome, now)
    return circuit


def opened(rule=RULE):
    return run(rule, CLOSED, [CycleOutcome.FAILED] * rule.threshold)


class TestClosed:
    def test_admits_everybody(self):
        assert admit(RULE, CLOSED, 0, LEASE) == (CLOSED, Permit(0, 0, probe=False))

    def test_opens_after_the_threshold_of_failed_cycles_in_a_row(self):
        assert run(RULE, CLOSED, [CycleOutcome.FAILED]) == Closed(0, failures=1)
        assert isinstance(run(RULE, CLOSED, [CycleOutcome.FAILED] * 2), Open)

    def test_forgets_failures_at_a_success(self):
        circuit = run(RULE, CLOSED, [CycleOutcome.FAILED, CycleOutcome.SUCCEEDED, CycleOutcome.FAILED])

        assert circuit == Closed(0, failures=1)

    def test_an_abandoned_cycle_neither_counts_nor_forgives(self):
        circuit = run(RULE, CLOSED, [CycleOutcome.FAILED, CycleOutcome.NEUTRAL])

        assert circuit == Closed(0, failures=1)

    def test_a_success_without_failures_changes_nothing_at_all(self):
        assert run(RULE, CLOSED, [CycleOutcome.SUCCEEDED]) is CLOSED


class TestOpen:
    def test_refuses_exactly_one_poll_and_probes_at_the_next(self):
        circuit = opened()

        circuit, first = admit(RULE, circuit, 60, LEASE)
        circuit, second = admit(RULE, circuit, 120, LEASE)

        assert first is None
        assert second is not None
        assert second.probe

    def test_a_late_outcome_of_the_closed_state_counts_for_nothing(self):
        _, permit = admit(RULE, CLOSED, 0, LEASE)
        circuit = opened()

        assert settle(RULE, circuit, permit, CycleOutcome.SUCCEEDED, 1) is circuit
        assert settle(RULE, circuit, permit, CycleOutcome.FAILED, 1) is circuit


class TestHalfOpen:
    def half_open(self, rule=RULE, now=0.0):
        circuit, _ = admit(rule, opened(rule), now, LEASE)
        return admit(rule, circuit, now, LEASE)

    def test_admits_one_probe_of_five(self):
        circuit, permit = self.half_open()
        others = []
        for _ in range(4):
            circuit, other = admit(RULE, circuit, 0, LEASE)
            others.append(other)

        assert permit is not None
        assert others == [None] * 4

    def test_closes_when_the_probe_succeeds(self):
        circuit, permit = self.half_open()

        circuit = settle(RULE, circuit, permit, CycleOutcome.SUCCEEDED, 1)

        assert isinstance(circuit, Closed)
        assert circuit.failures == 0

    def test_opens_again_when_the_probe_fails_and_counts_the_openings(self):
        circuit, permit = self.half_open()

        circuit = settle(RULE, circuit, permit, CycleOutcome.FAILED, 1)

        assert isinstance(circuit, Open)
        assert (circuit.opens, circuit.failures) == (2, 3)

    def test_an_abandoned_probe_gives_its_place_back(self):
        circuit, permit = self.half_open()

        circuit = settle(RULE, circuit, permit, CycleOutcome.NEUTRAL, 1)

        assert isinstance(circuit, HalfOpen)
        assert admit(RULE, circuit, 1, LEASE)[1] is not None

    def test_a_probe_that_never_reports_gives_its_place_back_when_its_lease_ends(self):
        circuit, permit = self.half_open(now=0)

        still_held = admit(RULE, circuit, LEASE - 0.1, LEASE)[1]
        circuit, replacement = admit(RULE, circuit, LEASE + 0.1, LEASE)

        assert still_held is None
        assert replacement is not None
        assert settle(RULE, circuit, permit, CycleOutcome.SUCCEEDED, LEASE + 1) is circuit

    def test_a_permit_counts_once(self):
        circuit, permit = self.half_open(RULE)

        once = settle(RULE, circuit, permit, CycleOutcome.NEUTRAL, 1)

        assert settle(RULE, once, permit, CycleOutcome.SUCCEEDED, 1) is once

    def test_a_late_probe_of_an_earlier_half_open_counts_for_nothing(self):
        circuit, permit = self.half_open()
        circuit = settle(RULE, circuit, permit, CycleOutcome.FAILED, 1)
        circuit, _ = admit(RULE, circuit, 2, LEASE)
        circuit, _ = admit(RULE, circuit, 3, LEASE)

        assert settle(RULE, circuit, permit, CycleOutcome.SUCCEEDED, 4) is circuit


rules = st.builds(CircuitBreaker, st.integers(1, 4))
steps = st.lists(
    st.tuples(
        st.sampled_from(["admit", "settle"]), st.sampled_from(CycleOutcome), st.integers(0, 9), st.floats(0, 100)
    ),
    max_size=60,
)


@given(rules, steps)
def test_no_history_breaks_the_machine(rule, history):
    circuit, permits, now = CLOSED, [], 0.0
    for action, outcome, which, passed in history:
        now += passed
        generation = circuit.generation
        if action == "admit":
            circuit, permit = admit(rule, circuit, now, LEASE)
            permits += [permit] if permit else []
        elif permits:
            circuit = settle(rule, circuit, permits[which % len(permits)], outcome, now)
        assert circuit.generation >= generation
        if isinstance(circuit, HalfOpen):
            assert len([held for held in circuit.out if held[1] > now]) <= 1
        if isinstance(circuit, Closed):
            assert circuit.failures < rule.threshold


@given(rules, steps)
def test_once_the_device_answers_the_circuit_closes(rule, history):
    circuit, now = CLOSED, 0.0
    for _, outcome, _, passed in history:
        now += passed
        circuit, permit = admit(rule, circuit, now, LEASE)
        if permit:
            circuit = settle(rule, circuit, permit, outcome, now)

    for _ in range(3):
        now += LEASE + 1
        circuit, permit = admit(rule, circuit, now, LEASE)
        if permit:
            circuit = settle(rule, circuit, permit, CycleOutcome.SUCCEEDED, now)

    assert isinstance(circuit, Closed)
    assert circuit.failures == 0


@pytest.mark.parametrize("words", [{"threshold": 0}, {"threshold": -1}])
def test_an_impossible_breaker_is_refused_at_construction(words):
    with pytest.raises(InvalidValue, match="1 or more"):
        CircuitBreaker(**words)


@pytest.mark.parametrize(
    "words", [{"threshold": True}, {"threshold": 2.0}, {"threshold": "5"}, {"ignore": asyncio.CancelledError}]
)
def test_a_breaker_of_the_wrong_type_is_refused_at_construction(words):
    with pytest.raises(InvalidType):
        CircuitBreaker(**words)


class TestRecovery:
    def refusals(self, rule, polls, circuit=None):
        """Which polls of an open circuit are turned away; every probe fails."""
        circuit, said = circuit or opened(rule), []
        for now in polls:
            circuit, permit = admit(rule, circuit, now, LEASE)
            said.append(permit is None)
            if permit is not None:
                circuit = settle(rule, circuit, permit, CycleOutcome.FAILED, now)
        return said

    def test_a_duration_ends_at_the_first_poll_at_or_after_it(self):
        rule = CircuitBreaker(2, recovery="90s")

        assert self.refusals(rule, [30, 60, 89.9, 90, 120, 179.9, 180]) == [True, True, True, False, True, True, False]

    def test_zero_skips_no_poll_but_every_one_is_a_probe(self):
        rule = CircuitBreaker(2, recovery=0)

        assert self.refusals(rule, [30, 60, 90]) == [False] * 3
        assert admit(rule, opened(rule), 30, LEASE)[1].probe

    def test_a_strategy_lets_it_rest_longer_after_each_opening(self):
        rule = CircuitBreaker(2, recovery=ExponentialBackoff("60s", "2m"))

        waits = [at for at in range(0, 600, 30) if at]
        open_at = [at for at, refused in zip(waits, self.refusals(rule, waits), strict=True) if not refused]

        assert open_at == [60, 180, 300, 420, 540]

    def test_a_strategy_that_breaks_is_replaced_by_the_default(self):
        class Broken:
            def delay(self, attempt):
                return float("nan")

        assert CircuitBreaker(recovery=Broken()).open_for(3) == 8


class TestByHand:
    def test_isolated_admits_nobody_for_ever(self):
        circuit = isolate(CLOSED, 5.0)

        assert circuit == Isolated(1, 0, 5.0)
        assert admit(RULE, circuit, 1e9, LEASE) == (circuit, None)

    def test_disabled_admits_everybody_and_counts(self):
        circuit = run(RULE, disable(opened()), [CycleOutcome.FAILED] * 10)

        assert isinstance(circuit, Disabled)
        assert circuit.failures == 12
        assert run(RULE, circuit, [CycleOutcome.SUCCEEDED]).failures == 0

    def test_closed_by_hand_counts_anew(self):
        assert close(isolate(opened(), 5.0)) == Closed(generation=3)

    def test_an_outcome_from_before_it_was_set_by_hand_counts_for_nothing(self):
        circuit, permit = admit(RULE, CLOSED, 0, LEASE)
        by_hand = disable(circuit)

        assert settle(RULE, by_hand, permit, CycleOutcome.FAILED, 1) is by_hand


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ({"recovery": "5"}, "units"),
        ({"recovery": -1}, "negative"),
        ({"recovery": True}, "seconds"),
        ({"recovery": ExponentialBackoff}, "brackets"),
        ({"recovery": object()}, "recovery is"),
        ({"shared": ""}, "name"),
        ({"shared": 5}, "name"),
    ],
)
def test_a_wrong_word_of_a_breaker_is_refused(words, hint):
    with pytest.raises((InvalidType, InvalidValue), match=hint):
        CircuitBreaker(5, **words)
