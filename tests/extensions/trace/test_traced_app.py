"""What the trace remembers of an outage."""

import json

from tests.integration.test_introspection import asked, strictly

from leadsman import App, CircuitBreaker, ExponentialBackoff
from leadsman.core.introspection.declared import documents_of
from leadsman.extensions.trace.trace import ROWS
from leadsman.testing import Outages, Scripted, fail, hang

READING = {"t": 21.5}


def app_with(handler, **words):
    app = App("app")
    app.add_telemetry("d", handler, **{"interval": "5m", **words})
    return app


def test_an_outage_is_told_row_by_row(harness):
    app = app_with(Scripted(READING, fail(6, OSError(5, "io")), READING), retry=3, backoff=ExponentialBackoff(jitter=0))
    harness(app).run("20m")

    rows = app.trace()

    assert [(row.cycle, row.attempt, row.delay, row.reason) for row in rows] == [
        (0, 1, 2, "retry"),
        (0, 2, 4, "retry"),
        (0, 3, 8, "retry"),
        (0, 4, None, "count"),
        (1, 1, 16, "retry"),
        (1, 2, 32, "retry"),
        (None, None, None, "recovered"),
    ]
    assert rows[0].error_type == "OSError"
    assert "in __call__" in rows[0].traceback
    assert rows[0].policy.startswith("retry=3, backoff=ExponentialBackoff(")
    assert [row.number for row in rows] == [1, 2, 3, 4, 5, 6, 7]


def test_the_moves_of_a_circuit_and_its_probes_are_rows_of_the_outage(harness):
    app = app_with(Outages(READING, [("0s", "14m")]), circuit_breaker=CircuitBreaker(1))
    harness(app).run("30m")

    assert [(row.reason, row.breaker) for row in app.trace("d")] == [
        ("count", "closed"),
        ("circuit open", None),
        ("circuit half_open", None),
        ("probe", "half_open"),
        ("circuit open", None),
        ("circuit half_open", None),
        ("circuit closed", None),
        ("recovered", None),
    ]


def test_a_call_that_hangs_is_in_the_trace_too(harness):
    app = app_with(Scripted(hang(stubborn=True), READING), timeout="5s")
    harness(app).run("2m")

    assert app.trace()[0].reason == "failed"
    assert "Abandoned" in [row.error_type for row in app.trace()]


def test_only_the_latest_rows_are_kept(harness):
    app = app_with(Scripted(fail(9999)), interval="1s")
    harness(app).run("10m")

    rows = app.trace()

    assert len(rows) == ROWS
    assert rows[-1].number - rows[0].number == ROWS - 1


def test_an_app_in_which_nothing_fails_has_no_trace(harness):
    app = app_with(Scripted(READING))
    harness(app).run("1h")

    assert app.trace() == []


def test_a_failed_command_is_no_row_of_the_device(harness):
    app = app_with(Scripted(READING))

    @app.command("d")
    async def switch(payload: dict):
        raise OSError("no")

    running = harness(app)
    running.at("5s", lambda: running.broker.send("app/d/set", b"{}"))
    running.run("10m")

    assert app.trace() == []


def test_the_trace_is_a_section_of_introspection_for_whoever_names_it(harness):
    app = App("house")
    app.add_telemetry("d", Scripted(fail(99)), interval="5m", retry=1, on_failure="hold")
    running = harness(app)
    running.run("1m")

    assert "trace" not in asked(running)["data"]
    data = strictly(documents_of().introspection, asked(running, b'{"sections": ["trace"]}')["data"])
    assert [row["reason"] for row in data["trace"]] == ["retry", "count", "held"]
    assert [row["number"] for row in asked(running, b'{"sections": ["trace"], "after": 2}')["data"]["trace"]] == [3]
    assert asked(running, b'{"sections": ["trace"], "since": 9e9}')["data"]["trace"] == []
    for wrong in ({"after": -1}, {"after": "x"}, {"since": True}, {"until": 3}):
        assert asked(running, json.dumps({"sections": ["trace"], **wrong}).encode())["status"] == "error"


def test_no_password_and_no_escape_sequence_gets_into_the_trace(harness):
    app = app_with(Scripted(fail(1, OSError("mqtt://ann:hunter2@x password=hunter2 \x1b[31m"))))
    harness(app).run("1m")

    assert "hunter2" not in str(app.trace())
    assert "\x1b" not in app.trace()[0].traceback
