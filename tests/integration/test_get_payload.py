"""Polls on request whose handler takes the payload of the request."""

import asyncio
import json
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from leadsman import App, Context
from leadsman.core.introspection.topic_schemas import schemas
from leadsman.errors import ConfigurationError, DeviceUnavailable
from leadsman.testing import Harness

DEFAULT = 7


def calendar(*, plain=False, fails=(), **options):
    """An app that publishes the number of days that it was asked for. `fails`: the calls that do."""
    app, calls = App("app"), []

    def dates(days):
        calls.append(days)
        if len(calls) in fails:
            raise DeviceUnavailable("no answer")
        return {"days": days}

    async def read(days: Annotated[int, Field(ge=1, le=365)] = DEFAULT):
        return dates(days)

    def read_in_thread(days: Annotated[int, Field(ge=1, le=365)] = DEFAULT):
        return dates(days)

    handler = read_in_thread if plain else read
    app.add_telemetry("d", handler, **{"interval": "1h", "request": "days", "throttle": 0, **options})
    return app


def ask(running, payload, seconds=0.5):
    """Send a request, and the answers to it."""
    before = len(running.broker.messages("app/answers"))
    running.broker.send("app/d/get", payload, response_topic="app/answers")
    running.run(seconds)
    return [json.loads(each.payload) for each in running.broker.messages("app/answers")][before:]


@pytest.mark.parametrize("plain", [False, True])
def test_a_request_gives_its_payload_once_and_the_schedule_keeps_its_default(plain, harness):
    running = harness(calendar(plain=plain))
    running.run(1)

    (answer,) = ask(running, b"30")
    running.run("61m")

    assert (answer["status"], answer["data"]) == ("ok", {"days": 30})
    assert running.states("d") == [{"days": DEFAULT}, {"days": 30}, {"days": DEFAULT}]


@pytest.mark.parametrize("payload", [b"", b"{}", b'{"transaction": 1}'])
def test_a_request_without_a_payload_polls_with_the_default(payload, harness):
    running = harness(calendar())
    running.run(1)

    (answer,) = ask(running, payload)

    assert answer["data"] == {"days": DEFAULT}


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"0", "greater than or equal to 1"),
        (b"1e400", "infinite"),
        (b"NaN", "valid integer"),
        (b"many", "valid integer"),
        (b"[30]", "valid integer"),
        (b'{"days": 30}', "valid integer"),
        (b"[" * 50, "nested deeper than 20 levels"),
        (b"\xff", "not UTF-8"),
        (b"1" * 70_000, "65536 are allowed"),
    ],
)
def test_a_wrong_payload_is_answered_with_its_reason_and_polls_nothing(payload, reason, harness):
    running = harness(calendar())
    running.run(1)

    (answer,) = ask(running, payload)

    assert answer["status"] == "error"
    assert reason in answer["error"]
    assert running.states("d") == [{"days": DEFAULT}]


def test_a_wrong_payload_is_answered_beside_the_request_if_no_response_topic_is_given(harness):
    running = harness(calendar())
    running.run(1)

    running.broker.send("app/d/get", b"many")
    running.run(1)

    (answer,) = running.broker.messages("app/d/get/response")
    assert "valid integer" in json.loads(answer.payload)["error"]


def test_a_retry_has_the_payload_of_the_request_and_the_next_poll_has_not(harness):
    running = harness(calendar(fails=(2,), retry=3))
    running.run(1)

    ask(running, b"30", 10)
    running.run("61m")

    assert running.states("d") == [{"days": DEFAULT}, {"days": 30}, {"days": DEFAULT}]


def test_a_request_that_fails_for_good_leaves_nothing_to_the_next_one(harness):
    running = harness(calendar(fails=(2,)))
    running.run(1)

    assert [each["status"] for each in (*ask(running, b"30"), *ask(running, b""))] == ["error", "ok"]
    assert running.states("d") == [{"days": DEFAULT}, {"days": DEFAULT}]


def slow_calendar():
    app = App("app")

    @app.telemetry("d", interval="1h", request="days", throttle=0)
    async def read(context: Context, days: int = DEFAULT):
        await context.sleep(5)
        return {"days": days}

    return app


def test_only_a_request_with_the_same_payload_shares_the_poll_under_way(harness):
    running = harness(slow_calendar())
    running.run(10)

    for payload in (b"30", b"30", b"31", b""):
        running.broker.send("app/d/get", payload, response_topic="app/answers")
    running.run(10)

    answers = [json.loads(each.payload) for each in running.broker.messages("app/answers")]
    assert [each["data"] for each in answers if each["status"] == "ok"] == [{"days": 30}] * 2
    refused = [each["error"] for each in answers if each["status"] == "error"]
    assert len(refused) == 2
    assert all("another payload is under way" in each for each in refused)


