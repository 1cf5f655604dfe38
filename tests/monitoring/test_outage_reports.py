"""What the error topics say of events that are no outage of a device."""

import json

from leadsman.events import StateFailed
from leadsman.log_lines import Lines
from leadsman.monitoring.health import HealthRecords
from leadsman.monitoring.outage_reports import OutageReporter
from leadsman.mqtt.topics import Topics

FULL = OSError(28, "No space left on device")


def test_a_state_file_that_cannot_be_written_is_a_fault_of_the_app():
    sent = []
    reports = OutageReporter(Topics("house"), sent.append, HealthRecords(), Lines())

    reports.observe(StateFailed("resilience.db", FULL, 1.0, 1001.0))

    assert [message.topic for message in sent] == ["house/error"]
    assert json.loads(sent[0].payload) == {
        "event": "fault",
        "where": "the state file resilience.db",
        "type": "OSError",
        "message": "[Errno 28] No space left on device",
        "at": "1970-01-01T00:16:41.000Z",
    }
