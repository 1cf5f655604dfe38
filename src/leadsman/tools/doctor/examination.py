"""The whole examination: all collectors at once, each bounded in time."""

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable

from leadsman.adapters.adapter import CalendarSearch, Resource, ResourceKind
from leadsman.errors import LeadsmanError
from leadsman.loop.durations import human
from leadsman.mqtt.transport import in_thread
from leadsman.text import describe
from leadsman.tools.doctor.broker import BrokerExamination, Say
from leadsman.tools.doctor.facts import CalendarFacts, Facts, ServerFacts
from leadsman.tools.doctor.machine import look_at_machine, look_at_port, look_at_radios
from leadsman.tools.doctor.subject import Subject

DEADLINE = 16.0
"""Seconds for everything. What was seen by then counts, and the rest is cancelled."""
CLEARING = 3.5
"""Seconds in which what is cancelled removes what it left at the broker. Code that ignores a cancellation, such as that
of an adapter, is left behind."""
PATIENCE = 8.0
"""Seconds to log in at one server."""
COMPARING = 7.0
"""Seconds to compare the searches of one calendar server."""


class Examination:
    """Collects all facts about one subject. `facts` holds what is known so far, and `left_behind` says whether a
    collector ignored its cancellation.

    Args:
        subject: what is examined.
        say: called with what is examined at the moment.
    """

    def __init__(self, subject: Subject, say: Say) -> None:
        self.facts = Facts(subject)
        self.left_behind = False
        self._subject = subject
        self._say = say
        self._broker = BrokerExamination(subject, say)

    async def run(self) -> Facts:
        """Collect them. Never raises because of what it finds."""
        collectors: dict[str, Callable[[], Awaitable[None]]] = {
            "machine": self._machine,
            "serial ports": self._serial,
            "Bluetooth": self._bluetooth,
            "calendars": self._calendars,
            "servers": self._servers,
            "buses": self._buses,
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
            self._say(f"{kind}: {', '.join(each.name for each in found if each.name) or 'any adapter'}")
        return found

    async def _machine(self) -> None:
        self._say("machine")
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

    async def _calendars(self) -> None:
        found = await asyncio.gather(*(_calendars_of(each) for each in self._resources("calendars")))
        self.facts = self.facts._replace(calendars=tuple(found))

    async def _servers(self) -> None:
        found = await _looked_at(self._resources("http"))
        self.facts = self.facts._replace(servers=found)

    async def _buses(self) -> None:
        found = await _looked_at([*self._resources("i2c"), *self._resources("onewire")])
        self.facts = self.facts._replace(buses=found)


async def _looked_at(resources: list[Resource]) -> tuple[ServerFacts, ...]:
    asked = [each for each in resources if each.log_in is not None]
    return tuple(map(ServerFacts, asked, await asyncio.gather(*map(_fault_of, asked))))


async def _fault_of(resource: Resource) -> str | None:
    """Log in at a server. Returns why that failed. This changes nothing there."""
    try:
        async with asyncio.timeout(PATIENCE):
            if resource.log_in is not None:
                await resource.log_in()
    except TimeoutError as error:
        named = isinstance(error, LeadsmanError)
        return describe(error) if named else f"{resource.name} did not answer within {PATIENCE:g} s"
    except Exception as error:  # whatever the adapter's library raises
        return describe(error)
    return None


async def _calendars_of(resource: Resource) -> CalendarFacts:
    """Log in at a calendar server, and compare its searches. This changes nothing there."""
    if (fault := await _fault_of(resource)) is not None:
        return CalendarFacts(resource, fault)
    searches, stopped = list[CalendarSearch](), None
    try:
        async with asyncio.timeout(COMPARING):
            if resource.compare is not None:
                async with contextlib.aclosing(resource.compare()) as compared:
                    async for each in compared:
                        searches.append(each)
    except TimeoutError:
        stopped = f"comparing took longer than {COMPARING:g} s"
    except Exception as error:  # see above
        stopped = describe(error)
    return CalendarFacts(resource, None, tuple(searches), stopped)
