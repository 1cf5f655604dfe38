"""A broker in memory for tests in virtual time. The link uses it like a real connection, and it can fail in every
way a real one can."""

import asyncio
import json
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from leadsman.core.mqtt.answers import Json
from leadsman.core.mqtt.connection import ConnAck, Connect, Connection, ConnectionListener, Received
from leadsman.core.mqtt.connection_state import V5
from leadsman.core.mqtt.message import Message
from leadsman.core.mqtt.topics import topic_matches
from leadsman.errors import BrokerError, ConnackMissing, ConnectionRefused, NotListening, SubscriptionRefused

CONNECT_TIMEOUT = 5.0
"""Seconds until a connection attempt to a silent broker fails, as with the real client."""
WILL_DELAY = 10.0
"""Seconds, as the real client asks for."""


_CONNACK = ConnAck()


class Delivered(NamedTuple):
    """A message that reached the broker; `at` in virtual seconds."""

    at: float
    topic: str
    payload: bytes
    retain: bool
    taken_at: float | None
    correlation: bytes | None = None

    @property
    def json(self) -> Json:
        """The payload, decoded as JSON."""
        return json.loads(self.payload)


class MemoryBroker:
    """A broker in memory. It keeps the messages it receives in `log` and `retained`.

    Attributes:
        only_v311: refuse MQTT 5, as an old broker does: ``"refuse"`` with a reason code, ``"close"`` by closing the
            connection.
        only_v5: refuse MQTT 3.1.1 with a reason code.
        refusals: PUBACK reason codes by topic; 0x80 and above refuse the message.
        poison: topics on whose messages the broker closes the connection.
        poison_filters: topic filters on whose subscription it closes the connection.
        poison_code: the PUBACK reason code it sends before it closes the connection on poison; None: no PUBACK.
        lose_acknowledgements: accept messages, but lose their PUBACK.
        refuse_subscriptions: topic filters whose subscription is refused.
        keep_sessions: keep the session of a client of MQTT 5 for a minute after its connection, with its subscriptions
            and the messages that it has not acknowledged. A message for two of its filters is sent twice.
        unheard: take no acknowledgement of a client, as if it was lost on the way. What is sent meanwhile comes again
            with the next connection, with DUP, if the broker keeps sessions.
        exact_only: hand retained messages out to filters without a wildcard alone, as RabbitMQ does.
        refuse_connect: a CONNACK reason code or an error for every connection attempt, or None.
        connack: the contents of CONNACK.
    """

    def __init__(self, connack: ConnAck = _CONNACK) -> None:
        self.log: list[Delivered] = []
        self.retained: dict[str, Delivered] = {}
        self.connects: list[tuple[float, Connect]] = []
        self.only_v311: str | None = None
        self.only_v5 = False
        self.refusals: dict[str, int] = {}
        self.poison: set[str] = set()
        self.poison_filters: set[str] = set()
        self.poison_code: int | None = None
        self.lose_acknowledgements = False
        self.refuse_subscriptions: set[str] = set()
        self.keep_sessions = self.unheard = False
        self.exact_only = False
        self.refuse_connect: int | BrokerError | None = None
        self.connack = connack
        self._up = True
        self._frozen = False
        self._clients: dict[str, _MemoryConnection] = {}
        self._sessions: dict[str, _Session] = {}
        self._unanswered: list[Callable[[], None]] = []

    async def connect(self, packet: Connect, listener: ConnectionListener) -> Connection:
        """Make a connection; see `leadsman.core.mqtt.connection.Connector`."""
        loop = asyncio.get_running_loop()
        self.connects.append((loop.time(), packet))
        if not self._up:
            raise NotListening("cannot connect: connection refused")
        if self._frozen:
            await asyncio.sleep(CONNECT_TIMEOUT)
            raise BrokerError(f"did not answer within {CONNECT_TIMEOUT:g} s")
        if self.only_v311 and packet.protocol == V5:
            if self.only_v311 == "close":
                raise ConnackMissing("closed before CONNACK")
            raise ConnectionRefused(0x84, "it does not speak this version of MQTT")
        if self.only_v5 and packet.protocol != V5:
            raise ConnectionRefused(0x84, "it does not speak this version of MQTT")
        if isinstance(self.refuse_connect, BrokerError):
            raise self.refuse_connect
        if self.refuse_connect is not None:
            raise ConnectionRefused(self.refuse_connect, f"refused (0x{self.refuse_connect:02x})")
        former = self._clients.pop(packet.client_id, None)
        if former is not None:
            former.end("session taken over", will=False)
        connection = self._clients[packet.client_id] = _MemoryConnection(self, packet, listener, loop)
        if self.keep_sessions:
            self._resume(connection, loop.time())
        return connection

    def _resume(self, connection: "_MemoryConnection", now: float) -> None:
        """Give a connection the session of its client, or a new one."""
        packet = connection.packet
        session = self._sessions.get(packet.client_id)
        if session is None or packet.clean or packet.protocol != V5 or now >= session.left_at + packet.session_expiry:
            session = None
        connection.connack = connection.connack._replace(session_present=session is not None)
        connection.session = self._sessions[packet.client_id] = session or _Session()
        connection.session.left_at = math.inf
        for packet_id in connection.session.unacknowledged:
            connection.loop.call_soon(self._send_one, connection, packet_id)

    def _send_one(self, connection: "_MemoryConnection", packet_id: int) -> None:
        session = connection.session
        received = session.unacknowledged.get(packet_id)
        if not connection.open or received is None:
            return
        session.unacknowledged[packet_id] = received._replace(redelivered=True)  # if it is sent once more
        connection.listener.received(received)
        if not self.unheard:
            del session.unacknowledged[packet_id]

    def stop(self, *, forget: bool = False) -> None:
        """Die, as by kill -9. `forget` also drops the retained messages, as a broker without persistence does."""
        self._up = False
        self._unanswered.clear()
        if forget:
            self.retained.clear()
        for connection in list(self._clients.values()):
            connection.end("connection lost", will=False)
        self._clients.clear()

    def start(self) -> None:
        """Start again."""
        self._up = True

    def freeze(self) -> None:
        """Stop answering, but keep all connections open, as by SIGSTOP."""
        self._frozen = True

    def thaw(self) -> None:
        """Answer again, including what arrived in the meantime."""
        self._frozen = False
        unanswered, self._unanswered = self._unanswered, []
        for answer in unanswered:
            answer()

    @property
    def connected(self) -> bool:
        """Whether any client is connected."""
        return bool(self._clients)

    def cut(self, reason: str = "connection reset", code: int = 0) -> None:
        """Close all connections, with the reason code of a DISCONNECT. The broker itself keeps running."""
        for connection in list(self._clients.values()):
            connection.end(reason, will=True, code=code)
        self._clients.clear()

    def send(
        self,
        topic: str,
        payload: bytes | str | Mapping[str, object] = b"",
        *,
        retain: bool = False,
        response_topic: str | None = None,
        correlation: bytes | None = None,
    ) -> None:
        """Publish to all subscribers, as another client would. A dict is sent as JSON."""
        data = json.dumps(dict(payload)) if isinstance(payload, Mapping) else payload
        received = Received(
            topic, data.encode() if isinstance(data, str) else data, retain, response_topic, correlation
        )
        if self.keep_sessions:
            self._send_through_sessions(received)
            return
        for connection in self._clients.values():
            if any(topic_matches(each, topic) for each in connection.filters):
                connection.loop.call_soon(connection.listener.received, received)

    def _send_through_sessions(self, received: Received) -> None:
        for client_id, session in self._sessions.items():
            for _ in [each for each in session.filters if topic_matches(each, received.topic)]:
                session.packet_id += 1
                session.unacknowledged[session.packet_id] = received._replace(packet_id=session.packet_id)
                connection = self._clients.get(client_id)
                if connection is not None:
                    connection.loop.call_soon(self._send_one, connection, session.packet_id)

    def messages(self, topic: str) -> list[Delivered]:
        """The messages received on a topic, in order."""
        return [delivered for delivered in self.log if delivered.topic == topic]

    def take(self, connection: "_MemoryConnection", packet_id: int, message: Message) -> None:
        """Receive one PUBLISH in the next turn of the event loop. For the connection."""
        connection.loop.call_soon(self.receive, connection, packet_id, message)

    def receive(self, connection: "_MemoryConnection", packet_id: int, message: Message) -> None:
        """Receive one PUBLISH."""
        if self._frozen:
            self._unanswered.append(lambda: self.receive(connection, packet_id, message))
        elif not connection.open:
            return
        elif message.topic in self.poison:
            self._clients.pop(connection.packet.client_id, None)
            if self.poison_code is not None:
                connection.listener.acknowledged(packet_id, self.poison_code)
            connection.end("closed by the broker", will=True)
        else:
            code = self.refusals.get(message.topic, 0)
            if code < 0x80:
                self._keep(
                    Delivered(
                        connection.loop.time(),
                        message.topic,
                        message.payload,
                        message.retain,
                        message.taken_at,
                        message.correlation,
                    )
                )
            if not self.lose_acknowledgements:
                connection.listener.acknowledged(packet_id, code)

    def hand_out(self, connection: "_MemoryConnection", topic_filter: str) -> None:
        """Send the retained messages that a new subscription takes in. For the connection."""
        for topic, kept in self.retained.items():
            if topic == topic_filter or (topic_matches(topic_filter, topic) and not self.exact_only):
                received = Received(topic, kept.payload, retain=True)
                connection.loop.call_soon(connection.listener.received, received)

    def left(self, connection: "_MemoryConnection", *, will: bool) -> None:
        """A client is gone. For the connection."""
        client_id = connection.packet.client_id
        connection.session.left_at = connection.loop.time()
        if self._clients.get(client_id) is connection:
            del self._clients[client_id]
        if will:
            connection.loop.call_later(WILL_DELAY, self._publish_will, connection)

    def _publish_will(self, connection: "_MemoryConnection") -> None:
        packet = connection.packet
        if self._up and packet.will_topic is not None and packet.client_id not in self._clients:
            at, retain = connection.loop.time(), packet.will_retained
            self._keep(Delivered(at, packet.will_topic, packet.will_payload, retain, None))

    def _keep(self, delivered: Delivered) -> None:
        self.log.append(delivered)
        if delivered.retain and delivered.payload:
            self.retained[delivered.topic] = delivered
        elif delivered.retain:
            self.retained.pop(delivered.topic, None)


