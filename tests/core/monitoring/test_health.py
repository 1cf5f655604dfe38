import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.core.events import CircuitMoved, DeviceLeft, PollFailed, PollMissed, ReadingTaken
from leadsman.core.monitoring.health import Health, HealthRecords, fold, is_offline, is_stale, next_change, status

error = OSError("gone")


def after(*events):
    health = Health(0.0, stale_after=100.0)
    for event in events:
        fold(health, event)
    return health


def taken(at):
    return ReadingTaken("d", at, 1000.0 + at, 0.1)


def failed(at, error=error):
    return PollFailed("d", error, 1, at, 1000.0 + at)


def circuit(state, at=1.0):
    return CircuitMoved("d", state, 5, at, 1000.0 + at)


def test_a_device_begins_as_starting():
    assert status(after(), 1.0) == "starting"


def test_a_reading_makes_it_ok():
    assert status(after(taken(1.0)), 2.0) == "ok"


def test_a_failed_poll_makes_it_an_error_that_tells_why_and_since_when():
    health = after(failed(5.0), failed(6.0, ValueError("odd")))

    assert status(health, 7.0) == "error"
    assert (
        health.trouble.failures,
        health.trouble.failing_wall,
        health.trouble.error_type,
        health.trouble.error_message,
    ) == (
        2,
        1005.0,
        "ValueError",
        "odd",
    )


def test_a_bug_has_its_place_and_what_any_device_may_do_has_none():
    def error_of(raised):
        try:
            raise raised
        except Exception as error:  # of any class
            return after(failed(1.0, error)).trouble.error_message

    assert re.fullmatch(r"'t' \(test_health\.py:\d+\)", error_of(KeyError("t")))
    assert error_of(OSError("no answer")) == "no answer"


def test_a_reading_ends_the_error():
    health = after(failed(5.0), taken(6.0))

    assert status(health, 7.0) == "ok"
    assert health.trouble.error_message is None


def test_staleness_is_seen_by_the_clock_alone():
    assert [status(after(taken(1.0)), now) for now in (101.0, 101.1)] == ["ok", "stale"]
    assert status(after(), 100.1) == "stale"


def test_a_device_that_was_never_read_and_fails_is_an_error_and_never_stale():
    never, once = after(failed(1.0)), after(taken(1.0), failed(2.0))

    assert [status(never, now) for now in (2.0, 1e9)] == ["error", "error"]
    assert [status(once, now) for now in (3.0, 1e9)] == ["error", "stale"]
    assert [is_offline("error", never, now) for now in (2.0, 1e9)] == [False, True]


@pytest.mark.parametrize("state", ["open", "half_open"])
def test_an_open_circuit_wins_over_everything_also_while_it_is_probed(state):
    health = after(failed(1.0), circuit(state))

    assert status(health, 2.0) == "circuit_open"
    assert status(health, 1e9) == "circuit_open"
    assert is_stale(health, 1e9)


def test_missed_polls_are_counted():
    health = after(PollMissed("d", 3, 1.0, 1.0), PollMissed("d", 1, 2.0, 2.0))

    assert health.counters.missed_polls == 4


def test_passwords_in_an_error_do_not_reach_the_record():
    health = after(failed(1.0, OSError("cannot reach mqtt://ann:hunter2@host\nForged")))

    assert "hunter2" not in health.trouble.error_message
    assert "\n" not in health.trouble.error_message


events = st.lists(
    st.one_of(
        st.floats(0, 1e3).map(taken),
        st.floats(0, 1e3).map(failed),
        st.sampled_from(["closed", "open", "half_open"]).map(circuit),
        st.builds(PollMissed, st.just("d"), st.just(1.0), st.just(1.0), st.integers(1, 5)),
    )
)


@given(events, st.floats(0, 1e4))
def test_looking_changes_nothing_and_two_lookers_agree(history, now):
    records = HealthRecords()
    records.register("d", 100.0, 0.0)
    for event in history:
        records(event)

    assert status(records.entities["d"], now) == status(after(*history), now)


@given(events)
def test_the_next_staleness_is_announced_exactly(history):
    records = HealthRecords()
    records.register("d", 100.0, 0.0)
    for event in history:
        records(event)
    now = records.entities["d"].fresh_at

    at = next_change(records.entities["d"], now)

    assert not is_stale(records.entities["d"], at)
    assert is_stale(records.entities["d"], at + 0.01)


@given(st.lists(st.sampled_from(["failed", "missed", "open", "closed"])), st.floats(1, 1e4))
def test_a_device_that_has_left_is_offline_until_its_next_reading(others, now):
    health = after(taken(1.0), DeviceLeft("d", "it sleeps", 2.0, 1002.0))
    for word in others:
        fold(health, {"failed": failed(3.0), "missed": PollMissed("d", 1, 3.0)}.get(word) or circuit(word))

    word = status(health, now)

    assert word == ("circuit_open" if health.circuit == "open" else "deferred")
    assert is_offline(word, health, now)
    fold(health, taken(now))
    fold(health, circuit("closed"))
    assert not is_offline(status(health, now), health, now)


@pytest.mark.parametrize(
    ("offline_on", "offline"),
    [((), False), ((BaseException,), True), ((OSError,), True), ((LookupError, TimeoutError), False)],
)
def test_an_error_is_offline_only_by_choice(offline_on, offline):
    health = Health(stale_after=100.0, offline_on=offline_on)
    fold(health, taken(1.0))
    assert not is_offline(status(health, 2.0), health, 2.0)
    fold(health, failed(3.0))

    assert is_offline(status(health, 4.0), health, 4.0) is offline
