"""What a handler says of one device that it has found: the fields of its readings, and its name for people. Others are
told of it, and it outlives a restart, so it is plain."""

import re
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Annotated, NamedTuple, get_args, get_origin

from typing_extensions import TypedDict

from leadsman.errors import ConfigurationError, InvalidType, InvalidValue
from leadsman.readings.sensor import Sensor
from leadsman.text import clean

MOST = 50
"""Fields of one device. They come from outside, and each is an entity that a person sees; further ones are left out."""
LONGEST_TITLE = 80
"""Characters of a name for people; what comes after them is left out."""
KINDS: Mapping[str, type] = {"number": float, "integer": int, "boolean": bool, "text": str, "timestamp": datetime}
"""The types that a field may have, by the words under which they are kept."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")


class FoundField(NamedTuple):
    """One field of the readings of a device."""

    kind: str
    """A key of `KINDS`."""
    sensor: Sensor | None


class FoundType(NamedTuple):
    """What is known of one device."""

    fields: Mapping[str, FoundField]
    title: str | None = None

    def union(self, other: "FoundType") -> "FoundType":
        """This with what another one knows besides. A field stays as it was, since others were told of it."""
        news = {name: field for name, field in other.fields.items() if name not in self.fields}
        fields = dict(list({**self.fields, **news}.items())[:MOST])
        return FoundType(fields, self.title if other.title is None else other.title)

    @property
    def readings(self) -> object:
        """The type of the readings, each field of which may be missing; None if no field is known."""
        return _typed_dict(tuple(self.fields.items())) if self.fields else None

    def to_json(self) -> dict[str, object]:
        """What is kept over a restart."""
        fields = {
            name: [kind, None if sensor is None else sensor.words()] for name, (kind, sensor) in self.fields.items()
        }
        return {"fields": fields, "title": self.title}


NOTHING = FoundType({})


def found_type(fields: Mapping[str, object] | None, title: str | None) -> FoundType:
    """What a handler has said of a device.

    Raises:
        InvalidType, InvalidValue: a field has another type, or an invalid name; the title is no text.
    """
    if title is not None and not isinstance(title, str):
        raise InvalidType(f"title is {title!r}; write text such as 'Kitchen'")
    if fields is not None and not isinstance(fields, Mapping):
        raise InvalidType(f"fields is {fields!r}; write a dict such as {{'temperature': float}}")
    found = {name: _field(name, kind) for name, kind in (fields or {}).items()}
    return FoundType(found, None if title is None else clean(title)[:LONGEST_TITLE].strip() or None)


def from_json(kept: object) -> FoundType | None:
    """What was kept over a restart; None if it is damaged, or of a version that knew other words."""
    if not isinstance(kept, dict):
        return None
    try:
        fields = {
            name: FoundField(kind, None if words is None else Sensor(**words))
            for name, (kind, words) in kept["fields"].items()
        }
        return found_type({name: _annotation(field) for name, field in fields.items()}, kept.get("title"))
    except (LookupError, TypeError, ValueError, AttributeError, ConfigurationError):
        return None


def _field(name: object, annotation: object) -> FoundField:
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise InvalidValue(f"fields has {clean(repr(name)[:40])}; a name has up to 64 letters, digits and underscores")
    kind, sensor = annotation, None
    if get_origin(annotation) is Annotated:
        kind, *beside = get_args(annotation)
        sensor = next((each for each in beside if isinstance(each, Sensor)), None)
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
