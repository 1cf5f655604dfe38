"""Whatever anybody has written where nodes read what other nodes say, in a broker or in an engine: no reader raises
anything but its named refusal, what it keeps is bounded, and what the others say is still read."""

import asyncio
import contextlib
import json
import math
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from nats.js.api import StreamConfig, StreamInfo
from tests.extensions.nodes.standby import test_standby as standby
from tests.extensions.nodes.test_document import document

from leadsman.core.loop.clock import Clock
from leadsman.core.mqtt.topics import Topics, encode, is_topic
from leadsman.core.text import clean
from leadsman.errors import TermsDiffer
from leadsman.extensions.nodes.brief import is_online
from leadsman.extensions.nodes.document import MAX_DOCUMENT_BYTES
from leadsman.extensions.nodes.lease.jetstream import Bucket, BucketEntry, _read, _snapshot
from leadsman.extensions.nodes.lease.lease import Lease, Member, Terms
from leadsman.extensions.nodes.standby.renewal import MAX_OWNER_CHARS, MAX_TOKEN, MAX_TTL_SECONDS, read_renewal
from leadsman.extensions.nodes.standby.report import Peers
from leadsman.testing import VirtualLoop
from leadsman.testing.broker import Delivered
from leadsman_rigs.examples import examples
from leadsman_rigs.hostile import BOMBS, LIES, payloads

TOPICS = Topics("house")
MEMBER = Member("pi-1", "3f9a")
TERMS = Terms("house", shards=4)
LEASE = {"owner": "pi-2", "token": 7, "ttl_s": 3.0, "sent": 1.0}
STATUS = {"state": "online", "devices": {"boiler": "ok"}, "at": "2026-11-22T20:00:00.000Z"}
NODES = (document(node="pi-2"), document("active", "cluster", "pi-2"))
ENTRIES = (
    {"owner": "pi-2/1", "token": 7},
    {"node": "pi-2", "run": "1", "labels": ["ble"], "version": "1"},
)
AT_THE_BROKER = ("--mqtt", "mqtt://broker.lan", "--timeout", "1ms")
CLOCK = Clock(lambda: 100.0, lambda: 1_795_338_000.0)


def bombs(*others):
    """Add each payload that is a bomb to those that are drawn, with these other arguments."""

    def add(reader):
        for each in BOMBS:
            reader = example(each, *others)(reader)
        return reader

    return add


@bombs()
@given(payloads(LEASE, STATUS))
@example(json.dumps({**LEASE, "token": 2**53}).encode())
def test_a_lease_is_one_or_none_and_a_status_says_something_or_nothing(payload):
    lease = read_renewal(payload)

    assert is_online(payload) in (True, False, None)
    if lease is not None:
        assert 0 < len(lease.owner) <= MAX_OWNER_CHARS
        assert 0 < lease.token <= MAX_TOKEN
        assert 0 < lease.ttl <= MAX_TTL_SECONDS
        assert math.isfinite(lease.sent)


def introspected(broker, run):
    """The nodes that an app answers it knows."""
    broker.send("house/introspect", {"sections": ["app"]})
    run(0.5)
    return broker.messages("house/introspect/response")[-1].json["data"]["app"]["nodes"]


@pytest.mark.slow
@bombs("nodes/pi-2", False)
@bombs("lease", False)
@bombs("status", False)
@given(
    payloads(LEASE, STATUS, *NODES, {"drain": True}),
    st.sampled_from(
        ["lease", "status", "nodes/{me}", "nodes/pi-2", "nodes/{me}/drain", "nodes", "nodes/", "nodes/a/b"]
    ),
    st.booleans(),
)
def test_a_standby_node_hears_the_others_whatever_one_of_them_says(payload, word, retain):
    faults = []
    with contextlib.closing(VirtualLoop()) as loop, TemporaryDirectory() as directory:
        loop.set_exception_handler(lambda loop, context: faults.append(context))

        def run(seconds):
            loop.run_until_complete(asyncio.sleep(seconds))

        broker = standby.Broker()
        broker.retained["house/lease"] = Delivered(0.0, "house/lease", encode(LEASE), True, None)
        broker.retained["house/status"] = Delivered(0.0, "house/status", encode(STATUS), True, None)
        node = standby.Node(loop, broker, directory)
        run(1)
        (me,) = {each.topic.removeprefix("house/nodes/") for each in broker.log if each.payload}
        broker.send(f"house/{word.format(me=me)}", payload, retain=retain)
        run(0.1)
        drained = broker.messages(f"house/nodes/{me}/drain/response")
        broker.send("house/lease", LEASE, retain=True)
        broker.send("house/status", STATUS, retain=True)
        broker.send(f"house/nodes/{me}/drain", {"drain": False})
        run(1)
        assert node.polls == []
        assert len(drained) <= 1

        run(3 * standby.TTL)
        broker.send("house/nodes/pi-3", document(node="pi-3"), retain=True)
        nodes = introspected(broker, run)
        node.app.stop()
        loop.run_until_complete(node.task)

    assert faults == []
    assert node.polls
    assert {me, "pi-3"} <= {each["node"] for each in nodes}
    assert len(encode(nodes)) < MAX_DOCUMENT_BYTES
    encode(sum(each.get("devices", 0) for each in nodes))
    for message in broker.log:
        assert is_topic(message.topic)
        if message.topic.endswith("/availability"):
            assert message.payload in (b"online", b"offline")
        else:
            assert message.payload == b"" or isinstance(message.json, dict)


