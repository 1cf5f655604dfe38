"""Options that telemetry, sources and commands share."""

import pytest

from leadsman import App, CircuitBreaker, Delivery, ExponentialBackoff, FixedBackoff, OnChange
from leadsman.errors import InvalidType, InvalidValue


async def read(): ...


async def stream():
    yield {"t": 1}


def telemetry(**options):
    app = App("app")
    app.add_telemetry("radio", read, interval=60, **options)
    return app.telemetries["radio"]


def source(**options):
    app = App("app")
    app.add_source("radio", stream, **options)
    return app.sources["radio"]


@pytest.mark.parametrize("register", [telemetry, source])
def test_options_that_are_left_out_have_their_defaults(register):
    found = register()

    assert (found.enabled, found.delivery, found.publish, found.title) == (True, Delivery(), None, None)
    assert (found.area, found.discoverable) == (None, True)
    assert found.guards.breaker is None
    assert getattr(found, "group", None) is None


@pytest.mark.parametrize("register", [telemetry, source])
def test_options_that_are_given_are_taken_as_they_are(register):
    breaker, rule, delivery = CircuitBreaker(3), OnChange(), Delivery(expiry="1h")
    found = register(circuit_breaker=breaker, publish=rule, delivery=delivery, enabled=False, title="Bad", area="Attic")

    assert (found.guards.breaker, found.publish) == (breaker, rule)
    assert found.delivery is delivery
    assert (found.enabled, found.title, found.area) == (False, "Bad", "Attic")


def test_a_group_and_a_backoff_are_taken_as_they_are():
    assert telemetry(group="bus").group == "bus"
    assert telemetry().group is None
    assert telemetry(retry=1, backoff=FixedBackoff(5)).guards.policy != telemetry(retry=1).guards.policy


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"enabled": 1}, InvalidType),
        ({"delivery": {"qos": 1}}, InvalidType),
        ({"backoff": ExponentialBackoff}, InvalidType),
        ({"publish": "always"}, InvalidType),
        ({"circuit_breaker": CircuitBreaker}, InvalidType),
        ({"group": 7}, InvalidType),
        ({"group": " "}, InvalidValue),
        ({"title": 7}, InvalidType),
        ({"title": " "}, InvalidValue),
        ({"title": "Bad\n"}, InvalidValue),
        ({"area": 7}, InvalidType),
        ({"area": ""}, InvalidValue),
        ({"discoverable": None}, InvalidType),
    ],
)
def test_an_option_of_the_wrong_type_is_refused(given, error):
    with pytest.raises(error, match=f"telemetry 'radio': .*{next(iter(given))}"):
        telemetry(**given)


def test_an_unknown_option_is_refused_with_the_nearest_one():
    source(silence=5)
    with pytest.raises(InvalidType, match="did you mean 'silence'"):
        source(silense=5)


def test_a_fault_begins_with_the_kind_and_the_name_of_the_device():
    async def take(value: int): ...

    with pytest.raises(InvalidValue, match="^command 'boiler': queue is 0"):
        App("app").add_command("boiler", take, queue=0)
    with pytest.raises(InvalidType, match="the device name is 7"):
        App("app").add_command(7, take)
