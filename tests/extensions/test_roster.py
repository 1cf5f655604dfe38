"""Devices of every kind join and leave an app, alone and as a node of a cluster, and fail and are held meanwhile. After
each step, whatever knows devices knows the same ones as one plain dict."""

import asyncio
import contextlib
import itertools
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leadsman import App, Context, Finds
from leadsman.core.loop.clock import system_clock
from leadsman.core.mqtt.link import Access
from leadsman.core.parts.kinds import FOUND, STATUSES
from leadsman.core.settings.sources import Where
from leadsman.core.wiring.build import build
from leadsman.core.wiring.run import run, stop
from leadsman.extensions.discovery.kinds import DESCRIBED
from leadsman.extensions.ledger.kinds import LEDGERS
from leadsman.extensions.nodes.cluster.part import SharingNode
from leadsman.testing import MemoryBroker, VirtualLoop
from leadsman_rigs.examples import examples
from leadsman_rigs.memory_engine import EngineAway, MemoryEngine

READ, TAKEN = {"telemetry", "both", "job", "source", "found", "finder"}, {"command", "both"}
KINDS = {
    "meter": "telemetry",
    "boiler": "both",
    "sweep": "job",
    "feed": "source",
    "valve": "command",
    "gateway": "finder",
}
NAMES = [*KINDS, "spare", "attic", "garden", "cellar"]
SHARDS = {"first": ("boiler", "gateway", "sweep"), "second": ("feed", "meter", "valve")}
STEP = st.one_of(
    st.tuples(st.sampled_from(["begin", "end"]), st.sampled_from([*SHARDS])),
    st.tuples(st.sampled_from(["find", "forget"]), st.sampled_from(["attic", "garden", "cellar"])),
    st.tuples(st.sampled_from(["fail", "work", "hold", "release"]), st.sampled_from([*KINDS, "attic"])),
    st.tuples(st.just("pass"), st.sampled_from([1, 7, 70])),
)


