"""Against real brokers, with both clients."""

import asyncio
import json
import os
import socket
import threading
import time

import paho.mqtt.client as paho
import pytest
import trustme

from leadsman.core.mqtt.message import Message
from leadsman.errors import BrokerError, ConnackMissing, ConnectionRefused, SubscriptionRefused, TlsRefused
from leadsman.testing import Mosquitto
from leadsman.testing.mosquitto import free_port
from leadsman_rigs.byte_broker import ByteBroker, Peer
from leadsman_rigs.one_connection import connected, publish_one
from leadsman_rigs.password_file import write_password_file
from leadsman_rigs.proxy import Proxy

COUNTER = """
n = 0
@app.telemetry("counter", interval=0.2)
async def counter():
    global n
    n += 1
    return {"n": n}
"""


pytestmark = pytest.mark.usefixtures("client")


def numbers(listener):
    """The distinct readings, in the order they first came."""
    return list(dict.fromkeys(json.loads(message.payload)["n"] for message in listener.on("sys/counter/state")))


def test_readings_arrive_with_their_time_retained_and_acknowledged(mosquitto, listen, start_app):
    listener = listen(mosquitto.port)
    start_app(COUNTER, mosquitto.url)

    message = listener.wait_for("sys/counter/state", 5)[4]

    late = listen(mosquitto.port).wait_for("sys/counter/state")[0]
    assert json.loads(message.payload) == {"n": 5}
    assert dict(message.properties.UserProperty)["taken_at"][-1] == "Z"
    assert message.qos == 1
    assert late.retain


def test_a_broker_killed_for_seconds_costs_no_reading_and_is_found_again_soon(listen, start_app, tmp_path):
    # The broker remembers the listener's subscription over its death: nobody can say which of the two is back first.
    memory = f"persistence true\npersistence_location {tmp_path}/\nautosave_on_changes true\nautosave_interval 1\n"
    with Mosquitto(memory) as mosquitto:
        listener = listen(mosquitto.port)
        app = start_app(COUNTER, mosquitto.url)
        listener.wait_for("sys/counter/state", 5)

        mosquitto.kill()
        app.wait_for("refused")
        time.sleep(4)
        mosquitto.start()
        back = time.monotonic()
        listener.wait_for("sys/counter/state", 40)

    first_after = min(at for at in listener.times("sys/counter/state") if at > back)
    assert numbers(listener) == list(range(1, len(numbers(listener)) + 1))
    assert first_after - back <= 5
    assert app.log.count("refused") == 1, app.log


def test_a_broker_that_returns_behind_a_proxy_gets_no_reading_without_its_properties(mosquitto, listen, start_app):
    """A proxy accepts and closes while its broker is away, as old brokers do. One that spoke MQTT 5 is none of them."""
    listener, returned = listen(mosquitto.port), threading.Event()

    def returns(peer):
        peer.packet()
        proxy.target = mosquitto.port
        returned.set()

    with Proxy(mosquitto.port) as proxy, ByteBroker(Peer.packet, Peer.packet, Peer.packet, returns) as away:
        app = start_app(COUNTER, proxy.url)
        listener.wait_for("sys/counter/state", 5)
        proxy.target = away.port
        proxy.cut()
        assert returned.wait(60), app.log
        came = len(listener.on("sys/counter/state"))
        listener.wait_for("sys/counter/state", came + 10)

    assert numbers(listener) == list(range(1, len(numbers(listener)) + 1))
    assert [each for each in listener.on("sys/counter/state") if not hasattr(each.properties, "UserProperty")] == []


def test_a_frozen_broker_is_left_after_ten_seconds_and_costs_no_reading(mosquitto, listen, start_app):
    listener = listen(mosquitto.port)
    app = start_app(COUNTER, mosquitto.url)
    listener.wait_for("sys/counter/state", 5)

    mosquitto.freeze()
    app.wait_for("no acknowledgement within 10 s")
    mosquitto.thaw()
    listener.wait_for("sys/counter/state", 75)

    assert numbers(listener) == list(range(1, len(numbers(listener)) + 1))


