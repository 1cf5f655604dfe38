import contextlib
import threading
import time

import pytest

from leadsman.adapters.serial.framing import FixedFramer
from leadsman.core.introspection.topic_schemas import schemas
from leadsman.core.settings.sources import Where
from leadsman.errors import GarbledData, PayloadError, SettingsError
from leadsman.testing import Harness, SerialTwin, garbage
from vito2mqtt import app
from vito2mqtt.boiler import Vitodens
from vito2mqtt.codecs import (
    CLOCK,
    HALF_PERCENT,
    HISTORY,
    HOURS,
    MODE,
    PERCENT,
    SWITCH,
    TENTHS,
    TIMER,
    VALVE,
    WHOLE,
    Fault,
)
from vito2mqtt.signals import GROUPS, encoded
from vito2mqtt.twin import simulated_boiler

NOON = 1_767_268_800.0  # 2026-01-01 12:00 UTC


@pytest.fixture(autouse=True)
def utc(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")


@pytest.fixture
def running(tmp_path):
    """A life of the app over a simulated boiler; its store is that of the life before."""

    def life(boiler, answer=None, wall=NOON, **settings):
        port = SerialTwin(
            answer or boiler.receive, says=lambda: (2.0, boiler.beat()), framer=FixedFramer(1), timeout="2s"
        )
        twins = (Vitodens(port, settings.get("protocol", "P300")),)
        return Harness(app, settings={"port": "twin", **settings}, twins=twins, state_directory=tmp_path, wall=wall)

    return life


@pytest.mark.parametrize(
    ("codec", "data", "value"),
    [
        (TENTHS, "7b00", 12.3),
        (TENTHS, "ceff", -5.0),
        (WHOLE, "32", 50),
        (HOURS, "100e0000", 1.0),
        (PERCENT, "0163", 99),
        (HALF_PERCENT, "3200", 25.0),
        (SWITCH, "01", "on"),
        (SWITCH, "aa", "error"),
        (SWITCH, "77", "unknown 0x77"),
        (MODE, "02", "normal"),
        (VALVE, "03", "hot water"),
        (TIMER, "3080ffffffffffff", [["06:00", "16:00"]]),
        (TIMER, "ffffffffffffffff", []),
        (CLOCK, "2026112105120304", "2026-11-21T12:03:04"),
        (HISTORY, "d12026112105120304", Fault(code="D1", fault="burner fault", at="2026-11-21T12:03:04")),
        (HISTORY, "000000000000000000", Fault(code="00", fault="none", at=None)),
    ],
)
def test_bytes_are_what_the_boiler_means(codec, data, value):
    assert codec.decode(bytes.fromhex(data)) == value


@pytest.mark.parametrize("data", ["2026132105120304", "20aa112105120304", "2026023005120304"])
def test_a_time_that_is_none_is_a_named_error(data):
    with pytest.raises(GarbledData):
        CLOCK.decode(bytes.fromhex(data))


def test_what_is_written_is_what_would_be_read():
    for group in GROUPS.values():
        for signal in group.values():
            if signal.writable and signal.codec in (TENTHS, WHOLE, TIMER):
                value = [["05:00", "09:30"], ["16:00", "23:50"]] if signal.codec is TIMER else 12
                assert signal.decode(signal.encode(value)) == value
    assert CLOCK.decode(CLOCK.encode("2026-11-21T12:03:04", 8)) == "2026-11-21T12:03:04"


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        ({"setpont": 55}, "did you mean 'setpoint'"),
        ({"temperature": 55}, "read only"),
        ({"setpoint": "hot"}, "not a number"),
        ({"setpoint": True}, "not a number"),
        ({"setpoint": 1000}, "does not fit"),
        ({"setpoint": float("nan")}, "does not fit"),
        ({"timer_monday": [["06:05", "22:00"]]}, "steps of ten"),
        ({"timer_monday": [["22:00", "06:00"]]}, "one after the other"),
        ({"timer_monday": [["06:00", "07:00"]] * 5}, "up to four"),
        ({"timer_monday": "always"}, "not a timer"),
        ({}, "nothing to write"),
    ],
)
def test_a_wish_that_makes_no_sense_is_a_named_error_and_nothing_is_written(wishes, message):
    with pytest.raises(PayloadError, match=message):
        encoded("hot_water", wishes)


@pytest.mark.parametrize("value", ["error", "unknown", True, 1])
def test_a_mode_is_switched_on_or_off_and_to_nothing_else(value):
    with pytest.raises(PayloadError, match="none of off, on"):
        encoded("heating_floor", {"party_mode": value})


