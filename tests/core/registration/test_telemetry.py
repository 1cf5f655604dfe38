import asyncio
import inspect
from datetime import timedelta
from typing import get_args

import pytest

from leadsman import (
    UNTIL_NEXT_POLL,
    App,
    CircuitBreaker,
    Cron,
    Delivery,
    ExponentialBackoff,
    Finds,
    FixedBackoff,
    OnChange,
    exponential,
)
from leadsman.core.resilience.policy import DEFAULT_RETRY_ON, from_options
from leadsman.errors import ConfigurationError, InvalidType, InvalidValue


async def read():
    return {}


def registered(**words):
    app = App("app")
    app.add_telemetry("device", read, **words)
    return app.telemetries["device"]


def test_defaults_are_those_of_the_documentation():
    telemetry = registered(interval=30)

    assert telemetry.guards.policy == from_options(
        0, DEFAULT_RETRY_ON, ExponentialBackoff(2.0, 60.0, factor=2.0, jitter=0.2)
    )
    assert telemetry.guards.breaker is None
    assert telemetry.guards.timeout == 30
    assert telemetry.delivery == Delivery(qos=1, retain=True, expiry=None, taken_at=None)
    assert (telemetry.group, telemetry.spread, telemetry.enabled, telemetry.overrun) == (None, None, True, False)
    assert telemetry.stale_after == 120


def test_the_timeout_is_the_interval_but_at_most_a_minute():
    assert registered(interval="25m").guards.timeout == 60
    assert registered(schedule="0 6 * * *").guards.timeout == 60
    assert registered(interval="25m", timeout="2m").guards.timeout == 120
    assert registered(interval="25m", timeout=None).guards.timeout is None


def test_a_device_that_is_polled_many_times_a_second_is_not_stale_within_a_second():
    assert registered(interval=0.02).stale_after == 1.0
    assert registered(interval=0.02, stale_after=0.1).stale_after == 0.1


def test_a_cron_handler_is_stale_after_twice_its_largest_gap():
    assert registered(schedule=Cron("0 */2 * * *", zone="UTC")).stale_after == 4 * 3600


def test_an_empty_retry_on_is_accepted_beside_no_retries_as_both_may_come_of_settings():
    assert registered(interval=30, retry=0, retry_on=()).guards.policy == from_options(0)
    with pytest.raises(InvalidValue, match="retry_on is empty"):
        registered(interval=30, retry=1, retry_on=())


def test_an_explicit_retry_on_replaces_the_default():
    assert registered(interval=30, retry_on=[ValueError]).guards.policy == from_options(0, (ValueError,))


def test_an_adapter_adds_its_transient_errors_to_the_default():
    class BusError(Exception): ...

    class Bus:
        transient_errors = (BusError,)

        async def __aenter__(self): ...

        async def __aexit__(self, *exc_info): ...

    app = App("app", adapters=(Bus(),))

    @app.telemetry("device", interval=30, retry=1)
    async def handler(bus: Bus): ...

    assert app.telemetries["device"].guards.policy == from_options(1, (*DEFAULT_RETRY_ON, BusError))


def test_decorator_and_method_take_the_same_words_from_one_list():
    app, words = App("app"), {"interval": "5m", "retry": 2, "publish": OnChange(0.1), "group": "bus", "spread": "10s"}

    assert app.telemetry("one", **words)(read) is read
    app.add_telemetry("two", read, **words)

    one, two = app.telemetries["one"], app.telemetries["two"]
    assert [getattr(one, slot) for slot in one.__slots__[1:]] == [getattr(two, slot) for slot in two.__slots__[1:]]


@pytest.mark.parametrize("interval", [5, 0.5, "5s", timedelta(seconds=5)])
def test_an_interval_may_be_written_in_many_ways(interval):
    assert registered(interval=interval).interval in (5, 0.5)


