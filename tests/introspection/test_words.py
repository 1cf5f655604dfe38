"""Registrations in plain English."""

import pytest

from leadsman import App, CircuitBreaker, Delivery, Every, Median, Minimum, OnChange, immediate
from leadsman.testing import Harness


def said(**options):
    app = App("house")
    app.add_telemetry("meter", lambda: None, **({"interval": "2s"} | options))
    return told(app)["meter"]


def told(app):
    """What a running app says in words, by device."""
    with Harness(app) as harness:
        harness.run("1s")
        harness.broker.send("house/introspect", {"sections": ["words"]})
        harness.run("1s")
        (answer,) = harness.broker.messages("house/introspect/response")
    return answer.json["data"]["words"]


def test_a_device_with_few_options_is_said_in_a_few_sentences():
    assert said(delivery=Delivery(expiry="1h")) == [
        "It is polled every 2 s.",
        "A call may take 2 s.",
        "After 8 s without a reading it is stale.",
        "A call that fails is not repeated.",
        "It has no circuit breaker: it is polled however often it fails.",
        "Every reading is published.",
        "Its messages have QoS 1 and are retained, and expire after 1 h.",
    ]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"retry": 3}, "A call that fails is repeated up to 3 times, after 2 s, 4 s and 8 s (±20 %)."),
        ({"retry": 3, "budget": "30s"}, "All waits of an outage take at most 30 s."),
        ({"retry": 3, "within": "5m"}, "No call is repeated later than 5 min after the first failure of an outage."),
        ({"retry": 1, "retry_on": OSError}, "Only these errors are repeated: OSError."),
        ({"retry": 1, "overrun": "finish"}, "A repeated call that comes late delays the next poll."),
        (
            {"policy": immediate().max_retries(2)},
            "A call that fails is repeated: at once, at most 2 times in one poll.",
        ),
        (
            {"circuit_breaker": CircuitBreaker(1)},
            "When 1 poll failed, the circuit opens, and the next poll is left out.",
        ),
        (
            {"circuit_breaker": CircuitBreaker(3, window=9, recovery="5m")},
            "When 3 of the last 9 polls failed, the circuit opens, and no poll is made for 5 min.",
        ),
        ({"circuit_breaker": CircuitBreaker(3, shared="bus")}, "It shares the circuit bus with other devices."),
        ({"on_failure": "hold"}, "When a poll fails for good, it is held until a person releases it."),
        ({"group": "bus"}, "It shares the bus bus: one call at a time."),
        ({"enabled": False}, "It is disabled."),
        (
            {"delivery": Delivery(keep="newest")},
            "Of readings that wait for the broker, its state topic gets the newest.",
        ),
        (
            {"delivery": Delivery(history="7d")},
            "Every reading goes to its history topic too, not retained, and expires after 7 d.",
        ),
        (
            {"publish": OnChange(0.5) | Every("10s")},
            "A reading is published when a value changes by more than 0.5, or when 10 s have passed since.",
        ),
        (
            {"publish": OnChange({"t": "1 %"})},
            "A reading is published when a value changes (t by more than 1 %).",
        ),
        ({"filters": {"t": {"low": [Median(5), Minimum("1h")]}}}, "The filters Median and Minimum make low of t."),
        (
            {"filters": {"t": {"low": [Minimum("1h")]}}},
            "It has a reading when a window of its filters is over, the shortest after 1 h.",
        ),
    ],
)
def test_each_option_has_its_sentence(options, sentence):
    assert sentence in said(**options)


def test_a_source_and_a_command_say_what_they_do():
    app = App("house")

    @app.source("scale", silence="1m", stale_after="5m")
    async def scale():
        yield {}

    @app.command("lamp", queue=3)
    def lamp(payload: str) -> None: ...

    words = told(app)
    assert "After 1 min without a reading it is started again, unless it waits for messages." in words["scale"]
    assert "At most 3 commands may wait; then a further one is refused." in words["lamp"]
