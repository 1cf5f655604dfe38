"""Gateways in virtual time that hear the same sensors, and whose network, processes and broker fail by a script."""

import asyncio
import itertools
import random
from typing import NamedTuple

from leadsman.nodes.cluster.hearing import Hearings, key_of
from leadsman.nodes.cluster.node import ClusterNode
from leadsman.nodes.lease.lease import Member
from leadsman.testing import VirtualLoop
from leadsman_rigs.memory_engine import MemoryEngine, Pause

ON_THE_WAY = 0.01
"""Seconds that a message of MQTT takes."""


class Sensor(NamedTuple):
    name: str
    period: float
    """Seconds between two advertisements."""
    level: object
    """How strong each gateway hears it, in dBm, by gateway and time; None if it does not."""
    noise: float = 0.0
    """dB, to either side."""


class Gateway(NamedTuple):
    node: str
    start: float = 0.0
    end: float = 1e9
    killed: bool = True


class Silence(NamedTuple):
    """A gateway and the broker do not reach each other."""

    node: str
    start: float
    end: float


class Published(NamedTuple):
    at: float
    device: str
    node: str
    token: int


class House:
    def __init__(self, sensors, terms, faults=(), seed=0):
        self.sensors, self.terms, self.faults = sensors, terms, faults
        self.dice = random.Random(seed)
        self.published, self.nodes = [], {}

    def run(self, gateways, seconds):
        loop = VirtualLoop()
        try:
            loop.run_until_complete(self._run(gateways, seconds))
        finally:
            loop.close()
        return self

    async def _run(self, gateways, seconds):
        engine = MemoryEngine(self.terms, [fault for fault in self.faults if not isinstance(fault, Silence)])
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(self._live(engine, each, run)) for run, each in enumerate(gateways)]
            await asyncio.sleep(seconds)
            for each in running:
                each.cancel()

    async def _live(self, engine, gateway, run):
        await asyncio.sleep(gateway.start)
        clock, member = engine.clock(gateway.node), Member(gateway.node, str(run))
        store = engine.store(member)
        node = ClusterNode(store, member, self.terms, (), clock, Nothing())
        node.hearings = Hearings(member, self.terms.ttl)
        self.nodes[gateway.node] = node
        tasks = [asyncio.ensure_future(node.run()), asyncio.ensure_future(self._report(engine, gateway.node, node))]
        tasks += [asyncio.ensure_future(self._hear(engine, gateway.node, node, each)) for each in self.sensors]
        try:
            await asyncio.wait(tasks, timeout=gateway.end - gateway.start)
        finally:
            if gateway.killed:
                store.release = store._call = say_nothing
            if self.nodes[gateway.node] is node:
                del self.nodes[gateway.node]
            for each in tasks:
                each.cancel()
            await asyncio.wait(tasks)
        for each in tasks:
            if not each.cancelled():
                each.result()

    async def _hear(self, engine, name, node, sensor):
        loop = asyncio.get_running_loop()
        for number in itertools.count(1):
            await asyncio.sleep(max(0.0, number * sensor.period - loop.time()))
            if self._stopped(name, loop.time()):
                continue
            level = sensor.level(name, loop.time())
            if level is None:
                continue
            now, signal = engine.clock(name).uptime(), level + self.dice.uniform(-sensor.noise, sensor.noise)
            if node.hearings.hear(sensor.name, signal, now):
                node.look_again()
            key = key_of(sensor.name)
            if node.allows(key):
                (lease,) = node.held.leases([key])
                self.published.append(Published(loop.time(), sensor.name, name, lease.token))

    async def _report(self, engine, name, node):
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(node.hearings.interval)
            await engine.awake(name)
            report = node.hearings.report()
            for other in [each for each in self.nodes if each != name]:
                if not self._silent(name, loop.time()) and not self._silent(other, loop.time()):
                    loop.call_later(ON_THE_WAY, self._told, engine, other, name, report)

    def _told(self, engine, name, by, report):
        now = asyncio.get_running_loop().time()
        if (resumes := engine.script.resumes_at(name, now)) > now:
            asyncio.get_running_loop().call_later(resumes - now, self._told, engine, name, by, report)
            return
        node, now = self.nodes.get(name), engine.clock(name).uptime()
        if node is not None and node.hearings.on_report(by, report, now):
            node.look_again()

    def _silent(self, node, now):
        return any(
            isinstance(fault, Silence) and fault.node == node and fault.start <= now < fault.end
            for fault in self.faults
        )

    def _stopped(self, node, now):
        return any(
            isinstance(fault, Pause) and fault.node == node and fault.start <= now < fault.end for fault in self.faults
        )

    def owners(self, device="attic", start=0.0):
        """Who published a device, each time that it was another one."""
        mine = [each for each in self.published if each.device == device and each.at >= start]
        return [node for node, _ in itertools.groupby(each.node for each in mine)]

    def token_falls(self):
        """Readings that follow one with a greater token: of a former owner."""
        newest = {}
        for each in self.published:
            if each.token < newest.get(each.device, 0):
                yield each
            newest[each.device] = max(each.token, newest.get(each.device, 0))

    def twice(self):
        """Advertisements that two gateways published."""
        seen = {}
        for each in self.published:
            seen.setdefault((each.device, round(each.at, 3)), set()).add(each.node)
        return [key for key, nodes in seen.items() if len(nodes) > 1]

    def gap(self, device="attic", start=0.0):
        """The longest time without a reading from `start` on, in seconds."""
        times = [start, *(each.at for each in self.published if each.device == device and each.at >= start)]
        return max((two - one for one, two in itertools.pairwise(times)), default=float("inf"))


class Nothing:
    async def begin(self, tokens):
        pass

    async def end(self, keys):
        pass


async def say_nothing(*arguments):
    """What a process that was killed tells the engine."""
