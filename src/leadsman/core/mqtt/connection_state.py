"""The life of the connection as a machine: how long to wait before the next CONNECT, and which MQTT version to try.

======================  ================================================================
what happened           what follows
======================  ================================================================
nothing listens yet     0.35–0.45 s, for as long as the host refuses at once
host silent, cut        0.1–0.8 s (full jitter) during the first minute of an outage,
                        then doubling to 30 s; 0.1–1.2 s after a connection that
                        lasted, since those of many apps break together
bad credentials, not    5, 10, 20 s, then every 60 s: a person fixes it, and waits for
authorised, certificate it; but some brokers ban impatient clients
version not supported   3.1.1, at once; 5.0 is tried again at an attempt to connect after
                        a day. After both were refused, as host silent
connections that end    5 s, doubling to 60 s: another client has the same client id.
within seconds          From the fourth on, or at once with the reason code 0x8E.
                        After the third 0.02–0.05 s: a broker that went away is
                        still away then, and refuses the attempt
… with messages in      as cut; 0.1–0.8 s when others got through: it is a message
flight                  that the broker closes on, see `leadsman.core.mqtt.suspects`
no CONNACK, twice       3.1.1; once that has worked for 15 minutes, the app reconnects
                        with 5.0, once; after that as if 5.0 was refused. A broker that
                        spoke 5.0 in this run is never left for silence
======================  ================================================================

An outage is over after 5 s of connection: a link that flaps goes on backing off. Pure: `now` is monotonic seconds and
`draw` uniform in [0, 1). A version that is pinned, by the URL or since what is sent needs 5.0, is never left.
"""

from typing import NamedTuple

from leadsman.errors import BrokerError, ConnackMissing, ConnectionRefused, NotListening, TlsRefused

V5, V311 = "5.0", "3.1.1"

QUICK, PATIENT = (0.1, 0.8), 30.0
"""Seconds: the range of waits in the first minute, and the longest wait after it."""
FIRST_WAIT_RANGE = (0.1, 1.2)
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
"""Seconds: the waits after refusals that only a person can fix; the last one repeats."""
SILENCES = 2
"""Attempts in a row without a CONNACK after which 3.1.1 is tried."""
DAY = 86400.0
"""Seconds until 5.0 is tried again where it was refused: brokers are upgraded."""
DOUBT = 900.0
"""Seconds of 3.1.1 after which 5.0 is tried again, if only silence had led to 3.1.1: a proxy is silent while the broker
behind it starts."""
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


class ConnectionState(NamedTuple):
    """The state between connections."""

    protocol: str = V5
    """The version of the next CONNECT."""
    pinned: bool = False
    """Whether no other version is ever tried."""
    outage_since: float | None = None
    """Monotonic seconds of the first failure since the last settled connection."""
    failures: int = 0
    """Failures after the first minute of the outage: the exponent of the wait."""
    connected_at: float | None = None
    silences: int = 0
    """Attempts in a row without a CONNACK. Some 3.1.1 brokers answer a CONNECT of version 5 in this way."""
    spoke: str | None = None
    """The version in which the broker accepted a connection last, in this run."""
    guessed: bool = False
    """Whether only silence led to 3.1.1, and 5.0 was not tried since."""
    trial: bool = False
    """Whether 5.0 is tried once, where 3.1.1 has worked."""
    newer_at: float | None = None
    """Monotonic seconds from which 5.0 is tried again."""
    refusals: int = 0
    """Refusals in a row that only a person can fix, or of both versions."""
    short_lived: int = 0
    """Connections that ended within `SETTLED` with nothing in flight, since one that lasted: this happens when another
    client has the same id (MQTT 5 §3.1.4)."""


def begin(pinned: str | None) -> ConnectionState:
    """The state before the first attempt. `pinned`: the only version to try; None for 5.0, or else 3.1.1."""
    return ConnectionState() if pinned is None else ConnectionState(pinned, pinned=True)


