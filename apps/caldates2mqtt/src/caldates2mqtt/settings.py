"""What a user may set, in ``leadsman.toml`` or as ``CALDATES2MQTT_…``."""

import json
from pathlib import Path

from pydantic import BaseModel, SecretStr

from caldates2mqtt.payloads import Days, Entries


class Calendar(BaseModel):
    """A section [calendars.KEY] of leadsman.toml."""

    calendar: str
    """Its name, or its path below the URL, with a slash."""
    entries: Entries = 5
    days: Days = 14
    schedule: str = "0 */2 * * *"


class Server(BaseModel):
    url: str
    username: str | None = None
    password: SecretStr | None = None
    password_file: Path | None = None
    token: SecretStr | None = None
    zone: str | None = None


class Settings(BaseModel):
    server: Server
    calendars: dict[str, Calendar] = {}


DEMO = {
    "server.url": "https://demo.invalid",
    "calendars": json.dumps({"waste": {"calendar": "Waste", "schedule": "* * * * *"}}),
}
"""Settings of ``--demo``."""
