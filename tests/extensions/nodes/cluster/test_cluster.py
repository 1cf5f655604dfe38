"""Several apps in one loop, at one broker and one engine in memory: nodes of a cluster in virtual time."""

import asyncio
import json
from typing import Literal, NamedTuple

import pytest

from leadsman import App, CircuitBreaker, Context, Finds
from leadsman.core.mqtt.topics import topic_matches
from leadsman.core.settings.sources import Where
from leadsman.errors import LeaseStoreRefused, Stopped
from leadsman.extensions.nodes.cluster.cluster import Cluster
from leadsman.extensions.nodes.cluster.part import Shards
from leadsman.extensions.nodes.cluster.report import ClusterReport
from leadsman.extensions.nodes.lease.lease import Terms
from leadsman.testing import MemoryBroker
from leadsman_rigs.memory_engine import ClockStep, EngineAway, MemoryEngine, MemoryStore, Partition
from leadsman_rigs.notify_socket import NotifySocket
from leadsman_rigs.stage import access_of

TTL = 6.0
METERS = [f"meter-{number}" for number in range(12)]


class Sent(NamedTuple):
    """A message, and who sent it under which token."""

    at: float
    client: str
    topic: str
    payload: bytes
    fence: int | None


class Broker(MemoryBroker):
    """Knows who sent what."""

    def __init__(self):
        super().__init__()
        self.sent = []

    def take(self, connection, packet_id, message):
        client = connection.packet.client_id
        self.sent.append(Sent(connection.loop.time(), client, message.topic, message.payload, message.fence))
        super().take(connection, packet_id, message)

    def receive(self, connection, packet_id, message):
        """Passes failure state and status on to their subscribers."""
        super().receive(connection, packet_id, message)
        if connection.open and message.topic.endswith(("/resilience", "/status")):
            self.send(message.topic, message.payload)

    def on(self, word, since=0.0):
        return [each for each in self.sent if each.at >= since and each.topic.endswith(f"/{word}")]

    def readers(self, since):
        """The nodes that each device was read by since then."""
        found = {}
        for each in self.on("state", since):
            found.setdefault(each.topic.split("/")[1], set()).add(each.client.removeprefix("house-"))
        return found


class Port:
    """An adapter that only one machine has."""

    def __init__(self):
        self.opened = False

    async def __aenter__(self):
        self.opened = True
        return self

    async def __aexit__(self, *exc_info):
        self.opened = False


class Clusters:
    """An engine, a broker, and the nodes."""

    def __init__(self, loop, directory, monkeypatch):
        self.loop, self.directory = loop, directory
        self.broker, self.faults, self.nodes = Broker(), [], {}
        self.engine, self.patient = None, False
        monkeypatch.setattr("leadsman.extensions.nodes.cluster.cluster.JetStreamStore", self.store)

    def store(self, url, terms, member):
        if self.engine is None:
            self.engine = MemoryEngine(terms, self.faults, patient=self.patient)
        return self.engine.store(member, terms)

    def start(self, name, register=None, *, labels=(), ports=(), variables=None, **settings):
        app = App("house", mqtt="mqtt://broker", adapters=ports, **settings.pop("app", {}))
        (register or meters)(app)
        given = {"engine": "nats://memory", "node": name, "labels": [*labels], "ttl": TTL, **settings}
        app.load(Where.nowhere({f"cluster.{key}": value for key, value in given.items()}))
        variables = {"STATE_DIRECTORY": str(self.directory / name), **(variables or {})}
        task = self.loop.create_task(app.serve(self.broker.connect, environment=variables))
        self.nodes[name] = app, task
        return app

    def stop(self, name):
        app, task = self.nodes.pop(name)
        app.stop()
        return self.loop.run_until_complete(task)

    def run(self, seconds):
        self.loop.run_until_complete(asyncio.sleep(seconds))

    @property
    def now(self):
        return self.loop.time()


