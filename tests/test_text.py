import ast
import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.text import LONGEST, clean, describe, log_fields, masked


@given(st.text())
def test_clean_text_is_one_printable_line_of_bounded_length(text):
    assert clean(text).isprintable()
    assert len(clean(text)) <= LONGEST


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("mqtt://ann:hunter2@host:1883/x", "mqtt://***@host:1883/x"),
        ("https://token@host", "https://***@host"),
        ("cannot reach mqtt://ann:p@ss@host:1883, again", "cannot reach mqtt://***@host:1883, again"),
        ("mqtt://ann:12/34@host", "mqtt://***@host"),
        ("https://ann:a/b#c?d@host", "https://***@host"),
        ("https://host/calendars/ann@example.org/", "https://host/calendars/ann@example.org/"),
        ("https://[::1]:8443/ann@example.org", "https://[::1]:8443/ann@example.org"),
        ("login failed, password=hunter2", "login failed, password=***"),
        ("Authorization: hunter2", "Authorization: ***"),
        ("Authorization: Basic aHVudGVyMg== is wrong", "Authorization: *** is wrong"),
        ("'authorization': 'Bearer hunter2', 'a': 1", "'authorization': ***, 'a': 1"),
        ('{"password": "hunter 2", "user": "ann"}', '{"password": ***, "user": "ann"}'),
        ("client_secret=hunter2&api_key=hunter2", "client_secret=***"),
        ("MQTT__PASSWORD=hunter2 x", "MQTT__PASSWORD=*** x"),
        ("\x1b[31mred\r\nForged line", "\\x1b[31mred\\r\\nForged line"),
        ("plain", "plain"),
    ],
)
def test_secrets_and_control_characters_are_not_shown(text, shown):
    assert clean(text) == shown


@pytest.mark.parametrize(
    "piece", ["a", "a.", "a-", "x://", "x://@", "password", "password=", "token: bearer ", 'secret="']
)
def test_a_long_text_of_any_kind_is_cleaned_in_milliseconds(piece):
    text = piece * (4 * LONGEST)
    before = time.process_time()
    for _ in range(100):
        clean(text)

    assert time.process_time() - before < 1.0  # of CPU; the square of its length would be more


def test_the_credentials_of_a_url_with_a_long_scheme_are_hidden_too():
    assert "hunter2" not in clean("x" * 40 + "://ann:hunter2@host")


def test_an_error_without_words_is_named():
    assert describe(TimeoutError()) == "TimeoutError"
    assert describe(OSError("gone")) == "gone"


def test_an_error_whose_text_breaks_is_named_with_what_broke():
    class Rude(OSError):
        def __str__(self):
            raise ZeroDivisionError

    assert describe(Rude()) == "its text cannot be read: ZeroDivisionError"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("mqtt://host", "mqtt://host"),
        ("mqtts://[::1]:8883?ca=ca.pem", "mqtts://[::1]:8883?ca=ca.pem"),
        ("mqtt://ann:p@ss@host:1883", "mqtt://***@host:1883"),
        ("mqtt://ann:hunter2", "mqtt://***"),
        ("ann:hunter2@host", "***@host"),
        ("hunter2", "***"),
    ],
)
def test_a_url_is_shown_without_its_credentials(url, shown):
    assert masked(url) == shown


def test_fields_of_a_log_line_leave_out_what_is_unknown_and_hide_credentials():
    extra = log_fields("stop", None, url="mqtt://ann:hunter2@host", calls=2)

    assert extra == {"fields": {"event": "stop", "url": "mqtt://***@host", "calls": 2}}


def test_every_log_line_has_fields_for_json_logs():
    lines = [
        (path.name, call.lineno)
        for path in Path("src/leadsman").rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call)
        and re.fullmatch(r"logger\.(debug|info|warning|error|critical|log)", ast.unparse(call.func))
        and not any(keyword.arg == "extra" for keyword in call.keywords)
    ]

    assert lines == []
