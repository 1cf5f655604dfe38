import ast
import logging
import re
import time
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import leadsman.core.text
import leadsman.core.text.redaction
from leadsman.core.monitoring.log_format import TextFormatter
from leadsman.core.text import MAX_TEXT_CHARS, clean, describe, log_fields, mask_url
from leadsman.core.text.redaction import MAX_LINE_CHARS, Secret


@given(st.text())
def test_clean_text_is_one_printable_line_of_bounded_length(text):
    assert clean(text).isprintable()
    assert len(clean(text)) <= MAX_TEXT_CHARS


@pytest.mark.parametrize("word", ["appid", "auth", "key", "pass", "pin", "pwd", "sid", "sig", "signature"])
def test_a_short_word_for_a_secret_hides_its_value(word):
    assert clean(f"?x=1&{word}=hunter2") == f"?x=1&{word}=***"


NO_PATTERNS = ("_SCHEME", "_NO_VALUE", "_VALUE", "_BEHIND_A_CUT")
"""Texts that are parts of patterns, or none."""
PATTERNS = {
    name: re.compile(each)
    for module in (leadsman.core.text, leadsman.core.text.redaction)
    for name, each in vars(module).items()
    if re.fullmatch("_[A-Z_]+", name) and isinstance(each, str) and name not in NO_PATTERNS
}


@pytest.mark.parametrize(
    ("pattern", "hidden", "parts"), leadsman.core.text._HIDING, ids=range(len(leadsman.core.text._HIDING))
)
@given(data=st.data())
def test_each_text_in_which_a_pattern_hides_something_has_one_of_its_parts(pattern, hidden, parts, data):
    text = data.draw(st.from_regex(pattern))

    assert re.sub(pattern, hidden, text) == text or any(part in text.casefold() for part in parts)


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
        (
            "Authorization: Digest username=x, nonce=y, response=" + "0af1" * 8,
            "Authorization: *** nonce=y, response=***",
        ),
        ('Digest username="x", response="' + "0af1" * 8 + '"', 'Digest username="x", response=***'),
        ("response=timeout", "response=timeout"),
        ("('Authorization', 'Basic aHVudGVyMg==')", "('Authorization', ***)"),
        ("[(b'x-api-key', b'hunter2'), (b'host', b'h')]", "[(b'x-api-key', ***), (b'host', b'h')]"),
        ('["Cookie", "a=hunter2"]', '["Cookie", ***]'),
        ("['password', 'user', 'host']", "['password', ***, 'host']"),
        ("Basic aHVudGVyMjpodW50ZXIy refused", "Basic *** refused"),
        ("basic authentication is refused", "basic authentication is refused"),
        ("private_key=hunter2 access-key=hunter2", "private_key=*** access-key=***"),
        ("X-Amz-Signature=hunter2", "X-Amz-Signature=***"),
        ("?x=1&auth=hunter2", "?x=1&auth=***"),
        ("credential: hunter2", "credential: ***"),
        ("{'auth': 'hunter2', 'signature': 'hunter2'}", "{'auth': ***, 'signature': ***}"),
        ('{"password": "hunter2 is cut', '{"password": ***'),
        ("-----BEGIN PRIVATE KEY-----\nhunter2", "-----BEGIN PRIVATE KEY-----***"),
        ("\x1b[31mred\r\nForged line", "\\x1b[31mred\\r\\nForged line"),
        ("plain", "plain"),
    ],
)
def test_secrets_and_control_characters_are_not_shown(text, shown):
    assert clean(text) == shown


WORDS = [
    *("password", "passwd", "passphrase", "token", "secret", "credential", "credentials", "authorization"),
    *("api_key", "api-key", "apikey", "access_key", "access-key", "private_key", "X-Api-Key", "X-Auth-Token"),
    *("client_secret", "refresh_token", "MQTT__PASSWORD"),
]


