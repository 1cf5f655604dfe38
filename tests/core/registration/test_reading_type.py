from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal, NewType, NotRequired
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, PlainSerializer, computed_field, field_serializer
from typing_extensions import TypedDict

from leadsman import App, Context, Every, Finds, OnChange, Round, Sensor
from leadsman.errors import InvalidType, InvalidValue


class Air(BaseModel):
    co2: Annotated[int, Sensor("ppm", deadband=50)]
    voc: float | None = None


class Climate(BaseModel):
    temperature: Annotated[float, Sensor("°C", deadband=0.2)] | None = None
    mode: Literal["off", "heat"] = "off"
    air: Air | None = None

    @computed_field
    @property
    def comfort(self) -> float:
        return 1.0


@dataclass
class Meter:
    watts: Annotated[float, Sensor("W", deadband="1 %")]


class Pulse(TypedDict):
    count: NotRequired[Annotated[int, Sensor(deadband=5)]]


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    temperature: float


def registered(kind, **options):
    """The telemetry of a handler with this result."""
    app = App("house")

    async def handler() -> Any: ...

    handler.__annotations__["return"] = kind
    app.add_telemetry("d", handler, interval=1, **options)
    return app.telemetries["d"]


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        (Climate, OnChange({"temperature": 0.2, "air.co2": 50})),
        (Climate | None, OnChange({"temperature": 0.2, "air.co2": 50})),
        (Meter, OnChange({"watts": "1 %"})),
        (Pulse, OnChange({"count": 5})),
        (Open, None),
        (dict[str, float], None),
        (None, None),
    ],
)
def test_a_deadband_beside_a_field_is_the_publish_rule(kind, rule):
    assert registered(kind).publish == rule


def test_it_joins_the_rule_of_the_registration_which_comes_first():
    found = registered(Climate, publish=OnChange({"temperature": 1}) | Every("10m")).publish

    assert found == OnChange({"temperature": 1, "air.co2": 50}) | Every("10m")


def test_none_that_is_written_publishes_every_reading_and_no_deadband_changes_that():
    assert registered(Climate, publish=None).publish is None


@pytest.mark.parametrize("name", ["voc", "mode", "air.voc", "comfort", "temperature"])
def test_each_field_that_a_reading_may_have_is_known(name):
    kind = Climate if name != "voc" else Air

    assert dict(registered(kind, publish=OnChange({name: 1})).publish.fields)[name] == 1


@pytest.mark.parametrize(
    ("kind", "name", "near"),
    [
        (Climate, "temprature", "did you mean 'temperature'"),
        (Climate, "air.c02", "did you mean 'air.co2'"),
        (Climate, "air", "write one of air.co2, air.voc, comfort, mode, temperature|did you mean"),
        (Meter, "wats", "did you mean 'watts'"),
        (Pulse, "counts", "did you mean 'count'"),
    ],
)
def test_a_field_that_does_not_exist_is_named_at_the_start_with_the_nearest_one(kind, name, near):
    with pytest.raises(InvalidValue, match=f"telemetry 'd': publish names the field '{name}'.*({near})"):
        registered(kind, publish=Every("1m") | OnChange({name: 1}))


@pytest.mark.parametrize("kind", [Open, dict, dict[str, float], Any, None])
def test_a_reading_whose_fields_are_not_known_may_have_any(kind):
    assert registered(kind, publish=OnChange({"anything": 1})).publish is not None


def test_an_output_of_a_filter_does_not_take_the_place_of_an_object():
    with pytest.raises(InvalidValue, match="the output 'air', and Climate has such a field; rename it"):
        registered(Climate, filters={"temperature": {"air": [Round(1)]}})


def test_of_a_source_and_of_devices_that_are_found_the_type_counts_too():
    app = App("house")

    @app.source("meter")
    async def meter() -> AsyncIterator[Meter]:
        yield Meter(1.0)

    @app.telemetry("gateway", interval=1, finds=Finds(Air), publish=OnChange({"voc": 1}))
    async def gateway(context: Context) -> None: ...

    assert app.sources["meter"].publish == OnChange({"watts": "1 %"})
    assert app.telemetries["gateway"].publish == OnChange({"voc": 1, "co2": 50})
    with pytest.raises(InvalidValue, match="did you mean 'co2'"):
        app.add_telemetry("other", gateway, interval=1, finds=Finds(Air), publish=OnChange({"co": 1}))


def test_a_handler_that_finds_devices_may_have_any_field_itself_if_its_type_is_a_dict():
    app = App("house")

    @app.telemetry("gateway", interval=1, finds=Finds(Air), publish=OnChange({"x": 1}), filters={"y": [Round(1)]})
    async def gateway(context: Context) -> dict[str, float]: ...

    assert app.telemetries["gateway"].publish == OnChange({"x": 1, "co2": 50})


Watts = NewType("Watts", float)


class Program(Enum):
    ECO = "eco"


class Level(IntEnum):
    LOW = 1


class Mixed(BaseModel):
    watts: Watts
    steps: Literal[1, 2]
    either: float | str
    state: Literal["on", "off"]
    flag: bool | None
    days: list[int]
    price: Decimal
    lasted: timedelta | None
    since: time
    at: datetime
    part: UUID
    program: Program
    level: Level
    paid: Annotated[Decimal, PlainSerializer(float)]
    known: Decimal

    @field_serializer("known")
    def _as_number(self, known: Decimal) -> float:
        return float(known)


class Timed(BaseModel):
    model_config = ConfigDict(ser_json_timedelta="float")
    lasted: timedelta


def test_a_time_that_its_model_publishes_as_a_number_may_have_filters():
    assert registered(Timed, filters={"lasted": [Round(1)]}).filters is not None


@pytest.mark.parametrize("name", ["watts", "steps", "either", "level", "paid", "known"])
def test_what_may_be_a_number_may_have_filters(name):
    assert registered(Mixed, filters={name: [Round(1)]}).filters is not None


@pytest.mark.parametrize("name", ["state", "flag", "days", "price", "lasted", "since", "at", "part", "program"])
def test_what_cannot_be_a_number_may_not(name):
    with pytest.raises(InvalidType, match=f"'{name}', which is .*; filters take numbers"):
        registered(Mixed, filters={name: [Round(1)]})
