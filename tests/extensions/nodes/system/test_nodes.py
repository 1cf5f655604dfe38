"""The nodes of an app, as the broker and the command line show them."""

import json
import re
import sys
import time

import pytest

from leadsman.testing.mosquitto import free_port
from leadsman.tools.cli.main import main
from leadsman_rigs.browser import chromium
from leadsman_rigs.listener import Listener
from leadsman_rigs.nats_server import NatsServer
from leadsman_rigs.processes import HEADER, Process

TTL = 3.0
CODE = """
@app.telemetry("meter", interval=0.2)
async def meter():
    return {"pid": os.getpid()}
"""


def name_of(node):
    """What a node calls itself."""
    return re.search(r"this node, (\S+), shares", node.log)[1]


@pytest.fixture
def start(tmp_path):
    started = []

    def start(url, number):
        command = [sys.executable, "-c", f"{HEADER}{CODE}\napp.run()\n"]
        options = {"URL": url, "PYTHONWARNINGS": "error", "XDG_STATE_HOME": str(tmp_path / str(number))}
        options |= {"STANDBY__ENABLED": "true", "STANDBY__TTL": f"{TTL:g}s"}
        started.append(Process(command, tmp_path / f"{number}.log", **options))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.kill()


@pytest.fixture
def pair(start, mosquitto, request):
    """A node that is active, and one that stands by."""
    url = f"{mosquitto.url}?protocol={getattr(request, 'param', '5.0')}"
    with Listener(mosquitto.port) as listener:
        listener.client.publish("sys/status", '{"state":"offline"}', 1, retain=True)
        listener.wait_for("sys/status")
        active = start(url, 1)
        active.wait_for(", is active")
        standby = start(url, 2)
        standby.wait_for("stands by for")
        for node, state in ((active, b'"active"'), (standby, b'"standby"')):
            topic = f"sys/nodes/{name_of(node)}"
            listener.wait_for(topic, where=lambda message, state=state: state in message.payload)
        listener.wait_for("sys/registry")
    return active, standby


@pytest.fixture
def typed(mosquitto, capsys):
    def typed(*words):
        code = main(["cluster", *words, "--mqtt", mosquitto.url])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return typed


def shown(typed):
    """Status, by node."""
    code, out, _ = typed("status", "sys", "--json")
    found = json.loads(out)["sys"]
    return code, {each["node"]: each for each in found["nodes"]}, found["without_node"]


def until(condition, timeout=20.0):
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def states(typed):
    return sorted(each["state"] for each in shown(typed)[1].values())


def test_a_pair_is_shown_and_its_owner_is_drained_and_takes_part_again(pair, typed):
    active, standby = (name_of(each) for each in pair)
    until(lambda: shown(typed)[1][active]["device_count"] == 1)
    code, nodes, without = shown(typed)
    assert (code, without["count"]) == (0, 0)
    assert nodes[active]["state"] == "active"
    assert nodes[standby]["owner"] == active
    code, table, _ = typed("status")
    assert code == 0
    assert table.splitlines()[0] == "sys: 2 of 2 nodes, 1 device"
    assert re.search(rf"^{active} +active .* 1 device, token \d+ .* 1 takeover", table, re.MULTILINE)

    names = ", ".join(sorted((active, standby)))
    assert typed("drain", "nobody") == (1, "", f"leadsman: 'sys' has no node 'nobody'; write one of {names}\n")
    again = f"leadsman cluster undrain {active} ends that, and so does a restart"
    assert typed("drain", active) == (0, f"{active}: hands over its devices, and accepts none; {again}\n", "")
    until(lambda: states(typed) == ["active", "draining"])
    assert shown(typed)[1][standby]["state"] == "active"
    code, out, _ = typed("drain", standby, "--prefix", "sys")
    assert (code, out.splitlines()[-1]) == (3, "no other node can poll 1 device")
    until(lambda: states(typed) == ["draining", "draining"])
    code, table, _ = typed("status")
    assert code == 3
    assert table.splitlines()[-1] == "no node owns 1 device: meter"

    assert typed("undrain", active)[:2] == (0, f"{active}: takes part again\n")
    until(lambda: shown(typed)[:1] == (0,))
    assert shown(typed)[1][active]["handovers"]["takeovers"] == 2


