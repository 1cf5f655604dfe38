"""A message on its way to the broker."""

from typing import Literal, NamedTuple, Protocol

from leadsman.core.loop.durations import Duration, positive_seconds
from leadsman.core.value import Value
from leadsman.errors import InvalidType, InvalidValue

MAX_PAYLOAD_BYTES = 16 * 1024 * 1024
"""Bytes of a payload, at most."""


class Receipt(Protocol):
    """Counts what becomes of messages."""

    published: int
    """Messages that the broker has."""
    replayed: int
    """Those that the broker has, and that waited over an outage of the connection. They are not `published`."""

    def dropped(self, at: float, messages: int = 1) -> None:
        """Messages whose readings were taken at `at`, or since then, will never arrive. `at` is seconds of
        `leadsman.core.loop.clock.Clock.uptime`."""
        ...

    def replaced(self) -> None:
        """A message will never arrive, because a newer one took its place."""
        ...


class Message(NamedTuple):
    """One PUBLISH."""

    topic: str
    payload: bytes
    qos: int = 1
    """0 or 1. With 2 it is offered and never released: the broker answers whether it may be published, and most brokers
    give it to nobody (MQTT 5 §4.3.3, method A). Only the client with the codec does this."""
    retain: bool = False
    taken_at: float | None = None
    """Epoch seconds; sent as the MQTT 5 user property ``taken_at``."""
    expires: float | None = None
    """Monotonic seconds after which it is worth nothing; sent as the MQTT 5 Message Expiry Interval."""
    latest: bool = False
    """Only the newest of its topic counts: an older one that still waits, and counts so too, is replaced."""
    correlation: bytes | None = None
    """Correlation Data of the request that this answers (MQTT 5 §3.3.2.3.6), sent back unchanged."""
    clock_offset: float | None = None
    """The offset of the wall clock at `taken_at`, see `leadsman.core.loop.clock.Clock.offset`."""
    receipt: Receipt | None = None
    """Learns once whether the message arrived."""
    replayed: bool = False
    """Whether it waited over an outage or a restart; sent as the MQTT 5 user property ``replayed``."""
    remade: bool = False
    """Whether its sender compares with each new connection what the broker has. Then nobody else sends it again."""
    once: bool = False
    """Whether it is given up as soon as the broker does not take it. Its sender misses the receipt, and reports it."""
    fence: int | None = None
    """The fencing token under which a node of a cluster publishes for a device; sent as the MQTT 5 user property
    ``fence``. None outside a cluster, and for messages about no device."""
    content_type: str | None = None
    """The Content Type of the payload (MQTT 5 §3.3.2.3.9); None: JSON or text."""

    @property
    def is_answer(self) -> bool:
        """Whether it is worth something for a while only, and is no reading: so are answers to requests."""
        return self.expires is not None and self.taken_at is None and not self.retain

    @property
    def size(self) -> int:
        """Bytes held against the outbox: payload, topic, and 60 for the rest."""
        return len(self.payload) + len(self.topic) + 60


class Delivery(Value):
    """How a reading travels, and which of the readings that wait for the broker arrive.

    Args:
        qos: 0 or 1. Quality 1 is kept until the broker acknowledges it; 0 is handed to the operating system once.
        retain: whether the broker keeps the latest reading for later subscribers. Of readings that wait, only the
            newest of its topic is sent with the retain flag.
        expiry: after this long an undelivered reading is dropped, and the broker forgets a retained one (MQTT 5). While
            the device is well it is published three times within it, whatever the publish rule decides.
        taken_at: ``"payload"`` adds the field ``taken_at`` to the JSON, for consumers that cannot read MQTT 5 user
            properties; None leaves the JSON as the handler returned it.
        keep: ``"all"`` sends every reading, in order. With ``"newest"`` a newer reading takes the place of one that
            waits and is not in flight, in memory and on disk, so one reading arrives after an outage.
        history: publish every reading at ``{prefix}/{device}/history`` too, never retained. Subscribers and the app
            forget it after this time (MQTT 5 message expiry). The state topic then gets the newest only. None: no such
            topic.

    Raises:
        InvalidValue, InvalidType: at construction.
    """

    __slots__ = ("expiry", "history", "keep", "qos", "retain", "taken_at")
    qos: int
    retain: bool
    expiry: float | None
    taken_at: Literal["payload"] | None
    keep: Literal["all", "newest"]
    history: float | None

    def __init__(
        self,
        qos: int = 1,
        retain: bool = True,
        expiry: Duration | None = None,
        taken_at: Literal["payload"] | None = None,
        keep: Literal["all", "newest"] = "all",
        history: Duration | None = None,
    ) -> None:
        if isinstance(qos, bool) or qos not in (0, 1):
            raise InvalidValue(
                f"qos is {qos!r}; it must be 0 or 1 (2 adds a round trip and nothing that a reading needs)"
            )
        if not isinstance(retain, bool):
            raise InvalidType(f"retain is {retain!r}; it must be True or False")
        if taken_at not in (None, "payload"):
            raise InvalidValue(f"taken_at is {taken_at!r}; it must be 'payload' or None")
        if keep not in ("all", "newest"):
            raise InvalidValue(f"keep is {keep!r}; it must be 'all' or 'newest'")
        if keep == "newest" and history is not None:
            raise InvalidValue(
                "keep='newest' has no history; leave keep out: with history the state has only the newest"
            )
        lifetime = None if expiry is None else positive_seconds(expiry, "expiry")
        kept = None if history is None else positive_seconds(history, "history")
        self._hold(qos=int(qos), retain=retain, expiry=lifetime, taken_at=taken_at, keep=keep, history=kept)

    @property
    def newest(self) -> bool:
        """Whether only the newest reading counts at the state topic."""
        return self.keep == "newest" or self.history is not None


STANDARD = Delivery()
"""At least once, retained."""
