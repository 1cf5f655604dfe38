"""Fixtures for pytest: ``pytest_plugins = ["leadsman.testing.fixtures"]`` in a ``conftest.py``."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from leadsman.core.app import App
from leadsman.testing.harness import Harness
from leadsman.testing.mosquitto import Mosquitto
from leadsman.testing.pty import PtyDevice


@pytest.fixture
def harness() -> Iterator[Callable[..., Harness]]:
    """Run an app in virtual time: ``harness(app)`` serves it until the end of the test."""
    with ExitStack() as stack:

        def start(app: App, **options: Any) -> Harness:
            return stack.enter_context(Harness(app, **options))

        yield start


@pytest.fixture
def mosquitto() -> Iterator[Mosquitto]:
    """A real broker on a free port."""
    with Mosquitto() as broker:
        yield broker


@pytest.fixture
def pty_device() -> Iterator[PtyDevice]:
    """A serial device on a pty, plugged in."""
    with PtyDevice() as device:
        yield device
