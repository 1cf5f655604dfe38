"""Two processes of one app at a real broker: the second one takes over."""

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from datetime import datetime

import pytest

from leadsman.tools.cli.main import main
from leadsman_rigs.listener import Listener
from leadsman_rigs.notify_socket import NotifySocket
from leadsman_rigs.processes import HEADER, Process

TTL = 3.0
SLACK = 2.0
"""Seconds that a busy machine may take besides, as for the start of the parts of the app."""
METER = """
@app.telemetry("meter", interval=0.2)
async def meter():
    at = time.monotonic()
    print("polled", at, flush=True)
    return {"pid": os.getpid(), "at": at}

@app.command("valve")
async def valve():
    return {"pid": os.getpid()}
"""
DESCRIBED = f'app = App("sys", mqtt=os.environ["URL"], discovery="homeassistant")\n{METER}'
ACTIVE = ", is active"
POLLED = re.compile(r"^polled (\S+)$", re.MULTILINE)


@pytest.fixture(params=["5.0", pytest.param("3.1.1", marks=pytest.mark.slow)])
def protocol(request):
    return request.param


@contextmanager
def running(tmp_path, code=METER, **environment):
    started = []

    def start(url, name):
        command = [sys.executable, "-c", f"{HEADER}{code}\napp.run()\n"]
        state, log = str(tmp_path / f"{name}.state"), tmp_path / f"{name}.log"
        options = {"URL": url, "PYTHONWARNINGS": "error", "XDG_STATE_HOME": state, **environment}
        started.append(Process(command, log, STANDBY__ENABLED="true", STANDBY__TTL=f"{TTL:g}s", **options))
        return started[-1]

    try:
        yield start
    finally:
        for each in started:
            if each.process.poll() is None:
                each.process.send_signal(signal.SIGCONT)
                each.kill()


@pytest.fixture
def start_node(tmp_path):
    with running(tmp_path) as start:
        yield start


def say_goodbye(broker, prefix="sys"):
    """Let the broker retain that the app ended in order, so that its first node need not wait."""
    with Listener(broker.port) as listener:
        listener.client.publish(f"{prefix}/status", '{"state":"offline"}', 1, retain=True)
        listener.wait_for(f"{prefix}/status")


def pair_of(start_node, broker, url, road):
    """One node that is active, and one that stands by; the first uses another road to the broker."""
    say_goodbye(broker)
    active = start_node(road, "one")
    active.wait_for(ACTIVE, "polled")
    standby = start_node(url, "two")
    standby.wait_for("stands by for")
    return active, standby


@pytest.fixture
def pair(start_node, mosquitto, protocol):
    url = f"{mosquitto.url}?protocol={protocol}"
    return pair_of(start_node, mosquitto, url, url)


@pytest.fixture
def new_pair(start_node, mosquitto):
    return pair_of(start_node, mosquitto, mosquitto.url, mosquitto.url)


def name_of(node):
    """What a node calls itself."""
    return re.search(r"this node, (\S+), shares", node.log)[1]


def polls(node):
    return [float(at) for at in POLLED.findall(node.log)]


def of(message):
    """The process that a reading comes from."""
    return json.loads(message.payload)["pid"]


def taken_at(message):
    return dict(message.properties.UserProperty)["taken_at"]


def taken_over(node, since, within):
    """Wait until a node polls, and see that it does so in time."""
    node.wait_for(ACTIVE, "polled", timeout=within + 10)
    assert polls(node)[0] - since <= within


def test_a_node_that_is_told_to_stop_hands_over_within_a_second(pair):
    active, standby = pair

    before = time.monotonic()
    assert active.end()[0] == 0

    taken_over(standby, before, 1.0 + SLACK)
    assert polls(active)[-1] <= polls(standby)[0]


@pytest.mark.parametrize("protocol", ["3.1.1", pytest.param("5.0", marks=pytest.mark.slow)])
def test_a_node_that_is_killed_is_replaced_within_one_and_a_half_ttl(pair):
    active, standby = pair

    before = time.monotonic()
    active.kill()

    taken_over(standby, before, 1.5 * TTL + SLACK)


