"""What belongs together when several nodes share the devices of an app: which devices one node must have, and what it
needs for them."""

from collections.abc import Sequence
from typing import NamedTuple

from leadsman.core.registration.command import Command
from leadsman.core.registration.source import Source
from leadsman.core.registration.telemetry import Telemetry


class Bundle(NamedTuple):
    """Devices that one node polls, since they share a bus or a circuit in its memory."""

    name: str
    """What their shard is computed from: the name of the device, if it is alone; else the first name of a group or of a
    shared circuit."""
    devices: tuple[str, ...]
    """Sorted. Side jobs are among them."""
    labels: frozenset[str]
    """The labels that a node must have for all of them."""


def bundles_of(registrations: "Sequence[Telemetry | Source | Command]") -> list[Bundle]:
    """The devices of an app that stay together, by name.

    A device and its command do; so do the members of a group, whose calls take turns, and devices with one shared
    circuit.
    """
    links: dict[str, str] = {}
    labels: dict[str, frozenset[str]] = {}

    def top(name: str) -> str:
        links.setdefault(name, name)
        while links[name] != name:
            links[name] = name = links[links[name]]
        return name

    for each in registrations:
        device = f"device {each.name}"
        labels[device] = labels.get(device, frozenset()) | each.labels
        for shared in (device, *_shared(each)):
            links[top(shared)] = top(device)
    together: dict[str, list[str]] = {}
    for name in links:
        together.setdefault(top(name), []).append(name)
    bundles = []
    for names in together.values():
        devices = sorted(name.removeprefix("device ") for name in names if name in labels)
        others = sorted(name for name in names if name not in labels)
        needed = frozenset[str]().union(*(labels[name] for name in names if name in labels))
        bundles.append(Bundle(others[0] if others else devices[0], tuple(devices), needed))
    return sorted(bundles)


def _shared(each: Telemetry | Source | Command) -> list[str]:
    """The names of what a handler shares with others in the memory of its process."""
    found = []
    if isinstance(each, Telemetry | Command) and each.group is not None:
        found.append(f"group {each.group}")
    if isinstance(each, Telemetry | Source) and each.guards.breaker is not None and each.guards.breaker.shared:
        found.append(f"circuit {each.guards.breaker.shared}")
    return found
