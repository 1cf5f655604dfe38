"""How this node shares the app with others: the sections ``standby`` and ``cluster`` of the settings."""

import socket
from collections.abc import Mapping

from leadsman.errors import ConfigurationError, InvalidValue, collect, raise_together
from leadsman.settings.sections import ClusterSettings, StandbySettings, check_node, read_section
from leadsman.settings.sources import SettingEntry


def standby_of(entries: Mapping[str, SettingEntry], brokers: int, *, follows: bool) -> StandbySettings | None:
    """Read the section ``standby``. None if this node does not stand by.

    Args:
        entries: what is set, by key.
        brokers: how many the app has.
        follows: whether it goes where a broker sends it.

    Raises:
        ConfigurationError: values are wrong, one a line; the message names their origins. Or not all nodes would have
            the same arbiter: there are several brokers, or the app may be sent to another one.
    """
    found = read_section(StandbySettings(), entries)
    if not found.enabled:
        return None
    if brokers > 1:
        raise InvalidValue(
            f"standby: the app has {brokers} brokers, and two nodes at two brokers would both be active; name one"
        )
    if follows:
        raise InvalidValue(
            "standby: a broker that sends nodes elsewhere would let two be active; leave follow_server_reference out"
        )
    return found


def cluster_of(entries: Mapping[str, SettingEntry]) -> ClusterSettings | None:
    """Read the section ``cluster``. None if this node shares the devices with no other: there is no engine, or it is
    empty text.

    Raises:
        ConfigurationError: values are wrong, one a line; the message names their origins.
    """
    faults: list[ConfigurationError] = []
    found = ClusterSettings()
    with collect(faults):
        found = read_section(found, entries)
    if entries and "engine" not in entries:
        faults.append(InvalidValue("cluster.engine: missing; write engine = 'nats://host:4222' in [cluster]"))
    raise_together(faults)
    if not found.engine:
        return None
    return found if found.node else found._replace(node=_host())


def _host() -> str:
    """The name of this machine, as the name of a node. Raises `InvalidValue` if nothing of it can be one."""
    try:
        return check_node(socket.gethostname())
    except ConfigurationError as error:
        raise type(error)(f"cluster.node: the name of this machine cannot be used: {error}") from None
