"""The link: keeps one connection to a broker, renews it when it breaks, and sends the outbox through it. Of several
brokers it uses the one that works; see `leadsman.core.mqtt.broker_choice`."""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from leadsman.core.event_bus import EventBus
from leadsman.core.events import (
    AppFault,
    LinkDown,
    LinkSettled,
    LinkUp,
    MessageRepeated,
    PrefixShared,
    SubscriptionFailed,
)
from leadsman.core.loop.clock import Clock
from leadsman.core.mqtt import broker_choice, connection_state, transport
from leadsman.core.mqtt.broker import Broker, Brokers
from leadsman.core.mqtt.broker_choice import Ended
from leadsman.core.mqtt.broker_session import Arrival, BrokerSession
from leadsman.core.mqtt.connection import Connect, Connection, Connector, Received
from leadsman.core.mqtt.connection_state import V5
from leadsman.core.mqtt.diagnosis import client_id_in_use, subscription, without_will
from leadsman.core.mqtt.message import Message
from leadsman.core.mqtt.outbox import Outbox
from leadsman.core.mqtt.send_window import BATCH, SILENCE_REASON, SendWindow
from leadsman.core.mqtt.suspects import Broken
from leadsman.core.mqtt.topic_faults import TopicFault
from leadsman.core.mqtt.topics import topic_matches
from leadsman.core.observers import Observers
from leadsman.core.text import clean
from leadsman.errors import (
    BrokerError,
    ConnectionRefused,
    NotListening,
    SubscriptionRefused,
    two_parts,
)

# The subscriptions of the link, which it renews on every connection, and the callbacks for their messages.
#
# A broker refuses a subscription with a reason code, or by closing the connection. In the second case, the next
# connections subscribe before they send any message. When two of them break, the filter that was requested is left out
# for a while.

BREAKS = 2
"""Connections that break on a filter with no message in flight before it is left out."""
LEFT_OUT_FOR = 600.0
"""Seconds that a filter is left out on which the broker closes the connection."""


Listener = Callable[[Received], None]
"""Takes a message. What it raises is reported, and costs no connection."""


