"""What the document says of readings after they were taken. Whole apps have theirs in `tests/integration`."""

from types import SimpleNamespace

import pytest

from leadsman.core.introspection.sections import (
    MAX_COMPARED_FIELDS,
    MAX_VALUE_CHARS,
    away_since,
    compare_fields,
    describe_publication,
    in_outbox,
)
from leadsman.core.loop.clock import Clock
from leadsman.core.mqtt.outbox import Standing
from leadsman.core.mqtt.topic_faults import TopicFault
from leadsman.core.runtime.publisher import Publication

TOPICS = ("house/boiler/state", "house/boiler/history")
CLOCK = Clock(lambda: 100.0, lambda: 1_767_225_700.0, lambda: 50.0)


class Waiting:
    """An outbox in which a topic stands so."""

    def __init__(self, standing):
        self._standing = standing

    def __contains__(self, topic):
        return self._standing.messages > 0

    def standing(self, topic):
        return self._standing


def link(standing=Standing(0, 0, None, None, None), fault=None, **more):
    return SimpleNamespace(outbox=Waiting(standing), fault_of=lambda topic: fault, **more)


def test_nothing_is_said_of_a_device_of_which_nothing_waits():
    assert in_outbox(link(), TOPICS, CLOCK) is None


def test_the_place_and_the_age_in_the_outbox_are_said():
    waiting = in_outbox(link(Standing(3, 1, 4, 20.0, 131.5)), TOPICS, CLOCK)

    assert waiting == {
        "topic": "house/boiler/state",
        "messages": 3,
        "in_flight": 1,
        "topics_before": 4,
        "oldest": 30.0,
        "paused_for": 31.5,
        "refused": None,
    }


def test_a_refusal_is_said_also_when_nothing_waits_any_more():
    waiting = in_outbox(link(fault=TopicFault("over_limit", "refused (0x95)", 90.0, True, 3, 95.0)), TOPICS, CLOCK)

    assert (waiting["messages"], waiting["refused"]) == (0, "refused (0x95)")
    assert waiting["fault"] == {
        "kind": "over_limit",
        "error": "refused (0x95)",
        "since": "2026-01-01T00:01:30.000Z",
        "lost": 3,
        "lost_at": "2026-01-01T00:01:35.000Z",
    }


def test_what_the_outbox_itself_lost_is_no_refusal():
    waiting = in_outbox(link(fault=TopicFault("full", "lost", 90.0, lost=3, lost_at=95.0)), TOPICS, CLOCK)

    assert (waiting["fault"]["kind"], waiting["refused"]) == ("full", None)


def test_a_refusal_of_the_history_is_said_though_the_state_waits_too():
    waiting = in_outbox(
        SimpleNamespace(
            outbox=Waiting(Standing(3, 1, 4, 20.0, None)),
            fault_of={TOPICS[1]: TopicFault("refused", "refused", 90.0)}.get,
        ),
        TOPICS,
        CLOCK,
    )

    assert (waiting["topic"], waiting["refused"]) == (TOPICS[1], "refused")


def test_a_rule_that_published_the_last_reading_compared_nothing():
    assert describe_publication(Publication(1_767_225_600.0, 0, {"t": 1}, None)) == {
        "published_at": "2026-01-01T00:00:00.000Z",
        "suppressed": 0,
    }


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ({"t": 1.0}, {"t": 1.5}, {"t": (1.0, 1.5)}),
        (
            {"air": {"co2": 400, "ok": True}},
            {"air": {"co2": 410, "ok": True}},
            {"air.co2": (400, 410), "air.ok": (True, True)},
        ),
        ({"a": 1}, {"b": 2}, {"a": (1, None), "b": (None, 2)}),
        ({"list": [1, 2]}, {"list": [1, 3]}, {"list": ("[1, 2]", "[1, 3]")}),
        ({}, {}, {}),
    ],
)
def test_the_numbers_that_were_compared_are_side_by_side(before, after, found):
    shown = {name: (each["published"], each["read"]) for name, each in compare_fields(before, after).items()}

    assert shown == found


def test_a_comparison_is_bounded_and_begins_with_what_differs():
    before = {f"f{number:03}": 0 for number in range(200)}

    found = compare_fields(before, before | {"f199": 1, "text": "x" * 1000})

    assert len(found) == MAX_COMPARED_FIELDS
    assert list(found)[:2] == ["f199", "text"]
    assert len(found["text"]["read"]) == MAX_VALUE_CHARS


@pytest.mark.parametrize(
    ("up", "since", "found"),
    [
        (True, 40.0, None),
        (False, None, None),
        (False, 40.0, "2026-01-01T00:00:40.000Z"),
    ],
)
def test_it_is_said_since_when_the_broker_is_away(up, since, found):
    assert away_since(link(up=up, choice=SimpleNamespace(away_since=since)), CLOCK) == found
