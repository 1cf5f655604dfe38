"""What runners need to run, in virtual time and without an app."""

import asyncio
import json

import pytest

from leadsman.core.event_bus import EventBus
from leadsman.core.events import PollWithoutReading
from leadsman.core.loop.clock import system_clock
from leadsman.core.loop.timers import Timers
from leadsman.core.mqtt.topics import Topics
from leadsman.core.resilience.environment import Environment
from leadsman.core.runtime.handler_calls import SharedResources
from leadsman.core.runtime.other_topics import OtherTopics
from leadsman.core.runtime.publisher import PublisherContext
from leadsman.testing import VirtualLoop


class Bench:
    """The environment of runners, what they send and which events they emit."""

    def __init__(self, loop):
        self.loop = loop
        self.clock = system_clock(loop)
        self.messages, self.events = [], []
        bus = EventBus(self.clock)
        bus.subscribe(self.events.append)
        bus.subscribe_to(PollWithoutReading, self.events.append)
        self.stopping = asyncio.Event()
        self.environment = Environment(Timers(loop, bus.emit), self.clock, bus, [], self.stopping)
        others = OtherTopics(bus.emit)
        self.context = PublisherContext(self.environment, Topics("app"), self.messages.append, others)
        self.resources = SharedResources()

    def pass_time(self, seconds):
        self.loop.run_until_complete(asyncio.sleep(seconds))

    def call(self, function, *arguments):
        """Call a function within the running loop, and let what it started run."""

        async def call():
            result = function(*arguments)
            await asyncio.sleep(0.001)
            return result

        return self.loop.run_until_complete(call())

    def of(self, kind):
        return [event for event in self.events if type(event) is kind]

    def sent(self, topic):
        return [json.loads(message.payload) for message in self.messages if message.topic == topic]


@pytest.fixture
def bench():
    loop = VirtualLoop()
    asyncio.set_event_loop(loop)
    yield loop.run_until_complete(_made(loop))
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0.001))
    asyncio.set_event_loop(None)
    loop.close()


async def _made(loop):
    return Bench(loop)
