"""When a device is offline, where the author of the app decides it: `offline_on`, and a device that says goodbye."""

import asyncio
import itertools

import pytest

from leadsman import App, CircuitBreaker, Context, Finds, FixedBackoff
from leadsman.core.introspection.why import why
from leadsman.errors import (
    ConfigurationError,
    DeviceTimeout,
    DeviceUnavailable,
    GarbledData,
    InvalidType,
    InvalidValue,
    ResultError,
    TransientError,
    UnknownDevice,
)
from leadsman.testing import Harness, Scripted

READING = {"t": 21.5}


def look(running, device="d"):
    """What introspection says about a device."""
    running.broker.send("app/introspect", {"sections": ["devices"]}, response_topic="app/answers")
    running.run(1)
    return running.broker.messages("app/answers")[-1].json["data"]["devices"][device]["runtime"]


def broken(**options):
    app = App("app")
    app.add_telemetry("d", Scripted(READING, *[OSError("no answer")] * 3, READING), interval="25m", **options)
    return app


def test_a_device_is_offline_when_it_is_stale_by_default(harness):
    running = harness(broken())
    running.run("26m")

    assert running.availability("d") == ["online"]
    running.run("55m")
    assert running.availability("d") == ["online", "offline"]


def test_a_device_may_be_offline_from_its_first_failed_poll_on(harness):
    running = harness(broken(offline_on="error"))
    running.run("24m")
    assert running.availability("d") == ["online"]

    running.run("2m")
    assert running.availability("d") == ["online", "offline"]
    running.run("76m")
    assert running.availability("d") == ["online", "offline", "online"]


def test_a_failed_call_that_is_retried_with_success_does_not_make_it_offline(harness):
    app = App("app")
    handler = Scripted(READING, OSError("no answer"), READING)
    app.add_telemetry("d", handler, interval="10s", retry=1, backoff=FixedBackoff(1), offline_on="error")
    running = harness(app)
    running.run("15s")

    assert running.availability("d") == ["online"]


def test_a_source_may_be_offline_from_its_first_failure_on(harness):
    app = App("app")

    @app.source("d", offline_on="error")
    async def listen(context: Context):
        yield READING
        await context.sleep(10)
        raise OSError("line cut")

    running = harness(app)
    running.run("11s")

    assert running.availability("d") == ["online", "offline"]


@pytest.mark.parametrize("wrong", ["failure", None, True])
def test_offline_on_is_one_of_two_words(wrong):
    with pytest.raises(InvalidValue, match="'stale' or 'error'"):
        App("app").add_telemetry("d", Scripted(READING), interval=1, offline_on=wrong)


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ((), InvalidValue, "offline_on is empty"),
        ([OSError, "stale"], InvalidType, "not a subclass of Exception"),
        (KeyboardInterrupt, InvalidType, "KeyboardInterrupt"),
        ((int,), InvalidType, "int"),
    ],
)
def test_errors_that_are_none_are_named(wrong, error, message):
    with pytest.raises(error, match=message):
        App("app").add_telemetry("d", Scripted(READING), interval=1, offline_on=wrong)


@pytest.mark.parametrize(
    ("chosen", "error", "offline"),
    [
        ((DeviceUnavailable,), DeviceUnavailable("unplugged"), True),
        ((DeviceUnavailable,), DeviceTimeout("no answer"), False),
        ((DeviceUnavailable,), OSError("no answer"), False),
        (TransientError, GarbledData("noise"), True),
        ([OSError, ValueError], DeviceUnavailable("it is an OSError"), True),
        ([OSError, ValueError], KeyError("x"), False),
    ],
)
def test_the_kind_of_error_may_decide_whether_a_device_is_offline(chosen, error, offline, harness):
    app = App("app")
    app.add_telemetry("d", Scripted(READING, error), interval="10m", stale_after="1h", offline_on=chosen)
    running = harness(app)
    running.run("15m")

    assert running.availability("d") == (["online", "offline"] if offline else ["online"])
    assert running.statuses("d")[-1] == "error"


