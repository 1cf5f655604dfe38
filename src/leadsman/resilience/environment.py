"""What an execution is given, remembers and says, as values: for those who make one, and those who look at one."""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from leadsman.errors import Abandoned
from leadsman.event_bus import EventBus
from leadsman.resilience.breaker import CircuitBreaker
from leadsman.resilience.failure import Property
from leadsman.resilience.from_options import ONCE
from leadsman.resilience.policy import Policy, State
from leadsman.resilience.scope import States
from leadsman.timing.clock import Clock
from leadsman.timing.timers import Timers


class GuardSpec(NamedTuple):
    """How a handler's calls are guarded. `timeout` in seconds per call; None waits for ever."""

    policy: Policy = ONCE
    breaker: CircuitBreaker | None = None
    timeout: float | None = None


PolicyOverride = list[tuple[frozenset[str] | None, Policy]]
"""Policies that are asked before the handlers' own for a while, the last one first; each for some names, or for all."""


class Environment(NamedTuple):
    """What an execution needs from outside."""

    timers: Timers
    clock: Clock
    events: EventBus
    overlay: PolicyOverride = []  # noqa: RUF012  # nobody adds to this one
    stopping: asyncio.Event = asyncio.Event()  # nobody sets this one
    """Set when the app ends: a cancellation after it is ours, one before it came out of somebody's code."""


class Caller(Protocol):
    """Whoever has an execution made."""

    def facts(self) -> Mapping[str, Property]:
        """What a policy may ask about the handler."""
        ...

    def abandoned(self, error: Abandoned) -> None:
        """A call outlived its timeout and its cancellation; the cycle's task is left to itself."""
        ...

    def isolated(self) -> None:
        """Somebody isolated the circuit: what goes on between two polls ends."""
        ...


class FailureStreak(NamedTuple):
    """What is remembered of an outage, from its first failure to the next success."""

    policy: Policy
    """The handler's own; `state` is what it remembers."""
    state: State
    waits: int
    """Retries taken, of any kind."""
    cycle: int
    """Polls that failed before the one under way."""
    began: float
    """The first failure, monotonic seconds."""
    wall: float
    """The same in epoch seconds: it names the outage."""
    resumed: bool = False
    """Whether it began before the app was restarted."""
    others: States = ()
    """What policies remember that govern for a while; a restart forgets it."""


class Snapshot(NamedTuple):
    """What an execution remembers, for whoever reports. Times are monotonic seconds."""

    circuit: str
    """As `leadsman.resilience.breaker.name_of` says it."""
    failures: int
    """Failed cycles in a row, as the breaker counts them."""
    opened_at: float | None
    open_until: float | None
    """Where the circuit goes by time: no probe before it."""
    opens: int
    """Openings since the last success."""
    refusals: int
    """Polls that the open circuit will still turn away before it lets a probe through."""
    attempts: int
    """Calls of the cycle under way, or of the last one that failed."""
    waits: int
    """Retries since the last success: the number that the backoff goes by."""
    deferred_until: float | None
    """The device asked to be left alone until then."""
