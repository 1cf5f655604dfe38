"""Shared by adapters for servers: addresses, and files with passwords."""

import contextlib
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from leadsman.core.storage.given_file import read_given
from leadsman.core.text import clean
from leadsman.core.text.redaction import Secret, SecretValue, address_of, reveal
from leadsman.errors import InvalidType, InvalidValue, PermanentError

MAX_SECRET_BYTES = 64 * 1024
"""Bytes of a file with a password or a token."""


def check_url(url: str | SecretValue, example: str) -> Secret:
    """Check the address of a server, which is hidden from now on. `example` is shown where it is wrong.

    Raises:
        InvalidType: it is not text.
        InvalidValue: it is not an ``http://`` or ``https://`` URL with a host.
    """
    if not isinstance(reveal(url), str):
        raise InvalidType(f"url is {url!r}; write one such as {example!r}")
    address = address_of(url)
    if not is_url(address):
        raise InvalidValue(f"url is {clean(repr(str(address)))}; write one such as {example!r}")
    return address


def is_url(text: str) -> bool:
    """Whether a text is an ``http://`` or ``https://`` URL with a host."""
    with contextlib.suppress(ValueError):
        parts = urlsplit(str(text))  # which keeps its argument: no `Secret`, which would not end then
        return bool(parts.scheme in ("http", "https") and parts.hostname and parts.port != 0)
    return False


def display_url(url: str) -> str:
    """A URL without the parts that must not be in a log: user, password and query."""
    parts = urlsplit(str(url))  # see `is_url`
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    return clean(urlunsplit((parts.scheme, f"{host}:{parts.port}" if parts.port else host, parts.path, "", "")))


def origin_of(url: str) -> tuple[str, str, int]:
    """The scheme, host and port of a URL (RFC 6454 §4)."""
    parts = urlsplit(str(url))
    return parts.scheme, parts.hostname or "", parts.port or {"http": 80, "https": 443}.get(parts.scheme, 0)


def secret_in(path: Path) -> Secret:
    """Read the password or the token in a file. Blocks.

    Raises:
        OSError: it cannot be read.
        PermanentError: it is too large to be one.
    """
    data = read_given(path, MAX_SECRET_BYTES)
    if len(data) > MAX_SECRET_BYTES:
        raise PermanentError(f"{path} has more than {MAX_SECRET_BYTES} bytes, which is no password")
    return Secret(data.decode().strip())
