"""The types of the options of a registration, as `leadsman.introspection.document` has them."""

from typing import Literal

from typing_extensions import TypedDict


class BreakerTerms(TypedDict):
    """The specification of a circuit breaker."""

    threshold: int
    recovery: float | str | None
    window: int | None
    slow: float | None
    shared: str | None
    probes: int
    successes: int
    ignore: list[str]
    """Errors that are neutral: neither a success nor a failure."""


class DeliveryTerms(TypedDict):
    """How readings are published."""

    qos: int
    retain: bool
    expiry: float | None
    keep: Literal["all", "newest"]
    """Which of the readings that wait for the broker arrive at the state topic: all of them, or the newest."""
    history: float | None
    """How long a reading at the history topic is wanted; None without such a topic."""
