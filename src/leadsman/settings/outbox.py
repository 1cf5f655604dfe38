"""Reads the section ``outbox`` of the settings: how durable readings are while the broker does not have them."""

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, TypeVar, cast, get_args

from leadsman.errors import ConfigurationError, InvalidType, InvalidValue, raise_together
from leadsman.loop.durations import Duration, positive_seconds
from leadsman.settings.sources import Entry

Durability = Literal["acked-or-durable", "write-through", "memory"]
SMALLEST = 1024 * 1024
"""Bytes of the smallest file that may be asked for."""

T = TypeVar("T")


class OutboxSettings(NamedTuple):
    """How readings wait for the broker."""

    durability: Durability = "acked-or-durable"
    """``acked-or-durable``: those that wait are on disk within a quarter of a second. ``write-through``: their
    write begins after a hundredth. ``memory``: none."""
    most_bytes: int = 64 * 1024 * 1024
    """Bytes on disk at the most, topics included."""
    most_age: float = 7 * 86_400.0
    """Seconds for which a reading waits on disk at the most."""


def outbox_of(entries: Mapping[str, Entry]) -> OutboxSettings:
    """Read the section.

    Raises:
        ConfigurationError: values are wrong, one a line; the message names their origins.
    """
    faults: list[ConfigurationError] = []

    def read(key: str, check: Callable[[object], T], default: T) -> T:
        entry = entries.get(key)
        if entry is None:
            return default
        try:
            return check(entry.value)
        except ConfigurationError as error:
            faults.append(type(error)(f"outbox.{key}: {error} (from {entry.origin})"))
            return default

    standard = OutboxSettings()
    found = OutboxSettings(
        read("durability", _durability, standard.durability),
        read("max_bytes", _bytes, standard.most_bytes),
        read("max_age", _age, standard.most_age),
    )
    raise_together(faults)
    return found


def _durability(value: object) -> Durability:
    if value not in get_args(Durability):
        raise InvalidValue(f"{value!r} is unknown; write 'acked-or-durable', 'write-through' or 'memory'")
    return cast("Durability", value)


def _bytes(value: object) -> int:
    number = int(value) if isinstance(value, str) and value.isdecimal() else value
    if not isinstance(number, int) or isinstance(number, bool):
        raise InvalidType(f"{value!r} is not a whole number of bytes")
    if number < SMALLEST:
        raise InvalidValue(f"{number} bytes are too few; write {SMALLEST} or more")
    return number


def _age(value: object) -> float:
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise InvalidType(f"{value!r} is not a duration; write one such as '7d'")
    return positive_seconds(cast("Duration", value), "it")
