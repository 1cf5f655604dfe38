"""What `leadsman inspect` shows to a person."""

from typing import get_type_hints

import pytest

from leadsman.cli.inspect import show
from leadsman.cli.main import COMMANDS
from leadsman.introspection.document import Introspection
from leadsman.introspection.requests import ON_REQUEST, SECTIONS

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
    "ledger": {"meter": {"slots": 4, "availability": 75.0, "counts": {"published": 3, "failed": 1}, "gaps": []}},
    "recent": {
        "meter": {"at": 1775642400.0, "fields": {"watts": 412.5}, "series": {}}
        | {"outcomes": {"at": [1.0, 2.0, 3.0], "words": ["ok", "failed", "ok"]}}
    },
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
    assert "2026-04-08 10:02:00Z, in 1m18s" in out


def test_names_and_words_of_an_app_cannot_drive_the_terminal(capsys):
    found = document(status="ok\x1b[2J", circuit="\x1b]0;x\x07")
    found["app"]["name"] = "house\x1b[2J"
    found["devices"]["\x1b[2J"] = found["devices"].pop("meter")

    show(found, as_json=False)

    assert "\x1b" not in capsys.readouterr().out


def test_a_poll_that_is_due_has_no_time_left(capsys):
    show(document(next_due_at="2026-04-08T10:00:42.000Z", opens=1), as_json=False)

    out = capsys.readouterr().out
    assert "2026-04-08 10:00:42Z  OSError" in out
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
        ("ledger", "meter   75 %       4      3     failed 1"),
        ("recent", "meter   2026-04-08 10:00:00Z  watts 412.5  2 ok, 1 failed"),
    ],
)
def test_a_section_that_a_request_must_name_is_shown_to_a_person(capsys, section, shown):
    show({section: ON_REQUEST_ALONE[section]}, as_json=False)

    assert shown in capsys.readouterr().out
