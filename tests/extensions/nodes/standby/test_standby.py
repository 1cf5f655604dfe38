"""Two apps in one loop, at one broker in memory: two nodes in virtual time."""

import asyncio
import contextlib
import itertools
import json
import logging

import pytest
from pydantic import TypeAdapter

from leadsman import App, CircuitBreaker, Median, Rate
from leadsman.core.monitoring.document import Status
from leadsman.core.settings.sources import Where
from leadsman.extensions.nodes.brief import Brief
from leadsman.extensions.watchdog.watchdog import Notifier
from leadsman.testing import MemoryBroker

TTL = 6.0


class Broker(MemoryBroker):
    """A broker in memory that passes lease and status on to its subscribers."""

    def take(self, connection, packet_id, message):
        if message.topic == "house/lease" or message.topic.startswith("house/nodes/"):
            self.receive(connection, packet_id, message)  # before a DISCONNECT that follows it
        else:
            super().take(connection, packet_id, message)

    def receive(self, connection, packet_id, message):
        super().receive(connection, packet_id, message)
        if not connection.open:
            return
        if message.topic.endswith(("/lease", "/status", "/resilience")):
            self.send(message.topic, message.payload)
        elif message.topic.startswith("house/nodes/"):
            self.send(message.topic, message.payload, retain=message.retain)


class Port:
    """An adapter that counts how often it was opened and closed."""

    def __init__(self):
        self.opened = self.closed = 0

    async def __aenter__(self):
        self.opened += 1
        return self

    async def __aexit__(self, *exc_info):
        self.closed += 1


class Node:
    """One app, and what happened to it."""

    def __init__(self, loop, broker, directory, device="meter", filters=None, layout="json", **options):
        self.port, self.polls, self.entered, self.left = Port(), [], 0, 0
        self.loop = loop
        self.works, self.counts, self.fields = True, filters is not None, {"t": 1}
        self.app = App("house", mqtt="mqtt://broker", adapters=(self.port,), lifespan=self.lifespan, **options)
        self.app.load(Where.nowhere({"standby.enabled": "true", "standby.ttl": TTL}))
        breaker = CircuitBreaker(3, recovery=3600)
        options = {"filters": filters, "layout": layout}
        self.app.add_telemetry(device, self.read, interval=1, circuit_breaker=breaker, **options)
        self.task = loop.create_task(self.app.serve(broker.connect, environment={"STATE_DIRECTORY": str(directory)}))

    async def read(self, port: Port) -> dict:
        self.polls.append(self.loop.time())
        if not self.works:
            raise OSError("the meter is away")
        return {"t": self.loop.time() / 7} if self.counts else self.fields

    @contextlib.asynccontextmanager
    async def lifespan(self, app):
        self.entered += 1
        yield
        self.left += 1


@pytest.fixture
def start(loop, tmp_path):
    nodes = []

    def start(broker, **options):
        nodes.append(Node(loop, broker, tmp_path / str(len(nodes)), **options))
        return nodes[-1]

    yield start
    for node in nodes:
        node.app.stop()
    loop.run_until_complete(asyncio.gather(*[node.task for node in nodes]))


@pytest.fixture
def run(loop):
    return lambda seconds: loop.run_until_complete(asyncio.sleep(seconds))


@pytest.fixture
def broker():
    """A broker at which the app has said goodbye."""
    broker = Broker()
    broker.retained["house/status"] = _Retained(json.dumps({"state": "offline"}).encode())
    return broker


class _Retained:
    def __init__(self, payload):
        self.payload = payload


def lease(token):
    return {"owner": "other", "token": token, "ttl_s": TTL, "sent": 1.0}


def test_a_node_takes_over_at_once_where_the_app_has_said_goodbye(start, run, broker):
    node = start(broker)

    run(2)

    assert node.polls
    assert node.entered == node.port.opened == 1


def test_at_a_broker_that_knows_nothing_a_node_waits_for_the_ttl(start, run):
    node = start(Broker())

    run(TTL - 1)
    assert not node.polls
    assert node.entered == node.port.opened == 0, "nothing of the app runs before"
    run(0.5 * TTL + 1)

    assert node.polls


def test_the_second_node_polls_when_the_first_one_stops(start, run, broker):
    first = start(broker)
    run(2)
    second = start(broker)
    run(3 * TTL)
    assert not second.polls

    first.app.stop()
    run(1.5)

    assert second.polls
    assert second.polls[0] > first.polls[-1]
    assert first.left == first.port.closed == 1


