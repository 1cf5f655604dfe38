import asyncio

import pytest

from leadsman.errors import DeviceUnavailable, UnknownDevice
from leadsman.registration.telemetry import register
from leadsman.runtime.poller import Poller, ask


async def read():
    return {"t": 1}


async def read_slowly():
    await asyncio.sleep(5)
    return {"t": 1}


def end_nothing(name, error):
    raise AssertionError(f"{name} ended the app")


@pytest.fixture
def poller(bench):
    return bench.call(Poller, bench.context, bench.resources, end_nothing)


def add(poller, name, handler, *, job=False):
    return poller.add(register(name, handler, {"interval": 10, "timeout": None}, (), job=job))


def test_all_handlers_are_polled_from_the_start_on(bench, poller):
    for name in ("a", "b"):
        add(poller, name, read)
    bench.call(poller.start, {})
    bench.pass_time(15)

    assert [message.topic for message in bench.messages] == ["app/a/state", "app/b/state"] * 2


def test_a_handler_whose_retry_was_pending_starts_with_it(bench, poller):
    for name in ("a", "b"):
        add(poller, name, read)
    bench.call(poller.start, {"b": 7.0})
    bench.pass_time(5)
    assert [message.topic for message in bench.messages] == ["app/a/state"]

    bench.pass_time(4)
    assert [message.topic for message in bench.messages] == ["app/a/state", "app/b/state"]


@pytest.mark.parametrize("name", ["invented", "job"])
def test_only_a_device_that_is_polled_can_be_polled_on_request(bench, poller, name):
    polls = {"job": add(poller, "job", read, job=True)}

    with pytest.raises(UnknownDevice, match="that can be polled"):
        bench.call(ask, polls, name, lambda answer: None)


def test_a_requested_poll_is_answered(bench, poller):
    answers = []
    polls = {"a": add(poller, "a", read)}
    bench.call(ask, polls, "a", answers.append)

    assert [answer.entity for answer in answers] == ["a"]


def test_a_poller_that_stops_cancels_its_polls_and_answers_what_waits(bench, poller):
    answers = []
    polls = {"a": add(poller, "a", read_slowly)}
    bench.call(ask, polls, "a", answers.append)
    bench.stopping.set()

    assert bench.loop.run_until_complete(poller.stop(1.0)) == 0
    assert [type(answer) for answer in answers] == [DeviceUnavailable]
    assert bench.events == []


def test_a_poller_that_stops_counts_the_calls_that_do_not_end(bench, poller):
    over = asyncio.Event()

    async def read_for_ever():
        while not over.is_set():
            try:
                await over.wait()
            except asyncio.CancelledError:
                continue

    add(poller, "a", read_for_ever)
    add(poller, "b", read)
    bench.call(poller.start, {})
    bench.pass_time(1)
    bench.stopping.set()

    assert bench.loop.run_until_complete(poller.stop(1.0)) == 1
    bench.call(over.set)
