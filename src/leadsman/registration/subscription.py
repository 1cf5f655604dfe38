"""The options of `@app.subscribe`, and the registration made from them: a handler for the messages of other programs at
topics that are not the app's own."""

from collections.abc import Sequence
from typing import NamedTuple, TypedDict

from leadsman.errors import ConfigurationError, InvalidType, InvalidValue
from leadsman.mqtt.connection import Received
from leadsman.mqtt.topics import check_filter
from leadsman.registration.command import Validate, payload_validator
from leadsman.registration.injection import Dependencies, Dependency, Handler, Provided, is_async, needs_and_payload
from leadsman.registration.options import check_options, enabled_of
from leadsman.timing.durations import Duration, positive_seconds

TIMEOUT = 30.0
"""The default timeout of a handler in seconds."""
QUEUE = 64
"""The default number of messages that may wait behind the one that is handled."""


class SubscriptionOptions(TypedDict, total=False):
    """The options of `@app.subscribe`."""

    timeout: Duration | None
    """The longest time for one call. Default 30 s; None: no limit."""
    queue: int
    """How many messages may wait behind the one that is handled, 1 or more; then the oldest is dropped. Default 64."""
    enabled: bool
    """False registers the handler without subscribing. Default True."""


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


def register_subscription(
    topic_filter: object, handler: Handler, options: SubscriptionOptions, available: Sequence[Dependency]
) -> Subscription:
    """Check one registration.

    Raises:
        InvalidType, InvalidValue: the message begins with the topic filter.
    """
    checked = check_filter(topic_filter)
    try:
        return _register(checked, handler, options, available)
    except ConfigurationError as error:
        raise type(error)(f"subscription {checked!r}: {error}") from None


def _register(
    topic_filter: str, handler: Handler, options: SubscriptionOptions, available: Sequence[Dependency]
) -> Subscription:
    check_options(options, SubscriptionOptions)
    plain, message = not is_async(handler), Provided(Received)
    needs, payload = needs_and_payload(handler, [*available, message])
    queue = options.get("queue", QUEUE)
    if isinstance(queue, bool) or not isinstance(queue, int):
        raise InvalidType(f"queue is {queue!r}; write a whole number such as {QUEUE}")
    if queue < 1:
        raise InvalidValue(f"queue is {queue}; it must be 1 or more")
    timeout = options.get("timeout", TIMEOUT)
    return Subscription(
        topic_filter=topic_filter,
        handler=handler,
        needs=needs,
        message=message,
        plain=plain,
        payload=payload.name if payload else None,
        validate=payload_validator(payload.annotation, payload.name) if payload else None,
        timeout=None if timeout is None else positive_seconds(timeout, "timeout"),
        queue=queue,
        enabled=enabled_of(options),
    )
