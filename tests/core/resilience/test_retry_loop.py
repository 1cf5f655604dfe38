import asyncio
import json

import pytest
from tests.core.resilience.callers import Answers, Recorder, hang, raised, stubborn

from leadsman import CircuitBreaker, RetryRequested, exponential, immediate, never, periodic, strategy
from leadsman.core.events import AppFault, AttemptFailed
from leadsman.core.resilience.circuit import SharedCircuit
from leadsman.core.resilience.decision import RetryTokenBucket
from leadsman.core.resilience.environment import GuardSpec
from leadsman.core.resilience.guards import BusLock, SharedGuards
from leadsman.core.resilience.retry_loop import Execution
from leadsman.errors import Abandoned, DeviceTimeout

GONE = OSError("gone")


@pytest.fixture
def caller():
    return Recorder()


@pytest.fixture
def execution(environment, caller):
    def make(call, policy=None, **given):
        guards = GuardSpec(policy or never(), given.pop("breaker", None), given.pop("timeout", None))
        return Execution("d", call, guards, environment, caller=caller, **given)

    return make


@pytest.fixture
def poll(loop, caller):
    """One cycle, if it is admitted: its result, its error, or None where it was turned away."""

    def run(execution, horizon=float("inf")):
        caller.next_poll = horizon

        async def cycle():
            try:
                return await execution.run()
            except Exception as error:
                return error

        return loop.run_until_complete(cycle()) if execution.admit() else None

    return run


def attempts(events):
    return [(event.attempt, event.delay, event.reason) for event in events if isinstance(event, AttemptFailed)]


class TestRetries:
    def test_a_failed_call_is_repeated_as_the_policy_says(self, execution, poll, events, loop):
        one = execution(Answers(GONE, GONE, 21.5), periodic("2s").max_retries(3))

        assert poll(one) == 21.5
        assert loop.time() == pytest.approx(4, abs=0.1)
        assert attempts(events) == [(1, 2, "retry"), (2, 2, "retry")]

    def test_the_last_error_is_raised(self, execution, poll, events):
        one = execution(Answers(ValueError(), GONE), immediate().max_retries(1))

        assert poll(one) is GONE
        assert one.attempts == 2
        assert one.gave_up == "count"

    def test_waits_go_on_growing_over_cycles_until_a_success(self, execution, poll, events):
        one = execution(Answers(GONE, GONE, GONE, GONE, 21.5, GONE), exponential("2s").max_retries(1))

        for _ in range(4):
            poll(one)

        assert [delay for _, delay, reason in attempts(events) if reason == "retry"] == [2, 4, 2]

    def test_a_retry_at_the_next_poll_is_left_to_it(self, execution, poll, loop):
        one = execution(Answers(GONE), periodic("10s"))

        assert poll(one, horizon=loop.time() + 5) is GONE
        assert one.gave_up == "next-poll"

    def test_a_circuit_that_a_person_isolates_during_a_wait_ends_the_retries(self, execution, loop):
        call = Answers(GONE)
        one = execution(call, periodic("10s"))

        async def isolated():
            one.admit()
            task = asyncio.ensure_future(raised(one.run))
            await asyncio.sleep(1)
            one.isolate()
            return await task

        assert loop.run_until_complete(isolated()) is GONE
        assert one.gave_up == "isolated"
        assert call.calls == 1

    def test_a_cancellation_of_the_cycle_is_passed_through(self, execution, loop):
        one = execution(Answers(GONE), periodic("10s"))

        async def cancelled():
            one.admit()
            task = asyncio.ensure_future(one.run())
            await asyncio.sleep(1)
            task.cancel()
            await asyncio.wait({task})
            return task.cancelled()

        assert loop.run_until_complete(cancelled())

    def test_an_error_made_of_a_cancellation_is_no_reason_to_retry_while_the_app_stops(
        self, execution, loop, environment
    ):
        one = execution(Answers(GONE), immediate())
        environment.stopping.set()
        one.admit()

        assert isinstance(loop.run_until_complete(raised(one.run)), asyncio.CancelledError)

    def test_a_deferral_that_the_device_asks_for_turns_polls_away(self, execution, poll, loop):
        one = execution(Answers(RetryRequested("1h"), 21.5), immediate())

        poll(one, horizon=loop.time() + 60)

        assert poll(one) is None
        loop.block(3600)
        assert poll(one) == 21.5

    def test_a_strategy_that_raises_is_reported_once(self, execution, poll, events):
        class Broken:
            def delay(self, attempt):
                raise ZeroDivisionError

        one = execution(Answers(GONE), strategy(Broken()).max_retries(3))
        poll(one)

        faults = [event for event in events if isinstance(event, AppFault)]
        assert [fault.where for fault in faults] == ["backoff of d; the default is used instead"]

    def test_a_policy_for_some_handlers_overrides_their_own(self, execution, poll, environment):
        environment.overrides.append((frozenset({"other"}), immediate().max_retries(9)))
        environment.overrides.append((frozenset({"d"}), immediate().max_retries(1)))
        one = execution(Answers(GONE))

        poll(one)

        assert one.attempts == 2


