"""Collects facts at the broker, beside the running app.

Each step has a connection of its own, so that a broker that closes one does not spoil the others. What is published
goes below ``{prefix}/doctor/``, where only those see it who subscribe to everything; the app ignores it. The app's own
topics are only offered: a message of quality 2 that is never released, which the broker checks against its access list
and, once the connection has ended, forgets. A broker that would pass it on early is found out first, at a topic of the
doctor's own. See docs/adr/tools.md.
"""

import asyncio
import contextlib
import json
import socket
import ssl
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

from leadsman.core.introspection.retained import Listed
from leadsman.core.loop.clock import Clock, system_clock
from leadsman.core.mqtt.answers import Json, object_in
from leadsman.core.mqtt.broker import Broker
from leadsman.core.mqtt.connection import SESSION_EXPIRY, Connect, Received
from leadsman.core.mqtt.connection_state import V5
from leadsman.core.mqtt.message import Message
from leadsman.core.mqtt.side_connection import NoAnswer, SideConnection
from leadsman.core.mqtt.topics import DOCTOR
from leadsman.core.text import describe
from leadsman.errors import (
    BrokerError,
    ConnackMissing,
    ConnectionRefused,
    NotListening,
    SubscriptionRefused,
    TlsRefused,
)
from leadsman.tools.doctor.facts import (
    Answered,
    BrokerFacts,
    ConnectFailure,
    LiveFacts,
    ProbeFacts,
    RetainedFacts,
    Will,
    faults_in,
)
from leadsman.tools.doctor.subject import Subject

ANSWER = 2.0
"""Seconds for the broker to answer one packet, or to pass a probe on."""
MAX_MESSAGES, MAX_BYTES = 20_000, 32 * 1024 * 1024
"""What one visit keeps of the messages that come, topics and payloads together. The rest is dropped, so that a broker
with a million retained messages does not take the memory of the machine."""
OFFER = 2
"""The quality of a message that is offered and never released; see `Message.qos`."""
OFFERING = 5.0
"""Seconds for all topics together."""
WILL_DELAY = 2.0
"""Seconds: the shortest at which a broker that counts whole seconds, as mosquitto 2.1 does, differs from one that
has no delay. MQTT can express 1 s, which ends at the next full second there."""
PROBE_EXPIRY = 60.0
"""Seconds after which the broker drops the retained probe, should nobody be left to remove it."""
WILL_SLACK = 2.5
"""Seconds to wait for a will beyond its time: brokers look at their clocks about once a second."""
BIRTH = "homeassistant/status"
"""Home Assistant's default (https://www.home-assistant.io/integrations/mqtt/#birth-and-last-will-messages)."""
SOFTWARE = "$SYS/broker/version"
NAMED = 0.3
"""Seconds for the retained name of the broker to come after the answer to the subscription."""

Found = dict[str, Any]
"""Fields of `BrokerFacts`."""


class Visitor(NamedTuple):
    """Who visits which broker."""

    broker: Broker
    client_id: str
    protocol: str
    clock: Clock

    def greeting(self, step: str) -> Connect:
        """The CONNECT of one step."""
        return Connect(f"{self.client_id}-{step}", self.protocol, None, b"", session_expiry=0)


class Visit(SideConnection):
    """One connection of the doctor."""

    def __init__(self) -> None:
        super().__init__()
        self.crowded = False
        """Whether messages were dropped, since there were too many."""
        self._bytes = 0

    def received(self, message: Received) -> None:
        """See `ConnectionListener`."""
        self._bytes += len(message.topic) + len(message.payload)
        if len(self.messages) < MAX_MESSAGES and self._bytes <= MAX_BYTES:
            super().received(message)
        else:
            self.crowded = True
            self._news.set()

    @property
    def can_offer(self) -> bool:
        """Whether messages of quality 2 can be sent and held back."""
        return self.connection.client == "mqtt5" and self.connection.connack.maximum_qos >= OFFER

    async def subscribe(self, topic_filter: str, qos: int = 1) -> None:
        """Subscribe. Raises `SubscriptionRefused`, `BrokerError`."""
        asking = asyncio.ensure_future(self.connection.subscribe(topic_filter, qos))
        asking.add_done_callback(lambda _: self._news.set())
        try:
            if not await self.until(asking.done):
                raise self.broken or NoAnswer(f"no answer to a subscription within {ANSWER:g} s")
            await asking
        finally:
            asking.cancel()

    async def publish(self, message: Message) -> int | None:
        """Publish, and return the reason code; see `publish_all`."""
        (code,) = await self.publish_all([message])
        return code

    async def hears(self, topic: str, payload: bytes) -> bool:
        """Wait for a message. Returns whether it came."""
        return await self.until(lambda: any(each.topic == topic and each.payload == payload for each in self.messages))

    async def echo(self, topic: str, qos: int = 1) -> tuple[int | None, bool]:
        """Publish a marker at a topic that is subscribed to. Returns the reason code, and whether it came back. What
        was published or kept there before has arrived by then."""
        marker = new_marker()
        code = await self.publish(Message(topic, marker, qos))
        refused = code is not None and code >= 0x80
        return code, not refused and await self.hears(topic, marker)


