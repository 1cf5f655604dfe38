"""Loads settings from entries: merges them by rank, finds unknown keys, validates the values, and keeps their origins.
A fault is a line that names the setting, where its value is from, and what to write."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast, get_args, get_origin

from leadsman.core.settings.entry import RANKS, RETRY, Entries, Origins, SettingEntry, told_origin
from leadsman.core.settings.model import (
    SettingPath,
    at,
    choice_of,
    declared_secret,
    dotted_names,
    has_field,
    inside,
    is_model,
    passes_list,
    required_below,
)
from leadsman.core.settings.rows import SettingRow, retry_rows, rows_of
from leadsman.core.settings.secrets import is_secret, secrets_in
from leadsman.core.settings.sections import BROKER, SECTIONS, is_table, keys_of, read_own_section
from leadsman.core.settings.sources import DEVICES, Where, read_entries, settings_file, variable
from leadsman.core.text import clean, is_nested_deeper
from leadsman.core.text.redaction import HIDDEN, Secret, reveal
from leadsman.core.text.suggestion import nearest, suggestion
from leadsman.errors import ConfigurationError, SettingsError

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic_core import ErrorDetails

_MAX_DEPTH = 50
"""Levels of a list or a section in a variable. What is deeper stays text, which the model of the settings refuses."""
_SHARED = (".env", "environment", "secret")
"""Sources that also contain the names of other programs."""
MAX_NAMED_KEYS = 20
"""Unknown keys of which each has a line."""
_OF_A_VALIDATOR = "Value error, "
"""The words of pydantic before the message of a validator of the user's own."""
_SECTIONS = (*SECTIONS, DEVICES, RETRY, f"{RETRY}.policy")
Tree = dict[str, object]
"""Settings as they are written: values, and sections, which are trees."""


class Loaded(NamedTuple):
    """Settings, their origins, and the faults in them."""

    settings: "BaseModel | None"
    sections: Mapping[str, Entries]
    """The entries of each section that every app has, by its name and their keys."""
    rows: tuple[SettingRow, ...]
    retry: Mapping[str, object] = {}
    """The section ``retry``, as it is written."""
    retry_origins: Mapping[SettingPath, SettingEntry] = {}
    """The entries of its values, by their paths."""
    devices: Mapping[str, Entries] = {}
    """The settings of single devices: the entries of each section, by its key and the option."""
    faults: tuple[str, ...] = ()
    """One line for each."""
    secrets: tuple[Secret, ...] = ()
    """The secrets in the settings as they are written, hidden as long as this lives."""
    own: Mapping[str, object] = {}
    """The values of the sections of extensions, by name."""


def load(app: str, model: "type[BaseModel] | None", where: Where) -> Loaded:
    """Read and check the settings of an app.

    Raises:
        SettingsError: it names every fault, one a line, with the origin of the value.
    """
    found = read(app, model, where)
    if found.faults:
        raise SettingsError("\n".join(found.faults))
    return found


def read(app: str, model: "type[BaseModel] | None", where: Where, own_sections: Mapping[str, type] = {}) -> Loaded:
    """As `load`, but return the faults in `Loaded.faults`, so that the caller can add more.

    Args:
        app: the name of the app.
        model: the class of its settings.
        where: the sources.
        own_sections: the classes of the sections of extensions, by name.

    Raises:
        SettingsError: a source cannot be read.
    """
    faults: list[str] = []

    def is_setting(path: SettingPath) -> bool:
        own_file = path[-1].endswith("_file") and _has_key(own_sections.get(path[0]), path[1:])
        return own_file or has_field(model, path)

    entries = read_entries(app, where, is_setting, own_sections)
    tree, origins = _merge_all(entries, model, faults, own_sections)
    own = frozenset[str]() if model is None else model.model_fields.keys()
    about_devices = {} if DEVICES in own else tree.pop(DEVICES, {})
    # Hidden from here on: what validates them may show them.
    secrets = (*secrets_in(tree, model), *secrets_in(about_devices, None))
    for name, kind in own_sections.items():
        secrets += (*secrets_in(tree.get(name), kind),)
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
            f"{RETRY}: it must be a section; write [retry.api] or [[retry.policy]]{told_origin((RETRY,), origins)}"
        )
        retry = {}
    devices = _devices(about_devices, origins, faults)
    file = settings_file(where)
    name = "leadsman.toml" if file is None else file.name
    values = {each: _own(each, kind, tree.pop(each, {}), origins, name, faults) for each, kind in own_sections.items()}
    faults += _unknown_keys(app, tree, model, origins, own_sections)
    settings = None
    if model is not None:
        settings, wrong = _validate(app, name, model, tree, origins)
        faults += wrong
    retry_origins = {path: entry for path, entry in origins.items() if path[0] == RETRY and retry}
    rows = [
        row
        for section, entries in sections.items()
        for key, each in entries.items()
        for row in rows_of(each.value, origins, (section, key))
    ]
    for each, found in values.items():
        rows += rows_of(found._asdict() if hasattr(found, "_asdict") else found, origins, (each,))
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
        own=values,
    )


