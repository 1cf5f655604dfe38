"""What `leadsman cluster status` makes of the documents of nodes that a broker retains."""

import json
import time
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leadsman.core.loop.clock import rfc3339
from leadsman_rigs.examples import examples
from leadsman_rigs.stage import URL

NOW = 1_795_338_000.0


def document(node, state="active", kind="standby", devices=(), **more):
    found = {"node": node, "kind": kind, "state": state, "since": rfc3339(NOW - 60), "at": rfc3339(NOW), "ttl_s": 15}
    own = {"token": 7} if kind == "standby" and state == "active" else {}
    return found | {"devices": list(devices), "device_count": len(devices)} | own | more


def of(node, devices=(), state="active", members=("n0", "n1", "n2", "n3"), **more):
    more.setdefault("engine", {"reachable": True})
    return document(node, state, "cluster", devices, members=members, **more)


def kept(*documents, prefix="house", devices=(), others=()):
    """What a broker retains, by topic."""
    found = {f"{prefix}/nodes/{each['node']}": each for each in documents}
    found[f"{prefix}/registry"] = {"app": "house", "devices": {name: {} for name in devices}}
    return found | dict(others)


@pytest.fixture
def status(stage, monkeypatch):
    """What the command prints where a broker retains this."""
    monkeypatch.setattr(time, "time", lambda: NOW)

    def status(retained, *arguments):
        stage.broker().kept.clear()
        stage.keep(retained)
        return stage.run("cluster", "status", *arguments, "--mqtt", URL, "--timeout", "1ms")

    return status


@pytest.fixture
def app(status):
    """The one app that is shown."""

    def app(*documents, **more):
        done = status(kept(*documents, **more), "house", "--json")
        ((prefix, found),) = json.loads(done.out).items()
        unowned = found["without_node"]
        assert (prefix, done.code) == ("house", 3 if unowned["count"] else 0)
        return SimpleNamespace(
            nodes=[(each["node"], each["state"]) for each in found["nodes"]],
            registered=found["devices"],
            unowned=unowned["devices"],
            unowned_count=unowned["count"],
            lacking=unowned["labels"],
        )

    return app


def test_the_owner_of_a_pair_owns_every_device(app):
    found = app(document("pi-1"), document("pi-2", "standby"), devices=["boiler", "meter"])
    assert found.nodes == [("pi-1", "active"), ("pi-2", "standby")]
    assert (found.registered, found.unowned) == (2, [])


@pytest.mark.parametrize("state", ["standby", "draining", "fenced"])
def test_in_a_pair_without_an_owner_no_device_has_a_node(app, state):
    found = app(document("pi-1", state), devices=["meter", "boiler"])
    assert (found.unowned, found.unowned_count) == (["boiler", "meter"], 2)


def test_an_owner_that_has_not_yet_handed_over_still_owns_the_devices(app):
    found = app(document("pi-1", "draining", token=7), devices=["meter"])
    assert found.unowned_count == 0


def test_an_owner_that_froze_is_lost_once_another_node_of_the_pair_has_taken_over(app):
    found = app(document("pi-1", token=7), document("pi-2", token=8), document("pi-3", "standby"), devices=["meter"])
    assert [state for _, state in found.nodes] == ["lost", "active", "standby"]
    assert found.unowned_count == 0


AS_OFTEN = settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))
NAMES = st.sets(st.sampled_from([f"m{number}" for number in range(12)]))


@AS_OFTEN
@given(st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=4))
def test_a_device_that_some_node_calls_free_and_none_owns_is_without_a_node(app, nodes):
    documents = [
        of(f"n{number}", sorted(owned), unowned=sorted(free), unowned_count=len(free))
        for number, (owned, free) in enumerate(nodes)
    ]
    found = app(*documents)
    owned = set().union(*(owned for owned, _ in nodes))
    assert set(found.unowned) == set().union(*(free for _, free in nodes)) - owned
    assert found.unowned_count == len(found.unowned)


def test_where_a_document_has_no_room_for_all_names_only_the_number_of_the_others_is_known(app):
    found = app(of("n0", ["a", "b"], device_count=5, registered=8), of("n1", ["c"], registered=8))
    assert (found.registered, found.unowned, found.unowned_count) == (8, [], 2)
    found = app(of("n0", ["c"], unowned=["a", "b"], unowned_count=7, registered=8))
    assert (found.unowned, found.unowned_count) == (["a", "b"], 7)


