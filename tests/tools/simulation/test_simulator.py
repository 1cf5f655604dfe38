"""An app that is run for a simulated day: what is recorded, what is refused, and that nothing real is touched."""

import logging
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from typing import Annotated, TypedDict
from zoneinfo import ZoneInfo

import pytest
from pydantic import BaseModel

from leadsman import App, CircuitBreaker, Content, Context, Cron, Delivery, OnChange
from leadsman.adapters.serial import SerialPort
from leadsman.core.settings.sources import Where
from leadsman.errors import ConfigurationError, InvalidValue, LeadsmanError
from leadsman.testing import SerialTwin
from leadsman.tools.simulation import simulator
from leadsman.tools.simulation.outcome import HELD, MISSED, SKIPPED, figures_of
from leadsman.tools.simulation.scenario import BROKER, FLAKY, OUTAGES, QUIET_DAY, OutageRange
from leadsman.tools.simulation.simulator import ShortLink, Simulation, simulate, stage_of
from leadsman.tools.simulation.variant import AS_WRITTEN, variant_of

HOUR = 3600.0
NOWHERE = Where.nowhere({})


class Reading(TypedDict):
    watts: float
    counter: int
    on: bool
    name: str


async def read() -> Reading:
    return {"watts": 1.0, "counter": 1, "on": True, "name": "a"}


def no_twins(settings):
    """Those of an app without adapters."""
    return ()


def app_of(*names, handler=read, adapters=(), twins=no_twins, **options):
    app = App("house", mqtt="mqtt://nowhere.invalid", adapters=adapters, twins=twins)
    app.add_telemetry(list(names), handler, **{"interval": 60, **options})
    return app


def day(app, *policies, scenario=OUTAGES, length=6 * HOUR, seed=1, **more):
    simulation = Simulation(app, NOWHERE, scenario, length, seed, **more)
    stage = stage_of(simulation)
    found = [simulate(simulation, stage, each, lambda part: None) for each in (AS_WRITTEN, *map(variant_of, policies))]
    return stage, found


def test_all_policies_meet_the_same_faults_and_retries_shorten_the_gaps():
    stage, (written, retrying, until) = day(
        app_of("a", "b", interval="10m"), "retry=3", "UNTIL_NEXT_POLL", scenario=FLAKY
    )

    assert stage.plan.faults
    assert written.figures.slots == retrying.figures.slots == until.figures.slots == 72
    assert written.figures.lost > retrying.figures.lost >= until.figures.lost
    assert written.figures.gap_total > retrying.figures.gap_total >= until.figures.gap_total
    assert written.figures.attempts == 72 < retrying.figures.attempts <= until.figures.attempts


def test_the_record_agrees_with_the_plan():
    stage, (written,) = day(app_of("a"), length=24 * HOUR)
    (one,) = written.days
    away = [(fault.begin, fault.end) for fault in stage.plan.of(["a"])]

    assert away
    assert not [at for at in one.readings if any(begin <= at < end for begin, end in away)]
    for begin, end in away:
        called = [at for at in one.calls if begin <= at < end]
        assert set(called) <= set(one.failures)
    assert one.slots == written.figures.slots
    assert 1435 <= one.slots <= 1440


def test_the_same_seed_is_the_same_day_and_another_one_another():
    app = app_of("a", "b", retry=2, circuit_breaker=CircuitBreaker(3, shared="bus"), group="bus")

    first, again, other = (day(app, scenario=FLAKY, seed=seed)[1] for seed in (1, 1, 2))

    assert first == again
    assert first != other


def test_an_open_circuit_is_recorded_with_the_polls_that_it_skips():
    _, (written, with_breaker) = day(app_of("a"), "circuit_breaker=2", length=24 * HOUR)

    assert with_breaker.days[0].causes[SKIPPED] > 1
    assert with_breaker.figures.opened > 0 == written.figures.opened
    assert with_breaker.figures.attempts < written.figures.attempts


