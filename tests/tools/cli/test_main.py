"""The command line as a whole."""

import functools
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from leadsman import App, command_line
from leadsman.errors import LeadsmanError
from leadsman.tools.cli.arguments import paragraphs
from leadsman.tools.cli.commands import command, commands
from leadsman.tools.cli.main import main, parser


def test_an_argument_that_a_command_does_not_have_is_refused_with_the_usage_of_that_command(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["inspect", "house:app", "--once"])

    err = capsys.readouterr().err
    assert ended.value.code == 2
    assert err.startswith("usage: leadsman inspect ")
    assert err.endswith(
        "leadsman inspect: error: unrecognized arguments: --once\nleadsman inspect --help shows what to write\n"
    )


@pytest.mark.parametrize("argument", ["--shw", "--shwo=yes"])
def test_an_option_with_a_slip_is_answered_with_the_nearest_one(argument, capsys):
    for run in (lambda: main(["run", "house:app", argument]), lambda: command_line(App("house"))([argument])):
        with pytest.raises(SystemExit) as ended:
            run()

        assert ended.value.code == 2
        assert f"unrecognized arguments: {argument}; did you mean '--show'?\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "error"),
    {
        "no command": ([], "leadsman: error: the following arguments are required: COMMAND"),
        "a command with a slip": (["watc"], "leadsman: error: there is no command 'watc'; did you mean 'watch'?"),
        "a command that is like none": (
            ["fly"],
            "leadsman: error: there is no command 'fly'; write one of acl, ble, check, ",
        ),
        "control characters": (["a\x1b[2J"], r"leadsman: error: there is no command 'a\x1b[2J'; "),
        "no name": (["init"], "leadsman init: error: the following arguments are required: NAME\n"),
    }.values(),
)
def test_a_wrong_command_line_ends_with_what_to_type(arguments, error, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)

    err = capsys.readouterr().err
    command = "leadsman init" if arguments == ["init"] else "leadsman"
    assert (ended.value.code, error in err) == (2, True)
    assert err.endswith(f"\n{command} --help shows what to write\n")


@pytest.mark.parametrize("device", ["meter", "living-room"])
def test_a_device_in_the_place_of_the_app_is_answered_with_how_a_running_app_is_asked(device, capsys, empty):
    assert main(["inspect", device]) == 1

    last = capsys.readouterr().err.splitlines()[-1]
    assert last == f"leadsman: to ask a running app about a device, write: leadsman inspect --live {device}"


TAKES_DEVICES = {name for name in commands() if any(each.flag == "named" for each in command(name).arguments)}


def test_a_device_is_a_position_in_every_command():
    for name in commands():
        arguments = command(name).arguments
        assert not [each for each in arguments if each.flag == "--device"], name
        assert "--device" not in " ".join([*command(name).examples, command(name).description]), name
    assert {"inspect", "trace", "gaps", "hold", "release", "circuit", "poll", "why", "simulate"} == TAKES_DEVICES


@pytest.mark.parametrize(
    ("words", "target", "devices"),
    [
        ("boiler", None, ["boiler"]),
        ("house:app boiler", "house:app", ["boiler"]),
        ("apps/house.py boiler", "apps/house.py", ["boiler"]),
        ("house.py boiler", "house.py", ["boiler"]),
        ("--app house:app boiler", "house:app", ["boiler"]),
        ("boiler --app house:app", "house:app", ["boiler"]),
        ("house:app --mqtt mqtt://pi boiler", "house:app", ["boiler"]),
        ("--prefix house boiler", None, ["boiler"]),
        ("boiler --prefix house", None, ["boiler"]),
        ("--prefix house a:b", None, ["a:b"]),
        ("house:app", "house:app", []),
        ("", None, []),
    ],
)
@pytest.mark.parametrize("name", sorted(TAKES_DEVICES - {"inspect", "simulate"}))
def test_all_commands_have_one_grammar(name, words, target, devices, monkeypatch):
    """The words of each live command, up to where it looks for the app."""
    found = []

    def stop(options):
        found.append((options.target, options.device))
        raise LeadsmanError("enough")

    for place in ("leadsman.tools.cli.remote.named_app", f"{command(name).run.__module__}.named_app"):
        monkeypatch.setattr(place, stop, raising=False)
    more = ["--action", "close"] if name == "circuit" else []

    code = main([name, *words.split(), *more])

    assert (code, found) == ((1, [(target, devices)]) if found else (2, []))
    assert found or (not devices and name in ("hold", "release", "circuit", "poll"))