@pytest.fixture
def cluster(loop, tmp_path, monkeypatch):
    cluster = Clusters(loop, tmp_path, monkeypatch)
    yield cluster
    for name in [*cluster.nodes]:
        cluster.stop(name)


async def read():
    return {"t": 1}


def meters(app):
    app.add_telemetry(METERS, read, interval=1)


def alone(readers):
    return all(len(nodes) == 1 for nodes in readers.values())


def in_order(broker):
    """See that no message of a device came after one with a greater token."""
    newest = {}
    for each in broker.sent:
        if each.fence is not None:
            assert each.fence >= newest.get(each.topic, 0), each
            newest[each.topic] = each.fence


def test_each_device_is_read_by_one_node_and_says_so_under_its_token(cluster):
    for name in ("one", "two", "three"):
        cluster.start(name)
    cluster.run(10)
    since = cluster.now
    cluster.run(5)
    readers = cluster.broker.readers(since)
    assert sorted(readers) == sorted(METERS)
    assert alone(readers)
    assert {name for names in readers.values() for name in names} == {"one", "two", "three"}
    assert all(each.fence for word in ("state", "availability") for each in cluster.broker.on(word))
    in_order(cluster.broker)


def test_the_documents_of_a_process_have_a_place_for_each_node(cluster):
    cluster.start("one")
    cluster.start("two")
    cluster.run(10)
    documents = {
        name: json.loads(cluster.broker.retained[f"house/nodes/{name}/status"].payload) for name in ("one", "two")
    }
    devices = [*documents["one"]["devices"], *documents["two"]["devices"]]
    assert sorted(devices) == sorted(METERS)
    registries = [
        json.loads(cluster.broker.retained[f"house/nodes/{name}/registry"].payload)["devices"]
        for name in ("one", "two")
    ]
    assert sorted(name for each in registries for name in each) == sorted(METERS)
    assert not [topic for topic in cluster.broker.retained if topic in ("house/status", "house/registry")]
    assert {packet.client_id for _, packet in cluster.broker.connects} == {"house-one", "house-two"}


def test_a_node_that_takes_a_device_over_sends_no_event_from_before(cluster):
    def bell(app):
        @app.subscribe("wall/bell", event="bell")
        async def hear(presses: int) -> Literal["single"]:
            return "single"

    for name in ("one", "two"):
        cluster.start(name, bell)
    cluster.run(10)
    for _ in range(3):
        cluster.broker.send("wall/bell", b"1")
        cluster.run(1)
    assert len(cluster.broker.on("state")) == 3
    (owner,) = {each.client.removeprefix("house-") for each in cluster.broker.on("state")}
    cluster.run(30)
    cluster.stop(owner)
    cluster.run(30)
    assert len(cluster.broker.on("state")) == 3
    cluster.broker.send("wall/bell", b"1")
    cluster.run(1)
    assert len(cluster.broker.on("state")) == 4


def test_a_node_that_ends_hands_over_at_once_and_removes_nothing(cluster):
    cluster.start("one")
    cluster.start("two")
    cluster.run(10)
    ended = cluster.now
    assert cluster.stop("one") == 0
    cluster.run(1.1)
    assert set(cluster.broker.readers(ended + 0.1)) == set(METERS)
    assert {name for names in cluster.broker.readers(ended + 0.1).values() for name in names} == {"two"}
    assert {f"house/{name}/state" for name in METERS} <= set(cluster.broker.retained)
    assert json.loads(cluster.broker.retained["house/nodes/one/status"].payload)["state"] == "offline"
    in_order(cluster.broker)


