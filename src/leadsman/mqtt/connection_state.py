"""The life of the connection as a machine: how long to wait before the next CONNECT, and which MQTT version to try.

======================  ================================================================
what happened           what follows
======================  ================================================================
nothing listens yet     0.35–0.45 s, for as long as the host refuses at once
host silent, cut        0.1–0.8 s (full jitter) during the first minute of an outage,
                        then doubling to 30 s; 0.1–1.2 s after a connection that
                        lasted, since those of many apps break together
bad credentials, not    5, 10, 20 s, then every 60 s: a person mends it, and waits for
authorised, certificate it; but some brokers ban impatient clients
version not supported   the other version, at once; after both, as host silent
connections that end    5 s, doubling to 60 s: another client has the same client id.
within seconds          From the fourth on, or at once with the reason code 0x8E.
                        After the third 0.02–0.05 s: a broker that went away is
                        still away then, and refuses the attempt
… with messages in      as cut; 0.1–0.8 s when others got through: it is a message
flight                  that the broker closes on, see `leadsman.mqtt.suspects`
no CONNACK at all       the other version at once; where this one has worked the
                        other one once after each fourth time
connected with 3.1.1    5.0 is tried again at a reconnect after a day. Where only
                        silence had led to 3.1.1, which a start-up causes as well,
                        another connection asks after a minute; where 5.0 has worked
                        or is needed, at once, and nothing is sent before the answer,
                        or before four inquiries in a row were not answered
======================  ================================================================

An outage is over after 5 s of connection: a link that flaps goes on backing off. Pure: `now` is monotonic seconds and
`draw` uniform in [0, 1).
"""

from typing import NamedTuple

from leadsman.errors import BrokerError, ConnackMissing, ConnectionRefused, NotListening, TlsRefused

V5, V311 = "5.0", "3.1.1"

QUICK, PATIENT = (0.1, 0.8), 30.0
"""Seconds: the range of waits in the first minute, and the longest wait after it."""
TOGETHER = (0.1, 1.2)
"""Seconds: the range of the wait after a connection that lasted. Of 50 apps whose broker goes away, half of the times
fewer than a fifth come back within the same tenth of a second; with the range of `QUICK` it is a quarter."""
NOT_LISTENING = (0.35, 0.45)
"""Seconds: the range of waits while the broker's host refuses the connection at once. Such an attempt takes less than
a millisecond of CPU and two small packets, and a reading comes within 0.5 s after the broker is back. The range is
narrow: of many apps whose turns are spread, so fewer come within the same tenth of a second, for the same longest
wait."""
FIRST_MINUTE = 60.0
SETTLED = 5.0
"""Seconds of connection after which an outage is over."""
MISCONFIGURED = (5.0, 10.0, 20.0, 60.0)
"""Seconds: the waits after refusals that only a person can mend; the last one repeats."""
NO_CONNACK, NO_CONNACK_CONFIRMED = 1, 4
"""Connections in a row without a CONNACK before the other version is tried: at first, and if this one has worked."""
DAY = 86400.0
"""Seconds until 5.0 is tried again where 3.1.1 works: brokers are upgraded."""
INQUIRY = 60.0
"""Seconds after which 5.0 is asked for beside a connection of 3.1.1 to which only silence had led: a broker has started
by then."""
SHORT_LIVED = 4
"""So many connections that end within seconds of CONNACK with nothing in flight, and no attempt that fails in between,
mean another client with our id: each connection of one client takes the session of the other over."""
PROOF = (0.02, 0.05)
"""Seconds: the range of the wait before the last of them. A twin hinders no attempt, however early; a broker that comes
and goes does."""
IN_USE = (5.0, 60.0)
"""Seconds: the first and the longest wait then, drawn apart so that the two clients do not meet at every turn."""
CREDENTIALS = frozenset({0x86, 0x87, 0x8C})
"""CONNACK: bad user name or password, not authorized, bad authentication method (MQTT 5 §3.2.2.2)."""
UNSUPPORTED_VERSION = 0x84
"""CONNACK: unsupported protocol version."""
SESSION_TAKEN_OVER = 0x8E
"""DISCONNECT: another client connected with this client id (MQTT 5 §3.14.2.1)."""
ADMINISTRATIVE = 0x98
"""DISCONNECT: administrative action (MQTT 5 §3.14.2.1)."""
NO_MESSAGE = frozenset({0x89, 0x8B, 0x8D, SESSION_TAKEN_OVER, ADMINISTRATIVE, 0x9C, 0x9D, 0x9F, 0xA0})
"""DISCONNECT for a reason that is no message: busy, shutting down, keep alive, taken over, administrative action,
another server, server moved, connection rate, connect time (MQTT 5 §3.14.2.1)."""

ELSEWHERE = frozenset({0x9C, 0x9D})
"""CONNACK and DISCONNECT: use another server, server moved (MQTT 5 §4.11)."""


