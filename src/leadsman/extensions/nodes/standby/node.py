"""One node of an app that several share: joins the machine of `leadsman.extensions.nodes.standby.machine` to the world,
and gives the link the connection with the id of the app. Nothing goes through that, in either direction, unless the
node may use it at that moment."""

import asyncio
import functools
import logging
import random
import secrets
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING

from leadsman.core.loop.clock import Clock, rfc3339
from leadsman.core.mqtt.broker import Broker
from leadsman.core.mqtt.connection import (
    Connect,
    Connection,
    ConnectionListener,
    Connector,
    Received,
    WrappedConnection,
)
from leadsman.core.mqtt.connection_state import ADMINISTRATIVE, SESSION_TAKEN_OVER
from leadsman.core.mqtt.link import Access
from leadsman.core.mqtt.message import Message
from leadsman.core.text import clean, log_fields
from leadsman.core.text.log_lines import left_out_before, others
from leadsman.errors import BrokerError, NotListening
from leadsman.extensions.nodes import brief
from leadsman.extensions.nodes.failure_state import FailureStates
from leadsman.extensions.nodes.settings import StandbySettings
from leadsman.extensions.nodes.shared_app import SharedApp
from leadsman.extensions.nodes.standby.machine import (
    Action,
    Active,
    AppEnded,
    Begin,
    Connected,
    Disconnected,
    Drain,
    Event,
    Fenced,
    Leave,
    Moment,
    NodeRule,
    Release,
    Released,
    Renew,
    Standby,
    State,
    Stop,
    TakingOver,
    Tick,
    first,
    may_connect,
    next_at,
    step,
)
from leadsman.extensions.nodes.standby.observer import Observer
from leadsman.extensions.nodes.standby.report import Role, StandbyReport

if TYPE_CHECKING:
    from leadsman.core.monitoring.document import NodeSection


class Relay:
    """Listens to the connection, for the link. A `ConnectionListener`."""

    def __init__(self, node: "StandbyNode", listener: ConnectionListener) -> None:
        self._node = node
        self._listener = listener
        self.over = False
        """Whether the connection was lost."""

    def acknowledged(self, packet_id: int, code: int) -> None:
        """See `ConnectionListener`."""
        self._listener.acknowledged(packet_id, code)

    def lost(self, reason: str, code: int = 0) -> None:
        """See `ConnectionListener`."""
        taken_over = code == SESSION_TAKEN_OVER
        if not self.over:
            self.over = True
            self._node.disconnected(self, taken_over=taken_over)
        if taken_over:  # no other program has our id: it is the other node
            reason, code = "another node has the session", ADMINISTRATIVE
        self._listener.lost(reason, code)

    def received(self, message: Received) -> None:
        """See `ConnectionListener`. What lay in the socket while the process was frozen is for the new owner."""
        if self._node.permitted():
            self._listener.received(message)


class OwnedConnection(WrappedConnection):
    """The connection, for the link."""

    def __init__(self, connection: Connection, node: "StandbyNode", relay: Relay) -> None:
        super().__init__(connection)
        self._node = node
        self._relay = relay

    def publish(self, message: Message) -> int:
        """See `Connection`."""
        if not self._node.permitted():
            raise BrokerError("this node does not own the app any more")
        return super().publish(message)

    async def close(self) -> None:
        """See `Connection`."""
        self._node.leave()
        self._end()
        await super().close()

    def abort(self) -> None:
        """See `Connection`."""
        self._end()
        super().abort()

    def reset(self) -> None:
        """See `Connection`."""
        self._end()
        super().reset()

    def _end(self) -> None:
        if not self._relay.over:
            self._relay.over = True
            self._node.disconnected(self._relay, taken_over=False)


MIN_WAIT_SECONDS = 0.001
"""Seconds. The clock of the machine goes on while the host sleeps, that of the loop does not."""
MAX_HOST_CHARS = 40
"""Characters of the host in the name of a node."""

_WORDS: Mapping[type[State], brief.State] = {
    Standby: "standby",
    TakingOver: "taking_over",
    Active: "active",
    Fenced: "fenced",
    Released: "standby",
}
"""The states as the document of the node has them."""

logger = logging.getLogger("leadsman")


def node_name() -> str:
    """A name for this process. Two machines may have one host name, as clones of a card have."""
    return f"{clean(socket.gethostname())[:MAX_HOST_CHARS]}-{secrets.token_hex(3)}"


