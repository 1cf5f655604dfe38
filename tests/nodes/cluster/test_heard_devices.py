"""The devices that several nodes of a cluster hear, on one of these nodes."""

import asyncio
import json
import os
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman import App, Context, Finds, Received
from leadsman.loop.timers import Timers
from leadsman.mqtt.topics import Topics
from leadsman.nodes.cluster.heard_devices import IN_ONE, HeardDevices, _pages
from leadsman.nodes.cluster.hearing import Hearings, key_of
from leadsman.nodes.lease.lease import Lease, Member
from leadsman.nodes.lease.store import ClusterSnapshot
from leadsman.runtime.found_devices import Family, FoundDevices, Names
from leadsman.settings.sources import Where
from leadsman.testing import VirtualLoop
from leadsman_rigs.stage import access_of

TTL = 9.0
MEMBER = Member("near", "1")
KEY = key_of("attic")


class Host:
    """An app, which only notes what comes and goes."""

    def __init__(self):
        self.joined, self.lost, self.left, self.readings = [], [], [], []

    def join(self, source):
        self.joined.append(source.name)
        snapshot = SimpleNamespace(circuit="closed")
        execution = SimpleNamespace(snapshot=lambda: snapshot)
        return SimpleNamespace(take=self.readings.append, execution=execution, heard_at=0.0)

    def lose(self, name):
        self.lost.append(name)

    def leave(self, name):
        self.left.append(name)


class Template:
    def _replace(self, name):
        return SimpleNamespace(name=name)


class Here:
    """One node, in virtual time."""

    def __init__(self, loop, **finds):
        self.loop, self.host, self.asked, self.usable = loop, Host(), 0, True
        self.hearings = Hearings(MEMBER, TTL)
        node = SimpleNamespace(allows=lambda key: self.usable, look_again=self.ask)
        clock = SimpleNamespace(uptime=loop.time, monotonic=loop.time)
        self.heard = HeardDevices(self.hearings, node, Topics("house", node="near"), clock)
        timers = Timers(loop, lambda event: None)
        family = Family(Finds(everywhere=True, **finds), Template())
        self.found = FoundDevices({"gateway": family}, self.host, Names(()), timers, loop.time, loop)
        self.found.owners, self.heard.found = self.heard, self.found

    def ask(self):
        self.asked += 1

    def plan(self, *leases):
        return self.having((), *leases)

    def having(self, held, *leases):
        snapshot = ClusterSnapshot({each.key: each for each in leases}, (MEMBER, Member("far", "1")))
        return self.hearings.plan(snapshot, ["near", "far"], held, self.loop.time())

    def hears(self, reading, signal=-60, name="attic"):
        async def hear():
            device = self.found.device("gateway", name, signal)
            device.publish(reading)
            return device

        return self.loop.run_until_complete(hear())

    def pass_time(self, seconds):
        self.loop.run_until_complete(asyncio.sleep(seconds))


@pytest.fixture
def loop():
    loop = VirtualLoop()
    yield loop
    loop.close()


@pytest.fixture
def here(loop):
    return Here(loop)


def test_the_reading_that_found_a_device_is_the_first_one_that_is_published(here):
    here.hears(1)
    here.hears(2)
    assert (here.asked, here.host.joined) == (1, [])
    assert here.plan().acquire == (KEY,)

    here.heard.begin({KEY: 7, "any.3": 8})
    here.hears(3)

    assert here.host.joined == ["attic"]
    assert here.host.readings == [2, 3]
    assert here.heard.token_of("attic") == 7


def test_a_reading_that_waited_for_longer_than_a_report_takes_is_not_published(here):
    here.hears(1)
    here.pass_time(TTL / 3 + 0.1)
    here.heard.begin({KEY: 7})
    assert (here.host.joined, here.host.readings) == (["attic"], [])


def test_a_device_of_another_node_is_heard_and_not_published(here):
    here.hears(1)
    here.plan(Lease(KEY, "far/1", 5, TTL))
    device = here.hears(2)
    assert device.accepted
    assert not device.here
    here.heard.begin({KEY: 7})
    assert here.host.readings == []


def test_a_device_that_is_given_back_is_heard_on_and_comes_again(here):
    here.hears(1)
    here.heard.begin({KEY: 7})
    here.heard.stop([KEY, "any.3"])
    here.hears(2)
    assert here.host.lost == ["attic"]
    assert here.heard.token_of("attic") == 7, "what waits for the broker is sent"
    here.heard.end([KEY, "any.3"])
    assert here.heard.token_of("attic") == 0
    assert here.host.joined == ["attic"]

    here.heard.begin({KEY: 9})
    assert here.host.joined == ["attic", "attic"]
    assert here.hears(3).here


