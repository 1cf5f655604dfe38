"""The door over MQTT: what is sent where, and when pages wait. Whole apps have theirs in `tests/integration`."""

import itertools
import json
from types import SimpleNamespace

import pytest

from leadsman import App, Received
from leadsman.errors import PollRefused
from leadsman.introspection.mqtt_door import EXPIRY, MqttDoor
from leadsman.introspection.registry import About, DeviceRegistry, declared
from leadsman.introspection.registry_publication import MOST_WAITING, PAUSE
from leadsman.introspection.request_queue import RequestQueue
from leadsman.introspection.sections import Parts, Sections
from leadsman.introspection.service import MOST_AT_ONCE, MOST_UNDER_WAY, PollResult, Service
from leadsman.loop.clock import Clock
from leadsman.mqtt.answers import MOST_WARNED
from leadsman.mqtt.topics import Topics

DEVICES = 2000
TOPICS = Topics("house")


async def read(): ...


class Kept:
    """Keeps the works that make answers, instead of doing them. Requests have their turn at once."""

    def __init__(self):
        self.works = []

    def begin(self, where, work):
        if where == "introspection":
            self.works.append(work)
        else:
            list(work)


class Asked:
    """A door that is asked by hand, at a time that the test sets. The devices behind it do not run."""

    def __init__(self, devices=DEVICES):
        app = App("house")
        app.add_telemetry([f"d{number}" for number in range(devices)], read, interval=60)
        self.now, self.sent, self.slices = 0.0, [], Kept()
        self.outbox = SimpleNamespace(bytes=0, expects_answers=True)
        self.link = SimpleNamespace(maximum_packet_size=None, connects=1, outbox=self.outbox, put=self.sent.append)
        clock = Clock(lambda: self.now, lambda: self.now)
        about, devices = About("house", "1", "1", TOPICS, "house"), declared(app.telemetries, {}, {})
        service = Service(
            DeviceRegistry(about, devices, {}, health=False),
            Parts(
                records=SimpleNamespace(entities={}),
                ledgers=(),
                link=self.link,
                runners=SimpleNamespace(readers={}),
                poll=None,
                adapters=(),
                traces=[],
                state_files={},
                statuses=None,
                ready=None,
            ),
            SimpleNamespace(clock=clock, timers=SimpleNamespace(origin=0.0)),
        )
        queue = RequestQueue(self.slices, clock, self.outbox)
        self.door = MqttDoor(service, TOPICS, self.link, clock, self.slices, queue)

    def send(self, **request):
        payload = json.dumps({"sections": ["devices"], **request}).encode()
        self.door.on_introspect(Received("house/introspect", payload, False, "house/me", b"1"))

    def ask(self, **request):
        self.send(**request)
        return self.slices.works[-1]

    @property
    def answers(self):
        return [json.loads(message.payload) for message in self.sent]


def test_a_document_of_few_devices_is_one_message_made_at_once():
    asked = Asked(devices=1)

    assert list(asked.ask()) == []
    assert len(asked.sent) == 1


def test_a_large_document_has_every_device_on_one_of_its_pages():
    asked = Asked()
    list(asked.ask())

    assert sum(len(answer["data"]["devices"]) for answer in asked.answers) == DEVICES


def test_one_page_is_sent_in_one_turn_of_the_loop():
    asked = Asked()
    sent = [0]
    for _ in asked.ask():
        sent.append(len(asked.sent))

    assert asked.answers[-1]["pages"] == len(asked.sent) > 3
    assert max(after - before for before, after in itertools.pairwise(sent)) == 1


def test_the_pages_of_an_answer_wait_for_room_and_are_given_up_with_their_receiver():
    asked = Asked()
    work = asked.ask()
    while len(asked.sent) < 2:
        next(work)
    asked.outbox.bytes = MOST_WAITING + 1
    assert [next(work) for _ in range(5)][1:] == [PAUSE] * 4
    assert len(asked.sent) == 2
    asked.now += EXPIRY

    assert [pause for pause in work if pause != PAUSE] == []
    assert len(asked.sent) == 2
    assert {message.expires for message in asked.sent} == {EXPIRY}


