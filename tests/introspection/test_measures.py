"""The families of what is measured: their names keep the rules of Prometheus, and their labels are bounded."""

import re

import pytest

from leadsman.introspection.measures import CIRCUITS, FAMILIES, OF_DEVICES, OF_THE_APP
from leadsman.resilience import breaker


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_name_has_a_prefix_a_base_unit_and_no_suffix_of_a_counter(family):
    assert re.fullmatch(r"leadsman(_[a-z]+)+", family.name)
    assert not family.name.endswith("_total")
    assert not re.search(r"_(ms|millis|minutes|hours|kb|mb)\b", family.name)
    assert set(family.labels) <= {"handler", "outcome", "state", "disposition", "cause", "app", "version", "leadsman"}


def test_each_family_is_of_the_app_or_of_devices():
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)
    assert all("handler" in family.labels for family in OF_DEVICES)
    assert not any("handler" in family.labels for family in OF_THE_APP)


def test_each_state_of_a_circuit_is_a_series():
    states = (breaker.Closed, breaker.Open, breaker.HalfOpen, breaker.Isolated, breaker.Disabled)

    assert {re.sub(r"(?<!^)(?=[A-Z])", "_", state.__name__).lower() for state in states} == set(CIRCUITS)