@pytest.mark.parametrize("protocol", ["P300", "KW"])
def test_all_groups_are_published(running, protocol):
    with running(simulated_boiler(protocol), protocol=protocol) as harness:
        harness.run("3m")

        for group in GROUPS:
            assert harness.states(group), group
        assert harness.states("outdoor")[-1]["temperature"] == 5.0
        assert harness.errors("diagnosis") == []


def test_in_the_demo_everything_is_plausible():
    with Harness(app, settings={"port": "twin"}, twins=True) as harness:
        harness.run("1m")

        radiator = harness.states("heating_radiator")[-1]
        assert (radiator["room_setpoint"], radiator["frost_warning"], radiator["curve_gradient"]) == (20, "off", 1.4)
        diagnosis = harness.states("diagnosis")[-1]
        assert diagnosis.pop("fault") == "off"
        assert {entry["fault"] for entry in diagnosis.values()} == {"none"}
        assert harness.states("burner")[-1]["power"] == 35.0
        assert harness.states("system")[-1] == {"internal_pump": "on", "internal_pump_speed": 55.0, "valve": "heating"}


def test_a_signal_that_this_boiler_has_not_is_null_and_not_asked_for_again(running):
    boiler = simulated_boiler()
    del boiler.memory[0x5525]
    with running(boiler) as harness:
        harness.run("6m")

        state = {"temperature": 5.0, "temperature_lowpass": None, "temperature_damped": 5.0}
        assert harness.states("outdoor")[-1] == state


def test_the_schema_of_each_group_says_what_its_signals_are(capsys):
    with app.unloaded():
        app.load(Where.nowhere({"port": "x"}))
        found = schemas(app.topics, {**app.telemetries, **app.sources}, app.commands)["topics"]

    assert found["vito2mqtt/outdoor/state"]["properties"]["temperature"]["unit"] == "°C"
    assert found["vito2mqtt/hot_water/state"]["properties"]["timer_monday"]["anyOf"][0]["type"] == "array"


def test_only_what_changes_is_written(running):
    boiler = simulated_boiler()
    with running(boiler) as harness:
        harness.run("1m")
        harness.broker.send("vito2mqtt/hot_water/set", {"setpoint": 50, "pump_overrun": 10})
        harness.run("10s")
        assert boiler.writes == [(0x6762, b"\x0a\x00")]
        harness.broker.send("vito2mqtt/hot_water/set", {"setpoint": 50, "__force": True})
        harness.run("10s")
        assert boiler.writes[1:] == [(0x6300, b"\x32")]
        assert harness.states("hot_water")[-1]["pump_overrun"] == 10


@pytest.mark.parametrize(
    ("group", "economy", "party"), [("heating_radiator", 0x2302, 0x2303), ("heating_floor", 0x3302, 0x3303)]
)
def test_party_and_economy_mode_are_switched(running, group, economy, party):
    boiler = simulated_boiler()
    with running(boiler) as harness:
        harness.run("1m")
        harness.broker.send(f"vito2mqtt/{group}/set", {"party_mode": "on", "economy_mode": "off"})
        harness.run("10s")

        assert boiler.writes == [(party, b"\x01")]
        assert boiler.memory[economy] == b"\x00"
        state = harness.states(group)[-1]
        assert (state["party_mode"], state["economy_mode"]) == ("on", "off")


def test_home_assistant_switches_party_and_economy_mode(running):
    with running(simulated_boiler(), **{"discovery.convention": "homeassistant"}) as harness:
        harness.run("1m")

        (more,) = harness.broker.messages("homeassistant/device/vito2mqtt/heating_floor--1/config")
        shown = {name: each["p"] for name, each in more.json["cmps"].items()}
        assert (shown["party_mode"], shown["economy_mode"], shown["mode"]) == ("select", "select", "sensor")
        assert more.json["cmps"]["party_mode"]["ops"] == ["off", "on"]


def test_a_mode_that_nobody_knows_does_not_cost_the_other_values(running):
    boiler = simulated_boiler()
    boiler.memory[0x3303] = b"\x07"
    with running(boiler) as harness:
        harness.run("1m")

        assert harness.states("heating_floor")[-1]["party_mode"] is None
        assert harness.states("heating_floor")[-1]["economy_mode"] == "off"


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        (b'{"setpont": 55}', "did you mean 'setpoint'"),
        (b'{"setpoint": null}', "not a number"),
        (b'{"setpoint": NaN}', "broken JSON"),
        (b"[]", "send a JSON object"),
        (b"", "the message is empty"),
    ],
)
def test_a_message_that_makes_no_sense_is_answered_and_nothing_is_written(running, wishes, message):
    boiler = simulated_boiler()
    with running(boiler) as harness:
        harness.run("1m")
        harness.broker.send("vito2mqtt/hot_water/set", wishes)
        harness.run("10s")

        assert message in harness.broker.messages("vito2mqtt/hot_water/set/result")[-1].json["error"]
        assert boiler.writes == []