def test_a_lease_that_lapsed_allows_nothing(here):
    here.hears(1)
    here.heard.begin({KEY: 7})
    here.usable = False
    assert here.heard.token_of("attic") == 0
    assert not here.hears(2).here


def test_what_is_no_device_of_the_air_has_no_token_here(here):
    assert here.heard.token_of("meter") is None
    assert here.heard.key("meter") is None
    assert not here.heard.elsewhere("meter")
    assert not here.heard.forget("meter")


@pytest.mark.parametrize("others", [True, False])
def test_a_device_that_is_forgotten_loses_its_topics_unless_others_hear_it(here, others):
    device = here.hears(1)
    here.plan()
    here.heard.begin({KEY: 7})
    if others:
        here.heard.received(Received("house/nodes/far/hears", b'{"devices": {"attic": -70}}', retain=False))

    here.loop.run_until_complete(_call(device.forget))

    assert (here.host.lost, here.host.left) == ((["attic"], []) if others else ([], ["attic"]))
    assert here.heard.token_of("attic") is None


async def _call(function):
    function()


def test_a_device_that_another_node_publishes_is_forgotten_when_it_is_heard_no_more(loop):
    here = Here(loop, most=1, forget_after="10m")
    here.hears(1)
    here.plan(Lease(KEY, "far/1", 5, TTL))
    assert not here.hears(1, name="cellar").accepted
    here.pass_time(700)
    assert here.hears(1, name="cellar").accepted
    assert (here.host.lost, here.host.left) == ([], []), "the other node has its topics"


def test_the_plan_is_asked_for_when_another_node_hears_a_device_better(here):
    here.hears(1)
    here.plan()
    here.having([KEY])
    before = here.asked
    for _ in range(3):
        here.pass_time(TTL / 3)
        here.hears(2)
        here.heard.received(Received("house/nodes/far/hears", b'{"devices": {"attic": -50}}', retain=False))
    assert here.asked == before + 1


def test_a_report_has_as_many_messages_as_it_needs():
    signals = {f"sensor-{number}": -60.0 for number in range(2 * IN_ONE + 1)}
    pages = [json.loads(page)["devices"] for page in _pages(signals)]
    assert [len(page) for page in pages] == [IN_ONE, IN_ONE, 1]
    assert {name: signal for page in pages for name, signal in page.items()} == signals
    assert list(_pages({})) == []


SAID = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["devices", "attic"]), inner),
    max_leaves=6,
)


@given(st.binary(max_size=30) | SAID.map(lambda said: json.dumps(said).encode()) | st.just(b"[" * 60_000))
def test_what_others_publish_as_a_report_does_no_harm(payload):
    loop = VirtualLoop()
    try:
        here = Here(loop)
        here.hears(1)
        here.plan()
        here.heard.received(Received("house/nodes/far/hears", payload, retain=False))
        known = here.hearings.of("attic").others.get("far")
        assert known is None or -1000 <= known.signal <= 1000
    finally:
        loop.close()


def house(everywhere):
    app = App("house")

    async def gateway(context: Context):
        yield

    app.add_source("gateway", gateway, needs="ble", finds=Finds(everywhere=everywhere))
    app.add_telemetry("meter", lambda: {"t": 1}, interval=10)
    return app


class TestPlan:
    """What the plan of a node says of handlers that are called everywhere."""

    @pytest.fixture(autouse=True)
    def _directory(self, tmp_path):
        self.directory = tmp_path

    def of(self, *labels, everywhere=True):
        app = house(everywhere)
        cluster = {"ENGINE": "nats://nats:4222", "NODE": "attic", "LABELS": ",".join(labels)}
        variables = {f"CLUSTER__{key}": value for key, value in cluster.items()}
        app.load(Where(variables, self.directory, None, {}, self.directory))
        return app.plan(os.environ)

    def test_such_a_handler_is_a_device_of_its_node_from_the_start(self):
        plan = self.of("ble")
        assert [each.name for each in plan.handlers] == ["meter", "gateway@attic"]
        assert plan.residents == ["gateway@attic"]

    def test_a_node_without_its_labels_does_not_call_it(self):
        assert self.of("lora").residents == []

    def test_another_handler_that_finds_devices_has_a_shard(self):
        plan = self.of("ble", everywhere=False)
        assert [each.name for each in plan.handlers] == ["meter", "gateway"]
        assert plan.residents == []

    @pytest.mark.parametrize("everywhere", [True, False])
    def test_the_access_list_has_the_reports(self, everywhere):
        access = access_of(
            house(everywhere), cluster__engine="nats://nats:4222", cluster__node="attic", cluster__labels="ble"
        )
        assert ("house/nodes/+/hears" in access.publish) is everywhere
        assert ("house/nodes/+/hears" in access.subscribe) is everywhere
