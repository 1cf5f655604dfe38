"""An app as systemd runs it, asked by the tools that people have, and attacked."""

import itertools
import json
import signal
import statistics
import sys
import threading
import time

import paho.mqtt.client as paho
import pytest

from leadsman_rigs.service import APP, Service


def test_an_app_under_a_service_manager_is_inspected_commanded_and_stopped(service):
    assert len([line for line in APP.splitlines() if line.strip()]) <= 30

    document = service.rr("5", "house/introspect", "")
    data = document["data"]
    assert document["status"] == "ok"
    assert set(data["devices"]) == {"kitchen", "attic", "heating"}
    assert data["devices"]["attic"]["runtime"]["status"] == "ok"
    assert data["mqtt"]["connected"] is True
    assert "secret" not in json.dumps(document)
    assert "hunter2" not in json.dumps(document)

    old = service.pub_and_sub(
        "house/introspect", '{"sections": ["app"], "transaction": 7}', "house/introspect/response"
    )
    assert (old["status"], old["transaction"], old["data"]["app"]["name"]) == ("ok", 7, "house")

    assert service.rr("5", "house/heating/set", '{"degrees": 21}')["data"] == {"target": 21.0}
    assert service.rr("5", "house/kitchen/get", "")["data"] == {"t": 21}
    refused = service.pub_and_sub(
        "house/heating/set", '{"degrees": "warm", "transaction": "x"}', "house/heating/set/result"
    )
    assert (refused["status"], refused["transaction"]) == ("error", "x")
    assert "degrees: Input should be a valid number" in refused["error"]

    service.manager.forget()
    while len(fed := [at for at, line in service.manager.said if line == "WATCHDOG=1"]) < 4:
        service.manager.listen(0.1)
    assert statistics.median(after - before for before, after in itertools.pairwise(fed)) < 1
    well = service.leadsman("health")
    assert (well.returncode, well.stdout) == (0, "2 of 2 devices ok; connected\n")

    before = time.monotonic()
    service.process.send_signal(signal.SIGTERM)
    assert service.process.wait(60) == 0
    assert time.monotonic() - before < 10
    service.manager.wait_for("STOPPING=1")
    assert json.loads((service.directory / "state" / "heating.json").read_text()) == {"target": 21.0}
    assert service.leadsman("health").returncode == 1


def test_running_the_module_is_the_same_as_leadsman_run(service):
    service.process.send_signal(signal.SIGTERM)
    service.process.wait(60)
    service.manager.forget()
    service.start([sys.executable, "house.py"])

    service.manager.wait_for("READY=1")
    service.wait_until_online()

    assert service.rr("5", "house/introspect", '{"sections": ["app"]}')["data"]["app"]["name"] == "house"


def test_a_wrong_password_is_told_once_with_what_to_do_and_the_process_lives(service):
    service.process.send_signal(signal.SIGTERM)
    service.process.wait(60)
    (service.directory / "credentials" / "mqtt__password").write_text("gu3ssed")
    service.log.write_text("")
    service.manager.forget()

    service.start()
    service.manager.wait_for("READY=1")  # the boot of a machine does not wait for a broker
    service.manager.wait_for("no connection to the broker")
    eventually(lambda: "MQTT__PASSWORD" in service.log.read_text())
    time.sleep(1)

    assert service.process.poll() is None
    log = service.log.read_text()
    assert log.count("bad user name or password") + log.count("not authorized") == 1
    assert "gu3ssed" not in log