WRONG = [
    # words, error, what the message says to write
    ({}, InvalidValue, "interval='60s'"),
    ({"interval": 5, "schedule": "* * * * *"}, InvalidValue, "and not both"),
    ({"interval": 5, "fixed": "interval"}, InvalidType, "a set of options"),
    ({"interval": 5, "fixed": {"intervall"}}, InvalidValue, "did you mean 'interval'"),
    ({"every": 5}, InvalidType, "did you mean 'interval'"),
    ({"interval": 5, "max_attempts": 5}, InvalidType, "did you mean 'retry'"),
    ({"interval": 5, "breaker": 5}, InvalidType, "did you mean 'circuit_breaker'"),
    ({"interval": 5, "title": 5}, InvalidType, "a name for people, such as 'Bathroom'"),
    ({"interval": 5, "area": 5}, InvalidType, "the name of a room or a place, such as 'Attic'"),
    ({"interval": 5, "discoverable": 1}, InvalidType, "True or False"),
    ({"interval": 0}, InvalidValue, "greater than zero"),
    ({"interval": -1}, InvalidValue, "not negative"),
    ({"interval": 0.001}, InvalidValue, "at least"),
    ({"interval": "5"}, InvalidValue, "'5m'"),
    ({"interval": True}, InvalidType, "seconds"),
    ({"interval": None}, InvalidType, "seconds"),
    ({"interval": float("nan")}, InvalidValue, "finite"),
    ({"interval": float("inf")}, InvalidValue, "finite"),
    ({"schedule": 5}, InvalidType, "cron expression"),
    ({"schedule": "every day"}, InvalidValue, "five fields"),
    ({"interval": 5, "retry": -1}, InvalidValue, "0 or more"),
    ({"interval": 5, "retry": 2.5}, InvalidType, "number of retries"),
    ({"interval": 5, "retry": "3"}, InvalidType, "number of retries"),
    ({"interval": 5, "retry": True}, InvalidType, "number of retries"),
    ({"interval": 5, "retry_on": ()}, InvalidValue, "leave it out"),
    ({"interval": 5, "retry_on": "OSError"}, InvalidType, "exception classes"),
    ({"interval": 5, "retry_on": (OSError, asyncio.CancelledError)}, InvalidType, "CancelledError"),
    ({"interval": 5, "retry_on": KeyboardInterrupt}, InvalidType, "KeyboardInterrupt"),
    ({"interval": 5, "backoff": "exponential"}, InvalidType, r"ExponentialBackoff\(\)"),
    ({"interval": 5, "backoff": FixedBackoff}, InvalidType, r"FixedBackoff\(\) with brackets"),
    ({"interval": 5, "backoff": 5}, InvalidType, r"ExponentialBackoff\(\)"),
    ({"interval": 5, "retry": UNTIL_NEXT_POLL, "overrun": "finish"}, InvalidValue, "leave overrun out"),
    ({"interval": 5, "budget": "5"}, InvalidValue, "units"),
    ({"interval": 5, "within": float("nan")}, InvalidValue, "finite"),
    ({"interval": 5, "policy": ExponentialBackoff()}, InvalidType, r"strategy\("),
    ({"interval": 5, "policy": exponential(), "retry": 3}, InvalidType, "policy and retry"),
    ({"interval": 5, "policy": exponential(), "retry_on": OSError}, InvalidType, "policy and retry_on"),
    ({"interval": 5, "policy": exponential(), "backoff": ExponentialBackoff()}, InvalidType, "policy and backoff"),
    ({"interval": 5, "circuit_breaker": 5}, InvalidType, r"CircuitBreaker\(threshold=5\)"),
    ({"interval": 5, "circuit_breaker": True}, InvalidType, r"CircuitBreaker\(threshold=5\)"),
    ({"interval": 5, "circuit_breaker": CircuitBreaker}, InvalidType, "brackets"),
    ({"interval": 5, "publish": "on_change"}, InvalidType, r"OnChange\(\)"),
    ({"interval": 5, "publish": OnChange}, InvalidType, "brackets"),
    ({"interval": 5, "field": 5}, InvalidType, "write a name"),
    ({"interval": 5, "filters": {"t": [round]}}, InvalidType, "is no filter"),
    ({"interval": 5, "on_failure": "explode"}, InvalidValue, "'hold'"),
    ({"interval": 5, "on_failure": print}, InvalidType, "async def"),
    ({"interval": 5, "on_failure": None}, InvalidType, "async def"),
    ({"interval": 5, "timeout": "1"}, InvalidValue, "units"),
    ({"interval": 5, "timeout": 0}, InvalidValue, "greater than zero"),
    ({"interval": 5, "timeout": float("nan")}, InvalidValue, "finite"),
    ({"interval": 5, "overrun": "skip"}, InvalidValue, "'finish'"),
    ({"interval": 5, "delivery": 1}, InvalidType, r"Delivery\("),
    ({"interval": 5, "layout": "flat"}, InvalidValue, "layout is 'flat'; write one of both, fields, json"),
    ({"interval": 5, "offline_on": "failure"}, InvalidValue, "'stale' or 'error'"),
    ({"interval": 5, "throttle": -1}, InvalidValue, "not negative"),
    ({"interval": 5, "fields": {"t": {"nam": "T"}}}, InvalidValue, "did you mean 'name'"),
    ({"interval": 5, "request": "days"}, InvalidValue, "no parameter"),
    ({"interval": 5, "group": ""}, InvalidValue, "'bus'"),
    ({"interval": 5, "group": 5}, InvalidType, "'bus'"),
    ({"interval": 5, "needs": ""}, InvalidValue, "without a comma"),
    ({"interval": 5, "needs": 5}, InvalidType, "a label such as"),
    ({"interval": 5, "spread": -1}, InvalidValue, "not negative"),
    ({"interval": 5, "stale_after": 0}, InvalidValue, "greater than zero"),
    ({"interval": 5, "finds": 100}, InvalidType, r"Finds\("),
    ({"interval": 5, "finds": Finds()}, InvalidValue, "of the type Context"),
    ({"interval": 5, "enabled": "no"}, InvalidType, "True or False"),
    ({"interval": 5, "retries": 3}, InvalidType, "did you mean 'retry'"),
    ({"interval": 5, "colour": 3}, InvalidType, "write one of"),
]


