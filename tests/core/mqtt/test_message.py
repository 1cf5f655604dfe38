import pytest

from leadsman import Delivery
from leadsman.core.mqtt.message import Message
from leadsman.errors import InvalidType, InvalidValue


def test_the_size_of_a_message_counts_its_payload_and_its_topic():
    assert Message("a/b", b"12345").size == Message("a/b", b"").size + 5
    assert Message("a/b/c", b"").size == Message("a/b", b"").size + 2


def test_a_delivery_holds_its_expiry_in_seconds():
    assert Delivery(expiry="1h").expiry == 3600.0


@pytest.mark.parametrize(
    ("options", "newest"),
    [({}, False), ({"keep": "newest"}, True), ({"history": "7d"}, True), ({"keep": "all"}, False)],
)
def test_the_state_has_only_the_newest_if_that_is_asked_for_or_the_history_has_a_topic_of_its_own(options, newest):
    assert Delivery(**options).newest is newest


@pytest.mark.parametrize(
    ("options", "error", "advice"),
    [
        ({"qos": 2}, InvalidValue, "0 or 1"),
        ({"qos": True}, InvalidValue, "0 or 1"),
        ({"retain": "yes"}, InvalidType, "True or False"),
        ({"expiry": -1}, InvalidValue, "expiry"),
        ({"taken_at": "json"}, InvalidValue, "'payload' or None"),
        ({"keep": "latest"}, InvalidValue, "'all' or 'newest'"),
        ({"keep": True}, InvalidValue, "'all' or 'newest'"),
        ({"keep": "newest", "history": "1h"}, InvalidValue, "leave keep out"),
        ({"history": 0}, InvalidValue, "history"),
        ({"history": True}, InvalidType, "history"),
    ],
)
def test_a_delivery_that_cannot_be_is_refused_with_what_it_may_be(options, error, advice):
    with pytest.raises(error, match=advice):
        Delivery(**options)
