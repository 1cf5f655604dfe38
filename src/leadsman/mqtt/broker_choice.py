"""Which broker of a list is tried next, and when: the one that works, and after a failure the next one.

============================  ====================================================================
what happened                 what follows
============================  ====================================================================
a connection that worked      the same broker once more, since most breaks are short
is cut
it acknowledges nothing, or   the next broker of the list, in 0.1–0.8 s; the first one after the
cannot be reached, or         last one. A broker is passed over until its own wait is over (see
refuses the connection        `connection_state`); if all of them wait, the first to be due is next
it names another broker       that one, if that is allowed, else as a refusal; after it fails, the
(Server Reference)            list is tried from its beginning
the client id is in use       the same broker: at another one the clash would only be hidden
a replacement works           the primary is asked every 5 minutes whether it accepts connections,
                              and gets the app back; less often if it kept the app for less than that
============================  ====================================================================

With one broker, all of this is the wait of `connection_state`. Pure: `now` is monotonic seconds and `draw` uniform in
[0, 1).
"""

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

from leadsman.mqtt import connection_state
from leadsman.mqtt.broker import PORTS, Broker, Brokers, same
from leadsman.mqtt.connection_state import QUICK, ConnectionState

MOST_HOPS = 3
"""Brokers that send the app on, one after the other, before it goes back to its list: they may name each other."""
RETURN, RETURN_SELDOM = 300.0, 3600.0
"""Seconds: how often the primary is asked while a replacement works, at most and at least."""
_REFERENCE = re.compile(
    r"(?:(?P<scheme>[a-z+]+)://)?(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]{1,253})(?::(?P<port>\d{1,5}))?"
)


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
    """Those of the list, and at the end the one that a Server Reference named, if there is one."""
    listed: int
    follow: bool
    current: int = 0
    hops: int = 0
    """Server References followed since the list, or since a connection that worked."""
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
    reference: str | None = None
    """The Server Reference of the broker."""
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
    return BrokerChoice(tuple(map(_candidate, brokers)), len(brokers), brokers.follow_server_reference)


def recall(choice: BrokerChoice, versions: Mapping[str, str]) -> BrokerChoice:
    """The choice at the start, with the brokers that spoke the old version of MQTT in the last run."""
    found = (
        each._replace(session=connection_state.recall(each.session)) if str(each.broker) in versions else each
        for each in choice.candidates
    )
    return choice._replace(candidates=tuple(found))


def expect_newer(choice: BrokerChoice) -> BrokerChoice:
    """The choice at the start, where the app needs what only MQTT 5 has."""
    expected = (each._replace(session=connection_state.expect_newer(each.session)) for each in choice.candidates)
    return choice._replace(candidates=tuple(expected))


def connected(choice: BrokerChoice) -> BrokerChoice:
    """The current broker accepted the connection."""
    return _replace_current(choice, choice.candidates[choice.current]._replace(error=None))


def after(
    choice: BrokerChoice, session: ConnectionState, ended: Ended, now: float, draw: float
) -> tuple[BrokerChoice, float]:
    """A connection ended, or could not be made. Returns the new choice, and the seconds until its broker is tried.

    Args:
        session: the state of the connection to the current broker.
    """
    since = now if ended.settled or choice.away_since is None else choice.away_since
    left = choice.candidates[choice.current]._replace(session=session, due=now + ended.wait, error=ended.reason)
    choice = _replace_current(choice, left)._replace(away_since=since, hops=0 if ended.stay else choice.hops)
    if choice.current == 0 and ended.settled and now - choice.back_at >= RETURN:
        choice = choice._replace(returns=0)
    if ended.back:
        return _return_to_primary(choice, now), 0.0
    soon = QUICK[0] + (QUICK[1] - QUICK[0]) * draw
    if ended.reference is not None and choice.follow and choice.hops < MOST_HOPS:
        named = named_by(choice.broker, ended.reference)
        if named is not None:
            return _sent_to(choice, named), soon
    if ended.stay:
        return choice, ended.wait
    listed, current = choice.listed, choice.current
    others = range(listed) if current >= listed else [*range(current + 1, listed), *range(current)]
    choice = choice._replace(candidates=choice.candidates[:listed], hops=0)
    ready = next((each for each in others if choice.candidates[each].due <= now), None)
    if ready is not None:
        return choice._replace(current=ready), soon
    order = [*others, current] if current < listed else [*others]
    following = min(order, key=lambda each: choice.candidates[each].due)
    return choice._replace(current=following), choice.candidates[following].due - now


def return_wait(choice: BrokerChoice, draw: float) -> float:
    """Seconds until the primary is asked whether it accepts connections, drawn so that not all apps do so at once."""
    return min(RETURN * 2.0 ** min(choice.returns, 10), RETURN_SELDOM) * (0.8 + 0.4 * draw)


def named_by(broker: Broker, reference: str) -> Broker | None:
    """The first broker of a Server Reference that can be reached as this one is: with its credentials, and with TLS
    only if it has TLS. None if there is none (MQTT 5 §4.11: ``host:port``, several with white space between)."""
    if broker.unix:
        return None
    for each in reference.split():
        found = _REFERENCE.fullmatch(each)
        if found is None or found["scheme"] not in (None, broker.scheme):
            continue
        port = int(found["port"] or PORTS[broker.scheme])
        if 0 < port < 65536 and not same(other := broker.moved(found["host"].strip("[]"), port), broker):
            return other
    return None


def _candidate(broker: Broker) -> Candidate:
    return Candidate(broker, ConnectionState(broker.protocol, broker.protocol))


def _return_to_primary(choice: BrokerChoice, now: float) -> BrokerChoice:
    """The choice of the primary, in spite of a replacement that works."""
    candidates = choice.candidates[: choice.listed]
    return choice._replace(candidates=candidates, current=0, hops=0, returns=choice.returns + 1, back_at=now)


def _replace_current(choice: BrokerChoice, candidate: Candidate) -> BrokerChoice:
    """The choice with another state of its current candidate."""
    before, behind = choice.candidates[: choice.current], choice.candidates[choice.current + 1 :]
    return choice._replace(candidates=(*before, candidate, *behind))


def _sent_to(choice: BrokerChoice, broker: Broker) -> BrokerChoice:
    """The choice of a broker that another one named: one of the list, or one at its end."""
    listed, hops = choice.candidates[: choice.listed], choice.hops + 1
    known = next((number for number, each in enumerate(listed) if same(each.broker, broker)), None)
    if known is not None:
        return choice._replace(candidates=listed, current=known, hops=hops)
    return choice._replace(candidates=(*listed, _candidate(broker)), current=choice.listed, hops=hops)
