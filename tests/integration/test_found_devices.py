"""Devices that a handler finds while the app runs."""

import asyncio
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Annotated

import pytest
from pydantic import BaseModel, TypeAdapter

from leadsman import App, Context, Finds, OnChange, Sensor
from leadsman.core.introspection.declared import documents_of
from leadsman.errors import InvalidType, InvalidValue
from leadsman.testing import Harness, Scripted


class Climate(BaseModel):
    temperature: Annotated[float, Sensor("°C", device_class="temperature")]


class Gateway:
    """What a gateway hears: at each time, seconds from the start, the reading of a sensor, or an action on it."""

    def __init__(self, *heard):
        self.heard = heard
        self.found = {}

    async def __call__(self, context: Context) -> AsyncIterator[None]:
        begin = asyncio.get_running_loop().time()
        for at, name, reading in self.heard:
            await context.sleep(max(0.0, begin + at - asyncio.get_running_loop().time()))
            device = self.found[name] = context.device(name)
            if callable(reading):
                reading(device)
            else:
                device.publish(reading)
            yield
        await context.sleep("365d")


def gateway_app(*heard, finds=None, keep_state=False, **options):
    app, gateway = App("house", keep_state=keep_state), Gateway(*heard)
    app.add_source("gateway", gateway, finds=finds or Finds(), silence=None, **options)
    return app, gateway


def every(seconds, name, reading, until):
    return [(at, name, reading) for at in range(0, until, seconds)]


def retained(harness, device):
    return sorted(topic for topic in harness.broker.retained if topic.startswith(f"house/{device}/"))


def registry(harness):
    return harness.broker.retained["house/registry"].json["devices"]


def test_a_device_that_a_source_finds_is_a_device_as_any_other(harness):
    app, _ = gateway_app((5, "attic", {"t": 1}), (15, "attic", {"t": 2}))

    running = harness(app)
    running.run(20)

    assert running.states("attic") == [{"t": 1}, {"t": 2}]
    assert running.broker.retained["house/attic/availability"].payload == b"online"
    assert running.broker.retained["house/status"].json["devices"]["attic"] == {"status": "ok"}
    assert registry(running)["attic"]["found_by"] == "gateway"
    assert retained(running, "attic") == ["house/attic/availability", "house/attic/state"]


def test_a_polled_handler_and_a_side_job_find_devices_too(harness):
    app = App("house")

    async def scan(context: Context) -> None:
        context.device("found_by_" + context.name).publish({"t": 1})

    app.add_telemetry("bus", scan, interval=10, finds=Finds())
    app.add_periodic("search", scan, interval=10, finds=Finds())

    running = harness(app)
    running.run(15)

    assert running.states("found_by_bus") == running.states("found_by_search") == [{"t": 1}, {"t": 1}]


def test_a_handler_in_a_thread_finds_devices(harness):
    app = App("house")

    @app.telemetry("bus", interval=10, finds=Finds(most=1))
    def scan(context: Context) -> None:
        device = context.device("attic")
        device.publish({"t": 1})
        assert device.accepted
        assert not context.device("cellar").accepted

    running = harness(app)
    running.run(15)

    assert running.states("attic") == [{"t": 1}, {"t": 1}]
    assert running.errors("bus") == []


def test_the_publish_rule_and_the_type_of_readings_apply(harness):
    heard = [(1, "attic", {"temperature": 20}), (2, "attic", {"temperature": 20.4}), (3, "attic", {"t": "x"})]
    app, _ = gateway_app(*heard, finds=Finds(Climate), publish=OnChange(1))

    running = harness(app)
    running.run(10)

    assert running.states("attic") == [{"temperature": 20.0}]
    (error,) = running.errors("attic")
    assert error["type"] == "ResultError"
    assert running.errors("gateway") == []


def test_a_device_that_falls_silent_is_stale_and_offline_and_comes_back(harness):
    app, _ = gateway_app((1, "attic", {"t": 1}), (200, "attic", {"t": 2}), finds=Finds(stale_after=60))

    running = harness(app)
    running.run(100)
    stale = running.broker.retained["house/status"].json["devices"]["attic"]["status"]
    offline = running.broker.retained["house/attic/availability"].payload
    running.run(110)

    assert (stale, offline) == ("stale", b"offline")
    assert running.broker.retained["house/attic/availability"].payload == b"online"


