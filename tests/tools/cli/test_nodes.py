"""What is made of the documents of nodes that a broker retains."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman import Received
from leadsman.loop.clock import rfc3339
from leadsman.mqtt.topics import topic_matches
from leadsman.tools.cli.nodes import apps, filters_of

NOW = 1_795_338_000.0


def document(node, state="active", kind="standby", devices=(), **more):
    found = {"node": node, "kind": kind, "state": state, "since": rfc3339(NOW - 60), "at": rfc3339(NOW), "ttl_s": 15}
    own = {"token": 7} if kind == "standby" and state == "active" else {}
    return found | {"devices": list(devices), "device_count": len(devices)} | own | more


def of(node, devices=(), state="active", members=("n0", "n1", "n2", "n3"), **more):
    more.setdefault("engine", {"reachable": True})
    return document(node, state, "cluster", devices, members=members, **more)


def seen(*documents, prefix="house", devices=(), others=()):
    found = {f"{prefix}/nodes/{each['node']}": each for each in documents}
    found[f"{prefix}/registry"] = {"app": "house", "devices": {name: {} for name in devices}}
    found |= dict(others)
    return [Received(topic, json.dumps(payload).encode(), True) for topic, payload in found.items()]


def app(*documents, **more):
    (found,) = apps(seen(*documents, **more), NOW)
    return found


def test_the_owner_of_a_pair_owns_every_device():
    found = app(document("pi-1"), document("pi-2", "standby"), devices=["boiler", "meter"])
    assert [(each.node, each.state) for each in found.nodes] == [("pi-1", "active"), ("pi-2", "standby")]
    assert (found.registered, found.unowned) == (2, ())


@pytest.mark.parametrize("state", ["standby", "draining", "fenced"])
def test_in_a_pair_without_an_owner_no_device_has_a_node(state):
    found = app(document("pi-1", state), devices=["meter", "boiler"])
    assert (found.unowned, found.unowned_count) == (("boiler", "meter"), 2)


def test_an_owner_that_has_not_yet_handed_over_still_owns_the_devices():
    found = app(document("pi-1", "draining", token=7), devices=["meter"])
    assert found.unowned_count == 0


def test_an_owner_that_froze_is_lost_once_another_node_of_the_pair_has_taken_over():
    found = app(document("pi-1", token=7), document("pi-2", token=8), document("pi-3", "standby"), devices=["meter"])
    assert [each.state for each in found.nodes] == ["lost", "active", "standby"]
    assert found.unowned_count == 0


NAMES = st.sets(st.sampled_from([f"m{number}" for number in range(12)]))


@given(st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=4))
def test_a_device_that_some_node_calls_free_and_none_owns_is_without_a_node(nodes):
    documents = [
        of(f"n{number}", sorted(owned), unowned=sorted(free), unowned_count=len(free))
        for number, (owned, free) in enumerate(nodes)
    ]
    found = app(*documents)
    owned = set().union(*(owned for owned, _ in nodes))
    assert set(found.unowned) == set().union(*(free for _, free in nodes)) - owned
    assert found.unowned_count == len(found.unowned)


def test_where_a_document_has_no_room_for_all_names_only_the_number_of_the_others_is_known():
    found = app(of("n0", ["a", "b"], device_count=5, registered=8), of("n1", ["c"], registered=8))
    assert (found.registered, found.unowned, found.unowned_count) == (8, (), 2)
    found = app(of("n0", ["c"], unowned=["a", "b"], unowned_count=7, registered=8))
    assert (found.unowned, found.unowned_count) == (("a", "b"), 7)


def test_where_no_node_runs_no_device_has_one():
    others = {"house/nodes/n0/status": {"state": "offline"}}
    found = app(of("n0", ["a"], registered=3), devices=["a", "b"], others=others)
    assert (found.unowned, found.unowned_count) == (("a", "b"), 2)


def test_devices_of_every_page_of_every_registry_count_but_those_that_are_not_enabled():
    others = {
        "house/nodes/n0/registry": {"devices": {"a": {}, "off": {"enabled": False}}},
        "house/nodes/n0/registry/2": {"devices": {"b": {}}},
        "house/registry/2": {"devices": {"c": {}}},
    }
    assert app(of("n0"), others=others).registered == 3


def test_a_node_whose_status_says_offline_owns_nothing_and_one_with_a_status_alone_is_shown():
    others = {"house/nodes/n0/status": {"state": "offline"}, "house/nodes/n9/status": {"state": "offline"}}
    found = app(of("n0", ["a"]), of("n1", [], unowned=["a"]), devices=["a"], others=others)
    assert [(each.node, each.state, each.is_here) for each in found.nodes] == [
        ("n0", "offline", False),
        ("n1", "active", True),
        ("n9", "offline", False),
    ]
    assert found.unowned == ("a",)


@pytest.mark.parametrize(("age", "state"), [(40, "active"), (46, "silent"), (-1e6, "active")])
def test_a_document_of_three_ttl_says_that_the_node_is_silent(age, state):
    (node,) = app(document("pi-1", at=rfc3339(NOW - age))).nodes
    assert node.state == state


def test_labels_that_nobody_has_are_named_once():
    lacking = [{"needs": ["ble"], "devices": 3}, {"needs": ["usb", "x"], "devices": 1}]
    found = app(of("n0", without_node=lacking), of("n1", without_node=lacking[:1]))
    assert list(found.lacking) == lacking


def test_apps_without_nodes_are_none_and_prefixes_of_several_levels_are_whole():
    messages = [*seen(document("pi-1"), prefix="home/north"), *seen(prefix="garden", devices=["pump"])]
    assert [each.prefix for each in apps(messages, NOW)] == ["home/north"]


def test_the_filters_take_in_what_is_read():
    topics = [each.topic for each in seen(of("n0"), others={"house/nodes/n0/registry/2": {}, "house/registry/2": {}})]
    topics.append("house/nodes/n0/status")
    for prefix in ("house", "+"):
        assert all(any(topic_matches(each, topic) for each in filters_of(prefix)) for topic in topics)


@given(st.lists(st.tuples(st.sampled_from(["nodes/a", "nodes/a/status", "registry", "nodes/a/registry"]), st.binary())))
def test_garbage_is_passed_over(messages):
    found = apps([Received(f"house/{topic}", payload, True) for topic, payload in messages], NOW)
    assert all(each.document is None for shared in found for each in shared.nodes)


def test_a_node_that_the_others_find_at_the_engine_no_more_is_lost_and_owns_nothing():
    found = app(of("n0", ["a"]), of("n1", ["a", "b"], members=["n1"], unowned=["c"]))
    assert [(each.node, each.state) for each in found.nodes] == [("n0", "lost"), ("n1", "active")]
    assert found.unowned == ("c",)


def test_a_node_that_does_not_reach_the_engine_knows_nothing_about_the_others():
    cut_off = of("n1", members=["n1"], engine={"reachable": False, "unreachable_since": rfc3339(NOW - 9)})
    assert [each.state for each in app(of("n0"), cut_off).nodes] == ["active", "active"]


def test_a_node_that_has_just_come_is_not_lost():
    found = app(of("n0", members=["n0"]), of("n1", state="taking_over", members=[]))
    assert [each.state for each in found.nodes] == ["active", "taking_over"]
