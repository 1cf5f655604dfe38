"""The lines of the log that are about no outage of a device: each once, or counted."""

import logging

import pytest

from leadsman.core.events import (
    AdapterFailed,
    AppFault,
    AttemptFailed,
    CircuitMoved,
    CircuitRequested,
    CommandDone,
    DeviceHeld,
    DeviceLeft,
    DeviceReleased,
    FieldsLeftOut,
    LinkDown,
    LinkLimited,
    LinkSettled,
    LinkUp,
    MessageDropped,
    MessageRefused,
    PollMissed,
    ReadingTaken,
    StateFailed,
    StateWritten,
    SubscriptionFailed,
)
from leadsman.core.monitoring.event_log import LONG_OUTAGE_SECONDS, MAX_REASONS, REMIND, Log, on_reading
from leadsman.core.text.log_lines import MAX_LINES, Lines

FULL = OSError(28, "No space left on device")


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


@pytest.fixture
def log(caplog):
    caplog.set_level(logging.INFO, "leadsman")
    return Log("house", "house", Lines(), Alarms())


def up(at, protocol="5.0"):
    return LinkUp(1, protocol, "mqtt5", at=at, wall=1000.0 + at)


def down(at, reason="connection lost", **more):
    return LinkDown(reason, 1.0, **more, at=at, wall=1000.0 + at)


def circuit(state, at, entity="d"):
    return CircuitMoved(entity, state, 3, at, 1000.0 + at)


def dropped(at, messages=1):
    return MessageDropped("house/d/state", "the outbox is full", messages, at, 1000.0 + at)


def test_an_outage_of_the_broker_is_one_line_for_each_reason_and_one_with_its_length(log, caplog):
    for event in (up(0), down(10), down(11), down(12, "connection refused"), down(13), up(70)):
        log.observe(event)

    assert caplog.messages == [
        "house: connected to the broker with MQTT 5.0 by mqtt5",
        "No connection to the broker: connection lost. Readings are kept; trying again.",
        "No connection to the broker: connection refused. Readings are kept; trying again.",
        "house: connected to the broker with MQTT 5.0 by mqtt5 after 1m",
    ]


def test_a_broker_with_a_new_reason_each_time_has_a_bounded_log(log, caplog):
    for number in range(500):
        log.observe(down(number, f"error {number}"))

    assert len(caplog.messages) == MAX_REASONS


def test_a_broker_that_comes_and_goes_has_three_outages_in_the_log_then_a_count(caplog):
    caplog.set_level(logging.INFO, "leadsman")
    alarms = Alarms()
    log = Log("house", "house", Lines(), alarms)
    log.observe(up(0))
    for second in range(2, 3600, 2):
        log.observe(down(second, f"reset {second}"))
        log.observe(up(second + 1))
        alarms.pass_until(second + 1)
    alarms.pass_until(7200)

    whole = [line for line in caplog.messages if "No connection" in line]
    counts = [line for line in caplog.messages if "of the connection to the broker so far" in line]
    assert whole[:3] == [
        f"No connection to the broker: reset {second}. Readings are kept; trying again." for second in (2, 4, 6)
    ]
    assert counts[0] == "1 more break of the connection to the broker so far, the last one: reset 8"
    assert len(caplog.messages) < 50
    assert int(counts[-1].split()[0]) + len(whole) == len(range(2, 3600, 2))


def test_an_outage_that_lasts_is_logged_however_often_the_connection_broke_before(caplog):
    caplog.set_level(logging.INFO, "leadsman")
    alarms = Alarms()
    log = Log("house", "house", Lines(), alarms)
    for second in range(2, 20, 2):
        log.observe(down(second))
        log.observe(up(second + 1))
    log.observe(down(20, "the broker is switched off"))
    alarms.pass_until(20 + LONG_OUTAGE_SECONDS - 1)
    assert "switched off. Readings are kept" not in caplog.text
    alarms.pass_until(20 + LONG_OUTAGE_SECONDS)
    alarms.pass_until(20 + LONG_OUTAGE_SECONDS)
    log.observe(up(200))

    assert caplog.messages[-2:] == [
        "No connection to the broker: the broker is switched off. Readings are kept; trying again.",
        "house: connected to the broker with MQTT 5.0 by mqtt5 after 3m",
    ]


def test_a_receive_maximum_that_is_too_small_is_logged_at_most_once_an_hour(log, caplog):
    for at in (0.0, REMIND - 1, REMIND):
        log.observe(LinkLimited(20, at, 1000.0 + at))

    first, second = caplog.messages
    assert first == second
    assert "20 messages in flight (Receive Maximum)" in first


