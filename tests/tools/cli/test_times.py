"""Times at a terminal are those of this machine's zone; programs get UTC."""

import time

import pytest

GAP = {"since": "2026-01-08T23:00:05.000Z", "until": None, "seconds": 60.0, "cause": "failed", "slots": {"failed": 1}}
LEDGER = {"at": "", "slots": 1, "counts": {"failed": 1}, "availability": 0.0, "gaps": [GAP]}
HELD = {"held": True, "last_error": "x", "failing_since": "2026-01-08T23:00:05.000Z"}


@pytest.fixture
def zone(monkeypatch):
    """Says in which zone this machine is."""

    def zone(name):
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield zone
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def ask(stage):
    """The lines that a command prints of a document."""

    def ask(command, document, *arguments):
        stage.answers("house/introspect", document)
        return stage.run(command, *arguments, "--prefix", "house", "--mqtt", "mqtt://broker.lan").lines

    return ask


def trace(*times):
    row = {"handler": "meter", "attempt": None, "cycle": None, "reason": "held", "delay": None}
    return {"app": {"uptime": 1.0}, "trace": [row | {"at": each, "error_type": None, "number": 1} for each in times]}


def test_a_time_is_that_of_this_zone_and_may_be_of_another_day(zone, ask):
    zone("CET-1")

    lines = ask("held", {"devices": {"boiler": {"runtime": HELD}}, "jobs": {}})

    assert "since (UTC+01:00)" in lines[0]
    assert lines[2] == "boiler  2026-01-09 00:00:05  x"


def test_a_silence_that_is_over_has_times_without_their_date(zone, ask):
    zone("CET-1")
    gap = {"since": "2026-01-08T23:00:05.000Z", "until": "2026-01-08T23:01:05.000Z", "seconds": 60.0, "cause": "failed"}
    ledger = {"boiler": {"at": "2026-01-08T23:30:00.000Z", "gaps": [gap]}}

    lines = ask("why", {"app": {"prefix": "house"}, "devices": {}, "jobs": {}, "ledger": ledger})

    assert lines[2:] == [
        "boiler was silent 00:00:05 to 00:01:05 (1m): failed",
        "leadsman gaps has more. Times are local: UTC+01:00.",
    ]


def test_the_times_in_the_evidence_of_a_verdict_are_those_of_this_zone(zone, ask):
    zone("CET-1")
    runtime = {
        "held": False,
        "status": "circuit_open",
        "stale": False,
        "circuit": "open",
        "last_error": "32026-01-08 23:00:05Z, at 2026-99-99 99:99:99Z",
        "poll_under_way": None,
        "consecutive_failures": 3,
        "counters": {"polls": 3, "failed_polls": 3},
        "failing_since": "2026-01-08T23:00:05.000Z",
        "opened_at": "2026-01-08T23:00:05.000Z",
        "last_success_at": None,
        "next_poll_at": "2026-01-08T23:59:00.000Z",
    }
    reads = {"kind": "telemetry", "handler": "read", "needs": [], "enabled": True}
    app = {"prefix": "house", "started_at": "2026-01-08T22:00:00.000Z", "uptime": 3610.0}
    document = {"app": app, "devices": {"boiler": {"registrations": [reads], "runtime": runtime}}, "jobs": {}}

    lines = ask("why", document, "boiler")

    text = "\n".join(lines)
    assert "2026-01-09 00:59:00" in text
    assert "32026-01-08 23:00:05Z" in text
    assert "2026-01-08 23:" not in text.replace("32026-01-08 23:00:05Z", "")
    assert "  times are local: UTC+01:00" in lines


def test_a_time_before_the_clocks_were_changed_has_its_offset(zone, ask):
    zone("CET-1CEST,M3.5.0,M10.5.0/3")
    times = ("2026-01-08T12:00:00.005Z", "2026-07-08T12:00:00.005Z", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z")

    _, winter, summer, *twice = (line.partition("  ")[0] for line in ask("trace", trace(*times)))

    assert winter.startswith("2026-01-08 13:00:00.005")
    assert summer.startswith("2026-07-08 14:00:00.005")
    assert winter.endswith("+01:00") != summer.endswith("+02:00")
    assert twice[0] != twice[1]


@pytest.mark.parametrize("text", ["", "soon\x1b[2J", "9999-12-31T23:59:59-23:00", "2026-13-01T00:00:00Z"])
def test_text_that_is_no_time_stays_and_drives_no_terminal(zone, ask, text):
    zone("CET-1")

    (_, line) = ask("trace", trace(text))

    assert line.startswith(f"{text}  meter".replace("\x1b", "\\x1b"))


def test_a_table_says_its_zone_once(zone, ask):
    zone("CET-1")
    hours = [{"start": "2026-01-08T22:00:00.000Z", "slots": 1, "counts": {}}]

    out = "\n".join(ask("gaps", {"ledger": {"boiler": LEDGER | {"hours": hours}}}))

    assert "due since 2026-01-08 23:00:00, UTC+01:00:" in out
    assert "since (UTC+01:00)" in out
    assert "boiler  2026-01-09 00:00:05" in out
