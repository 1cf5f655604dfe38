import asyncio
import itertools
import json
import logging
import random
import threading

import pytest

from leadsman import App, Buffer, CircuitBreaker, FixedBackoff, OnChange, RetryRequested
from leadsman.errors import InvalidType, InvalidValue


def app_with(handler, **words):
    app = App("app")
    app.add_source("meter", handler, **words)
    return app


async def steady():
    number = 0
    while True:
        number += 1
        yield {"n": number}
        await asyncio.sleep(10)


def test_every_reading_that_a_source_yields_is_published(harness):
    running = harness(app_with(steady))

    running.run(35)

    assert running.states("meter") == [{"n": 1}, {"n": 2}, {"n": 3}, {"n": 4}]
    assert running.statuses("meter") == ["starting", "ok"]


def test_publish_rules_hold_for_sources(harness):
    running = harness(app_with(steady, publish=OnChange(3)))

    running.run(95)

    assert running.states("meter") == [{"n": 1}, {"n": 5}, {"n": 9}]


def test_a_source_that_fails_is_started_again_with_backoff_and_the_outage_told(harness):
    starts = []

    async def flaky():
        starts.append(asyncio.get_running_loop().time())
        if len(starts) < 5:
            raise OSError("unplugged")
        yield {"n": 1}
        await asyncio.sleep(10_000)

    running = harness(app_with(flaky, silence=None))
    running.run("5m")

    waits = [after - before for before, after in itertools.pairwise(starts)]
    assert [round(wait / 2**number) for number, wait in enumerate(waits, 1)] == [1, 1, 1, 1]
    assert running.errors("meter")[0]["event"] == "onset"
    assert running.errors("meter")[-1]["event"] == "recovered"
    assert running.states("meter") == [{"n": 1}]


@pytest.mark.parametrize("error", [OSError("gone"), SystemExit(3), asyncio.CancelledError()])
def test_whatever_a_source_raises_it_is_started_again_and_that_is_counted(harness, error):
    async def failing():
        if False:
            yield
        raise error

    running = harness(app_with(failing, backoff=FixedBackoff(1, jitter=0)))
    running.run(2.5)

    assert {each["type"] for each in running.errors("meter")} == {type(error).__name__}
    running.broker.send("app/introspect", {"sections": ["devices"]}, response_topic="app/answers")
    running.run(0.1)
    runtime = running.broker.messages("app/answers")[-1].json["data"]["devices"]["meter"]["runtime"]
    assert (runtime["restarts"], runtime["counters"]["failed_polls"]) == (2, 3)


def test_a_source_that_ends_is_started_again(harness):
    starts = []

    async def short():
        starts.append(1)
        yield {"n": len(starts)}

    running = harness(app_with(short, backoff=FixedBackoff(5, jitter=0)))
    running.run(21)

    assert running.states("meter") == [{"n": 1}, {"n": 2}, {"n": 3}, {"n": 4}, {"n": 5}]
    assert running.errors("meter") == []


def test_a_source_that_ends_without_a_reading_fails(harness):
    async def empty():
        return
        yield {}

    running = harness(app_with(empty))
    running.run(21)

    assert "ended without a reading" in running.errors("meter")[0]["message"]
    assert running.statuses("meter")[-1] == "error"


def test_a_silent_source_is_cancelled_and_started_again(harness):
    starts, ends = [], []

    async def silent():
        starts.append(asyncio.get_running_loop().time())
        yield {"n": len(starts)}
        try:
            await asyncio.sleep(10_000)
        finally:
            ends.append(1)

    running = harness(app_with(silent, silence="1m", backoff=FixedBackoff(5, jitter=0)))
    running.run("3m")

    assert starts == pytest.approx([0, 65, 130], abs=0.2)
    assert len(ends) == 2
    assert "silent for 1m" in running.errors("meter")[0]["message"]
    assert running.errors("meter")[0]["type"] == "DeviceTimeout"


