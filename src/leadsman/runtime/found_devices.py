"""Devices that handlers find while the app runs: a gateway that hears a new sensor makes a device of it.

Such a device has the runner of a source, which is not run: the handler hands its readings over. Everything else is as
for any device. Its name may come from outside, so it is escaped, and the number of devices is bounded: a flood of names
costs a counter and a log line an hour, and nothing per name.

A device without a reading for the time that `Finds` says is forgotten. It is looked for once a minute.
"""

import asyncio
import logging
import math
import threading
from collections.abc import Callable, Mapping
from typing import Protocol

from leadsman.errors import ConfigurationError, InvalidValue
from leadsman.mqtt.topics import check_name, escaped_name
from leadsman.reading import JsonObject
from leadsman.registration.finds import Finds
from leadsman.registration.source import Source
from leadsman.runtime.sources import SourceRunner
from leadsman.text import clean, counted, log_fields
from leadsman.timing.durations import human
from leadsman.timing.timers import Timers

LOOK = 60.0
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

    __slots__ = ("finds", "names", "refused", "template", "unsaid", "warned_at")

    def __init__(self, finds: Finds, template: Source) -> None:
        self.finds = finds
        self.template = template
        self.names: set[str] = set()
        self.refused = 0
        """Calls of `Context.device` for a device that there is not."""
        self.unsaid = 0
        """Those of them since the last warning."""
        self.warned_at = -math.inf


