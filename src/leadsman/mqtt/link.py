"""The link: keeps one connection to the broker and sends the outbox through it.

At most `WINDOW` messages are in flight, one per topic. Publishing is a call and the acknowledgement a callback, so no
handler
waits, and no message needs a task. After a broken connection only a few messages are sent at a time, and then one.
That finds
the topic on which the broker closes the connection, if there is one (`leadsman.mqtt.suspects`). Such a topic pauses,
and all
others continue.
"""

import asyncio
import random
from collections.abc import Callable
from typing import NamedTuple

from leadsman.errors import BrokerError, ConnackMissing, ConnectionRefused, TlsRefused
from leadsman.event_bus import EventBus
from leadsman.events import (
    LinkDown,
    LinkSettled,
    LinkUp,
    MessageDropped,
    MessageRefused,
)
from leadsman.mqtt import session as machine
from leadsman.mqtt.connection import Connect, Connection, Connector, Received
from leadsman.mqtt.diagnosis import CLOSES, PASSING, clash
from leadsman.mqtt.message import Message
from leadsman.mqtt.outbox import Dropped, Outbox
from leadsman.mqtt.retiming import is_off, retimed
from leadsman.mqtt.session import V5, ConnectionState
from leadsman.mqtt.subscriptions import Subscriptions
from leadsman.mqtt.suspects import QUIET, Blame, Suspects
from leadsman.text import clean
from leadsman.timing.clock import Clock

WINDOW = 20
"""Messages in flight: 13 times the throughput of one at a time, and more gains little."""
PUBACK_TIMEOUT = 10.0
"""Seconds without the acknowledgement of a message after which the connection is dropped."""
REST = (1.0, 60.0)
"""Seconds: the first and the longest rest of a topic whose message was refused."""
REST_DOUBTFUL = 8.0
"""Seconds of longest rest for a topic on which only connections broke that had not settled: the network may flap."""
REST_EACH = 10.0
"""Seconds of longest rest for each topic that breaks the connection, so that many of them break it no more often."""
POISON = 3
"""Connections that may break on one message, while others arrive, before it is given up."""


class ClientIdentity(NamedTuple):
    """Who connects: the client id, the topic of the will, the will of a session (its number given), and the MQTT version
    to try first."""

    client_id: str
    will_topic: str
    will: Callable[[int], bytes]
    protocol: str = V5


class _End(NamedTuple):
    """Why a connection ended, and `wait` seconds until the next one; the topic that it broke on."""

    reason: str
    wait: float
    topic: str | None = None


