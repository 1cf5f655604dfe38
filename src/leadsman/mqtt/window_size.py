"""How many messages may be in flight: as many as the road to the broker needs, and at most as many as it allows.

A message and its acknowledgement take a round trip, so a distant broker needs many messages in flight, and a near one
or a busy one gains nothing by more. The size doubles as long as messages wait and the rate of delivery grows by a
quarter. When it has not grown for three rounds, the size stays. Each minute twice the size is tried, and kept if the
rate grows. A round is the time in which the broker acknowledges as many messages as may be in flight. The start-up of
BBR finds the capacity of a road in the same way, with the same two numbers (Cardwell et al., "BBR: Congestion-Based
Congestion Control", ACM Queue 14 (5), 2016).

Pure: `now` is monotonic seconds.
"""

FIRST = 20
"""Messages in flight at first: the Receive Maximum of mosquitto, unless it is configured."""
MOST = 1000
"""Messages in flight at most: 2,500 a second over a round trip of 0.4 s, and a tenth of what the outbox holds."""
GROWTH = 1.25
"""The rate of delivery must grow by this factor for a larger size to be worth it (BBR)."""
ROUNDS = 3
"""Rounds without such growth after which the size stays (BBR)."""
SHORTEST = 0.05
"""Seconds of a round at least: in less, a pause of the event loop looks like the road."""
AGAIN = 60.0
"""Seconds until twice the size is tried: the road and the broker change."""
BEHIND = 1.0
"""Seconds that messages have waited for the window after which the newest readings go first. In less, an outage of some
minutes is made up for in order."""
LIMITED = 10.0
"""Seconds that messages have waited for the window after which this is reported, if the broker's Receive Maximum is the
reason. The start of an app with a thousand devices, and the end of an outage, may take as long."""


class WindowSize:
    """The size of the window of one connection.

    Args:
        receive_maximum: how many messages the broker allows in flight (MQTT 5 §3.2.2.3.3).
    """

    __slots__ = ("_acknowledged", "_again", "_began", "_best", "_full", "_kept", "_most", "_stale", "size")

    def __init__(self, receive_maximum: int) -> None:
        self._most = min(MOST, receive_maximum)
        self.size = min(FIRST, self._most)
        """Messages that may be in flight now."""
        self._kept = self.size
        self._full = False
        self._began = 0.0
        self._acknowledged = 0
        self._best = 0.0
        self._stale = 0
        self._again: float | None = None

    @property
    def largest(self) -> bool:
        """Whether the size cannot grow."""
        return self.size == self._most

    @property
    def settled(self) -> bool:
        """Whether the size is as large as the broker allows, or more would not raise the rate."""
        return self.largest or self._again is not None

    def full(self, now: float) -> None:
        """So many messages are in flight, and more wait."""
        if not self._full:
            self._full = True
            self._begin(now)

    def caught_up(self) -> None:
        """No message waits."""
        self._full = False

    def acknowledged(self, now: float) -> None:
        """The broker acknowledged a message."""
        if not self._full:
            return
        self._acknowledged += 1
        took = now - self._began
        if self._acknowledged >= self.size and took >= SHORTEST:
            self._measured(self._acknowledged / took, now)
            self._begin(now)

    def _begin(self, now: float) -> None:
        self._began = now
        self._acknowledged = 0

    def _measured(self, rate: float, now: float) -> None:
        """So many messages a second were delivered with this size."""
        if self._again is not None:
            if now >= self._again:
                self._again = None
                self._best, self._kept = rate, self.size
                self._double()
        elif rate >= GROWTH * self._best:
            self._best = rate
            self._double()
            self._kept = self.size
        else:
            self._stale += 1
            if self._stale == ROUNDS:
                self._again = now + AGAIN
                self.size = self._kept

    def _double(self) -> None:
        self.size = min(2 * self.size, self._most)
        self._stale = 0


class Lag:
    """For how long messages have waited for room in the window."""

    __slots__ = ("_since", "behind", "reported")

    def __init__(self) -> None:
        self._since: float | None = None
        self.behind = False
        """Whether readings come faster than the broker takes them."""
        self.reported = False
        """Whether it was reported that the broker allows too few messages in flight."""

    def begin(self, now: float) -> None:
        """Messages wait from now on, for a reason that says nothing about the road."""
        self._since = now

    def waits(self, now: float) -> float:
        """Messages wait. Returns for how many seconds, without a break."""
        if self._since is None:
            self._since = now
        return now - self._since

    def ends(self) -> bool:
        """No message waits. Returns whether one did."""
        waited, self._since = self._since is not None, None
        return waited
