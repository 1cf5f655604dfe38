"""What the settings say about devices that have no decorator of their own: found ones, and those that messages feed."""

from collections.abc import AsyncIterator
from typing import Annotated

import pytest
from typing_extensions import TypedDict

from leadsman import App, Context, Finds, Received, Sensor
from leadsman.core.settings.sources import Where
from leadsman.errors import ConfigurationError


class Reading(TypedDict):
    t: Annotated[float, Sensor("°C", deadband=0.5)]


def gateway_app(**options):
    app = App("house")

    @app.source("gateway", finds=Finds(readings=Reading), silence=None, **options)
    async def gateway(context: Context) -> AsyncIterator[None]:
        for value in (20.0, 20.1, 20.9):
            context.device("meter").publish({"t": value})
            await context.sleep(1)
            yield
        await context.sleep("1d")

    return app


@pytest.mark.parametrize(("rule", "states"), [("OnChange()", [20.0, 20.9]), ("off", [20.0, 20.1, 20.9])])
def test_a_rule_of_the_settings_counts_the_deadbands_of_a_found_device_and_off_does_not(rule, states, harness):
    running = harness(gateway_app(), settings={"devices.meter.publish": rule})
    running.run(9)
    assert running.states("meter") == [{"t": each} for each in states]


def test_off_publishes_every_reading_of_a_type_with_deadbands(harness):
    app = App("house")

    @app.telemetry("m", interval=1)
    async def m() -> Reading:
        return {"t": 20.0}

    running = harness(app, settings={"devices.m.publish": "off"})
    running.run(4.5)
    assert len(running.states("m")) == 5


@pytest.mark.parametrize("section", ["meter", "*"])
def test_what_a_handler_fixes_is_fixed_for_the_devices_that_it_finds(section, harness):
    app = gateway_app(fixed={"publish", "enabled"})
    running = harness(app, settings={f"devices.{section}.publish": "off", f"devices.{section}.enabled": False})
    running.run(9)
    assert running.states("meter") == [{"t": 20.0}, {"t": 20.9}]


@pytest.mark.parametrize("name", ["", " ", "a\nb"])
def test_a_name_that_people_cannot_read_is_refused_for_found_devices_too(name):
    with pytest.raises(ConfigurationError, match="name for people"):
        gateway_app().load(Where.nowhere({"devices.meter.name": name}))


def test_a_field_that_is_no_text_is_refused():
    app = App("house")

    @app.telemetry("m", interval=1)
    async def m() -> Reading:
        return {"t": 20.0}

    with pytest.raises(ConfigurationError, match="names of fields"):
        app.load(Where.nowhere({"devices.m.publish": "OnChange({1: 2})"}))


@pytest.mark.parametrize(("code", "said", "calls"), [(True, "false", 0), (False, "true", 2)])
def test_the_handler_of_messages_follows_its_device(code, said, calls, harness):
    app, got = App("house"), []

    @app.subscribe(["zig/+", "zag/+"], device="zig", enabled=code)
    async def zig(message: Received):
        got.append(message)
        return {"a": 1}

    running = harness(app, settings={"devices.zig.enabled": said})
    running.run(1)
    running.broker.send("zig/a", b"1")
    running.broker.send("zag/a", b"1")
    running.run(5)
    assert len(got) == calls