@pytest.mark.parametrize("pair", ["5.0", pytest.param("3.1.1", marks=pytest.mark.slow)], indirect=True)
def test_a_node_that_is_killed_is_shown_no_more_and_its_devices_have_no_node_until_the_other_has_them(pair, typed):
    active, standby = pair
    gone = name_of(active)

    active.kill()
    until(lambda: gone not in shown(typed)[1], timeout=2.0)

    assert shown(typed)[0] == 3
    until(lambda: shown(typed)[0] == 0)
    assert list(shown(typed)[1]) == [name_of(standby)]


@pytest.mark.parametrize(
    "words", [["drain"], ["status", "a", "--prefix", "b"], ["drain", "a", "--json"], ["status", "a//b"]]
)
def test_a_wrong_command_line_is_a_named_error(words, typed):
    code, _, err = typed(*words)
    assert (code, err.count("leadsman: ")) == (2, 1)


def test_where_no_app_has_nodes_the_error_says_when_it_has_some(typed):
    code, _, err = typed("status", "garden")
    assert code == 1
    assert "no node of 'garden' has a document at" in err
    assert "while it runs with --standby or [cluster]" in err


def test_a_node_that_says_that_it_is_online_and_shows_no_document_may_be_hidden_by_the_access_list(mosquitto, typed):
    with Listener(mosquitto.port) as listener:
        listener.client.publish("sys/nodes/pi-1/status", '{"state":"online"}', 1, retain=True)
        listener.wait_for("sys/nodes/pi-1/status")

        code, out, _ = typed("status", "sys")

    assert "\npi-1: online, but no document at sys/nodes/+ can be read; may this user read there?\n" in f"{out}\n"
    assert code == 0


def test_a_node_that_does_not_answer_is_a_named_error(mosquitto, typed):
    document = {"node": "pi-1", "kind": "standby", "state": "active", "ttl_s": 3600}
    with Listener(mosquitto.port) as listener:
        listener.client.publish("sys/nodes/pi-1", json.dumps(document), 1, retain=True)
        listener.wait_for("sys/nodes/pi-1")

        code, _, err = typed("drain", "pi-1", "--timeout", "200ms")

    assert code == 1
    assert "no answer at 'sys/nodes/pi-1/drain'" in err


@pytest.fixture(scope="module")
def nats():
    with NatsServer() as server:
        yield server


CLUSTER = """
@app.telemetry(["a", "b", "c", "d", "e"], interval=0.2)
async def read():
    return {"node": os.environ["CLUSTER__NODE"]}

@app.telemetry("tag", interval=0.2, needs="ble")
async def tag():
    return {"node": os.environ["CLUSTER__NODE"]}
"""


@pytest.fixture
def cluster(tmp_path, mosquitto, nats):
    """Two nodes, one of which has what one of the devices needs."""
    started = {}
    for node, labels in (("attic", ""), ("cellar", "ble")):
        command = [sys.executable, "-c", f"{HEADER}{CLUSTER}\napp.run()\n"]
        options = {"URL": mosquitto.url, "PYTHONWARNINGS": "error", "XDG_STATE_HOME": str(tmp_path / node)}
        options |= {"CLUSTER__ENGINE": nats.url, "CLUSTER__NODE": node, "CLUSTER__TTL": f"{TTL:g}s"}
        started[node] = Process(command, tmp_path / f"{node}.log", **options, CLUSTER__LABELS=labels)
    yield started
    for each in started.values():
        if each.process.poll() is None:
            each.kill()


def owned(typed):
    """The number of devices of each node that is here."""
    return {name: each["device_count"] for name, each in shown(typed)[1].items() if each["state"] != "offline"}


def even(typed):
    """Whether both nodes are here, each has a part, and their documents tell of all devices: each of them is a moment
    younger or older than the other."""
    code, nodes, _ = shown(typed) if typed("status", "sys")[0] != 1 else (1, {}, {})
    parts = [each["device_count"] for each in nodes.values()]
    return code == 0 and len(parts) == 2 and all(parts) and sum(parts) == 6


