"""Commands that the extensions of an app add to the command line."""

import sys

import pytest

from leadsman.core.app import App
from leadsman.core.extension import Extension
from leadsman.errors import InvalidType
from leadsman.tools.cli.app_cli import command_line
from leadsman.tools.cli.main import main

HOUSE = """
from leadsman import App
from leadsman.extension import Extension, Place

class Alarm(Extension):
    name = "alarm"
    commands = {
        "alarms": Place("list the alarms", "alarm_commands", "ALARMS"),
        "broken": Place("raise an error", "alarm_commands", "BROKEN"),
        "lost": Place("is nowhere", "no_such_module", "LOST"),
        "odd": Place("is no command", "alarm_commands", "sys"),
        "later": Place("is async", "alarm_commands", "LATER"),
        "ends": Place("ends the import", "alarm_ends", "ENDS"),
        "pair": ("list them", "module:function"),
        "mute": Place(None, "alarm_commands", "ALARMS"),
        "text": Place("give a text", "alarm_commands", "TEXT"),
        "yes": Place("give True", "alarm_commands", "YES"),
        "large": Place("give 256", "alarm_commands", "LARGE"),
        "late_text": Place("give a text later", "alarm_commands", "LATE_TEXT"),
        "late_broken": Place("raise later", "alarm_commands", "LATE_BROKEN"),
        "twice": Place("has an option of leadsman", "alarm_commands", "TWICE"),
    }

app = App("house", extensions=[Alarm()])
"""
COMMANDS = """
import sys
from leadsman.extension import Command

def arguments(parser):
    parser.add_argument("--above", type=float, help="only those above this value")

def run(app, options):
    print(app.name, options.above, app.brokers.primary)
    return 3

def broken(app, options):
    raise ValueError("no alarm")

async def later(app, options):
    return run(app, options)

async def late_text(app, options):
    return "all is well"

async def late_broken(app, options):
    raise ValueError("no alarm")

ALARMS = Command(run, arguments)
LATER = Command(later, arguments)
TEXT = Command(lambda app, options: "all is well")
YES = Command(lambda app, options: True)
LARGE = Command(lambda app, options: 256)
LATE_TEXT = Command(late_text)
LATE_BROKEN = Command(late_broken)
BROKEN = Command(broken)
TWICE = Command(run, lambda parser: parser.add_argument("--config"))
"""