def test_two_clients_with_one_id_are_logged_once_and_when_the_connection_holds_again(log, caplog):
    for at in range(5):
        log.observe(down(at, "another client uses the client id 'house'", clash=True))
        log.observe(up(at + 0.5))
    log.observe(LinkSettled(60.0, 1060.0))

    first, last = caplog.messages
    assert "another client uses" in first
    assert last == "house: the connection to the broker is stable again"


def test_with_several_brokers_the_lines_say_which_one_is_next_and_which_one_works(log, caplog):
    log.observe(LinkDown("cannot connect to mqtt://a:1883", 0.4, broker="mqtt://b:1883", at=0.0, wall=1000.0))
    log.observe(LinkUp(1, "5.0", "mqtt5", "mqtt://b:1883", at=1.0, wall=1001.0))

    assert caplog.messages == [
        "No connection to the broker: cannot connect to mqtt://a:1883. Readings are kept; trying mqtt://b:1883.",
        "house: connected to the broker mqtt://b:1883 with MQTT 5.0 by mqtt5 after 1s",
    ]


def test_a_connection_that_breaks_on_a_topic_adds_no_line_to_that_of_the_topic(log, caplog):
    log.observe(down(1, "closed", topic="house/d/state"))
    log.observe(up(2))

    assert caplog.messages == []


def test_an_old_broker_is_told_once_with_what_to_write(log, caplog):
    for at in (0, 10):
        log.observe(up(at, "3.1.1"))

    assert sum("Delivery(taken_at='payload')" in line for line in caplog.messages) == 1


def test_a_topic_that_the_broker_refuses_is_a_line_an_hour_with_the_count(log, caplog):
    for at in range(0, int(REMIND) + 60, 60):
        log.observe(MessageRefused("house/d/state", "quota exceeded (0x97)", 60.0, float(at), 1000.0 + at))

    first, second = caplog.messages
    assert first == "The broker refuses messages to house/d/state: quota exceeded (0x97). They are kept and sent again."
    assert "(0x97); 61 times so far." in second


def test_a_circuit_is_logged_when_it_opens_and_when_it_closes_not_at_each_probe(log, caplog):
    for at, state in enumerate(("open", "half_open", "open", "half_open", "closed")):
        log.observe(circuit(state, float(at)))

    assert caplog.messages == [
        "d: circuit open after 3 failed polls; the device is polled less often until it answers",
        "d: circuit closed",
    ]


def test_a_circuit_that_a_person_closes_is_told_once_and_not_as_if_the_device_were_well(log, caplog):
    log.observe(circuit("open", 0.0))
    log.observe(CircuitRequested("d", "close", "ann", 1.0, 1001.0))
    log.observe(circuit("closed", 1.0)._replace(by_hand=True))
    log.observe(circuit("open", 9.0))
    log.observe(circuit("closed", 20.0))

    assert caplog.messages == [
        "d: circuit open after 3 failed polls; the device is polled less often until it answers",
        "d: circuit closed; the device is polled as after a success (requested by ann)",
        "d: circuit open after 3 failed polls; the device is polled less often until it answers",
        "d: circuit closed",
    ]


def test_a_circuit_that_flaps_has_bounded_lines_and_the_rest_is_counted(log, caplog):
    for at in range(20):
        log.observe(circuit("open", at))
        log.observe(circuit("closed", at + 0.5))
    log.observe(circuit("open", 120.0))

    assert len(caplog.messages) == MAX_LINES + 1
    assert caplog.messages[-1].endswith(f"({40 - MAX_LINES} lines about it left out before this one)")


def test_a_device_that_says_goodbye_at_each_poll_has_a_line_an_hour_and_one_for_each_other_reason(log, caplog):
    for at in range(0, int(REMIND) + 60, 60):
        log.observe(DeviceLeft("d", "it does not answer", float(at), 1000.0 + at))
    log.observe(DeviceLeft("d", "its battery is low", REMIND + 60.0, 5000.0))

    assert caplog.messages == [
        *["d: marked unavailable: it does not answer"] * 2,
        "d: marked unavailable: its battery is low",
    ]


def test_missed_polls_and_failed_commands_are_counted(log, caplog):
    log.observe(PollMissed("d", 3, 1.0, 1001.0, "the poll before still ran"))
    log.observe(PollMissed("d", 1, 2.0, 1002.0))
    log.observe(CommandDone("lamp", 0.1, ValueError("odd"), 3.0, 1003.0))
    log.observe(CommandDone("lamp", 0.1, None, 4.0, 1004.0))

    assert caplog.messages == [
        "3 polls missed so far, the last one of d: the poll before still ran",
        "1 command failed so far, the last one for lamp: ValueError: odd",
    ]