def test_a_device_can_say_goodbye(harness):
    app, _ = gateway_app((1, "attic", {"t": 1}), (5, "attic", lambda device: device.unavailable("its battery is low")))

    running = harness(app)
    running.run(10)

    assert running.broker.retained["house/attic/availability"].payload == b"offline"
    assert running.broker.retained["house/status"].json["devices"]["attic"]["status"] == "deferred"


def test_a_device_without_a_reading_for_long_is_forgotten_with_all_its_topics(harness):
    heard = [(0, "attic", {"t": 1}), *every(60, "cellar", {"t": 2}, 9000)]
    app, _ = gateway_app(*heard, finds=Finds(forget_after="10m"))

    running = harness(app)
    running.run("9m")
    known = retained(running, "attic")
    running.run("2h")

    assert "house/attic/state" in known
    assert retained(running, "attic") == []
    assert "attic" not in registry(running)
    assert "attic" not in running.broker.retained["house/status"].json["devices"]
    assert "house/cellar/state" in retained(running, "cellar")


def test_a_device_that_is_forgotten_by_its_handler_is_made_anew(harness):
    heard = [(0, "attic", {"t": 1}), (5, "attic", lambda device: device.forget()), (60, "attic", {"t": 2})]
    app, _ = gateway_app(*heard)

    running = harness(app)
    running.run(30)
    gone = retained(running, "attic")
    running.run(60)

    assert gone == []
    assert running.broker.retained["house/attic/state"].json == {"t": 2}
    assert running.broker.retained["house/status"].json["devices"]["attic"] == {"status": "ok"}


def test_forgotten_topics_stay_away_when_the_connection_comes_back(harness):
    app, _ = gateway_app((0, "attic", {"t": 1}), (5, "attic", lambda device: device.forget()))

    running = harness(app)
    running.run(10)
    running.broker.stop()
    running.run(5)
    running.broker.start()
    running.run(60)

    assert retained(running, "attic") == []


def test_a_flood_of_names_is_bounded_counted_and_logged_once_an_hour(harness, caplog):
    flood = [(1 + number * 0.01, f"sensor{number}", {"t": number}) for number in range(10_000)]
    app, _ = gateway_app(*flood, finds=Finds(most=50))
    app.add_telemetry("meter", Scripted({"w": 1}), interval=10)

    running = harness(app)
    running.run(130)

    topics = {delivered.topic.split("/")[1] for delivered in running.broker.log}
    refused = [record for record in caplog.records if "refused the device" in record.message]
    assert len([topic for topic in topics if topic.startswith("sensor")]) == 50
    assert len(running.states("meter")) == 14
    assert len(refused) == 1
    assert "write a larger most in Finds" in refused[0].message
    running.broker.send("house/introspect", b"")
    running.run(1)
    answer = running.broker.messages("house/introspect/response")[-1].json
    state = TypeAdapter(documents_of().introspection).validate_python(answer["data"])["devices"]["gateway"]["runtime"]
    assert (state["found"], state["refused"]) == (50, 9950)


@pytest.mark.parametrize("name", ["gateway", "meter", "", "x" * 201])
def test_a_name_that_cannot_be_had_is_refused_and_disturbs_nothing(harness, caplog, name):
    app, _ = gateway_app((1, name, {"t": 1}), (2, "attic", {"t": 2}))
    app.add_telemetry("meter", Scripted({"w": 1}), interval=10)

    running = harness(app)
    running.run(5)

    assert running.states("attic") == [{"t": 2}]
    assert running.states("gateway") == []
    assert running.states("meter") == [{"w": 1}]
    assert len([record for record in caplog.records if "refused the device" in record.message]) == 1


def test_a_hostile_name_becomes_one_level_and_forges_no_log_line(harness, caplog):
    hostile = "a/b\n2026-01-01 ERROR all is lost\x1b[2J"
    app, gateway = gateway_app((1, hostile, {"t": 1}), (2, "state", {"t": 2}))

    running = harness(app)
    running.run(5)

    name = gateway.found[hostile].name
    assert "/" not in name
    assert name.isprintable()
    assert running.states(name) == [{"t": 1}]
    assert running.states("%73tate") == [{"t": 2}]
    assert not [record for record in caplog.records if "\n" in record.getMessage() or "\x1b" in record.getMessage()]


def test_two_handlers_do_not_share_a_device(harness):
    app, _ = gateway_app((1, "attic", {"t": 1}))
    other = Gateway((2, "attic", {"t": 2}))
    app.add_source("other", other, finds=Finds(), silence=None)

    running = harness(app)
    running.run(5)

    assert running.states("attic") == [{"t": 1}]
    assert not other.found["attic"].accepted


