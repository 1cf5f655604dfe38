"""What survives a restart, with ``keep_state=True``; and what a file that is broken, read-only or full costs: a
line."""

import itertools
import json
import math
import sqlite3
import stat
from datetime import datetime

import pytest

from leadsman import UNTIL_NEXT_POLL, App, CircuitBreaker, ExponentialBackoff, RetryRequested
from leadsman.core.runtime.statefile import StateFile
from leadsman.errors import InvalidType
from leadsman.testing import Outages, Scripted, fail
from leadsman.testing.loop import START

READING = {"t": 21.5}
STEADY = ExponentialBackoff(jitter=0)


@pytest.fixture
def directory(tmp_path):
    return tmp_path


@pytest.fixture
def life(harness, directory):
    """One life of an app: ``life(handler, duration, at=…, **words)``; what it left, and the app's harness."""

    def live(handler, duration, at=0.0, before_end=lambda running: None, **words):
        app = App("app", keep_state=True)
        app.add_telemetry("d", handler, **{"interval": "25m", **words})
        running = harness(app, wall=START + at, state_directory=directory)
        running.run(duration)
        before_end(running)
        running.stop()
        return running

    return live


def calls(handler):
    return [round(call, 1) for call in handler.calls]


def test_the_waits_of_an_outage_go_on_where_they_were(life):
    life(Scripted(fail(99)), "1m", retry=3, backoff=STEADY)
    again = Scripted(fail(99))

    life(again, "110s", at=1600, retry=3, backoff=STEADY)

    assert calls(again) == [0, 16, 48, 108]


def test_the_waits_go_on_with_a_strategy_of_ones_own_too_though_it_has_no_text(life):
    class Growing:
        def delay(self, attempt):
            return 2.0**attempt

    life(Scripted(fail(99)), 20, retry=UNTIL_NEXT_POLL, backoff=Growing())
    second = Scripted(fail(99))

    life(second, 50, at=20, retry=UNTIL_NEXT_POLL, backoff=Growing())

    assert calls(second)[1] - calls(second)[0] == 32


def test_an_open_shared_circuit_turns_each_member_away_after_a_restart_too(harness, directory):
    breaker, lives = CircuitBreaker(1, shared="bus"), []
    for at in (0, 65):
        app, handlers = App("app", keep_state=True), [Scripted(fail(99)), Scripted(fail(99))]
        app.add_telemetry("quick", handlers[0], interval=60, circuit_breaker=breaker)
        app.add_telemetry("slow", handlers[1], interval=3600, circuit_breaker=breaker)
        running = harness(app, wall=START + at, state_directory=directory)
        running.run(65)
        running.stop()
        lives.append([calls(handler) for handler in handlers])

    assert lives == [[[0], [0]], [[60], []]]


def test_an_attempt_that_was_waited_for_is_waited_for_again(life):
    life(Scripted(fail(99)), "20s", retry=5, backoff=ExponentialBackoff(40, 600, jitter=0))
    again = Scripted(READING)

    life(again, "1m", at=25, retry=5, backoff=ExponentialBackoff(40, 600, jitter=0))

    assert calls(again) == [15]


def test_a_crash_loop_does_not_ask_a_dead_device_at_full_rate(life):
    asked = []
    for number in range(20):
        handler = Scripted(fail(99))
        life(handler, "5s", at=number * 6.0, retry=UNTIL_NEXT_POLL, backoff=STEADY)
        asked += [number * 6.0 + call for call in handler.calls]

    assert len(asked) <= 8


def test_a_budget_stays_used_up_and_runs_out_while_the_app_is_away(life):
    life(Scripted(fail(99)), "20s", retry=10, budget="30s", backoff=STEADY)
    soon, late = Scripted(fail(99)), Scripted(fail(99))

    life(soon, "10m", at=22, retry=10, budget="30s", backoff=STEADY)
    assert calls(soon) == [8]

    life(late, "10m", at=4000, retry=10, budget="30s", backoff=STEADY)
    assert len(late.calls) == 1


def test_an_open_circuit_stays_open_for_its_rest(life):
    life(Scripted(fail(99)), "3m", interval="1m", circuit_breaker=CircuitBreaker(2, recovery="10m"))
    again = Scripted(READING)

    running = life(again, "10m", at=300, interval="1m", circuit_breaker=CircuitBreaker(2, recovery="10m"))

    assert 360 - 1 <= again.calls[0] <= 360 + 61
    assert running.statuses("d")[0] == "circuit_open"
    assert running.statuses("d")[-1] == "ok"