def test_the_service_manager_hears_that_a_node_ends_before_its_devices_are_handed_over(cluster, tmp_path, monkeypatch):
    manager, heard, release = NotifySocket(tmp_path / "notify"), [], MemoryStore.release

    async def hand_over(store, *leases):
        manager.listen(0.05)
        heard.append([line for _, line in manager.said])
        return await release(store, *leases)

    monkeypatch.setattr(MemoryStore, "release", hand_over)
    cluster.start("one", variables={"NOTIFY_SOCKET": str(manager.path)})
    cluster.run(10)
    cluster.stop("one")

    assert heard[0][0] == "READY=1"
    assert heard[0][-1] == "STOPPING=1"
    manager.socket.close()


def test_a_node_that_is_cut_off_from_the_engine_stops_and_comes_back(cluster, caplog):
    cluster.faults.append(Partition("one", 12.0, 30.0))
    cluster.start("one")
    cluster.start("two")
    cluster.run(12 + 1.2 * TTL)
    since = cluster.now
    cluster.run(5)
    assert {name for names in cluster.broker.readers(since).values() for name in names} == {"two"}
    assert set(cluster.broker.readers(since)) == set(METERS)
    cluster.run(20)
    since = cluster.now
    cluster.run(5)
    readers = cluster.broker.readers(since)
    assert alone(readers)
    assert {name for names in readers.values() for name in names} == {"one", "two"}
    in_order(cluster.broker)
    events = [record.fields["event"] for record in caplog.records if hasattr(record, "fields")]
    assert "engine lost" in events or "does not answer" in caplog.text


@pytest.mark.parametrize("patient", [False, True])
@pytest.mark.parametrize("cut", [Partition("one", 12.0, 40.0, answers_only=True), EngineAway(12.0, 40.0)])
def test_a_node_says_that_it_will_stop_before_it_gives_anything_up(cluster, caplog, cut, patient):
    cluster.patient = patient
    caplog.set_level("INFO", "leadsman")
    cluster.faults.append(cut)
    cluster.start("one")
    cluster.start("two")
    cluster.run(12)
    caplog.clear()
    cluster.run(2 * TTL)
    said = [record for record in caplog.records if ", one, stops in " in record.message]
    gave_up = [record for record in caplog.records if "this node, one, gives up" in record.message]
    assert len(said) == 1
    assert caplog.records.index(said[0]) < caplog.records.index(gave_up[0])
    left = float(said[0].message.partition("stops in ")[2].split()[0])
    assert 0 < left < 0.8 * TTL


@pytest.mark.parametrize("patient", [False, True])
def test_devices_of_a_node_whose_answers_alone_are_lost_are_read_by_the_other_one(cluster, patient):
    cluster.patient = patient
    cluster.faults.append(Partition("one", 12.0, 60.0, answers_only=True))
    cluster.start("one")
    cluster.start("two")
    cluster.run(12 + 1.2 * TTL)
    since = cluster.now
    cluster.run(2)
    assert cluster.broker.readers(since) == {name: {"two"} for name in METERS}
    cluster.run(50)
    since = cluster.now
    cluster.run(2)
    assert {name for names in cluster.broker.readers(since).values() for name in names} == {"one", "two"}
    assert alone(cluster.broker.readers(since))
    in_order(cluster.broker)


def test_while_the_engine_is_away_nobody_reads_and_all_comes_back_by_itself(cluster):
    cluster.faults.append(EngineAway(10.0, 600.0))
    cluster.start("one")
    cluster.start("two")
    cluster.run(10 + TTL)
    since = cluster.now
    cluster.run(100)
    assert cluster.broker.readers(since) == {}
    cluster.run(500)
    since = cluster.now
    cluster.run(3)
    assert set(cluster.broker.readers(since)) == set(METERS)
    in_order(cluster.broker)


@pytest.mark.parametrize("by", [3600.0, -3600.0])
def test_while_the_clock_of_the_engine_is_set_all_devices_stay_read(cluster, by):
    cluster.faults.append(ClockStep(12.0, by))
    cluster.start("one")
    cluster.start("two")
    cluster.run(12 + 2 * TTL)
    since = cluster.now
    cluster.run(3)
    readers = cluster.broker.readers(since)
    assert set(readers) == set(METERS)
    assert alone(readers)
    in_order(cluster.broker)