def test_what_finds_is_given_wrongly_is_said_at_registration():
    async def no_context() -> AsyncIterator[None]:
        yield

    app = App("house")

    with pytest.raises(InvalidValue, match="a parameter of the type Context"):
        app.add_source("gateway", no_context, finds=Finds())
    with pytest.raises(InvalidType, match="write Finds"):
        app.add_source("gateway", Gateway(), finds=5)
    with pytest.raises(InvalidValue, match="1 to 10000"):
        Finds(most=0)
    with pytest.raises(InvalidValue, match="at least 60 s"):
        Finds(forget_after=5)
    with pytest.raises(InvalidType, match="write a type"):
        Finds({"t": 1})


def test_a_handler_without_finds_is_told_what_to_write(harness):
    app = App("house")

    @app.telemetry("bus", interval=10)
    async def scan(context: Context) -> None:
        context.device("attic")

    running = harness(app)
    running.run(5)

    assert "write finds=Finds(…)" in running.errors("bus")[0]["message"]


def test_an_app_that_finds_nothing_loads_nothing_of_it():
    program = """
import sys
from leadsman import App
from leadsman.testing import Harness, Scripted
app = App("house")
app.add_telemetry("meter", Scripted({"w": 1}), interval=10)
with Harness(app) as harness:
    harness.run(20)
print([name for name in sys.modules if name.startswith("leadsman.") and "found" in name or name.endswith(".finds")])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


class TestRestart:
    def lives(self, tmp_path, first, second, **options):
        """Two lives of an app at one broker, and the harness of the second."""
        with Harness(gateway_app(*first, **options)[0], state_directory=tmp_path) as one:
            one.run("5m")
        found = dict(one.broker.retained)
        two = Harness(gateway_app(*second, **options)[0], state_directory=tmp_path)
        with two:
            two.broker.retained.update(found)
            two.run("5m")
            two.broker.send("house/introspect", b"")
            two.run("1s")
        return two

    def test_found_devices_are_known_again_with_their_counters(self, tmp_path):
        two = self.lives(tmp_path, every(10, "attic", {"t": 1}, 200), [], keep_state=True)

        assert "house/attic/state" in retained(two, "attic")
        assert registry(two)["attic"]["found_by"] == "gateway"
        found = two.broker.messages("house/introspect/response")[-1].json["data"]["devices"]["attic"]
        assert found["runtime"]["life"]["polls"] == 20
        assert found["registrations"][0]["found_by"] == "gateway"

    def test_without_state_they_are_gone_until_they_are_found_again(self, tmp_path):
        two = self.lives(tmp_path, every(10, "attic", {"t": 1}, 200), [], keep_state=False)

        assert retained(two, "attic") == []

    def test_a_forgotten_one_stays_forgotten(self, tmp_path):
        first = [(0, "attic", {"t": 1}), (100, "attic", lambda device: device.forget())]

        two = self.lives(tmp_path, first, [], keep_state=True)

        assert retained(two, "attic") == []
        assert "attic" not in registry(two)

    def test_one_that_was_just_forgotten_stays_forgotten_if_the_app_is_killed(self, tmp_path):
        forgets = [(100, name, lambda device: device.forget()) for name in ("attic", "cellar")]
        first = [(0, "attic", {"t": 1}), (0, "cellar", {"t": 1}), (0, "garden", {"t": 1}), *forgets]
        with Harness(gateway_app(*first, keep_state=True)[0], state_directory=tmp_path / "one") as one:
            one.run(100.1)
            shutil.copytree(tmp_path / "one", tmp_path / "killed")  # as a kill would leave it

        with Harness(gateway_app(keep_state=True)[0], state_directory=tmp_path / "killed") as two:
            two.run("1m")

            assert {"attic", "cellar", "garden"} & registry(two).keys() == {"garden"}

    def test_silence_before_the_restart_counts_and_the_time_between_does_not(self, tmp_path):
        two = self.lives(tmp_path, [(0, "attic", {"t": 1})], [], keep_state=True, finds=Finds(forget_after="8m"))

        assert retained(two, "attic") == []

    def test_a_smaller_number_keeps_as_many(self, tmp_path):
        many = [(1, f"sensor{number}", {"t": 1}) for number in range(10)]
        with Harness(gateway_app(*many, keep_state=True)[0], state_directory=tmp_path) as one:
            one.run("5m")

        with Harness(gateway_app(keep_state=True, finds=Finds(most=4))[0], state_directory=tmp_path) as two:
            two.run("1m")

            assert len([name for name in registry(two) if name.startswith("sensor")]) == 4
