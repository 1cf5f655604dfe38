"""The doors through which people and tools ask a running app. The service behind them, and each door, is imported and
made with the first request."""

import asyncio
import functools
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from leadsman.devices.roster import Departure, Device
from leadsman.events import AppFault, Event, LinkUp
from leadsman.monitoring.prefix_watch import PrefixWatch
from leadsman.monitoring.statuses import Statuses
from leadsman.mqtt.connection import Received
from leadsman.mqtt.topics import DOCTOR, Topics
from leadsman.runtime.poller import ask
from leadsman.slices import Work
from leadsman.wiring.core import Core
from leadsman.wiring.optional import OptionalParts
from leadsman.wiring.plan import OPERATIONS

if TYPE_CHECKING:
    from leadsman.http.door import HttpDoor
    from leadsman.introspection.document import FieldTerms
    from leadsman.introspection.mqtt_door import MqttDoor
    from leadsman.introspection.registrations import Registrations
    from leadsman.introspection.registry import About, Registry
    from leadsman.introspection.registry_publication import RegistryPublication
    from leadsman.introspection.request_queue import Handle, Refuse, RequestQueue
    from leadsman.introspection.service import Service
    from leadsman.registration.injection import Handler
    from leadsman.wiring.cluster import Cluster
    from leadsman.wiring.cluster_report import ClusterReport

REGISTRY_DELAY = 1.0
"""Seconds from a connection, or from a change, to the registry: first readings go first."""
KNOWN = 2.0
"""Seconds from the first connection until what an earlier run listed has come, or is not waited for any more."""
MOST_KEPT, MOST_KEPT_BYTES = 1000, 8 * 2**20
"""Pages of an earlier registry that are read, and their bytes; 10,000 devices need about 30 of 120 kB."""


def _without_probes(topics: Topics, listener: Callable[[Received], None]) -> Callable[[Received], None]:
    """The listener, without the probes of ``leadsman doctor``."""
    probes = topics.of(DOCTOR, "")

    def listen(received: Received) -> None:
        if not received.topic.startswith(probes):
            listener(received)

    return listen


