"""A recorded answer, for tests, demos and dry runs."""

from leadsman.testing import HttpTwin
from weather2mqtt.settings import Settings

CURRENT = {"time": "2026-01-01T12:00", "interval": 900, "temperature_2m": 3.4, "relative_humidity_2m": 81}
CURRENT |= {"pressure_msl": 1021.3, "precipitation": 0.0, "wind_speed_10m": 4.12}
ANSWER = {"latitude": 52.52, "longitude": 13.42, "utc_offset_seconds": 0, "timezone": "GMT", "current": CURRENT}


def simulated_server(settings: Settings) -> HttpTwin:
    """A server with the same weather everywhere."""
    return HttpTwin({"/v1/forecast": ANSWER}, settings.url)
