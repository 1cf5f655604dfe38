"""Lists settings for display: each value with its origin, secrets masked."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from leadsman.settings.model import is_model
from leadsman.settings.sources import Entry
from leadsman.text import clean, masked

MASK = "********"
NOT_SET = "not set"
_SECRET = re.compile(r"(?i)(password|passwd|passphrase|secret|token|api_?key|credential)")
_PATH = re.compile(r"(?i)_(file|path)$")
"""A setting of such a name says where a secret is, and is none itself."""


class SettingRow(NamedTuple):
    """One value, as a person is shown it."""

    path: str
    value: str
    origin: str


def is_secret(name: str) -> bool:
    """Whether a name is that of something nobody may see."""
    return _SECRET.search(name) is not None and _PATH.search(name) is None


def shown(name: str, value: Any) -> str:
    """A value in words: `MASK` for a secret, `NOT_SET` where there is none."""
    if value is None:
        return NOT_SET
    hidden = type(value).__name__ in ("SecretStr", "SecretBytes")
    if hidden or is_secret(name.rsplit(".", 1)[-1]):
        return MASK if (value.get_secret_value() if hidden else str(value)) else "empty"
    if name == "mqtt.url" and isinstance(value, str):
        value = masked(value)
    return clean(repr(value) if isinstance(value, str) else str(value))


def rows_of(value: Any, origins: Mapping[tuple[str, ...], Entry], path: tuple[str, ...] = ()) -> list[SettingRow]:
    """The rows of settings. What has no origin is a default."""
    inner: Any = None
    if is_model(type(value)):
        inner = {name: getattr(value, name) for name in type(value).model_fields}
    elif isinstance(value, dict) and value:
        inner = value
    elif isinstance(value, list) and any(is_model(type(each)) or isinstance(each, dict) for each in value):
        inner = {str(number): each for number, each in enumerate(value)}
    if inner is not None:
        return [row for key, each in inner.items() for row in rows_of(each, origins, (*path, str(key)))]
    lengths = range(len(path), 0, -1)
    entry = next((origins[path[:length]] for length in lengths if path[:length] in origins), None)
    return [SettingRow(".".join(path), shown(".".join(path), value), "default" if entry is None else entry.origin)]


def retry_rows(section: Mapping[str, Any], origins: Mapping[tuple[str, ...], str]) -> list[SettingRow]:
    """The rows of the section ``retry``."""
    return [SettingRow(".".join(path), _retry_value(section, path[1:]), origin) for path, origin in origins.items()]


def _retry_value(section: Mapping[str, Any], path: tuple[str, ...]) -> str:
    value: Any = section
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    if path == ("policy",) and isinstance(value, list | dict):
        return "1 policy" if len(value) == 1 else f"{len(value)} policies"
    return shown(path[-1], value)
