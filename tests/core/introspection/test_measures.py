"""The families of what is measured: their names keep the rules of Prometheus, and their labels are bounded."""

import re
from types import SimpleNamespace

import pytest

from leadsman.core.introspection.measures import (
    BUILD,
    CIRCUITS,
    DROPPED,
    FAMILIES,
    NODES,
    OF_DEVICES,
    OF_THE_APP,
    Measures,
)
from leadsman.core.mqtt.outbox import CAUSES, OnDisk, Outbox
from leadsman.core.resilience import breaker
from leadsman.extensions.nodes.brief import STATES


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_name_has_a_prefix_a_base_unit_and_no_suffix_of_a_counter(family):
    assert re.fullmatch(r"leadsman(_[a-z]+)+", family.name)
    assert not family.name.endswith("_total")
    assert not re.search(r"_(ms|millis|minutes|hours|kb|mb)\b", family.name)
    assert set(family.labels) <= {"handler", "outcome", "state", "disposition", "cause", "app", "version", "leadsman"}


def test_each_family_is_of_the_app_or_of_devices():
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)
    assert all("handler" in family.labels for family in OF_DEVICES)
    assert not any("handler" in family.labels for family in (*OF_THE_APP, BUILD))


def test_each_state_of_a_circuit_is_a_series():
    states = (breaker.Closed, breaker.Open, breaker.HalfOpen, breaker.Isolated, breaker.Disabled)

    assert {re.sub(r"(?<!^)(?=[A-Z])", "_", state.__name__).lower() for state in states} == set(CIRCUITS)


def measured(on_disk=None, current=0, nodes=None):
    """The samples of an app, by the names of their families."""
    outbox = Outbox()
    outbox.drops["refused"] = 4
    if on_disk is not None:
        outbox.keep(SimpleNamespace(on_disk=on_disk, heads=(), oldest=None))
    link = SimpleNamespace(outbox=outbox, up=True, connects=3, breaks=2, choice=SimpleNamespace(current=current))
    clock = SimpleNamespace(wall=lambda: 1000.0, monotonic=lambda: 5.0, uptime=lambda: 5.0, offset=lambda: 995.0)
    about = SimpleNamespace(name="house", version="1", leadsman="1")
    found = Measures(about, SimpleNamespace(link=link, watching=None, nodes=nodes), clock, 0.0).of_the_app()
    assert set(found) == {*OF_THE_APP, BUILD}
    return found, {family.name: samples[0].value for family, samples in found.items() if samples}


def test_dropped_messages_are_measured_by_cause_and_every_cause_has_a_series():
    found, _ = measured()

    assert {sample.labels: sample.value for sample in found[DROPPED]} == {
        **{(cause,): 0.0 for cause in CAUSES},
        ("refused",): 4.0,
    }


@pytest.mark.parametrize(("store", "ok"), [("opening", 1), ("ok", 1), ("full", 0), ("locked", 0), ("memory", 0)])
def test_what_is_on_disk_is_measured_and_whether_it_can_be_written(store, ok):
    _, values = measured(OnDisk(store, 7, 5, 3, 2))

    names = ("stored_readings", "replayed", "dead", "store_ok")
    assert [values[f"leadsman_outbox_{name}"] for name in names] == [7, 3, 2, ok]


def test_nodes_are_counted_by_what_they_are_and_an_app_that_runs_alone_has_none():
    assert "leadsman_nodes" not in measured()[1]
    found, _ = measured(nodes=lambda: [{"state": "active"}, {"state": "standby"}, {"state": "standby"}])

    counts = {sample.labels: sample.value for sample in found[NODES]}
    assert counts == {(state,): {"active": 1.0, "standby": 2.0}.get(state, 0.0) for state in STATES}


def test_nothing_on_disk_is_no_fault():
    assert measured()[1]["leadsman_outbox_store_ok"] == 1


@pytest.mark.parametrize(("current", "replacement"), [(0, 0), (1, 1), (2, 1)])
def test_breaks_are_measured_and_whether_a_replacement_is_used(current, replacement):
    _, values = measured(current=current)

    assert (values["leadsman_mqtt_breaks"], values["leadsman_mqtt_replacement"]) == (2, replacement)
