import json

import pytest

from leadsman import RetryRequested
from leadsman.testing import Harness, HttpTwin, Recorded
from leadsman_rigs.web import Web
from weather2mqtt import app
from weather2mqtt.twin import ANSWER

PLACES = '{"berlin": {"latitude": 52.52, "longitude": 13.41}}'
WEATHER = {"temperature": 3.4, "humidity": 81.0, "pressure": 1021.3, "precipitation": 0.0, "wind_speed": 4.12}


@pytest.fixture
def weather():
    """The app in virtual time, with its twin."""
    with Harness(app, settings={"places": PLACES}, twins=True) as harness:
        harness.twin = harness.adapter(HttpTwin)
        yield harness


def test_the_weather_of_a_place_is_published_every_quarter_of_an_hour(weather):
    weather.run("46m")

    assert weather.states("berlin")[0] == WEATHER
    assert len(weather.twin.recordings.requests) == 4
    assert weather.twin.recordings.requests[0].url == (
        "https://api.open-meteo.com/v1/forecast?latitude=52.52&longitude=13.41"
        "&current=temperature_2m%2Crelative_humidity_2m%2Cpressure_msl%2Cprecipitation%2Cwind_speed_10m"
        "&wind_speed_unit=ms"
    )


def test_a_server_that_fails_for_a_while_costs_no_reading(weather):
    weather.twin.play("/v1/forecast", Recorded("", 503), Recorded("<html>", 200), Recorded("", 502))
    weather.run("5m")

    assert weather.states("berlin") == [WEATHER]


def test_a_value_that_the_server_does_not_have_costs_no_other(weather):
    weather.twin.play("/v1/forecast", ANSWER | {"current": ANSWER["current"] | {"pressure_msl": None}})
    weather.run("1m")

    assert weather.states("berlin") == [WEATHER | {"pressure": None}]


def test_what_the_server_refuses_is_published_with_its_reason_and_not_asked_again_at_once(weather):
    weather.twin.play("/v1/forecast", Recorded({"error": True, "reason": "Latitude must be in range"}, 400))
    weather.run("10m")

    assert weather.states("berlin") == []
    assert "Latitude must be in range" in weather.errors("berlin")[-1]["message"]
    weather.run("10m")
    assert weather.states("berlin") == [WEATHER]


def test_a_pause_that_the_server_asks_for_is_no_outage(weather):
    weather.twin.fail(RetryRequested("2h", "429"))
    weather.run("1h")
    weather.twin.fail(None)
    weather.run("2h")

    assert weather.errors("berlin") == []
    assert weather.states("berlin")[-1] == WEATHER


def test_a_real_server_is_published(program, mosquitto, listen):
    listener = listen(mosquitto.port)
    with Web({"/v1/forecast": ANSWER}) as web:
        running = program("weather2mqtt", "--mqtt", mosquitto.url, url=web.url, places=PLACES)
        (message,) = listener.wait_for("weather2mqtt/berlin/state")
        assert json.loads(message.payload) == WEATHER
        assert running.end()[0] == 0


def test_the_demo_needs_neither_server_nor_broker(demonstrated):
    assert '"temperature":3.4' in demonstrated("weather2mqtt", 5)
