"""Options that telemetry, sources and commands share."""

import pytest

from leadsman import CircuitBreaker, Delivery, ExponentialBackoff, FixedBackoff
from leadsman.errors import InvalidType, InvalidValue
from leadsman.registration import options
from leadsman.registration.source import SourceOptions


def test_options_that_are_left_out_have_their_defaults():
    assert options.enabled_of({}) is True
    assert options.delivery_of({}) == Delivery()
    assert options.backoff_of({}) == ExponentialBackoff()
    assert options.publish_of({}) is None
    assert options.breaker_of({}) is None
    assert options.group_of({}) is None
    assert options.title_of({}) is None


def test_options_that_are_given_are_returned_as_they_are():
    breaker, backoff = CircuitBreaker(3), FixedBackoff(5)

    assert options.breaker_of({"circuit_breaker": breaker}) is breaker
    assert options.backoff_of({"backoff": backoff}) is backoff
    assert options.group_of({"group": "bus"}) == "bus"
    assert options.enabled_of({"enabled": False}) is False
    assert options.title_of({"title": "Bad"}) == "Bad"


@pytest.mark.parametrize(
    ("check", "given", "error"),
    [
        (options.enabled_of, {"enabled": 1}, InvalidType),
        (options.delivery_of, {"delivery": {"qos": 1}}, InvalidType),
        (options.backoff_of, {"backoff": ExponentialBackoff}, InvalidType),
        (options.publish_of, {"publish": "always"}, InvalidType),
        (options.breaker_of, {"circuit_breaker": CircuitBreaker}, InvalidType),
        (options.group_of, {"group": 7}, InvalidType),
        (options.group_of, {"group": " "}, InvalidValue),
        (options.title_of, {"title": 7}, InvalidType),
        (options.title_of, {"title": " "}, InvalidValue),
        (options.title_of, {"title": "Bad\n"}, InvalidValue),
    ],
)
def test_an_option_of_the_wrong_type_is_refused(check, given, error):
    with pytest.raises(error):
        check(given)


def test_an_unknown_option_is_refused_with_the_nearest_one():
    options.check_options({"silence": 5}, SourceOptions)
    with pytest.raises(InvalidType, match="did you mean 'silence'"):
        options.check_options({"silense": 5}, SourceOptions)
    with pytest.raises(InvalidType, match="'silence'"):
        options.check_options({"silence": 5}, SourceOptions, frozenset({"silence"}))


def test_a_fault_begins_with_the_kind_and_the_name_of_the_device():
    def refuse(device):
        raise InvalidValue("queue is 0; it is 1 or more")

    with pytest.raises(InvalidValue, match="^command 'boiler': queue is 0"):
        options.labelled("command", "boiler", refuse)
    assert options.labelled("command", "boiler", str.upper) == "BOILER"
    with pytest.raises(InvalidType, match="the device name is 7"):
        options.labelled("command", 7, refuse)
