"""``leadsman outbox``: what it prints, what it changes, and when it refuses."""

import json

import pytest

from leadsman.spool.file import SpoolFile
from leadsman.spool.row import DAMAGED, Quota, SpoolRow
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
    def typed(action, *arguments):
        code = main(["outbox", action, *arguments, "--state-directory", str(tmp_path)])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return typed


def test_list_shows_how_much_waits_and_what_is_dead(stored, type_):
    code, printed, _ = type_("list")

    assert code == 0
    lines = printed.splitlines()
    assert lines[0] == "3 readings wait, 229 bytes, the oldest of 2027-01-15T08:00:00.000Z; 3 dead letters"
    assert lines[3].split()[0] == "1"
    assert lines[3].endswith("packet too large")
    assert "\x1b" not in printed
    assert "\x07" not in printed


def test_list_works_while_the_app_runs(stored, type_):
    stored.open()

    assert type_("list")[0] == 0


def test_list_in_json_has_all_fields(stored, type_):
    document = json.loads(type_("list", "--json")[1])

    assert document["waiting"] == {
        "rows": 3,
        "bytes": 229,
        "oldest_taken_at": "2027-01-15T08:00:00.000Z",
        "topics": {"house/boiler/state": 2, "b": 1},
    }
    first, second, _ = document["dead"]
    assert (first["id"], first["payload"], first["reason"]) == (1, "21.5", "packet too large")
    assert second["payload_base64"] == "/xtbMko="


def test_dead_letters_are_sent_again_one_by_one_or_all_but_the_damaged(stored, type_):
    assert type_("resend", "2")[1] == "1 dead letter will be sent when the app runs\n"
    assert type_("resend", "--all")[1] == "1 dead letter will be sent when the app runs\n"

    stored.open()
    assert [each.number for each in stored.dead_letters()] == [3]
    assert [each.topic for each in stored.read(3, 9, 9999)] == ["house/\x07", "house/boiler/state"]


def test_dead_letters_are_deleted(stored, type_):
    assert type_("drop", "1", "3")[1] == "2 dead letters deleted\n"
    assert json.loads(type_("drop", "--all", "--json")[1]) == {"ids": [2]}

    stored.open()
    assert stored.dead_letters() == []
    assert stored.found.rows == 3


@pytest.mark.parametrize("action", ["resend", "drop"])
def test_nothing_is_changed_while_the_app_runs(stored, type_, action):
    stored.open()

    code, _, error = type_(action, "1")

    assert code == 1
    assert "stop it, type this again, and start it" in error
    assert len(stored.dead_letters()) == 3


def test_an_unknown_id_changes_nothing(stored, type_):
    code, _, error = type_("drop", "1", "77")

    assert (code, error) == (1, "leadsman: there is no dead letter 77; leadsman outbox list shows them\n")
    stored.open()
    assert len(stored.dead_letters()) == 3


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("resend",), "ids of dead letters"),
        (("drop", "1", "--all"), "ids of dead letters"),
        (("drop", "x"), "an id is a number"),
        (("list", "3"), "list shows everything"),
        (("backup",), "write one file"),
        (("restore", "a", "b"), "write one file"),
    ],
)
def test_a_wrong_command_line_is_explained(stored, type_, arguments, says):
    code, _, error = type_(*arguments)

    assert code == 2
    assert says in error


def test_without_an_app_or_a_directory_it_says_what_to_write(capsys):
    assert main(["outbox", "list"]) == 2
    assert "--app MODULE:APP" in capsys.readouterr().err


def test_without_a_file_it_says_who_makes_it(type_):
    for arguments in (("list",), ("drop", "--all"), ("backup", "copy.db")):
        code, _, error = type_(*arguments)
        assert code == 1
        assert "an app makes it when readings wait for its broker" in error


def test_the_app_of_the_command_line_has_a_directory(tmp_path, monkeypatch, capsys):
    (tmp_path / "orchard.py").write_text("from leadsman import App\napp = App('orchard')\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)

    assert main(["outbox", "list", "--app", "orchard:app"]) == 1

    assert str(tmp_path / "home" / "leadsman" / "orchard" / "outbox.db") in capsys.readouterr().err


def test_a_backup_is_restored(stored, type_, tmp_path):
    copy = tmp_path / "copy.db"
    assert type_("backup", str(copy))[1].startswith(f"copied to {copy}: 3 readings wait")
    type_("drop", "--all")

    code, printed, _ = type_("restore", str(copy))

    assert code == 0
    assert "3 dead letters; the outbox that was there is kept as" in printed
    stored.open()
    assert len(stored.dead_letters()) == 3


def test_a_restore_under_a_running_app_is_refused(stored, type_, tmp_path):
    type_("backup", str(tmp_path / "copy.db"))
    stored.open()

    code, _, error = type_("restore", str(tmp_path / "copy.db"))

    assert code == 1
    assert "the app runs" in error


def test_the_outbox_is_no_backup_of_itself(stored, type_, tmp_path):
    assert type_("backup", str(tmp_path / "outbox.db"))[0] == 2
