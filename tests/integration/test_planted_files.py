"""Whole apps in whose state directory somebody has put something else: they poll at once, keep what is theirs, and can
store again."""

import os
import sqlite3
from contextlib import closing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leadsman import App, Context
from leadsman.core.monitoring.trace_row import TraceRow
from leadsman.core.mqtt.message import MAX_PAYLOAD_BYTES
from leadsman.core.runtime.statefile import StateFile
from leadsman.core.spool.file import SpoolFile
from leadsman.core.spool.row import Quota, SpoolRow
from leadsman.core.spool.tables import TABLES
from leadsman.core.storage.database import APPLICATION
from leadsman.extensions.trace.saved import TraceTable
from leadsman.testing import Harness
from leadsman_rigs.examples import examples
from leadsman_rigs.planted import DATABASES, ENDLESS, EVERYWHERE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

NAMES = [
    f"{name}{suffix}"
    for name in ("resilience.db", "resilience.db.new", "outbox.db", "outbox.db.new")
    for suffix in ("", "-wal", "-shm", "-journal")
]
NAMES += ["outbox.db.lock", "d.json", "d.tmp"]
KEPT = {"outbox.durability": "acked-or-durable"}


@pytest.fixture
def state(tmp_path):
    (tmp_path / "state").mkdir()
    return tmp_path / "state"


def life(state, seconds=20):
    """One life of an app that has a store, keeps its state and loses its broker. Returns the numbers of its readings
    in the first second, in all of it, and in all of the next life."""

    def app():
        made = App("app", keep_state=True)

        @made.telemetry("d", interval=1)
        async def read(context: Context):
            context.store["n"] = context.store.get("n", 0) + 1
            return {"n": context.store["n"]}

        return made

    with Harness(app(), settings=KEPT, state_directory=state) as first:
        first.run(0.9)
        begun = [reading["n"] for reading in first.states("d")]
        first.broker.stop()
        first.run(seconds)
    with Harness(app(), settings=KEPT, state_directory=state, wall=first.loop.wall_time()) as second:
        second.run(0.9)
        return begun, [reading["n"] for reading in first.states("d")], [reading["n"] for reading in second.states("d")]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("thing", EVERYWHERE)
def test_polls_begin_and_readings_survive_whatever_lies_where_a_file_belongs(state, name, thing, caplog):
    thing(state / name)

    begun, first, second = life(state)

    assert len(begun) == 1
    assert first + second == list(range(1, len(first) + len(second) + 1)), caplog.text
    assert len(first) + len(second) >= 21


@pytest.mark.parametrize("name", ["outbox.db", "resilience.db", "outbox.db.new", "resilience.db.new"])
@pytest.mark.parametrize("thing", DATABASES)
def test_polls_begin_and_readings_survive_whatever_a_database_is(state, name, thing, caplog):
    thing(state / name)

    begun, first, second = life(state)

    assert [n for n in begun if n] == [1]
    ours = [n for n in first + second if isinstance(n, int) and n > 0]
    assert ours == list(range(1, len(ours) + 1)), caplog.text
    assert len(ours) >= 21


def plant(path, statements):
    with closing(sqlite3.connect(path)) as database, database:
        for statement in statements:
            database.execute(statement)


def own_outbox(path):
    with closing(SpoolFile(path, Quota())) as spool:
        spool.open()
        spool.write([SpoolRow(1, 0, "app/d/state", b'{"n":0}', 1, False, 1.0, None, False)], ())


def own_state(path):
    table = TraceTable([], dict)
    table.keep([TraceRow(1, 0.0, "d", "retry")])
    with closing(StateFile(path, tables=[table])) as file:
        file.write({"d": "{}"}, 0.0)


ADDED = {
    "a view that never ends": [f"CREATE VIEW strange AS {ENDLESS} SELECT i FROM n"],
    "a trigger": ["CREATE TRIGGER strange AFTER INSERT ON {table} BEGIN DELETE FROM {table}; END"],
    "a table": ["CREATE TABLE strange (n)"],
    "a column": ["ALTER TABLE {table} ADD COLUMN strange"],
    "an index": ["CREATE INDEX strange ON {table} (length(CAST(zeroblob(1) AS TEXT)))"],
    "a view in place of a table": [
        "ALTER TABLE {table} RENAME TO strange",
        f"CREATE VIEW {{table}} AS {ENDLESS} SELECT i AS id, i AS name, i AS wall, i AS document FROM n",
    ],
    "ten thousand views": [f"CREATE VIEW strange_{number} AS SELECT 1" for number in range(2000)],
}