@pytest.fixture
def house(tmp_path, monkeypatch):
    """A working directory with an app that has an extension."""
    (tmp_path / "own_house.py").write_text(HOUSE)
    (tmp_path / "alarm_commands.py").write_text(COMMANDS)
    (tmp_path / "alarm_ends.py").write_text("import sys; sys.exit(3)")
    (tmp_path / "wrong.py").write_text("import nothing_like_this")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("own_house", "alarm_commands", "wrong"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield tmp_path
    for name in ("own_house", "alarm_commands", "wrong"):
        sys.modules.pop(name, None)


def said(words, capsys, program=main):
    """The exit code of a command line, and what it prints."""
    try:
        code = program(words)
    except SystemExit as ended:
        code = ended.code
    return code, *capsys.readouterr()


def program(words):
    """The command line of the app as a program of its own."""
    import own_house

    return command_line(own_house.app)(words)


@pytest.mark.parametrize(
    ("words", "run"),
    [
        (["alarms", "own_house:app"], main),
        (["alarms"], program),
        (["later", "own_house:app"], main),
        (["later"], program),
    ],
)
def test_a_command_is_given_the_app_with_its_settings_and_its_arguments(house, capsys, words, run):
    assert said([*words, "--above", "80", "--mqtt", "mqtt://attic"], capsys, run) == (
        3,
        "house 80.0 mqtt://attic:1883\n",
        "",
    )


def test_the_help_of_a_program_has_them_in_a_group_and_imports_none(house, capsys):
    code, out, err = said(["--help"], capsys, program)

    assert (code, err) == (0, "")
    assert "\n\nextensions:\n  alarms      list the alarms\n  broken      raise an error\n" in out
    assert "alarm_commands" not in sys.modules


def test_the_help_of_a_program_without_extensions_has_no_group(capsys):
    code, out, _ = said(["--help"], capsys, command_line(App("house")))

    assert (code, "extensions:" in out) == (0, False)


@pytest.mark.parametrize(
    ("words", "run"), [(["alarms", "own_house:app"], main), (["alarms"], program)], ids=["leadsman", "program"]
)
def test_each_has_a_help_of_its_own(house, capsys, words, run):
    code, out, err = said([*words, "--help"], capsys, run)

    assert (code, err) == (0, "")
    assert "list the alarms" in out
    assert "--above ABOVE" in out
    assert "--config FILE" in out


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (
            ["broken", "own_house:app"],
            1,
            "leadsman: the command 'broken' of the extension 'alarm' raised ValueError: no ",
        ),
        (["lost", "own_house:app"], 78, "leadsman: the command 'lost' of the extension 'alarm' cannot be imported: "),
        (["odd", "own_house:app"], 78, "leadsman: the command 'odd' of the extension 'alarm' is no Command; write "),
        (
            ["twice", "own_house:app"],
            78,
            "leadsman: the command 'twice' of the extension 'alarm' raised ArgumentError: ",
        ),
        (
            ["ends", "own_house:app"],
            78,
            "leadsman: the command 'ends' of the extension 'alarm' cannot be imported: SystemExit: 3 (alarm_ends.py",
        ),
        (
            ["pair", "own_house:app"],
            78,
            "leadsman: the command 'pair' of the extension 'alarm' is ('list them', 'module:function'); write"
            " leadsman.extension.Place(help, module, name)",
        ),
        (["mute", "own_house:app"], 78, "leadsman: the command 'mute' of the extension 'alarm' is Place(help=None, "),
        *(
            (
                [name, "own_house:app"],
                78,
                f"leadsman: the command {name!r} of the extension 'alarm' gave {given}; let it return its exit"
                " code, 0 to 255, or None",
            )
            for name, given in (
                ("text", "'all is well'"),
                ("late_text", "'all is well'"),
                ("yes", "True"),
                ("large", "256"),
            )
        ),
        (
            ["late_broken", "own_house:app"],
            1,
            "leadsman: the command 'late_broken' of the extension 'alarm' raised ValueError: no alarm ",
        ),
        (["alarm", "own_house:app"], 2, "leadsman: there is no command 'alarm'; did you mean 'alarms'?"),
        (
            ["alarms", "own_house:app", "--abov3"],
            2,
            "leadsman alarms: error: unrecognized arguments: --abov3; did you ",
        ),
        (
            ["alarms"],
            2,
            "; a command of an app needs its MODULE:APP, such as leadsman alarms house:app\n",
        ),
        (["alarms", "--mqtt", "mqtt://attic"], 2, "; a command of an app needs its MODULE:APP, such as "),
        (["inspct"], 2, "leadsman: error: there is no command 'inspct'; did you mean 'inspect'?"),
        (["alarms", "nowhere:app"], 2, "leadsman: error: there is no command 'alarms'; "),
        (["alarms", "wrong:app"], 1, "leadsman: wrong.py line 1: it needs 'nothing_like_this', which is not installed"),
        (["inspct", "wrong:app"], 2, "leadsman: error: there is no command 'inspct'; did you mean 'inspect'?"),
    ],
)
def test_what_is_wrong_is_a_line(house, capsys, words, code, line):
    found, out, err = said(words, capsys)

    assert (found, out) == (code, "")
    assert line in err
    assert "Traceback (most" not in err


def test_an_entry_that_is_wrong_breaks_only_itself_and_the_help_names_it(house, capsys):
    code, out, err = said(["--help"], capsys, program)

    assert (code, err) == (0, "")
    assert "  pair        wrong: write leadsman.extension.Place(help, module, name)\n" in out
    assert "  mute        wrong: write leadsman.extension.Place(help, module, name)\n" in out
    assert "  alarms      list the alarms\n" in out


@pytest.mark.parametrize("member", ["options", "commands", "checks"])
def test_a_member_that_is_no_table_is_named(member):
    kind = type("Alarm", (Extension,), {"name": "alarm", member: ["limits"]})

    with pytest.raises(InvalidType, match=rf"extensions: {member} of 'alarm' is \['limits'\]; write a dict, by name"):
        App("house", extensions=[kind()])


@pytest.mark.parametrize(
    ("words", "run"), [(["alarms", "bare_house:app"], main), (["alarms"], "program")], ids=["leadsman", "program"]
)
def test_a_command_of_an_extension_that_only_the_settings_name_is_found(house, capsys, monkeypatch, words, run):
    (house / "bare_house.py").write_text("from leadsman import App\napp = App('house', mqtt='mqtt://broker')\n")
    (house / "installed_alarm.py").write_text(HOUSE.replace("app = App", "_ = App").replace("Alarm()]", "]"))
    about = house / "installed_alarm-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: installed-alarm\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[leadsman.extensions]\nalarm = installed_alarm:Alarm\n")
    (house / "leadsman.toml").write_text('[extensions]\nnames = ["alarm"]\n')
    for name in ("bare_house", "installed_alarm"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    if run == "program":
        import bare_house

        run = command_line(bare_house.app)

    found = said([*words, "--above", "1"], capsys, run)
    for name in ("bare_house", "installed_alarm"):
        sys.modules.pop(name, None)

    assert found == (3, "house 1.0 mqtt://broker:1883\n", "")
