"""The window of sends: hands the messages of the outbox to the connection, and settles what the broker answers.

As many messages are in flight as the broker allows, up to `MAX_IN_FLIGHT`. Publishing is a call and the acknowledgement
a callback, so no handler waits, and no message needs a task. A connection delivers in order, so several messages of a
topic are in flight. After a broken connection they are sent again in order, only a few messages at a time, and then
one. That finds the topic on which the broker closes the connection, if there is one (`leadsman.core.mqtt.suspects`).
Such a topic pauses, and all others continue."""

import asyncio
import math
from collections.abc import Callable, Mapping
from typing import Literal

from leadsman.core.event_bus import EventBus
from leadsman.core.events import LinkLimited, MessageDropped, MessageRefused
from leadsman.core.loop.clock import Clock, rfc3339
from leadsman.core.mqtt.connection import Connection
from leadsman.core.mqtt.connection_state import NO_MESSAGE, SETTLED
from leadsman.core.mqtt.diagnosis import CLOSES, NOT_AUTHORIZED, PASSING
from leadsman.core.mqtt.message import Message
from leadsman.core.mqtt.message_state import IN_FLIGHT, Item, sent_again
from leadsman.core.mqtt.outbox import Dropped, Outbox
from leadsman.core.mqtt.suspects import BURST_SECONDS, Blame, Broken, SizeLimit, Suspects
from leadsman.core.mqtt.topic_faults import FaultKind, TopicFaults
from leadsman.errors import BrokerError

BATCH = 100
"""Messages that are sent in one turn of the event loop, a few milliseconds of work: then the loop reads, and polls."""
FLUSH_SILENCE = 0.35
"""Seconds without an acknowledgement after which a flush gives up, if three round trips are shorter: such a broker is
frozen, and the process shall end."""
FIRST_CONNECTION = 5.0
"""Seconds that the first connection may take; what waits for it longer waits over an outage."""
REPLAY_AGE = 5.0
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
"""Clock steps smaller than this many seconds are ignored."""


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
    if message.topic.endswith("/taken_at"):  # the value alone, see `leadsman.core.runtime.own_topics`
        before, after = (rfc3339(at).encode() for at in (message.taken_at, taken_at))
    payload = message.payload.replace(before, after)
    return message._replace(payload=payload, taken_at=taken_at, clock_offset=offset)


MAX_IN_FLIGHT = 500
"""Messages in flight at most: 1,250 a second over a round trip of 0.4 s. So many are sent again after a break."""
MAX_IN_FLIGHT_V311 = 100
"""The same over MQTT 3.1.1, where a broker cannot say how many it takes."""
MAX_BYTES_IN_FLIGHT = 256 * 1024
"""Bytes in flight at most, unless one message has more: an uplink of 100 kbit/s carries them in 21 s."""
BEHIND = 1.0
"""Seconds that messages have waited for the window after which readings count as coming faster than the broker takes
them. An outage of some minutes is made up for in less."""
LIMITED = 10.0
"""Seconds that messages have waited for the window after which this is reported, if the broker's Receive Maximum is the
reason. The start of an app with a thousand devices, and the end of an outage, may take as long."""


# The topics whose messages the broker does not take: the fault of each, and how long it pauses.

PAUSE_RANGE = (1.0, 60.0)
"""Seconds: the first and the longest pause of a topic whose message was refused."""


