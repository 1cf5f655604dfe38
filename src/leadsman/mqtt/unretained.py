"""Connections that retain nothing, for dry runs: their messages are gone when they end."""

from leadsman.mqtt.connection import Connect, Connection, ConnectionListener, Connector
from leadsman.mqtt.message import Message


def unretained(connect: Connector) -> Connector:
    """As `connect`, but the broker keeps neither messages nor the will."""

    async def connected(packet: Connect, listener: ConnectionListener) -> Connection:
        return _Unretained(await connect(packet._replace(will_retained=False), listener))

    return connected


class _Unretained:
    def __init__(self, connection: Connection) -> None:
        self.connack = connection.connack
        self.client = connection.client
        self.subscribe = connection.subscribe
        self.close = connection.close
        self.abort = connection.abort
        self.reset = connection.reset
        self._connection = connection

    @property
    def urgent(self) -> bool:
        return self._connection.urgent

    @urgent.setter
    def urgent(self, urgent: bool) -> None:
        self._connection.urgent = urgent

    def publish(self, message: Message) -> int:
        return self._connection.publish(message._replace(retain=False))