def test_two_apps_with_one_client_id_are_told_and_slow_down(service, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    twin = Service(other, service.broker).start()
    try:
        eventually(lambda: "another client uses" in service.log.read_text() + twin.log.read_text())
        time.sleep(3)
        both = service.log.read_text() + twin.log.read_text()
        assert "another client uses the client id 'house'" in both
        assert both.count("another client uses") <= 2
        assert both.count("connected to the broker") <= 10
        twin.process.send_signal(signal.SIGTERM)
        twin.process.wait(60)
        service.manager.listen(0.1)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            status = service.tool("mosquitto_sub", "-t", "house/status", "-C", "1", "-W", "5").stdout
            if '"online"' in status and '"last_error":null' in status:
                break
            time.sleep(0.5)
        else:
            pytest.fail(f"it did not recover: {status}\n{service.log.read_text()}")
    finally:
        twin.end()


def eventually(true, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def test_commands_arrive_again_after_the_broker_was_killed(service):
    service.broker.kill()
    time.sleep(0.5)
    service.broker.start()

    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        result = service.tool(
            "mosquitto_rr",
            "-V",
            "5",
            "-t",
            "house/heating/set",
            "-e",
            "house/answers/x",
            "-m",
            '{"degrees": 22}',
            "-W",
            "2",
        )
        if result.returncode == 0:
            break
    assert json.loads(result.stdout)["data"] == {"target": 22.0}


def test_a_flood_of_garbage_leaves_the_app_alive_and_small(service):
    import psutil

    process = psutil.Process(service.process.pid)
    service.rr("5", "house/introspect", "")
    before = process.memory_info().rss
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    client.username_pw_set("guest", "guest-secret")
    client.max_inflight_messages_set(0)
    client.connect("127.0.0.1", service.broker.port)
    client.loop_start()
    garbage = [
        b"{",
        b"\xff" * 1000,
        b"[" * 30_000,
        b'{"degrees": NaN}',
        b"x" * 100_000,
        b'{"degrees": 1e999}',
        b'"\\ud800"',
    ]
    last = [client.publish("house/heating/set", garbage[number % len(garbage)], 1) for number in range(2000)]
    last += [
        client.publish(topic, b"\x00" * 100, 1) for topic in ("house/introspect", "house/x/set", "house/kitchen/get")
    ]
    last[-1].wait_for_publish(60)
    client.disconnect()
    client.loop_stop()

    deadline = time.monotonic() + 60
    while (answer := service.rr("5", "house/heating/set", '{"degrees": 23}'))["status"] == "error":
        assert answer["error"].endswith(("ask again in a few seconds", "send it again later")), answer
        assert time.monotonic() < deadline, answer
        time.sleep(0.5)
    assert answer["data"] == {"target": 23.0}
    assert process.memory_info().rss - before < 30 * 2**20
    assert service.log.read_text().count("commands failed so far") <= 2


def test_ten_thousand_requests_at_once_are_each_answered_and_readings_go_on_in_between(service):
    arrived, subscribed = [], threading.Event()
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    client.username_pw_set("guest", "guest-secret")
    client.max_inflight_messages_set(0)
    client.on_message = lambda client, data, message: arrived.append((message.topic, message.payload))
    client.on_subscribe = lambda *_: subscribed.set()
    client.connect("127.0.0.1", service.broker.port)
    client.loop_start()
    client.subscribe([("house/introspect/response", 1), ("house/kitchen/state", 1)])
    assert subscribed.wait(20)
    for number in range(10_000):
        client.publish("house/introspect", b'{"sections": ["app"], "transaction": %d}' % number, 1)
    deadline = time.monotonic() + 60
    while sum(topic == "house/introspect/response" for topic, _ in arrived) < 10_000:
        assert time.monotonic() < deadline, len(arrived)
        time.sleep(0.2)
    client.disconnect()
    client.loop_stop()

    answers = [json.loads(payload) for topic, payload in arrived if topic == "house/introspect/response"]
    assert sorted(answer["transaction"] for answer in answers) == list(range(10_000))
    assert all(answer["status"] == "ok" or "ask again" in answer["error"] for answer in answers)
    topics = [topic for topic, _ in arrived]
    first = topics.index("house/introspect/response")
    last = max(place for place, topic in enumerate(topics) if topic == "house/introspect/response")
    assert "house/kitchen/state" in topics[first:last]
    assert "requests over MQTT" not in service.log.read_text()  # no fault


def test_what_is_older_than_the_process_comes_from_the_store_also_after_a_kill(service):
    service.rr("5", "house/heating/set", '{"degrees": 24}')
    service.process.send_signal(signal.SIGTERM)
    service.process.wait(60)
    service.manager.forget()
    service.start()
    service.manager.wait_for("; connected")
    service.process.kill()
    service.process.wait(60)

    assert json.loads((service.directory / "state" / "heating.json").read_text()) == {"target": 24.0}
