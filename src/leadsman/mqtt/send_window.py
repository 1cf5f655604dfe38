"""The window of sends: hands the messages of the outbox to the connection, and settles what the broker answers.

As many messages are in flight as the road needs and the broker allows (`leadsman.mqtt.window_size`). Publishing is a
call and the acknowledgement a callback, so no handler waits, and no message needs a task. A connection delivers in
order, so several messages of a topic are in flight. After a broken connection they are sent again in order, only a few
messages at a time, and then one. That finds the topic on which the broker closes the connection, if there is one
(`leadsman.mqtt.suspects`). Such a topic pauses, and all others continue.

Where readings come faster than the broker takes them, the newest of each topic go ahead of those that wait.
"""

import asyncio
import math
from collections.abc import Callable
from typing import Literal

from leadsman.errors import BrokerError
from leadsman.event_bus import EventBus
from leadsman.events import LinkLimited, MessageDropped, MessageRefused
from leadsman.loop.clock import Clock, rfc3339
from leadsman.mqtt.connection import ConnAck, Connection
from leadsman.mqtt.connection_state import NO_MESSAGE, SETTLED
from leadsman.mqtt.diagnosis import CLOSES, PASSING
from leadsman.mqtt.message import Message
from leadsman.mqtt.message_state import Item
from leadsman.mqtt.outbox import Dropped, Outbox
from leadsman.mqtt.overdue import PUBACK_TIMEOUT, Overdue
from leadsman.mqtt.pauses import PAUSE, Pauses
from leadsman.mqtt.retained_messages import RetainedMessages
from leadsman.mqtt.size_limit import SizeLimit
from leadsman.mqtt.suspects import QUIET, Blame, Broken, Suspects
from leadsman.mqtt.window_size import BEHIND, LIMITED, Lag, WindowSize

BATCH = 100
"""Messages that are sent in one turn of the event loop, a few milliseconds of work: then the loop reads, and polls."""
SILENCE = 0.35
"""Seconds without an acknowledgement after which a flush gives up, if three round trips are shorter: such a broker is
frozen, and the process shall end."""
FIRST_CONNECTION = 5.0
"""Seconds that the first connection may take; what waits for it longer waits over an outage."""
LATE = 5.0
"""Seconds. A reading that is older when it is sent is marked as replayed."""
PAUSE_DOUBTFUL = 8.0
"""Seconds of longest pause for a topic on which only connections broke that had not settled: the network may flap."""
PAUSE_EACH = 10.0
"""Seconds of longest pause for each topic that breaks the connection, so that many of them break it no more often."""
OVERHEAD = 20
"""Bytes of a packet besides what `Message.size` counts, at most."""
POISON = 3
"""Connections that may break on one message, while others arrive, before it is dropped."""


STEP = 1.0
"""Seconds; a clock is set by more than that, or its error is none to speak of."""


def is_off(message: Message, offset: float) -> bool:
    """Whether the wall clock, which is set to `offset` now, was set since the reading was taken. See `Clock.offset`.

    A host without a battery for its clock starts in 1970, polls, and gets the time from the network a minute later. Its
    earlier readings are published with the times that the clock, as it is now set, gives them.
    """
    return message.clock_offset is not None and not -STEP <= offset - message.clock_offset <= STEP


def retime(message: Message, offset: float) -> Message:
    """A message whose reading `is_off`, with the right time; in its payload too, where `Delivery` has put it there."""
    if message.taken_at is None or message.clock_offset is None:
        return message
    taken_at = message.taken_at + offset - message.clock_offset
    before, after = (f'"taken_at":"{rfc3339(at)}"'.encode() for at in (message.taken_at, taken_at))
    if message.topic.endswith("/taken_at"):  # the value alone, see `leadsman.runtime.field_topics`
        before, after = (rfc3339(at).encode() for at in (message.taken_at, taken_at))
    payload = message.payload.replace(before, after)
    return message._replace(payload=payload, taken_at=taken_at, clock_offset=offset)


