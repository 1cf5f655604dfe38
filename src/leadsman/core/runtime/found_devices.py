"""Devices that handlers find while the app runs: a gateway that hears a new sensor makes a device of it.

Such a device has the runner of a source, which is not run: the handler hands its readings over. Everything else is as
for any device. Its name may come from outside, so it is escaped, and the number of devices is bounded: a flood of names
costs a counter and a log line an hour, and nothing per name.

A device without a reading for the time that `Finds` sets is forgotten. It is looked for once a minute.
"""

import asyncio
import functools
import logging
import math
import threading
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from types import GenericAlias
from typing import TYPE_CHECKING, NamedTuple, Protocol

from leadsman.core.loop.durations import human
from leadsman.core.loop.threads import call_on
from leadsman.core.loop.timers import Timers
from leadsman.core.mqtt.topics import check_name, escaped_name
from leadsman.core.registration.finds import NO_TYPE, Finds, FoundType, found_type, from_json
from leadsman.core.registration.injection import Handler, name_of
from leadsman.core.registration.result import result_validator
from leadsman.core.registration.source import Source
from leadsman.core.registration.telemetry import Telemetry
from leadsman.core.resilience.backoff import DEFAULT_BACKOFF
from leadsman.core.resilience.environment import GuardSpec
from leadsman.core.resilience.policy import from_options
from leadsman.core.runtime.sources import SourceRunner
from leadsman.core.text import clean, count_noun, log_fields
from leadsman.errors import ConfigurationError, InvalidValue

if TYPE_CHECKING:
    from leadsman.core.runtime.document import Counted

FORGET_CHECK_INTERVAL = 60.0
"""Seconds between two looks for devices to forget."""
WARN = 3600.0
"""Seconds between two warnings about refused devices of one handler."""
SHOWN = 40
"""Characters of a name that a log line shows."""

logger = logging.getLogger("leadsman")


class Family:
    """The devices that one handler finds.

    Args:
        finds: what the handler may find.
        template: what its devices have in common.
    """

    __slots__ = ("finds", "names", "refused", "template", "unreported", "warned_at")

    def __init__(self, finds: Finds, template: Source) -> None:
        self.finds = finds
        self.template = template
        self.names: set[str] = set()
        self.refused = 0
        """Calls of `Context.device` for a device that there is not."""
        self.unreported = 0
        """Those of them since the last warning."""
        self.warned_at = -math.inf


def template_of(finder: Telemetry | Source, finds: Finds) -> Source:
    """The source that stands for the devices that a handler finds; each of them is this with its own name."""
    handler = annotated(name_of(finder.handler), finds.readings)
    return Source(
        name="",
        handler=handler,
        needs=(),
        guards=GuardSpec(from_options(backoff=DEFAULT_BACKOFF), None),
        publish=finder.publish,
        filters=finder.filters,
        delivery=finder.delivery,
        layout=finder.layout,
        stale_after=finder.stale_after if finds.stale_after is None else finds.stale_after,
        offline_on=finder.offline_on,
        silence=None,
        enabled=True,
        validate_result=None if finds.readings is None else result_validator(handler),
        found_by=finder.name,
        discoverable=finder.discoverable,
        fixed=finder.fixed,
        events=finder.events if isinstance(finder, Source) else None,
    )


@functools.lru_cache(maxsize=128)
def annotated(name: str, readings: object) -> Handler:
    """A handler under the name of the one that finds devices, whose annotation has the type of their readings. It is
    looked at, and never called: the readings are handed over by the one that finds the device. Devices of one type have
    one handler."""

    async def found() -> AsyncIterator[object]:
        yield None

    found.__name__ = found.__qualname__ = name
    kind = dict if readings is None else readings
    found.__annotations__ = {"return": GenericAlias(AsyncIterator, (kind,))}
    return found


class Names(NamedTuple):
    """Names already in use, which a found device must not have. Thread-safe."""

    registered: Collection[str]
    """The names of registered devices, and those that they had before."""
    identifiers: Collection[str] = ()
    """The identifiers by which discovery describes registered devices."""
    identify: Callable[[str], str] = str
    """What two devices must not share: the name, or the identifier of it."""


