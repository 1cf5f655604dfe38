"""Describes what a field of a reading measures: its unit, device class, name, precision and icon, written beside its
type.

::

    class Air(BaseModel):
        co2: Annotated[int, Sensor(unit="ppm", device_class="carbon_dioxide")]

What people see of the fields of a device may also be written at its registration or in the settings: it beats what
stands beside their types.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from leadsman.core.loop.durations import whole
from leadsman.core.readings.publish import Deadband, check_deadband
from leadsman.core.text import clean
from leadsman.core.text.suggestion import suggestion
from leadsman.core.value import Value
from leadsman.errors import InvalidType, InvalidValue, at_key, labelled

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema

STATE_CLASSES = ("measurement", "measurement_angle", "total", "total_increasing")
"""Of sensors in Home Assistant's MQTT integration."""
CATEGORIES = ("config", "diagnostic")
"""Of entities in Home Assistant that are not the main thing about a device."""
ENTITY_OPTIONS: Mapping[str, type] = {
    "enabled_by_default": bool,
    "entity_picture": str,
    "expire_after": int,
    "force_update": bool,
}
"""Further options of sensors and binary sensors in Home Assistant's MQTT integration
(https://www.home-assistant.io/integrations/sensor.mqtt/#configuration-variables): whether a new entity is enabled; the
address of its picture; seconds after which its value expires; whether a value that did not change is an update, too."""
_EXAMPLES = {
    bool: "True or False",
    str: "an address that begins with http:// or https://",
    int: "a whole number from 0",
}
_DEFAULTS: Mapping[str, object] = {"discoverable": True, "homeassistant": ()}
"""Of the options whose default is not None."""
PRESENTATION = ("name", "icon", "category", "discoverable", "homeassistant")
"""The options of `leadsman.Sensor` for how a field is shown to people, by their names."""
_FIELDS_EXAMPLE = "write a section for each field, such as fields = { flow = { name = 'Flow', icon = 'mdi:water' } }"


class Sensor(Value):
    """A description of what a field measures. The names are those of Home Assistant's MQTT sensors. The JSON Schema
    contains them.

    Args:
        unit: such as ``"ppm"`` or ``"°C"``.
        device_class: such as ``"carbon_dioxide"``.
        state_class: ``"measurement"``, ``"measurement_angle"``, ``"total"`` or ``"total_increasing"``.
        precision: the number of decimals to show, 0 to 9. The value itself is not rounded.
        icon: such as ``"mdi:molecule-co2"``.
        category: ``"diagnostic"`` for a value about the device itself, such as its battery; ``"config"`` for a value
            of a command that configures it.
        name: for people, such as ``"Taupunkt"``; without it the name of the field in words.
        discoverable: False hides the field from Home Assistant; it stays in the readings.
        homeassistant: further options of the configuration of the entity in Home Assistant, such as
            ``{"expire_after": 300}``: those of `ENTITY_OPTIONS`.
        deadband: the field counts as changed if it differs by more than this from the value that was last published, in
            its unit or as ``"1 %"`` of that value; see `OnChange`, which is then the publish rule of the handler,
            unless `publish` is given.

    Raises:
        InvalidValue, InvalidType: at construction; also if Home Assistant does not have the device class or a
            further option, or does not allow the unit or the state class with the class.
    """

    __slots__ = (
        *("category", "deadband", "device_class", "discoverable", "homeassistant", "icon", "name", "precision"),
        *("state_class", "unit"),
    )
    category: str | None
    unit: str | None
    device_class: str | None
    state_class: str | None
    precision: int | None
    icon: str | None
    name: str | None
    discoverable: bool
    homeassistant: tuple[tuple[str, bool | int | str], ...]
    deadband: Deadband | None

    def __init__(
        self,
        unit: str | None = None,
        *,
        device_class: str | None = None,
        state_class: str | None = None,
        precision: int | None = None,
        icon: str | None = None,
        category: str | None = None,
        name: str | None = None,
        discoverable: bool = True,
        homeassistant: Mapping[str, bool | int | str] | None = None,
        deadband: Deadband | None = None,
    ) -> None:
        texts = {"unit": unit, "device_class": device_class, "state_class": state_class, "icon": icon}
        texts |= {"category": category, "name": name}
        for word, value in texts.items():
            if value is not None and not isinstance(value, str):
                raise InvalidType(f"{word} is {value!r}; write text").at(word)
            if value is not None and not value.strip():
                raise InvalidValue(f"{word} is empty; leave it out").at(word)
        if state_class is not None and state_class not in STATE_CLASSES:
            raise InvalidValue(f"state_class is {state_class!r}; it must be one of {', '.join(STATE_CLASSES)}")
        if state_class == "measurement_angle" and unit != "°":
            raise InvalidValue(f"state_class 'measurement_angle' requires the unit '°', and not {unit!r}")
        if icon is not None and ":" not in icon:
            wrong = f"icon is {icon!r}; write the set and the name of the icon, such as 'mdi:water'"
            raise InvalidValue(wrong).at("icon")
        if category is not None and category not in CATEGORIES:
            raise InvalidValue(f"category is {category!r}; it must be 'config' or 'diagnostic'").at("category")
        if device_class is not None:
            from leadsman.core.readings.device_classes import (
                check_class,
            )  # only payloads with a class pay for the table

            check_class(device_class, unit, state_class)
        if precision is not None:
            whole(precision, "precision", 0, 9, kind="write a number of decimals", limits="it must be 0 to 9 decimals")
        if not isinstance(discoverable, bool):
            raise InvalidType(f"discoverable is {discoverable!r}; write True or False").at("discoverable")
        with at_key("homeassistant"):
            options = () if homeassistant is None else _entity_options(homeassistant)
        width = None if deadband is None else check_deadband(deadband, "deadband")
        self._hold(**texts, precision=precision, discoverable=discoverable, homeassistant=options, deadband=width)

    def __get_pydantic_json_schema__(
        self, core_schema: "CoreSchema", handler: "GetJsonSchemaHandler"
    ) -> "JsonSchemaValue":
        """Add the description to the JSON Schema of the field. Called by pydantic."""
        return handler(core_schema) | self.words()

    def words(self) -> dict[str, object]:
        """The arguments that are not the default; JSON can represent them."""
        given = {name: value for name in self.__slots__ if (value := getattr(self, name)) != _DEFAULTS.get(name)}
        return given | ({"homeassistant": dict(self.homeassistant)} if self.homeassistant else {})