class Pauses:
    """The topics of an outbox that the current broker refused, or of which messages were lost lately."""

    __slots__ = ("_clock", "_outbox", "_seconds", "faults", "reasons")

    def __init__(self, outbox: Outbox, clock: Clock) -> None:
        self._outbox = outbox
        self._clock = clock
        self.reasons: dict[str, tuple[FaultKind, str]] = {}
        """What the reason code of the broker means, for the topics that it refused with one. It says more than that a
        connection broke on the topic, which some brokers close in any case."""
        self._seconds: dict[str, float] = {}
        self.faults = TopicFaults(lambda topic: topic in outbox or topic in outbox.paused)
        """What is wrong with single topics."""

    @property
    def fault(self) -> str | None:
        """The fault of a topic; None without one."""
        return next((each.text for each in self.faults.standing(self._clock.monotonic()).values()), None)

    def refused(self, topic: str, kind: FaultKind, fault: str, *, for_good: bool = False) -> None:
        """The broker does not take a message of a topic; see `TopicFaults.refused`."""
        self.faults.refused(topic, kind, fault, self._clock.monotonic(), for_good=for_good)

    def lost(self, event: MessageDropped) -> None:
        """Messages will never arrive. That of an answer to a request is no fault: others choose its topic."""
        if not event.is_answer:
            self.faults.lost(event.topic, event.cause, event.reason, event.messages, event.at)

    def begin(self, topic: str, now: float, longest: float) -> float:
        """Keep a topic back, twice as long as the last time. Returns the seconds."""
        seconds = self._seconds[topic] = min(self._seconds.get(topic, PAUSE_RANGE[0] / 2) * 2, longest)
        self._outbox.pause(topic, now + seconds)
        return seconds

    def forgive(self, topic: str) -> None:
        """The broker takes messages of a topic again."""
        self._seconds.pop(topic, None)
        self.faults.took(topic)
        self.reasons.pop(topic, None)
        self._outbox.trust(topic)

    def forget(self) -> None:
        """The next broker may take what the last one refused: all of it may be sent at once."""
        self._seconds.clear()
        for topic in self.faults.forget():
            self._outbox.trust(topic)
        for topic in list(self._outbox.paused):
            self._outbox.end_pause(topic)


# The messages that the broker shall keep: the newest retained one of each topic that arrived.
#
# They are sent again on each new connection, since a restarted broker may have lost them. A reading that a newer one
# followed was sent without the retain flag; if the newer one is dropped, the reading is sent again with the flag.


class RetainedMessages:
    """The retained messages of an outbox."""

    __slots__ = ("_messages", "_outbox", "due")

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._messages: dict[str, tuple[int, Message]] = {}
        """By topic, each with its number in the outbox less `Outbox.renumbered`."""
        self.due: set[str] = set()
        """Topics whose newest that arrived the broker does not keep: it is sent again if none follows."""

    def arrived(self, item: Item, message: Message) -> None:
        """The broker has the message of an item. What others make again for each connection is not kept."""
        topic = message.topic
        if message.retain and not message.payload:
            self.forget(topic)  # it was removed at the broker
        elif message.retain and not (
            message.remade or (message.latest and _is_document(message)) or self._is_older(item, message)
        ):
            self._messages[topic] = item.number - self._outbox.renumbered, message
            if item.followed:
                self.due.add(topic)
            elif self.due:
                self.due.discard(topic)

    def flagged(self, item: Item, message: Message) -> Message:
        """The message of an item as it is sent: without the retain flag if a newer one waits or arrived."""
        if message.retain and (item.followed or self._is_older(item, message)):
            return message._replace(retain=False)
        return message

    def _is_older(self, item: Item, message: Message) -> bool:
        """Whether a newer one has arrived: this one was on a disk that could not be read for a while."""
        known = self._messages.get(message.topic)
        return known is not None and item.number - self._outbox.renumbered < known[0]

    def settled(self, topic: str) -> None:
        """A message of a topic arrived or was dropped. Send its newest reading again if the broker does not keep that,
        and none follows."""
        if topic in self.due and topic not in self._outbox:
            self.due.discard(topic)
            self._send_again(*self._messages[topic])

    def forget(self, topic: str) -> None:
        """The broker closes the connection on messages of this topic: send none of it again."""
        self._messages.pop(topic, None)
        self.due.discard(topic)

    def repeat(self, is_blamed: Callable[[str], bool]) -> None:
        """Send all again, but for topics that the broker closes the connection on. Of those of which something waits,
        only if that is dropped: this may be another broker, which has nothing of them."""
        for topic, (number, message) in self._messages.items():
            if topic in self._outbox:
                self.due.add(topic)
            elif not is_blamed(topic):
                self._send_again(number, message)

    def _send_again(self, number: int, message: Message) -> None:
        self._outbox.repeat(number + self._outbox.renumbered, message)