def test_a_broker_that_starts_later_gets_every_reading(listen, start_app, tmp_path):
    port = free_port()
    start_app(COUNTER, f"mqtt://127.0.0.1:{port}")
    time.sleep(2)

    with Mosquitto(port=port):
        listener = listen(port)
        listener.wait_for("sys/counter/state", where=lambda message: json.loads(message.payload)["n"] >= 15)

    # The retained reading may come before the listener's own subscription; the outbox sends them in order all the same.
    assert numbers(listener) == sorted(numbers(listener))


@pytest.mark.parametrize("conf", ["max_qos 0\n", "retain_available false\n", "max_qos 0\nretain_available false\n"])
def test_a_broker_of_3_1_1_that_closes_the_connection_on_a_will_that_it_cannot_have_gets_the_readings(
    listen, start_app, conf
):
    with Mosquitto(conf) as broker:
        listener = listen(broker.port)
        app = start_app(COUNTER, f"{broker.url}?protocol=3.1.1")
        listener.wait_for("sys/counter/state", 10)

    assert app.log.count("connected to the broker") == 1


def test_the_client_is_named_in_the_log_and_in_the_heartbeat(mosquitto, listen, start_app, client):
    listener = listen(mosquitto.port)
    app = start_app(COUNTER, mosquitto.url)

    status = json.loads(listener.wait_for("sys/status", where=lambda message: b"online" in message.payload)[0].payload)

    assert status["mqtt"]["client"] == client
    assert f"with MQTT 5.0 by {client}" in app.log


def test_with_the_codec_the_other_library_is_not_imported(mosquitto, listen, start_app, client):
    listener = listen(mosquitto.port)
    code = """
@app.telemetry("imports", interval=60)
async def imports():
    return {name: name in sys.modules for name in ("aiomqtt", "paho")}
"""
    start_app(code, mosquitto.url)

    imported = json.loads(listener.wait_for("sys/imports/state")[0].payload)

    assert imported == {"aiomqtt": client == "aiomqtt", "paho": client == "aiomqtt"}


def test_small_packets_are_sent_at_once(mosquitto, client):
    async def scenario(connection, hooks):
        transport = connection._transport if client == "mqtt5" else None
        sock = connection._client._client.socket() if transport is None else transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)

    connected(mosquitto.url, scenario)


def test_an_old_broker_is_spoken_to_in_mqtt_3_1_1(old_broker, listen, start_app):
    listener = listen(old_broker, version=paho.MQTTv311)
    app = start_app(COUNTER, f"mqtt://127.0.0.1:{old_broker}")

    listener.wait_for("sys/counter/state", 5)

    status = json.loads(listener.wait_for("sys/status", where=lambda message: b"online" in message.payload)[0].payload)
    assert status["mqtt"]["protocol"] == "3.1.1"
    assert "MQTT 3.1.1" in app.log
    assert NO_ANSWER in app.log


NO_ANSWER = "did not answer within"


def test_the_version_to_try_first_may_be_given(old_broker, listen, start_app):
    listener = listen(old_broker, version=paho.MQTTv311)
    app = start_app(COUNTER, f"mqtt://127.0.0.1:{old_broker}?protocol=3.1.1")

    listener.wait_for("sys/counter/state", 5)

    assert NO_ANSWER not in app.log


def test_a_wrong_password_is_told_once_with_what_to_do(listen, start_app, tmp_path):
    passwords = tmp_path / "passwords"
    write_password_file(passwords, ann="right")
    with Mosquitto(f"password_file {passwords}\n", anonymous=False) as broker:
        wrong = start_app(COUNTER, f"mqtt://ann:wr0ng@127.0.0.1:{broker.port}")
        right = start_app(COUNTER, f"mqtt://ann:right@127.0.0.1:{broker.port}")
        wrong.wait_for("check MQTT__USERNAME and MQTT__PASSWORD")
        right.wait_for("connected to the broker")
        time.sleep(2)

        assert wrong.process.poll() is None
        assert wrong.log.count("check MQTT__USERNAME and MQTT__PASSWORD") == 1
        assert "wr0ng" not in wrong.log


