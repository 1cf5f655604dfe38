"""The families of what is measured: their names keep the rules of Prometheus, and their labels are bounded."""

import re
from types import SimpleNamespace

import pytest

from leadsman.core.introspection.added import AddedDocuments
from leadsman.core.introspection.added_measures import AddedMeasures, gauge
from leadsman.core.introspection.measures import (
    BUILD,
    CIRCUITS,
    DROPPED,
    FAMILIES,
    OF_DEVICES,
    OF_THE_APP,
    Measures,
    Sample,
)
from leadsman.core.mqtt.outbox import CAUSES, OnDisk, Outbox
from leadsman.core.resilience import breaker


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


def test_a_part_measures_more_and_what_it_cannot_read_costs_only_itself():
    faults, added = [], AddedDocuments(lambda fault: faults.append((fault.where, str(fault.error))))
    wet, broken = gauge("wet", "Whether it rains.", "handler"), gauge("broken", "Nothing.")
    added.measures.append(lambda: 1 / 0)
    added.measures.append(lambda: AddedMeasures({broken: lambda: 1 / 0}, {wet: {"roof": 1.0}.__getitem__}))
    records = SimpleNamespace(entities={"roof": None, "cellar": None})
    found, _, measures = measured(added=added, records=records)

    assert found[broken] == []
    assert measures.families == (*OF_DEVICES, wet)
    assert measures.of_devices(wet, ["roof", "cellar", "gone"]) == [Sample(("roof",), 1.0)]
    assert [what for _, what in faults] == ["division by zero", "division by zero", "'cellar'"]
    assert all(where.startswith(f"what is measured, {__name__}.test_a_part_measures") for where, _ in faults[:2])
    assert faults[2][0] == "what is measured, builtins.dict.__getitem__"


def test_each_state_of_a_circuit_is_a_series():
    states = (breaker.Closed, breaker.Open, breaker.HalfOpen, breaker.Isolated, breaker.Disabled)

    assert {re.sub(r"(?<!^)(?=[A-Z])", "_", state.__name__).lower() for state in states} == set(CIRCUITS)


def measured(on_disk=None, current=0, added=None, records=None):
    """The samples of an app, by the names of their families."""
    outbox = Outbox()
    outbox.drops["refused"] = 4
    if on_disk is not None:
        outbox.keep(SimpleNamespace(on_disk=on_disk, heads=(), oldest=None))
    link = SimpleNamespace(outbox=outbox, up=True, connects=3, breaks=2, choice=SimpleNamespace(current=current))
    clock = SimpleNamespace(wall=lambda: 1000.0, monotonic=lambda: 5.0, uptime=lambda: 5.0, offset=lambda: 995.0)
    about = SimpleNamespace(name="house", version="1", leadsman="1")
    parts = SimpleNamespace(link=link, added=added or AddedDocuments(None), records=records)
    measures = Measures(about, parts, clock, 0.0)
    found = measures.of_the_app()
    assert added or set(found) == {*OF_THE_APP, BUILD}
    return found, {family.name: samples[0].value for family, samples in found.items() if samples}, measures


def test_dropped_messages_are_measured_by_cause_and_every_cause_has_a_series():
    found, _, _ = measured()

    assert {sample.labels: sample.value for sample in found[DROPPED]} == {
        **{(cause,): 0.0 for cause in CAUSES},
        ("refused",): 4.0,
    }


@pytest.mark.parametrize(("store", "ok"), [("opening", 1), ("ok", 1), ("full", 0), ("locked", 0), ("memory", 0)])
def test_what_is_on_disk_is_measured_and_whether_it_can_be_written(store, ok):
    _, values, _ = measured(OnDisk(store, 7, 5, 3, 2))

    names = ("stored_readings", "replayed", "dead", "store_ok")
    assert [values[f"leadsman_outbox_{name}"] for name in names] == [7, 3, 2, ok]


def test_nothing_on_disk_is_no_fault():
    assert measured()[1]["leadsman_outbox_store_ok"] == 1


@pytest.mark.parametrize(("current", "replacement"), [(0, 0), (1, 1), (2, 1)])
def test_breaks_are_measured_and_whether_a_replacement_is_used(current, replacement):
    _, values, _ = measured(current=current)

    assert (values["leadsman_mqtt_breaks"], values["leadsman_mqtt_replacement"]) == (2, replacement)