def test_readings_that_wait_for_the_broker_are_not_sent_once_another_node_has_the_device(cluster):
    cluster.faults.append(Partition("one", 12.0, 60.0))
    cluster.start("one")
    cluster.run(11)
    cluster.broker.stop()
    cluster.run(10)  # what is read meanwhile waits, and the lease ends
    cluster.start("two")
    cluster.broker.start()
    cluster.run(30)
    late = [each for each in cluster.broker.on("state", 21.0) if each.client == "house-one"]
    assert late == []
    status = json.loads(cluster.broker.retained["house/nodes/one/status"].payload)
    assert status["mqtt"]["outbox"]["dropped_by"]["fenced"] > 0
    in_order(cluster.broker)


def test_what_is_under_way_to_the_broker_when_a_lease_ends_does_not_arrive_later(cluster, monkeypatch):
    cluster.faults.append(Partition("one", 12.0, 20.0))
    cluster.start("one")
    cluster.start("two")
    cluster.run(12)
    held, arrived, receive = [], [], cluster.broker.receive

    def hold(connection, packet_id, message):
        if connection.packet.client_id == "house-one" and cluster.now < 20.0:
            held.append((connection, packet_id, message))
            return
        if connection.open and message.fence is not None:
            arrived.append((message.topic, message.fence))
        receive(connection, packet_id, message)

    monkeypatch.setattr(cluster.broker, "receive", hold)
    cluster.run(8.5)
    for each in held:
        hold(*each)
    cluster.run(20)
    newest = {}
    for topic, fence in arrived:
        assert fence >= newest.get(topic, 0)
        newest[topic] = fence
    assert any(message.topic.endswith("/state") for _, _, message in held)
    assert alone(cluster.broker.readers(cluster.now - 5))


def test_a_command_is_executed_and_answered_by_the_node_of_its_device(cluster):
    executed = []

    def register(app):
        async def switch(value: int):
            executed.append((app.client_id, value))
            return {"value": value}

        app.add_command([f"valve-{number}" for number in range(8)], switch)

    cluster.start("one", register)
    cluster.start("two", register)
    cluster.run(8)
    for number in range(8):
        cluster.broker.send(f"house/valve-{number}/set", str(number))
        cluster.broker.send(f"house/valve-{number}/hold/set")
    cluster.broker.send("house/nothing/set", "1")
    cluster.run(1)
    assert sorted(value for _, value in executed) == list(range(8))
    assert len({client for client, _ in executed}) == 2
    assert len(cluster.broker.on("set/result")) == 8


def test_sources_side_jobs_and_groups_run_once(cluster):
    running, jobs, group = set(), [], {}

    def register(app):
        async def push():
            running.add(app.client_id)
            try:
                while True:
                    yield {"t": 1}
                    await asyncio.sleep(1)
            finally:
                running.discard(app.client_id)

        async def tidy():
            jobs.append((asyncio.get_running_loop().time(), app.client_id))

        async def bus(context: Context):
            group.setdefault(context.name, set()).add(app.client_id)
            return {"t": 1}

        app.add_source("heard", push)
        app.add_periodic("tidy", tidy, interval=1)
        app.add_telemetry(METERS, bus, interval=1, group="bus")

    cluster.start("one", register)
    cluster.start("two", register)
    cluster.run(8.2)
    jobs.clear()
    group.clear()
    cluster.run(3)
    assert len(running) == 1
    assert len(jobs) == 3
    assert len({client for _, client in jobs}) == 1
    assert len({client for clients in group.values() for client in clients}) == 1
    last = running.copy()
    cluster.stop(last.pop().removeprefix("house-"))
    cluster.run(2)
    assert len(running) == 1