@pytest.mark.parametrize("name", sorted(TAKES_DEVICES))
def test_the_option_of_former_versions_is_answered_with_what_to_write(name, capsys):
    with pytest.raises(SystemExit):
        main([name, "--device", "boiler", *(["--action", "close"] if name == "circuit" else [])])

    assert f"a device is written without --device: leadsman {name} boiler" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["gaps", "meter:app"], ["check", "meter"]])
def test_what_cannot_be_a_device_is_taken_for_a_module(arguments, capsys, empty):
    assert main(arguments) == 1

    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        f"leadsman: there is no module 'meter' in {empty}; go to its directory, or write its file, "
        "such as apps/house.py"
    )


def test_tests_are_not_offered_as_apps(capsys, empty):
    for name in ("conftest.py", "test_house.py", "garden.py"):
        (empty / name).touch()

    assert main(["check", "meter"]) == 1

    assert capsys.readouterr().err.endswith("; write one of garden\n")


@pytest.fixture
def empty(tmp_path, monkeypatch):
    """A working directory without a module."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


@pytest.mark.parametrize(("convention", "said"), [("homeassistant", True), ("off", False)])
def test_check_names_devices_whose_values_discovery_cannot_show(tmp_path, monkeypatch, capsys, convention, said):
    (tmp_path / "loose.py").write_text(
        "from leadsman import App\n"
        "app = App('loose')\n"
        "@app.telemetry('meter', interval=1)\n"
        "async def meter() -> dict[str, float]: return {'watts': 1.0}\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("DISCOVERY__CONVENTION", convention)
    monkeypatch.delitem(sys.modules, "loose", raising=False)

    assert main(["check", "loose:app"]) == 0
    assert ("shows no value of meter" in capsys.readouterr().out) is said


def options_of(arguments, capsys):
    """The options that the help of a command names."""
    return set(re.findall(r"^  (--[a-z-]+)", help_of(arguments, capsys), re.MULTILINE))


def help_of(arguments, capsys, program=main):
    with pytest.raises(SystemExit) as ended:
        program([*arguments, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_what_can_be_run_can_be_checked(capsys):
    run, check = options_of(["run"], capsys), options_of(["check"], capsys)

    assert run == check
    assert {"--prefix", "--http", "--discovery", "--config", "--mqtt", "--set", "--standby", "--dry-run"} <= run
    of_a_program = help_of([], capsys, command_line(App("house")))
    assert run <= set(re.findall(r"^  (--[a-z-]+)", of_a_program, re.MULTILINE))


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (("--http", "127.0.0.1:8080"), "http.bind"),
        (("--standby",), "standby.enabled"),
        (("--discovery", "homeassistant"), "discovery.convention"),
        (("--prefix", "attic"), "attic"),
        (("--dry-run",), "dry-run/tight"),
    ],
)
def test_check_looks_at_the_app_as_these_flags_make_it(arguments, shown, capsys, empty):
    (empty / "tight.py").write_text(
        "from pydantic import BaseModel\nfrom leadsman import App\n"
        "class Power(BaseModel):\n    watts: float\n"
        "app = App('tight')\n"
        "@app.telemetry('meter', interval=1)\n"
        "async def meter() -> Power: return Power(watts=1.0)\n"
    )
    sys.modules.pop("tight", None)

    code = main(["check", "tight:app", *arguments])

    out = capsys.readouterr().out
    assert (code, shown in out) == (0, True), out


def test_a_flag_that_run_refuses_is_refused_by_check(capsys, empty):
    (empty / "tight.py").write_text("from leadsman import App\napp = App('tight')\n")
    sys.modules.pop("tight", None)

    assert main(["check", "tight:app", "--http", "nowhere"]) == 78
    assert "nowhere" in capsys.readouterr().err


GROUPS = """
start:
  demo        watch real readings arrive at a real broker, while things fail on purpose
  init        write a small app with settings, a test, a Dockerfile and a systemd unit
  check       check an app and its settings without running it
  run         run an app until Ctrl-C or SIGTERM
  completion  print a completion script for your shell

