"""Reads the HTTP endpoint from the section ``http`` of the settings: where it is bound, and who may use it."""

import ipaddress
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from leadsman.errors import ConfigurationError, InvalidType, InvalidValue, SettingsError, raise_together
from leadsman.settings.documents import read_text
from leadsman.settings.sources import Entry
from leadsman.text import clean
from leadsman.text.redaction import Secret

DEFAULT_PORT = 8080
SHORTEST_TOKEN = 16
"""Characters of a token. A shorter one could be guessed."""
LONGEST_PATH = 100
"""Bytes of the path of a unix socket. Linux has room for 107."""
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")
"""What a bearer token may consist of (RFC 6750 §2.1)."""
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")


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


def endpoint_of(entries: Mapping[str, Entry]) -> Endpoint | None:
    """Read the endpoint from settings entries. None if there shall be none.

    Raises:
        ConfigurationError: values are wrong, one a line; the message names their origins.
    """
    bind = entries.get("bind")
    if bind is None or bind.value == "":
        return None
    faults: list[ConfigurationError] = []
    address, port, token, hosts = "", None, None, frozenset[str]()
    try:
        address, port = _address(bind.value)
    except ConfigurationError as error:
        faults.append(_placed(error, bind))
    given = entries.get("token_file") or entries.get("token")
    if given is not None:
        try:
            token = _token(given)
        except ConfigurationError as error:
            faults.append(_placed(error, given))
    if (names := entries.get("hosts")) is not None:
        try:
            hosts = _hosts(names.value)
        except ConfigurationError as error:
            faults.append(_placed(error, names))
    raise_together(faults)
    found = Endpoint(address, port, token, hosts, bind.flag)
    if token is None and not found.is_local:
        message = (
            f"other machines can reach {found}; write a token of {SHORTEST_TOKEN} characters or more to a file, and "
            "its path as http.token_file or HTTP__TOKEN_FILE; or bind to 127.0.0.1"
        )
        raise _placed(InvalidValue(message), bind)
    return found


def _placed(error: ConfigurationError, entry: Entry) -> ConfigurationError:
    """The error with the setting that it is about, and its origin."""
    return type(error)(f"{'.'.join(entry.path)}: {error} (from {entry.origin})")


def _address(value: object) -> tuple[str, int | None]:
    """The address and the port in ``127.0.0.1:8080``, ``[::1]:8080``, ``8080`` or ``unix:/run/house/http.sock``."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str):
        raise InvalidType("write text such as '127.0.0.1:8080' or 'unix:/run/house/http.sock'")
    if text.startswith("unix:"):
        path = text.removeprefix("unix:")
        if not path.startswith("/") or not path.isprintable() or len(path.encode()) > LONGEST_PATH:
            raise InvalidValue(f"write unix: and an absolute path of {LONGEST_PATH} bytes at most")
        return path, None
    host, port = ("127.0.0.1", text) if text.isdecimal() else _split(text)
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        raise InvalidValue(
            f"{clean(host)!r} is no IP address; write one of this machine, such as '127.0.0.1:8080'"
        ) from None
    if not port.isdecimal() or int(port) > 0xFFFF:
        raise InvalidValue(f"{clean(port)!r} is not a port; write a number up to 65535")
    return str(address), int(port)


def _split(text: str) -> tuple[str, str]:
    """The host and the port of an address that has a host."""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        return host if bracket else text, rest.removeprefix(":") if rest else str(DEFAULT_PORT)
    host, colon, port = text.rpartition(":")
    if not colon or ":" in host:  # no port; or an IPv6 address without brackets
        return text, str(DEFAULT_PORT)
    return host, port


def _token(entry: Entry) -> Secret:
    """The token in a file. Nothing else may hold it: others can read the command line, the environment of a process
    and many settings files."""
    if entry.path[-1] == "token_file":
        if not isinstance(entry.value, str) or not entry.value:
            raise InvalidType("write the path of a file")
        text = read_text(Path(entry.value)).strip()
    elif entry.secret:
        text = str(entry.value).strip()
    else:
        raise InvalidValue("a token belongs in a file; write its path as http.token_file or HTTP__TOKEN_FILE")
    if len(text) < SHORTEST_TOKEN:
        raise InvalidValue(f"the token has {len(text)} characters; write {SHORTEST_TOKEN} or more")
    if not _TOKEN.fullmatch(text):
        raise InvalidValue("the token has characters that a bearer token must not have; write letters and digits")
    return Secret(text)


def _hosts(value: object) -> frozenset[str]:
    """The host names in a list, or in a text with commas."""
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidType("write a list of host names")
    found = frozenset(name.strip().lower() for name in names)
    for name in found:
        if not _HOST.fullmatch(name):
            raise SettingsError(f"{clean(name)!r} is not a host name; leave out the port")
    return found
