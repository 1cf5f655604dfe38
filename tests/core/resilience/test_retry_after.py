import email.utils
import json
from datetime import UTC, datetime
from urllib.error import HTTPError

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leadsman import App, never
from leadsman.core.resilience.failure import Failure
from leadsman.testing import Harness
from leadsman_rigs.examples import examples

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC).timestamp()
TIMES = st.integers(0, 4_000_000_000)
RFC_850 = "%A, %d-%b-%y %H:%M:%S GMT"
ASCTIME = "%a %b %e %H:%M:%S %Y"
DAY = 86_400.0


class Refused(Exception):
    """An answer with these headers."""

    status = 503

    def __init__(self, headers):
        self.headers = headers


def pause_of(error, wall=NOW):
    """The seconds that a policy waits at least after an error, by a clock that says `wall`."""
    return never().obey_retry_after().pause(Failure(error, wall=wall))


def seconds_of(value, date, wall):
    """The pause after an answer with this header and this date."""
    return pause_of(Refused({"Retry-After": value, **({} if date is None else {"Date": date})}), wall)


@given(st.integers(0, 10**12))
def test_seconds_are_obeyed_up_to_a_day(seconds):
    assert seconds_of(f" {seconds} ", None, NOW) == min(seconds, DAY)


@given(st.integers(-100_000, 200_000), TIMES)
def test_a_date_is_compared_with_the_date_of_the_answer_and_not_with_our_clock(ahead, wall):
    asked, answered = (email.utils.formatdate(each, usegmt=True) for each in (NOW + ahead, NOW))

    assert seconds_of(asked, answered, wall) == min(max(0, ahead), DAY)


@given(st.integers(-100_000, 200_000), st.sampled_from([None, "yesterday", ""]))
def test_without_a_date_of_the_answer_our_clock_counts(ahead, date):
    assert seconds_of(email.utils.formatdate(NOW + ahead, usegmt=True), date, NOW) == min(max(0, ahead), DAY)


@pytest.mark.parametrize("form", [RFC_850, ASCTIME])
def test_the_two_old_forms_of_a_date_are_read_too(form):
    asked = datetime.fromtimestamp(NOW + 90, UTC).strftime(form)

    assert seconds_of(asked, None, NOW) == 90


@given(
    st.text() | st.from_regex(r"[A-Z][a-z]{2}, \d{1,5} [A-Z][a-z]{2} \d{1,9} \d+:\d+:\d+ ([A-Z]+|[+-]\d+)"),
    st.none() | st.text(),
)
def test_any_header_is_a_pause_within_a_day_or_none(value, date):
    found = seconds_of(value, date, NOW)

    assert found is None or 0 <= found <= DAY


@pytest.mark.parametrize("status", [400, 404, 408, 500, 502])
def test_other_answers_ask_for_no_pause(status):
    assert pause_of(error_of(status, {"Retry-After": "7"})) is None


def error_of(status, headers, **content):
    response = httpx.Response(status, headers=headers, request=httpx.Request("GET", "http://meter"), **content)
    return httpx.HTTPStatusError("refused", request=response.request, response=response)


@pytest.mark.parametrize(
    "error",
    [
        error_of(503, {"retry-after": "7"}),
        HTTPError("http://meter", 503, "busy", {"Retry-After": "7"}, None),
        Refused({"retry-after": b"7"}),
    ],
    ids=["httpx", "urllib", "a plain dict"],
)
def test_the_header_is_found_where_each_library_keeps_it(error):
    assert pause_of(error) == 7


def calls_of(answers, interval="1m", **options):
    """The times in seconds at which a server is called that gives these answers, and then a reading."""
    app, calls = App("house"), []

    @app.telemetry("meter", interval=interval, policy="http", **options)
    async def meter() -> dict[str, float]:
        calls.append(round(harness.now))
        if answers:
            raise answers.pop(0)
        return {"watts": 1.0}

    with Harness(app) as harness:
        harness.run("3m")
        return calls, harness


@pytest.mark.parametrize("status", [429, 503])
def test_a_server_is_called_again_when_its_pause_is_over(status):
    calls, _ = calls_of([error_of(status, {"Retry-After": "7"})])

    assert calls[:4] == [0, 7, 60, 120]


def test_a_pause_beyond_the_next_poll_skips_polls():
    calls, _ = calls_of([error_of(429, {"Retry-After": "90"})])

    assert calls[:3] == [0, 90, 120]


def test_a_pause_that_is_shorter_than_the_waits_of_the_policy_changes_nothing():
    calls, _ = calls_of([error_of(503, {"Retry-After": "0"})] * 100)

    assert len([each for each in calls if each < 60]) == 4


def test_a_pause_is_counted_as_the_failure_that_it_is():
    _, harness = calls_of([error_of(503, {"Retry-After": "90"})])

    assert harness.errors("meter")[0]["type"] == "HTTPStatusError"


@pytest.mark.parametrize("body", [b"<html>502 Bad Gateway</html>", b'{"watts": 4', b"\xff\xfe\xff"])
def test_an_answer_that_is_no_json_is_asked_for_again(body):
    with pytest.raises((json.JSONDecodeError, UnicodeDecodeError)) as raised:
        httpx.Response(200, content=body).json()

    calls, harness = calls_of([raised.value])

    assert calls[1] < 10
    assert harness.errors("meter") == []


@given(
    st.lists(st.tuples(st.integers(0, 200), st.sampled_from([429, 503])), min_size=1, max_size=8),
    st.sampled_from(["5s", "1m"]),
)
@settings(max_examples=examples(15), deadline=None)
def test_no_call_comes_before_the_end_of_the_pause_that_was_asked_for(pauses, interval):
    app, calls = App("house"), []

    @app.telemetry("meter", interval=interval, policy="http")
    async def meter() -> dict[str, float]:
        calls.append(harness.now)
        if len(calls) <= len(pauses):
            pause, status = pauses[len(calls) - 1]
            raise error_of(status, {"Retry-After": str(pause)})
        return {"watts": 1.0}

    with Harness(app) as harness:
        harness.run("1h")

    assert len(calls) > len(pauses)
    for call, following, (pause, _) in zip(calls, calls[1:], pauses, strict=False):
        assert following - call >= pause - 0.001
