"""The retained topics in the registry, and which of them an app no longer has, or may remove.

A device in the registry lists its topics, and which of them are retained. `Listed` reads this from the pages that
the broker kept from an earlier run. They belong to an app and a client id: only the same two may remove what they
list. Topics that cannot be the app's are left out.

Anybody who may write the registry of an app could list topics of other programs there. So a topic is removed only if it
is below the prefix of the app and means nothing to a running one; or if what the broker has there is a description of
discovery that names this app. Pure.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from leadsman.core.mqtt.answers import object_in
from leadsman.core.mqtt.topics import RESERVED, Topics, is_topic

if TYPE_CHECKING:
    from leadsman.core.introspection.document import RegistryDevice

APP = ""
"""The key of retained topics that belong to the app, and to no device."""
RETAINED = ("state", "availability", "ledger", "health")
"""The keys of the topics of a device that may be retained."""
FORGETTING = 3.0
"""Seconds from the removal of what describes a device to that of its other topics. Home Assistant reads these for a
moment longer, and an empty message is an error in its log."""
MAX_FOREIGN_TOPICS = 20_000
"""Topics outside the prefix that are looked at; an app of 10,000 devices has as many configurations."""
MAX_PAGES = 9999
"""Pages of a registry that are read; 10,000 devices need about 30."""
FIRST_AHEAD = 9001
"""The number of the first page of what an app is about to publish, and its registry does not list yet."""
_NOT_RETAINED = RESERVED - {"state", "history", "availability", "health", "ledger", "resilience"}
"""Levels below the prefix, or below a device, that belong to the app itself, or at which it takes requests: an empty
message there would be one."""


def may_be_removed(topic: str, prefix: str) -> bool:
    """Whether a topic is below the prefix of an app, and is one that devices retain."""
    if not topic.startswith(f"{prefix}/"):
        return False
    return _NOT_RETAINED.isdisjoint(topic[len(prefix) + 1 :].split("/", 2)[:2])


def may_describe(topic: str, prefix: str) -> bool:
    """Whether a topic may have a configuration of Home Assistant, ``{discovery}/device/{app}/{device}/config``."""
    from leadsman.core.text.identifiers import identifier  # few topics lie outside the prefix

    levels = topic.split("/")
    return len(levels) >= 5 and levels[-1] == "config" and levels[-4:-2] == ["device", identifier(prefix)]


def origin_of(prefix: str) -> str:
    """The name of the origin of a configuration of Home Assistant, ``o.name``. No other app at the broker has it."""
    return f"leadsman {prefix}"


def is_configuration_of(prefix: str, payload: bytes) -> bool:
    """Whether an app published a configuration of Home Assistant."""
    origin = (object_in(payload) or {}).get("o")
    return isinstance(origin, dict) and origin.get("name") == origin_of(prefix)


class Page(NamedTuple):
    """One page of a registry. Its document is not kept, since the garbage collector would look through all of it."""

    app: object
    client_id: object
    last: object
    """The number of the last page."""
    topics: dict[str, tuple[str, ...]]
    """The retained topics of each device that may be the app's; those of the app itself by `APP`."""
    payload: bytes


