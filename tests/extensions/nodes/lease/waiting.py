"""What the tests with real engines wait for."""

import time

from leadsman.errors import LeaseStoreUnreachable

MAX_SECONDS = 30.0
"""Seconds that an engine may take to work again."""


async def until_it_works(call, *arguments):
    """Make a call again and again until the engine answers."""
    deadline = time.monotonic() + MAX_SECONDS
    while True:
        try:
            return await call(*arguments)
        except LeaseStoreUnreachable:
            assert time.monotonic() < deadline
