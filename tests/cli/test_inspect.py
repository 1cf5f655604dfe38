"""What `leadsman inspect` shows to a person."""

import re
from typing import get_type_hints

import pytest

from leadsman import App, Cron
from leadsman.cli.inspect import show, show_identity, show_plans
from leadsman.cli.main import COMMANDS
from leadsman.introspection.document import Introspection
from leadsman.introspection.requests import ON_REQUEST, SECTIONS
from leadsman.settings.sources import Where

RUNTIME = {
    "status": "circuit_open",
    "circuit": "open",
    "opens": 3,
    "consecutive_failures": 5,
    "last_success_at": None,
    "next_due_at": "2026-04-08T10:02:00.000Z",
    "last_error": "OSError: away",
}


ON_REQUEST_ALONE = {
    "trace": [
        {"at": "2026-04-08T10:00:00.000Z", "handler": "meter", "attempt": 1, "cycle": 2, "error_type": "OSError"}
        | {"error_message": "away", "reason": "retry", "delay": 2.0, "outage_id": None}
    ],
    "words": {"meter": ["It is polled every 10 s."]},
    "ledger": {
        "meter": {"slots": 4, "availability": 75.0, "counts": {"published": 3, "failed": 1}, "hours": [], "gaps": []}
    },
    "recent": {
        "meter": {"at": 1775642400.0, "fields": {"watts": 412.5}, "series": {}}
        | {"outcomes": {"at": [1.0, 2.0, 3.0], "words": ["ok", "failed", "ok"]}}
    },
    "fields": {"meter": {"watts": {"unit": "W", "precision": 1, "name": "Leistung"}}},
}
"""Sections that a request must name, as an app answers them."""


def document(**runtime):
    return {
        "app": {
            "name": "house",
            "version": "1",
            "prefix": "house",
            "leadsman": "0.1.0",
            "python": "3.12",
            "started_at": "2026-04-08T10:00:00.000Z",
            "uptime": 42.0,
        },
        "devices": {"meter": {"registrations": [], "runtime": RUNTIME | runtime}},
    }


def test_it_shows_how_often_the_circuit_opened_and_how_long_it_is_until_the_next_probe(capsys):
    show(document(), as_json=False)

    out = capsys.readouterr().out
    assert "open (opened 3 times)" in out
    assert "2026-04-08 10:02:00, in 1m18s" in out


def test_names_and_words_of_an_app_cannot_drive_the_terminal(capsys):
    found = document(status="ok\x1b[2J", circuit="\x1b]0;x\x07")
    found["app"]["name"] = "house\x1b[2J"
    found["devices"]["\x1b[2J"] = found["devices"].pop("meter")

    show(found, as_json=False)

    assert "\x1b" not in capsys.readouterr().out


def test_a_poll_that_is_due_has_no_time_left(capsys):
    show(document(next_due_at="2026-04-08T10:00:42.000Z", opens=1), as_json=False)

    out = capsys.readouterr().out
    assert "2026-04-08 10:00:42  OSError" in out
    assert "opened" not in out


def test_each_section_of_a_running_app_can_be_chosen():
    [inspect] = [command for command in COMMANDS if command.name == "inspect"]
    [section] = [argument for argument in inspect.arguments if argument.flag == "--section"]

    assert set(section.options["choices"]) == {*SECTIONS, *ON_REQUEST} == set(get_type_hints(Introspection))
    assert set(ON_REQUEST_ALONE) == set(ON_REQUEST)
    assert all(name in section.help for name in section.options["choices"])


@pytest.mark.parametrize(
    ("section", "shown"),
    [
        ("trace", "meter poll 3 call 1  retry in 2s  OSError: away"),
        ("words", "meter\n  It is polled every 10 s."),
        ("ledger", "meter   75 %       4    3     failed 1"),
        ("recent", "meter   2026-04-08 10:00:00  watts 412.5  2 ok, 1 failed"),
        ("fields", "meter   watts  Leistung  W     –             1"),
    ],
)
def test_a_section_that_a_request_must_name_is_shown_to_a_person(capsys, section, shown):
    show({section: ON_REQUEST_ALONE[section]}, as_json=False)

    assert shown in capsys.readouterr().out


