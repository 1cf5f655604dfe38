"""The topics of an app, in one table.

| topic                                | payload                                               | retained, QoS |
|--------------------------------------|-------------------------------------------------------|---------------|
| `{prefix}/{device}/state`            | the reading as JSON                                   | by `Delivery` |
| `{prefix}/{device}/history`          | every reading, with `Delivery(history=…)`             | no, as state  |
| `{prefix}/{device}/{field}`          | one value of the reading, with `layout="fields"`      | by `Delivery` |
| `{prefix}/{device}/content`          | the bytes of a reading, or at another word            | by `Delivery` |
| `{prefix}/{device}/availability`     | `online` or `offline`                                 | yes, 1        |
| `{prefix}/{device}/error`            | onset, reminder or recovery of an outage              | no, 1         |
| `{prefix}/{device}/ledger`           | the outcomes of its polls, and its gaps               | yes, 1        |
| `{prefix}/{device}/health`           | its state, while discovery for Home Assistant is on   | yes, 1        |
| `{prefix}/{device}/resilience`       | its failure state, for a node that takes over         | yes, 1        |
| `{prefix}/{device}/set`              | in: a command                                         | no, 1         |
| `{prefix}/{device}/set/result`       | the result of a command                               | no, 1         |
| `{prefix}/{device}/get`              | in: poll now                                          | no, 1         |
| `{prefix}/{device}/hold/set`         | in: hold a device, so that it is not polled           | no, 1         |
| `{prefix}/{device}/release/set`      | in: release a held device, so that it is polled again | no, 1         |
| `{prefix}/{device}/circuit/set`      | in: `isolate`, `close` or `disable`                   | no, 1         |
| `{prefix}/{word}`                    | the same topics of the root device, if there is one   | as above      |
| `{prefix}/{device}/{word}`           | what a handler publishes through its `Context`        | as it sets    |
| `{prefix}/error`                     | faults of the app itself                              | no, 1         |
| `{prefix}/status`                    | birth, heartbeat, stop and will, one JSON             | yes, 1        |
| `{prefix}/lease`                     | which node owns the app, while others stand by        | yes, 0        |
| `{prefix}/nodes/{node}`              | a node of an app that several share, and what it owns | yes, 0 or 1   |
| `{prefix}/nodes/{node}/drain`        | in: hand everything over and accept nothing           | no, 1         |
| `{prefix}/introspect`                | in: a request for the registrations and their state   | no, 1         |
| `{prefix}/introspect/response`       | the answer, if no response topic was named            | no, 1         |
| `{prefix}/registry`                  | the registrations, for tools                          | yes, 1        |
| `{prefix}/registry/{page}`           | their further pages, from 2 on                        | yes, 1        |
| `{prefix}/nodes/{node}/{word}`       | the topics `status`, `error`, `introspect` and        | as above      |
|                                      | `registry` of a node, in a cluster                    |               |
| `{prefix}/doctor/{word}`             | probes of ``leadsman doctor``; the app ignores them   | for seconds   |
"""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from leadsman.errors import InvalidType, InvalidValue

NODES = "nodes"
"""The level of the topics of each node of an app that several share."""
DOCTOR = "doctor"
"""The level of the probes of ``leadsman doctor``."""
RESERVED = frozenset(
    {
        *("status", "error", "introspect", "registry", "state", "history", "availability", "health", "ledger", "set"),
        "get",
        *("hold", "release", "circuit", "resilience", "lease", DOCTOR),
    }
)
"""Levels with a meaning of their own; no device may take one as its name."""
MAX_NAME_BYTES = 200
MAX_TOPIC_BYTES = 2 * MAX_NAME_BYTES
"""Bytes of a name, and of a topic that others choose; MQTT allows 65,535, which no person would read."""
SURE_CLIENT_ID = 23
"""Bytes of a client id that each broker of MQTT 3.1.1 takes; some take no more (MQTT 3.1.1 §3.1.3.1)."""