class Listed:
    """The registry that the broker keeps, page by page.

    Args:
        prefix: the topic prefix of the registry.
    """

    def __init__(self, prefix: str) -> None:
        self.pages: dict[int, Page] = {}
        """The pages by number; those behind the last one, from a run with more devices, are included."""
        self.elsewhere: dict[str, None] = {}
        """The topics outside the prefix that the pages list."""
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
        most = min(last, MAX_PAGES) if isinstance(last, int) else 1
        return [number for number in range(2, most + 1) if number not in self.pages]

    def not_asked(self, asked: Collection[str]) -> list[str]:
        """The topics of the pages that the registry has besides the first one, and of the next of those that list
        ahead, which it does not count; without those that were asked for. For brokers where a filter with a wildcard
        brings nothing."""
        pages = self.missing
        if 1 in self.pages:
            pages.append(next(each for each in range(FIRST_AHEAD, MAX_PAGES + 2) if each not in self.pages))
        return [topic for number in pages if (topic := f"{self._registry}/{number}") not in asked]

    def add(self, topic: str, payload: bytes) -> None:
        """Read a retained message at the registry or below. What is no page of a registry is passed over."""
        number = self._number(topic)
        if number is None:
            return
        page = object_in(payload) or {}
        if isinstance(page.get("devices"), dict):
            topics = {name: self._own(listed_for(entry)) for name, entry in page["devices"].items()}
            topics[APP] = self._own(_topics(page.get("others")))
            app, client_id, last = (page.get(word) for word in ("app", "client_id", "pages"))
            self.pages[number] = Page(app, client_id, last, topics, payload)

    def topics(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """The retained topics of each device that may be the app's; those of the app by `APP`. A page that another app
        or client id wrote than the first one is passed over."""
        for page in self.pages.values():
            if (page.app, page.client_id) == (self.app, self.client_id):
                yield from page.topics.items()

    def topic_of(self, page: int) -> str:
        """The topic of a page."""
        return self._registry if page == 1 else f"{self._registry}/{page}"

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
            elif may_describe(topic, self._prefix) and len(self.elsewhere) < MAX_FOREIGN_TOPICS:
                self.elsewhere[topic] = None
                found.append(topic)
        return tuple(found)

    def _number(self, topic: str) -> int | None:
        if topic == self._registry:
            return 1
        number = topic.removeprefix(f"{self._registry}/")
        return int(number) if number.isdecimal() and 1 < int(number[:9]) <= MAX_PAGES else None


def retained_of(entry: "RegistryDevice | None") -> list[str]:
    """The retained topics of a device in the registry of this app."""
    if entry is None:
        return []
    topics, words = entry["topics"], entry["retained"]
    return [*(topics[word] for word in RETAINED if word in words), *entry.get("others", ())]


def listed_for(entry: object) -> list[str]:
    """The retained topics of a device in a registry that was read. What can be no topic is left out."""
    if not isinstance(entry, dict):
        return []
    topics, words = entry.get("topics"), entry.get("retained")
    if not isinstance(topics, dict) or not isinstance(words, list):
        return _topics(entry.get("others"))
    return _topics([topics.get(word) for word in RETAINED if word in words]) + _topics(entry.get("others"))


class Retained(NamedTuple):
    """What a device retains now."""

    topics: Collection[str]
    adds: bool
    """Whether it may publish again at any time to topics below it that leadsman cannot list before."""


class Comparison(NamedTuple):
    """What is listed, and is not wanted."""

    gone: list[str]
    """The topics that nothing wants any more. They are removed if they are `ours`."""
    adopted: list[tuple[str, str]]
    """The devices and topics that stay listed, since the device may publish there again."""


def compare(
    listed: Iterable[str], topics: Topics, wanted: Callable[[str], Retained | None], described: Callable[[str], bool]
) -> Comparison:
    """Find which of the listed topics nothing wants any more. It does not matter for which device they are listed.

    Args:
        listed: retained topics that the registry at the broker lists.
        topics: the topics of the app.
        wanted: what a device of this name retains; None if there is none.
        described: whether something looks after a topic outside the prefix.
    """
    found, known = Comparison([], []), dict[str, Retained | None]()
    for topic in dict.fromkeys(listed):
        if not topic.startswith(f"{topics.prefix}/"):
            if not described(topic):
                found.gone.append(topic)
            continue
        owner = topics.device_of(topic)
        if owner not in known:
            known[owner] = wanted(owner)
        now = known[owner]
        if now is None or (topic not in now.topics and not (now.adds and _may_add(topics, owner, topic))):
            found.gone.append(topic)
        elif topic not in now.topics:
            found.adopted.append((owner, topic))
    return found


def _may_add(topics: Topics, device: str, topic: str) -> bool:
    """Whether a handler of a device may publish to a topic. Those of the root device have one level."""
    further = topic.removeprefix(topics.below(device))
    return further != topic and further not in RETAINED and not (device == topics.root and "/" in further)


def ours(found: Iterable[str], prefix: str, documents: Mapping[str, bytes]) -> list[str]:
    """Those of some topics that may be removed: what is below the prefix, and where the broker keeps a description that
    names this app. `documents` has what it keeps, by topic."""
    return [
        topic
        for topic in found
        if topic.startswith(f"{prefix}/") or is_configuration_of(prefix, documents.get(topic, b""))
    ]


def _topics(value: object) -> list[str]:
    """The topics in a list."""
    return [each for each in value if isinstance(each, str) and is_topic(each)] if isinstance(value, list) else []
