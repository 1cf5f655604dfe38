"""What a publish rule compares a reading with, when the outbox drops readings that it had accepted."""

import pytest

from leadsman import LastPublished, OnChange
from leadsman.core.mqtt.message import STANDARD
from leadsman.core.readings.reading import Reading
from leadsman.core.runtime.publisher import StatePublisher

WALL = 1_767_225_600.0


@pytest.fixture
def device(bench):
    """A device that published 20 and 25, a second apart."""
    compared = []

    class Asked(OnChange):
        """Remembers what it compares readings with."""

        def decide(self, previous, reading, now):
            compared.append(previous)
            return super().decide(previous, reading, now)

    class Device:
        def __init__(self):
            self.publisher = StatePublisher("d", Asked(), STANDARD, bench.context)
            self.publish(20, 1.0)
            self.publish(25, 2.0)
            self.older, self.newest = bench.messages

        def publish(self, value, at):
            self.publisher.publish(Reading("d", {"t": value}, (), at, WALL + at))

        def drop(self, message, before=0.0):
            """The outbox drops a message, or one that was taken some seconds before it."""
            message.receipt.dropped(message.taken_at - message.clock_offset - before)

        @property
        def last(self):
            """What the next reading is compared with."""
            compared.clear()
            self.publish(30, 3.0)
            return compared[0] if compared else None

    return Device()


def test_the_last_reading_counts_as_soon_as_the_outbox_has_it(device):
    assert device.last == LastPublished({"t": 25}, 2.0)


def test_when_it_is_dropped_the_one_before_it_counts_and_the_pace_stays(device):
    device.drop(device.newest)

    assert device.last == LastPublished({"t": 20}, 2.0)


def test_when_both_are_dropped_none_counts(device):
    device.drop(device.newest)
    device.drop(device.newest)

    assert device.last is None


def test_the_one_before_does_not_count_after_it_was_dropped(device):
    device.drop(device.older)
    device.drop(device.newest)

    assert device.last is None


def test_the_one_before_does_not_count_after_the_last_took_its_place(device):
    device.newest.receipt.replaced()
    device.drop(device.newest)

    assert device.last is None


def test_an_older_reading_that_is_dropped_changes_nothing(device):
    device.drop(device.newest, before=52.0)

    assert device.last == LastPublished({"t": 25}, 2.0)


def test_none_counts_when_it_is_not_certain_which_one_was_dropped(device):
    device.drop(device.newest, before=0.3)

    assert device.last is None


def test_readings_that_are_not_published_are_counted(device):
    device.publish(25, 2.2)
    device.publish(25, 2.5)

    assert device.last.since == 2