class SendWindow:
    """Sends an outbox through one connection after the other.

    Args:
        outbox: the messages to send.
        lost: called with the reason when the connection is of no use any more.
        must_wait: whether nothing may be sent yet.
    """

    def __init__(
        self,
        outbox: Outbox,
        clock: Clock,
        events: EventBus,
        lost: Callable[[str], None],
        must_wait: Callable[[], bool],
    ) -> None:
        self.outbox = outbox
        self.connection: Connection | None = None
        self._clock = clock
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._lost = lost
        self._must_wait = must_wait
        self._sent: dict[int, tuple[Item, float]] = {}
        self._overdue = Overdue(outbox, self._sent, clock, lost)
        self._retained = RetainedMessages(outbox)
        self._suspects = Suspects()
        self._pauses = Pauses(outbox)
        self._limit = SizeLimit()
        self._outlived: set[str] = set()
        """The topics of which this connection has seen a message refused for good."""
        self._alone_bytes = 0
        """Bytes of the packet that was sent alone last."""
        self._empty: asyncio.Future[None] | None = None
        self._pump_due = False
        self._resume: asyncio.TimerHandle | None = None
        self._started = 0.0
        self._outage_after = clock.monotonic() + FIRST_CONNECTION
        self._timed, self._broker = True, "the broker"
        self._size = WindowSize(ConnAck().receive_maximum)
        self._lag = Lag()
        self._round_trip = self._answered = 0.0
        self._quiet: asyncio.TimerHandle | None = None
        self.frozen = False
        """Whether a flush gave the broker up because it acknowledged nothing."""

    @property
    def fault(self) -> str | None:
        """What is wrong with a topic whose messages the broker does not take, or None."""
        return self._pauses.fault

    def fault_of(self, topic: str) -> str | None:
        """What is wrong with a topic since the broker refused a message of it; None since it took one."""
        return self._pauses.fault_of(topic)

    @property
    def size(self) -> int:
        """How many messages may be in flight on this connection."""
        return self._size.size

    @property
    def limited_by(self) -> Literal["receive_maximum"] | None:
        """``"receive_maximum"`` while readings come faster than the broker takes them because it allows no more
        messages in flight (MQTT 5 §3.2.2.3.3), else None."""
        connection = self.connection
        if connection is None or not self._lag.behind or self._size.size < connection.connack.receive_maximum:
            return None
        return "receive_maximum"

    def store(self, after: float, write: Callable[[int], None]) -> None:
        """Call `write` with the number of a reading when readings up to this one waited `after` seconds; see
        `Overdue.store`."""
        self._overdue.store(after, write)

    def put(self, message: Message) -> None:
        """Send `message` as soon as possible. Returns at once. Messages that are dropped for it are reported."""
        connection = self.connection
        is_reading = not message.latest or message.taken_at is not None
        if connection is not None and message.qos and is_reading and self._calm(message, connection):
            item = self.outbox.hand_over(message)
            if item is not None:
                self._publish(connection, item, item.message, self._clock.monotonic())
                return
        dropped = self.outbox.put(message)
        if dropped:
            self._report(dropped)
        if connection is not None:
            self._soon()
        self._overdue.waits()

    def _calm(self, message: Message, connection: Connection) -> bool:
        """Whether a message may go without its turn in the outbox: no topic is in trouble, and the window has room."""
        largest = connection.connack.maximum_packet_size
        return (
            not (self._suspects.alone or self._suspects.searching)
            and self.outbox.in_flight < min(self._size.size, BATCH)
            and (largest is None or message.size + OVERHEAD <= largest)
            and not self._limit
            and not self._must_wait()
        )

    async def flush(self, timeout: float) -> bool:
        """Wait until the broker has all that it takes: at most `timeout` seconds, and less if it acknowledges nothing
        for `SILENCE` and three round trips. Whether it has everything."""
        if self.connection is None or self.outbox.only_paused:
            return self.outbox.messages == 0
        self._empty = self._loop.create_future()
        left, patience = timeout, max(SILENCE, 3 * self._round_trip)
        while left > 0 and not self._empty.done():
            delivered, began = self.outbox.delivered, self._clock.monotonic()
            await asyncio.wait({self._empty}, timeout=min(patience, left))
            self.frozen = self.outbox.delivered == delivered
            left -= timeout if self.frozen else self._clock.monotonic() - began
        return self.outbox.messages == 0

    def start(
        self, connection: Connection, *, timed: bool = True, broker: str = "the broker", moved: bool = False
    ) -> None:
        """Send through a connection that was just made to `broker`. Retained messages come again, for it may have lost
        them in a restart. `timed`: subscribers receive the times of readings, so that newer ones may go first. `moved`:
        the last connection was one to another broker."""
        self.connection = connection
        if moved:
            self._suspects.forget()
            self._pauses.forget()
            self._limit.forget()
        self._timed, self._broker = timed, broker
        self._round_trip = PUBACK_TIMEOUT  # until it is known
        self._size = WindowSize(connection.connack.receive_maximum)
        self._started = self._clock.monotonic()
        if self._started > self._outage_after:
            self.outbox.connected_again()
        self._outage_after = -math.inf
        self._retained.repeat(self._suspects.is_blamed)
        self.pump()

    def stop(self, code: int = 0) -> Broken:
        """The connection ended; `code` is the reason in the broker's DISCONNECT. Its messages go back to the outbox."""
        self.connection = None
        self._sent.clear()
        self._caught_up()
        if self._quiet is not None:
            self._quiet.cancel()
            self._quiet = None
        self._overdue.stop()
        self._overdue.waits()
        self._limit.ended()
        self._outlived.clear()
        flying = self.outbox.lost()
        if code in NO_MESSAGE:
            self._suspects.acquit()
            return Broken(bool(flying))
        blame = self._suspects.broke(flying, self.outbox.delivered, self._clock.monotonic())
        return Broken(bool(flying)) if blame is None else self._blame(blame, in_flight=blame.topic in flying)

    def close(self) -> None:
        """Send no more."""
        self.connection = None
        self._overdue.stop()
        for handle in (self._resume, self._quiet):
            if handle is not None:
                handle.cancel()

    def pump(self) -> None:
        """Fill the window."""
        self._pump_due = False
        connection, outbox, suspects = self.connection, self.outbox, self._suspects
        if connection is None or self._must_wait():
            return
        now, offset, late = self._clock.monotonic(), self._clock.offset(), self._clock.wall() - LATE
        if outbox.paused:
            self._resume_paused(now)
        window = suspects.window(self._size.size)
        most = outbox.in_flight + BATCH
        while outbox.in_flight < min(window, most):
            item = self._next(now, connection.connack.maximum_packet_size)
            if item is None:
                break
            message = item.message
            if suspects.alone and message.topic in suspects.alone:
                if outbox.in_flight > 1:
                    outbox.back(item)
                    break
                suspects.solo, window = message.topic, 0
                self._alone_bytes = message.size + OVERHEAD
            if not message.qos:
                message = suspects.certain(message, now)
            if is_off(message, offset):
                message = retime(message, offset)
            if message.taken_at is not None and message.taken_at < late:
                message = message._replace(replayed=True)
            if item.unretained:
                message = message._replace(retain=False)
            if not self._publish(connection, item, message, now):
                return
        if outbox.ready:
            self._kept_waiting(connection, now)
            if outbox.in_flight == most < window:
                self._soon()
        else:
            self._caught_up()

    def _publish(self, connection: Connection, item: Item, message: Message, now: float) -> bool:
        """Hand a message to the connection. Returns whether the connection took it."""
        try:
            packet_id = connection.publish(message)
        except BrokerError as error:
            self._lost(str(error))
            return False
        self._sent[packet_id] = item, now
        if self._overdue.handle is None:
            self._overdue.sends()
        return True

    def acknowledged(self, packet_id: int, code: int) -> None:
        """PUBACK, with its reason code."""
        sent = self._sent.pop(packet_id, None)
        if sent is None:
            return
        item, at = sent
        topic, now = item.message.topic, self._clock.monotonic()
        self._round_trip, self._answered = now - at, now
        if code < 0x80:
            self._accepted(item, topic, now)
        else:
            self._refused(item, topic, code)
        if self._empty is not None and self.outbox.only_paused and not self._empty.done():
            self._empty.set_result(None)  # `flush` does not wait for topics that pause
        if topic == self._suspects.solo:
            self._quiet = self._loop.call_later(QUIET, self._survived, topic)
        elif self.outbox.ready or self.outbox.paused or self._suspects.searching:
            self._soon()
        else:
            self._caught_up()

    def _soon(self) -> None:
        """Pump in the next turn of the event loop."""
        if not self._pump_due:
            self._pump_due = True
            self._loop.call_soon(self.pump)

    def _kept_waiting(self, connection: Connection, now: float) -> None:
        """Messages wait for room in the window."""
        lag, silence = self._lag, now - self._answered
        if self._suspects.searching or silence > max(SILENCE, 2 * self._round_trip):
            lag.begin(now)  # the window is small on purpose, or the broker pauses, which says nothing about the road
        elif self.outbox.in_flight >= self._size.size:
            self._size.full(now)
            connection.urgent = True
            waited = lag.waits(now)
            if not lag.behind and waited >= BEHIND and self._size.settled:
                lag.behind = True
                self.outbox.prefer_newest(self._timed)
            if not lag.reported and waited >= LIMITED and self.limited_by is not None:
                lag.reported = True
                self._events.emit(LinkLimited(self._size.size))

    def _caught_up(self) -> None:
        """No message waits: all go in the order in which they are put."""
        lag = self._lag
        if lag.ends():
            if self.connection is not None:
                self.connection.urgent = False
            self._size.caught_up()
        if lag.behind:
            lag.behind = lag.reported = False
            self.outbox.prefer_newest(False)

    def _next(self, now: float, largest: int | None) -> Item | None:
        """Take the next message from the outbox that the broker may get."""
        while True:
            item, expired = self.outbox.take(now)
            if expired:
                self._report(expired)
            if item is None:
                if self.outbox.ready:  # instead of what has expired
                    continue
                if not self.outbox.in_flight:
                    self._suspects.untested.clear()  # the last of them was replaced by a newer one
                return None
            topic, size = item.message.topic, item.message.size + OVERHEAD
            learned = self._limit.known(now) if self._limit else None
            if (largest is None or size <= largest) and (learned is None or size < learned):
                return item
            if learned is not None and size >= learned:
                why = f"{size} bytes, and {self._broker} closes the connection on a message of {learned} bytes"
            else:
                why = f"larger than the limit of {self._broker}: {largest} bytes"
            self._pauses.refused(topic, f"the broker does not take messages of {topic!r}: {why}", for_good=True)
            self._bury(item, why)

    def _accepted(self, item: Item, topic: str, now: float) -> None:
        message = self.outbox.accept(item)
        self._suspects.acknowledged(topic, now)
        if topic != self._suspects.solo:  # else it is not known yet whether the connection survives it
            self._limit.acknowledged(topic, message.size + OVERHEAD)
        self._size.acknowledged(now)
        self._retained.arrived(item, message)
        if self._pauses and not self._suspects.is_blamed(topic):
            self._pauses.forgive(topic)

    def _refused(self, item: Item, topic: str, code: int) -> None:
        if topic in self._outlived:  # the connection has outlived such a refusal, so another message would be to blame
            self._suspects.gone(topic, 1)
        else:
            self._suspects.refused(topic, self._clock.monotonic())
        if code not in PASSING:
            self._outlived.add(topic)
        if item.message.is_answer:  # others choose its topic
            self._bury(item, f"{self._broker} refused an answer (0x{code:02x})")
            return
        fault = f"the broker refused a message of {topic!r} (0x{code:02x})"
        self._pauses.refused(topic, fault, for_good=code not in PASSING)
        if code not in PASSING:
            self._bury(item, f"{self._broker} refused it for good (0x{code:02x})")
        elif self.outbox.is_paused(topic):  # several were in flight, and the first of them said so
            self.outbox.refuse(item)
        else:
            self.outbox.refuse(item)
            self._pause(topic, f"{PASSING[code]} (0x{code:02x})")

    def _survived(self, topic: str) -> None:
        """The connection outlived a message that was sent alone."""
        self._quiet = None
        self._limit.accepted(topic, self._alone_bytes)
        if self._suspects.survived(topic):
            if not self.outbox.is_paused(topic):
                self._pauses.forgive(topic)
            self.outbox.resume_next()  # what was wrong with this topic may have been wrong with the next one too
        self.pump()

    def _blame(self, blame: Blame, *, in_flight: bool) -> Broken:
        """The connection broke on a message of this topic. The first time may be chance; after it the topic pauses."""
        topic = blame.topic
        if not (blame.refused or blame.breaks > 1):
            self.outbox.defer(topic)
            return Broken(in_flight=True)
        now = self._clock.monotonic()
        others_arrived = self.outbox.delivered > blame.delivered  # else the road may be bad, and not the message
        if not blame.refused and others_arrived and self._limit.broke(topic, self._alone_bytes, now):
            fault = f"the broker closes the connection on a message of {self._alone_bytes} bytes to {topic!r}"
            self._pauses.refused(topic, fault, for_good=True)
            if in_flight:  # some brokers acknowledge, and then close
                self.outbox.defer(topic)
            return Broken(True, topic, f"{fault}; messages of this size are dropped from now on")
        self._retained.forget(topic)
        fault = f"the broker does not take messages of {topic!r}: {CLOSES}"
        self._pauses.refused(topic, fault)
        if not self.outbox.is_paused(topic):
            settled = blame.refused or now - self._started >= SETTLED
            self._pause(topic, CLOSES, PAUSE[1] if settled else PAUSE_DOUBTFUL)
        if in_flight and blame.breaks >= POISON and self.outbox.delivered > blame.delivered:
            self._suspects.pardon(topic)
            why = f"the connection broke {POISON} times on it"
            self._overdue.writes()
            self._report(self.outbox.discard(topic, why))
        return Broken(True, topic, fault)

    def _pause(self, topic: str, reason: str, longest: float = PAUSE[1]) -> None:
        """Keep `topic` back, twice as long as the last time."""
        others = PAUSE_EACH * (self._suspects.blamed - 1)
        pause = self._pauses.begin(topic, self._clock.monotonic(), max(longest, others))
        self._events.emit(MessageRefused(topic, reason, pause))

    def _resume_paused(self, now: float) -> None:
        due = self.outbox.resume(now)
        if due is not None:
            if self._resume is not None:
                self._resume.cancel()
            self._resume = self._loop.call_at(due, self.pump)

    def _bury(self, item: Item, why: str) -> None:
        """The broker does not take a message, and never will."""
        if item.message.taken_at is not None:
            self._overdue.writes()
        self._report(self.outbox.drop(item, why))

    def _report(self, dropped: list[Dropped]) -> None:
        for topic, count, reason in dropped:
            self._suspects.gone(topic, count)
            self._retained.settled(topic)
            self._events.emit(MessageDropped(topic, reason, count))