class ForgetfulBroker(MemoryBroker):
    """A broker that acknowledges every message, and keeps none: for days with very many of them. It acknowledges all
    messages of one turn of the event loop together."""

    def __init__(self, connack: ConnAck = _CONNACK) -> None:
        super().__init__(connack)
        self._arrived: list[tuple[_MemoryConnection, int]] = []

    def take(self, connection: "_MemoryConnection", packet_id: int, message: Message) -> None:
        """See `MemoryBroker`."""
        self._arrived.append((connection, packet_id))
        if len(self._arrived) == 1:
            connection.loop.call_soon(self._acknowledge)

    def _acknowledge(self) -> None:
        arrived, self._arrived = self._arrived, []
        for connection, packet_id in arrived:
            if connection.open:
                connection.listener.acknowledged(packet_id, 0)


class _Session:
    """What the broker keeps of a client between two connections."""

    def __init__(self) -> None:
        self.filters: list[str] = []
        self.unacknowledged: dict[int, Received] = {}
        """The messages that the client has not acknowledged, by packet identifier."""
        self.packet_id = 0
        self.left_at = math.inf
        """When the client left, in seconds of the loop."""


class _MemoryConnection:
    client = "memory"
    urgent = False

    def __init__(
        self, broker: MemoryBroker, packet: Connect, listener: ConnectionListener, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.connack = broker.connack
        self.packet = packet
        self.listener = listener
        self.loop = loop
        self.open = True
        self.session = _Session()
        self._broker = broker
        self._packet_id = 0

    @property
    def filters(self) -> list[str]:
        return self.session.filters

    def publish(self, message: Message) -> int:
        if not self.open:
            raise BrokerError("not connected")
        self._packet_id += 1
        self._broker.take(self, self._packet_id, message)
        return self._packet_id

    async def subscribe(self, topic_filter: str, qos: int = 1) -> None:
        if self.open and topic_filter in self._broker.poison_filters:
            self.end("closed by the broker", will=True)
        if not self.open:
            await asyncio.Event().wait()  # as with a real one; the link cancels it
        if topic_filter in self._broker.refuse_subscriptions:
            raise SubscriptionRefused(f"the broker refused the subscription to {topic_filter!r} (0x87)")
        if topic_filter not in self.filters:
            self.filters.append(topic_filter)
        self._broker.hand_out(self, topic_filter)

    async def unsubscribe(self, topic_filter: str) -> None:
        if not self.open:
            await asyncio.Event().wait()
        if topic_filter in self.filters:
            self.filters.remove(topic_filter)

    async def close(self) -> None:
        if self.open:
            self.open = False
            self._broker.left(self, will=False)

    def abort(self) -> None:
        if self.open:
            self.open = False
            self._broker.left(self, will=True)

    reset = abort

    def end(self, reason: str, *, will: bool, code: int = 0) -> None:
        """The broker's side closes, with the reason code of a DISCONNECT."""
        self.open = False
        if will:
            self._broker.left(self, will=True)
        self.loop.call_soon(self.listener.lost, reason, code)
