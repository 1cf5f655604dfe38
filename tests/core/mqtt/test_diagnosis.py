import ssl

import pytest

from leadsman import Broker
from leadsman.core.mqtt.diagnosis import (
    FileError,
    alert,
    client_id_in_use,
    disconnected,
    no_connack,
    not_subscribed,
    refused,
    silent,
    unreachable,
)
from leadsman.errors import BrokerError, ConnackMissing, NotListening, TlsRefused

PLAIN, TLS = Broker("broker.lan", 8883), Broker("broker.lan", 1883, "mqtts")
UNIX = Broker.from_url("mqtt+unix:///run/mosquitto.sock")


@pytest.mark.parametrize("code", [18, 19, 20, 21])
def test_a_certificate_of_an_authority_of_ones_own_is_answered_with_where_to_name_it(code):
    trusting = Broker.from_url("mqtts://broker.lan?ca=/etc/other.pem")

    unknown = unreachable(TLS, "certificate verify failed", verification_error(code))
    another = unreachable(trusting, "certificate verify failed", verification_error(code))

    assert isinstance(unknown, TlsRefused)
    assert str(unknown).endswith("in the URL: mqtts://broker.lan:1883?ca=/path/of/ca.crt")
    assert "'/etc/other.pem', has another authority than that of the broker" in str(another)


@pytest.mark.parametrize("code", [10, 62, 64])
def test_a_certificate_that_is_wrong_in_another_way_gets_no_advice_about_its_authority(code):
    assert "ca=" not in str(unreachable(TLS, "certificate verify failed", verification_error(code)))


@pytest.mark.parametrize("first", [b"HTTP/1.1 400 Bad", b"<!DOCTYPE HTML>\n", b"<html>\r\n"])
@pytest.mark.parametrize("broker", [PLAIN, TLS])
def test_a_web_server_at_the_port_of_the_broker_is_named(broker, first):
    error = no_connack(broker, f"the broker sent {first!r} where a CONNACK was due")

    assert "that is a web server: write the port of the broker, 1883 as a rule" in str(error)
    assert "password" not in str(error)


def test_what_is_no_web_server_is_not_called_one():
    assert "web server" not in str(no_connack(PLAIN, "the broker sent b'@\\x02\\x00<' where a CONNACK was due"))


def verification_error(code):
    error = ssl.SSLCertVerificationError("certificate verify failed")
    error.verify_code = code
    return error


@pytest.mark.parametrize(
    ("code", "advice"), [(0x86, "MQTT__PASSWORD"), (0x87, "access list"), (0x8A, "banned"), (0xFE, "the broker's log")]
)
def test_a_refusal_says_what_to_check(code, advice):
    error = refused(PLAIN, code)

    assert error.code == code
    assert advice in str(error)
    assert "mqtt://broker.lan:8883" in str(error)


@pytest.mark.parametrize(
    ("broker", "cause", "kind", "advice"),
    [
        (TLS, verification_error(9), BrokerError, "is the clock set?"),
        (TLS, verification_error(18), TlsRefused, ""),
        (TLS, FileError("no such file"), TlsRefused, ""),
        (TLS, ConnectionResetError(104, "reset"), BrokerError, "Without TLS write mqtt://"),
        (TLS, ssl.SSLError(1, "unknown"), TlsRefused, ""),
        (PLAIN, ConnectionRefusedError(111, "refused"), NotListening, "the text; start the broker, or correct its URL"),
        (UNIX, FileNotFoundError(2, "no such file"), NotListening, "the text; start the broker, or correct its URL"),
        (UNIX, PermissionError(13, "permission denied"), BrokerError, "the text; check its URL"),
        (PLAIN, OSError(113, "no route to host"), BrokerError, "the text; check its URL"),
        (PLAIN, None, BrokerError, "the text; check its URL"),
    ],
)
def test_an_error_below_mqtt_is_told_apart_by_who_can_mend_it(broker, cause, kind, advice):
    error = unreachable(broker, "the text", cause)

    assert type(error) is kind
    assert "the text" in str(error)
    assert advice in str(error)


def test_an_open_port_without_an_answer_names_the_url_that_was_meant():
    assert "Then write mqtts://broker.lan:8883" in str(no_connack(PLAIN, "closed"))
    assert "Then write mqtts://broker.lan:8883" in str(silent(PLAIN, 5.0, opened=True))


@pytest.mark.parametrize("broker", [PLAIN, TLS, UNIX])
def test_a_broker_that_closes_instead_of_a_connack_may_refuse_the_password(broker):
    error = no_connack(broker, "closed")

    assert "closed; is the user name or the password wrong (MQTT__USERNAME, MQTT__PASSWORD)" in str(error)
    assert "password" not in error.without_hint()
    assert "password" not in str(silent(broker, 5.0, opened=True))
    assert ("cert=" in str(error)) is broker.encrypted


def test_the_hint_of_an_error_can_be_taken_off_its_end():
    refused = unreachable(PLAIN, "refused", ConnectionRefusedError(111, "refused"))
    for error in (no_connack(PLAIN, "closed"), no_connack(TLS, "closed"), silent(TLS, 5.0, opened=True), refused):
        assert isinstance(error, ConnackMissing | NotListening)
        assert error.hint
        assert str(error) == error.without_hint() + error.hint
    assert refused.without_hint() == "cannot connect to mqtt://broker.lan:8883: refused"


def test_a_host_that_does_not_answer_is_not_asked_for_tls():
    error = silent(PLAIN, 5.0, opened=False)

    assert type(error) is BrokerError
    assert str(error).endswith("within 5 s; check its URL (--mqtt, MQTT__URL) and the network")


def test_a_broker_that_ends_tls_may_want_a_certificate():
    assert "cert=…, key=…" in str(alert(TLS, ssl.SSLError(1, "alert")))


def test_another_client_with_our_id_is_certain_only_if_the_broker_says_so():
    assert client_id_in_use("app", certain=True).startswith("another client uses the client id 'app'")
    assert "probably another client" in client_id_in_use("app", certain=False)


def test_a_node_of_a_cluster_whose_client_id_is_in_use_gets_another_name_and_not_another_prefix():
    text = client_id_in_use("house-attic", certain=True, node="attic")

    assert text.endswith("stop it, or give this node another name than 'attic' (cluster.node, CLUSTER__NODE)")
    assert "prefix" not in text


def test_a_refusal_that_names_another_broker_says_so_with_the_words_of_this_one():
    text = str(refused(PLAIN, 0x9C, "b2.lan", "too full"))

    assert text.endswith("(0x9c); it names 'b2.lan' as the broker to use; it says: too full")


@pytest.mark.parametrize(
    ("code", "words"), [(0x8B, "shutting down"), (0x97, "a quota is exceeded"), (0xFE, "for a reason of its own")]
)
def test_the_reason_of_a_disconnect_is_told_in_words_and_as_a_number(code, words):
    assert disconnected(code).startswith("the broker closed the connection: ")
    assert words in disconnected(code)
    assert disconnected(code).endswith(f"(0x{code:02x})")


def test_a_refused_subscription_names_its_filter_and_the_reason():
    assert str(not_subscribed("a/#", 0x9E)) == (
        "the broker refused the subscription to 'a/#': it has no shared subscriptions (0x9e)"
    )
    assert "it does not say why" in str(not_subscribed("a/#", 0xFE))


def test_an_error_of_a_unix_socket_does_not_ask_for_tls():
    broker = Broker(scheme="mqtt+unix", path="/run/x.sock")

    assert "TLS" not in str(silent(broker, 5, opened=True))
    assert "TLS" not in str(no_connack(broker, "closed"))
