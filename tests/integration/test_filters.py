"""Filters of an app, from its registration to its topics."""

import json
import sqlite3
from collections.abc import AsyncIterator
from typing import Annotated

import pytest
from pydantic import BaseModel

from leadsman import App, Context, Every, Finds, Maximum, Mean, Median, OnChange, Rate, Round, Seen, Sensor
from leadsman.core.introspection.topic_schemas import schemas
from leadsman.errors import InvalidType, InvalidValue
from leadsman.testing import Harness, Scripted, fail


class Meter(BaseModel):
    power: Annotated[float, Sensor("W", device_class="power", state_class="measurement", deadband=5)]
    energy: Annotated[float, Sensor("kWh", device_class="energy", state_class="total_increasing")]
    tariff: str = "day"


FILTERS = {
    "power": {"power": [Mean("1m"), Round(0)], "power_max": [Maximum("1m")], "power_seen": [Seen("1m", "10s")]},
    "energy": {"energy": [], "consumption": [Rate("1h"), Sensor("kW", device_class="power", precision=2)]},
}


def meter_app(*steps, keep_state=False, **options):
    app = App("house", keep_state=keep_state)
    app.add_telemetry("meter", Scripted(*steps), interval="10s", filters=FILTERS, **options)
    return app


def kwh(watts, energy=10.0):
    return {"power": watts, "energy": energy}


def test_a_mean_a_maximum_and_how_much_of_the_window_was_seen_come_once_a_minute(harness):
    app = harness(meter_app(*(kwh(n * 100.0) for n in range(6)), fail(3), kwh(50.0)))

    app.run("130s")

    first, second = app.states("meter")
    assert (first["power"], first["power_max"]) == (250, 500.0)
    assert first["power_seen"] == pytest.approx(1, abs=0.01)
    assert (second["power"], second["power_seen"]) == (50, pytest.approx(0.5, abs=0.01))


def test_a_reading_in_an_open_window_is_no_failure_and_is_counted_as_not_published(harness):
    app = harness(meter_app(kwh(100.0)))

    app.run("50s")

    assert app.states("meter") == []
    assert app.statuses("meter")[-1] == "ok"
    assert app.errors("meter") == []


def test_a_window_goes_on_after_a_restart(tmp_path):
    for step, seconds in ((kwh(100.0), "25s"), (kwh(400.0), "45s")):  # polls at 0, 10, 20, and 0, 10, 20, 30 besides
        with Harness(meter_app(step, keep_state=True), state_directory=tmp_path) as running:
            running.run(seconds)
            found = running.states("meter")

    assert (found[0]["power"], found[0]["power_max"]) == (round((3 * 100 + 4 * 400) / 7), 400.0)


def test_without_keep_state_it_begins_again(tmp_path):
    for step in (kwh(900.0), kwh(400.0)):
        with Harness(meter_app(step), state_directory=tmp_path) as running:
            running.run("65s" if step == kwh(400.0) else "25s")
            found = running.states("meter")
    assert found[0]["power_max"] == 400.0


def test_a_state_that_makes_no_sense_is_reported_and_the_device_goes_on(tmp_path, caplog):
    with Harness(meter_app(kwh(100.0), keep_state=True), state_directory=tmp_path) as running:
        running.run("25s")
    (file,) = tmp_path.rglob("resilience.db")
    with sqlite3.connect(file) as database:
        (document,) = database.execute("SELECT document FROM handler").fetchone()
        changed = json.loads(document)
        changed["filters"]["outputs"]["power_max"]["steps"] = ["nonsense"]
        database.execute("UPDATE handler SET document = ?", (json.dumps(changed),))
    database.close()

    with Harness(meter_app(kwh(300.0), keep_state=True), state_directory=tmp_path) as running:
        running.run("65s")
        assert [each["power_max"] for each in running.states("meter")] == [None, 300.0]
        assert running.states("meter")[0]["power"] == 214  # of three at 100 W and four at 300 W

    assert "meter: the state of its filters" in caplog.text


def test_a_publish_rule_decides_about_what_comes_out(harness):
    app = App("house")
    app.add_telemetry(
        "air",
        Scripted({"t": 20.01}, {"t": 20.04}, {"t": 99.0}, {"t": 20.02}, {"t": 20.3}, {"t": 20.3}),
        interval="1s",
        filters={"t": [Median(3), Round(1)]},
        publish=OnChange(),
    )
    running = harness(app)

    running.run("6s")

    assert [each["t"] for each in running.states("air")] == [20.0, 20.3]


