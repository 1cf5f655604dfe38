"""Which broker of a list is tried next, and when: the one that works, and after a failure the next one.

============================  ====================================================================
what happened                 what follows
============================  ====================================================================
a connection that worked      the same broker once more, since most breaks are short; if that fails,
is cut                        the list from its top
it acknowledges nothing, or   the next broker of the list, in 0.1–0.8 s; the first one after the
cannot be reached, or         last one. A broker is passed over until its own wait is over (see
refuses the connection        `connection_state`); if all of them wait, the first to be due is next
the client id is in use       the same broker: at another one the clash would only be hidden
a replacement works           a TCP or TLS connection to the primary is tried every 10 minutes, or up
                              to an hour if returns did not last; if it stands, the app connects from
                              the top
============================  ====================================================================

With one broker, all of this is the wait of `connection_state`. Pure: `now` is monotonic seconds and `draw` uniform in
[0, 1).
"""

import math
from typing import NamedTuple

from leadsman.core.mqtt import connection_state
from leadsman.core.mqtt.broker import Broker, Brokers
from leadsman.core.mqtt.connection_state import QUICK, ConnectionState

RETURN, RETURN_SELDOM = 600.0, 3600.0
"""Seconds: how often the primary is tried while a replacement works, at most and at least."""


class Candidate(NamedTuple):
    """A broker and its state."""

    broker: Broker
    session: ConnectionState
    due: float = -math.inf
    """Monotonic seconds before which it is not tried, unless it is the current one."""
    error: str | None = None
    """Why it is not in use; None for one that works, and for one that was never tried."""


class BrokerChoice(NamedTuple):
    """The brokers, and which of them is in use or tried."""

    candidates: tuple[Candidate, ...]
    current: int = 0
    worked: bool = False
    """Whether the current broker accepted a connection since it was chosen."""
    away_since: float | None = None
    """Monotonic seconds of the first failure since the last connection that settled, at any broker."""
    returns: int = 0
    """Returns to the primary in a row that did not last."""
    back_at: float = -math.inf
    """Monotonic seconds of the last return."""

    @property
    def broker(self) -> Broker:
        """The broker in use, or the one that is tried."""
        return self.candidates[self.current].broker

    @property
    def session(self) -> ConnectionState:
        """The state of its connection when it was left."""
        return self.candidates[self.current].session


class Ended(NamedTuple):
    """How a connection ended, or an attempt to make one."""

    reason: str
    wait: float
    """Seconds before this broker may be tried again."""
    settled: bool = False
    """Whether the connection had lasted for some seconds."""
    stay: bool = False
    """Whether the same broker is tried once more."""
    back: bool = False
    """Whether a replacement was left because the primary accepts connections."""
    cheap: bool = False
    """Whether the host refused at once, as nothing listens there."""
    version: str | None = None
    """The version of MQTT that is tried next, where the broker may only be an old one."""
    topic: str | None = None
    """The topic on whose messages the broker closed the connection, once that is certain."""


def first(brokers: Brokers) -> BrokerChoice:
    """The choice at the start: the primary."""
    return BrokerChoice(tuple(Candidate(each, connection_state.begin(each.protocol)) for each in brokers))


def require_newer(choice: BrokerChoice) -> BrokerChoice:
    """The choice at the start, where the app needs what only MQTT 5 has."""
    required = (each._replace(session=ConnectionState(pinned=True)) for each in choice.candidates)
    return choice._replace(candidates=tuple(required))


def connected(choice: BrokerChoice) -> BrokerChoice:
    """The current broker accepted the connection."""
    return _replace_current(choice, choice.candidates[choice.current]._replace(error=None))._replace(worked=True)


def after(
    choice: BrokerChoice, session: ConnectionState, ended: Ended, now: float, draw: float
) -> tuple[BrokerChoice, float]:
    """A connection ended, or could not be made. Returns the new choice, and the seconds until its broker is tried.

    Args:
        session: the state of the connection to the current broker.
    """
    since = now if ended.settled or choice.away_since is None else choice.away_since
    left = choice.candidates[choice.current]._replace(session=session, due=now + ended.wait, error=ended.reason)
    choice = _replace_current(choice, left)._replace(away_since=since)
    if choice.current == 0 and ended.settled and now - choice.back_at >= RETURN:
        choice = choice._replace(returns=0)
    if ended.back:
        return choice._replace(current=0, worked=False, returns=choice.returns + 1, back_at=now), 0.0
    if ended.stay:
        return choice, ended.wait
    count, current = len(choice.candidates), choice.current
    others = [each for each in range(count) if each != current]
    if not choice.worked:
        others = [*range(current + 1, count), *range(current)]
    choice = choice._replace(worked=False)
    ready = next((each for each in others if choice.candidates[each].due <= now), None)
    if ready is not None:
        return choice._replace(current=ready), QUICK[0] + (QUICK[1] - QUICK[0]) * draw
    following = min([*others, current], key=lambda each: choice.candidates[each].due)
    return choice._replace(current=following), choice.candidates[following].due - now


def return_wait(choice: BrokerChoice, draw: float) -> float:
    """Seconds until the primary is tried again, drawn so that not all apps do so at once."""
    return min(RETURN * 2.0 ** min(choice.returns, 10), RETURN_SELDOM) * (0.9 + 0.2 * draw)


def _replace_current(choice: BrokerChoice, candidate: Candidate) -> BrokerChoice:
    """The choice with another state of its current candidate."""
    before, behind = choice.candidates[: choice.current], choice.candidates[choice.current + 1 :]
    return choice._replace(candidates=(*before, candidate, *behind))
