"""The whole examination: all collectors at once, each bounded in time. Those of the machine, its serial ports, its
Bluetooth radios and the servers are here; they change nothing. Functions that are not asynchronous block. Only this
file imports dbus-fast, which comes with bleak."""

import asyncio
import contextlib
import ctypes
import functools
import inspect
import os
import platform
import shutil
import socket
import stat
import time
import warnings
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import cast, get_args
from urllib.parse import urlsplit

from leadsman._version import __version__
from leadsman.adapters.serial.port import BY_ID, stable_name
from leadsman.core.adapters.resource import CalendarSearch, Resource, ResourceKind
from leadsman.core.extension_tools import CheckResult, Verdict
from leadsman.core.loop.durations import human
from leadsman.core.loop.host_zone import host_zone
from leadsman.core.mqtt.transport import in_thread
from leadsman.core.text import clean, describe
from leadsman.errors import InvalidValue, LeadsmanError
from leadsman.tools.doctor.broker import BrokerExamination, ReportProgress
from leadsman.tools.doctor.facts import (
    BluetoothFacts,
    DiskFacts,
    Facts,
    MachineFacts,
    SerialFacts,
    ServerFacts,
    StateFacts,
)
from leadsman.tools.doctor.subject import OwnCheck, Subject

DEADLINE = 16.0
"""Seconds for everything. What was seen by then counts, and the rest is cancelled."""
CLEARING = 3.5
"""Seconds in which what is cancelled removes what it left at the broker. Code that ignores a cancellation, such as that
of an adapter, is left behind."""
LOGIN_TIMEOUT = 8.0
"""Seconds to log in at one server."""
OWN_CHECK_TIMEOUT = 8.0
"""Seconds for one check of an extension. A plain one that takes longer is left behind in its thread."""
COMPARING = 7.0
"""Seconds to compare the searches of one calendar server."""


class Examination:
    """Collects all facts about one subject. `facts` holds what is known so far, and `left_behind` is whether a
    collector ignored its cancellation.

    Args:
        subject: what is examined.
        report: called with what is examined at the moment.
    """

    def __init__(self, subject: Subject, report: ReportProgress) -> None:
        self.facts = Facts(subject)
        self.left_behind = False
        self._subject = subject
        self._report = report
        self._broker = BrokerExamination(subject, report)

    async def run(self) -> Facts:
        """Collect them. Never raises because of what it finds."""
        collectors: dict[str, Callable[[], Awaitable[None]]] = {
            "machine": self._machine,
            "serial ports": self._serial,
            "Bluetooth": self._bluetooth,
            "calendars": functools.partial(self._servers, "calendars"),
            "servers": functools.partial(self._servers, "http"),
            "buses": functools.partial(self._servers, "i2c", "onewire"),
            "checks of extensions": self._own_checks,
            "broker": self._broker.run,
        }
        tasks = {asyncio.create_task(self._collect(name, call)): name for name, call in collectors.items()}
        try:
            _, pending = await asyncio.wait(tasks, timeout=DEADLINE)
        finally:
            for task in tasks:
                task.cancel()
            _, alive = await asyncio.wait(tasks, timeout=CLEARING)
            self.left_behind = bool(alive)
        for task in pending:
            self._give_up(tasks[task], f"not done after {human(DEADLINE)}")
        return self.facts._replace(broker=self._broker.facts)

    async def _collect(self, name: str, call: Callable[[], Awaitable[None]]) -> None:
        try:
            await call()
        except Exception as error:  # a fault of this collector; the others go on
            self._give_up(name, f"{type(error).__name__}: {describe(error)}")

    def _give_up(self, name: str, why: str) -> None:
        self.facts = self.facts._replace(unfinished={**self.facts.unfinished, name: why})

    def _resources(self, kind: ResourceKind) -> list[Resource]:
        found = [each for each in self._subject.resources if each.kind == kind]
        if found:
            self._report(f"{kind}: {', '.join(each.name for each in found if each.name) or 'any adapter'}")
        return found

    async def _machine(self) -> None:
        self._report("machine")
        found = await in_thread(functools.partial(look_at_machine, self._subject.state))
        self.facts = self.facts._replace(machine=found)

    async def _serial(self) -> None:
        names = dict.fromkeys(each.name for each in self._resources("serial"))
        found = await asyncio.gather(*(in_thread(functools.partial(look_at_port, name)) for name in names))
        self.facts = self.facts._replace(serial=tuple(found))

    async def _bluetooth(self) -> None:
        names = dict.fromkeys(each.name for each in self._resources("bluetooth"))
        found = await asyncio.gather(*(look_at_radios(name) for name in names))
        self.facts = self.facts._replace(bluetooth=tuple(found))

    async def _servers(self, *kinds: ResourceKind) -> None:
        asked = [_asked(each, each.log_in) for kind in kinds for each in self._resources(kind) if each.log_in]
        found = await asyncio.gather(*asked)
        self.facts = self.facts._replace(servers=(*self.facts.servers, *found))

    async def _own_checks(self) -> None:
        checks = self._subject.own_checks
        if checks:
            self._report(f"extensions: {', '.join(dict.fromkeys(each.extension for each in checks))}")
        found = await asyncio.gather(*map(_results_of, checks))
        own = {(each.extension, each.name): results for each, results in zip(checks, found, strict=True)}
        self.facts = self.facts._replace(own_checks=own)