look:
  watch       watch the devices of one app or of many
  inspect     show what an app registers, or the state of a running app
  gaps        show which readings of each device are missing, and why
  trace       show each failed call of a running app, and the decision
  held        list the devices that are held
  health      check the health file of an app, for containers
  schema      print the JSON Schema of every topic of an app
  ble         show the Bluetooth devices in range, with the settings of each

explain:
  why         say why a device is silent
  diff        show what an upgrade of an app would change, before it happens
  doctor      examine the broker and the machine of an app, and say what to fix
  simulate    run an app for a simulated day with faults, and compare retry policies
  record      run an app, and write down what goes over the wires of its adapters
  replay      run an app without its hardware, on a recorded session

operate:
  poll        poll a device now, and print the reading
  hold        stop polling a device until somebody releases it
  release     poll a held device again
  circuit     isolate, close or disable the circuit of a device
  outbox      show the readings that wait for the broker, and those that it refused
  clean       remove the retained topics that an app left at the broker
  acl         print the access list that an app needs

several machines:
  cluster     show the nodes that share an app, and drain one

"""


def test_the_help_has_each_command_in_its_group(capsys):
    listed = help_of([], capsys)

    assert paragraphs(GROUPS) in listed
    assert listed.startswith("usage: leadsman [-h] [--version] COMMAND")
    assert [line.split()[0] for line in GROUPS.splitlines() if line.startswith(" ")] == [*commands()]


FOLDERS = {
    "ledger": ["gaps"],
    "trace": ["trace"],
    "nodes": ["cluster"],
    "sessions": ["record", "replay"],
    "doctor": ["doctor"],
    "simulation": ["simulate"],
    "difference": ["diff"],
    "demo": ["demo"],
}
"""The commands of each extension and tool."""
WITHOUT = """
import sys
for wing in ("extensions", "tools"):
    sys.modules[f"leadsman.{{wing}}.{folder}"] = None
from leadsman import extensions, tools
tools.COMMANDS = tuple(each for each in tools.COMMANDS if ".{folder}." not in each)
extensions.SHIPPED = tuple(each for each in extensions.SHIPPED if not each.package.endswith(".{folder}"))
from leadsman.tools.cli.main import main
main(["--help"])
"""


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_help_without_a_folder_lacks_its_commands_and_nothing_else(folder):
    code = WITHOUT.format(folder=folder)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)

    left = GROUPS.replace("several machines:\n", "") if folder == "nodes" else GROUPS
    lines = [line for line in left.splitlines() if not line.startswith(tuple(f"  {n} " for n in FOLDERS[folder]))]
    assert (done.returncode, done.stderr) == (0, "")
    assert paragraphs("\n".join(lines).strip()) in done.stdout


HIDE = """
import contextlib, io, json, sys
for wing in ("extensions", "tools"):
    sys.modules[f"leadsman.{{wing}}.{folder}"] = None
from leadsman import extensions, tools
tools.COMMANDS = tuple(each for each in tools.COMMANDS if ".{folder}." not in each)
extensions.SHIPPED = tuple(each for each in extensions.SHIPPED if not each.package.endswith(".{folder}"))
from leadsman import App, command_line
from leadsman.tools.cli.commands import command, commands
from leadsman.tools.cli.main import main

def said(run, *words):
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        run(list(words))
    return out.getvalue()

of_app = command_line(App("house"))
helps = {{"house": said(of_app, "--help"), "leadsman": said(main, "--help")}}
for name in commands():
    helps[name] = said(main, name, "--help")