def test_a_frozen_node_publishes_nothing_when_it_goes_on_and_the_devices_stay_available(
    tmp_path, mosquitto, listen, protocol
):
    with running(tmp_path, DESCRIBED) as start:
        url = f"{mosquitto.url}?protocol={protocol}"
        active, standby = pair_of(start, mosquitto, url, url)
        listener = listen(mosquitto.port)
        listener.wait_for("homeassistant/device/sys/meter/config")
        before = time.monotonic()
        active.process.send_signal(signal.SIGSTOP)
        taken_over(standby, before, 1.5 * TTL + SLACK)
        listener.wait_for("sys/lease", 2, where=lambda each: name_of(standby).encode() in each.payload)
        frozen, since = len(polls(active)), len(listener.messages)

        active.process.send_signal(signal.SIGCONT)
        active.wait_for("stops polling, and stands by", f"stands by for {name_of(standby)}")
        renewals = len(listener.on("sys/lease"))
        listener.wait_for("sys/lease", renewals + 2)

        now = [each for _, each in listener.messages[since:]]
        assert {of(each) for each in now if each.topic == "sys/meter/state"} == {standby.process.pid}
        assert {json.loads(each.payload)["owner"] for each in now if each.topic == "sys/lease"} == {name_of(standby)}
        assert not [each.topic for each in now if each.payload in (b"", b"offline")]
        assert json.loads(listener.on("sys/status")[-1].payload)["state"] == "online"
        assert listener.on("sys/meter/availability")[-1].payload == b"online"
        assert len(polls(active)) == frozen
        assert active.log.count(ACTIVE) == standby.log.count(ACTIVE) == 1, "no ping-pong"
        assert "Traceback (most" not in active.log


def test_a_node_that_is_cut_off_stops_polling_and_stands_by_when_it_is_back(
    start_node, mosquitto, proxy, protocol, listen
):
    road, query = proxy(mosquitto.port), f"?protocol={protocol}"
    active, standby = pair_of(start_node, mosquitto, f"{mosquitto.url}{query}", f"{road.url}{query}")
    before = time.monotonic()
    road.stall()

    active.wait_for("stops polling, and stands by", timeout=TTL + 10)
    taken_over(standby, before, 1.5 * TTL + SLACK)
    while_active = polls(active)
    assert while_active[-1] <= before + TTL + SLACK
    assert while_active[-1] <= polls(standby)[0]
    road.resume()
    active.wait_for(f"stands by for {name_of(standby)}")

    assert active.log.count(ACTIVE) == standby.log.count(ACTIVE) == 1, "no ping-pong"
    listener = listen(mosquitto.port)
    listener.wait_for("sys/meter/state", 6, where=lambda each: of(each) == standby.process.pid)
    states = [json.loads(each.payload) for each in listener.on("sys/meter/state")]
    waited = {each["at"] for each in states if each["pid"] == active.process.pid}
    assert waited <= set(while_active), "it sends what it took while it was active, and polls no more"
    assert polls(active) == while_active


def test_only_the_owner_answers_a_command(new_pair, mosquitto, listen):
    active, _ = new_pair
    listener = listen(mosquitto.port)
    listener.wait_for("sys/meter/state", 2)

    listener.client.publish("sys/valve/set", "{}", 1)
    listener.wait_for("sys/valve/set/result")
    time.sleep(0.5)

    results = listener.on("sys/valve/set/result")
    assert [json.loads(each.payload)["status"] for each in results] == ["ok"]
    assert json.loads(listener.on("sys/valve/state")[-1].payload)["pid"] == active.process.pid


def test_the_heartbeat_names_the_node_and_its_token(new_pair, mosquitto, listen):
    active, standby = new_pair
    listener = listen(mosquitto.port)
    first = json.loads(listener.wait_for("sys/status")[-1].payload)["node"]

    active.end()
    standby.wait_for(ACTIVE)
    second = json.loads(
        listener.wait_for("sys/status", where=lambda each: first["name"].encode() not in each.payload, count=2)[
            -1
        ].payload
    )["node"]

    assert second["token"] > first["token"]
    assert second["takeovers"] == 1
    shown = subprocess.run(
        [sys.executable, "-m", "leadsman", "inspect", "--prefix", "sys", "--mqtt", mosquitto.url],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"TZ": "UTC"},
    )
    moment = datetime.fromisoformat(second["since"])
    since = f"since (UTC): {moment:%Y-%m-%d %H:%M:%S}"
    assert f"name: {second['name']}, token: {second['token']}, {since}, takeovers: 1\n" in shown.stdout


@pytest.mark.slow
def test_a_held_device_stays_held_when_the_node_is_killed(tmp_path, mosquitto, listen):
    code = f'app = App("sys", mqtt=os.environ["URL"], keep_state=True)\n{METER}'
    with running(tmp_path, code) as start:
        active, standby = pair_of(start, mosquitto, mosquitto.url, mosquitto.url)
        listener = listen(mosquitto.port)
        listener.client.publish("sys/meter/hold/set", "{}", 1)
        listener.wait_for("sys/meter/resilience", where=lambda message: b'"held": true' in message.payload)

        active.kill()
        standby.wait_for(ACTIVE)
        listener.wait_for("sys/status", where=lambda each: each.payload.count(b'"status":"held"'), count=2)
        time.sleep(1.0)

        assert not polls(standby)