def test_a_device_is_read_where_its_label_is_and_a_missing_label_is_said(cluster, caplog):
    def register(app):
        async def over_air(port: Port):
            assert port.opened
            return {"t": 1}

        app.add_telemetry("heart", over_air, interval=1, needs="ble")
        app.add_telemetry("gas", read, interval=1, needs=["serial:/dev/gas"])

    one, two = Port(), Port()
    cluster.start("one", register, ports=(one,))
    cluster.start("two", register, ports=(two,), labels=["ble"])
    cluster.run(10)
    assert cluster.broker.readers(0) == {"heart": {"two"}}
    assert (one.opened, two.opened) == (False, True)
    assert "no node has what 1 device: gas needs: serial:/dev/gas" in caplog.text
    cluster.start("three", register, ports=(Port(),), labels=["serial:/dev/gas"])
    cluster.run(10)
    assert cluster.broker.readers(0) == {"heart": {"two"}, "gas": {"three"}}


def test_devices_that_a_handler_finds_go_where_it_goes(cluster):
    def register(app):
        async def listen(context: Context):
            context.device("sensor").publish({"t": 1})
            return {"t": 0}

        app.add_telemetry("gateway", listen, interval=1, finds=Finds())

    cluster.start("one", register)
    cluster.start("two", register)
    cluster.run(8)
    since = cluster.now
    cluster.run(3)
    before = cluster.broker.readers(since)
    assert set(before) == {"gateway", "sensor"}
    assert before["gateway"] == before["sensor"]
    (owner,) = before["gateway"]
    cluster.stop(owner)
    cluster.run(3)
    assert "house/sensor/state" in cluster.broker.retained
    assert cluster.broker.readers(cluster.now - 2)["sensor"] == {"one", "two"} - {owner}
    assert all(each.fence for each in cluster.broker.on("sensor/state"))
    in_order(cluster.broker)


def test_a_forgotten_device_that_the_next_node_finds_keeps_its_topics(cluster):
    forgotten_by = []

    def register(app):
        async def listen(context: Context):
            sensor = context.device("sensor")
            sensor.publish({"t": 1})
            if cluster.now >= 10.0 and not forgotten_by:
                forgotten_by.append(context)
                sensor.forget()

        app.add_telemetry("gateway", listen, interval=1, finds=Finds())

    discovery = {"discovery": "homeassistant"}
    for name in ("one", "two"):
        cluster.start(name, register, app=discovery)
    cluster.run(8)
    (owner,) = cluster.broker.readers(5.0)["sensor"]
    while not forgotten_by:
        cluster.run(0.1)
    cluster.broker.send(f"house/nodes/{owner}/drain", b'{"drain": true}')
    cluster.run(20)
    assert cluster.broker.readers(cluster.now - 5)["sensor"] == {"one", "two"} - {owner}
    assert {"house/sensor/availability", "house/sensor/state"} <= set(cluster.broker.retained)
    assert all(each.payload for each in cluster.broker.on("sensor/state"))


def test_a_device_that_only_the_new_version_knows_is_read_by_that(cluster):
    def new(app):
        meters(app)
        app.add_telemetry("new", read, interval=1)

    cluster.start("one")
    cluster.start("two", new)
    cluster.run(4 * TTL)  # one that the quotas of nobody have is left over for two of these
    since = cluster.now
    cluster.run(3)
    readers = cluster.broker.readers(since)
    assert set(readers) == {*METERS, "new"}
    assert readers["new"] == {"two"}
    assert alone(readers)


def test_another_number_of_shards_ends_the_app_with_the_reason(cluster):
    cluster.start("one")
    cluster.run(3)
    cluster.start("two", shards=64)
    _, task = cluster.nodes.pop("two")
    with pytest.raises(Stopped, match="shards is 64 here, and 256 in"):
        cluster.loop.run_until_complete(task)


