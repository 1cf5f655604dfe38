import pytest

from leadsman import Sensor
from leadsman.errors import InvalidValue


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
    assert Sensor(unit, device_class=device_class).unit == unit


@pytest.mark.parametrize(
    ("device_class", "unit", "what"),
    [
        ("temperature", "C", "write one of K, °C, °F"),
        ("battery", "V", "write one of %"),
        ("aqi", "ppm", "leave the unit out"),
        ("door", "%", "has no unit; leave out unit='%'"),
        ("timestamp", "s", "has no unit"),
        ("carbon_dixide", "ppm", "did you mean 'carbon_dioxide'?"),
        ("zzzz", None, "write one of"),
    ],
)
def test_a_unit_or_class_that_home_assistant_refuses_is_refused_with_what_to_write(device_class, unit, what):
    with pytest.raises(InvalidValue) as raised:
        Sensor(unit, device_class=device_class)

    assert what in str(raised.value)


def suggested(unit, device_class):
    """What a message says that may be written; empty where every unit may be, or none."""
    try:
        Sensor(unit, device_class=device_class)
    except InvalidValue as error:
        listed = str(error).partition("write one of ")[2]
        return listed.split(", ") if listed else []
    return []


def test_the_table_is_written_as_home_assistant_writes_it():
    names = suggested(None, "zzzz")
    units = [unit for name in names for unit in suggested("zzzz", name)]

    assert not [unit for unit in units if unit != unit.strip() or "\u00b5" in unit]
    assert {"date", "temperature", "door"} <= set(names)
    assert {"°C", "fl. oz.", "μg/m³"} <= set(units)
    assert all(name == name.lower() for name in names)


@pytest.mark.parametrize("device_class", ["date", "enum", "timestamp", "uptime"])
def test_what_is_no_number_takes_no_unit(device_class):
    with pytest.raises(InvalidValue, match="has no unit"):
        Sensor("s", device_class=device_class)


@pytest.mark.parametrize(
    ("device_class", "state_class", "what"),
    [
        ("energy", "measurement", "write one of total, total_increasing"),
        ("gas", "measurement", "write one of total, total_increasing"),
        ("power", "total", "write 'measurement'"),
        ("monetary", "total_increasing", "write 'total'"),
        ("timestamp", "measurement", "leave it out"),
        ("door", "measurement", "leave it out"),
    ],
)
def test_a_state_class_that_does_not_go_with_the_class_is_refused_with_what_to_write(device_class, state_class, what):
    with pytest.raises(InvalidValue) as raised:
        Sensor(device_class=device_class, state_class=state_class)

    assert str(raised.value).endswith(what)


@pytest.mark.parametrize(
    ("device_class", "state_class"),
    [("energy", "total_increasing"), ("duration", "measurement"), ("weight", "total"), ("power", "measurement")],
)
def test_a_state_class_that_goes_with_the_class_is_taken(device_class, state_class):
    assert Sensor(device_class=device_class, state_class=state_class).state_class == state_class


def test_an_icon_has_the_name_of_its_set():
    assert Sensor(icon="mdi:water").icon == "mdi:water"
    with pytest.raises(InvalidValue, match="such as 'mdi:water'"):
        Sensor(icon="water")


def test_an_angle_needs_degrees():
    Sensor("°", device_class="wind_direction", state_class="measurement_angle")
    with pytest.raises(InvalidValue, match="requires the unit '°'"):
        Sensor(state_class="measurement_angle")


def test_a_category_is_one_of_two():
    assert Sensor(category="diagnostic").category == "diagnostic"
    with pytest.raises(InvalidValue, match="'config' or 'diagnostic'"):
        Sensor(category="main")