class StandbyNode:
    """One node of a pair.

    Args:
        app: the app.
        access: the broker, and how a connection to it is made.
        clock: the clocks.
    """

    def __init__(self, app: SharedApp, access: Access, clock: Clock) -> None:
        standby, topics, client_id = app.sections.of(StandbySettings), app.topics, app.identity.client_id
        assert standby is not None  # the caller checks this
        self.name = node_name()
        self.ttl = standby.ttl
        """Seconds for which its lease holds."""
        self.access = access._replace(connector=self._connector)
        """How the link of the app reaches the broker: only while this node may use the id of the app."""
        self._takeovers = 0
        self._given = access
        self._topics = topics
        self._client_id = client_id
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._node = first(NodeRule(self.name, standby.ttl), self._moment())
        self._since = clock.uptime()
        self._stays = False
        """Whether the process goes on when the app has ended: after a fence or a drain."""
        self._handle: asyncio.TimerHandle | None = None
        self._served: str | None = None
        self._lines = others()
        self._relay: Relay | None = None
        self._connection: Connection | None = None
        self._ending = asyncio.Event()
        self._changed = asyncio.Event()
        self.report = StandbyReport(
            app,
            self.name,
            standby.ttl,
            clock,
            publish=lambda message: self.observer.publish(message),
            role=self._role,
            drain=lambda draining: self.feed(Drain(draining)),
        )
        """The report of this node; it also keeps the documents of the others."""
        primary = access.brokers.primary
        observed = f"{client_id}-standby-{self.name[-6:]}"
        connector = access.connector(primary)
        self.observer = Observer(observed, topics, connector, primary.protocol, self.feed, self.report, clock)
        if app.keep_state:
            self.observer.failure_states = FailureStates(topics, clock.uptime)

    @property
    def state(self) -> State:
        """The state of the node."""
        return self._node.state

    @property
    def owner(self) -> str | None:
        """The node that the latest lease names; None if it is gone."""
        lease = self._node.view.lease
        return None if lease is None else lease.owner

    @property
    def draining(self) -> bool:
        """Whether a person wants it to own nothing."""
        return self._node.draining

    @property
    def leaving(self) -> bool:
        """Whether the app ends for good, and not because of a fence or a drain."""
        return not self._stays

    @property
    def ownership(self) -> "NodeSection | None":
        """This node as owner; None if it does not take over, and is not active."""
        state = self.state
        if not isinstance(state, TakingOver | Active):
            return None
        since = rfc3339(self._clock.wall() - self._clock.uptime() + state.since)
        return {"name": clean(self.name), "token": state.token, "since": since, "takeovers": self._takeovers}

    def feed(self, event: Event) -> None:
        """Take a step, and do what follows from it."""
        before, draining = self.state, self._node.draining
        self._node, actions = step(self._node, event, self._moment())
        for action in actions:
            self._do(action)
        self._log_owner()
        if type(before) is not type(self.state):
            self._report()
            self._changed.set()
            self._since = self._clock.uptime()
        if type(before) is not type(self.state) or draining != self._node.draining:
            self.report.publish_if_new()
        self._arm()

    async def turn_or(self, stopping: asyncio.Event, timeout: float) -> bool:
        """Wait at most `timeout` seconds until it is this node's turn, or the process is to stop. Whether it is."""
        await self._until(stopping, TakingOver, timeout)
        if isinstance(self.state, Fenced):  # before the app began: nothing of it has to stop
            self.feed(AppEnded())
        return isinstance(self.state, TakingOver)

    async def owner_or(self, stopping: asyncio.Event) -> None:
        """Wait until this node is active, or the app is to stop."""
        while not stopping.is_set() and not isinstance(self.state, Active):
            await self._until(stopping, Active, None)

    def begin(self, ending: asyncio.Event) -> None:
        """The app starts. `ending` is set when it must stop."""
        self._ending = ending
        self._stays = isinstance(self.state, Fenced) or self._node.draining
        if self._stays:  # meanwhile
            ending.set()

    def permitted(self) -> bool:
        """Whether this node may act. A node that was frozen finds out here, before anything else happens."""
        if may_connect(self._node, self._clock.uptime()):
            return True
        self.feed(Tick())
        return False

    def disconnected(self, relay: Relay, *, taken_over: bool) -> None:
        """The connection was lost."""
        if relay is self._relay:
            self._relay = self._connection = None
            self.feed(Disconnected(taken_over))

    def leave(self) -> None:
        """The connection is about to be closed."""
        if self._ending.is_set() and not isinstance(self.state, Fenced):
            self.feed(Leave())

    async def _until(self, stopping: asyncio.Event, kind: type[State], timeout: float | None) -> None:
        self._changed.clear()
        if isinstance(self.state, kind) or stopping.is_set():
            return
        waits = [asyncio.ensure_future(event.wait()) for event in (self._changed, stopping)]
        await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    def _connector(self, broker: Broker) -> Connector:
        return functools.partial(self._connect, self._given.connector(broker))

    async def _connect(self, connector: Connector, packet: Connect, listener: ConnectionListener) -> Connection:
        """Connect for the app, once the lease was read and names no other node. Only the connection with the id of the
        app shows who owns it; one beside it, which asks a broker something, carries no lease and has no will.

        While the lease is not observed, the app's attempts fail at once. That shows the link that the broker is away,
        and that no second client ends its connections; a wait until it is back would not.
        """
        if packet.client_id == self._client_id and (why := self.observer.blind) is not None:
            raise NotListening(why)
        await self.observer.read_again()
        if not self.permitted():
            await self._loop.create_future()  # the app is being stopped
        if packet.client_id != self._client_id:
            return await connector(packet, listener)
        relay = Relay(self, listener)
        connection = await connector(packet, relay)
        if not self.permitted():
            connection.abort()
            raise BrokerError("this node does not own the app any more")
        owned = OwnedConnection(connection, self, relay)
        if not relay.over:
            self._relay, self._connection = relay, connection
            self.feed(Connected())
        return owned

    def _do(self, action: Action) -> None:
        connection, topic = self._connection, self._topics.lease
        match action:
            case Begin():
                self._changed.set()
            case Stop():
                self._stays = True
                self._ending.set()
            case Renew(lease) if connection is not None:
                wall, expires = self._clock.wall() + lease.ttl, self._clock.monotonic() + lease.ttl
                self._publish(connection, Message(topic, lease.encode(rfc3339(wall)), 0, retain=True, expires=expires))
            case Release() if connection is not None:
                self._publish(connection, Message(topic, b"", 0, retain=True))

    def _publish(self, connection: Connection, message: Message) -> None:
        try:
            connection.publish(message)
        except BrokerError as error:  # the link sees that too, and the lease is published on the next connection
            about = log_fields("lease not published", node=self.name)
            logger.debug("%s: the lease was not published: %s", self._topics.prefix, clean(str(error)), extra=about)

    def _log_owner(self) -> None:
        """Log whom this node stands by for, once for each owner."""
        if isinstance(self.state, Standby) and (owner := self.owner) not in (None, self.name, self._served):
            self._served = owner
            left_out = self._lines.left_out("standing by", self._clock.monotonic())
            if left_out is not None:
                about, more = log_fields("standing by", node=self.name, owner=clean(owner)), left_out_before(left_out)
                what = "%s: this node, %s, stands by for %s%s"
                logger.info(what, self._topics.prefix, self.name, clean(owner), more, extra=about)
        elif isinstance(self.state, Active):
            self._served = None

    def _report(self) -> None:
        prefix, state = self._topics.prefix, self.state
        if isinstance(state, TakingOver):
            self._takeovers += 1
        if not isinstance(state, TakingOver | Active | Fenced):
            return
        left_out = self._lines.left_out(_WORDS[type(state)], self._clock.monotonic())
        if left_out is None:  # any client that may publish the lease may cause it
            return
        more = left_out_before(left_out)
        match state:
            case TakingOver(token=token):
                about = log_fields("taking over", node=self.name, token=token)
                what = "%s: this node, %s, takes over with the token %d%s"
                logger.info(what, prefix, self.name, token, more, extra=about)
            case Active(token=token):
                about = log_fields("active", node=self.name, token=token)
                logger.info("%s: this node, %s, is active%s", prefix, self.name, more, extra=about)
            case Fenced(reason=reason):
                about = log_fields("fenced", node=self.name, reason=clean(reason))
                what = "%s: this node, %s, stops polling, and stands by: %s%s"
                logger.warning(what, prefix, self.name, clean(reason), more, extra=about)

    def _arm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        due = next_at(self._node)
        if due < float("inf"):
            wait = max(MIN_WAIT_SECONDS, due - self._clock.uptime())
            self._handle = self._loop.call_later(wait, self.feed, Tick())

    def _role(self) -> Role:
        state = self.state
        token = state.token if isinstance(state, TakingOver | Active) else None
        word = "draining" if self._node.draining else _WORDS[type(state)]
        return Role(word, self._since, self.owner, token, self._takeovers)

    def _moment(self) -> Moment:
        return Moment(self._clock.uptime(), random.random(), round(self._clock.wall() * 1000))

    async def close(self) -> None:
        """End the observation."""
        if self._handle is not None:
            self._handle.cancel()
        await self.observer.close()