def _is_document(message: Message) -> bool:
    """Whether a message of which only the latest counts is a document, which is made again for each connection. Bytes
    such as an image are not."""
    return message.taken_at is None and message.content_type is None


# Looks after messages that wait: an acknowledgement may be overdue, and readings that wait are written to disk.
#
# It looks only while something waits. Where the broker answers at once, that is a few times a second at most, and never
# while no reading comes.

PUBACK_TIMEOUT = 10.0
"""Seconds without the acknowledgement that is due next after which the connection is dropped. A broker acknowledges in
the order of sending (MQTT 5 §4.6), so a narrow uplink that carries one message after the other is not cut, and a lost
acknowledgement is noticed although later ones come."""
SLOWEST = 8_000
"""Bytes a second of the narrowest uplink, 64 kbit/s: a large message may take so much longer."""
SILENCE_REASON = f"no acknowledgement within {PUBACK_TIMEOUT:g} s"
"""Why the connection is dropped then."""
AT_ONCE = 0.01
"""Seconds. Readings that are written after that time, or sooner, are written as they come."""


class Overdue:
    """The clock of a window of sends.

    Args:
        outbox: the messages.
        sent: those that the broker has not acknowledged on this connection; the first was sent first, and is due next.
        lost: called with the reason when the connection is unusable.
    """

    __slots__ = (
        "_after",
        "_at_once",
        "_clock",
        "_loop",
        "_lost",
        "_mark",
        "_outbox",
        "_sent",
        "_write",
        "handle",
        "since",
    )

    def __init__(
        self,
        outbox: Outbox,
        sent: Mapping[int, Item],
        clock: Clock,
        lost: Callable[[str], None],
    ) -> None:
        self._outbox = outbox
        self._sent = sent
        self._clock = clock
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._after = PUBACK_TIMEOUT
        self._write: Callable[[int], None] | None = None
        self._at_once = False
        self._mark = 0
        self.since = 0.0
        """Since when the message that was sent first is the one that is due next, monotonic seconds."""
        self.handle: asyncio.TimerHandle | None = None
        """The next look; None while nothing waits."""

    def store(self, after: float, write: Callable[[int], None]) -> None:
        """Call `write` with the number of a reading when this one, and all with lower numbers, waited `after` seconds.

        Without a connection, all readings are written together `after` seconds after the first of them. On a
        connection they have waited half of it at least, unless `after` is `AT_ONCE` or less.
        """
        self._write, self._after, self._at_once = write, after / 2, after <= AT_ONCE

    def sends(self) -> None:
        """A message is in flight, and no look is arranged."""
        self.handle = self._loop.call_later(self._after, self._check_acknowledgements)

    def waits(self) -> None:
        """A message may wait, in flight or not."""
        if self._write is not None and self.handle is None:
            self.handle = self._loop.call_later(
                self._after if self._sent else 2 * self._after, self._check_acknowledgements
            )

    def writes(self) -> None:
        """Something must be written, though no reading has waited."""
        if self._write is not None:
            self._write(0)

    def stop(self) -> None:
        """Look no more."""
        if self.handle is not None:
            self.handle.cancel()
            self.handle = None

    def _check_acknowledgements(self) -> None:
        self.handle = None
        waits = self._write is not None and self._store_waiting(self._write)
        if self._sent:
            now = self._clock.monotonic()
            first = next(iter(self._sent.values()))
            due = max(first.sent_at, self.since) + PUBACK_TIMEOUT + first.size / SLOWEST
            if now >= due:  # as the timer was set: a difference may be smaller by rounding
                self._lost(SILENCE_REASON)
            elif not waits:
                after = PUBACK_TIMEOUT if self._write is None else self._after
                self.handle = self._loop.call_at(min(due, now + after), self._check_acknowledgements)
        if waits:
            self.waits()

    def _store_waiting(self, write: Callable[[int], None]) -> bool:
        """Have readings written that waited since the last look. Returns whether others wait."""
        number, mark = self._outbox.number, self._mark
        self._mark = number
        if not self._sent or self._at_once:
            mark = number
        if self._outbox.unstored(mark):
            write(mark)
        return self._outbox.unstored(number)