@pytest.mark.parametrize(("words", "error", "hint"), WRONG, ids=[str(words) for words, _, _ in WRONG])
def test_a_wrong_word_is_refused_at_registration_with_what_to_write_instead(words, error, hint):
    with pytest.raises(error, match=hint) as caught:
        registered(**words)

    assert str(caught.value).startswith("telemetry 'device': ")
    assert isinstance(caught.value, ConfigurationError)


def test_every_word_is_tried_wrongly_above():
    (options,) = get_args(inspect.signature(App.add_telemetry).parameters["options"].annotation)

    assert set(options.__annotations__) <= {word for words, _, _ in WRONG for word in words}


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        " a",
        "a/b",
        "a+",
        "#",
        "a\0b",
        "a\nb",
        "\u2028",
        "x" * 201,
        "status",
        "error",
        "introspect",
        "registry",
        "$SYS",
    ],
)
def test_a_name_that_is_no_topic_level_is_refused(name):
    with pytest.raises(InvalidValue, match="device name"):
        App("app").add_telemetry(name, read, interval=5)


@pytest.mark.parametrize("name", [5, b"kitchen"])
def test_a_name_that_is_no_text_is_refused(name):
    with pytest.raises(InvalidType, match="write text"):
        App("app").add_telemetry(name, read, interval=5)


@pytest.mark.parametrize("name", ["kitchen", "Küche 2", "温度", "a.b-c_d"])
def test_any_printable_word_is_a_name(name):
    App("app").add_telemetry(name, read, interval=5)


def test_a_decorator_without_brackets_is_refused_at_once():
    with pytest.raises(InvalidType, match=r"write @app.telemetry\('kitchen', interval='60s'\)"):
        App("app").telemetry(read)


def test_a_name_is_registered_once():
    app = App("app")
    app.add_telemetry("device", read, interval=5)

    with pytest.raises(InvalidValue, match="already registered"):
        app.add_telemetry("device", read, interval=5)


@pytest.mark.parametrize(
    "words",
    [
        {"name": ""},
        {"name": "a/b"},
        {"name": "a#"},
        {"name": "a", "prefix": "a//b"},
        {"name": "a", "prefix": "+/b"},
        {"name": "a", "heartbeat": 0},
        {"name": "a", "mqtt": "http://x"},
        {"name": "a", "instance": "x/y"},
    ],
)
def test_a_wrong_app_is_refused(words):
    with pytest.raises(InvalidValue):
        App(**words)


@pytest.mark.parametrize(
    "words", [{"name": 5}, {"name": "a", "version": 1.0}, {"name": "a", "mqtt": 1883}, {"name": "a", "adapters": 5}]
)
def test_an_app_of_the_wrong_type_is_refused(words):
    with pytest.raises(InvalidType):
        App(**words)


@pytest.mark.parametrize(
    "words",
    [
        {"qos": 2},
        {"qos": True},
        {"taken_at": "json"},
        {"expiry": 0},
        {"keep": "last"},
        {"keep": "newest", "history": "1h"},
        {"history": 0},
    ],
)
def test_a_wrong_delivery_is_refused(words):
    with pytest.raises(InvalidValue):
        Delivery(**words)


def test_no_policy_leaves_the_options_of_retries_as_they_are():
    app = App("house")
    app.add_telemetry("d", lambda: None, interval=1, retry=2, policy=None)
    app.add_telemetry("e", lambda: None, interval=1, retry=2)

    assert app.telemetries["d"].guards == app.telemetries["e"].guards