def test_the_last_error_decides(harness):
    app = App("app")
    errors = [DeviceTimeout("a"), DeviceUnavailable("b"), DeviceTimeout("c")]
    app.add_telemetry(
        "d", Scripted(READING, *errors, READING), interval="1m", stale_after="1h", offline_on=DeviceUnavailable
    )
    running = harness(app)
    expected = ["online"], ["online", "offline"], ["online", "offline", "online"], ["online", "offline", "online"]
    running.run(61)
    for each in expected:
        assert running.availability("d") == each
        running.run(60)


@pytest.mark.parametrize(
    ("written", "offline"),
    [("error", True), ("stale", False), ("DeviceUnavailable, GarbledData", True), (["GarbledData"], False)],
)
def test_the_settings_choose_the_errors(written, offline, harness):
    app = App("app")
    app.add_telemetry("d", Scripted(READING, DeviceUnavailable("b")), interval="10m", stale_after="1h")
    running = harness(app, settings={"devices.d.offline_on": written})
    running.run("15m")

    assert running.availability("d")[-1] == ("offline" if offline else "online")


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("eror", "no error is called 'eror'; did you mean"),
        (["DeviceUnavailible"], "did you mean 'DeviceUnavailable'"),
        (5, "offline_on"),
        ([], "offline_on"),
        ([""], "offline_on"),
    ],
)
def test_errors_in_the_settings_that_there_are_not_are_named_with_their_origin(written, message, harness):
    app = App("app")
    app.add_telemetry("d", Scripted(READING), interval="10m")
    with pytest.raises(ConfigurationError, match=message):
        harness(app, settings={"devices.d.offline_on": written})


def gateway_app(errors, **options):
    """A gateway that hears two sensors each second, and raises these errors at these seconds."""
    app = App("app", keep_state=True)

    @app.source("gateway", finds=Finds(stale_after="1d"), stale_after="1d", backoff=FixedBackoff(1), **options)
    async def gateway(context: Context):
        while True:
            if (error := errors.pop(int(app_time(context)), None)) is not None:
                raise error
            for name in ("attic", "cellar"):
                context.device(name).publish(READING)
            yield
            await context.sleep(1)

    return app


def app_time(context):
    return context.now("UTC").timestamp() % 86_400


@pytest.mark.parametrize(("error", "follows"), [(DeviceUnavailable("unplugged"), True), (GarbledData("noise"), False)])
def test_devices_that_one_source_feeds_are_offline_with_it(error, follows, harness):
    errors = {10 + second: error for second in range(5)}
    running = harness(gateway_app(errors, offline_on=(DeviceUnavailable,)))
    running.run(14)
    expected = ["online", "offline"] if follows else ["online"]
    assert [running.availability(name) for name in ("gateway", "attic", "cellar")] == [expected] * 3
    assert running.status()["devices"]["attic"]["status"] == "ok"

    running.broker.send("app/introspect", {"devices": ["attic"]}, response_topic="app/answers")
    running.run(0.1)
    verdict = why("attic", running.broker.messages("app/answers")[-1].json["data"])
    assert verdict["state"] == ("broken" if follows else "ok")
    assert ("gateway has failed" in verdict["summary"]) is follows

    running.run(10)
    expected = ["online", "offline", "online"] if follows else ["online"]
    assert [running.availability(name) for name in ("gateway", "attic", "cellar")] == [expected] * 3


def test_after_a_restart_found_devices_follow_their_source_before_it_has_heard_them_again(tmp_path):
    options = {"offline_on": (DeviceUnavailable,)}
    with Harness(gateway_app({}, **options), state_directory=tmp_path) as first:
        first.run(10)
    errors = {second: DeviceUnavailable("unplugged") for second in range(20, 40)}
    later = first.loop.wall_time() + 10
    with Harness(gateway_app(errors, **options), state_directory=tmp_path, wall=later) as second:
        second.run(5)
        assert second.availability("attic")[-1] == "offline"
        second.run(30)
        assert second.availability("attic")[-1] == "online"


