"""Which process of an app the commands ask."""

import json

import pytest

from leadsman.cli import answering
from leadsman.cli.target import UsageError
from leadsman.errors import BrokerError, LeadsmanError
from leadsman.mqtt.connection import Received

BROKERS = "mqtt://broker.lan"


def node(name, *devices, kind="cluster", status="online", prefix="house"):
    members = ["attic", "cellar", "hall"]
    document = {"node": name, "kind": kind, "state": "active", "devices": devices, "members": members}
    found = {f"{prefix}/nodes/{name}": document, f"{prefix}/nodes/{name}/status": {"state": status}}
    return {topic: Received(topic, json.dumps(payload).encode(), True) for topic, payload in found.items()}


CLUSTER = node("attic", "hall", "door") | node("cellar", "boiler")


@pytest.fixture
def kept(monkeypatch):
    def kept(found):
        monkeypatch.setattr(answering, "retained", lambda brokers, filters: found)

    return kept


@pytest.mark.parametrize(
    ("found", "devices", "asked"),
    [
        (CLUSTER, ["boiler"], ["house/nodes/cellar/introspect"]),
        (CLUSTER, ["hall", "door"], ["house/nodes/attic/introspect"]),
        (CLUSTER, [], ["house/nodes/attic/introspect", "house/nodes/cellar/introspect"]),
        (CLUSTER | node("hall", "boiler", status="offline"), ["boiler"], ["house/nodes/cellar/introspect"]),
        (node("pi-1", "boiler", kind="standby") | node("pi-2", kind="standby"), ["boiler"], ["house/introspect"]),
        (node("attic", "boiler", status="offline"), ["boiler"], ["house/introspect"]),
        (node("attic", "boiler", prefix="garden"), ["boiler"], ["house/introspect"]),
        ({}, [], ["house/introspect"]),
    ],
)
def test_the_node_that_has_the_devices_is_asked_or_all_or_the_app_where_there_is_no_cluster(
    kept, found, devices, asked
):
    kept(found)
    assert [each.introspect for each in answering.processes(BROKERS, "house", devices)] == asked


@pytest.mark.parametrize("devices", [["boilr"], ["hall", "boiler"]])
def test_devices_that_no_node_has_are_a_named_error(kept, devices):
    kept(CLUSTER)
    with pytest.raises(LeadsmanError, match="leadsman cluster status house says who has what"):
        answering.process(BROKERS, "house", devices)


def test_what_one_process_answers_needs_a_device_in_a_cluster(kept):
    kept(CLUSTER)
    with pytest.raises(UsageError, match="write --prefix house/nodes/attic or --prefix house/nodes/cellar, or name"):
        answering.process(BROKERS, "house")
    assert answering.process(BROKERS, "house", ["boiler"]).status == "house/nodes/cellar/status"


def test_where_the_nodes_may_not_be_read_the_app_is_asked(monkeypatch):
    def refuse(brokers, filters):
        raise BrokerError("refused")

    monkeypatch.setattr(answering, "retained", refuse)
    assert answering.process(BROKERS, "house").introspect == "house/introspect"
