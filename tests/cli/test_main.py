"""The command line as a whole."""

import sys

import pytest

from leadsman.cli.main import main


def test_an_argument_that_a_command_does_not_have_is_refused_with_the_usage_of_that_command(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["inspect", "house:app", "--once"])

    err = capsys.readouterr().err
    assert ended.value.code == 2
    assert err.startswith("usage: leadsman inspect ")
    assert err.endswith(
        "leadsman inspect: error: unrecognized arguments: --once\nleadsman inspect --help shows what to write\n"
    )


@pytest.mark.parametrize(
    ("arguments", "error"),
    {
        "no command": ([], "leadsman: error: the following arguments are required: COMMAND"),
        "a command with a slip": (["watc"], "leadsman: error: there is no command 'watc'; did you mean 'watch'?"),
        "a command that is like none": (
            ["fly"],
            "leadsman: error: there is no command 'fly'; write one of acl, check, ",
        ),
        "control characters": (["a\x1b[2J"], r"leadsman: error: there is no command 'a\x1b[2J'; "),
        "no action": (["outbox"], "leadsman outbox: error: the following arguments are required: ACTION\n"),
    }.values(),
)
def test_a_wrong_command_line_ends_with_what_to_type(arguments, error, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)

    err = capsys.readouterr().err
    command = "leadsman outbox" if arguments == ["outbox"] else "leadsman"
    assert (ended.value.code, error in err) == (2, True)
    assert err.endswith(f"\n{command} --help shows what to write\n")


@pytest.mark.parametrize("device", ["meter", "living-room"])
@pytest.mark.parametrize("command", ["gaps", "inspect", "trace"])
def test_a_device_in_the_place_of_the_app_is_answered_with_how_it_is_given(command, device, capsys, empty):
    assert main([command, device]) == 1

    last = capsys.readouterr().err.splitlines()[-1]
    assert last == f"leadsman: a device of a running app is given as --device {device}"


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