def test_the_command_line_starts_a_node(tmp_path, mosquitto):
    code = HEADER.replace('os.environ["URL"]', repr(mosquitto.url)) + METER
    (tmp_path / "house.py").write_text(code)
    command = [
        sys.executable,
        "-m",
        "leadsman",
        "run",
        str(tmp_path / "house.py"),
        "--standby",
        "--set",
        "standby.ttl=3s",
    ]
    say_goodbye(mosquitto)
    node = Process(command, tmp_path / "log", XDG_STATE_HOME=str(tmp_path))

    try:
        node.wait_for(ACTIVE, "polled")
    finally:
        node.kill()


def test_the_command_line_of_an_installed_app_starts_a_node(mosquitto, program, listen):
    say_goodbye(mosquitto, "gas2mqtt")
    node = program("gas2mqtt", "--standby", mqtt__url=mosquitto.url, standby__ttl="3s")

    node.wait_for(ACTIVE)

    assert json.loads(listen(mosquitto.port).wait_for("gas2mqtt/lease")[-1].payload)["owner"] == name_of(node)
    assert node.end()[0] == 0


def test_a_node_that_stands_by_is_well_for_systemd_and_for_a_container(start_node, mosquitto, tmp_path, monkeypatch):
    say_goodbye(mosquitto)
    start_node(mosquitto.url, "one").wait_for(ACTIVE)
    manager, health = NotifySocket(tmp_path / "notify"), tmp_path / "health.json"
    monkeypatch.setenv("NOTIFY_SOCKET", str(manager.path))
    monkeypatch.setenv("WATCHDOG_USEC", "800000")
    monkeypatch.setenv("LEADSMAN_HEALTH_FILE", str(health))
    standby = start_node(mosquitto.url, "two")
    standby.wait_for("stands by for")

    manager.wait_for("STATUS=stands by for")
    manager.forget()
    manager.listen(2.0)

    fed = [at for at, line in manager.said if line == "WATCHDOG=1"]
    assert max(later - at for at, later in itertools.pairwise(fed)) < 0.8
    assert (
        subprocess.run([sys.executable, "-m", "leadsman", "health"], capture_output=True, check=False).returncode == 0
    )
    standby.end()
    assert not health.exists()
    manager.socket.close()


@pytest.mark.slow
def test_the_outbox_of_a_node_that_lost_the_broker_is_sent_when_it_is_active_again(
    start_node, mosquitto, proxy, listen
):
    road = proxy(mosquitto.port)
    active, standby = pair_of(start_node, mosquitto, mosquitto.url, road.url)
    listener = listen(mosquitto.port)
    listener.wait_for("sys/meter/state", 3)
    road.stall()
    time.sleep(TTL / 2)
    active.kill()
    standby.wait_for(ACTIVE, "polled")
    road.resume()
    listener.wait_for("sys/meter/state", 3, where=lambda each: of(each) == standby.process.pid)
    dead, before = active.process.pid, len(listener.on("sys/meter/state"))
    active.start()
    listener.wait_for("sys/meter/state", before + 3)
    assert not [each for each in listener.on("sys/meter/state")[before:] if of(each) == dead], "it stands by"

    standby.end()
    listener.wait_for("sys/meter/state", 5, where=lambda each: of(each) == active.process.pid)

    late = [each for each in listener.on("sys/meter/state")[before:] if of(each) == dead]
    assert len(late) >= 3
    assert of(listener.on("sys/meter/state")[-1]) == active.process.pid
    times = [taken_at(each) for each in late]
    assert times == sorted(times), "in their order, although later than readings that were taken after them"
    assert taken_at(listener.on("sys/meter/state")[before]) > times[-1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["standby.ttl=1s"], "standby.ttl: 1 s is too short; write 3s to 10m (from flag standby.ttl)"),
        (["standby.ttl=soon"], "standby.ttl: "),
        (["standby.enabled=maybe"], "standby.enabled: 'maybe' is neither true nor false; write one of them"),
        (["standby.tttl=3s"], "standby.tttl"),
        (["standby.enabled=true", "mqtt.url=mqtt://a,mqtt://b"], "standby: the app has 2 brokers"),
    ],
)
def test_wrong_settings_are_named_errors(tmp_path, capsys, monkeypatch, arguments, message):
    monkeypatch.delitem(sys.modules, "house", raising=False)
    (tmp_path / "house.py").write_text(f'from leadsman import *\napp = App("sys")\n{METER}')
    words = [word for each in arguments for word in ("--set", each)]

    assert main(["run", str(tmp_path / "house.py"), *words]) == 78

    assert message in capsys.readouterr().err
