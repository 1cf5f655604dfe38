"""The command line, as somebody uses it who has never seen it."""

import json
import os
import pty
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

LEADSMAN = [sys.executable, "-m", "leadsman"]


@pytest.fixture
def here(tmp_path):
    """A directory to work in, and the command line there."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MQTT__", "LEADSMAN"))}
    environment |= {"PYTHONWARNINGS": "error", "COLUMNS": "120"}

    class Here:
        path = tmp_path

        def __call__(self, *arguments, cwd=tmp_path, **variables):
            return subprocess.run(
                [*LEADSMAN, *arguments],
                cwd=cwd,
                env={**environment, **variables},
                capture_output=True,
                text=True,
                timeout=60,
            )

        def write(self, name, text):
            (tmp_path / name).write_text(text)

    return Here()


APP = "from leadsman import App\napp = App('small')\n"
TABLE = """from pathlib import Path
from leadsman.adapters.modbus import Table
Path("meter.toml").write_text("gap = 'x'\\n[registers.a]\\naddress = 0")
Table.load("meter.toml")
"""
OF_NEW_PYTHONS = "App.__init__() got an unexpected keyword argument 'adaptors'. Did you mean 'adapters'?"
DEVICE = "@app.telemetry('d', interval='5m')\nasync def read() -> dict[str, float]:\n    return {}\n"


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    directory = tmp_path_factory.mktemp("init") / "house"
    subprocess.run([*LEADSMAN, "init", "house", "--directory", str(directory)], check=True, capture_output=True)
    return directory


def test_a_new_app_is_checked_tested_inspected_and_described(here, house):
    checked = here("check", "house:app", cwd=house)
    assert checked.returncode == 0, checked.stderr
    assert "disks.root.every" in checked.stdout
    tested = subprocess.run([sys.executable, "-m", "pytest", "-q"], cwd=house, capture_output=True, text=True)
    assert tested.returncode == 0, tested.stdout
    inspected = here("inspect", "house:app", "--json", cwd=house)
    assert set(json.loads(inspected.stdout)["devices"]) == {"root", "tmp", "heating"}
    topics = json.loads(here("schema", "house:app", cwd=house).stdout)["topics"]
    assert topics["house/root/state"]["properties"]["free"]["unit"] == "GB"
    assert topics["house/heating/set"]["properties"]["temperature"]["maximum"] == 30


def test_a_new_app_is_never_written_over_another(here, house):
    before = {path: path.read_bytes() for path in house.iterdir() if path.is_file()}

    result = here("init", "house", "--directory", str(house))

    assert result.returncode == 1
    assert "exists already, so nothing was written" in result.stderr
    assert {path: path.read_bytes() for path in before} == before


def test_the_smallest_app_is_one_file_that_works(here):
    written = here("init", "sound", "--minimal")

    assert written.returncode == 0, written.stderr
    assert [path.name for path in here.path.iterdir()] == ["sound.py"]
    assert here("check", "sound:app").returncode == 0
    assert here("init", "sound", "--minimal").returncode == 1


def test_a_compose_file_without_a_dockerfile_is_not_written(here):
    refused = here("init", "sound", "--minimal", "--compose")

    assert (refused.returncode, list(here.path.iterdir())) == (78, [])
    assert "--compose needs the Dockerfile that --minimal leaves out; leave out one of the two" in refused.stderr


@pytest.mark.parametrize("name", ["a b", "House", "1st", "class", "json", "leadsman", "../x", "", "ä", "status"])
def test_a_name_that_makes_no_module_is_refused(here, name):
    result = here("init", name)

    assert result.returncode == 78
    assert "write" in result.stderr
    assert list(here.path.iterdir()) == []


def test_its_systemd_unit_is_valid_and_its_exposure_is_at_most_1_5(house):
    unit = house / "house.service"
    verified = subprocess.run(["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True)
    complaints = [line for line in verified.stderr.splitlines() if "house.service" in line]
    assert all("is not executable: No such file" in line for line in complaints)
    secured = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=15", str(unit)], capture_output=True, text=True
    )
    assert secured.returncode == 0, secured.stdout[-300:]


def test_the_steps_of_its_dockerfile_work_without_an_engine(here, house, tmp_path):
    steps = [
        line.split(None, 1) for line in (house / "Dockerfile").read_text().splitlines() if line and line[0] not in "#"
    ]
    words = {step[0]: step[1] for step in steps}
    wheels = words["COPY"].split()[0]
    built = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path / wheels), str(house)],
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    assert f"pip install --no-cache-dir {wheels}/*.whl" in words["RUN"]
    (wheel,) = (tmp_path / wheels).glob("*.whl")
    assert "house.py" in zipfile.ZipFile(wheel).namelist()
    shell, option, line = json.loads(words["CMD"])
    assert here("check", "house:app", cwd=house).returncode == 0
    there = {**os.environ, "APP": "house", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    (tmp_path / "leadsman").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "leadsman").chmod(0o755)
    run = subprocess.run([shell, option, line], env=there, capture_output=True, text=True, check=True)
    assert run.stdout == "run house:app\n"
    assert words["ENV"].split()[2].startswith("LEADSMAN_HEALTH_FILE=")
    assert here("health", LEADSMAN_HEALTH_FILE=str(tmp_path / "none")).returncode == 1


@pytest.mark.parametrize("command", ["check", "schema"])
def test_a_reader_that_has_seen_enough_is_no_trouble(here, command):
    here.write("small.py", APP + DEVICE)
    line = f'"$0" -m leadsman {command} small:app | true; exit "${{PIPESTATUS[0]}}"'

    done = subprocess.run(["bash", "-c", line, sys.executable], cwd=here.path, capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (1, "")


def test_our_own_wheel_builds_and_holds_the_templates(tmp_path):
    built = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), "."],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )

    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "leadsman/tools/cli/templates/unit.service" in names
    assert "leadsman/py.typed" in names


@pytest.mark.parametrize(
    ("code", "target", "exit_code", "told"),
    [
        (APP + DEVICE, "small", 0, "ok"),
        (APP + DEVICE, "small.py", 0, "ok"),
        (APP + DEVICE + "app.run()\n", "small:app", 0, "ok"),
        (APP, "small:app", 78, "registers nothing"),
        (APP, "smal:app", 1, "did you mean 'small'"),
        (APP, "small:ap", 1, "did you mean 'app'"),
        (APP, "small:App", 1, "and is not an App"),
        (APP + "two = App('two')", "small", 1, "small has 2 apps; write small:app or small:two"),
        ("", "small", 1, "small has no app; write app = App('small') in it"),
        ("", "small:app", 1, "small has no 'app' and no other app"),
        (APP, "a b", 1, "is not a module"),
        ("import nowhere", "small:app", 1, "small.py line 1: it needs 'nowhere', which is not installed"),
        ("x = (", "small:app", 1, "small.py line 1:"),
        ("\n1/0", "small:app", 1, "small.py line 2: ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", "small:app", 1, "SystemExit"),
        (APP.replace("'small'", "'small', adaptors=()"), "small:app", 78, "'adaptors'; did you mean 'adapters'?\n"),
        (APP + f"raise TypeError({OF_NEW_PYTHONS!r})", "small:app", 78, "'adaptors'; did you mean 'adapters'?\n"),
        (TABLE, "small:app", 78, "small.py line 4: meter.toml: gap is 'x'; write a whole number"),
        (APP + DEVICE.replace("5m", "5"), "small:app", 78, "small.py line 3: telemetry 'd': interval is '5'"),
        (APP.replace("'small'", "'small', mqtt='http://x'"), "small:app", 78, "write mqtt://"),
        (APP.replace("'small'", "'small', settings=5"), "small:app", 78, "pydantic model"),
        (APP.replace("'small'", "'small', adapters=lambda settings: settings.port"), "small:app", 78, "AttributeError"),
    ],
)
def test_check_names_what_is_wrong_in_one_line(here, code, target, exit_code, told):
    here.write("small.py", code)

    result = here("check", target)

    assert result.returncode == exit_code, result.stderr
    assert told in (result.stderr if exit_code else result.stdout)
    assert "Traceback (most" not in result.stderr
    assert exit_code == 0 or len(result.stderr.splitlines()) == 1


def test_a_file_outside_the_working_directory_will_do(here, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    here.write("elsewhere/small.py", APP + DEVICE)
    here.write("elsewhere/json.py", APP + DEVICE)
    (tmp_path / "work").mkdir()

    for target in ("../elsewhere/small.py", "../elsewhere/small.py:app", str(tmp_path / "elsewhere" / "small.py")):
        result = here("check", target, cwd=tmp_path / "work")
        assert (result.returncode, result.stderr) == (0, "")
    for target, told in (
        ("../elsewhere/smal.py", "there is no file '../elsewhere/smal.py'; did you mean '../elsewhere/small.py'?"),
        ("../elsewhere/json.py", "json.py has the name of another module"),
        ("../elsewhere", "is a directory; write a file in it"),
    ):
        result = here("check", target, cwd=tmp_path / "work")
        assert result.returncode == 1
        assert told in result.stderr


NEEDY = """import sys
for name in {hidden!r}:
    sys.modules[name] = None  # as if it were not installed
