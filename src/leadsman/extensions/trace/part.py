"""The trace: the latest failures of each device, and what was decided about them."""

import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from leadsman.core.event_bus import EventBus, Phase
from leadsman.core.events import (
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
    ReadingTaken,
)
from leadsman.core.extension import Extension, Join, JoinPhase
from leadsman.core.introspection.added import AddedSection, Member
from leadsman.core.loop.clock import rfc3339
from leadsman.core.wiring.core import Core
from leadsman.core.wiring.plan import Plan

if TYPE_CHECKING:
    from leadsman.core.introspection.requests import Query
    from leadsman.extensions.trace.saved import TraceTable
    from leadsman.extensions.trace.trace import Trace

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
    """Begin the trace with the first failure. What saves it comes later, and goes on with outages of an earlier run."""
    events = core.environment.events
    tracing = Tracing(core.plan, events)
    events.subscribe(tracing.observe, Phase.TRACE, readings=False)
    core.tables.append(tracing.table)
    core.documents.add_section("trace", AddedSection(tracing.entries, is_list=True, large=True))


class Tracing:
    """The trace of one app, which begins when there is something for it.

    Args:
        plan: the app.
        events: what happens. It hears of readings once it has begun.
    """

    def __init__(self, plan: Plan, events: EventBus) -> None:
        self.traces: list[Trace] = []
        """The trace, once there is something in it."""
        self._plan = plan
        self._events = events

    def observe(self, event: Event) -> None:
        """Add what happens."""
        if self.traces or type(event) in TRACED or (type(event) is CommandDone and event.error is not None):
            self._trace().observe(event)

    def resume(self, outages: Mapping[str, float]) -> None:
        """Go on with the outages of an earlier run: since when, epoch seconds, by device."""
        if outages:
            self._trace().resume(outages)

    def entries(self, request: "Query") -> Iterator[Member]:
        """The rows that a request asks for, each a `leadsman.extensions.trace.document.TraceEntry`."""
        handlers = frozenset(request.names) if request.chosen else None
        for trace in self.traces:
            for row in trace.rows(handlers, request.since, request.after):
                yield None, row._asdict() | {"at": rfc3339(row.at)}

    def table(self) -> "TraceTable":
        """What survives a restart."""
        from leadsman.extensions.trace.saved import TraceTable  # where the state is kept

        return TraceTable(self.traces, self.resume)

    def _trace(self) -> "Trace":
        if not self.traces:
            from leadsman.core.introspection.registrations import policy_text  # with the first failure
            from leadsman.extensions.trace.trace import Trace

            readers = {each.name: each for each in self._plan.readers}
            trace = Trace(functools.cache(lambda name: policy_text(readers[name]) if name in readers else None))
            self.traces.append(trace)
            self._events.subscribe_to(ReadingTaken, trace.observe, Phase.TRACE)
            self._plan.live.trace = trace.rows
        return self.traces[0]


class FailureTrace(Extension):
    """The latest failures of each device. It comes before what survives the app, which goes on with it."""

    name = "trace"

    def joins(self, plan: Plan) -> Iterable[Join]:
        """See `Extension`."""
        return ((JoinPhase.BEFORE_DEVICES, join),)
