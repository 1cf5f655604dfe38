import json
import subprocess
import sys
from pathlib import Path

import pytest

import meter2mqtt
from leadsman.adapters.modbus import Table
from leadsman.core.settings.sources import Where
from leadsman.errors import ConfigurationError
from leadsman.testing import Harness, ModbusTwin
from leadsman_rigs.modbus_server import ModbusServer
from meter2mqtt import app
from meter2mqtt.settings import FOLDERS, TABLES

METERS = {
    "house": {"table": "sdm630", "unit": 1},
    "garage": {"table": "sdm120", "unit": 2, "interval": "30s"},
    "solar": {"table": "em340", "unit": 3},
}
SETTINGS = {"port": "/dev/null/rs485", "meters": METERS}


def test_a_device_that_two_tables_read_answers_to_both_in_a_dry_run():
    meters = {"fast": {"table": "sdm630"}, "slow": {"table": "em340"}}

    with Harness(app, settings=SETTINGS | {"meters": meters}, twins=True) as harness:
        harness.run("5s")

        assert harness.errors("fast") == harness.errors("slow") == []
        assert len(harness.states("fast")) == len(harness.states("slow")) == 1


def test_there_are_tables_for_three_meters_with_their_source():
    files = sorted(Path(meter2mqtt.__file__).with_name("tables").glob("*.toml"))

    assert [path.stem for path in files] == ["em340", "sdm120", "sdm630"] == [*TABLES]
    assert all('\nsource = "' in path.read_text() for path in files)


@pytest.mark.parametrize(
    ("table", "name", "address", "registers", "value"),
    [
        ("sdm120", "voltage", 0x00, [0x4366, 0x199A], 230.1),
        ("sdm120", "power", 0x0C, [0xC2C8, 0x0000], -100.0),
        ("sdm120", "energy_total", 0x156, [0x449A, 0x5000], 1234.5),
        ("sdm630", "current_l3", 0x0A, [0x3FC0, 0x0000], 1.5),
        ("sdm630", "power", 0x34, [0x43CE, 0x4000], 412.5),
        ("em340", "voltage_l1", 0x00, [0x08FD, 0x0000], 230.1),
        ("em340", "power", 0x28, [0xFFF6, 0xFFFF], -1.0),
        ("em340", "frequency", 0x33, [0x01F4], 50.0),
        ("em340", "energy_import", 0x34, [0x0001, 0x0001], 6553.7),
        ("em340", "energy_export", 0x4E, [0x04D2, 0x0000], 123.4),
        ("em340", "power_l2", 0x14, [0xFFFF, 0x7FFF], None),
    ],
)
def test_a_register_is_where_the_document_of_the_meter_says(table, name, address, registers, value):
    register = TABLES[table].registers[name]

    assert register.address == address
    assert register.decode(b"".join(each.to_bytes(2, "big") for each in registers)) == value


@pytest.mark.parametrize(("table", "requests"), [("sdm120", 3), ("sdm630", 2), ("em340", 3)])
def test_a_meter_is_read_in_few_requests(table, requests):
    blocks = TABLES[table].blocks()

    assert len(blocks) == requests
    assert max(block.size for block in blocks) <= {"em340": 50}.get(table, 80)


@pytest.mark.slow
def test_each_meter_of_a_line_is_a_device_and_one_that_is_silent_holds_up_no_other():
    with Harness(app, settings=SETTINGS, twins=True) as harness:
        units = harness.adapter(ModbusTwin).units
        harness.at("10m", lambda: setattr(units[2], "silent", True))
        harness.at("70m", lambda: setattr(units[2], "silent", False))
        harness.at("80m", lambda: setattr(units[3], "refuses", 2))
        harness.run("2h")

        assert harness.states("house")[-1]["power_l2"] == 412.5
        assert harness.states("garage")[-1]["energy_total"] == 1234.5
        times = {
            name: [message.at for message in harness.broker.messages(f"meter2mqtt/{name}/state")] for name in METERS
        }
        assert len(times["house"]) == 720
        assert not [at for at in times["garage"] if 610 < at < 4200]
        assert min(at for at in times["garage"] if at > 4200) - 4200 < 40
        assert harness.errors("solar")[0]["type"] == "ModbusRefused"
        assert "illegal data address" in harness.errors("solar")[0]["message"]