async def _results_of(check: OwnCheck) -> tuple[CheckResult, ...]:
    """What a check of an extension has found; one that raises, does not end or gives something else has failed."""

    def failed(text: str, advice: str = "correct it") -> tuple[CheckResult, ...]:
        where = f"in {check.name!r} of the extension {check.extension!r}"
        return (CheckResult("fail", f"the check {text}", f"{where}, {advice}"),)

    limit = asyncio.timeout(OWN_CHECK_TIMEOUT)
    try:
        async with limit:
            results = await _called(check)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever code of others raises, an exit of the process too
        if limit.expired():
            return failed(f"did not end within {OWN_CHECK_TIMEOUT:g} s")
        if isinstance(error, asyncio.CancelledError) and (task := asyncio.current_task()) and task.cancelling():
            raise
        return failed(f"raised {type(error).__name__}: {describe(error)}")
    for each in results:
        if not isinstance(each, CheckResult):
            return failed(f"gave {each!r}", _WANTED)
        if each.verdict not in get_args(Verdict):
            one = ", ".join(map(repr, get_args(Verdict)))
            return failed(f"gave a result whose verdict is {each.verdict!r}", f"write one of {one}")
        texts: dict[str, object] = {"text": each.text, "advice": each.advice}
        for name, text in texts.items():
            if not isinstance(text, str):
                return failed(f"gave a result whose {name} is {text!r}", "write a text")
    return tuple(cast("list[CheckResult]", results))


_WANTED = "let it give a CheckResult such as CheckResult('ok', 'each has a limit'), or a list of them"


async def _called(check: OwnCheck) -> list[object]:
    if inspect.iscoroutinefunction(check.function):
        return _several(await cast("Awaitable[object]", check.function(check.plan)))
    return await in_thread(lambda: _several(check.function(check.plan)))


def _several(given: object) -> list[object]:
    """What a check gave, one result or several."""
    one = isinstance(given, CheckResult | str) or not isinstance(given, Iterable)
    return [given] if one else list(cast("Iterable[object]", given))


async def _asked(resource: Resource, log_in: Callable[[], Awaitable[object]]) -> ServerFacts:
    """Log in at a server, and compare the searches of one for calendars. This changes nothing there."""
    fault = await _fault_of(resource, log_in)
    if fault is not None or resource.compare is None:
        return ServerFacts(resource, fault)
    searches, stopped = list[CalendarSearch](), None
    try:
        async with asyncio.timeout(COMPARING), contextlib.aclosing(resource.compare()) as compared:
            async for each in compared:
                searches.append(each)
    except TimeoutError:
        stopped = f"comparing took longer than {COMPARING:g} s"
    except Exception as error:  # whatever the adapter's library raises
        stopped = describe(error)
    return ServerFacts(resource, None, tuple(searches), stopped)


async def _fault_of(resource: Resource, log_in: Callable[[], Awaitable[object]]) -> str | None:
    """Why logging in failed; None if it did not."""
    try:
        async with asyncio.timeout(LOGIN_TIMEOUT):
            await log_in()
    except TimeoutError as error:
        named = isinstance(error, LeadsmanError)
        return describe(error) if named else f"{resource.name} did not answer within {LOGIN_TIMEOUT:g} s"
    except Exception as error:  # see above
        return describe(error)
    return None


_UNSYNCHRONISED = 5
"""TIME_ERROR of adjtimex(2)."""
_TIMEX = 512
"""Bytes, more than ``struct timex`` has on any machine."""


def look_at_machine(state: Path | None) -> MachineFacts:
    """Look at the machine.

    Args:
        state: the state directory; None if nothing is kept there.
    """
    zone, fault = _zone()
    return MachineFacts(
        platform.python_version(),
        __version__,
        time.time(),
        zone,
        fault,
        _synchronised(),
        _disks([Path.cwd()] if state is None else [_existing(state), Path.cwd()]),
        None if state is None else state_of(state),
    )


