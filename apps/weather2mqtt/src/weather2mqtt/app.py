"""The app: each place of the settings is a device."""

from leadsman import UNTIL_NEXT_POLL, App, Device, ExponentialBackoff, command_line
from leadsman.adapters.http import HttpClient
from weather2mqtt.payloads import Answer, Weather
from weather2mqtt.settings import DEMO, Place, Settings

CURRENT = "temperature_2m,relative_humidity_2m,pressure_msl,precipitation,wind_speed_10m"


def servers(settings: Settings) -> tuple[HttpClient]:
    """The server of the settings."""
    return (HttpClient(settings.url),)


def simulated_servers(settings: Settings) -> tuple[HttpClient]:
    """A server in memory."""
    from weather2mqtt.twin import simulated_server  # only a demo or a dry run loads it

    return (simulated_server(settings),)


app = App("weather2mqtt", version="0.1.0", settings=Settings, adapters=servers, twins=simulated_servers)


def devices(settings: Settings) -> dict[str, Device]:
    """One device for each place."""
    return {name: Device(place, interval=place.interval) for name, place in settings.places.items()}


@app.telemetry(devices, retry=UNTIL_NEXT_POLL, backoff=ExponentialBackoff("10s"), timeout="30s")
async def weather(http: HttpClient, place: Place) -> Weather:
    """The present weather of a place."""
    asked = {"latitude": place.latitude, "longitude": place.longitude, "current": CURRENT, "wind_speed_unit": "ms"}
    return (await http.get_json("/v1/forecast", Answer, params=asked)).current


main = command_line(app, demo=DEMO)