class Doors:
    """What takes requests from outside.

    Args:
        core: the parts that every app uses.
        optional: those that this app uses besides.
        statuses: the statuses of the devices.
        state_files: files of the app's state that cannot be written at the moment, and why.
    """

    def __init__(self, core: Core, optional: OptionalParts, statuses: Statuses, state_files: Mapping[str, str]) -> None:
        self._core = core
        self._optional = optional
        self._statuses = statuses
        self._state_files = state_files
        self._kept: dict[str, bytes] = {}
        self._kept_bytes = 0
        self._due = self._publishing = self._begun = False
        self.polling = False
        """Whether the devices are polled; set when the first polls start."""

    def listen(self) -> None:
        """Subscribe to the topics of requests that make sense for this app."""
        plan, listeners = self._core.plan, self._core.link.subscriptions.listeners
        handlers: dict[str, Callable[[Received], None]] = {
            "introspect": self._on_introspect,
            "set": self._on_set,
            "operator": self._on_operator,
            "get": self._on_get,
            "root set": self._on_set,
            "root get": self._on_get,
            **{f"root {word}": self._on_operator for word in OPERATIONS},
        }
        for request, topic_filter in plan.filters.items():
            listener = handlers[request]
            if request != "introspect" and self._core.cluster is not None:
                listener = self._only_here(self._core.cluster, listener)
            listeners[topic_filter] = _without_probes(plan.topics, listener)
        report = self._core.cluster_report
        if report is not None:
            listeners[report.requests] = functools.partial(self._on_drain, report)

    def _only_here(self, cluster: "Cluster", listener: Callable[[Received], None]) -> Callable[[Received], None]:
        """The listener, for the devices of this node. What is for another one is answered by its node."""
        topics = self._core.plan.topics

        def listen(received: Received) -> None:
            if cluster.has(topics.device_of(received.topic)):
                listener(received)

        return listen

    def hear_others(self) -> None:
        """Subscribe to the status, where another app below this prefix shows itself, and to the registry that an
        earlier run left. A dry run retains nothing, and has topics of its own."""
        core, plan = self._core, self._core.plan
        core.others.on_change = self.registry_changed
        if plan.dry_run:
            return
        watch = PrefixWatch(plan.topics, plan.client_id, core.link, core.environment.events)
        if core.cluster is not None:  # what an earlier run of this node listed may be another node's by now
            strangers = core.cluster.strangers(core.link, core.environment.events)
            core.link.subscriptions.listeners |= {
                plan.own_filters["alone"]: watch.received,
                strangers.topic_filter: strangers.received,
            }
            return
        core.link.subscriptions.listeners |= {
            plan.own_filters["status"]: watch.received,
            plan.own_filters["registry"]: self._on_registry,
        }
        core.link.subscriptions.urgent = plan.own_filters["registry"], plan.own_filters["status"]
        core.link.subscriptions.on_answer = self._on_answer
        core.link.held = True

    def _on_registry(self, received: Received) -> None:
        topic, payload = received.topic, received.payload
        size = self._kept_bytes - len(self._kept.get(topic, b"")) + len(payload)
        if received.retain and payload and len(self._kept) < MOST_KEPT and size <= MOST_KEPT_BYTES:
            self._kept[topic], self._kept_bytes = payload, size

    def _on_answer(self, topic_filter: str) -> None:
        """The broker has answered a subscription. What it keeps of an earlier one has come by then."""
        if topic_filter != self._core.plan.own_filters["registry"]:
            asyncio.get_running_loop().call_soon(self._begin)

    def observe(self, event: Event) -> None:
        """Publish the registry a moment after each connection."""
        if isinstance(event, LinkUp):
            self.registry_changed()
            if self._core.link.held and not self._begun:
                asyncio.get_running_loop().call_later(KNOWN, self._begin)

    def _begin(self) -> None:
        """List what may be published, before anything is."""
        if not self._begun:
            self._begun = True
            self._core.link.subscriptions.on_answer = None
            self._core.slices.begin("what may be published", self._beginning())

    def _beginning(self) -> Work:
        try:
            yield from self._publication.begin()
        finally:
            self._core.link.release()

    def join(self, device: Device) -> None:
        """A device has joined: list its topics, which are about to be published. See
        `leadsman.devices.roster.Follower`."""
        if self._begun and not self._core.link.held:
            from leadsman.introspection.retained import retained_of

            self._publication.list_ahead(device.name, retained_of(self._registry.entry(device.name)))
        self.registry_changed()

    def leave(self, device: Device, why: Departure) -> None:
        """A device has left. The topics of one that is forgotten are listed until they are removed."""
        if "_service" in self.__dict__:  # else nobody has asked yet
            self._service.forget(device.name)
        if why is Departure.MOVED:
            self.registry_changed()

    def end(self) -> None:
        """The app ends: what it still has to say may go."""
        if not self._core.link.held:
            return
        try:
            for _ in self._publication.begin():
                pass
        except Exception as error:
            self._core.environment.events.emit(AppFault("what may be published", error))
        finally:
            self._core.link.release()

    def registry_changed(self) -> None:
        """Publish the registry soon."""
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_later(REGISTRY_DELAY, self._register)

    @cached_property
    def http(self) -> "HttpDoor | None":
        """The door over HTTP; None where there is none."""
        core = self._core
        if core.plan.endpoint is None or core.watching is None:
            return None
        from leadsman.http.door import HttpDoor

        emit = core.environment.events.emit
        return HttpDoor(core.plan.endpoint, self._service, core.watching.happenings, core.slices, emit)

    def _register(self) -> None:
        self._due = False
        self._core.slices.begin("the registry", self._publish_registry())

    def _publish_registry(self) -> Work:
        """Publish the registry. The import is a slice of its own."""
        import leadsman.introspection.registry_publication  # noqa: F401  # used in the next slice

        yield 0.0
        publication = self._publication
        yield 0.0
        while self._publishing:  # the one before ends with its connection
            yield REGISTRY_DELAY
        self._publishing = True
        try:
            yield from publication.publish()
        finally:
            self._publishing = False

    @cached_property
    def _publication(self) -> "RegistryPublication":
        from leadsman.introspection.registry_publication import Kept, RegistryPublication

        core, plan = self._core, self._core.plan
        topic_filter = plan.own_filters["registry"]
        heard = topic_filter in core.link.subscriptions.listeners
        kept = Kept(topic_filter, self._kept, set()) if heard else None
        return RegistryPublication(self._registry, plan.topics, core.link, core.environment.clock, core.others, kept)

    def _on_set(self, received: Received) -> None:
        topics = self._core.plan.topics
        if topics.root is not None and received.topic in [topics.of(topics.root, f"{word}/set") for word in OPERATIONS]:
            self._on_operator(received)
        else:
            self._on_command(received)

    def _on_command(self, received: Received) -> None:
        dispatcher, topics = self._optional.dispatcher, self._core.plan.topics
        if received.retain:  # it is ignored, and takes nobody's place
            dispatcher.on_set(received)
            return
        self.add(
            received,
            dispatcher.on_set,
            lambda refused, error: dispatcher.refuse(topics.device_of(refused.topic), refused, error),
        )

    def add(self, received: Received, handle: "Handle", refuse: "Refuse") -> None:
        """Have a request or a command handled, or refused, in its turn."""
        self._requests.add(received, handle, refuse)

    @cached_property
    def _requests(self) -> "RequestQueue":
        """Where requests and commands wait for their turn."""
        from leadsman.introspection.request_queue import RequestQueue

        core = self._core
        return RequestQueue(core.slices, core.environment.clock, core.link.outbox)

    def _on_drain(self, report: "ClusterReport", received: Received) -> None:
        self.add(received, report.handle, report.refuse)

    def _on_introspect(self, received: Received) -> None:
        self._mqtt.on_introspect(received)

    def _on_get(self, received: Received) -> None:
        self._mqtt.on_get(received)

    def _on_operator(self, received: Received) -> None:
        self._mqtt.on_set(received)

    @cached_property
    def _mqtt(self) -> "MqttDoor":
        from leadsman.introspection.mqtt_door import MqttDoor

        core = self._core
        return MqttDoor(self._service, core.plan.topics, core.link, core.environment.clock, core.slices, self._requests)

    @cached_property
    def _about(self) -> "About":
        from leadsman.introspection.registry import About

        plan = self._core.plan
        return About(plan.name, plan.version, plan.leadsman, plan.topics, plan.client_id)

    @cached_property
    def _registrations(self) -> "Registrations":
        from leadsman.devices.registrations import Present

        jobs = frozenset(name for name, each in self._core.plan.telemetries.items() if each.job)
        return Present(self._core.roster, jobs)

    @cached_property
    def _registry(self) -> "Registry":
        from leadsman.introspection.registry import Registry

        described = self._core.described
        health = described is not None and described.convention.has_health
        return Registry(self._about, self._registrations, self._core.others.topics, health=health)

    @cached_property
    def _service(self) -> "Service":
        from leadsman.introspection.sections import Parts
        from leadsman.introspection.service import Service

        core, plan, optional = self._core, self._core.plan, self._optional
        parts = Parts(
            records=core.records,
            ledgers=core.ledgers,
            link=core.link,
            runners=optional.runners,
            poll=functools.partial(ask, core.roster.polls),
            adapters=plan.adapters,
            traces=optional.traces,
            state_files=self._state_files,
            statuses=self._statuses,
            ready=lambda: self.polling,
            watching=core.watching,
            subscribers=optional.subscribers,
            found=optional.found,
            node=core.ownership,
            nodes=core.nodes,
            terms_of=_terms_of,
        )
        return Service(self._about, self._registrations, self._registry, parts, core.environment)


def _terms_of(handler: "Handler") -> "dict[str, FieldTerms]":
    from leadsman.discovery.fields import terms_of
    from leadsman.introspection.schema import returned  # few ask

    return terms_of(returned(handler))
