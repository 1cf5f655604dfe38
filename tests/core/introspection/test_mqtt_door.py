"""The door over MQTT: what is sent where, and when pages wait. What the answers say has
`tests/integration/test_introspection.py`."""

import itertools

import pytest

from leadsman import App
from leadsman.core.introspection.service import MAX_ANSWERS, MAX_LARGE_ANSWERS
from leadsman.core.mqtt.answers import EXPIRY, MAX_WARNED_DEVICES
from leadsman.testing import Scripted, fail

DEVICES = 1000
READING = {"t": 1}


class Asked:
    """An app with many devices, which is asked over MQTT."""

    def __init__(self, harness, devices=DEVICES, handler=None, interval="1d"):
        app, self.sensor = App("house"), handler or Scripted(READING)
        app.add_telemetry([f"d{number}" for number in range(devices)], self.sensor, interval=interval)
        self.running = harness(app)
        self.broker = self.running.broker
        self.run(10)

    def run(self, seconds):
        self.running.run(seconds)

    def send(self, **request):
        self.broker.send("house/introspect", {"sections": ["devices"], **request}, response_topic="house/me")

    @property
    def answers(self):
        return [message.json for message in self.broker.messages("house/me")]

    def turns(self):
        """Ask, and count the answers that have come after each turn of the loop, until there are no more."""
        counts, arrived = [], []
        receive = self.broker.receive

        def received(connection, packet_id, message):
            receive(connection, packet_id, message)
            if message.topic == "house/me":
                arrived.append(self.broker.log[-1].json.get("pages", 1))

        def look():
            counts.append(len(arrived))
            if len(counts) < 5000 and (not arrived or len(arrived) < arrived[0]):
                self.running.loop.call_soon(look)

        self.broker.receive = received
        self.running.at(self.running.now + 1, lambda: (self.send(), look()))
        self.run(5)
        del self.broker.receive
        return counts


def test_a_document_of_few_devices_is_one_message_made_at_once(harness):
    asked = Asked(harness, devices=1)

    assert asked.turns() == [0, 0, 1]  # the request arrives in one turn, and its answer in the next


def test_a_large_document_has_every_device_on_one_of_its_pages(harness):
    asked = Asked(harness)
    asked.send()
    asked.run(5)

    names = [name for answer in asked.answers for name in answer["data"]["devices"]]
    assert names == [f"d{number}" for number in range(DEVICES)]


def test_one_page_is_sent_in_one_turn_of_the_loop(harness):
    asked = Asked(harness)
    sent = asked.turns()

    assert asked.answers[-1]["pages"] == sent[-1] > 3
    assert max(after - before for before, after in itertools.pairwise(sent)) == 1


class Frozen(Asked):
    """Asked for a document of ten pages, none of which the broker acknowledges. Half a megabyte of answers may wait."""

    def __init__(self, harness):
        super().__init__(harness)
        self.broker.freeze()
        self.send()
        self.run(1)


def test_the_pages_of_an_answer_wait_for_room_and_go_on_once_there_is_room(harness):
    asked = Frozen(harness)
    asked.run(EXPIRY - 2)
    asked.broker.thaw()

    assert [answer["page"] for answer in asked.answers] == [1, 2], "256 KiB are in flight at most"
    asked.run(5)
    assert [answer["page"] for answer in asked.answers] == [*range(1, 11)]
    assert asked.answers[0]["pages"] == 10


def test_answers_are_given_up_with_their_receiver_and_make_room_for_the_next_ones(harness):
    asked = Asked(harness)
    for _ in range(MAX_LARGE_ANSWERS):
        asked.broker.freeze()
        asked.send()
        asked.run(EXPIRY + 1)
        asked.broker.thaw()
        asked.run(60)
    late = len(asked.answers)
    assert late < 5 * MAX_LARGE_ANSWERS, "of ten pages each, what was in flight arrives"

    asked.send()
    asked.run(5)
    assert [answer["status"] for answer in asked.answers[late:]] == ["ok"] * 10


