"""What a retry policy remembers of an outage, from the first failure to the next success."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from leadsman.resilience.algebra import Policy, State
from leadsman.resilience.failure import Failure
from leadsman.resilience.scope import States

Document = Mapping[str, Any]
"""What was JSON for a while, and may hold anything."""

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


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
        """Retries that a handler is told of. One that asks for five retries, and fails then, may ask for five again."""
        return self.waits - self.given_up

    def ended(self) -> "FailureStreak":
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
    return _ADDRESS.sub("", repr(policy))


def as_state(value: object) -> State:
    """A policy's state that was JSON for a while, with tuples in place of lists."""
    return tuple(as_state(each) for each in value) if isinstance(value, list | tuple) else value