def test_a_node_that_hears_of_another_owner_stops_polling_and_comes_back_later(start, run, broker, caplog):
    node = start(broker)
    run(3)

    broker.send("house/lease", lease(2**52), retain=True)
    run(2)
    polled = len(node.polls)
    run(0.5 * TTL)

    assert len(node.polls) == polled
    assert node.left == node.port.closed == 1
    assert "stops polling, and stands by: other has taken over" in caplog.text
    run(TTL)
    assert len(node.polls) > polled, "the other one renews nothing"
    assert node.entered == node.port.opened == 2


def test_a_node_that_hears_of_another_owner_in_the_moment_of_its_takeover_comes_back_later(start, run, broker, caplog):
    caplog.set_level(logging.INFO, "leadsman")
    rivals = iter([lease(2**52)])

    def rival(record):
        """Another node is quicker: its lease comes before the app can begin here."""
        if "takes over with the token" in record.getMessage() and (other := next(rivals, None)):
            broker.send("house/lease", other, retain=True)
        return True

    with caplog.filtering(rival):
        node = start(broker)
        run(2)
    assert "other has taken over" in caplog.text
    assert node.entered == node.port.opened == 0

    run(2 * TTL)

    assert node.polls, "the other one renews nothing"


def test_a_broker_that_returns_no_lease_is_named_and_nothing_is_polled(start, run, caplog):
    broker = MemoryBroker()  # as with an access list that forbids the topic
    broker.retained["house/status"] = _Retained(b'{"state":"offline"}')
    node = start(broker)

    run(1.5 * TTL)

    assert not node.polls
    assert "the broker has not returned the lease within 6 s" in caplog.text


def test_a_lease_that_somebody_deletes_is_published_again(start, run, broker):
    node = start(broker)
    run(2)

    broker.send("house/lease", b"")
    run(0.1)

    assert json.loads(broker.messages("house/lease")[-1].payload)["owner"]
    run(2 * TTL)
    assert node.entered == 1


def test_a_lease_of_another_node_that_somebody_deletes_lets_nobody_act_before_the_ttl(start, run, broker):
    broker.retained["house/lease"] = _Retained(json.dumps(lease(7)).encode())
    broker.retained["house/status"] = _Retained(b'{"state":"online"}')
    node = start(broker)
    run(TTL - 1)

    del broker.retained["house/lease"]
    broker.send("house/lease", b"")
    run(TTL - 0.5)
    assert not node.polls
    run(0.5 * TTL)

    assert node.polls


def test_a_broker_that_is_away_longer_than_the_ttl_stops_the_polls_until_it_is_back(start, run, broker):
    node = start(broker)
    run(3)
    broker.stop()
    run(TTL + 1)
    polled = len(node.polls)
    run(TTL)
    assert len(node.polls) == polled

    broker.start()
    run(3)

    assert len(node.polls) > polled


@pytest.mark.parametrize("away", [0.3, 0.6, 2.0])
def test_a_broker_that_comes_and_goes_is_no_second_client_and_costs_no_takeover(start, run, broker, caplog, away):
    owner = start(broker)
    run(5)
    other = start(broker)
    run(15)

    for _ in range(8):
        broker.stop()
        run(away)
        broker.start()
        run(3)
    run(10)

    assert "another client" not in caplog.text
    assert "stops polling" not in caplog.text
    assert max(after - before for before, after in itertools.pairwise(owner.polls)) < 1.5
    assert (owner.entered, other.entered) == (1, 0)


def test_garbage_at_the_lease_changes_nothing(start, run, broker):
    node = start(broker)
    run(2)

    for payload in (b"\xff", b"[" * 5000, b"1", b'{"owner": 1}', json.dumps(lease(-1)).encode()):
        broker.send("house/lease", payload)
    polled = len(node.polls)
    run(2 * TTL)

    assert len(node.polls) > polled + TTL
    assert node.entered == 1


def test_what_happens_is_in_the_log(start, run, broker, caplog):
    caplog.set_level(logging.INFO, "leadsman")
    start(broker)
    run(2)
    start(broker)
    run(2)

    for words in ("shares the app with others", "takes over with the token", "is active", "stands by for"):
        assert words in caplog.text


