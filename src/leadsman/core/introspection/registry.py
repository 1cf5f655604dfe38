"""The registry: which devices an app offers, with their topics. It is made in slices."""

import sys
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from leadsman.core.introspection.pages import DocumentWriter
from leadsman.core.introspection.retained import APP, Retained, retained_of
from leadsman.core.mqtt.topics import Identity, Topics
from leadsman.core.registration.injection import ContextDependency
from leadsman.core.text import clean

if TYPE_CHECKING:
    from leadsman.core.introspection.document import AppSection, RegistryDevice, RegistryHead
    from leadsman.core.registration.command import Command
    from leadsman.core.registration.source import Source
    from leadsman.core.registration.telemetry import Telemetry


LIST_SLICE = 250
"""Devices of the registry, or rows of the trace, that are described in one turn of the loop."""


class RegisteredDevice(Protocol):
    """A device or a side job with its registrations, as in the roster of a running app."""

    @property
    def registrations(self) -> "list[Telemetry | Source | Command]":
        """The registrations for it. The one that reads it comes first."""
        ...

    @property
    def job(self) -> bool:
        """Whether it is a side job."""
        ...


class DeclaredDevice(NamedTuple):
    """A device or a side job of an app that does not run."""

    registrations: "list[Telemetry | Source | Command]"

    @property
    def job(self) -> bool:
        """Whether it is a side job."""
        return self.registrations[0].kind == "periodic"


def declared(
    telemetries: "Mapping[str, Telemetry]", sources: "Mapping[str, Source]", commands: "Mapping[str, Command]"
) -> dict[str, DeclaredDevice]:
    """The devices and side jobs of an app that does not run. A device may have one that reads it and its commands."""
    found: dict[str, DeclaredDevice] = {}
    kinds: tuple[Mapping[str, Telemetry | Source | Command], ...] = telemetries, sources, commands
    for name, each in (item for kind in kinds for item in kind.items()):
        found.setdefault(name, DeclaredDevice([])).registrations.append(each)
    return found


def app_section(about: Identity) -> "AppSection":
    """The facts about an app that do not depend on whether it runs."""
    section: AppSection = {
        "name": about.name,
        "version": clean(about.version),
        "prefix": about.topics.prefix,
        "leadsman": about.leadsman,
        "python": sys.version.split()[0],
    }
    if about.topics.root is not None:
        section["root"] = about.topics.root
    return section


class DeviceRegistry:
    """The devices that an app offers, with their topics.

    Args:
        about: the identity of the app.
        devices: its devices and side jobs.
        others: further retained topics, by device; those that belong to none by `APP`.
        health: whether each device has a topic for its health, as devices have while discovery for Home Assistant is
            on.
    """

    def __init__(
        self,
        about: Identity,
        devices: Mapping[str, RegisteredDevice],
        others: Mapping[str, Collection[str]],
        *,
        health: bool,
    ) -> None:
        self.about = about
        self.devices = devices
        self._others = others
        self._health = health
        self.disabled: list[str] = []
        """The names of the devices that are not enabled, once the list of all devices was made."""

    def head(self) -> "RegistryHead":
        """The app in the registry."""
        about = self.about
        head: RegistryHead = {
            "app": about.name,
            "version": clean(about.version),
            "leadsman": about.leadsman,
            "client_id": about.client_id,
            "introspect": about.topics.introspect,
            "status": about.topics.status,
        }
        if about.topics.root is not None:
            head["root"] = about.topics.root
        return head

    def entry(self, name: str) -> "RegistryDevice | None":
        """A device in the registry; None if there is no such device, and for a side job."""
        device = self.devices.get(name)
        return None if device is None else self.entry_of(name, device)

    def entry_of(self, name: str, device: RegisteredDevice) -> "RegistryDevice | None":
        """As `entry`, of a device that is about to be forgotten, too."""
        others = self._others.get(name, ())
        return registry_entry(self.about.topics, name, device.registrations, others, health=self._health)

    def retained(self, name: str) -> Retained | None:
        """What a device retains; None if there is no such device, and for a side job."""
        entry = self.entry(name)
        return None if entry is None else Retained(retained_of(entry), keeps_others(self.devices[name].registrations))

    @property
    def others(self) -> list[str]:
        """The retained topics that belong to no device, besides the status and the registry."""
        return sorted(self._others.get(APP, ()))

    def list_devices(
        self, document: DocumentWriter, wanted: Callable[[Sequence[str]], bool] | None = None
    ) -> Generator[float, None, bool]:
        """List the devices of whose retained topics `wanted` is true, in slices; all if it is None. Returns whether
        there are any."""
        found, disabled = False, list[str]()
        if (others := self.others) and (wanted is None or wanted(others)):
            found = True
            document.begin("others", b"[]")
            for topic in others:
                document.member(None, topic)
        document.begin("devices", b"{}")
        for number, name in enumerate(tuple(self.devices), 1):
            entry = self.entry(name)  # the device may be gone meanwhile
            if entry is not None and not entry.get("enabled", True):
                disabled.append(name)
            if entry is not None and (wanted is None or wanted(retained_of(entry))):
                found = True
                document.member(name, entry)
            if number % LIST_SLICE == 0:
                yield 0.0
        self.disabled = disabled
        return found


def keeps_others(found: "Iterable[Telemetry | Source | Command]") -> bool:
    """Whether a device may publish again at any time to a topic below it that leadsman cannot list before: its
    handler may, and so do readings whose values have topics of their own."""
    return any(
        (each.kind != "command" and each.layout != "json")
        or any(isinstance(need, ContextDependency) for _, need in each.needs)
        for each in found
    )


def registry_entry(
    topics: Topics, name: str, found: "Sequence[Telemetry | Source | Command]", others: Collection[str], *, health: bool
) -> "RegistryDevice | None":
    """A device in the registry, with its topics; None for a side job.

    Args:
        topics: the topics of the app.
        name: the name of the device.
        found: its registrations.
        others: further retained topics of it.
        health: whether it has a topic for its health, as devices have while discovery for Home Assistant is on.
    """
    enabled = [each for each in found if each.enabled]
    kinds = [kind for each in enabled or found if (kind := each.kind) != "periodic"]
    if not kinds:
        return None
    reader = next((each for each in found if each.kind != "command"), None)
    entry: RegistryDevice = {"kinds": kinds, "topics": {}, "retained": ["availability"]}
    paths, retained = entry["topics"], entry["retained"]
    if reader is None or reader.layout != "fields":
        paths["state"] = topics.state(name)
        retained[:0] = ["state"] * (reader is None or reader.delivery.retain)
    paths |= {"availability": topics.availability(name), "error": topics.device_error(name)}
    if reader is not None:
        paths["ledger"] = topics.of(name, "ledger")
        retained.append("ledger")
        if reader.delivery.history is not None:
            paths["history"] = topics.history(name)
    if health:
        paths["health"] = topics.of(name, "health")
        retained.append("health")
    if "telemetry" in kinds:
        paths["get"] = topics.of(name, "get")
    if "command" in kinds:
        paths |= {"set": topics.of(name, "set"), "set_result": topics.set_result(name)}
    if reader is not None and reader.content is not None and reader.delivery.retain:
        others = {*others, topics.of(name, reader.content.name)}
    if others:
        entry["others"] = sorted(others)
    if (found_by := getattr(reader, "found_by", None)) is not None:
        entry["found_by"] = found_by
    if not enabled:
        entry["enabled"] = False
    return entry
