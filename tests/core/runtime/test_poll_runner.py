import asyncio

import pytest

from leadsman import App, CircuitBreaker, FixedBackoff, RetryRequested
from leadsman.core.events import (
    AppFault,
    DeviceHeld,
    DeviceReleased,
    PollDeferred,
    PollFailed,
    PollMissed,
    PollSkipped,
    PollWithoutReading,
    ReadingTaken,
)
from leadsman.core.runtime.poll_runner import MAX_REQUESTS, PollContext, PollRunner
from leadsman.core.runtime.publisher import PublishQueue
from leadsman.errors import DeviceUnavailable, PollRefused, ResultError


class Device:
    """Answers in turn with what it was given; the last of it for ever."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.calls = 0

    async def read(self):
        self.calls += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, (int, float)) and not isinstance(answer, bool):
            await asyncio.sleep(answer)
            return {"t": self.calls}
        if isinstance(answer, BaseException):
            raise answer
        return answer


def end_nothing(name, error):
    raise AssertionError(f"{name} ended the app")


@pytest.fixture
def polls(bench):
    """Makes the runner of a device that is polled every ten seconds."""

    def polls(device, *, job=False, end_app=end_nothing, **options):
        app = App("app")
        (app.add_periodic if job else app.add_telemetry)("d", device.read, **{"interval": 10, "retry": 0} | options)
        return PollRunner(
            app.telemetries["d"],
            PollContext(bench.environment, bench.context, bench.resources, PublishQueue(), bench.loop, end_app),
        )

    return lambda device, **options: bench.call(lambda: polls(device, **options))


def started(bench, runner, pending=0.0):
    bench.call(runner.start, pending, 0.0)
    return runner


def missed(bench):
    """The missed polls that were reported at once."""
    return sum(event.polls for event in bench.of(PollWithoutReading) if event.why in ("missed", "late", "stopped"))


def test_a_reading_is_reported_with_its_own_time_and_published(bench, polls):
    started(bench, polls(Device(2.0)))
    bench.pass_time(15)

    first, *_ = bench.of(ReadingTaken)
    assert (first.entity, first.duration) == ("d", pytest.approx(2.0))
    assert first.at == pytest.approx(2.0, abs=0.01)
    assert bench.messages[0].taken_at == first.wall
    assert bench.sent("app/d/state") == [{"t": 1}, {"t": 2}]


def test_a_handler_that_returns_none_has_succeeded_and_publishes_nothing(bench, polls):
    started(bench, polls(Device(None)))
    bench.pass_time(15)

    assert len(bench.of(ReadingTaken)) == 2
    assert bench.messages == []


def test_a_poll_that_is_due_while_another_runs_counts_as_missed(bench, polls):
    started(bench, polls(Device(25.0, 0.0), timeout=None))
    bench.pass_time(31)

    assert [event.polls for event in bench.of(PollMissed)] == [1, 1]
    assert [event.at for event in bench.of(ReadingTaken)] == pytest.approx([25.0, 30.0], abs=0.1)


def test_missed_polls_of_a_short_interval_are_reported_as_one_sum_a_second_and_counted_at_once(bench, polls):
    runner = started(bench, polls(Device(0.35), interval=0.1, timeout=None))
    bench.pass_time(3.05)
    before = [event.polls for event in bench.of(PollMissed)]
    counted = missed(bench)

    assert before[0] == 1
    assert 3 <= len(before) <= 4
    assert sum(before) < counted

    runner.stopped()
    (*_, last) = bench.of(PollMissed)
    assert sum(before) + last.polls == counted


def test_missed_polls_are_reported_though_no_further_one_is_missed(bench, polls):
    runner = started(bench, polls(Device(0.35, {"t": 1}), interval=0.1, timeout=None))
    bench.pass_time(0.5)
    assert [event.polls for event in bench.of(PollMissed)] == [1]

    bench.pass_time(1.0)
    assert [event.polls for event in bench.of(PollMissed)] == [1, 2]
    assert missed(bench) == 3

    bench.pass_time(3.0)
    runner.stopped()
    assert len(bench.of(PollMissed)) == 2


def test_an_app_that_stops_reports_missed_polls_at_once(bench, polls):
    started(bench, polls(Device(0.95), interval=0.1, timeout=None))
    bench.pass_time(0.45)
    assert [event.polls for event in bench.of(PollMissed)] == [1]

    bench.stopping.set()
    bench.pass_time(0.1)
    assert sum(event.polls for event in bench.of(PollMissed)) == missed(bench) > 2


def test_an_attempt_that_was_waited_for_at_the_end_of_the_app_comes_first(bench, polls):
    device = Device(None)
    started(bench, polls(device), pending=7.0)
    bench.pass_time(6)
    assert device.calls == 0

    bench.pass_time(2)
    assert device.calls == 1


@pytest.mark.parametrize("error", [OSError("gone"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
def test_nothing_that_a_handler_raises_ends_its_polls(bench, polls, error):
    runner = started(bench, polls(Device(error, {"t": 1})))
    bench.pass_time(15)

    assert [event.error for event in bench.of(PollFailed)] == [error]
    assert bench.sent("app/d/state") == [{"t": 1}]
    assert runner.task is None


def test_the_end_of_the_app_ends_a_poll_without_a_report(bench, polls):
    runner = started(bench, polls(Device(25.0), timeout=None))
    bench.pass_time(1)
    task = runner.task
    bench.stopping.set()
    bench.call(task.cancel)

    assert task.cancelled()
    assert runner.task is None
    assert bench.events == []


def test_what_a_job_returns_has_no_topic(bench, polls):
    started(bench, polls(Device({"t": 1}), job=True))
    bench.pass_time(1)

    assert [type(event.error) for event in bench.of(PollFailed)] == [ResultError]
    assert bench.messages == []


def test_a_device_that_asks_for_a_later_poll_has_not_failed(bench, polls):
    started(bench, polls(Device(RetryRequested(35.0, "warming up"), {"t": 1})))
    bench.pass_time(41)

    (deferred,) = bench.of(PollDeferred)
    assert (deferred.seconds, deferred.reason) == (pytest.approx(35.0), "warming up")
    assert bench.of(PollFailed) == bench.of(PollSkipped) == []
    assert [event.at for event in bench.of(ReadingTaken)] == pytest.approx([35.0, 40.0], abs=0.1)


def test_an_open_circuit_skips_polls_and_says_when_the_next_one_comes(bench, polls):
    runner = started(bench, polls(Device(OSError()), circuit_breaker=CircuitBreaker(1, recovery=FixedBackoff(35))))
    bench.pass_time(15)

    assert len(bench.of(PollSkipped)) == 1
    snapshot, next_due = runner.snapshot()
    assert snapshot.circuit == "open"
    assert next_due == pytest.approx(bench.clock.wall() - bench.clock.monotonic() + 40)


class TestAfterAFailure:
    def test_a_handler_is_held_and_released(self, bench, polls):
        device = Device(OSError(), {"t": 1})
        runner = started(bench, polls(device, on_failure="hold"))
        bench.pass_time(25)

        assert device.calls == 1
        assert runner.snapshot()[1] is None
        assert len(bench.of(DeviceHeld)) == 1

        assert bench.call(runner.release, "me") is True
        assert [event.by for event in bench.of(DeviceReleased)] == ["me"]
        assert bench.sent("app/d/state") == [{"t": 1}]
        assert bench.call(runner.release, "me") is False

    def test_the_app_can_be_ended(self, bench, polls):
        ended, error = [], OSError()
        started(bench, polls(Device(error), on_failure="stop", end_app=lambda *why: ended.append(why)))
        bench.pass_time(1)

        assert ended == [("d", error)]

    def test_a_fallback_gives_the_reading(self, bench, polls):
        async def fallback(error):
            return {"from": type(error).__name__}

        started(bench, polls(Device(OSError()), on_failure=fallback))
        bench.pass_time(1)

        assert bench.sent("app/d/state") == [{"from": "OSError"}]

    @pytest.mark.parametrize("error", [ValueError("no"), SystemExit(), asyncio.CancelledError()])
    def test_a_fallback_that_raises_is_a_fault_of_the_app_and_ends_nothing(self, bench, polls, error):
        async def fallback(failure):
            raise error

        runner = started(bench, polls(Device(OSError()), on_failure=fallback))
        bench.pass_time(15)

        assert [(event.where, event.error) for event in bench.of(AppFault)] == [("on_failure of d", error)] * 2
        assert runner.task is None

    def test_a_fallback_that_hangs_is_cut_off(self, bench, polls):
        async def fallback(failure):
            await asyncio.sleep(3600)

        started(bench, polls(Device(OSError(), {"t": 1}), on_failure=fallback))
        bench.pass_time(75)

        assert [type(event.error) for event in bench.of(AppFault)] == [TimeoutError]


class TestRequests:
    def test_a_request_polls_at_once_and_is_answered_with_the_reading(self, bench, polls):
        answers = []
        bench.call(polls(Device({"t": 1})).ask, answers.append)

        assert [reading.fields for reading in answers] == [{"t": 1}]
        assert bench.sent("app/d/state") == [{"t": 1}]

    def test_a_request_waits_for_the_poll_under_way(self, bench, polls):
        device, answers = Device(5.0), []
        runner = started(bench, polls(device))
        bench.pass_time(1)
        bench.call(runner.ask, answers.append)
        assert answers == []

        bench.pass_time(5)
        assert device.calls == len(answers) == 1

    def test_two_requests_of_one_turn_of_the_loop_share_a_poll_only_with_the_same_payload(self, bench, polls):
        class Calendar:
            async def read(self, days: int = 7):
                return {"days": days}

        answers = []
        runner = polls(Calendar(), request="days")

        def ask_twice():
            runner.ask(answers.append, {"days": 30})
            with pytest.raises(PollRefused, match="another payload"):
                runner.ask(answers.append)

        bench.call(ask_twice)

        assert [reading.fields for reading in answers] == [{"days": 30}]

    def test_a_request_is_answered_with_the_error(self, bench, polls):
        answers, error = [], OSError("gone")
        bench.call(polls(Device(error)).ask, answers.append)

        assert answers == [error]

    def test_a_request_too_soon_after_another_is_refused(self, bench, polls):
        runner = polls(Device({"t": 1}), throttle=5)
        bench.call(runner.ask, lambda answer: None)

        with pytest.raises(PollRefused, match="throttled"):
            bench.call(runner.ask, lambda answer: None)

    def test_more_requests_than_can_wait_are_refused(self, bench, polls):
        runner, answers = polls(Device(5.0)), []
        for _ in range(MAX_REQUESTS):
            bench.call(runner.ask, answers.append)

        with pytest.raises(PollRefused, match="requests already wait"):
            bench.call(runner.ask, answers.append)
        bench.pass_time(6)
        assert len(answers) == MAX_REQUESTS

    def test_a_held_device_is_not_polled_on_request(self, bench, polls):
        runner = polls(Device({"t": 1}))
        runner.hold()

        with pytest.raises(PollRefused, match="the device is held"):
            bench.call(runner.ask, lambda answer: None)

    def test_an_app_that_stops_answers_what_waits(self, bench, polls):
        runner, answers = polls(Device(5.0)), []
        bench.call(runner.ask, answers.append)
        bench.call(runner.stopped)

        assert [type(answer) for answer in answers] == [DeviceUnavailable]
