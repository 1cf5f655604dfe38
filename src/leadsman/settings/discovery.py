"""Discovery: by which convention an app describes its devices to others, and what each convention wants."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from leadsman.errors import ConfigurationError, InvalidType, InvalidValue, collect, raise_together
from leadsman.settings.sections import DiscoverySettings, check_convention, check_ids, read_section
from leadsman.settings.sources import SettingEntry
from leadsman.text.identifiers import identifier, lowercase_identifier
from leadsman.text.suggestion import suggestion
from leadsman.value import Value

APP = "leadsman_app"
"""The identifier of the device that stands for the app itself."""
PREFIX = "homeassistant"
"""The default of Home Assistant for the first level of discovery topics."""
HOMIE_PREFIX = "homie"
"""The first level of topics of Homie; controllers find other ones too ("Base Topic", "Auto-Discovery")."""


class Discovery(Value):
    """The convention by which an app describes its devices at the broker.

    Args:
        convention: ``"homeassistant"`` or ``"homie"``.
        prefix: the first level of its topics; for Home Assistant it may be several levels, as configured there. By
            default that of the convention: ``homeassistant`` or ``homie``.
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
        self, convention: str = "homeassistant", *, prefix: str | None = None, ids: Mapping[str, str] | None = None
    ) -> None:
        rules = CONVENTIONS[check_convention(convention)]
        given = rules.prefix if prefix is None else rules.check(prefix)
        self._hold(convention=convention, prefix=given, ids={} if ids is None else check_ids(ids))


def as_discovery(given: object) -> Discovery:
    """What `App` was given as `discovery`: the name of a convention, or a `Discovery`. Raises `InvalidValue`,
    `InvalidType`."""
    if isinstance(given, Discovery):
        return given
    if not isinstance(given, str):
        raise InvalidType(f"discovery is {given!r}; write 'homeassistant', 'homie', or Discovery(…)")
    return Discovery(given)


def discovery_of(entries: Mapping[str, SettingEntry], declared: Discovery | None) -> Discovery | None:
    """Read the section. A value of the settings replaces what the app declares.

    Raises:
        ConfigurationError: values are wrong, one a line; the message names their origins.
    """
    before = DiscoverySettings()
    if declared is not None:
        before = DiscoverySettings(declared.convention, declared.prefix, declared.ids)
    faults: list[ConfigurationError] = []
    found, prefix = before, None
    first = {key: entry for key, entry in entries.items() if key == "convention"}  # it decides what a prefix may be
    with collect(faults):
        found = read_section(before, first)
    with collect(faults):
        found = read_section(found, {key: entry for key, entry in entries.items() if key not in first})
    with collect(faults):
        if (given := entries.get("prefix")) is not None:
            prefix = given.read(CONVENTIONS[found.convention or "homeassistant"].check)
        elif declared is not None and declared.convention == found.convention:
            prefix = declared.prefix
    raise_together(faults)
    return None if found.convention is None else Discovery(found.convention, prefix=prefix, ids=found.ids)


def identifiers_of(
    names: Sequence[str],
    ids: Mapping[str, str],
    identify: Callable[[str], str] = identifier,
    taken: Mapping[str, str] = MappingProxyType({APP: "the app itself"}),
) -> dict[str, str]:
    """The identifiers of devices, by their names.

    Args:
        names: the devices.
        ids: the former names of some, and of devices that are not among them.
        identify: makes an identifier of a name.
        taken: identifiers that no device may have, with what has them.

    Raises:
        InvalidValue: two devices have one identifier.
    """
    found: dict[str, str] = {}
    owners = dict(taken)
    for name in names:
        key = identify(ids.get(name, name))
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


def homie_root(app: str, node: str | None = None) -> str:
    """The identifier of the app's own device in Homie, by the prefix of the app; or of that of a node in a cluster,
    which no device of the app has."""
    root = lowercase_identifier(app)
    return root if node is None else f"{root}--{lowercase_identifier(node)}"


def homie_identifiers(names: Sequence[str], ids: Mapping[str, str], app: str) -> dict[str, str]:
    """The identifiers of devices in Homie, where those of all apps stand side by side; raises as `identifiers_of`."""
    found = identifiers_of(names, ids, lowercase_identifier, {})
    return {name: f"{homie_root(app)}-{key}" for name, key in found.items()}


def homie_filters(prefix: str, app: str) -> tuple[str, str]:
    """The topic filters of the descriptions, and of the commands, by the prefix of discovery. Those of one app have
    none of their own."""
    return f"{prefix}/5/+/$description", f"{prefix}/5/+/+/+/set"


class ConventionRules(NamedTuple):
    """The rules of a convention: for its prefix, for identifiers, and for topic filters."""

    prefix: str
    """The default."""
    most_levels: int
    """Of the prefix."""
    identifiers: Callable[[Sequence[str], Mapping[str, str], str], dict[str, str]]
    """The identifiers of devices, by their names, former names, and the prefix of the app."""
    identify: Callable[[str], str]
    """The identifier of one device, which no other one may have."""
    filters: Callable[[str, str], tuple[str, ...]]
    """The topic filters to subscribe to, by the prefixes of discovery and of the app."""

    def check(self, given: object) -> str:
        """Check a prefix. Raises `InvalidType`, `InvalidValue`."""
        if not isinstance(given, str):
            raise InvalidType(f"prefix is {given!r}; write text")
        levels = given.split("/")
        wrong = "" in levels or len(levels) > self.most_levels or len(given) > 200 or given.startswith("$")
        if wrong or any(c in "+#" or not c.isprintable() for c in given):
            raise InvalidValue(
                f"prefix is {given!r}; write the first level of discovery topics, such as {self.prefix!r}"
            )
        return given


CONVENTIONS: Mapping[str, ConventionRules] = {
    "homeassistant": ConventionRules(
        PREFIX,
        100,
        lambda names, ids, _: identifiers_of(names, ids),
        identifier,
        lambda prefix, app: (own_filter(prefix, app), birth_topic(prefix)),
    ),
    "homie": ConventionRules(HOMIE_PREFIX, 1, homie_identifiers, lowercase_identifier, homie_filters),
}
"""The conventions, by name."""


def check_devices(
    discovery: Discovery, names: Sequence[str], app: str, ids: SettingEntry | None = None, *, finds: bool = False
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
            origin = "" if ids is None else f" (from {ids.at((name,)).origin})"
            raise InvalidValue(
                f"discovery: ids names {name!r}, which is not a device; {suggestion(name, names)}{origin}"
            )
    rules = CONVENTIONS[discovery.convention]
    rules.identifiers(names, discovery.ids, app)
    return rules.filters(discovery.prefix, app)
