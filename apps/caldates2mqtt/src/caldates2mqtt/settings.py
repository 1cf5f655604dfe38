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
    """How many events."""
    days: Days = 14
    """How far ahead."""
    schedule: str = "0 */2 * * *"
    """When it is read, as cron writes it."""


class Server(BaseModel):
    """A section [servers.NAME] of leadsman.toml: one account."""

    url: str
    """Where its CalDAV begins."""
    username: str | None = None
    """Of the account."""
    password: SecretStr | None = None
    """Of the account."""
    password_file: Path | None = None
    """A file with the password."""
    token: SecretStr | None = None
    """A token, in place of a password."""
    zone: str | None = None
    """Where days begin, such as Europe/Berlin; the zone of this machine if it is not set."""
    search: Literal["auto", "all"] = "auto"
    """Write all if the server leaves out events."""
    timeout: Annotated[float, Field(gt=0, le=30)] = 20.0
    """Seconds for one reply."""

    @model_validator(mode="after")
    def has_one_password(self) -> Self:
        if self.password is not None and self.password_file is not None:
            raise ValueError("password and password_file are both set; write only one of them")
        return self


class Settings(BaseModel):
    servers: dict[str, Server]
    """The accounts."""
    calendars: dict[str, Calendar] = {}
    """What is published."""

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
