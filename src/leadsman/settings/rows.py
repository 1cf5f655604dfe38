"""Lists settings for display: each value with its origin, secrets masked."""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol, cast

from leadsman.settings.model import SettingPath, is_model
from leadsman.settings.sources import Entry
from leadsman.text import clean, counted, masked, split_urls

MASK = "********"
NOT_SET = "not set"
_SECRET = re.compile(r"(?i)(password|passwd|passphrase|secret|token|api_?key|credential)")
_PATH = re.compile(r"(?i)_(file|path)$")
"""A setting with such a name locates a secret. It is not secret itself."""


class _Secret(Protocol):
    """A `SecretStr` or `SecretBytes` of pydantic."""

    def get_secret_value(self) -> str | bytes: ...


class SettingRow(NamedTuple):
    """One value as it is displayed."""

    path: str
    value: str
    origin: str


def is_secret(name: str) -> bool:
    """Whether a setting with this name is a secret."""
    return _SECRET.search(name) is not None and _PATH.search(name) is None


def shown(name: str, value: object) -> str:
    """A value as text: `MASK` for a secret, `NOT_SET` for None."""
    if value is None:
        return NOT_SET
    hidden = type(value).__name__ in ("SecretStr", "SecretBytes")
    if hidden or is_secret(name.rsplit(".", 1)[-1]):
        return MASK if (cast(_Secret, value).get_secret_value() if hidden else str(value)) else "empty"
    if name == "mqtt.url" and isinstance(value, str | list):
        items = split_urls(value) if isinstance(value, str) else value
        value = [masked(str(each)) for each in items] if len(items) > 1 else masked(str(*items))
    if name == "cluster.engine" and isinstance(value, str):
        value = masked(value)
    return clean(repr(value) if isinstance(value, str) else str(value))


def secrets_of(value: object, name: str = "") -> Iterator[str]:
    """The secrets among settings, as deep as they are."""
    if type(value).__name__ in ("SecretStr", "SecretBytes"):
        secret = cast(_Secret, value).get_secret_value()
        yield secret if isinstance(secret, str) else secret.decode(errors="replace")
    elif isinstance(value, str) and is_secret(name):
        yield value
    elif is_model(kind := type(value)):
        for field in kind.model_fields:
            yield from secrets_of(getattr(value, field), field)
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from secrets_of(each, str(key))
    elif isinstance(value, list | tuple | set | frozenset):
        for each in value:
            yield from secrets_of(each, name)


def rows_of(value: object, origins: Mapping[SettingPath, Entry], path: SettingPath = ()) -> list[SettingRow]:
    """The rows of settings. A value without an origin is a default."""
    inner: Mapping[str, object] | None = None
    if is_model(kind := type(value)):
        inner = {name: getattr(value, name) for name in kind.model_fields}
    elif isinstance(value, dict) and value:
        inner = value
    elif isinstance(value, list) and any(is_model(type(each)) or isinstance(each, dict) for each in value):
        inner = {str(number): each for number, each in enumerate(value)}
    if inner is not None:
        return [row for key, each in inner.items() for row in rows_of(each, origins, (*path, str(key)))]
    lengths = range(len(path), 0, -1)
    entry = next((origins[path[:length]] for length in lengths if path[:length] in origins), None)
    return [SettingRow(".".join(path), shown(".".join(path), value), "default" if entry is None else entry.origin)]


def retry_rows(section: Mapping[str, object], origins: Mapping[SettingPath, str]) -> list[SettingRow]:
    """The rows of the section ``retry``."""
    return [SettingRow(".".join(path), _retry_value(section, path[1:]), origin) for path, origin in origins.items()]


def _retry_value(section: Mapping[str, object], path: SettingPath) -> str:
    value: object = section
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    if path == ("policy",) and isinstance(value, list | dict):
        return counted(len(value), "policy", "policies")
    return shown(path[-1], value)
