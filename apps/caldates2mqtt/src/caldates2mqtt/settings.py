"""What a user may set, in ``leadsman.toml`` or as ``CALDATES2MQTT_…``."""

import json
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, Field, SecretStr, model_validator

from caldates2mqtt.payloads import Days, Entries


class Calendar(BaseModel):
    """A section [calendars.KEY] of leadsman.toml."""

    calendar: str
    """Its name, or its path below the URL, with a slash."""
    server: str = ""
    """Which of several servers has it."""
    entries: Entries = 5
    days: Days = 14
    schedule: str = "0 */2 * * *"


class Server(BaseModel):
    """A section [servers.NAME] of leadsman.toml: one account."""

    url: str
    username: str | None = None
    password: SecretStr | None = None
    password_file: Path | None = None
    token: SecretStr | None = None
    zone: str | None = None
    search: Literal["auto", "all"] = "auto"
    timeout: Annotated[float, Field(gt=0, le=30)] = 20.0
    """Seconds for one reply."""

    @model_validator(mode="after")
    def has_one_password(self) -> Self:
        if self.password is not None and self.password_file is not None:
            raise ValueError("password and password_file are both set; write only one of them")
        return self


class Settings(BaseModel):
    servers: dict[str, Server]
    calendars: dict[str, Calendar] = {}

    @model_validator(mode="after")
    def has_a_server_for_each_calendar(self) -> Self:
        for key, calendar in self.calendars.items():
            if not calendar.server and len(self.servers) == 1:
                (calendar.server,) = self.servers
            if calendar.server not in self.servers:
                known = ", ".join(self.servers) or "a section [servers.home] first"
                raise ValueError(f"calendars.{key}.server is {calendar.server!r}; write {known}")
        return self


DEMO = {
    "servers.home.url": "https://demo.invalid",
    "calendars": json.dumps({"waste": {"calendar": "Waste", "schedule": "* * * * *"}}),
}
"""Settings of ``--demo``."""
