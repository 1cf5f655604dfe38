"""The connection with the id of the app, as a node that shares the app uses it: nothing goes through it, in either
direction, unless the node may use it at that moment."""

from typing import Protocol

from leadsman.errors import BrokerError
from leadsman.mqtt.connection import Connection, ConnectionListener, Received, WrappedConnection
from leadsman.mqtt.connection_state import ADMINISTRATIVE, SESSION_TAKEN_OVER
from leadsman.mqtt.message import Message


class SessionHolder(Protocol):
    """The node that the session belongs to."""

    def permitted(self) -> bool:
        """Whether it may use the session now."""

    def disconnected(self, relay: "Relay", *, taken_over: bool) -> None:
        """The connection was lost."""

    def leave(self) -> None:
        """The connection is about to be closed."""


class Relay:
    """Listens to the connection, for the link. A `ConnectionListener`."""

    def __init__(self, holder: SessionHolder, listener: ConnectionListener) -> None:
        self._holder = holder
        self._listener = listener
        self.over = False
        """Whether the connection was lost."""

    def acknowledged(self, packet_id: int, code: int) -> None:
        """See `ConnectionListener`."""
        self._listener.acknowledged(packet_id, code)

    def lost(self, reason: str, code: int = 0, reference: str | None = None) -> None:
        """See `ConnectionListener`."""
        taken_over = code == SESSION_TAKEN_OVER
        if not self.over:
            self.over = True
            self._holder.disconnected(self, taken_over=taken_over)
        if taken_over:  # no other program has our id: it is the other node
            reason, code = "another node has the session", ADMINISTRATIVE
        self._listener.lost(reason, code, reference)

    def received(self, message: Received) -> None:
        """See `ConnectionListener`. What lay in the socket while the process was frozen is for the new owner."""
        if self._holder.permitted():
            self._listener.received(message)


class OwnedConnection(WrappedConnection):
    """The connection, for the link."""

    def __init__(self, connection: Connection, holder: SessionHolder, relay: Relay) -> None:
        super().__init__(connection)
        self._holder = holder
        self._relay = relay

    def publish(self, message: Message) -> int:
        """See `Connection`."""
        if not self._holder.permitted():
            raise BrokerError("this node does not own the app any more")
        return super().publish(message)

    async def close(self) -> None:
        """See `Connection`."""
        self._holder.leave()
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
            self._holder.disconnected(self._relay, taken_over=False)
