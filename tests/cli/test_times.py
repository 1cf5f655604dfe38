"""Times at a terminal are those of this machine's zone; programs get UTC."""

import time

import pytest

from leadsman.cli.gaps import show
from leadsman.cli.times import clock, local, localised, zone

GAP = {"since": "2026-01-08T23:00:05.000Z", "until": None, "seconds": 60.0, "cause": "failed", "slots": {"failed": 1}}
LEDGER = {"at": "", "slots": 1, "counts": {"failed": 1}, "availability": 0.0, "gaps": [GAP]}


@pytest.fixture
def berlin(monkeypatch):
    monkeypatch.setenv("TZ", "CET-1")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("berlin")
def test_a_time_is_that_of_this_zone_and_may_be_of_another_day():
    assert local("2026-01-08T23:00:05.000Z") == "2026-01-09 00:00:05"
    assert clock("2026-01-08T23:00:05.000Z") == "00:00:05"
    assert zone() == "UTC+01:00"


@pytest.mark.usefixtures("berlin")
def test_the_times_in_a_line_are_those_of_this_zone():
    line = "open since 2026-01-08 23:00:05Z (5s ago); the probe is due at 2026-01-08 23:59:00Z, 32026-01-08 23:00:05Z"

    assert localised(line) == (
        "open since 2026-01-09 00:00:05 (5s ago); the probe is due at 2026-01-09 00:59:00, 32026-01-08 23:00:05Z"
    )


def test_a_time_before_the_clocks_were_changed_has_its_offset(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        winter, summer = local("2026-01-08T12:00:00.005Z", exact=True), local("2026-07-08T12:00:00.005Z", exact=True)
        twice = [local("2026-10-25T00:30:00Z"), local("2026-10-25T01:30:00Z")]
    time.tzset()

    assert winter.startswith("2026-01-08 13:00:00.005")
    assert summer.startswith("2026-07-08 14:00:00.005")
    assert winter.endswith("+01:00") != summer.endswith("+02:00")
    assert twice[0] != twice[1]


@pytest.mark.parametrize("text", ["", "soon\x1b[2J", "9999-12-31T23:59:59-23:00", "2026-13-01T00:00:00Z"])
@pytest.mark.usefixtures("berlin")
def test_text_that_is_no_time_stays_and_drives_no_terminal(text):
    assert "\x1b" not in local(text)
    assert local(None) == ""
    assert localised("at 2026-99-99 99:99:99Z") == "at 2026-99-99 99:99:99Z"


@pytest.mark.usefixtures("berlin")
def test_a_table_says_its_zone_once(capsys):
    show(
        {"boiler": LEDGER | {"hours": [{"start": "2026-01-08T22:00:00.000Z", "slots": 1, "counts": {}}]}}, as_json=False
    )

    out = capsys.readouterr().out
    assert "due since 2026-01-08 23:00:00, UTC+01:00:" in out
    assert "since (UTC+01:00)" in out
    assert "boiler  2026-01-09 00:00:05" in out