def test_the_pages_go_on_once_there_is_room():
    asked = Asked()
    work = asked.ask()
    while not asked.sent:
        next(work)
    asked.outbox.bytes = MOST_WAITING + 1
    for _ in range(5):
        next(work)
    asked.outbox.bytes = 0
    list(work)

    assert len(asked.sent) == asked.answers[0]["pages"]


def test_an_answer_that_is_given_up_makes_room_for_the_next_one():
    asked = Asked()
    works = [asked.ask() for _ in range(MOST_AT_ONCE)]
    for work in works:
        next(work)
    asked.send()
    assert "ask again" in asked.answers[-1]["error"]
    works[0].close()

    assert next(asked.ask()) == 0


def test_ten_thousand_requests_at_once_are_all_answered_and_few_answers_wait():
    asked, waiting = Asked(devices=1), []

    def begin(where, work):
        if where != "introspection":
            list(work)
        elif next(work, None) is not None:
            waiting.append(work)

    asked.slices.begin = begin
    asked.outbox.bytes = MOST_WAITING + 1  # the broker takes nothing for the moment
    for number in range(10_000):
        asked.send(transaction=number)
    assert len(waiting) == MOST_UNDER_WAY
    asked.outbox.bytes = 0
    for work in waiting:
        list(work)

    answers = asked.answers
    assert sorted(answer["transaction"] for answer in answers) == list(range(10_000))
    refused = [answer["error"] for answer in answers if answer["status"] == "error"]
    assert len(refused) == 10_000 - MOST_UNDER_WAY
    assert all("ask again" in error for error in refused)


def test_requests_of_all_kinds_wait_for_room_and_those_that_waited_too_long_are_refused_with_their_transaction():
    asked, works = Asked(devices=1), []
    asked.slices.begin = lambda where, work: works.append(work) if where == "requests over MQTT" else list(work)
    requests = {
        "house/introspect": asked.door.on_introspect,
        "house/d0/hold/set": asked.door.on_set,
        "house/d0/get": asked.door.on_get,
    }
    for topic, take in requests.items():
        take(Received(topic, b'{"transaction": "x"}', False))
    take(Received(topic, b"{", False))
    asked.outbox.expects_answers = False
    (work,) = works
    assert [next(work) for _ in range(3)] == [PAUSE] * 3
    assert asked.sent == []
    asked.now += EXPIRY + 0.1
    list(work)

    assert [message.topic for message in asked.sent] == [f"{topic}/response" for topic in (*requests, topic)]
    assert all("waited for 10 s" in answer["error"] for answer in asked.answers)
    assert [answer.get("transaction") for answer in asked.answers] == ["x", "x", "x", None]


def test_a_retained_request_for_a_document_is_ignored_and_logged_once(caplog):
    asked = Asked(devices=1)
    for _ in range(3):
        asked.door.on_introspect(Received("house/introspect", b"", True))

    assert (asked.sent, asked.slices.works) == ([], [])
    assert [record.getMessage()[:40] for record in caplog.records] == ["introspect: a retained request is ignored"[:40]]


