"""Publishes the ledger of each device at ``{prefix}/{device}/ledger``, and saves it.

The ledger begins a new period at each full hour of the wall clock, and is published then; and within a minute after a
gap has ended. Nothing is published while there is no connection, but within a minute after the next one.
"""

from collections.abc import Iterable, Iterator, Sequence

from leadsman.core.event_bus import EventBus
from leadsman.core.events import LinkUp
from leadsman.core.loop.slices import Slices
from leadsman.core.mqtt.link import Link
from leadsman.core.mqtt.message import Message
from leadsman.core.mqtt.topics import Topics, encode
from leadsman.core.observers import Observers
from leadsman.core.resilience.environment import Environment
from leadsman.extensions.ledger.ledgers import Ledgers
from leadsman.extensions.ledger.saved import HOUR, LedgerRow

PUBLISHED_SPAN = 24 * HOUR
"""Seconds of history in the message of a device. Introspection has all of it."""
MAX_PUBLISHED_GAPS = 20
"""Gaps in the message of a device."""
MINUTE = 60.0
"""Seconds from one look at the ledgers to the next."""
MINUTE_TOLERANCE = 1.0
"""Seconds before a full minute in which it counts as begun, since a timer may ring early by the wall clock."""
DEVICES_PER_TURN = 10
"""Devices in one turn of the event loop."""
MAX_OUTBOX_BYTES = 512 * 1024
"""Bytes in the outbox above which the next device waits, so that ledgers do not displace readings."""
OUTBOX_CHECK_INTERVAL = 0.1
"""Seconds between two looks at the outbox."""


class LedgerReports:
    """Publishes and saves the ledgers of an app. An alarm in the heap.

    Args:
        topics: the topics of the app.
        link: sends the messages.
        environment: clock and timers.
        slices: publishes the ledgers of all devices.
    """

    def __init__(self, topics: Topics, link: Link, environment: Environment, slices: Slices) -> None:
        self.ledgers = Ledgers(environment.clock)
        """The ledgers."""
        self.saved: Observers[[str, Sequence[LedgerRow]]] = Observers("saving a ledger", environment.events.emit)
        """Called with the changed rows of a ledger and the name of its device, to have them saved."""
        self._topics = topics
        self._link = link
        self._environment = environment
        self._slices = slices
        self._hour = self._current_hour()
        self._publishing = False
        self._published = False  # whether the broker has one

    def subscribe(self, events: EventBus) -> None:
        """Let the ledgers observe what happens, and publish them again where that is needed."""
        self.ledgers.subscribe(events)
        events.subscribe_to(LinkUp, self._on_connection)

    def start(self) -> None:
        """Begin to publish."""
        self._arm()

    def stop(self, *, durable: bool) -> None:
        """The app has ended, and the broker has all that it will have. ``durable``: the readings that still wait are on
        disk, and sent by its next life."""
        if not durable:
            self.ledgers.end()
        for name in self.ledgers:
            self._save(name, stopped=True)

    def ring(self, now: float) -> None:
        """A full minute: publish what is new, which at a full hour is each ledger, since a new period begins."""
        self._arm()
        if self._hour != (hour := self._current_hour()):
            self._hour = hour
            self._slices.begin("the ledger", self._begin_periods())
        if self._link.up and not self._publishing:
            self._slices.begin("the ledger", self._publish_news())

    def restore(self, name: str, found: Iterable[LedgerRow], *, durable: bool) -> None:
        """Continue the ledger of an earlier run. ``durable``: the readings that waited as it ended are on disk.

        Raises:
            LookupError, TypeError, ValueError: the rows are damaged.
        """
        changed = self.ledgers.restore(name, found, durable=durable)
        if changed:
            self.saved(name, changed)

    def _on_connection(self, event: LinkUp) -> None:
        """A broker that has lost the session may have lost what it retained, too."""
        if self._published and not self._link.resumed:
            for name in self.ledgers:
                self.ledgers[name].news = True

    def _current_hour(self) -> float:
        return (self._environment.clock.wall() + MINUTE_TOLERANCE) // HOUR

    def _arm(self) -> None:
        """Ring at the next full minute of the wall clock."""
        clock = self._environment.clock
        wait = MINUTE - (clock.wall() + MINUTE_TOLERANCE) % MINUTE + MINUTE_TOLERANCE
        self._environment.timers.add(clock.monotonic() + wait, self)

    def _begin_periods(self) -> Iterator[float]:
        """Begin a period of each ledger, and save the one before."""
        clock = self._environment.clock
        for number, name in enumerate(tuple(self.ledgers), 1):
            if name in self.ledgers:  # else it was forgotten meanwhile
                self._save(name, stopped=False)
                ledger = self.ledgers[name]
                ledger.begin(clock.uptime(), clock.monotonic())
                ledger.news = True
            if number % DEVICES_PER_TURN == 0:
                yield 0.0

    def _publish_news(self) -> Iterator[float]:
        """Publish each ledger that is new, and save it."""
        self._publishing = True
        try:
            published = 0
            for name in tuple(self.ledgers):
                while self._link.up and self._link.outbox.bytes > MAX_OUTBOX_BYTES:
                    yield OUTBOX_CHECK_INTERVAL
                if name in self.ledgers and self.ledgers[name].news and self._link.up:
                    self._publish(name)
                    published += 1
                    if published % DEVICES_PER_TURN == 0:
                        yield 0.0
        finally:
            self._publishing = False

    def _publish(self, name: str) -> None:
        entry = self.ledgers[name]
        entry.news = False
        self._save(name, stopped=False)
        if entry.job:
            return
        self._published = True
        since = self._environment.clock.wall() - PUBLISHED_SPAN
        payload = encode(self.ledgers.document(name, since, MAX_PUBLISHED_GAPS))
        self._link.put(Message(self._topics.of(name, "ledger"), payload, 1, retain=True, latest=True))

    def _save(self, name: str, *, stopped: bool) -> None:
        if self.saved and (changed := [*self.ledgers.rows(name, stopped=stopped)]):
            self.saved(name, changed)