class Topics:
    """Where one app publishes.

    Args:
        prefix: the first level or levels of all topics.
        root: the name of the root device, whose topics have no level for the device; None if there is none.
        node: the name of this node in a cluster, whose process has topics of its own, below ``{prefix}/nodes/{node}/``;
            None outside a cluster.
    """

    __slots__ = ("error", "introspect", "lease", "node", "prefix", "registry", "root", "status")

    def __init__(self, prefix: str, root: str | None = None, node: str | None = None) -> None:
        self.prefix = check_prefix(prefix)
        self.root = root
        self.node = node
        """The name of this node; None outside a cluster."""
        process = prefix if node is None else f"{prefix}/{NODES}/{node}"
        self.status = f"{process}/status"
        self.error = f"{process}/error"
        self.introspect = f"{process}/introspect"
        self.registry = f"{process}/registry"
        self.lease = f"{prefix}/lease"

    def state(self, device: str) -> str:
        """Where the readings of a device go."""
        return f"{self.below(device)}state"

    def history(self, device: str) -> str:
        """Where all readings of a device go, beside the newest."""
        return f"{self.below(device)}history"

    def availability(self, device: str) -> str:
        """Where ``online`` and ``offline`` of a device go."""
        return f"{self.below(device)}availability"

    def device_error(self, device: str) -> str:
        """The topic of a device's outages."""
        return f"{self.below(device)}error"

    def set_result(self, device: str) -> str:
        """The topic of a command's result."""
        return f"{self.below(device)}set/result"

    def field(self, device: str, path: Sequence[str]) -> str | None:
        """Where one value of the readings of a device goes, with a level for each key on the way to it; None if a key
        can be no level. A key is escaped as in `escaped_name`. The root device has one level, since further ones are
        those of other devices."""
        levels = [_field_level(key, first=number == 0) for number, key in enumerate(path)]
        if None in levels or not levels or (device == self.root and len(levels) > 1):
            return None
        topic = f"{self.below(device)}{'/'.join(filter(None, levels))}"
        return topic if len(topic.encode()) <= MAX_TOPIC_BYTES else None

    def of(self, device: str, word: str) -> str:
        """Another topic of a device, such as those it listens to: ``set`` and ``get``; ``+`` for all devices."""
        return f"{self.below(device)}{word}"

    def below(self, device: str) -> str:
        """The beginning of all topics of a device."""
        return f"{self.prefix}/" if device == self.root else f"{self.prefix}/{device}/"

    def device_of(self, topic: str) -> str:
        """The device of a topic such as ``{prefix}/{device}/set``. No device has the name of a reserved level, so
        topics such as ``{prefix}/set`` and ``{prefix}/set/result`` are of the root device, if there is one, and so is
        each of a single level."""
        level, *more = topic[len(self.prefix) + 1 :].split("/", 1)
        return self.root if self.root is not None and (level in RESERVED or not more) else level

    def of_node(self, node: str) -> str:
        """The topic of the document of a node; ``+`` for all nodes."""
        return f"{self.prefix}/{NODES}/{node}"

    def drain(self, node: str) -> str:
        """The topic of requests to a node to drain; ``+`` for all nodes."""
        return f"{self.prefix}/{NODES}/{node}/drain"

    def may_answer(self, topic: str) -> bool:
        """Whether an answer may go to `topic`: below the prefix, and none of the topics that mean something else.

        An app that answered anywhere would be a reflector; one that answered into its own ``set`` would talk to itself.
        """
        levels = topic.split("/")
        return topic.startswith(f"{self.prefix}/") and levels[-1] not in RESERVED and _speakable(topic)


class Identity(NamedTuple):
    """Who an app is, at the broker and on disk."""

    name: str
    version: str
    leadsman: str
    """The version of leadsman."""
    topics: Topics
    client_id: str
    program: str = ""
    """The file in which the app is made; empty text if it is not known."""

    @property
    def title(self) -> str:
        """Its name for people. A root device has the name of the app, so the app is called otherwise beside it."""
        topics = self.topics
        name = topics.prefix if topics.root is None else f"{topics.prefix} app"
        return name if topics.node is None else f"{name} {topics.node}"

    @property
    def state_name(self) -> str:
        """The default name of the state directory: the app's name, the prefix if that differs, and the node in a
        cluster, so that two processes do not write each other's files. ``+`` replaces ``/``, since no prefix contains
        a ``+``."""
        prefix, node = self.topics.prefix, self.topics.node
        at = "" if prefix == self.name else f"@{prefix.replace('/', '+')}"
        return self.name + at + ("" if node is None else f"+{node}")


