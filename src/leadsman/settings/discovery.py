"""Reads the section ``discovery`` of the settings: by which convention an app tells others about its devices."""

from collections.abc import Mapping, Sequence
from typing import Any

from leadsman.errors import ConfigurationError, InvalidType, InvalidValue, raise_together
from leadsman.identifiers import identifier
from leadsman.settings.sources import Entry
from leadsman.text import clean, suggestion
from leadsman.value import Value

CONVENTIONS = ("homeassistant",)
OFF = "off"
"""The convention in the settings that switches off what the app declares."""
APP = "leadsman_app"
"""The identifier of the device that stands for the app itself."""
PREFIX = "homeassistant"
"""The default of Home Assistant for the first level of discovery topics."""


class Discovery(Value):
    """By which convention an app describes its devices at the broker.

    Args:
        convention: ``"homeassistant"``.
        prefix: the first level, or levels, of its topics, as configured in Home Assistant.
        ids: the former names of devices that were renamed, by their present names. They keep the identity of the
            former name, and with it their history and the names that people gave to them.

    Raises:
        InvalidValue, InvalidType: at construction.
    """

    __slots__ = ("convention", "ids", "prefix")
    convention: str
    prefix: str
    ids: Mapping[str, str]

    def __init__(
        self, convention: str = "homeassistant", *, prefix: str = PREFIX, ids: Mapping[str, str] | None = None
    ) -> None:
        self._hold(convention=_convention(convention), prefix=_prefix(prefix), ids={} if ids is None else _ids(ids))


def as_discovery(given: object) -> Discovery | None:
    """What `App` was given as `discovery`: None, the name of a convention, or a `Discovery`. Raises `InvalidValue`,
    `InvalidType`."""
    if given is None or isinstance(given, Discovery):
        return given
    if not isinstance(given, str):
        raise InvalidType(f"discovery is {given!r}; write 'homeassistant', or Discovery(…)")
    return Discovery(given)


def discovery_of(entries: Mapping[str, Entry], declared: Discovery | None) -> Discovery | None:
    """Read the section. A value of the settings replaces what the app declares.

    Raises:
        ConfigurationError: values are wrong, one a line; the message names their origins.
    """
    faults: list[ConfigurationError] = []
    convention = None if declared is None else declared.convention
    prefix = PREFIX if declared is None else declared.prefix
    ids = None if declared is None else declared.ids
    for key, entry in entries.items():
        try:
            if key == "prefix":
                prefix = _prefix(entry.value)
            elif key == "ids":
                ids = _ids(entry.value)
            else:
                convention = None if entry.value in ("", OFF) else _convention(entry.value)
        except ConfigurationError as error:
            faults.append(type(error)(f"discovery.{key}: {error} (from {entry.origin})"))
    raise_together(faults)
    if convention is None:
        return None
    return Discovery(convention, prefix=prefix, ids=ids)


def identifiers_of(names: Sequence[str], ids: Mapping[str, str], origin: str = "") -> dict[str, str]:
    """The identifiers of devices, by their names.

    Args:
        names: the names.
        ids: the former names of some, by their names.
        origin: where `ids` comes from, as the end of a message.

    Raises:
        InvalidValue: two devices have one identifier, or `ids` names no device.
    """
    for name in ids:
        if name not in names:
            raise InvalidValue(f"discovery: ids names {name!r}, which is no device; {suggestion(name, names)}{origin}")
    found: dict[str, str] = {}
    owners: dict[str, str] = {APP: "the app itself"}
    for name in names:
        key = identifier(ids.get(name, name))
        if key in owners:
            raise InvalidValue(
                f"discovery: {owners[key]!r} and {name!r} have one identifier, {key!r}; rename the device {name!r}"
            )
        owners[key] = name
        found[name] = key
    return found


def own_filter(prefix: str, app: str) -> str:
    """The topic filter of the configurations of an app, by the prefixes of discovery and of the app."""
    return f"{prefix}/device/{identifier(app)}/+/config"


def birth_topic(prefix: str) -> str:
    """Where Home Assistant says that it has started, by its prefix of discovery."""
    return f"{prefix}/status"


def _convention(given: object) -> str:
    if not isinstance(given, str) or given not in CONVENTIONS:
        hint = suggestion(clean(str(given))[:100], (*CONVENTIONS, OFF))
        raise InvalidValue(f"the convention {given!r} is unknown; {hint}")
    return given


def _ids(given: Any) -> dict[str, str]:
    if not isinstance(given, Mapping) or not all(isinstance(each, str) for pair in given.items() for each in pair):
        raise InvalidType(f"ids is {given!r}; write the former names by the present ones, such as {{'new': 'old'}}")
    return dict(given)


def _prefix(given: object) -> str:
    if not isinstance(given, str):
        raise InvalidType(f"prefix is {given!r}; write text")
    if not given or "" in given.split("/") or any(c in "+#" or not c.isprintable() for c in given) or len(given) > 200:
        raise InvalidValue(f"prefix is {given!r}; write the first level of discovery topics, such as {PREFIX!r}")
    return given
