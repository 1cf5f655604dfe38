"""What is measured of the ledgers."""

from collections.abc import Mapping, Sequence

from leadsman.core.introspection.added_measures import AddedMeasures, counter, gauge
from leadsman.extensions.ledger.ledger import Disposition, Ledger
from leadsman.extensions.ledger.ledgers import FINAL, Ledgers

SLOTS = counter("slots", "Times at which a device was due, by their outcome.", "handler", "disposition")
EVENTS = counter("events", "Events that a device sent, by their outcome.", "handler", "disposition")
AVAILABILITY = gauge(
    "availability_ratio", "Share of the slots of the last two days that gave a reading, 0 to 1.", "handler"
)
OF_EVENTS: tuple[Disposition, ...] = ("published", "replayed", "suppressed", "dropped")
"""The outcomes of an event."""


def measures(ledgers: Ledgers) -> AddedMeasures:
    """The families, each with what reads it."""

    def slots(name: str) -> Mapping[str, float]:
        """All dispositions, from 0: ``increase()`` does not see the first one of a series that begins with it."""
        kept = ledgers.get(name)
        return _counts(kept, FINAL) if kept is not None and kept.schedule.has_slots else {}

    def events(name: str) -> Mapping[str, float]:
        """As `slots`, of a device that sends events: each counts for itself."""
        kept = ledgers.get(name)
        return _counts(kept, OF_EVENTS) if kept is not None and kept.schedule.events else {}

    def availability(name: str) -> float | None:
        """0 to 1; None for a device without slots."""
        kept = ledgers.get(name)
        share = None if kept is None or not kept.schedule.has_slots else kept.availability()
        return None if share is None else share / 100

    return AddedMeasures(device={SLOTS: slots, EVENTS: events, AVAILABILITY: availability})


def _counts(ledger: Ledger, words: Sequence[Disposition]) -> Mapping[str, float]:
    counts = ledger.slots_since_start()
    return {word: counts.get(word, 0) for word in words}
