import asyncio

import pytest
from tests.core.resilience.callers import Answers, Recorder, hang, raised, stubborn

from leadsman.core.loop.tasks import begin_at_once
from leadsman.core.resilience.deadline import CANCEL_SECONDS, Deadline, Silence
from leadsman.errors import Abandoned, DeviceTimeout


@pytest.fixture
def caller():
    return Recorder()


@pytest.fixture
def deadline(environment, caller):
    return lambda call, seconds=10.0: Deadline(call, seconds, environment, caller)


@pytest.fixture
def silence(environment, caller):
    return lambda call, seconds=10.0: Silence(call, seconds, environment, caller, lambda task: False)


def cancellations_left_by(call):
    """The task's open cancellations after a call."""

    async def counted():
        error = await raised(call)
        return error, asyncio.current_task().cancelling()

    return counted()


class TestInTime:
    def test_a_call_in_time_gives_its_result(self, loop, deadline):
        assert loop.run_until_complete(deadline(Answers(21.5))()) == 21.5

    def test_a_call_in_time_raises_its_own_error(self, loop, deadline):
        with pytest.raises(OSError, match="gone"):
            loop.run_until_complete(deadline(Answers(OSError("gone")))())

    def test_a_call_that_has_ended_is_not_cancelled_later(self, loop, deadline, caller):
        limited = deadline(Answers(21.5))

        async def work():
            await limited()
            await asyncio.sleep(60)
            return "undisturbed"

        assert loop.run_until_complete(work()) == "undisturbed"
        assert caller.errors == []

    def test_a_cancellation_from_outside_is_passed_through(self, loop, deadline):
        async def cancelled():
            task = asyncio.ensure_future(deadline(hang)())
            await asyncio.sleep(1)
            task.cancel()
            await asyncio.wait({task})
            return task.cancelled()

        assert loop.run_until_complete(cancelled())


class TestExpired:
    def test_a_call_that_takes_too_long_is_a_timeout(self, loop, deadline):
        error = loop.run_until_complete(raised(deadline(hang)))

        assert type(error) is DeviceTimeout
        assert str(error) == "no answer within 10s"
        assert loop.time() == pytest.approx(10, abs=0.1)

    def test_its_cancellation_is_taken_back(self, loop, deadline):
        error, left = loop.run_until_complete(cancellations_left_by(deadline(hang)))

        assert type(error) is DeviceTimeout
        assert left == 0

    def test_a_result_after_the_deadline_is_not_used(self, loop, deadline):
        error, left = loop.run_until_complete(cancellations_left_by(deadline(stubborn(12))))

        assert type(error) is DeviceTimeout
        assert left == 0

    def test_an_error_that_clean_up_makes_of_the_cancellation_is_kept(self, loop, deadline):
        async def dirty():
            try:
                await hang()
            finally:
                raise OSError("the port is gone")

        error, left = loop.run_until_complete(cancellations_left_by(deadline(dirty)))

        assert str(error) == "the port is gone"
        assert left == 0

    def test_the_next_call_has_the_whole_time_again(self, loop, deadline):
        slow = []

        async def twice():
            slow.append(await raised(limited))
            slow.append(await raised(limited))

        limited = deadline(hang)
        loop.run_until_complete(twice())

        assert [str(error) for error in slow] == ["no answer within 10s"] * 2
        assert loop.time() == pytest.approx(20, abs=0.2)

    def test_a_cancellation_while_the_app_stops_is_passed_through(self, loop, deadline, environment):
        environment.stopping.set()

        error = loop.run_until_complete(raised(deadline(hang)))

        assert isinstance(error, asyncio.CancelledError)


class TestAbandoned:
    def test_a_call_that_ignores_its_cancellation_is_reported_once(self, loop, deadline, caller):
        loop.run_until_complete(raised(deadline(stubborn(600))))

        assert len(caller.errors) == 1
        assert "still running 5s after its timeout of 10s" in str(caller.errors[0])

    def test_it_is_reported_after_the_grace(self, loop, deadline, caller):
        async def watched():
            task = asyncio.ensure_future(raised(deadline(stubborn(600))))
            await asyncio.sleep(10 + CANCEL_SECONDS - 0.5)
            before = len(caller.errors)
            await asyncio.sleep(1)
            return before, len(caller.errors), task.done()

        assert loop.run_until_complete(watched()) == (0, 1, False)

    def test_a_call_that_ends_at_last_says_that_it_was_abandoned(self, loop, deadline):
        error, left = loop.run_until_complete(cancellations_left_by(deadline(stubborn(600))))

        assert type(error) is Abandoned
        assert "after it was abandoned" in str(error)
        assert left == 0

    def test_so_does_one_that_ends_with_an_error(self, loop, deadline):
        async def fails_late():
            await stubborn(600)()
            raise OSError("gone")

        error = loop.run_until_complete(raised(deadline(fails_late)))

        assert type(error) is Abandoned
        assert str(error.__cause__) == "gone"

    def test_the_call_after_it_is_limited_again(self, loop, deadline):
        calls = iter([stubborn(600), hang])

        async def twice():
            await raised(limited)
            return await raised(limited)

        limited = deadline(lambda: next(calls)())

        assert type(loop.run_until_complete(twice())) is DeviceTimeout


