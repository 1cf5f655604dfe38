"""Which devices a handler may find while the app runs: how many, of which readings, and when they are forgotten; and
how it describes one that it has found: the fields of its readings, and its name for people. That is announced, and
outlives a restart, so it is plain."""

import re
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Annotated, Any, NamedTuple, get_origin

from typing_extensions import TypedDict

from leadsman.core.loop.durations import Duration, positive_seconds, whole
from leadsman.core.readings.sensor import Sensor
from leadsman.core.registration.annotation import split
from leadsman.core.text import clean
from leadsman.core.value import Value
from leadsman.errors import ConfigurationError, InvalidType, InvalidValue

DEFAULT_DEVICES = 100
"""Devices that one handler may find, by default: more than a house has, and few enough for a page."""
MAX_DEVICES = 10_000
"""Devices that one handler may be allowed to find: as many as an app is measured with."""
FORGET_AFTER = 7 * 86_400.0
"""Seconds without a reading after which a device is forgotten, by default: longer than a holiday flat is without
power over a weekend, and as long as readings are kept for the broker."""
MIN_FORGET_AFTER = 60.0
"""Seconds; the shortest time after which a device may be forgotten. It is looked for once a minute."""
MAX_FIELDS = 50
"""Fields of one device. They come from outside, and each is an entity that a person sees; further ones are left out."""
MAX_TITLE_CHARS = 80
"""Characters of a name for people; what comes after them is left out."""
KINDS: Mapping[str, type] = {"number": float, "integer": int, "boolean": bool, "text": str, "timestamp": datetime}
"""The types that a field may have, by the names under which they are kept."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")


class Finds(Value):
    """The devices that a handler may find at run time with `Context.device`. Publish rule, delivery, and the rule
    when a device is offline are those of the handler itself. In a cluster one node runs the handler, and has the
    devices that it finds.

    Args:
        readings: the type of their readings, such as a pydantic model with `Sensor` fields; discovery and the schema
            are made from it. None for any dict.
        most: how many devices the handler may have at the same time, 1 to 10,000. A further device is refused.
        forget_after: a device without a reading for this long is forgotten, and its topics are removed. At least a
            minute; None: never. Time in which the app does not run does not count.
        stale_after: a device without a reading for this long is stale. None takes that of the handler.

    Raises:
        InvalidValue, InvalidType: at construction.
    """

    __slots__ = ("forget_after", "most", "readings", "stale_after")
    readings: Any
    most: int
    forget_after: float | None
    stale_after: float | None

    def __init__(
        self,
        readings: Any = None,
        *,
        most: int = DEFAULT_DEVICES,
        forget_after: Duration | None = FORGET_AFTER,
        stale_after: Duration | None = None,
    ) -> None:
        if readings is not None and not isinstance(readings, type) and get_origin(readings) is None:
            raise InvalidType(f"readings is {readings!r}; write a type, such as the class of a pydantic model")
        kind, limits = "write a number of devices, such as 100", f"write 1 to {MAX_DEVICES}"
        whole(most, "most", 1, MAX_DEVICES, kind=kind, limits=limits)
        forgotten = None if forget_after is None else positive_seconds(forget_after, "forget_after")
        if forgotten is not None and forgotten < MIN_FORGET_AFTER:
            raise InvalidValue(f"forget_after is {forget_after!r}; it must be at least {MIN_FORGET_AFTER:g} s")
        stale = None if stale_after is None else positive_seconds(stale_after, "stale_after")
        self._hold(readings=readings, most=most, forget_after=forgotten, stale_after=stale)


class FoundField(NamedTuple):
    """One field of the readings of a device."""

    kind: str
    """A key of `KINDS`."""
    sensor: Sensor | None


class FoundType(NamedTuple):
    """The type of one device that was found: its fields, and its name for people."""

    fields: Mapping[str, FoundField]
    title: str | None = None

    def union(self, other: "FoundType") -> "FoundType":
        """This with what another one has besides. A field stays as it was, since it was announced."""
        news = {name: field for name, field in other.fields.items() if name not in self.fields}
        fields = dict(list({**self.fields, **news}.items())[:MAX_FIELDS])
        return FoundType(fields, self.title if other.title is None else other.title)

    @property
    def readings(self) -> object:
        """The type of the readings, each field of which may be missing; None if no field is known."""
        return _typed_dict(tuple(self.fields.items())) if self.fields else None

    def to_json(self) -> dict[str, object]:
        """The document that is kept over a restart."""
        fields = {
            name: [kind, None if sensor is None else sensor.words()] for name, (kind, sensor) in self.fields.items()
        }
        return {"fields": fields, "title": self.title}


NO_TYPE = FoundType({})


def found_type(fields: Mapping[str, object] | None, title: str | None) -> FoundType:
    """How a handler describes a device.

    Raises:
        InvalidType, InvalidValue: a field has another type, or an invalid name; the title is no text.
    """
    if title is not None and not isinstance(title, str):
        raise InvalidType(f"title is {title!r}; write text such as 'Kitchen'")
    if fields is not None and not isinstance(fields, Mapping):
        raise InvalidType(f"fields is {fields!r}; write a dict such as {{'temperature': float}}")
    found = {name: _field(name, kind) for name, kind in (fields or {}).items()}
    return FoundType(found, None if title is None else clean(title)[:MAX_TITLE_CHARS].strip() or None)


def from_json(kept: object) -> FoundType | None:
    """The type that was kept over a restart; None if it is damaged, or of a version that used other names."""
    if not isinstance(kept, dict):
        return None
    try:
        fields = {
            name: FoundField(kind, None if sensor is None else Sensor(**sensor))
            for name, (kind, sensor) in kept["fields"].items()
        }
        return found_type({name: _annotation(field) for name, field in fields.items()}, kept.get("title"))
    except (LookupError, TypeError, ValueError, AttributeError, ConfigurationError):
        return None


def _field(name: object, annotation: object) -> FoundField:
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise InvalidValue(f"fields has {clean(repr(name)[:40])}; a name has up to 64 letters, digits and underscores")
    kind, extras = split(annotation)
    sensor = next((each for each in extras if isinstance(each, Sensor)), None)
    word = next((word for word, each in KINDS.items() if each is kind), None)
    if word is None:
        raise InvalidType(
            f"fields: {name} is {clean(repr(annotation)[:80])}; write float, int, bool, str or datetime, or such as"
            ' Annotated[float, Sensor("°C")]'
        )
    return FoundField(word, sensor)


def _annotation(field: FoundField) -> object:
    kind = KINDS[field.kind]
    return kind if field.sensor is None else Annotated[kind, field.sensor]


@lru_cache(maxsize=128)
def _typed_dict(fields: tuple[tuple[str, FoundField], ...]) -> object:
    """Devices of one kind have one type."""
    hints = {name: _annotation(field) for name, field in fields}
    return TypedDict("Reading", hints, total=False)  # type: ignore[operator]  # its fields are known at run time