class House:
    """An app, and what must be known of its devices."""

    def __init__(self, loop, directory, *, shared):
        self.loop, self.shared, self.failing = loop, shared, set()
        self.broker, self.stopping, self.resources = MemoryBroker(), asyncio.Event(), contextlib.ExitStack()
        app = self.registered()
        settings = {"engine": "nats://memory", "node": "one", "labels": [], "ttl": 6.0} if shared else {}
        app.load(Where.nowhere({f"cluster.{key}": value for key, value in settings.items()}))
        variables = {"STATE_DIRECTORY": str(directory)}
        self.plan = app.plan(variables)
        self.expected = {} if shared else {**KINDS, "spare": "disabled"}

    def registered(self):
        app = App("house", mqtt="mqtt://broker", heartbeat=1, discovery="homeassistant", keep_state=True)

        def reading(name):
            async def read():
                if name in self.failing:
                    raise OSError(name)
                return {"t": 1}

            return read

        async def feed():
            yield {"t": 1}
            await asyncio.Event().wait()

        async def gateway(context: Context):
            yield
            await asyncio.Event().wait()

        async def take(value: int) -> None: ...

        for name in ("meter", "boiler", "spare"):
            app.add_telemetry(name, reading(name), interval=5, enabled=name != "spare")
        app.add_periodic("sweep", reading("sweep"), interval=5)
        app.add_source("feed", feed)
        app.add_source("gateway", gateway, finds=Finds(forget_after=None))
        app.add_command("boiler", take)
        app.add_command("valve", take)
        return app

    async def begin(self):
        access = Access(self.plan.brokers, lambda _: self.broker.connect)
        self.node = SharingNode(self.plan, system_clock(self.loop)) if self.shared else None
        core = self.core = await build(self.plan, access, self.stopping, self.resources, node=self.node)
        self.running = self.loop.create_task(run(core))

    async def end(self):
        if self.shared:
            await self.node.shards.stop(SHARDS, 1.0)
        self.stopping.set()
        await stop(self.core, await self.running)
        self.resources.close()

    async def step(self, what, which):
        found, readers = self.core.of(FOUND), self.core.runners.readers
        if what == "pass":
            await asyncio.sleep(which)
        elif what in ("begin", "end") and self.shared:
            here = SHARDS[which][0] in self.expected
            await (self.take if what == "begin" else self.give)(which) if here is (what == "end") else None
        elif what == "find" and "gateway" in self.expected:
            found.device("gateway", which)
            self.expected[which] = "found"
        elif what == "forget" and self.expected.get(which) == "found":
            found.device("gateway", which).forget()
            del self.expected[which]
        elif what == "fail" and self.expected.get(which) == "found":
            found.accept(which, {"t": object()})
        elif what in ("fail", "work"):
            (self.failing.add if what == "fail" else self.failing.discard)(which)
        elif what in ("hold", "release") and which in readers:
            readers[which].hold() if what == "hold" else readers[which].release("a test")

    async def take(self, shard):
        self.node.shards.begin(shard, SHARDS[shard], lambda: True)
        self.expected |= {name: KINDS[name] for name in SHARDS[shard]}

    async def give(self, shard):
        await self.node.shards.stop([shard], 1.0)
        self.node.shards.remove([shard])
        left = (
            {name for name, kind in self.expected.items() if kind == "found"} if "gateway" in SHARDS[shard] else set()
        )
        self.expected = {name: kind for name, kind in self.expected.items() if name not in left | {*SHARDS[shard]}}

    def known(self):
        """What each part knows, and what it must know."""
        core, kinds = self.core, self.expected
        enabled = {name for name, kind in kinds.items() if kind != "disabled"}
        jobs = {name for name, kind in kinds.items() if kind == "job"}
        read = {name for name, kind in kinds.items() if kind in READ}
        polled = {name for name, kind in kinds.items() if kind in ("telemetry", "both", "job")}
        yield "roster", core.roster, {*kinds}
        yield "health", core.records.entities, enabled
        yield "statuses", core.of(STATUSES).words, enabled
        yield "jobs", core.of(STATUSES).jobs, jobs
        yield "readers", core.runners.readers, read
        yield "polls", core.roster.polls, polled
        yield "commands", core.runners.commands, {name for name, kind in kinds.items() if kind in TAKEN}
        ledgers = [name for name in NAMES if name in core.of(LEDGERS).ledgers]
        yield "ledgers", ledgers, {name for name in kinds if name in read or name == "spare"}
        status = json.loads(self.broker.retained[self.plan.topics.status].payload)
        yield "heartbeat", status["devices"], enabled - jobs
        yield "registry", self.listed(), {*kinds} - jobs
        yield "discovery", core.of(DESCRIBED).registered.names, enabled - jobs

    def listed(self):
        pages = [self.plan.topics.registry, *(f"{self.plan.topics.registry}/{number}" for number in range(1, 9))]
        return itertools.chain.from_iterable(
            json.loads(self.broker.retained[page].payload).get("devices", {})
            for page in pages
            if page in self.broker.retained and self.broker.retained[page].payload
        )


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(shared=st.booleans(), steps=st.lists(STEP, max_size=12))
def test_all_that_know_devices_know_the_same(tmp_path_factory, shared, steps):
    loop = VirtualLoop()

    async def run():
        house = House(loop, tmp_path_factory.mktemp("state"), shared=shared)
        await house.begin()
        for step in (("pass", 1), *steps):
            await house.step(*step)
            await asyncio.sleep(15)  # what describes a forgotten device goes first, then its topics, then its entry
            for what, known, wanted in house.known():
                assert {*known} == wanted, (what, step)
        await house.end()

    with pytest.MonkeyPatch.context() as patch:
        store = "leadsman.extensions.nodes.cluster.cluster.JetStreamStore"
        away = (EngineAway(0.0, math.inf),)  # the steps say which shards are here, and not the engine
        patch.setattr(store, lambda url, terms, member: MemoryEngine(terms, away).store(member, terms))
        try:
            loop.run_until_complete(run())
        finally:
            loop.close()