def test_where_no_node_runs_no_device_has_one(app):
    others = {"house/nodes/n0/status": {"state": "offline"}}
    found = app(of("n0", ["a"], registered=3), devices=["a", "b"], others=others)
    assert (found.unowned, found.unowned_count) == (["a", "b"], 2)


def test_devices_of_every_page_of_every_registry_count_but_those_that_are_not_enabled(app):
    others = {
        "house/nodes/n0/registry": {"devices": {"a": {}, "off": {"enabled": False}}},
        "house/nodes/n0/registry/2": {"devices": {"b": {}}},
        "house/registry/2": {"devices": {"c": {}}},
    }
    assert app(of("n0"), others=others).registered == 3


def test_a_node_whose_status_says_offline_owns_nothing_and_one_with_a_status_alone_is_shown(app, status):
    others = {"house/nodes/n0/status": {"state": "offline"}, "house/nodes/n9/status": {"state": "offline"}}
    retained = {"devices": ["a"], "others": others}
    found = app(of("n0", ["a"]), of("n1", [], unowned=["a"]), **retained)
    shown = status(kept(of("n0", ["a"]), of("n1", [], unowned=["a"]), **retained), "house").lines
    assert shown[0] == "house: 1 of 3 nodes, 1 device"
    assert found.nodes == [("n0", "offline"), ("n1", "active"), ("n9", "offline")]
    assert found.unowned == ["a"]


@pytest.mark.parametrize(("age", "state"), [(40, "active"), (46, "silent"), (-1e6, "active")])
def test_a_document_of_three_ttl_says_that_the_node_is_silent(app, age, state):
    assert app(document("pi-1", at=rfc3339(NOW - age))).nodes == [("pi-1", state)]


def test_labels_that_nobody_has_are_named_once(app):
    lacking = [{"needs": ["ble"], "devices": 3}, {"needs": ["usb", "x"], "devices": 1}]
    found = app(of("n0", without_node=lacking), of("n1", without_node=lacking[:1]))
    assert found.lacking == lacking


def test_an_app_without_nodes_has_none_and_a_prefix_of_several_levels_is_whole(status):
    retained = kept(document("pi-1"), prefix="home/north") | kept(prefix="garden", devices=["pump"])
    assert list(json.loads(status(retained, "home/north", "--json").out)) == ["home/north"]
    assert (status(retained, "garden").code, status(retained).code) == (1, 1)


@pytest.mark.parametrize("prefix", [("house",), ()])
def test_what_is_kept_of_every_node_is_read_with_a_prefix_and_without(status, prefix):
    others = {
        "house/nodes/n0/registry/2": {"devices": {"b": {}}},
        "house/nodes/n0/registry": {"devices": {"c": {}}},
        "house/registry/2": {"devices": {"d": {}}},
        "house/nodes/n0/status": {"state": "offline"},
    }
    found = json.loads(status(kept(of("n0"), devices=["a"], others=others), *prefix, "--json").out)["house"]
    assert ([each["state"] for each in found["nodes"]], found["devices"]) == (["offline"], 4)


@AS_OFTEN
@given(st.lists(st.tuples(st.sampled_from(["nodes/a", "nodes/a/status", "registry", "nodes/a/registry"]), st.binary())))
def test_garbage_is_passed_over(status, messages):
    done = status({f"house/{topic}": payload for topic, payload in messages}, "house", "--json")
    nodes = [each for found in json.loads(done.out or "{}").values() for each in found["nodes"]]
    assert all(each.keys() == {"node", "state"} for each in nodes), "no document is read"
    assert nodes or "no node of 'house' has a document" in done.err


def test_a_node_that_the_others_find_at_the_engine_no_more_is_lost_and_owns_nothing(app):
    found = app(of("n0", ["a"]), of("n1", ["a", "b"], members=["n1"], unowned=["c"]))
    assert found.nodes == [("n0", "lost"), ("n1", "active")]
    assert found.unowned == ["c"]


def test_a_node_that_does_not_reach_the_engine_knows_nothing_about_the_others(app):
    cut_off = of("n1", members=["n1"], engine={"reachable": False, "unreachable_since": rfc3339(NOW - 9)})
    assert [state for _, state in app(of("n0"), cut_off).nodes] == ["active", "active"]


def test_a_node_that_has_just_come_is_not_lost(app):
    found = app(of("n0", members=["n0"]), of("n1", state="taking_over", members=[]))
    assert [state for _, state in found.nodes] == ["active", "taking_over"]
