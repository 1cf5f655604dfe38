"""When what waits is looked at, in virtual time."""

import asyncio

import pytest

from leadsman.core.loop.clock import system_clock
from leadsman.core.mqtt.message import Message
from leadsman.core.mqtt.message_state import RowEvent
from leadsman.core.mqtt.outbox import Outbox
from leadsman.core.mqtt.send_window import AT_ONCE, PUBACK_TIMEOUT, Overdue

AFTER = 0.25


class Room:
    """An outbox whose messages are in flight, or wait."""

    def __init__(self, loop):
        self.loop = loop
        self.outbox = Outbox()
        self.sent = {}
        self.lost = []
        self.written = []
        self.overdue = loop.run_until_complete(self._made())

    async def _made(self):
        return Overdue(self.outbox, self.sent, system_clock(self.loop), self.lost.append)

    def store(self, after=AFTER):
        self.overdue.store(after, self._write)

    def _write(self, number):
        """As a committer: what is written has a row."""
        self.written.append((round(self.loop.time(), 3), number))
        for item in self.outbox.flying:
            if item.number <= number and item.is_unstored:
                item.change_row(RowEvent.WRITE)

    def send(self, taken_at=1.0):
        message = Message("t", b"", taken_at=taken_at)
        item = self.outbox.hand_over(message)
        self.sent[item.number] = item
        item.sent_at = self.loop.time()
        if self.overdue.handle is None:
            self.overdue.sends()
        return item

    def acknowledge(self, item):
        del self.sent[item.number]
        self.outbox.accept(item)

    def at(self, moment):
        self.loop.run_until_complete(asyncio.sleep(moment - self.loop.time()))


@pytest.fixture
def room(loop):
    return Room(loop)


def test_without_a_store_it_looks_when_an_acknowledgement_is_overdue(room):
    room.send()
    room.at(PUBACK_TIMEOUT - 0.1)
    assert room.lost == []
    room.at(PUBACK_TIMEOUT + 0.1)
    assert room.lost == ["no acknowledgement within 10 s"]


def test_with_a_store_too(room):
    room.store()
    room.send()
    room.at(PUBACK_TIMEOUT - 0.1)
    assert room.lost == []
    room.at(PUBACK_TIMEOUT + 0.2)
    assert set(room.lost) == {"no acknowledgement within 10 s"}


def test_what_was_not_acknowledged_is_written_within_a_quarter_of_a_second_and_once(room):
    room.store()
    item = room.send()
    room.at(5.0)

    ((at, number),) = room.written
    assert AFTER / 2 <= at <= AFTER
    assert number == item.number


def test_every_message_in_flight_is_written_after_an_eighth_and_before_a_quarter(room):
    room.store()
    sent = {}
    for turn in range(100):
        room.at(0.013 * (turn + 1))
        sent[room.send().number] = room.loop.time()
    room.at(5.0)

    for number, at in sent.items():
        age = next(when for when, most in room.written if most >= number) - at
        assert AFTER / 2 - 0.001 <= age <= AFTER + 0.001


def test_nothing_is_written_while_the_broker_answers_and_nothing_looks_while_nothing_comes(room):
    room.store()
    for turn in range(50):
        room.at(0.1 * (turn + 1))
        item = room.send()
        room.at(0.1 * (turn + 1) + 0.02)
        room.acknowledge(item)
    room.at(10.0)

    assert room.written == []
    assert room.overdue.handle is None


def test_without_a_connection_everything_is_written_together(room):
    room.store()
    for _ in range(5):
        room.outbox.put(Message("t", b"", taken_at=1.0))
        room.overdue.waits()
    room.at(1.0)

    assert room.written[0] == (AFTER, 5)


def test_what_is_no_reading_is_not_written(room):
    room.store()
    room.send(taken_at=None)
    room.at(5.0)
    assert room.written == []


def test_write_through_writes_after_a_hundredth_of_a_second(room):
    room.store(AT_ONCE)
    room.send()
    room.at(1.0)
    assert room.written == [(AT_ONCE / 2, 1)]


def test_it_stops(room):
    room.store()
    room.send()
    room.overdue.stop()
    room.at(20.0)
    assert (room.written, room.lost) == ([], [])


def test_an_acknowledgement_is_overdue_at_the_time_for_which_the_look_was_arranged(room):
    for moment in range(1, 40):  # the sum of some of these times and the timeout is rounded up
        room.at(moment * 20 + 0.1 * moment / 3)
        item = room.send()
        room.at(moment * 20 + 0.1 * moment / 3 + PUBACK_TIMEOUT + 0.5)

        assert len(room.lost) == moment
        room.acknowledge(item)
