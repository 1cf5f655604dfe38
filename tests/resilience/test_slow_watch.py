import asyncio

import pytest
from tests.resilience.callers import Answers, raised

from leadsman.resilience.guards import watch_call


def lasting(seconds, answer="reading"):
    async def call():
        await asyncio.sleep(seconds)
        return await Answers(answer)()

    return call


@pytest.mark.parametrize(("seconds", "slow"), [(0, 0), (4.9, 0), (5.1, 1)])
def test_a_call_is_slow_when_it_takes_longer_than_the_limit(loop, seconds, slow):
    noticed = []

    result = loop.run_until_complete(watch_call(lasting(seconds), 5, loop.time, lambda: noticed.append(1))())

    assert result == "reading"
    assert len(noticed) == slow


def test_a_slow_call_that_fails_is_just_a_failure(loop):
    noticed = []
    call = watch_call(lasting(6, OSError("gone")), 5, loop.time, lambda: noticed.append(1))

    error = loop.run_until_complete(raised(call))

    assert isinstance(error, OSError)
    assert noticed == []