def topic_matches(topic_filter: str, topic: str) -> bool:
    """Whether a topic filter takes a topic in (MQTT 5 §4.7.1)."""
    wanted, given = topic_filter.split("/"), topic.split("/")
    for position, level in enumerate(wanted):
        if level == "#":
            return True
        if position >= len(given) or level not in ("+", given[position]):
            return False
    return len(wanted) == len(given)


def is_topic(text: str) -> bool:
    """Whether a text is a topic that an app may publish to: printable, without wildcards, and not the broker's own."""
    return bool(text) and not text.startswith("$") and _speakable(text)


def filters_overlap(one: str, other: str) -> bool:
    """Whether some topic matches both topic filters (MQTT 5 §4.7)."""
    ours, theirs = one.split("/"), other.split("/")
    for mine, yours in ((ours[0], theirs[0]), (theirs[0], ours[0])):
        if mine.startswith("$") and yours in ("+", "#"):
            return False  # a wildcard does not match the broker's own topics
    for mine, yours in zip(ours, theirs, strict=False):
        if "#" in (mine, yours):
            return True
        if "+" not in (mine, yours) and mine != yours:
            return False
    longer = ours if len(ours) > len(theirs) else theirs
    shorter = min(len(ours), len(theirs))
    return len(longer) == shorter or longer[shorter] == "#"  # "a/#" matches "a" too


def check_filter(topic_filter: object) -> str:
    """A topic filter to subscribe to.

    Raises:
        InvalidType, InvalidValue: it is not valid. The message names the correction.
    """
    if not isinstance(topic_filter, str):
        raise InvalidType(f"the topic filter is {topic_filter!r}; write text such as 'zigbee2mqtt/+/battery'")
    if topic_filter.startswith("$share/"):
        raise InvalidValue(f"the topic filter {topic_filter!r} is shared with other clients; leave '$share/…/' out")
    levels = topic_filter.split("/")
    for position, level in enumerate(levels):
        if ("+" in level and level != "+") or ("#" in level and (level != "#" or position + 1 < len(levels))):
            raise InvalidValue(
                f"the topic filter {topic_filter!a} has a wildcard that is not a level of its own, or a '#' before its "
                "end; write it as in 'zigbee2mqtt/+/battery' or 'zigbee2mqtt/#' (MQTT 5 §4.7.1)"
            )
    if not topic_filter or not topic_filter.isprintable() or len(topic_filter.encode()) > MAX_TOPIC_BYTES:
        raise InvalidValue(
            f"the topic filter is {topic_filter!a:.80}; write 1 to {MAX_TOPIC_BYTES} printable bytes, "
            "such as 'zigbee2mqtt/+/battery'"
        )
    return topic_filter


def _speakable(topic: str) -> bool:
    try:
        length = len(topic.encode())
    except UnicodeEncodeError:
        return False
    return length <= MAX_TOPIC_BYTES and topic.isprintable() and "+" not in topic and "#" not in topic


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"))


def encode(payload: object) -> bytes:
    """Write JSON: UTF-8, compact. The values are plain already (see `leadsman.core.readings.reading`)."""
    return _ENCODER.encode(payload).encode()


def encode_fields(fields: Mapping[str, object]) -> bytes:
    """As `encode`, for the fields of a reading. Most readings are finite numbers, which a template writes faster."""
    values = tuple(fields.values())
    for value in values:
        if type(value) is not float and type(value) is not int:
            return encode(fields)
    return (_template(tuple(fields)) % values).encode()


@lru_cache(maxsize=128)
def _template(names: tuple[str, ...]) -> str:
    """A format for the values of fields with these names. JSON writes a number as Python does."""
    return "{" + ",".join(f"{_ENCODER.encode(name).replace('%', '%%')}:%r" for name in names) + "}"