helps["fish"] = said(main, "completion", "fish")
print(json.dumps(helps))
{further}
"""
"""Runs without a folder: prints each help, by its command; `house` is an app that is a program of its own."""
NEEDS = {
    "discovery": {"house": "--discovery", "run": "--discovery", "acl": "--discovery", "clean": "--discovery"}
    | {"demo": "--discovery", "fish": "-l discovery "},
    "http": {"house": "--http", "run": "--http", "check": "--http", "record": "--http", "inspect": "recent"},
    "nodes": {"house": "--standby", "run": "--standby", "demo": "--cluster", "leadsman": "leadsman cluster"},
    "sessions": {"fish": "from record", "leadsman": "  record "},
    "ledger": {"inspect": "ledger", "leadsman": "  gaps "},
    "doctor": {"house": "doctor", "leadsman": "leadsman doctor", "run": "leadsman doctor", "fish": "from doctor"},
    "simulation": {"leadsman": "  simulate ", "fish": "from simulate"},
    "difference": {"leadsman": "  diff ", "fish": "from diff"},
    "demo": {"leadsman": "  demo "},
}
"""What needs each folder that can be removed: a text of a help, by its command."""


@functools.cache
def helps_without(folder, further=""):
    """Each help without a folder, by its command; and what was said besides."""
    code = HIDE.format(folder=folder, further=further)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "Traceback (most" not in done.stderr, done.stderr
    first, _, rest = done.stdout.partition("\n")
    return json.loads(first), rest + done.stderr


@pytest.mark.parametrize("folder", NEEDS)
def test_no_help_has_what_needs_a_folder_that_is_not_there(folder):
    """Without one that there is not, all is there."""
    whole, _ = helps_without("none")
    left, _ = helps_without(folder)

    assert {name: text in whole[name] for name, text in NEEDS[folder].items()} == dict.fromkeys(NEEDS[folder], True)
    assert {name: each for name, each in NEEDS[folder].items() if each in left.get(name, "")} == {}
    assert whole.keys() - left.keys() == {name for name in whole if name in FOLDERS.get(folder, ())}
    assert "--demo" in left["house"]


@pytest.mark.parametrize(
    ("folder", "words"),
    [
        ("doctor", ["--doctor"]),
        ("http", ["--http", "127.0.0.1:8080"]),
        ("discovery", ["--discovery", "off"]),
        ("nodes", ["--standby"]),
    ],
)
def test_what_is_typed_for_a_folder_that_is_not_there_is_an_unknown_argument(folder, words):
    _, said = helps_without(folder, f"of_app({words})")

    assert f"house: error: unrecognized arguments: {' '.join(words)}" in said


@pytest.mark.parametrize("name", [None, *commands()])
def test_each_help_has_an_example_and_80_columns_on_any_terminal(name, capsys, monkeypatch):
    shown = []
    for columns in ("40", "200"):
        monkeypatch.setenv("COLUMNS", columns)
        shown.append(help_of([name] if name else [], capsys))

    assert shown[0] == shown[1]
    assert [line for line in shown[0].splitlines() if len(line) > 80] == []
    examples = shown[0].partition("\nexamples:\n")[2].partition("\n\n")[0]
    assert f"leadsman {name or 'why'}" in examples


def test_each_example_is_a_command_line_that_is_understood():
    for name in commands():
        for example in command(name).examples:
            words = shlex.split(example.removeprefix("source <(").removesuffix(")"))
            while "leadsman" in words[:1]:
                end = next((words.index(each) for each in ("&&", "|", ">", ">>") if each in words), len(words))
                parser().parse_args(words[1:end])
                words = words[end + 1 :]


def test_each_command_has_a_row_in_the_table_of_its_folder():
    files = {path.stem for path in Path("src/leadsman").glob("*/*/commands/[a-z]*.py")}

    assert files == set(commands())
    assert all(command(name) for name in commands())


@pytest.mark.parametrize(
    ("arguments", "loaded"),
    [
        (["--help"], []),
        (["--version"], []),
        (["health", "--help"], ["leadsman.tools.cli.commands.health"]),
        (["simulate", "--help"], ["leadsman.tools.simulation.commands.simulate"]),
        (["demo", "--help"], ["leadsman.tools.demo.commands.demo"]),
    ],
)
def test_only_the_command_that_is_typed_is_imported(arguments, loaded):
    code = (
        "import atexit, json, sys; from leadsman.tools.cli.main import main\n"
        "kinds = 'pydantic', 'leadsman.core.introspection.sections', 'leadsman.tools.demo.demo'\n"
        "found = lambda: [each for each in sorted(sys.modules) if each.startswith(kinds) or '.commands.' in each]\n"
        "atexit.register(lambda: json.dump(found(), sys.stderr))\n"
        f"main({arguments})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)

    assert (done.returncode, json.loads(done.stderr)) == (0, loaded)
