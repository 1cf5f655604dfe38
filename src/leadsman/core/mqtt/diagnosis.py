"""Error messages about the connection to the broker, written so that a person can fix the cause."""

import re
import ssl
from typing import TypeVar

from leadsman.core.mqtt.broker import Broker
from leadsman.errors import (
    BrokerError,
    ConnackMissing,
    ConnectionRefused,
    NotListening,
    SubscriptionRefused,
    TlsRefused,
)

E = TypeVar("E", bound=BrokerError)

PASSING = {
    0x80: "unspecified error",
    0x83: "implementation specific error",
    0x87: "not authorized; check its access list",
    0x91: "packet identifier in use",
    0x97: "quota exceeded",
}
"""PUBACK reason codes that may pass (MQTT 5 §3.4.2.1). The others (0x90 topic name invalid, 0x99 payload format
invalid, …) are for good."""
CLOSES = "it closes the connection; check its access list, and its limit on the size of a message"
"""Of a topic on whose messages the connection breaks."""
_CONNACK = {
    0x84: "it does not speak this version of MQTT",
    0x85: "it does not accept the client id; set MQTT__CLIENT_ID to a shorter one of letters and digits",
    0x86: "bad user name or password; check MQTT__USERNAME and MQTT__PASSWORD, or the URL",
    0x87: "not authorized; check MQTT__USERNAME and MQTT__PASSWORD, or the URL, and the broker's access list",
    0x88: "it is not available; its log says why",
    0x89: "it is busy",
    0x8A: "this client is banned; the broker's log says why",
    0x95: "it does not accept a packet of this size",
    0x97: "its quota is exceeded",
    0x9A: "it does not retain messages, so it does not accept a retained will",
    0x9B: "it does not accept a will with this QoS",
    0x9C: "use another broker",
    0x9D: "it has moved",
    0x9F: "too many connections in a short time",
}
"""CONNACK reason codes (MQTT 5 §3.2.2.2)."""
_DISCONNECT = {
    0x00: "without a reason",
    0x80: "unspecified error",
    0x81: "it calls a packet of ours malformed",
    0x82: "it calls a packet of ours a protocol error",
    0x83: "implementation specific error",
    0x87: "not authorized; check its access list",
    0x89: "it is busy",
    0x8B: "it is shutting down",
    0x8D: "it received nothing within the keep-alive time",
    0x8E: "another client connected with this client id",
    0x8F: "it does not accept a topic filter",
    0x90: "it does not accept a topic",
    0x93: "more messages were in flight than it allows",
    0x94: "topic alias invalid",
    0x95: "a packet was larger than it allows",
    0x96: "messages come too quickly",
    0x97: "a quota is exceeded",
    0x98: "an administrator closed it",
    0x99: "it does not accept the format of a payload",
    0x9A: "it does not retain messages",
    0x9B: "it does not accept this QoS",
    0x9C: "use another broker",
    0x9D: "it has moved",
    0x9E: "it has no shared subscriptions",
    0x9F: "too many connections in a short time",
    0xA0: "the time allowed for one connection is over",
    0xA1: "it has no subscription identifiers",
    0xA2: "it has no wildcard subscriptions",
}
"""Reason codes of the broker's DISCONNECT (MQTT 5 §3.14.2.1)."""
_SUBACK = {
    0x80: "unspecified error",
    0x83: "implementation specific error",
    0x87: "not authorized; check its access list",
    0x8F: "it does not accept the filter",
    0x91: "packet identifier in use",
    0x97: "its quota is exceeded",
    0x9E: "it has no shared subscriptions",
    0xA1: "it has no subscription identifiers",
    0xA2: "it has no wildcard subscriptions",
}
"""SUBACK reason codes (MQTT 5 §3.9.3)."""
V311_REFUSALS = {1: 0x84, 2: 0x85, 3: 0x88, 4: 0x86, 5: 0x87}
"""Return codes of MQTT 3.1.1 §3.2.2.3 as reason codes of MQTT 5 §3.2.2.2."""
RETAIN_NOT_SUPPORTED, QOS_NOT_SUPPORTED = 0x9A, 0x9B
"""CONNACK: the will is to be kept, or has a quality, and the broker supports neither (§3.2.2.2)."""
NOT_AUTHORIZED = 0x87
"""CONNACK, PUBACK and SUBACK: not authorized (§2.4)."""
TOPIC_INVALID = 0x90
"""CONNACK: topic name invalid (§3.2.2.2). The only topic in a CONNECT is that of the will."""
_CREDENTIALS = "; is the user name or the password wrong (MQTT__USERNAME, MQTT__PASSWORD)"
"""A hint for a connection that ends where a CONNACK was due. A broker may close it then instead of refusing it (MQTT
3.1.1 §3.1.4, MQTT 5 §4.13.2), as rumqttd 0.20 does."""
_CERTIFICATE = "does it ask for a certificate (cert=…, key=…)?"
"""A hint for a connection that ends after the handshake: a broker checks our certificate then, and may close without an
alert."""
_START = "; start the broker, or correct its URL (--mqtt, MQTT__URL)"
"""A hint where the host answers, and no broker listens."""
_CHECK = "; check its URL (--mqtt, MQTT__URL) and the network"
"""A hint where the host does not answer, or is not known."""
_NOT_YET_VALID = 9
"""X509_V_ERR_CERT_NOT_YET_VALID: more often a clock that is not set yet than a certificate of tomorrow."""
_UNKNOWN_AUTHORITY = (18, 19, 20, 21)
"""X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT and the three that follow: nothing that is trusted stands above it."""
_OF_A_WEB_SERVER = r"""\bb['"](?:HTTP/|<)"""
"""The first bytes of an answer over HTTP, as errors show them; simple servers leave out the status."""
_NO_TLS = (ConnectionResetError, ConnectionAbortedError, ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""How a handshake ends at a port that does not speak TLS; or it gets bytes that are no TLS (WRONG_VERSION_NUMBER)."""


class FileError(OSError):
    """A file for TLS; the message names it."""


def refused(broker: Broker, code: int, reference: str | None = None, reason: str | None = None) -> ConnectionRefused:
    """The broker answered CONNECT with a refusal, a Server Reference and a Reason String."""
    advice = _CONNACK.get(code, "the broker's log says why")
    more = _describe_properties(reference, reason)
    return ConnectionRefused(code, f"{broker} refused the connection: {advice} (0x{code:02x}){more}", reason)


def disconnected(code: int, reference: str | None = None, reason: str | None = None) -> str:
    """The broker sent DISCONNECT."""
    why = _DISCONNECT.get(code, "for a reason of its own")
    return f"the broker closed the connection: {why} (0x{code:02x}){_describe_properties(reference, reason)}"


def not_connected(broker: Broker, error: BaseException, seconds: float, *, opened: bool) -> BaseException:
    """The error for the link, of an attempt to connect that ended with `error`, or that took `seconds`. `opened`: after
    TCP, at least, was established. What no fault of the connection is stays as it is."""
    match error:
        case BrokerError():
            return error
        case TimeoutError(errno=None):
            return silent(broker, seconds, opened=opened)
        case OSError() | ValueError():
            strerror = None if isinstance(error, ssl.SSLError) else getattr(error, "strerror", None)
            text = strerror or str(error) or "the connection was closed during the TLS handshake"
            return unreachable(broker, text, error)
    return error


def unreachable(broker: Broker, text: str, cause: BaseException | None) -> BrokerError:
    """No connection was made; `cause` is the error of the operating system or of TLS, and `text` its message."""
    text = f"cannot connect to {broker}: {text}"
    match cause:
        case ssl.SSLCertVerificationError(verify_code=code) if code == _NOT_YET_VALID:
            return BrokerError(f"{text}; is the clock set?")
        case ssl.SSLCertVerificationError(verify_code=code):
            return TlsRefused(f"{text}{_authority(broker) if code in _UNKNOWN_AUTHORITY else ''}")
        case FileError():
            return TlsRefused(text)
        case ssl.SSLError(reason="WRONG_VERSION_NUMBER" | "RECORD_LAYER_FAILURE" | "UNEXPECTED_EOF_WHILE_READING"):
            return _hint_at_port(BrokerError, text, broker)
        case OSError() if isinstance(cause, _NO_TLS) and broker.encrypted:
            return _hint_at_port(BrokerError, text, broker)
        case ssl.SSLError():
            return TlsRefused(text)
        case ConnectionRefusedError():
            return _not_listening(broker, text)
        case FileNotFoundError() if broker.unix:
            return _not_listening(broker, text)
    return _with_hint(BrokerError, text, _CHECK)


def _authority(broker: Broker) -> str:
    """What to do about the certificate of a broker whose authority is not known."""
    if broker.tls.ca is not None:
        return f"; the file of ca=, {broker.tls.ca!r}, has another authority than that of the broker"
    return (
        "; if its authority is your own, name the file of its certificate in the URL: "
        f"{broker.scheme}://{broker.host}:{broker.port}?ca=/path/of/ca.crt"
    )


def alert(broker: Broker, error: ssl.SSLError) -> TlsRefused:
    """The broker ended TLS after the handshake, with a reason."""
    return TlsRefused(f"{broker} refused our side of TLS: {error}; {_CERTIFICATE}")


def no_connack(broker: Broker, reason: str) -> BrokerError:
    """The broker closed the connection where a CONNACK was due. With TLS the handshake has succeeded by then."""
    if re.search(_OF_A_WEB_SERVER, reason):
        hint = "; that is a web server: write the port of the broker, 1883 as a rule, or 8883 with TLS"
    elif broker.unix:
        hint = f"{_CREDENTIALS}?"
    else:
        hint = f"{_CREDENTIALS}, or {_CERTIFICATE if broker.encrypted else _tls_port(broker)}"
    return _with_hint(ConnackMissing, f"{broker} sent no CONNACK: {reason}", hint)


def silent(broker: Broker, seconds: float, *, opened: bool) -> BrokerError:
    """The broker did not answer within `seconds`; `opened`: after TCP, at least, was established."""
    text = f"{broker} did not answer within {seconds:g} s"
    if not opened:
        return _with_hint(BrokerError, text, _CHECK)
    error = ConnackMissing(text) if broker.unix else _with_hint(ConnackMissing, text, f"; {_tls_port(broker)}")
    error.silent = True
    return error


def without_will(refusal: str) -> str:
    """The broker refused the will, and the connection is made without one."""
    return f"connected without a will, so the app still counts as online after its death; {refusal}"


def subscription(topic_filter: str) -> str:
    """The broker closes the connection when this filter is requested."""
    return f"the broker closes the connection on the subscription to {topic_filter!r}"


def client_id_in_use(client_id: str, *, certain: bool, node: str | None = None) -> str:
    """Another client has our client id; `certain`: a reason code of the broker confirms it; `node`: our name in a
    cluster."""
    guess = "" if certain else "connections end within seconds, with nothing in flight: probably "
    advice = (
        "run this one with another prefix (--prefix, MQTT__TOPIC_PREFIX) and, if it is set, another client id "
        "(--client-id, MQTT__CLIENT_ID)"
    )
    if node is not None:  # with another prefix it would read all devices once more
        advice = f"give this node another name than {node!r} (cluster.node, CLUSTER__NODE)"
    return f"{guess}another client uses the client id {client_id!r}; stop it, or {advice}"


def not_subscribed(topic_filter: str, code: int) -> SubscriptionRefused:
    """The broker refused a subscription."""
    why = _SUBACK.get(code, "it does not say why")
    return SubscriptionRefused(f"the broker refused the subscription to {topic_filter!r}: {why} (0x{code:02x})")


def _describe_properties(reference: str | None, reason: str | None) -> str:
    """Describe what the broker adds to a reason code (MQTT 5 §4.11 and §3.14.2.2.3)."""
    other = f"; it names {reference!r} as the broker to use" if reference else ""
    return f"{other}; it says: {reason}" if reason else other


def _hint_at_port(kind: type[BrokerError], text: str, broker: Broker) -> BrokerError:
    """The error of an open port that gives no answer, with the URL that may have been meant."""
    return kind(text) if broker.unix else _with_hint(kind, text, f"; {_tls_port(broker)}")


def _tls_port(broker: Broker) -> str:
    """Asks whether the URL has the wrong scheme for its port."""
    if broker.encrypted:
        return f"is this a TLS port? Without TLS write {broker.scheme[:-1]}://{broker.host}:{broker.port}"
    return f"is this a TLS port? Then write {broker.scheme}s://{broker.host}:{broker.port}"


def _not_listening(broker: Broker, text: str) -> NotListening:
    error = _with_hint(NotListening, text, _START)
    error.address = str(broker).partition("://")[2]
    return error


def _with_hint(kind: type[E], text: str, hint: str) -> E:
    error = kind(f"{text}{hint}")
    error.hint = hint
    return error
