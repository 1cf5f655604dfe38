"""``leadsman outbox``: what it prints, and when it refuses."""

import json

import pytest

from leadsman.core.spool.file import SpoolFile
from leadsman.core.spool.row import DAMAGED, Quota, SpoolRow
from leadsman.tools.cli.main import main

NOW = 1_800_000_000.0


def row(number, payload=b"21.5", topic="house/boiler/state"):
    return SpoolRow(number, 7, topic, payload, 1, True, NOW, None, False)


@pytest.fixture
def opened(tmp_path):
    spool = SpoolFile(tmp_path / "outbox.db", Quota(least_free=0))
    spool.open()
    yield spool
    spool.close()


@pytest.fixture
def stored(opened):
    """Three readings wait, and three are dead."""
    dead = [(row(4), "packet too large"), (row(5, b"\xff\x1b[2J", "house/\x07"), "quota"), (row(6), DAMAGED)]
    opened.write([row(1), row(2), row(3, topic="b")], (), dead)
    opened.close()
    return opened


@pytest.fixture
def type_(tmp_path, capsys):
    def typed(*arguments):
        code = main(["outbox", *arguments, "--state-directory", str(tmp_path)])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return typed


def test_list_shows_how_much_waits_and_what_is_dead(stored, type_):
    code, printed, _ = type_()

    assert code == 0
    lines = printed.splitlines()
    assert lines[0] == "3 readings wait, 229 bytes, the oldest of 2027-01-15T08:00:00.000Z; 3 dead letters"
    assert lines[3].split()[0].startswith("20")
    assert lines[3].split()[1] == "house/boiler/state"
    assert lines[3].endswith("packet too large")
    assert "\x1b" not in printed
    assert "\x07" not in printed


def test_list_works_while_the_app_runs(stored, type_):
    stored.open()

    assert type_()[0] == 0


def test_list_in_json_has_all_fields(stored, type_):
    document = json.loads(type_("--json")[1])

    assert document["waiting"] == {
        "rows": 3,
        "bytes": 229,
        "oldest_taken_at": "2027-01-15T08:00:00.000Z",
        "topics": {"house/boiler/state": 2, "b": 1},
    }
    first, second, _ = document["dead"]
    assert (first["topic"], first["payload"], first["reason"]) == ("house/boiler/state", "21.5", "packet too large")
    assert second["payload_base64"] == "/xtbMko="


@pytest.mark.parametrize("argument", ["list", "resend", "3", "--all"])
def test_a_wrong_command_line_is_explained(stored, type_, argument, capsys):
    with pytest.raises(SystemExit):
        type_(argument)

    assert argument in capsys.readouterr().err


def test_without_an_app_or_a_directory_it_says_what_to_write(capsys):
    assert main(["outbox"]) == 2
    assert "--app MODULE:APP" in capsys.readouterr().err


def test_without_a_file_it_says_who_makes_it(type_):
    code, _, error = type_()

    assert code == 1
    assert "an app makes it when readings wait for its broker" in error


def test_the_app_of_the_command_line_has_a_directory(tmp_path, monkeypatch, capsys):
    (tmp_path / "orchard.py").write_text("from leadsman import App\napp = App('orchard')\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)

    assert main(["outbox", "--app", "orchard:app"]) == 1

    assert str(tmp_path / "home" / "leadsman" / "orchard" / "outbox.db") in capsys.readouterr().err
