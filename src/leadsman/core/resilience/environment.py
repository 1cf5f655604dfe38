"""The values that an `Execution` is given, and those that it reports."""

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from leadsman.core.event_bus import EventBus
from leadsman.core.loop.clock import Clock
from leadsman.core.loop.timers import Timers
from leadsman.core.resilience.breaker import CircuitBreaker, CircuitWord
from leadsman.core.resilience.failure import Property
from leadsman.core.resilience.overrides import PolicyOverride
from leadsman.core.resilience.policy import ONCE, Policy
from leadsman.errors import Abandoned


class GuardSpec(NamedTuple):
    """How a handler's calls are guarded. `timeout` in seconds per call; None waits for ever. `adapters`: whether the
    calls use adapters, and may wait for others there."""

    policy: Policy = ONCE
    breaker: CircuitBreaker | None = None
    timeout: float | None = None
    adapters: bool = False


class Environment(NamedTuple):
    """The parts of the app that an execution needs: timers, clock and events."""

    timers: Timers
    clock: Clock
    events: EventBus
    overrides: PolicyOverride = []  # noqa: RUF012  # this one stays empty
    stopping: asyncio.Event = asyncio.Event()  # this one is never set
    """Set when the app stops. A cancellation after that is the app's; one before it came from the handler's code."""

    def overriding(self, name: str) -> tuple[Policy, ...]:
        """The policies that temporarily override a handler's own; the first one is asked first."""
        return tuple(policy for names, policy in reversed(self.overrides) if names is None or name in names)


class Abandons(Protocol):
    """The caller of a call that has a deadline."""

    def abandoned(self, error: Abandoned) -> None:
        """The call did not end after its deadline and its cancellation. Its task is left alone."""
        ...


class Caller(Abandons, Protocol):
    """The object that owns an execution, such as a `PollRunner`."""

    def facts(self) -> Mapping[str, Property]:
        """The properties of the handler that a policy may ask about."""
        ...

    def taken(self, result: Any) -> Any:
        """What a call has returned, as the cycle returns it. What it raises is the error of the call; no deadline and
        no lock counts for it."""
        ...

    def horizon(self) -> float:
        """When the next poll is due, monotonic seconds: a retry at or after it is dropped."""
        ...

    def isolated(self) -> None:
        """The circuit was isolated: stop what runs between two polls."""
        ...


class Snapshot(NamedTuple):
    """The state of an execution, for reports. Times are monotonic seconds."""

    circuit: CircuitWord
    """The circuit's name, from `leadsman.core.resilience.breaker.name_of`."""
    failures: int
    """Failed cycles in a row, as the breaker counts them."""
    opened_at: float | None
    open_until: float | None
    """If the circuit is open for a time: its end. No probe is made before it."""
    opens: int
    """Openings since the last success."""
    refusals: int
    """Polls that the open circuit will still turn away before it lets a probe through."""
    attempts: int
    """Calls of the current cycle, or of the last one that failed."""
    waits: int
    """Retries since the last success; the backoff counts by this number."""
    deferred_until: float | None
    """When the pause ends that the device asked for."""
    failed_probes: Mapping[str, int] = MappingProxyType({})
    """Of a circuit that several handlers share: which of them have failed probes since it opened, and how many."""


NO_GUARDS = Snapshot("closed", 0, None, None, 0, 0, 0, 0, None)
"""The snapshot of a handler whose calls have no circuit and no retries, such as a command."""