def test_polls_that_a_late_timer_missed_are_not_blamed_on_the_device(log, caplog):
    log.observe(PollMissed("d", 1, 1.0, 1001.0))

    assert caplog.messages == [
        "1 poll missed so far, the last one of d: the app was late, because the machine slept or has too much to do"
    ]


def test_what_a_person_did_names_the_person_and_a_held_device_says_how_to_release_it(log, caplog):
    log.observe(DeviceHeld("d", "", 1.0, 1001.0))
    log.observe(DeviceReleased("d", "ann", 2.0, 1002.0))
    log.observe(CircuitRequested("d", "isolate", "bob", 3.0, 1003.0))

    held, released, isolated = caplog.messages
    assert "leadsman release d --prefix house" in held
    assert released == "d: released by ann"
    assert isolated.endswith("(requested by bob)")


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (FieldsLeftOut("d", ("t", "h"), 1.0, 1001.0), "d: fields left out because they are NaN or infinite: t, h"),
        (
            SubscriptionFailed("a/#", "the broker refused 'a/#'", 1.0, 1001.0),
            "the broker refused 'a/#'; messages to it do not arrive",
        ),
        (AdapterFailed("Port", OSError("busy"), 5.0, 1.0, 1001.0), "Port cannot be opened: busy; next attempt in 5s"),
        (AppFault("the heartbeat", ZeroDivisionError("x"), 1.0, 1001.0), "the heartbeat: ZeroDivisionError: x"),
    ],
)
def test_a_fault_is_one_line_that_names_the_part_and_the_error(log, caplog, event, line):
    log.observe(event)

    (found,) = caplog.messages
    assert found.startswith(line)


def test_a_fault_that_comes_back_at_each_poll_has_a_few_lines_which_count_the_others(caplog):
    log = Log("house", "house", Lines(), Alarms())
    hour = 3600

    for second in range(24 * hour):
        log.observe(AppFault("publish rule of d", ZeroDivisionError("x"), float(second), 1001.0))

    assert len(caplog.messages) < 3 * 30  # at most three in an hour, once the periods have grown
    assert caplog.messages[0] == "publish rule of d: ZeroDivisionError: x"
    assert caplog.messages[-3].endswith(f"({hour - 3} lines about it left out before this one)")


def test_calls_and_readings_are_logged_at_debug_only(log, caplog):
    failed = AttemptFailed("d", OSError("away"), 2, 1.5, "retry", 0, 0.0, 1000.0, "closed", at=1.0, wall=1001.0)
    log.observe(failed)
    assert caplog.messages == []

    caplog.set_level(logging.DEBUG, "leadsman")
    log.observe(failed)
    on_reading(ReadingTaken("d", 2.0, 1002.0, 0.25))

    assert caplog.messages == ["d: call 2 failed: OSError: away (again in 1.5 s)", "d: poll succeeded in 0.250 s"]


def test_the_log_says_when_a_state_file_cannot_be_written_and_when_it_can_again(caplog):
    caplog.set_level(logging.INFO, "leadsman")
    log = Log("house", "house", Lines(), Alarms())

    log.observe(StateFailed("resilience.db", FULL, 1.0, 1001.0))
    log.observe(StateWritten("resilience.db", 2.0, 1002.0))

    first, second = caplog.messages
    assert first.startswith(
        "resilience.db cannot be read or written, and the app keeps its state in memory only: [Errno"
    )
    assert first.endswith("No space left on device; delete something on its disk")
    assert second == "resilience.db is written again"


def test_of_a_state_file_that_a_newer_version_wrote_the_log_has_one_remedy(caplog):
    newer = "it was written by a newer version of leadsman; install that version again, or move the file away"

    Log("house", "house", Lines(), Alarms()).observe(StateFailed("resilience.db", OSError(newer), 1.0, 1001.0))

    assert caplog.messages[0].endswith(f": {newer}")


def test_what_is_dropped_after_the_first_line_is_told_a_minute_later_though_nothing_more_happens(caplog):
    alarms = Alarms()
    log = Log("house", "house", Lines(), alarms)

    log.observe(dropped(0))
    log.observe(dropped(1, 500))
    alarms.pass_until(3600)

    assert caplog.messages == [
        "1 message dropped so far, the last one of house/d/state: the outbox is full",
        "501 messages dropped so far, the last one of house/d/state: the outbox is full",
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

    first = [lines.left_out("d", at) for at in range(MAX_LINES + 5)]

    assert first == [0] * MAX_LINES + [None] * 5
    assert lines.left_out("other", 20) == 0
    assert [lines.left_out("d", 61), lines.left_out("d", 62)] == [5, 0]
