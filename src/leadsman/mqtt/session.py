"""The life of the connection as a machine: how long to wait before the next CONNECT, and which MQTT version to try.

======================  ================================================================
what happened           what follows
======================  ================================================================
unreachable, cut        0.1–0.8 s (full jitter) during the first minute of an outage,
                        then doubling to 30 s
bad credentials, not    5, 10, 20 s, then every 60 s: a person mends it, and waits for
authorised, certificate it; but some brokers ban who hammers
version not supported   the other version, at once; after both, as unreachable
connections that end    5 s, doubling to 60 s: another client has the same client id.
within seconds          From the third on, or at once when the broker says so
… with messages in      as cut; 0.1–0.8 s when others got through: it is a message
flight                  that the broker closes on, see `leadsman.mqtt.suspects`
no CONNACK at all       the other version the third time; where this one has worked
                        the other one once after each fourth time
connected with 3.1.1    5.0 is tried again at a reconnect after a day; at once where
                        only silence had led to 3.1.1, which a start-up causes as well
======================  ================================================================

An outage is over after 5 s of connection: a link that flaps goes on backing off. Pure: `now` is monotonic seconds and
`draw` uniform in [0, 1).
"""

from typing import NamedTuple

V5, V311 = "5.0", "3.1.1"

QUICK, PATIENT = (0.1, 0.8), 30.0
"""Seconds: the range of waits in the first minute, and the longest wait after it."""
FIRST_MINUTE = 60.0
SETTLED = 5.0
"""Seconds of connection after which an outage is over."""
BY_HAND = (5.0, 10.0, 20.0, 60.0)
"""Seconds: the waits after refusals that only a person can mend; the last one goes on."""
MUTE, MUTE_PROVEN = 2, 4
"""Connections in a row without a CONNACK before the other version is tried: at first, and where this one has worked."""
DAY = 86400.0
"""Seconds until 5.0 is tried again where 3.1.1 works: brokers are upgraded."""
TAKEN_OVER = 3
"""Connections that end within seconds of CONNACK with nothing in flight, and it is another client with our id: each
connection of either takes the session of the other over."""
CLASH = (5.0, 60.0)
"""Seconds: the first and the longest wait then, drawn apart so that the two do not meet at every turn."""
CREDENTIALS = frozenset({0x86, 0x87, 0x8C})
"""CONNACK: bad user name or password, not authorized, bad authentication method (MQTT 5 §3.2.2.2)."""
UNSUPPORTED_VERSION = 0x84
"""CONNACK: unsupported protocol version."""
SESSION_TAKEN_OVER = 0x8E
"""DISCONNECT: another client connected with this client id (MQTT 5 §3.14.2.1)."""
NO_MESSAGE = frozenset({0x89, 0x8B, 0x8D, SESSION_TAKEN_OVER, 0x98, 0x9C, 0x9D, 0x9F, 0xA0})
"""DISCONNECT for what no message is to blame for: busy, shutting down, keep alive, taken over, administrative action, another
server, server moved, connection rate, connect time (MQTT 5 §3.14.2.1)."""


class ConnectionState(NamedTuple):
    """What is remembered between connections."""

    protocol: str = V5
    """The version of the next CONNECT."""
    first: str = V5
    """The version that was asked for."""
    outage_since: float | None = None
    """Monotonic seconds of the first failure since the last settled connection."""
    failures: int = 0
    """Failures after the first minute of the outage: the exponent of the wait."""
    connected_at: float | None = None
    mute: int = 0
    """Connections in a row without a CONNACK: so some 3.1.1 brokers answer a CONNECT of version 5."""
    accepted: str | None = None
    """The version in which the broker accepted a connection last."""
    guessed: bool = False
    """Whether only silence led to this version."""
    trial: bool = False
    """Whether this version is tried once, and the other one works."""
    version_until: float | None = None
    """Monotonic seconds from which 5.0 is tried again at a reconnect."""
    refusals: int = 0
    """Refusals in a row that only a person can mend, or of both versions."""
    short: int = 0
    """Connections that ended within `SETTLED` with nothing in flight, since one that lasted: so it is when another client
    has the same id (MQTT 5 §3.1.4)."""


def connected(session: ConnectionState, now: float) -> ConnectionState:
    """CONNACK said yes."""
    old = session.protocol == V311 and session.first == V5
    until = (session.version_until or now + DAY) if old else None
    return session._replace(
        connected_at=now, mute=0, refusals=0, trial=False, accepted=session.protocol, version_until=until
    )


