"""What people see of the fields of a device, written at its registration or in the settings: it beats what stands
beside their types. Pure."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from leadsman.errors import ConfigurationError, InvalidType, InvalidValue
from leadsman.text import clean, suggestion

WORDS = ("name", "icon", "category", "discoverable", "homeassistant")
"""What may be said of a field, by the names that `leadsman.Sensor` has for it."""
_EXAMPLE = "write a section for each field, such as fields = { flow = { name = 'Flow', icon = 'mdi:water' } }"


class FieldWords(NamedTuple):
    """The words for one field; None: what its type says."""

    name: str | None = None
    icon: str | None = None
    category: str | None = None
    discoverable: bool | None = None
    homeassistant: tuple[tuple[str, bool | int | str], ...] = ()


FieldsWords = Mapping[str, FieldWords]
"""The words for some fields, by their names; nested ones have dots."""
NONE: FieldsWords = MappingProxyType({})
"""No words."""


def check_fields(given: object) -> FieldsWords:
    """Read the words for the fields of a device.

    Raises:
        InvalidType, InvalidValue: they are no words for fields. The message names the field.
    """
    if not isinstance(given, Mapping):
        raise InvalidType(f"fields is {given!r}; {_EXAMPLE}")
    return MappingProxyType({_name(field): _words(field, words) for field, words in given.items()})


def merge_fields(given: object, more: Mapping[str, Mapping[str, object]]) -> Mapping[str, object]:
    """What is said of fields, with more that is said of them, which beats it word by word. Neither is changed."""
    if not isinstance(given, Mapping):
        return more
    return {**given, **{field: _merged(given.get(field), words) for field, words in more.items()}}


def _merged(given: object, more: Mapping[str, object]) -> Mapping[str, object]:
    return {**given, **more} if isinstance(given, Mapping) else more


def _name(field: object) -> str:
    if not isinstance(field, str):
        raise InvalidType(f"fields has {field!r}; write the name of a field in quotes")
    return field


def _words(field: str, words: object) -> FieldWords:
    from leadsman.readings.sensor import Sensor  # only who says something of fields pays for it

    where = f"fields: {clean(field)!r}"
    if not isinstance(words, Mapping):
        raise InvalidType(f"{where} is {words!r}; {_EXAMPLE}")
    for word in words:
        if word not in WORDS:
            raise InvalidValue(f"{where} has {clean(str(word))!r}; {suggestion(str(word), WORDS)}")
    try:
        sensor = Sensor(**words)
    except ConfigurationError as error:
        raise type(error)(f"{where}: {error}") from None
    if sensor.icon is not None and not sensor.icon.startswith("mdi:"):
        raise InvalidValue(f"{where}: icon is {sensor.icon!r}; write an icon such as 'mdi:water'")
    if sensor.name is not None and not sensor.name.isprintable():
        raise InvalidValue(f"{where}: name is {sensor.name!r}; write printable text")
    return FieldWords(sensor.name, sensor.icon, sensor.category, words.get("discoverable"), sensor.homeassistant)
