from leadsman.core.events import AttemptFailed, PollFailed, PollSkipped, ReadingTaken
from leadsman.core.monitoring.outage import step


def told(events):
    """The notices of a history, with the time of each."""
    outage, notices = None, []
    for event in events:
        outage, notice = step(outage, event)
        if notice:
            notices.append((event.at, notice.kind, notice.failures))
    return notices


def failed(at, error=None):
    return PollFailed("d", error or OSError("gone"), 1, at, 1000 + at)


def call_failed(at, since, delay=2.0, reason="retry", attempt=1):
    error = OSError("gone")
    return AttemptFailed("d", error, attempt, delay, reason, 0, since, 1000 + since, "closed", at=at, wall=1000 + at)


def skipped(at):
    return PollSkipped("d", at, 1000 + at)


def taken(at):
    return ReadingTaken("d", at, 1000 + at, 0.1)


def test_an_outage_is_told_at_onset_and_when_failures_double():
    assert told(failed(10 * n) for n in range(10)) == [
        (0, "onset", 1),
        (10, "reminder", 2),
        (30, "reminder", 4),
        (70, "reminder", 8),
    ]


def test_nobody_is_reminded_of_an_outage_within_seconds_of_its_onset():
    assert [at for at, _, _ in told(failed(n) for n in range(40))] == [0, 15, 31]


def test_after_an_hour_reminders_come_hourly():
    notices = told(failed(at) for at in range(0, 6 * 3600, 60))

    assert [at for at, kind, _ in notices if at >= 3600] == [5460, 9060, 12660, 16260, 19860]


def test_a_day_of_failures_every_half_minute_is_told_in_a_few_dozen_lines():
    assert len(told(failed(at) for at in range(0, 86_400, 30))) < 40


def test_a_new_type_of_error_is_told_once():
    errors = [OSError("a"), OSError("b"), ValueError("c"), OSError("d"), ValueError("e"), ValueError("f")]

    notices = told(failed(at, error) for at, error in enumerate(errors))

    assert [at for at, _, _ in notices] == [0, 2]


def test_recovery_tells_the_length_of_the_outage_and_the_skipped_polls():
    outage = None
    for event in (failed(100), skipped(160), skipped(220), failed(280)):
        outage, _ = step(outage, event)

    outage, notice = step(outage, taken(340))

    assert outage is None
    assert (notice.kind, notice.seconds, notice.failures, notice.skipped) == ("recovered", 240, 2, 2)
    assert (notice.type, notice.message, notice.since) == ("OSError", "gone", 1100)


def test_an_open_circuit_still_reminds_hourly():
    notices = told([failed(0), *(skipped(at) for at in range(60, 3 * 3600, 60))])

    assert [at for at, _, _ in notices] == [0, 3600, 7200]


def test_a_healthy_device_has_nothing_to_tell():
    assert told([taken(0), taken(60), skipped(120)]) == []


def test_an_outage_begins_with_its_first_failed_call_not_with_the_end_of_the_poll():
    outage = None
    for event in (call_failed(60, 60), call_failed(80, 60), call_failed(117, 60, None, "count", 3), failed(117)):
        outage, onset = step(outage, event)

    _, recovered = step(outage, taken(120))

    assert (onset.kind, onset.since, onset.seconds, onset.reason) == ("onset", 1060, 57, "count")
    assert (recovered.since, recovered.seconds) == (1060, 60)


def test_the_first_failed_call_of_a_device_that_was_never_read_is_for_the_log_at_once_and_for_all_after_ten_seconds():
    outage, notices = None, []
    for at in (0, 2, 6, 14, 30):
        outage, notice = step(outage, call_failed(at, 0), never_read=True)
        notices.append(None if notice is None else (notice.kind, notice.retry_in))

    assert notices == [("unread", 2.0), None, None, ("onset", 2.0), None]


def test_a_retry_that_brings_the_first_reading_in_time_is_no_outage():
    outage, _ = step(None, call_failed(0, 0), never_read=True)

    outage, notice = step(outage, taken(2))

    assert outage is None
    assert notice.kind == "read"


def test_a_retry_that_brings_the_next_reading_is_told_nowhere():
    outage, first = step(None, call_failed(0, 0))
    outage, second = step(outage, taken(2))

    assert (outage, first, second) == (None, None, None)