def _has_key(kind: type | None, path: SettingPath) -> bool:
    """Whether a path is a key of a section of an extension."""
    return bool(path) and (has_field(kind, path) if is_model(kind) else path[0] in getattr(kind, "_fields", ()))


def _own(name: str, kind: type, section: object, origins: Origins, file: str, faults: list[str]) -> object:
    """The values of a section of an extension; None if they are wrong."""
    if is_model(kind) and isinstance(section, dict):
        from pydantic import BaseModel

        whole = cast("type[BaseModel]", type("Settings", (BaseModel,), {"__annotations__": {name: kind}}))
        faults += _unknown_keys(None, {name: section}, whole, origins)
        settings, wrong = _validate(None, file, whole, {name: section}, origins)
        faults += wrong
        return getattr(settings, name, None)
    keys = (*kind.model_fields,) if is_model(kind) else getattr(kind, "_fields", ())
    entries = _entries(name, section, origins, faults, keys)
    try:
        return None if is_model(kind) else read_own_section(name, kind, entries)
    except ConfigurationError as error:
        faults.append(str(error))
        return None


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
    entries: list[SettingEntry], model: "type[BaseModel] | None", faults: list[str], own: Iterable[str] = ()
) -> tuple[Tree, dict[SettingPath, SettingEntry]]:
    """The tree that the entries make, higher ranks over lower ones, and the entry that each leaf comes from."""
    tree: Tree = {}
    origins: dict[SettingPath, SettingEntry] = {}
    below: dict[SettingPath, dict[SettingPath, None]] = {}
    for each in entries:
        if model is None and each.path[0] not in (*SECTIONS, RETRY, DEVICES, *own) and RANKS[each.rank] in _SHARED:
            continue  # an app without settings ignores variables that begin with its name
        one_case = each.text or isinstance(each.value, Path)  # a variable, or a file named as one
        entry = each._replace(path=_with_case(each.path, tree, model)) if one_case else each
        try:
            value = _value(entry)
            if one_case and isinstance(value, str):
                value = choice_of(model, entry.path, value)
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
        from leadsman.core.settings.documents import read_text  # for the file of a secret

        try:
            return read_text(entry.value).removesuffix("\n").removesuffix("\r")
        except SettingsError as error:
            raise SettingsError(f"{error} (from {entry.source})") from None
    if entry.text and isinstance(entry.value, str) and entry.value[:1] in ("[", "{"):
        try:
            return entry.value if is_nested_deeper(entry.value, _MAX_DEPTH) else json.loads(entry.value)
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


def _entries(
    name: str, section: object, origins: Origins, faults: list[str], own: Sequence[str] = ()
) -> dict[str, SettingEntry]:
    """The entries of a section that every app has, by key; or of one that an extension has, with these keys."""
    if section == {}:
        return {}
    keys = keys_of(name) if name in SECTIONS else own
    if not isinstance(section, dict):
        first = keys[0]
        faults.append(f"{name}: it must be a section; write [{name}] and {first} = …{told_origin((name,), origins)}")
        return {}
    entries = {}
    for key, value in section.items():
        path = (name, str(key))
        if key not in keys:
            faults.append(f"{name}.{key}: unknown{told_origin(path, origins)}; {suggestion(str(key), keys)}")
        elif path in origins:
            entries[str(key)] = origins[path]._replace(path=path, value=value)
        elif own or is_table(name, str(key)):
            leaves = {known: each for known, each in origins.items() if known[: len(path)] == path}
            entries[str(key)] = _joined(path, value, leaves)
        else:
            faults.append(f"{'.'.join(path)}: it is a section; write a value, {key} = …{told_origin(path, origins)}")
    return entries


def _devices(section: object, origins: Origins, faults: list[str]) -> dict[str, dict[str, SettingEntry]]:
    """The entries of each section about devices, by its key and the option."""
    if not isinstance(section, dict):
        faults.append(
            f"{DEVICES}: it must have a section for each device; write [{DEVICES}.NAME]"
            f"{told_origin((DEVICES,), origins)}"
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
                f" interval = '30s'{told_origin(path, origins)}"
            )
    return found


def _joined(path: SettingPath, value: object, leaves: Mapping[SettingPath, SettingEntry]) -> SettingEntry:
    """The entry of a value, which may have values inside from several places."""
    first = next(iter(leaves.values()))
    return first._replace(path=path, value=value, below=leaves if isinstance(value, dict) else {})


