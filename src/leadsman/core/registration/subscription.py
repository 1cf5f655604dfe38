"""The options of `@app.subscribe`, and the registration made from them: a handler for the messages of other programs at
topics that are not the app's own. With `device`, what it returns is a reading of that device, and with `event` an event
of that one, which is registered as a source of its own."""

from collections.abc import AsyncIterator, Sequence
from types import GenericAlias
from typing import Annotated, Any, Literal, NamedTuple

from leadsman.core.loop.durations import Duration
from leadsman.core.mqtt.connection import Received
from leadsman.core.mqtt.topics import check_filter, check_name
from leadsman.core.readings.buffer import Buffer
from leadsman.core.registration.annotation import result_of
from leadsman.core.registration.command import Validate, payload_validator
from leadsman.core.registration.declaration import Option, as_given, checked
from leadsman.core.registration.event import EventOptions
from leadsman.core.registration.injection import (
    Dependencies,
    Dependency,
    Handler,
    Provided,
    is_async,
    name_of,
    needs_and_payload,
)
from leadsman.core.registration.options import TIMEOUT, queue
from leadsman.core.registration.result import check_result
from leadsman.core.registration.source import SourceOptions
from leadsman.errors import InvalidValue, labelled

DEFAULT_TIMEOUT = 30.0
"""Seconds."""
DEFAULT_QUEUE = 64
"""Messages that may wait behind the one that is handled."""


_QUEUE = queue(DEFAULT_QUEUE)


class SubscriptionOptions(SourceOptions, EventOptions, total=False):
    """The options of `@app.subscribe`. The options of a source apply to the device that `device` names, and those of an
    event to the one that `event` names."""

    device: Annotated[str, Option(as_given)]
    """What the handler returns is published as a reading of this device, unless it is None. Default: no device, and
    what it returns is ignored."""
    event: Annotated[str, Option(as_given)]
    """What the handler returns is published as an event of this device, unless it is None. In place of `device`."""

    timeout: Annotated[Duration | None, TIMEOUT._replace(default=DEFAULT_TIMEOUT)]
    """The longest time for one call. Default 30 s; None: no limit."""
    queue: Annotated[int, _QUEUE]
    """How many messages may wait behind the one that is handled, 1 or more; then the oldest is dropped. Default 64."""


OWN_OPTIONS = frozenset({"device", "event", "timeout", "queue", "enabled"})
"""The options that are not only those of what it feeds."""


class Fed(NamedTuple):
    """The device that a subscription feeds."""

    kind: Literal["source", "event"]
    name: str


class Subscription(NamedTuple):
    """One registered handler of messages."""

    topic_filter: str
    handler: Handler
    needs: Dependencies
    message: Provided
    """Gives the handler the message, if it asks for a `Received`."""
    plain: bool
    payload: str | None
    """The parameter that gets the payload; None when the handler takes none."""
    validate: Validate | None
    timeout: float | None
    queue: int
    enabled: bool
    device: str | None
    """The device that it feeds."""
    readings: Buffer[object] | None
    """Takes what the handler returns, for the source of the device; None without one."""
    event: bool
    """Whether its messages are events: one that the broker kept is over."""


def register_subscription(
    topic_filter: object,
    handler: Handler,
    options: SubscriptionOptions,
    available: Sequence[Dependency],
    readings: Buffer[object] | None = None,
) -> Subscription:
    """Check one registration. `readings` is what `buffer_of` made for its device.

    Raises:
        InvalidType, InvalidValue: the message begins with the topic filter.
    """
    mine = check_filter(topic_filter)
    with labelled(f"subscription {mine!r}"):
        values = checked(options, SubscriptionOptions)
        if readings is None and (only := sorted(options.keys() - OWN_OPTIONS)):
            raise InvalidValue(f"{only[0]} is an option of a device; write device= as well, such as device='door'")
        fed = fed_by(options)
        plain, message = not is_async(handler), Provided(Received)
        needs, payload = needs_and_payload(handler, [*available, message])
        return Subscription(
            topic_filter=mine,
            handler=handler,
            needs=needs,
            message=message,
            plain=plain,
            payload=payload.name if payload else None,
            validate=payload_validator(payload.annotation, payload.name) if payload else None,
            timeout=values["timeout"],
            queue=values["queue"],
            enabled=values["enabled"],
            device=None if fed is None else fed.name,
            readings=readings,
            event=fed is not None and fed.kind == "event",
        )


def fed_by(options: SubscriptionOptions) -> Fed | None:
    """The device that a subscription feeds; None if it feeds none. Raises `InvalidValue` if it names two."""
    if "device" in options and "event" in options:
        raise InvalidValue("subscribe has a device and an event; leave one of them out, or write two handlers")
    if "event" in options:
        return Fed("event", check_name(options["event"], "event"))
    return Fed("source", check_name(options["device"], "device")) if "device" in options else None


def buffer_of(options: SubscriptionOptions) -> Buffer[object]:
    """Where the readings of a device wait until its source takes them: as many as messages may wait."""
    most: Any = _QUEUE.check(options.get("queue", DEFAULT_QUEUE), "queue")
    return Buffer(most)


def source_of(handler: Handler, readings: Buffer[object]) -> Handler:
    """A source that yields what a handler of messages has returned, with the types that it declares.

    Raises:
        InvalidType: it is annotated to return what is no reading.
    """
    check_result(handler, one_value=True)

    async def source() -> AsyncIterator[Any]:
        async for reading in readings:
            yield reading

    result = result_of(handler).whole
    source.__annotations__ = {} if result is None else {"return": GenericAlias(AsyncIterator, (result,))}
    source.__name__ = source.__qualname__ = name_of(handler)
    return source