@pytest.mark.parametrize("added", ADDED)
@pytest.mark.parametrize(
    ("name", "table", "make"), [("outbox.db", "outbox", own_outbox), ("resilience.db", "handler", own_state)]
)
def test_a_database_with_more_than_ours_is_set_aside_with_what_can_be_read(state, name, table, make, added, caplog):
    make(state / name)
    plant(state / name, [statement.format(table=table) for statement in ADDED[added]])

    begun, first, second = life(state)

    assert [n for n in begun if n] == [1]
    assert [n for n in first + second if n] == list(range(1, max(second) + 1))
    assert f"{state / name} is damaged (" in caplog.text
    assert [each for each in os.listdir(state) if each.startswith(f"{name}.bad-")]


def test_the_topics_of_a_planted_outbox_are_a_table(state):
    """The first thing that is asked of an outbox."""
    statements = [each for each in TABLES if not each.startswith("CREATE TABLE topics")]
    views = [f"CREATE VIEW topics AS {ENDLESS} SELECT 'app/' || i AS topic FROM n"]
    numbers = [f"PRAGMA application_id = {APPLICATION}", "PRAGMA user_version = 1"]
    plant(state / "outbox.db", [*statements, *views, *numbers])

    begun, first, second = life(state)

    assert begun == [1]
    assert first + second == list(range(1, len(first) + len(second) + 1))


def test_a_row_that_is_larger_than_any_of_ours_is_not_read_and_the_others_are(state):
    own_outbox(state / "outbox.db")
    row = f"INSERT INTO outbox VALUES (2, 0, 0, 0.0, NULL, 0, 'app/d/state', zeroblob({5 * MAX_PAYLOAD_BYTES}))"
    plant(state / "outbox.db", [row])
    own_state(state / "resilience.db")
    plant(state / "resilience.db", [f"INSERT INTO handler VALUES ('e', 0.0, zeroblob({MAX_PAYLOAD_BYTES}))"])

    _, first, second = life(state)

    assert 0 in first, "the row of ours was sent"
    assert [n for n in first + second if n] == list(range(1, max(second) + 1))


VALUES = st.one_of(
    st.none(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.floats(),
    st.binary(max_size=40),
    st.text(max_size=40),
    st.sampled_from(["[" * 5000, '{"at":' * 3000, "9" * 5000, "app/d/state", '{"n":NaN}', "x" * 70_000, b"\xff" * 300]),
)
INSERTS = {
    "outbox": ("INSERT OR REPLACE INTO outbox VALUES (?, ?, ?, ?, ?, ?, ?, ?)", 8),
    "dead": ("INSERT OR REPLACE INTO dead VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", 11),
    "topics": ("INSERT OR REPLACE INTO topics VALUES (?)", 1),
    "handler": ("INSERT OR REPLACE INTO handler VALUES (?, ?, ?)", 3),
    "trace": ("INSERT OR REPLACE INTO trace VALUES (?, ?, ?, ?, ?)", 5),
    "ledger": ("INSERT OR REPLACE INTO ledger VALUES (?, ?, ?)", 3),
}


def rows_of(table):
    return st.tuples(st.just(table), st.lists(st.tuples(*[VALUES] * INSERTS[table][1]), min_size=1, max_size=3))


@pytest.mark.timeout(7200)
@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(planted=st.lists(st.sampled_from(sorted(INSERTS)).flatmap(rows_of), max_size=4))
def test_rows_of_any_kind_cost_no_poll_and_no_reading_of_ours(tmp_path_factory, planted):
    state = tmp_path_factory.mktemp("state")
    own_outbox(state / "outbox.db")
    own_state(state / "resilience.db")
    for table, rows in planted:
        name = "outbox.db" if table in ("outbox", "dead", "topics") else "resilience.db"
        with closing(sqlite3.connect(state / name)) as database, database:
            for values in rows:
                try:
                    database.execute(INSERTS[table][0], values)
                except (sqlite3.Error, OverflowError, UnicodeEncodeError):  # SQLite does not store it
                    continue

    begun, first, second = life(state, seconds=5)

    assert [n for n in begun if n] == [1]
    ours = [n for n in first + second if isinstance(n, int) and n > 0]
    assert sorted(ours) == list(range(1, max(ours) + 1))
