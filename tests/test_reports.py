"""What the log and the error topics say of events that are no outage of a device."""

import json
import logging

from leadsman.events import StateFailed, StateWritten
from leadsman.mqtt.topics import Topics
from leadsman.reports import Log, Outages

FULL = OSError(28, "No space left on device")


def test_a_state_file_that_cannot_be_written_is_a_fault_of_the_app():
    sent = []
    reports = Outages(Topics("house"), sent.append)

    reports.observe(StateFailed(1.0, 1001.0, "resilience.db", FULL))

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
    log = Log("house", "house")

    log.observe(StateFailed(1.0, 1001.0, "resilience.db", FULL))
    log.observe(StateWritten(2.0, 1002.0, "resilience.db"))

    first, second = caplog.messages
    assert "resilience.db cannot be read or written: [Errno 28] No space left on device" in first
    assert second == "resilience.db is written again"
