"""What a status and a redirect mean."""

import re
from typing import Annotated, Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman import RetryRequested
from leadsman.adapters.http import HttpAnswer, HttpRefused, HttpUnavailable
from leadsman.adapters.http.answer import ENCODINGS, next_hop, status_error
from leadsman.adapters.http.wire import RequestLine
from leadsman.errors import DeviceError, GarbledData, LeadsmanError, PermanentError, TransientError

PLACE = RequestLine("GET", "http://ann:geheim@a/b?key=geheim")
headers = st.dictionaries(
    st.sampled_from(["retry-after", "date", "content-type", "www-authenticate"]), st.text(max_size=40), max_size=4
)


class Unhashable:
    __hash__ = None


def outcome(call, *args, **options):
    """What a call returns, or the error of leadsman that it raises."""
    try:
        return call(*args, **options)
    except LeadsmanError as error:
        return error


@given(st.integers(-5, 199) | st.integers(300, 1200), headers, st.binary(max_size=300))
def test_each_status_has_one_meaning_by_type(status, headers, start):
    found = status_error(status, headers, start, "GET http://a/b", "basic", 0.0)

    transient = status in (408, 425, 429) or 500 <= status <= 599
    if not 100 <= status <= 599:
        assert isinstance(found, GarbledData)
    elif isinstance(found, RetryRequested):
        assert transient
        assert "retry-after" in headers
    else:
        assert isinstance(found, HttpUnavailable if transient else HttpRefused)
        assert isinstance(found, TransientError if transient else PermanentError)
        assert found.status == status
    assert str(found).isprintable()


@given(st.one_of(st.text(max_size=60), st.sampled_from(["/x", "//b.lan/", "https://a.lan", "?q", ""])), st.booleans())
def test_credentials_never_follow_a_redirect_to_another_server(location, with_credentials):
    start = "https://a.lan/status"

    found = outcome(next_hop, "GET", [start], location, with_credentials=with_credentials)

    if isinstance(found, str):
        assert found != start
        assert found.startswith("https://")
        there = urlsplit(found)
        assert not with_credentials or (there.hostname, there.port or 443) == ("a.lan", 443)
    else:
        assert isinstance(found, PermanentError)
        assert str(found).startswith("GET https://a.lan/status is redirected to ")
        assert str(found).isprintable()


@given(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=20))
def test_a_chain_of_redirects_ends(ways):
    visited = ["http://a.lan/start"]
    for way in ways * 8:
        found = outcome(next_hop, "GET", visited, f"/{way}", with_credentials=False)
        if isinstance(found, PermanentError):
            assert re.search("in a circle|no more than 5", str(found))
            break
        visited.append(found)

    assert len(visited) <= 6


@given(st.binary(max_size=200), st.sampled_from(["", "text/html", "application/json", "text/plain; charset=punycode"]))
def test_any_content_is_json_or_a_named_error(content, kind):
    answer = HttpAnswer(200, {"content-type": kind}, content, PLACE)
    for read in (answer.json, lambda: answer.json(dict[str, float]), answer.text):
        found = outcome(read)
        if isinstance(found, DeviceError):
            assert str(found).startswith("GET http://a/b: ")
            assert str(found).isprintable()


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"a": -Infinity}', "[1e400]", "9" * 5000, "{", "nul"])
def test_what_is_no_number_is_refused(text):
    answer = HttpAnswer(200, {}, text.encode(), PLACE)

    for read in (answer.json, lambda: answer.json(float | list[float] | dict[str, float])):
        with pytest.raises(GarbledData, match="not JSON"):
            read()


def test_what_only_looks_like_no_number_is_read():
    answer = HttpAnswer(200, {}, b'{"a": "NaN 1e999", "b": 1e-300}', PLACE)

    assert answer.json() == answer.json(dict[str, str | float]) == {"a": "NaN 1e999", "b": 1e-300}
    assert answer.json(Annotated[dict[str, Any], Unhashable()])["b"] == 1e-300


LENIENCIES = {
    "UTF-8": ("application/json", "utf-8"),
    "a byte order mark": ("application/json", "utf-8-sig"),
    "UTF-16 with its mark": ("application/json", "utf-16"),
    "UTF-16 without a mark": ("application/json", "utf-16-le"),
    "UTF-16, the high byte first": ("application/json; charset=utf-16", "utf-16-be"),
    "UTF-32": ("application/json", "utf-32"),
    "ISO-8859-1, and says so (home-assistant/core#85145)": ("application/json; charset=ISO-8859-1", "latin-1"),
    "ISO-8859-1, in quotes": ("application/json; Charset='iso-8859-1'", "latin-1"),
    "ISO-8859-1, and does not say so (home-assistant/core#148792)": ("application/json", "latin-1"),
    "ISO-8859-1, and says UTF-8": ("application/json; charset=utf-8", "latin-1"),
    "UTF-8, and says ISO-8859-1": ("application/json; charset=ISO-8859-1", "utf-8"),
    "UTF-8, and says something that there is not": ("application/json; charset=unicode", "utf-8"),
    "no type": ("", "utf-8"),
    "the type of a web page": ("text/html; charset=iso-8859-15", "iso8859-15"),
}


@pytest.mark.parametrize(("kind", "encoding"), LENIENCIES.values(), ids=LENIENCIES)
def test_json_is_read_in_the_encoding_that_it_has(kind, encoding):
    answer = HttpAnswer(200, {"content-type": kind}, '{"mode": "Normal réduit", "°C": 21.5}'.encode(encoding), PLACE)

    assert answer.json() == answer.json(dict[str, str | float]) == {"mode": "Normal réduit", "°C": 21.5}
    assert '"Normal réduit"' in answer.text()


@given(st.text(max_size=50), st.sampled_from(sorted(set(ENCODINGS.values()))))
def test_text_comes_as_it_was_sent_in_each_encoding_that_a_header_names(text, encoding):
    sent = ("Wärme, тепло, 温度, θερμό" + text).encode(encoding, errors="ignore")
    wanted = sent.decode(encoding)
    if "\0" in wanted[:4] or (not wanted.isascii() and encoding != "utf-8" and valid_utf_8(sent)):
        return  # nobody can say which of two it is

    answer = HttpAnswer(200, {"content-type": f"text/plain;charset={encoding}"}, sent, PLACE)

    assert answer.text() == wanted


def valid_utf_8(data):
    try:
        return bool(data.decode())
    except UnicodeDecodeError:
        return False


@pytest.mark.parametrize("behind", [b"\0", bytes(300), b"\r\n\0\0"])
def test_zeros_behind_json_are_passed_over(behind):
    answer = HttpAnswer(200, {}, b'{"watts": 412}' + behind, PLACE)

    assert answer.json() == answer.json(dict[str, int]) == {"watts": 412}


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("text/plain; charset=hex", b"\xff"),
        ("text/plain; charset=punycode", b"\xe4"),
        (f"text/plain; charset={'x' * 8000}", b"\xe4"),
        ("text/plain; charset=a\0b", b"\xe4"),
        ("", b"\x81"),  # which no sign of the fallback has
        ("text/plain; charset=utf-8", b"\xff\xfe\0"),  # half a sign of UTF-16
    ],
)
def test_what_is_text_in_no_encoding_is_garbled(kind, content):
    with pytest.raises(GarbledData, match="the answer is no text") as raised:
        HttpAnswer(200, {"content-type": kind}, content, PLACE).text()

    assert len(str(raised.value)) < 300  # whatever the server names