class Subscriptions:
    """Topic filters with their listeners; see `Link.listen`."""

    def __init__(self, clock: Clock, events: EventBus) -> None:
        self.listeners: dict[str, tuple[Listener, ...]] = {}
        """The listeners of each filter, in the order in which they were added."""
        self.first = False
        """Whether nothing may be sent before the broker has answered all subscriptions."""
        self.unasked = False
        """True until every SUBSCRIBE of a new connection has been sent. Brokers process the packets of a client in
        order, so nobody can react to a later publish before the app is subscribed."""
        self.urgent: list[str] = []
        """Filters that are subscribed to before the others, in this order, if they have listeners. Each part of the app
        may add some."""
        self.answered: Observers[[str]] = Observers("the answer to a subscription", events.emit)
        """Called with each filter when the broker has taken or refused it, or when it was left out."""
        self.error: str | None = None
        """The fault of one of the subscriptions, or None."""
        self.acknowledged: dict[str, float] = {}
        """When the broker took each subscription of this connection, monotonic seconds."""
        self._clock = clock
        self._events = events
        self._pending: dict[str, None] = {}
        self._breaks: dict[str, int] = {}
        self._left_out: dict[str, float] = {}

    async def subscribe(
        self, connection: Connection, on_asked: Callable[[], object], unwanted: Sequence[str] = ()
    ) -> None:
        """Subscribe to all filters, and end the subscriptions to `unwanted` ones first: a message must not come for
        both. A filter that the broker refuses is reported, and does not affect the others. `on_asked` is called when
        the broker was asked for all of them.

        They are asked for together: one after the other would take a round trip each, in which commands are lost. After
        a connection that broke meanwhile, they are asked for one after the other, which finds the one to blame.

        Raises:
            BrokerError: the connection broke, or an unwanted subscription may go on.
        """
        self.error = None
        self.acknowledged.clear()
        urgent = [each for each in self.urgent if each in self.listeners]
        filters = tuple(dict.fromkeys((*urgent, *self.listeners)))
        if self.first:
            for each in unwanted:
                await connection.unsubscribe(each)
            await self.add(connection, filters)
        else:
            tasks = [asyncio.ensure_future(connection.unsubscribe(each)) for each in unwanted]
            tasks += [asyncio.ensure_future(self._add(connection, each)) for each in filters]
            try:
                await asyncio.sleep(0)  # each of them writes its SUBSCRIBE, in this order
                self.unasked = False
                on_asked()
                await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()
        self.first = self.unasked = False

    async def add(self, connection: Connection, filters: Sequence[str]) -> None:
        """Subscribe to these filters, too, one after the other; see `subscribe`."""
        for topic_filter in filters:
            await self._add(connection, topic_filter)

    async def _add(self, connection: Connection, topic_filter: str) -> None:
        if self._clock.monotonic() < self._left_out.get(topic_filter, 0.0):
            self.error = subscription(topic_filter)
            self.answered(topic_filter)
            return
        self._pending[topic_filter] = None
        try:
            await connection.subscribe(topic_filter)
            self.acknowledged[topic_filter] = self._clock.monotonic()
        except SubscriptionRefused as error:
            self._failed(topic_filter, clean(str(error)))
        except BrokerError:  # no answer in time: the broker hangs, and not because of this filter
            self._pending.clear()
            raise
        self._pending.pop(topic_filter, None)
        self._breaks.pop(topic_filter, None)
        self.answered(topic_filter)

    def listen(self, topic_filter: str, listener: Listener) -> None:
        """Pass the messages of a filter to one more listener."""
        self.listeners[topic_filter] = (*self.listeners.get(topic_filter, ()), listener)

    def ignore(self, topic_filter: str, listener: Listener) -> bool:
        """Pass them no more to this listener. Returns whether the filter has others."""
        others = tuple(each for each in self.listeners.pop(topic_filter, ()) if each != listener)
        if others:
            self.listeners[topic_filter] = others
        return bool(others)

    def broke(self) -> bool:
        """The connection ended. Returns whether a subscription was unanswered then, so that it may be to blame."""
        pending = next(iter(self._pending), None)
        self._pending.clear()
        if pending is None:
            return False
        self._breaks[pending] = self._breaks.get(pending, 0) + self.first
        if self._breaks[pending] >= BREAKS:
            self._left_out[pending] = self._clock.monotonic() + LEFT_OUT_FOR
            self._failed(pending, subscription(pending))
        self.first = True
        return True

    def received(self, message: Received) -> None:
        """Pass a message to the listeners of the first filter that it matches."""
        for topic_filter, listeners in self.listeners.items():
            if topic_matches(topic_filter, message.topic):
                for listener in listeners:
                    try:
                        listener(message)
                    except KeyboardInterrupt:
                        raise
                    except BaseException as error:  # it loses the message, and the connection is kept
                        self._events.emit(AppFault(f"receiving {clean(message.topic)}", error))
                return

    def _failed(self, topic_filter: str, reason: str) -> None:
        self.error = reason
        self._events.emit(SubscriptionFailed(topic_filter, reason))


BACK = "the primary can be reached again"
"""The reason for leaving a replacement."""
DOUBTED = "only silence had led to MQTT 3.1.1"
"""The reason for leaving a connection of MQTT 3.1.1, to try MQTT 5 once."""
RECORD = 1.0
"""Seconds for the disk to take the record of the subscriptions before the app subscribes without it."""
GOODBYE_TO_FROZEN = 0.02
"""Seconds for DISCONNECT to a broker that acknowledges nothing: enough to hand it to the socket."""


class ClientIdentity(NamedTuple):
    """The client id, the topic of the will, the will of a session (its number given), and the name of the node in a
    cluster."""

    client_id: str
    will_topic: str
    will: Callable[[int], bytes]
    node: str | None = None
    takes_turns: bool = False
    """Whether other processes connect with this client id in turns, and take the session over from each other, with
    what waits in it."""


class SubscriptionRecord(Protocol):
    """Remembers, over a restart of the process, to which topic filters it may be subscribed at each broker. A
    part of the app does so, which no connection knows."""

    known: Mapping[str, Collection[str]]
    """The filters, or more, by the address of the broker; without an address nothing is known of it."""

    async def forget(self, broker: str) -> None:
        """Know nothing of a broker any more. Returns when the next process will not either."""
        ...

    def keep(self, broker: str, filters: Collection[str]) -> None:
        """Remember the filters at a broker."""
        ...


class _Lost(NamedTuple):
    """Why a connection is unusable; see `ConnectionListener.lost`."""

    reason: str
    code: int = 0


