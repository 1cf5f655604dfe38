"""A real mosquitto behind a road of 25 ms each way: what waits is made up for, and nothing is lost."""

import asyncio
import time
from functools import partial

import pytest

from leadsman import Brokers
from leadsman.core.event_bus import EventBus
from leadsman.core.loop.clock import system_clock
from leadsman.core.mqtt.client import connect
from leadsman.core.mqtt.connection_state import V5, V311
from leadsman.core.mqtt.link import Access, ClientIdentity, Link
from leadsman.core.mqtt.message import Message
from leadsman.core.mqtt.outbox import Outbox
from leadsman.testing import Mosquitto

ROOMY = "max_inflight_messages 1000\n"
TOPICS = 15


class Sender:
    """A link, and readings for it; both on one event loop."""

    def __init__(self, url, protocol):
        clock = system_clock(asyncio.get_running_loop())
        identity = ClientIdentity("sender", "x/status", lambda _: b"{}")
        brokers = Brokers.of(f"{url}?protocol={protocol}")
        access = Access(brokers, lambda broker: partial(connect, broker, clock))
        self.link = Link(identity, access, Outbox(), clock, EventBus(clock))
        self.number = 0

    def put(self, messages):
        for _ in range(messages):
            topic, payload = f"x/d{self.number % TOPICS}/state", b"%d" % self.number
            self.link.put(Message(topic, payload, retain=True, taken_at=time.time()))
            self.number += 1

    async def until(self, condition, seconds=60):
        async with asyncio.timeout(seconds):
            while not condition(self.link):
                await asyncio.sleep(0.02)


def sent(url, scenario, protocol=V5):
    """Run `scenario(sender)` with a link that runs, and return what it returns."""

    async def run():
        sender = Sender(url, protocol)
        running = asyncio.create_task(sender.link.run())
        try:
            return await scenario(sender)
        finally:
            running.cancel()
            await asyncio.wait({running})
            await sender.link.close()

    return asyncio.run(run())


def received(listener, count):
    """The numbers of all readings, in the order in which they first came."""
    deadline = time.monotonic() + 30
    while len(found := numbers(listener)) < count and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def numbers(listener):
    return list(dict.fromkeys(int(m.payload) for _, m in list(listener.messages) if m.topic.endswith("/state")))


def in_order(found):
    return all(
        (own := [number for number in found if number % TOPICS == topic]) == sorted(own) for topic in range(TOPICS)
    )


def kept(listen, port):
    """The readings that the broker keeps."""
    late = listen(port)
    for topic in range(TOPICS):
        late.wait_for(f"x/d{topic}/state")
    return sorted(int(message.payload) for _, message in late.messages if message.topic.endswith("/state"))


@pytest.mark.parametrize("protocol", [V5, V311])
@pytest.mark.parametrize("cuts", [0, 3])
def test_a_backlog_arrives_whole_also_if_the_connection_breaks(listen, proxy, cuts, protocol):
    async def scenario(sender):
        sender.put(6000)
        for delivered in range(500, 500 * (cuts + 1), 500):
            await sender.until(lambda link, least=delivered: link.outbox.delivered >= least)
            road.cut()
        await sender.until(lambda link: link.outbox.messages == 0)
        return sender.link.window

    with Mosquitto(ROOMY) as broker:
        listener, road = listen(broker.port), proxy(broker.port, delay=0.025)
        window = sent(f"mqtt://127.0.0.1:{road.port}", scenario, protocol)
        found = received(listener, 6000)
        retained = kept(listen, broker.port)

    assert sorted(found) == list(range(6000))
    assert retained == list(range(6000 - TOPICS, 6000))
    assert in_order(found)
    assert window == {V5: 500, V311: 100}[protocol]


def test_where_mosquitto_allows_few_in_flight_live_readings_follow_the_backlog(listen, proxy):
    async def scenario(sender):
        sender.put(1500)
        await sender.until(lambda link: link.limited_by is not None)
        live = sender.number
        sender.put(TOPICS)
        await sender.until(lambda link: link.outbox.messages == 0)
        return live

    with Mosquitto("max_inflight_messages 20\n") as broker:
        listener, road = listen(broker.port), proxy(broker.port, delay=0.025)
        live = sent(f"mqtt://127.0.0.1:{road.port}", scenario)
        found = received(listener, live + TOPICS)
        retained = kept(listen, broker.port)

    assert found == list(range(live + TOPICS))
    assert retained == list(range(live, live + TOPICS))