def test_the_nodes_of_a_cluster_are_shown_and_one_is_drained(cluster, typed):
    until(lambda: even(typed))
    _, nodes, without = shown(typed)
    assert sum(each["device_count"] for each in nodes.values()) == 6
    assert "tag" in nodes["cellar"]["devices"]
    assert nodes["cellar"]["labels"] == ["ble"]
    shards = [*nodes["attic"]["shards"].values(), *nodes["cellar"]["shards"].values()]
    assert len({shard["token"] for shard in shards}) == len(shards) == 6
    assert nodes["attic"]["engine"] == {"reachable": True, "unreachable_since": None}
    assert without == {"devices": [], "count": 0, "labels": []}

    code, out, _ = typed("drain", "cellar")
    assert (code, out.splitlines()[-1]) == (3, "no other node can poll 1 device that needs ble")
    until(lambda: owned(typed) == {"attic": 5, "cellar": 0} and shown(typed)[2]["devices"] == ["tag"])
    code, table, _ = typed("status", "sys")
    assert code == 3
    assert re.search(r"^cellar +draining .* 0 devices in 0 shards +ble +", table, re.MULTILINE)
    assert table.splitlines()[-2:] == ["no node can poll 1 device that needs ble", "no node owns 1 device: tag"]

    typed("undrain", "cellar")
    until(lambda: even(typed))
    handovers = shown(typed)[1]["cellar"]["handovers"]
    assert handovers["gained"] > handovers["released"] > 0
    cluster["cellar"].kill()
    until(lambda: shown(typed)[1]["cellar"]["state"] == "lost" and owned(typed)["attic"] == 5, timeout=2 * TTL)
    assert shown(typed)[2] == {"devices": ["tag"], "count": 1, "labels": [{"needs": ["ble"], "devices": 1}]}
    code, _, err = typed("forget", "attic")
    assert (code, err) == (1, "leadsman: attic runs: its state is active; stop it first\n")
    assert cluster["attic"].end()[0] == 0
    until(lambda: shown(typed)[1]["attic"]["state"] == "offline")
    code, out, _ = typed("forget", "attic")
    assert (code, re.fullmatch(r"attic: \d retained topics removed\n", out) is not None) == (0, True)
    assert list(shown(typed)[1]) == ["cellar"]


def test_a_person_asks_about_a_device_and_the_node_answers_that_has_it(cluster, typed, mosquitto, capsys):
    until(lambda: even(typed))

    def asked(*words):
        code = main([*words, "--mqtt", mosquitto.url])
        return code, capsys.readouterr().out

    for words in (("why", "tag"), ("why", "tag", "--prefix", "sys")):
        code, out = asked(*words)
        assert (code, out.splitlines()[0]) == (0, "tag: all is well: its readings arrive")
    assert asked("hold", "tag") == (0, "tag: held\n")
    code, out = asked("held", "--prefix", "sys")
    assert (code, re.search(r"^tag .* held by a person$", out, re.MULTILINE) is not None) == (3, True)
    assert all("tag: a person holds it" in asked(*words)[1] for words in (("why",), ("why", "tag")))
    assert asked("release", "tag")[0] == 0
    code, out = asked("trace", "tag", "--prefix", "sys")
    assert (code, "released, by" in out) == (0, True)


@pytest.mark.slow
def test_the_page_says_how_many_nodes_take_part(start, mosquitto, monkeypatch, listen):
    port = free_port()
    monkeypatch.setenv("HTTP__BIND", f"127.0.0.1:{port}")
    with Listener(mosquitto.port) as listener:
        listener.client.publish("sys/status", '{"state":"offline"}', 1, retain=True)
        listener.wait_for("sys/status")
    node = start(mosquitto.url, 1)
    node.wait_for(", is active")
    with chromium() as browser:
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{port}/")
        tile = page.locator("#facts div").filter(has_text="Nodes")
        tile.get_by_text("1 of 1 take part", exact=True).wait_for()
        assert tile.get_attribute("data-state") == "warn"
        other = start(mosquitto.url, 2)
        tile.get_by_text("2 of 2 take part", exact=True).wait_for()
        assert tile.get_attribute("data-state") == "good"
        listen(mosquitto.port).client.publish(f"sys/nodes/{name_of(other)}/drain", '{"drain": true}', 1)
        tile.get_by_text("1 of 2 take part", exact=True).wait_for()
        assert f"{name_of(other)} draining" in tile.inner_text()
