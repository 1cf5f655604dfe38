"""Discovery: by which convention an app describes its devices to others, what each convention wants, and the section
``discovery`` of the settings."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

from leadsman.core.settings.entry import Entries, SettingEntry
from leadsman.core.settings.sections import OFF, Section, or_off, read_section
from leadsman.core.text import clean
from leadsman.core.text.identifiers import identifier
from leadsman.core.text.suggestion import suggestion
from leadsman.core.value import Value
from leadsman.errors import InvalidType, InvalidValue

if TYPE_CHECKING:
    from leadsman.core.registration.setup import Setup

CONVENTION_NAMES = ("homeassistant",)
DISCOVERY_PREFIX = "homeassistant"
"""The default of Home Assistant for the first level of discovery topics."""
MAX_LEVELS, MAX_PREFIX_CHARS = 100, 200
"""Levels and characters of a prefix of discovery."""
APP = "leadsman_app"
"""The identifier of the device that stands for the app itself."""


def check_convention(value: object) -> str:
    """Check the name of a convention of discovery. Raises `InvalidValue`."""
    if not isinstance(value, str) or value not in CONVENTION_NAMES:
        hint = suggestion(clean(str(value))[:100], (*CONVENTION_NAMES, OFF))
        raise InvalidValue(f"the convention {value!r} is unknown; {hint}")
    return value


def check_discovery_prefix(given: object) -> str:
    """Check the first levels of the topics of discovery. Raises `InvalidType`, `InvalidValue`."""
    if not isinstance(given, str):
        raise InvalidType(f"prefix is {given!r}; write text")
    levels = given.split("/")
    wrong = "" in levels or len(levels) > MAX_LEVELS or len(given) > MAX_PREFIX_CHARS or given.startswith("$")
    if wrong or any(c in "+#" or not c.isprintable() for c in given):
        raise InvalidValue(
            f"prefix is {given!r}; write the first level of discovery topics, such as {DISCOVERY_PREFIX!r}"
        )
    return given


def check_ids(value: object) -> dict[str, str]:
    """Check the former names of devices. Raises `InvalidType`."""
    wrong = InvalidType(f"ids is {value!r}; write the former names by the present ones, such as {{'new': 'old'}}")
    if not isinstance(value, Mapping):
        raise wrong
    for new, old in value.items():
        if not isinstance(new, str) or not isinstance(old, str):
            raise wrong.at(new)
    return dict(value)


class DiscoverySettings(NamedTuple):
    """By which convention the devices are described at the broker."""

    convention: Annotated[str | None, or_off(check_convention)] = None
    """None: by none."""
    prefix: Annotated[str, check_discovery_prefix] = DISCOVERY_PREFIX
    """The first levels of the topics."""
    ids: Annotated[Mapping[str, str], check_ids] = {}
    """The former names of devices that were renamed, by their present names."""


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


def _declared(given: object) -> DiscoverySettings | None:
    """What `App` was given as `discovery`: the name of a convention, or a `Discovery`. Raises `InvalidValue`,
    `InvalidType`."""
    if given == OFF:
        return None
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


def _discovery(standard: DiscoverySettings, entries: Entries) -> DiscoverySettings | None:
    """None if the convention is off."""
    found = read_section(standard, entries)
    return None if found.convention is None else found


def _check_registered(setup: "Setup", discovery: DiscoverySettings, entries: Mapping[str, Entries]) -> None:
    """See that the registered devices can be described, and that no subscription covers what describes them."""
    names, finds = setup.registry.devices, setup.registry.finds
    ids = entries["discovery"].get("ids")
    setup.registry.check_apart(*check_devices(discovery, names, setup.prefix, ids, finds=finds))


SECTION = Section(DiscoverySettings, _discovery, declared=_declared, check_registered=_check_registered)
