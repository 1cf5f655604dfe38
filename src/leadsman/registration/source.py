"""The options of `@app.source` and the registration made from them: an async generator that yields readings when
the device sends them."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, TypedDict

from leadsman.loop.durations import Duration, positive_seconds
from leadsman.mqtt.message import Delivery
from leadsman.readings.publish import PublishRule
from leadsman.registration.injection import Dependencies, Dependency, Handler, check_generator, check_result, needs_of
from leadsman.registration.options import (
    backoff_of,
    breaker_of,
    check_options,
    delivery_of,
    enabled_of,
    finds_of,
    labelled,
    labels_of,
    offline_on_error_of,
    publish_of,
    title_of,
)
from leadsman.registration.result import ValidateResult, result_validator
from leadsman.resilience.backoff import BackoffStrategy
from leadsman.resilience.breaker import CircuitBreaker
from leadsman.resilience.environment import GuardSpec
from leadsman.resilience.policy import from_options

if TYPE_CHECKING:
    from leadsman.registration.finds import Finds

STALE_AFTER = 300.0
"""Seconds without a reading after which a source is stale, by default. A source has no interval to derive it from."""


class SourceOptions(TypedDict, total=False):
    """The options of `@app.source`. Durations are seconds, text such as ``"5m"``, or `timedelta`."""

    backoff: BackoffStrategy
    """How long to wait before the generator is started again. Default ``ExponentialBackoff()``."""
    circuit_breaker: CircuitBreaker | None
    """Pause a device whose generator ends repeatedly without a reading. Default None."""
    publish: PublishRule | None
    """Which readings are published. Default None: all of them."""
    delivery: Delivery
    """The quality of service of readings, the retain flag, and which of those that wait arrive. Default ``Delivery()``:
    QoS 1, all of them, the newest retained."""
    stale_after: Duration | None
    """The device is stale after this time without a reading. Default 5 min; None: never, as a door that stays shut."""
    offline_on: Literal["stale", "error"]
    """When the device's availability is ``offline``: with ``"stale"`` (default) while no reading is expected soon, that
    is, while it is held, its circuit is open, or it is stale; with ``"error"`` also from its first failure on."""
    silence: Duration | None
    """The generator is restarted after this time without a reading. One that waits in a `Buffer` is not: its silence is
    only reported. Default: as `stale_after`; None: never."""
    finds: "Finds | None"
    """Which devices the generator may find while the app runs; see `Context.device`. Default None: it finds none."""
    needs: str | Sequence[str]
    """What a node of a cluster must have to run this: one label or several, such as ``"ble"`` or
    ``"serial:/dev/serial/by-id/…"``. Default: every node can. Without ``[cluster]`` it changes nothing."""
    title: str | None
    """The name of the device for people, in Home Assistant, Homie and introspection, such as ``"Bathroom"``. Its topics
    do not change. Of several devices, each has its own: ``Device(title="Bathroom")``. Default: its name."""
    enabled: bool
    """False registers the generator without running it. Default True."""


class Source(NamedTuple):
    """One registered generator, or one device that a handler has found at run time."""

    name: str
    handler: Handler
    needs: Dependencies
    guards: GuardSpec
    publish: PublishRule | None
    delivery: Delivery
    stale_after: float
    """Seconds; infinite if it is never stale."""
    offline_on_error: bool
    silence: float | None
    enabled: bool
    validate_result: ValidateResult | None
    finds: "Finds | None" = None
    found_by: str | None = None
    """The name of the handler that has found the device, and hands over its readings; None for a generator."""
    title: str | None = None
    """Its name for people; None if that is its name."""
    labels: frozenset[str] = frozenset()
    """What a node must have to run it, in a cluster."""


def register_source(name: object, handler: Handler, options: SourceOptions, available: Sequence[Dependency]) -> Source:
    """Check one registration.

    Raises:
        InvalidType, InvalidValue: the message begins with the device's name.
    """
    return labelled("source", name, lambda device: _register(device, handler, options, available))


def _register(name: str, handler: Handler, options: SourceOptions, available: Sequence[Dependency]) -> Source:
    check_options(options, SourceOptions)
    check_generator(handler)
    check_result(handler)
    given = options.get("stale_after", STALE_AFTER)
    stale_after = math.inf if given is None else positive_seconds(given, "stale_after")
    silence = options.get("silence", given)
    needs = needs_of(handler, available)
    return Source(
        name=name,
        handler=handler,
        needs=needs,
        guards=GuardSpec(from_options(backoff=backoff_of(options)), breaker_of(options)),
        publish=publish_of(options),
        delivery=delivery_of(options),
        stale_after=stale_after,
        offline_on_error=offline_on_error_of(options),
        silence=None if silence is None else positive_seconds(silence, "silence"),
        enabled=enabled_of(options),
        validate_result=result_validator(handler),
        finds=finds_of(options, needs),
        title=title_of(options),
        labels=labels_of(options),
    )
