"""An app whose devices who runs it has changed, while it runs."""

from collections.abc import AsyncIterator
from typing import Annotated

import pytest
from pydantic import BaseModel

from leadsman import App, Context, Finds, Round, Sensor
from leadsman.testing import Harness


def test_a_dead_device_of_an_app_without_a_breaker_is_called_seldom_once_the_settings_have_one(harness):
    def calls(**settings):
        app, made = App("house"), []

        @app.telemetry("boiler", interval="1m", retry=9)
        async def boiler():
            made.append(1)
            raise OSError("no answer")

        running = harness(app, settings=settings)
        running.run("2h")
        running.stop()
        return len(made)

    breaker = {"threshold": 3, "recovery": "10m"}
    assert calls() > 10 * calls(**{"devices.boiler.circuit_breaker": breaker})


@pytest.mark.parametrize("pattern", ["meter-*", "meter-1"])
def test_a_device_that_a_handler_finds_is_covered_when_it_comes(pattern, harness):
    app = App("house")

    @app.source("gateway", finds=Finds(), silence=None)
    async def gateway(context: Context) -> AsyncIterator[None]:
        for value in (1, 1, 2):
            context.device("meter-1").publish({"value": value})
            await context.sleep(1)
            yield
        await context.sleep("1d")

    running = harness(
        app, settings={f"devices.{pattern}.publish": "OnChange()", f"devices.{pattern}.stale_after": "10s"}
    )
    running.run(9)

    assert running.states("meter-1") == [{"value": 1}, {"value": 2}]
    assert running.status()["devices"]["meter-1"]["status"] == "ok"
    running.run(20)
    assert running.status()["devices"]["meter-1"]["status"] == "stale"


class Air(BaseModel):
    co2: Annotated[int, Sensor("ppm", deadband=50)]
    voc: float = 0.0


def air_found(harness, rule):
    app = App("house")

    @app.source("gateway", finds=Finds(Air), silence=None, filters={"voc": [Round(1)]})
    async def gateway(context: Context) -> AsyncIterator[None]:
        for co2 in (400, 420, 480):
            context.device("meter-1").publish({"co2": co2})
            await context.sleep(1)
            yield
        await context.sleep("1d")

    running = harness(app, settings={"devices.meter-*.publish": rule})
    running.run(9)
    return [each["co2"] for each in running.states("meter-1")]


@pytest.mark.parametrize(
    ("rule", "published"), [("OnChange()", [400, 480]), ("OnChange({'voc': 1})", [400, 480]), ("off", [400, 420, 480])]
)
def test_a_rule_of_the_settings_for_a_found_device_has_the_deadbands_beside_its_fields(rule, published, harness):
    assert air_found(harness, rule) == published


def test_a_found_device_whose_rule_names_a_field_that_it_does_not_have_is_refused_by_name(harness, caplog):
    assert air_found(harness, "OnChange({'c02': 1})") == []
    assert "publish: publish names the field 'c02', which Air does not have; did you mean 'co2'" in caplog.text


def test_a_device_that_the_settings_switch_off_is_not_taken_when_it_is_found(harness, caplog):
    app = App("house")
    accepted = []

    @app.source("gateway", finds=Finds(), silence=None)
    async def gateway(context: Context) -> AsyncIterator[None]:
        for name in ("ours", "neighbours"):
            device = context.device(name)
            accepted.append(device.accepted)
            device.publish({"value": 1})
        yield
        await context.sleep("1d")

    running = harness(app, settings={"devices.neighbours.enabled": "no"})
    running.run(5)

    assert accepted == [True, False]
    assert running.states("neighbours") == []
    assert "refused" not in caplog.text


def test_the_app_of_a_harness_is_as_before_once_the_harness_has_ended():
    app = App("house")

    @app.telemetry("boiler", interval="1m")
    async def boiler():
        return {"t": 1}

    with Harness(app, settings={"devices.boiler.interval": "1s"}) as running:
        running.run(5)
        assert len(running.states("boiler")) > 4

    assert app.telemetries["boiler"].interval == 60
