"""What the document of a node says, and what is read of one that anybody may have written."""

import json
import subprocess
import sys
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from leadsman.core.mqtt.topics import encode
from leadsman.extensions.nodes.brief import STATES, counts_text
from leadsman.extensions.nodes.document import (
    MAX_DOCUMENT_BYTES,
    MAX_NAMES_BYTES,
    NodeDocument,
    brief_of,
    fit,
    read_document,
)
from leadsman.extensions.nodes.standby.report import MAX_NODES, Peers

FITS = partial(TypeAdapter(NodeDocument).validate_python, strict=True)
"""What pydantic makes of a document that its schema describes."""
NOTHING = {"needs": [], "devices": 0}
STATE = st.sampled_from(STATES)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)


def document(state="active", kind="standby", node="pi-1", **more):
    found = {
        "node": node,
        "kind": kind,
        "state": state,
        "since": "2026-11-22T20:00:00.000Z",
        "at": "2026-11-22T20:01:00.000Z",
        "ttl_s": 15.0,
        "version": "1.2",
        "leadsman": "0.1",
        "labels": ["ble"],
        "devices": ["boiler", "meter"],
        "device_count": 2,
        "registered": 5,
        "handovers": {"takeovers": 3, "gained": 0, "lost": 0, "released": 0},
        "without_node": [],
    }
    own = {"owner": "pi-1", "token": 7} if kind == "standby" else CLUSTER
    return found | own | more


CLUSTER = {
    "shards": {"any.3": {"token": 9, "since": "2026-11-22T20:00:01.000Z"}},
    "shard_count": 1,
    "unowned": ["pump"],
    "unowned_count": 1,
    "members": ["pi-1", "pi-2"],
    "engine": {"reachable": False, "unreachable_since": "2026-11-22T20:00:30.000Z"},
}


@given(STATE, st.sampled_from(["standby", "cluster"]))
def test_what_a_node_writes_is_read_as_it_was_and_fits_its_schema(state, kind):
    written = document(state, kind)
    assert read_document("pi-1", encode(written)) == FITS(written) == written


@given(STATE, st.sampled_from(["standby", "cluster"]), st.dictionaries(st.sampled_from(list(document())), JSON))
def test_a_document_that_somebody_has_changed_fits_the_schema_or_is_none(state, kind, changes):
    read = read_document("pi-1", json.dumps(document(state, kind) | changes).encode())
    if read is not None:
        assert FITS(read) == read
        assert brief_of(read)["node"] == "pi-1"


@pytest.mark.parametrize(
    ("kind", "changes", "read"),
    [
        ("standby", {"ttl_s": True}, {"ttl_s": 0.0}),
        ("standby", {"ttl_s": 10**400}, {"ttl_s": 0.0}),
        ("standby", {"ttl_s": float("nan")}, {"ttl_s": 0.0}),
        ("standby", {"owner": ""}, {"owner": None}),
        ("standby", {"token": None}, {"token": 0}),
        ("standby", {"labels": None}, {"labels": []}),
        ("standby", {"labels": ["ble", 1, None, "x" * 300]}, {"labels": ["ble", "x" * 200]}),
        ("standby", {"version": "\ud800"}, {"version": "?"}),
        ("standby", {"device_count": 10**4299}, {"device_count": 2}),
        ("standby", {"registered": -1}, {"registered": 2}),
        ("standby", {"without_node": [1, {"needs": "ble", "devices": 2.5}]}, {"without_node": [NOTHING, NOTHING]}),
        ("standby", {"handovers": []}, {"handovers": dict.fromkeys(["takeovers", "gained", "lost", "released"], 0)}),
        ("cluster", {"engine": None}, {"engine": {"reachable": True, "unreachable_since": None}}),
        ("cluster", {"shards": {"x" * 300: 1}}, {"shards": {"x" * 200: {"token": 0, "since": ""}}}),
        ("cluster", {"shards": [], "shard_count": True}, {"shards": {}, "shard_count": 0}),
        ("cluster", {"unowned": ["a", "b"], "unowned_count": 0}, {"unowned": ["a", "b"], "unowned_count": 2}),
    ],
)
def test_a_field_that_is_wrong_says_nothing_one_that_is_long_is_cut_and_the_others_stay(kind, changes, read):
    written = document("active", kind)
    assert read_document("pi-1", json.dumps(written | changes).encode()) == written | read


