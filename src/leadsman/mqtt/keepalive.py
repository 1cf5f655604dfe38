"""Decides when to send a PINGREQ, and when a broker that does not answer is given up."""

from leadsman.mqtt.connection import KEEPALIVE


class KeepAlive:
    """The quiet of one connection. All times are monotonic seconds.

    A PINGREQ is due when nothing was sent, or no packet was received, for `interval` seconds: the broker demands the
    first (MQTT 5 §3.1.2.10), and the second finds a half-open link.

    Args:
        interval: seconds that the broker demands; 0 demands nothing, and `KEEPALIVE` is used.
        now: when the connection was accepted.
    """

    def __init__(self, interval: int, now: float) -> None:
        self.interval = interval or KEEPALIVE
        self.patience = min(self.interval, KEEPALIVE)
        """Seconds to wait for an answer."""
        self._sent = self._received = now
        self._asked: float | None = None

    def sent(self, now: float) -> None:
        """Bytes were handed to the socket."""
        self._sent = now

    def received(self, now: float) -> None:
        """A complete packet was received."""
        self._received = now
        self._asked = None

    def asked(self, now: float) -> None:
        """PINGREQ was sent."""
        self._asked = now

    def ping_due(self, now: float) -> bool:
        """Whether to send PINGREQ."""
        return self._asked is None and now >= min(self._sent, self._received) + self.interval

    def dead(self, now: float) -> bool:
        """Whether the broker left a PINGREQ unanswered."""
        return self._asked is not None and now >= self._asked + self.patience

    def next(self) -> float:
        """When to ask again what is due."""
        if self._asked is not None:
            return self._asked + self.patience
        return min(self._sent, self._received) + self.interval
