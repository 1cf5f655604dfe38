import math

from leadsman import RetryRequested, exponential, immediate, is_a, never, periodic
from leadsman.core.resilience.decision import FailureStreak, RetryTokenBucket, decide, give_up
from leadsman.core.resilience.failure import Failure
from leadsman.core.resilience.policy import GiveUp, Retry

NOW = 1000.0


def streak_of(policy):
    return FailureStreak(policy, policy.start(), 0, 0, NOW, NOW, 1e9)


def decided(policy, error=None, overriding=(), horizon=math.inf, tokens=None, **failure):
    failed = Failure(error or OSError("gone"), **failure)
    return decide(failed, streak_of(policy), overriding, NOW, horizon, tokens, lambda: 0.5)


class TestRetry:
    def test_a_retry_counts_and_the_policy_remembers_it(self):
        decision = decided(exponential("2s"))

        assert decision.verdict == Retry(2)
        assert decision.streak.waits == 1
        assert decision.streak.state == (0, 1)
        assert decision.deferred is None

    def test_a_retry_that_is_due_before_the_next_poll_is_made(self):
        assert decided(periodic("10s"), horizon=NOW + 10.1).verdict == Retry(10)

    def test_a_retry_that_is_due_with_the_next_poll_is_left_to_it_and_not_counted(self):
        decision = decided(periodic("10s"), horizon=NOW + 10)

        assert decision.verdict == GiveUp("next-poll")
        assert decision.streak == streak_of(periodic("10s"))

    def test_an_overriding_policy_is_asked_before_the_handlers_own(self):
        decision = decided(never(), overriding=(periodic("7s"),))

        assert decision.verdict == Retry(7)
        assert decision.streak.state == never().start()

    def test_an_overriding_policy_that_is_for_other_errors_passes_the_failure_on(self):
        decision = decided(periodic("3s"), overriding=(periodic("7s").only_when(is_a(ValueError)),))

        assert decision.verdict == Retry(3)


class TestTokens:
    def test_a_retry_takes_a_token(self):
        tokens = RetryTokenBucket(2)

        decided(immediate(), tokens=tokens)

        assert tokens.left == 1

    def test_without_a_token_there_is_no_retry(self):
        tokens = RetryTokenBucket(1)
        tokens.take()

        assert decided(immediate(), tokens=tokens).verdict == GiveUp("tokens")

    def test_a_requested_retry_needs_none(self):
        tokens = RetryTokenBucket(1)
        tokens.take()

        assert decided(immediate(), RetryRequested("3s"), tokens=tokens).verdict == Retry(3)

    def test_a_retry_that_is_left_to_the_next_poll_takes_none(self):
        tokens = RetryTokenBucket(2)

        decided(periodic("10s"), horizon=NOW + 5, tokens=tokens)

        assert tokens.left == 2


class TestRequest:
    def test_a_request_beyond_the_next_poll_defers_the_polls(self):
        decision = decided(immediate(), RetryRequested("1h"), horizon=NOW + 60)

        assert decision.verdict == GiveUp("deferred")
        assert decision.deferred == 3600
        assert decision.streak.waits == 1

    def test_a_deferral_uses_up_the_budget(self):
        policy = immediate().budget("90m")

        decision = decided(policy, RetryRequested("1h"), horizon=NOW + 60)
        again = decide(Failure(RetryRequested("1h")), decision.streak, (), NOW, math.inf, None, lambda: 0.5)

        assert again.verdict == GiveUp("budget")

    def test_a_request_that_is_refused_defers_the_polls_all_the_same(self):
        decision = decided(immediate().budget("1m"), RetryRequested("1h"))

        assert decision.verdict == GiveUp("budget")
        assert decision.deferred == 3600

    def test_a_request_without_a_delay_defers_nothing(self):
        decision = decided(periodic("10s"), RetryRequested(), horizon=NOW + 5)

        assert decision.verdict == GiveUp("next-poll")
        assert decision.deferred is None

    def test_a_request_of_a_probe_defers_the_polls(self):
        streak = streak_of(immediate())

        decision = give_up(streak, Failure(RetryRequested("1h")), "probe", 60.0)

        assert decision == (streak._replace(waits=1), GiveUp("probe"), 3600)


class TestFault:
    def test_a_policy_that_raises_is_reported_and_ends_the_retries(self):
        class Broken(type(immediate())):
            __slots__ = ()

            def step(self, state, failure, draw):
                raise ZeroDivisionError

        reported = []

        decision = decided(Broken(), on_strategy_error=lambda policy, error: reported.append((policy, error)))

        assert decision.verdict == GiveUp("fault")
        assert [(type(policy), type(error)) for policy, error in reported] == [(Broken, ZeroDivisionError)]
