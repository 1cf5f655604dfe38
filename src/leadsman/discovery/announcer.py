"""Publishes the descriptions of an app's devices and how these are, and removes those of devices that it has no more.

After each connection the broker sends the descriptions that it has, since they are retained. A moment later, what
differs is published, and what this app published for a device that is gone is removed. A description that another
program published is left alone. When a program that reads descriptions starts, all are published again.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from typing import NamedTuple

from leadsman.discovery.description import Convention, RetainedMessage
from leadsman.discovery.registered import DescribedDevices
from leadsman.events import Event, LinkUp
from leadsman.introspection.retained import APP, RemovedDescriptions
from leadsman.loop.clock import Clock
from leadsman.loop.slices import Slices, Work
from leadsman.monitoring.condition import condition_of
from leadsman.monitoring.statuses import StatusChange, Statuses
from leadsman.mqtt.connection import Received
from leadsman.mqtt.link import Link
from leadsman.mqtt.message import Message
from leadsman.runtime.other_topics import OtherTopics
from leadsman.text import clean, log_fields
from leadsman.text.log_lines import left_out_before, others

GRACE = 1.0
"""Seconds from a connection until the broker has sent what it has. What comes later is compared as it comes."""
BIRTH_DELAY = (1.0, 5.0)
"""Seconds from the start of a reader until descriptions are published again; a random time between these, so that the
apps at one broker do not begin together (https://www.home-assistant.io/integrations/mqtt/#use-the-birth-and-will-messages-to-trigger-discovery)."""
MOST_WAITING = 64 * 1024
"""Bytes in the outbox above which the next description waits, so that no reading waits behind many of them."""
PAUSE = 0.02
"""Seconds between two looks at the outbox."""
SETTLING = 3.0
"""Seconds in which a reader does what a message asks for. Home Assistant may ignore what comes for an entity that it
is still removing."""
MOST_KEPT, MOST_GONE = 64 * 2**20, 8 * 2**20
"""Bytes of what the broker has that are kept until they are compared: of devices that there are, of which 10,000 need
40 MB at the most, and of those that are gone. Anybody may have published them. What is more of the former counts as
another program's, and of the latter it stays until the next connection."""
TURN = 1.0
"""Seconds between two looks at what has changed."""
REFRESH = 60.0
"""Seconds between two messages about a device that only have a newer time of its last reading."""
SLICE = 100
"""Devices that are looked at in one turn of the loop."""
MOST_MESSAGES = 1000
"""Messages in the outbox above which this waits, as the announcement of the devices does."""
Descriptions = Mapping[str, bytes]
"""The messages that describe one device, by topic."""

logger = logging.getLogger("leadsman")


class Announcer:
    """Announces the devices of one app.

    Args:
        convention: describes them.
        registered: the devices.
        link: the connection to the broker.
        slices: does what is too long for one turn of the loop.
        clock: the clock of the app.
        other_topics: the retained topics that the registry lists.
        removed: the descriptions that were removed.
        shared: whether other nodes of a cluster describe devices of this app, too, so that only a device that was
            forgotten here is gone.
    """

    def __init__(
        self,
        convention: Convention,
        registered: DescribedDevices,
        link: Link,
        slices: Slices,
        clock: Clock,
        other_topics: OtherTopics,
        removed: RemovedDescriptions,
        *,
        shared: bool,
    ) -> None:
        self._convention = convention
        self._registered = registered
        self._link = link
        self._slices = slices
        self._clock = clock
        self._others = other_topics
        self._removed = removed
        self._shared = shared
        self.on_described: list[Callable[[str | None, bool], None]] = []
        """Called when the broker has the description of a device, or of the app (None): with its name, and whether it
        was published just now."""
        self.on_repeated: list[Callable[[], None]] = []
        """Called after all descriptions were published again."""
        self._topics = convention.topics
        self._found: dict[str, dict[str, bytes]] = {}
        """The messages that the broker had at the beginning of this connection, until they are compared, by the topic
        of the first message of a device."""
        self._gone: dict[str, bytes] = {}
        """The messages that this app published for devices that are gone, by topic, until they are removed."""
        self._kept = self._kept_gone = 0
        """Bytes of both that are of devices that there are, and of devices that are gone."""
        self._removing = False
        self._lines = others()
        self._settled = False
        self._compared = False
        """Whether it is known which topics of this connection are of other programs."""
        self._foreign: set[str] = set()
        """Topics at which another program published."""
        self._repeating = False
        """Whether all descriptions are, or will be, published again."""
        self._before: Convention | None = None
        """The convention before a change that waits; None if none waits."""
        self._left: dict[str, Descriptions] = {}
        """The descriptions of devices that were gone meanwhile, by name."""
        self._app: Descriptions = {}
        """The description of the app that the broker has."""
        self._born_again = False
        """Whether a reader started meanwhile."""

    def listen(self) -> None:
        """Subscribe to the descriptions of this app, and to the starts of readers."""
        listeners = self._link.subscriptions.listeners
        listeners[self._convention.own] = self._on_own
        if self._convention.births is not None:
            listeners[self._convention.births] = self._on_birth

    def observe(self, event: Event) -> None:
        """Begin again with each connection."""
        if isinstance(event, LinkUp):
            self._found.clear()
            self._gone.clear()
            self._kept = self._kept_gone = 0
            self._settled = self._compared = False
            self._foreign.clear()
            connects = self._link.connects
            asyncio.get_running_loop().call_later(GRACE, self._compare, connects)

    def change(self, convention: Convention, left: Mapping[str, Descriptions]) -> None:
        """Devices have come or gone: publish and remove what the convention that describes them has more and less.
        `left` has the descriptions of those that have gone, of which some have come back."""
        self._left.update(left)
        waits = self._before is not None
        self._before = self._before or self._convention
        self._convention, self._topics = convention, convention.topics
        if not waits:
            self._slices.begin("discovery", self._change())

    def _change(self) -> Work:
        while not self._compared:  # a comparison that has not begun includes the change
            yield GRACE
        before, self._before = self._before or self._convention, None
        left, self._left = self._left, {}
        former, connects = before.topics, self._link.connects
        for topic, name in self._topics.items():
            if name is None or (topic in former and name not in left):
                continue
            if not (yield from self._room(connects)):
                return
            if topic in self._topics:
                self._bring(topic, left.get(name) or self._not_yet_removed(topic))
            yield 0.0
        for topic in [topic for topic, name in self._topics.items() if name is None and topic not in self._foreign]:
            self._bring(topic, self._app)  # the app may list its devices
        gone = {topic: name for topic, name in former.items() if topic not in self._topics}
        for topic in [topic for topic, name in gone.items() if not self._shared or name in left]:
            if not (yield from self._room(connects)):
                return
            if topic not in self._topics and topic not in self._foreign:
                descriptions = left.get(former[topic] or "", {})
                for each in descriptions:
                    self._note_removal(each, descriptions[each])
                for each in dict.fromkeys((topic, *descriptions)):
                    self._put(RetainedMessage(each, b""), latest=True)
            yield 0.0

    def _compare(self, connects: int) -> None:
        if self._link.connects == connects:
            self._settled = True
            self._slices.begin("discovery", self._comparison(connects))

    def _comparison(self, connects: int) -> Work:
        """Publish what differs from what the broker has, and remove what is gone."""
        found, self._found = self._found, {}
        self._kept = 0
        for topic in self._topics:
            if not (yield from self._room(connects)):
                return
            if topic in self._topics:  # its device may be forgotten meanwhile
                self._bring(topic, found.pop(topic, {}))
            yield 0.0
        for messages in () if self._shared else found.values():
            self._gone |= messages
        self._compared = True
        self._begin_removal()

    def _on_own(self, received: Received) -> None:
        """Keep what the broker has. What is not retained was published just now, by us in most cases."""
        if not received.retain or not received.payload:
            return
        topic, payload = received.topic, received.payload
        first, size = self._convention.first_of(topic), len(payload)
        if first in self._topics:
            if self._settled:
                self._bring(first, {topic: payload})
            elif self._kept + size <= MOST_KEPT:
                self._kept += size
                self._found.setdefault(first, {})[topic] = payload
            else:
                self._leave(topic)
        elif not self._convention.is_ours(payload):
            self._leave(topic)
        elif self._kept_gone + size <= MOST_GONE:
            if not self._settled:
                self._kept_gone += size
                self._found.setdefault(first, {})[topic] = payload
            elif not self._shared:
                self._kept_gone += size
                self._gone[topic] = payload
                self._begin_removal()

    def _not_yet_removed(self, topic: str) -> Descriptions:
        """The descriptions that the broker has of a device that was gone, and has come back."""
        payload = self._gone.pop(topic, b"")
        self._kept_gone -= len(payload)
        return {topic: payload} if payload else {}

    def _begin_removal(self) -> None:
        if self._compared and self._gone and not self._removing:
            self._removing = True
            self._slices.begin("discovery", self._removal())

    def _removal(self) -> Work:
        """Remove what is gone, and no more at a time than the outbox has room for."""
        connects = self._link.connects
        try:
            while self._gone:
                topic, payload = next(iter(self._gone.items()))
                if self._convention.first_of(topic) not in self._topics:
                    self._note_removal(topic, payload)
                if not (yield from self._room(connects)):
                    return
                if self._convention.first_of(topic) not in self._topics:  # else its device has come back meanwhile
                    self._put(RetainedMessage(topic, b""), latest=True)
                    self._log_removed(topic)
                yield 0.0
                if self._gone.pop(topic, None) is not None:
                    self._kept_gone -= len(payload)
        finally:
            self._removing = False

    def _note_removal(self, topic: str, payload: bytes) -> None:
        """List a description that is about to be removed, for readers that are away."""
        if self._convention.births is not None:
            self._removed.add(topic, payload, self._clock.wall())
            self._others.changed()

    def _log_removed(self, topic: str) -> None:
        left_out = self._lines.left_out("removed", asyncio.get_running_loop().time())
        if left_out is not None:
            text, more = "%s: removed, since the device is gone%s", left_out_before(left_out)
            logger.info(text, clean(topic), more, extra=log_fields("discovery removed"))

    def _bring(self, topic: str, found: Descriptions) -> None:
        """Make the description of a device what it should be; `found` is what the broker has, by topic."""
        name = self._topics[topic]
        if self._is_gone(name):
            return  # the next change removes what the broker has
        wanted = self._description(topic)
        kept = dict.fromkeys((topic, *(each.topic for each in wanted)))
        foreign = self._foreign_in(topic, found, wanted)
        if foreign is not None:
            self._foreign.add(topic)
            for each in kept:
                self._others.remove(name or APP, each)  # it is no longer ours to remove
            logger.warning(
                "Another program published the configuration at %s, so the device is not described; remove that "
                "configuration, and start the app again",
                clean(foreign),
                extra=log_fields("foreign discovery", topic=foreign),
            )
            return
        for each in kept:
            self._others.add(name or APP, each)
            self._removed.forget(each)
        several = found and {topic} != found.keys() | {each.topic for each in wanted}
        moves = self._convention.moves(found, wanted) if several else ()
        if moves:
            self._slices.begin("discovery", self._move(topic, moves, found))
        else:
            self._replace(topic, found, wanted)

    def _foreign_in(self, topic: str, found: Descriptions, wanted: Sequence[RetainedMessage]) -> str | None:
        """A topic of a device at which another program published; None if there is none."""
        if topic in self._foreign:
            return topic
        for each, payload in wanted:
            at = found.get(each, b"")
            if at not in (b"", payload) and not self._convention.is_ours(at):
                return each
        return None

    def _move(self, topic: str, moves: Sequence[RetainedMessage], found: Descriptions) -> Work:
        """Ask readers to let go of what is at another topic from now on, one message after the other, and then replace
        the messages. If the connection breaks, the broker still has the old ones, and the next comparison begins
        again."""
        link = self._link
        connects = link.connects
        for each in moves:
            link.put(Message(each.topic, each.payload, qos=1, remade=True))
            while link.connects == connects and each.topic in link.outbox:
                yield PAUSE
            yield SETTLING
            if link.connects != connects or topic not in self._topics:
                return
        if not self._is_gone(self._topics[topic]):
            unloaded = {each.topic for each in moves}
            self._replace(topic, found, self._description(topic), unloaded)

    def _replace(
        self, topic: str, found: Descriptions, wanted: Sequence[RetainedMessage], unloaded: Collection[str] = ()
    ) -> None:
        """Publish what differs. Nothing of the messages at `unloaded` is left at readers."""
        name, before = self._topics[topic], {at: b"" if at in unloaded else found[at] for at in found}
        sent = False
        for each in wanted:
            steps = self._convention.steps(before.get(each.topic, b""), each)
            sent = sent or bool(steps)
            for step in steps:
                self._put(step, latest=len(steps) == 1)
            if name is None:
                self._app = {each.topic: steps[-1].payload} if steps else found
        for at in found.keys() - {each.topic for each in wanted}:
            self._remove(at, found[at])
        for follow in self.on_described:
            follow(name, sent)

    def _remove(self, topic: str, found: bytes) -> None:
        """Remove a message that a device no longer needs, if this app published it."""
        if self._convention.is_ours(found):
            self._log_removed(topic)
            self._put(RetainedMessage(topic, b""), latest=True)
        else:
            self._leave(topic)

    def _leave(self, topic: str) -> None:
        """Leave the description of another program alone. A device that is found later may have its topic."""
        if topic.startswith(self._convention.below):
            self._foreign.add(topic)

    def _is_gone(self, name: str | None) -> bool:
        """Whether a device was forgotten, and the change that removes it waits."""
        return name is not None and name not in self._registered

    def _description(self, topic: str) -> Sequence[RetainedMessage]:
        name = self._topics[topic]
        if name is None:
            return (self._convention.describe_app(),)
        return self._convention.describe(self._registered.device(name))

    def _put(self, step: RetainedMessage, *, latest: bool) -> None:
        self._link.put(Message(step.topic, step.payload, qos=1, retain=True, latest=latest, remade=True))

    def _room(self, connects: int) -> Generator[float, None, bool]:
        """Wait until the outbox has room. Returns whether the connection is still the same one."""
        link = self._link
        while link.connects == connects and link.outbox.bytes > MOST_WAITING:
            yield PAUSE
        return link.connects == connects

    def _on_birth(self, received: Received) -> None:
        """A reader of descriptions has started. A retained message means that it started some time ago, and it then has
        what is retained."""
        if received.retain or not self._convention.is_birth(received.payload):
            return
        if self._repeating:
            self._born_again = True
            return
        self._repeating = True
        asyncio.get_running_loop().call_later(random.uniform(*BIRTH_DELAY), self._repeat)

    def _repeat(self) -> None:
        self._born_again = False
        self._slices.begin("discovery", self._repetition())

    def _repetition(self) -> Work:
        """Publish all descriptions again, then how the devices are; and once more if a reader started meanwhile."""
        try:
            while not self._compared:
                yield GRACE
            connects = self._link.connects
            for topic in self._topics:
                if not (yield from self._room(connects)):
                    return
                if topic in self._topics and topic not in self._foreign and not self._is_gone(self._topics[topic]):
                    for each in self._description(topic):
                        self._put(each, latest=True)
                yield 0.0
            for follow in self.on_repeated:
                follow()
            yield from self._remove_again(connects)
            if self._born_again:
                self._born_again = False
                yield BIRTH_DELAY[1]
                yield from self._repetition()
        finally:
            self._repeating = False

    def _remove_again(self, connects: int) -> Work:
        """Describe once more what was removed while a reader was away, and then remove it again. A reader that still
        has the entities of such a device takes them for those of this description, and so removes them with it. The
        broker keeps none of this."""
        gone = self._removed.current(self._clock.wall())
        for each in gone:
            if not (yield from self._room(connects)):
                return
            self._put_unless_back(each.topic, each.payload)
            yield 0.0
        yield SETTLING if gone else 0.0
        for each in gone:
            if not (yield from self._room(connects)):
                return
            self._put_unless_back(each.topic, b"")
            self._removed.forget(each.topic)
            yield 0.0
        if gone:
            self._others.changed()

    def _put_unless_back(self, topic: str, payload: bytes) -> None:
        first = self._convention.first_of(topic)
        if first not in self._topics and first not in self._foreign:
            self._link.put(Message(topic, payload, qos=1, remade=True))


class _PublishedHealth(NamedTuple):
    """The health of a device as it was published last."""

    status: str
    circuit: str
    failures: int
    success: float | None
    offline: bool
    at: float
    """Monotonic seconds."""
    messages: tuple[RetainedMessage, ...]


class HealthTopics:
    """Publishes how each device is, in the form of the convention of discovery.

    It is small, and about one device, where the heartbeat is about all of them. A change is published within a second;
    the time of the last success alone at most once a minute. Nothing is published about a device before the broker has
    its description.

    Args:
        convention: makes the messages.
        statuses: the statuses of the devices.
        link: sends the messages.
        clock: the clocks.
        slices: does the work of many devices.
    """

    def __init__(self, convention: Convention, statuses: Statuses, link: Link, clock: Clock, slices: Slices) -> None:
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
        statuses.on_change.append(self._note)

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

    def announce(self) -> None:
        """Publish the health of all devices again, within a second."""
        self._published.clear()
        self._due.update(dict.fromkeys(self._statuses.words))

    def on_described(self, name: str) -> None:
        """The broker has the description of a device, so its condition is published, within a second."""
        self._described.add(name)
        self._published.pop(name, None)
        self._due[name] = None

    def change(self, convention: Convention) -> None:
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
                yield TURN
                self._statuses.refresh(self._clock.monotonic())
                due, self._due = {**self._due, **self._statuses.troubled}, {}
                for number, entity in enumerate(due, 1):
                    self._look(entity)
                    if number % SLICE == 0:
                        yield TURN if self._link.outbox.messages > MOST_MESSAGES else 0.0
        finally:  # after a fault of ours, the next event begins again
            self._turning = False

    def _look(self, entity: str) -> None:
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
        before = () if last is None else last.messages
        messages = tuple(self._convention.condition(entity, condition_of(health, now, self._clock.wall())))
        news = _PublishedHealth(status, health.circuit, failures, health.success_wall, offline, now, messages)
        self._published[entity] = news
        for each in messages:
            if each not in before:
                self._link.put(Message(each.topic, each.payload, qos=1, retain=True, latest=True))
