from leadsman.events import PollFailed, PollSkipped, ReadingTaken
from leadsman.outage import step


def told(events):
    """The notices of a history, with the time of each."""
    outage, notices = None, []
    for event in events:
        outage, notice = step(outage, event)
        if notice:
            notices.append((event.at, notice.kind, notice.failures))
    return notices


def failed(at, error=None):
    return PollFailed("d", at, 1000 + at, error or OSError("gone"), 1)


def skipped(at):
    return PollSkipped("d", at, 1000 + at)


def taken(at):
    return ReadingTaken("d", at, 1000 + at, 0.1)


def test_an_outage_is_told_at_onset_and_when_failures_double():
    assert told(failed(n) for n in range(10)) == [
        (0, "onset", 1),
        (1, "reminder", 2),
        (3, "reminder", 4),
        (7, "reminder", 8),
    ]


def test_after_an_hour_reminders_come_hourly():
    notices = told(failed(at) for at in range(0, 6 * 3600, 60))

    assert [at for at, kind, _ in notices if at >= 3600] == [5460, 9060, 12660, 16260, 19860]


def test_a_day_of_failures_every_half_minute_is_told_in_a_few_dozen_lines():
    assert len(told(failed(at) for at in range(0, 86_400, 30))) < 40


def test_a_new_type_of_error_is_told_once():
    errors = [OSError("a"), OSError("b"), ValueError("c"), OSError("d"), ValueError("e"), ValueError("f")]

    notices = told(failed(at, error) for at, error in enumerate(errors))

    assert [at for at, _, _ in notices] == [0, 1, 2, 3]


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
