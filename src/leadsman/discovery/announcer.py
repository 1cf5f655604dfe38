"""Publishes the descriptions of an app's devices, and removes those of devices that it has no more.

After each connection the broker sends the descriptions that it has, since they are retained. A moment later, what
differs is published, and what this app published for a device that is gone is removed. A description that another
program published is left alone. When a program that reads descriptions starts, all are published again.
"""

import asyncio
import logging
from collections.abc import Callable, Generator, Mapping
from typing import NamedTuple

from leadsman.discovery.description import Convention, Retained
from leadsman.discovery.registered import Registered
from leadsman.events import Event, LinkUp
from leadsman.introspection.retained import APP
from leadsman.mqtt.connection import Received
from leadsman.mqtt.link import Link
from leadsman.mqtt.message import Message
from leadsman.runtime.other_topics import OtherTopics
from leadsman.slices import Slices, Work
from leadsman.text import clean, log_fields

GRACE = 1.0
"""Seconds from a connection until the broker has sent what it has. What comes later is compared as it comes."""
BIRTH_DELAY = (1.0, 5.0)
"""Seconds from the start of a reader until descriptions are published again; a random time between these, so that the
apps at one broker do not begin together (https://www.home-assistant.io/integrations/mqtt/#use-the-birth-and-will-messages-to-trigger-discovery)."""
MOST_WAITING = 64 * 1024
"""Bytes in the outbox above which the next description waits, so that no reading waits behind many of them."""
PAUSE = 0.02
"""Seconds between two looks at the outbox."""

logger = logging.getLogger("leadsman")


class Places(NamedTuple):
    """What the announcer works with."""

    link: Link
    slices: Slices
    draw: Callable[[], float]
    """A random number from 0 to 1."""
    say_again: Callable[[], None]
    """Publishes the availability and the health of all devices again."""
    described: Callable[[str | None, bool], None]
    """Called when the broker has a description: with the name of the device, or None for the app, and whether it is a
    new one."""
    others: OtherTopics
    """The retained topics that the registry lists."""


