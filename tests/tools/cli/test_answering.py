"""Which process of an app the commands ask."""

import pytest


def node(name, *devices, kind="cluster", status="online", prefix="house"):
    members = ["attic", "cellar", "hall"]
    document = {"node": name, "kind": kind, "state": "active", "devices": devices, "members": members}
    return {f"{prefix}/nodes/{name}": document, f"{prefix}/nodes/{name}/status": {"state": status}}


CLUSTER = node("attic", "hall", "door") | node("cellar", "boiler")
DOCUMENT = {"app": {}, "devices": {}, "jobs": {}}


@pytest.fixture
def asked(stage):
    """What a command asks where a broker retains this."""

    def asked(kept, command, *devices):
        stage.keep(kept)
        options = [word for each in devices for word in (each,)]
        for node in ("", "nodes/attic/", "nodes/cellar/", "nodes/hall/"):
            stage.answers(f"house/{node}introspect", DOCUMENT)
        stage.printed = stage.run(command, "--prefix", "house", "--mqtt", "mqtt://broker.lan", *options)
        return [topic for topic, _ in stage.requests]

    return asked


@pytest.mark.parametrize(
    ("found", "devices", "topics"),
    [
        (CLUSTER, ["boiler"], ["house/nodes/cellar/introspect"]),
        (CLUSTER, ["hall", "door"], ["house/nodes/attic/introspect"]),
        (CLUSTER | node("hall", "boiler", status="offline"), ["boiler"], ["house/nodes/cellar/introspect"]),
        (node("pi-1", "boiler", kind="standby") | node("pi-2", kind="standby"), ["boiler"], ["house/introspect"]),
        (node("attic", "boiler", status="offline"), ["boiler"], ["house/introspect"]),
        (node("attic", "boiler", prefix="garden"), ["boiler"], ["house/introspect"]),
        ({}, [], ["house/introspect"]),
    ],
)
def test_the_node_that_has_the_devices_is_asked_or_the_app_where_there_is_no_cluster(asked, found, devices, topics):
    assert asked(found, "inspect", *devices) == topics


def test_what_can_be_put_together_is_asked_of_all_nodes(asked, stage):
    assert asked(CLUSTER, "held") == ["house/nodes/attic/introspect", "house/nodes/cellar/introspect"]
    assert stage.printed.out == "No device is held.\n"


@pytest.mark.parametrize("devices", [["boilr"], ["hall", "boiler"]])
def test_devices_that_no_node_has_are_a_named_error(asked, stage, devices):
    assert asked(CLUSTER, "inspect", *devices) == []
    assert stage.printed.code == 1
    assert "leadsman cluster status house shows which node has which device" in stage.printed.err


def test_what_one_process_answers_needs_a_device_in_a_cluster(asked, stage):
    assert asked(CLUSTER, "inspect") == []
    assert stage.printed.code == 2
    told = "write --prefix house/nodes/attic or --prefix house/nodes/cellar, or name a device"
    assert told in stage.printed.err


def test_where_the_nodes_may_not_be_read_the_app_is_asked(asked, stage):
    stage.broker().refuse_subscriptions = {"house/nodes/+"}

    assert asked(CLUSTER, "inspect") == ["house/introspect"]