class ConnectionState(NamedTuple):
    """The state between connections."""

    protocol: str = V5
    """The version of the next CONNECT."""
    first: str = V5
    """The version that the user chose."""
    outage_since: float | None = None
    """Monotonic seconds of the first failure since the last settled connection."""
    failures: int = 0
    """Failures after the first minute of the outage: the exponent of the wait."""
    connected_at: float | None = None
    no_connack: int = 0
    """Connections in a row without a CONNACK. Some 3.1.1 brokers answer a CONNECT of version 5 in this way."""
    accepted: str | None = None
    """The version in which the broker accepted a connection last, in this run or the one before; or is to."""
    worked: bool = False
    """Whether the broker accepted a connection in this run."""
    guessed: bool = False
    """Whether only silence led to this version."""
    trial: bool = False
    """Whether this version is tried once, and the other one works."""
    asks_first: int = 0
    """The inquiries for 5.0 that may still go unanswered before anything is sent through this connection of 3.1.1; 0
    unless only silence had led to 3.1.1, and 5.0 has worked or is needed. A proxy is silent as well while the broker
    behind it is away, and a reading without User Properties carries no fencing token."""
    version_until: float | None = None
    """Monotonic seconds from which 5.0 is tried again at a reconnect."""
    refusals: int = 0
    """Refusals in a row that only a person can mend, or of both versions."""
    short_lived: int = 0
    """Connections that ended within `SETTLED` with nothing in flight, since one that lasted: this happens when another
    client has the same id (MQTT 5 §3.1.4)."""


def connected(session: ConnectionState, now: float) -> ConnectionState:
    """CONNACK accepted the connection."""
    asks_first = doubtful(session) and (session.asks_first or session.accepted == V5)
    old = session.protocol == V311 and session.first == V5
    until = (session.version_until or now + DAY) if old else None
    return session._replace(
        connected_at=now,
        no_connack=0,
        refusals=0,
        trial=False,
        asks_first=NO_CONNACK_CONFIRMED if asks_first else 0,
        accepted=session.protocol,
        worked=True,
        version_until=until,
    )


def doubtful(session: ConnectionState) -> bool:
    """Whether 3.1.1 works, but 5.0 may work by now too: it was only silent before."""
    return session.guessed and session.protocol == V311 and session.first == V5


def inquiry_wait(session: ConnectionState) -> float:
    """Seconds until the next inquiry for 5.0 beside a connection of 3.1.1."""
    if not session.asks_first:
        return INQUIRY
    return 0.0 if session.asks_first == NO_CONNACK_CONFIRMED else QUICK[1]


def inquired(session: ConnectionState) -> ConnectionState:
    """The broker took an inquiry for 5.0 beside a connection of 3.1.1: the next connection is one of 5.0."""
    return session._replace(protocol=V5, guessed=False, trial=True, asks_first=0)


def inquiry_failed(session: ConnectionState, error: Exception) -> ConnectionState:
    """An inquiry for 5.0 beside a connection of 3.1.1 failed. The version is no guess any more if the broker refused
    5.0, or was silent although the connection has held for `INQUIRY`."""
    if isinstance(error, ConnackMissing) and session.asks_first:
        return session._replace(asks_first=session.asks_first - 1)
    is_old = isinstance(error, ConnackMissing) or (
        isinstance(error, ConnectionRefused) and error.code == UNSUPPORTED_VERSION
    )  # a client id may be refused, or the network be gone, for other reasons
    return session._replace(guessed=session.guessed and not is_old, asks_first=0)


def recall(session: ConnectionState) -> ConnectionState:
    """The broker spoke 3.1.1 in the last run of the app."""
    return session if session.first != V5 else session._replace(protocol=V311, accepted=V311, guessed=True)


def expect_newer(session: ConnectionState) -> ConnectionState:
    """The broker is to speak 5.0: it counts as if it had, so that one silent attempt is no sign of an old broker."""
    return session._replace(accepted=V5) if session.first == V5 and session.accepted is None else session


def tries_another_version(before: ConnectionState, after: ConnectionState) -> bool:
    """Whether the first attempt failed, and shows no more than that the broker may be an old one."""
    new = before.accepted is None and before.outage_since is None and not before.refusals
    return new and before.protocol == V5 and after.protocol == V311


def refused(session: ConnectionState, code: int, now: float, draw: float) -> tuple[ConnectionState, float]:
    """CONNACK refused the connection. Returns the new state and the seconds to wait, as do the functions below."""
    if code == UNSUPPORTED_VERSION:
        session = _other_version(session)._replace(refusals=session.refusals + 1)
        return (session, QUICK[0]) if session.refusals == 1 else failed(session, now, draw)
    if code in CREDENTIALS:
        return misconfigured(session, draw)
    return failed(session, now, draw)