def doubtful(session: ConnectionState) -> bool:
    """Whether 3.1.1 works, but 5.0 may work by now too: it was only silent before."""
    return session.guessed and session.protocol == V311 and session.first == V5


def doubted(session: ConnectionState) -> ConnectionState:
    """The connection of 3.1.1 was closed again, and 5.0 is tried once more."""
    return session._replace(protocol=V5, guessed=False, trial=True, connected_at=None)


def refused(session: ConnectionState, code: int, now: float, draw: float) -> tuple[ConnectionState, float]:
    """CONNACK said no. Returns what is remembered and the seconds to wait."""
    if code == UNSUPPORTED_VERSION:
        session = _other_version(session)._replace(refusals=session.refusals + 1)
        return (session, QUICK[0]) if session.refusals == 1 else failed(session, now, draw)
    if code in CREDENTIALS:
        return by_hand(session, draw)
    return failed(session, now, draw)


def by_hand(session: ConnectionState, draw: float) -> tuple[ConnectionState, float]:
    """The broker refused us, or we the broker, for what only a person can mend: a password, a certificate."""
    wait = BY_HAND[min(session.refusals, len(BY_HAND) - 1)]
    return session._replace(refusals=session.refusals + 1), wait * (0.8 + 0.2 * draw)


def failed(
    session: ConnectionState, now: float, draw: float, *, mute: bool = False, unexplained: bool = True
) -> tuple[ConnectionState, float]:
    """The broker could not be reached, or the connection was cut.

    `mute`: cut, or silent, before a CONNACK. `unexplained`: nothing was in flight, so it was not cut because of a message.
    """
    lived = session.connected_at is not None
    short = lived and unexplained and _within_seconds(session, now)
    if short:
        session = session._replace(short=session.short + 1)
    elif lived and not _within_seconds(session, now):
        session = session._replace(outage_since=None, failures=0, short=0)
    elif not lived and not mute:
        session = session._replace(short=0)  # it is the broker that goes away
    since = now if session.outage_since is None else session.outage_since
    session = session._replace(outage_since=since, connected_at=None)
    session = _version_after(session, now, lived=lived, mute=mute)
    if short and clashes(session):
        return session, _clash_wait(session, draw)
    if now - since < FIRST_MINUTE:
        low, high = QUICK
        return session._replace(failures=0), low + (high - low) * draw
    wait = min(QUICK[1] * 2.0 ** min(session.failures + 1, 10), PATIENT)
    return session._replace(failures=session.failures + 1), wait * (0.5 + 0.5 * draw)


def taken_over(session: ConnectionState, now: float, draw: float) -> tuple[ConnectionState, float]:
    """The broker closed the connection, and said that another client took the session over."""
    short = max(session.short, TAKEN_OVER - 1) + 1
    since = now if session.outage_since is None else session.outage_since
    session = session._replace(outage_since=since, connected_at=None, short=short)
    return session, _clash_wait(session, draw)


def interrupted(session: ConnectionState, now: float, draw: float, *, useful: bool) -> tuple[ConnectionState, float]:
    """The connection broke on what was sent, or may have; `useful`: something else had got through."""
    if useful:
        session = session._replace(outage_since=None, failures=0)
    return failed(session, now, draw, unexplained=False)


def clashes(session: ConnectionState) -> bool:
    """Whether it looks as if another client used our client id."""
    return session.short >= TAKEN_OVER


def _version_after(session: ConnectionState, now: float, *, lived: bool, mute: bool) -> ConnectionState:
    """The version to try after a failure."""
    if lived and session.version_until is not None and now >= session.version_until:
        return session._replace(protocol=V5, mute=0, trial=True, version_until=None)
    if not mute:
        return session._replace(mute=0)
    session = session._replace(mute=session.mute + 1)
    if not session.trial and session.mute < _patience(session):
        return session
    return _other_version(session)._replace(guessed=not session.trial)


def _patience(session: ConnectionState) -> int:
    """How often the broker may be silent before the other version is tried."""
    if session.accepted is None:
        return MUTE
    return MUTE_PROVEN if session.protocol == session.accepted else 1


def _within_seconds(session: ConnectionState, now: float) -> bool:
    return session.connected_at is not None and now - session.connected_at < SETTLED


def _clash_wait(session: ConnectionState, draw: float) -> float:
    wait = min(CLASH[0] * 2.0 ** min(session.short - TAKEN_OVER, 10), CLASH[1])
    return wait * (0.5 + 0.5 * draw)


def _other_version(session: ConnectionState) -> ConnectionState:
    return session._replace(protocol=V311 if session.protocol == V5 else V5, mute=0, guessed=False, trial=False)