class TestGuards:
    def test_each_attempt_has_its_own_timeout(self, execution, poll, loop, events):
        one = execution(hang, periodic("1s").max_retries(1), timeout=5)

        assert isinstance(poll(one), DeviceTimeout)
        assert loop.time() == pytest.approx(11, abs=0.2)

    def test_a_retry_waits_without_the_bus(self, execution, loop):
        lock, order = BusLock(), []

        def using(name, *answers):
            device = Answers(*answers)

            async def call():
                order.append(name)
                await asyncio.sleep(1)
                return await device()

            return execution(call, periodic("10s").max_retries(1), bus_lock=lock)

        async def both():
            cycles = [using("failing", GONE, 1), using("other", 2)]
            return await asyncio.gather(*(each.run() for each in cycles))

        assert loop.run_until_complete(both()) == [1, 2]
        assert order == ["failing", "other", "failing"]

    def test_the_time_spent_waiting_for_the_bus_is_no_part_of_the_timeout(self, execution, loop):
        lock = BusLock()

        async def slow():
            await asyncio.sleep(4)
            return "done"

        async def both():
            return await asyncio.gather(*(execution(slow, timeout=5, bus_lock=lock).run() for _ in range(3)))

        assert loop.run_until_complete(both()) == ["done"] * 3

    def test_a_call_that_never_ends_lets_others_use_the_bus_and_counts_once(self, execution, loop, caller):
        lock = BusLock()
        one = execution(stubborn(600), immediate(), timeout=5, bus_lock=lock, breaker=CircuitBreaker(1))
        other = execution(Answers("next"), bus_lock=lock)

        async def both():
            one.admit()
            task = asyncio.ensure_future(raised(one.run))
            await asyncio.sleep(1)
            result = await other.run()
            return result, loop.time(), await task

        result, at, error = loop.run_until_complete(both())

        assert result == "next"
        assert at == pytest.approx(10, abs=0.2)
        assert isinstance(error, Abandoned)
        assert [type(each) for each in caller.errors] == [Abandoned]
        assert one.snapshot().failures == 1

    def test_a_first_call_that_succeeds_brings_a_token_back(self, execution, poll):
        tokens = RetryTokenBucket(2)
        one = execution(Answers(GONE, 1, 2), immediate().max_retries(1), shared=SharedGuards(None, tokens))

        poll(one)
        assert tokens.left == 1
        poll(one)
        assert tokens.left == 2

    def test_so_does_the_first_call_ever_of_another_handler_of_the_adapter(self, execution, poll):
        shared = SharedGuards(None, RetryTokenBucket(2))
        failing = execution(Answers(GONE), immediate().max_retries(1), shared=shared)
        working = execution(Answers(1), shared=shared)

        poll(failing)
        poll(working)

        assert shared.tokens.left == 2


