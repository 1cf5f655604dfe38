"""A fixture for each implementation of `LeaseStore`."""

import itertools
import os
from contextlib import AsyncExitStack

import pytest
from tests.extensions.nodes.lease.implementations import IMPLEMENTATIONS

from leadsman.extensions.nodes.lease.lease import Member, Terms

NUMBERS = itertools.count()


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=() if name == "memory" else pytest.mark.system) for name in IMPLEMENTATIONS],
)
def implementation(request):
    with IMPLEMENTATIONS[request.param]() as implementation:
        yield implementation


class Cluster:
    """A new cluster of an implementation. `node` makes a node join it."""

    def __init__(self, implementation, ttl):
        self.implementation = implementation
        self.terms = Terms(f"test-{os.getpid()}-{next(NUMBERS)}", ttl=ttl, shards=4)
        self.stack = AsyncExitStack()

    async def node(self, name, run="1", **about):
        return await self.stack.enter_async_context(self.store(name, run, **about))

    def store(self, name, run="1", terms=None, **about):
        return self.implementation.store(terms or self.terms, Member(name, run, **about))

    async def delete(self, key):
        await self.implementation.delete(self.terms, key)


@pytest.fixture
def play(implementation):
    """Play a scenario on a new cluster: ``play(scenario, ttl=2.0)``."""

    def play(scenario, ttl=20.0):
        async def whole():
            cluster = Cluster(implementation, ttl)
            async with cluster.stack:
                return await scenario(cluster)

        loop = implementation.loop()
        try:
            return loop.run_until_complete(whole())
        finally:
            loop.close()

    return play
