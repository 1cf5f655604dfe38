"""The types of the trace in introspection."""

from typing_extensions import TypedDict

from leadsman.core.document import Seconds, Time
from leadsman.core.extension import Documents


class TraceEntry(TypedDict):
    """One row of the trace; see `leadsman.core.monitoring.trace_row.TraceRow`."""

    number: int
    """The number of the row, which grows."""
    at: Time
    """When it happened."""
    handler: str
    """The device."""
    reason: str
    """What was decided."""
    cycle: int | None
    """The number of the poll; null if it belongs to none."""
    attempt: int | None
    """The number of the call in its poll, from 1; null if it belongs to none."""
    delay: Seconds | None
    """How long until the next call; null if there is none."""
    error_type: str | None
    """The class of the error; null if there was none."""
    error_message: str | None
    """Its text."""
    traceback: str | None
    """The lines that led to it; null if they are not kept."""
    policy: str | None
    """The policy that decided; null if none did."""
    breaker: str | None
    """The state of the circuit then; null if it has none."""
    by: str | None
    """The person or program that asked for it; null if none did."""


class TraceSection(TypedDict, total=False):
    """The section of the trace."""

    trace: list[TraceEntry]
    """The failed calls, and what was decided. Present only if the request names this section."""


DOCUMENTS = Documents(sections=TraceSection)
