"""The retained topics in the registry, and which of them an app no longer has, or may remove.

A device in the registry lists its topics, and which of them are retained. `Listed` reads this from the pages that
the broker kept from an earlier run. They belong to an app and a client id: only the same two may remove what they
list. Topics that cannot be the app's are left out.

Anybody who may write the registry of an app could list topics of other programs there. So a topic is removed only if it
is below the prefix of the app and means nothing to a running one; or if it belongs to a description of discovery whose
content shows that this app published it. Pure.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from leadsman.mqtt.answers import object_in
from leadsman.mqtt.topics import RESERVED, is_topic
from leadsman.settings.discovery import own_filter
from leadsman.text.identifiers import identifier

APP = ""
"""The key of retained topics that belong to the app, and to no device."""
RETAINED = ("state", "availability", "ledger", "health")
"""The keys of the topics of a device that may be retained."""
FORGETTING = 3.0
"""Seconds from the removal of what describes a device to that of its other topics. Home Assistant reads these for a
moment longer, and an empty message is an error in its log."""
MOST_PLACES = 8
"""Prefixes of discovery at which descriptions are looked at. An app has one, and another one after a change."""
MOST_PAGES = 9999
"""Pages of a registry that are read; 10,000 devices need about 30."""
FIRST_AHEAD = 9001
"""The number of the first page of what an app is about to publish, and its registry does not list yet."""
LISTED_FOR = 30 * 86400.0
"""Seconds from a removal until it is no longer listed."""
MOST_REMOVED = 64 * 1024
"""Bytes of the descriptions that are listed; of more, the newest ones. A description has 4 kB at the most."""
_NOT_RETAINED = RESERVED - {"state", "history", "availability", "health", "ledger", "resilience"}
"""Levels below the prefix, or below a device, that belong to the app itself, or at which it takes requests: an empty
message there would be one."""


class Claim(NamedTuple):
    """A topic outside the prefix of the app that it may have published to."""

    document: str
    """The topic of the description that shows whose it is."""
    topic_filter: str
    """The descriptions at the same place."""


def may_be_removed(topic: str, prefix: str) -> bool:
    """Whether a topic is below the prefix of an app, and is one that devices retain."""
    if not topic.startswith(f"{prefix}/"):
        return False
    return _NOT_RETAINED.isdisjoint(topic[len(prefix) + 1 :].split("/", 2)[:2])


def claim_of(topic: str, prefix: str) -> Claim | None:
    """The claim that would prove that a topic outside the prefix is the app's; None if nothing can. The topics are
    those of Home Assistant, ``{discovery}/device/{app}/{device}/config``."""
    levels = topic.split("/")
    if len(levels) >= 5 and levels[-1] == "config" and levels[-4:-2] == ["device", identifier(prefix)]:
        return Claim(topic, own_filter("/".join(levels[:-4]), prefix))
    return None


def origin_of(prefix: str) -> str:
    """The name of the origin of a configuration of Home Assistant, ``o.name``. No other app at the broker has it."""
    return f"leadsman {prefix}"


def is_configuration_of(prefix: str, payload: bytes) -> bool:
    """Whether an app published a configuration of Home Assistant."""
    origin = (object_in(payload) or {}).get("o")
    return isinstance(origin, dict) and origin.get("name") == origin_of(prefix)


class RemovedDescription(NamedTuple):
    """A description that was removed."""

    topic: str
    payload: bytes
    until: float
    """Epoch seconds until which it is listed."""


class RemovedDescriptions:
    """The descriptions that an app removed in the last days, and no reader has seen for certain.

    A reader of descriptions that was away meanwhile, such as a Home Assistant that was being updated, did not see the
    removal, and would keep the device for ever. So the registry lists what was removed, and the device is described
    once more, and removed again, when a reader starts.
    """

    def __init__(self) -> None:
        self._found: dict[str, RemovedDescription] = {}

    def add(self, topic: str, payload: bytes, now: float) -> None:
        """List a description that is about to be removed, `now` in epoch seconds."""
        self._found.pop(topic, None)
        self._list([*self._found.values(), RemovedDescription(topic, payload, now + LISTED_FOR)])

    def take(self, found: Iterable[RemovedDescription], now: float) -> None:
        """List what an earlier run listed, unless it was removed again meanwhile."""
        earlier = [
            each._replace(until=min(each.until, now + LISTED_FOR)) for each in found if each.topic not in self._found
        ]
        self._list([*earlier, *self._found.values()])

    def _list(self, found: Iterable[RemovedDescription]) -> None:
        self._found = {each.topic: each for each in sorted(found, key=lambda each: each.until)}
        while sum(len(each.payload) for each in self._found.values()) > MOST_REMOVED:
            del self._found[next(iter(self._found))]

    def forget(self, topic: str) -> bool:
        """List a description no more: readers have seen that it was removed, or its device is back. Returns whether it
        was listed."""
        return self._found.pop(topic, None) is not None

    def current(self, now: float) -> list[RemovedDescription]:
        """The descriptions that are listed, the oldest first."""
        return [each for each in self._found.values() if each.until > now]


class Page(NamedTuple):
    """One page of a registry. Its document is not kept, since the garbage collector would look through all of it."""

    app: object
    client_id: object
    last: object
    """The number of the last page."""
    topics: dict[str, tuple[str, ...]]
    """The retained topics of each device that may be the app's; those of the app itself by `APP`."""
    payload: bytes
    removed: tuple[RemovedDescription, ...] = ()
    """The descriptions that were removed in the last days."""


