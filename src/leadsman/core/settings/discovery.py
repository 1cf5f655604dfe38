"""Discovery: by which convention an app describes its devices to others, and what each convention wants."""

from collections.abc import Mapping, Sequence

from leadsman.core.settings.entry import SettingEntry
from leadsman.core.settings.sections import (
    DISCOVERY_PREFIX,
    DiscoverySettings,
    check_convention,
    check_discovery_prefix,
    check_ids,
)
from leadsman.core.text.identifiers import identifier
from leadsman.core.text.suggestion import suggestion
from leadsman.core.value import Value
from leadsman.errors import InvalidType, InvalidValue

APP = "leadsman_app"
"""The identifier of the device that stands for the app itself."""


class Discovery(Value):
    """The convention by which an app describes its devices at the broker.

    Args:
        convention: ``"homeassistant"``.
        prefix: the first levels of its topics, as configured in Home Assistant.
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
        self, convention: str = "homeassistant", *, prefix: str = DISCOVERY_PREFIX, ids: Mapping[str, str] | None = None
    ) -> None:
        given = {} if ids is None else check_ids(ids)
        self._hold(convention=check_convention(convention), prefix=check_discovery_prefix(prefix), ids=given)


def declared_discovery(given: object) -> DiscoverySettings:
    """What `App` was given as `discovery`: the name of a convention, or a `Discovery`. Raises `InvalidValue`,
    `InvalidType`."""
    if isinstance(given, str):
        return DiscoverySettings(check_convention(given))
    if not isinstance(given, Discovery):
        raise InvalidType(f"discovery is {given!r}; write 'homeassistant' or Discovery(…)")
    return DiscoverySettings(given.convention, given.prefix, given.ids)


def identifiers_of(names: Sequence[str], ids: Mapping[str, str]) -> dict[str, str]:
    """The identifiers of devices, by their names.

    Args:
        names: the devices.
        ids: the former names of some, and of devices that are not among them.

    Raises:
        InvalidValue: two devices have one identifier.
    """
    found: dict[str, str] = {}
    owners = {APP: "the app itself"}
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
    """Where Home Assistant publishes that it has started, by its prefix of discovery."""
    return f"{prefix}/status"


def check_devices(
    discovery: DiscoverySettings,
    names: Sequence[str],
    app: str,
    ids: SettingEntry | None = None,
    *,
    finds: bool = False,
) -> tuple[str, ...]:
    """See that devices can be described.

    Args:
        discovery: by which convention.
        names: the registered devices.
        app: the prefix of the app.
        ids: the entry of the former names, if the settings have them.
        finds: whether handlers find further devices at run time, which may have had former names, too.

    Returns:
        The topic filters that are subscribed to.

    Raises:
        InvalidValue: two devices have one identifier, or `discovery.ids` names no device.
    """
    for name in () if finds else discovery.ids:
        if name not in names:
            origin = "" if ids is None else ids.from_inside((name,))
            raise InvalidValue(
                f"discovery: ids names {name!r}, which is not a device; {suggestion(name, names)}{origin}"
            )
    identifiers_of(names, discovery.ids)
    return own_filter(discovery.prefix, app), birth_topic(discovery.prefix)
