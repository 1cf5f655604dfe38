"""The registry: the list of the devices at the broker. What it lists there and nothing wants any more is removed: at
the start, and when a device is forgotten."""

import asyncio
from functools import cached_property
from typing import TYPE_CHECKING

from leadsman.core.devices.roster import Departure, Device, Follower, RosterPhase
from leadsman.core.events import AppFault, Event, LinkUp
from leadsman.core.loop.slices import Work
from leadsman.core.mqtt.connection import Received
from leadsman.core.parts.kinds import ANSWERS
from leadsman.core.wiring.core import Core

if TYPE_CHECKING:
    from leadsman.core.introspection.registry_publication import RegistryPublication

WHAT = "what may be published"
"""What the log calls the list, which holds the messages until it is sent."""
DELAY = 1.0
"""Seconds from a connection, or from a change, to the registry: first readings go first."""
KNOWN = 2.0
"""Seconds from the first connection until what an earlier run listed has come, or is not waited for any more."""
MAX_KEPT_PAGES, MAX_KEPT_BYTES = 1000, 8 * 2**20
"""Pages of an earlier registry that are read, and their bytes; 10,000 devices need about 30 of 120 kB."""


def join(core: Core) -> None:
    """Publish the registry. In a dry run, which retains nothing, and in a cluster, where what an earlier run of this
    node listed may be another node's by now, no earlier one is read."""
    publisher, plan, link = RegistryTimer(core), core.plan, core.link
    core.others.changed.add(publisher.change)
    core.environment.events.subscribe(publisher.observe, readings=False)
    core.roster.follow(RosterPhase.REPORT, Follower(publisher.join, publisher.leave))
    core.life.last_messages.append((WHAT, publisher.end))
    if plan.dry_run or core.node.shared:
        return
    pages = plan.own_filters["registry"], plan.topics.registry
    for topic_filter in pages:
        link.listen(topic_filter, publisher.on_page)
    link.subscriptions.urgent.extend(
        (*pages, plan.own_filters["status"])
    )  # `leadsman.core.parts.shared_prefix` listens
    link.subscriptions.answered.add(publisher.on_answer)
    publisher.hold()


class RegistryTimer:
    """Decides when the registry is published: a moment after a connection, and after each change.

    Args:
        core: the app.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._kept: dict[str, bytes] = {}
        self._kept_bytes = 0
        self._due = self._publishing = self._begun = self._holds = False

    def observe(self, event: Event) -> None:
        """Follow the connection. Observes in `leadsman.core.event_bus.Phase.REPORT`."""
        if isinstance(event, LinkUp):
            self.change()
            if self._holds and not self._begun:
                asyncio.get_running_loop().call_later(KNOWN, self._begin)

    def join(self, device: Device) -> None:
        """A device has joined: list its topics, which are about to be published. See
        `leadsman.core.devices.roster.Follower`."""
        if self._begun and not self._holds:
            self._publication.list_entry_ahead(device.name)
        self.change()

    def leave(self, device: Device, why: Departure) -> None:
        """A device has left. The topics of one that is forgotten are removed; the registry at the broker lists them
        until then, so that the next start removes what is left."""
        if why is Departure.FORGOTTEN:
            entry = self._core.of(ANSWERS).registry.entry_of(device.name, device)
            self._publication.remove(entry, getattr(device.reader, "found_by", None) or "")
        self.change()

    def change(self) -> None:
        """Publish the registry soon."""
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_later(DELAY, self._register)

    def on_page(self, received: Received) -> None:
        """Keep a page of the registry that an earlier run left."""
        topic, payload = received.topic, received.payload
        size = self._kept_bytes - len(self._kept.get(topic, b"")) + len(payload)
        if received.retain and payload and len(self._kept) < MAX_KEPT_PAGES and size <= MAX_KEPT_BYTES:
            self._kept[topic], self._kept_bytes = payload, size

    def on_answer(self, topic_filter: str) -> None:
        """The broker has answered a subscription. What it keeps of an earlier one has come by then."""
        if not self._begun:
            asyncio.get_running_loop().call_soon(self._came, topic_filter)

    def _came(self, topic_filter: str) -> None:
        """The pages that the broker keeps at the filters before this one have come."""
        if topic_filter == self._core.plan.own_filters["status"]:
            self._begin()

    def end(self) -> None:
        """The app ends: what it still publishes may go."""
        if not self._holds:
            return
        try:
            for _ in self._publication.begin():
                pass
        except Exception as error:
            self._core.environment.events.emit(AppFault(WHAT, error))
        finally:
            self._release()

    def hold(self) -> None:
        """Let nothing be published before it is listed."""
        self._holds = True
        self._core.link.hold(WHAT)

    def _release(self) -> None:
        self._holds = False
        self._core.link.release(WHAT)

    def _begin(self) -> None:
        """List what may be published, before anything is."""
        if not self._begun:
            self._begun = True
            self._core.slices.begin(WHAT, self._beginning())

    def _beginning(self) -> Work:
        try:
            yield from self._publication.begin()
        finally:
            self._release()

    def _register(self) -> None:
        self._due = False
        self._core.slices.begin("the registry", self._publish())

    def _publish(self) -> Work:
        """Publish the registry. The import is a slice of its own."""
        publication = self._publication
        yield 0.0
        while self._publishing:  # the one before ends with its connection
            yield DELAY
        if not self._core.link.up:
            return  # the next connection brings it
        self._publishing = True
        try:
            yield from publication.publish()
        finally:
            self._publishing = False

    @cached_property
    def _publication(self) -> "RegistryPublication":
        from leadsman.core.introspection.registry_publication import Kept, RegistryPublication

        core, plan = self._core, self._core.plan
        topic_filter = plan.own_filters["registry"]
        heard = topic_filter in core.link.subscriptions.listeners
        kept = Kept(topic_filter, self._kept, self.on_page) if heard else None
        registry, clock = core.of(ANSWERS).registry, core.environment.clock
        return RegistryPublication(registry, plan.topics, core.link, clock, core.others, kept, core.node.elsewhere)