class Listed:
    """The registry that the broker keeps, page by page.

    Args:
        prefix: the topic prefix of the registry.
    """

    def __init__(self, prefix: str) -> None:
        self.pages: dict[int, Page] = {}
        """The pages by number; those behind the last one, from a run with more devices, are included."""
        self.claims: dict[str, Claim] = {}
        """The topics outside the prefix that the pages list; `prove` finds which of them are the app's."""
        self.places: dict[str, None] = {}
        """The topic filters of the descriptions that prove it."""
        self._proven: set[str] = set()
        self._prefix = prefix
        self._registry = f"{prefix}/registry"

    @property
    def app(self) -> str | None:
        """The name of the app that wrote it; None if there is no page."""
        return self._of_first_page("app")

    @property
    def client_id(self) -> str | None:
        """The client id of the app that wrote it; None if there is no page."""
        return self._of_first_page("client_id")

    @property
    def is_complete(self) -> bool:
        """Whether every page up to the last one was read."""
        return 1 in self.pages and not self.missing

    @property
    def missing(self) -> list[int]:
        """The numbers of the pages that the first one counts, and that were not read; none without a first page."""
        last = self.pages[1].last if 1 in self.pages else None
        most = min(last, MOST_PAGES) if isinstance(last, int) else 1
        return [number for number in range(2, most + 1) if number not in self.pages]

    def not_asked(self, asked: Collection[str]) -> list[str]:
        """The topics of the pages that the registry has besides the first one, and of the next of those that list
        ahead, which it does not count; without those that were asked for. For brokers where a filter with a wildcard
        brings nothing."""
        pages = self.missing
        if 1 in self.pages:
            pages.append(next(each for each in range(FIRST_AHEAD, MOST_PAGES + 2) if each not in self.pages))
        return [topic for number in pages if (topic := f"{self._registry}/{number}") not in asked]

    def add(self, topic: str, payload: bytes) -> None:
        """Read a retained message at the registry or below. What is no page of a registry is passed over."""
        number = self._number(topic)
        if number is None:
            return
        page = object_in(payload) or {}
        if isinstance(page.get("devices"), dict):
            topics = {name: self._own(retained_of(entry)) for name, entry in page["devices"].items()}
            topics[APP] = self._own(_topics(page.get("others")))
            app, client_id, last = (page.get(word) for word in ("app", "client_id", "pages"))
            self.pages[number] = Page(app, client_id, last, topics, payload, removed_in(page, self._prefix))

    def prove(self, documents: Mapping[str, bytes], unread: Collection[str] = ()) -> None:
        """List the topics outside the prefix whose descriptions show that the app published them. Until then none of
        these is listed.

        Args:
            documents: the payloads that the broker keeps, by topic.
            unread: those of `places` that could not be read.
        """
        for topic, claim in self.claims.items():
            read = claim.topic_filter not in unread
            if read and is_configuration_of(self._prefix, documents.get(claim.document, b"")):
                self._proven.add(topic)

    def topics(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """The retained topics of each device; those of the app by `APP`. A page that another app or client id wrote
        than the first one is passed over."""
        for page in self.pages.values():
            if (page.app, page.client_id) == (self.app, self.client_id):
                for name, topics in page.topics.items():
                    yield name, tuple(each for each in topics if each not in self.claims or each in self._proven)

    def _of_first_page(self, field: str) -> str | None:
        """A field of the first page. A first start that was interrupted left only pages of what it was about to
        publish."""
        value = getattr(self.pages[min(self.pages)], field) if self.pages else None
        return value if isinstance(value, str) else None

    def _own(self, topics: list[str]) -> tuple[str, ...]:
        """Those of the topics that may be the app's."""
        found = []
        for topic in topics:
            if may_be_removed(topic, self._prefix):
                found.append(topic)
            elif (claim := claim_of(topic, self._prefix)) is not None and self._has_room(claim.topic_filter):
                self.claims[topic] = claim
                found.append(topic)
        return tuple(found)

    def _has_room(self, place: str) -> bool:
        """Whether descriptions at one more place are looked at."""
        if len(self.places) < MOST_PLACES:
            self.places[place] = None
        return place in self.places

    def _number(self, topic: str) -> int | None:
        if topic == self._registry:
            return 1
        number = topic.removeprefix(f"{self._registry}/")
        return int(number) if number.isdecimal() and 1 < int(number[:9]) <= MOST_PAGES else None


def retained_of(entry: object) -> list[str]:
    """The retained topics of a device in a registry. What can be no topic is left out."""
    if not isinstance(entry, dict):
        return []
    topics, words = entry.get("topics"), entry.get("retained")
    if not isinstance(topics, dict) or not isinstance(words, list):
        return _topics(entry.get("others"))
    return _topics([topics.get(word) for word in RETAINED if word in words]) + _topics(entry.get("others"))


def no_longer(before: Collection[str], now: Collection[str] | None, below: str | None) -> list[str]:
    """The retained topics that a device no longer has.

    Args:
        before: its topics in an earlier run.
        now: its topics now; None if there is no such device any more.
        below: what its topics begin with, ``{prefix}/{device}/``, if the device may publish again at any time to topics
            there that leadsman cannot list before: these are kept. None for other devices, and for the topics of the
            app, which has no handlers.
    """
    gone = [each for each in dict.fromkeys(before) if now is None or each not in now]
    if now is None or below is None:
        return gone
    own = {f"{below}{word}" for word in RETAINED}
    return [each for each in gone if each in own or not each.startswith(below)]


def _topics(value: object) -> list[str]:
    """The topics in a list."""
    return [each for each in value if isinstance(each, str) and is_topic(each)] if isinstance(value, list) else []


def removed_in(page: object, prefix: str) -> tuple[RemovedDescription, ...]:
    """The descriptions that a page of a registry lists as removed. Anybody may have written it, so only configurations
    are taken that are at a topic of the app with this prefix, and show that it published them."""
    entries = page.get("removed") if isinstance(page, dict) else None
    found = (_removed(each, prefix) for each in entries) if isinstance(entries, list) else ()
    return tuple(each for each in found if each is not None)


def _removed(entry: object, prefix: str) -> RemovedDescription | None:
    if not isinstance(entry, dict):
        return None
    topic, text, until = (entry.get(word) for word in ("topic", "payload", "until"))
    if not (isinstance(topic, str) and is_topic(topic) and isinstance(text, str)):
        return None
    if isinstance(until, bool) or not isinstance(until, int | float) or until != until:
        return None
    payload = text.encode(errors="surrogatepass")
    claim = claim_of(topic, prefix)
    if claim is None or claim.document != topic or not is_configuration_of(prefix, payload):
        return None
    return RemovedDescription(topic, payload, float(min(until, 1e12)))
