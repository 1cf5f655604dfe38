"""Reads the section ``standby`` of the settings: whether this node shares the app with others, and for how long a lease
holds."""

from collections.abc import Mapping
from typing import NamedTuple

from leadsman.errors import ConfigurationError, InvalidValue, raise_together
from leadsman.settings.lease_ttl import ttl_of
from leadsman.settings.sources import Entry

_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off", "")


class StandbySettings(NamedTuple):
    """How this node shares the app with others."""

    ttl: float = 15.0
    """Seconds for which a lease holds that is not renewed."""


def standby_of(entries: Mapping[str, Entry]) -> StandbySettings | None:
    """Read the section. None if this node shares the app with no other.

    Raises:
        ConfigurationError: values are wrong, one a line; the message names their origins.
    """
    faults: list[ConfigurationError] = []
    enabled, ttl = False, StandbySettings().ttl
    try:
        enabled = "enabled" in entries and _switch(entries["enabled"].value)
    except ConfigurationError as error:
        faults.append(type(error)(f"standby.enabled: {error} (from {entries['enabled'].origin})"))
    try:
        ttl = ttl_of(entries["ttl"].value) if "ttl" in entries else ttl
    except ConfigurationError as error:
        faults.append(type(error)(f"standby.ttl: {error} (from {entries['ttl'].origin})"))
    raise_together(faults)
    return StandbySettings(ttl) if enabled else None


def check_one_broker(brokers: int, *, follows: bool) -> None:
    """See that all nodes have the same arbiter.

    Raises:
        InvalidValue: there are several brokers, or the app may be sent to another one.
    """
    if brokers > 1:
        raise InvalidValue(
            f"standby: the app has {brokers} brokers, and two nodes at two brokers would both be active; name one"
        )
    if follows:
        raise InvalidValue(
            "standby: a broker that sends nodes elsewhere would let two be active; leave follow_server_reference out"
        )


def _switch(value: object) -> bool:
    if isinstance(value, bool):
        return value
    text = value.lower() if isinstance(value, str) else None
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise InvalidValue(f"{value!r} is neither; write true or false")
