"""Counts what became of the polls of a device, since the start of the app and over all its lives. Pure.

A device whose every poll succeeds after two retries has the status ``ok``. Its counters show it.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

VERSION = 1
"""The version of what `EarlierLives.to_json` writes. One that means something else gets another number."""
MOST = 2**53
"""A counter in the file that is larger is damage: JSON carries integers exactly up to here (RFC 8259 §6)."""

Json = Any
"""What JSON can represent."""


class Totals(NamedTuple):
    """The counters of a device."""

    polls: int = 0
    """Polls that ended with a reading, with nothing to publish, or with a failure."""
    failed_polls: int = 0
    retried_polls: int = 0
    """Polls that succeeded after at least one failed call."""
    calls: int = 0
    failed_calls: int = 0
    retries: int = 0
    """Calls repeated after a failure."""
    opens: int = 0
    """Times at which the circuit opened; one more each time a probe fails."""
    deferrals: int = 0
    """Polls that ended with a pause that the device asked for."""
    missed_polls: int = 0
    published: int = 0
    """Readings that were handed to the outbox."""

    def plus(self, other: "Totals") -> "Totals":
        """The sum of both."""
        return Totals(*(one + another for one, another in zip(self, other, strict=True)))


class EarlierLives(NamedTuple):
    """The counters of the lives of the app before this one."""

    since: float
    """When counting began, epoch seconds."""
    before: Totals = Totals()

    def to_json(self, now: Totals) -> Json:
        """For the file: all lives, with what this one has counted until now."""
        return {"version": VERSION, "since": self.since, **self.before.plus(now)._asdict()}


def life_of(document: Json) -> EarlierLives:
    """Read what `EarlierLives.to_json` has written.

    Raises:
        LookupError, TypeError, ValueError: it is damaged, or a newer version wrote it.
    """
    if not isinstance(document, Mapping):
        raise TypeError("the counters are not an object")
    if document["version"] != VERSION:
        raise ValueError(f"the counters have the version {document['version']!r}, and this leadsman reads {VERSION}")
    return EarlierLives(_number(document, "since"), Totals(*(_number(document, each) for each in Totals._fields)))


def _number(document: Mapping[str, Json], name: str) -> Any:
    value: Any = document[name]
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not (whole or (name == "since" and isinstance(value, float))) or not 0 <= value <= MOST:
        raise ValueError(f"the counter {name} is {value!r:.40}")
    return value
