"""The trace: the latest failures of each device, and what was decided about them."""

import functools

from leadsman.event_bus import Phase
from leadsman.events import (
    AdapterFailed,
    AdapterReopened,
    AppFault,
    AttemptFailed,
    CircuitRequested,
    CommandDone,
    DeviceHeld,
    Event,
    MessageFailed,
    PollFailed,
)
from leadsman.wiring.core import Core

TRACED = frozenset(
    {
        AppFault,
        AttemptFailed,
        PollFailed,
        AdapterFailed,
        AdapterReopened,
        CircuitRequested,
        DeviceHeld,
        MessageFailed,
    }
)
"""The events that begin the trace, as a command that failed does: an app in which nothing fails, and nobody interferes,
has none."""


def join(core: Core) -> None:
    """Begin the trace with the first failure. Outages of an earlier run go on."""

    def observe(event: Event) -> None:
        if core.traces:
            core.traces[0].observe(event)
        elif type(event) in TRACED or (type(event) is CommandDone and event.error is not None):
            _begin(core)
            core.traces[0].observe(event)

    if core.saved is not None and core.saved.outages:
        _begin(core)
        core.traces[0].resume(core.saved.outages)
    core.environment.events.subscribe(observe, Phase.TRACE)


def _begin(core: Core) -> None:
    from leadsman.introspection.registrations import policy_text  # with the first failure
    from leadsman.monitoring.trace import Trace

    readers = {each.name: each for each in core.plan.readers}
    trace = Trace(functools.cache(lambda name: policy_text(readers[name]) if name in readers else None))
    core.traces.append(trace)
    core.plan.live.trace = trace
