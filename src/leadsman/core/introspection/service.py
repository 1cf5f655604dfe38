"""The service that answers people and tools about one running app: what it is, how it is doing, what it offers. It also
does what they request: poll a device, hold it, release it, isolate, close or disable its circuit.

MQTT (`leadsman.core.introspection.mqtt_door`) and HTTP (`leadsman.extensions.http`) are doors to it. A door uses this
service, the types of its answers and its own protocol, and no part of the app.

A large document is made in slices, each of which takes a millisecond or two. Reading changes nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Literal, NamedTuple

from leadsman.core.events import AppFault, CircuitRequested, DeviceHeld
from leadsman.core.introspection.added import AddedSection
from leadsman.core.introspection.declared import absent, declared_sections
from leadsman.core.introspection.measures import Measures
from leadsman.core.introspection.pages import DocumentWriter
from leadsman.core.introspection.registry import LIST_SLICE, DeviceRegistry
from leadsman.core.introspection.requests import Query, hint, understood
from leadsman.core.introspection.sections import Introspected, Sections
from leadsman.core.loop.clock import rfc3339
from leadsman.core.loop.slices import Work
from leadsman.core.monitoring.condition import condition_of
from leadsman.core.monitoring.health import WELL
from leadsman.core.mqtt.answers import Json
from leadsman.core.mqtt.topics import encode
from leadsman.core.readings.reading import JsonObject, Reading
from leadsman.core.resilience.environment import Environment
from leadsman.core.runtime.runner import Reader
from leadsman.core.text import clean, count_noun, explain
from leadsman.errors import Busy, PayloadError, RequestRefused, UnknownDevice

if TYPE_CHECKING:
    from leadsman.core.introspection.document import Beat, CircuitAnswer, HealthCheck, HealthDocument, HeldAnswer

MAX_DEVICES = 32
"""Devices in trouble that the document lists. A note counts all of them."""


def _check(
    kind: "Literal['component', 'system', 'datastore']",
    value: str | float | bool,
    at: str,
    *,
    well: bool = False,
    error: str | None = None,
) -> "HealthCheck":
    check: HealthCheck = {
        "componentType": kind,
        "observedValue": value,
        "status": "pass" if well else "warn",
        "time": at,
    }
    if error is not None:
        check["output"] = clean(error)
    return check


DEVICES_PER_TURN = 20
"""Devices that are described in one turn of the loop."""
MAX_LARGE_ANSWERS = 4
"""Large answers that are made and sent at the same time: those about more devices than a slice has, and the trace."""
MAX_ANSWERS = 64
"""Answers of any size that are made and sent at the same time."""


class PollResult(NamedTuple):
    """The result of a requested poll: the fields of the reading, or the reason why there is none. Both are None if
    there was nothing to publish."""

    fields: JsonObject | None
    error: str | None


class Service:
    """Answers and does what is requested of one running app.

    Args:
        registry: the devices of the app.
        parts: its parts.
        environment: its clock, timers and events.
    """

    def __init__(
        self,
        registry: DeviceRegistry,
        parts: Introspected,
        environment: Environment,
    ) -> None:
        self.registry = registry
        """The list of the devices of the app."""
        self._parts = parts
        self._environment = environment
        self._clock = environment.clock
        self._sections = Sections(registry, parts, environment.clock, environment.timers.origin)
        self._under_way = 0

    # Documents

    def understood(self, value: Json) -> Query:
        """The request in a decoded payload.

        Raises:
            PayloadError: the request is wrong. The error explains how to correct it.
            Busy: too many answers are under way, or it asks for a large one, and too many for that are.
        """
        added, own = self._parts.added.sections, self._parts.own
        further = tuple(dict.fromkeys((*declared_sections(own), *added)))
        request = understood(value, self.registry.devices, further)
        for name in request.sections:
            if name in further and name not in added:
                raise PayloadError(absent(name, own))
        large = any(name in added and added[name].large for name in request.sections)
        self.admit(large=len(request.names) > DEVICES_PER_TURN or large)
        return request

    def admit(self, *, large: bool) -> None:
        """See that one more answer may be made and sent.

        Raises:
            Busy: too many are under way, or it is a large one, and too many for that are.
        """
        if self._under_way >= (MAX_LARGE_ANSWERS if large else MAX_ANSWERS):
            raise Busy(f"{self._under_way} answers are under way; ask again in a few seconds")

    @property
    def is_large(self) -> bool:
        """Whether an answer about all devices is a large one."""
        return len(self.registry.devices) > DEVICES_PER_TURN

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """A block in which an answer is made and sent. It counts for the limit of `admit`."""
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1

    def describe(self, request: Query, document: DocumentWriter) -> Work:
        """Make the document that a request asks for, in slices."""
        sections, wanted = self._sections, request.sections
        if "app" in wanted:
            document.value("app", sections.app())
        if "mqtt" in wanted:
            document.value("mqtt", sections.mqtt())
        if "adapters" in wanted:
            document.begin("adapters", b"[]")
            for adapter in sections.adapters():
                document.member(None, adapter)
        known = self.registry.devices
        if "devices" in wanted:
            names = (name for name in request.names if name in known and not known[name].job)
            yield from _members(document, "devices", names, sections.device)
        if "jobs" in wanted:
            names = (name for name in request.names if name in known and known[name].job)
            yield from _members(document, "jobs", names, sections.device)
        for name, section in self._parts.added.sections.items():
            if name in wanted:
                yield from self._added(name, section, request, document)
        if "fields" in wanted:
            yield from _members(document, "fields", request.names, sections.fields)

    def _added(self, name: str, section: AddedSection, request: Query, document: DocumentWriter) -> Work:
        """Add a section that a part of the app makes. What it raises ends this section, and costs no other one."""
        document.begin(name, b"[]" if section.is_list else b"{}")
        every = LIST_SLICE if section.is_list else DEVICES_PER_TURN
        try:
            for number, (key, value) in enumerate(section.members(request), 1):
                document.member(key, value)
                if number % every == 0:
                    yield 0.0
        except (Exception, SystemExit) as error:
            self._environment.events.emit(AppFault(f"the section {name}", error))

    def beat(self) -> "Beat":
        """A sign of life, with the state of the app and of its connection."""
        at = rfc3339(self._clock.wall())
        return {"type": "beat", "at": at, "app": self._sections.app(), "mqtt": self._sections.mqtt()}

    def health(self) -> "HealthDocument":
        """The health of the app."""
        now, wall = self._clock.monotonic(), self._clock.wall()
        at, about = rfc3339(wall), self.registry.about
        statuses = self._parts.statuses
        statuses.refresh(now)
        troubled = [name for name in statuses.troubled if statuses.words[name] not in WELL]
        link = self._parts.link
        well = link.up and link.last_error is None
        outbox = _check("component", link.outbox.messages, at, well=True)
        checks = {
            "mqtt:connection": _check("system", link.up, at, well=well, error=link.last_error),
            "outbox:messages": outbox | {"observedUnit": "messages"},
        }
        for name in islice(troubled, MAX_DEVICES):
            condition = condition_of(self._parts.records.entities[name], now, wall)
            checks[f"{name}:status"] = _check("component", condition.status, at, error=condition.error)
        for file, error in self._parts.state_files.items():
            checks[f"{clean(file)}:written"] = _check("datastore", False, at, error=error)
        notes = [f"{count_noun(len(troubled), 'device')} of {len(statuses.words)} in trouble"] if troubled else []
        fresh = statuses.is_fresh(now)
        if not fresh:
            notes.append("no device has fresh data")
        warned = any(check["status"] != "pass" for check in checks.values())
        return {
            "status": "fail" if not fresh else "warn" if warned else "pass",
            "version": clean(about.version),
            "releaseId": about.leadsman,
            "serviceId": about.client_id,
            "notes": notes,
            "checks": {name: [check] for name, check in checks.items()},
        }

    def measures(self) -> Measures:
        """The measures of the app."""
        return Measures(self.registry.about, self._parts, self._clock, self._environment.timers.origin)

    @property
    def ready(self) -> bool:
        """Whether the app polls its devices, and does not stop."""
        return self._parts.ready() and not self._environment.stopping.is_set()

    def forget(self, name: str) -> None:
        """A device that was found at run time has changed, or is gone."""
        self._sections.forget(name)

    # Requests about a device

    def poll(
        self, device: str, answer: Callable[[PollResult], None], request: Json = "", text: bytes | None = None
    ) -> None:
        """Poll a device now, and call `answer` with the result. `request` is a payload, decoded, and `text` what was
        sent; without it the request as JSON.

        Raises:
            UnknownDevice: no device of that name is polled.
            PayloadError: its handler does not take this payload.
            PollRefused: it cannot be polled now. The message explains why.
        """
        sent = encode(request) if text is None else text
        self._parts.poll(device, lambda result: answer(_poll_result(result)), request, sent)

    def hold(self, device: str, by: str) -> "HeldAnswer":
        """Poll a device no more, until somebody releases it. A poll under way runs to its end. `by` names the
        person.

        Raises:
            UnknownDevice: no device of that name is read.
            RequestRefused: it is held already, or it is a source.
        """
        runner = self._reader(device)
        if runner.execution.circuit.held:
            raise RequestRefused(f"{device} is held already")
        if not runner.hold():
            raise RequestRefused(f"{device} is a source, which cannot be held; isolate its circuit instead")
        self._environment.events.emit(DeviceHeld(device, by))
        return {"device": device, "held": True}

    def release(self, device: str, by: str) -> "HeldAnswer":
        """Poll a held device again, as if nothing had failed. `by` names the person.

        Raises:
            UnknownDevice: no device of that name is read.
            RequestRefused: it is not held.
        """
        if not self._reader(device).release(by):
            raise RequestRefused(f"{device} is not held")
        return {"device": device, "held": False}

    def circuit(self, device: str, action: str, by: str) -> "CircuitAnswer":
        """Do one of `leadsman.core.introspection.requests.ACTIONS` to the circuit of a device. `by` names the person.

        Raises:
            UnknownDevice: no device of that name is read.
        """
        execution = self._reader(device).execution
        self._environment.events.emit(CircuitRequested(device, action, by))
        {"isolate": execution.isolate, "close": execution.close, "disable": execution.disable}[action]()
        return {"device": device, "circuit": execution.snapshot().circuit}

    @property
    def _readers(self) -> Mapping[str, Reader]:
        return self._parts.runners.readers

    def _reader(self, device: str) -> Reader:
        runner = self._readers.get(device)
        if runner is None:
            raise UnknownDevice(f"there is no device {clean(device)!r} that is read; {hint(device, self._readers)}")
        return runner


def _members(document: DocumentWriter, section: str, names: Iterable[str], describe: Callable[[str], object]) -> Work:
    """Add a section with a member for each device, in slices."""
    document.begin(section, b"{}")
    for number, name in enumerate(names, 1):
        document.member(name, describe(name))
        if (
            number % DEVICES_PER_TURN == 0
        ):  # not between the choice of a name and its description: a device may leave meanwhile
            yield 0.0


def _poll_result(result: Reading | BaseException | None) -> PollResult:
    if isinstance(result, BaseException):
        return PollResult(None, explain(result))
    return PollResult(None if result is None else result.fields, None)
