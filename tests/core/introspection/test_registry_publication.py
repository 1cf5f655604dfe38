"""How the registry is published: in pages and slices, when there is room. Whole apps have theirs in
`tests/integration/test_topics_left_behind.py`."""

from types import SimpleNamespace

import pytest

from leadsman import App
from leadsman.core.introspection.registry import LIST_SLICE, DeviceRegistry, declared
from leadsman.core.introspection.registry_publication import MAX_OUTBOX_BYTES, PAGE_TIMEOUT, RegistryPublication
from leadsman.core.loop.clock import Clock
from leadsman.core.mqtt.topics import Identity, Topics
from leadsman.core.runtime.other_topics import OtherTopics

DEVICES = 2000
TOPICS = Topics("house")


async def read(): ...


class House:
    def __init__(self, devices=DEVICES, **options):
        app = App("house")
        app.add_telemetry([f"d{number}" for number in range(devices)], read, interval=60, **options)
        self.now, self.sent = 0.0, []
        self.outbox = SimpleNamespace(bytes=0)
        self.link = SimpleNamespace(maximum_packet_size=None, connects=1, outbox=self.outbox, put=self.sent.append)
        clock = Clock(lambda: self.now, lambda: self.now)
        about = Identity("house", "1", "1", TOPICS, "house")
        registry = DeviceRegistry(about, declared(app.telemetries, {}, {}), {}, health=False)
        self.publication = RegistryPublication(
            registry, TOPICS, self.link, clock, OtherTopics(print), None, lambda finder: False
        )


def test_the_registry_is_made_and_published_in_slices():
    house = House()
    turns = len(list(house.publication.publish()))

    assert turns == DEVICES // LIST_SLICE + len(house.sent)
    assert [message.topic for message in house.sent] == ["house/registry"] + [
        f"house/registry/{number}" for number in range(2, len(house.sent) + 1)
    ]
    assert {(message.retain, message.latest) for message in house.sent} == {(True, True)}


def test_the_registry_waits_for_room_but_not_for_ever():
    house = House()
    house.outbox.bytes = MAX_OUTBOX_BYTES + 1
    for pause in house.publication.publish():
        house.now += pause

    assert len(house.sent) > 1
    assert house.now >= PAGE_TIMEOUT


def test_the_registry_of_a_connection_ends_with_it():
    house = House()
    work = house.publication.publish()
    next(work)
    house.link.connects += 1

    list(work)
    assert house.sent == []


@pytest.mark.parametrize("devices", [1, 2 * LIST_SLICE])
def test_devices_that_are_not_enabled_are_offline(devices):
    house = House(devices, enabled=False)
    list(house.publication.publish())

    offline = [message for message in house.sent if message.payload == b"offline"]
    assert [message.topic for message in offline] == [f"house/d{number}/availability" for number in range(devices)]
    assert all(message.retain for message in offline)


def test_pages_that_the_broker_has_no_room_for_any_more_are_removed_when_they_are_fewer():
    house = House()
    house.link.maximum_packet_size = 20_000
    list(house.publication.publish())
    many, house.sent[:] = len(house.sent), []
    house.link.maximum_packet_size = None

    list(house.publication.publish())

    pages = [message.topic for message in house.sent if message.payload]
    assert {message.topic for message in house.sent if not message.payload} == {
        f"house/registry/{number}" for number in range(len(pages) + 1, many + 1)
    }
