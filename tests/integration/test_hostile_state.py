"""Whatever a row of the failure state says, it costs only its own device: the polls begin, and what the app says of
itself can be sent."""

import json
import shutil
import sqlite3
from contextlib import closing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leadsman import App, CircuitBreaker
from leadsman.testing import Harness
from leadsman_rigs.examples import examples
from leadsman_rigs.hostile import payloads


def house():
    app = App("house", keep_state=True)

    @app.telemetry("fails", interval="10s", retry=1, circuit_breaker=CircuitBreaker(3))
    async def fails():
        raise OSError("no answer")

    @app.telemetry("held", interval="10s")
    async def held():
        return {"t": 1}

    @app.telemetry("works", interval="1s")
    async def works():
        return {"t": 1}

    return app


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The state that an app leaves, when it ends, and the documents in it: by table, row and column."""
    state = tmp_path_factory.mktemp("written")
    with Harness(house(), state_directory=state) as harness:
        harness.run("2m")
        harness.broker.send("house/held/hold/set", b'{"by": "anna"}')
        harness.run("2h")
        wall = harness.loop.wall_time()
    found = {}
    with closing(sqlite3.connect(state / "resilience.db")) as database:
        for (table,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall():
            rows = database.execute(f"SELECT * FROM {table}")
            columns = [each[0] for each in rows.description]
            for row in rows.fetchall():
                for column, value in zip(columns, row, strict=True):
                    if isinstance(value, str | bytes) and value[:1] in ("{", "[", b"{", b"["):
                        found[table, columns[0], row[0], column] = value
    return state, wall, found


@pytest.mark.slow
@pytest.mark.timeout(7200)
@settings(max_examples=examples(30), suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_lying_row_of_the_state_costs_only_its_own_device(written, tmp_path_factory, data):
    state, wall, found = written
    assert {key[0] for key in found} >= {"handler"}
    planted = data.draw(st.lists(st.sampled_from(sorted(found, key=str)), min_size=1, max_size=4, unique=True))
    copy = tmp_path_factory.mktemp("state") / "state"
    shutil.copytree(state, copy)
    with closing(sqlite3.connect(copy / "resilience.db")) as database, database:
        for table, key, row, column in planted:
            lies = data.draw(payloads(json.loads(found[table, key, row, column])))[:2_000_000]
            text = lies.decode(errors="replace")
            database.execute(f"UPDATE {table} SET {column} = ? WHERE {key} IS ?", (text, row))

    with Harness(house(), state_directory=copy, wall=wall + 60) as harness:
        harness.run("35s")
        for sections in (["devices"], ["trace"], ["app"]):
            harness.broker.send("house/introspect", {"sections": sections})
        harness.run("5s")

        assert len(harness.states("works")) == 41
        answers = [json.loads(each.payload) for each in harness.broker.messages("house/introspect/response")]
        assert [each["status"] for each in answers] == ["ok"] * 3
        assert json.loads(harness.broker.messages("house/status")[-1].payload)["devices"]["works"]["status"] == "ok"
        assert not [each for each in harness.broker.messages("house/error") if b"fault" in each.payload]
    shutil.rmtree(copy)
