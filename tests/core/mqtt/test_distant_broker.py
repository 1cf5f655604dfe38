"""The link to a broker that is far away, in virtual time: rates, ages and order."""

import asyncio
import math
import random
from collections import deque

import pytest

from leadsman import Broker, Brokers
from leadsman.core.event_bus import EventBus
from leadsman.core.loop.clock import system_clock
from leadsman.core.mqtt.connection import ConnAck
from leadsman.core.mqtt.connection_state import V5, V311
from leadsman.core.mqtt.link import Access, ClientIdentity, Link
from leadsman.core.mqtt.message import Message
from leadsman.core.mqtt.outbox import Outbox
from leadsman.core.spool.committer import Committer
from leadsman.core.spool.row import Quota
from leadsman.testing import MemoryBroker, VirtualLoop

ROOMY = 1000
"""A Receive Maximum that limits nothing here."""
MOSQUITTO = 20
"""The Receive Maximum of mosquitto, unless it is configured."""


class Way:
    """Carries calls in order, each `delay` seconds later, and so many bytes a second."""

    def __init__(self, delay, rate=math.inf):
        self.delay, self.rate, self.calls, self.free = delay, rate, deque(), 0.0

    def __call__(self, *call):
        loop = asyncio.get_running_loop()
        size = call[1].size if isinstance(call[1], Message) else 0
        self.free = max(self.free, loop.time()) + size / self.rate
        self.calls.append((self.free + self.delay, call))
        if len(self.calls) == 1:
            loop.call_at(self.free + self.delay, self.deliver)

    def deliver(self):
        loop = asyncio.get_running_loop()
        while self.calls and self.calls[0][0] <= loop.time():
            function, *arguments = self.calls.popleft()[1]
            function(*arguments)
        if self.calls:
            loop.call_at(self.calls[0][0], self.deliver)


class Far:
    """The listener of a connection, and the connection itself, with a long road between them."""

    client = "memory"

    def __init__(self, listener, delay, rate):
        self.listener, self.there, self.back, self.number = listener, Way(delay, rate), Way(delay), 0

    def acknowledged(self, packet_id, code):
        self.back(self.listener.acknowledged, packet_id, code)

    def lost(self, reason, code=0):
        self.listener.lost(reason, code)

    def received(self, message):
        self.back(self.listener.received, message)

    @property
    def connack(self):
        return self.connection.connack

    def publish(self, message):
        self.number += 1
        self.there(self.connection.publish, message)
        return self.number

    async def subscribe(self, topic_filter, qos=1):
        await self.connection.subscribe(topic_filter, qos)

    async def close(self):
        await self.connection.close()

    def abort(self):
        self.connection.abort()

    reset = abort