def test_the_floor_has_the_speed_of_its_pump_and_the_third_circuit(running):
    with running(simulated_boiler()) as harness:
        harness.run("1m")

        floor = harness.states("heating_floor")[-1]
        assert (floor["pump"], floor["pump_speed"], floor["flow_setpoint_m3"]) == ("on", 40.0, 30.0)


def test_how_hot_and_how_long_are_settings(running):
    boiler = simulated_boiler()
    settings = {"legionella.temperature": 65, "legionella.minutes": 60, "legionella.margin": 120}
    with running(boiler, **settings) as harness:
        harness.run("1m")
        harness.broker.send("vito2mqtt/legionella/set", {"action": "start"})
        harness.run("50m")
        assert boiler.memory[0x6300] == bytes([65])
        harness.run("12m")
        assert boiler.memory[0x6300] == b"\x32"
    with running(boiler, wall=NOON + 9.5 * 3600, **settings) as harness:
        harness.run("10s")
        harness.broker.send("vito2mqtt/legionella/set", {"action": "start"})
        harness.run("10s")
        assert harness.states("legionella")[-1]["reason"] == "the timer of hot water does not leave 120 minutes"


def test_a_temperature_that_scalds_or_does_nothing_is_told_at_the_start():
    for degrees in (45, 90):
        with pytest.raises(SettingsError, match="legionella.temperature"), app.unloaded():
            app.load(Where.nowhere({"port": "x", "legionella.temperature": degrees}))


def test_hot_water_is_heated_once_and_restored(running):
    boiler = simulated_boiler()
    with running(boiler) as harness:
        harness.run("1m")
        harness.broker.send("vito2mqtt/legionella/set", {"action": "start"})
        harness.run("20m")
        assert boiler.memory[0x6300] == b"\x44"
        assert 18 <= harness.states("legionella")[-1]["minutes_left"] <= 21
        harness.run("22m")
        assert boiler.memory[0x6300] == b"\x32"
        assert harness.states("legionella")[-1]["state"] == "idle"


def test_heating_may_be_cancelled_and_is_not_begun_twice(running):
    boiler = simulated_boiler()
    with running(boiler) as harness:
        harness.run("1m")
        for action in ("start", "start", "cancel", "cancel"):
            harness.broker.send("vito2mqtt/legionella/set", {"action": action})
            harness.run("1m")
        results = [message.json for message in harness.broker.messages("vito2mqtt/legionella/set/result")]
        assert [result["status"] for result in results] == ["ok", "error", "ok", "ok"]
        assert boiler.memory[0x6300] == b"\x32"


def test_heating_is_refused_where_the_timer_leaves_no_time(running):
    boiler = simulated_boiler()
    with running(boiler, wall=NOON + 10.75 * 3600) as harness:
        harness.run("10s")
        harness.broker.send("vito2mqtt/legionella/set", {"action": "start"})
        harness.run("10s")
        assert harness.states("legionella")[-1]["state"] == "rejected"
        assert boiler.writes == []


def test_a_life_that_ends_while_it_heats_is_followed_by_one_that_restores(running):
    boiler = simulated_boiler()
    with running(boiler) as harness:
        harness.run("1m")
        harness.broker.send("vito2mqtt/legionella/set", {"action": "start"})
        harness.run("5m")
        boiler.silent = True  # and so the end of the app restores nothing
    assert boiler.memory[0x6300] == b"\x44"
    boiler.restart()
    with running(boiler, wall=NOON + 7200) as harness:
        harness.run("1m")
        assert boiler.memory[0x6300] == b"\x32"
        assert harness.states("legionella")[0]["state"] == "recovered"


def test_a_stop_while_it_heats_restores_first(running):
    boiler = simulated_boiler()
    with running(boiler) as harness:
        harness.run("1m")
        harness.broker.send("vito2mqtt/legionella/set", {"action": "start"})
        harness.run("5m")
        harness.stop()
    assert boiler.memory[0x6300] == b"\x32"


