import pytest

from leadsman.registration.command import register_command
from leadsman.registration.source import register_source
from leadsman.registration.telemetry import register
from leadsman.runtime.commands import Dispatcher
from leadsman.runtime.poller import Poller
from leadsman.runtime.runner import Runners
from leadsman.runtime.sources import SourceRunner


async def read():
    return {"t": 1}


async def stream():
    yield {"t": 1}


def everything(bench):
    """A polled device that takes commands, a source, and a device that only takes commands."""
    runners, poller = Runners({}, {}), Poller(bench.context, bench.resources, lambda *why: None)
    runners.readers["poll"] = poller.add(register("poll", read, {"interval": 10}, ()))
    source = SourceRunner(register_source("source", stream, {}, ()), bench.context, bench.resources)
    runners.readers["source"] = source
    dispatcher = Dispatcher(bench.context, runners, bench.resources)
    for name in ("poll", "valve"):
        command, reader = register_command(name, read, {}, ()), runners.readers.get(name)
        runners.commands[name] = dispatcher.queue(command, bench.context, reader)
    return runners


@pytest.fixture
def runners(bench):
    return bench.call(everything, bench)


def test_a_device_has_a_runner_that_reads_it_and_one_for_its_commands(runners):
    assert [[runner.name for runner in runners.of(name)] for name in ("poll", "source", "valve")] == [
        ["poll", "poll"],
        ["source"],
        ["valve"],
    ]
    assert runners.of("poll")[0] is runners.readers["poll"]
    assert runners.of("nothing") == []


def test_the_commands_of_a_device_publish_where_its_readings_are_published(runners):
    assert runners.commands["poll"].publisher is runners.readers["poll"].publisher
    assert runners.commands["valve"].publisher is not runners.readers["poll"].publisher


@pytest.mark.parametrize("name", ["poll", "source", "valve"])
def test_each_kind_of_runner_answers_the_same_questions(runners, name):
    for runner in runners.of(name):
        snapshot, next_due = runner.look()

        assert (snapshot.circuit, snapshot.attempts) == ("closed", 0)
        assert next_due is None
        assert (runner.name, runner.retries()) == (name, 0)
        assert set(runner.counters()) <= {"restarts", "commands"}


@pytest.mark.parametrize(("name", "can_be_held"), [("poll", True), ("source", False)])
def test_only_a_poll_is_held_and_only_what_is_held_is_released(bench, runners, name, can_be_held):
    reader = runners.readers[name]

    assert bench.call(reader.release, "me") is False
    assert bench.call(reader.hold) is can_be_held
    assert reader.execution.circuit.held is can_be_held
    assert bench.call(reader.release, "me") is can_be_held