def state_of(path: Path) -> StateFacts:
    """Look at the state directory."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return StateFacts(path, False, os.access(_existing(path), os.W_OK | os.X_OK))
    except OSError:
        return StateFacts(path, True, False)
    return StateFacts(path, True, path.is_dir() and os.access(path, os.W_OK | os.X_OK), mode)


def _existing(path: Path) -> Path:
    """The directory, or the nearest one above it that exists."""
    return next((each for each in (path, *path.parents) if each.is_dir()), Path("/"))


def _disks(paths: list[Path]) -> tuple[DiskFacts, ...]:
    """The file systems of these paths, each once."""
    found: dict[int, DiskFacts] = {}
    for path in paths:
        try:
            found.setdefault(path.stat().st_dev, DiskFacts(path, shutil.disk_usage(path).free))
        except OSError:
            continue
    return tuple(found.values())


def _zone() -> tuple[str | None, str | None]:
    if "TZ" in os.environ:
        try:
            return str(host_zone()), None
        except InvalidValue as error:
            return None, describe(error)
    from tzlocal import get_localzone_name

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            name = get_localzone_name()
    except Exception as error:  # a file or a variable that names no zone
        return None, describe(error)
    return (name, None) if name else (None, "the system names no time zone")


def _synchronised() -> bool | None:
    """Whether the kernel's clock is synchronised; None where the kernel has no answer."""
    try:
        status = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX))
    except (OSError, AttributeError):
        return None
    return None if status < 0 else status != _UNSYNCHRONISED


def look_at_port(url: str, processes: Path = Path("/proc")) -> SerialFacts:
    """Look at a port.

    Args:
        url: a path, or the URL of a gateway.
        processes: where the kernel lists processes.
    """
    if "://" in url:
        return _gateway(url)
    try:
        found = os.stat(url)
    except OSError:
        present = sorted(str(each) for each in BY_ID.iterdir()) if BY_ID.is_dir() else []
        return SerialFacts(url, exists=False, present=tuple(present))
    return SerialFacts(
        url,
        device=stat.S_ISCHR(found.st_mode),
        allowed=os.access(url, os.R_OK | os.W_OK),
        group=_group(found.st_gid),
        member=found.st_gid in (*os.getgroups(), os.getegid()),
        stable=stable_name(url),
        holders=holders(os.path.realpath(url), processes),
    )


def holders(path: str, processes: Path) -> tuple[str, ...]:
    """The programs that have a file open, as far as this user may see: ``python3 (1234)``."""
    found = []
    for process in processes.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int(process.name) != os.getpid() and _holds(process, path):
                found.append(f"{clean((process / 'comm').read_text().strip())} ({process.name})")
    return tuple(sorted(found))


def _holds(process: Path, path: str) -> bool:
    for each in (process / "fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            if os.readlink(each) == path:
                return True
    return False


def _group(number: int) -> str:
    import grp  # not on Windows

    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


def _gateway(url: str) -> SerialFacts:
    try:
        parts = urlsplit(url)
        socket.getaddrinfo(parts.hostname, parts.port, type=socket.SOCK_STREAM)
    except ValueError as error:  # a port or a name that cannot be one
        return SerialFacts(url, fault=describe(error))
    except OSError as error:
        return SerialFacts(url, fault=error.strerror or describe(error))
    return SerialFacts(url)


_ADAPTER = "org.bluez.Adapter1"


async def look_at_radios(wanted: str, rfkill: Path = Path("/sys/class/rfkill")) -> BluetoothFacts:
    """Ask BlueZ for its adapters.

    Args:
        wanted: the name of the adapter that the app uses; empty for any.
        rfkill: where the kernel lists its switches.
    """
    blocked = switch(rfkill)
    try:
        from dbus_fast import BusType, Message, MessageType
        from dbus_fast.aio import MessageBus
    except ImportError as error:
        return BluetoothFacts(wanted, {}, f"D-Bus cannot be asked: {error.name} is not installed", blocked)
    try:
        bus = await MessageBus(bus_type=BusType.SYSTEM).connect()
    except Exception as error:  # no socket, or nobody behind it
        return BluetoothFacts(wanted, {}, f"D-Bus does not answer: {describe(error)}", blocked)
    try:
        request = Message(
            destination="org.bluez",
            path="/",
            interface="org.freedesktop.DBus.ObjectManager",
            member="GetManagedObjects",
        )
        reply = await bus.call(request)
    finally:
        bus.disconnect()
    if reply.message_type is MessageType.ERROR:
        return BluetoothFacts(wanted, {}, f"BlueZ does not answer: {reply.error_name}", blocked)
    adapters = {
        str(path).rpartition("/")[2]: bool(interfaces[_ADAPTER]["Powered"].value)
        for path, interfaces in reply.body[0].items()
        if _ADAPTER in interfaces
    }
    return BluetoothFacts(wanted, adapters, None, blocked)


def switch(rfkill: Path) -> str | None:
    """``hard`` or ``soft`` if every Bluetooth radio is blocked, else None."""
    found = []
    for each in sorted(rfkill.glob("rfkill*")):
        with contextlib.suppress(OSError):
            if (each / "type").read_text().strip() == "bluetooth":
                states = {kind: (each / kind).read_text().strip() == "1" for kind in ("hard", "soft")}
                found.append(next((kind for kind, on in states.items() if on), None))
    return found[0] if found and None not in found else None
