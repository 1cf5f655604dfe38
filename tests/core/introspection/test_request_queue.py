"""Requests over MQTT wait for their turn: each one is handled or refused, and few of them in one turn of the loop."""

import sys
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leadsman import Received
from leadsman.core.introspection import request_queue
from leadsman.core.introspection.request_queue import (
    MAX_BYTES,
    MAX_REQUEST_AGE,
    MAX_REQUESTS,
    REQUESTS_PER_TURN,
    RequestQueue,
)
from leadsman.core.loop.clock import Clock
from leadsman.core.loop.slices import Slices
from leadsman.errors import Busy, PayloadError
from leadsman_rigs.examples import examples


class Loop:
    """The turns of a loop, one by one."""

    def __init__(self):
        self.soon = deque()

    def call_soon(self, call, *arguments):
        self.soon.append((call, arguments))

    def call_later(self, pause, call, *arguments):
        self.call_soon(call, *arguments)

    def turn(self):
        for _ in range(len(self.soon)):
            call, arguments = self.soon.popleft()
            call(*arguments)


class Door:
    """A queue, and what became of its requests."""

    def __init__(self):
        self.now, self.full = 0.0, False
        self.handled, self.refused, self.faults = [], [], []
        self.loop = Loop()
        clock = Clock(lambda: self.now, lambda: self.now)
        self.queue = RequestQueue(Slices(self.loop, self.faults.append), clock, self)

    @property
    def expects_answers(self):
        """As of the outbox."""
        return not self.full

    def refuse(self, received, error):
        assert isinstance(error, Busy | PayloadError)
        self.refused.append((int(received.topic), str(error)))

    def handle(self, received):
        if received.payload == b"fault":
            raise ZeroDivisionError
        self.handled.append(int(received.topic))

    def add(self, number, payload=b"", **properties):
        self.queue.add(Received(str(number), payload, False, **properties), self.handle, self.refuse)

    def end(self):
        """Go on until nothing is left to do; the greatest number of requests in one turn."""
        most = 0
        while self.loop.soon:
            before = len(self.handled) + len(self.refused)
            self.loop.turn()
            most = max(most, len(self.handled) + len(self.refused) - before)
        return most


def test_a_single_request_is_handled_as_it_arrives():
    door = Door()
    door.add(1)

    assert door.handled == [1]


def test_ten_thousand_requests_at_once_are_handled_in_their_order_and_few_in_one_turn():
    door = Door()
    for number in range(10_000):
        door.add(number)
    at_once = len(door.handled)

    assert door.end() <= REQUESTS_PER_TURN
    assert at_once <= REQUESTS_PER_TURN
    assert door.handled == list(range(10_000))
    assert door.refused == []


@given(st.lists(st.tuples(st.sampled_from(["add", "add", "turn", "later", "full", "room"]), st.integers(0, 3))))
def test_each_request_is_handled_or_refused_once_and_in_order(steps):
    door, number = Door(), 0
    for step, count in steps:
        for _ in range(count):
            if step == "add":
                door.add(number)
                number += 1
            elif step == "turn":
                door.loop.turn()
            elif step == "later":
                door.now += MAX_REQUEST_AGE / 2
            else:
                door.full = step == "full"
    door.full = False
    door.end()

    refused = [topic for topic, _ in door.refused]
    assert sorted([*door.handled, *refused]) == list(range(number))
    assert door.handled == sorted(door.handled)


def test_what_finds_no_place_is_refused_as_it_arrives():
    door = Door()
    door.full = True
    for number in range(MAX_REQUESTS + 3):
        door.add(number)

    assert [topic for topic, _ in door.refused] == [MAX_REQUESTS, MAX_REQUESTS + 1, MAX_REQUESTS + 2]
    assert "ask again in a few seconds" in door.refused[0][1]
    door.full = False
    door.end()
    assert len(door.handled) == MAX_REQUESTS


def test_the_payloads_that_wait_are_bounded_too():
    door = Door()
    door.full = True
    for number in range(65):
        door.add(number, b"x" * (MAX_BYTES // 64 - 200))
    assert [topic for topic, _ in door.refused] == [64]

    door.full = False
    door.end()
    door.add(65, b"x" * (MAX_BYTES // 64))
    assert door.handled == [*range(64), 65]


TEXT = st.text(alphabet="a/\u00e4\u20ac\U0001f321", max_size=300)


@pytest.mark.slow
@settings(max_examples=examples(10), deadline=None)
@given(st.lists(st.tuples(st.binary(max_size=500), TEXT, st.binary(max_size=1500)), min_size=1, max_size=5))
def test_whatever_a_request_carries_it_counts_while_it_waits(requests):
    door = Door()
    door.full = True
    for number in range(MAX_REQUESTS):
        payload, response_topic, correlation = requests[number % len(requests)]
        door.add(number, payload, response_topic=response_topic, correlation=correlation, taken_at="x" * 60_000)

    kept = [waiting.received for waiting in door.queue._waiting]
    assert (
        sum(sys.getsizeof(part) for each in kept for part in each if part is not False) <= MAX_BYTES + 16 * MAX_REQUESTS
    )


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"correlation": b"x" * 1025}, "the correlation data has 1025 bytes; send at most 1024"),
        ({"payload": b"x" * 65_537}, "the payload has 65537 bytes; 65536 are allowed"),
        ({"response_topic": "a/" + "x" * 399}, "the response topic has 401 bytes; send at most 400"),
        ({"response_topic": "a/" + "\u20ac" * 133}, "the response topic has 401 bytes; send at most 400"),
    ],
)
def test_a_request_that_carries_too_much_for_its_answer_is_refused_as_it_arrives(properties, reason):
    door = Door()
    door.add(1, **properties)
    door.add(2, correlation=b"x" * 1024, response_topic="a/" + "x" * 398)

    assert (door.refused, door.handled) == ([(1, reason)], [2])


def test_a_request_that_waited_too_long_is_refused_and_not_carried_out():
    door = Door()
    door.full = True
    door.add(1)
    door.now += MAX_REQUEST_AGE / 2
    door.add(2)
    door.now += MAX_REQUEST_AGE / 2 + 0.1
    door.full = False
    door.end()

    assert door.handled == [2]
    assert [(topic, "waited for 10 s" in text) for topic, text in door.refused] == [(1, True)]


@pytest.mark.parametrize("place", range(REQUESTS_PER_TURN + 1))
def test_a_fault_of_one_request_is_reported_and_ends_no_other(place):
    door = Door()
    for number in range(2 * REQUESTS_PER_TURN):
        door.add(number, b"fault" if number == place else b"")
    door.end()

    assert door.handled == [number for number in range(2 * REQUESTS_PER_TURN) if number != place]
    assert [fault.error for fault in door.faults] == [door.faults[0].error]
    assert isinstance(door.faults[0].error, ZeroDivisionError)


def test_a_queue_that_was_emptied_goes_on(monkeypatch):
    monkeypatch.setattr(request_queue, "REQUESTS_PER_TURN", 1)
    door = Door()
    for number in range(3):
        door.add(number)
        door.end()

    assert door.handled == [0, 1, 2]
