"""Requests to a node to drain."""

import json

import pytest

from leadsman.mqtt.connection import Received
from leadsman.mqtt.topics import Topics
from leadsman.nodes.requests import DrainDoor


@pytest.fixture
def asked():
    return []


@pytest.fixture
def door(asked):
    def drain(request):
        asked.append(request)
        return {"node": "pi-1", "draining": request.draining, "state": "draining", "without_node": []}

    return DrainDoor(Topics("house"), lambda: 0.0, drain)


def answered(door, payload, **more):
    message = door.answer(Received("house/nodes/pi-1/drain", payload, more.pop("retain", False), **more))
    return message and (message.topic, json.loads(message.payload))


def test_a_request_is_answered_with_what_the_node_is_then(door, asked):
    payload = b'{"drain": true, "by": "anna@desk", "transaction": "t"}'
    topic, answer = answered(door, payload)
    assert topic == "house/nodes/pi-1/drain/response"
    assert answer["status"] == "ok"
    assert answer["transaction"] == "t"
    assert answer["data"]["draining"] is True
    assert asked == [(True, "anna@desk")]


def test_a_request_names_where_its_answer_goes(door):
    topic, _ = answered(door, b'{"drain": false}', response_topic="house/tool/answers")
    assert topic == "house/tool/answers"


@pytest.mark.parametrize("payload", [b"", b"on", b"true", b"[]", b'{"drain": 1}', b'{"drain": "true"}', b'{"by": "x"}'])
def test_a_request_that_does_not_say_whether_to_drain_is_refused_and_says_what_to_send(door, asked, payload):
    _, answer = answered(door, payload)
    assert answer["status"] == "error"
    assert 'send {"drain": true}' in answer["error"]
    assert asked == []


def test_a_retained_request_is_ignored_since_it_would_come_with_each_connection(door, asked, caplog):
    assert answered(door, b'{"drain": true}', retain=True) is None
    assert asked == []
    assert "a retained request is ignored" in caplog.text


def test_who_asks_is_shortened_and_may_be_missing(door, asked):
    answered(door, json.dumps({"drain": True, "by": "x" * 900}).encode())
    answered(door, b'{"drain": true, "by": 5}')
    assert [len(request.by) for request in asked] == [100, len("somebody")]
