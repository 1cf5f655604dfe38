"""How much of a large document is made in one turn of the loop, and when its pages wait. Whole apps have theirs in
`tests/integration`."""

import itertools
import json
from types import SimpleNamespace

import pytest

from leadsman import App
from leadsman.introspection.service import (
    EXPIRY,
    LIST_SLICE,
    MOST_WAITING,
    PATIENCE,
    PAUSE,
    SLICE,
    About,
    Parts,
    Service,
)
from leadsman.mqtt.connection import Received
from leadsman.mqtt.topics import Topics
from leadsman.timing.clock import Clock

DEVICES = 2000


async def read(): ...


class Kept:
    """Keeps works instead of doing them."""

    def __init__(self):
        self.works = []

    def begin(self, where, work):
        self.works.append(work)


class Asked:
    """A service that is asked by hand, at a time that the test sets. Its devices do not run."""

    def __init__(self, devices=DEVICES):
        app = App("house")
        app.add_telemetry([f"d{number}" for number in range(devices)], read, interval=60)
        self.now, self.sent, self.slices = 0.0, [], Kept()
        self.outbox = SimpleNamespace(bytes=0)
        self.link = SimpleNamespace(maximum_packet_size=None, connects=1, outbox=self.outbox)
        clock = Clock(lambda: self.now, lambda: self.now)
        environment = SimpleNamespace(clock=clock, timers=SimpleNamespace(origin=0.0))
        self.service = Service(
            About("house", "1", "1", Topics("house"), "mqtt://broker", "house"),
            list(app.telemetries.values()),
            Parts(SimpleNamespace(entities={}), self.link, None, (), [], {}),
            SimpleNamespace(environment=environment, send=self.sent.append),
            self.slices,
        )

    def ask(self, **request):
        payload = json.dumps({"sections": ["devices"], **request}).encode()
        self.service.on_request(Received("house/introspect", payload, False, "house/me", b"1"))
        return self.slices.works[-1]

    @property
    def answers(self):
        return [json.loads(message.payload) for message in self.sent]


@pytest.fixture
def described(monkeypatch):
    """The names of devices, as they are described."""
    names = []
    original = Service._device

    def watched(self, name, now, wall):
        names.append(name)
        return original(self, name, now, wall)

    monkeypatch.setattr(Service, "_device", watched)
    return names


def test_few_devices_are_described_in_one_turn_of_the_loop(described):
    asked = Asked(devices=1)

    assert list(asked.ask()) == []
    assert len(described) == 1
    assert len(asked.sent) == 1


def test_devices_are_described_in_slices(described):
    asked = Asked()
    slices = []
    for pause in asked.ask():
        assert pause == 0
        slices.append(len(described) - sum(slices))

    assert max(slices) == SLICE
    assert sum(slices) == len(described) == DEVICES
    assert sum(len(answer["data"]["devices"]) for answer in asked.answers) == DEVICES


def test_one_page_is_sent_in_one_turn_of_the_loop():
    asked = Asked()
    sent = [0]
    for _ in asked.ask():
        sent.append(len(asked.sent))

    assert asked.answers[-1]["pages"] == len(asked.sent) > 3
    assert max(after - before for before, after in itertools.pairwise(sent)) == 1


def test_the_registry_is_made_and_published_in_slices():
    asked = Asked()
    work = asked.service.registry()
    turns = len(list(work))

    assert turns == DEVICES // LIST_SLICE + len(asked.sent)
    assert [message.topic for message in asked.sent] == ["house/registry"] + [
        f"house/registry/{number}" for number in range(2, len(asked.sent) + 1)
    ]
    assert {(message.retain, message.latest) for message in asked.sent} == {(True, True)}


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


def test_the_registry_waits_for_room_but_not_for_ever():
    asked = Asked()
    asked.outbox.bytes = MOST_WAITING + 1
    for pause in asked.service.registry():
        asked.now += pause

    assert len(asked.sent) > 1
    assert asked.now >= PATIENCE


def test_the_registry_of_a_connection_ends_with_it():
    asked = Asked()
    work = asked.service.registry()
    next(work)
    asked.link.connects += 1

    list(work)
    assert asked.sent == []


def test_an_answer_that_is_given_up_makes_room_for_the_next_one():
    asked = Asked()
    works = [asked.ask() for _ in range(4)]
    for work in works:
        next(work)
    payload = json.dumps({"sections": ["devices"]}).encode()
    asked.service.on_request(Received("house/introspect", payload, False, "house/me", b"1"))
    assert "ask again" in asked.answers[-1]["error"]
    works[0].close()

    assert next(asked.ask()) == 0