from leadsman import App
from leadsman.adapters.{room} import {adapter}
app = App("needy", adapters=({adapter}({argument}),), twins=lambda settings: ({twin},))
@app.telemetry("d", interval="5m")
async def read(port: {adapter}) -> dict[str, float]:
    return {{}}
"""


@pytest.mark.parametrize(
    ("extra", "hidden", "room", "adapter", "argument"),
    [
        ("serial", ("serial_asyncio", "serial_asyncio_fast"), "serial", "SerialPort", "'/dev/ttyX'"),
        ("ble", ("bleak",), "ble", "BleRadio", ""),
        ("ble-decoders", ("bthome_ble",), "ble", "Decoders", ""),
        ("caldav", ("caldav",), "caldav", "CalDav", "'https://localhost/dav'"),
        ("http-client", ("aiohttp",), "http", "HttpClient", "'http://localhost'"),
        ("i2c", ("smbus2",), "i2c", "I2c", "1"),
    ],
)
def test_an_extra_that_is_not_installed_ends_check_and_start_with_what_to_type(
    here, extra, hidden, room, adapter, argument
):
    here.write("needy.py", NEEDY.format(hidden=hidden, room=room, adapter=adapter, argument=argument, twin="None"))

    for command in ("check", "run"):
        result = here(command, "needy:app")
        assert result.returncode == 78
        assert f'which is not installed; type: pip install "leadsman[{extra}]"' in result.stderr.splitlines()[-1]
        told = [line for line in result.stderr.splitlines() if line.startswith(("leadsman: ", "needy: "))]
        assert (
            len(told) == 1
        )  # beside lines of the log: an import that takes a second blocks the loop of a busy machine
        assert "Traceback (most" not in result.stderr


def test_a_port_behind_a_gateway_and_a_twin_need_no_extra(here):
    hidden = ("serial_asyncio", "serial_asyncio_fast")
    code = NEEDY.format(
        hidden=hidden, room="serial", adapter="SerialPort", argument="'socket://127.0.0.1:1'", twin="SerialTwin()"
    )
    here.write("needy.py", code)
    assert here("check", "needy:app").returncode == 0

    here.write("needy.py", code.replace("socket://127.0.0.1:1", "/dev/ttyX") + TWIN_STARTS)
    assert here("run", "needy:app", "--dry-run", "--mqtt", "mqtt://127.0.0.1:1").returncode == 0


TWIN_STARTS = """
from leadsman.testing import SerialTwin
import os, signal
@app.periodic("end", interval="1h")
async def end() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
"""


LISTED = """from pydantic import BaseModel
from leadsman import App
class Wave(BaseModel):
    serial: int
