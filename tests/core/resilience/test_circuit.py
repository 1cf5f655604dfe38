import heapq
import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.resilience.callers import Recorder

from leadsman import CircuitBreaker, ExponentialBackoff
from leadsman.core.event_bus import EventBus
from leadsman.core.resilience.breaker import CLOSED, Closed, CycleOutcome
from leadsman.core.resilience.circuit import PASS, CircuitGuard, SharedCircuit
from leadsman.core.resilience.environment import Environment
from leadsman.core.resilience.failure import ignore_error
from leadsman_rigs.examples import examples

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


class TestProbesGoRound:
    @pytest.fixture
    def opened(self, guard):
        """Three members whose circuit has just opened, after each has skipped its poll."""
        shared = SharedCircuit(CircuitBreaker(1, shared="bus"))
        members = [guard(shared.rule, shared, name) for name in "abc"]
        for _ in range(2):
            for member in members:
                cycle(member, CycleOutcome.FAILED)
        assert {member.name for member in members} == {"open"}
        return members

    def polls(self, members, dead):
        """One poll of each, all at the same moment. Returns who was called."""
        permits = [(member, member.admit(LEASE)) for member in members]
        asked = [(member, permit) for member, permit in permits if permit is not None]
        for member, permit in asked:
            failed = member.entity in dead
            member.settle(permit, CycleOutcome.FAILED if failed else CycleOutcome.SUCCEEDED, ignore_error)
        return "".join(member.entity for member, _ in asked)

    def test_the_probe_of_a_dead_member_is_followed_by_that_of_the_next_one(self, opened):
        assert [self.polls(opened, "ab") for _ in range(4)] == ["a", "b", "c", "abc"]

    def test_a_dead_bus_gets_one_probe_for_each_poll_and_all_rest_when_all_have_failed(self, opened):
        assert [self.polls(opened, "abc") for _ in range(8)] == ["a", "b", "c", "", "a", "b", "c", ""]

    def test_it_is_told_who_failed_the_probes_until_the_circuit_closes(self, opened):
        assert opened[2].snapshot(0, 0).failed_probes == {}
        self.polls(opened, "ab")
        self.polls(opened, "ab")
        assert opened[2].snapshot(0, 0).failed_probes == {"a": 1, "b": 1}
        self.polls(opened, "ab")
        assert opened[2].snapshot(0, 0).failed_probes == {}

    def test_a_member_that_is_gone_holds_up_neither_a_round_nor_the_probes(self, guard):
        shared = SharedCircuit(CircuitBreaker(1, shared="bus"))
        one, gone = guard(shared.rule, shared, "one"), guard(shared.rule, shared, "gone")

        gone.leave()

        assert failed(one, 5) == [True, False, True, False, True]
        assert one.name == "open"
        assert gone.name == "closed"

    def test_the_wait_grows_with_each_round_and_not_with_each_probe(self, guard, loop):
        shared = SharedCircuit(CircuitBreaker(1, recovery=ExponentialBackoff("1m", "1h", jitter=0), shared="bus"))
        members = [guard(shared.rule, shared, name) for name in "abc"]
        self.polls(members, "abc")

        called = []
        for minute in range(12):
            called += [(minute, name) for name in self.polls(members, "abc")]
            loop.block(60)

        assert called == [(1, "a"), (2, "b"), (3, "c"), (5, "a"), (6, "b"), (7, "c"), (11, "a")]

    def test_a_member_that_failed_its_probe_is_not_the_first_one_after_a_restart(self, guard, opened):
        self.polls(opened, "a")
        kept = [json.loads(json.dumps(member.to_json(0.0))) for member in opened]
        shared = SharedCircuit(opened[0]._rule)
        members = [guard(shared.rule, shared, member.entity) for member in opened]

        for member, document in zip(members, kept, strict=True):
            member.restore(document, 0.0, 5.0)

        assert members[1].snapshot(0, 0).failed_probes == {"a": 1}
        assert self.polls(members, "a") == "b"


class House:
    """Members of a shared circuit on a bus that is away until `back`, polled at their intervals.

    Args:
        rule: of the circuit.
        members: the interval of each and whether it is dead, in the order of their registration.
        life: seconds after which the app is restarted, again and again.
    """

    def __init__(self, rule, members, back, life):
        self.rule, self.kinds, self.back, self.life = rule, members, back, life
        self.now = 0.0
        self.refused = [0] * len(members)  # polls of each that were turned away since the bus is back
        self.environment = Environment(None, self, EventBus(self))
        self.start([None] * len(members))

    def monotonic(self):
        return self.now

    def wall(self):
        return self.now

    def start(self, documents):
        shared = SharedCircuit(self.rule)
        self.members = [CircuitGuard(str(n), self.rule, self.environment, shared, None) for n in range(len(self.kinds))]
        self.under_way = set()
        for member, document in zip(self.members, documents, strict=True):
            if document is not None:
                member.restore(json.loads(json.dumps(document)), self.now, 0.0)

    def run(self):
        """Returns when each healthy member was first read after the bus was back, within what it may take."""
        number = itertools.count()
        due = [(0.0, next(number), n, None) for n in range(len(self.kinds))]
        first = {}
        restart = self.life
        healthy = [n for n, (_, dead) in enumerate(self.kinds) if not dead]
        while len(first) < len(healthy) and self.now < self.back + 20_000:
            self.now, _, n, permit = heapq.heappop(due)
            interval, dead = self.kinds[n]
            if permit is not None:
                works = self.now >= self.back and not dead
                if permit in self.under_way:
                    self.under_way.discard(permit)
                    outcome = CycleOutcome.SUCCEEDED if works else CycleOutcome.FAILED
                    self.members[n].settle(permit[1], outcome, ignore_error)
                    if works:
                        first.setdefault(n, self.now)
                continue
            if self.now >= restart:
                restart = self.now + self.life
                self.start([member.to_json(self.now) for member in self.members])
            heapq.heappush(due, (self.now + interval, next(number), n, None))
            if any(each[0] is self.members[n] for each in self.under_way):
                continue  # it still runs
            permit = self.members[n].admit(LEASE)
            if permit is not None:
                self.under_way.add((self.members[n], permit))
                heapq.heappush(due, (self.now + 0.4, next(number), n, (self.members[n], permit)))
            elif self.now >= self.back and not dead and n not in first:
                self.refused[n] += 1
        return first


@settings(max_examples=examples(100), deadline=None)
@given(
    members=st.lists(st.tuples(st.sampled_from([5, 10, 60, 300]), st.booleans()), min_size=2, max_size=9),
    recovery=st.sampled_from([None, 0, "10m", ExponentialBackoff("10s", "10m", jitter=0)]),
    threshold=st.integers(1, 3),
    away=st.integers(1, 12),
    life=st.sampled_from([1e9, 17.0, 400.0]),
)
def test_every_healthy_member_of_a_shared_circuit_is_read_again_however_many_others_are_dead(
    members, recovery, threshold, away, life
):
    rule = CircuitBreaker(threshold, recovery=recovery, shared="bus")
    back = away * max(interval for interval, _ in members) + 0.1
    house = House(rule, members, back, life)
    rest = 0 if recovery in (None, 0) else 600

    first = house.run()

    for n, (interval, dead) in enumerate(members):
        if not dead:
            assert n in first
            assert house.refused[n] <= 3 * len(members) + 2 + 2 * rest / interval


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