def quiet_app(runs):
    """A gateway that hears a sensor once, in its run 2. It fails in the two before and in those from 4 to 99."""
    app = App("app", keep_state=True)

    @app.source("gateway", finds=Finds(stale_after="1d"), stale_after="1d", backoff=FixedBackoff(1), offline_on="error")
    async def gateway(context: Context):
        run = next(runs)
        if run < 2 or 4 <= run < 100:
            raise DeviceUnavailable("unplugged")
        if run == 2:
            context.device("attic").publish(READING)
            await context.sleep(5)
        yield

    return app


def test_a_device_that_is_found_before_its_source_is_well_again_comes_back_with_it(harness):
    running = harness(quiet_app(itertools.count()))
    running.run(5)
    assert running.availability("attic") == ["offline"]
    running.run(4)
    assert running.availability("attic") == ["offline", "online"]


def test_after_a_restart_a_device_that_sends_nothing_comes_back_with_its_source(tmp_path):
    with Harness(quiet_app(itertools.count(2)), state_directory=tmp_path) as first:
        first.run(10)
        assert first.availability("attic") == ["online", "offline"]
    well = quiet_app(itertools.count(100))
    with Harness(well, state_directory=tmp_path, wall=first.loop.wall_time() + 1) as second:
        second.run(5)
        assert second.availability("attic")[-1] == "online"


@pytest.mark.parametrize(("chosen", "offline"), [("error", False), ((ResultError,), True)])
def test_after_a_restart_a_bad_reading_makes_a_source_offline_only_where_it_is_named(chosen, offline, tmp_path):
    def app(*readings):
        made = App("app", keep_state=True)

        @made.source("d", offline_on=chosen, stale_after=None)
        async def listen(context: Context):
            for reading in readings:
                yield reading
            await context.sleep("1d")

        return made

    with Harness(app(READING, {1: 2}), state_directory=tmp_path) as first:
        first.run("2m")
        assert (first.availability("d")[-1] == "offline") is offline
    with Harness(app(), state_directory=tmp_path, wall=first.loop.wall_time() + 1) as second:
        second.run("1m")
        assert (second.availability("d") == ["offline"]) is offline


def test_by_default_devices_that_are_fed_do_not_follow_a_source_that_fails(harness):
    running = harness(gateway_app({10: DeviceUnavailable("unplugged")}))
    running.run(20)
    assert running.availability("attic") == ["online"]


def test_a_failure_of_an_earlier_run_makes_it_offline_until_its_next_call_fails_otherwise(tmp_path):
    def app(read):
        made = App("app", keep_state=True)
        made.add_telemetry("d", read, interval="10m", stale_after="1d", offline_on=(ConnectionError,))
        return made

    async def slow():
        await asyncio.sleep(3)
        raise DeviceTimeout("no answer")

    with Harness(app(Scripted(READING, *[DeviceUnavailable("unplugged")] * 3)), state_directory=tmp_path) as first:
        first.run("25m")
        assert first.availability("d") == ["online", "offline"]
    with Harness(app(slow), state_directory=tmp_path, wall=first.loop.wall_time() + 1) as second:
        second.run(2)
        assert second.availability("d") == ["offline"]
        second.run(3)
        assert second.availability("d") == ["offline", "online"]


def test_a_side_job_has_no_availability_to_choose():
    with pytest.raises(InvalidType, match="offline_on"):
        App("app").add_periodic("d", Scripted(None), interval=1, offline_on="error")


def test_a_source_says_that_its_device_has_left_and_comes_back(harness):
    app = App("app")

    @app.source("d", stale_after="1h")
    async def listen(context: Context):
        yield READING
        await context.sleep(10)
        context.unavailable("its battery is low")
        await context.sleep(60)
        yield READING
        await context.sleep("1h")

    running = harness(app)
    running.run(20)

    assert running.availability("d") == ["online", "offline"]
    assert running.status()["devices"]["d"]["status"] == "deferred"
    assert running.status()["devices"]["d"]["deferred_reason"] == "marked unavailable: its battery is low"
    assert running.status()["health"] == "ok"
    runtime = look(running)
    assert (runtime["status"], runtime["deferred_reason"]) == ("deferred", "marked unavailable: its battery is low")

    running.run(60)
    assert running.availability("d") == ["online", "offline", "online"]
    runtime = look(running)
    assert (runtime["status"], runtime["deferred_reason"]) == ("ok", None)