class SendWindow:
    """Sends an outbox through one connection after the other.

    Args:
        outbox: the messages to send.
        lost: called with the reason when the connection is unusable.
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
        self._sent: dict[int, Item] = {}
        self.overdue = Overdue(outbox, self._sent, clock, lost)
        self._retained = RetainedMessages(outbox)
        self._suspects = Suspects()
        self.pauses = Pauses(outbox, clock)
        events.subscribe_to(MessageDropped, self.pauses.lost)
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
        self._broker = "the broker"
        self._bytes = 0
        """Of all messages in flight."""
        self.size = MAX_IN_FLIGHT
        """How many messages may be in flight on this connection."""
        self._waits_since: float | None = None
        """Since when messages have waited for room in the window, monotonic seconds."""
        self._behind = self._reported = False
        """Whether readings come faster than the broker takes them, and whether it was reported that it allows too few
        messages in flight."""
        self._round_trip = self._answered = 0.0
        self._quiet: asyncio.TimerHandle | None = None
        self.frozen = False
        """Whether a flush gave the broker up because it acknowledged nothing."""

    @property
    def largest(self) -> int | None:
        """See `leadsman.core.mqtt.link.Link.maximum_packet_size`."""
        if self.connection is None:
            return None
        announced, learned = (
            self.connection.connack.maximum_packet_size,
            self._limit.refused_size(self._clock.monotonic()),
        )
        return min((each for each in (announced, None if learned is None else learned - 1) if each), default=None)

    @property
    def limited_by(self) -> Literal["receive_maximum"] | None:
        """``"receive_maximum"`` while readings come faster than the broker takes them because it allows no more
        messages in flight (MQTT 5 §3.2.2.3.3), else None."""
        connection = self.connection
        if connection is None or not self._behind or self.size < connection.connack.receive_maximum:
            return None
        return "receive_maximum"

    def put(self, message: Message) -> None:
        """Send `message` as soon as possible. Returns at once. Messages that are dropped for it are reported."""
        connection = self.connection
        is_reading = not message.latest or message.taken_at is not None
        if connection is not None and message.qos and is_reading and self._calm(size := message.size, connection):
            item = self.outbox.hand_over(message, size)
            if item is not None:
                self._publish(connection, item, item.message, self._clock.monotonic())
                return
        dropped = self.outbox.put(message)
        if dropped:
            self._report(dropped)
        if connection is not None:
            self._soon()
        self.overdue.waits()

    def _calm(self, size: int, connection: Connection) -> bool:
        """Whether a message of so many bytes may go without its turn in the outbox: no topic is in trouble, and the
        window has room."""
        suspects, sent, largest = self._suspects, len(self._sent), connection.connack.maximum_packet_size
        return (
            not (suspects.alone or suspects.searching)
            and sent < self.size
            and sent < BATCH
            and self._has_room(size)
            and (largest is None or size + OVERHEAD <= largest)
            and self._limit.learned is None
            and not self._must_wait()
        )

    def _has_room(self, size: int) -> bool:
        """Whether so many bytes may be in flight as well. One message always may."""
        return not self._bytes or self._bytes + size <= MAX_BYTES_IN_FLIGHT

    async def flush(self, timeout: float) -> bool:
        """Wait until the broker has all that it takes: at most `timeout` seconds, and less if it acknowledges nothing
        for `FLUSH_SILENCE` and three round trips. Whether it has everything."""
        if self.connection is None or self.outbox.only_paused:
            return self.outbox.messages == 0
        self._empty = self._loop.create_future()
        left, patience = timeout, max(FLUSH_SILENCE, 3 * self._round_trip)
        while left > 0 and not self._empty.done():
            delivered, began = self.outbox.delivered, self._clock.monotonic()
            await asyncio.wait({self._empty}, timeout=min(patience, left))
            self.frozen = self.outbox.delivered == delivered
            left -= timeout if self.frozen else self._clock.monotonic() - began
        return self.outbox.messages == 0

    def start(
        self, connection: Connection, *, v5: bool = True, broker: str = "the broker", moved: bool = False
    ) -> None:
        """Send through a connection that was just made to `broker`. Retained messages come again, for it may have lost
        them in a restart. `v5`: it speaks MQTT 5. `moved`: the last connection was one to another broker."""
        self.connection = connection
        if moved:
            self._suspects.forget()
            self.pauses.forget()
            self._limit.forget()
        self._broker = broker
        self._round_trip = PUBACK_TIMEOUT  # until it is known
        self.size = min(MAX_IN_FLIGHT if v5 else MAX_IN_FLIGHT_V311, connection.connack.receive_maximum)
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
        self._bytes = 0
        self._caught_up()
        if self._quiet is not None:
            self._quiet.cancel()
            self._quiet = None
        self.overdue.stop()
        self.overdue.waits()
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
        self.overdue.stop()
        for handle in (self._resume, self._quiet):
            if handle is not None:
                handle.cancel()

    def pump(self) -> None:
        """Fill the window."""
        self._pump_due = False
        connection, outbox, suspects = self.connection, self.outbox, self._suspects
        if connection is None or self._must_wait():
            return
        now, offset, late = self._clock.monotonic(), self._clock.offset(), self._clock.wall() - REPLAY_AGE
        if outbox.paused:
            self._resume_paused(now)
        window = suspects.window(self.size)
        sent = self._sent
        most = len(sent) + BATCH
        while len(sent) < min(window, most):
            item = self._next(now, connection.connack.maximum_packet_size)
            if item is None:
                break
            message = item.message
            if suspects.alone and message.topic in suspects.alone:
                if sent:
                    outbox.back(item)
                    window = len(sent)
                    break
                suspects.solo, window = message.topic, 0
                self._alone_bytes = message.size + OVERHEAD
            elif not self._has_room(item.size):
                outbox.back(item)
                window = len(sent)
                break
            if not message.qos:
                message = suspects.certain(message, now)
            if is_off(message, offset):
                message = retime(message, offset)
            if message.taken_at is not None and message.taken_at < late:
                message = message._replace(replayed=True)
            message = self._retained.flagged(item, message)
            if not self._publish(connection, item, message, now):
                return
        if outbox.ready:
            if len(sent) >= window:
                self._kept_waiting(connection, now)
            else:
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
        item.sent_at = now
        self._sent[packet_id] = item
        self._bytes += item.size
        if self.overdue.handle is None:
            self.overdue.sends()
        return True

    def acknowledged(self, packet_id: int, code: int) -> None:
        """PUBACK, with its reason code."""
        is_due = packet_id == next(iter(self._sent), None)
        item = self._sent.pop(packet_id, None)
        if item is None:
            return
        now = self._clock.monotonic()
        self._round_trip, self._answered = now - item.sent_at, now
        self._bytes -= item.size
        if is_due:
            self.overdue.since = now
        topic = item.message.topic  # empty text if it is sent again in any case
        if topic and code < 0x80:
            self._suspects.acknowledged(topic, now)
            if topic != self._suspects.solo:  # else it is not known yet whether the connection survives it
                self._limit.acknowledged(topic, item.size + OVERHEAD)
            self._arrived(self.outbox.accept(item))
            if self.pauses.faults.found and not self._suspects.is_blamed(topic):
                self.pauses.forgive(topic)
        elif topic:
            self._refused(item, topic, code)
        if self._empty is not None and self.outbox.only_paused and not self._empty.done():
            self._empty.set_result(None)  # `flush` does not wait for topics that pause
        if topic and topic == self._suspects.solo:
            self._quiet = self._loop.call_later(BURST_SECONDS, self._survived, topic)
        elif self.outbox.ready or self.outbox.paused or self._suspects.searching:
            self._soon()
        elif self._waits_since is not None:
            self._caught_up()

    def _soon(self) -> None:
        """Pump in the next turn of the event loop."""
        if not self._pump_due:
            self._pump_due = True
            self._loop.call_soon(self.pump)

    def _kept_waiting(self, connection: Connection, now: float) -> None:
        """Messages wait for room in the window."""
        silence = now - self._answered
        if self._suspects.searching or silence > max(FLUSH_SILENCE, 2 * self._round_trip):
            self._waits_since = now  # small on purpose, or the broker pauses: no sign of a slow network
            return
        connection.urgent = True
        if self._waits_since is None:
            self._waits_since = now
        waited = now - self._waits_since
        self._behind = self._behind or waited >= BEHIND
        if not self._reported and waited >= LIMITED and self.limited_by is not None:
            self._reported = True
            self._events.emit(LinkLimited(self.size))

    def _caught_up(self) -> None:
        """No message waits: all go in the order in which they are put."""
        if self._waits_since is not None:
            self._waits_since = None
            if self.connection is not None:
                self.connection.urgent = False
        self._behind = self._reported = False

    def _next(self, now: float, largest: int | None) -> Item | None:
        """Take the next message from the outbox that the broker may get."""
        while True:
            item, expired = self.outbox.pop(now)
            if expired:
                self._report(expired)
            if item is None:
                if self.outbox.ready:  # instead of the expired ones
                    continue
                if not self.outbox.in_flight:
                    self._suspects.untested.clear()  # the last of them was replaced by a newer one
                return None
            topic, size = item.message.topic, item.message.size + OVERHEAD
            learned = self._limit.refused_size(now)
            if (largest is None or size <= largest) and (learned is None or size < learned):
                return item
            if learned is not None and size >= learned:
                why = f"{size} bytes, and {self._broker} closes the connection on a message of {learned} bytes"
            else:
                why = f"larger than the limit of {self._broker}: {largest} bytes"
            fault = f"the broker does not accept messages of {topic!r}: {why}"
            self.pauses.refused(topic, "over_limit", fault, for_good=True)
            self._bury(item, why)

    def _arrived(self, arrived: list[tuple[Item, Message]]) -> None:
        """The broker has these messages of a topic."""
        for item, message in arrived:
            self._retained.arrived(item, message)
        if self._retained.due and arrived:
            self._retained.settled(arrived[-1][1].topic)

    def _refused(self, item: Item, topic: str, code: int) -> None:
        if topic in self._outlived:  # the connection has outlived such a refusal, so another message would be to blame
            self._suspects.gone(topic, 1)
        else:
            self._suspects.refused(topic, self._clock.monotonic())
        if code not in PASSING:
            self._outlived.add(topic)
        if item.message.is_answer:  # others choose its topic
            self._bury(item, f"{self._broker} refused an answer (0x{code:02x})")
            self._arrived(self.outbox.settle(topic))
            return
        if item.message.once:
            self._give_up(self.outbox.drop(item, "refused"))
            self._arrived(self.outbox.settle(topic))
            return
        fault = f"the broker refused a message of {topic!r} (0x{code:02x})"
        kind: FaultKind = "denied" if code == NOT_AUTHORIZED else "refused"
        self.pauses.reasons[topic] = kind, f"{PASSING.get(code, 'it refuses them for good')} (0x{code:02x})"
        self.pauses.refused(topic, kind, fault, for_good=code not in PASSING)
        if code not in PASSING:
            self._bury(item, f"{self._broker} refused it for good (0x{code:02x})")
            self._arrived(self.outbox.settle(topic))
        else:
            self.outbox.refuse(item)
            for packet_id, each in self._sent.items():
                if each.place is not IN_FLIGHT:
                    self._sent[packet_id] = sent_again(each)
            if topic not in self.outbox.paused:  # else several were in flight, and the first of them paused it
                self._pause(topic, f"{PASSING[code]} (0x{code:02x})")

    def _survived(self, topic: str) -> None:
        """The connection outlived a message that was sent alone."""
        self._quiet = None
        self._limit.accepted(topic, self._alone_bytes)
        if self._suspects.survived(topic):
            if topic not in self.outbox.paused:
                self.pauses.forgive(topic)
            self.outbox.resume_next()  # the next one may have had the same fault
        self.pump()

    def _blame(self, blame: Blame, *, in_flight: bool) -> Broken:
        """The connection broke on a message of this topic. The first time may be chance; after it the topic pauses."""
        topic = blame.topic
        if in_flight and self.outbox.gives_up(topic):
            self._give_up(self.outbox.drop_next(topic, CLOSES))
            return Broken(True, topic, f"the broker does not accept messages of {topic!r}: {CLOSES}")
        if not (blame.refused or blame.breaks > 1):
            self.outbox.defer(topic)
            return Broken(in_flight=True)
        now = self._clock.monotonic()
        others_arrived = self.outbox.delivered > blame.delivered  # else the road may be bad, and not the message
        if not blame.refused and others_arrived and self._limit.broke(topic, self._alone_bytes, now):
            fault = f"the broker closes the connection on a message of {self._alone_bytes} bytes to {topic!r}"
            self.pauses.refused(topic, "over_limit", fault, for_good=True)
            if in_flight:  # some brokers acknowledge, and then close
                self.outbox.defer(topic)
            return Broken(True, topic, f"{fault}; messages of this size are dropped from now on")
        self._retained.forget(topic)
        kind, reason = self.pauses.reasons.get(topic, ("closes", CLOSES))
        fault = f"the broker does not accept messages of {topic!r}: {reason}"
        self.pauses.refused(topic, kind, fault)
        if topic not in self.outbox.paused:
            settled = blame.refused or now - self._started >= SETTLED
            self._pause(topic, reason, PAUSE_RANGE[1] if settled else PAUSE_DOUBTFUL)
        if in_flight and blame.breaks >= POISON and self.outbox.delivered > blame.delivered:
            self._suspects.pardon(topic)
            why = f"the connection broke {POISON} times on it"
            self.overdue.writes()
            self._report(self.outbox.drop_next(topic, why))
        return Broken(True, topic, fault)

    def _pause(self, topic: str, reason: str, longest: float = PAUSE_RANGE[1]) -> None:
        """Keep `topic` back, twice as long as the last time."""
        others = PAUSE_EACH * (self._suspects.blamed - 1)
        pause = self.pauses.begin(topic, self._clock.monotonic(), max(longest, others))
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
            self.overdue.writes()
        self._report(self.outbox.drop(item, why))

    def _give_up(self, dropped: list[Dropped]) -> None:
        """Messages that are sent once only will never arrive, and their sender reports that."""
        for each in dropped:
            self._suspects.gone(each.topic, each.messages)

    def _report(self, dropped: list[Dropped]) -> None:
        for topic, count, reason, cause, is_answer in dropped:
            self._suspects.gone(topic, count)
            self._retained.settled(topic)
            self._events.emit(MessageDropped(topic, reason, count, cause=cause, is_answer=is_answer))