@pytest.mark.parametrize(
    "form",
    [
        *("{}=hunter2", "?a=1&{}=hunter2&b=2", "{}: hunter2", "{} : hunter2", "{}:hunter2", "{} => hunter2"),
        *("{}='hunter2 hunter2'", '{}="hunter2 hunter2', "{}=b'hunter2 hunter2'", "f({}='hunter2')", "{}%3Dhunter2"),
        *("a '{}': 'hunter2 hunter2'", 'a "{}": "hunter2 hunter2", "b": 1', "b'{}': b'hunter2'", '"{}": "hunter2 hun'),
        *("('{}', 'hunter2 hunter2')", '["{}", "hunter2"]', '\\"{}\\": \\"hunter2 hunter2\\"', "<{}>hunter2</{}>"),
    ],
)
def test_what_follows_a_word_for_a_secret_is_hidden_however_it_is_written(form):
    texts = [clean(form.replace("{}", each)) for word in WORDS for each in (word, word.upper())]

    assert [text for text in texts if "hunter2" in text or "hun" in text] == []


@pytest.mark.parametrize(
    "piece", ["a", "a.", "a-", "x://", "x://@", "password", "password=", "token: bearer ", 'secret="']
)
def test_a_long_text_of_any_kind_is_cleaned_in_milliseconds(piece):
    text = piece * (4 * MAX_TEXT_CHARS)
    before = time.process_time()
    for _ in range(100):
        clean(text)

    assert time.process_time() - before < 1.0  # of CPU; the square of its length would be more


PIECES = [
    *("-", "=", ":", " ", ",", "'", '"', "\\", "(", "a", "a-", "a.", "@", "://", "x://", "x://@", "x://a:", "?a"),
    *("-----BEGIN ", "-----BEGIN A-----", "-----BEGIN A-----\n", "-----END"),
    *("password", "password=", "password='", 'token="', "token: bearer ", "secret = ", "x-", "x-key", "x-key: "),
    *("('", "('key", "('key', ", "('key', '", "['token', \"", "'pin' : ", "response=", "response=0", "basic "),
    *("authorization: a ", "cookie=", "credential:", "bearer a0", "basic 0=", "a://,"),
]


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
def test_a_pattern_takes_as_many_steps_as_a_text_is_long(pattern):
    for piece in PIECES:
        text = piece * (60_000 // len(piece))
        before = time.process_time()
        pattern.sub("", text)

        assert time.process_time() - before < 3.0, piece  # of CPU; the square of its length takes ten times that


def test_to_hide_many_long_secrets_takes_as_many_steps_as_they_and_the_text_are_long():
    secrets = [Secret(f"{number:03}" + "ab" * 2_000) for number in range(100)]
    text = "ab" * MAX_LINE_CHARS
    before = time.process_time()
    for _ in range(3):
        clean(text)

    assert time.process_time() - before < 10.0  # of CPU; their product for each shape would take minutes
    assert len(secrets) == 100


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
    assert mask_url(url) == shown


def test_fields_of_a_log_line_leave_out_what_is_unknown_and_hide_credentials():
    extra = log_fields("stop", None, url="mqtt://ann:hunter2@host", calls=2)

    assert extra == {"fields": {"event": "stop", "url": "mqtt://***@host", "calls": 2}}


@pytest.mark.slow
def test_every_log_line_has_fields_for_json_logs():
    lines = [
        (path.name, call.lineno)
        for path in Path("src/leadsman").rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and re.fullmatch(r"logger\.(debug|info|warning|error|critical|log)", ast.unparse(call.func))
        and not any(keyword.arg == "extra" for keyword in call.keywords)
    ]

    assert lines == []


def test_a_key_is_hidden_over_all_lines_of_a_record():
    key = "\n".join(["-----BEGIN EC PRIVATE KEY-----", "hunter2", "hunter3", "-----END EC PRIVATE KEY-----"])
    record = logging.LogRecord("leadsman", logging.ERROR, "", 0, f"cannot load\n{key}\nfrom x\n{key}", (), None)

    shown = TextFormatter(colour=False).format(record)

    assert "hunter" not in shown
    assert shown.count("-----BEGIN EC PRIVATE KEY-----***-----END EC PRIVATE KEY-----") == 2
    assert "  | from x\n" in shown


def test_an_error_of_an_http_client_names_the_server_and_nothing_of_the_path():
    request = httpx.Request("GET", "http://ann:hunter2@weather.lan:8080/key-1234?token=abc")

    told = describe(httpx.ConnectError("All connection attempts failed", request=request))
    assert told == "All connection attempts failed at http://weather.lan:8080"
    told = describe(httpx.ConnectError("no answer of http://weather.lan:8080/x", request=request))
    assert told == "no answer of http://weather.lan:8080/x"
    assert describe(httpx.ConnectError("no request")) == "no request"
