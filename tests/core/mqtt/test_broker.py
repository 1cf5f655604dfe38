from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman import Broker, Tls
from leadsman.core.settings.load import load
from leadsman.core.settings.sources import Where
from leadsman.core.text import clean
from leadsman.errors import ConfigurationError, InvalidType, InvalidValue, SettingsError


def test_a_url_is_read():
    broker = Broker.from_url("mqtts://ann:s%40crt@host.lan:8884?ca=/ca.pem&cert=/me.pem&key=/me.key")

    assert (broker.host, broker.port, broker.scheme, broker.encrypted) == ("host.lan", 8884, "mqtts", True)
    assert (broker.username, broker.password) == ("ann", "s@crt")
    assert broker.tls == Tls("/ca.pem", "/me.pem", "/me.key")


@pytest.mark.parametrize(
    ("url", "port"),
    [("mqtt://h", 1883), ("mqtts://h", 8883), ("ws://h", 80), ("wss://h/mqtt", 443), ("mqtt://[::1]", 1883)],
)
def test_the_port_follows_from_the_scheme(url, port):
    assert Broker.from_url(url).port == port


def test_the_password_is_never_shown():
    broker = Broker.from_url("mqtt://ann:hunter2@host")

    assert "hunter2" not in f"{broker} {broker!r}"


LETTERS = "QXZJKVY"  # in no message of ours
passwords = st.text(alphabet=f"{LETTERS}12@:/?#[]%&=+.", min_size=3, max_size=20)


def seen(password, text):
    """The parts of a password, three characters and more, that a text shows."""
    parts = [password[start : start + 3] for start in range(len(password) - 2)]
    return [part for part in parts if set(part) & set(LETTERS) and part in text]


@given(
    passwords,
    st.sampled_from(["mqtt", "mqtts", "ws", "wss", "http"]),
    st.sampled_from(["", "/x", "?protocol=3.1.1", "?client=aiomqtt", ":77"]),
)
def test_no_part_of_a_password_is_shown_wherever_its_url_appears(password, scheme, rest):
    for written in (password, quote(password, safe="")):
        url = f"{scheme}://ann:{written}@host.lan{rest}"
        try:
            broker = Broker.from_url(url)
            text = f"{broker} {broker!r}"
        except ConfigurationError as error:
            text = str(error)
        text += load("house", None, Where.nowhere({"mqtt.url": url})).rows[0].value
        if scheme != "http":  # an @ may be part of its path
            text += clean(f"cannot reach {url}: refused")

        assert not seen(password, text)
        assert not seen(written, text)


@given(passwords)
def test_a_password_is_read_as_it_was_written_when_it_is_percent_encoded(password):
    broker = Broker.from_url(f"mqtt://ann:{quote(password, safe='')}@host.lan")

    assert (broker.username, broker.password, broker.host) == ("ann", password, "host.lan")


@pytest.mark.parametrize("password", ["a/b", "a#b", "a?b", "12/b", "a@b/c@d", "["])
def test_a_password_that_must_be_percent_encoded_is_refused_with_how(password):
    with pytest.raises(InvalidValue, match="percent-encode its password, with %2F for /"):
        Broker.from_url(f"mqtt://ann:{password}@host")


@pytest.mark.parametrize(
    ("url", "path"),
    [("mqtt+unix:///run/mosquitto.sock", "/run/mosquitto.sock"), ("mqtt+unix://ann:x@/tmp/a%20b", "/tmp/a b")],
)
def test_a_unix_socket_is_a_path_without_a_host(url, path):
    broker = Broker.from_url(url)

    assert (broker.unix, broker.encrypted, broker.websocket, broker.path) == (True, False, False, path)
    assert str(broker) == f"mqtt+unix://{path}"


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        ("mqtt+unix://", "three slashes: mqtt\\+unix:///run/mosquitto.sock"),
        ("mqtt+unix:///", "three slashes"),
        ("mqtt+unix://run/mosquitto.sock", "three slashes"),
        ("mqtt+unix:///run/x?ca=ca.pem", "'ca' without TLS; a unix socket has none"),
    ],
)
def test_a_wrong_url_of_a_unix_socket_says_what_to_write(url, advice):
    with pytest.raises(InvalidValue, match=advice):
        Broker.from_url(url)


