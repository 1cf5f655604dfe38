"""The inputs, the failure state and the snapshot of an `Execution`, as values."""

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
"""Policies that temporarily override the handlers' own; the last one is asked first. Each applies to some names, or
to all."""


class Environment(NamedTuple):
    """What an execution needs from the app: timers, clock and events."""

    timers: Timers
    clock: Clock
    events: EventBus
    overrides: PolicyOverride = []  # noqa: RUF012  # nobody adds to this one
    stopping: asyncio.Event = asyncio.Event()  # nobody sets this one
    """Set when the app stops. A cancellation after it is the app's; one before it came out of the handler's own
    code."""


class Caller(Protocol):
    """The object that owns an execution, such as a `PollRunner`."""

    def facts(self) -> Mapping[str, Property]:
        """What a policy may ask about the handler."""
        ...

    def abandoned(self, error: Abandoned) -> None:
        """A call did not end after its timeout and its cancellation. The task of its cycle is left alone."""
        ...

    def isolated(self) -> None:
        """The circuit was isolated: stop what runs between two polls."""
        ...


class FailureStreak(NamedTuple):
    """The state of an outage, from its first failure to the next success."""

    policy: Policy
    """The handler's own policy; `state` is the state of this policy."""
    state: State
    waits: int
    """Retries taken, of any kind."""
    cycle: int
    """Failed polls before the current one."""
    began: float
    """The first failure, monotonic seconds."""
    wall: float
    """The same in epoch seconds. It identifies the outage."""
    resumed: bool = False
    """Whether it began before the app was restarted."""
    others: States = ()
    """The states of policies that temporarily override the handler's own. They are lost at a restart."""


class Snapshot(NamedTuple):
    """The state of an execution, for reports. Times are monotonic seconds."""

    circuit: str
    """The circuit's name, from `leadsman.resilience.breaker.name_of`."""
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
    """Calls of the current cycle, or of the last one that failed."""
    waits: int
    """Retries since the last success; the backoff counts by this number."""
    deferred_until: float | None
    """The device asked for a pause until then."""
