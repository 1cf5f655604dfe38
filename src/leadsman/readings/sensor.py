"""Describes what a field of a reading measures: its unit, device class, name, precision and icon, written beside its
type.

::

    class Air(BaseModel):
        co2: Annotated[int, Sensor(unit="ppm", device_class="carbon_dioxide")]
"""

from typing import TYPE_CHECKING

from leadsman.errors import InvalidType, InvalidValue
from leadsman.readings.publish import Deadband, checked_deadband
from leadsman.value import Value

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema

STATE_CLASSES = ("measurement", "measurement_angle", "total", "total_increasing")
"""Of sensors in Home Assistant's MQTT integration."""
CATEGORIES = ("config", "diagnostic")
"""Of entities in Home Assistant that are not the main thing about a device."""


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
        deadband: the field counts as changed if it differs by more than this from the value that was last published, in
            its unit or as ``"1 %"`` of that value; see `OnChange`, which is then the publish rule of the handler,
            unless `publish` is given.

    Raises:
        InvalidValue, InvalidType: at construction; also if Home Assistant does not know the device class, or does not
            take the unit with it.
    """

    __slots__ = ("category", "deadband", "device_class", "icon", "name", "precision", "state_class", "unit")
    category: str | None
    unit: str | None
    device_class: str | None
    state_class: str | None
    precision: int | None
    icon: str | None
    name: str | None
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
        deadband: Deadband | None = None,
    ) -> None:
        texts = {"unit": unit, "device_class": device_class, "state_class": state_class, "icon": icon}
        texts |= {"category": category, "name": name}
        for word, value in texts.items():
            if value is not None and not isinstance(value, str):
                raise InvalidType(f"{word} is {value!r}; write text")
            if value is not None and not value.strip():
                raise InvalidValue(f"{word} is empty; leave it out")
        if state_class is not None and state_class not in STATE_CLASSES:
            raise InvalidValue(f"state_class is {state_class!r}; it must be one of {', '.join(STATE_CLASSES)}")
        if state_class == "measurement_angle" and unit != "°":
            raise InvalidValue(f"state_class 'measurement_angle' takes the unit '°', and not {unit!r}")
        if category is not None and category not in CATEGORIES:
            raise InvalidValue(f"category is {category!r}; it must be 'config' or 'diagnostic'")
        if device_class is not None:
            from leadsman.readings.device_classes import check_class  # only payloads with a class pay for the table

            check_class(device_class, unit)
        if precision is not None and (isinstance(precision, bool) or not isinstance(precision, int)):
            raise InvalidType(f"precision is {precision!r}; write a number of decimals")
        if precision is not None and not 0 <= precision <= 9:
            raise InvalidValue(f"precision is {precision}; it must be 0 to 9 decimals")
        width = None if deadband is None else checked_deadband(deadband, "deadband")
        self._hold(**texts, precision=precision, deadband=width)

    def __get_pydantic_json_schema__(
        self, core_schema: "CoreSchema", handler: "GetJsonSchemaHandler"
    ) -> "JsonSchemaValue":
        """Add the description to the JSON Schema of the field. Called by pydantic."""
        schema = handler(core_schema)
        return schema | {name: value for name in self.__slots__ if (value := getattr(self, name)) is not None}
