"""The link: keeps one connection to the broker and drains the outbox through it.

At most `WINDOW` messages are in flight, one per topic. Publishing is a call and the acknowledgement a callback, so nobody
waits: not the handler, not a task per message. After a broken connection a single message is tried until one is
acknowledged; that finds the message the broker dies of, if there is one.
"""

import asyncio
import random
from collections.abc import Callable
from typing import NamedTuple

from leadsman.clock import Clock
from leadsman.errors import BrokerError, ConnackMissing, ConnectionRefused, SubscriptionRefused
from leadsman.events import (
    AppFault,
    Events,
    LinkDown,
    LinkSettled,
    LinkUp,
    MessageDropped,
    MessageRefused,
    SubscriptionFailed,
)
from leadsman.mqtt import session as machine
from leadsman.mqtt.connection import Connect, Connection, Greeting, Received
from leadsman.mqtt.message import Message
from leadsman.mqtt.outbox import Dropped, Outbox
from leadsman.mqtt.session import V5, Session
from leadsman.mqtt.topics import topic_matches
from leadsman.wording import clean

WINDOW = 20
"""Messages in flight: 13 times the throughput of one at a time, and more gains little."""
PUBACK_TIMEOUT = 10.0
"""Seconds without the acknowledgement of a message after which the connection is dropped."""
REST = (1.0, 60.0)
"""Seconds: the first and the longest rest of a topic whose message was refused."""
POISON = 3
"""Connections that may break on one message, while others arrive, before it is given up."""
_PASSING = frozenset({0x80, 0x83, 0x87, 0x91, 0x97})
"""PUBACK reason codes that may pass: unspecified, implementation specific, not authorized, packet identifier in use,
quota exceeded (MQTT 5 §3.4.2.1). The others (0x90 topic name invalid, 0x99 payload format invalid, …) are for good."""


class Identity(NamedTuple):
    """Who connects: the client id, the topic of the will, the will of a session (its number given), and the MQTT version
    to try first."""

    client_id: str
    will_topic: str
    will: Callable[[int], bytes]
    protocol: str = V5


class _Suspect(NamedTuple):
    breaks: int
    delivered: int


