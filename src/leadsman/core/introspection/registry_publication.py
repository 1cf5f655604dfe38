"""Publishes the registry at ``{prefix}/registry``, and removes what an earlier run left at the broker.

The registry of many devices has pages: the first one is at ``{prefix}/registry``, page 2 at ``{prefix}/registry/2``,
and so on. Each page has its number and the number of pages.

At the first connection, the registry that the broker keeps is read before it is replaced. The retained topics of
devices that are no longer registered are removed, and only then is the new registry published; so a start that is
interrupted is made up for by the next one. Only what the same app with the same client id listed is removed. Topics
whose removal the broker has not acknowledged in time stay in the registry, and are removed at the next start.

What may be published is listed before it is published. So nothing is sent at the first connection before it is known
what the earlier registry lists. Topics that it does not list are listed on pages of their own, from page
`FIRST_AHEAD` on, which go first; a start with the same devices has none. What comes while the app runs is listed there,
too, before it is published. The pages go when the registry has been published.

Discovery removes the descriptions that it finds, so they are passed over here.
"""

import logging
from collections.abc import Callable, Collection, Container, Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from leadsman.core.introspection.pages import DocumentWriter, around, page_size
from leadsman.core.introspection.registry import LIST_SLICE, DeviceRegistry
from leadsman.core.introspection.retained import (
    APP,
    FIRST_AHEAD,
    FORGETTING,
    MAX_PAGES,
    RETAINED,
    Comparison,
    Listed,
    Page,
    compare,
    ours,
    retained_of,
)
from leadsman.core.loop.clock import Clock
from leadsman.core.loop.slices import Work
from leadsman.core.mqtt.connection import Received
from leadsman.core.mqtt.link import Link
from leadsman.core.mqtt.message import Message
from leadsman.core.mqtt.topics import Topics
from leadsman.core.runtime.other_topics import MAX_TOPICS, OtherTopics
from leadsman.core.text import clean, count_noun, log_fields

if TYPE_CHECKING:
    from leadsman.core.introspection.document import RegistryDevice

MAX_OUTBOX_BYTES = 512 * 1024
"""Bytes in the outbox above which the next page waits, so that pages do not displace readings."""
PAGE_TIMEOUT = 60.0
"""Seconds after which a page of the registry no longer waits."""
OUTBOX_CHECK_INTERVAL = 0.02
"""Seconds between two looks at the outbox."""
SETTLED = 0.5
"""Seconds from the broker's acknowledgement of a subscription until a retained message has come, if there is one."""
READING, REMOVING = 10.0, 10.0
"""Seconds at most for: the earlier registry to come; the broker to acknowledge the removals."""
MAX_TOPICS_AHEAD = 50
"""Topics on a page of those that are listed ahead while the app runs. It is sent again for each further one."""
SHOWN = 5
"""Devices, or topics, that one log line names."""

logger = logging.getLogger("leadsman")


class _Removal:
    """The receipt of a message that removes a retained one; see `leadsman.core.mqtt.message.Receipt`."""

    def __init__(self, finder: str = "") -> None:
        self.finder = finder
        """What had found the device, in whose place another node may have it by now."""
        self.published = 0
        self.replayed = 0

    def dropped(self, at: float, messages: int = 1) -> None:
        """See `Receipt`. The topic stays in the registry."""

    def replaced(self) -> None:
        """See `Receipt`. It is never so."""


class Kept(NamedTuple):
    """The pages that the broker keeps at the registry and below, as they come."""

    topic_filter: str
    messages: dict[str, bytes]
    """The payloads that were not read yet, by topic."""
    on_page: Callable[[Received], None]
    """Keeps a page that comes."""