@pytest.mark.parametrize(
    ("device", "name", "topic"),
    [("meter", "meter", "house/meter/resilience"), (None, "house", "house/resilience")],
    ids=["a device", "the root device"],
)
def test_the_failure_state_of_a_device_is_taken_over_with_keep_state(start, run, broker, device, name, topic):
    first = start(broker, keep_state=True, device=device)
    first.works = False
    run(10)
    assert len(first.polls) == 3, "then its circuit opened"
    shared = json.loads(broker.retained[topic].payload)
    assert shared["execution"]["circuit"][0] == "open", "also if it dies now"
    second = start(broker, keep_state=True, device=device)
    second.works = False
    run(2)

    first.app.stop()
    run(30)

    assert not second.polls
    assert json.loads(broker.messages("house/status")[-1].payload)["devices"][name]["circuit"] == "open"


@pytest.mark.parametrize(
    ("device", "below"), [("meter", "house/meter/"), (None, "house/")], ids=["a device", "the root device"]
)
def test_the_next_node_removes_the_values_that_are_gone_and_leaves_the_failure_state(start, run, broker, device, below):
    first = start(broker, keep_state=True, device=device, layout="fields")
    run(3)
    first.works = False
    run(10)
    second = start(broker, keep_state=True, device=device, layout="fields")
    second.fields = {"power": 5}
    run(2)
    assert broker.retained[f"{below}t"].payload == b"1"

    first.app.stop()
    run(3620)

    assert broker.retained[f"{below}power"].payload == b"5"
    assert f"{below}t" not in broker.retained
    assert all(each.payload for each in broker.messages(f"{below}resilience"))
    (listed,) = json.loads(broker.retained["house/registry"].payload)["devices"].values()
    assert listed["others"] == [f"{below}power", f"{below}resilience"]


def test_a_counter_of_long_ago_makes_no_rate_at_the_next_node(start, run, broker):
    first = start(broker, keep_state=True, filters={"t": [Rate(1)]})
    run(5)
    first.works = False
    run(2)
    first.works = True
    run(1000)
    start(broker, keep_state=True, filters={"t": [Rate(1)]})
    run(2)

    first.app.stop()
    run(30)

    rates = [json.loads(each.payload)["t"] for each in broker.messages("house/meter/state")]
    assert max(each for each in rates if each is not None) == pytest.approx(1 / 7)


def test_filters_with_a_long_state_leave_room_for_the_failure_state(start, run, broker):
    first = start(broker, keep_state=True, filters={"t": [Median(1001)]})
    run(1100)
    first.works = False
    run(10)

    assert len(broker.retained["house/meter/resilience"].payload) < 1000


def test_the_failure_state_is_there_again_after_a_broker_has_forgotten_it(start, run, broker):
    first = start(broker, keep_state=True)
    first.works = False
    run(10)
    broker.stop(forget=True)
    run(1)
    broker.start()
    run(30)

    assert json.loads(broker.retained["house/meter/resilience"].payload)["execution"]["circuit"][0] == "open"


def test_without_keep_state_a_device_begins_from_zero(start, run, broker):
    first = start(broker)
    first.works = False
    run(10)
    second = start(broker)
    second.works = False
    run(2)

    first.app.stop()
    run(30)

    assert len(second.polls) == 3


@pytest.mark.parametrize(
    "payload", [b"\xff", b"{}", b"[" * 9000, b'{"execution":{"streak":{"wall":1e308}}}', b"x" * 20_000]
)
def test_a_damaged_failure_state_costs_only_itself(start, run, broker, payload):
    broker.retained["house/meter/resilience"] = _Retained(payload)
    node = start(broker, keep_state=True)

    run(3)

    assert node.polls


def test_a_node_that_stands_by_publishes_no_discovery(start, run, broker):
    first = start(broker, discovery="homeassistant")
    run(5)
    tree = [each for each in broker.retained if each.startswith("homeassistant/")]
    described = len([each for each in broker.log if each.topic in tree])
    second = start(broker, discovery="homeassistant")
    run(3 * TTL)
    assert tree
    assert not second.polls
    assert [packet.client_id for _, packet in broker.connects].count("house") == 1
    assert len([each for each in broker.log if each.topic in tree]) == described

    first.app.stop()
    run(5)

    assert second.polls
    assert json.loads(broker.retained["house/status"].payload)["state"] == "online"
    assert broker.retained["house/meter/availability"].payload == b"online"
    assert [each for each in broker.retained if each.startswith("homeassistant/")] == tree