class Host(Protocol):
    """The app, in which devices come and go. On the event loop."""

    def is_taken(self, name: str) -> bool:
        """Whether a device that is registered has a name, or its identifier. From any thread."""
        ...

    def identify(self, name: str) -> str:
        """What two devices must not share: the name, or the identifier of it. From any thread."""
        ...

    def join(self, source: Source) -> SourceRunner:
        """Add a device to all parts of the app. Returns what takes its readings."""
        ...

    def leave(self, name: str) -> None:
        """Remove a device from all parts of the app, and its topics from the broker."""
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
        """Hand over a reading: a dict, a pydantic model or a dataclass; or None, which says that the device is there
        and has nothing new. The publish rule of the handler decides whether it is published. A reading that cannot be
        published is reported as a failure of this device, and nothing is raised."""
        if self.accepted:
            self._devices.on_loop(self._devices.take, self.name, reading)

    def unavailable(self, reason: str) -> None:
        """Say that the device has said goodbye: it is ``offline`` until its next reading; see `Context.unavailable`."""
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
        timers: ring once a minute while there are devices.
        now: the monotonic clock.
        loop: the event loop of the app.
    """

    def __init__(
        self,
        families: Mapping[str, Family],
        host: Host,
        timers: Timers,
        now: Callable[[], float],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.finders: dict[str, str] = {}
        """Who has found each device, by its name."""
        self._families = families
        self._host = host
        self._timers = timers
        self._now = now
        self._loop = loop
        self._lock = threading.Lock()
        self._identifiers: set[str] = set()
        """Those of the devices that were found."""
        self._runners: dict[str, SourceRunner] = {}
        self._since: dict[str, float] = {}
        """When each device was found, or was heard last before a restart: monotonic seconds."""
        self._armed = False

    def device(self, finder: str, name: str) -> FoundDevice:
        """See `Context.device`. Raises `InvalidValue` if the handler may find none."""
        family = self._families.get(finder)
        if family is None:
            raise InvalidValue(f"{finder!r} may find no devices; write finds=Finds(…) at its registration")
        if (
            "%" not in name and self.finders.get(name) == finder
        ):  # most calls: a name that needs no escape, and is known
            return FoundDevice(self, name, accepted=True)
        try:
            escaped = escaped_name(name)
        except InvalidValue as error:
            self._refuse(finder, family, name, str(error))
            return FoundDevice(self, "", accepted=False)
        with self._lock:
            owner = self.finders.get(escaped)
            reason = "" if owner == finder else self._reason(family, escaped, owner)
            if owner is None and not reason:
                self._accept(family, finder, escaped)
        if reason:
            self._refuse(finder, family, name, reason)
        elif owner is None:
            self.on_loop(self._join, escaped)
        return FoundDevice(self, escaped, accepted=not reason)

    def _accept(self, family: Family, finder: str, name: str) -> None:
        self.finders[name] = finder
        family.names.add(name)
        self._identifiers.add(self._host.identify(name))

    def _reason(self, family: Family, name: str, owner: str | None) -> str:
        """Why a new device is refused; empty if it is not."""
        if owner is not None or self._host.is_taken(name) or self._host.identify(name) in self._identifiers:
            return "another device has that name; give it another one"
        if len(family.names) >= family.finds.most:
            most = counted(family.finds.most, "device")
            return f"it has {most}, which is the most that it may find; write a larger most in Finds, or filter them"
        return ""

    def _refuse(self, finder: str, family: Family, name: str, reason: str) -> None:
        with self._lock:
            family.refused += 1
            family.unsaid += 1
            now = self._now()
            if now - family.warned_at < WARN:
                return
            unsaid, family.unsaid, family.warned_at = family.unsaid, 0, now
        more = f" ({counted(unsaid - 1, 'refusal')} before)" if unsaid > 1 else ""
        about = log_fields("device refused", finder, refused=family.refused)
        logger.warning("%s: refused the device %s: %s%s", finder, _shown(name), reason, more, extra=about)

    def on_loop(self, function: Callable[..., None], *arguments: object) -> None:
        """Call a function on the event loop: now, or soon if this is another thread."""
        try:
            if asyncio.get_running_loop() is self._loop:
                function(*arguments)
                return
        except RuntimeError:  # a thread without a loop
            pass
        self._loop.call_soon_threadsafe(function, *arguments)

    def restore(self, name: str, finder: str, silence: float) -> bool:
        """Take a device of an earlier run, which was heard `silence` seconds before the end of that. Returns whether
        there is such a device now."""
        family = self._families.get(finder)
        try:
            if family is None or check_name(name) in self.finders or self._reason(family, name, None):
                return False
        except ConfigurationError:
            return False
        if family.finds.forget_after is not None and silence >= family.finds.forget_after:
            return False
        self._accept(family, finder, name)
        self._since[name] = self._now() - silence
        self._runners[name] = self._host.join(family.template._replace(name=name))
        self._arm()
        return True

    def _join(self, name: str) -> None:
        finder = self.finders.get(name)
        if finder is None or name in self._runners:
            return
        self._since[name] = self._now()
        self._runners[name] = self._host.join(self._families[finder].template._replace(name=name))
        logger.info("%s: found by %s", name, finder, extra=log_fields("device found", name, by=finder))
        self._arm()

    def take(self, name: str, reading: object) -> None:
        """A reading of a device. One whose circuit a person isolated is left alone."""
        runner = self._runners.get(name)
        if runner is not None and runner.execution.snapshot().circuit != "isolated":
            runner.take(reading)

    def goodbye(self, name: str, reason: str) -> None:
        """A device has said goodbye."""
        if name in self._runners:
            self._runners[name].leave(reason)

    def forget(self, name: str, why: str) -> None:
        """Forget a device."""
        if self._runners.pop(name, None) is None:
            return
        del self._since[name]
        with self._lock:
            finder = self.finders.pop(name)
            self._families[finder].names.discard(name)
            self._identifiers.discard(self._host.identify(name))
        logger.info("%s: forgotten: %s", name, why, extra=log_fields("device forgotten", name, by=finder))
        self._host.leave(name)

    def counters(self, finder: str) -> JsonObject:
        """What is counted of a handler that finds devices; empty for another one."""
        family = self._families.get(finder)
        return {} if family is None else {"found": len(family.names), "refused": family.refused}

    def ring(self, now: float) -> None:
        """Forget the devices that were silent for too long."""
        self._armed = False
        for name, since in list(self._since.items()):
            limit = self._families[self.finders[name]].finds.forget_after
            heard = max(since, self._runners[name].heard_at)
            if limit is not None and now - heard >= limit:
                self.forget(name, f"it gave no reading for {human(limit)}")
        self._arm()

    def _arm(self) -> None:
        if self._runners and not self._armed:
            self._armed = True
            self._timers.add(self._now() + LOOK, self)


def _shown(name: str) -> str:
    """A name from outside, for the log."""
    return clean(repr(name if len(name) <= SHOWN else f"{name[:SHOWN]}…"))