def test_a_password_that_is_mended_at_the_broker_is_used_within_seconds(listen, start_app, tmp_path):
    passwords = tmp_path / "passwords"
    write_password_file(passwords, ann="old")
    with Mosquitto(f"password_file {passwords}\n", anonymous=False) as broker:
        app = start_app(COUNTER, f"mqtt://ann:new@127.0.0.1:{broker.port}")
        app.wait_for("check MQTT__USERNAME and MQTT__PASSWORD")
        write_password_file(passwords, ann="new")
        broker.reload()

        app.wait_for("connected to the broker", timeout=30)

        assert app.log.count("check MQTT__USERNAME") == 1


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    directory, authority, stranger = tmp_path_factory.mktemp("certificates"), trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(directory / "ca.pem")
    stranger.cert_pem.write_to_path(directory / "stranger.pem")
    for name, certificate in (
        ("server", authority.issue_cert("127.0.0.1", "localhost")),
        ("wrong-name", authority.issue_cert("elsewhere.example")),
        ("client", authority.issue_cert("client@example.org")),
    ):
        certificate.private_key_pem.write_to_path(directory / f"{name}.key")
        certificate.cert_chain_pems[0].write_to_path(directory / f"{name}.pem")
    for path in directory.iterdir():
        path.chmod(0o644)
    directory.chmod(0o755)
    return directory


def tls_broker(certificates, name="server", extra=""):
    files = f"cafile {certificates}/ca.pem\ncertfile {certificates}/{name}.pem\nkeyfile {certificates}/{name}.key\n"
    return Mosquitto(files + extra)


def test_tls_is_verified_against_the_given_authority(certificates):
    with tls_broker(certificates) as broker:
        url = f"mqtts://127.0.0.1:{broker.port}"

        assert connected(f"{url}?ca={certificates}/ca.pem", publish_one).acknowledgements[0] < 0x80
        for wrong in (f"{url}?ca={certificates}/stranger.pem", url):
            with pytest.raises(TlsRefused, match="certificate verify failed"):
                connected(wrong, publish_one)


def test_a_url_with_the_wrong_scheme_for_its_port_is_answered_with_the_right_one(certificates, mosquitto):
    with (
        tls_broker(certificates) as broker,
        pytest.raises(ConnackMissing, match=f"is this a TLS port.* mqtts://127.0.0.1:{broker.port}$"),
    ):
        connected(f"mqtt://127.0.0.1:{broker.port}", publish_one)
    with pytest.raises(BrokerError, match=f"is this a TLS port.* mqtt://127.0.0.1:{mosquitto.port}$"):
        connected(f"mqtts://127.0.0.1:{mosquitto.port}?ca={certificates}/ca.pem", publish_one)


@pytest.mark.parametrize(("name", "authority"), [("wrong-name", "ca"), ("server", "stranger")])
def test_a_certificate_that_does_not_fit_is_refused_unless_insecure_is_asked_for(certificates, name, authority):
    with tls_broker(certificates, name) as broker:
        url = f"mqtts://127.0.0.1:{broker.port}?ca={certificates}/{authority}.pem"

        with pytest.raises(TlsRefused, match="certificate"):
            connected(url, publish_one)
        assert connected(f"{url}&insecure=true", publish_one).acknowledgements[0] < 0x80


def test_a_client_certificate_opens_a_broker_that_asks_for_one(certificates):
    with tls_broker(certificates, extra="require_certificate true\n") as broker:
        url = f"mqtts://127.0.0.1:{broker.port}?ca={certificates}/ca.pem"

        with pytest.raises(
            (TlsRefused, ConnackMissing), match="cert="
        ):  # with a TLS alert, or with a reset that is quicker
            connected(url, publish_one)
        assert (
            connected(
                f"{url}&cert={certificates}/client.pem&key={certificates}/client.key", publish_one
            ).acknowledgements[0]
            < 0x80
        )