@pytest.mark.slow
def test_ten_thousand_requests_at_once_are_all_answered_and_few_answers_wait(harness):
    asked = Asked(harness, devices=1, handler=Scripted({"text": "x" * 100_000}), interval="1s")
    asked.broker.freeze()
    asked.run(7)  # the readings that wait leave no room for a document
    for number in range(10_000):
        asked.send(transaction=number)
    asked.run(0.5)
    asked.broker.thaw()
    asked.run(5)

    answers = asked.answers
    assert sorted(answer["transaction"] for answer in answers) == list(range(10_000))
    refused = [answer["error"] for answer in answers if answer["status"] == "error"]
    assert set(refused) == {f"{MAX_ANSWERS} answers are under way; ask again in a few seconds"}


def test_requests_of_all_kinds_wait_for_room_and_those_that_waited_too_long_are_refused_with_their_transaction(harness):
    asked = Frozen(harness)
    topics = ["house/introspect", "house/d0/hold/set", "house/d0/get"]
    for topic in topics:
        asked.broker.send(topic, {"transaction": "x"})
    asked.broker.send(topics[-1], b"{")
    asked.run(EXPIRY + 0.1)
    asked.broker.thaw()
    asked.run(60)

    answers = [each for each in asked.broker.log if each.topic.endswith("/response")]
    assert [each.topic for each in answers] == [f"{topic}/response" for topic in (*topics, topics[-1])]
    assert all("waited for 10 s" in each.json["error"] for each in answers)
    assert [each.json.get("transaction") for each in answers] == ["x", "x", "x", None]
    assert len(asked.sensor.calls) == DEVICES
    assert asked.running.app.trace("d0") == []


def test_a_retained_request_for_a_document_is_ignored_and_logged_once(harness, caplog):
    asked = Asked(harness, devices=1)
    for _ in range(3):
        asked.broker.send("house/introspect", b"", retain=True)
    asked.run(5)

    assert asked.broker.messages("house/introspect/response") == []
    assert [text for text in caplog.messages if text.startswith("introspect: a retained request is ignored")] != []
    assert len([text for text in caplog.messages if "retained request" in text]) == 1


def test_an_answer_that_the_app_fails_to_make_is_an_error_and_a_fault(harness, monkeypatch):
    asked = Asked(harness, devices=1)
    monkeypatch.setattr("leadsman.core.introspection.sections.Sections.device", lambda self, name: 1 / 0)

    asked.send(transaction=7)
    asked.run(5)

    (answer,) = asked.answers
    assert (answer["status"], answer["data"], answer["transaction"]) == ("error", None, 7)
    assert answer["error"] == "a fault of the app; its log says more"
    assert [(each["where"], each["type"]) for each in asked.running.faults()] == [
        ("introspection", "ZeroDivisionError")
    ]


@pytest.mark.parametrize("name", ["x" * 500, "a\tb", "a\x1b[2J"])
def test_a_request_at_a_topic_where_no_answer_may_go_is_answered_where_introspection_answers(harness, name):
    asked = Asked(harness, devices=1)
    for topic in (f"house/{name}/hold/set", f"house/{name}/get"):
        for response in (None, "#", "garden/x"):
            asked.broker.send(topic, b"", response_topic=response)
            asked.run(1)

    answers = asked.broker.messages("house/introspect/response")
    assert [answer.json["status"] for answer in answers] == ["error"] * 6
    assert [each for each in asked.broker.log if each.topic.startswith("garden")] == []


def answer_of(asked, topic, payload=b""):
    """The answer to a request about a device; None if there is none."""
    asked.broker.send(topic, payload)
    asked.run(5)
    answers = asked.broker.messages(f"{topic}/response")
    return answers[-1].json if answers else None


