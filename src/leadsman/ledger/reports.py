"""Publishes the ledger of each device at ``{prefix}/{device}/ledger``, and saves it.

The ledger begins a new period at each full hour of the wall clock, and is published then; and within a minute after a
gap has ended. Nothing is published while there is no connection, but a minute after the next one.
"""

import asyncio
import math
from collections.abc import Callable, Iterable, Iterator

from leadsman.event_bus import EventBus
from leadsman.events import LinkUp
from leadsman.ledger.ledgers import Ledgers
from leadsman.ledger.saved import HOUR, LedgerRow
from leadsman.loop.slices import Slices
from leadsman.mqtt.link import Link
from leadsman.mqtt.message import Message
from leadsman.mqtt.topics import Topics, encode
from leadsman.resilience.environment import Environment

PUBLISHED_SPAN = 24 * HOUR
"""Seconds of history in the message of a device. Introspection has all of it."""
MOST_PUBLISHED = 20
"""Gaps in the message of a device."""
SOON = 60.0
"""Seconds between two times at which gaps that have ended are published; and from a connection to the ledgers that
could not be published without it, or that the broker may have lost with the session."""
SLICE = 10
"""Devices in one turn of the event loop."""
MOST_WAITING = 512 * 1024
"""Bytes in the outbox above which the next device waits, so that ledgers do not displace readings."""
PAUSE = 0.1
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
        self.ledgers = Ledgers(topics, environment.clock)
        """The ledgers."""
        self.save: Callable[[str, Iterable[LedgerRow]], None] | None = None
        """Takes the changed rows of a ledger, by the name of its device; None if no state is kept."""
        self.durable = False
        """Whether readings that wait as the app ends are on disk, and sent by its next life."""
        self._topics = topics
        self._link = link
        self._environment = environment
        self._slices = slices
        self._noticed = self._unpublished = self._published = self._repeats = False
        self._published_at = -math.inf

    def subscribe(self, events: EventBus) -> None:
        """Let the ledgers observe what happens, and publish them again where that is needed."""
        self.ledgers.subscribe(events)
        events.subscribe_to(LinkUp, self._on_connection)

    def start(self) -> None:
        """Begin to publish."""
        self.ledgers.on_news = self._on_news
        self._arm()

    def stop(self) -> None:
        """The app has ended, and the broker has all that it will have."""
        self.ledgers.on_news = None
        if not self.durable:
            self.ledgers.end()
        for name in self.ledgers:
            self._save(name, stopped=True)

    def ring(self, now: float) -> None:
        """A full hour: begin a new period."""
        self._arm()
        self._slices.begin("the ledger", self._round(self.ledgers, begin=True))

    def restore(self, name: str, found: Iterable[LedgerRow]) -> None:
        """Continue the ledger of an earlier run.

        Raises:
            LookupError, TypeError, ValueError: the rows are damaged.
        """
        changed = self.ledgers.restore(name, found, durable=self.durable)
        if changed and self.save is not None:
            self.save(name, changed)

    def _on_connection(self, event: LinkUp) -> None:
        """The broker gets what could not be published, and what it may have lost."""
        if self._unpublished or (self._published and not self._link.resumed):
            self._unpublished = False
            if not self._repeats:
                self._repeats = True
                asyncio.get_running_loop().call_later(SOON, self._publish_all)

    def _arm(self) -> None:
        """Ring at the next full hour of the wall clock, or at the one after it if that is less than a minute away."""
        clock = self._environment.clock
        wait = HOUR - clock.wall() % HOUR
        self._environment.timers.add(clock.monotonic() + wait + (HOUR if wait < SOON else 0.0), self)

    def _on_news(self) -> None:
        """A gap has ended."""
        if not self._noticed:
            self._noticed = True
            now = self._environment.clock.monotonic()
            wait = max(1.0, self._published_at + SOON - now)
            asyncio.get_running_loop().call_later(wait, self._publish_news)

    def _publish_all(self) -> None:
        self._repeats = False
        self._slices.begin("the ledger", self._round(self.ledgers, begin=False))

    def _publish_news(self) -> None:
        self._noticed, self._published_at = False, self._environment.clock.monotonic()
        names = [name for name in self.ledgers if self.ledgers[name].ledger.news]
        self._slices.begin("the ledger", self._round(names, begin=False))

    def _round(self, names: Iterable[str], *, begin: bool) -> Iterator[float]:
        """Publish these ledgers, and save them; with `begin`, a new period begins for each."""
        for number, name in enumerate(tuple(names), 1):
            if name not in self.ledgers:  # it was forgotten meanwhile
                continue
            entry = self.ledgers[name]
            self._save(name, stopped=False)
            if begin:
                clock = self._environment.clock
                entry.ledger.begin(clock.uptime(), clock.monotonic())
            entry.ledger.news = False
            if not entry.job:
                while self._link.up and self._link.outbox.bytes > MOST_WAITING:
                    yield PAUSE
                self._publish(name)
            if number % SLICE == 0:
                yield 0.0

    def _publish(self, name: str) -> None:
        if not self._link.up:
            self._unpublished = True
            return
        self._published = True
        since = self._environment.clock.wall() - PUBLISHED_SPAN
        payload = encode(self.ledgers.document(name, since, MOST_PUBLISHED))
        self._link.put(Message(self._topics.of(name, "ledger"), payload, 1, retain=True, latest=True))

    def _save(self, name: str, *, stopped: bool) -> None:
        if self.save is not None and (changed := self.ledgers.rows(name, stopped=stopped)):
            self.save(name, changed)
