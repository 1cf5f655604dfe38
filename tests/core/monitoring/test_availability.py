"""What is said of each device's availability, and how many devices are announced at a time."""

from types import SimpleNamespace

from leadsman.core.event_bus import EventBus
from leadsman.core.events import ReadingTaken
from leadsman.core.loop.clock import Clock
from leadsman.core.monitoring.health import HealthRecords
from leadsman.core.monitoring.heartbeat import Heartbeat
from leadsman.core.monitoring.statuses import Statuses
from leadsman.core.mqtt.topics import Topics

SLICE = 100


class Link:
    def __init__(self):
        self.connects, self.sent, self.outbox, self.up = 1, [], SimpleNamespace(messages=0), False

    def put(self, message):
        assert (message.qos, message.retain, message.latest) == (1, True, True)
        self.sent.append((message.topic, message.payload))


class Kept:
    """Keeps works instead of doing them."""

    def __init__(self):
        self.works = []

    def begin(self, where, work):
        self.works.append(work)


def house(devices, jobs=()):
    records = HealthRecords()
    for name in (*devices, *jobs):
        records.register(name, 100.0, 0.0)
    statuses, link, kept = Statuses(records, 0.0, None, frozenset(jobs)), Link(), Kept()
    clock = Clock(lambda: 0.0, lambda: 0.0)
    environment = SimpleNamespace(clock=clock, events=EventBus(clock))
    return SimpleNamespace(
        records=records,
        statuses=statuses,
        link=link,
        works=kept.works,
        heartbeat=Heartbeat(Topics("house"), {}, 30.0, statuses, link, environment, kept, snapshot=lambda name: None),
    )


def test_ten_thousand_devices_are_announced_in_slices():
    app = house([f"d{number}" for number in range(10_000)])
    app.heartbeat.announce()
    (work,) = app.works
    said = []
    for pause in work:
        assert pause == 0
        said.append(len(app.link.sent))

    assert max(after - before for before, after in zip([0, *said], said, strict=False)) == SLICE
    assert len({topic for topic, _ in app.link.sent}) == 10_000


def test_an_announcement_goes_slowly_while_the_outbox_is_full():
    app = house([f"d{number}" for number in range(SLICE + 1)])
    app.link.outbox.messages = 1001
    app.heartbeat.announce()

    assert list(app.works[0]) == [0.1]
    assert len(app.link.sent) == SLICE + 1


def test_each_device_is_announced_as_it_is_when_its_turn_comes():
    names = [f"d{number}" for number in range(SLICE + 1)]
    app = house(names)
    app.heartbeat.announce()
    next(app.works[0])
    for name in names[:-1]:
        app.records(ReadingTaken(name, 50.0, 50.0, 0.1))
    while app.statuses.next_at <= 101.0:
        app.statuses.advance(101.0, 1000)
    list(app.works[0])

    assert app.link.sent[0] == ("house/d0/availability", b"online")
    assert app.link.sent[-1] == (f"house/{names[-1]}/availability", b"offline")


def test_an_announcement_ends_when_the_next_connection_begins_one():
    app = house([f"d{number}" for number in range(3 * SLICE)])
    app.heartbeat.announce()
    next(app.works[0])
    app.link.connects += 1

    assert list(app.works[0]) == []
    assert len(app.link.sent) == SLICE


def test_a_side_job_has_no_availability():
    app = house(["attic"], jobs=["cleanup"])
    app.heartbeat.announce()
    list(app.works[0])
    app.heartbeat.changed("cleanup")

    assert app.link.sent == [("house/attic/availability", b"online")]
