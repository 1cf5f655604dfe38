import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman import Received
from leadsman.core.mqtt.answers import (
    MAX_CORRELATION_BYTES,
    MAX_DEPTH,
    MAX_REQUEST_BYTES,
    answer_anyway,
    answer_request,
    answer_to,
    decode,
    document,
)
from leadsman.core.mqtt.topics import Topics, encode
from leadsman.core.text.log_lines import others
from leadsman.errors import PayloadError

TOPICS = Topics("house")
AT = {"at": "2026-11-20T22:11:00.250Z"}
WALL = 1_795_212_660.25

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.binary(max_size=200) | JSON.map(json.dumps).map(str.encode))
def test_whatever_comes_is_a_value_that_can_be_answered_with_or_a_named_error(payload):
    try:
        value, transaction = decode(payload)
    except PayloadError:
        return
    encode({"data": value, "transaction": transaction})


@given(st.integers(1, 200))
def test_depth_has_one_bound_for_lists_and_objects(depth):
    for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
        payload = opening * depth + b"1" + closing * depth
        if depth <= MAX_DEPTH:
            decode(payload)
        else:
            with pytest.raises(PayloadError, match="nested deeper"):
                decode(payload)


def test_a_payload_of_the_largest_size_is_read_and_one_byte_more_is_not():
    assert decode(b"x" * MAX_REQUEST_BYTES) == ("x" * MAX_REQUEST_BYTES, None)
    with pytest.raises(PayloadError, match="are allowed"):
        decode(b"x" * (MAX_REQUEST_BYTES + 1))


@pytest.mark.parametrize("payload", [b'{"on": false, "on": true}', b'[{"a": {"on": 1, "b": 2, "on": 1}}]'])
def test_a_key_that_is_there_twice_is_refused_since_readers_differ_about_which_value_holds(payload):
    with pytest.raises(PayloadError, match="'on' is there twice"):
        decode(payload)


def test_a_transaction_is_taken_out_of_an_object():
    assert decode(b'{"a": 1, "transaction": [2]}') == ({"a": 1}, [2])
    assert decode(b"[1]") == ([1], None)


def request(payload=b"", response_topic=None, correlation=None):
    return Received("house/introspect", payload, False, response_topic, correlation)


def test_an_answer_says_what_was_found_or_what_went_wrong():
    assert document({"t": 1}, None, WALL, None) == {"status": "ok", "data": {"t": 1}, "error": None} | AT
    assert document(None, "no", WALL, None) == {"status": "error", "data": None, "error": "no"} | AT


def test_an_answer_repeats_the_transaction_of_its_request():
    assert document(None, None, WALL, [7])["transaction"] == [7]
    assert "transaction" not in document(None, None, WALL, None)


def test_an_answer_goes_to_the_response_topic_with_the_correlation_data():
    message = answer_to(request(response_topic="house/me", correlation=b"1"), TOPICS, {"data": 1})

    assert (message.topic, message.payload, message.correlation) == ("house/me", b'{"data":1}', b"1")
    assert not message.retain


@pytest.mark.parametrize("topic", ["elsewhere/me", "house/d/set", "house/#", None])
def test_an_answer_goes_nowhere_but_below_the_prefix(topic):
    with pytest.raises(PayloadError, match="must lie below house/"):
        answer_to(request(response_topic=topic), TOPICS, {})


def test_correlation_data_has_a_largest_size():
    answer_to(request(response_topic="house/me", correlation=b"x" * MAX_CORRELATION_BYTES), TOPICS, {})
    with pytest.raises(PayloadError, match="send at most"):
        answer_to(request(response_topic="house/me", correlation=b"x" * (MAX_CORRELATION_BYTES + 1)), TOPICS, {})


def test_a_request_without_a_response_topic_is_answered_below_its_own():
    assert answer_anyway(request(correlation=b"1"), TOPICS, {}, others(), WALL).topic == "house/introspect/response"
    assert answer_anyway(request(correlation=b"1"), TOPICS, {}, others(), WALL).correlation == b"1"


@pytest.mark.parametrize("bad", [{"response_topic": "elsewhere"}, {"correlation": b"x" * (MAX_CORRELATION_BYTES + 1)}])
def test_a_request_that_asks_for_an_impossible_answer_is_answered_below_its_own_topic(bad, caplog):
    message = answer_anyway(request(**{"response_topic": "house/me"} | bad), TOPICS, {}, others(), WALL)

    assert (message.topic, message.correlation) == ("house/introspect/response", None)
    assert "The request at house/introspect is answered at house/introspect/response instead" in caplog.text


def test_the_answer_holds_what_the_request_asked_for():
    message = answer_request(
        request(b'{"a": 1, "transaction": "x"}'), TOPICS, WALL, lambda value: {"got": value}, others()
    )

    told = {"status": "ok", "data": {"got": {"a": 1}}, "error": None, "transaction": "x"} | AT
    assert json.loads(message.payload) == told


def test_a_request_that_is_refused_is_answered_with_the_reason():
    def refuse(value):
        raise PayloadError("there is no such device")

    message = answer_request(request(b'{"transaction": "x"}'), TOPICS, WALL, refuse, others())

    told = {"status": "error", "data": None, "error": "there is no such device", "transaction": "x"} | AT
    assert json.loads(message.payload) == told


def test_a_payload_that_cannot_be_read_is_answered_with_the_reason():
    message = answer_request(request(b"{"), TOPICS, WALL, lambda value: value, others())

    assert json.loads(message.payload)["error"].startswith("the payload is broken JSON")