def test_a_device_that_is_held_misses_all_slots_that_follow():
    _, (written,) = day(app_of("a", on_failure="hold"), length=24 * HOUR)

    assert written.days[0].causes[HELD] > 100
    assert 1435 <= written.figures.slots <= 1440


def test_slow_calls_miss_the_polls_that_they_outlast():
    _, (written,) = day(app_of("a", interval=1, timeout=5), scenario=FLAKY, length=HOUR / 2)

    assert written.days[0].causes[MISSED] > 10


def test_cron_schedules_meet_the_change_to_daylight_saving():
    app = App("house", mqtt="mqtt://nowhere.invalid")
    app.add_telemetry("nightly", read, schedule=Cron("30 * * * *", zone="Europe/Berlin"))

    stage, (written,) = day(app, begins=datetime(2026, 10, 24, 22, tzinfo=UTC), scenario=QUIET_DAY)

    assert stage.shifts == (3 * HOUR,)
    assert written.figures.slots == 6


def test_schedules_without_a_zone_are_in_utc_on_every_machine(monkeypatch):
    monkeypatch.setattr("tzlocal.get_localzone", lambda: ZoneInfo("Asia/Kolkata"))
    app = App("house", mqtt="mqtt://nowhere.invalid")
    app.add_telemetry("nightly", read, schedule="30 0 * * *")
    app.add_telemetry("zoned", read, schedule=Cron("30 0 * * *", zone="UTC"))

    stage, (written,) = day(app, scenario=QUIET_DAY, length=24 * HOUR)

    assert stage.zoneless == ("nightly",)
    assert [int(each.calls[0]) for each in written.days] == [1800, 1800]


def test_a_device_may_be_called_broker():
    stage, _ = day(app_of("broker"), length=24 * HOUR)

    assert stage.plan.of(["broker"])
    assert stage.plan.of([BROKER])
    assert not {*stage.plan.of(["broker"])} & {*stage.plan.of([BROKER])}


def test_nothing_is_published_but_readings_and_no_endpoint_is_opened(monkeypatch):
    topics, put = set(), ShortLink.put

    def seen(self, message):
        topics.add(message.topic)
        put(self, message)

    monkeypatch.setattr(ShortLink, "put", seen)
    simulation = Simulation(app_of("a"), Where.nowhere({}, {"HTTP__BIND": "127.0.0.1:0"}), FLAKY, 3 * HOUR, 1)

    outcome = simulate(simulation, stage_of(simulation), AS_WRITTEN, lambda part: None)

    assert topics == {"house/a/state"}
    assert outcome.figures.failed > 0


def test_a_simulated_day_has_one_node_and_no_cluster():
    variables = {"CLUSTER__ENGINE": "nats://nowhere.invalid", "CLUSTER__NODE": "one"}
    simulation = Simulation(app_of("a"), Where.nowhere({}, variables), FLAKY, 3 * HOUR, 1)

    assert simulate(simulation, stage_of(simulation), AS_WRITTEN, lambda part: None).figures.slots == 180


def test_an_app_without_twins_runs_with_stand_ins_that_have_the_fields_of_its_readings():
    called = []

    async def handler(port: SerialPort) -> Reading:
        called.append(port)
        raise NotImplementedError

    adapters = (SerialPort("/dev/nothing"),)
    app = app_of("a", handler=handler, adapters=adapters, twins=None, publish=OnChange(0.5))

    stage, (written,) = day(app, scenario=QUIET_DAY, length=HOUR)

    assert (stage.stand_ins, stage.adapters, called) == (("a",), ("SerialPort",), [])
    assert written.figures.readings == written.figures.slots == 60


@pytest.mark.parametrize(
    "reach",
    [
        lambda: socket.create_connection(("203.0.113.7", 80), 1),
        lambda: subprocess.run(["true"]),
        lambda: open("/dev/tty"),  # noqa: SIM115  # it is not called
    ],
)
def test_a_handler_without_an_adapter_reaches_nothing_where_its_app_has_no_twins(reach):
    called = []

    def handler() -> dict[str, float]:
        called.append(reach())
        return {"watts": 1.0}

    stage, (written,) = day(app_of("a", handler=handler, twins=None), scenario=QUIET_DAY, length=HOUR)

    assert (stage.stand_ins, called) == (("a",), [])
    assert written.figures.readings == 60


