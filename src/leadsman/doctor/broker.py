"""Collects facts at the broker, beside the running app.

Each step has a connection of its own, so that a broker that closes one does not spoil the others. What is published
goes below ``{prefix}/doctor/``, where only those see it who subscribe to everything; the app ignores it. The app's own
topics are only offered: a message of quality 2 that is never released, which the broker checks against its access list
and, once the connection has ended, forgets. A broker that would pass it on early is found out first, at a topic of the
doctor's own. See docs/adr/tools.md.
"""

import asyncio
import contextlib
import socket
import ssl
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from leadsman.doctor import steps
from leadsman.doctor.facts import BrokerFacts, ConnectFailure
from leadsman.doctor.subject import Subject
from leadsman.doctor.visit import NoAnswer, Visit, Visitor, visit_of
from leadsman.errors import BrokerError, ConnackMissing, ConnectionRefused, NotListening, TlsRefused
from leadsman.mqtt.connection_state import UNSUPPORTED_VERSION, V5, V311
from leadsman.text import describe
from leadsman.timing.clock import system_clock

STEP = 6.0
"""Seconds for one step."""
LONG_STEP = 10.0
"""Seconds for a step that waits for the broker's clock."""

NEIGHBOUR = 0.3
"""Seconds in which a broker that takes two clients for one closes the older connection."""

Say = Callable[[str], None]
"""Told what is examined at the moment."""
Step = Callable[[Visitor, Subject, BrokerFacts], Awaitable[dict[str, Any]]]
_QUICK: tuple[tuple[str, Step], ...] = (
    ("probe", steps.probe),
    ("access list", steps.offers),
    ("subscriptions", steps.subscriptions),
    ("size of messages", steps.size),
    ("takeover of the client id", steps.takeover),
    ("retained topics", steps.landscape),
)
_SLOW: tuple[tuple[str, Step], ...] = (("retained and expiry", steps.retained), ("will", steps.will))
"""They wait for the broker's clock, beside the others."""


class BrokerExamination:
    """Collects the facts of one broker. `facts` holds what is known so far.

    Args:
        subject: the app.
        say: takes the name of what is examined at the moment.
    """

    def __init__(self, subject: Subject, say: Say) -> None:
        self.facts = BrokerFacts()
        self._subject = subject
        self._say = say

    async def run(self) -> None:
        """Collect them. Takes about three seconds if all is well; never raises because of the broker."""
        visitor = await self._connect()
        if visitor is None or self.facts.mixed_up:  # each connection would end that of the running app
            return
        slow = [asyncio.create_task(self._step(name, step, visitor, LONG_STEP)) for name, step in _SLOW]
        try:
            for name, step in _QUICK:
                await self._step(name, step, visitor, STEP)
                if self.facts.hung is not None:
                    return
            await asyncio.gather(*slow)
        finally:
            for task in slow:
                task.cancel()
            await asyncio.gather(*slow, return_exceptions=True)

    async def _step(self, name: str, step: Step, visitor: Visitor, seconds: float) -> None:
        """One step: what it returns is added to the facts."""
        self._say(f"broker: {name}")
        found: dict[str, Any] = {}
        fault = None
        try:
            async with asyncio.timeout(seconds):
                found = await step(visitor, self._subject, self.facts)
        except (TimeoutError, ConnackMissing, NoAnswer) as error:
            fault = describe(error) if str(error) else f"no answer within {seconds:g} s"
            found = {"hung": name}
        except BrokerError as error:
            fault = describe(error)
        if fault is not None:
            found["faults"] = {**self.facts.faults, name: fault}
        self.facts = self.facts._replace(**found)

    async def _connect(self) -> Visitor | None:
        """Connect once, with the version of MQTT that the app would find out."""
        broker, clock = self._subject.broker, system_clock(asyncio.get_running_loop())
        client_id = f"{self._subject.client_id}-doctor-{uuid.uuid4().hex[:6]}"
        first: BrokerError | None = None
        for version in (broker.protocol, V311 if broker.protocol == V5 else V5):
            visitor = Visitor(broker, client_id, version, clock)
            self._say(f"broker: connecting to {broker} with MQTT {version}")
            try:
                async with visit_of(visitor, "hello") as visit:
                    self.facts = BrokerFacts(
                        visit.connection.connack,
                        version,
                        visit.connection.client,
                        old_protocol=None if first is None else describe(first),
                        mixed_up=await _mixed_up(visitor, visit),
                    )
                return visitor
            except BrokerError as error:
                first = first or error
                if not _other_version_may_do(error):
                    break
        assert first is not None  # nothing returned
        self.facts = self.facts._replace(failure=failure_of(first))
        return None


async def _mixed_up(visitor: Visitor, first: Visit) -> bool:
    """Whether a connection with another client id ends the first one."""
    with contextlib.suppress(BrokerError):
        async with visit_of(visitor, "other"):
            return await first.until(lambda: first.broken is not None, NEIGHBOUR)
    return False


def _other_version_may_do(error: BrokerError) -> bool:
    if isinstance(error, ConnectionRefused):
        return error.code == UNSUPPORTED_VERSION
    return isinstance(error, ConnackMissing)


def failure_of(error: BrokerError) -> ConnectFailure:
    """Why there is no connection, as a value."""
    text, cause = describe(error), error.__cause__
    match error:
        case ConnectionRefused():
            return ConnectFailure("refused", text, error.code)
        case TlsRefused():
            return ConnectFailure("tls", text)
        case ConnackMissing():
            return ConnectFailure("silent", text)
    if isinstance(cause, socket.gaierror):
        return ConnectFailure("name", error.without_hint())
    if isinstance(cause, ssl.SSLCertVerificationError):
        return ConnectFailure("clock", text)
    if isinstance(error, NotListening):  # for which the finding has advice
        text = error.without_hint()
    return ConnectFailure("tls" if isinstance(cause, ssl.SSLError) else "address", text)
