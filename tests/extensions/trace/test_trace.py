"""The rows of the trace: what makes one, and which are kept."""

import pytest

from leadsman import RetryRequested
from leadsman.core.events import (
    AdapterFailed,
    AdapterReopened,
    AttemptFailed,
    CircuitMoved,
    CircuitRequested,
    DeviceHeld,
    DeviceReleased,
    PollFailed,
    ReadingTaken,
)
from leadsman.extensions.trace.trace import MAX_TRACEBACK_CHARS, Trace

AWAY = OSError("away")
BEGAN = 1_000.0


@pytest.fixture
def trace():
    return Trace({"d": "5 retries"}.get)


def failed_call(at, entity="d", error=AWAY, reason="retry", delay=1.0):
    return AttemptFailed(entity, error, 1, delay, reason, 0, 0.0, BEGAN, "closed", at=at, wall=BEGAN + at)


def failed_poll(at, entity="d", error=AWAY):
    return PollFailed(entity, error, 1, at, BEGAN + at)


def taken(at, entity="d"):
    return ReadingTaken(entity, at, BEGAN + at, 0.1)


def circuit(state, at):
    return CircuitMoved("d", state, 5, at, BEGAN + at)


def seen(trace, *events):
    for event in events:
        trace.observe(event)
    return list(trace)


def test_a_device_that_is_well_leaves_no_row(trace):
    assert seen(trace, taken(1), taken(2)) == []


def test_a_failed_call_is_a_row_with_its_error_and_what_decided(trace):
    (row,) = seen(trace, failed_call(2.0))

    assert (row.number, row.at, row.handler, row.reason, row.delay) == (1, 1002.0, "d", "retry", 1.0)
    assert (row.error_type, row.error_message, row.policy, row.breaker) == ("OSError", "away", "5 retries", "closed")


def test_an_outage_ends_with_its_recovery_and_the_next_one_begins_with_a_row_of_its_own(trace):
    rows = seen(trace, failed_call(0), failed_poll(1), circuit("open", 1), taken(60), failed_poll(120))

    assert [row.reason for row in rows] == ["retry", "circuit open", "recovered", "failed"]


def test_a_poll_that_hung_is_a_row_though_no_call_of_it_ever_raised(trace):
    (row,) = seen(trace, failed_poll(3.0, error=TimeoutError("took too long")))

    assert (row.reason, row.error_type) == ("failed", "TimeoutError")


def test_an_outage_goes_on_over_a_restart(trace):
    trace.resume(["d"])

    assert [row.reason for row in seen(trace, failed_poll(1), taken(2))] == ["recovered"]


def test_a_device_that_asks_for_a_pause_is_shown_with_the_pause_that_it_asked_for(trace):
    (row,) = seen(trace, failed_call(1, error=RetryRequested("10m", "busy"), reason="deferred", delay=None))

    assert (row.reason, row.delay) == ("deferred", 600.0)


def test_a_probe_that_another_device_made_leaves_no_rows(trace):
    rows = seen(trace, failed_poll(1), circuit("open", 1), circuit("half_open", 60), circuit("open", 61))

    assert [row.reason for row in rows] == ["failed", "circuit open"]


def test_what_a_person_did_names_the_person(trace):
    rows = seen(
        trace,
        DeviceHeld("d", "", 1.0, BEGAN),
        DeviceReleased("d", "ann", 2.0, BEGAN),
        CircuitRequested("d", "isolate", "bob", 3.0, BEGAN),
    )

    assert [(row.reason, row.by) for row in rows] == [
        ("held", None),
        ("released", "ann"),
        ("asked to isolate the circuit", "bob"),
    ]


def test_an_adapter_has_rows_of_its_own(trace):
    rows = seen(
        trace, AdapterFailed("SerialPort", AWAY, 5.0, 1.0, BEGAN), AdapterReopened("SerialPort", "reset", 2.0, BEGAN)
    )

    assert [(row.handler, row.reason, row.delay) for row in rows] == [
        ("SerialPort", "adapter failed", 5.0),
        ("SerialPort", "adapter reset", None),
    ]


def test_a_device_that_fails_each_second_takes_no_row_from_another():
    trace = Trace({}.get, rows=10)
    trace.observe(failed_call(0, "quiet"))

    rows = seen(trace, *[failed_call(at, "loud") for at in range(100)])

    assert len(rows) == 11
    assert rows[0].handler == "quiet"
    assert [row.at for row in rows[1:]] == [BEGAN + at for at in range(90, 100)]


def test_of_too_many_rows_in_all_the_device_that_has_most_loses_its_oldest():
    trace = Trace({}.get, rows=100, most=12)

    rows = seen(
        trace, *[failed_call(at, f"d{at % 3}") for at in range(3)], *[failed_call(at, "loud") for at in range(3, 50)]
    )

    assert len(rows) == 12
    assert {"d0", "d1", "d2"} < {row.handler for row in rows}


def test_rows_are_chosen_by_device_time_and_number(trace):
    seen(trace, failed_call(1, "a"), failed_call(2, "b"), failed_call(3, "a"))

    assert [row.number for row in trace.rows(frozenset({"a"}))] == [1, 3]
    assert [row.number for row in trace.rows(since=BEGAN + 2)] == [2, 3]
    assert [row.number for row in trace.rows(after=2)] == [3]


def test_rows_of_a_device_with_the_same_traceback_share_its_text(trace):
    """A row is 150 bytes, its traceback up to `MAX_TRACEBACK_CHARS` characters, and there are 4,096 rows."""
    first, well, second = seen(trace, failed_call(1), taken(2), failed_call(3))
    other = seen(trace, failed_call(4, error=OSError("full")))[-1]

    assert (first.traceback, well.traceback) == ("OSError: away", None)
    assert second.traceback is first.traceback
    assert other.traceback == "OSError: full"


def test_a_traceback_is_bounded_and_keeps_its_end_and_no_control_character(trace):
    def fall(depth):
        if depth:
            fall(depth - 1)
        raise ValueError("the \x1b[2J end" + "x" * 100)

    try:
        fall(300)
    except ValueError as error:
        (row,) = seen(trace, failed_call(1, error=error))

    assert len(row.traceback) <= MAX_TRACEBACK_CHARS + 100
    assert row.traceback.splitlines()[-1].startswith("ValueError: the \\x1b[2J end")
    assert "\x1b" not in row.traceback