def test_credentials_that_may_not_write_end_the_app_with_the_reason(cluster, monkeypatch):
    class Refusing:
        async def __aenter__(self):
            raise LeaseStoreRefused("the user may not write to the bucket; permit it")

        async def __aexit__(self, *exc_info):
            raise AssertionError("it was never entered")

    monkeypatch.setattr("leadsman.extensions.nodes.cluster.cluster.JetStreamStore", lambda *_: Refusing())
    cluster.start("one")
    _, task = cluster.nodes.pop("one")
    with pytest.raises(Stopped, match="the user may not write to the bucket; permit it"):
        cluster.loop.run_until_complete(task)


def test_after_a_fault_of_ours_a_node_begins_again(cluster, monkeypatch):
    begin, faults = Shards.begin, iter([RuntimeError("a fault of ours")])

    def fail_once(self, *shard):
        for fault in faults:
            raise fault
        begin(self, *shard)

    monkeypatch.setattr(Shards, "begin", fail_once)
    cluster.start("one")
    cluster.run(10)
    assert set(cluster.broker.readers(9.0)) == set(METERS)
    faults = [json.loads(each.payload) for each in cluster.broker.on("nodes/one/error")]
    assert [(each["where"], each["message"]) for each in faults] == [("the cluster", "a fault of ours")]
    in_order(cluster.broker)


@pytest.mark.parametrize("error", [ZeroDivisionError(), SystemExit(3), asyncio.CancelledError()], ids=repr)
def test_who_follows_the_shards_and_raises_costs_no_shard_and_not_the_next_one(cluster, monkeypatch, error):
    start, told = ClusterReport.start, []

    def follow():
        raise error

    def start_after(self):
        self._cluster.on_change.add(follow)
        self._cluster.on_change.add(lambda: told.append(len(self._cluster.owned)))
        start(self)

    monkeypatch.setattr(ClusterReport, "start", start_after)
    cluster.start("one")
    cluster.run(10)
    faults = [json.loads(each.payload)["where"] for each in cluster.broker.on("nodes/one/error")]
    assert set(cluster.broker.readers(9.0)) == set(METERS)
    assert told[-1] > 0
    assert faults
    assert all(each.startswith(f"a change of the cluster, {__name__}.test_who_follows") for each in faults)


def test_after_a_fault_of_ours_a_node_still_says_that_the_engine_is_lost(cluster, monkeypatch, caplog):
    look, faults = Cluster._look_for_labels, iter([RuntimeError("a fault of ours")])

    def fail_once(self):
        for fault in faults:
            raise fault
        look(self)

    monkeypatch.setattr(Cluster, "_look_for_labels", fail_once)
    cluster.faults.append(EngineAway(20.0, 30.0))
    cluster.start("one")
    cluster.run(30)
    faults = [json.loads(each.payload) for each in cluster.broker.on("nodes/one/error")]
    assert [(each["where"], each["message"]) for each in faults] == [("watching the cluster", "a fault of ours")]
    assert "does not answer; this node, one, stops" in caplog.text


def test_a_call_that_outlives_the_hand_over_of_its_device_says_nothing_of_it_any_more(cluster, caplog):
    calls = []

    async def stubborn():
        calls.append(None)
        end = cluster.now + (4.0 if len(calls) <= len(METERS) else 0.0)
        while cluster.now < end:
            try:
                await asyncio.sleep(end - cluster.now)
            except asyncio.CancelledError:
                continue
        return {"t": 1}

    def register(app):
        app.add_telemetry(METERS, stubborn, interval=5, timeout=10)

    cluster.start("one", register)
    cluster.run(2.0)
    cluster.start("two", register)
    cluster.run(10.0)
    since = cluster.now
    cluster.run(10.0)
    readers = cluster.broker.readers(since)
    assert alone(readers)
    assert {name for names in readers.values() for name in names} == {"one", "two"}
    assert len(cluster.broker.on("state")) < len(calls), "what was read too late is not sent"
    assert not [each for each in caplog.records if each.exc_info]
    in_order(cluster.broker)


