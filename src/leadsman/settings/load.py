"""Loads settings from entries: merges them by rank, finds unknown keys, validates the values, and keeps their
origins."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from leadsman.errors import SettingsError
from leadsman.settings.documents import read_text
from leadsman.settings.faults import Origins, Place, origin, unknown_key, unknown_keys, validate
from leadsman.settings.model import SettingPath, has_field, inside, is_model
from leadsman.settings.rows import SettingRow, retry_rows, rows_of
from leadsman.settings.secrets import secrets_in
from leadsman.settings.sections import KEYS, TABLES
from leadsman.settings.sources import (
    BROKER,
    DEVICES,
    RANKS,
    RETRY,
    SECTIONS,
    SettingEntry,
    Where,
    read_entries,
    settings_file,
)
from leadsman.text.nesting import is_nested_deeper
from leadsman.text.redaction import Secret

if TYPE_CHECKING:
    from pydantic import BaseModel

_DEEPEST = 50
"""Levels of a list or a section in a variable. What is deeper stays text, which the model of the settings refuses."""
_SHARED = (".env", "environment", "secret")
"""Sources that also contain the names of other programs."""
Tree = dict[str, object]
"""Settings as they are written: values, and sections, which are trees."""


class Loaded(NamedTuple):
    """Settings, their origins, and the faults in them."""

    settings: "BaseModel | None"
    sections: Mapping[str, Mapping[str, SettingEntry]]
    """The entries of each section that every app has, by its name and their keys."""
    rows: tuple[SettingRow, ...]
    retry: Mapping[str, object] = {}
    """The section ``retry``, as it is written."""
    retry_origins: Mapping[SettingPath, SettingEntry] = {}
    """The entries of its values, by their paths."""
    devices: Mapping[str, Mapping[str, SettingEntry]] = {}
    """What is set for single devices: the entries of each section, by its key and the option."""
    faults: tuple[str, ...] = ()
    """One line for each."""
    secrets: tuple[Secret, ...] = ()
    """What is secret in the settings as they are written, hidden as long as this lives."""


def load(app: str, model: "type[BaseModel] | None", where: Where) -> Loaded:
    """Read and check the settings of an app.

    Raises:
        SettingsError: it names every fault, one a line, with the origin of the value.
    """
    found = read(app, model, where)
    if found.faults:
        raise SettingsError("\n".join(found.faults))
    return found


def read(app: str, model: "type[BaseModel] | None", where: Where) -> Loaded:
    """As `load`, but return the faults in `Loaded.faults`, so that the caller can add more.

    Raises:
        SettingsError: a source cannot be read.
    """
    faults: list[str] = []
    tree, origins = _merge_all(read_entries(app, where, lambda path: has_field(model, path)), model, faults)
    own = frozenset[str]() if model is None else model.model_fields.keys()
    about_devices = {} if DEVICES in own else tree.pop(DEVICES, {})
    # Hidden from here on: what validates them may show them.
    secrets = (*secrets_in(tree, model), *secrets_in(about_devices, None))
    sections = {}
    for name in SECTIONS:
        if name not in own:
            section = tree.pop(name, {})
        elif name == BROKER:  # an app with a section of this name reads its broker there, too
            section = tree.get(BROKER, {})
        else:
            section = {}
        sections[name] = _entries(name, section, origins, faults)
    retry = {} if RETRY in own else tree.pop(RETRY, {})
    if not isinstance(retry, dict):
        faults.append(
            f"{RETRY}: it must be a section; write [retry.api] or [[retry.policy]]{origin((RETRY,), origins)}"
        )
        retry = {}
    devices = _devices(about_devices, origins, faults)
    faults += unknown_keys(app, tree, model, origins)
    settings = None
    if model is not None:
        file = settings_file(where)
        place = Place(app, "leadsman.toml" if file is None else file.name)
        settings, wrong = validate(place, model, tree, origins)
        faults += wrong
    retry_origins = {path: entry for path, entry in origins.items() if path[0] == RETRY and retry}
    rows = [
        row
        for section, entries in sections.items()
        for key, each in entries.items()
        for row in rows_of(each.value, origins, (section, key))
    ]
    rows += retry_rows(retry, retry_origins)
    if settings is not None:
        rows += rows_of(settings, origins)
    return Loaded(
        settings,
        sections,
        tuple(rows),
        retry=retry,
        retry_origins=retry_origins,
        devices=devices,
        faults=tuple(faults),
        secrets=secrets,
    )


def load_broker(where: Where) -> dict[str, SettingEntry]:
    """The entries of the section ``mqtt``, for a program that connects to the broker and is not an app.

    Raises:
        SettingsError: it names every fault, one a line.
    """
    faults: list[str] = []
    entries = [each for each in read_entries("", where, lambda _: False) if each.path[0] == BROKER]
    tree, origins = _merge_all(entries, None, faults)
    found = _entries(BROKER, tree.get(BROKER, {}), origins, faults)
    if faults:
        raise SettingsError("\n".join(faults))
    return found


def _merge_all(
    entries: list[SettingEntry], model: "type[BaseModel] | None", faults: list[str]
) -> tuple[Tree, dict[SettingPath, SettingEntry]]:
    """The tree that the entries make, higher ranks over lower ones, and the entry that each leaf comes from."""
    tree: Tree = {}
    origins: dict[SettingPath, SettingEntry] = {}
    below: dict[SettingPath, dict[SettingPath, None]] = {}
    for each in entries:
        if model is None and each.path[0] not in (*SECTIONS, RETRY, DEVICES) and RANKS[each.rank] in _SHARED:
            continue  # an app without settings ignores variables that begin with its name
        one_case = each.text or isinstance(each.value, Path)  # a variable, or a file named as one
        entry = each._replace(path=_with_case(each.path, tree, model)) if one_case else each
        try:
            value = _value(entry)
            _put(tree, entry, value)
        except SettingsError as error:
            faults.append(str(error))
            continue
        for path, leaf in _leaves(entry.path, value):
            if leaf == {} and path in below:
                continue  # an empty section replaces nothing of one that is there
            for replaced in (*below.pop(path, ()), *(path[:length] for length in range(len(path)))):
                origins.pop(replaced, None)
            origins[path] = entry
            for length in range(len(path) + 1):
                below.setdefault(path[:length], {})[path] = None
    return tree, origins


def _value(entry: SettingEntry) -> object:
    if isinstance(entry.value, Path):
        return read_text(entry.value).removesuffix("\n").removesuffix("\r")
    if entry.text and isinstance(entry.value, str) and entry.value[:1] in ("[", "{"):
        try:
            return entry.value if is_nested_deeper(entry.value, _DEEPEST) else json.loads(entry.value)
        except ValueError:
            return entry.value
    return entry.value


def _put(tree: Tree, entry: SettingEntry, value: object) -> None:
    node = tree
    for part in entry.path[:-1]:
        section = node.setdefault(part, {})
        if not isinstance(section, dict):
            raise SettingsError(
                f"{'.'.join(entry.path)} (from {entry.origin}): {part!r} is already a value, and "
                "cannot be a section too"
            )
        node = section
    last = entry.path[-1]
    _merge(node, {last: value})


def _merge(into: Tree, values: Tree) -> None:
    """Add values to a tree. Sections are merged, other values are replaced."""
    for key, value in values.items():
        section = into.get(key)
        if isinstance(value, dict) and isinstance(section, dict):
            _merge(section, value)
        else:
            into[key] = value


def _leaves(path: SettingPath, value: object) -> list[tuple[SettingPath, object]]:
    if not isinstance(value, dict) or not value:
        return [(path, value)]
    return [leaf for key, each in value.items() for leaf in _leaves((*path, str(key)), each)]


def _with_case(path: SettingPath, tree: Tree, model: object) -> SettingPath:
    """The path in the upper and lower case of the model, or of a file: variables have only one case."""
    found: list[str] = []
    section: object = tree
    for part in path:
        names = [*(model.model_fields if is_model(model) else ()), *(section if isinstance(section, dict) else ())]
        name = part if part in names else next((name for name in names if name.lower() == part.lower()), part)
        found.append(name)
        section = section.get(name) if isinstance(section, dict) else None
        model = inside(model, name)
    return tuple(found)


def _entries(name: str, section: object, origins: Origins, faults: list[str]) -> dict[str, SettingEntry]:
    """The entries of one of the sections that every app has, by key."""
    if not isinstance(section, dict):
        first = KEYS[name][0]
        faults.append(f"{name}: it must be a section; write [{name}] and {first} = …{origin((name,), origins)}")
        return {}
    entries = {}
    for key, value in section.items():
        path = (name, str(key))
        if key not in KEYS[name]:
            faults.append(unknown_key(name, str(key), origin(path, origins)))
        elif path in origins:
            entries[str(key)] = origins[path]._replace(path=path, value=value)
        elif path in TABLES:
            leaves = {known: each for known, each in origins.items() if known[: len(path)] == path}
            entries[str(key)] = _joined(path, value, leaves)
        else:
            faults.append(f"{'.'.join(path)}: it is a section; write a value, {key} = …{origin(path, origins)}")
    return entries


def _devices(section: object, origins: Origins, faults: list[str]) -> dict[str, dict[str, SettingEntry]]:
    """The entries of each section about devices, by its key and the option."""
    if not isinstance(section, dict):
        faults.append(
            f"{DEVICES}: it must have a section for each device; write [{DEVICES}.NAME]{origin((DEVICES,), origins)}"
        )
        return {}
    found: dict[str, dict[str, SettingEntry]] = {}
    inner: dict[SettingPath, dict[SettingPath, SettingEntry]] = {}
    for path, entry in origins.items():
        if path[0] == DEVICES:
            inner.setdefault(path[:3], {})[path] = entry
    for name, options in section.items():
        if isinstance(options, dict):
            paths = ((str(option), (DEVICES, str(name), str(option)), value) for option, value in options.items())
            found[str(name)] = {option: _joined(path, value, inner[path]) for option, path, value in paths}
        else:
            path = (DEVICES, str(name))
            faults.append(
                f"{'.'.join(path)}: it must be a section; write [{'.'.join(path)}] and an option, such as"
                f" interval = '30s'{origin(path, origins)}"
            )
    return found


def _joined(path: SettingPath, value: object, leaves: Mapping[SettingPath, SettingEntry]) -> SettingEntry:
    """The entry of a value, which may have values inside from several places."""
    first = next(iter(leaves.values()))
    return first._replace(path=path, value=value, below=leaves if isinstance(value, dict) else {})
