"""Apps in one loop that hear the same sensor: nodes of a cluster in virtual time."""

import itertools
import json

import pytest
from tests.integration.test_cluster import TTL, Broker, Clusters, in_order

from leadsman import Context, Finds
from leadsman.mqtt.topics import topic_matches
from leadsman_rigs.memory_engine import Partition


class Air(Broker):
    """Passes on what the nodes hear, and has what each of them hears: dBm by node."""

    def __init__(self):
        super().__init__()
        self.levels = {}

    def receive(self, connection, packet_id, message):
        super().receive(connection, packet_id, message)
        if connection.open and topic_matches("house/nodes/+/hears", message.topic):
            self.send(message.topic, message.payload)

    def numbers(self, since=0.0):
        """The readings of the sensor: their numbers, and the nodes that published them."""
        states = [each for each in self.on("state", since) if each.topic == "house/attic/state"]
        return [(json.loads(each.payload)["number"], each.client.removeprefix("house-")) for each in states]

    def publishers(self, since=0.0):
        return [node for node, _ in itertools.groupby(node for _, node in self.numbers(since))]


@pytest.fixture
def cluster(loop, tmp_path, monkeypatch):
    cluster = Clusters(loop, tmp_path, monkeypatch)
    cluster.broker = Air()
    yield cluster
    for name in [*cluster.nodes]:
        cluster.stop(name)


def start(cluster, node, level, labels=("ble",), discovery=None, **finds):
    cluster.broker.levels[node] = level

    def register(app):
        async def gateway(context: Context):
            while True:
                await context.sleep(1)
                level = cluster.broker.levels[node]
                if level is not None:
                    device = context.device("attic", signal=level)
                    device.publish({"number": round(cluster.now), "here": device.here})
                yield

        app.add_source("gateway", gateway, needs="ble", finds=Finds(everywhere=True, **finds), silence=None)

    return cluster.start(node, register, labels=labels, app={} if discovery is None else {"discovery": discovery})


def test_a_better_gateway_takes_a_sensor_over_once_and_each_reading_is_published_once(cluster):
    start(cluster, "far", -80)
    cluster.run(5)
    start(cluster, "near", -60)
    cluster.run(60)

    assert cluster.broker.publishers() == ["far", "near"]
    numbers = [number for number, _ in cluster.broker.numbers()]
    assert len(numbers) == len(set(numbers)), "no advertisement is published twice"
    assert max(two - one for one, two in itertools.pairwise(numbers)) <= 2, "and one is missing at most"
    in_order(cluster.broker)
    retained = cluster.broker.retained
    assert retained["house/attic/availability"].payload == b"online"
    documents = [json.loads(retained[f"house/nodes/{node}/status"].payload) for node in ("far", "near")]
    assert [sorted(each["devices"]) for each in documents] == [["gateway@far"], ["attic", "gateway@near"]]
    assert {"house/gateway@far/availability", "house/gateway@near/availability"} <= set(retained)


def test_the_first_reading_of_a_sensor_is_published(cluster):
    start(cluster, "far", -80)
    cluster.run(3)
    first, _ = cluster.broker.numbers()[0]
    assert first <= 2


def test_a_gateway_that_is_cut_off_from_the_engine_stops_in_time_and_another_one_goes_on(cluster):
    cluster.faults.append(Partition("far", 12.0, 40.0))
    start(cluster, "far", -60)
    cluster.run(5)
    start(cluster, "near", -60)
    cluster.run(55)

    assert cluster.broker.publishers() == ["far", "near"]
    numbers = [number for number, _ in cluster.broker.numbers()]
    assert max(two - one for one, two in itertools.pairwise(numbers)) <= 1.5 * TTL
    in_order(cluster.broker)


def test_a_node_without_the_label_of_the_handler_hears_nothing(cluster):
    start(cluster, "near", -60)
    start(cluster, "attic", -40, labels=())
    cluster.run(40)
    assert cluster.broker.publishers() == ["near"]
    assert "house/gateway@attic/availability" not in cluster.broker.retained


def test_a_sensor_that_nobody_hears_any_more_is_forgotten_by_all(cluster):
    start(cluster, "far", -80, forget_after="2m")
    start(cluster, "near", -60, forget_after="2m")
    cluster.run(30)
    assert "house/attic/state" in cluster.broker.retained
    cluster.broker.levels.update(far=None, near=None)
    cluster.run(300)
    assert not [topic for topic in cluster.broker.retained if topic.startswith("house/attic/")]

    cluster.broker.levels["far"] = -80
    since = cluster.now
    cluster.run(10)
    assert cluster.broker.publishers(since) == ["far"]


def test_a_sensor_that_one_gateway_hears_no_more_is_not_forgotten(cluster):
    start(cluster, "far", -80, forget_after="2m")
    start(cluster, "near", -60, forget_after="2m")
    cluster.run(30)
    cluster.broker.levels["near"] = None
    cluster.run(400)
    assert cluster.broker.publishers()[-1] == "far"
    assert "house/attic/state" in cluster.broker.retained
    numbers = [number for number, _ in cluster.broker.numbers()]
    assert max(two - one for one, two in itertools.pairwise(numbers)) <= 2 * TTL


def test_a_gateway_that_drains_gives_its_sensors_away_and_its_document_says_what_each_has(cluster):
    start(cluster, "far", -80)
    start(cluster, "near", -60)
    cluster.run(20)
    assert cluster.broker.publishers()[-1] == "near"

    cluster.broker.send("house/nodes/near/drain", b'{"id": "1", "drain": true}')
    cluster.run(20)
    assert cluster.broker.publishers()[-1] == "far"
    documents = [json.loads(cluster.broker.retained[f"house/nodes/{node}"].payload) for node in ("far", "near")]
    assert [each["state"] for each in documents] == ["active", "draining"]
    assert ["attic" in each["devices"] for each in documents] == [True, False]
    assert not any(key.startswith("heard") for each in documents for key in each["shards"])


def test_a_sensor_that_another_gateway_hears_as_it_is_forgotten_keeps_its_topics(cluster, caplog):
    caplog.set_level("INFO", "leadsman")
    start(cluster, "far", -80, forget_after="2m", discovery="homeassistant")
    start(cluster, "near", None, forget_after="2m", discovery="homeassistant")
    cluster.run(30)
    cluster.broker.levels["far"] = None
    while "attic: forgotten" not in caplog.text:
        cluster.run(0.1)
    cluster.broker.levels["near"] = -60
    cluster.run(30)
    assert cluster.broker.publishers()[-1] == "near"
    retained = cluster.broker.retained
    assert retained["house/attic/availability"].payload == b"online"
    assert "homeassistant/device/house/attic/config" in retained