def test_a_source_whose_clean_up_fails_is_started_again(harness):
    starts = []

    async def dirty():
        starts.append(1)
        try:
            yield {"n": len(starts)}
            await asyncio.sleep(10_000)
        finally:
            raise OSError("the port is gone")

    running = harness(app_with(dirty, silence="1m", backoff=FixedBackoff(5, jitter=0)))
    running.run("5m")

    assert len(starts) == 5
    assert running.errors("meter")[0]["type"] == "DeviceTimeout"


def test_a_source_that_ends_again_and_again_leaves_nothing_behind(harness):
    async def short():
        for _ in range(2):
            yield {"n": 1}
            await asyncio.sleep(20)

    running = harness(app_with(short, silence="30s", backoff=FixedBackoff(1, jitter=0)))
    running.run("10m")
    few = alarms(running)
    running.run("10h")

    assert alarms(running) == few


def alarms(running):
    """Timers of the loop, and alarms in the heap."""
    import gc

    from leadsman.core.loop.timers import Timers

    heaps = [each for each in gc.get_objects() if isinstance(each, Timers) and each._loop is running.loop]
    return sum(len(slot) for heap in heaps for slot in heap._slots.values())


def test_a_source_that_asks_to_be_left_alone_for_longer_than_its_silence_is_asked_again(harness):
    starts = []

    async def rationed():
        starts.append(asyncio.get_running_loop().time())
        if len(starts) == 2:
            raise RetryRequested("10m")
        yield {"n": len(starts)}

    running = harness(app_with(rationed, backoff=FixedBackoff(5, jitter=0)))
    running.run("20m")

    assert [round(start) for start in starts[:4]] == [0, 5, 605, 610]
    assert running.statuses("meter") == ["starting", "ok", "deferred", "ok"]


def test_a_source_is_silent_from_the_end_of_the_time_that_it_asked_for(harness):
    starts = []

    async def mute():
        starts.append(asyncio.get_running_loop().time())
        if len(starts) == 1:
            raise RetryRequested("10m")
        await asyncio.sleep(1e6)
        yield {}

    running = harness(app_with(mute, silence="1m", backoff=FixedBackoff(5, jitter=0)))
    running.run("12m")

    assert [round(start) for start in starts] == [0, 600, 665]


def test_a_source_that_swallows_its_cancellation_is_told_once(harness):
    async def stubborn():
        yield {"n": 1}
        while True:
            try:
                await asyncio.sleep(10_000)
            except asyncio.CancelledError:
                if asyncio.get_running_loop().time() > 1000:
                    raise

    running = harness(app_with(stubborn, silence="1m"))
    running.run("10m")

    assert [each["type"] for each in running.errors("meter")] == ["Abandoned"]
    running.run("10m")


def test_a_source_without_readings_is_stale_and_offline(harness):
    async def mute():
        await asyncio.sleep(100_000)
        yield {}

    running = harness(app_with(mute, stale_after="2m", silence=None))
    running.run("3m")

    assert running.status()["devices"]["meter"]["status"] == "stale"
    assert running.availability("meter") == ["online", "offline"]


def test_the_breaker_rests_a_source_that_gives_nothing(harness):
    starts = []

    async def dead():
        starts.append(1)
        raise OSError("no answer")
        yield {}

    running = harness(app_with(dead, circuit_breaker=CircuitBreaker(3), backoff=FixedBackoff(10, jitter=0)))
    running.run(121)

    assert running.status()["devices"]["meter"]["status"] == "circuit_open"
    assert len(starts) == 8  # three, and then every other of the rest


def test_one_bad_reading_does_not_end_a_source(harness):
    starts = []

    async def mixed():
        starts.append(1)
        yield {"n": 1}
        yield {"n": object()}
        yield {"n": 2}
        await asyncio.sleep(10_000)

    running = harness(app_with(mixed, silence=None))
    running.run(10)

    assert running.states("meter") == [{"n": 1}, {"n": 2}]
    assert len(starts) == 1
    assert [each["event"] for each in running.errors("meter")] == ["onset", "recovered"]


