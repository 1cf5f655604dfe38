"""Requests and commands over MQTT, and what answers people and tools. The service is imported and made with the first
request."""

import functools
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from leadsman.core.devices.roster import RosterPhase, forgetting
from leadsman.core.mqtt.connection import Received
from leadsman.core.mqtt.topics import DOCTOR
from leadsman.core.parts.kinds import ANSWERS, FOUND, HEARTBEAT, STATUSES, SUBSCRIBERS
from leadsman.core.runtime.poll_runner import ask
from leadsman.core.wiring.core import Core
from leadsman.core.wiring.plan import OPERATIONS

if TYPE_CHECKING:
    from leadsman.core.introspection.document import FieldTerms
    from leadsman.core.introspection.mqtt_door import MqttDoor
    from leadsman.core.introspection.registry import DeviceRegistry
    from leadsman.core.introspection.request_queue import RequestQueue
    from leadsman.core.introspection.service import Service
    from leadsman.core.registration.command import Command
    from leadsman.core.registration.source import Source
    from leadsman.core.registration.telemetry import Telemetry


def join(core: Core) -> None:
    """Subscribe to the topics of requests that make sense for this app."""
    found = RunningAnswers(core)
    core.offer(ANSWERS, found)
    on_set = functools.partial(_on_set, core, found)
    listeners: dict[str, Callable[[Received], None]] = {
        "introspect": lambda received: found.door.on_introspect(received),
        "set": on_set,
        "operator": lambda received: found.door.on_set(received),
        "get": lambda received: found.door.on_get(received),
    }
    listeners |= {"root set": on_set, "root get": listeners["get"]}
    listeners |= {f"root {operation}": listeners["operator"] for operation in OPERATIONS}
    for request, topic_filter in core.plan.filters.items():
        listener = _only_here(core, listeners[request], every_node=request == "introspect")
        core.link.listen(topic_filter, listener)
    core.roster.follow(
        RosterPhase.REPORT, forgetting(found.forget)._replace(change=lambda device: found.forget(device.name))
    )


def _only_here(core: Core, listener: Callable[[Received], None], *, every_node: bool) -> Callable[[Received], None]:
    """The listener, without the probes of ``leadsman doctor``, and for the devices of this node: what is for another
    one is answered there."""
    topics, node = core.plan.topics, core.node
    probes = topics.of(DOCTOR, "")

    def listen(received: Received) -> None:
        if not received.topic.startswith(probes) and (every_node or node.has(topics.device_of(received.topic))):
            listener(received)

    return listen


def _on_set(core: Core, introspection: "RunningAnswers", received: Received) -> None:
    """A command; or, for the root device, whose topics have a level less, perhaps a request."""
    topics = core.plan.topics
    if topics.root is not None and received.topic in [topics.of(topics.root, f"{word}/set") for word in OPERATIONS]:
        introspection.door.on_set(received)
    elif received.retain:  # it is ignored, and takes nobody's place
        core.dispatcher.on_set(received)
    else:
        introspection.requests.add(
            received,
            core.dispatcher.on_set,
            lambda refused, error: core.dispatcher.refuse(topics.device_of(refused.topic), refused, error),
        )


class RunningAnswers:
    """What answers people and tools that ask about one running app. Each is created on first use.

    Args:
        core: the app.
    """

    def __init__(self, core: Core) -> None:
        self._core = core

    @cached_property
    def requests(self) -> "RequestQueue":
        """Where requests and commands wait for their turn."""
        from leadsman.core.introspection.request_queue import RequestQueue

        core = self._core
        return RequestQueue(core.slices, core.environment.clock, core.link.outbox)

    @cached_property
    def door(self) -> "MqttDoor":
        """Takes questions and requests over MQTT."""
        from leadsman.core.introspection.mqtt_door import MqttDoor

        core = self._core
        clock = core.environment.clock
        return MqttDoor(self.service, core.plan.topics, core.link, clock, core.slices, self.requests)

    @cached_property
    def registry(self) -> "DeviceRegistry":
        """The list of the devices, with their topics."""
        from leadsman.core.introspection.registry import DeviceRegistry

        plan, health = self._core.plan, "health" in self._core.documents.topics
        return DeviceRegistry(plan.identity, self._core.roster, self._core.others.topics, health=health)

    @cached_property
    def service(self) -> "Service":
        """Answers questions, and does what people request."""
        from leadsman.core.introspection.sections import Introspected
        from leadsman.core.introspection.service import Service

        core = self._core
        parts = Introspected(
            records=core.records,
            link=core.link,
            runners=core.runners,
            poll=functools.partial(ask, core.roster.polls),
            adapters=core.plan.adapters,
            state_files=core.of(HEARTBEAT).state_files,
            statuses=core.of(STATUSES),
            ready=lambda: core.device_group.polling,
            added=core.documents,
            own=core.plan.extensions,
            subscribers=core.find(SUBSCRIBERS),
            found=core.find(FOUND),
            terms_of=_terms_of,
        )
        return Service(self.registry, parts, core.environment)

    def forget(self, device: str) -> None:
        """A device has changed, or has left."""
        if "service" in self.__dict__:  # else nobody has asked yet
            self.service.forget(device)


def _terms_of(each: "Telemetry | Source | Command") -> "dict[str, FieldTerms]":
    from leadsman.core.introspection.schema import terms_of_registration  # few ask

    return terms_of_registration(each)
