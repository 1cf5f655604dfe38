"""Loads settings from entries: merges them by rank, checks for unknown keys, validates them, and keeps their
origins."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from leadsman.errors import SettingsError
from leadsman.settings.faults import BROKER_KEYS, Origins, Place, origin, unknown_broker_key, unknown_keys, validated
from leadsman.settings.model import inside, is_model, knows
from leadsman.settings.rows import SettingRow, retry_rows, rows_of, shown
from leadsman.settings.sources import BROKER, RANKS, RETRY, Entry, Where, gathered, read_text, settings_file

if TYPE_CHECKING:
    from pydantic import BaseModel

_CLAIMED = (".env", "environment", "secret")
"""Sources with names of other programs too."""


class Loaded(NamedTuple):
    """What was found."""

    settings: "BaseModel | None"
    broker: dict[str, Entry]
    """The entries of the section ``mqtt``, by key."""
    rows: tuple[SettingRow, ...]
    retry: Mapping[str, Any] = {}
    """The section ``retry``, as it is written."""
    retry_origins: Mapping[tuple[str, ...], str] = {}
    """Where its values are from, by their paths."""
    faults: tuple[str, ...] = ()
    """What is wrong, a line each."""


def load(app: str, model: "type[BaseModel] | None", where: Where) -> Loaded:
    """Read and check everything.

    Raises:
        SettingsError: it names every fault, one a line, with where the value is from.
    """
    found = read(app, model, where)
    if found.faults:
        raise SettingsError("\n".join(found.faults))
    return found


def read(app: str, model: "type[BaseModel] | None", where: Where) -> Loaded:
    """As `load`, with the faults in `Loaded.faults`, for whoever finds more of them.

    Raises:
        SettingsError: a source cannot be read at all.
    """
    faults: list[str] = []
    tree, origins = _merged(gathered(app, where, lambda path: knows(model, path)), model, faults)
    broker = tree.pop(BROKER, {}) if model is None or BROKER not in model.model_fields else tree.get(BROKER, {})
    broker_entries = _broker_entries(broker, origins, faults)
    retry = tree.pop(RETRY, {}) if model is None or RETRY not in model.model_fields else {}
    if not isinstance(retry, dict):
        faults.append(f"{RETRY}: it is a section; write [retry.api] or [[retry.policy]]{origin((RETRY,), origins)}")
        retry = {}
    faults += unknown_keys(app, tree, model, origins)
    settings = None
    if model is not None:
        file = settings_file(where)
        place = Place(app, "leadsman.toml" if file is None else file.name)
        settings, wrong = validated(place, model, tree, origins)
        faults += wrong
    retry_origins = {path: entry.origin for path, entry in origins.items() if path[0] == RETRY and retry}
    rows = [SettingRow(f"{BROKER}.{key}", shown(key, each.value), each.origin) for key, each in broker_entries.items()]
    rows += retry_rows(retry, retry_origins)
    if settings is not None:
        rows += rows_of(settings, origins)
    return Loaded(settings, broker_entries, tuple(rows), retry, retry_origins, tuple(faults))


def load_broker(where: Where) -> dict[str, Entry]:
    """The entries of the section ``mqtt`` alone, for whoever talks to the broker without being an app.

    Raises:
        SettingsError: it names every fault, one a line.
    """
    entries: dict[str, Entry] = {}
    for entry in gathered("", where, lambda _: False):
        if entry.path == (BROKER,) and isinstance(entry.value, dict):
            entries |= {key: entry._replace(path=(BROKER, key), value=value) for key, value in entry.value.items()}
        elif entry.path[0] == BROKER:
            entries[entry.path[-1]] = entry._replace(value=_value(entry))
    faults = [
        unknown_broker_key(str(key), f" (from {entry.origin})")
        for key, entry in entries.items()
        if key not in BROKER_KEYS
    ]
    if faults:
        raise SettingsError("\n".join(faults))
    return entries


def _merged(entries: list[Entry], model: Any, faults: list[str]) -> tuple[dict[str, Any], dict[tuple[str, ...], Entry]]:
    """The tree that the entries make, the higher ones over the lower ones, and where each leaf of it is from."""
    tree: dict[str, Any] = {}
    origins: dict[tuple[str, ...], Entry] = {}
    for each in entries:
        if model is None and each.path[0] not in (BROKER, RETRY) and RANKS[each.rank] in _CLAIMED:
            continue  # without settings the app has no claim to variables that begin as its name does
        entry = each._replace(path=_known_case(each.path, tree, model))
        try:
            value = _value(entry)
            _put(tree, entry, value)
        except SettingsError as error:
            faults.append(str(error))
            continue
        for path in [path for path in origins if path[: len(entry.path)] == entry.path]:
            del origins[path]
        for path in _leaves(entry.path, value):
            origins[path] = entry
    return tree, origins


def _value(entry: Entry) -> Any:
    if isinstance(entry.value, Path):
        return read_text(entry.value).removesuffix("\n").removesuffix("\r")
    if entry.text and isinstance(entry.value, str) and entry.value[:1] in ("[", "{"):
        try:
            return json.loads(entry.value)
        except ValueError:
            return entry.value
    return entry.value


def _put(tree: dict[str, Any], entry: Entry, value: Any) -> None:
    node = tree
    for part in entry.path[:-1]:
        section = node.setdefault(part, {})
        if not isinstance(section, dict):
            raise SettingsError(
                f"{'.'.join(entry.path)} (from {entry.origin}): {part!r} is a value already, no section"
            )
        node = section
    last = entry.path[-1]
    if isinstance(value, dict) and isinstance(node.get(last), dict):
        _merge(node[last], value)
    else:
        node[last] = value


def _merge(into: dict[str, Any], values: dict[str, Any]) -> None:
    for key, value in values.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value


def _leaves(path: tuple[str, ...], value: Any) -> list[tuple[str, ...]]:
    if not isinstance(value, dict) or not value:
        return [path]
    return [leaf for key, each in value.items() for leaf in _leaves((*path, str(key)), each)]


def _known_case(path: tuple[str, ...], tree: Mapping[str, Any], model: Any) -> tuple[str, ...]:
    """The path as the model, or a file, writes it: variables are all in one case."""
    known: list[str] = []
    node: Any = tree
    for part in path:
        names = [*(model.model_fields if is_model(model) else ()), *(node if isinstance(node, dict) else ())]
        name = part if part in names else next((name for name in names if name.lower() == part.lower()), part)
        known.append(name)
        node = node.get(name) if isinstance(node, dict) else None
        model = inside(model, name)
    return tuple(known)


def _broker_entries(section: Any, origins: Origins, faults: list[str]) -> dict[str, Entry]:
    if not isinstance(section, dict):
        faults.append(f"{BROKER}: it is a section; write [mqtt] and url = …{origin((BROKER,), origins)}")
        return {}
    entries = {}
    for key, value in section.items():
        path = (BROKER, str(key))
        if key not in BROKER_KEYS:
            faults.append(unknown_broker_key(str(key), origin(path, origins)))
        elif path in origins:
            entries[str(key)] = origins[path]._replace(value=value)
    return entries