def visit_of(visitor: Visitor, step: str) -> contextlib.AbstractAsyncContextManager[Visit]:
    """A visit that ends with the block. Raises as `SideConnection.greeted`."""
    return Visit().greeted(visitor.broker, visitor.greeting(step))


def new_marker() -> bytes:
    """A payload that nobody else sends."""
    return f"leadsman doctor {uuid.uuid4().hex[:12]}".encode()


async def probe(visitor: Visitor, subject: Subject, facts: BrokerFacts) -> Found:
    """Publish below the prefix and listen to it; see whether a message that is not released is passed on early. If the
    probe is refused, try a topic that the app needs: where it answers, nobody minds a message that is no answer."""
    topic = subject.topics.of(DOCTOR, "probe")
    async with visit_of(visitor, "probe") as visit:
        with contextlib.suppress(SubscriptionRefused):
            await visit.subscribe(topic)
        code, heard = await visit.echo(topic)
        early = answer = None
        if heard and visit.can_offer:
            offered = new_marker()
            await visit.publish(Message(topic, offered, OFFER))
            await visit.echo(topic)
            early = any(each.payload == offered for each in visit.messages)
    if code is not None and code >= 0x80:
        async with visit_of(visitor, "answer") as visit:  # mosquitto 2.0 ends a connection at the second refusal
            answer = await visit.publish(Message(f"{subject.topics.introspect}/response", new_marker()))
    return {"probe": ProbeFacts(code, heard, early, answer)}


async def software(visitor: Visitor, subject: Subject, facts: BrokerFacts) -> Found:
    """Read the name that the broker publishes of itself. rumqttd closes the connection of a client that asks for it, so
    nothing else is asked there, and it is no fault."""
    with contextlib.suppress(BrokerError, TimeoutError):
        async with asyncio.timeout(ANSWER), visit_of(visitor, "software") as visit:
            await visit.subscribe(SOFTWARE)
            await visit.until(lambda: bool(visit.messages), NAMED)
            return {"software": visit.messages[0].payload.decode(errors="replace")} if visit.messages else {}
    return {}


async def offers(visitor: Visitor, subject: Subject, facts: BrokerFacts) -> Found:
    """Offer an empty message at each topic that the app publishes to. Nobody receives it."""
    if facts.probe is None or facts.probe.early is not False:
        return {}
    return await _offer(visitor, subject)


async def offers_by_name(visitor: Visitor, subject: Subject, facts: BrokerFacts) -> Found:
    """The same where the probe could not show whether the broker holds such a message back, and its name does."""
    known = facts.probe is not None and facts.probe.early is not None
    if known or facts.offers is not None or "mosquitto" not in (facts.software or ""):
        return {}
    return await _offer(visitor, subject)


async def _offer(visitor: Visitor, subject: Subject) -> Found:
    answers: dict[str, int | None] = {}
    waiting, deadline = list(subject.published), time.monotonic() + OFFERING
    while waiting and time.monotonic() < deadline:
        async with visit_of(visitor, "access") as visit:
            if not visit.can_offer:
                return {}
            batch = waiting[: visit.connection.connack.receive_maximum]
            codes = await visit.publish_all([Message(topic, b"", OFFER) for topic in batch])
        answers |= {topic: code for topic, code in zip(batch, codes, strict=True) if code is not None}
        if batch[0] not in answers:
            answers[batch[0]] = None  # packets are read in order, so the first one is to blame
        waiting = [topic for topic in waiting if topic not in answers]
    return {"offers": answers}