def test_a_deferral_holds(life):
    life(Scripted(fail(99, RetryRequested("30m"))), "10s", interval="1m")
    again = Scripted(READING)

    life(again, "30m", at=600, interval="1m")

    assert again.calls[0] == pytest.approx(1200, abs=61)


def test_a_device_that_asked_for_a_pause_is_deferred_after_a_restart_too_and_not_stale(life):
    life(Scripted(fail(99, RetryRequested("30m"))), "10s", interval="1m", stale_after="2m")

    running = life(Scripted(READING), "30m", at=600, interval="1m", stale_after="2m")

    assert list(dict.fromkeys(running.statuses("d"))) == ["deferred", "ok"]


def test_a_held_device_is_still_held_and_can_be_released(life):
    life(Scripted(fail(99)), "10s", interval="1m", on_failure="hold")
    again = Scripted(READING)

    def release(running):
        assert again.calls == []
        running.broker.send("app/d/release/set", b"")
        running.run("1m")

    running = life(again, "10m", at=600, before_end=release, interval="1m", on_failure="hold")

    assert running.statuses("d")[0] == "held"
    assert again.calls


def test_an_outage_is_told_once_not_once_per_life_and_its_recovery_tells_its_whole_length(life):
    life(Scripted(fail(99)), "5m", interval="1m")
    running = life(Scripted(fail(1), READING), "5m", at=3600, interval="1m")

    told = [(error["event"], error["failures"]) for error in running.errors("d")]
    assert told[-1] == ("recovered", 7)
    assert "onset" not in [event for event, _ in told]
    assert running.errors("d")[-1]["outage_seconds"] == pytest.approx(3660, abs=1)


def test_the_last_success_is_known_before_the_next_one(life):
    life(Scripted(READING), "5m", interval="1m")
    running = life(Scripted(fail(99)), "10s", at=3600, interval="1m")

    assert running.broker.messages("app/status")
    device = [message.json for message in running.broker.messages("app/status")][-2]["devices"]["d"]
    assert device["last_success_at"] is not None


def test_a_clock_that_was_set_back_counts_the_stop_as_no_time(life):
    life(Scripted(fail(99)), "3m", at=10_000, interval="1m", circuit_breaker=CircuitBreaker(2, recovery="10m"))
    again = Scripted(READING)

    life(again, "20m", at=0, interval="1m", circuit_breaker=CircuitBreaker(2, recovery="10m"))

    assert again.calls[0] == pytest.approx(540, abs=121)


def test_another_policy_begins_anew_to_count(life):
    life(Scripted(fail(99)), "1m", retry=3, backoff=STEADY)
    again = Scripted(fail(99))

    life(again, "1m", at=1600, retry=2, backoff=STEADY)

    assert calls(again) == [0, 2, 6]


def test_the_trace_is_kept_with_it(life, directory):
    life(Scripted(fail(3), READING), "5m", retry=3, backoff=STEADY)
    life(Scripted(fail(99)), "5m", at=3600, retry=1, backoff=STEADY)

    with sqlite3.connect(directory / "resilience.db") as database:
        rows = [json.loads(document) for (document,) in database.execute("SELECT document FROM trace ORDER BY number")]
    database.close()
    assert [row["reason"] for row in rows] == ["retry", "retry", "retry", "recovered", "retry", "count"]


def test_the_trace_tells_the_end_of_an_outage_that_began_in_an_earlier_life(life):
    life(Scripted(fail(99)), "5m", interval="1m")

    second = life(Scripted(READING), "5m", at=3600, interval="1m").app.trace()

    assert [row.reason for row in second] == ["recovered"]


def test_only_its_owner_may_read_the_file(life, directory):
    life(Scripted(fail(99)), "5s")

    assert stat.S_IMODE((directory / "resilience.db").stat().st_mode) == 0o600


@pytest.mark.parametrize("garbage", [b"", b"no database", b"SQLite format 3\x00" + b"x" * 5000])
def test_a_broken_file_is_kept_aside_and_polling_goes_on(life, directory, caplog, garbage):
    (directory / "resilience.db").write_bytes(garbage)
    sensor = Scripted(fail(2), READING)

    life(sensor, "10m", interval="1m")
    again = Scripted(READING)
    life(again, "10s", at=700, interval="1m")

    assert len(sensor.calls) == 11
    assert ("is damaged" in caplog.text) is bool(garbage)
    assert bool(list(directory.glob("resilience.db.bad-*"))) is bool(garbage)