@pytest.mark.parametrize("kind", ["standby", "cluster"])
def test_a_document_with_nothing_but_a_node_a_kind_and_a_state_is_read(kind):
    read = read_document("pi-1", json.dumps({"node": "pi-1", "kind": kind, "state": "active"}).encode())
    assert (read["devices"], read["device_count"], read["at"], "token" in read) == ([], 0, "", False)
    for wrong in ({"state": []}, {"state": "odd"}, {"kind": {}}, {"node": None}):
        assert read_document("pi-1", json.dumps(document("active", kind) | wrong).encode()) is None


def test_an_app_without_other_nodes_answers_and_is_asked_without_what_reads_documents_of_nodes():
    code = (
        "import sys, leadsman.core.introspection.service, leadsman.core.introspection.sections;"
        "import leadsman.core.introspection.measures;"
        "import leadsman.tools.cli.remote, leadsman.tools.cli.fleet;"
        "assert 'leadsman.core.introspection.added' in sys.modules;"
        "assert 'leadsman.extensions.nodes.document' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@given(st.binary(max_size=40) | JSON.map(lambda found: json.dumps(found).encode()))
def test_what_is_no_document_is_none(payload):
    assert read_document("pi-1", payload) is None


def test_a_document_of_another_node_or_without_end_is_none():
    assert read_document("pi-2", encode(document())) is None
    assert read_document("pi-1", encode(document(version="x" * MAX_DOCUMENT_BYTES))) is None
    assert read_document("pi-1", b"[" * 100_000) is None


@given(st.sets(st.text(min_size=1, max_size=200), max_size=40), st.integers(0, 5000))
def test_the_names_of_devices_are_bounded_and_sorted(names, more):
    every = names | {f"meter-{number:04}" for number in range(more)}
    chosen = fit(every)
    assert chosen == sorted(every)[: len(chosen)]
    assert sum(len(name.encode()) + 3 for name in chosen) <= MAX_NAMES_BYTES
    assert len(chosen) == min(len(every), 2000)


def test_numbers_of_nodes_are_told_in_words():
    assert counts_text({"standby": 2, "active": 1, "taking_over": 0, "odd": 4}) == "1 active, 2 standby"
    assert counts_text({"taking_over": 1}) == "1 taking over"
    assert counts_text(None) == counts_text([1]) == counts_text({"active": "one"}) == ""


class Time:
    now = 100.0

    def __call__(self):
        return self.now


def test_a_node_is_known_until_its_document_is_gone_or_three_ttl_old():
    time = Time()
    others = Peers(time)
    others.hear("pi-1", encode(document()))
    others.hear("pi-2", encode(document("standby", node="pi-2")))
    assert [each["state"] for each in others.known().values()] == ["active", "standby"]
    others.hear("pi-1", b"")
    assert list(others.known()) == ["pi-2"]
    time.now += 45.1
    assert others.known() == {}


def test_no_more_nodes_are_kept_than_there_can_be():
    others = Peers(Time())
    for number in range(MAX_NODES + 50):
        others.hear(f"n{number}", encode(document(node=f"n{number}")))
    assert len(others.known()) == MAX_NODES
    others.hear("n3", encode(document("draining", node="n3")))
    assert others.known()["n3"]["state"] == "draining", "one that is known may change"
    others.forget()
    assert others.known() == {}


def test_nodes_that_are_gone_without_a_word_leave_their_places_to_others():
    time = Time()
    others = Peers(time)
    for number in range(MAX_NODES):
        others.hear(f"n{number}", encode(document(node=f"n{number}")))
    time.now += 45.1
    others.hear("new", encode(document(node="new")))
    assert list(others.known()) == ["new"]