class Host(Protocol):
    """The app, in which devices come and go: its parts, which are in a room above this one. On the event loop."""

    def join(self, source: Source) -> SourceRunner:
        """Add a device to all parts of the app. Returns what takes its readings."""
        ...

    def change(self, source: Source) -> None:
        """Describe a device otherwise in all parts of the app."""
        ...

    def leave(self, name: str) -> None:
        """Remove a device from all parts of the app, and its topics from the broker."""
        ...

    def lose(self, name: str) -> None:
        """Remove a device from all parts of the app, since another node has it. Its topics stay."""
        ...


class FoundDevice:
    """A device that a handler has found; see `Context.device`. Its methods may be called from any thread. If the device
    was refused, or is forgotten, they change nothing."""

    __slots__ = ("_devices", "accepted", "name")

    def __init__(self, devices: "FoundDevices", name: str, *, accepted: bool) -> None:
        self.name = name
        """The name of the device in topics; empty if it was refused because of its name."""
        self.accepted = accepted
        """Whether there is such a device; False if it was refused."""
        self._devices = devices

    def publish(self, reading: object) -> None:
        """Publish a reading: a dict, a pydantic model or a dataclass; or None, which reports that the device is there
        and has nothing new. The publish rule of the handler decides whether it is published. A reading that cannot be
        published is reported as a failure of this device, and nothing is raised."""
        if self.accepted:
            self._devices.on_loop(self._devices.accept, self.name, reading)

    def unavailable(self, reason: str) -> None:
        """Mark the device as unavailable: it is ``offline`` until its next reading; see `Context.unavailable`."""
        if self.accepted:
            self._devices.on_loop(self._devices.goodbye, self.name, clean(reason))

    def forget(self) -> None:
        """Forget the device now: its topics are removed from the broker. A later `Context.device` makes it anew."""
        if self.accepted:
            self._devices.on_loop(self._devices.forget, self.name, "its handler asked for it")


