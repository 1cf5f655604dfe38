"""What the log and the error topics say of events that are no outage of a device."""

import json
import logging

from leadsman.events import MessageDropped, StateFailed, StateWritten
from leadsman.monitoring.event_log import Log
from leadsman.monitoring.health import Ledger
from leadsman.monitoring.log_lines import MOST_LINES, Lines
from leadsman.monitoring.outage_reports import OutageReporter
from leadsman.mqtt.topics import Topics

FULL = OSError(28, "No space left on device")


def test_a_state_file_that_cannot_be_written_is_a_fault_of_the_app():
    sent = []
    reports = OutageReporter(Topics("house"), sent.append, Ledger(), Lines())

    reports.observe(StateFailed("resilience.db", FULL, 1.0, 1001.0))

    assert [message.topic for message in sent] == ["house/error"]
    assert json.loads(sent[0].payload) == {
        "event": "fault",
        "where": "the state file resilience.db",
        "type": "OSError",
        "message": "[Errno 28] No space left on device",
        "at": "1970-01-01T00:16:41.000Z",
    }


def test_the_log_says_when_a_state_file_cannot_be_written_and_when_it_can_again(caplog):
    caplog.set_level(logging.INFO, "leadsman")
    log = Log("house", "house", Lines())

    log.observe(StateFailed("resilience.db", FULL, 1.0, 1001.0))
    log.observe(StateWritten("resilience.db", 2.0, 1002.0))

    first, second = caplog.messages
    assert "resilience.db cannot be read or written: [Errno 28] No space left on device" in first
    assert second == "resilience.db is written again"


class Alarms:
    """Rings what was added, when time passes."""

    def __init__(self):
        self.waiting = []

    def add(self, at, alarm):
        self.waiting.append((at, alarm))

    def pass_until(self, now):
        due = [each for each in self.waiting if each[0] <= now]
        self.waiting = [each for each in self.waiting if each[0] > now]
        for _, alarm in due:
            alarm.ring(now)


def dropped(at, messages=1):
    return MessageDropped("house/d/state", "the outbox is full", messages, at, 1000.0 + at)


def test_what_is_dropped_after_the_first_line_is_told_a_minute_later_though_nothing_more_happens(caplog):
    alarms = Alarms()
    log = Log("house", "house", Lines(), alarms)

    log.observe(dropped(0))
    log.observe(dropped(1, 500))
    alarms.pass_until(3600)

    assert caplog.messages == [
        "1 message dropped so far, last of house/d/state: the outbox is full",
        "501 messages dropped so far, last of house/d/state: the outbox is full",
    ]


def test_drops_that_go_on_for_a_day_are_told_in_some_thirty_lines(caplog):
    alarms = Alarms()
    log = Log("house", "house", Lines(), alarms)

    for at in range(0, 86_400, 5):
        alarms.pass_until(at)
        log.observe(dropped(at))

    assert 10 < len(caplog.messages) < 40


def test_lines_about_a_device_are_bounded_in_a_minute_and_the_next_one_counts_the_rest():
    lines = Lines()

    first = [lines.left_out("d", at) for at in range(MOST_LINES + 5)]

    assert first == [0] * MOST_LINES + [None] * 5
    assert lines.left_out("other", 20) == 0
    assert [lines.left_out("d", 61), lines.left_out("d", 62)] == [5, 0]
