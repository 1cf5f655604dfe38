"""What `leadsman gaps` shows to a person and to a program."""

import json

import pytest

from leadsman.tools.cli.main import main

GAP = {
    "since": "2026-04-08T10:00:05.000Z",
    "until": "2026-04-08T10:20:05.000Z",
    "seconds": 1200.0,
    "cause": "timed_out",
    "slots": {"timed_out": 5, "circuit_open": 15},
}


@pytest.fixture
def show(stage):
    """What `leadsman gaps` prints of these ledgers."""

    def show(ledgers, *arguments):
        stage.answers("house/introspect", {"ledger": ledgers})
        found = stage.run("gaps", "--prefix", "house", "--mqtt", "mqtt://broker.lan", *arguments)
        assert (found.code, found.err) == (0, "")
        return found.out

    return show


def ledger(counts, gaps=(), availability=None):
    slots = sum(counts.values())
    return {
        "at": "2026-04-08T11:00:00.000Z",
        "slots": slots,
        "counts": counts,
        "availability": availability,
        "hours": [],
        "gaps": list(gaps),
    }


BOILER = ledger({"published": 1410, "replayed": 10, "timed_out": 5, "circuit_open": 15}, [GAP], 98.611)
ATTIC = ledger({"published": 1440}, [], 100.0)


def test_it_shows_what_came_what_did_not_and_why(show):
    devices, gaps = show({"boiler": BOILER, "attic": ATTIC}).strip().split("\n\n")
    rows = [line.split("  ") for line in (*devices.splitlines()[2:], *gaps.splitlines()[2:])]
    assert [[cell.strip() for cell in row if cell.strip()] for row in rows] == [
        ["boiler", "98.61 %", "1440", "1420", "timed out 5, circuit open 15"],
        ["attic", "100 %", "1440", "1440", "–"],
        ["boiler", "2026-04-08 10:00:05", "20m", "timed out", "timed out 5, circuit open 15"],
    ]


def test_the_table_says_from_which_hour_on_it_counts(show):
    hours = [{"start": f"2026-04-08T{hour}:00:00.000Z", "slots": 60, "counts": {"published": 60}} for hour in (10, 11)]
    printed = show({"attic": ATTIC | {"hours": hours[1:]}, "boiler": BOILER | {"hours": hours}, "new": ATTIC})

    assert printed.startswith("Polls that were due since 2026-04-08 10:00:00, UTC:\n\ndevice ")


def test_more_than_an_app_keeps_cannot_be_asked_for(capsys):
    assert main(["gaps", "--prefix", "house", "--since", "3d", "--mqtt", "mqtt://127.0.0.1:1"]) == 2
    assert "--since is 3d, and an app keeps two days; write --since 2d" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["gaps"], ["held"], ["inspect"], ["trace"]])
def test_without_an_app_a_broker_that_is_away_is_named_first(capsys, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([*command, "--mqtt", "mqtt://127.0.0.1:1"]) == 1

    cause, advice = capsys.readouterr().err.split("; leadsman looked for the app there; ")
    assert "127.0.0.1:1" in cause
    assert cause.startswith("leadsman: cannot connect")
    assert "MODULE:APP" in advice


def test_a_gap_that_has_not_ended_says_so_and_comes_first(show):
    ongoing = GAP | {"since": "2026-04-08T10:40:00.000Z", "until": None, "seconds": 61.2}
    printed = show({"boiler": ledger({"failed": 40}, [GAP, ongoing], 0.0)})

    lines = printed.splitlines()
    assert "1m1s, not ended" in lines[-2]
    assert "10:00:05" in lines[-1]


def test_nearly_all_is_not_all(show):
    printed = show({"boiler": ledger({"published": 100_000, "failed": 1}, [], 99.999)})
    assert "99.99 %" in printed


def test_a_source_has_no_slots_and_a_disabled_device_no_availability(show):
    source = ledger({"published": 3}) | {"slots": 0}
    events = ledger({"published": 2, "dropped": 1}) | {"slots": 0, "events": 3}
    printed = show({"source": source, "off": ledger({"disabled": 60}), "bell": events})

    lines = printed.splitlines()
    assert lines[2].split() == ["source", "–", "–", "3", "–"]
    assert lines[3].split() == ["off", "–", "60", "0", "disabled", "60"]
    assert lines[4].split() == ["bell", "–", "–", "2", "events", "dropped", "1"]
    assert lines[-1] == "There is no gap."


def test_a_person_reads_the_latest_gaps_and_a_program_gets_all(show):
    gaps = [GAP | {"since": f"2026-04-08T10:{minute:02}:00.000Z"} for minute in range(60)]
    many = {"a": ledger({"failed": 60}, gaps, 0.0), "b": ledger({"failed": 60}, gaps, 0.0)}

    printed = show(many)
    assert printed.splitlines()[-1].startswith("… and 20 earlier gaps")
    printed = show(many, "--json")
    assert json.loads(printed) == many


def test_words_of_devices_cannot_control_the_terminal(show):
    printed = show(
        {"a\x1b[2J": ledger({"failed": 1}, [GAP | {"cause": "\x1b]0;x\x07", "slots": {"\x1b]0;x\x07": 1}}], 0.0)}
    )
    assert "\x1b" not in printed
