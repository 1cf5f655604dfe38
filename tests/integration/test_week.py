"""A week with random faults of devices and broker: nothing is lost, and nothing dies."""

import random

import pytest

from leadsman import App, CircuitBreaker
from leadsman.testing import Outages
from leadsman_rigs.examples import examples

pytestmark = pytest.mark.slow

DAY = 86_400.0
WEEK = 7 * DAY


def random_windows(dice, count, longest):
    starts = sorted(dice.uniform(0, WEEK - longest - 600) for _ in range(count))
    windows = []
    for start in starts:
        if not windows or start > windows[-1][1] + 600:
            windows.append((start, start + dice.uniform(1, longest)))
    return windows


@pytest.mark.parametrize("seed", range(1, 1 + examples(1)))
def test_a_week_of_random_faults_loses_no_reading_and_kills_no_task(harness, seed):
    dice = random.Random(seed)
    random.seed(seed)
    app, devices = App("app"), {}
    for number in range(10):
        counter = iter(range(10**9))
        device = Outages(lambda counter=counter: {"n": next(counter)}, random_windows(dice, 20, 2 * 3600))
        devices[f"d{number}"] = device
        breaker = CircuitBreaker(5) if number % 2 else None
        app.add_telemetry(f"d{number}", device, interval=60, retry=number % 4, circuit_breaker=breaker)
    running = harness(app)
    for start, end in random_windows(dice, 12, 6 * 3600):
        running.at(start, dice.choice([running.broker.stop, running.broker.cut, running.broker.freeze]))
        running.at(end, running.broker.start)
        running.at(end, running.broker.thaw)

    running.run(WEEK)
    running.stop()

    for name, device in devices.items():
        seen = list(dict.fromkeys(state["n"] for state in running.states(name)))
        assert seen == list(range(len(device.answered))), name
    assert running.faults() == []
    assert running.left_behind == 0
    dropped = [
        message.json["mqtt"]["outbox"]["dropped"]
        for message in running.broker.messages("app/status")
        if "mqtt" in message.json
    ]
    assert max(dropped) == 0
