"""Fixtures for tests in virtual time. A test in a folder `system` talks to real parts, and is marked so."""

import asyncio
from pathlib import Path

import pytest

from leadsman.core.event_bus import EventBus
from leadsman.core.loop.clock import system_clock
from leadsman.core.loop.timers import Timers
from leadsman.core.resilience.environment import Environment
from leadsman.testing import VirtualLoop

TESTS = Path(__file__).parent


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.is_relative_to(TESTS) and "system" in item.path.relative_to(TESTS).parts:
            item.add_marker(pytest.mark.system)


@pytest.fixture
def loop():
    loop = VirtualLoop()
    yield loop
    loop.close()


@pytest.fixture
def events():
    """Every event that was emitted, in order."""
    return []


@pytest.fixture
def environment(loop, events):
    clock = system_clock(loop)
    bus = EventBus(clock)
    bus.subscribe(events.append)
    return Environment(Timers(loop, bus.emit), clock, bus, [], asyncio.Event())
