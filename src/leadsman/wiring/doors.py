"""The doors through which people and tools ask a running app. The service behind them, and each door, is imported and
made with the first request."""

import asyncio
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from leadsman.events import Event, LinkUp
from leadsman.monitoring.statuses import Statuses
from leadsman.mqtt.connection import Received
from leadsman.mqtt.topics import DOCTOR, Topics
from leadsman.slices import Work
from leadsman.wiring.optional import Core, OptionalParts

if TYPE_CHECKING:
    from leadsman.http.door import HttpDoor
    from leadsman.introspection.mqtt_door import MqttDoor
    from leadsman.introspection.service import Service

REGISTRY_DELAY = 1.0
"""Seconds from a connection to the registry: first readings go first."""


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
        }
        for request, topic_filter in plan.filters.items():
            listeners[topic_filter] = _without_probes(plan.topics, handlers[request])

    def observe(self, event: Event) -> None:
        """Publish the registry a moment after each connection."""
        if isinstance(event, LinkUp):
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
        self._core.slices.begin("the registry", self._registry())

    def _registry(self) -> Work:
        """Publish the registry. The import is a slice of its own, and so is the service for many devices."""
        import leadsman.introspection.mqtt_door  # noqa: F401  # `_mqtt` uses it, in the next slice

        yield 0.0
        door = self._mqtt
        yield 0.0
        yield from door.publish_registry()

    def _on_set(self, received: Received) -> None:
        self._optional.dispatcher.on_set(received)

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
        return MqttDoor(self._service, core.plan.topics, core.link, core.environment.clock, core.slices)

    @cached_property
    def _service(self) -> "Service":
        from leadsman.introspection.registrations import Registrations
        from leadsman.introspection.sections import About, Parts
        from leadsman.introspection.service import Service

        core, plan, optional = self._core, self._core.plan, self._optional
        about = About(
            name=plan.name,
            version=plan.version,
            leadsman=plan.leadsman,
            topics=plan.topics,
            client_id=plan.client_id,
        )
        parts = Parts(
            records=core.records,
            ledgers=core.ledgers,
            link=core.link,
            runners=optional.runners,
            poll=core.poller.ask,
            adapters=plan.adapters,
            traces=optional.traces,
            state_files=self._state_files,
            statuses=self._statuses,
            ready=lambda: self.polling,
            watching=core.watching,
        )
        registrations = Registrations(plan.telemetries, plan.sources, plan.commands)
        return Service(about, registrations, parts, core.environment)
