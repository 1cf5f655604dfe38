"""What `leadsman inspect` shows to a person."""

from leadsman.cli.inspect import show

RUNTIME = {
    "status": "circuit_open",
    "circuit": "open",
    "opens": 3,
    "consecutive_failures": 5,
    "last_success_at": None,
    "next_due_at": "2026-04-08T10:02:00.000Z",
    "last_error": "OSError: away",
}


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