class Link:
    """Keeps the connection until it is cancelled. `put` may be called at any time, connected or not."""

    def __init__(
        self, identity: ClientIdentity, access: "Access", outbox: Outbox, clock: Clock, events: EventBus
    ) -> None:
        self.outbox = outbox
        self.subscriptions = Subscriptions(clock, events)
        self.choice = broker_choice.first(access.brokers)
        self.session = self.choice.session
        """The state of the connection to the current broker."""
        self.number = 0
        """Milliseconds of the latest CONNECT: births and wills of one session carry the same."""
        self.connects = 0
        """Connections made since the start."""
        self.refusal: int | None = None
        """The reason code with which the broker refused the last attempt to connect (MQTT 5 §3.2.2.2); else None."""
        self.not_listening: str | None = None
        """The address at which nothing listened at the last attempt to connect; else None."""
        self.client: str | None = None
        """The library of the latest connection; None before the first one."""
        self._holds: set[str] = set()
        self._record: SubscriptionRecord | None = None
        self._writer: str | None = None
        """The module that writes readings to disk."""
        self._conflicts: dict[str, str] = {}
        self._sessions: dict[str, BrokerSession] = {}
        self._kept = BrokerSession()
        """What the broker of the connection keeps of us."""
        self._window = SendWindow(outbox, clock, events, self.lost, self._must_wait)
        self.acknowledged = self._window.acknowledged
        """See `ConnectionListener`."""
        self._error: str | None = None
        self._refusals: set[str] = set()
        """The reasons since other things happened for which a host refused at once; each is an event once."""
        self._last: Broker | None = None
        self._moved = False
        self._identity = identity
        self._connector = access.connector
        self._reach = access.reach
        self._clock = clock
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._lost: asyncio.Future[_Lost] = self._loop.create_future()
        self._subscribing: asyncio.Task[None] | None = None
        self._returning: asyncio.Task[None] | None = None
        self._doubting: asyncio.TimerHandle | None = None
        self._settling: asyncio.TimerHandle | None = None

    @property
    def up(self) -> bool:
        """Whether there is a connection."""
        return self._window.connection is not None

    @property
    def resumed(self) -> bool:
        """Whether the broker of the connection still has the session of the last one, and that was made there, too."""
        connection = self._window.connection
        return connection is not None and connection.connack.session_present and not self._moved

    @property
    def breaks(self) -> int:
        """Connections that ended, since the start."""
        return self.connects - self.up

    @property
    def broker(self) -> Broker:
        """The broker of the connection; without one, the broker that is tried next."""
        return self.choice.broker

    @property
    def maximum_packet_size(self) -> int | None:
        """Bytes of the largest packet that the broker takes, as it has announced or as was learned; None without a
        connection, or if no limit is known."""
        return self._window.largest

    @property
    def conflict(self) -> str | None:
        """Which other app publishes below our prefix, and what to do; None if none does. Of several, the one that was
        found first."""
        return next(iter(self._conflicts.values()), None)

    @property
    def last_error(self) -> str | None:
        """The fault of the connection, the prefix, a subscription, a topic whose messages the broker does not take or
        were lost lately, or the will."""
        return self._error or self.conflict or self.subscriptions.error or self._window.pauses.fault or self._no_will

    def _must_wait(self) -> bool:
        return bool(self._holds) or self.subscriptions.first or self.subscriptions.unasked

    @property
    def _no_will(self) -> str | None:
        connection = self._window.connection
        refusal = None if connection is None else connection.connack.will_refused
        return None if refusal is None else without_will(refusal)

    @property
    def faults(self) -> Mapping[str, TopicFault]:
        """What is wrong with single topics, the oldest fault first."""
        return self._window.pauses.faults.standing(self._clock.monotonic())

    def fault_of(self, topic: str) -> TopicFault | None:
        """What is wrong with a topic."""
        return self._window.pauses.faults.of(topic, self._clock.monotonic())

    @property
    def window(self) -> int:
        """How many messages may be in flight on this connection."""
        return self._window.size

    @property
    def limited_by(self) -> Literal["receive_maximum"] | None:
        """``"receive_maximum"`` while readings wait because the broker allows no more messages in flight, else None."""
        return self._window.limited_by

    def report_conflict(self, kind: str, reason: str | None) -> None:
        """Another app publishes below our prefix: `reason` says which, and what to do; None: none of this kind does any
        more. Whoever looks for others has a kind of its own, and `PrefixShared` is emitted for each change."""
        if reason == self._conflicts.get(kind):
            return
        if reason is None:
            del self._conflicts[kind]
        else:
            self._conflicts[kind] = reason
        self._events.emit(PrefixShared(self.conflict if reason is None else reason))

    def require_newer(self) -> None:
        """Speak nothing but MQTT 5, before `run`: what is sent needs it."""
        self.choice = broker_choice.require_newer(self.choice)
        self.session = self.choice.session

    def piled_up(self) -> bool:
        """Whether more than one batch of messages waits for its turn on a connection that works."""
        return self.up and self.outbox.messages - self.outbox.in_flight > BATCH

    def put(self, message: Message) -> None:
        """Send `message` as soon as possible; see `SendWindow.put`."""
        self._window.put(message)

    def hold(self, what: str) -> None:
        """Send nothing before everybody who holds the messages has released them, each by a name of its own."""
        self._holds.add(what)

    def release(self, what: str) -> None:
        """Send the messages, unless somebody else holds them."""
        self._holds.discard(what)
        self._window.pump()

    def remember(self, record: SubscriptionRecord) -> None:
        """Have the subscriptions remembered over a restart, before `run`. Without a record this process begins new
        sessions.

        Raises:
            ConfigurationError: there is a record already.
        """
        if self._record is not None:
            raise two_parts(type(self._record).__module__, type(record).__module__, "remember the subscriptions")
        self._record = record

    def put_first(self, message: Message) -> None:
        """As `put`, before all that waits."""
        self._window.put(message)
        self.outbox.prefer(message.topic)

    def listen(self, topic_filter: str, listener: Listener) -> None:
        """Listen to a topic filter: on this connection, if there is one, and on all others. A filter may have several
        listeners, which are called in the order in which they were added. A message that matches several filters goes
        to the listeners of that which was added first."""
        self.subscriptions.listen(topic_filter, listener)
        connection, before = self._window.connection, self._subscribing
        if connection is not None and before is not None:
            self._subscribing = self._loop.create_task(self._subscribe(connection, (topic_filter,), before))

    def ignore(self, topic_filter: str, listener: Listener) -> None:
        """Let a listener hear no more of a topic filter. The subscription of the last one ends."""
        others = self.subscriptions.ignore(topic_filter, listener)
        connection, before = self._window.connection, self._subscribing
        if not others and connection is not None and before is not None:
            self._subscribing = self._loop.create_task(self._unsubscribe(connection, topic_filter, before))

    def store(self, after: float, write: Callable[[int], None]) -> None:
        """Have readings written that were not acknowledged `after` seconds; see `Overdue.store`.

        Raises:
            ConfigurationError: another part has them written.
        """
        if self._writer is not None:
            raise two_parts(self._writer, write.__module__, "write the readings that wait")
        self._writer = write.__module__
        self._window.overdue.store(after, write)

    def pump(self) -> None:
        """Send what waits, as far as the connection takes it."""
        self._window.pump()

    async def run(self) -> None:
        """Connect, wait for the end of the connection, and connect again."""
        while True:
            try:
                end = await self._live()
            except Exception:  # a fault of ours; the caller of `run` reports it, and calls it again
                if self._window.connection is not None:
                    self._end(self._window.connection)
                raise
            self._error = None if end.topic is not None else end.reason
            in_use = connection_state.client_id_in_use(self.session)
            draw = random.random()
            self.choice, wait = broker_choice.after(self.choice, self.session, end, self._clock.monotonic(), draw)
            self.session = self.choice.session
            if end.reason not in self._refusals:
                self._events.emit(LinkDown(end.reason, wait, in_use, end.topic, self._named(), end.version))
            self._refusals = {*self._refusals, end.reason} if end.cheap else set()
            await asyncio.sleep(wait)

    async def flush(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds until the broker has all that it takes. Whether it has everything."""
        return await self._window.flush(timeout)

    async def close(self) -> None:
        """Disconnect. `run` must have been cancelled. If the last status has not arrived, the broker gets no DISCONNECT
        and publishes the will: else the status would stay online."""
        connection = self._window.connection
        last_status_waits = self._identity.will_topic in self._window.outbox
        self._window.close()
        self._cancel()
        if connection is None:
            return
        if last_status_waits:
            connection.abort()
            return
        try:
            async with asyncio.timeout(GOODBYE_TO_FROZEN if self._window.frozen else None):
                await connection.close()
        except TimeoutError:
            connection.abort()

    def reset(self, why: str) -> None:
        """End the connection, if there is one, so that nothing under way is sent any more, and make another one.
        `why` is its reason in the log."""
        connection = self._window.connection
        if connection is not None:
            connection.reset()
            self.lost(why)

    def lost(self, reason: str, code: int = 0) -> None:
        """See `ConnectionListener`."""
        if not self._lost.done():
            self._lost.set_result(_Lost(reason, code))

    def received(self, message: Received) -> None:
        """See `ConnectionListener`. A message that comes again is no new one."""
        arrival = self._kept.arrived(message, self._clock.monotonic())
        if arrival is Arrival.AGAIN:
            self._events.emit(MessageRepeated(message.topic))
            return
        if message.redelivered and arrival is Arrival.NEW:  # what was sent before has not arrived
            message = message._replace(redelivered=False)
        self.subscriptions.received(message)

    async def _live(self) -> Ended:
        """One connection, from CONNECT to its end. Returns how it ended."""
        connection = await self._connect()
        if isinstance(connection, Ended):
            return connection
        delivered = self.outbox.delivered
        self.refusal = self.not_listening = None
        self._begin(connection)
        lost = await self._lost
        subscribing = self.subscriptions.broke()
        broken = self._end(connection, lost.code)
        now, draw, began = self._clock.monotonic(), random.random(), self.session.connected_at or 0.0
        settled = now - began >= connection_state.SETTLED
        if settled:
            self._kept.settled()
        useful = self.outbox.delivered > delivered and not subscribing
        if lost.code == connection_state.SESSION_TAKEN_OVER:
            self.session, wait = connection_state.taken_over(self.session, now, draw)
        elif broken.in_flight or subscribing or lost.code:
            self.session, wait = connection_state.interrupted(self.session, now, draw, useful=useful)
        else:
            self.session, wait = connection_state.failed(self.session, now, draw)
        reason, topic = self._explain(clean(lost.reason), lost.code, broken)
        works = (settled or useful) and lost.reason != SILENCE_REASON
        stay = works or lost.code == connection_state.SESSION_TAKEN_OVER
        return Ended(reason, wait, settled, stay, back=lost.reason == BACK, topic=topic)

    async def _connect(self) -> Connection | Ended:
        """Connect, with the MQTT version that the broker probably speaks."""
        now, draw = self._clock.monotonic, random.random
        while True:
            self.number = max(self.number + 1, round(self._clock.wall() * 1000))
            will = self._identity.will(self.number)
            kept = self._kept = self._session_at(str(self.broker))
            client_id, will_topic = self._identity.client_id, self._identity.will_topic
            packet = Connect(client_id, self.session.protocol, will_topic, will, clean=kept.filters is None)
            self._lost = self._loop.create_future()
            try:
                connection = await self._connector(self.broker)(packet, self)
            except BrokerError as error:
                before = self.session
                self.session, wait = connection_state.not_connected(before, error, now(), draw())
                self.refusal = error.code if isinstance(error, ConnectionRefused) else None
                self.not_listening = error.address if isinstance(error, NotListening) else None
                old = connection_state.may_be_old(before, self.session)
                reason = clean(error.without_hint()) if old else self._reason(error)
                unsupported = self.refusal == connection_state.UNSUPPORTED_VERSION
                other_version = unsupported and not before.pinned and self.session.refusals == 1
                cheap = isinstance(error, NotListening)
                version = self.session.protocol if old else None
                return Ended(reason, wait, stay=other_version, cheap=cheap, version=version)
            self.session = connection_state.connected(self.session, now())
            kept.connected(present=connection.connack.session_present)
            return connection

    def _session_at(self, broker: str) -> BrokerSession:
        """What a broker keeps of us. The first time, that is what an earlier process left."""
        if broker not in self._sessions:
            known = None if self._record is None else self._record.known.get(broker)
            self._sessions[broker] = BrokerSession(known, shared=self._identity.takes_turns)
        return self._sessions[broker]

    def _reason(self, error: BrokerError) -> str:
        """The reason of a failed attempt. Advice about the URL is left out once it has worked."""
        return clean(error.without_hint() if self.session.spoke is not None else str(error))

    def _explain(self, reason: str, code: int, broken: Broken) -> tuple[str, str | None]:
        """Why the connection ended, as far as it is known, and the topic that it broke on."""
        if connection_state.client_id_in_use(self.session):
            certain = code == connection_state.SESSION_TAKEN_OVER
            return client_id_in_use(self._identity.client_id, certain=certain, node=self._identity.node), None
        if broken.fault is not None:
            return broken.fault, broken.topic
        return reason, None

    def _begin(self, connection: Connection) -> None:
        self.connects += 1
        self.client = connection.client
        if connection_state.client_id_in_use(self.session):
            self._settling = self._loop.call_later(connection_state.SETTLED, self._settled)
        else:
            self._error = None
        self.choice = broker_choice.connected(self.choice)
        self._moved, self._last = self._last not in (None, self.broker), self.broker
        self._window.connection = connection
        self.subscriptions.unasked = bool(self.subscriptions.listeners)
        protocol = self.session.protocol
        self._events.emit(LinkUp(self.number, protocol, connection.client, self._named(), self._no_will))
        about = self._named() or "the broker"
        self._window.start(connection, v5=self.session.protocol == V5, broker=about, moved=self._moved)
        if self.subscriptions.listeners:
            self._subscribing = self._loop.create_task(self._subscribe(connection))
        if self.choice.current:
            self._returning = self._loop.create_task(self._try_primary())
        if (after := connection_state.doubt(self.session, self._clock.monotonic())) is not None:
            self._doubting = self._loop.call_later(after, self._try_newer)

    def _settled(self) -> None:
        """The connection holds; no other client takes it over any more."""
        self._error = None
        self._events.emit(LinkSettled())

    async def _subscribe(
        self, connection: Connection, further: Sequence[str] = (), before: asyncio.Task[None] | None = None
    ) -> None:
        """Subscribe to all filters, or after those to `further` ones."""
        kept, listeners = self._kept, self.subscriptions.listeners
        try:
            await self._announce(kept, further or listeners)
            if before is None:
                unwanted = sorted((kept.filters or set()) - listeners.keys())
                wanted = {*listeners}
                kept.filters = None if unwanted else wanted
                await self.subscriptions.subscribe(connection, self._window.pump, unwanted)
                kept.filters = wanted if kept.filters is None else kept.filters
            else:
                await before
                await self.subscriptions.add(connection, further)
        except BrokerError as error:
            if self._window.connection is connection:  # else it is lost already, and the next one subscribes again
                self.lost(str(error))
        else:
            if self._record is not None and kept.filters is not None:
                self._record.keep(str(self.broker), frozenset(kept.filters))
            self._window.pump()

    async def _unsubscribe(self, connection: Connection, topic_filter: str, before: asyncio.Task[None]) -> None:
        """End one subscription, after those that are asked for. If that fails, the next connection tries it again."""
        await before
        if topic_filter not in self.subscriptions.listeners and self._window.connection is connection:
            with contextlib.suppress(BrokerError):
                await connection.unsubscribe(topic_filter)
                if self._kept.filters is not None:
                    self._kept.filters.discard(topic_filter)

    async def _announce(self, kept: BrokerSession, filters: Collection[str]) -> None:
        """The broker is about to be asked for these filters: a record that lacks one of them would mislead the next
        process, if this one was killed just now."""
        if kept.filters is not None:
            kept.filters.update(filters)
        record, broker = self._record, str(self.broker)
        if record is not None and not set(filters) <= set(record.known.get(broker, filters)):
            with contextlib.suppress(TimeoutError):  # a disk that hangs keeps no app offline
                async with asyncio.timeout(RECORD):
                    await record.forget(broker)

    async def _try_primary(self) -> None:
        """Go back to the primary as soon as it can be reached. The connection in use is kept until then."""
        primary = self.choice.candidates[0].broker
        while True:
            await asyncio.sleep(broker_choice.return_wait(self.choice, random.random()))
            with contextlib.suppress(OSError):
                await self._reach(primary)
                self.lost(BACK, connection_state.ADMINISTRATIVE)  # no message is to blame for it

    def _try_newer(self) -> None:
        """Connect anew with MQTT 5, once: the broker may only have been about to start."""
        self.session = connection_state.try_newer(self.session)
        self.lost(DOUBTED, connection_state.ADMINISTRATIVE)  # no message is to blame for it

    def _named(self) -> str | None:
        """The address of the current broker, if there are others."""
        return None if len(self.choice.candidates) == 1 else str(self.broker)

    def _end(self, connection: Connection, code: int = 0) -> Broken:
        """Clear up after a connection."""
        connection.abort()
        self._cancel()
        return self._window.stop(code)

    def _cancel(self) -> None:
        """End what runs beside a connection."""
        for handle in (self._subscribing, self._settling, self._returning, self._doubting):
            if handle is not None:
                handle.cancel()


class Access(NamedTuple):
    """The brokers, how a connection to one of them is made, and what keeps it."""

    brokers: Brokers
    connector: Callable[[Broker], Connector]
    reach: Callable[[Broker], Awaitable[None]] = transport.reach
    """Opens a connection to a broker without MQTT, and closes it. Raises OSError if that cannot be done."""
    link: type[Link] = Link