class RegistryPublication:
    """Publishes the registry after each connection, and whenever it changes.

    Args:
        registry: which devices there are.
        topics: the topics of the app.
        link: the connection to the broker.
        clock: the clock of the app.
        others: further retained topics of the devices.
        kept: the registry of an earlier run; None if none is to be read.
        elsewhere: whether another node may have what a handler of this name had found.
    """

    def __init__(
        self,
        registry: DeviceRegistry,
        topics: Topics,
        link: Link,
        clock: Clock,
        others: OtherTopics,
        kept: Kept | None,
        elsewhere: Callable[[str], bool | None],
    ) -> None:
        self._registry = registry
        self._topics = topics
        self._link = link
        self._clock = clock
        self._others = others
        self._kept = kept
        self._elsewhere = elsewhere
        self._removals: dict[str, _Removal] = {}
        self._listed = Listed(topics.prefix)
        self._known: set[str] = set()
        """The further topics that the registry at the broker lists."""
        self._surplus: set[int] = set()
        """The numbers of the pages at the broker besides the first one."""
        self._ahead: dict[str, list[str]] = {}
        """The topics on the last page of those that are listed ahead, by device."""
        self._number = FIRST_AHEAD
        """Its number."""

    def begin(self) -> Work:
        """List what this run may publish and the earlier registry does not list, before anything is sent. Where nothing
        is known of an earlier one, that is everything."""
        if self._kept is not None:
            self._read_pages(self._kept)
        known = {topic for page in self._own_pages() for topics in page.topics.values() for topic in topics}
        yield 0.0
        pages = DocumentWriter(page_size(self._link.maximum_packet_size))
        new = yield from self._registry.list_devices(pages, lambda topics: not known.issuperset(topics))
        for document in pages.end() if new else ():
            self._put_ahead(document)
            self._number += 1
        others = self._others.topics.values()
        self._known = {topic for topic in known if topic.rsplit("/", 1)[-1] not in RETAINED}.union(*others)
        self._others.new.add(self._on_new)

    def remove(self, entry: "RegistryDevice | None", finder: str) -> None:
        """Remove the topics of a device that is forgotten, before the next registry is published. Discovery removes
        what describes it."""
        topics = [topic for topic in retained_of(entry) if not self._others.is_described(topic)]
        self._removals |= {topic: _Removal(finder) for topic in topics}

    def list_entry_ahead(self, device: str) -> None:
        """List the topics of a device that has joined, which are about to be published."""
        self._list_ahead(device, retained_of(self._registry.entry(device)))

    def _list_ahead(self, device: str, topics: Iterable[str]) -> None:
        """List topics that are about to be published."""
        if sum(map(len, self._ahead.values())) >= MAX_TOPICS_AHEAD:
            self._next_ahead()
        self._ahead.setdefault(device, []).extend(topics)
        pages = DocumentWriter(page_size(self._link.maximum_packet_size))
        pages.begin("devices", b"{}")
        for name, each in self._ahead.items():
            pages.member(name, {"kinds": [], "topics": {}, "retained": [], "others": each})
        for document in pages.end()[:1]:
            self._put_ahead(document)

    def _on_new(self, device: str, topic: str) -> None:
        if topic not in self._known:
            self._known.add(topic)
            self._list_ahead(device, (topic,))

    def _put_ahead(self, document: bytes) -> None:
        payload = around({**self._registry.head()}, document)
        topic = f"{self._topics.registry}/{self._number}"
        self._surplus.add(self._number)
        self._link.put_first(Message(topic, payload, 1, retain=True, latest=True))

    def _next_ahead(self) -> None:
        self._ahead = {}
        self._number = FIRST_AHEAD if self._number >= MAX_PAGES else self._number + 1

    def publish(self) -> Work:
        """Remove what is left behind, and publish the registry, in slices. That ends with the connection, for this is
        done after each one."""
        connects = self._link.connects
        if self._kept is not None:
            yield from self._read(self._kept, connects)
        if self._removals and self._link.connects == connects:
            yield from self._remove(connects)
        if self._link.connects == connects:
            yield from self._publish(connects)

    def _publish(self, connects: int) -> Work:
        topic, link, registry = self._topics.registry, self._link, self._registry
        surplus, self._surplus = self._surplus, set()  # what is listed ahead from now on stays until the next time
        self._next_ahead()
        pages = DocumentWriter(page_size(link.maximum_packet_size))
        yield from registry.list_devices(pages)
        documents = pages.end()
        for number, document in enumerate(documents, 1):
            yield from room(link, self._clock, PAGE_TIMEOUT)
            if link.connects != connects:
                self._surplus |= surplus
                return
            payload = around({**registry.head()}, document, number, len(documents))
            link.put(Message(topic if number == 1 else f"{topic}/{number}", payload, retain=True, latest=True))
            yield 0.0
        own = set(range(2, len(documents) + 1))
        for number in sorted(surplus - own - self._surplus):
            link.put(Message(f"{topic}/{number}", b"", retain=True, latest=True))
            yield 0.0
        self._surplus |= own
        for number, name in enumerate(registry.disabled, 1):
            link.put(Message(self._topics.availability(name), b"offline", 1, retain=True, latest=True))
            if number % LIST_SLICE == 0:
                yield 0.0

    def _read(self, kept: Kept, connects: int) -> Work:
        """Read the registry of an earlier run, and find out what is to be removed. A page that the filter did not bring
        is asked for by its topic: RabbitMQ sends what it keeps only to those who subscribe to its very topic
        (https://www.rabbitmq.com/docs/mqtt#retained)."""
        listed, asked = self._listed, [self._topics.registry]
        deadline = self._clock.monotonic() + READING
        while True:
            self._read_pages(kept)
            missing = listed.not_asked(asked)
            for topic in missing:
                self._link.listen(topic, kept.on_page)
            asked += missing
            if self._link.connects != connects:
                return
            if not missing and (
                self._have_answered((kept.topic_filter, *asked)) or self._clock.monotonic() >= deadline
            ):
                break
            yield OUTBOX_CHECK_INTERVAL
        gone, devices = yield from self._compare(listed)
        removed = yield from self._ours(gone, connects)
        if self._link.connects != connects:
            return
        self._kept = None
        self._others.seen = None
        for topic_filter in (kept.topic_filter, *asked):
            self._link.ignore(topic_filter, kept.on_page)
        self._surplus |= {number for number in listed.pages if number > 1}
        self._removals |= {topic: _Removal() for topic in removed}
        if removed:
            _log(len(removed), devices)
        self._listed = Listed(self._topics.prefix)  # its pages are not needed any more

    def _read_pages(self, kept: Kept) -> None:
        """Read the pages that have come."""
        while kept.messages:
            self._listed.add(*kept.messages.popitem())

    def _have_answered(self, topic_filters: Iterable[str]) -> bool:
        """Whether what the broker keeps at all of these has come, if there is any."""
        acknowledged, now = self._link.subscriptions.acknowledged, self._clock.monotonic()
        return all(now >= acknowledged.get(each, now) + SETTLED for each in topic_filters)

    def _own_pages(self) -> list[Page]:
        """The pages that this app wrote with this client id."""
        head = self._registry.head()
        own = head["app"], head["client_id"]
        return [page for page in self._listed.pages.values() if (page.app, page.client_id) == own]

    def _compare(self, listed: Listed) -> Generator[float, None, tuple[list[str], list[str]]]:
        """Find the topics that the earlier run listed and nothing wants any more, and the devices that are gone."""
        head, seen = self._registry.head(), self._others.seen or ()
        gone, devices = list[str](), list[str]()
        if (listed.app, listed.client_id) != (head["app"], head["client_id"]):
            if listed.app is not None:
                wrote = f"{clean(listed.app)!r} with the client id {clean(listed.client_id or '')!r}"
                text = "the registry at %s was written by the app %s, so no topic that it lists is removed"
                logger.info(text, self._topics.registry, wrote, extra=log_fields("registry of another", wrote=wrote))
            return gone, devices
        for number, (name, found) in enumerate(listed.topics(), 1):
            compared = self._compared(found, (seen, self._others.topics.get(name, ())))
            gone += compared.gone
            for device, topic in compared.adopted:
                self._others.keep(device, (topic,))
            if name != APP and self._registry.entry(name) is None:
                devices.append(name)
            if number % LIST_SLICE == 0:
                yield 0.0
        return gone, devices

    def _compared(self, found: Iterable[str], described: Collection[Container[str]] = ()) -> Comparison:
        return compare(
            found, self._topics, self._registry.retained, lambda topic: any(topic in each for each in described)
        )

    def _ours(self, gone: Sequence[str], connects: int) -> Generator[float, None, list[str]]:
        """Those of the topics that are this app's. What the broker keeps outside the prefix is asked for topic by
        topic: nothing else shows whose it is. What discovery looks after, it gets, since its filter comes first."""
        link, found = self._link, dict[str, bytes]()
        asked = [topic for topic in gone if not topic.startswith(f"{self._topics.prefix}/")]

        def keep(received: Received) -> None:
            if received.retain:
                found[received.topic] = received.payload

        for topic in asked:
            link.listen(topic, keep)
        deadline = self._clock.monotonic() + READING
        while link.connects == connects and not self._have_answered(asked) and self._clock.monotonic() < deadline:
            yield OUTBOX_CHECK_INTERVAL
        unknown = [topic for topic in asked if topic not in link.subscriptions.acknowledged]
        for topic in asked:
            link.ignore(topic, keep)
        self._others.keep(APP, unknown[:MAX_TOPICS])  # the next start asks again
        return ours(gone, self._topics.prefix, found)

    def _remove(self, connects: int) -> Work:
        """Publish an empty retained message to each topic, and wait until the broker has them. What describes a device
        goes first; the rest follows when no reader of descriptions looks at it any more."""
        removals, below = dict(self._removals), f"{self._topics.prefix}/"
        elsewhere = [topic for topic in removals if not topic.startswith(below)]
        if not (yield from self._empty(elsewhere, removals, connects)):
            return
        described, begin = elsewhere or self._others.described, self._clock.monotonic()
        while described and self._clock.monotonic() < begin + FORGETTING:
            yield OUTBOX_CHECK_INTERVAL
            if self._link.connects != connects:
                return
        if not (yield from self._empty([each for each in removals if each.startswith(below)], removals, connects)):
            return
        deadline = self._clock.monotonic() + REMOVING
        while _waiting(removals) and self._clock.monotonic() < deadline:
            yield OUTBOX_CHECK_INTERVAL
            if self._link.connects != connects:
                return
        left = _waiting(removals)
        self._removals = {topic: each for topic, each in self._removals.items() if removals.get(topic) is not each}
        self._others.keep(APP, left)
        if left:
            shown = ", ".join(map(clean, left[:SHOWN])) + (f" and {len(left) - SHOWN} more" if left[SHOWN:] else "")
            text = (
                "the broker has not removed %s yet: %s; the next start tries again; see its access list: topic write %s"
            )
            about = log_fields("topics left", topics=len(left))
            logger.warning(text, count_noun(len(left), "retained topic"), shown, clean(left[0]), extra=about)

    def _empty(
        self, topics: Collection[str], removals: dict[str, _Removal], connects: int
    ) -> Generator[float, None, bool]:
        """Publish an empty retained message to each of the topics, but for those that something wants by now, here or
        on another node of a cluster. Returns whether the connection is still the same one."""
        link, deadline = self._link, self._clock.monotonic() + REMOVING
        for number, topic in enumerate(topics, 1):
            while topic in link.outbox and self._clock.monotonic() < deadline:
                yield OUTBOX_CHECK_INTERVAL  # readings of an earlier run go first
            yield from room(link, self._clock, PAGE_TIMEOUT)
            if link.connects != connects:
                return False
            removal = removals[topic]
            if not self._compared((topic,)).gone or self._elsewhere(removal.finder):
                del removals[topic]
                self._removals.pop(topic, None)
            elif topic not in link.outbox:
                link.put(Message(topic, b"", 1, retain=True, receipt=removal, once=True))
            if number % LIST_SLICE == 0:
                yield 0.0
        return True


def room(link: Link, clock: Clock, patience: float) -> Generator[float, None, bool]:
    """Wait until the outbox has room for a page, at most `patience` seconds. Returns whether it has."""
    deadline = clock.monotonic() + patience
    while link.outbox.bytes > MAX_OUTBOX_BYTES:
        if clock.monotonic() >= deadline:
            return False
        yield OUTBOX_CHECK_INTERVAL
    return True


def _waiting(removals: Mapping[str, _Removal]) -> list[str]:
    return [topic for topic, removal in removals.items() if not removal.published and not removal.replayed]


def _log(topics: int, gone: list[str]) -> None:
    about = log_fields("topics removed", topics=topics, devices=len(gone))
    shown = ", ".join(clean(name) for name in gone[:SHOWN]) + (f" and {len(gone) - SHOWN} more" if gone[SHOWN:] else "")
    whose = (
        f"of {count_noun(len(gone), 'device')} that this app no longer has: {shown}"
        if gone
        else "that this app no longer uses"
    )
    logger.info("removing %s %s", count_noun(topics, "retained topic"), whose, extra=about)
