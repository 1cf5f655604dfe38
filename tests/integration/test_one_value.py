"""Handlers that are annotated to return one value."""

import functools
from collections.abc import AsyncIterator
from enum import Enum
from typing import Annotated, Any, Literal, NewType

import pytest
from pydantic import Field
from typing_extensions import TypeAliasType

from leadsman import App, Mean, OnChange, Round, Sensor
from leadsman.core.introspection.topic_schemas import schemas
from leadsman.errors import InvalidType, InvalidValue
from leadsman.testing import Scripted


class Mode(Enum):
    ECO = "eco"


Celsius = NewType("Celsius", float)
Position = TypeAliasType("Position", Annotated[Literal["open", "shut"], Sensor(icon="mdi:door")] | None)


def app_of(kind, *steps, **options):
    app, scripted = App("house"), Scripted(*steps)

    async def handler() -> Any:
        return await scripted()

    handler.__annotations__["return"] = kind
    app.add_telemetry("d", handler, interval="1s", **options)
    return app


@pytest.mark.parametrize(
    ("kind", "value", "published"),
    [
        (float, 21.5, 21.5),
        (float | None, 21, 21),
        (bool, True, True),
        (str, "open", "open"),
        (Literal["open", "shut"], "shut", "shut"),
        (Mode, Mode.ECO, "eco"),
        (Annotated[int, Sensor("ppm")], 400, 400),
        (Annotated[float, Sensor("°C")] | None, 21.5, 21.5),
        ("float", 1.5, 1.5),
        (float, "21.5", 21.5),
        (int, 21.0, 21),
        (int | str, "5", "5"),
        (Mode, "eco", "eco"),
        (Literal["open"] | int, 5, 5),
        (Annotated[int, Field(ge=0), Sensor("ppm")] | None, 0, 0),
        (Celsius, 21.5, 21.5),
        (Annotated[Celsius, Sensor("°C")] | None, 21.5, 21.5),
        (Position, "shut", "shut"),
    ],
)
def test_one_value_is_published_as_the_field_value(harness, kind, value, published):
    app = harness(app_of(kind, value))

    app.run("100ms")

    assert repr(app.states("d")) == repr([{"value": published}])


def test_its_name_can_be_chosen_and_none_publishes_nothing(harness):
    app = harness(app_of(float | None, 1.5, None, 2.5, field="celsius"))

    app.run("2s")

    assert app.states("d") == [{"celsius": 1.5}, {"celsius": 2.5}]


@pytest.mark.parametrize(
    ("kind", "result", "said"),
    [
        (float, "abc", "Input should be a valid number"),
        (int, 1.5, "Input should be a valid integer"),
        (bool, "ajar", "Input should be a valid boolean"),
        (str, 5, "Input should be a valid string"),
        (Literal["open", "shut"], "ajar", "Input should be 'open' or 'shut'"),
        (Mode, "party", "Input should be 'eco'"),
        (Annotated[float, Field(ge=0)] | None, -1.0, "Input should be greater than or equal to 0"),
        (AsyncIterator[float], "abc", "Input should be a valid number"),
    ],
)
def test_a_value_that_is_not_as_annotated_is_published_by_nobody(harness, kind, result, said):
    app = App("house")

    async def read() -> Any:
        return result

    async def listen() -> Any:
        yield result

    if kind == AsyncIterator[float]:
        listen.__annotations__["return"] = kind
        app.add_source("d", listen)
    else:
        read.__annotations__["return"] = kind
        app.add_telemetry("d", read, interval="1s")
    running = harness(app)

    running.run("1s")

    assert running.states("d") == []
    assert f"is annotated to return: {said}" in running.errors("d")[0]["message"]


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ({"value": 1.0}, "returned a dict"),
        ([1], "returned a list"),
        (float("nan"), "every field is NaN or infinite: value"),
    ],
)
def test_what_is_no_value_fails_the_poll_by_name(harness, result, said):
    app = harness(app_of(float, result))

    app.run("1s")

    assert app.states("d") == []
    assert said in app.errors("d")[0]["message"]


def test_a_source_a_subscription_and_a_fallback_may_give_one_value(harness):
    app = App("house")

    @app.source("scale", field="grams")
    async def scale() -> AsyncIterator[int]:
        yield 5

    @app.subscribe("tele/door", device="door")
    async def door(payload: int) -> Annotated[bool, Sensor(device_class="door")]:
        return payload == 1

    async def substitute(error: BaseException) -> float:
        return 0.0

    @app.telemetry("broken", interval="1m", on_failure=substitute)
    async def broken() -> float:
        raise OSError("away")

    running = harness(app)
    running.run("100ms")
    running.broker.send("tele/door", b"1")
    running.run("100ms")

    assert running.states("scale")[0] == {"grams": 5}
    assert running.states("door") == [{"value": True}]
    assert running.states("broken") == [{"value": 0.0}]


def test_filters_rules_and_the_schema_know_its_field():
    kind = Annotated[float, Sensor("°C", device_class="temperature", deadband=0.2)]
    app = app_of(kind, field="celsius", filters={"celsius": {"celsius": [Round(1)], "mean": [Mean("1h")]}})

    assert app.telemetries["d"].publish == OnChange({"celsius": 0.2, "mean": 0.2})
    properties = schemas(app.topics, app.telemetries, {})["topics"]["house/d/state"]["properties"]
    assert {name: each["unit"] for name, each in properties.items()} == {"celsius": "°C", "mean": "°C"}
    with pytest.raises(InvalidValue, match="did you mean 'celsius'"):
        app_of(kind, field="celsius", publish=OnChange({"celcius": 1}))


def test_the_schema_of_a_partial_is_that_of_its_function():
    app = App("house")

    async def read(channel: int) -> float:
        return float(channel)

    app.add_telemetry("d", functools.partial(read, channel=1), interval="1s")

    assert schemas(app.topics, app.telemetries, {})["topics"]["house/d/state"]["properties"] == {
        "value": {"type": "number"}
    }


@pytest.mark.parametrize(
    ("kind", "field", "error", "match"),
    [
        (dict, "celsius", InvalidValue, "annotate it, such as -> float"),
        (None, "celsius", InvalidValue, "annotate it, such as -> float"),
        (float | dict, "celsius", InvalidValue, "annotate it, such as -> float"),
        (float, "a.b", InvalidValue, "without dots"),
        (float, "", InvalidValue, "without dots"),
        (float, 5, InvalidType, "write a name"),
    ],
)
def test_nonsense_is_named(kind, field, error, match):
    with pytest.raises(error, match=f"telemetry 'd': .*{match}"):
        app_of(kind, field=field)