class Settings(BaseModel):
    waves: list[Wave] = []
app = App("waves", settings=Settings)
@app.telemetry(lambda settings: [str(wave.serial) for wave in settings.waves], interval="5m")
async def read() -> dict[str, float]:
    return {}
"""


def test_an_error_comes_last_where_output_and_errors_go_to_one_place(here):
    here.write("small.py", APP)
    command = [*LEADSMAN, "check", "small:app"]

    done = subprocess.run(
        command, cwd=here.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60
    )

    assert len(done.stdout.splitlines()) > 3
    assert "does nothing" in done.stdout.splitlines()[-1]


def test_an_app_whose_settings_name_no_device_says_which_setting_is_empty(here):
    here.write("waves.py", LISTED)

    result = here("check", "waves:app")

    assert result.returncode == 78
    assert "it has no devices, because 'waves' is empty; write a section [[waves]] in leadsman.toml" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--set", "nothing.at=all"), "this app has no settings"),
        (("--config", "none.toml"), "none.toml cannot be read: No such file"),
        (("--mqtt", "localhost"), "such as 'mqtt://localhost:1883'"),
    ],
)
def test_wrong_flags_are_named(here, arguments, told):
    here.write("small.py", APP + DEVICE)

    for command in ("check", "run", "schema", "inspect"):
        result = here(command, "small:app", *arguments)

        assert result.returncode == 78
        assert told in result.stderr
        assert "Traceback (most" not in result.stderr


def test_check_names_a_file_of_the_broker_that_is_missing(here):
    here.write("small.py", APP + DEVICE)

    result = here("check", "small:app", "--mqtt", "mqtts://h?ca=/nowhere/ca.pem")

    assert result.returncode == 78
    assert result.stderr == (
        "leadsman: the broker's ca is '/nowhere/ca.pem', which cannot be read: No such file or directory\n"
    )


def test_a_set_without_a_value_is_a_wrong_command_line(here):
    here.write("small.py", APP + DEVICE)

    result = here("check", "small:app", "--set", "x")

    assert (result.returncode, "--set 'x' is not an assignment; write --set" in result.stderr) == (2, True)


def test_a_settings_file_that_is_wrong_stops_the_run_with_every_fault(here):
    here.write("small.py", APP + DEVICE)
    here.write("leadsman.toml", "[mqtt]\nhots = 'a'\n[room]\nx = 1\n")

    result = here("run", "small:app")

    assert result.returncode == 78
    assert len(result.stderr.splitlines()) == 2
    assert "did you mean 'host'" in result.stderr


def test_a_device_or_section_that_is_not_there_is_named(here):
    here.write("small.py", APP + DEVICE)

    assert json.loads(here("inspect", "small", "d", "--section", "devices", "--json").stdout).keys() == {"devices"}
    for arguments, code, told in (
        (("small", "b"), 1, "there is no device 'b'; write one of d"),
        (
            ("small", "--section", "mqtt"),
            1,
            "only a running app has the section 'mqtt'; write --live as well",
        ),
        (("small", "--section", "device"), 2, "invalid choice: 'device'"),
        ((), 1, "leadsman: cannot connect"),
    ):
        result = here("inspect", *arguments)
        assert (result.returncode, told in result.stderr) == (code, True), result.stderr


def test_another_prefix_can_be_typed(here):
    here.write("small.py", APP + DEVICE)

    checked = here("check", "small:app", "--prefix", "house/second")
    assert re.search(r"^client id +house/second +the prefix$", checked.stdout, re.MULTILINE)
    assert "flag mqtt.topic_prefix" in checked.stdout
    topics = json.loads(here("schema", "small:app", "--prefix", "house/second").stdout)["topics"]
    assert "house/second/d/state" in topics
    wrong = here("run", "small:app", "--prefix", "a//b")
    assert wrong.returncode == 2
    assert "--prefix: the prefix 'a//b' has an empty level; write 'a/b'" in wrong.stderr
    setting = here("run", "small:app", "--set", "mqtt.topic_prefix=a//b")
    assert (setting.returncode, "mqtt.topic_prefix: the prefix 'a//b'" in setting.stderr) == (78, True)


def test_wrong_log_options_are_named(here):
    here.write("small.py", APP + DEVICE)

    loud = here("run", "small:app", "--log-level", "loud")
    assert (loud.returncode, "--log-level: invalid choice: 'loud'" in loud.stderr) == (2, True)
    assert here("run", "small:app", "--log-level", "DEBUG", "--set", "mqtt.topic_prefix=a//b").returncode == 78
    assert "LOG_LEVEL is 'LOUD'" in here("run", "small:app", LOG_LEVEL="loud").stderr
    assert "LOG_FORMAT is 'xml'; write one of" in here("run", "small:app", LOG_FORMAT="xml").stderr
    assert here("run", "small:app", "--log-format", "xml").returncode == 2


def test_every_command_explains_itself_with_an_example(here):
    listed = here("--help")
    assert "exit codes:" in listed.stdout
    for command in ("run", "check", "inspect", "schema", "init", "health", "completion", "demo"):
        assert command in listed.stdout
        result = here(command, "--help")
        assert result.returncode == 0
        assert "example" in result.stdout
    assert here().returncode == 2
    assert "there is no command 'rum'; did you mean 'run'?" in here("rum").stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_name_commands_and_options(here, shell):
    script = here("completion", shell).stdout

    assert "inspect" in script
    assert "log-format" in script


def test_bash_completes_with_it(here):
    (here.path / "complete.bash").write_text(here("completion", "bash").stdout)
    typed = "source complete.bash; COMP_WORDS=(leadsman ins); COMP_CWORD=1; _leadsman; echo ${COMPREPLY[@]};"
    typed += "COMP_WORDS=(leadsman run --log-l); COMP_CWORD=2; _leadsman; echo ${COMPREPLY[@]}"

    out = subprocess.run(["bash", "-c", typed], cwd=here.path, capture_output=True, text=True).stdout

    assert out.splitlines() == ["inspect", "--log-level"]


def test_colour_is_only_for_a_terminal_that_wants_it(here):
    here.write("small.py", APP + DEVICE)

    def on_a_terminal(**variables):
        main, other = pty.openpty()
        code = "from leadsman.tools.cli.tables import table; print(table(('d', 's'), [('x', 'ok')]))"
        subprocess.run(
            [sys.executable, "-c", code], stdout=other, env={**os.environ, "TERM": "xterm", **variables}, check=True
        )
        os.close(other)
        return os.read(main, 10_000).decode()

    assert "\x1b[32mok" in on_a_terminal(NO_COLOR="")
    assert "\x1b" not in on_a_terminal(NO_COLOR="1")
    assert "\x1b" not in here("check", "small:app").stdout


def test_a_reader_that_has_seen_enough_is_no_error(here, house):
    result = subprocess.run(
        f"{sys.executable} -m leadsman schema house:app | head -1",
        shell=True,
        cwd=house,
        capture_output=True,
        text=True,
    )

    assert result.stdout == "{\n"
    assert "Traceback (most" not in result.stderr


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"at": 1}', '{"at": "x", "period": 1, "fresh": true, "words": ""}']
)
def test_a_health_file_that_makes_no_sense_is_not_well(here, content):
    here.write("health.json", content)

    result = here("health", "health.json")

    assert result.returncode == 1
    assert "Traceback (most" not in result.stderr


def test_an_old_health_file_is_not_well(here):
    here.write("health.json", '{"at": 1.0, "period": 10, "fresh": true, "words": "well"}')

    assert "s old" in here("health", "health.json").stderr
    assert "no health file is configured" in here("health").stderr
