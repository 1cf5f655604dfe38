"""Error messages about the connection to the broker, written so that a person can fix the cause."""

import ssl

from leadsman.errors import BrokerError, ConnackMissing, ConnectionRefused, TlsRefused
from leadsman.mqtt.broker import Broker

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
    0x85: "it does not accept the client id",
    0x86: "bad user name or password; check MQTT__USERNAME and MQTT__PASSWORD, or the URL",
    0x87: "not authorized; check MQTT__USERNAME and MQTT__PASSWORD, or the URL, and the broker's access list",
    0x88: "it is not available; its log says why",
    0x89: "it is busy",
    0x8A: "this client is banned; the broker's log says why",
    0x97: "its quota is exceeded",
    0x9F: "too many connections in a short time",
}
"""CONNACK reason codes (MQTT 5 §3.2.2.2)."""
_CERTIFICATE = "; does it ask for a certificate (cert=, key=)?"
"""A hint for a connection that ends after the handshake: a broker checks our certificate then, and may close without an
alert."""
_NOT_YET_VALID = 9
"""X509_V_ERR_CERT_NOT_YET_VALID: more often a clock that is not set yet than a certificate of tomorrow."""
_NO_TLS = (ConnectionResetError, ConnectionAbortedError, ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""How a handshake ends at a port that does not speak TLS; or it gets bytes that are no TLS (WRONG_VERSION_NUMBER)."""


class FileError(OSError):
    """A file for TLS; the message names it."""


def refused(broker: Broker, code: int) -> ConnectionRefused:
    """The broker answered CONNECT with a refusal."""
    advice = _CONNACK.get(code, "the broker's log says why")
    return ConnectionRefused(code, f"{broker} refused the connection: {advice} (0x{code:02x})")


def unreachable(broker: Broker, text: str, cause: BaseException | None) -> BrokerError:
    """No connection was made; `cause` is the error of the operating system or of TLS, and `text` what it says."""
    text = f"cannot connect to {broker}: {text}"
    match cause:
        case ssl.SSLCertVerificationError(verify_code=code) if code == _NOT_YET_VALID:
            return BrokerError(f"{text}; is the clock set?")
        case ssl.SSLCertVerificationError() | FileError():
            return TlsRefused(text)
        case ssl.SSLError(reason="WRONG_VERSION_NUMBER" | "RECORD_LAYER_FAILURE" | "UNEXPECTED_EOF_WHILE_READING"):
            return _hinting(BrokerError, text, broker)
        case OSError() if isinstance(cause, _NO_TLS) and broker.encrypted:
            return _hinting(BrokerError, text, broker)
        case ssl.SSLError():
            return TlsRefused(text)
    return BrokerError(text)


def alert(broker: Broker, error: ssl.SSLError) -> TlsRefused:
    """The broker ended TLS after the handshake, with a reason."""
    return TlsRefused(f"{broker} refused our side of TLS: {error}{_CERTIFICATE}")


def no_connack(broker: Broker, reason: str) -> BrokerError:
    """The broker closed the connection where a CONNACK was due. With TLS the handshake has succeeded by then."""
    text = f"{broker} sent no CONNACK: {reason}"
    if not broker.encrypted:
        return _hinting(ConnackMissing, text, broker)
    error = ConnackMissing(f"{text}{_CERTIFICATE}")
    error.hint = _CERTIFICATE
    return error


def silent(broker: Broker, seconds: float, *, opened: bool) -> BrokerError:
    """The broker did not answer within `seconds`; `opened`: after TCP, at least, was established."""
    text = f"{broker} did not answer within {seconds:g} s"
    return _hinting(ConnackMissing, text, broker) if opened else BrokerError(text)


def subscription(topic_filter: str) -> str:
    """The broker closes the connection when this filter is requested."""
    return f"the broker closes the connection on the subscription to {topic_filter!r}"


def client_id_in_use(client_id: str, *, certain: bool) -> str:
    """Another client has our client id; `certain`: a reason code of the broker confirms it."""
    guess = "" if certain else "connections end within seconds, with nothing in flight: probably "
    return (
        f"{guess}another client uses the client id {client_id!r}; stop it, or run this one with another prefix: "
        "--prefix, or MQTT__TOPIC_PREFIX"
    )


def _hinting(kind: type[BrokerError], text: str, broker: Broker) -> BrokerError:
    """The error of an open port that gives no answer, with the URL that may have been meant."""
    if broker.encrypted:
        hint = f"; is this a TLS port? Without TLS write {broker.scheme[:-1]}://{broker.host}:{broker.port}"
    else:
        hint = f"; is this a TLS port? Then write {broker.scheme}s://{broker.host}:{broker.port}"
    error = kind(f"{text}{hint}")
    error.hint = hint
    return error