def test_a_source_that_never_waits_starves_nobody(harness):
    polled = []

    async def eager():
        number = 0
        while number < 20_000:
            number += 1
            yield {"n": number}
        await asyncio.sleep(10_000)

    async def other():
        polled.append(1)
        return {}

    app = app_with(eager, silence=None, publish=OnChange(1000))
    app.add_telemetry("other", other, interval=1)
    running = harness(app)
    running.run(5)

    assert len(polled) == 6


def test_none_is_a_sign_of_life_and_publishes_nothing(harness):
    async def alive():
        while True:
            yield None
            await asyncio.sleep(10)

    running = harness(app_with(alive, stale_after="30s"))
    running.run("2m")

    assert running.states("meter") == []
    assert running.status()["devices"]["meter"] == {"status": "ok"}


def test_stopping_closes_the_generator(harness):
    ended = []

    async def held():
        try:
            yield {"n": 1}
            await asyncio.sleep(10_000)
        finally:
            ended.append(1)

    running = harness(app_with(held))
    running.run(1)
    running.stop()

    assert ended == [1]
    assert running.stopped_in < 2
    assert running.errors("meter") == []


def test_what_is_no_async_generator_is_refused_with_what_to_write():
    async def read():
        return {}

    with pytest.raises(InvalidType, match="yield readings"):
        App("app").add_source("meter", read)
    with pytest.raises(InvalidType, match="@app.source"):
        App("app").add_telemetry("meter", steady, interval=5)


@pytest.mark.parametrize(
    ("words", "error", "told"),
    [
        ({"interval": 5}, InvalidType, "write one of"),
        ({"silense": 5}, InvalidType, "did you mean 'silence'"),
        ({"silence": 0}, InvalidValue, "greater than zero"),
        ({"stale_after": "1"}, InvalidValue, "units"),
        ({"backoff": 5}, InvalidType, "ExponentialBackoff"),
        ({"circuit_breaker": 5}, InvalidType, "CircuitBreaker"),
        ({"publish": 5}, InvalidType, "OnChange"),
        ({"delivery": 5}, InvalidType, "Delivery"),
        ({"enabled": 5}, InvalidType, "True or False"),
    ],
)
def test_wrong_words_of_a_source_are_refused(words, error, told):
    with pytest.raises(error, match=told):
        App("app").add_source("meter", steady, **words)


# Buffers


def test_a_buffer_hands_over_what_callbacks_put_into_it(harness):
    buffer = Buffer()

    async def adverts():
        async for item in buffer:
            yield {"n": item}

    running = harness(app_with(adverts))
    running.at(5, lambda: buffer.put(1))
    running.at(6, lambda: (buffer.put(2), buffer.put(3)))
    running.run(10)

    assert running.states("meter") == [{"n": 1}, {"n": 2}, {"n": 3}]


def with_messages(**words):
    """An app whose source waits for messages in a buffer."""
    app, buffer = App("app"), Buffer()
    app.subscribe("bath")(taking(buffer))

    @app.source("bathroom", **words)
    async def bathroom():
        async for value in buffer:
            yield value

    return app


def taking(buffer):
    async def hear(value: dict[str, int]):
        buffer.put(value)

    return hear


def test_a_source_that_waits_in_a_buffer_hears_what_comes_after_a_silence(harness):
    """It was restarted for its silence, and deaf during the backoff. The intervals are as long as the silence, or 40
    times as long."""
    running = harness(with_messages(stale_after="2m"))
    dice, late = random.Random(7), []

    for count in range(150):
        running.run(dice.uniform(1, 120 * dice.choice((2, 5, 40))))
        before = running.now
        running.broker.send("bath", {"n": count})
        while len(running.states("bathroom")) <= count:
            running.run(0.05)
            assert running.now < before + 120
        late.append(running.now - before)

    assert max(late) <= 1
    assert "restarts" not in running.status()["devices"]["bathroom"]


