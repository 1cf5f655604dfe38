"""What a status, a redirect, a revision and a quota mean."""

import re
from typing import Annotated, Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman import RetryRequested
from leadsman.adapters.http import HttpAnswer, HttpRefused, HttpUnavailable
from leadsman.adapters.http.answer import next_hop, status_error
from leadsman.adapters.http.client import DAY, MOST_KEPT, DailyQuota, Revisions, conditions_of
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


@given(st.integers(1, 500), st.lists(st.floats(0, 3 * DAY), max_size=600), st.floats(0, 10**10))
def test_a_day_never_has_more_requests_than_the_quota(limit, steps, start):
    quota, wall, taken = DailyQuota(limit), start, {}
    for step in sorted(steps):
        wall = start + step
        found = outcome(quota.take, wall)
        if isinstance(found, RetryRequested):
            assert 0 < found.delay <= DAY
            assert (wall + found.delay) // DAY <= wall // DAY + 1
        else:
            taken[wall // DAY] = taken.get(wall // DAY, 0) + 1
        assert 0 <= quota.left(wall) <= limit
    assert all(count <= limit for count in taken.values())


def test_an_app_that_is_restarted_in_the_evening_gets_the_evenings_share():
    assert [DailyQuota(100).left(DAY * 20_000 + hour * 3600) for hour in (0, 12, 18, 23.99)] == [100, 50, 25, 1]
    quota = DailyQuota(100)
    assert quota.left(DAY * 1.75) == 25
    assert quota.left(DAY * 2) == 100


def test_requests_that_a_digest_costs_are_counted():
    quota = DailyQuota(2)
    quota.take(0.0)
    quota.add(1)

    with pytest.raises(RetryRequested, match="used up until midnight UTC") as asked:
        quota.take(DAY / 4)
    assert asked.value.delay == DAY * 3 / 4


def test_answers_are_kept_with_their_revisions_within_a_bound():
    kept = Revisions()

    def keep(path, headers, content):
        kept.keep(HttpAnswer(200, headers, content, RequestLine("GET", path)))

    keep("/etag", {"etag": '"1"'}, b"a")
    keep("/date", {"last-modified": "Thu, 01 Jan 2026 00:00:00 GMT"}, b"b")
    keep("/none", {}, b"c")
    keep("/secret", {"etag": '"1"', "cache-control": "private, No-Store"}, b"d")
    keep("/long", {"etag": "x" * 2000}, b"e")
    keep("/noise", {"etag": '"\x01"', "last-modified": "\udcff"}, b"e")
    keep("/large", {"etag": "1"}, b"f" * (MOST_KEPT + 1))

    assert kept.get("/etag")[:3] == (200, {"etag": '"1"'}, b"a")
    assert conditions_of(kept.get("/etag")) == {"If-None-Match": '"1"'}
    assert conditions_of(kept.get("/date")) == {"If-Modified-Since": "Thu, 01 Jan 2026 00:00:00 GMT"}
    assert len(kept) == 2
    keep("/etag", {}, b"without a revision now")
    assert kept.get("/etag") is None

    for number in range(100):
        keep(f"/{number}", {"etag": "1"}, b"x" * (MOST_KEPT // 11))
        kept.get("/0")
    assert len(kept) == 10
    assert kept.get("/0") is not None  # it was asked for
    assert kept.get("/1") is None
    kept.clear()
    assert len(kept) == 0
    for number in range(10_000):
        keep(f"/{number}", {"etag": "1", "x": "y" * 200}, b"")
    assert len(kept) < 4000


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


def test_text_is_read_in_the_encoding_that_its_header_names():
    def text(kind, content):
        return HttpAnswer(200, {"content-type": kind}, content, PLACE).text()

    assert text("text/plain", "ä".encode()) == text('text/csv; charset="ISO-8859-1"', b"\xe4") == "ä"
    assert HttpAnswer(200, {}, b'\xef\xbb\xbf{"a": 1}', PLACE).json() == {"a": 1}
    with pytest.raises(GarbledData, match="'hex' is not read|no text"):
        text("text/plain; charset=hex", b"00")
