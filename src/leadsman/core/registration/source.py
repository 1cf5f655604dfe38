"""The options of `@app.source` and the registration made from them: an async generator that yields readings when
the device sends them."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from leadsman.core.loop.durations import Duration
from leadsman.core.mqtt.message import Delivery
from leadsman.core.readings.publish import PublishRule
from leadsman.core.readings.reading import Layout
from leadsman.core.readings.sensor import NO_PRESENTATIONS, Presentations
from leadsman.core.registration.annotation import alike
from leadsman.core.registration.declaration import (
    NO_VALUES,
    NONE,
    POSITIVE_SECONDS,
    Option,
    Options,
    carried,
    checked,
    or_none,
)
from leadsman.core.registration.injection import Dependencies, Dependency, Handler, check_generator, needs_of
from leadsman.core.registration.options import BACKOFF, STALE_AFTER, Errors, ReadingOptions, reading_values
from leadsman.core.registration.result import ValidateResult
from leadsman.core.resilience.backoff import BackoffStrategy
from leadsman.core.resilience.environment import GuardSpec
from leadsman.core.resilience.policy import from_options

if TYPE_CHECKING:
    from leadsman.core.readings.content import ContentField
    from leadsman.core.readings.filtering import Filters
    from leadsman.core.registration.finds import Finds

DEFAULT_STALE_AFTER = 300.0
"""Seconds without a reading after which a source is stale, by default. A source has no interval to derive it from."""


class SourceOptions(ReadingOptions, total=False):
    """The options of `@app.source`, with those of `ReadingOptions` and `DeviceOptions`. Durations are
    seconds, text such as ``"5m"``, or `timedelta`."""

    backoff: Annotated[BackoffStrategy, BACKOFF]
    """How long to wait before the generator is started again. Default ``ExponentialBackoff()``."""
    stale_after: Annotated[Duration | None, STALE_AFTER._replace(default=DEFAULT_STALE_AFTER)]
    """The device is stale after this time without a reading. Default 5 min; None: never, as a door that stays shut."""
    silence: Annotated[Duration | None, Option(or_none(POSITIVE_SECONDS), as_it_is=True)]
    """The generator is restarted after this time without a reading. One that waits in a `Buffer` is not: its silence is
    only reported. Default: as `stale_after`; None: never."""


class EventTypes(NamedTuple):
    """Which events a device sends."""

    types: tuple[str, ...]
    """The types of events: the values of the field ``event_type``."""
    device_class: str | None
    """One of `leadsman.core.readings.device_classes.OF_EVENTS`."""


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
    offline_on: Errors
    """The errors that make the device offline as soon as it fails."""
    silence: float | None
    enabled: bool
    validate_result: ValidateResult | None
    finds: "Finds | None" = None
    found_by: str | None = None
    """The name of the handler that has found the device, and hands over its readings; None for a generator."""
    title: str | None = None
    """Its name for people; None if that is its name."""
    area: str | None = None
    """The area that is suggested for it; None suggests none."""
    fields: Presentations = NO_PRESENTATIONS
    """How its fields are shown to people, where not as their types define."""
    discoverable: bool = True
    """Whether it is announced to Home Assistant."""
    field: str | None = None
    """The name of the field of its readings, if it returns one value."""
    filters: "Filters | None" = None
    content: "ContentField | None" = None
    """What it returns, if that is bytes with a topic of their own."""
    layout: Layout = "json"
    """Whether its readings are one JSON object, or each value is at a topic of its own."""
    fixed: frozenset[str] = frozenset()
    """The options that the settings must not change, by their names there."""
    labels: frozenset[str] = frozenset()
    """The labels that a node must have to run it, in a cluster."""
    events: EventTypes | None = None
    """Which events it sends; None if it gives readings."""
    of_extensions: Options = NO_VALUES
    """The options that extensions add."""

    @property
    def kind(self) -> Literal["source", "event"]:
        """The decorator."""
        return "source" if self.events is None else "event"


def register_source(
    name: str,
    handler: Handler,
    options: SourceOptions,
    available: Sequence[Dependency],
    further: Mapping[str, Option] = NONE,
) -> Source:
    """Check one registration, which may have further options, of extensions. Raises `InvalidType`, `InvalidValue`."""
    return make_source(name, handler, checked(options, SourceOptions, further), options, available)


def make_source(
    name: str, handler: Handler, values: Mapping[str, Any], options: Options, available: Sequence[Dependency]
) -> Source:
    """Make a source of the values of its options, of which some are given. Raises `InvalidType`, `InvalidValue`."""
    check_generator(handler)
    stale_after, read = values["stale_after"], alike(handler)
    needs = needs_of(read, available)
    fields = {
        **carried(values, Source),
        "name": name,
        "handler": handler,
        "needs": needs,
        "guards": GuardSpec(from_options(backoff=values["backoff"]), values["circuit_breaker"]),
        "stale_after": math.inf if stale_after is None else stale_after,
        "silence": values["silence"] if "silence" in options else stale_after,
        "labels": values["needs"],
        **reading_values(values, options, read, needs),
    }
    return Source(**fields)
