"""What stays together when several nodes share the devices of an app."""

import random
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman import App, CircuitBreaker
from leadsman.errors import ConfigurationError
from leadsman.extensions.nodes.cluster.bundles import Bundle, bundles_of


def bundles(app: App) -> list[Bundle]:
    return bundles_of(app.setup.registry.everything)


async def read() -> dict[str, int]:
    return {"t": 1}


async def push() -> AsyncIterator[dict[str, int]]:
    yield {"t": 1}


def test_a_device_alone_is_known_by_its_name() -> None:
    app = App("house")
    app.add_telemetry("boiler", read, interval=1)
    assert bundles(app) == [Bundle("boiler", ("boiler",), frozenset())]


def test_a_device_and_its_command_stay_together_and_need_what_both_need() -> None:
    app = App("house")
    app.add_source("valve", push, needs="ble")
    app.add_command("valve", read, needs=["serial:/dev/ttyUSB0"])
    assert bundles(app) == [Bundle("valve", ("valve",), frozenset({"ble", "serial:/dev/ttyUSB0"}))]


def test_the_members_of_a_group_and_of_a_shared_circuit_stay_together() -> None:
    app, circuit = App("house"), CircuitBreaker(threshold=3, shared="hub")
    app.add_telemetry("a", read, interval=1, group="bus")
    app.add_telemetry("b", read, interval=1, group="bus", circuit_breaker=circuit)
    app.add_source("c", push, circuit_breaker=circuit, needs="ble")
    app.add_command("d", read, group="bus")
    app.add_periodic("e", read, interval=1)
    together = Bundle("circuit hub", ("a", "b", "c", "d"), frozenset({"ble"}))
    assert bundles(app) == [together, Bundle("e", ("e",), frozenset())]


@given(st.lists(st.tuples(st.integers(0, 9), st.none() | st.sampled_from("xyz")), max_size=12), st.randoms())
def test_every_device_is_in_one_bundle_whatever_the_order(
    given_groups: list[tuple[int, str | None]], dice: random.Random
) -> None:
    app, names = App("house"), set()
    for number, group in given_groups:
        if number not in names:
            names.add(number)
            app.add_telemetry(str(number), read, interval=1, group=group)
    registered = app.setup.registry.everything
    shuffled = registered.copy()
    dice.shuffle(shuffled)
    found = bundles_of(registered)
    assert found == bundles_of(shuffled)
    assert sorted(name for each in found for name in each.devices) == sorted(map(str, names))


@pytest.mark.parametrize("needs", [1, [1], "", "a,b", ["x" * 129], "a\n"])
def test_a_wrong_label_is_named(needs: object) -> None:
    app = App("house")
    with pytest.raises(ConfigurationError, match="telemetry 'boiler': needs"):
        app.add_telemetry("boiler", read, interval=1, needs=needs)  # type: ignore[arg-type]  # that is what is tested