def connected(session: ConnectionState, now: float) -> ConnectionState:
    """CONNACK accepted the connection."""
    newer_at = None
    if session.protocol == V311 and not session.pinned:
        newer_at = session.newer_at or now + (DOUBT if session.guessed else DAY)
    return session._replace(
        connected_at=now, silences=0, refusals=0, spoke=session.protocol, trial=False, newer_at=newer_at
    )


def doubt(session: ConnectionState, now: float) -> float | None:
    """Seconds after which the app reconnects with 5.0, since only silence had led to 3.1.1; None if it does not."""
    return None if not session.guessed or session.newer_at is None else max(0.0, session.newer_at - now)


def try_newer(session: ConnectionState) -> ConnectionState:
    """Try 5.0 with the next attempt, once."""
    return session._replace(protocol=V5, silences=0, guessed=False, trial=True, newer_at=None)


def may_be_old(before: ConnectionState, after: ConnectionState) -> bool:
    """Whether an attempt at the start with 5.0 shows no more than that the broker may be an old one."""
    at_start = before.spoke is None and not before.refusals and (before.outage_since is None or before.silences > 0)
    return at_start and before.protocol == V5 and (after.silences > 0 or after.protocol == V311)


def refused(session: ConnectionState, code: int, now: float, draw: float) -> tuple[ConnectionState, float]:
    """CONNACK refused the connection. Returns the new state and the seconds to wait, as do the functions below."""
    if code == UNSUPPORTED_VERSION and session.pinned:
        return misconfigured(session, draw)
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
    """A password or a certificate is wrong, which only a person can fix."""
    wait = MISCONFIGURED[min(session.refusals, len(MISCONFIGURED) - 1)]
    return session._replace(refusals=session.refusals + 1), wait * (0.8 + 0.2 * draw)


def not_listening(session: ConnectionState, now: float, draw: float) -> tuple[ConnectionState, float]:
    """The broker's host refused the connection at once. Waits that have grown go on growing if it falls silent."""
    since = now if session.outage_since is None else session.outage_since
    low, high = NOT_LISTENING
    return session._replace(outage_since=since, short_lived=0, silences=0), low + (high - low) * draw


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
    before = session.protocol
    session = _version_after(session, now, no_connack=no_connack)
    if short_lived and client_id_in_use(session):
        return session, _in_use_wait(session, draw)
    if short_lived and session.short_lived == SHORT_LIVED - 1:
        return session, PROOF[0] + (PROOF[1] - PROOF[0]) * draw
    if now - since < FIRST_MINUTE and session.protocol != before:
        return session._replace(failures=0), QUICK[0]
    if now - since < FIRST_MINUTE:
        low, high = FIRST_WAIT_RANGE if lasted else QUICK
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


def _version_after(session: ConnectionState, now: float, *, no_connack: bool) -> ConnectionState:
    """The version to try after a failure."""
    if session.newer_at is not None and now >= session.newer_at:
        return try_newer(session)
    if not no_connack or session.pinned:
        return session._replace(silences=0)
    if session.trial:
        return _other_version(session)
    if session.spoke is not None:
        return session
    session = session._replace(silences=session.silences + 1)
    if session.silences < SILENCES:
        return session
    return _other_version(session)._replace(guessed=session.protocol == V5)


def _within_seconds(session: ConnectionState, now: float) -> bool:
    return session.connected_at is not None and now - session.connected_at < SETTLED


def _in_use_wait(session: ConnectionState, draw: float) -> float:
    wait = min(IN_USE[0] * 2.0 ** min(session.short_lived - SHORT_LIVED, 10), IN_USE[1])
    return wait * (0.5 + 0.5 * draw)


def _other_version(session: ConnectionState) -> ConnectionState:
    return session._replace(protocol=V311 if session.protocol == V5 else V5, silences=0, guessed=False, trial=False)