def test_a_value_that_a_meter_does_not_have_leaves_the_others():
    with Harness(app, settings=SETTINGS, twins=True) as harness:
        memory = harness.adapter(ModbusTwin).units[2].memory["input"]
        lacking = TABLES["sdm120"].registers["energy_total"].address
        del memory[lacking], memory[lacking + 1]
        harness.run("10m")

        assert harness.errors("garage") == []
        assert len(harness.states("garage")) == 20
        assert harness.states("garage")[0]["energy_total"] is None
        assert [name for name, value in harness.states("garage")[-1].items() if value is None] == ["energy_total"]


@pytest.mark.parametrize(
    ("meters", "message"),
    [
        ({"house": {"table": "sdm640"}}, "there is no table 'sdm640'; write one of em340, sdm120, sdm630"),
        ({"house": {"table": "sdm630", "unit": 256}}, "house has the unit 256; write 1 to 247"),
        ({"house": {"table": "sdm630", "unit": 0}}, "house has the unit 0; write 1 to 247"),
        ({"house": {"tabel": "sdm630"}}, "did you mean.*table"),
    ],
)
def test_a_wrong_meter_is_a_named_error(meters, message):
    with pytest.raises(ConfigurationError, match=message):
        app.setup.unloaded().load(Where.nowhere({"port": "x", "meters": meters}))


def test_a_wrong_pause_is_a_named_error():
    with pytest.raises(ConfigurationError, match="pause_after_connect is '2'"):
        app.setup.unloaded().load(Where.nowhere(SETTINGS | {"pause_after_connect": "2"}))


def test_over_modbus_tcp_each_number_of_a_byte_is_a_unit():
    meters = {name: {"table": "sdm630", "unit": unit} for name, unit in (("own", 0), ("other", 255))}

    app.setup.unloaded().load(Where.nowhere({"port": "tcp://meter.lan", "meters": meters}))

    with pytest.raises(ConfigurationError, match="own has the unit 256; write 0 to 255"):
        app.setup.unloaded().load(
            Where.nowhere({"port": "tcp://meter.lan", "meters": {"own": {"table": "sdm630", "unit": 256}}})
        )


def check(directory, **environment):
    words = ["--set", "port=/dev/null", "--set", 'meters={"boiler": {"table": "boiler"}}']
    return subprocess.run(
        [sys.executable, "-m", "meter2mqtt", "--check", *words],
        capture_output=True,
        text=True,
        cwd=directory,
        env=environment,
    )


def test_a_table_of_the_user_is_a_table(tmp_path):
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "boiler.toml").write_text("[registers.flow]\naddress = 3\nunit = '°C'\n")

    checked = check(tmp_path)

    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "boiler" in checked.stdout


def test_a_wrong_table_of_the_user_is_an_error_of_the_settings_and_no_traceback(tmp_path):
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "boiler.toml").write_text("[registers.flow]\naddress = 3\ntype = 'flaot32'\n")

    checked = check("/", CONFIGURATION_DIRECTORY=str(tmp_path))

    assert checked.returncode == 78
    assert "boiler.toml: flow: type is 'flaot32'; did you mean 'float32'?" in checked.stderr
    assert "Traceback (most" not in checked.stderr


def test_the_table_on_the_page_of_the_app_is_one(tmp_path):
    page = (Path(__file__).parents[1] / "README.md").read_text()
    (text,) = [block for block in page.split("```") if block.startswith("toml\nname = ")]
    (tmp_path / "heatpump.toml").write_text(text.removeprefix("toml\n"))

    assert [*Table.load(tmp_path / "heatpump.toml").registers] == ["flow_temperature"]
    assert FOLDERS[1].name == "tables"


@pytest.mark.system
@pytest.mark.parametrize("way", ["rtu", "tcp"])
def test_a_meter_at_a_real_port_is_published(program, mosquitto, listen, way):
    memory = [0x4366, 0x199A, *[0] * 400]
    memory[0x48:0x4A] = [0x449A, 0x5000]
    listener = listen(mosquitto.port)
    with ModbusServer(way, {7: {"input": memory}}) as server:
        meters = json.dumps({"garage": {"table": "sdm120", "unit": 7, "interval": "200ms"}})
        running = program("meter2mqtt", "--mqtt", mosquitto.url, port=server.url, baudrate="19200", meters=meters)
        state = json.loads(listener.wait_for("meter2mqtt/garage/state", 3)[0].payload)

        assert (state["voltage"], state["energy_import"], state["power"]) == (230.1, 1234.5, 0.0)
        assert running.end()[0] == 0


def test_the_demo_needs_neither_meter_nor_broker(demonstrated):
    assert '"power":412.5' in demonstrated("meter2mqtt", 6)