def test_an_answer_that_the_app_fails_to_make_is_an_error_and_a_fault(monkeypatch):
    asked = Asked(devices=1)
    monkeypatch.setattr(Sections, "device", lambda self, name: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        list(asked.ask(transaction=7))
    (answer,) = asked.answers
    assert (answer["status"], answer["data"], answer["transaction"]) == ("error", None, 7)
    assert answer["error"] == "a fault of the app; its log says more"


@pytest.mark.parametrize("name", ["x" * 500, "a\tb", "a\x1b[2J"])
def test_a_request_at_a_topic_where_no_answer_may_go_is_answered_where_introspection_answers(name):
    for topic in (f"house/{name}/hold/set", f"house/{name}/get"):
        for response in (None, "#", "garden/x"):
            ((sent_to, _),) = ask(Scripted(PollResult(None, "no")), topic, response_topic=response)
            assert sent_to == "house/introspect/response"


class Scripted:
    """A service that keeps what it is asked, and answers as the test says."""

    def __init__(self, answer=None):
        self.answer = answer
        self.asked = []

    def poll(self, device, answer, request, text):
        self.asked.append(("poll", device))
        if isinstance(self.answer, Exception):
            raise self.answer
        answer(self.answer)

    def hold(self, device, by):
        self.asked.append(("hold", device, by))
        return {"device": device, "held": True}

    def release(self, device, by):
        self.asked.append(("release", device, by))
        return {"device": device, "held": False}

    def circuit(self, device, action, by):
        self.asked.append((action, device, by))
        return {"device": device, "circuit": "closed"}


def ask(service, topic, payload=b"", **properties):
    """What is sent when a request arrives: the topics and the answers."""
    sent = []
    link = SimpleNamespace(put=sent.append, outbox=SimpleNamespace(expects_answers=True))
    clock, slices = Clock(lambda: 0.0, lambda: 0.0), Kept()
    door = MqttDoor(service, TOPICS, link, clock, slices, RequestQueue(slices, clock, link.outbox))
    received = Received(topic, payload, properties.pop("retain", False), **properties)
    (door.on_get if topic.endswith("/get") else door.on_set)(received)
    return [(message.topic, json.loads(message.payload)) for message in sent]


class TestPolls:
    def test_a_request_with_a_transaction_is_answered_with_the_reading(self):
        ((topic, answer),) = ask(Scripted(PollResult({"t": 1}, None)), "house/d/get", b'{"transaction": 7}')

        assert topic == "house/d/get/response"
        assert (answer["status"], answer["data"], answer["transaction"]) == ("ok", {"t": 1}, 7)

    def test_a_request_without_one_is_answered_by_the_state(self):
        assert ask(Scripted(PollResult({"t": 1}, None)), "house/d/get") == []

    @pytest.mark.parametrize("answer", [PollRefused("the circuit is open"), PollResult(None, "the circuit is open")])
    def test_a_request_that_is_refused_or_fails_is_answered(self, answer):
        ((_, answer),) = ask(Scripted(answer), "house/d/get")

        assert (answer["status"], answer["data"], answer["error"]) == ("error", None, "the circuit is open")

    def test_retained_requests_are_ignored_and_logged_once_for_each_device(self, caplog):
        service, door = Scripted(), None
        door = MqttDoor(service, TOPICS, None, None, Kept(), None)
        for number in range(MOST_WARNED + 5):
            for _ in range(2):
                door.on_get(Received(f"house/d{number}/get", b"", True))

        assert service.asked == []
        assert len(caplog.records) == MOST_WARNED


@pytest.mark.parametrize(
    ("topic", "payload", "asked"),
    [
        ("house/d/hold/set", b'{"by": "ann"}', ("hold", "d", "ann")),
        ("house/d/release/set", b"", ("release", "d", "somebody at house/d/release/set")),
        ("house/d/circuit/set", b"isolate", ("isolate", "d", "somebody at house/d/circuit/set")),
        ("house/d/circuit/set", b'{"action": "close", "by": "ann"}', ("close", "d", "ann")),
    ],
)
def test_a_request_about_a_device_reaches_the_service_with_its_sender(topic, payload, asked):
    service = Scripted()
    ((sent_to, answer),) = ask(service, topic, payload)

    assert service.asked == [asked]
    assert (sent_to, answer["status"], answer["data"]["device"]) == (f"{topic}/response", "ok", "d")


@pytest.mark.parametrize("payload", [b"open", b"5", b"[]", b'{"action": {"a": 1}}', b""])
def test_an_unknown_action_is_answered_with_what_is_known(payload):
    service = Scripted()
    ((_, answer),) = ask(service, "house/d/circuit/set", payload)

    assert service.asked == []
    assert "is unknown" in answer["error"]


@pytest.mark.parametrize("kind", ["hold", "release", "circuit"])
@pytest.mark.parametrize("by", ["5", "null", "[]", '{"name": "ann"}', "true"])
def test_a_sender_that_is_no_text_is_refused(kind, by):
    service = Scripted()
    ((_, answer),) = ask(service, f"house/d/{kind}/set", f'{{"action": "close", "by": {by}}}'.encode())

    assert service.asked == []
    assert answer["error"] == "'by' must be text, such as \"ann\""


def test_other_topics_and_retained_requests_are_ignored_and_only_these_are_logged(caplog):
    service = Scripted()

    assert ask(service, "house/d/other/set") == ask(service, "house/d/other/set", retain=True) == []
    assert caplog.records == []
    assert ask(service, "house/d/hold/set", retain=True) == []
    assert service.asked == []
    assert "clear the topic, and send without retain" in caplog.text