async def subscriptions(visitor: Visitor, subject: Subject, facts: BrokerFacts) -> Found:
    """Subscribe as the app does, and see whether what is published there comes back. Ask the running app.

    Raises:
        BrokerError: no filter could be examined.
    """
    visits = [_listen(visitor, subject, *each) for each in subject.filters.items()]
    visits += [_taken(visitor, *each) for each in enumerate(subject.elsewhere, 1)]
    found = await asyncio.gather(*visits, return_exceptions=True)
    answers: dict[str, Answered] = {}
    live: LiveFacts | None = None
    for topic_filter, each in zip((*subject.filters, *subject.elsewhere), found, strict=True):
        if not isinstance(each, BaseException):
            answers[topic_filter], live = each[0], live or each[1]
        elif isinstance(each, BrokerError) and not all(isinstance(other, BaseException) for other in found):
            answers[topic_filter] = Answered(fault=describe(each))
        else:
            raise each
    return {"filters": answers, "live": live}


async def _listen(
    visitor: Visitor, subject: Subject, topic_filter: str, topic: str | None
) -> tuple[Answered, LiveFacts | None]:
    """Subscribe to one filter, and publish a probe at a topic that it matches, or ask the running app."""
    try:
        async with visit_of(visitor, f"listen-{topic or 'introspect'}".replace("/", "-")) as visit:
            await visit.subscribe(topic_filter)
            return await _ask(visit, subject) if topic is None else (Answered(None, *await visit.echo(topic)), None)
    except SubscriptionRefused as error:
        return Answered(describe(error)), None


async def _taken(visitor: Visitor, number: int, topic_filter: str) -> tuple[Answered, LiveFacts | None]:
    """Subscribe to a filter at whose topics others publish and read."""
    try:
        async with visit_of(visitor, f"listen-elsewhere-{number}") as visit:
            await visit.subscribe(topic_filter)
            return Answered(), None
    except SubscriptionRefused as error:
        return Answered(describe(error)), None


async def _ask(visit: Visit, subject: Subject) -> tuple[Answered, LiveFacts | None]:
    """Ask the running app about itself, with an ordinary request for introspection."""
    topic, transaction = subject.topics.introspect, new_marker().decode()
    with contextlib.suppress(SubscriptionRefused):
        await visit.subscribe(f"{topic}/response")
    request = json.dumps({"sections": ["app", "mqtt", "devices"], "transaction": transaction}).encode()
    code = await visit.publish(Message(topic, request))
    if code is None or code >= 0x80:
        return Answered(None, code), None
    heard = await visit.hears(topic, request)
    await visit.until(lambda: any(_data(each, transaction) for each in visit.messages), ANSWER / 2)
    found = [data for each in visit.messages if (data := _data(each, transaction))]
    return Answered(None, code, heard), _live(found[0]) if found else None


def _data(message: Received, transaction: str) -> Json:
    """The data of the answer to our request; empty for any other message."""
    if not message.topic.endswith("/response"):
        return {}
    answer = object_in(message.payload) or {}
    data = answer.get("data")
    return data if answer.get("transaction") == transaction and isinstance(data, dict) else {}


def _live(data: Json) -> LiveFacts | None:
    """The facts about the app in an answer; None if it is not that of an app."""
    app, mqtt, clock = _within(data, "app"), _within(data, "mqtt"), None
    try:
        uptime, connects = float(app.get("uptime", 0.0)), int(mqtt.get("connects", 0))
        with contextlib.suppress(KeyError, ValueError, TypeError):
            clock = datetime.fromisoformat(app["started_at"]).timestamp() + uptime - time.time()
        client_id, devices = str(mqtt.get("client_id", "")), _within(data, "devices")
        published, faults = dict(_published(devices)), faults_in(mqtt)
        waiting = {name: each for name in devices if (each := _within(devices, name, "runtime", "outbox"))}
        losing = frozenset(name for name, each in waiting.items() if each.get("refused") or "fault" in each)
        error, still = mqtt.get("last_error"), frozenset(waiting) - losing
        return LiveFacts(client_id, error, connects, uptime, clock, published, faults, still, losing)
    except (ValueError, TypeError, AttributeError, ArithmeticError):
        return None


def _published(devices: Json) -> Iterator[tuple[str, str]]:
    """When the last reading of each device was taken that the broker acknowledged."""
    for name in devices:
        at = _within(devices, name, "runtime", "published").get("published_at")
        if isinstance(at, str) and _within(devices, name, "runtime").get("outbox") is None:
            yield name, at


def _within(data: Json, *names: str) -> dict[str, Json]:
    """The object at this path; an empty one if there is none. What one device says amiss costs no other."""
    for name in names:
        data = data.get(name) if isinstance(data, dict) else None
    return data if isinstance(data, dict) else {}