def check_name(name: object, what: str = "the device name") -> str:
    """See that the name of a device, or what it is, is one topic level.

    Raises:
        InvalidType, InvalidValue: it names the fault and a name that would do.
    """
    text = _check_level(name, what)
    if "/" in text:
        raise InvalidValue(f"{what} {text!r} contains '/'; write it as one word, such as {text.replace('/', '_')!r}")
    if text in RESERVED:
        raise InvalidValue(f"{what} {text!r} is a reserved topic of leadsman; write {text + '_1'!r} or another word")
    return text


def escaped_name(text: str) -> str:
    """A device name for a text from outside, such as the name that a sensor gives itself. A text that may be a name,
    and has no ``%``, is that name. Else each character that a name may not have is written as its bytes of UTF-8, each
    as ``%`` and two hexadecimal digits; so is ``%``, and the first letter of a reserved level. Two texts never have one
    name.

    Raises:
        InvalidValue: the text is empty, or the name has more than `MAX_NAME_BYTES` bytes.
    """
    name = "".join(character if _is_plain(character) else _escape(character) for character in text[:MAX_NAME_BYTES])
    if name.startswith(("$", " ")) or name in RESERVED:
        name = _escape(name[0]) + name[1:]
    if name.endswith(" "):
        name = name[:-1] + _escape(" ")
    if not name or len(text) > MAX_NAME_BYTES or len(name.encode()) > MAX_NAME_BYTES:
        raise InvalidValue(f"a device name may have 1 to {MAX_NAME_BYTES} bytes; give it a short name")
    return name


REQUESTS = frozenset({"set", "get"})
"""Levels at whose end an app listens, however deep."""


def is_reserved_field(path: Sequence[str]) -> bool:
    """Whether the topic of a field would be, or be below, one that means something else."""
    return path[0] in RESERVED or not REQUESTS.isdisjoint(path)


@lru_cache(maxsize=1024)
def _field_level(key: str, *, first: bool) -> str | None:
    try:
        level = escaped_name(key)
    except InvalidValue:
        return None
    return key if not first and key in RESERVED and key not in REQUESTS else level


def _is_plain(character: str) -> bool:
    return character not in "%/+#" and character.isprintable()


def _escape(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode(errors="surrogatepass"))


def check_prefix(prefix: object) -> str:
    """See that a prefix is one or more topic levels; raises as `check_name`."""
    text = _check_level(prefix, "the prefix")
    if "" in text.split("/"):
        raise InvalidValue(
            f"the prefix {text!r} has an empty level; write {'/'.join(filter(None, text.split('/'))) or 'app'!r}"
        )
    return text


def check_instance(instance: object) -> str:
    """See that an instance, the end of a client id, is one word; raises as `check_name`."""
    text = _check_level(instance, "the instance")
    if "/" in text:
        raise InvalidValue(
            f"the instance {text!r} contains '/'; write it as one word, such as {text.replace('/', '-')!r}"
        )
    return text


def check_client_id(client_id: object) -> str:
    """See that a broker can take a client id: text of `MAX_NAME_BYTES` bytes at most (MQTT 5 §3.1.3.1)."""
    if not isinstance(client_id, str):
        raise InvalidType(f"the client id is {client_id!r}; write text")
    if not client_id or not client_id.isprintable() or len(client_id.encode(errors="replace")) > MAX_NAME_BYTES:
        raise InvalidValue(f"the client id is {client_id!r}; write 1 to {MAX_NAME_BYTES} printable characters")
    return client_id


def _check_level(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise InvalidType(f"{what} is {value!r}; write text")
    if not value or value != value.strip():
        raise InvalidValue(f"{what} is {value!r}; write a word without spaces around it, such as 'kitchen'")
    if not value.isprintable() or "+" in value or "#" in value:
        wrong = next(c for c in value if c in "+#" or not c.isprintable())
        raise InvalidValue(
            f"{what} {value!a} contains {wrong!a}; '+', '#' and control characters are not allowed in a topic"
        )
    if value.startswith("$"):
        raise InvalidValue(
            f"{what} {value!r} begins with '$', which belongs to the broker (MQTT 5 §4.7.2); leave it out"
        )
    if len(value.encode()) > MAX_NAME_BYTES:
        raise InvalidValue(f"{what} is {len(value.encode())} bytes long; {MAX_NAME_BYTES} are allowed")
    return value
