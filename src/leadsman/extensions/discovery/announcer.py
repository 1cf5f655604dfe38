"""Publishes the descriptions of an app's devices and how these are, and removes those of devices that it has no more.

After each connection the broker sends the descriptions that it has, since they are retained. A moment later, what
differs is published, and what this app published for a device that is gone is removed. A description that another
program published is left alone. When a program that reads descriptions starts, all are published again.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import NamedTuple

from leadsman.core.events import Event, LinkUp
from leadsman.core.introspection.retained import APP
from leadsman.core.loop.clock import Clock
from leadsman.core.loop.slices import Slices, Work
from leadsman.core.monitoring.condition import condition_of
from leadsman.core.monitoring.statuses import StatusChange, Statuses
from leadsman.core.mqtt.connection import Received
from leadsman.core.mqtt.link import Link
from leadsman.core.mqtt.message import Message
from leadsman.core.runtime.other_topics import OtherTopics
from leadsman.core.text import clean, log_fields
from leadsman.core.text.log_lines import left_out_before, others
from leadsman.extensions.discovery.description import RetainedMessage
from leadsman.extensions.discovery.difference import Descriptions, Difference, difference
from leadsman.extensions.discovery.homeassistant import HomeAssistant
from leadsman.extensions.discovery.registered import DescribedDevices

RETAINED_WAIT = 1.0
"""Seconds from a connection until the broker has sent what it has. What comes later is compared as it comes."""
BIRTH_DELAY = (1.0, 5.0)
"""Seconds from the start of a reader until descriptions are published again; a random time between these, so that the
apps at one broker do not begin together (https://www.home-assistant.io/integrations/mqtt/#use-the-birth-and-will-messages-to-trigger-discovery)."""
MAX_OUTBOX_BYTES = 64 * 1024
"""Bytes in the outbox above which the next description waits, so that no reading waits behind many of them."""
OUTBOX_CHECK_INTERVAL = 0.02
"""Seconds between two looks at the outbox."""
SETTLING = 3.0
"""Seconds in which a reader does what a message asks for. Home Assistant may ignore what comes for an entity that it
is still removing."""
MAX_KEPT_BYTES, MAX_GONE_BYTES = 64 * 2**20, 8 * 2**20
"""Bytes of what the broker has that are kept until they are compared: of devices that there are, of which 10,000 need
40 MB at most, and of those that are gone. Anybody may have published them. What is more of the former counts as
another program's, and of the latter it stays until the next connection."""
CHANGE_CHECK_INTERVAL = 1.0
"""Seconds between two looks at what has changed."""
REFRESH = 60.0
"""Seconds between two messages about a device that only have a newer time of its last reading."""
DEVICES_PER_TURN = 100
"""Devices that are looked at in one turn of the loop."""
MAX_OUTBOX_MESSAGES = 1000
"""Messages in the outbox above which this waits, as the announcement of the devices does."""

logger = logging.getLogger("leadsman")


class Announcer:
    """Announces the devices of one app.

    Args:
        convention: describes them.
        registered: the devices.
        link: the connection to the broker.
        slices: does what is too long for one turn of the loop.
        other_topics: the retained topics that the registry lists.
        shared: whether other nodes of a cluster describe devices of this app, too, so that only a device that was
            forgotten here is gone.
        on_described: called with the name of a device when the broker has its description.
        on_repeated: called after all descriptions were published again.
    """

    def __init__(
        self,
        convention: HomeAssistant,
        registered: DescribedDevices,
        link: Link,
        slices: Slices,
        other_topics: OtherTopics,
        *,
        shared: bool,
        on_described: Callable[[str], None],
        on_repeated: Callable[[], None],
    ) -> None:
        self._convention = convention
        self._registered = registered
        self._link = link
        self._slices = slices
        self._others = other_topics
        self._shared = shared
        self._on_described = on_described
        self._on_repeated = on_repeated
        self._topics = convention.topics
        self._found: dict[str, dict[str, bytes]] = {}
        """The messages that the broker has, by the topic of the first message of a device, until they are compared. Of
        a device that is gone the payload matters only if it may come back: it is empty if the broker sent it."""
        self._due: dict[str, None] = {}
        """The topics of the first messages of the devices that are to be compared."""
        self._kept = {True: 0, False: 0}
        """Bytes of both, of devices that there are, and of devices that are gone."""
        self._settled = self._working = False
        self._lines = others()
        self._foreign: set[str] = set()
        """Topics at which another program published."""
        self._born = self._repeats = False
        """Whether a reader has started, and whether all descriptions are published again for one."""

    def listen(self) -> None:
        """Subscribe to the descriptions of this app, and to the starts of readers."""
        self._link.listen(self._convention.own, self._on_own)
        self._link.listen(self._convention.births, self._on_birth)

    def observe(self, event: Event) -> None:
        """Begin again with each connection."""
        if isinstance(event, LinkUp):
            self._found = {first: found for first, found in self._found.items() if first not in self._topics}
            self._kept = {True: 0, False: 0}
            self._settled = False
            self._foreign.clear()
            asyncio.get_running_loop().call_later(RETAINED_WAIT, self._settle, self._link.connects)

    def _settle(self, connects: int) -> None:
        """The broker has sent what it has: compare all of it."""
        if self._link.connects == connects:
            self._settled = True
            self._compare((*self._topics, *self._found))

    def change(self, convention: HomeAssistant, left: Mapping[str, Descriptions]) -> None:
        """Devices have come, changed or gone: compare what the convention that describes them has more, less, and of
        other devices. `left` has the descriptions of those that have gone or changed, of which some have come back, by
        the topics of their first messages."""
        new = [topic for topic in convention.topics if topic not in self._topics]
        self._convention, self._topics = convention, convention.topics
        for first, found in left.items():
            self._found[first] = {**found, **self._found.get(first, {})}
        self._compare((*new, *left))

    def _compare(self, topics: Iterable[str]) -> None:
        """Compare the messages of these devices with what the broker has, soon."""
        self._due.update(dict.fromkeys(topics))
        if self._due and self._settled and not self._working:
            self._working = True
            self._slices.begin("discovery", self._comparison(self._link.connects))

    def _comparison(self, connects: int) -> Work:
        """Publish what differs from what the broker has, and remove what is gone; no more at a time than the outbox has
        room for. A new connection compares everything again."""
        try:
            while self._due and (yield from self._room(connects)):
                first = next(iter(self._due))
                del self._due[first]
                self._bring(first)
                yield 0.0
            if not self._due:
                self._kept = {True: 0, False: 0}
                if self._repeats:
                    self._repeats = False
                    self._on_repeated()
        finally:
            self._working = False
        if self._settled:
            self._compare(())

    def _on_own(self, received: Received) -> None:
        """Keep what the broker has. What is not retained was published just now, by us in most cases."""
        if not received.retain or not received.payload:
            return
        topic, payload = received.topic, received.payload
        first = self._convention.first_of(topic)
        if self._others.seen is not None:
            self._others.seen.add(topic)
        wanted = first in self._topics
        if not wanted and not self._convention.is_ours(payload):
            self._foreign.add(topic)
        elif wanted or not self._shared:  # in a cluster it may be of a device of another node
            size = len(payload) if wanted else len(topic)
            if self._kept[wanted] + size <= (MAX_KEPT_BYTES if wanted else MAX_GONE_BYTES):
                self._kept[wanted] += size
                self._found.setdefault(first, {})[topic] = payload if wanted else b""
                self._compare((first,))
            elif wanted:
                self._foreign.add(topic)

    def _log_removed(self, topic: str) -> None:
        left_out = self._lines.left_out("removed", asyncio.get_running_loop().time())
        if left_out is not None:
            text, more = "%s: removed, since the device is gone%s", left_out_before(left_out)
            logger.info(text, clean(topic), more, extra=log_fields("discovery removed"))

    def _bring(self, first: str) -> None:
        """Make the description of a device what it should be. Nothing describes one that is not there."""
        if self._is_forgotten(first):
            return  # the next change removes what the broker has
        known, wanted = self._found.pop(first, {}), self._wanted(first)
        change = difference(self._convention, known, wanted)
        self._foreign.update(change.foreign)
        topics = dict.fromkeys((first, *(each.topic for each in wanted))) if first in self._topics else {}
        foreign = next((topic for topic in topics if topic in self._foreign), None)
        if foreign is not None:
            self._give_up(first, foreign, topics)
            return
        for topic in topics:
            self._others.add(self._topics[first] or APP, topic)
        if change.moves:
            self._slices.begin("discovery", self._move(first, known, change.moves))
        else:
            self._publish(first, change)

    def _give_up(self, first: str, foreign: str, topics: Iterable[str]) -> None:
        """Leave a device without a description, since another program published at one of its topics."""
        self._foreign.add(first)
        for topic in topics:
            self._others.remove(self._topics[first] or APP, topic)  # it is no longer ours to remove
        logger.warning(
            "Another program published the configuration at %s, so the device is not described; remove that "
            "configuration, and start the app again",
            clean(foreign),
            extra=log_fields("foreign discovery", topic=foreign),
        )

    def _move(self, first: str, known: Descriptions, moves: Sequence[RetainedMessage]) -> Work:
        """Ask readers to let go of what is at another topic from now on, one message after the other, and then replace
        the messages. If the connection breaks, the broker still has the old ones, and the next comparison begins
        again."""
        link = self._link
        connects = link.connects
        for each in moves:
            link.put(Message(each.topic, each.payload, qos=1, remade=True))
            while link.connects == connects and each.topic in link.outbox:
                yield OUTBOX_CHECK_INTERVAL
            yield SETTLING
            if link.connects != connects or first not in self._topics:
                return
        if not self._is_forgotten(first):
            unloaded = {each.topic for each in moves}
            self._publish(first, difference(self._convention, known, self._wanted(first), unloaded))

    def _publish(self, first: str, change: Difference) -> None:
        """Publish what differs, and remove what the device no longer has."""
        for steps in change.publish:
            for step in steps:
                self._put(step, latest=len(steps) == 1)
        for topic in change.remove:
            if topic not in self._foreign:
                self._put(RetainedMessage(topic, b""), latest=True)
                self._log_removed(topic)
        name = self._topics.get(first)
        if name is not None:
            self._on_described(name)

    def _is_forgotten(self, first: str) -> bool:
        """Whether a device was forgotten, and the change that removes it waits."""
        name = self._topics.get(first)
        return name is not None and name not in self._registered

    def _wanted(self, first: str) -> Sequence[RetainedMessage]:
        """The description of a device; empty if there is none."""
        if first not in self._topics:
            return ()
        name = self._topics[first]
        if name is None:
            return (self._convention.describe_app(),)
        return self._convention.describe(self._registered.device(name))

    def _put(self, step: RetainedMessage, *, latest: bool) -> None:
        self._link.put(Message(step.topic, step.payload, qos=1, retain=True, latest=latest, remade=True))

    def _room(self, connects: int) -> Generator[float, None, bool]:
        """Wait until the outbox has room. Returns whether the connection is still the same one."""
        link = self._link
        while link.connects == connects and link.outbox.bytes > MAX_OUTBOX_BYTES:
            yield OUTBOX_CHECK_INTERVAL
        return link.connects == connects

    def _on_birth(self, received: Received) -> None:
        """A reader of descriptions has started. A retained message means that it started some time ago, and it then has
        what is retained."""
        if not received.retain and self._convention.is_birth(received.payload) and not self._born:
            self._born = True
            asyncio.get_running_loop().call_later(random.uniform(*BIRTH_DELAY), self._repeat)

    def _repeat(self) -> None:
        """Publish all descriptions again, as if the broker had none, and then how the devices are. What is compared now
        goes before."""
        if not self._settled or self._working:
            asyncio.get_running_loop().call_later(RETAINED_WAIT, self._repeat)
            return
        self._born, self._repeats = False, True
        self._compare(topic for topic in self._topics if topic not in self._foreign)


class _PublishedHealth(NamedTuple):
    """The health of a device as it was published last."""

    status: str
    circuit: str
    failures: int
    success: float | None
    offline: bool
    at: float
    """Monotonic seconds."""
    message: RetainedMessage


class HealthTopics:
    """Publishes how each device is, as Home Assistant reads it.

    It is small, and about one device, where the heartbeat is about all of them. A change is published within a second;
    the time of the last success alone at most once a minute. Nothing is published about a device before the broker has
    its description.

    Args:
        convention: makes the message.
        statuses: the statuses of the devices.
        link: sends the messages.
        clock: the clocks.
        slices: does the work of many devices.
    """

    def __init__(self, convention: HomeAssistant, statuses: Statuses, link: Link, clock: Clock, slices: Slices) -> None:
        self._convention = convention
        self._statuses = statuses
        self._link = link
        self._clock = clock
        self._slices = slices
        self._published: dict[str, _PublishedHealth] = {}
        self._described: set[str] = set()
        """The devices whose descriptions the broker has, as far as this connection showed."""
        self._due: dict[str, None] = {}
        """Devices of which something may be new."""
        self._turning = False
        statuses.on_change.add(self._note)

    def observe(self, event: Event) -> None:
        """Note the device that an event is about. It is looked at within a second."""
        entity: str | None = getattr(event, "entity", None)
        if entity is not None:
            self._due[entity] = None
        elif isinstance(event, LinkUp):
            self._described.clear()
            self._published.clear()
        if not self._turning:
            self._turning = True
            self._slices.begin("the health of the devices", self._turns())

    def _note(self, change: StatusChange) -> None:
        """The status of a device changed without an event about it."""
        self._due[change.entity] = None

    def on_described(self, name: str) -> None:
        """The broker has the description of a device, so its condition is published, within a second."""
        self._described.add(name)
        self._published.pop(name, None)
        self._due[name] = None

    def change(self, convention: HomeAssistant) -> None:
        """Devices have come or gone."""
        self._convention = convention

    def forget(self, entity: str) -> None:
        """Remove a device, after its last event."""
        self._described.discard(entity)
        self._published.pop(entity, None)
        self._due.pop(entity, None)

    def _turns(self) -> Work:
        """Look at the devices that are due, and at those in trouble, whose status time alone may change."""
        try:
            while True:
                yield CHANGE_CHECK_INTERVAL
                self._statuses.refresh(self._clock.monotonic())
                due, self._due = {**self._due, **self._statuses.troubled}, {}
                for number, entity in enumerate(due, 1):
                    self._publish_health(entity)
                    if number % DEVICES_PER_TURN == 0:
                        yield CHANGE_CHECK_INTERVAL if self._link.outbox.messages > MAX_OUTBOX_MESSAGES else 0.0
        finally:  # after a fault of ours, the next event begins again
            self._turning = False

    def _publish_health(self, entity: str) -> None:
        """Publish the health of a device if it is new. If only the last success is, it may stay due."""
        if entity not in self._statuses.words or entity not in self._described:
            return
        health, now = self._statuses.records[entity], self._clock.monotonic()
        status, offline = self._statuses.words[entity], entity in self._statuses.offline
        failures, last = health.trouble.failures, self._published.get(entity)
        if last is not None and last[:3] == (status, health.circuit, failures) and last.offline == offline:
            if last.success == health.success_wall:
                return
            if now - last.at < REFRESH:
                self._due[entity] = None
                return
        message = self._convention.condition(entity, condition_of(health, now, self._clock.wall()))
        news = _PublishedHealth(status, health.circuit, failures, health.success_wall, offline, now, message)
        self._published[entity] = news
        if last is None or message != last.message:
            self._link.put(Message(message.topic, message.payload, qos=1, retain=True, latest=True))
