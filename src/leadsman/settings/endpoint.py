"""The HTTP endpoint: where it is bound, and who may use it."""

import ipaddress
from collections.abc import Mapping
from typing import NamedTuple

from leadsman.errors import ConfigurationError, InvalidValue, collect, raise_together
from leadsman.settings.sections import SHORTEST_TOKEN, HttpSettings, read_section
from leadsman.settings.sources import SettingEntry
from leadsman.text.redaction import Secret


class Endpoint(NamedTuple):
    """Where the HTTP endpoint is bound, and who may use it."""

    address: str
    """An IP address, or the path of a unix socket."""
    port: int | None
    """0 lets the system choose one; None for a unix socket."""
    token: Secret | None = None
    """What each request must carry; None if the address alone protects the endpoint."""
    hosts: frozenset[str] = frozenset()
    """Host names by which it is reached, besides addresses and the names of this machine."""
    flag: bool = False
    """Whether the command line asked for it."""

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        return self.port is None or ipaddress.ip_address(self.address).is_loopback

    def __str__(self) -> str:
        if self.port is None:
            return f"unix:{self.address}"
        return f"http://{f'[{self.address}]' if ':' in self.address else self.address}:{self.port}"


def endpoint_of(entries: Mapping[str, SettingEntry]) -> Endpoint | None:
    """Read the section ``http``. None if there shall be no endpoint.

    Raises:
        ConfigurationError: values are wrong, one a line; the message names their origins.
    """
    bind, token = entries.get("bind"), entries.get("token")
    if bind is None or bind.value == "":
        return None
    faults: list[ConfigurationError] = []
    settings, used = HttpSettings(), dict(entries)
    if token is not None and ("token_file" in entries or not token.secret):
        del used["token"]
        if "token_file" not in entries:  # others can read the command line, an environment and many settings files
            wrong = "a token belongs in a file; write its path as http.token_file or HTTP__TOKEN_FILE"
            faults.append(token.fault(InvalidValue(wrong)))
    with collect(faults):
        settings = read_section(settings, used)
    raise_together(faults)
    assert settings.bind is not None  # it is not empty
    found = Endpoint(*settings.bind, settings.token_file or settings.token, settings.hosts, bind.flag)
    if found.token is None and not found.is_local:
        message = (
            f"other machines can reach {found}; write a token of {SHORTEST_TOKEN} characters or more to a file, and "
            "its path as http.token_file or HTTP__TOKEN_FILE; or bind to 127.0.0.1"
        )
        raise bind.fault(InvalidValue(message))
    return found
