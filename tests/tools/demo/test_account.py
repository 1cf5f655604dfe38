"""What the demo counts, and the lines of what its broker has."""

import json

import pytest

from leadsman import Received
from leadsman.tools.demo.demo import Account


def document(away=False, **devices):
    """What the app answers: of each device what was handed over, and what waits."""
    return {
        "mqtt": {"connected": not away},
        "devices": {
            name: {"runtime": {"counters": {"published": published}, "outbox": {"messages": waits}}}
            for name, (published, waits) in devices.items()
        },
    }


def heard(account, topic, payload, taken_at=None, *, retain=False):
    text = payload if isinstance(payload, str) else json.dumps(payload)
    return account.hear(Received(f"leadsman-demo/{topic}", text.encode(), retain=retain, taken_at=taken_at))


def test_a_reading_that_arrives_twice_counts_once_and_one_that_does_not_arrive_is_missing():
    account = Account()
    account.update(document(meter=(3, 0), load=(1, 0), disk=(2, 0)))
    for device, at in [
        ("meter", "08:01"),
        ("meter", "08:02"),
        ("meter", "08:02"),
        ("load", "08:01"),
        ("disk", "08:01"),
    ]:
        heard(account, f"{device}/state", {"watts": 1.0}, at)

    assert account.arrived == 4
    assert account.missing == 2


def test_of_one_device_what_was_not_yet_answered_makes_up_for_nothing_that_another_one_misses():
    account = Account()
    account.update(document(meter=(1, 0), load=(2, 0)))
    for at in ("08:01", "08:02", "08:03"):
        heard(account, "meter/state", {}, at)

    assert account.missing == 2


def test_without_the_time_of_a_reading_each_message_counts():
    account = Account()
    heard(account, "meter/state", {"watts": 1.0})
    heard(account, "meter/state", {"watts": 1.0})

    assert account.arrived == 2


def test_what_the_broker_kept_from_an_earlier_demo_is_no_reading_of_this_one():
    account = Account()

    assert heard(account, "meter/state", {"watts": 1.0}, "08:01", retain=True) is None
    assert account.arrived == 0


def test_what_waits_and_whether_the_broker_is_away_are_known_from_the_app():
    account = Account()
    before = account.away, account.waiting, account.missing
    account.update(document(away=True, meter=(5, 3), load=(1, 1)))

    assert before == (False, 0, 0)
    assert (account.away, account.waiting) == (True, 4)


@pytest.mark.parametrize(
    ("topic", "payload", "line"),
    [
        ("meter/state", {"watts": 998.7}, "meter      watts 998.7"),
        ("meter/availability", "offline", "meter      offline"),
        (
            "status",
            {"state": "online", "health": "ok", "devices": {"meter": {"status": "ok"}, "disk": {"status": "stale"}}},
            "heartbeat  online, ok: meter ok, disk stale",
        ),
        ("status", {"state": "offline", "health": "degraded"}, "heartbeat  offline, degraded: "),
        ("meter/error", {"event": "onset"}, None),
        ("registry", {"devices": {}}, None),
    ],
)
def test_a_message_that_is_worth_it_is_a_line(topic, payload, line):
    assert heard(Account(), topic, payload) == line
