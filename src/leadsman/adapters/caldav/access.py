"""Where calendars are, and the account that reads them."""

from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

from leadsman.text import clean
from leadsman.text.redaction import Secret


class Access(NamedTuple):
    """The address of a server, and the account."""

    url: Secret
    username: str | None
    password: Secret | Path | None
    """A `Path` is a file that holds it."""
    token: Secret | None
    ca: str | None
    timeout: float


def display_url(url: str) -> str:
    """A URL without the parts that must not be in a log: user, password and query."""
    parts = urlsplit(str(url))  # which keeps its argument: no `Secret`, which would not end then
    host = parts.hostname or ""
    return clean(urlunsplit((parts.scheme, f"{host}:{parts.port}" if parts.port else host, parts.path, "", "")))
