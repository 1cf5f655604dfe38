"""Entries become settings: merged by rank, checked for keys that nobody knows, validated, and told with their origins."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Union, get_args, get_origin

from leadsman.errors import SettingsError
from leadsman.settings.sources import BROKER, RANKS, RETRY, Entry, Where, gathered, read_text, variable
from leadsman.wording import clean, suggestion

if TYPE_CHECKING:
    from pydantic import BaseModel

BROKER_KEYS = ("url", "host", "port", "username", "password", "tls", "ca", "cert", "key")
MASK = "********"
_SECRET = re.compile(r"(?i)(password|passwd|passphrase|secret|token|api_?key|credential)")


class Row(NamedTuple):
    """One value, as a person is shown it."""

    path: str
    value: str
    origin: str


class Loaded(NamedTuple):
    """What was found."""

    settings: "BaseModel | None"
    broker: dict[str, Entry]
    """The entries of the section ``mqtt``, by key."""
    rows: tuple[Row, ...]
    retry: Mapping[str, Any] = {}
    """The section ``retry``, as it is written."""
    retry_origins: Mapping[tuple[str, ...], str] = {}
    """Where its values are from, by their paths."""


def load(app: str, model: "type[BaseModel] | None", where: Where) -> Loaded:
    """Read and check everything.

    Raises:
        SettingsError: it names every fault, one a line, with where the value is from.
    """
    faults: list[str] = []
    tree: dict[str, Any] = {}
    origins: dict[tuple[str, ...], Entry] = {}
    for entry in gathered(app, where, lambda path: _knows(model, path)):
        if (
            model is None
            and entry.path[0] not in (BROKER, RETRY)
            and RANKS[entry.rank] in (".env", "environment", "secret")
        ):
            continue  # without settings the app has no claim to variables that begin as its name does
        entry = entry._replace(path=_known_case(entry.path, tree, model))
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
    broker = tree.pop(BROKER, {}) if model is None or BROKER not in model.model_fields else tree.get(BROKER, {})
    broker_entries = _broker_entries(broker, origins, faults)
    retry = tree.pop(RETRY, {}) if model is None or RETRY not in model.model_fields else {}
    if not isinstance(retry, dict):
        faults.append(f"{RETRY}: it is a section; write [retry.api] or [[retry.policy]]{_from((RETRY,), origins)}")
    faults += _unknown(tree, model, (), origins)
    settings = None
    if model is not None and not faults:
        settings, faults = _validated(app, model, tree, origins)
    if faults:
        raise SettingsError("\n".join(faults))
    retry_origins = {path: entry.origin for path, entry in origins.items() if path[0] == RETRY and retry}
    rows = [Row(f"{BROKER}.{key}", _shown(key, each.value), each.origin) for key, each in broker_entries.items()]
    rows += [Row(".".join(path), _at(retry, path[1:]), origin) for path, origin in retry_origins.items()]
    if settings is not None:
        rows += _rows(settings, (), origins)
    return Loaded(settings, broker_entries, tuple(rows), retry, retry_origins)


def _at(section: Mapping[str, Any], path: tuple[str, ...]) -> str:
    value: Any = section
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    return (
        f"{len(value)} policies" if path == ("policy",) and isinstance(value, list | dict) else _shown(path[-1], value)
    )


def load_broker(where: Where) -> dict[str, Entry]:
    """The entries of the section ``mqtt`` alone, for whoever talks to the broker without being an app.

    Raises:
        SettingsError: it names every fault, one a line.
    """
    entries: dict[str, Entry] = {}
    faults = []
    for entry in gathered("", where, lambda _: False):
        if entry.path == (BROKER,) and isinstance(entry.value, dict):
            entries |= {key: entry._replace(path=(BROKER, key), value=value) for key, value in entry.value.items()}
        elif entry.path[0] == BROKER:
            entries[entry.path[-1]] = entry._replace(value=_value(entry))
    for key, entry in entries.items():
        if key not in BROKER_KEYS:
            faults.append(f"{BROKER}.{key}: unknown (from {entry.origin}); {suggestion(str(key), BROKER_KEYS)}")
    if faults:
        raise SettingsError("\n".join(faults))
    return entries


def rows_of(settings: "BaseModel") -> tuple[Row, ...]:
    """The rows of settings that somebody else made."""
    return tuple(_rows(settings, (), {}))


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
        inner = node.setdefault(part, {})
        if not isinstance(inner, dict):
            raise SettingsError(
                f"{'.'.join(entry.path)} (from {entry.origin}): {part!r} is a value already, no section"
            )
        node = inner
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
    return [leaf for key, inner in value.items() for leaf in _leaves((*path, str(key)), inner)]


def _known_case(path: tuple[str, ...], tree: Mapping[str, Any], model: Any) -> tuple[str, ...]:
    """The path as the model, or a file, writes it: variables are all in one case."""
    known: list[str] = []
    node: Any = tree
    for part in path:
        names = [*(model.model_fields if _is_model(model) else ()), *(node if isinstance(node, dict) else ())]
        name = part if part in names else next((name for name in names if name.lower() == part.lower()), part)
        known.append(name)
        node = node.get(name) if isinstance(node, dict) else None
        model = _inside(model, name)
    return tuple(known)


def _inside(model: Any, name: str) -> Any:
    """What lies at a key: a model, a mapping's value, or None for a value or for anything."""
    if _is_model(model):
        field = model.model_fields.get(name)
        return None if field is None else _model_in(field.annotation)
    if get_origin(model) is dict:
        return _model_in(get_args(model)[1])
    return None


