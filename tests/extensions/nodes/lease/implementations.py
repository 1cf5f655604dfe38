"""Every implementation of `LeaseStore`, as the conformance suite and the state machine use it."""

import asyncio
from contextlib import aclosing, contextmanager

import nats

from leadsman.extensions.nodes.lease.jetstream import JetStreamStore
from leadsman.testing import VirtualLoop
from leadsman_rigs.memory_engine import MemoryEngine
from leadsman_rigs.nats_server import NatsServer


class InMemory:
    """In virtual time, so waiting costs nothing."""

    real = False

    def __init__(self):
        self.engines = {}

    def loop(self):
        return VirtualLoop()

    def store(self, terms, member):
        return self.engines.setdefault(terms.cluster, MemoryEngine(terms, delay=0.0)).store(member, terms)

    async def delete(self, terms, key):
        self.engines[terms.cluster].delete(key)


class OnJetStream:
    real = True

    def __init__(self, server):
        self.server = server

    def loop(self):
        return asyncio.new_event_loop()

    def store(self, terms, member):
        return JetStreamStore(self.server.url, terms, member)

    async def delete(self, terms, key):
        client = await nats.connect(self.server.url)
        bucket = await client.jetstream().key_value(f"leadsman-{terms.cluster}")
        await bucket.delete(f"lease.{key}")
        await client.close()


@contextmanager
def in_memory():
    yield InMemory()


@contextmanager
def on_jetstream():
    with NatsServer() as server:
        yield OnJetStream(server)


IMPLEMENTATIONS = {"memory": in_memory, "jetstream": on_jetstream}


async def members_of(store):
    """The nodes that are members now."""
    async with aclosing(store.watch()) as snapshots:
        return (await anext(snapshots)).members
