"""Writes the state of a device of which there is nothing unusual to say, which most are.

A template writes its thirty fields in half the time that a general encoder takes. A device with anything more to say is
described by `leadsman.introspection.sections`, and a test compares the two.
"""

from typing import NamedTuple

from leadsman.monitoring.health import NO_TROUBLE, Health, is_stale
from leadsman.monitoring.totals import Totals
from leadsman.resilience.environment import Snapshot
from leadsman.runtime.publisher import StatePublisher
from leadsman.timing.clock import rfc3339

_TEMPLATE = (
    '{"status":"%s","stale":%s,"circuit":"%s","consecutive_failures":0,"attempts":%d,"opened_at":null,'
    '"failing_since":null,"last_error":null,"last_success_at":%s,"retries":%d,"opens":%d,"last_duration":%s,'
    '"next_due_at":%s,"deferred_until":null,"deferred_reason":null,"poll_under_way":null,"counters":{'
    + ",".join(f'"{each}":%d' for each in Totals._fields)
    + '},"held":false,"missed_polls":%d,"published":{"published_at":%s,"suppressed":%d}}'
)


class State(NamedTuple):
    """What is known of a device."""

    status: str
    health: Health
    snapshot: Snapshot
    next_poll: float | None
    """Epoch seconds."""
    publisher: StatePublisher

    @property
    def is_usual(self) -> bool:
        """Whether the template has room for it."""
        health, snapshot = self.health, self.snapshot
        return (
            health.trouble is NO_TROUBLE
            and not health.held
            and health.life is None
            and snapshot.opened_at is None
            and snapshot.deferred_until is None
            and self.publisher.publication.refused is None
        )

    def text(self, now: float) -> bytes:
        """It, at `now`, as the JSON of a `leadsman.introspection.document.Runtime`. It must be usual."""
        health, snapshot, publication = self.health, self.snapshot, self.publisher.publication
        read = _written(health.success_wall)
        text = _TEMPLATE % (
            self.status,
            "true" if is_stale(health, now) else "false",
            snapshot.circuit,
            snapshot.attempts,
            read,
            snapshot.waits,
            snapshot.opens,
            "null" if health.duration is None else repr(round(health.duration, 6)),
            _written(self.next_poll),
            *health.totals(self.publisher.published),
            health.counters.missed,
            read if publication.at == health.success_wall else _written(publication.at),
            publication.suppressed,
        )
        return text.encode()


def _written(wall: float | None) -> str:
    return "null" if wall is None else f'"{rfc3339(wall)}"'