def test_a_handler_with_a_model_gets_one_and_a_dict_is_not_shared_between_calls(harness):
    class Query(BaseModel):
        days: int = DEFAULT
        titles: list[str] = []

    app = App("app")

    @app.telemetry("d", interval="1h", request="query", throttle=0)
    async def read(query: Query = Query()):  # one that nothing changes
        return query

    running = harness(app)
    running.run(1)

    (answer,) = ask(running, b'{"titles": ["waste"], "transaction": "x"}')

    assert answer["data"] == {"days": DEFAULT, "titles": ["waste"]}
    assert answer["transaction"] == "x"
    assert "should be a valid integer" in ask(running, b'{"days": "many"}')[0]["error"]


def test_text_reaches_the_handler_as_it_was_sent(harness):
    app = App("app")

    @app.telemetry("d", interval="1h", request="title", throttle=0)
    async def read(title: str = ""):
        return {"title": title}

    running = harness(app)
    running.run(1)

    assert [ask(running, each)[0]["data"]["title"] for each in (b"on", b"007", b'"007"')] == ["on", "007", "007"]


def test_a_handler_that_takes_no_payload_ignores_one(harness):
    app = App("app")
    app.add_telemetry("d", lambda: {"days": 1}, interval="1h", throttle=0)
    running = harness(app)
    running.run(1)

    assert ask(running, b"PRESS")[0]["data"] == {"days": 1}


def test_ten_requests_in_twenty_seconds_make_one_connection_to_a_device_with_a_throttle(harness):
    running = harness(calendar(throttle="30s"))
    running.run("1m")

    answers = [answer for _ in range(10) for answer in ask(running, b"30", 2)]

    assert [each["status"] for each in answers] == ["ok"] + ["error"] * 9
    assert "at least 30s apart; ask again in 28s" in answers[1]["error"]
    assert running.states("d") == [{"days": DEFAULT}, {"days": 30}]


def test_who_runs_the_app_sets_the_throttle(harness):
    running = harness(calendar(), settings={"devices.d.throttle": "30s"})
    running.run("1m")

    assert [each["status"] for _ in range(3) for each in ask(running, b"30", 2)] == ["ok", "error", "error"]


async def without_default(days: int): ...
async def without_type(days=DEFAULT): ...
async def with_wrong_default(days: int = None): ...  # noqa: RUF013  # as people write it
async def with_lock(days: asyncio.Lock = None): ...  # noqa: RUF013  # as people write it
async def right(days: int = DEFAULT): ...
async def without_any(): ...
async def positional(days: int = DEFAULT, /): ...


@pytest.mark.parametrize(
    ("handler", "request_", "reason"),
    [
        (without_default, "days", "has no default"),
        (without_type, "days", "has no type; write one, such as days: int"),
        (with_wrong_default, "days", "does not fit its type"),
        (with_lock, "days", "neither an adapter of the app nor a type of a payload"),
        (right, "dayz", "did you mean 'days'?"),
        (right, 5, "write the name of a parameter"),
        (without_any, "days", "it has none"),
        (positional, "days", "positional-only; drop the '/'"),
    ],
)
def test_a_request_that_cannot_be_is_refused_at_registration(handler, request_, reason):
    with pytest.raises(ConfigurationError, match="telemetry 'd'") as caught:
        App("app").add_telemetry("d", handler, interval="1h", request=request_)

    assert reason in str(caught.value)


def test_a_side_job_takes_no_request():
    with pytest.raises(ConfigurationError, match="not an option"):
        App("app").add_periodic("d", right, interval="1h", request="days")


@given(st.one_of(st.integers(), st.floats(), st.text(max_size=20), st.none(), st.lists(st.integers(), max_size=2)))
def test_whatever_is_sent_is_read_or_refused_by_name_and_the_app_goes_on(payload):
    with Harness(calendar()) as running:
        running.run(1)

        (answer,) = ask(running, json.dumps(payload).encode())

        if isinstance(payload, int):
            assert answer["data"] == ({"days": payload} if 1 <= payload <= 365 else None)
        assert (answer["data"] is None) == (answer["status"] == "error") == bool(answer["error"])
        assert running.status()["devices"]["d"]["status"] == "ok"


def test_the_app_says_what_a_request_takes_and_how_often_it_may_come(harness):
    running = harness(calendar(throttle="30s"))
    running.run(1)

    running.broker.send("app/introspect", b'{"sections": ["devices"]}', response_topic="app/answers")
    running.run(1)

    found = json.loads(running.broker.messages("app/answers")[-1].payload)["data"]
    (registered,) = found["devices"]["d"]["registrations"]
    assert (registered["request"], registered["throttle"]) == ("days", 30)


def test_the_schema_describes_the_payload():
    app = calendar()

    found = schemas(app.topics, app.telemetries, {})["topics"]

    wanted = {"type": "integer", "minimum": 1, "maximum": 365, "direction": "in"}
    assert {word: found["app/d/get"].get(word) for word in wanted} == wanted
    assert "by" in found["app/d/hold/set"]["properties"]
