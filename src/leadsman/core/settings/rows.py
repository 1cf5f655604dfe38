"""Lists settings for display: each value with its origin, secrets masked."""

from collections.abc import Mapping
from typing import NamedTuple

from leadsman.core.settings.entry import Entries, Origins
from leadsman.core.settings.model import SettingPath, is_model
from leadsman.core.settings.secrets import is_secret
from leadsman.core.text import clean, count_noun, mask_url, split_urls
from leadsman.core.text.redaction import is_secret_value, reveal

MASK = "********"
NOT_SET = "not set"


class SettingRow(NamedTuple):
    """One value as it is displayed."""

    path: str
    value: str
    origin: str


def shown(name: str, value: object) -> str:
    """A value as text: `MASK` for a secret, `NOT_SET` for None."""
    if value is None:
        return NOT_SET
    if is_secret_value(value) or is_secret(name.rsplit(".", 1)[-1]):
        return MASK if str(reveal(value)) else "empty"
    if name == "mqtt.url" and isinstance(value, str | list):
        items = split_urls(value) if isinstance(value, str) else value
        value = [mask_url(str(each)) for each in items] if len(items) > 1 else mask_url(str(*items))
    if name == "cluster.engine" and isinstance(value, str):
        value = mask_url(value)
    return clean(repr(value) if isinstance(value, str) else str(value))


def rows_of(value: object, origins: Origins, path: SettingPath = ()) -> list[SettingRow]:
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
    return [SettingRow(".".join(path), shown(".".join(path), value), "default" if entry is None else entry.source)]


def device_rows(sections: Mapping[str, Entries]) -> list[SettingRow]:
    """The rows of the sections about devices, with the lines of files: there may be a thousand sections."""
    found: list[SettingRow] = []
    for entry in (entry for section in sections.values() for entry in section.values()):
        inside = entry.below or {entry.path: entry}
        origins = {path: each._replace(source=each.origin_at(path)) for path, each in inside.items()}
        found += rows_of(entry.value, origins, entry.path)
    return found


def retry_rows(section: Mapping[str, object], origins: Origins) -> list[SettingRow]:
    """The rows of the section ``retry``."""
    return [
        SettingRow(".".join(path), _retry_value(section, path[1:]), entry.source) for path, entry in origins.items()
    ]


def _retry_value(section: Mapping[str, object], path: SettingPath) -> str:
    value: object = section
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    if path == ("policy",) and isinstance(value, list | dict):
        return count_noun(len(value), "policy", "policies")
    return shown(path[-1], value)
