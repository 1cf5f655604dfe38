"""Handlers that are annotated to return a pydantic model: a dict must be such a model."""

import math
from collections.abc import AsyncIterator
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, field_validator

from leadsman import App, CircuitBreaker
from leadsman.errors import ResultError


class Climate(BaseModel):
    t: float
    humidity: float | None = None


class Door(BaseModel):
    door: Literal["open", "shut"]


def states_and_errors(harness, handler, *, kind="telemetry", **options):
    app = App("app")
    add = {"telemetry": app.add_telemetry, "source": app.add_source}[kind]
    add("d", handler, **options)
    running = harness(app)
    running.run(25)
    return running.states("d"), running.errors("d")


def test_a_dict_is_published_as_the_model_says(harness):
    async def read() -> Climate:
        return {"t": "21.5"}

    states, errors = states_and_errors(harness, read, interval="1h")

    assert states == [{"t": 21.5, "humidity": None}]
    assert errors == []


def test_a_dict_that_is_no_such_model_is_a_failed_poll_with_a_named_error(harness):
    calls = []

    async def read() -> Climate:
        calls.append(None)
        return {"t": "not a number"}

    states, errors = states_and_errors(harness, read, interval="10s", retry=3, circuit_breaker=CircuitBreaker(2))

    assert states == []
    assert len(calls) == 2  # one call a poll: such an error is not retried; then the circuit is open
    assert errors[0]["type"] == "ResultError"
    assert "a dict that is not a valid Climate: t: Input should be a valid number" in errors[0]["message"]
    assert errors[0]["message"].endswith("fix it, or annotate dict")


@pytest.mark.parametrize("annotation", [None, dict, dict[str, object], Climate | dict, "Unknown"])
def test_other_annotations_leave_a_dict_as_it_is(harness, annotation):
    async def read():
        return {"t": "not a number"}

    if annotation is not None:
        read.__annotations__["return"] = annotation
    states, _ = states_and_errors(harness, read, interval="1h")

    assert states == [{"t": "not a number"}]


@pytest.mark.parametrize("annotation", [Climate | None, Climate | Door, Climate | Door | None])
def test_one_of_several_models_is_enough(harness, annotation):
    results = iter([{"t": 1}, {"t": "x"}])

    def read():
        return next(results)

    read.__annotations__["return"] = annotation
    states, errors = states_and_errors(harness, read, interval="15s")

    assert [state["t"] for state in states] == [1.0]
    assert len(errors) == 1


def test_none_publishes_nothing_and_a_model_is_published_as_it_is(harness):
    results = iter([None, Climate(t=2)])

    async def read() -> Climate:
        return next(results)

    states, errors = states_and_errors(harness, read, interval="15s")

    assert states == [{"t": 2.0, "humidity": None}]
    assert errors == []


def test_one_bad_reading_does_not_end_a_source(harness):
    async def listen() -> AsyncIterator[Climate]:
        for t in (1, "x", 2):
            yield {"t": t}

    states, errors = states_and_errors(harness, listen, kind="source")

    assert [state["t"] for state in states[:2]] == [1.0, 2.0]
    assert "not a valid Climate" in errors[0]["message"]


def test_a_command_is_answered_with_the_error(harness):
    app = App("app")

    @app.command("d")
    async def turn(on: bool) -> Door:
        return {"door": "ajar"}

    running = harness(app)
    running.run(1)
    running.broker.send("app/d/set", b"on")
    running.run(1)

    (result,) = [each.json for each in running.broker.messages("app/d/set/result")]
    assert result["status"] == "error"
    assert "not a valid Door: door: Input should be 'open' or 'shut'" in result["error"]
    assert running.states("d") == []


def validator_of(handler):
    """What checks each result of a handler."""
    app = App("app")
    app.add_telemetry("d", handler, interval=60)
    return app.telemetries["d"].validate_result


def test_a_validator_of_the_user_may_raise_anything():
    class Odd(BaseModel):
        t: float

        @field_validator("t")
        @classmethod
        def check(cls, t: float) -> float:
            raise LookupError("no such zone\n")

    def read() -> Odd: ...

    with pytest.raises(ResultError, match="a valid Odd: LookupError: no such zone"):
        validator_of(read)({"t": 1})


def test_a_field_that_is_nan_is_left_out_as_from_a_dict(harness):
    async def read() -> Climate:
        return {"t": 1.0, "humidity": math.nan}

    states, errors = states_and_errors(harness, read, interval="1h")

    assert states == [{"t": 1.0}]
    assert errors == []


@given(st.dictionaries(st.text(), st.none() | st.booleans() | st.floats() | st.text() | st.lists(st.integers())))
def test_every_dict_is_a_model_or_a_named_error(result):
    def read() -> Climate: ...

    try:
        found = validator_of(read)(result)
    except ResultError as error:
        found = error

    assert isinstance(found, Climate) or str(found).isprintable()