@pytest.fixture
def listening():
    """A port that takes connections, and never answers."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        yield silent.getsockname()[1]


@pytest.mark.parametrize("name", ["ca", "cert", "key"])
def test_a_missing_certificate_file_is_named(certificates, name, listening):
    given = {"ca": f"{certificates}/ca.pem", "cert": f"{certificates}/client.pem", "key": f"{certificates}/client.key"}
    query = "&".join(f"{key}={path}" for key, path in (given | {name: "/nowhere/file.pem"}).items())

    with pytest.raises(
        TlsRefused, match=f"cannot connect to mqtts://127.0.0.1:{listening}: the file of {name}=, '/nowhere/file.pem'"
    ):
        connected(f"mqtts://127.0.0.1:{listening}?{query}", publish_one)


def test_a_file_that_holds_no_certificate_is_named(tmp_path, listening):
    (tmp_path / "ca.pem").write_text("nonsense")

    with pytest.raises(TlsRefused, match="ca.pem"):
        connected(f"mqtts://127.0.0.1:{listening}?ca={tmp_path}/ca.pem", publish_one)


@pytest.mark.parametrize("protocol", ["5.0", "3.1.1"])
def test_return_code_1_of_an_old_connack_refuses_the_version(protocol):
    with socket.socket() as old:
        old.bind(("127.0.0.1", 0))
        old.listen()

        def refuse():
            with old.accept()[0] as client:
                client.recv(1000)
                client.sendall(b"\x20\x02\x00\x01")
                client.recv(1000)

        thread = threading.Thread(target=refuse, daemon=True)
        thread.start()
        with pytest.raises(ConnectionRefused, match="version") as caught:
            connected(f"mqtt://127.0.0.1:{old.getsockname()[1]}", publish_one, protocol)
        thread.join(60)

    assert caught.value.code == 0x84


def wait_until_open(port):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.01)
    pytest.fail(f"nobody listens on {port}")


def test_websockets_carry_mqtt():
    port = free_port()
    with Mosquitto(f"listener {port} 127.0.0.1\nprotocol websockets\n"):
        wait_until_open(port)
        assert connected(f"ws://127.0.0.1:{port}", publish_one).acknowledgements[0] < 0x80


def wait_until_it_listens(path, timeout=60):
    """The broker opens its unix socket after its port."""
    deadline = time.monotonic() + timeout
    with socket.socket(socket.AF_UNIX) as sock:
        while sock.connect_ex(str(path)):
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.mark.parametrize("protocol", ["5.0", "3.1.1"])
def test_a_unix_socket_carries_mqtt(tmp_path, protocol):
    path = tmp_path / "mosquitto.sock"
    with Mosquitto(f"listener 0 {path}\n"):
        wait_until_it_listens(path)
        assert connected(f"mqtt+unix://{path}", publish_one, protocol).acknowledgements[0] < 0x80


def test_a_unix_socket_where_nobody_listens_is_a_named_error(tmp_path):
    with pytest.raises(BrokerError, match=f"cannot connect to mqtt\\+unix://{tmp_path}/none: .*No such file") as caught:
        connected(f"mqtt+unix://{tmp_path}/none", publish_one)

    assert "TLS" not in str(caught.value)
    assert str(caught.value).endswith("; start the broker, or correct its URL (--mqtt, MQTT__URL)")


@pytest.mark.parametrize("protocol", ["5.0", "3.1.1"])
def test_messages_of_a_subscription_come_in(mosquitto, protocol):
    async def scenario(connection, hooks):
        await connection.subscribe("t/#")
        connection.publish(Message("t/x", b"hello", retain=True, taken_at=0.0, expires=None))
        while not hooks.messages:
            await asyncio.sleep(0.01)

    assert connected(mosquitto.url, scenario, protocol).messages[0].payload == b"hello"


def test_a_refused_subscription_is_seen(old_broker_that_allows):
    async def scenario(connection, hooks):
        await connection.subscribe("t/x")
        with pytest.raises(SubscriptionRefused, match="secret"):
            await connection.subscribe("secret/x")

    with old_broker_that_allows("t/x") as port:
        connected(f"mqtt://127.0.0.1:{port}", scenario, "3.1.1")


def test_a_refused_message_is_seen(tmp_path):
    acl = tmp_path / "acl"
    acl.write_text("topic readwrite t/#\n")
    acl.chmod(0o644)

    async def scenario(connection, hooks):
        connection.publish(Message("secret/x", b"1"))
        while not (hooks.acknowledgements or hooks.reasons):
            await asyncio.sleep(0.01)

    with Mosquitto(f"acl_file {acl}\n") as broker:
        assert connected(broker.url, scenario).acknowledgements[0] == 0x87


def test_an_unreachable_a_silent_and_a_hanging_up_broker_are_named_errors_and_leave_nothing_open():
    def files():
        return len(os.listdir("/proc/self/fd"))

    with socket.socket() as hanging_up:
        hanging_up.bind(("127.0.0.1", 0))
        hanging_up.listen()

        def hang_up():
            while True:
                try:
                    hanging_up.accept()[0].close()
                except OSError:
                    return

        threading.Thread(target=hang_up, daemon=True).start()
        url = f"mqtt://127.0.0.1:{hanging_up.getsockname()[1]}"
        before = files()
        for _ in range(20):
            with pytest.raises(BrokerError):
                connected(url, publish_one)
        assert files() <= before + 2
        hanging_up.shutdown(socket.SHUT_RDWR)

    with pytest.raises(BrokerError, match="refused|cannot connect"):
        connected(f"mqtt://127.0.0.1:{free_port()}", publish_one)

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with pytest.raises(BrokerError, match="within 5 s"):
            connected(f"mqtt://127.0.0.1:{silent.getsockname()[1]}", publish_one)


def test_connack_refusals_carry_their_code(tmp_path):
    passwords = tmp_path / "none"
    passwords.write_text("")
    passwords.chmod(0o644)
    with Mosquitto(f"password_file {passwords}\n", anonymous=False) as broker:
        for protocol in ("5.0", "3.1.1"):
            with pytest.raises(ConnectionRefused) as caught:
                connected(broker.url, publish_one, protocol)
            assert caught.value.code in (0x86, 0x87)


def test_the_will_speaks_when_the_process_is_killed_and_only_after_its_delay(mosquitto, listen, start_app):
    listener = listen(mosquitto.port)
    app = start_app(COUNTER, mosquitto.url)
    online = json.loads(
        listener.wait_for("sys/status", where=lambda message: b'"online"' in message.payload)[0].payload
    )

    app.process.kill()
    died = time.monotonic()
    offline = listener.wait_for("sys/status", where=lambda message: b'"offline"' in message.payload)[0]

    assert json.loads(offline.payload)["session"] == online["session"]
    assert 9 <= time.monotonic() - died <= 30


def test_an_app_that_is_restarted_quickly_does_not_flap_to_offline(mosquitto, listen, start_app, tmp_path):
    listener = listen(mosquitto.port)
    start_app(COUNTER, mosquitto.url).process.kill()
    first = start_app(COUNTER, mosquitto.url)
    listener.wait_for("sys/counter/state", 2)
    started = tmp_path / "started"
    waits = f"print('imported', flush=True)\nwhile not os.path.exists({str(started)!r}): time.sleep(0.01)\n"
    second = start_app(waits + COUNTER, mosquitto.url)
    second.wait_for("imported")  # which takes long where the machine is busy
    first.process.kill()

    started.touch()
    second.wait_for("connected to the broker")
    time.sleep(12)

    assert {json.loads(message.payload)["state"] for message in listener.on("sys/status")} == {"online"}


LAMP = """
@app.command("lamp")
async def lamp(level: int):
    return {"level": level}
"""


def test_a_command_with_retain_is_executed_when_it_arrives_live_and_ignored_once_the_broker_kept_it(listen, start_app):
    with Mosquitto() as mosquitto:
        listener = listen(mosquitto.port)
        app = start_app(LAMP, mosquitto.url)
        listener.wait_for("sys/status")
        listener.client.publish("sys/lamp/set", b"3", qos=1, retain=True)
        listener.wait_for("sys/lamp/state")
        app.end()
        app = start_app(LAMP, mosquitto.url)
        deadline = time.monotonic() + 60
        while "lamp: a retained request is ignored" not in app.log:
            assert time.monotonic() < deadline, app.log
            time.sleep(0.05)

        assert [message.payload for message in listener.on("sys/lamp/state")] == [b'{"level":3}']