def test_a_field_that_is_no_number_fails_the_poll_and_is_named(harness):
    app = App("house")
    app.add_telemetry("air", Scripted({"t": "n/a"}), interval="1s", filters={"t": [Round(1)]})
    running = harness(app)

    running.run("3s")

    assert "'t' is 'n/a', and its filters take numbers" in running.errors("air")[0]["message"]


def test_the_readings_of_a_source_and_of_found_devices_are_filtered_each_for_itself(harness):
    app = App("house")

    @app.source("door", filters={"t": [Median(3)]})
    async def door() -> AsyncIterator[dict[str, float]]:
        for t in (1.0, 9.0, 2.0):
            yield {"t": t}

    @app.telemetry("gateway", interval="1s", finds=Finds(), filters={"t": [Median(3)]})
    async def gateway(context: Context) -> None:
        for n, name in enumerate(("one", "two")):
            context.device(name).publish({"t": 10.0 * n + context.now().second})

    running = harness(app)

    running.run("2s")

    assert [each["t"] for each in running.states("door")][:3] == [1.0, 5.0, 2.0]
    assert [each["t"] for each in running.states("one")] == [0.0, 0.5, 1.0]
    assert [each["t"] for each in running.states("two")] == [10.0, 10.5, 11.0]


def test_a_handler_that_finds_devices_gives_its_own_reading_at_once_and_theirs_when_a_window_is_over(harness):
    app = App("house")

    @app.telemetry("gateway", interval="10s", finds=Finds(), filters={"power": [Mean("1m")]})
    async def gateway(context: Context) -> dict[str, int]:
        context.device("meter").publish({"power": 5})
        return {"heard": 1}

    running = harness(app)

    running.run("65s")

    assert running.states("gateway") == [{"heard": 1}] * 7
    assert running.states("meter") == [{"power": 5.0}]


def typed_app(filters, **options):
    app = App("house")

    @app.telemetry("meter", interval="10s", filters=filters, **options)
    async def meter() -> Meter: ...

    return app


def test_the_schema_knows_the_outputs_and_what_they_measure():
    app = typed_app(FILTERS)

    found = schemas(app.topics, app.telemetries, {})["topics"]["house/meter/state"]["properties"]

    assert list(found) == ["tariff", "power", "power_max", "power_seen", "energy", "consumption"]
    assert found["power_max"]["unit"] == "W"
    assert found["power_max"]["anyOf"] == [{"type": "number"}, {"type": "null"}]
    assert "unit" not in found["power_seen"]
    assert found["consumption"]["unit"] == "kW"
    assert found["energy"]["state_class"] == "total_increasing"


def test_the_schema_says_that_an_object_with_filtered_fields_may_be_null():
    class Air(BaseModel):
        co2: float
        dust: float

    class Room(BaseModel):
        air: Air | None

    app = App("house")

    @app.telemetry("room", interval="10s", filters={"air.co2": [Round(0)], "air.dust": [Round(1)]})
    async def room() -> Room: ...

    air = schemas(app.topics, app.telemetries, {})["topics"]["house/room/state"]["properties"]["air"]

    assert [each["type"] for each in air["anyOf"]] == ["object", "null"]
    assert [each["type"] for each in air["anyOf"][0]["properties"].values()] == ["number", "number"]


def test_the_deadband_beside_a_field_counts_for_the_outputs_that_have_its_unit():
    rule = typed_app(FILTERS).telemetries["meter"].publish

    assert rule == OnChange({"power": 5, "power_max": 5})
    assert typed_app(FILTERS, publish=OnChange({"consumption": 1}) | Every("1h"))


@pytest.mark.parametrize(
    ("filters", "error", "match"),
    [
        ({"powr": [Round(1)]}, InvalidValue, "filters names the field 'powr', which Meter does not have; did you mean"),
        ({"tariff": [Round(1)]}, InvalidType, "'tariff', which is str; filters take numbers"),
        ({"power": {"energy": [Round(1)]}}, InvalidValue, "the output 'energy', and Meter has such a field"),
        ({"power": 5}, InvalidType, "write a list of filters"),
    ],
)
def test_what_does_not_fit_the_reading_is_named_at_the_start(filters, error, match):
    with pytest.raises(error, match=f"telemetry 'meter': .*{match}"):
        typed_app(filters)


def test_a_deadband_for_a_field_that_the_filters_took_away_is_named():
    with pytest.raises(InvalidValue, match="publish names the field 'power'"):
        typed_app({"power": {"power_mean": [Mean("1m")]}}, publish=OnChange({"power": 1}))