async def landscape(visitor: Visitor, subject: Subject, facts: BrokerFacts) -> Found:
    """Gather what the broker keeps below the prefix, and Home Assistant's birth message. The status and the registry
    come first, so that they are there if the rest is too much."""
    found: Found = {}
    async with visit_of(visitor, "kept") as visit:
        for topic in (subject.topics.status, subject.topics.registry):
            with contextlib.suppress(SubscriptionRefused):
                await visit.subscribe(topic, 0)
        try:
            await visit.subscribe(BIRTH, 0)
        except SubscriptionRefused as error:
            found["birth_refused"] = describe(error)
        try:
            await visit.subscribe(f"{subject.topics.prefix}/#", 0)
        except SubscriptionRefused:
            return found
        try:
            if facts.probe is not None and facts.probe.heard:
                await visit.echo(subject.topics.of(DOCTOR, "probe"))
            else:
                await visit.until(lambda: visit.crowded, ANSWER / 4)
        except NoAnswer:  # the answer may wait behind the messages
            if not visit.crowded:
                raise
        if not visit.crowded:
            await _read_listed(visit, subject)
        kept = visit.kept()
    found["birth"] = kept.pop(BIRTH).payload.decode(errors="replace") if BIRTH in kept else None
    found["kept"] = {topic: each.payload for topic, each in kept.items()}
    found["taken_at"] = {topic: each.taken_at for topic, each in kept.items() if each.taken_at is not None}
    found["crowded"] = visit.crowded
    return found


async def _read_listed(visit: Visit, subject: Subject) -> None:
    """Read what the registry lists below the prefix, and has not come. A broker that sends what it keeps only for exact
    topics, as RabbitMQ does, needs that."""
    listed, marker = Listed(subject.topics.prefix), subject.topics.of(DOCTOR, "probe")
    asked: list[str] = []
    while True:
        kept = visit.kept()
        for topic, each in kept.items():
            listed.add(topic, each.payload)
        topics = [topic for _, found in listed.topics() for topic in found if topic not in listed.elsewhere]
        missing = [each for each in (*listed.not_asked(asked), *topics) if each not in kept and each not in asked]
        if not missing:
            return
        asked += missing
        await visit.read(missing, marker)


async def retained(visitor: Visitor, subject: Subject, facts: BrokerFacts) -> Found:
    """Let the broker keep a message, and see whether new subscribers get it. It is removed in any case."""
    topic, payload = subject.topics.of(DOCTOR, "retained"), new_marker()
    async with visit_of(visitor, "keep") as visit:
        try:
            expires = visitor.clock.monotonic() + PROBE_EXPIRY
            code = await visit.publish(Message(topic, payload, retain=True, expires=expires))
            if code is None or code >= 0x80:
                return {"retained": RetainedFacts(code, False)}
            wildcard = f"{topic.rpartition('/')[0]}/+"
            looks = _keeps(visitor, topic, payload), _keeps(visitor, topic, payload, wildcard)
            return {"retained": RetainedFacts(code, *await asyncio.gather(*looks))}
        finally:
            await _forget(visitor, visit, topic)


async def _forget(visitor: Visitor, visit: Visit, topic: str) -> None:
    """Remove a retained message; through another connection if this one is lost."""
    nothing = Message(topic, b"", retain=True)
    with contextlib.suppress(BrokerError):
        if await visit.publish(nothing) is not None:
            return
    with contextlib.suppress(BrokerError, TimeoutError):
        if visit.broken is not None:
            async with asyncio.timeout(ANSWER), visit_of(visitor, "forget") as another:
                await another.publish(nothing)


async def _keeps(visitor: Visitor, topic: str, payload: bytes, topic_filter: str | None = None) -> bool | None:
    """Whether a new subscriber, to the topic or to a filter that matches it, receives this message; None if it receives
    nothing at all."""
    async with visit_of(visitor, "new" if topic_filter is None else "new-wildcard") as visit:
        await visit.subscribe(topic_filter or topic)
        _, heard = await visit.echo(topic)
        return None if not heard else any(each.payload == payload and each.retain for each in visit.messages)


