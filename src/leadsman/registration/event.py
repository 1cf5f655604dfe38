"""The options of `@app.event` and the registration made from them: a source whose messages are about what
happened, such as a press of a button, and no state that lasts."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from leadsman.errors import InvalidType, InvalidValue
from leadsman.loop.durations import Duration
from leadsman.mqtt.message import Delivery
from leadsman.readings.device_classes import OF_EVENTS
from leadsman.registration.injection import Dependency, Handler, check_result, name_of
from leadsman.registration.options import (
    Options,
    PublishingOptions,
    check_options,
    delivery_of,
    length_of,
    type_of_readings,
)
from leadsman.registration.reading_type import ReadingType
from leadsman.registration.result import returns_one_value
from leadsman.registration.source import EventTypes, Source, make_source
from leadsman.resilience.backoff import BackoffStrategy
from leadsman.text.suggestion import suggestion

if TYPE_CHECKING:
    from leadsman.registration.finds import Finds

FIELD = "event_type"
"""The field of an event that holds what happened, as Home Assistant reads it
(https://www.home-assistant.io/integrations/event.mqtt/)."""
EXPIRY = 10.0
"""Seconds after which an event that did not arrive is dropped, by default. A broker that is restarted is back within
that time; a person who pressed a button does not expect anything of it any more."""
_EXAMPLE = "AsyncIterator[Literal['press', 'release']], or a model with such a field"


class EventOptions(PublishingOptions, total=False):
    """The options of `@app.event`, with those of `PublishingOptions` and `DeviceOptions`. Durations are seconds, text
    such as ``"5m"``, or `timedelta`."""

    backoff: BackoffStrategy
    """How long to wait before the generator is started again. Default ``ExponentialBackoff()``."""
    expiry: Duration | None
    """An event that did not arrive within this time is dropped, and the broker keeps it for nobody for longer (MQTT 5).
    None: it arrives however late. Default: that of `delivery`, if it has one; else 10 s."""
    device_class: str | None
    """What Home Assistant shows it as: ``"button"``, ``"doorbell"`` or ``"motion"``. With the first two it can trigger
    automations as a device, too. Default None."""


def register_event(name: str, handler: Handler, options: Options, available: Sequence[Dependency]) -> Source:
    """Check one registration. Raises `InvalidType`, `InvalidValue`."""
    check_options(options, EventOptions)
    check_result(handler, one_value=True)  # bytes are content of a source, and no event
    source = make_source(name, handler, _of_source(handler, options), available)
    kind = type_of_readings(handler, source.field, source.finds, None)
    return source._replace(events=EventTypes(_types_of(handler, kind, source.finds), _class_of(options)))


def _of_source(handler: Handler, options: Options) -> Options:
    """The options of the source. A publish rule is only there if one is written: a deadband of a field alone would thin
    events out."""
    one_value: Options = {"field": FIELD} if returns_one_value(handler) else {}
    unless_given: Options = {"offline_on": "error", "publish": None}
    return {**unless_given, **options, **one_value, "delivery": _delivery_of(options), "stale_after": None}


def _delivery_of(options: Options) -> Delivery:
    """How events travel. They are never retained: a subscriber that comes later would take the last one for new."""
    given = delivery_of(options)
    expiry = length_of(options, "expiry", EXPIRY if given.expiry is None else given.expiry)
    return Delivery(given.qos, False, expiry, given.taken_at, given.keep, given.history)


def _class_of(options: Options) -> str | None:
    given = options.get("device_class")
    if given is None:
        return None
    if not isinstance(given, str):
        raise InvalidType(f"device_class is {given!r}; write 'button', 'doorbell' or 'motion'")
    if given not in OF_EVENTS:
        raise InvalidValue(f"device_class {given!r} is none of an event; {suggestion(given, OF_EVENTS)}")
    return given


def _types_of(handler: Handler, kind: ReadingType | None, finds: "Finds | None") -> tuple[str, ...]:
    """The types of the events, as the annotation of their field lists them."""
    field = None if kind is None else kind.fields.get(FIELD)
    if field is None or not field.choices:
        what = "the devices that it finds" if finds is not None else name_of(handler)
        raise InvalidType(f"{FIELD} of {what} lists no values; annotate the handler as {_EXAMPLE}")
    for each in field.choices:
        if not isinstance(each, str):
            raise InvalidType(f"{FIELD} has the value {each!r}; write text, such as 'press'")
        if not each.strip() or not each.isprintable():
            raise InvalidValue(f"{FIELD} has the value {each!r}; write a word that people can read, such as 'press'")
    return tuple(str(each) for each in field.choices)
