"""Error messages for wrong settings: unknown keys, missing values, and values of the wrong type."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, get_args, get_origin

from leadsman.settings.model import (
    SettingPath,
    at,
    declared_secret,
    dotted_names,
    inside,
    is_model,
    passes_list,
    required_below,
)
from leadsman.settings.secrets import is_secret
from leadsman.settings.sections import KEYS
from leadsman.settings.sources import DEVICES, RETRY, SECTIONS, SettingEntry, variable
from leadsman.text import clean, nearest, suggestion
from leadsman.text.redaction import HIDDEN, reveal

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic_core import ErrorDetails

_SECTIONS = (*SECTIONS, DEVICES, RETRY, f"{RETRY}.policy")
Origins = Mapping[SettingPath, SettingEntry]
"""The origin of each value, by its path."""


class Place(NamedTuple):
    """Where a person writes settings that are missing."""

    app: str
    file: str


def origin(path: SettingPath, origins: Origins) -> str:
    """The origin of a value, as the end of a message."""
    entry = next((origins[path[:length]] for length in range(len(path), 0, -1) if path[:length] in origins), None)
    entry = entry or next((each for known, each in origins.items() if path and known[: len(path)] == path), None)
    return "" if entry is None else f" (from {entry.origin_at(path)})"


MOST_NAMED = 20
"""Unknown keys of which each has a line."""


def unknown_keys(app: str, tree: Mapping[str, object], model: object, origins: Origins) -> list[str]:
    """The keys that are no field, one a line: `MOST_NAMED` of them, and how many more there are. To find what may have
    been meant takes a while for each."""
    if is_model(model):
        found = list(_unknown(tree, model, ()))
        named = [
            f"{'.'.join(here)}: unknown{origin(here, origins)}; {_meant(app, here, known, inner)}"
            for here, known, inner in found[:MOST_NAMED]
        ]
    else:
        found = [((key,), set(), None) for key in tree]
        named = [
            f"{key}: unknown{origin((key,), origins)}; this app has no settings"
            + (f"; did you mean {near!r}?" if (near := nearest(key, _SECTIONS)) else "")
            for (key,), _, _ in found[:MOST_NAMED]
        ]
    more = len(found) - len(named)
    return [*named, f"and {more:,} more unknown keys"] if more else named


def _unknown(tree: object, model: object, path: SettingPath) -> Iterator[tuple[SettingPath, set[str], Any]]:
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


def _meant(app: str, path: SettingPath, known: Iterable[str], model: object) -> str:
    """What a person may have meant. ``BOILER_PORT`` is ``BOILER__PORT`` with an underscore too few."""
    key, sections = path[-1], _SECTIONS if len(path) == 1 else ()
    for name in dotted_names(model) if sections else ():
        if "." in name and name.replace(".", "_") == key:
            return f"did you mean {name!r}? As a variable: {variable(app, name.split('.'))}"
    return suggestion(key, (*known, *sections))


def unknown_key(section: str, key: str, where: str) -> str:
    """The message about an unknown key in one of the sections that every app has."""
    return f"{section}.{key}: unknown{where}; {suggestion(key, KEYS[section])}"


_OF_A_VALIDATOR = "Value error, "
"""What pydantic writes before the message of a validator of the user's own."""


def validate(
    place: Place, model: "type[BaseModel]", tree: Mapping[str, object], origins: Origins
) -> "tuple[BaseModel | None, list[str]]":
    """The settings that a tree makes, and the faults in it, one a line."""
    from pydantic import ValidationError

    try:
        return model.model_validate(tree), []
    except ValidationError as error:
        faults: list[str] = []
        for each in error.errors(include_url=False):
            path = tuple(str(part) for part in each["loc"])
            if each["type"] == "missing":
                faults += [
                    f"{'.'.join(leaf)}: missing; {to_write(place, model, leaf)}" for leaf in required_below(model, path)
                ]
            elif each["type"] != "extra_forbidden":  # found by `unknown_keys`, with what may have been meant
                faults.append(_invalid(model, path, each, origins))
        return None, faults


def to_write(place: Place, model: object, path: SettingPath) -> str:
    """How to set a path: with a line or a section of the file, or with a variable."""
    name, structure = ".".join(path), at(model, path)
    if is_model(structure):
        return f"write a section [{name}] in {place.file}"
    if get_origin(structure) is dict and is_model(inside(structure, "")):
        return f"write a section such as [{name}.NAME] in {place.file}"
    if get_origin(structure) is list and is_model(get_args(structure)[0]):
        return f"write a section [[{name}]] in {place.file}"
    return f"set it in {place.file}" + ("" if passes_list(model, path) else f", or {variable(place.app, path)}")


def _invalid(model: "type[BaseModel]", path: SettingPath, error: "ErrorDetails", origins: Origins) -> str:
    name = ".".join(path)
    plain = bool(path) and isinstance(error["input"], str | int | float | bool)
    hidden = is_secret(name) or declared_secret(model, path)
    given = f", not {clean(repr(error['input']))}" if plain and not hidden else ""
    said, secret = error["msg"].removeprefix(_OF_A_VALIDATOR), str(reveal(error["input"]))
    if hidden and secret:  # also a short one: the validator of a user may repeat it
        said = said.replace(secret, HIDDEN)
    return f"{name or model.__name__}: {clean(said)}{given}{origin(path, origins)}"
