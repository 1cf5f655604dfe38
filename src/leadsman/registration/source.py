"""What `@app.source` records: an async generator whose readings come when the device sends them."""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypedDict

from leadsman.errors import ConfigurationError
from leadsman.mqtt.message import STANDARD, Delivery
from leadsman.mqtt.topics import check_name
from leadsman.publish import PublishRule
from leadsman.registration.injection import Handler, Needs, Offer, check_generator, check_result, needs_of
from leadsman.registration.telemetry import UNSET, backoff_of, breaker_of, check_words, instance_of, publish_of
from leadsman.resilience.backoff import BackoffStrategy
from leadsman.resilience.breaker import CircuitBreaker
from leadsman.resilience.environment import Rules
from leadsman.resilience.from_options import of_words
from leadsman.timing.durations import Duration, positive_seconds

STALE_AFTER = 300.0
"""Seconds without a reading after which a source is stale, where it says nothing else: it has no interval to go by."""


class SourceWords(TypedDict, total=False):
    """The words of `@app.source`. Durations are seconds, text such as ``"5m"``, or `timedelta`."""

    backoff: BackoffStrategy
    """How long to wait before the generator is started again. Default ``ExponentialBackoff()``."""
    circuit_breaker: CircuitBreaker | None
    """Rest a device whose generator ends again and again without a reading. Default None."""
    publish: PublishRule | None
    """Which readings are told. Default None: all of them."""
    delivery: Delivery
    """How a reading travels. Default ``Delivery()``: QoS 1, retained."""
    stale_after: Duration
    """Without a reading for this long the device is stale. Default 5 min."""
    silence: Duration | None
    """Without a reading for this long the generator is started again. Default: as `stale_after`; None for never."""
    enabled: bool
    """False registers the generator without running it. Default True."""


class Source(NamedTuple):
    """One registered generator."""

    name: str
    handler: Handler
    needs: Needs
    rules: Rules
    publish: PublishRule | None
    delivery: Delivery
    stale_after: float
    silence: float | None
    enabled: bool


def register_source(name: object, handler: Handler, words: SourceWords, offers: Sequence[Offer]) -> Source:
    """Check one registration.

    Raises:
        InvalidType, InvalidValue: the message begins with the device's name.
    """
    device = check_name(name)
    try:
        return _register(device, handler, words, offers)
    except ConfigurationError as error:
        raise type(error)(f"source {device!r}: {error}") from None


def _register(name: str, handler: Handler, words: SourceWords, offers: Sequence[Offer]) -> Source:
    check_words(words, SourceWords)
    check_generator(handler)
    check_result(handler)
    stale_after = positive_seconds(words.get("stale_after", STALE_AFTER), "stale_after")
    silence: Any = words.get("silence", UNSET)
    return Source(
        name=name,
        handler=handler,
        needs=needs_of(handler, offers),
        rules=Rules(of_words(backoff=backoff_of(words)), breaker_of(words)),
        publish=publish_of(words),
        delivery=instance_of(words, "delivery", Delivery, STANDARD, "Delivery(qos=1, retain=True)"),
        stale_after=stale_after,
        silence=stale_after if silence is UNSET else None if silence is None else positive_seconds(silence, "silence"),
        enabled=instance_of(words, "enabled", bool, True, "True or False"),
    )
