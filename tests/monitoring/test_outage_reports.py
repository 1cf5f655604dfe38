"""Reports that are no outage of a device: faults of the app, and devices whose polls need retries too often."""

import itertools
import json
import logging

import pytest

from leadsman.events import AttemptFailed, ReadingTaken, StateFailed
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


@pytest.fixture
def reported(caplog):
    """The numbers of the polls after which a device is reported as flaky or as steady again, by whether each poll
    needed a retry."""
    caplog.set_level(logging.INFO)

    def reported(retried, seconds=60.0):
        records, found = HealthRecords(), []
        records.register("d", 1e9, 0.0)
        reports = OutageReporter(Topics("house"), lambda message: None, records, Lines())
        for number, needed in enumerate(retried, 1):
            at = number * seconds
            failed = AttemptFailed("d", OSError("no answer"), 1, 1.0, "retry", 0, at, at, "closed", at=at, wall=at)
            for event in [failed] * needed + [ReadingTaken("d", at, at, 0.1)]:
                records(event)
                caplog.clear()
                reports.observe(event)
            for text, word in (("no longer flaky", "steady"), ("d: flaky", "flaky")):
                found += [(number, word)] * (text in caplog.text)
        return found

    return reported


def test_a_device_is_flaky_once_half_of_its_last_polls_needed_retries(reported):
    assert reported([True, False] * 20)[0] == (19, "flaky")


def test_it_is_flaky_until_nearly_none_does(reported):
    assert reported([True] * 10 + [False] * 20) == [(10, "flaky"), (28, "steady")]


def test_a_device_that_needs_a_retry_at_every_third_poll_is_not_flaky(reported):
    assert reported([True, False, False] * 100) == []


def test_one_that_changes_its_mind_is_reported_once_an_hour(reported):
    found = reported(([True] * 10 + [False] * 20) * 20, seconds=10)

    flaky = [number for number, word in found if word == "flaky"]
    assert all(after - before >= 360 for before, after in itertools.pairwise(flaky))
    assert len(flaky) >= 1