class TestPolls:
    def test_a_request_with_a_transaction_is_answered_with_the_reading(self, harness):
        answer = answer_of(Asked(harness, devices=1), "house/d0/get", b'{"transaction": 7}')

        assert (answer["status"], answer["data"], answer["transaction"]) == ("ok", READING, 7)

    def test_a_request_without_one_is_answered_by_the_state(self, harness):
        asked = Asked(harness, devices=1)

        assert answer_of(asked, "house/d0/get") is None
        assert asked.running.states("d0") == [READING] * 2

    def test_a_request_that_is_refused_or_fails_is_answered(self, harness):
        asked = Asked(harness, devices=1, handler=Scripted(READING, fail(9, OSError("no meter"))))

        failed = answer_of(asked, "house/d0/get")
        answer_of(asked, "house/d0/hold/set")
        refused = answer_of(asked, "house/d0/get")

        assert (failed["status"], failed["data"]) == (refused["status"], refused["data"]) == ("error", None)
        assert "no meter" in failed["error"]
        assert "release it first" in refused["error"]

    def test_retained_requests_are_ignored_and_logged_once_for_each_device(self, harness, caplog):
        asked = Asked(harness, devices=MAX_WARNED_DEVICES + 5)
        for number in range(MAX_WARNED_DEVICES + 5):
            for _ in range(2):
                asked.broker.send(f"house/d{number}/get", b"", retain=True)
        asked.run(5)

        assert len(asked.sensor.calls) == MAX_WARNED_DEVICES + 5
        assert len([text for text in caplog.messages if "retained request" in text]) == MAX_WARNED_DEVICES


@pytest.mark.parametrize(
    ("topic", "payload", "done"),
    [
        ("house/d0/hold/set", b'{"by": "ann"}', ("held", "ann")),
        ("house/d0/hold/set", b"", ("held", "somebody at house/d0/hold/set")),
        ("house/d0/circuit/set", b"isolate", ("asked to isolate the circuit", "somebody at house/d0/circuit/set")),
        ("house/d0/circuit/set", b'{"action": "isolate", "by": "ann"}', ("asked to isolate the circuit", "ann")),
    ],
)
def test_a_request_about_a_device_is_done_in_the_name_of_its_sender(harness, topic, payload, done):
    asked = Asked(harness, devices=1)
    answer = answer_of(asked, topic, payload)

    assert (answer["status"], answer["data"]["device"]) == ("ok", "d0")
    first, *_ = asked.running.app.trace("d0")
    assert (first.reason, first.by) == done


def test_who_releases_a_device_is_named(harness, caplog):
    caplog.set_level("INFO")
    asked = Asked(harness, devices=1)
    answer_of(asked, "house/d0/hold/set")
    answer = answer_of(asked, "house/d0/release/set", b"")

    assert answer["data"] == {"device": "d0", "held": False}
    assert "released by somebody at house/d0/release/set" in caplog.text


@pytest.mark.parametrize("payload", [b"open", b"5", b"[]", b'{"action": {"a": 1}}', b""])
def test_an_unknown_action_is_answered_with_what_is_known(harness, payload):
    asked = Asked(harness, devices=1)

    assert "is unknown" in answer_of(asked, "house/d0/circuit/set", payload)["error"]
    assert asked.running.app.trace("d0") == []


@pytest.mark.parametrize("kind", ["hold", "release", "circuit"])
@pytest.mark.parametrize("by", ["5", "null", "[]", '{"name": "ann"}', "true"])
def test_a_sender_that_is_no_text_is_refused(harness, kind, by):
    asked = Asked(harness, devices=1)
    answer = answer_of(asked, f"house/d0/{kind}/set", f'{{"action": "close", "by": {by}}}'.encode())

    assert answer["error"] == "'by' must be text, such as \"ann\""
    assert asked.running.app.trace("d0") == []


def test_other_topics_and_retained_requests_are_ignored_and_only_these_are_logged(harness, caplog):
    asked = Asked(harness, devices=1)

    assert answer_of(asked, "house/d0/other/set") is None
    asked.broker.send("house/d0/other/set", b"", retain=True)
    asked.run(5)
    assert caplog.records == []
    asked.broker.send("house/d0/hold/set", b"", retain=True)
    asked.run(5)
    assert asked.broker.messages("house/d0/hold/set/response") == []
    assert asked.running.app.trace("d0") == []
    assert ["retained request" in text for text in caplog.messages] == [True]