class Life:
    """Devices that publish through a link to a distant broker."""

    def __init__(self, delay, receive_maximum, protocol=V5, outbox=None, path=None, rate=math.inf):
        self.broker, self.loop = MemoryBroker(ConnAck(receive_maximum)), VirtualLoop()
        self.delay, self.rate = delay, rate
        self.put, self.seen, self.committer = 0, 0, None
        self.outbox = outbox or Outbox()
        self.link = self.loop.run_until_complete(self.made(Broker(protocol=protocol), path))

    async def made(self, broker, path):
        clock, identity = system_clock(self.loop), ClientIdentity("me", "x/status", lambda _: b"")
        access = Access(Brokers(broker), lambda _: self.connect)
        events = EventBus(clock)
        link = Link(identity, access, self.outbox, clock, events)
        if path is not None:
            self.committer = Committer(link, path, Quota(least_free=0), clock, events)
            self.committer.open()
            link.store(0.25, self.committer.write)
        return link

    async def connect(self, packet, listener):
        far = Far(listener, self.delay, self.rate)
        far.connection = await self.broker.connect(packet, far)
        return far

    def backlog(self, devices, messages):
        """Readings of an outage, one a second from each device."""
        for number in range(messages):
            self.publish(number % devices, self.loop.time() - messages // devices + number // devices)

    def publish(self, device, taken_at):
        topic = f"x/d{device}/state"
        self.link.put(Message(topic, b"%d" % self.put, retain=True, taken_at=taken_at))
        self.put += 1

    def poll(self, devices, seconds):
        """All devices publish once a second."""

        async def polls():
            for _ in range(seconds):
                for device in range(devices):
                    self.publish(device, self.loop.time())
                await asyncio.sleep(1.0)

        self.loop.run_until_complete(polls())

    def start(self):
        self.task = self.loop.create_task(self.link.run())

    def run(self, seconds):
        self.loop.run_until_complete(asyncio.sleep(seconds))

    def news(self):
        """What has arrived since the last question."""
        arrived = self.broker.log[self.seen :]
        self.seen = len(self.broker.log)
        return arrived

    def end(self):
        self.task.cancel()
        self.run(0)
        if self.committer is not None:
            self.loop.run_until_complete(self.committer.finish())
        self.loop.run_until_complete(self.link.close())
        self.loop.close()


@pytest.fixture
def life():
    made = []

    def start(*arguments, **options):
        made.append(Life(*arguments, **options))
        return made[-1]

    yield start
    for each in made:
        each.end()


def ages(messages):
    """Seconds from the handler to the broker, of each topic's readings that no newer one had overtaken."""
    newest, found = {}, []
    for message in messages:
        if message.taken_at > newest.get(message.topic, -1e9):
            newest[message.topic] = message.taken_at
            found.append(message.at - message.taken_at)
    return found


def first_times(messages):
    """The numbers in the order in which they first arrived."""
    return list(dict.fromkeys(int(message.payload) for message in messages))


def test_many_devices_behind_a_long_road_deliver_everything_at_once(life):
    here = life(0.2, ROOMY)
    here.start()
    here.poll(200, 20)
    here.news()

    here.poll(200, 20)

    arrived = here.news()
    assert len(arrived) >= 200 * 19
    assert max(ages(arrived)) <= 0.6
    assert here.link.limited_by is None


def test_where_the_broker_allows_few_in_flight_readings_arrive_in_order_and_the_link_says_so(life):
    here = life(0.2, MOSQUITTO)
    here.start()
    here.poll(200, 40)

    arrived = here.news()
    assert len(arrived) >= 45 * 40
    assert [int(message.payload) for message in arrived] == list(range(len(arrived)))
    assert (here.link.window, here.link.limited_by) == (MOSQUITTO, "receive_maximum")


def test_a_backlog_is_made_up_for_quickly_and_live_readings_do_not_wait_for_it(life):
    here = life(0.025, ROOMY)
    here.backlog(15, 9900)
    here.start()

    here.poll(15, 5)

    arrived = here.news()
    live = [message.at - message.taken_at for message in arrived if int(message.payload) >= 9900]
    made_up = max(message.at for message in arrived if int(message.payload) < 9900)
    assert first_times(arrived) == list(range(here.put))
    assert 9900 / made_up >= 2000
    assert len(live) == 5 * 15
    assert max(live) <= 2


@pytest.mark.parametrize("protocol", [V5, V311])
def test_live_readings_follow_a_backlog_in_order_and_only_the_newest_is_retained(life, protocol):
    here = life(0.025, MOSQUITTO, protocol)
    here.backlog(15, 3000)
    here.start()
    here.poll(15, 15)

    arrived = here.news()
    assert [int(message.payload) for message in arrived] == list(range(here.put))
    kept = {topic: int(message.payload) for topic, message in here.broker.retained.items() if topic != "x/status"}
    assert sorted(kept.values()) == list(range(here.put - 15, here.put))
    assert not any(message.retain for message in arrived[:2985])


def test_a_device_that_is_read_often_catches_up_after_an_outage(life):
    here = life(0.025, MOSQUITTO)
    here.backlog(1, 2000)
    here.start()
    here.run(10)

    assert here.link.outbox.messages == 0


@pytest.mark.parametrize("size", [1_000, 30_000, 250_000])
def test_a_backlog_over_a_narrow_uplink_breaks_no_connection(life, size):
    here = life(0.1, ROOMY, rate=100_000 / 8)
    waiting = 1_000_000 // size
    for number in range(waiting):
        here.link.put(Message(f"x/d{number % 15}/state", b"x" * size, taken_at=float(number)))
    here.start()
    here.run(100)

    assert (here.outbox.messages, here.outbox.delivered, here.link.connects) == (0, waiting, 1)


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_ten_restarts_in_a_minute_with_500_in_flight_cost_no_message_and_no_time(life, seed):
    here, dice = life(0.1, ROOMY, outbox=Outbox(30_000, 2**25)), random.Random(seed)
    here.backlog(50, 20_000)
    waits = [5.0] * 10 if seed is None else [dice.uniform(0.0, 10.0) for _ in range(10)]
    here.start()
    for wait in waits:
        here.run(wait)
        here.broker.stop()
        here.run(1.0)
        here.broker.start()

    here.run(15)

    assert here.outbox.dropped == here.outbox.messages == 0
    assert sorted({int(message.payload) for message in here.broker.log}) == list(range(20_000))
    for device in range(50):
        numbers = first_times(here.broker.messages(f"x/d{device}/state"))
        assert numbers == sorted(numbers)


def test_the_end_does_not_wait_for_a_distant_broker_longer_than_it_may(life):
    here = life(0.2, ROOMY)
    here.start()
    here.run(1)
    here.loop.call_soon(here.backlog, 15, 9000)
    here.run(0.5)
    before = here.loop.time()

    here.loop.run_until_complete(here.link.flush(1.0))

    assert here.loop.time() - before <= 1.0 + 1e-6


class TestMoreThanTheMemoryHolds:
    """100 readings a second, of which the broker takes 50, and a memory that is full after seconds."""

    @pytest.fixture
    def here(self, life, tmp_path):
        here = life(0.2, MOSQUITTO, V5, Outbox(500), tmp_path / "outbox.db")
        here.start()
        return here

    def everything(self, here):
        here.run(here.put // 40)
        return sorted({int(message.payload) for message in here.broker.log})

    def test_no_reading_is_lost_and_each_topic_is_in_order(self, here):
        here.poll(100, 40)

        assert here.outbox.on_disk.only > 1000
        assert self.everything(here) == list(range(4000))
        for device in range(100):
            numbers = [int(each.payload) for each in here.broker.messages(f"x/d{device}/state")]
            assert numbers == sorted(set(numbers))
        assert here.outbox.dropped == 0
        assert here.outbox.on_disk.readings == 0

    def test_no_reading_is_lost_when_the_broker_is_killed_each_20_seconds(self, here):
        for _ in range(2):
            here.poll(100, 17)
            here.broker.stop()
            here.poll(100, 3)
            here.broker.start()

        assert self.everything(here) == list(range(4000))
        assert here.outbox.dropped == 0
        newest = {message.topic: message.payload for message in here.broker.log if message.retain}
        assert newest == {f"x/d{device}/state": b"%d" % (3900 + device) for device in range(100)}