def identity(tmp_path, capsys, monkeypatch, *, app=None, url="mqtt://localhost", **environment):
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))
    app = app or App("meter")
    app.load(Where({"MQTT__URL": url} | environment, tmp_path, None, {}, tmp_path / "secrets"))
    show_identity(app)
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("environment", "lines"),
    [
        ({}, [r"topic prefix  meter +the app\n", r"client id     meter +the prefix\n"]),
        (
            {"MQTT__TOPIC_PREFIX": "club", "MQTT__INSTANCE": "b"},
            [
                r"topic prefix  club +environment MQTT__TOPIC_PREFIX\n",
                r"client id     club-b +the prefix and environment MQTT__INSTANCE\n",
            ],
        ),
        ({"MQTT__CLIENT_ID": "mine"}, [r"client id     mine +environment MQTT__CLIENT_ID\n"]),
    ],
)
def test_check_shows_prefix_client_id_and_state_with_their_origins(tmp_path, capsys, monkeypatch, environment, lines):
    shown = identity(tmp_path, capsys, monkeypatch, **environment)

    assert [line for line in lines if re.search(line, shown) is None] == [], shown
    assert re.search(rf"state +{re.escape(str(tmp_path))} +STATE_DIRECTORY\n", shown)


def test_check_says_that_a_broker_of_the_old_version_may_refuse_a_long_client_id(tmp_path, capsys, monkeypatch):
    old, long = "mqtt://localhost?protocol=3.1.1", {"MQTT__CLIENT_ID": "x" * 24}

    assert "MQTT 3.1.1 may refuse" in identity(tmp_path, capsys, monkeypatch, url=old, **long)
    assert "may refuse" not in identity(tmp_path, capsys, monkeypatch, **long)
    assert "may refuse" not in identity(tmp_path, capsys, monkeypatch, url=old, MQTT__CLIENT_ID="x" * 23)


@pytest.mark.parametrize(
    ("health", "shown"),
    [
        ({"opened": False, "discarded": 0, "silent_for": 6.496}, "opened: no, discarded: 0, received nothing for 6s"),
        ({"opened": True, "silent_for": None}, "opened: yes, received nothing yet"),
        ({"last_error": "a\x1b[2J"}, r"last error: a\x1b[2J"),
    ],
)
def test_the_health_of_an_adapter_is_shown_in_words_with_units(health, shown, capsys):
    adapter = {"adapter": "SerialPort", "open": True, "error": None, "reopened": 1, "health": health}

    show({"adapters": [adapter]}, as_json=False)

    assert capsys.readouterr().out == f"adapter SerialPort: open, reopened 1 time, {shown}\n"


def test_check_says_when_a_cron_schedule_is_due_next_and_what_is_subscribed_to(capsys):
    app = App("house")
    begin = app.telemetry("bins", schedule=Cron("30 6 * * *", zone="Europe/Berlin", at_start=True))
    rest = app.telemetry("meter", schedule="0 0 1 1 *")
    for register in (begin, rest):
        register(lambda: None)

    @app.subscribe("tele/+/SENSOR")
    def heard(payload: str) -> None: ...

    show_plans(app)

    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(
        r"bins is polled at the start of the app, and then on \w+ \d{4}-\d\d-\d\d at 06:30 \(Europe/Berlin\)", lines[1]
    )
    assert re.fullmatch(r"meter is polled next on \w+ \d{4}-01-01 at 00:00 \(the zone of this machine\)", lines[2])
    assert re.fullmatch(r"messages at tele/\+/SENSOR go to .*heard", lines[3])
