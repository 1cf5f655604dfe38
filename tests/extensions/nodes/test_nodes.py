"""What the nodes of a cluster say of themselves, and a drain, in virtual time."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from tests.extensions.nodes.cluster.test_cluster import METERS, TTL, Clusters, read

from leadsman.core.introspection.declared import documents_of
from leadsman.extensions.nodes.document import NodeDocument
from leadsman.extensions.nodes.report import NodeReport
from leadsman_rigs.examples import examples
from leadsman_rigs.hostile import LIES, payloads
from leadsman_rigs.memory_engine import EngineAway, Partition


@pytest.fixture
def cluster(loop, tmp_path, monkeypatch):
    cluster = Clusters(loop, tmp_path, monkeypatch)
    yield cluster
    for name in [*cluster.nodes]:
        cluster.stop(name)


def document(cluster, node):
    """The document that the broker retains; None if there is none."""
    message = cluster.broker.retained.get(f"house/nodes/{node}")
    return None if message is None else json.loads(message.payload)


def ask(cluster, topic, **request):
    """Ask a node, and return its answer."""
    cluster.broker.send(topic, request)
    cluster.run(0.2)
    return json.loads(cluster.broker.messages(f"{topic}/response")[-1].payload)


def with_tag(app):
    app.add_telemetry(METERS, read, interval=1)
    app.add_telemetry("tag", read, interval=1, needs="ble")
    app.add_periodic("tidy", tidy, interval=60)


async def tidy():
    pass


def test_every_node_names_what_it_owns_under_which_tokens_and_together_they_own_everything(cluster):
    cluster.start("a", with_tag, labels=["ble"])
    cluster.start("b", with_tag)
    cluster.run(2 * TTL)

    documents = [document(cluster, node) for node in "ab"]

    for each in documents:
        assert TypeAdapter(NodeDocument).validate_python(each) == each
        assert (each["state"], each["registered"], each["members"]) == ("active", 13, ["a", "b"])
        assert (each["unowned"], each["without_node"]) == ([], [])
    assert sorted(name for each in documents for name in each["devices"]) == sorted([*METERS, "tag"])
    assert documents[0]["labels"] == ["ble"]
    tokens = {shard["token"] for each in documents for shard in each["shards"].values()}
    assert {each.fence for each in cluster.broker.on("state", since=cluster.now - 1.5)} <= tokens


def test_a_label_that_nobody_has_and_its_devices_are_in_every_document(cluster):
    cluster.start("a", with_tag)
    cluster.start("b", with_tag)
    cluster.run(2 * TTL)

    for node in "ab":
        assert document(cluster, node)["unowned"] == ["tag"]
        assert document(cluster, node)["without_node"] == [{"needs": ["ble"], "devices": 1}]


def test_a_node_that_loses_the_engine_says_since_when_and_that_it_is_fenced(cluster):
    cluster.faults.append(Partition("b", 20.0, 40.0))
    cluster.start("a")
    cluster.start("b")
    cluster.run(20 + 0.75 * TTL)
    assert document(cluster, "b")["engine"]["reachable"] is False
    cluster.run(TTL)

    cut_off = document(cluster, "b")

    assert (cut_off["state"], cut_off["device_count"]) == ("fenced", 0)
    assert cut_off["engine"]["unreachable_since"] < cut_off["since"] < cut_off["at"]
    assert document(cluster, "a")["members"] == ["a"]
    assert document(cluster, "a")["device_count"] == len(METERS)
    cluster.run(30)
    assert document(cluster, "b")["state"] == "active"
    assert document(cluster, "b")["engine"] == {"reachable": True, "unreachable_since": None}


def test_an_engine_that_is_away_from_the_start_leaves_a_node_taking_over(cluster):
    cluster.faults.append(EngineAway(0.0, 30.0))
    cluster.start("a")
    cluster.run(2 * TTL)

    assert document(cluster, "a")["state"] in ("taking_over", "fenced")
    assert document(cluster, "a")["engine"]["reachable"] is False
    cluster.run(30)
    assert document(cluster, "a")["device_count"] == len(METERS)


def test_heartbeat_and_introspection_of_a_node_know_all_nodes(cluster):
    cluster.start("a")
    cluster.start("b", labels=["ble"])
    cluster.run(2 * TTL + 30)

    answer = ask(cluster, "house/nodes/a/introspect", sections=["app"])

    TypeAdapter(documents_of().introspection).validate_python(answer["data"])
    nodes = {each["node"]: each for each in answer["data"]["app"]["nodes"]}
    assert list(nodes) == ["a", "b"]
    assert nodes["b"]["labels"] == ["ble"]
    assert sum(each["devices"] for each in nodes.values()) == len(METERS)
    status = json.loads(cluster.broker.messages("house/nodes/a/status")[-1].payload)
    assert status["nodes"] == {"active": 2}


def test_the_heartbeat_counts_the_nodes_without_a_document_of_each(cluster, monkeypatch):
    def document_of_all(self):
        raise AssertionError("a heartbeat needs their states only")

    monkeypatch.setattr(NodeReport, "briefs", document_of_all)
    cluster.start("a")
    cluster.start("b")
    cluster.run(2 * TTL + 30)
    ask(cluster, "house/nodes/b/drain", drain=True)
    cluster.run(2 * TTL + 30)

    for node in "ab":
        status = json.loads(cluster.broker.messages(f"house/nodes/{node}/status")[-1].payload)
        assert status["nodes"] == {"active": 1, "draining": 1}


def test_a_node_that_drains_gives_everything_away_at_once_and_nothing_is_read_twice_or_not_at_all(cluster, caplog):
    caplog.set_level("INFO", "leadsman")
    cluster.start("a")
    cluster.start("b")
    cluster.run(2 * TTL)
    at = cluster.now

    answer = ask(cluster, "house/nodes/a/drain", drain=True, by="anna@desk")
    cluster.run(3 * TTL)

    assert answer["data"] == {"node": "a", "draining": True, "state": "draining", "without_node": []}
    assert cluster.broker.readers(at + 1.5) == {name: {"b"} for name in METERS}
    assert document(cluster, "a")["device_count"] == 0
    assert document(cluster, "b")["device_count"] == len(METERS)
    assert "this node, a, hands over its devices, and accepts none until undrain or a restart" in caplog.text

    answer = ask(cluster, "house/nodes/b/drain", drain=True)
    cluster.run(5 * TTL)
    assert answer["data"]["without_node"] == [{"needs": [], "devices": len(METERS)}]
    assert document(cluster, "a")["unowned"] == document(cluster, "b")["unowned"] == sorted(METERS)
    at = cluster.now
    cluster.run(2 * TTL)
    assert cluster.broker.readers(at) == {}

    ask(cluster, "house/nodes/a/drain", drain=False)
    cluster.run(2)
    assert document(cluster, "a")["device_count"] == len(METERS)


def test_a_node_that_ends_takes_its_document_away(cluster):
    cluster.start("a")
    cluster.run(2 * TTL)
    cluster.stop("a")
    assert document(cluster, "a") is None
    assert json.loads(cluster.broker.retained["house/nodes/a/status"].payload)["state"] == "offline"


def test_a_request_to_drain_names_where_its_answer_goes_and_gets_its_transaction_back(cluster):
    cluster.start("a")
    cluster.run(2 * TTL)
    request = json.dumps({"drain": False, "transaction": "t"}).encode()
    cluster.broker.send("house/nodes/a/drain", request, response_topic="house/tool/answers")
    cluster.run(0.2)

    (answer,) = cluster.broker.messages("house/tool/answers")
    assert (answer.json["status"], answer.json["transaction"], answer.json["data"]["draining"]) == ("ok", "t", False)


@pytest.mark.parametrize("payload", [b"", b"on", b"true", b"[]", b'{"drain": 1}', b'{"drain": "true"}', b'{"by": "x"}'])
def test_a_request_that_does_not_say_whether_to_drain_is_refused_and_says_what_to_send(cluster, payload):
    cluster.start("a")
    cluster.run(2 * TTL)
    cluster.broker.send("house/nodes/a/drain", payload)
    cluster.run(0.2)

    (answer,) = cluster.broker.messages("house/nodes/a/drain/response")
    assert answer.json["status"] == "error"
    assert 'send {"drain": true}' in answer.json["error"]
    assert document(cluster, "a")["state"] == "active"


def test_a_retained_request_to_drain_is_ignored_since_it_would_come_with_each_connection(cluster, caplog):
    cluster.start("a")
    cluster.run(2 * TTL)
    cluster.broker.send("house/nodes/a/drain", {"drain": True}, retain=True)
    cluster.run(0.2)

    assert cluster.broker.messages("house/nodes/a/drain/response") == []
    assert document(cluster, "a")["state"] == "active"
    assert "a retained request is ignored" in caplog.text


@pytest.mark.parametrize(("by", "named"), [("x" * 900, "x" * 100), (5, "somebody")])
def test_who_asks_a_node_to_drain_is_shortened_and_may_be_missing(cluster, caplog, by, named):
    caplog.set_level("INFO", "leadsman")
    cluster.start("a")
    cluster.run(2 * TTL)
    ask(cluster, "house/nodes/a/drain", drain=True, by=by)

    (line,) = [text for text in caplog.messages if "hands over its devices" in text]
    assert line.endswith(f"asked by {named}")


RESPONSE_TOPICS = [each for each in map(str, LIES) if each == each.encode(errors="ignore").decode()]
"""Those that are UTF-8: a client refuses a message whose texts are not (MQTT 5 §1.5.4)."""


@settings(max_examples=examples(40), suppress_health_check=list(HealthCheck))
@given(payloads({"drain": True, "by": "anna", "transaction": 7}), st.none() | st.sampled_from(RESPONSE_TOPICS))
def test_a_request_to_drain_is_done_or_refused_in_an_answer_whatever_it_is(cluster, payload, response_topic):
    if "a" not in cluster.nodes:
        cluster.start("a")
        cluster.run(2 * TTL)
    before = len(cluster.broker.log)
    cluster.broker.send("house/nodes/a/drain", payload, response_topic=response_topic)
    cluster.run(0.2)

    sent = cluster.broker.log[before:]
    answers = [each.json for each in sent if each.topic in ("house/nodes/a/drain/response", response_topic)]
    assert len(answers) == 1
    assert all(each.topic.startswith("house/") for each in sent)
    assert (answers[0]["status"] == "ok") is (type(answers[0]["data"]) is dict)
    assert cluster.broker.messages("house/nodes/a/error") == []