def test_a_url_without_a_scheme_is_refused_with_one():
    with pytest.raises(InvalidValue, match="write one such as 'mqtt://localhost:1883'"):
        Broker.from_url("localhost")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "host",
        "http://host",
        "mqtt://",
        "mqtt://h:99999",
        "mqtt://h:x",
        "mqtts://h?colour=red",
        "mqtt://h?protocol=4",
        "mqtt://h?client=paho",
        "mqtt://h?ca=/ca.pem",
        "mqtt://[::1",
    ],
)
def test_a_wrong_url_is_refused_with_what_to_write(url):
    with pytest.raises(InvalidValue, match="mqtt|write one of|3.1.1|aiomqtt"):
        Broker.from_url(url)


def test_a_url_may_name_the_client_beside_all_else():
    assert Broker.from_url("mqtt://h").client is None
    broker = Broker.from_url("mqtts://h?ca=/ca.pem&client=aiomqtt&protocol=5.0")
    assert (broker.client, broker.protocol, broker.tls.ca) == ("aiomqtt", "5.0", "/ca.pem")


@pytest.mark.parametrize("client", ["paho", "mqtt5", "AIOMQTT"])
def test_a_client_that_cannot_be_chosen_is_refused_with_the_one_that_can(client):
    with pytest.raises(InvalidValue, match=f"client is '{client}'; write aiomqtt, or leave it out"):
        Broker.from_url(f"mqtt://h?client={client}")


def test_a_refusal_does_not_show_the_password():
    with pytest.raises(InvalidValue) as caught:
        Broker.from_url("http://ann:hunter2@host:x")

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("url", [None, 1883, b"mqtt://h"])
def test_what_is_no_url_is_refused(url):
    with pytest.raises(InvalidType):
        Broker.from_url(url)


def test_a_section_of_settings_is_read():
    assert Broker.from_section({}) == Broker()
    assert Broker.from_section({"url": "mqtt://a:1"}) == Broker("a", 1)
    assert Broker.from_section({"host": "b", "username": "u", "password": "p"}) == Broker(
        "b", username="u", password="p"
    )
    assert Broker.from_section({"tls": "true"}).port == 8883
    assert Broker.from_section({"tls": None}).port == 1883
    assert Broker.from_section({"tls": True, "port": 8884}) == Broker("localhost", 8884, "mqtts")


def test_credentials_of_the_section_join_a_url_that_has_none():
    assert Broker.from_section({"url": "mqtt://a", "username": "u", "password": "p"}).password == "p"
    assert Broker.from_section({"url": "mqtt://u:q@a", "password": "p"}).password == "q"


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ({"port": "many"}, "mqtt.port"),
        ({"port": 0}, "mqtt.port"),
        ({"host": ""}, "mqtt.host"),
        ({"host": "mqtt://localhost"}, "mqtt.host is a URL or a path; write a name or an address"),
        ({"host": "ann:hunter2@b/x"}, "mqtt.host is a URL or a path"),
        ({"host": "localhost:1883"}, "mqtt.host has a colon; write the name or the address only"),
        ({"password": 3}, "mqtt.password"),
    ],
)
def test_a_wrong_value_of_the_section_is_named(section, key):
    with pytest.raises((InvalidValue, InvalidType), match=key):
        Broker.from_section(section)


def test_files_for_tls_that_cannot_be_read_are_named_together(tmp_path):
    (tmp_path / "ca.pem").write_text("")
    broker = Broker.from_url(f"mqtts://h?ca={tmp_path}/ca.pem&cert={tmp_path}/me.pem&key={tmp_path}/me.key")

    with pytest.raises(SettingsError) as caught:
        broker.check_files()

    first, second = str(caught.value).splitlines()
    assert first == f"the broker's cert is '{tmp_path}/me.pem', which cannot be read: No such file or directory"
    assert second.startswith("the broker's key is ")
    Broker.from_url(f"mqtts://h?ca={tmp_path}/ca.pem").check_files()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("mqtt://ann:hunter2@localhost",), "the broker's host is a URL or a path; write a name or an address"),
        (("localhost:1883",), "the broker's host has a colon; write the name"),
        (("localhost", "1883"), "the broker's port is '1883'; it must be a number from 1 to 65535"),
        (("localhost", 99999), "the broker's port is 99999; it must be a number"),
    ],
)
def test_what_is_no_host_or_no_port_is_named_without_a_password(arguments, told):
    with pytest.raises(InvalidValue) as caught:
        Broker(*arguments)

    assert str(caught.value).startswith(told)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("host", ["::1", "fe80::1%eth0", "192.0.2.1", "broker.lan"])
def test_an_address_with_several_colons_is_one_of_ipv6(host):
    assert Broker(host).host == host
