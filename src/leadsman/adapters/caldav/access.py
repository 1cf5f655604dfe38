"""Where calendars are, and the account that reads them."""

from pathlib import Path
from typing import NamedTuple

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