class Link:
    """Runs until cancelled; `put` may be called at any time, connected or not."""

    def __init__(self, identity: Identity, connect: Connect, outbox: Outbox, clock: Clock, events: Events) -> None:
        self.outbox = outbox
        self.listeners: dict[str, Callable[[Received], None]] = {}
        """Topic filters to subscribe to on every connection, and who takes what comes. Fill it before `run`."""
        self.session = Session(identity.protocol)
        self.number = 0
        """Milliseconds of the latest CONNECT: births and wills of one session carry the same."""
        self.connects = 0
        """Connections made since the start."""
        self.last_error: str | None = None
        self._identity = identity
        self._connect = connect
        self._clock = clock
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._connection: Connection | None = None
        self._lost: asyncio.Future[str] = self._loop.create_future()
        self._sent: dict[int, tuple[str, float]] = {}
        self._retained: dict[str, Message] = {}
        self._rests: dict[str, float] = {}
        self._suspects: dict[str, _Suspect] = {}
        self._probing = False
        self._pump_due = False
        self._check: asyncio.TimerHandle | None = None
        self._resume: asyncio.TimerHandle | None = None
        self._empty: asyncio.Future[None] | None = None
        self._subscribing: asyncio.Task[None] | None = None
        self._settling: asyncio.TimerHandle | None = None

    @property
    def up(self) -> bool:
        """Whether there is a connection."""
        return self._connection is not None

    def put(self, message: Message) -> None:
        """Send `message` as soon as it can be. Returns at once; what had to go for it is told as an event."""
        dropped = self.outbox.put(message)
        if dropped:
            self._tell(dropped)
        if not self._pump_due and self._connection is not None:
            self._pump_due = True
            self._loop.call_soon(self._pump)

    async def run(self) -> None:
        """Connect, wait for the end of the connection, and connect again."""
        while True:
            try:
                reason, wait = await self._live()
            except Exception:  # a fault of ours; whoever runs the link tells it, and runs it again
                if self._connection is not None:
                    self._end(self._connection)
                raise
            self.last_error = reason
            self._events.emit(
                LinkDown(self._clock.monotonic(), self._clock.wall(), reason, wait, machine.clashes(self.session))
            )
            await asyncio.sleep(wait)

    async def flush(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds until the broker has everything. Whether it has."""
        if self._connection is None or self.outbox.messages == 0:
            return self.outbox.messages == 0
        self._empty = self._loop.create_future()
        await asyncio.wait({self._empty}, timeout=timeout)
        return self.outbox.messages == 0

    async def close(self) -> None:
        """Say goodbye. `run` must have been cancelled."""
        connection, self._connection = self._connection, None
        for handle in (self._check, self._resume, self._subscribing, self._settling):
            if handle is not None:
                handle.cancel()
        if connection is not None:
            await connection.close()

    async def _live(self) -> tuple[str, float]:
        """One connection, from CONNECT to its end. Returns why it ended, and how long to wait."""
        now, draw = self._clock.monotonic, random.random
        self.number = max(self.number + 1, round(self._clock.wall() * 1000))
        will = self._identity.will(self.number)
        greeting = Greeting(self._identity.client_id, self.session.protocol, self._identity.will_topic, will)
        self._lost = self._loop.create_future()
        try:
            connection = await self._connect(greeting, self)
        except ConnectionRefused as error:
            self.session, wait = machine.refused(self.session, error.code, now(), draw())
            return clean(str(error)), wait
        except BrokerError as error:
            self.session, wait = machine.failed(self.session, now(), draw(), mute=isinstance(error, ConnackMissing))
            return clean(str(error)), wait
        self.session = machine.connected(self.session, now())
        self._begin(connection)
        reason = await self._lost
        self._end(connection)
        self.session, wait = machine.failed(self.session, now(), draw())
        if machine.clashes(self.session):
            reason = (
                f"connections end within seconds: another client uses the client id {self._identity.client_id!r}; "
                "stop it, or give this one App(…, instance='two', prefix=…)"
            )
        return clean(reason), wait

    def _begin(self, connection: Connection) -> None:
        self._probing = self.connects > 0 and self.outbox.messages > 0
        self.connects += 1
        if machine.clashes(self.session):
            self._settling = self._loop.call_later(machine.SETTLED, self._settled)
        else:
            self.last_error = None
        self._connection = connection
        self._events.emit(LinkUp(self._clock.monotonic(), self._clock.wall(), self.number, self.session.protocol))
        for topic, message in self._retained.items():  # a broker that was restarted may have lost them
            if topic not in self.outbox and topic not in self._suspects:
                self.outbox.put(message)
        self._pump()
        if self.listeners:
            self._subscribing = self._loop.create_task(self._subscribe(connection))

    def _settled(self) -> None:
        """The connection holds; nobody else takes it over any more."""
        self.last_error = None
        self._events.emit(LinkSettled(self._clock.monotonic(), self._clock.wall()))

    async def _subscribe(self, connection: Connection) -> None:
        """Subscribe to everything; a filter that the broker refuses is told and leaves the others alone."""
        for topic_filter in self.listeners:
            try:
                await connection.subscribe(topic_filter)
            except SubscriptionRefused as error:
                self.last_error = clean(str(error))
                now, wall = self._clock.monotonic(), self._clock.wall()
                self._events.emit(SubscriptionFailed(now, wall, topic_filter, self.last_error))
            except BrokerError as error:
                if self._connection is connection:  # else it is lost already, and the next one subscribes again
                    self.lost(str(error))
                return

    def _end(self, connection: Connection) -> None:
        connection.abort()
        self._connection = None
        self._sent.clear()
        for handle in (self._subscribing, self._settling):
            if handle is not None:
                handle.cancel()
        if self._check is not None:
            self._check.cancel()
            self._check = None
        alone = self.outbox.in_flight == 1
        for topic in self.outbox.lost(defer=alone):
            if alone:
                self._suspect(topic)

    def _suspect(self, topic: str) -> None:
        """The connection broke with one message in flight. Three times, while others arrive, and it is the message."""
        suspect = self._suspects.get(topic, _Suspect(0, self.outbox.delivered))
        suspect = suspect._replace(breaks=suspect.breaks + 1)
        self._suspects[topic] = suspect
        if suspect.breaks >= POISON and self.outbox.delivered > suspect.delivered:
            del self._suspects[topic]
            self._retained.pop(topic, None)
            self.outbox.discard(topic)
            self._tell([Dropped(topic, 1, f"the connection broke {POISON} times on it")])

    def _pump(self) -> None:
        """Fill the window."""
        self._pump_due = False
        connection, outbox = self._connection, self.outbox
        if connection is None:
            return
        window = 1 if self._probing else min(WINDOW, connection.terms.receive_maximum)
        largest = connection.terms.maximum_packet_size
        now = self._clock.monotonic()
        if self._rests:
            self._wake_rested(now)
        while outbox.in_flight < window:
            message, expired = outbox.take(now)
            if expired:
                self._tell(expired)
            if message is None:
                break
            if largest is not None and message.size + 20 > largest:
                outbox.drop(message.topic)
                self._tell([Dropped(message.topic, 1, f"larger than the broker's limit of {largest} bytes")])
                continue
            try:
                packet_id = connection.publish(message)
            except BrokerError as error:
                self.lost(str(error))
                return
            self._sent[packet_id] = (message.topic, now)
        if self._sent and self._check is None:
            self._check = self._loop.call_later(PUBACK_TIMEOUT, self._check_acknowledgements)

    def acknowledged(self, packet_id: int, code: int) -> None:
        """See `Hooks`."""
        sent = self._sent.pop(packet_id, None)
        if sent is None:
            return
        topic = sent[0]
        if code < 0x80:
            message = self.outbox.accept(topic)
            self._probing = False
            if message.retain and not message.latest:
                self._retained[topic] = message
            if self._rests or self._suspects:
                self._rests.pop(topic, None)
                self._suspects.pop(topic, None)
            if self._empty is not None and self.outbox.messages == 0 and not self._empty.done():
                self._empty.set_result(None)
        else:
            self._refused(topic, code)
        if not self._pump_due:
            self._pump_due = True
            self._loop.call_soon(self._pump)

    def _refused(self, topic: str, code: int) -> None:
        now, wall = self._clock.monotonic(), self._clock.wall()
        self.last_error = f"the broker refused a message of {topic!r} (0x{code:02x})"
        if code not in _PASSING:
            self.outbox.drop(topic)
            self._tell([Dropped(topic, 1, f"refused for good by the broker (0x{code:02x})")])
            return
        rest = min(self._rests.get(topic, REST[0] / 2) * 2, REST[1])
        self._rests[topic] = rest
        self.outbox.rest(topic, now + rest)
        self._events.emit(MessageRefused(now, wall, topic, f"0x{code:02x}", rest))

    def _wake_rested(self, now: float) -> None:
        due = self.outbox.wake(now)
        if due is not None:
            if self._resume is not None:
                self._resume.cancel()
            self._resume = self._loop.call_at(due, self._pump)

    def lost(self, reason: str) -> None:
        """See `Hooks`."""
        if not self._lost.done():
            self._lost.set_result(reason)

    def received(self, message: Received) -> None:
        """See `Hooks`."""
        for topic_filter, listener in self.listeners.items():
            if topic_matches(topic_filter, message.topic):
                try:
                    listener(message)
                except Exception as error:  # a fault of ours; the message is lost, and the connection is not
                    now, wall = self._clock.monotonic(), self._clock.wall()
                    self._events.emit(AppFault(now, wall, f"receiving {clean(message.topic)}", error))
                return

    def _check_acknowledgements(self) -> None:
        self._check = None
        if not self._sent:
            return
        now = self._clock.monotonic()
        oldest = min(at for _, at in self._sent.values())
        if now - oldest >= PUBACK_TIMEOUT:
            self.lost(f"no acknowledgement within {PUBACK_TIMEOUT:g} s")
        else:
            self._check = self._loop.call_at(oldest + PUBACK_TIMEOUT, self._check_acknowledgements)

    def _tell(self, dropped: list[Dropped]) -> None:
        now, wall = self._clock.monotonic(), self._clock.wall()
        for topic, count, reason in dropped:
            self._events.emit(MessageDropped(now, wall, topic, reason, count))