def test_the_silence_of_a_source_that_waits_in_a_buffer_is_told_once_and_is_over_with_the_next_message(harness, caplog):
    caplog.set_level(logging.INFO)
    running = harness(with_messages(stale_after="2m"))
    running.run(1)
    running.broker.send("bath", {"n": 1})
    running.run("20m")
    silent = running.statuses("bathroom")[-1], running.availability("bathroom")[-1]

    running.broker.send("bath", {"n": 2})
    running.run(1)

    assert silent == ("stale", "offline")
    assert running.statuses("bathroom")[-1] == "ok"
    assert running.availability("bathroom")[-1] == "online"
    assert {error["message"] for error in running.errors("bathroom")} == {"silent for 2m"}
    assert sum("recovered" in record.getMessage() for record in caplog.records) == 1


def test_a_source_that_got_a_message_and_hangs_is_started_again(harness):
    app, buffer, starts = App("app"), Buffer(), []
    app.subscribe("bath")(taking(buffer))

    @app.source("bathroom", silence="1m", backoff=FixedBackoff(1, jitter=0))
    async def bathroom():
        starts.append(1)
        async for value in buffer:
            yield value
            await asyncio.sleep(1e6)

    running = harness(app)
    running.run("10m")
    assert len(starts) == 1
    running.broker.send("bath", {"n": 1})
    running.run("90s")

    assert len(starts) == 2


def test_a_source_that_may_stay_silent_is_never_stale(harness):
    running = harness(with_messages(stale_after=None))
    running.run(1)
    running.broker.send("bath", {"n": 1})
    running.run("2d")

    assert running.status()["devices"]["bathroom"]["status"] == "ok"
    assert running.availability("bathroom") == ["online"]
    assert running.errors("bathroom") == []
    running.broker.send("app/introspect", b"", response_topic="app/answers/me")
    running.run(1)
    answer = json.loads(running.broker.messages("app/answers/me")[0].payload)
    [source] = answer["data"]["devices"]["bathroom"]["registrations"]
    assert source["stale_after"] is source["silence"] is None


@pytest.mark.parametrize(("when_full", "left"), [("drop-oldest", [3, 4]), ("drop-newest", [1, 2])])
def test_a_full_buffer_drops_by_its_policy_and_counts(when_full, left):
    async def drain():
        return [await anext(buffer) for _ in range(len(buffer))]

    buffer = Buffer(2, when_full)
    for item in (1, 2, 3, 4):
        buffer.put(item)

    assert asyncio.run(drain()) == left
    assert buffer.dropped == 2


def test_a_buffer_is_filled_from_threads():
    async def drain():
        buffer = Buffer(10_000)
        threads = [threading.Thread(target=lambda: [buffer.put(n) for n in range(1000)]) for _ in range(3)]
        for thread in threads:
            thread.start()
        items = [await asyncio.wait_for(anext(buffer), 5) for _ in range(3000)]
        for thread in threads:
            thread.join()
        return items

    assert len(asyncio.run(drain())) == 3000


@pytest.mark.parametrize(
    ("arguments", "error"), [((0,), InvalidValue), (("9",), InvalidType), ((5, "block"), InvalidValue)]
)
def test_wrong_buffers_are_refused(arguments, error):
    with pytest.raises(error):
        Buffer(*arguments)


def test_a_thread_that_outlives_the_app_may_go_on_filling_its_buffer():
    async def wait(buffer):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(buffer), 0.01)

    buffer = Buffer(2)
    asyncio.run(wait(buffer))

    for item in range(5):
        buffer.put(item)

    assert len(buffer) == 2


def test_a_source_that_gives_readings_after_a_request_and_fails_again_tells_its_own_error(harness):
    app, runs = App("app"), []

    @app.source("s")
    async def s():
        runs.append(1)
        if len(runs) == 1:
            raise RetryRequested("1s")
        yield {"n": 1}
        raise OSError("unplugged")

    running = harness(app)
    running.run("5s")

    assert {error["type"] for error in running.errors("s")} == {"OSError"}
    assert running.faults() == []
