import pytest

from leadsman import Sensor
from leadsman.errors import InvalidValue
from leadsman.readings.device_classes import OF_BOOLEANS, UNITS, WITHOUT_UNIT, check_class


@pytest.mark.parametrize(
    ("device_class", "unit"),
    [
        ("temperature", "°C"),
        ("carbon_dioxide", "ppm"),
        ("volume", "fl. oz."),
        ("power_factor", None),
        ("power_factor", "%"),
        ("monetary", "EUR"),
        ("pm25", "µg/m³"),
        ("pm25", "\u03bcg/m³"),
        ("door", None),
        ("timestamp", None),
    ],
)
def test_a_unit_that_home_assistant_takes_is_taken(device_class, unit):
    check_class(device_class, unit)

    assert Sensor(unit, device_class=device_class).unit == unit


@pytest.mark.parametrize(
    ("device_class", "unit", "what"),
    [
        ("temperature", "C", "write one of K, °C, °F"),
        ("battery", "V", "write one of %"),
        ("aqi", "ppm", "leave the unit out"),
        ("door", "%", "takes no unit; leave out unit='%'"),
        ("timestamp", "s", "takes no unit"),
        ("carbon_dixide", "ppm", "did you mean 'carbon_dioxide'?"),
        ("zzzz", None, "write one of"),
    ],
)
def test_a_unit_or_class_that_home_assistant_refuses_is_refused_with_what_to_write(device_class, unit, what):
    with pytest.raises(InvalidValue) as raised:
        Sensor(unit, device_class=device_class)

    assert what in str(raised.value)


def test_the_table_is_written_as_home_assistant_writes_it():
    units = [unit for listed in UNITS.values() if listed for unit in listed.split(", ")]

    assert not [unit for unit in units if unit != unit.strip() or "\u00b5" in unit]
    assert all(UNITS[name] is None for name in WITHOUT_UNIT)
    assert all(name == name.lower() for name in {*UNITS, *OF_BOOLEANS})


def test_an_angle_needs_degrees():
    Sensor("°", device_class="wind_direction", state_class="measurement_angle")
    with pytest.raises(InvalidValue, match="takes the unit '°'"):
        Sensor(state_class="measurement_angle")


def test_a_category_is_one_of_two():
    assert Sensor(category="diagnostic").category == "diagnostic"
    with pytest.raises(InvalidValue, match="'config' or 'diagnostic'"):
        Sensor(category="main")
