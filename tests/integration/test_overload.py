"""More polls than the CPU can make: each handler call takes 1 ms of a virtual CPU."""

import pytest

from leadsman import App

DEVICES, INTERVAL, CALL = 60, 0.02, 0.001
"""Asked: 3,000 readings a second. Possible: 1,000, if nothing else is done."""


@pytest.fixture
def overloaded(harness):
    calls = {f"d{number}": [] for number in range(DEVICES)}
    app = App("app", heartbeat="10s")
    for name in calls:

        async def read(name=name):
            calls[name].append(running.now)
            running.loop.block(CALL)
            return {"n": len(calls[name])}

        app.add_telemetry(name, read, interval=INTERVAL, spread=0)
    running = harness(app)
    running.calls = calls
    return running


def test_each_device_gets_its_share(overloaded):
    overloaded.run(10)

    counts = [len(calls) for calls in overloaded.calls.values()]
    assert max(counts) - min(counts) <= 1
    assert sum(counts) * CALL >= 0.95 * 10  # the connection keeps up, so no time is left unused


def test_each_point_of_a_schedule_is_a_poll_or_counted_as_missed(overloaded):
    overloaded.run(15)

    status = overloaded.broker.messages("app/status")[-1]
    assert status.at > 4
    for name, calls in overloaded.calls.items():
        polled = sum(call <= status.at for call in calls)
        missed = status.json["devices"][name]["missed_polls"]
        counted = (polled + missed) * INTERVAL
        assert status.at - 1.2 < counted < status.at + 0.2  # reported each second; a round of polls takes 0.12 s


def test_the_broker_receives_what_is_read_while_it_is_read(overloaded):
    overloaded.run(10)

    ages = []
    for name, calls in overloaded.calls.items():
        received = overloaded.broker.messages(f"app/{name}/state")
        assert len(received) >= len(calls) - 2
        ages += [message.at - calls[message.json["n"] - 1] for message in received]
    assert max(ages) < 0.2


def test_the_log_says_it_once_a_minute(overloaded, caplog):
    overloaded.run(20)

    [line] = [line.getMessage() for line in caplog.records if "missed so far" in line.getMessage()]
    assert "the machine slept or has too much to do" in line
