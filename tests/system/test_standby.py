"""Two processes of one app at a real broker: the second one takes over."""

import json
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from leadsman_rigs.listener import Listener
from leadsman_rigs.processes import HEADER, Process

TTL = 3.0
SLACK = 2.0
"""Seconds that a busy machine may take besides, as for the start of the parts of the app."""
METER = """
@app.telemetry("meter", interval=0.2)
async def meter():
    print("polled", time.monotonic(), flush=True)
    return {"pid": os.getpid()}

@app.command("valve")
async def valve():
    return {"pid": os.getpid()}
"""
ACTIVE = ", is active"
POLLED = re.compile(r"^polled (\S+)$", re.MULTILINE)


@pytest.fixture(params=["5.0", "3.1.1"])
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

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.send_signal(signal.SIGCONT)
            each.kill()


@pytest.fixture
def start_node(tmp_path):
    with running(tmp_path) as start:
        yield start


def pair_of(start_node, broker, url, road):
    """One node that is active, and one that stands by; the first uses another road to the broker."""
    with Listener(broker.port) as listener:
        listener.client.publish("sys/status", '{"state":"offline"}', 1, retain=True)  # the app ended in order, once
        listener.wait_for("sys/status")
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


def polls(node):
    return [float(at) for at in POLLED.findall(node.log)]


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


def test_a_node_that_is_killed_is_replaced_within_one_and_a_half_ttl(pair):
    active, standby = pair

    before = time.monotonic()
    active.kill()

    taken_over(standby, before, 1.5 * TTL + SLACK)


def test_a_frozen_node_neither_publishes_nor_polls_when_it_goes_on(pair, mosquitto, listen):
    active, standby = pair
    before = time.monotonic()
    active.process.send_signal(signal.SIGSTOP)
    taken_over(standby, before, 1.5 * TTL + SLACK)
    listener, frozen = listen(mosquitto.port), len(polls(active))
    listener.wait_for("sys/meter/state", 3)

    active.process.send_signal(signal.SIGCONT)
    active.wait_for("stops polling, and stands by")
    listener.wait_for("sys/meter/state", len(listener.on("sys/meter/state")) + 15)

    pids = {json.loads(each.payload)["pid"] for each in listener.on("sys/meter/state") if not each.retain}
    assert pids == {standby.process.pid}
    assert len(polls(active)) == frozen
    assert active.log.count(ACTIVE) == standby.log.count(ACTIVE) == 1, "no ping-pong"
    assert "Traceback" not in active.log


def test_a_node_that_is_cut_off_stops_polling_and_stands_by_when_it_is_back(
    start_node, mosquitto, proxy, protocol, listen
):
    road, query = proxy(mosquitto.port), f"?protocol={protocol}"
    active, standby = pair_of(start_node, mosquitto, f"{mosquitto.url}{query}", f"{road.url}{query}")
    before = time.monotonic()
    road.stall()

    active.wait_for("stops polling, and stands by", timeout=TTL + 10)
    taken_over(standby, before, 1.5 * TTL + SLACK)
    assert polls(active)[-1] <= before + TTL + SLACK
    assert polls(active)[-1] <= polls(standby)[0]
    road.resume()
    time.sleep(1.5 * TTL)

    assert active.log.count(ACTIVE) == standby.log.count(ACTIVE) == 1, "no ping-pong"
    listener = listen(mosquitto.port)
    states = listener.wait_for("sys/meter/state", 5)
    assert {json.loads(each.payload)["pid"] for each in states} == {standby.process.pid}


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
    )
    assert f"node {second['name']}: active since {second['since']}, token {second['token']}, 1 takeover" in shown.stdout


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
    node = Process(command, tmp_path / "log", XDG_STATE_HOME=str(tmp_path))

    try:
        node.wait_for(ACTIVE, "polled")
    finally:
        node.kill()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["standby.ttl=1s"], "standby.ttl: 1 s is too short; write 3s to 10m (from flag standby.ttl)"),
        (["standby.ttl=soon"], "standby.ttl: "),
        (["standby.enabled=maybe"], "standby.enabled: 'maybe' is neither; write true or false"),
        (["standby.tttl=3s"], "standby.tttl"),
        (["standby.enabled=true", "mqtt.url=mqtt://a,mqtt://b"], "standby: the app has 2 brokers"),
    ],
)
def test_wrong_settings_are_named_errors(tmp_path, arguments, message):
    (tmp_path / "house.py").write_text(f'from leadsman import *\napp = App("sys")\n{METER}')
    words = [word for each in arguments for word in ("--set", each)]

    result = subprocess.run(
        [sys.executable, "-m", "leadsman", "run", str(tmp_path / "house.py"), *words],
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.returncode == 78
    assert message in result.stderr
    assert "Traceback" not in result.stderr