def not_connected(
    session: ConnectionState, error: BrokerError, now: float, draw: float
) -> tuple[ConnectionState, float]:
    """An attempt ended without a connection."""
    match error:
        case ConnectionRefused():
            return refused(session, error.code, now, draw)
        case TlsRefused():
            return misconfigured(session, draw)
        case NotListening():
            return not_listening(session, now, draw)
    return failed(session, now, draw, no_connack=isinstance(error, ConnackMissing))


def misconfigured(session: ConnectionState, draw: float) -> tuple[ConnectionState, float]:
    """A password or a certificate is wrong, which only a person can mend."""
    wait = MISCONFIGURED[min(session.refusals, len(MISCONFIGURED) - 1)]
    return session._replace(refusals=session.refusals + 1), wait * (0.8 + 0.2 * draw)


def not_listening(session: ConnectionState, now: float, draw: float) -> tuple[ConnectionState, float]:
    """The broker's host refused the connection at once. Waits that have grown go on growing if it falls silent."""
    since = now if session.outage_since is None else session.outage_since
    low, high = NOT_LISTENING
    return session._replace(outage_since=since, short_lived=0, no_connack=0), low + (high - low) * draw


def failed(
    session: ConnectionState, now: float, draw: float, *, no_connack: bool = False, unexplained: bool = True
) -> tuple[ConnectionState, float]:
    """The broker could not be reached, or the connection was cut.

    `no_connack`: cut, or silent, before a CONNACK. `unexplained`: nothing was in flight, so no message caused the cut.
    """
    lived = session.connected_at is not None
    lasted = lived and not _within_seconds(session, now)
    short_lived = lived and unexplained and _within_seconds(session, now)
    if short_lived:
        session = session._replace(short_lived=session.short_lived + 1)
    elif lasted:
        session = session._replace(outage_since=None, failures=0, short_lived=0)
    elif not lived:
        session = session._replace(short_lived=0)  # it is the broker that goes away: a twin hinders no CONNECT
    since = now if session.outage_since is None else session.outage_since
    session = session._replace(outage_since=since, connected_at=None)
    session = _version_after(session, now, lived=lived, no_connack=no_connack)
    if short_lived and client_id_in_use(session):
        return session, _in_use_wait(session, draw)
    if short_lived and session.short_lived == SHORT_LIVED - 1:
        return session, PROOF[0] + (PROOF[1] - PROOF[0]) * draw
    if no_connack and not lived and session.accepted is None and session.protocol != session.first:
        return session._replace(failures=0), QUICK[0]
    if now - since < FIRST_MINUTE:
        low, high = TOGETHER if lasted else QUICK
        return session._replace(failures=0), low + (high - low) * draw
    wait = min(QUICK[1] * 2.0 ** min(session.failures + 1, 10), PATIENT)
    return session._replace(failures=session.failures + 1), wait * (0.5 + 0.5 * draw)


def taken_over(session: ConnectionState, now: float, draw: float) -> tuple[ConnectionState, float]:
    """The broker closed the connection, since another client took the session over."""
    short_lived = max(session.short_lived, SHORT_LIVED - 1) + 1
    since = now if session.outage_since is None else session.outage_since
    session = session._replace(outage_since=since, connected_at=None, short_lived=short_lived)
    return session, _in_use_wait(session, draw)


def interrupted(session: ConnectionState, now: float, draw: float, *, useful: bool) -> tuple[ConnectionState, float]:
    """The connection broke on a message, or may have. `useful`: another message had arrived."""
    if useful:
        session = session._replace(outage_since=None, failures=0)
    return failed(session, now, draw, unexplained=False)


def client_id_in_use(session: ConnectionState) -> bool:
    """Whether another client probably uses our client id."""
    return session.short_lived >= SHORT_LIVED


def _version_after(session: ConnectionState, now: float, *, lived: bool, no_connack: bool) -> ConnectionState:
    """The version to try after a failure."""
    if lived and session.version_until is not None and now >= session.version_until:
        return session._replace(protocol=V5, no_connack=0, trial=True, version_until=None)
    if not no_connack:
        return session._replace(no_connack=0)
    session = session._replace(no_connack=session.no_connack + 1)
    if not session.trial and session.no_connack < _patience(session):
        return session
    return _other_version(session)._replace(guessed=not session.trial)


def _patience(session: ConnectionState) -> int:
    """How often the broker may be silent before the other version is tried."""
    if session.accepted is None:
        return NO_CONNACK
    return NO_CONNACK_CONFIRMED if session.protocol == session.accepted else 1


def _within_seconds(session: ConnectionState, now: float) -> bool:
    return session.connected_at is not None and now - session.connected_at < SETTLED


def _in_use_wait(session: ConnectionState, draw: float) -> float:
    wait = min(IN_USE[0] * 2.0 ** min(session.short_lived - SHORT_LIVED, 10), IN_USE[1])
    return wait * (0.5 + 0.5 * draw)


def _other_version(session: ConnectionState) -> ConnectionState:
    return session._replace(protocol=V311 if session.protocol == V5 else V5, no_connack=0, guessed=False, trial=False)
