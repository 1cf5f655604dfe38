import math
from datetime import date, datetime
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, create_model

from leadsman import Sensor
from leadsman.core.introspection.fields import MAX_FIELDS, MAX_KEYS, fields_of, scalar, settable, terms_of
from leadsman.core.introspection.schema import schema_of


class Mode(Enum):
    HEAT = "heat"
    OFF = "off"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Wind(BaseModel):
    speed: Annotated[float, Sensor("m/s", device_class="wind_speed", state_class="measurement", precision=1)]
    gusts: list[float] = []


class Sun(BaseModel):
    kind: Literal["sun"]
    hours: float
    note: str


class Rain(BaseModel):
    kind: Literal["rain"]
    hours: int
    note: int


class Tree(BaseModel):
    leaf: float
    inner: "Tree | None" = None


def found(annotation):
    return fields_of(schema_of(create_model("M", x=(annotation, ...))))


@pytest.mark.parametrize(
    ("annotation", "kind"),
    [
        (int, "number"),
        (float | None, "number"),
        (Decimal, "text"),
        (Annotated[Decimal, Sensor("m³", device_class="gas")], "number"),
        (bool, "boolean"),
        (str, "text"),
        (str | None, "text"),
        (int | str, "text"),
        (Mode, "enum"),
        (Mode | None, "enum"),
        (Level, "enum"),
        (Literal["a", "b"], "enum"),
        (Literal["a", 1], "text"),
        (Literal["a"] | float, "text"),
        (datetime, "timestamp"),
        (date, "date"),
        (Annotated[Any, Sensor("ppm")], "number"),
        (Annotated[Any, Sensor(icon="mdi:x")], "text"),
    ],
)
def test_a_type_says_what_a_field_is(annotation, kind):
    assert [field.kind for field in found(annotation)] == [kind]


@pytest.mark.parametrize("annotation", [list[int], dict[str, float], Any, bytes | list[str], None])
def test_what_is_no_single_value_does_not_appear(annotation):
    kinds = [field.kind for field in found(annotation)]
    assert kinds in ([], ["text"])
    assert (kinds == ["text"]) is (annotation == bytes | list[str]) is False or kinds == []


def test_a_field_has_the_words_of_its_sensor():
    (field,) = found(Annotated[float | None, Sensor("°C", device_class="temperature", precision=1, icon="mdi:x")])

    assert (field.unit, field.device_class, field.precision, field.icon) == ("°C", "temperature", 1, "mdi:x")


def test_a_nested_model_gives_its_fields_with_both_names():
    (field,) = found(Wind | None)

    assert (field.path, field.name, field.unit) == (("x", "speed"), "X speed", "m/s")


def test_a_union_of_models_gives_the_fields_of_all():
    fields = {field.path: field for field in found(Annotated[Sun | Rain, Field(discriminator="kind")])}

    assert fields["x", "kind"].options == ("sun", "rain")
    assert fields["x", "hours"].kind == "number"
    assert fields["x", "note"].kind == "text"


def test_a_model_in_itself_ends():
    paths = [field.path for field in found(Tree)]

    assert max(map(len, paths)) == MAX_KEYS


def test_a_title_of_the_author_is_the_name():
    assert found(Annotated[float, Field(title="Water in the cellar")])[0].name == "Water in the cellar"
    assert fields_of(schema_of(create_model("M", radon_24h_avg=(float, ...))))[0].name == "Radon 24h avg"


@pytest.mark.parametrize(
    "annotation",
    [
        Annotated[float, Sensor("°C", name="Taupunkt")],
        Annotated[float | None, Sensor("°C", name="Taupunkt")],
        Annotated[float, Sensor("°C", name="Taupunkt")] | None,
        Annotated[Mode, Sensor(name="Taupunkt")],
        Annotated[float, Field(title="Dew point"), Sensor("°C", name="Taupunkt")],
    ],
)
def test_a_sensor_names_its_field(annotation):
    (field,) = found(annotation)

    assert (field.name, field.title) == ("Taupunkt", "Taupunkt")


def test_a_field_that_nobody_named_has_its_key_in_words_and_no_title():
    (field,) = found(Annotated[float, Sensor("°C")])

    assert (field.name, field.title) == ("X", None)


def test_a_payload_that_is_one_value_has_the_name_of_its_sensor_or_of_its_parameter():
    named = scalar(schema_of(Annotated[float, Sensor("°C", name="Sollwert")]), "degrees")
    plain = scalar(schema_of(float), "degrees")

    assert (named.name, plain.name) == ("Sollwert", "Degrees")


def test_the_declared_names_are_among_the_terms():
    model = create_model("M", dew=(Annotated[float, Sensor("°C", name="Taupunkt")], ...), other=(int, ...))

    assert terms_of(schema_of(model)) == {"dew": {"unit": "°C", "name": "Taupunkt"}}


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("co2", "CO₂"),
        ("room_co2", "Room CO₂"),
        ("ph", "pH"),
        ("pm25", "PM2.5"),
        ("energy_kwh", "Energy kWh"),
        ("id_", "ID"),
    ],
)
def test_known_abbreviations_are_written_as_people_write_them(field, name):
    assert fields_of({"properties": {field: {"type": "number"}}})[0].name == name


def test_a_payload_has_a_most_of_fields():
    many = create_model("M", **{f"f{number}": (float, ...) for number in range(MAX_FIELDS + 10)})

    assert len(fields_of(schema_of(many))) == MAX_FIELDS


def test_options_of_numbers_are_no_text():
    (field,) = found(Level)

    assert (field.options, field.quoted) == (("1", "2"), False)


def test_a_command_of_one_value_is_a_field():
    field = scalar(schema_of(Annotated[float, Field(ge=5, le=30)], mode="validation"), "target_temperature")

    assert field is not None
    assert (field.path, field.name, field.minimum, field.maximum) == ((), "Target temperature", 5, 30)
    assert scalar(schema_of(Wind, mode="validation"), "wind") is None


@pytest.mark.parametrize(("kind", "bound"), [(float, math.inf), (int, 10**400)])
def test_a_bound_that_no_controller_could_show_is_none(kind, bound):
    field = scalar(schema_of(Annotated[kind, Field(le=bound)], mode="validation"), "level")

    assert field is not None
    assert field.maximum is None


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"a": (float, ...)}, ["a"]),
        ({"a": (float, 1.0), "b": (bool, False)}, ["a", "b"]),
        ({"a": (float, ...), "b": (bool, False)}, ["a"]),
        ({"a": (float, ...), "b": (bool, ...)}, []),
        ({"a": (list[int], ...)}, []),
    ],
)
def test_a_field_of_a_command_appears_if_it_can_be_sent_alone(fields, names):
    model = create_model("M", **fields)

    assert [field.path[0] for field in settable(schema_of(model, mode="validation"))] == names
