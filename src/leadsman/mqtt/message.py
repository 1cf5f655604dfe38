"""A message on its way to the broker."""

from typing import Literal, NamedTuple, Protocol

from leadsman.errors import InvalidType, InvalidValue
from leadsman.timing.durations import Duration, positive_seconds
from leadsman.value import Value


class Receipt(Protocol):
    """Counts what becomes of messages."""

    published: int
    """Messages that the broker has."""
    replayed: int
    """Those that the broker has, and that waited over an outage of the connection. They are not `published`."""

    def dropped(self, at: float) -> None:
        """A message whose reading was taken at `at` will never arrive. `at` is seconds of
        `leadsman.timing.clock.Clock.uptime`."""
        ...


class Message(NamedTuple):
    """One PUBLISH."""

    topic: str
    payload: bytes
    qos: int = 1
    """0 or 1. With 2 it is offered and never released: the broker says whether it may be published, and most brokers
    give it to nobody (MQTT 5 §4.3.3, method A). Only the client with the codec does this."""
    retain: bool = False
    taken_at: float | None = None
    """Epoch seconds; sent as the MQTT 5 user property ``taken_at``."""
    expires: float | None = None
    """Monotonic seconds after which it is worth nothing; sent as the MQTT 5 Message Expiry Interval."""
    latest: bool = False
    """Only the newest of its topic counts: an older one that still waits is replaced, not sent before it."""
    correlation: bytes | None = None
    """Correlation Data of the request that this answers (MQTT 5 §3.3.2.3.6), sent back unchanged."""
    clock_offset: float | None = None
    """What the wall clock was set to at `taken_at`, see `leadsman.timing.clock.Clock.offset`."""
    receipt: Receipt | None = None
    """Learns once whether the message arrived."""
    replayed: bool = False
    """Whether it waited over an outage or a restart; sent as the MQTT 5 user property ``replayed``."""

    @property
    def size(self) -> int:
        """Bytes held against the outbox: payload, topic, and 60 for the rest."""
        return len(self.payload) + len(self.topic) + 60


class Delivery(Value):
    """How a reading travels.

    Args:
        qos: 0 or 1. Quality 1 is kept until the broker acknowledges it; 0 is handed to the operating system once.
        retain: whether the broker keeps the latest reading for later subscribers.
        expiry: after this long an undelivered reading is dropped, and the broker forgets a retained one (MQTT 5).
        taken_at: ``"payload"`` adds the field ``taken_at`` to the JSON, for consumers that cannot read MQTT 5 user
            properties; None leaves the JSON as the handler returned it.

    Raises:
        InvalidValue, InvalidType: at construction.
    """

    __slots__ = ("expiry", "qos", "retain", "taken_at")
    qos: int
    retain: bool
    expiry: float | None
    taken_at: Literal["payload"] | None

    def __init__(
        self,
        qos: int = 1,
        retain: bool = True,
        expiry: Duration | None = None,
        taken_at: Literal["payload"] | None = None,
    ) -> None:
        if isinstance(qos, bool) or qos not in (0, 1):
            raise InvalidValue(
                f"qos is {qos!r}; it must be 0 or 1 (2 adds a round trip and nothing that a reading needs)"
            )
        if not isinstance(retain, bool):
            raise InvalidType(f"retain is {retain!r}; it must be True or False")
        if taken_at not in (None, "payload"):
            raise InvalidValue(f"taken_at is {taken_at!r}; it must be 'payload' or None")
        lifetime = None if expiry is None else positive_seconds(expiry, "expiry")
        self._hold(qos=int(qos), retain=retain, expiry=lifetime, taken_at=taken_at)


STANDARD = Delivery()
"""At least once, retained."""
