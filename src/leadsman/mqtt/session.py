"""The life of the connection as a machine: how long to wait before the next CONNECT, and which MQTT version to try.

======================  ================================================================
what happened           what follows
======================  ================================================================
unreachable, cut        0.1–0.8 s (full jitter) during the first minute of an outage,
                        then doubling to 30 s
bad credentials,        30 s, doubling to 5 min: a password does not mend itself, and
not authorised          some brokers ban who hammers
version not supported   the other version, at once
connections that end    5 s, doubling to 60 s: another client has the same client id.
within seconds          From the third on, or at once when the broker says so
… with messages in      as cut; 0.1–0.8 s when others got through: it is a message
flight                  that the broker closes on, see `leadsman.mqtt.suspects`
no CONNACK at all       the other version the third time, unless this one has worked
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
SLOW, SLOWEST = 30.0, 300.0
"""Seconds: the first and the longest wait after a refusal that only a person can mend."""
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


class Session(NamedTuple):
    """What is remembered between connections."""

    protocol: str = V5
    outage_since: float | None = None
    """Monotonic seconds of the first failure since the last settled connection."""
    failures: int = 0
    """Failures after the first minute of the outage, or refusals in a row: the exponent of the wait."""
    connected_at: float | None = None
    mute: int = 0
    """Connections in a row without a CONNACK: so some 3.1.1 brokers answer a CONNECT of version 5."""
    proven: bool = False
    """Whether the broker has accepted a connection of this version."""
    short: int = 0
    """Connections that ended within `SETTLED` with nothing in flight, since one that lasted: so it is when another client
    has the same id (MQTT 5 §3.1.4)."""


def connected(session: Session, now: float) -> Session:
    """CONNACK said yes."""
    return session._replace(connected_at=now, mute=0, proven=True)


def refused(session: Session, code: int, now: float, draw: float) -> tuple[Session, float]:
    """CONNACK said no. Returns what is remembered and the seconds to wait."""
    if code == UNSUPPORTED_VERSION:
        return _other_version(session), QUICK[0]
    if code in CREDENTIALS:
        wait = min(SLOW * 2.0 ** min(session.failures, 10), SLOWEST)
        return session._replace(failures=session.failures + 1), wait * (0.8 + 0.2 * draw)
    return failed(session, now, draw)


def failed(
    session: Session, now: float, draw: float, *, mute: bool = False, unexplained: bool = True
) -> tuple[Session, float]:
    """The broker could not be reached, or the connection was cut.

    `mute`: cut, or silent, before a CONNACK. `unexplained`: nothing was in flight, so it was not cut because of a message.
    """
    lived = session.connected_at is not None
    short = lived and unexplained and _within_seconds(session, now)
    if short:
        session = session._replace(short=session.short + 1)
    elif lived and not _within_seconds(session, now):
        session = Session(session.protocol, proven=True)
    since = now if session.outage_since is None else session.outage_since
    session = session._replace(outage_since=since, connected_at=None, mute=session.mute + 1 if mute else 0)
    if session.mute >= 2 and not session.proven:
        session = _other_version(session)
    if short and clashes(session):
        return session, _clash_wait(session, draw)
    if now - since < FIRST_MINUTE:
        low, high = QUICK
        return session._replace(failures=0), low + (high - low) * draw
    wait = min(QUICK[1] * 2.0 ** min(session.failures + 1, 10), PATIENT)
    return session._replace(failures=session.failures + 1), wait * (0.5 + 0.5 * draw)


def taken_over(session: Session, now: float, draw: float) -> tuple[Session, float]:
    """The broker closed the connection, and said that another client took the session over."""
    short = max(session.short, TAKEN_OVER - 1) + 1
    since = now if session.outage_since is None else session.outage_since
    session = session._replace(outage_since=since, connected_at=None, short=short)
    return session, _clash_wait(session, draw)


def interrupted(session: Session, now: float, draw: float, *, useful: bool) -> tuple[Session, float]:
    """The connection broke on what was sent, or may have; `useful`: something else had got through."""
    if useful:
        session = session._replace(outage_since=None, failures=0)
    return failed(session, now, draw, unexplained=False)


def clashes(session: Session) -> bool:
    """Whether it looks as if another client used our client id."""
    return session.short >= TAKEN_OVER


def _within_seconds(session: Session, now: float) -> bool:
    return session.connected_at is not None and now - session.connected_at < SETTLED


def _clash_wait(session: Session, draw: float) -> float:
    wait = min(CLASH[0] * 2.0 ** min(session.short - TAKEN_OVER, 10), CLASH[1])
    return wait * (0.5 + 0.5 * draw)


def _other_version(session: Session) -> Session:
    return session._replace(protocol=V311 if session.protocol == V5 else V5, mute=0, proven=False)
