import json

import pytest
from tests.resilience.callers import Recorder

from leadsman import CircuitBreaker
from leadsman.resilience.breaker import CLOSED, Closed, CycleOutcome
from leadsman.resilience.circuit import PASS, CircuitGuard, SharedCircuit
from leadsman.resilience.failure import ignore_error

LEASE = 65.0


@pytest.fixture
def caller():
    return Recorder()


@pytest.fixture
def guard(environment, caller):
    return lambda rule=None, shared=None, name="d": CircuitGuard(name, rule, environment, shared, caller)


def cycle(guard, outcome):
    """One poll. Returns whether it was admitted."""
    permit = guard.admit(LEASE)
    if permit is not None:
        guard.settle(permit, outcome, ignore_error)
    return permit is not None


def failed(guard, times):
    return [cycle(guard, CycleOutcome.FAILED) for _ in range(times)]


def moves(events):
    return [(event.entity, event.state) for event in events if type(event).__name__ == "CircuitMoved"]


class TestAdmission:
    def test_a_circuit_that_never_moved_admits_with_the_same_permit(self, guard):
        one = guard(CircuitBreaker(2))

        assert one.admit(LEASE) is PASS

    def test_the_circuit_opens_after_its_threshold_skips_a_poll_and_probes(self, guard, events):
        one = guard(CircuitBreaker(2))

        assert failed(one, 4) == [True, True, False, True]
        assert moves(events) == [("d", "open"), ("d", "half_open"), ("d", "open")]

    def test_a_success_of_the_probe_closes_it(self, guard):
        one = guard(CircuitBreaker(1))
        failed(one, 2)

        assert cycle(one, CycleOutcome.SUCCEEDED)
        assert one.name == "closed"

    def test_nothing_is_admitted_before_the_end_of_a_deferral(self, guard, loop):
        one = guard(CircuitBreaker(2))
        one.deferred_until = 60.0

        assert one.admit(LEASE) is None
        loop.block(60)
        assert one.admit(LEASE) is PASS

    def test_a_handler_without_a_breaker_is_admitted_whatever_fails(self, guard, events):
        one = guard()

        assert all(failed(one, 100))
        assert one.state is CLOSED
        assert events == []


class TestRequestsOfAPerson:
    @pytest.mark.parametrize("rule", [None, CircuitBreaker(2)])
    def test_an_isolated_circuit_admits_nothing_and_the_caller_is_told(self, guard, caller, rule):
        one = guard(rule)

        one.isolate()

        assert one.isolated
        assert failed(one, 3) == [False] * 3
        assert caller.isolations == 1

    @pytest.mark.parametrize("rule", [None, CircuitBreaker(2)])
    def test_a_disabled_circuit_admits_everything_and_counts(self, guard, rule):
        one = guard(rule)

        one.disable()

        assert all(failed(one, 5))
        assert one.snapshot(1, 0).failures == 5

    def test_closing_ends_a_deferral(self, guard):
        one = guard(CircuitBreaker(2))
        one.deferred_until = 1e6
        one.isolate()

        one.close()

        assert cycle(one, CycleOutcome.SUCCEEDED)

    def test_an_outcome_from_before_the_isolation_changes_nothing(self, guard):
        one = guard(CircuitBreaker(1))
        permit = one.admit(LEASE)
        one.isolate()

        one.settle(permit, CycleOutcome.FAILED, ignore_error)

        assert one.isolated


class TestShared:
    def test_a_move_reaches_every_member(self, guard, events):
        shared = SharedCircuit(CircuitBreaker(1, shared="bus"))
        one, other = (guard(shared.rule, shared, name) for name in ("one", "other"))

        failed(one, 1)
        failed(other, 1)

        assert one.name == other.name == "open"
        assert moves(events) == [("one", "open"), ("other", "open")]

    def test_a_member_that_is_held_or_deferred_holds_up_no_round(self, guard):
        shared = SharedCircuit(CircuitBreaker(1, shared="bus"))
        one, held, deferred = (guard(shared.rule, shared) for _ in range(3))
        held.held, deferred.deferred_until = True, 1e6

        failed(one, 1)

        assert one.name == "open"

    def test_isolating_one_isolates_all(self, guard, caller):
        shared = SharedCircuit(CircuitBreaker(1, shared="bus"))
        one, other = (guard(shared.rule, shared) for _ in range(2))

        one.isolate()

        assert other.isolated
        assert caller.isolations == 2


class TestSnapshot:
    def test_an_open_circuit_says_since_when_and_how_many_polls_it_turns_away(self, guard, loop):
        one = guard(CircuitBreaker(2))
        loop.block(100)
        failed(one, 2)

        found = one.snapshot(1, 3)

        assert (found.circuit, found.failures, found.opened_at, found.open_until) == ("open", 2, 100, None)
        assert (found.opens, found.refusals, found.attempts, found.waits) == (1, 1, 1, 3)

    def test_a_timed_recovery_says_until_when(self, guard, loop):
        one = guard(CircuitBreaker(1, recovery="10m"))
        loop.block(100)
        failed(one, 1)

        assert one.snapshot(0, 0).open_until == 700

    def test_a_deferral_that_is_over_is_none(self, guard, loop):
        one = guard()
        one.deferred_until = 60.0

        assert one.snapshot(0, 0).deferred_until == 60
        loop.block(61)
        assert one.snapshot(0, 0).deferred_until is None


class TestRestart:
    def restarted(self, guard, one, rule, away=30.0):
        other = guard(rule)
        other.restore(json.loads(json.dumps(one.to_json(0.0))), 0.0, away)
        return other

    def test_a_guard_that_saw_nothing_has_nothing_to_keep(self, guard):
        assert guard(CircuitBreaker(2)).to_json(0.0) == {}

    def test_an_open_circuit_is_open_after_a_restart(self, guard):
        rule = CircuitBreaker(1, recovery="10m")
        one = guard(rule)
        failed(one, 1)

        other = self.restarted(guard, one, rule)

        assert other.snapshot(0, 0).open_until == 570
        assert other.snapshot(0, 0).opened_at == -30

    def test_failures_in_a_row_are_counted_over_a_restart(self, guard):
        rule = CircuitBreaker(3)
        one = guard(rule)
        failed(one, 2)

        other = self.restarted(guard, one, rule)

        assert other.state == Closed(1, 2)
        assert failed(other, 2) == [True, False]

    def test_a_deferral_goes_on_for_the_rest_of_its_time(self, guard):
        one = guard()
        one.deferred_until = 100.0

        assert self.restarted(guard, one, None).deferred_until == 70
