"""How registrations are shown: by check and inspect, in introspection, and in the trace."""

import json

import pytest

from leadsman import (
    App,
    CircuitBreaker,
    Every,
    FixedBackoff,
    Mean,
    Median,
    OnChange,
    exponential,
    immediate,
    is_a,
    prop,
)
from leadsman.testing import Scripted, fail
from leadsman_rigs.stage import inspected


def app_of(**words):
    app = App("app", mqtt="mqtt://nowhere")
    app.add_telemetry("d", Scripted({}), **{"interval": "1m", **words})
    return app


def cells(capsys, app):
    """What the table says of the first device, by the heads of its columns."""
    heads, rule, row, *_ = inspected(app, capsys).partition("\n\n")[2].splitlines()
    starts = [place for place in range(len(rule)) if rule[place] == "-" and (place == 0 or rule[place - 1] == " ")]
    ends = [*starts[1:], None]
    return {heads[a:b].strip(): row[a:b].strip() for a, b in zip(starts, ends, strict=True)}


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ({"retry": 3}, "3 on OSError, TransientError"),
        ({"retry": 3, "budget": "5m", "within": "1h"}, "3 on OSError, TransientError, budget 5m, within 1h"),
        ({}, "none"),
        ({"policy": "serial"}, "serial"),
        ({"policy": immediate().max_retries(3)}, "{countBox: {maxRetries: 3, inner: immediate}}"),
        (
            {"policy": exponential().only_when(prop("errno") == 5).max_retries(3)},
            "{countBox: {maxRetries: 3, inner: {filteredOn: {predicate: …",
        ),
    ],
)
def test_a_table_shows_retries_as_they_are_written(capsys, words, shown):
    assert cells(capsys, app_of(**words))["retries"] == shown


def test_a_table_names_the_policies_of_the_settings_that_a_handler_takes(capsys, tmp_path, monkeypatch):
    asked = "predicate: {propEq: {property: errno, value: 5}}"
    policies = f"{{rest: never, other: never, radio: {{priority: 5, {asked}, policy: immediate}}}}"
    (tmp_path / "leadsman.yaml").write_text(f"retry: {{policy: {policies}}}")

    monkeypatch.chdir(tmp_path)

    shown = cells(capsys, app_of())["retries"]

    assert (
        shown == "radio where {propEq: {property: errno, value: 5}}, other"
    )  # "rest" comes after a policy that takes every error


def test_a_source_is_restarted_whatever_becomes_of_it(capsys):
    app = App("app", mqtt="mqtt://nowhere")

    @app.source("s", backoff=FixedBackoff(5))
    async def s():
        yield {}

    assert cells(capsys, app)["retries"] == "restarted"
    told = json.loads(inspected(app, capsys, "--json"))["devices"]["s"]["registrations"][0]
    assert told["backoff"] == "FixedBackoff(delay=5.0, max_delay=None, jitter=0.2)"
    assert "retry" not in told


def test_a_table_shows_what_is_published_and_shared_and_how_long_it_is_fresh(capsys):
    breaker = CircuitBreaker(4, shared="bus", ignore=(ValueError, KeyError))
    app = app_of(
        publish=OnChange(0.5) | Every("5m", n=3),
        group="bus",
        circuit_breaker=breaker,
        stale_after="10m",
        throttle="30s",
    )

    shown = cells(capsys, app)

    assert shown["publish"] == "OnChange(0.5) | Every('5m', n=3)"
    assert shown["group"] == "bus"
    assert shown["stale after"] == "10m"
    assert shown["throttle"] == "30s"
    assert shown["breaker"] == "after 4, shared bus, ignores ValueError, KeyError"


def test_a_column_that_says_nothing_of_any_device_is_left_out(capsys):
    assert set(cells(capsys, app_of())) == {"device", "kind", "when", "retries", "timeout", "stale after"}


@pytest.mark.parametrize(
    ("rule", "shown"),
    [
        (OnChange(), "OnChange()"),
        (OnChange(fields={"air.co2": 50}), "OnChange(fields={'air.co2': 50})"),
        (OnChange("2%", fields={"co2": "1 %"}), "OnChange('2 %', fields={'co2': '1 %'})"),
        ((OnChange(2) | Every(n=9)) & Every("1m"), "(OnChange(2) | Every(n=9)) & Every('1m')"),
    ],
)
def test_a_publish_rule_is_shown_as_it_is_written(rule, shown, capsys):
    found = json.loads(inspected(app_of(publish=rule), capsys, "--json"))["devices"]["d"]

    assert found["registrations"][0]["publish"] == shown


def test_filters_are_shown_in_their_order_with_the_shortest_window(capsys):
    filters = {"t": [Median(5), Mean("1h")], "w": {"low": [Mean("5m")]}}

    told = json.loads(inspected(app_of(filters=filters), capsys, "--json"))["devices"]["d"]["registrations"][0]

    assert told["filters"] == {"t": ["Median(readings=5)", "Mean(window=3600.0)"], "low of w": ["Mean(window=300.0)"]}
    assert told["window"] == 300


def test_no_document_shows_a_policy_as_python_shows_its_objects(harness, capsys):
    app = app_of(
        policy=exponential().only_when(is_a(OSError) | (prop("errno") == 5)),
        circuit_breaker=CircuitBreaker(ignore=ValueError),
    )
    app.add_telemetry("failing", Scripted(fail(1, ValueError()), {}), interval="1m", policy="http")
    running = harness(app)
    running.run("1m")

    told = json.loads(inspected(app, capsys, "--json"))["devices"]
    (row, *_) = running.app.trace("failing")

    assert told["d"]["registrations"][0]["circuit_breaker"]["ignore"] == ["ValueError"]
    assert told["d"]["registrations"][0]["policy"].startswith("{filteredOn: {predicate: {or: [{propEq: ")
    assert told["failing"]["registrations"][0]["policy_name"] == "http"
    assert row.policy == "http"
    assert "FilteredOn(" not in json.dumps(told)