class FoundDevices:
    """The devices that the handlers of one app have found. An alarm in the heap.

    Args:
        families: what each handler finds, by its name.
        host: the app.
        names: the names that are taken.
        timers: ring once a minute while there are devices.
        now: the monotonic clock.
        loop: the event loop of the app.
        adapt: applies the settings to a device. One that is not enabled is refused, and so is one for which it
            raises `ConfigurationError`. None: the settings have nothing.
    """

    def __init__(
        self,
        families: Mapping[str, Family],
        host: Host,
        names: Names,
        timers: Timers,
        now: Callable[[], float],
        loop: asyncio.AbstractEventLoop,
        adapt: Callable[[Source], Source] | None = None,
    ) -> None:
        self._adapt = adapt
        self.finders: dict[str, str] = {}
        """Who has found each device, by its name."""
        self._families = families
        self._host = host
        self._names = names
        self._timers = timers
        self._now = now
        self.on_loop = functools.partial(call_on, loop)
        """Calls a function on the event loop; see `call_on`."""
        self._lock = threading.Lock()
        self._identifiers: set[str] = set()
        """Those of the devices that were found."""
        self._types: dict[str, FoundType] = {}
        """The fields and the title of each device, as its handler has given them."""
        self._given: dict[str, tuple[object, str | None]] = {}
        """The fields and the title that were given last for each device, unless it was refused: most are given
        again."""
        self._runners: dict[str, SourceRunner] = {}
        self._since: dict[str, float] = {}
        """When each device was found, or was heard last before a restart: monotonic seconds."""
        self._armed = False

    def device(
        self,
        finder: str,
        name: str,
        fields: Mapping[str, object] | None = None,
        title: str | None = None,
    ) -> FoundDevice:
        """See `Context.device`. Raises `InvalidValue` if the handler may find none, or a field is invalid; so
        `InvalidType`."""
        family = self._families.get(finder)
        if family is None:
            raise InvalidValue(f"{finder!r} may find no devices; write finds=Finds(…) at its registration")
        if (
            "%" not in name and self.finders.get(name) == finder
        ):  # most calls: a name that needs no escape, and is known
            self._describe(name, fields, title)
            return FoundDevice(self, name, accepted=True)
        try:
            escaped = escaped_name(name)
        except InvalidValue as error:
            self._refuse(finder, family, name, str(error))
            return FoundDevice(self, "", accepted=False)
        found = found_type(fields, title)
        with self._lock:
            owner = self.finders.get(escaped)
            try:
                if owner is None and self._adapt is not None and not self._made(family, escaped, found).enabled:
                    family.refused += 1  # a person wants it so: no warning
                    return FoundDevice(self, escaped, accepted=False)
                reason = "" if owner == finder else self._reason(family, escaped, owner)
            except ConfigurationError as error:
                reason = str(error)
            if owner is None and not reason:
                self._types[escaped] = found
                self._given[escaped] = fields, title
                self._accept(family, finder, escaped)
        if owner == finder:
            self._describe(escaped, fields, title)
        if reason:
            self._refuse(finder, family, name, reason)
        elif owner is None:
            self.on_loop(self._join, escaped)
        return FoundDevice(self, escaped, accepted=not reason)

    def _describe(self, name: str, fields: Mapping[str, object] | None, title: str | None) -> None:
        """A handler has given the fields and the title of a device that it has."""
        if fields is None and title is None:
            return
        before = self._given.get(name, (None, None))
        if before[0] is fields and before[1] == title:
            return
        known, given = self._types.get(name, NO_TYPE), found_type(fields, title)
        self._given[name] = fields, title
        if (joined := known.union(given)) != known:
            self._types[name] = joined
            self.on_loop(self._change, name)

    def _change(self, name: str) -> None:
        """More is known of a device than before."""
        runner, family = self._runners.get(name), self._families.get(self.finders.get(name, ""))
        if runner is not None and family is not None:
            try:
                runner.source = self._made(family, name, self._types[name])
            except ConfigurationError as error:  # what is set does not fit the new type
                about = log_fields("device not described", name)
                logger.warning("%s: it is described as before: %s", name, error, extra=about)
                return
            self._host.change(runner.source)

    def _accept(self, family: Family, finder: str, name: str) -> None:
        self.finders[name] = finder
        family.names.add(name)
        self._identifiers.add(self._names.identify(name))

    def _reason(self, family: Family, name: str, owner: str | None) -> str:
        """Why a new device is refused; empty if it is not."""
        names, identifier = self._names, self._names.identify(name)
        taken = name in names.registered or identifier in names.identifiers
        if owner is not None or taken or identifier in self._identifiers:
            return "another device has that name; give it another one"
        if len(family.names) >= family.finds.most:
            most = count_noun(family.finds.most, "device")
            return f"it has {most}, which is the most that it may find; write a larger most in Finds, or filter them"
        return ""

    def _refuse(self, finder: str, family: Family, name: str, reason: str) -> None:
        with self._lock:
            family.refused += 1
            family.unreported += 1
            now = self._now()
            if now - family.warned_at < WARN:
                return
            unreported, family.unreported, family.warned_at = family.unreported, 0, now
        more = f" ({count_noun(unreported - 1, 'refusal')} before)" if unreported > 1 else ""
        about = log_fields("device refused", finder, refused=family.refused)
        logger.warning("%s: refused the device %s: %s%s", finder, _show(name), reason, more, extra=about)

    def kept(self, name: str) -> Mapping[str, object]:
        """The part of a device's document, which is kept over a restart, that shows how it was found; empty for one
        that no handler has found."""
        if name not in self.finders:
            return {}
        found = self._types.get(name, NO_TYPE)
        return {"found_by": self.finders[name], **({} if found == NO_TYPE else {"found_type": found.to_json()})}

    def restore(self, name: str, kept: Mapping[str, object], silence: float) -> bool:
        """Take a device of an earlier run, which was heard `silence` seconds before the end of that. Returns whether
        there is such a device now."""
        finder = str(kept["found_by"])
        family, found = self._families.get(finder), from_json(kept["found_type"]) if "found_type" in kept else NO_TYPE
        if found is None:
            return False
        try:
            if family is None or check_name(name) in self.finders or self._reason(family, name, None):
                return False
            made = self._made(family, name, found)
            if not made.enabled:
                return False
        except ConfigurationError:
            return False
        if family.finds.forget_after is not None and silence >= family.finds.forget_after:
            return False
        self._types[name] = found
        self._accept(family, finder, name)
        self._since[name] = self._now() - silence
        self._runners[name] = self._host.join(made)
        self._arm()
        return True

    def _made(self, family: Family, name: str, found: FoundType) -> Source:
        """The device of this name, as the settings have it."""
        device = family.template._replace(name=name)
        if found.fields:
            device = device._replace(handler=annotated(name_of(device.handler), found.readings), validate_result=None)
        if found.title is not None:
            device = device._replace(title=found.title)
        return device if self._adapt is None else self._adapt(device)

    def _join(self, name: str) -> None:
        finder = self.finders.get(name)
        if finder is None or name in self._runners:
            return
        self._since[name] = self._now()
        self._runners[name] = self._host.join(self._made(self._families[finder], name, self._types.get(name, NO_TYPE)))
        logger.info("%s: found by %s", name, finder, extra=log_fields("device found", name, by=finder))
        self._arm()

    def accept(self, name: str, reading: object) -> None:
        """A reading of a device. One whose circuit a person isolated is left alone."""
        runner = self._runners.get(name)
        if runner is not None and runner.execution.snapshot().circuit != "isolated":
            runner.accept(reading)

    def goodbye(self, name: str, reason: str) -> None:
        """Mark a device as unavailable."""
        if name in self._runners:
            self._runners[name].leave(reason)

    def forget(self, name: str, why: str) -> None:
        """Forget a device."""
        if name not in self._since:
            return
        joined = self._runners.pop(name, None) is not None
        del self._since[name]
        with self._lock:
            finder = self.finders.pop(name)
            self._families[finder].names.discard(name)
            self._identifiers.discard(self._names.identify(name))
            self._forget_type(name)
        logger.info("%s: forgotten: %s", name, why, extra=log_fields("device forgotten", name, by=finder))
        if joined:
            self._host.leave(name)

    def _forget_type(self, name: str) -> None:
        self._types.pop(name, None)
        self._given.pop(name, None)

    def let_go(self, finder: str) -> None:
        """Another node of a cluster calls the handler that has found devices: it finds them again there."""
        if finder not in self._families:
            return
        for name in [name for name, by in self.finders.items() if by == finder]:
            with self._lock:
                del self.finders[name]
                self._families[finder].names.discard(name)
                self._identifiers.discard(self._names.identify(name))
                self._forget_type(name)
            self._since.pop(name, None)
            if self._runners.pop(name, None) is not None:
                self._host.lose(name)

    def count(self, finder: str, document: "Counted") -> None:
        """Add the counts of a handler that finds devices to its document; none of another one."""
        if (family := self._families.get(finder)) is not None:
            document["found"], document["refused"] = len(family.names), family.refused

    def ring(self, now: float) -> None:
        """Forget the devices that were silent for too long."""
        self._armed = False
        for name, since in list(self._since.items()):
            limit = self._families[self.finders[name]].finds.forget_after
            runner = self._runners.get(name)
            heard = since if runner is None else max(since, runner.heard_at)
            if limit is not None and now - heard >= limit:
                self.forget(name, f"it gave no reading for {human(limit)}")
        self._arm()

    def _arm(self) -> None:
        if self._since and not self._armed:
            self._armed = True
            self._timers.add(self._now() + FORGET_CHECK_INTERVAL, self)


def _show(name: str) -> str:
    """A name from outside, for the log."""
    return clean(repr(name if len(name) <= SHOWN else f"{name[:SHOWN]}…"))