def test_a_device_that_has_left_stays_so_while_its_polls_fail(harness):
    app = App("app")
    polls = iter([READING, None, OSError("no answer"), OSError("no answer"), READING])

    @app.telemetry("d", interval="10s")
    async def read(context: Context):
        poll = next(polls)
        if isinstance(poll, OSError):
            raise poll
        if poll is None:
            context.unavailable("it sleeps")
        return poll

    running = harness(app)
    running.run(35)

    assert running.availability("d") == ["online", "offline"]
    assert running.statuses("d")[-1] == "deferred"
    runtime = look(running)
    assert runtime["consecutive_failures"] == 2
    running.run(10)
    assert running.availability("d") == ["online", "offline", "online"]
    assert look(running)["status"] == "ok"


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("pause", [0, 1])
def test_a_poll_that_gives_nothing_leaves_a_device_as_it_is(harness, plain, pause):
    app = App("app")
    calls = []

    def answer(context):
        calls.append(None)
        if len(calls) == 1:
            context.unavailable("it sleeps")
            return None
        return READING if len(calls) == 4 else None

    if plain:

        @app.telemetry("d", interval="10s")
        def read(context: Context):
            return answer(context)

    else:

        @app.telemetry("d", interval="10s")
        async def read_async(context: Context):
            result = answer(context)
            await context.sleep(pause)
            return result

    running = harness(app)
    running.run(29)
    assert running.availability("d")[-1] == "offline"
    running.run(4)
    assert running.availability("d")[-1] == "online"


def test_a_poll_returns_its_last_reading_with_the_goodbye(harness):
    app = App("app")
    calls = []

    @app.telemetry("d", interval="10s")
    async def read(context: Context):
        calls.append(None)
        if len(calls) == 2:
            context.unavailable("it sleeps")
            await asyncio.sleep(0.1)
        return {"n": len(calls)}

    running = harness(app)
    running.run(15)

    assert running.states("d") == [{"n": 1}, {"n": 2}]
    assert running.availability("d") == ["online", "offline"]
    running.run(10)
    assert running.availability("d") == ["online", "offline", "online"]


def test_an_open_circuit_comes_before_a_goodbye(harness):
    app = App("app")

    @app.telemetry("d", interval="10s", circuit_breaker=CircuitBreaker(1))
    async def read():
        raise OSError("no answer")

    @app.command("d")
    async def off(context: Context):
        context.unavailable("it was switched off")

    running = harness(app)
    running.run(1)
    running.broker.send("app/d/set", b"")
    running.run(1)

    assert running.statuses("d")[-1] == "circuit_open"
    assert running.availability("d")[-1] == "offline"


def test_a_command_that_switches_a_device_off_says_so(harness):
    app = App("app")

    @app.telemetry("d", interval="1h")
    async def read():
        return READING

    @app.command("d")
    def off(context: Context):
        context.unavailable("switched\noff")

    running = harness(app)
    running.run(1)
    running.broker.send("app/d/set", b"")
    running.run(2)

    assert running.availability("d") == ["online", "offline"]
    assert look(running)["deferred_reason"] == r"marked unavailable: switched\noff"
    running.broker.send("app/d/get", b"")
    running.run(1)
    assert running.availability("d") == ["online", "offline", "online"]


def test_wrong_goodbyes_have_named_errors(harness):
    errors = []
    app = App("app")

    @app.command("valve")
    async def off(context: Context):
        for reason in (None, "  ", "it sleeps"):
            try:
                context.unavailable(reason)
            except (InvalidType, InvalidValue, UnknownDevice) as error:
                errors.append((type(error), str(error)))

    running = harness(app)
    running.run(1)
    running.broker.send("app/valve/set", b"")
    running.run(1)

    assert [kind for kind, _ in errors] == [InvalidType, InvalidValue, UnknownDevice]
    assert "write text such as" in errors[0][1]
    assert "'valve' that gives readings" in errors[2][1]