class TestFastPath:
    """Whatever ends one of the conditions of the fast path must be noticed by the next cycle."""

    def test_a_failure_after_successes_is_counted(self, execution, poll):
        one = execution(Answers(1, 2, GONE), breaker=CircuitBreaker(1))

        assert [poll(one), poll(one), poll(one), poll(one)] == [1, 2, GONE, None]

    def test_an_isolation_after_successes_turns_the_next_cycle_away(self, execution, poll):
        one = execution(Answers(1))
        poll(one)

        one.isolate()

        assert poll(one) is None

    def test_a_circuit_disabled_after_successes_counts_failures_and_admits_all(self, execution, poll):
        one = execution(Answers(1, GONE), breaker=CircuitBreaker(1))
        poll(one)

        one.disable()

        assert [poll(one) for _ in range(3)] == [GONE] * 3
        assert one.snapshot().failures == 3

    def test_a_member_of_a_shared_circuit_is_turned_away_when_another_one_opened_it(self, execution, poll):
        shared = SharedGuards(SharedCircuit(CircuitBreaker(1, shared="bus")))
        good = execution(Answers(1, GONE), breaker=shared.circuit.rule, shared=shared)
        bad = execution(Answers(GONE), breaker=shared.circuit.rule, shared=shared)
        assert poll(good) == 1

        poll(bad)
        poll(good)

        assert poll(good) is None

    def test_a_success_after_a_failure_resets_everything(self, execution, poll):
        one = execution(Answers(GONE, 1, GONE), exponential("2s").max_retries(0), breaker=CircuitBreaker(2))

        poll(one)
        poll(one)
        poll(one)

        assert one.snapshot().circuit == "closed"
        assert one.snapshot().failures == 1

    @pytest.mark.parametrize("breaker", [CircuitBreaker(1), CircuitBreaker(2), None])
    def test_a_circuit_that_was_open_or_counted_failures_does_not_keep_a_handler_off_it(self, execution, poll, breaker):
        one = execution(Answers(GONE, GONE, GONE, *range(20)), breaker=breaker)

        while poll(one) != 10:
            pass

        assert one.calm
        assert one.snapshot().circuit in ("closed", "disabled")

    def test_after_an_open_circuit_failures_count_as_before(self, execution, poll):
        one = execution(Answers(GONE, GONE, 1, 2, GONE, GONE, 3), breaker=CircuitBreaker(2))

        assert [poll(one) for _ in range(9)] == [GONE, GONE, None, 1, 2, GONE, GONE, None, 3]

    def test_a_cycle_that_is_cancelled_changes_nothing(self, execution, poll, loop):
        one = execution(Answers(1, asyncio.CancelledError(), GONE), breaker=CircuitBreaker(1))
        poll(one)
        with pytest.raises(asyncio.CancelledError):
            poll(one)

        assert one.calm
        assert [poll(one), poll(one)] == [GONE, None]

    def test_a_circuit_that_a_person_closed_is_calm_after_the_next_success(self, execution, poll):
        one = execution(Answers(1, GONE), breaker=CircuitBreaker(1))
        one.isolate()
        one.close()
        assert not one.calm

        assert poll(one) == 1
        assert one.calm
        assert [poll(one), poll(one)] == [GONE, None]


class TestRestart:
    def test_an_execution_without_failures_has_nothing_to_keep(self, execution, poll):
        one = execution(Answers(1), breaker=CircuitBreaker(2))
        poll(one)

        assert one.to_json() == {}

    def test_retries_and_circuit_go_on_after_a_restart(self, execution, poll, events):
        policy, breaker = exponential("2s").max_retries(1), CircuitBreaker(2)
        before = execution(Answers(GONE), policy, breaker=breaker)
        poll(before)
        after = execution(Answers(GONE), policy, breaker=breaker)

        after.restore(json.loads(json.dumps(before.to_json())), away=60.0)
        poll(after)

        assert [delay for _, delay, _ in attempts(events)] == [2, None, 4, None]
        assert after.snapshot().circuit == "open"

    def test_the_pending_retry_is_due_as_much_earlier_as_the_app_was_away(self, execution, loop):
        before = execution(Answers(GONE), periodic("5m"))

        async def interrupted():
            before.admit()
            task = asyncio.ensure_future(before.run())
            await asyncio.sleep(60)
            found = before.to_json()
            task.cancel()
            await asyncio.wait({task})
            return found

        found = loop.run_until_complete(interrupted())

        assert execution(Answers(1), periodic("5m")).restore(found, away=40.0) == pytest.approx(200, abs=0.1)