@pytest.mark.parametrize(
    "document",
    [
        '{"execution": {"streak": {}}}',
        "[]",
        "5",
        '{"execution": {"circuit": ["open"]}}',
        '{"execution": {"streak": {"policy": "x", "state": "y", "waits": "z"}}}',
    ],
)
def test_a_row_that_makes_no_sense_costs_a_line(life, directory, caplog, document):
    life(Scripted(fail(99)), "5s")
    with sqlite3.connect(directory / "resilience.db") as database:
        database.execute("UPDATE handler SET document = ?", (document,))
    database.close()
    sensor = Scripted(READING)

    life(sensor, "5s", at=100)

    assert len(sensor.calls) == 1
    assert "is damaged" in caplog.text


def test_a_file_that_cannot_be_written_is_told_once_and_polling_goes_on(life, directory, caplog):
    directory.rmdir()
    directory.write_text("a file where the directory should be")
    sensor = Scripted(fail(99))

    life(sensor, "30m", interval="1m")

    assert len(sensor.calls) == 31
    assert caplog.text.count("cannot be") == 1


def test_a_disk_that_is_full_is_told_once_and_what_was_there_stays(life, directory, caplog, monkeypatch):
    life(Scripted(fail(99)), "1m", retry=3, backoff=STEADY)
    monkeypatch.setattr(
        "leadsman.core.runtime.statefile.StateFile.write",
        lambda *_: (_ for _ in ()).throw(sqlite3.OperationalError("database or disk is full")),
    )

    full = life(Scripted(READING), "2h", at=1600)

    assert caplog.text.count("disk is full") == 1
    (fault,) = full.faults()
    assert datetime.fromisoformat(fault.pop("at")).timestamp() >= START + 1600
    assert fault == {
        "event": "fault",
        "where": f"the state file {directory}/resilience.db",
        "type": "OperationalError",
        "message": "database or disk is full",
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("handler", "most"),
    [(Outages(READING, [("1s", "24h")]), 1442), (Scripted(READING), 98 + 25)],
    ids=["a day of outage", "a day of health"],
)
def test_writes_are_bounded(harness, directory, monkeypatch, handler, most):
    app, written, write = App("app", keep_state=True), [], StateFile.write
    app.add_telemetry("d", handler, interval="1m")
    monkeypatch.setattr("leadsman.testing.loop._STEP", 0.001)
    monkeypatch.setattr(StateFile, "write", lambda *given: (written.append(1), write(*given)))

    running = harness(app, state_directory=directory)
    running.run("24h")
    running.stop()

    assert 50 < len(written) <= most
    assert (directory / "resilience.db").stat().st_size < 4_000_000


class Writes:
    """An app with a device that fails each ten seconds, and one that works: when its state was written."""

    def __init__(self, harness, directory, monkeypatch):
        app, self.at, write = App("app", keep_state=True), [], StateFile.write
        app.add_telemetry("dead", Scripted(fail(10_000)), interval="10s")
        app.add_telemetry("well", Scripted(READING), interval="12h")
        monkeypatch.setattr(StateFile, "write", lambda *given: (self.at.append(self.running.now), write(*given)))
        self.running = harness(app, state_directory=directory)

    def ask(self, request):
        self.running.broker.send(f"app/{request}/set", b"")

    def until(self, seconds):
        """The seconds from now to each write, until so many seconds have passed."""
        began = self.running.now
        self.running.run(seconds)
        return [at - began for at in self.at if at >= began]


@pytest.fixture
def writes(harness, directory, monkeypatch):
    return Writes(harness, directory, monkeypatch)


def test_a_first_change_is_written_soon_and_the_next_ones_after_waits_that_double(writes):
    found = writes.until("59m")

    assert found[0] == pytest.approx(0.25, abs=0.1)
    waits = [after - before for before, after in itertools.pairwise(found)]
    assert waits == pytest.approx([60, 120, 240, 480, 900, 900], abs=1)


@pytest.mark.parametrize(("after", "written"), [(5, 55), (100, 0.25)])
def test_a_hold_is_written_within_a_minute_whatever_else_changes(writes, after, written):
    last = writes.until("80m")[-1]
    wait = last + 900 + after - writes.running.now
    writes.running.run(wait)

    writes.ask("well/hold")

    assert writes.until("2m")[0] == pytest.approx(written, abs=0.5)