def test_an_app_with_twins_runs_its_handlers():
    asked = []

    def device(data):
        asked.append(data)
        return b"21.5\n"

    async def handler(port: SerialPort, context: Context) -> dict[str, float]:
        context.store["polls"] = context.store.get("polls", 0) + 1
        return {"watts": float(await port.request(b"P?\n"))}

    app = app_of("a", handler=handler, adapters=(SerialPort("/dev/nothing"),), twins=lambda _: (SerialTwin(device),))

    stage, (written,) = day(app, scenario=QUIET_DAY, length=HOUR)

    assert stage.stand_ins == ()
    assert len(asked) >= written.figures.readings == 60


def test_plain_handlers_run_in_a_thread_and_prints_are_swallowed(capsys):
    def handler() -> dict[str, float]:
        sys.stdout.write("noise")
        logging.getLogger("house").error("noise")
        return {"watts": 1.0}

    _, (written,) = day(app_of("a", handler=handler), scenario=QUIET_DAY, length=HOUR)

    assert written.figures.readings == 60
    assert capsys.readouterr() == ("", "")


def test_a_plain_handler_has_one_thread_for_the_whole_day_and_none_afterwards():
    seen = set()

    def handler() -> dict[str, float]:
        seen.add(threading.current_thread())
        return {"watts": 1.0}

    day(app_of("a", handler=handler), scenario=QUIET_DAY, length=HOUR)

    (thread,) = seen
    thread.join(60)
    assert not thread.is_alive()


def test_the_app_and_the_process_are_as_before():
    app = app_of("a", "b")
    app.add_periodic("job", lambda: None, interval=1)
    telemetries, dice, disabled = dict(app.telemetries), random.getstate(), logging.root.manager.disable
    interrupt = signal.getsignal(signal.SIGINT)

    day(app, "retry=3", length=HOUR, devices=("a",))

    assert app.telemetries == telemetries
    assert random.getstate() == dice
    assert logging.root.manager.disable == disabled
    assert signal.getsignal(signal.SIGINT) is interrupt


def test_only_the_devices_that_are_asked_for_are_simulated():
    stage, (written,) = day(app_of("a", "b"), length=HOUR, devices=("b",))

    assert stage.devices == ("b",)
    assert [each.device for each in written.days] == ["b"]


@pytest.mark.parametrize(
    ("does", "said"),
    [
        (lambda: time.sleep(0.22), r"blocked the simulation for [\d.]+ s of real time, 3 times"),
        (lambda: {}["key"], r"fails although nothing is wrong: KeyError: 'key' \(test_simulator.py:\d+\)"),
    ],
)
def test_a_handler_that_cannot_be_simulated_is_named_with_what_to_write(does, said, monkeypatch):
    monkeypatch.setattr(simulator, "BLOCKED", 0.2)

    async def handler() -> dict[str, float]:
        does()
        return {"watts": 1.0}

    with pytest.raises(LeadsmanError, match=said) as refused:
        day(app_of("a", handler=handler), scenario=QUIET_DAY, length=HOUR)

    assert str(refused.value).startswith("a: its handler ")
    assert "write --stand-in a" in str(refused.value)


def test_a_stand_in_takes_the_place_of_a_handler_that_cannot_be_simulated():
    async def handler() -> dict[str, float]:
        return {"watts": {}["key"]}

    _, (written,) = day(app_of("a", handler=handler), scenario=QUIET_DAY, length=HOUR, stand_ins=("a",))

    assert written.figures.readings == 60


