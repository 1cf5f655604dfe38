"""Lets devices join that handlers find at run time, and removes the retained topics of those that are forgotten.
Imported only where a handler may find devices."""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from leadsman.devices.home import Home
from leadsman.devices.roster import Departure, Device, Roster
from leadsman.introspection.registry import registry_entry
from leadsman.introspection.retained import FORGETTING, retained_of
from leadsman.loop.slices import Slices, Work
from leadsman.mqtt.link import Link
from leadsman.mqtt.message import Message
from leadsman.mqtt.topics import Topics
from leadsman.registration.source import Source
from leadsman.runtime.found_devices import Family, template_of
from leadsman.runtime.other_topics import OtherTopics
from leadsman.runtime.sources import SourceRunner

if TYPE_CHECKING:
    from leadsman.registration.telemetry import Telemetry


WAIT = 1.0
"""Seconds between two looks whether the topics of a forgotten device may be removed."""

Elsewhere = Callable[[str, str], bool | None]
"""Whether another node may have a device, which was found here by the second name; None if nobody can say without a
connection."""


def families_of(readers: "Collection[Telemetry | Source]") -> dict[str, Family]:
    """What each handler may find, by its name."""
    return {each.name: Family(each.finds, template_of(each, each.finds)) for each in readers if each.finds is not None}


class FoundHost:
    """The `leadsman.runtime.found_devices.Host`: found devices live in the home of the app.

    Args:
        roster: the devices.
        home: where they are read.
    """

    def __init__(self, roster: Roster, home: Home) -> None:
        self._roster = roster
        self._home = home

    def join(self, source: Source) -> SourceRunner:
        """See `Host`."""
        device, runner = self._home.found(source)
        self._roster.join(device)
        return runner

    def change(self, source: Source) -> None:
        """See `Host`."""
        self._roster.change(self._roster[source.name]._replace(reader=source))

    def leave(self, name: str) -> None:
        """See `Host`."""
        self._roster.leave(name, Departure.FORGOTTEN)

    def lose(self, name: str) -> None:
        """See `Host`."""
        self._roster.leave(name, Departure.MOVED)


class TopicRemoval:
    """Removes the retained topics of a device that is forgotten. Its `leave` is that of a `Follower`.

    Args:
        roster: the devices.
        topics: the topics of the app.
        others: further retained topics of its devices.
        link: removes them.
        slices: waits with that.
        has_health: whether each device has a topic for its health.
        elsewhere: whether another node may have a device.
    """

    def __init__(
        self,
        roster: Roster,
        topics: Topics,
        others: OtherTopics,
        link: Link,
        slices: Slices,
        has_health: bool,
        elsewhere: Elsewhere,
    ) -> None:
        self._roster = roster
        self._topics = topics
        self._others = others
        self._link = link
        self._slices = slices
        self._has_health = has_health
        self._elsewhere = elsewhere

    def retained(self, device: Device, others: Collection[str]) -> list[str]:
        """The retained topics of a device, with `others` besides those that each device has."""
        entry = registry_entry(self._topics, device.name, device.registrations, others, health=self._has_health)
        return retained_of(entry)

    def leave(self, device: Device, why: Departure) -> None:
        """See `Follower`."""
        topics = self.retained(device, self._others.forget(device.name))
        if why is Departure.FORGOTTEN:
            self._slices.begin("a forgotten device", self._removal(device, topics))

    def _removal(self, device: Device, topics: Collection[str]) -> Work:
        """Remove the topics of a device, unless it is found again meanwhile, here or on another node of a cluster. What
        describes it goes first. Until the registry is published, the one at the broker lists them, so that the next
        start removes what is left."""
        finder = getattr(device.reader, "found_by", None) or ""
        if self._others.described is not None:
            yield WAIT + FORGETTING
        for topic in topics:
            while (away := self._elsewhere(device.name, finder)) is None:
                yield WAIT
            if device.name in self._roster or away:
                break
            if not self._others.is_described(topic):  # discovery removes those
                self._link.put(Message(topic, b"", 1, retain=True))
        self._others.changed()