def test_after_a_quiet_time_the_waits_begin_again(writes):
    writes.until("61m")
    writes.ask("dead/hold")
    writes.running.run("2m")
    assert writes.until("30m") == []

    writes.ask("dead/release")

    assert writes.until("4m") == pytest.approx([0.25, 60.25, 180.25], abs=0.5)


def test_keep_state_is_yes_or_no():
    with pytest.raises(InvalidType, match="True or False"):
        App("app", keep_state="/var/lib")


# Counters over all lives


def runtime(running):
    running.broker.send("app/introspect", {"sections": ["devices"]}, response_topic="app/answers")
    running.run(1)
    return running.broker.messages("app/answers")[-1].json["data"]["devices"]["d"]["runtime"]


class Looked:
    """Looks at a device before the end of a life."""

    def __call__(self, running):
        self.runtime = runtime(running)


def counted(document):
    return {
        word: document[word] for word in ("polls", "failed_polls", "retried_polls", "calls", "retries", "published")
    }


def test_the_counters_go_on_over_restarts(life):
    looked = Looked()
    every_second_call_fails = [step for _ in range(10) for step in (OSError("no answer"), READING)]
    words = {"interval": "10s", "retry": 2, "backoff": STEADY}
    life(Scripted(*every_second_call_fails), 35, **words, before_end=looked)
    first = counted(looked.runtime["life"])
    assert first == counted(looked.runtime["counters"])
    assert first == {"polls": 4, "failed_polls": 0, "retried_polls": 4, "calls": 8, "retries": 4, "published": 4}

    life(Scripted(READING), 15, at=1000, **words, before_end=looked)

    assert counted(looked.runtime["counters"])["polls"] == 2
    assert counted(looked.runtime["life"]) == first | {"polls": 6, "calls": 10, "published": 6}
    assert looked.runtime["life"]["since"] == "2026-01-01T00:00:00.000Z"

    life(Scripted(READING), 25, at=2000, **words, before_end=looked)

    assert counted(looked.runtime["life"]) == first | {"polls": 9, "calls": 13, "published": 9}
    assert looked.runtime["life"]["since"] == "2026-01-01T00:00:00.000Z"


def test_openings_deferrals_and_missed_polls_are_counted(life):
    looked = Looked()
    handler = Scripted(fail(2), RetryRequested(delay="35s"), READING)
    life(handler, "2m", interval="10s", circuit_breaker=CircuitBreaker(2, recovery=0), before_end=looked)

    counters = looked.runtime["life"]
    assert (counters["opens"], counters["deferrals"], counters["missed_polls"]) == (1, 1, 0)


@pytest.mark.parametrize(
    "damage",
    [
        lambda life: [],
        lambda life: {},
        lambda life: life | {"version": 99},
        lambda life: {key: value for key, value in life.items() if key != "opens"},
        lambda life: life | {"polls": -1},
        lambda life: life | {"polls": True},
        lambda life: life | {"polls": 1.5},
        lambda life: life | {"polls": 2**53 + 1},
        lambda life: life | {"polls": "9" * 5000},
        lambda life: life | {"since": math.nan},
        lambda life: life | {"since": None},
    ],
)
def test_counters_that_are_damaged_begin_again_and_cost_nothing_else(life, directory, caplog, damage):
    life(Scripted(READING, fail(99)), 30, interval="10s")
    with sqlite3.connect(directory / "resilience.db") as database:
        ((document,),) = database.execute("SELECT document FROM handler").fetchall()
        broken = json.loads(document)
        broken["life"] = damage(broken["life"])
        database.execute("UPDATE handler SET document = ?", (json.dumps(broken),))
    database.close()

    looked = Looked()
    life(Scripted(fail(99)), 5, at=40, interval="10s", before_end=looked)

    assert looked.runtime["consecutive_failures"] > 2  # the outage goes on
    assert looked.runtime["life"]["polls"] == looked.runtime["counters"]["polls"]
    (line,) = [record.getMessage() for record in caplog.records if "its counters in" in record.getMessage()]
    assert ("the version 99" in line) is (broken["life"] == json.loads(document)["life"] | {"version": 99})
    assert len(line) < 400


def test_without_a_kept_state_there_is_one_life(harness):
    app = App("app")
    app.add_telemetry("d", Scripted(READING), interval="10s")
    running = harness(app)
    running.run(1)

    assert "life" not in runtime(running)
    assert runtime(running)["counters"]["published"] == 1