class Alarm:
    """Begins a call while alarms ring, as a poll does."""

    def __init__(self, loop, call):
        self.loop, self.call, self.task = loop, call, None

    def ring(self, now):
        self.task = begin_at_once(raised(self.call), self.loop)


class TestBegunByAnAlarm:
    @pytest.mark.parametrize(("blocked", "ends"), [(0.0, 11.0), (4.0, 11.0), (100.0, 101.0)])
    def test_the_deadline_counts_from_the_call_also_if_it_blocks_the_loop_first(
        self, loop, deadline, environment, blocked, ends
    ):
        async def blocks():
            loop.block(blocked)
            await hang()

        async def work():
            start = loop.time()
            environment.timers.add(start + 1.0, alarm)
            await asyncio.sleep(1.5)
            error = await alarm.task
            return error, loop.time() - start

        alarm = Alarm(loop, deadline(blocks))
        error, after = loop.run_until_complete(work())

        assert type(error) is DeviceTimeout
        assert after == pytest.approx(ends, abs=0.6)

    def test_a_second_call_in_the_same_turn_has_a_deadline_of_its_own(self, loop, deadline, environment):
        async def work():
            environment.timers.add(loop.time() + 1.0, alarm)
            await asyncio.sleep(1.1)
            return await alarm.task

        async def twice():
            await limited()
            calls.append(hang)
            await limited()

        calls = [Answers(1)]
        limited = deadline(lambda: calls[-1]())
        alarm = Alarm(loop, twice)

        assert type(loop.run_until_complete(work())) is DeviceTimeout
        assert loop.time() == pytest.approx(environment.timers.origin + 11, abs=0.2)


class TestSilence:
    def test_a_source_without_a_reading_is_silent(self, loop, silence):
        error = loop.run_until_complete(raised(silence(hang)))

        assert type(error) is DeviceTimeout
        assert str(error) == "silent for 10s"

    def test_each_reading_postpones_the_deadline(self, loop, silence):
        async def readings():
            for _ in range(5):
                await asyncio.sleep(9)
                source.heard(loop.time())
            await hang()

        source = silence(readings)
        loop.run_until_complete(raised(source))

        assert loop.time() == pytest.approx(45 + 10, abs=0.1)

    def test_a_reading_of_an_earlier_run_postpones_nothing(self, loop, silence):
        async def after_a_reading():
            source.heard(loop.time())
            await asyncio.sleep(5)
            return await raised(source)

        source = silence(hang)
        loop.run_until_complete(after_a_reading())

        assert loop.time() == pytest.approx(15, abs=0.1)

    def test_an_interruption_is_passed_through(self, loop, silence, caller):
        async def interrupted():
            task = asyncio.ensure_future(source())
            await asyncio.sleep(1)
            task.cancel()
            source.interrupted("its circuit was isolated")
            await asyncio.wait({task})
            await asyncio.sleep(60)
            return task.cancelled()

        source = silence(hang)

        assert loop.run_until_complete(interrupted())
        assert caller.errors == []

    def test_a_run_that_ignores_its_interruption_is_reported_with_the_reason(self, loop, silence, caller):
        async def interrupted():
            task = asyncio.ensure_future(source())
            await asyncio.sleep(1)
            task.cancel()
            source.interrupted("its circuit was isolated")
            return await task

        source = silence(stubborn(600))

        assert loop.run_until_complete(interrupted()) == "late"
        assert [str(error).split(";")[0] for error in caller.errors] == [
            "still running 5s after its circuit was isolated"
        ]

    def test_the_run_after_an_interruption_may_be_silent_again(self, loop, silence):
        async def interrupted():
            task = asyncio.ensure_future(source())
            await asyncio.sleep(1)
            task.cancel()
            source.interrupted("its circuit was isolated")
            await asyncio.wait({task})
            return await raised(source)

        source = silence(hang)

        assert str(loop.run_until_complete(interrupted())) == "silent for 10s"
