"""The decision about one failed call: what the policies say, and what the schedule and the shared guards allow.

Pure, but for the token that a retry takes from its adapter's bucket.
"""

from collections.abc import Iterable
from typing import NamedTuple

from leadsman.resilience import scope
from leadsman.resilience.algebra import Policy
from leadsman.resilience.backoff import Draw
from leadsman.resilience.failure import Failure
from leadsman.resilience.sharing import RetryTokenBucket
from leadsman.resilience.streak import FailureStreak
from leadsman.resilience.verdict import GiveUp, Verdict


class Decision(NamedTuple):
    """What follows from a failed call."""

    streak: FailureStreak
    """The state of the outage after the call."""
    verdict: Verdict
    deferred: float | None = None
    """For how many seconds the device asked not to be polled, if the next poll is to obey that."""


def given_up(
    streak: FailureStreak, failure: Failure, reason: str, to_next_poll: float, policies: Iterable[Policy] = ()
) -> Decision:
    """End the retries of this cycle. A pause that the device asked for still applies: the next cycle is the retry. What
    a policy reads of an error counts if it ends after the next poll, which comes in `to_next_poll` seconds."""
    asked = _asked(failure, to_next_poll, (*policies, streak.policy))
    if asked is None:
        return Decision(streak, GiveUp(reason))
    return Decision(streak._replace(waits=streak.waits + 1), GiveUp(reason), asked)


def _asked(failure: Failure, to_next_poll: float, policies: Iterable[Policy]) -> float | None:
    if failure.request is not None:
        return failure.request.delay
    read = (each.pause(failure) for each in policies)
    return max((pause for pause in read if pause is not None and pause >= to_next_poll), default=None)


def decide(
    failure: Failure,
    streak: FailureStreak,
    policies: Iterable[Policy],
    now: float,
    horizon: float,
    tokens: RetryTokenBucket | None,
    draw: Draw,
) -> Decision:
    """Decide whether a failed call is repeated.

    Args:
        failure: the failed call.
        streak: the state of the outage.
        policies: those that override the handler's own, the first one is asked first.
        now: monotonic seconds.
        horizon: when the next poll is due, monotonic seconds. A retry that is due then or later is dropped.
        tokens: the retries that the adapter has left, if they are limited.
        draw: gives uniform numbers in [0, 1).
    """
    policies = tuple(policies)
    try:
        state, others, verdict = scope.step(policies, streak.policy, streak.state, streak.others, failure, draw)
    except Exception as fault:
        failure.on_strategy_error(streak.policy, fault)
        return Decision(streak, GiveUp("fault"))
    if isinstance(verdict, GiveUp):
        return given_up(streak._replace(state=state, others=others), failure, verdict.reason, horizon - now, policies)
    if now + verdict.delay >= horizon:
        if _asked(failure, horizon - now, (*policies, streak.policy)) is None:
            return Decision(streak, GiveUp("next-poll"))
        return given_up(streak._replace(state=state, others=others), failure, "deferred", horizon - now, policies)
    if tokens is not None and failure.request is None and not tokens.take():
        return Decision(streak, GiveUp("tokens"))
    return Decision(streak._replace(state=state, others=others, waits=streak.waits + 1), verdict)