def _model_in(annotation: Any) -> Any:
    """The model or the dict within ``Annotated[…]`` and ``… | None``."""
    if get_origin(annotation) is Annotated:
        return _model_in(get_args(annotation)[0])
    if get_origin(annotation) is Union or type(annotation).__name__ == "UnionType":
        return next((found for each in get_args(annotation) if (found := _model_in(each)) is not None), None)
    return annotation if _is_model(annotation) or get_origin(annotation) is dict else None


def _knows(model: Any, path: tuple[str, ...]) -> bool:
    for name in path[:-1]:
        model = _inside(model, name)
    return _is_model(model) and path[-1] in model.model_fields


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and hasattr(kind, "model_fields")


def _unknown(tree: Any, model: Any, path: tuple[str, ...], origins: Mapping[tuple[str, ...], Entry]) -> list[str]:
    """Keys that no field takes."""
    if not isinstance(tree, dict):
        return []
    if get_origin(model) is dict:
        inside = _model_in(get_args(model)[1])
        return [fault for key, value in tree.items() for fault in _unknown(value, inside, (*path, str(key)), origins)]
    if not _is_model(model):
        if path or not tree:
            return []
        return [f"{key}: unknown{_from((key,), origins)}; this app has no settings" for key in tree]
    faults = []
    names = {alias for name, field in model.model_fields.items() for alias in (name, field.alias) if alias}
    for key, value in tree.items():
        here = (*path, str(key))
        if key in names:
            faults += _unknown(value, _inside(model, key), here, origins)
        elif model.model_config.get("extra") != "allow":
            known = (*names, *((BROKER, RETRY) if not path else ()))
            faults.append(f"{'.'.join(here)}: unknown{_from(here, origins)}; {suggestion(str(key), known)}")
    return faults


def _broker_entries(section: Any, origins: Mapping[tuple[str, ...], Entry], faults: list[str]) -> dict[str, Entry]:
    if not isinstance(section, dict):
        faults.append(f"{BROKER}: it is a section; write [mqtt] and url = …{_from((BROKER,), origins)}")
        return {}
    entries = {}
    for key, value in section.items():
        path = (BROKER, str(key))
        if key not in BROKER_KEYS:
            faults.append(f"{BROKER}.{key}: unknown{_from(path, origins)}; {suggestion(str(key), BROKER_KEYS)}")
        elif path in origins:
            entries[str(key)] = origins[path]._replace(value=value)
    return entries


def _validated(
    app: str, model: "type[BaseModel]", tree: dict[str, Any], origins: Mapping[tuple[str, ...], Entry]
) -> tuple[Any, list[str]]:
    from pydantic import ValidationError

    try:
        return model.model_validate(tree), []
    except ValidationError as error:
        faults = []
        for each in error.errors(include_url=False):
            path = tuple(str(part) for part in each["loc"])
            name = ".".join(path) or model.__name__
            if each["type"] == "missing":
                faults.append(f"{name}: missing; set it in leadsman.toml, or {variable(app, path)}")
                continue
            plain = isinstance(each["input"], str | int | float | bool)
            given = (
                ""
                if is_secret(name) or _declared_secret(model, path) or not path or not plain
                else f", not {clean(repr(each['input']))}"
            )
            faults.append(f"{name}: {clean(each['msg'])}{given}{_from(path, origins)}")
        return None, faults


def _declared_secret(model: Any, path: tuple[str, ...]) -> bool:
    """Whether the field at a path is a `SecretStr`, whatever it is called."""
    for part in path:
        fields = model.model_fields if _is_model(model) else {}
        if part in fields and "Secret" in str(fields[part].annotation):
            return True
        model = _inside(model, part)
    return False


def _from(path: tuple[str, ...], origins: Mapping[tuple[str, ...], Entry]) -> str:
    entry = _origin(path, origins)
    return "" if entry is None else f" (from {entry.origin})"


def _origin(path: tuple[str, ...], origins: Mapping[tuple[str, ...], Entry]) -> Entry | None:
    for length in range(len(path), 0, -1):
        if path[:length] in origins:
            return origins[path[:length]]
    return next((entry for known, entry in origins.items() if path and known[: len(path)] == path), None)


def is_secret(name: str) -> bool:
    """Whether a name is that of something nobody may see."""
    return _SECRET.search(name) is not None


def _shown(name: str, value: Any) -> str:
    if is_secret(name.rsplit(".", 1)[-1]) or type(value).__name__ in ("SecretStr", "SecretBytes"):
        return MASK
    return clean(repr(value) if isinstance(value, str) else str(value))


def _rows(value: Any, path: tuple[str, ...], origins: Mapping[tuple[str, ...], Entry]) -> list[Row]:
    inner: Any = None
    if _is_model(type(value)):
        inner = {name: getattr(value, name) for name in type(value).model_fields}
    elif isinstance(value, dict) and value:
        inner = value
    elif isinstance(value, list) and any(_is_model(type(each)) or isinstance(each, dict) for each in value):
        inner = {str(number): each for number, each in enumerate(value)}
    if inner is not None:
        return [row for key, each in inner.items() for row in _rows(each, (*path, str(key)), origins)]
    exact = origins.get(path)
    if exact is None:
        exact = next((origins[path[:n]] for n in range(len(path) - 1, 0, -1) if path[:n] in origins), None)
    return [Row(".".join(path), _shown(".".join(path), value), "default" if exact is None else exact.origin)]