@bombs()
@given(payloads(*NODES))
@example(json.dumps(document(node="pi-2", device_count=10**4300 - 1)).encode())
@example(json.dumps(document(node="pi-2", labels=["\ud800"], version="\ud800", since="\ud800")).encode())
def test_what_is_kept_of_a_node_can_be_told_again_and_the_others_stay(payload):
    others = Peers(lambda: 1.0)
    others.hear("pi-3", encode(document(node="pi-3")))
    others.hear("pi-2", payload)
    others.hear("pi-5", payload.replace(b"pi-2", b"pi-5"))
    others.hear("pi-4", encode(document(node="pi-4")))

    known = others.known()
    assert {"pi-3", "pi-4"} <= known.keys()
    assert len(encode(known)) < MAX_DOCUMENT_BYTES
    encode(sum(each.get("devices", 0) + each.get("shards", 0) for each in known.values()))


@pytest.mark.slow
@settings(max_examples=examples(40), suppress_health_check=list(HealthCheck))
@bombs("nodes/pi-2")
@given(payloads(*NODES, STATUS), st.sampled_from(["nodes/pi-2", "nodes/pi-2/status", "registry", "registry/2"]))
@example(json.dumps(document("active", "cluster", "pi-2", shards={"\ud800": {}})).encode(), "nodes/pi-2")
def test_the_command_line_shows_the_other_nodes_whatever_one_of_them_says(stage, payload, word):
    stage.broker().kept.clear()
    stage.keep({f"house/{word}": payload, "house/nodes/pi-3": document("active", "cluster", "pi-3")})

    shown = stage.run("cluster", "status", "house", *AT_THE_BROKER)
    told = stage.run("cluster", "status", "house", "--json", *AT_THE_BROKER)

    assert "pi-3" in shown.out
    assert "pi-3" in {each["node"] for each in json.loads(told.out)["house"]["nodes"]}


@bombs("member.pi-2.1", 7)
@given(
    payloads(*ENTRIES),
    st.sampled_from(["lease.any.1", "member.pi-2.1", "lease.", "member."]),
    st.integers(1, 2**63 - 1),
)
@example(b'{"owner":"x/1","token":Infinity}', "lease.any.1", 1)
@example(b'{"owner":"x/1","token":1e999}', "lease.any.1", 1)
@example(b'{"owner":"' + b"x" * 5000 + b'","token":1}', "lease.any.1", 1)
@example(b'{"owner":"\\ud800/1","token":1}', "lease.any.1", 1)
@example(json.dumps(ENTRIES[1] | {"labels": ["\ud800"]}).encode(), "member.pi-2.1", 1)
@example(json.dumps(ENTRIES[1] | {"version": "\ud800"}).encode(), "member.pi-2.1", 1)
def test_an_entry_of_nats_costs_only_itself(payload, name, revision):
    good = {
        "lease.any.0": BucketEntry(json.dumps({"owner": "pi-3/1", "token": 3}).encode(), 3),
        "member.pi-3.1": BucketEntry(json.dumps(ENTRIES[1] | {"node": "pi-3"}).encode(), 4),
    }
    snapshot = _snapshot(
        {key: _read(key, entry, 3.0) for key, entry in (good | {name: BucketEntry(payload, revision)}).items()}
    )

    assert snapshot.leases["any.0"] == Lease("any.0", "pi-3/1", 3, 3.0)
    assert Member("pi-3", "1", ["ble"], "1") in snapshot.members
    for lease in snapshot.leases.values():
        assert 0 <= lease.token < 2**63
        assert len(lease.owner) <= 300
    encode([sorted(snapshot.unread), [lease.owner for lease in snapshot.leases.values()]])
    encode([[sorted(member.labels), clean(member.version)] for member in snapshot.members])


def info(description):
    return StreamInfo(StreamConfig(description=description), None, None)


@bombs(0)
@given(payloads({"leadsman": {"shards": 4, "ttl": 15.0}}), st.sampled_from(LIES))
def test_the_terms_of_a_bucket_fit_or_differ(payload, ttl):
    bucket = Bucket("nats://127.0.0.1", TERMS)
    found = info(payload.decode(errors="replace"))
    found.config.max_age = ttl

    with pytest.raises(TermsDiffer):
        bucket._compare(found)
    found.config.max_age = 15.0
    try:
        bucket._compare(found)
    except TermsDiffer:
        return
    assert dict(json.loads(payload)["leadsman"])["shards"] == 4
