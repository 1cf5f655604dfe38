"""What Prometheus gets: the names, the values, and the dashboard and the alerts that are made for them."""

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import pytest
import yaml
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families
from tests.extensions.http.conftest import house_app

from leadsman.core.introspection import measures
from leadsman.core.introspection.added_measures import gauge
from leadsman.core.introspection.measures import OF_THE_APP, Sample
from leadsman.extensions.http.metrics import Exposition
from leadsman.extensions.ledger.ledger import DISPOSITIONS
from leadsman.extensions.ledger.measures import AVAILABILITY, EVENTS, SLOTS

GRAFANA = Path(__file__).parents[3] / "docs" / "grafana"
OF_DEVICES = (*measures.OF_DEVICES, SLOTS, EVENTS, AVAILABILITY)
LAG = gauge("loop_lag_seconds", "Largest delay of the event loop in the last ten seconds.")
FAMILIES = (*measures.OF_THE_APP, LAG, measures.BUILD, *OF_DEVICES)
"""Those of an app that runs alone."""
NODES = gauge("nodes", "Nodes that share the app, by their state.", "state")
FINAL = [word for word in DISPOSITIONS if word != "buffered"]
"""What may become of a slot in the end."""
DASHBOARD, ALERTS = GRAFANA / "leadsman.json", GRAFANA / "alerts.yml"


def scraped(run, app=None):
    """The samples of a scrape: their values by name and labels; and the text."""

    async def scrape(house):
        await house.polled()
        return await house.get("/metrics")

    response = run(scrape, app)
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = list(text_string_to_metric_families(response.text))
    samples = {(each.name, *each.labels.values()): each.value for family in families for each in family.samples}
    return families, samples, response.text


def test_a_scrape_says_how_devices_and_the_connection_are(run):
    _, samples, _ = scraped(run)

    assert samples["leadsman_runs_total", "boiler", "ok"] == 1
    assert samples["leadsman_runs_total", "door", "failed"] == 1
    assert (samples["leadsman_device_ok", "boiler"], samples["leadsman_device_ok", "door"]) == (1, 0)
    assert samples["leadsman_breaker_state", "boiler", "closed"] == 1
    assert samples["leadsman_breaker_state", "boiler", "open"] == 0
    slots = {key[1:]: value for key, value in samples.items() if key[0] == "leadsman_slots_total"}
    others = {(word, name): 0 for word in FINAL for name in ("boiler", "door")}  # a source has none
    assert slots == {**others, ("published", "boiler"): 1, ("failed", "door"): 1}
    assert samples["leadsman_availability_ratio", "boiler"] == 1
    assert samples["leadsman_availability_ratio", "door"] == 0
    assert samples["leadsman_mqtt_connected",] == 1
    assert (samples["leadsman_mqtt_breaks_total",], samples["leadsman_mqtt_replacement",]) == (0, 0)
    dropped = {key[1]: value for key, value in samples.items() if key[0] == "leadsman_outbox_dropped_total"}
    assert dropped == dict.fromkeys(("full", "expired", "too_large", "refused", "damaged", "fenced"), 0)
    stored = ("replayed_total", "dead_total")
    assert [samples[f"leadsman_outbox_{name}",] for name in stored] == [0, 0]
    assert [
        value for key, value in samples.items() if key[0] == "leadsman_build_info" and {"house", "1.2"} <= {*key}
    ] == [1]
    assert samples["leadsman_last_success_timestamp_seconds", "door"] == 0  # so that an alert on its age sees it
    assert samples["leadsman_last_success_timestamp_seconds", "boiler"] > 1.7e9


def test_each_family_is_there_once_with_the_labels_that_it_may_have(run):
    families, _, text = scraped(run, house_app(120))
    families = [each for each in families if each.name.startswith("leadsman")]
    expected = {family.name: set(family.labels) for family in FAMILIES} | {
        EVENTS.name: set(),
    }

    assert sorted(each.name for each in families) == sorted(expected)
    for each in families:
        assert {label for sample in each.samples for label in sample.labels} == expected[each.name]
        assert each.documentation
    assert (
        len({sample.labels["handler"] for each in families for sample in each.samples if "handler" in sample.labels})
        == 123
    )
    assert len(re.findall(r"^# TYPE leadsman", text, re.MULTILINE)) == len(FAMILIES)


def test_a_device_that_only_takes_commands_has_no_last_success(run):
    app = house_app()

    @app.command("light")
    async def light(payload: bytes) -> None:
        pass

    _, samples, _ = scraped(run, app)

    assert samples["leadsman_device_ok", "light"] == 1
    assert ("leadsman_last_success_timestamp_seconds", "light") not in samples


