"""Handlers that return bytes: they are published as they are, and their JSON says what they are."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman import App, Content, Delivery, Every, Finds, OnChange, Round
from leadsman.core.introspection.topic_schemas import schemas
from leadsman.core.settings.sources import Where
from leadsman.errors import InvalidType, InvalidValue
from leadsman.testing import Harness, Scripted

Jpeg = Annotated[bytes, Content("image/jpeg", limit=1000)]
MAX_CONTENT_BYTES = 1_000_000
"""Bytes of a content, at most."""
PICTURES = [b"\xff\xd8one", b"\xff\xd8one", b"\xff\xd8two"]


def handler_of(*steps, kind: Any = Jpeg):
    scripted = Scripted(*steps)

    async def read() -> Any:
        return await scripted()

    read.__annotations__["return"] = kind
    return read


def camera(*steps, kind: Any = Jpeg, name="app", **options):
    app = App(name)
    app.add_telemetry("d", handler_of(*steps, kind=kind), interval="10s", **options)
    return app


def payloads(running, topic="app/d/content"):
    return [each.payload for each in running.broker.messages(topic)]


def test_the_bytes_are_published_as_they_are_and_the_json_says_what_they_are(harness):
    running = harness(camera(*PICTURES))

    running.run("25s")

    assert payloads(running) == PICTURES
    assert running.broker.retained["app/d/content"].payload == PICTURES[-1]
    assert running.states("d") == [
        {"content_type": "image/jpeg", "size": len(each), "sha256": hashlib.sha256(each).hexdigest()}
        for each in PICTURES
    ]
    topics = [each.topic for each in running.broker.log if each.topic in ("app/d/content", "app/d/state")]
    assert topics == ["app/d/content", "app/d/state"] * 3


def test_a_rule_compares_whole_contents(harness):
    running = harness(camera(*PICTURES, publish=OnChange(), field="image"))

    running.run("25s")

    assert payloads(running, "app/d/image") == [PICTURES[0], PICTURES[2]]


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (b"x" * 1001, "the image/jpeg has 1,001 bytes; 1,000 are allowed: make it smaller, or write Content("),
        (b"", "the image/jpeg is empty; return None to publish nothing"),
        ({"t": 1}, "the handler returned a dict, and it is annotated to return bytes of image/jpeg"),
        ("x", "the handler returned a str, and it is annotated to return bytes of image/jpeg"),
    ],
)
def test_what_cannot_be_published_fails_the_poll_by_name(harness, result, said):
    running = harness(camera(result))

    running.run("1s")

    assert payloads(running) == []
    assert said in running.errors("d")[0]["message"]


def test_none_publishes_nothing_and_other_kinds_of_bytes_are_bytes(harness):
    running = harness(camera(None, bytearray(b"a"), memoryview(b"b"), kind=Jpeg | None))

    running.run("25s")

    assert payloads(running) == [b"a", b"b"]


def test_a_source_yields_bytes(harness):
    app = App("app")

    @app.source("d", field="image")
    async def frames() -> AsyncIterator[Jpeg]:
        yield b"one"
        await asyncio.sleep(1)
        yield b"two"
        await asyncio.sleep(100)

    running = harness(app)
    running.run("2s")

    assert payloads(running, "app/d/image") == [b"one", b"two"]


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        (bytes, {}, r"say what they are: Annotated\[bytes, Content\('image/jpeg'\)\]"),
        (Jpeg | str, {}, "bytes and something else"),
        (Jpeg, {"publish": OnChange(0.5)}, "publish has a deadband, and the handler returns bytes"),
        (Jpeg, {"publish": Every("1h") | OnChange({"size": 1})}, "publish has a deadband"),
        (Jpeg, {"filters": {"size": [Round(1)]}}, "filters is about values"),
        (Jpeg, {"layout": "both"}, "layout is about values"),
        (Jpeg, {"field": "state"}, "field is 'state', which is no name for a topic below a device"),
        (Jpeg, {"field": "a/b"}, "field is 'a/b'"),
        (Jpeg, {"field": "a+"}, "'a\\+' contains '\\+'"),
        (Jpeg, {"field": 5}, "field is 5"),
        (Jpeg, {"finds": Finds()}, "finds needs context|finds is about values"),
    ],
)
def test_what_makes_no_sense_for_bytes_is_refused_at_registration(kind, options, said):
    with pytest.raises((InvalidType, InvalidValue), match=f"telemetry 'd': .*{said}|telemetry 'd': {said}"):
        camera(b"x", kind=kind, **options)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ({"content_type": "jpeg"}, InvalidValue),
        ({"content_type": "image/jpeg\n"}, InvalidValue),
        ({"content_type": "image/"}, InvalidValue),
        ({"content_type": 5}, InvalidType),
        ({"content_type": "image/png", "limit": 0}, InvalidValue),
        ({"content_type": "image/png", "limit": MAX_CONTENT_BYTES + 1}, InvalidValue),
        ({"content_type": "image/png", "limit": True}, InvalidType),
        ({"content_type": "image/png", "limit": 1.5}, InvalidType),
    ],
)
def test_a_wrong_content_is_refused(words, error):
    with pytest.raises(error, match="write"):
        Content(**words)


@given(st.binary(max_size=60), st.integers(1, 50))
def test_a_content_is_taken_whole_or_refused(data, limit):
    with Harness(camera(data, kind=Annotated[bytes, Content("application/octet-stream", limit=limit)])) as running:
        running.run("1s")

    taken = [data] if 0 < len(data) <= limit else []
    assert payloads(running) == taken
    assert [state["size"] for state in running.states("d")] == [len(each) for each in taken]
    assert len(running.errors("d")) == 1 - len(taken)


def test_of_pictures_that_wait_one_arrives_and_displaces_no_reading(harness):
    pictures = [bytes([n]) * 200_000 for n in range(1, 100)]
    app = camera(*pictures, kind=Annotated[bytes, Content("image/jpeg")])
    app.add_telemetry("t", Scripted(*[{"n": n} for n in range(100)]), interval="10s")
    running = harness(app)

    running.run("5s")
    running.broker.stop()
    running.run("10m")
    running.broker.start()
    running.run("20s")

    assert [state["n"] for state in running.states("t")] == list(range(len(running.states("t"))))
    assert len(running.states("t")) > 60
    assert len(payloads(running)) <= 6
    assert running.broker.retained["app/d/content"].payload[:1] == bytes([len(running.states("d"))])
    assert running.status()["mqtt"]["outbox"]["dropped"] == 0


def test_the_largest_content_passes_the_outbox(harness):
    running = harness(camera(b"x" * MAX_CONTENT_BYTES, kind=Annotated[bytes, Content("image/jpeg")]))

    running.run("1s")

    assert [len(each) for each in payloads(running)] == [MAX_CONTENT_BYTES]


def test_introspection_and_the_schema_say_what_the_bytes_are(harness):
    app = camera(b"x" * 31_000, kind=Annotated[bytes, Content("image/jpeg")])
    running = harness(app)
    running.run("1s")
    running.broker.send("app/introspect", b'{"sections":["devices"]}')
    running.run("1s")

    answer = running.broker.messages("app/introspect/response")[0]
    (registered,) = answer.json["data"]["devices"]["d"]["registrations"]
    assert registered["content"] == {"content_type": "image/jpeg", "limit": MAX_CONTENT_BYTES, "topic": "content"}
    topics = schemas(app.topics, app.telemetries, {})["topics"]
    assert topics["app/d/content"]["contentMediaType"] == "image/jpeg"
    assert set(topics["app/d/state"]["properties"]) == {"content_type", "size", "sha256"}


def test_the_topic_goes_with_the_device(harness):
    with Harness(camera(b"x")) as first:
        first.run("1m")
    assert "app/d/content" in first.broker.retained

    second = harness(App("app"))
    second.broker.retained.update(first.broker.retained)
    second.run("1m")

    assert not [topic for topic in second.broker.retained if topic.startswith("app/d/")]


def test_another_name_of_the_topic_removes_the_former_one_before_the_first_reading(harness):
    with Harness(camera(b"x")) as first:
        first.run("1m")

    second = harness(camera(None, field="image"))
    second.broker.retained.update(first.broker.retained)
    second.run("1m")

    assert "app/d/content" not in second.broker.retained


def test_an_image_that_expires_is_sent_again(harness):
    running = harness(camera(b"x", publish=OnChange(), delivery=Delivery(expiry="60s")))

    running.run("45s")

    assert len(payloads(running)) == 3


def test_a_broker_that_forgot_gets_the_newest_image_again(harness):
    running = harness(camera(b"one", b"two", None))

    running.run("15s")
    running.broker.stop(forget=True)
    assert "app/d/content" not in running.broker.retained
    running.broker.start()
    running.run("5s")

    assert running.broker.retained["app/d/content"].payload == b"two"


def test_an_image_that_waited_is_not_followed_by_an_older_one(harness):
    running = harness(camera(*[bytes([n]) for n in range(1, 20)]))

    running.run("15s")
    running.broker.stop(forget=True)
    running.run("60s")
    running.broker.start()
    running.run("3s")

    sent = [each[0] for each in payloads(running)]
    assert sent == sorted(sent)
    assert running.broker.retained["app/d/content"].payload == bytes([len(running.states("d"))])


def test_a_layout_for_all_devices_leaves_out_bytes(harness):
    app = camera(b"x")
    app.add_telemetry("t", Scripted({"t": 1}), interval="10s")

    running = harness(app, settings={"devices": {"*": {"layout": "fields"}}})
    running.run("1s")

    assert running.broker.retained["app/t/t"].payload == b"1"
    assert payloads(running) == [b"x"]


def test_a_deadband_of_the_settings_is_refused_for_bytes_too():
    app = camera(b"x")

    with pytest.raises(InvalidValue, match="publish has a deadband, and the handler returns bytes"):
        app.load(Where.nowhere({"devices": {"d": {"publish": "OnChange(0.5)"}}}, {}))


def test_the_root_device_has_its_bytes_without_a_level_of_its_own(harness):
    app = App("app")
    app.add_telemetry(None, handler_of(b"x"), interval="10s", field="image")

    running = harness(app)
    running.run("1s")

    assert payloads(running, "app/image") == [b"x"]
