"""An app that ends by itself when nothing works any more."""

import pytest

from leadsman import App
from leadsman.errors import ConfigurationError, NoFreshData
from leadsman.testing import Outages, Scripted

READING = {"t": 1.0}


def house(**devices):
    app = App("house")
    for name, handler in devices.items():
        app.add_telemetry(name, handler, interval="10s")
    return app


def test_an_app_without_a_fresh_device_ends_after_the_time_in_the_settings(harness):
    running = harness(house(d=Outages(READING, [("2m", "1d")])), settings={"supervision.exit_when_stale": "10m"})
    running.run("12m")
    with pytest.raises(NoFreshData, match=r"no device gave a reading for 10m \(supervision.exit_when_stale\)"):
        running.run("2m")
    assert running.status()["state"] == "offline"


def test_one_fresh_device_is_enough(harness):
    running = harness(
        house(d=Outages(READING, [("2m", "1d")]), other=Scripted(READING)),
        settings={"supervision.exit_when_stale": "10m"},
    )
    running.run("1h")

    assert running.status()["state"] == "online"


def test_a_device_that_comes_back_in_time_begins_the_count_anew(harness):
    outages = [("2m", "8m"), ("9m", "16m")]
    running = harness(house(d=Outages(READING, outages)), settings={"supervision.exit_when_stale": "10m"})
    running.run("20m")

    assert running.status()["state"] == "online"


@pytest.mark.slow
def test_by_default_it_goes_on(harness):
    running = harness(house(d=Outages(READING, [("2m", "3d")])))
    running.run("12h")

    assert running.status()["state"] == "online"


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("exit_when_stale", "5s", "1m or more, or 'off'"),
        ("exit_when_hung", "1s", "5s or more, or 'off'"),
        ("exit_when_hung", "soon", "write numbers with units"),
        ("exit_when_hanging", "1m", "did you mean 'exit_when_hung'?"),
    ],
)
def test_a_time_that_makes_no_sense_is_refused(key, value, told, harness):
    with pytest.raises(ConfigurationError, match=told):
        harness(house(d=Scripted(READING)), settings={f"supervision.{key}": value})


def test_off_overrides_what_an_image_sets(harness):
    running = harness(house(d=Scripted(READING)), settings={"supervision.exit_when_stale": "off"})

    assert running.app.setup.sections.supervision.exit_when_stale is None