def test_a_lease_that_a_person_deletes_moves_or_comes_back_with_a_new_token(cluster):
    cluster.start("one")
    cluster.run(5)
    before = {each.topic: each.fence for each in cluster.broker.on("state")}
    for key in [*cluster.engine.table.snapshot(cluster.now).leases]:
        cluster.loop.call_soon(cluster.engine.delete, key)
    cluster.run(TTL)
    since = cluster.now
    cluster.run(3)
    after = {each.topic: each.fence for each in cluster.broker.on("state", since)}
    assert after.keys() == before.keys()
    assert all(after[topic] > before[topic] for topic in before)
    in_order(cluster.broker)


def test_the_next_node_describes_its_devices_to_home_assistant_with_its_own_status(cluster):
    options = {"app": {"discovery": "homeassistant"}}
    cluster.start("one", **options)
    cluster.start("two", **options)
    cluster.run(15)

    def nodes():
        """The status topic in the description of each device."""
        found = {}
        for topic, kept in cluster.broker.retained.items():
            if topic.startswith("homeassistant/device/house/meter-"):
                found[topic.split("/")[3]] = kept.json["avty"][0]["t"].split("/")[2]
        return found

    assert sorted(nodes()) == sorted(METERS)
    assert set(nodes().values()) == {"one", "two"}
    apps = [topic for topic in cluster.broker.retained if topic.startswith("homeassistant/device/house/leadsman_app--")]
    assert len(apps) == 2
    cluster.stop("one")
    cluster.run(10)
    assert set(nodes().values()) == {"two"}
    assert sorted(nodes()) == sorted(METERS)
    cluster.start("one", **options)
    cluster.run(15)
    assert set(nodes().values()) == {"one", "two"}
    assert sorted(nodes()) == sorted(METERS)


def test_the_failure_state_of_a_device_travels_if_it_is_kept(cluster):
    calls = {}

    def register(app):
        async def fail():
            calls.setdefault(app.client_id, []).append(asyncio.get_running_loop().time())
            raise OSError("the meter is away")

        app.add_telemetry("meter", fail, interval=1, on_failure="hold")
        app.add_telemetry("boiler", fail, interval=1, circuit_breaker=CircuitBreaker(2, recovery=3600))

    for name in ("one", "two"):
        cluster.start(name, register, app={"keep_state": True})
    cluster.run(12)
    calls.clear()
    for name in ("one", "two", "one"):
        cluster.stop(name)
        cluster.run(3)
        cluster.start(name, register, app={"keep_state": True})
        cluster.run(3)
    assert calls == {}  # the one is held, and the circuit of the other one is open
    words = [each.payload for each in cluster.broker.on("meter/availability")]
    assert words[-1] == b"offline"
    assert b"online" not in words[3:]
    errors = [json.loads(each.payload)["event"] for each in cluster.broker.on("meter/error")]
    assert errors == ["onset"]
    in_order(cluster.broker)


def test_the_failure_state_is_there_again_after_a_broker_has_forgotten_it(cluster):
    calls = []

    def register(app):
        async def fail():
            calls.append(app.client_id)
            raise OSError("the meter is away")

        app.add_telemetry("meter", fail, interval=1, on_failure="hold")

    cluster.start("one", register, app={"keep_state": True})
    cluster.run(5)
    cluster.broker.stop(forget=True)
    cluster.run(1)
    cluster.broker.start()
    cluster.run(10)
    cluster.stop("one")
    cluster.start("two", register, app={"keep_state": True})
    cluster.run(5)
    assert calls == ["house-one"]  # the other node has heard that the device is held


