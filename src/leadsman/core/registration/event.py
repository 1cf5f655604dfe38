"""The options of `@app.event` and the registration made from them: a source whose messages are about what
happened, such as a press of a button, and no state that lasts."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from leadsman.core.loop.durations import Duration
from leadsman.core.mqtt.message import Delivery
from leadsman.core.readings.device_classes import OF_EVENTS
from leadsman.core.registration.declaration import NONE, POSITIVE_SECONDS, Option, Options, checked, or_none
from leadsman.core.registration.injection import Dependency, Handler, name_of
from leadsman.core.registration.options import ANY_ERROR, BACKOFF, PublishingOptions, type_of_readings
from leadsman.core.registration.reading_type import ReadingType
from leadsman.core.registration.result import check_result, returns_one_value
from leadsman.core.registration.source import EventTypes, Source, SourceOptions, make_source
from leadsman.core.resilience.backoff import BackoffStrategy
from leadsman.core.text.suggestion import suggestion
from leadsman.errors import InvalidType, InvalidValue

if TYPE_CHECKING:
    from leadsman.core.registration.finds import Finds

FIELD = "event_type"
"""The field of an event that holds what happened, as Home Assistant reads it
(https://www.home-assistant.io/integrations/event.mqtt/)."""
EXPIRY = 10.0
"""Seconds after which an event that did not arrive is dropped, by default. A broker that is restarted is back within
that time; a person who pressed a button does not expect anything of it any more."""
_EXAMPLE = "AsyncIterator[Literal['press', 'release']], or a model with such a field"


def _device_class(given: object, name: str) -> str:
    if not isinstance(given, str):
        raise InvalidType(f"{name} is {given!r}; write 'button', 'doorbell' or 'motion'")
    if given not in OF_EVENTS:
        raise InvalidValue(f"{name} {given!r} is not one of an event; {suggestion(given, OF_EVENTS)}")
    return given


class EventOptions(PublishingOptions, total=False):
    """The options of `@app.event`, with those of `PublishingOptions` and `DeviceOptions`. Durations are seconds, text
    such as ``"5m"``, or `timedelta`."""

    backoff: Annotated[BackoffStrategy, BACKOFF]
    """How long to wait before the generator is started again. Default ``ExponentialBackoff()``."""
    expiry: Annotated[Duration | None, Option(or_none(POSITIVE_SECONDS), notation="number or off")]
    """An event that did not arrive within this time is dropped, and the broker keeps it for nobody for longer (MQTT 5).
    None: it arrives however late. Default: that of `delivery`, if it has one; else 10 s."""
    device_class: Annotated[str | None, Option(or_none(_device_class))]
    """What Home Assistant shows it as: ``"button"``, ``"doorbell"`` or ``"motion"``. With the first two it can trigger
    automations as a device, too. Default None."""


def register_event(
    name: str,
    handler: Handler,
    options: Options,
    available: Sequence[Dependency],
    further: Mapping[str, Option] = NONE,
) -> Source:
    """Check one registration, which may have further options, of extensions. Raises `InvalidType`, `InvalidValue`."""
    values = checked(options, EventOptions, further)
    check_result(handler, one_value=True)  # bytes are content of a source, and no event
    changed = {
        "delivery": _delivery(values, options),
        "offline_on": values["offline_on"] if "offline_on" in options else ANY_ERROR,
        "stale_after": None,
    }
    # Without a publish rule, a deadband of a field would thin events out.
    given = {"publish": None, **options} | ({"field": FIELD} if returns_one_value(handler) else {})
    source = make_source(name, handler, checked({}, SourceOptions) | values | changed, given, available)
    kind = type_of_readings(handler, source.field, source.finds, None)
    return source._replace(events=EventTypes(_types_of(handler, kind, source.finds), values["device_class"]))


def _delivery(values: Mapping[str, Any], options: Options) -> Delivery:
    """How events travel. They are never retained: a subscriber that comes later would take the last one for new."""
    given: Delivery = values["delivery"]
    expiry = values["expiry"] if "expiry" in options else EXPIRY if given.expiry is None else given.expiry
    return Delivery(given.qos, False, expiry, given.taken_at, given.keep, given.history)


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