def test_the_values_and_the_bytes_of_a_simulated_device_are_readings_as_others_are():
    async def picture() -> Annotated[bytes, Content("image/png")]:
        return b"x"

    app = app_of("plain", layout="fields")
    app.add_telemetry("camera", picture, interval=60)
    app.add_telemetry("stood-in", picture, interval=60)

    _, (written,) = day(app, scenario=QUIET_DAY, length=HOUR, stand_ins=("stood-in",))

    assert (written.figures.readings, written.figures.lost, written.figures.dropped) == (180, 0, 0)


@pytest.mark.slow
def test_readings_that_are_dropped_are_counted_where_each_value_has_a_topic():
    expiring, away = Delivery(expiry="1m"), QUIET_DAY._replace(broker=OutageRange(4, 4, 3600, 5400))
    layouts = ({}, {"layout": "fields"})
    figures = [day(app_of("a", delivery=expiring, **each), scenario=away)[1][0].figures for each in layouts]

    assert figures[0].dropped == figures[1].dropped > 0


def test_an_app_without_a_polled_device_is_refused():
    app = App("house", mqtt="mqtt://nowhere.invalid")
    app.add_periodic("job", lambda: None, interval=1)

    with pytest.raises(InvalidValue, match="the app 'house' has no device that is polled"):
        day(app)


def test_an_app_whose_settings_name_no_device_is_refused_with_what_to_write():
    class Settings(BaseModel):
        rooms: dict[str, str] = {}

    app = App("house", mqtt="mqtt://nowhere.invalid", settings=Settings)
    app.add_telemetry(lambda settings: list(settings.rooms), read, interval=60)

    with pytest.raises(InvalidValue, match="nothing to simulate: it has no devices, because 'rooms' is empty"):
        day(app)


def test_a_machine_that_is_busy_for_a_moment_ends_nothing(monkeypatch):
    monkeypatch.setattr(simulator, "BLOCKED", 0.2)
    calls = []

    async def handler() -> dict[str, float]:
        calls.append(1)
        if len(calls) % 3:
            time.sleep(0.22)
        return {"watts": 1.0}

    _, (written,) = day(app_of("a", handler=handler), scenario=QUIET_DAY, length=600)

    assert written.figures.readings == 10


def test_a_device_that_is_not_polled_is_refused():
    with pytest.raises(InvalidValue, match="no device 'c' is polled; "):
        day(app_of("a"), devices=("c",))
    with pytest.raises(InvalidValue, match="no device 'c' is polled; "):
        day(app_of("a"), stand_ins=("c",))


def test_a_policy_that_does_not_exist_is_refused_and_the_app_is_as_before():
    app = app_of("a")

    with pytest.raises(ConfigurationError, match="no policy is called 'gentel'"):
        day(app, "gentel", length=HOUR)
    day(app, length=HOUR)


def test_a_device_that_would_end_the_app_is_named_and_the_day_goes_on():
    stage, (written,) = day(app_of("a", on_failure="stop"), length=24 * HOUR)

    assert stage.stopping == ("a",)
    assert 1435 <= written.figures.slots <= 1440


def test_ctrl_c_ends_it_also_while_a_handler_swallows_everything():
    calls = []

    async def handler() -> dict[str, float]:
        calls.append(1)
        if len(calls) == 3:
            signal.raise_signal(signal.SIGINT)
        return {"watts": 1.0}

    with pytest.raises(KeyboardInterrupt):
        day(app_of("a", handler=handler), scenario=QUIET_DAY)
    assert len(calls) == 3


def test_a_broker_that_is_away_loses_no_reading_of_the_day():
    stage, (written,) = day(app_of("a"), length=24 * HOUR)

    assert stage.plan.of([BROKER])
    assert written.figures.dropped == 0
    assert figures_of(written.days) == written.figures


def test_the_same_day_on_any_hash_seed():
    code = (
        "import sys; sys.path.insert(0, 'scripts'); from leadsman.tools.cli.main import main; "
        "main(['simulate', 'example_house:app', '--for', '3h', '--json'])"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, check=True, env={"PYTHONHASHSEED": seed, "PATH": ""}
        ).stdout
        for seed in ("1", "2")
    }

    assert len(found) == 1
