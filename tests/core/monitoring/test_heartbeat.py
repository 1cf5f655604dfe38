"""The status document: what it says, and when a change is noticed. Whole apps have theirs in `tests/integration`."""

import asyncio
import json
from collections import deque
from types import SimpleNamespace

import pytest

from leadsman import Broker
from leadsman.core.event_bus import EventBus
from leadsman.core.events import (
    AttemptFailed,
    CircuitMoved,
    LinkUp,
    MessageDropped,
    PollFailed,
    ReadingTaken,
    StateFailed,
    StateWritten,
)
from leadsman.core.loop.clock import Clock
from leadsman.core.monitoring.health import HealthRecords
from leadsman.core.monitoring.heartbeat import MAX_DOCUMENT_BYTES, RATE, Heartbeat, will
from leadsman.core.monitoring.statuses import Statuses
from leadsman.core.mqtt.connection_state import ConnectionState
from leadsman.core.mqtt.outbox import Outbox
from leadsman.core.mqtt.topics import Topics

WALL = 1_000_000.0
STALE_AFTER = 100.0


class Connected:
    """What a heartbeat needs of a link: it keeps what it is given."""

    number, client, connects, breaks, session = 7, "mqtt5", 1, 0, ConnectionState()
    last_error, limited_by, broker, faults = None, None, Broker(), {}

    def __init__(self):
        self.outbox, self.sent, self.up = Outbox(), [], True

    def put(self, message):
        self.sent.append((message.topic, message.payload))


class AtOnce:
    """Does works to their ends, without a loop."""

    def begin(self, where, work):
        deque(work)


class Watched:
    """A heartbeat over devices at a time that the test sets."""

    def __init__(self, *devices, jobs=()):
        self.now, self.link, self.records = 0.0, Connected(), HealthRecords()
        for name in (*devices, *jobs):
            self.records.register(name, STALE_AFTER, 0.0)
        asked = SimpleNamespace(opened_at=None, opens=0, attempts=1)
        clock = Clock(lambda: self.now, lambda: WALL + self.now)
        self.heartbeat = Heartbeat(
            Topics("house"),
            {"version": "1.0"},
            30.0,
            Statuses(self.records, 0.0, None, frozenset(jobs)),
            self.link,
            SimpleNamespace(clock=clock, events=EventBus(clock)),
            AtOnce(),
            snapshot=lambda name: (asked, WALL + 60),
        )

    def see(self, event):
        self.now = event.at
        self.records(event)
        self.heartbeat.observe(event)

    @property
    def document(self):
        return self.heartbeat.document("online")


def taken(name, at):
    return ReadingTaken(name, at, WALL + at, 0.1)


def failed(name, at):
    return PollFailed(name, OSError("away"), 1, at, WALL + at)


@pytest.fixture
def watched():
    return Watched("attic", "cellar")


def test_an_app_is_ok_once_every_device_was_read(watched):
    watched.see(taken("attic", 1.0))
    watched.see(taken("cellar", 2.0))

    assert watched.document["health"] == "ok"
    assert watched.document["devices"] == {"attic": {"status": "ok"}, "cellar": {"status": "ok"}}


def test_a_device_that_fails_degrades_the_app_and_says_why_since_when_and_when_it_is_asked_next(watched):
    watched.see(taken("cellar", 1.0))
    watched.see(failed("attic", 2.0))

    told = watched.document["devices"]["attic"]
    assert watched.document["health"] == "degraded"
    assert (told["status"], told["last_error"], told["consecutive_failures"]) == ("error", "OSError: away", 1)
    assert told["failing_since"] == "1970-01-12T13:46:42.000Z"
    assert told["next_poll_at"] == "1970-01-12T13:47:40.000Z"


def test_a_device_becomes_stale_by_the_clock_alone(watched):
    watched.see(taken("attic", 1.0))
    watched.now = 1.0 + STALE_AFTER + 0.5

    async def first_heartbeat():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(watched.heartbeat.run(), 0.01)

    asyncio.run(first_heartbeat())

    assert json.loads(watched.link.sent[-1][1])["devices"]["attic"]["status"] == "stale"
    assert ("house/attic/availability", b"offline") in watched.link.sent


def test_only_a_change_of_availability_is_sent(watched):
    watched.see(taken("attic", 1.0))
    watched.see(CircuitMoved("attic", "open", 3, 2.0, WALL + 2))
    watched.see(failed("attic", 3.0))
    watched.see(CircuitMoved("attic", "closed", 0, 4.0, WALL + 4))
    watched.see(taken("attic", 5.0))

    assert watched.link.sent == [("house/attic/availability", b"offline"), ("house/attic/availability", b"online")]


