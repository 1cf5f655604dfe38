import asyncio
import json

import pytest

from leadsman import OnChange, RetryRequested
from leadsman.errors import Busy
from leadsman.events import CommandDone
from leadsman.mqtt.answers import MOST_WARNED
from leadsman.mqtt.connection import Received
from leadsman.mqtt.message import STANDARD
from leadsman.reading import Reading
from leadsman.registration.command import register_command
from leadsman.runtime.commands import Dispatcher
from leadsman.runtime.publisher import StatePublisher
from leadsman.runtime.runner import Runners


class Commands:
    """The commands of an app, and what they do."""

    def __init__(self, bench):
        self.bench = bench
        self.runners = Runners({}, {})
        self.dispatcher = Dispatcher(bench.context, self.runners, bench.resources)

    def add(self, handler, **options):
        command, reader = register_command("d", handler, options, ()), self.runners.readers.get("d")
        self.runners.commands["d"] = self.bench.call(self.dispatcher.queue, command, self.bench.context, reader)
        return self.runners.commands["d"]

    def send(self, payload, device="d", **properties):
        received = Received(f"app/{device}/set", payload, properties.pop("retain", False), **properties)
        self.bench.call(self.dispatcher.on_set, received)

    def results(self, device="d"):
        return [(each["status"], each["data"] or each["error"]) for each in self.bench.sent(f"app/{device}/set/result")]


@pytest.fixture
def commands(bench):
    return Commands(bench)


async def double(value: int) -> dict[str, int]:
    return {"value": 2 * value}


async def slow(value: int) -> dict[str, int]:
    await asyncio.sleep(value)
    return {"value": value}


def test_what_a_command_returns_is_its_answer_and_the_state_of_the_device(bench, commands):
    commands.add(double)
    commands.send(b"21")

    assert commands.results() == [("ok", {"value": 42})]
    assert bench.sent("app/d/state") == [{"value": 42}]


def test_a_command_publishes_with_the_publisher_of_the_poll_of_its_device(bench, commands):
    publisher = StatePublisher("d", OnChange(), STANDARD, bench.context)
    commands.runners.readers["d"] = type("Reader", (), {"publisher": publisher})()
    commands.add(double)
    commands.send(b"21")
    publisher.publish(Reading("d", {"value": 42}, (), 1.0, 1.0))

    assert bench.sent("app/d/state") == [{"value": 42}]


def test_commands_of_one_device_are_executed_one_after_another(bench, commands):
    queue = commands.add(slow)
    for seconds in (b"5", b"1"):
        commands.send(seconds)
    assert queue.counters() == {"commands": {"done": 0, "failed": 0, "refused": 0, "waiting": 1, "last_error": None}}
    bench.pass_time(10)

    assert commands.results() == [("ok", {"value": 5}), ("ok", {"value": 1})]
    assert [event.duration for event in bench.of(CommandDone)] == pytest.approx([5.0, 1.0])


@pytest.mark.parametrize(
    "error", [OSError("gone"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit()]
)
def test_a_command_that_raises_is_answered_and_the_next_one_is_executed(bench, commands, error):
    async def fail(value: int) -> None:
        if value == 1:
            raise error

    queue = commands.add(fail)
    commands.send(b"1")
    commands.send(b"2")

    assert [status for status, _ in commands.results()] == ["error", "ok"]
    assert (queue.done, queue.failed) == (2, 1)


def test_a_device_that_asks_for_a_later_attempt_has_refused_the_command(bench, commands):
    async def ask() -> None:
        raise RetryRequested(5.0, "busy")

    commands.add(ask)
    commands.send(b"")
    bench.pass_time(60)

    assert len(commands.results()) == 1
    assert "asked for another attempt" in commands.results()[0][1]


def test_a_command_that_does_not_end_is_answered_and_the_next_one_waits_for_its_end(bench, commands):
    over = asyncio.Event()

    async def hang(value: int) -> None:
        while value == 1 and not over.is_set():
            try:
                await over.wait()
            except asyncio.CancelledError:
                continue

    commands.add(hang, timeout=10)
    commands.send(b"1")
    commands.send(b"2")
    bench.pass_time(60)
    assert [status for status, _ in commands.results()] == ["error"]

    bench.call(over.set)
    assert [status for status, _ in commands.results()] == ["error", "ok"]


@pytest.mark.parametrize(("when_full", "refused"), [("reject", "send it again"), ("drop-oldest", "a newer command")])
def test_a_full_queue_refuses_the_newest_or_the_oldest(bench, commands, when_full, refused):
    commands.add(slow, queue=1, when_full=when_full)
    for seconds in (b"5", b"1", b"2"):
        commands.send(seconds)
    (first,) = commands.results()
    bench.pass_time(10)

    assert refused in first[1]
    assert commands.results()[-1] == ("ok", {"value": 1 if when_full == "reject" else 2})


def test_a_payload_that_cannot_be_an_argument_is_refused(bench, commands):
    commands.add(double)
    commands.send(b'"warm"')

    assert [status for status, _ in commands.results()] == ["error"]


def test_a_command_for_a_device_that_takes_none_gets_no_topic(bench, commands):
    commands.send(b"1", device="invented")
    commands.send(b"1", device="invented", response_topic="app/answers")

    assert [message.topic for message in bench.messages] == ["app/answers"]
    assert [event.device for event in bench.of(CommandDone)] == ["invented", "invented"]


def test_a_response_goes_where_the_sender_wants_it_with_its_correlation(bench, commands):
    commands.add(double)
    commands.send(b'{"value": 1, "transaction": 7}', response_topic="app/answers", correlation=b"x")

    answer = next(message for message in bench.messages if message.topic == "app/answers")
    assert answer.correlation == b"x"
    assert json.loads(answer.payload)["transaction"] == 7


def test_a_command_whose_turn_does_not_come_is_answered_with_its_transaction_and_counted(bench, commands):
    queue = commands.add(double)
    for payload in (b'{"value": 1, "transaction": 7}', b"{"):
        received = Received("app/d/set", payload, False, "app/answers", b"x")
        bench.call(commands.dispatcher.refuse, "d", received, Busy("too many wait"))

    assert [(each["error"], each.get("transaction")) for each in bench.sent("app/answers")] == [
        ("too many wait", 7),
        ("too many wait", None),
    ]
    assert commands.results() == [("error", "too many wait")] * 2
    assert (queue.refused, queue.done) == (2, 0)
    assert all(message.is_answer for message in bench.messages)


def test_retained_messages_are_ignored_and_logged_once_for_each_device(bench, commands, caplog):
    commands.add(double)
    for number in range(MOST_WARNED + 5):
        for _ in range(2):
            commands.send(b"1", device=f"d{number}", retain=True)

    assert bench.messages == bench.events == []
    assert len(caplog.records) == MOST_WARNED


def test_an_app_that_stops_answers_the_commands_that_are_left(bench, commands):
    commands.add(slow)
    for seconds in (b"5", b"1"):
        commands.send(seconds)
    bench.stopping.set()

    assert bench.loop.run_until_complete(commands.dispatcher.stop(1.0, ["d"])) == 0
    assert [text for _, text in commands.results()] == [
        "DeviceUnavailable: the app stopped before the command ended",
        "DeviceUnavailable: the app stopped before the command was executed",
    ]
