"""A broker that is far away: a real one, behind a proxy that delays what passes, 200 ms each way."""

import json
import time
from contextlib import ExitStack

import pytest

from leadsman.testing import Mosquitto
from leadsman_rigs.proxy import Proxy, Way

DEVICES = """
class Device:
    def __init__(self):
        self.n = 0
    async def __call__(self):
        self.n += 1
        return {"n": self.n, "at": time.time()}

for number in range(%d):
    app.add_telemetry(f"d{number}", Device(), interval=%s)
"""
DELAY = 0.2
FEW, MANY = "Receive Maximum 20", "Receive Maximum 2000"
BROKERS = {FEW: "max_inflight_messages 20\n", MANY: "max_inflight_messages 2000\n"}
"""The first is what mosquitto does by default. With 400 ms for a round trip it lets 50 readings a second through."""
COUNT, END = 15, 22
"""The devices, and the readings of each that are waited for."""


class Case:
    """Devices that one broker can carry, and what came of them."""

    def __init__(self, name, stack, start_app, listen):
        broker = stack.enter_context(Mosquitto(BROKERS[name]))
        self.proxy = stack.enter_context(Proxy(broker.port, Way(delay=DELAY)))
        self.listener = listen(broker.port)
        self.app = start_app(DEVICES % (COUNT, 0.5), self.proxy.url)

    def numbers(self, device):
        """The numbers of a device's readings, in the order they came."""
        return [json.loads(message.payload)["n"] for message in self.listener.on(f"sys/d{device}/state")]

    def wait_for(self, count):
        """Wait until so many first readings of each device have come."""
        deadline = time.monotonic() + 120
        while any(not {*self.numbers(device)}.issuperset(range(1, count + 1)) for device in range(COUNT)):
            assert time.monotonic() < deadline, self.app.log
            time.sleep(0.05)

    def cut(self):
        """End the connection of the app; wait for it if there is none at the moment."""
        deadline = time.monotonic() + 60
        while not self.proxy.cut():
            assert time.monotonic() < deadline, self.app.log
            time.sleep(0.05)


@pytest.fixture(scope="module")
def cases(start_app_for_all, listen_all_along):
    """All of them at once: nearly all of it is waiting. After ten readings, connections break."""
    with ExitStack() as stack:
        cases = {name: Case(name, stack, start_app_for_all, listen_all_along) for name in BROKERS}
        for case in cases.values():
            case.wait_for(10)
            case.calm = [case.numbers(device) for device in range(COUNT)]
        for count in (12, 16):
            for case in cases.values():
                case.wait_for(count)
                case.cut()
        for case in cases.values():
            case.wait_for(END)
        yield cases


def test_each_reading_arrives_once_and_in_the_order_of_its_device(cases):
    for numbers in cases[MANY].calm:
        assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("name", BROKERS)
def test_connections_that_break_with_messages_in_flight_cost_no_reading(cases, name):
    for device in range(COUNT):
        assert {*range(1, END + 1)}.issubset(cases[name].numbers(device))
    deadline = time.monotonic() + 60
    while cases[name].proxy.done.accepted < 3:  # the last break may have come after the last reading that is looked at
        assert time.monotonic() < deadline, cases[name].app.log
        time.sleep(0.05)


def test_they_cost_no_order_either_where_the_window_is_large_enough(cases):  # else the newest may go first
    for device in range(COUNT):
        different = list(dict.fromkeys(cases[MANY].numbers(device)))
        assert different == sorted(different)


def test_a_broker_that_allows_more_in_flight_is_given_more(proxy, listen, start_app):
    with Mosquitto(BROKERS[MANY]) as broker:
        listener = listen(broker.port)
        start_app(DEVICES % (100, 1), proxy(broker.port, delay=DELAY).url)  # twice what 20 in flight could carry
        listener.wait_for("sys/d99/state", 10, timeout=60)

    clock = time.time() - time.monotonic()
    ages = [
        clock + at - json.loads(message.payload)["at"]
        for at, message in listener.messages
        if message.topic.endswith("/state") and json.loads(message.payload)["n"] in (8, 9, 10)
    ]
    assert sorted(ages)[len(ages) // 2] < 5  # with 20 in flight it is 9 by now, and grows