def test_each_connection_begins_with_the_document_and_the_availability_of_every_device(watched):
    watched.see(taken("attic", 1.0))
    watched.heartbeat.observe(LinkUp(7, "5.0", "mqtt5", None, None, 2.0, WALL + 2))

    topics = [topic for topic, _ in watched.link.sent]
    assert topics == ["house/status", "house/attic/availability", "house/cellar/availability"]
    assert json.loads(watched.link.sent[0][1])["session"] == 7


def test_a_side_job_is_in_the_document_and_has_no_availability():
    watched = Watched("attic", jobs=["cleanup"])

    assert set(watched.document["jobs"]) == {"cleanup"}
    assert set(watched.document["devices"]) == {"attic"}
    watched.heartbeat.observe(LinkUp(7, "5.0", "mqtt5", None, None, 2.0, WALL + 2))
    assert [topic for topic, _ in watched.link.sent] == ["house/status", "house/attic/availability"]


def test_dropped_messages_are_counted_over_the_last_minute(watched):
    for at in (1.0, 1.5, 30.0):
        watched.heartbeat.observe(MessageDropped("house/attic/state", "full", 10, at, WALL + at))

    watched.now = 40.0
    assert watched.document["mqtt"]["outbox"]["dropped_last_minute"] == 30
    watched.now = RATE + 5.0
    assert watched.document["mqtt"]["outbox"]["dropped_last_minute"] == 10


def test_a_state_file_that_cannot_be_written_degrades_the_app_until_it_can(watched):
    for name in ("attic", "cellar"):
        watched.see(taken(name, 1.0))
    watched.heartbeat.observe(StateFailed("resilience.db", OSError(28, "full"), 2.0, WALL))
    failing = watched.document
    watched.heartbeat.observe(StateWritten("resilience.db", 3.0, WALL))

    assert (failing["health"], list(failing["state_files"])) == ("degraded", ["resilience.db"])
    assert watched.document["health"] == "ok"
    assert "state_files" not in watched.document


def test_a_document_that_would_be_too_large_has_counts_and_only_the_devices_that_are_not_ok():
    watched = Watched(*[f"device-{number}-{'x' * 30}" for number in range(2000)])
    for name in list(watched.records.entities)[1:]:
        watched.see(taken(name, 1.0))
    watched.see(failed(next(iter(watched.records.entities)), 2.0))
    watched.heartbeat.goodbye()

    payload = watched.link.sent[-1][1]
    document = json.loads(payload)
    assert len(payload) < MAX_DOCUMENT_BYTES
    assert document["counts"] == {"error": 1, "ok": 1999}
    assert len(document["devices"]) == 1


def test_a_document_of_a_thousand_devices_that_fail_lists_the_first_of_them():
    watched = Watched(*[f"device-{number}" for number in range(1000)])
    for number in range(1000):
        watched.see(failed(f"device-{number}", 1.0))
    watched.heartbeat.goodbye()

    payload = watched.link.sent[-1][1]
    document = json.loads(payload)
    assert len(payload) < MAX_DOCUMENT_BYTES
    assert document["counts"] == {"error": 1000}
    assert list(document["devices"]) == [f"device-{number}" for number in range(len(document["devices"]))]
    assert len(document["devices"]) > 100


def test_a_document_stays_small_however_long_the_errors_are():
    watched = Watched(*[f"device-{number}" for number in range(100)])
    for number in range(100):
        watched.see(PollFailed(f"device-{number}", OSError("é" * 500), 1, 1.0, WALL + 1))
    watched.heartbeat.goodbye()

    payload = watched.link.sent[-1][1]
    assert len(payload) < MAX_DOCUMENT_BYTES
    assert json.loads(payload)["counts"] == {"error": 100}
    assert json.loads(payload)["devices"]


def test_the_goodbye_is_one_message_for_all_devices(watched):
    watched.heartbeat.goodbye()

    ((topic, payload),) = watched.link.sent
    assert topic == "house/status"
    assert json.loads(payload)["state"] == "offline"


def test_a_will_says_offline_with_the_number_of_its_session():
    assert json.loads(will("1.0", 7, dry_run=False)) == {
        "state": "offline",
        "session": 7,
        "health": "degraded",
        "version": "1.0",
    }
    assert json.loads(will("1.0", 7, dry_run=True))["dry_run"] is True


def test_a_poll_that_has_failed_calls_and_calls_again_is_shown_as_under_way(watched):
    watched.see(taken("attic", 1.0))
    assert "poll_under_way" not in watched.heartbeat.document("online")["devices"]["attic"]

    error = OSError("away")
    watched.see(AttemptFailed("attic", error, 2, 5.0, "retry", 0, 8.0, WALL + 8, "closed", at=10.0, wall=WALL + 10))

    assert watched.heartbeat.document("online")["devices"]["attic"]["poll_under_way"] == {
        "failed_calls": 2,
        "last_error": "OSError: away",
        "next_call_at": "1970-01-12T13:46:55.000Z",
    }