@pytest.mark.slow
def test_a_boiler_that_is_silent_for_an_hour_is_read_again_and_restored(running):
    boiler = simulated_boiler()
    with running(boiler) as harness:
        harness.run("1m")
        harness.broker.send("vito2mqtt/legionella/set", {"action": "start"})
        harness.at("20m", lambda: setattr(boiler, "silent", True))
        harness.at("80m", boiler.restart)
        harness.run("79m")
        assert boiler.memory[0x6300] == b"\x44"
        assert {harness.status()["devices"][group]["status"] for group in GROUPS} <= {"error", "stale", "circuit_open"}
        harness.run("1m")
        assert boiler.memory[0x6300] == b"\x32"
        harness.run("10m")  # one poll closes the circuit, and the next one of each group reads it
        assert {harness.status()["devices"][group]["status"] for group in GROUPS} == {"ok"}


def calls_in_an_hour_of_silence(running, **settings):
    boiler, asked = simulated_boiler(), []

    def answer(data):
        asked.append(data)
        return boiler.receive(data)

    with running(boiler, answer, **settings) as harness:
        harness.run("10m")
        boiler.silent = True
        harness.run("1h")
        before = len(asked)
        harness.run("1h")
    return len(asked) - before


@pytest.mark.slow
def test_the_groups_share_a_circuit_so_a_dead_boiler_is_asked_seldom(running):
    assert calls_in_an_hour_of_silence(running) < 200


@pytest.mark.slow
def test_who_runs_it_may_switch_the_circuit_off(running):
    assert calls_in_an_hour_of_silence(running, **{"devices.*.circuit_breaker": "off"}) > 600


@pytest.mark.slow
def test_a_virtual_day_of_garbled_answers_and_a_silent_hour(running):
    boiler, number = simulated_boiler(), 0

    def answer(asked):
        nonlocal number
        number += 1
        return garbage(12) if number % 97 == 0 else boiler.receive(asked)

    with running(boiler, answer) as harness:
        harness.at("5h", lambda: setattr(boiler, "silent", True))
        harness.at("6h", boiler.restart)
        harness.run("6h11m")
        assert {harness.status()["devices"][group]["status"] for group in GROUPS} == {"ok"}
        harness.run("17h49m")
        assert {harness.status()["devices"][group]["status"] for group in GROUPS} == {"ok"}
        for group in GROUPS:
            assert [error["event"] for error in harness.errors(group)][-1] == "recovered"
            kinds = {error["type"] for error in harness.errors(group)}
            assert kinds <= {"DeviceTimeout", "GarbledData", "DeviceUnavailable"}  # the last while the port is reopened


def test_a_boiler_on_a_real_port_is_read_through_garbage_silence_and_a_kill(program, pty_device, mosquitto, listen):
    boiler, listener, there = simulated_boiler(), listen(mosquitto.port), True
    disturbed = False

    def answer():
        beat = 0.0
        while there:
            with contextlib.suppress(OSError, TypeError):
                if asked := pty_device.receive():
                    pty_device.send(garbage(20) if disturbed else boiler.receive(asked))
                elif time.monotonic() - beat > 0.5:
                    beat = time.monotonic()
                    pty_device.send(boiler.beat())
            time.sleep(0.001)

    threading.Thread(target=answer, daemon=True).start()
    words = {"port": pty_device.path, "parity": "N", "interval": "2s"}
    running = program("vito2mqtt", "--mqtt", mosquitto.url, **words)
    listener.wait_for("vito2mqtt/diagnosis/state")
    disturbed = True
    listener.wait_for("vito2mqtt/outdoor/error")
    disturbed = False
    listener.wait_for("vito2mqtt/outdoor/error", where=lambda message: b"recovered" in message.payload)
    for name in ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"):
        boiler.memory[GROUPS["hot_water"][f"timer_{name}"].address] = b"\x00\xc0".ljust(8, b"\xff")  # 00:00 to 24:00
    listener.client.publish("vito2mqtt/legionella/set", b'{"action": "start"}', 1)
    found = listener.wait_for("vito2mqtt/legionella/set/result")[0].payload
    if b"rejected" not in found:  # half an hour before midnight it is refused
        assert boiler.memory[0x6300] == b"\x44"
        running.kill()
        running.start()
        listener.wait_for("vito2mqtt/legionella/state", where=lambda message: b"recovered" in message.payload)
        assert boiler.memory[0x6300] == b"\x32"
    assert running.end()[0] == 0
    there = False


def test_the_demo_needs_neither_boiler_nor_broker(demonstrated):
    log = demonstrated("vito2mqtt", 8)

    assert 'vito2mqtt/outdoor/state  {"temperature":5.0' in log