class Announcer:
    """Announces the devices of one app.

    Args:
        convention: describes them.
        registered: the devices.
        places: what it works with.
    """

    def __init__(self, convention: Convention, registered: Registered, places: Places) -> None:
        self._convention = convention
        self._registered = registered
        self._places = places
        self._topics = convention.topics
        self._found: dict[str, bytes] = {}
        """What the broker had at the beginning of this connection, until it is compared."""
        self._settled = False
        self._compared = False
        """Whether it is known which topics of this connection are of other programs."""
        self._foreign: set[str] = set()
        """Topics at which another program published."""
        self._repeating = False
        """Whether all descriptions are, or will be, published again."""
        self._before: Convention | None = None
        """The convention before a change that waits; None if none waits."""
        self._left: dict[str, bytes] = {}
        """The descriptions of devices that were gone meanwhile, by name."""
        self._app = b""
        """The description of the app that the broker has."""
        self._born_again = False
        """Whether a reader started meanwhile."""

    def listen(self) -> None:
        """Subscribe to the descriptions of this app, and to the starts of readers."""
        listeners = self._places.link.subscriptions.listeners
        listeners[self._convention.own] = self._on_own
        if self._convention.births is not None:
            listeners[self._convention.births] = self._on_birth

    def observe(self, event: Event) -> None:
        """Begin again with each connection."""
        if isinstance(event, LinkUp):
            self._found.clear()
            self._settled = self._compared = False
            self._foreign.clear()
            connects = self._places.link.connects
            asyncio.get_running_loop().call_later(GRACE, self._compare, connects)

    def change(self, convention: Convention, left: Mapping[str, bytes]) -> None:
        """Devices have come or gone: publish and remove what the convention that knows them has more and less. `left`
        has the descriptions of those that have gone, of which some have come back."""
        self._left.update(left)
        waits = self._before is not None
        self._before = self._before or self._convention
        self._convention, self._topics = convention, convention.topics
        if not waits:
            self._places.slices.begin("discovery", self._change())

    def _change(self) -> Work:
        while not self._compared:  # a comparison that has not begun includes the change
            yield GRACE
        before, self._before = self._before or self._convention, None
        left, self._left = self._left, {}
        former, connects = before.topics, self._places.link.connects
        for topic, name in self._topics.items():
            if name is None or (topic in former and name not in left):
                continue
            if not (yield from self._room(connects)):
                return
            if topic in self._topics:
                self._bring(topic, left.get(name, b""))
            yield 0.0
        for topic in [topic for topic, name in self._topics.items() if name is None and topic not in self._foreign]:
            self._bring(topic, self._app)  # the app may list its devices
        for topic in [topic for topic in former if topic not in self._topics]:
            if not (yield from self._room(connects)):
                return
            if topic not in self._topics and topic not in self._foreign:
                for each in before.kept(topic):
                    self._put(Retained(each, b""), latest=True)
            yield 0.0

    def _compare(self, connects: int) -> None:
        if self._places.link.connects == connects:
            self._settled = True
            self._places.slices.begin("discovery", self._comparison(connects))

    def _comparison(self, connects: int) -> Work:
        """Publish what differs from what the broker has, and remove what is gone."""
        found, self._found = self._found, {}
        for topic in self._topics:
            if not (yield from self._room(connects)):
                return
            if topic in self._topics:  # its device may be forgotten meanwhile
                self._bring(topic, found.pop(topic, b""))
            yield 0.0
        for topic, payload in found.items():
            self._remove(topic, payload)
            yield 0.0
        self._compared = True

    def _on_own(self, received: Received) -> None:
        """Keep what the broker has. What is not retained was published just now, by us in most cases."""
        if not received.retain or not received.payload:
            return
        if not self._settled:
            if received.topic in self._topics or self._convention.is_ours(received.payload):
                self._found[received.topic] = received.payload
            else:
                self._leave(received.topic)
        elif received.topic in self._topics:
            self._bring(received.topic, received.payload)
        else:
            self._remove(received.topic, received.payload)

    def _bring(self, topic: str, found: bytes) -> None:
        """Make the description at a topic what it should be; `found` is what the broker has."""
        name = self._topics[topic]
        if self._is_gone(name):
            return  # the next change removes what the broker has
        kept = self._convention.kept(topic)
        if topic in self._foreign or (found and not self._convention.is_ours(found)):
            self._foreign.add(topic)
            for each in kept:
                self._places.others.remove(name or APP, each)  # it is no longer ours to remove
            logger.warning(
                "Another program published the configuration at %s, so its device is not described; remove that one, "
                "and start the app again",
                clean(topic),
                extra=log_fields("foreign discovery", topic=topic),
            )
            return
        for each in kept:
            self._places.others.add(name or APP, each)
        steps = self._convention.steps(found, self._description(topic))
        for step in steps:
            self._put(step, latest=len(steps) == 1)
        if name is None:
            self._app = steps[-1].payload if steps else found
        self._places.described(name, bool(steps))

    def _remove(self, topic: str, found: bytes) -> None:
        """Remove the description of a device that is gone, if this app published it."""
        if self._convention.is_ours(found):
            logger.info("%s: removed, since the device is gone", clean(topic), extra=log_fields("discovery removed"))
            for each in self._convention.removal(topic, found):
                self._put(each, latest=True)
        else:
            self._leave(topic)

    def _leave(self, topic: str) -> None:
        """Leave the description of another program alone. A device that is found later may have its topic."""
        if topic.startswith(self._convention.below):
            self._foreign.add(topic)

    def _is_gone(self, name: str | None) -> bool:
        """Whether a device was forgotten, and the change that says so waits."""
        return name is not None and name not in self._registered

    def _description(self, topic: str) -> Retained:
        name = self._topics[topic]
        if name is None:
            return self._convention.describe_app()
        return self._convention.describe(self._registered.device(name))

    def _put(self, step: Retained, *, latest: bool) -> None:
        self._places.link.put(Message(step.topic, step.payload, qos=1, retain=True, latest=latest, remade=True))

    def _room(self, connects: int) -> Generator[float, None, bool]:
        """Wait until the outbox has room. Returns whether the connection is still the same one."""
        link = self._places.link
        while link.connects == connects and link.outbox.bytes > MOST_WAITING:
            yield PAUSE
        return link.connects == connects

    def _on_birth(self, received: Received) -> None:
        """A reader of descriptions has started. A retained message says that it started some time ago, and it then has
        what is retained."""
        if received.retain or not self._convention.is_birth(received.payload):
            return
        if self._repeating:
            self._born_again = True
            return
        self._repeating = True
        shortest, longest = BIRTH_DELAY
        delay = shortest + (longest - shortest) * self._places.draw()
        asyncio.get_running_loop().call_later(delay, self._repeat)

    def _repeat(self) -> None:
        self._born_again = False
        self._places.slices.begin("discovery", self._repetition())

    def _repetition(self) -> Work:
        """Publish all descriptions again, then how the devices are; and once more if a reader started meanwhile."""
        try:
            while not self._compared:
                yield GRACE
            connects = self._places.link.connects
            for topic in self._topics:
                if not (yield from self._room(connects)):
                    return
                if topic in self._topics and topic not in self._foreign and not self._is_gone(self._topics[topic]):
                    self._put(self._description(topic), latest=True)
                yield 0.0
            self._places.say_again()
            if self._born_again:
                self._born_again = False
                yield BIRTH_DELAY[1]
                yield from self._repetition()
        finally:
            self._repeating = False