def _unknown_keys(
    app: str | None, tree: Mapping[str, object], model: object, origins: Origins, own: Iterable[str] = ()
) -> list[str]:
    """The keys that are no field, one a line: `MAX_NAMED_KEYS` of them, and how many more there are. To find what may
    have been meant takes a while for each."""
    if is_model(model):
        found = list(_unknown(tree, model, ()))
        named = [
            f"{'.'.join(here)}: unknown{told_origin(here, origins)}; {_meant(app, here, (*known, *own), inner)}"
            for here, known, inner in found[:MAX_NAMED_KEYS]
        ]
    else:
        found = [((key,), set(), None) for key in tree]
        named = [
            f"{key}: unknown{told_origin((key,), origins)}"
            + (f"; this app has only {', '.join(own)}" if own else "; this app has no settings")
            + (f"; did you mean {near!r}?" if (near := nearest(key, (*_SECTIONS, *own))) else "")
            for (key,), _, _ in found[:MAX_NAMED_KEYS]
        ]
    more = len(found) - len(named)
    return [*named, f"and {more:,} more unknown keys"] if more else named


def _unknown(tree: object, model: object, path: SettingPath) -> Iterator[tuple[SettingPath, set[str], object]]:
    """The paths of the keys that are no field, each with the names of the fields beside it, and their model."""
    if isinstance(tree, list) and get_origin(model) is list:
        tree = {str(number): each for number, each in enumerate(tree)}
    if not isinstance(tree, dict) or model is None:
        return
    if not is_model(model):
        for key, value in tree.items():
            yield from _unknown(value, inside(model, str(key)), (*path, str(key)))
        return
    known = {alias for name, field in model.model_fields.items() for alias in (name, field.alias) if alias}
    for key, value in tree.items():
        here = (*path, str(key))
        if key in known:
            yield from _unknown(value, inside(model, str(key)), here)
        elif model.model_config.get("extra") != "allow":
            yield here, known, model


def _meant(app: str | None, path: SettingPath, known: Iterable[str], model: object) -> str:
    """What a person may have meant. ``BOILER_PORT`` is ``BOILER__PORT`` with an underscore too few."""
    key, sections = path[-1], _SECTIONS if len(path) == 1 else ()
    for name in dotted_names(model) if sections else ():
        if "." in name and name.replace(".", "_") == key:
            return f"did you mean {name!r}? As a variable: {variable(app, name.split('.'))}"
    return suggestion(key, (*known, *sections))


def _validate(
    app: str | None, file: str, model: "type[BaseModel]", tree: Mapping[str, object], origins: Origins
) -> "tuple[BaseModel | None, list[str]]":
    """The settings that a tree makes, and the faults in it, one a line. `file` is where to write what is missing."""
    from pydantic import ValidationError

    try:
        return model.model_validate(tree), []
    except ValidationError as error:
        faults: list[str] = []
        for each in error.errors(include_url=False):
            path = tuple(str(part) for part in each["loc"])
            if each["type"] == "missing":
                faults += [
                    f"{'.'.join(leaf)}: missing; {to_write(app, file, model, leaf)}"
                    for leaf in required_below(model, path)
                ]
            elif each["type"] != "extra_forbidden":  # found by `_unknown_keys`, with what may have been meant
                faults.append(_invalid(model, path, each, origins))
        return None, faults


def to_write(app: str | None, file: str, model: object, path: SettingPath) -> str:
    """How to set a path: with a line or a section of the file, or with a variable."""
    name, structure = ".".join(path), at(model, path)
    if is_model(structure):
        return f"write a section [{name}] in {file}"
    if get_origin(structure) is dict and is_model(inside(structure, "")):
        return f"write a section such as [{name}.NAME] in {file}"
    if get_origin(structure) is list and is_model(get_args(structure)[0]):
        return f"write a section [[{name}]] in {file}"
    return f"set it in {file}" + ("" if passes_list(model, path) else f", or {variable(app, path)}")


def _invalid(model: "type[BaseModel]", path: SettingPath, error: "ErrorDetails", origins: Origins) -> str:
    name = ".".join(path)
    plain = bool(path) and isinstance(error["input"], str | int | float | bool)
    hidden = is_secret(name) or declared_secret(model, path)
    given = f", not {clean(repr(error['input']))}" if plain and not hidden else ""
    message, secret = error["msg"].removeprefix(_OF_A_VALIDATOR), str(reveal(error["input"]))
    if hidden and secret:  # also a short one: the validator of a user may repeat it
        message = message.replace(secret, HIDDEN)
    return f"{name or model.__name__}: {clean(message)}{given}{told_origin(path, origins)}"
