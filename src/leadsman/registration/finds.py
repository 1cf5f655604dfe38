"""Which devices a handler may find while the app runs: how many, of which readings, and when they are forgotten."""

from typing import Any, get_origin

from leadsman.errors import InvalidType, InvalidValue
from leadsman.loop.durations import Duration, positive_seconds
from leadsman.registration.injection import ContextDependency, Dependencies
from leadsman.value import Value

MOST = 100
"""Devices that one handler may find, by default: more than a house has, and few enough for a page."""
LARGEST = 10_000
"""Devices that one handler may be allowed to find: as many as an app is measured with."""
FORGET_AFTER = 7 * 86_400.0
"""Seconds without a reading after which a device is forgotten, by default: longer than a holiday flat is without
power over a weekend, and as long as readings are kept for the broker."""
SHORTEST = 60.0
"""Seconds; the shortest time after which a device may be forgotten. It is looked for once a minute."""


class Finds(Value):
    """The devices that a handler may find at run time with `Context.device`. Publish rule, delivery, and the rule
    when a device is offline are those of the handler itself.

    Args:
        readings: the type of their readings, such as a pydantic model with `Sensor` fields; discovery and the schema
            are made from it. None for any dict.
        most: how many devices the handler may have at the same time, 1 to 10,000. A further device is refused.
        forget_after: a device without a reading for this long is forgotten, and its topics are removed. At least a
            minute; None: never. Time in which the app does not run does not count.
        stale_after: a device without a reading for this long is stale. None takes that of the handler.
        everywhere: in a cluster, run the handler on each node that has its labels, as gateways whose sensors are heard
            by several of them. One node publishes each device; see `Context.device` for which. The handler itself is
            then a device of each node, ``{handler}@{node}``. Without ``[cluster]`` it changes nothing.

    Raises:
        InvalidValue, InvalidType: at construction.
    """

    __slots__ = ("everywhere", "forget_after", "most", "readings", "stale_after")
    everywhere: bool
    readings: Any
    most: int
    forget_after: float | None
    stale_after: float | None

    def __init__(
        self,
        readings: Any = None,
        *,
        most: int = MOST,
        forget_after: Duration | None = FORGET_AFTER,
        stale_after: Duration | None = None,
        everywhere: bool = False,
    ) -> None:
        if readings is not None and not isinstance(readings, type) and get_origin(readings) is None:
            raise InvalidType(f"readings is {readings!r}; write a type, such as the class of a pydantic model")
        if isinstance(most, bool) or not isinstance(most, int):
            raise InvalidType(f"most is {most!r}; write a number of devices, such as 100")
        if not 1 <= most <= LARGEST:
            raise InvalidValue(f"most is {most}; write 1 to {LARGEST}")
        if not isinstance(everywhere, bool):
            raise InvalidType(f"everywhere is {everywhere!r}; write True or False")
        forgotten = None if forget_after is None else positive_seconds(forget_after, "forget_after")
        if forgotten is not None and forgotten < SHORTEST:
            raise InvalidValue(f"forget_after is {forget_after!r}; it must be at least {SHORTEST:g} s")
        stale = None if stale_after is None else positive_seconds(stale_after, "stale_after")
        self._hold(readings=readings, most=most, forget_after=forgotten, stale_after=stale, everywhere=everywhere)


def check_finds(given: object, needs: Dependencies) -> Finds:
    """The option ``finds`` of a handler. Raises `InvalidType`, `InvalidValue`."""
    if not isinstance(given, Finds):
        raise InvalidType(f"finds is {given!r}; write Finds(Model, most=100)")
    if not any(isinstance(need, ContextDependency) for _, need in needs):
        raise InvalidValue("finds needs context.device(…); give the handler a parameter of the type Context")
    return given