def test_a_node_of_another_engine_below_the_same_prefix_is_said(cluster, caplog):
    cluster.start("one")
    cluster.start("two")
    cluster.run(60)
    assert json.loads(cluster.broker.retained["house/nodes/one/status"].payload)["mqtt"]["last_error"] is None
    first, cluster.engine = cluster.engine, None
    cluster.start("other")
    cluster.run(60)
    cluster.engine, second = first, cluster.engine
    assert "the node 'other' publishes below 'house/', and our engine does not know it" in caplog.text
    cluster.stop("other")
    assert second is not None
    cluster.run(40)
    assert json.loads(cluster.broker.retained["house/nodes/one/status"].payload)["mqtt"]["last_error"] is None


def test_an_app_that_is_no_node_below_the_same_prefix_is_said(cluster, caplog):
    cluster.start("one")
    cluster.run(5)
    cluster.broker.send("house/status", {"state": "online", "client_id": "house"})
    cluster.run(1)
    assert "another app publishes below 'house/'" in caplog.text


@pytest.mark.parametrize("first_gone", ["app", "node"])
def test_an_app_and_a_node_of_another_engine_are_each_said_until_it_is_gone(cluster, first_gone):
    def last_error():
        return json.loads(cluster.broker.retained["house/nodes/one/status"].payload)["mqtt"]["last_error"]

    def app(state):
        cluster.broker.send("house/status", {"state": state, "client_id": "house"})
        cluster.run(5)

    cluster.start("one")
    cluster.run(10)
    engine, cluster.engine = cluster.engine, None
    cluster.start("other")
    cluster.run(60)
    cluster.engine = engine
    assert "the node 'other'" in last_error()
    app("online")
    assert "the node 'other'" in last_error(), "what was found first is shown"
    if first_gone == "app":
        app("offline")
        assert "the node 'other'" in last_error()
        cluster.stop("other")
        cluster.run(5)
    else:
        cluster.stop("other")
        cluster.run(5)
        assert "its client id is 'house'" in last_error()
        app("offline")

    assert last_error() is None


def test_one_access_list_is_enough_for_all_nodes(cluster):
    def register(app):
        meters(app)
        app.add_command("valve", read)

    for name in ("one", "two"):
        cluster.start(name, register, app={"keep_state": True})
    cluster.run(8)
    cluster.broker.send("house/nodes/one/introspect", "{}")
    cluster.broker.send("house/valve/set", "")
    cluster.run(2)
    lists = []
    for name in ("one", "two"):
        app = App("house", keep_state=True)
        register(app)
        lists.append(access_of(app, cluster__engine="nats://memory", cluster__node=name))
    assert lists[0] == lists[1]
    publish, subscribe = lists[0]
    assert [
        each.topic for each in cluster.broker.sent if not any(topic_matches(to, each.topic) for to in publish)
    ] == []
    heard = {each for connection in cluster.broker._clients.values() for each in connection.filters}
    assert [each for each in heard if not any(topic_matches(to, each) for to in subscribe)] == []


def test_a_shared_circuit_stays_in_one_process(cluster):
    clients = set()

    def register(app):
        async def read_hub():
            clients.add(app.client_id)
            return {"t": 1}

        circuit = CircuitBreaker(threshold=3, shared="hub")
        app.add_telemetry(METERS, read_hub, interval=1, circuit_breaker=circuit)

    cluster.start("one", register)
    cluster.start("two", register)
    cluster.run(8)
    clients.clear()
    cluster.run(3)
    assert len(clients) == 1


def test_a_poll_that_the_app_asks_for_is_made_by_the_node_that_has_the_device(cluster):
    one, two = cluster.start("one"), cluster.start("two")
    cluster.run(10)
    since = cluster.now
    for app in (one, two):
        app.poll("meter-3")
    cluster.run(0.3)
    assert len(cluster.broker.on("meter-3/state", since)) in (1, 2)  # one of them may be on schedule
    with pytest.raises(Exception, match="there is no device 'boiler'"):
        one.poll("boiler")


def test_the_terms_are_those_of_the_settings(cluster):
    cluster.start("one")
    cluster.run(1)
    assert cluster.engine.terms == Terms("house", ttl=TTL, shards=256)
