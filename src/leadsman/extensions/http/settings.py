"""The section ``http`` of the settings: where the HTTP endpoint is bound, and who may use it."""

import ipaddress
import re
from pathlib import Path
from typing import Annotated, NamedTuple

from leadsman.core.settings.documents import read_text
from leadsman.core.settings.entry import Entries
from leadsman.core.settings.sections import Section, is_off, or_off, read_section, read_words
from leadsman.core.text import clean
from leadsman.core.text.redaction import Secret
from leadsman.errors import ConfigurationError, InvalidType, InvalidValue, check_found, collect, raise_together

DEFAULT_PORT = 8080
MIN_TOKEN_CHARS = 16
"""Characters of a token. A shorter one could be guessed."""
MAX_PATH_BYTES = 100
"""Bytes of the path of a unix socket. Linux has room for 107."""
_TOKEN = r"[A-Za-z0-9._~+/=-]+"
"""The characters of a bearer token (RFC 6750 §2.1)."""
_HOST = r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?"
Address = tuple[str, int | None]
"""An IP address and a port; or the path of a unix socket, and None."""


def _address(value: object) -> Address:
    """``127.0.0.1:8080``, ``[::1]:8080``, ``8080`` or ``unix:/run/house/http.sock``."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str):
        raise InvalidType("write text such as '127.0.0.1:8080' or 'unix:/run/house/http.sock'")
    if text.startswith("unix:"):
        path = text.removeprefix("unix:")
        if not path.startswith("/") or not path.isprintable() or len(path.encode()) > MAX_PATH_BYTES:
            raise InvalidValue(f"write unix: and an absolute path of {MAX_PATH_BYTES} bytes at most")
        return path, None
    host, port = ("127.0.0.1", text) if text.isdecimal() else _split(text)
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        raise InvalidValue(
            f"{clean(host)!r} is no IP address; write one of this machine, such as '127.0.0.1:8080'"
        ) from None
    if not port.isdecimal() or len(port) > len("65535") or int(port) > 0xFFFF:
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


def _token(value: object) -> Secret:
    text = str(value).strip()
    if len(text) < MIN_TOKEN_CHARS:
        raise InvalidValue(f"the token has {len(text)} characters; write {MIN_TOKEN_CHARS} or more")
    if not re.fullmatch(_TOKEN, text):
        raise InvalidValue("the token has characters that a bearer token must not have; write letters and digits")
    return Secret(text)


def _token_file(value: object) -> Secret:
    if not isinstance(value, str) or not value or "\0" in value:
        raise InvalidType("write the path of a file")
    return _token(read_text(Path(value)))


def _hosts(value: object) -> frozenset[str]:
    found = frozenset(name.strip().lower() for name in read_words(value, "write a list of host names"))
    for name in found:
        if not re.fullmatch(_HOST, name):
            raise InvalidValue(f"{clean(name)!r} is not a host name; leave out the port")
    return found


class HttpSettings(NamedTuple):
    """Where the HTTP endpoint is bound, and who may use it."""

    bind: Annotated[Address | None, or_off(_address)] = None
    token: Annotated[Secret | None, _token] = None
    """What each request must carry."""
    token_file: Annotated[Secret | None, _token_file] = None
    """The same, read from the file that the setting names."""
    hosts: Annotated[frozenset[str], _hosts] = frozenset()
    """Host names by which it is reached, besides addresses and the names of this machine."""


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


def _endpoint(standard: HttpSettings, entries: Entries) -> Endpoint | None:
    """None if there shall be no endpoint."""
    bind, token = entries.get("bind"), entries.get("token")
    if bind is None or bind.value is None or is_off(bind.value):
        return None
    faults: list[ConfigurationError] = []
    settings, used = standard, dict(entries)
    if token is not None and ("token_file" in entries or not token.secret):
        del used["token"]
        if "token_file" not in entries:  # others can read the command line, an environment and many settings files
            wrong = "a token belongs in a file; write its path as http.token_file or HTTP__TOKEN_FILE"
            faults.append(token.fault(InvalidValue(wrong)))
    with collect(faults):
        settings = read_section(standard, used)
    raise_together(faults)
    assert settings.bind is not None  # it is not off
    found = Endpoint(*settings.bind, settings.token_file or settings.token, settings.hosts, bind.flag)
    if found.token is None and not found.is_local:
        message = (
            f"other machines can reach {found}; write a token of {MIN_TOKEN_CHARS} characters or more to a file, and "
            "its path as http.token_file or HTTP__TOKEN_FILE; or bind to 127.0.0.1"
        )
        raise bind.fault(InvalidValue(message))
    return found


def _check_installed(endpoint: object) -> None:
    check_found("HTTP endpoints", "uvicorn", "http", "uvicorn")


def _in_dry_run(endpoint: Endpoint) -> Endpoint | None:
    return endpoint if endpoint.flag else None  # the app itself may be bound there


SECTION = Section(HttpSettings, _endpoint, check_installed=_check_installed, in_dry_run=_in_dry_run)