class Link:
    """Keeps the connection until it is cancelled. `put` may be called at any time, connected or not."""

    def __init__(
        self, identity: ClientIdentity, connect: Connector, outbox: Outbox, clock: Clock, events: EventBus
    ) -> None:
        self.outbox = outbox
        self.subscriptions = Subscriptions(clock, events)
        self.session = ConnectionState(identity.protocol, identity.protocol)
        self.number = 0
        """Milliseconds of the latest CONNECT: births and wills of one session carry the same."""
        self.connects = 0
        """Connections made since the start."""
        self._error: str | None = None
        self._faults: dict[str, str] = {}
        self._identity = identity
        self._connect = connect
        self._clock = clock
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._connection: Connection | None = None
        self._lost: asyncio.Future[tuple[str, int]] = self._loop.create_future()
        self._sent: dict[int, tuple[str, float]] = {}
        self._retained: dict[str, Message] = {}
        self._rests: dict[str, float] = {}
        self._suspects = Suspects()
        self._quiet: asyncio.TimerHandle | None = None
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

    @property
    def last_error(self) -> str | None:
        """What is wrong with the connection, a subscription, or a topic whose messages the broker does not take."""
        if self._error is not None or self.subscriptions.error is not None:
            return self._error or self.subscriptions.error
        outbox = self.outbox
        return next((why for topic, why in self._faults.items() if topic in outbox or outbox.rests(topic)), None)

    def put(self, message: Message) -> None:
        """Send `message` as soon as possible. Returns at once. Messages that are dropped to make room are reported
        as an event."""
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
                end = await self._live()
            except Exception:  # a fault of ours; whoever runs the link tells it, and runs it again
                if self._connection is not None:
                    self._end(self._connection)
                raise
            self._error = None if end.topic is not None else end.reason
            self._events.emit(LinkDown(end.reason, end.wait, machine.clashes(self.session), end.topic))
            await asyncio.sleep(end.wait)

    async def flush(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds until the broker has all that it takes. Whether it has everything."""
        if self._connection is None or self.outbox.only_resting:
            return self.outbox.messages == 0
        self._empty = self._loop.create_future()
        await asyncio.wait({self._empty}, timeout=timeout)
        return self.outbox.messages == 0

    async def close(self) -> None:
        """Say goodbye. `run` must have been cancelled."""
        connection, self._connection = self._connection, None
        for handle in (self._check, self._resume, self._subscribing, self._settling, self._quiet):
            if handle is not None:
                handle.cancel()
        if connection is not None:
            await connection.close()

    async def _live(self) -> _End:
        """One connection, from CONNECT to its end."""
        now, draw = self._clock.monotonic, random.random
        self.number = max(self.number + 1, round(self._clock.wall() * 1000))
        will = self._identity.will(self.number)
        greeting = Connect(self._identity.client_id, self.session.protocol, self._identity.will_topic, will)
        self._lost = self._loop.create_future()
        try:
            connection = await self._connect(greeting, self)
        except ConnectionRefused as error:
            self.session, wait = machine.refused(self.session, error.code, now(), draw())
            return _End(self._reason(error), wait)
        except TlsRefused as error:
            self.session, wait = machine.by_hand(self.session, draw())
            return _End(self._reason(error), wait)
        except BrokerError as error:
            self.session, wait = machine.failed(self.session, now(), draw(), mute=isinstance(error, ConnackMissing))
            return _End(self._reason(error), wait)
        self.session = machine.connected(self.session, now())
        if machine.doubtful(self.session):
            self.session = machine.doubted(self.session)
            await connection.close()
            return await self._live()
        delivered = self.outbox.delivered
        self._begin(connection)
        reason, code = await self._lost
        subscribing = self.subscriptions.broke()
        flying, blame = self._end(connection, code)
        if code == machine.SESSION_TAKEN_OVER:
            self.session, wait = machine.taken_over(self.session, now(), draw())
        elif flying or blame is not None or subscribing or code:
            useful = self.outbox.delivered > delivered and not subscribing
            self.session, wait = machine.interrupted(self.session, now(), draw(), useful=useful)
        else:
            self.session, wait = machine.failed(self.session, now(), draw())
        return self._explained(clean(reason), code, wait, blame)

    def _reason(self, error: BrokerError) -> str:
        """What is said of an attempt that failed; a URL that has worked is not guessed at."""
        text = str(error)
        return clean(text.removesuffix(error.hint) if self.connects else text)

    def _explained(self, reason: str, code: int, wait: float, blame: Blame | None) -> _End:
        """Why the connection ended, as far as it is known."""
        if machine.clashes(self.session):
            return _End(clash(self._identity.client_id, certain=code == machine.SESSION_TAKEN_OVER), wait)
        if blame is not None and self._proven(blame):
            return _End(self._faults[blame.topic], wait, blame.topic)
        return _End(reason, wait)

    def _begin(self, connection: Connection) -> None:
        self.connects += 1
        if machine.clashes(self.session):
            self._settling = self._loop.call_later(machine.SETTLED, self._settled)
        else:
            self._error = None
        self._connection = connection
        self._events.emit(LinkUp(self.number, self.session.protocol))
        for topic, message in self._retained.items():  # a broker that was restarted may have lost them
            if topic not in self.outbox and not self._suspects.is_blamed(topic):
                self.outbox.put(message)
        self._pump()
        if self.subscriptions.listeners:
            self._subscribing = self._loop.create_task(self._subscribe(connection))

    def _settled(self) -> None:
        """The connection holds; nobody else takes it over any more."""
        self._error = None
        self._events.emit(LinkSettled())

    async def _subscribe(self, connection: Connection) -> None:
        try:
            await self.subscriptions.subscribe(connection)
        except BrokerError as error:
            if self._connection is connection:  # else it is lost already, and the next one subscribes again
                self.lost(str(error))
        else:
            self._pump()

    def _end(self, connection: Connection, code: int = 0) -> tuple[list[str], Blame | None]:
        """Clear up. Returns the topics that were in flight, and the one to blame if that is known."""
        connection.abort()
        self._connection = None
        self._sent.clear()
        for handle in (self._subscribing, self._settling, self._check, self._quiet):
            if handle is not None:
                handle.cancel()
        self._check = self._quiet = None
        flying = self.outbox.lost()
        if code in machine.NO_MESSAGE:
            self._suspects.acquit()
            return flying, None
        blame = self._suspects.broke(flying, self.outbox.delivered, self._clock.monotonic())
        if blame is not None:
            self._blame(blame, in_flight=blame.topic in flying)
        return flying, blame

    def _blame(self, blame: Blame, *, in_flight: bool) -> None:
        """The connection broke on a message of this topic. The first time may be chance; after it the topic rests."""
        topic = blame.topic
        if not self._proven(blame):
            self.outbox.defer(topic)
            return
        self._retained.pop(topic, None)
        self._faults[topic] = f"the broker does not take messages of {topic!r}: {CLOSES}"
        if not self.outbox.rests(topic):
            lived = self._clock.monotonic() - (self.session.connected_at or 0.0)
            settled = blame.refused or lived >= machine.SETTLED
            self._rest(topic, CLOSES, REST[1] if settled else REST_DOUBTFUL)
        if in_flight and blame.breaks >= POISON and self.outbox.delivered > blame.delivered:
            self._suspects.pardon(topic)
            self.outbox.discard(topic)
            self._tell([Dropped(topic, 1, f"the connection broke {POISON} times on it")])

    def _proven(self, blame: Blame) -> bool:
        return blame.refused or blame.breaks > 1

    def _rest(self, topic: str, reason: str, longest: float = REST[1]) -> None:
        """Keep `topic` back, twice as long as the last time."""
        others = REST_EACH * (self._suspects.blamed - 1)
        rest = min(self._rests.get(topic, REST[0] / 2) * 2, max(longest, others))
        self._rests[topic] = rest
        self.outbox.rest(topic, self._clock.monotonic() + rest)
        self._events.emit(MessageRefused(topic, reason, rest))

    def _pump(self) -> None:
        """Fill the window."""
        self._pump_due = False
        connection, outbox, suspects = self._connection, self.outbox, self._suspects
        if connection is None or self.subscriptions.first:
            return
        largest = connection.terms.maximum_packet_size
        now, offset = self._clock.monotonic(), self._clock.offset()
        if self._rests:
            self._wake_rested(now)
        window = suspects.window(min(WINDOW, connection.terms.receive_maximum))
        while outbox.in_flight < window:
            message, expired = outbox.take(now)
            if expired:
                self._tell(expired)
            if message is None:
                if not outbox.in_flight:
                    suspects.untested.clear()  # what was left of them is expired, or had to make room
                break
            if largest is not None and message.size + 20 > largest:
                outbox.drop(message.topic)
                self._tell([Dropped(message.topic, 1, f"larger than the broker's limit of {largest} bytes")])
                continue
            if suspects.alone and message.topic in suspects.alone:
                if outbox.in_flight > 1:
                    outbox.back(message.topic)
                    break
                suspects.solo, window = message.topic, 0
            if not message.qos:
                message = suspects.certain(message, now)
            if is_off(message, offset):
                message = retimed(message, offset)
            try:
                packet_id = connection.publish(message)
            except BrokerError as error:
                self.lost(str(error))
                return
            self._sent[packet_id] = (message.topic, now)
        if self._sent and self._check is None:
            self._check = self._loop.call_later(PUBACK_TIMEOUT, self._check_acknowledgements)

    def acknowledged(self, packet_id: int, code: int) -> None:
        """See `ConnectionListener`."""
        sent = self._sent.pop(packet_id, None)
        if sent is None:
            return
        topic = sent[0]
        if code < 0x80:
            self._accepted(topic)
        else:
            self._refused(topic, code)
        if topic == self._suspects.solo:
            self._quiet = self._loop.call_later(QUIET, self._survived, topic)
        elif not self._pump_due:
            self._pump_due = True
            self._loop.call_soon(self._pump)

    def _accepted(self, topic: str) -> None:
        message = self.outbox.accept(topic)
        self._suspects.acknowledged(topic, self._clock.monotonic())
        if message.retain and not message.latest:
            self._retained[topic] = message
        if self._faults and not self._suspects.is_blamed(topic):
            self._forgive(topic)
        if self._empty is not None:
            self._flushed()

    def _flushed(self) -> None:
        """Whoever waits in `flush` need not wait for topics that rest."""
        if self._empty is not None and self.outbox.only_resting and not self._empty.done():
            self._empty.set_result(None)

    def _survived(self, topic: str) -> None:
        """The connection outlived a message that went alone."""
        self._quiet = None
        if self._suspects.survived(topic):
            if not self.outbox.rests(topic):
                self._forgive(topic)
            self.outbox.wake_next()  # what was wrong with this topic may have been wrong with the next one too
        self._pump()

    def _forgive(self, topic: str) -> None:
        self._rests.pop(topic, None)
        self._faults.pop(topic, None)

    def _refused(self, topic: str, code: int) -> None:
        self._faults[topic] = f"the broker refused a message of {topic!r} (0x{code:02x})"
        self._suspects.refused(topic, self._clock.monotonic())
        if code in PASSING:
            self._rest(topic, f"{PASSING[code]} (0x{code:02x})")
        else:
            self.outbox.drop(topic)
            self._tell([Dropped(topic, 1, f"refused for good by the broker (0x{code:02x})")])
        if self._empty is not None:
            self._flushed()

    def _wake_rested(self, now: float) -> None:
        due = self.outbox.wake(now)
        if due is not None:
            if self._resume is not None:
                self._resume.cancel()
            self._resume = self._loop.call_at(due, self._pump)

    def lost(self, reason: str, code: int = 0) -> None:
        """See `ConnectionListener`."""
        if not self._lost.done():
            self._lost.set_result((reason, code))

    def received(self, message: Received) -> None:
        """See `ConnectionListener`."""
        self.subscriptions.received(message)

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
        for topic, count, reason in dropped:
            self._events.emit(MessageDropped(topic, reason, count))
