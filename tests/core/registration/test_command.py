from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from leadsman import App, Context
from leadsman.core.mqtt.topics import Topics, topic_matches
from leadsman.errors import InvalidType, InvalidValue


async def take(payload: dict): ...


@pytest.mark.parametrize(
    ("words", "error", "told"),
    [
        ({"timeout": "5"}, InvalidValue, "units"),
        ({"timeout": 0}, InvalidValue, "greater than zero"),
        ({"queue": 0}, InvalidValue, "1 or more"),
        ({"queue": "5"}, InvalidType, "whole number"),
        ({"queue": True}, InvalidType, "whole number"),
        ({"when_full": "wait"}, InvalidValue, "'drop-oldest'"),
        ({"group": ""}, InvalidValue, "'bus'"),
        ({"needs": ""}, InvalidValue, "without a comma"),
        ({"enabled": 1}, InvalidType, "True or False"),
        ({"fixed": {"queue"}}, InvalidValue, "which the settings cannot change"),
        ({"title": ""}, InvalidValue, "a name for people, such as 'Bathroom'"),
        ({"area": ""}, InvalidValue, "the name of a room or a place, such as 'Attic'"),
        ({"discoverable": 1}, InvalidType, "True or False"),
        ({"fields": {"on": {"nam": "On"}}}, InvalidValue, "did you mean 'name'"),
        ({"retry": 3}, InvalidType, "'retry' is not an option"),
        ({"queues": 3}, InvalidType, "did you mean 'queue'"),
    ],
)
def test_wrong_words_of_a_command_are_refused(words, error, told):
    with pytest.raises(error, match=rf"command 'boiler': .*{told}"):
        App("app").add_command("boiler", take, **words)


def test_every_word_of_a_command_is_tried_wrongly_above():
    tried = {
        word
        for mark in test_wrong_words_of_a_command_are_refused.pytestmark
        for case in mark.args[1]
        for word in case[0]
    }

    with pytest.raises(InvalidType) as raised:
        App("app").add_command("boiler", take, zzzzzzzz=1)
    known = str(raised.value).partition("write one of ")[2].split(", ")

    assert {"timeout", "needs"} <= set(known) <= tried


class Port: ...


@dataclass
class Plain:
    a: int


class Model(BaseModel):
    a: int


@pytest.mark.parametrize(
    "annotation", [int, str, Any, Literal["on"], Model, Plain, dict[str, int], Annotated[int, "x"], int | None]
)
def test_a_payload_may_be_of_any_type_that_pydantic_knows(annotation):
    async def handler(value): ...

    handler.__annotations__["value"] = annotation
    app = App("app")
    app.add_command("boiler", handler)

    assert app.commands["boiler"].payload == "value"


def test_an_adapter_that_is_not_there_is_not_taken_for_a_payload():
    async def handler(port: Port): ...

    with pytest.raises(InvalidType, match="neither an adapter of the app nor a type of a payload"):
        App("app").add_command("boiler", handler)


def test_two_parameters_that_nothing_fills_are_one_too_many():
    async def handler(a: int, b: int): ...

    with pytest.raises(InvalidValue, match="parameter 'b'"):
        App("app").add_command("boiler", handler)


def test_a_context_is_no_payload():
    async def handler(context: Context, value: int): ...

    app = App("app")
    app.add_command("boiler", handler)

    assert app.commands["boiler"].payload == "value"


def test_one_device_has_one_command_and_may_have_telemetry_but_no_side_job():
    app = App("app")
    app.add_command("boiler", take)
    app.add_telemetry("boiler", take_nothing, interval=5)
    with pytest.raises(InvalidValue, match="already registered"):
        app.add_command("boiler", take)
    with pytest.raises(InvalidValue, match="already registered"):
        app.add_periodic("boiler", take_nothing, interval=5)


async def take_nothing(): ...


@pytest.mark.parametrize(
    ("topic_filter", "topic", "matches"),
    [
        ("a/+/set", "a/b/set", True),
        ("a/+/set", "a/b/c/set", False),
        ("a/+/set", "a/b/set/result", False),
        ("a/+/set", "a/set", False),
        ("a/#", "a/b/c", True),
        ("a", "a", True),
        ("a", "a/b", False),
    ],
)
def test_filters_match_as_mqtt_says(topic_filter, topic, matches):
    assert topic_matches(topic_filter, topic) is matches


@given(st.text(max_size=50))
def test_answers_stay_below_the_prefix(topic):
    if Topics("app").may_answer(topic):
        assert topic.startswith("app/")
        assert not set(topic) & set("+#\x00")