def test_the_service_manager_hears_of_a_node_that_takes_over_until_it_is_active(start, run, monkeypatch):
    said = []
    broker = MemoryBroker()  # it returns no lease, so that taking over lasts for the TTL
    broker.retained["house/status"] = _Retained(b'{"state":"offline"}')

    class Heard:
        watchdog = 1.0

        def send(self, *lines):
            said.extend(lines)

        def close(self):
            pass

    monkeypatch.setattr(Notifier, "from_environment", lambda environment: Heard())
    start(broker)

    run(TTL)

    assert said.count("STATUS=takes over") >= 2 * (TTL - 1)
    assert said.count("WATCHDOG=1") >= 2 * (TTL - 1)


def document_of(broker, state):
    """The newest document of the only node that is in a state."""
    found = [json.loads(each.payload) for topic, each in broker.retained.items() if topic.count("/nodes/")]
    (document,) = [each for each in found if each["state"] == state]
    return document


def ask(broker, run, node, **request):
    """Ask a node, and return its answer."""
    broker.send(f"house/nodes/{node}/drain", request)
    run(0.05)
    return json.loads(broker.messages(f"house/nodes/{node}/drain/response")[-1].payload)


def test_each_node_says_what_it_is_and_the_owner_what_it_owns(start, run, broker):
    start(broker)
    run(2)
    start(broker)
    run(2)

    owner, other = document_of(broker, "active"), document_of(broker, "standby")

    assert (
        owner["owner"] == other["owner"] == owner["node"] == json.loads(broker.retained["house/lease"].payload)["owner"]
    )
    assert owner["devices"] == ["meter"]
    assert other["devices"] == []
    assert (owner["ttl_s"], owner["handovers"]["takeovers"]) == (TTL, 1)
    assert "token" not in other
    broker.send("house/introspect", {"sections": ["app"]})
    run(TTL + 30)
    status = json.loads(broker.messages("house/status")[-1].payload)
    assert status["nodes"] == {"active": 1, "standby": 1}
    nodes = json.loads(broker.messages("house/introspect/response")[-1].payload)["data"]["app"]["nodes"]
    assert [each["node"] for each in nodes] == sorted([owner["node"], other["node"]])
    assert {each["state"]: each["devices"] for each in nodes} == {"active": 1, "standby": 0}
    TypeAdapter(list[Brief]).validate_python(nodes)
    TypeAdapter(Status).validate_python(status)


def test_a_node_that_ends_takes_its_document_away_and_its_will_does_so_if_it_dies(start, run, broker):
    first = start(broker)
    run(2)
    start(broker)
    run(2)
    node = document_of(broker, "active")["node"]
    wills = {packet.will_topic: packet for _, packet in broker.connects}
    assert wills[f"house/nodes/{node}"].will_payload == b""
    assert wills[f"house/nodes/{node}"].will_retained

    first.app.stop()
    run(2)

    assert document_of(broker, "active")["node"] != node
    assert f"house/nodes/{node}" not in broker.retained


def test_an_owner_that_drains_hands_over_at_once_and_takes_nothing_until_it_is_undone(start, run, broker, caplog):
    caplog.set_level(logging.INFO, "leadsman")
    first = start(broker)
    run(2)
    second = start(broker)
    run(2)
    node = document_of(broker, "active")["node"]

    answer = ask(broker, run, node, drain=True, by="anna@desk")
    run(2)

    assert answer["data"] == {"node": node, "draining": True, "state": "draining", "without_node": []}
    assert second.polls
    assert second.polls[0] > first.polls[-1]
    assert first.left == first.port.closed == 1
    assert document_of(broker, "draining")["devices"] == []
    assert (
        f"{node}, hands over its devices, and accepts none until undrain or a restart, asked by anna@desk"
        in caplog.text
    )
    second.app.stop()
    polled = len(first.polls)
    run(5 * TTL)
    assert len(first.polls) == polled
    ask(broker, run, node, drain=False)
    run(2)
    assert len(first.polls) > polled
    assert document_of(broker, "active")["handovers"]["takeovers"] == 2
    assert first.entered == first.port.opened == 2


def test_the_last_node_that_drains_says_what_stays_without_a_node(start, run, broker):
    first = start(broker)
    run(2)

    answer = ask(broker, run, document_of(broker, "active")["node"], drain=True)
    run(5 * TTL)

    assert answer["data"]["without_node"] == [{"needs": [], "devices": 1}]
    assert len(first.polls) <= 3
    assert document_of(broker, "draining")["owner"] is None


def test_a_broker_that_refuses_the_topics_of_nodes_does_not_keep_a_node_from_taking_over(start, run, broker, caplog):
    broker.refuse_subscriptions.add("house/nodes/+")
    node = start(broker)

    run(2)

    assert node.polls
    assert "the nodes are not observed" in caplog.text