def _entity_options(given: object) -> tuple[tuple[str, bool | int | str], ...]:
    """Check further options of an entity. Raises `InvalidType`, `InvalidValue`."""
    if not isinstance(given, Mapping):
        raise InvalidType(f'homeassistant is {given!r}; write a dict such as {{"expire_after": 300}}')
    for word, value in given.items():
        if word not in ENTITY_OPTIONS:
            raise InvalidValue(f"homeassistant has {word!r}; {suggestion(str(word), [*ENTITY_OPTIONS])}").at(word)
        wanted = ENTITY_OPTIONS[word]
        right = (
            value.startswith(("http://", "https://"))
            if isinstance(value, str)
            else isinstance(value, int) and value >= 0
        )
        if type(value) is not wanted or not right:
            raise InvalidValue(f"homeassistant: {word} is {value!r}; write {_EXAMPLES[wanted]}").at(word)
    return tuple(given.items())


class FieldPresentation(NamedTuple):
    """How one field is shown to people; None: as its type defines."""

    name: str | None = None
    icon: str | None = None
    category: str | None = None
    discoverable: bool | None = None
    homeassistant: tuple[tuple[str, bool | int | str], ...] = ()


Presentations = Mapping[str, FieldPresentation]
"""How some fields are shown, by their names; nested ones have dots."""
NO_PRESENTATIONS: Presentations = MappingProxyType({})


def check_fields(given: object) -> Presentations:
    """Read how the fields of a device are shown.

    Raises:
        InvalidType, InvalidValue: an option is wrong. The message names the field.
    """
    if not isinstance(given, Mapping):
        raise InvalidType(f"fields is {given!r}; {_FIELDS_EXAMPLE}")
    found = {}
    for field, options in given.items():
        with at_key(field):
            name = _name(field)
            found[name] = _presentation(name, options)
    return MappingProxyType(found)


def merge_fields(given: object, more: Mapping[str, Mapping[str, object]]) -> Mapping[str, object]:
    """The options of fields with further ones, which replace them one by one. Neither mapping is changed."""
    if not isinstance(given, Mapping):
        return more
    return {**given, **{field: _merged(given.get(field), options) for field, options in more.items()}}


def _merged(given: object, more: Mapping[str, object]) -> Mapping[str, object]:
    return {**given, **more} if isinstance(given, Mapping) else more


def _name(field: object) -> str:
    if not isinstance(field, str):
        raise InvalidType(f"fields has {field!r}; write the name of a field in quotes")
    return field


def _presentation(field: str, options: object) -> FieldPresentation:
    where = f"fields: {clean(field)!r}"
    if not isinstance(options, Mapping):
        raise InvalidType(f"{where} is {options!r}; {_FIELDS_EXAMPLE}")
    for name in options:
        if name not in PRESENTATION:
            raise InvalidValue(f"{where} has {clean(str(name))!r}; {suggestion(str(name), PRESENTATION)}").at(name)
    with labelled(where):
        sensor = Sensor(**options)
    if sensor.icon is not None and not sensor.icon.startswith("mdi:"):
        raise InvalidValue(f"{where}: icon is {sensor.icon!r}; write an icon such as 'mdi:water'").at("icon")
    if sensor.name is not None and not sensor.name.isprintable():
        raise InvalidValue(f"{where}: name is {sensor.name!r}; write printable text").at("name")
    discoverable = options.get("discoverable")
    return FieldPresentation(sensor.name, sensor.icon, sensor.category, discoverable, sensor.homeassistant)