async def will(visitor: Visitor, subject: Subject, facts: BrokerFacts) -> Found:
    """Cut a connection with a will, and see when the will comes. Its session is ended afterwards."""
    topic, payload = subject.topics.of(DOCTOR, "will"), new_marker()
    greeting = visitor.greeting("will")
    async with visit_of(visitor, "heir") as heir:
        await heir.subscribe(topic)
        _, readable = await heir.echo(topic)
        if not readable:
            return {"will": Will(None, 0.0, readable=False)}
        greeting = greeting._replace(
            will_topic=topic,
            will_payload=payload,
            will_retained=False,
            will_delay=int(WILL_DELAY),
            session_expiry=SESSION_EXPIRY,
        )
        try:  # from here on there may be a session, also if this is cancelled before CONNACK comes
            async with Visit().greeted(visitor.broker, greeting) as dying:
                cut = time.monotonic()
                dying.connection.abort()
            came = await heir.until(
                lambda: any(each.payload == payload for each in heir.messages), WILL_DELAY + WILL_SLACK
            )
            after = time.monotonic() - cut if came else None
        finally:
            with contextlib.suppress(BrokerError, TimeoutError):
                async with asyncio.timeout(ANSWER), visit_of(visitor, "will"):
                    pass  # takes the session of the dead connection over, and ends it
    return {"will": Will(after, WILL_DELAY if visitor.protocol == V5 else 0.0)}


async def own_will(visitor: Visitor, subject: Subject, facts: BrokerFacts) -> Found:
    """Offer the will of the app, at its topic. The connection ends with a DISCONNECT, so nothing is published."""
    topic, payload = subject.topics.status, new_marker()
    greeting = visitor.greeting("own-will")._replace(will_topic=topic, will_payload=payload, will_retained=False)
    try:
        async with Visit().greeted(visitor.broker, greeting) as visit:
            return {"will_refused": visit.connection.connack.will_refused}
    except ConnectionRefused as error:
        return {"will_refused": describe(error)}


STEP = 6.0
"""Seconds for one step."""
LONG_STEP = 10.0
"""Seconds for a step that waits for the broker's clock."""

NEIGHBOUR = 0.3
"""Seconds in which a broker that takes two clients for one closes the older connection."""

ReportProgress = Callable[[str], None]
"""Called with what is examined at the moment."""
Step = Callable[[Visitor, Subject, BrokerFacts], Awaitable[Found]]
_QUICK_STEPS: tuple[tuple[str, Step], ...] = (
    ("probe", probe),
    ("access list", offers),
    ("subscriptions", subscriptions),
    ("will of the app", own_will),
    ("retained topics", landscape),
    ("name of the broker", software),
    ("access list", offers_by_name),
)
_SLOW_STEPS: tuple[tuple[str, Step], ...] = (("retained", retained), ("will", will))
"""They take their time, beside the others: the will waits for the broker's clock."""


class BrokerExamination:
    """Collects the facts of one broker. `facts` holds what is known so far.

    Args:
        subject: the app.
        report: takes the name of what is examined at the moment.
    """

    def __init__(self, subject: Subject, report: ReportProgress) -> None:
        self.facts = BrokerFacts()
        self._subject = subject
        self._report = report

    async def run(self) -> None:
        """Collect them. Takes about three seconds if all is well; never raises because of the broker."""
        visitor = await self._connect()
        if visitor is None or self.facts.mixed_up:  # each connection would end that of the running app
            return
        slow = [asyncio.create_task(self._step(name, step, visitor, LONG_STEP)) for name, step in _SLOW_STEPS]
        try:
            for name, step in _QUICK_STEPS:
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
        self._report(f"broker: {name}")
        found: Found = {}
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
        broker, visitor = self._subject.broker, None
        client_id = f"{self._subject.client_id}-doctor-{uuid.uuid4().hex[:6]}"
        self._report(f"broker: connecting to {broker}")
        try:
            async with Visit().at(broker, f"{client_id}-hello") as visit:
                visitor = Visitor(broker, client_id, visit.protocol, system_clock(asyncio.get_running_loop()))
                connection, mixed_up = visit.connection, await _mixed_up(visitor, visit)
                self.facts = BrokerFacts(connection.connack, visit.protocol, connection.client, mixed_up=mixed_up)
        except BrokerError as error:
            self.facts = self.facts._replace(failure=failure_of(error))
        return visitor


async def _mixed_up(visitor: Visitor, first: Visit) -> bool:
    """Whether a connection with another client id ends the first one."""
    with contextlib.suppress(BrokerError):
        async with visit_of(visitor, "other"):
            return await first.until(lambda: first.broken is not None, NEIGHBOUR)
    return False


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
