"""The decision about one failed call: what the policies decide, and what the schedule and the shared guards allow; and
what a policy remembers of an outage, from the first failure to the next success.

Pure, but for the token that a retry takes from its adapter's bucket.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from leadsman.core.resilience import overrides
from leadsman.core.resilience.backoff import Draw
from leadsman.core.resilience.failure import Failure
from leadsman.core.resilience.overrides import States
from leadsman.core.resilience.policy import GiveUp, Policy, State, Verdict

Document = Mapping[str, Any]
"""A mapping that was JSON for a while, and may hold anything."""

_ADDRESS = r" at 0x[0-9a-fA-F]+"


class FailureStreak(NamedTuple):
    """The state of an outage."""

    policy: Policy
    """The handler's own policy; `state` is the state of this policy."""
    state: State
    waits: int
    """Retries taken, of any kind."""
    cycle: int
    """Failed polls before the current one."""
    began: float
    """The first failure, monotonic seconds. Policies count from it."""
    since: float
    """When the call began that failed first, monotonic seconds: the outage begins with it."""
    wall: float
    """The same in epoch seconds. It identifies the outage."""
    resumed: bool = False
    """Whether it began before the app was restarted."""
    others: States = ()
    """The states of policies that temporarily override the handler's own. They are lost at a restart."""
    asked: bool = False
    """Whether the handler asked for a retry since the last poll that failed for good."""
    given_up: int = 0
    """How many of the `waits` lie before the last poll that failed for good after the handler had asked for retries."""

    @property
    def attempts(self) -> int:
        """Retries that a handler is shown. One that asks for five retries, and fails then, may ask for five again."""
        return self.waits - self.given_up

    def end(self) -> "FailureStreak":
        """The state after a poll that failed for good, not by a request."""
        return self._replace(asked=False, given_up=self.waits) if self.asked else self

    def to_json(self, now: float) -> dict[str, object]:
        """The streak as JSON-compatible values, with its age in place of a time on a clock that ends with the app."""
        return {
            "policy": _text_of(self.policy),
            "state": self.state,
            "waits": self.waits,
            "cycle": self.cycle,
            "elapsed": now - self.began,
            "called": self.began - self.since,
            "wall": self.wall,
            "asked": self.asked,
            "given_up": self.given_up,
        }


def streak_from_json(document: Document, policy: Policy, now: float, away: float) -> FailureStreak:
    """The streak of which `FailureStreak.to_json` was made `away` seconds ago. If the handler's policy is another one
    now, its state is that of a new outage.

    Raises:
        KeyError, TypeError, ValueError: the document was not made by `to_json`.
    """
    state = policy.start()
    if document["policy"] == _text_of(policy):
        state = as_state(document["state"])
        policy.step(state, Failure(OSError()), lambda: 0.0)  # an invalid state raises here
    began = now - float(document["elapsed"]) - away
    waits, cycle, wall = int(document["waits"]), int(document["cycle"]), float(document["wall"])
    # Earlier versions wrote neither this nor what handlers asked for.
    since = began - float(document.get("called", 0.0))
    asked, given_up = document.get("asked") is True, int(document.get("given_up", 0))
    return FailureStreak(
        policy, state, waits, cycle, began, since, wall, resumed=True, asked=asked, given_up=min(given_up, waits)
    )


def _text_of(policy: Policy) -> str:
    """The text that identifies a policy after a restart. A user's own strategy may have no text but its address, which
    is removed."""
    return re.sub(_ADDRESS, "", repr(policy))


def as_state(value: object) -> State:
    """A policy's state that was JSON for a while, with tuples in place of lists."""
    return tuple(as_state(each) for each in value) if isinstance(value, list | tuple) else value


class RetryTokenBucket:
    """A budget of retries for all handlers of one adapter. A retry takes a token; a first call that succeeds returns
    one back.

    Args:
        capacity: the number of tokens at the start, and the most there can be.
    """

    __slots__ = ("capacity", "left")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.left = capacity

    def take(self) -> bool:
        """Take a token. False if none is left."""
        if self.left == 0:
            return False
        self.left -= 1
        return True

    def give_back(self) -> None:
        """Return a token, up to the capacity."""
        self.left = min(self.capacity, self.left + 1)


class Decision(NamedTuple):
    """The consequences of a failed call."""

    streak: FailureStreak
    """The state of the outage after the call."""
    verdict: Verdict
    deferred: float | None = None
    """For how many seconds the device asked not to be polled, if the next poll is to obey that."""


def give_up(
    streak: FailureStreak, failure: Failure, reason: str, to_next_poll: float, policies: Iterable[Policy] = ()
) -> Decision:
    """End the retries of this cycle. A pause that the device asked for still applies: the next cycle is the retry. What
    a policy reads of an error counts if it ends after the next poll, which comes in `to_next_poll` seconds."""
    asked = _requested_pause(failure, to_next_poll, (*policies, streak.policy))
    if asked is None:
        return Decision(streak, GiveUp(reason))
    return Decision(streak._replace(waits=streak.waits + 1), GiveUp(reason), asked)


def _requested_pause(failure: Failure, to_next_poll: float, policies: Iterable[Policy]) -> float | None:
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
        state, others, verdict = overrides.step(policies, streak.policy, streak.state, streak.others, failure, draw)
    except Exception as fault:
        failure.on_strategy_error(streak.policy, fault)
        return Decision(streak, GiveUp("fault"))
    if isinstance(verdict, GiveUp):
        return give_up(streak._replace(state=state, others=others), failure, verdict.reason, horizon - now, policies)
    if now + verdict.delay >= horizon:
        if _requested_pause(failure, horizon - now, (*policies, streak.policy)) is None:
            return Decision(streak, GiveUp("next-poll"))
        return give_up(streak._replace(state=state, others=others), failure, "deferred", horizon - now, policies)
    if tokens is not None and failure.request is None and not tokens.take():
        return Decision(streak, GiveUp("tokens"))
    return Decision(streak._replace(state=state, others=others, waits=streak.waits + 1), verdict)