def test_a_scrape_counts_the_events_of_a_device_and_gives_it_no_slots(run):
    app = house_app()

    @app.event("bell")
    async def bell() -> AsyncIterator[Literal["ring"]]:
        yield "ring"
        yield "ring"
        await asyncio.sleep(3600)

    _, samples, _ = scraped(run, app)

    events = {key[1:]: value for key, value in samples.items() if key[0] == "leadsman_events_total"}
    words = {"published": 2, "replayed": 0, "suppressed": 0, "dropped": 0}
    assert events == {(word, "bell"): value for word, value in words.items()}
    of_bell = {key[0] for key in samples if "bell" in key}
    assert not of_bell & {"leadsman_slots_total", "leadsman_availability_ratio"}


def test_a_scrape_says_what_the_process_takes(run):
    _, samples, _ = scraped(run)

    assert samples["process_resident_memory_bytes",] > 1e6
    assert samples["process_start_time_seconds",] > 1.7e9
    assert samples["process_cpu_seconds_total",] > 0
    assert samples["process_open_fds",] > 3


def test_a_turn_of_the_loop_writes_few_lines_however_many_samples_a_device_has():
    devices = [f"d{number}" for number in range(100)]

    def of_devices(family, names):
        return [Sample((name, word), 0.0) for name in names for word in FINAL] if family is SLOTS else []

    of_the_app = dict.fromkeys(OF_THE_APP, ())
    measured = SimpleNamespace(
        devices=devices, families=OF_DEVICES, of_the_app=lambda: of_the_app, of_devices=of_devices
    )
    text = Exposition(measured)
    lines = [b"".join(text.end()).count(b"\nleadsman_slots_total{") for _ in text.write()]

    assert lines[-1] == 100 * len(FINAL)
    assert max(after - before for before, after in pairwise(lines)) < 120


def test_nothing_is_registered_for_the_whole_process(run):
    before = set(REGISTRY._names_to_collectors)
    scraped(run)

    assert set(REGISTRY._names_to_collectors) == before


def test_without_the_client_it_is_said_what_to_install(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "leadsman.extensions.http.metrics", None)
    response = run(lambda house: house.get("/metrics"))

    assert response.status_code == 404
    assert "leadsman[metrics]" in response.json()["detail"]


def test_what_writes_it_is_imported_with_the_first_scrape(run, monkeypatch):
    monkeypatch.delitem(sys.modules, "leadsman.extensions.http.metrics", raising=False)

    async def scrape(house):
        await house.get("/introspect")
        before = "leadsman.extensions.http.metrics" in sys.modules
        await house.get("/metrics")
        return before, "leadsman.extensions.http.metrics" in sys.modules

    assert run(scrape) == (False, True)


def expressions(value):
    """The queries of a dashboard."""
    if isinstance(value, dict):
        for key, each in value.items():
            if key in ("expr", "query", "definition") and isinstance(each, str):
                yield from [each] if each != "prometheus" else []
            else:
                yield from expressions(each)
    elif isinstance(value, list):
        for each in value:
            yield from expressions(each)


@pytest.mark.parametrize("file", [DASHBOARD, ALERTS], ids=["dashboard", "alerts"])
def test_queries_are_about_metrics_and_labels_that_exist(file):
    known = {
        family.name + ("_total" if family.kind == "counter" else ""): family.labels for family in (*FAMILIES, NODES)
    }
    queries = list(expressions(yaml.safe_load(file.read_text())))  # JSON is YAML

    assert len(queries) > 6
    for query in queries:
        names = re.findall(r"leadsman_\w+", query)
        assert names or query.startswith("up{"), query
        assert set(names) <= set(known), query
        for name, matchers in re.findall(r"(leadsman_\w+)\{([^}]*)\}", query):
            labels = re.findall(r"(\w+)\s*!?=~?", matchers)
            assert set(labels) <= {*known[name], "instance", "job"}, query


def test_the_dashboard_shows_every_family_of_devices():
    text = DASHBOARD.read_text()

    assert all(re.search(rf"{family.name}(_total)?\b", text) for family in OF_DEVICES)


def test_every_panel_of_the_dashboard_has_a_place_and_a_query():
    panels = [each for each in json.loads(DASHBOARD.read_text())["panels"] if each["type"] != "row"]

    assert all(each["targets"] and each["title"] for each in panels)
    places = [(each["gridPos"]["x"], each["gridPos"]["y"]) for each in panels]
    assert len(set(places)) == len(places)
    assert all(each["gridPos"]["x"] + each["gridPos"]["w"] <= 24 for each in panels)
