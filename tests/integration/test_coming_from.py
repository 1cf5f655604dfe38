"""What the retry pages of five other tools offer, found here: a test by each offer, in the order of
docs/how-to/coming-from.md.

Details are tested where they live; here a user of each tool finds again what they had.
"""

import itertools
import logging

import pytest
import yaml

from leadsman import (
    UNTIL_NEXT_POLL,
    App,
    CircuitBreaker,
    Context,
    ExponentialBackoff,
    FixedBackoff,
    LinearBackoff,
    RetryRequested,
    execute_with_retry,
    fibonacci,
    periodic,
    prop,
    sequence,
)
from leadsman.core.resilience.adhoc import (
    retry_api_call,
    retry_scheduler_operation,
    retry_storage_operation,
    retry_worker_operation,
)
from leadsman.core.settings.sources import Where
from leadsman.testing import Outages, Scripted, VirtualLoop, fail

READING = {"t": 21.5}
STEADY = ExponentialBackoff(jitter=0)


@pytest.fixture
def run():
    """Run a coroutine in virtual time; how long it took."""
    loop = VirtualLoop()

    def until(coroutine):
        before = loop.time()
        loop.run_until_complete(coroutine)
        return loop.time() - before

    yield until
    loop.close()


@pytest.fixture
def polled(harness, tmp_path):
    """The app's harness after so long, with one device ``d``."""

    def after(handler, duration, where=None, **words):
        app = App("app", keep_state=words.pop("keep_state", False))
        app.add_telemetry("d", handler, **{"interval": "25m", **words})
        if where:
            app.load(where)
        running = harness(app, state_directory=tmp_path / "state")
        running.run(duration)
        return running

    return after


def gaps(handler):
    return [round(after - before, 1) for before, after in itertools.pairwise(handler.calls)]


def flaky(times, error=ConnectionError):
    left = iter([True] * times)

    async def call():
        if next(left, False):
            raise error("refused")

    return call


# Bindu


@pytest.mark.parametrize(
    ("decorator", "calls", "shortest", "longest"),
    [
        (retry_worker_operation, 3, 1, 10),
        (retry_storage_operation, 5, 0.5, 5),
        (retry_scheduler_operation, 3, 1, 8),
        (retry_api_call, 4, 1, 15),
    ],
)
def test_bindu_offers_four_families_with_their_own_defaults(run, decorator, calls, shortest, longest):
    waited = run(decorator()(flaky(calls - 1))())

    assert (calls - 1) * shortest <= waited <= (calls - 1) * longest
    with pytest.raises(ConnectionError):
        run(decorator()(flaky(calls))())


def test_bindu_offers_that_the_environment_tunes_a_family_and_the_decorator_wins(run, monkeypatch):
    monkeypatch.setenv("RETRY__STORAGE_MAX_ATTEMPTS", "2")

    with pytest.raises(ConnectionError):
        run(retry_storage_operation()(flaky(2))())
    run(retry_storage_operation(max_attempts=3)(flaky(2))())


def test_bindu_offers_a_list_of_transient_errors_with_their_subclasses_and_stops_at_others(run):
    run(retry_worker_operation()(flaky(1, ConnectionResetError))())
    for error in (ValueError, KeyError, TypeError):
        with pytest.raises(error):
            run(retry_worker_operation()(flaky(1, error))())


def test_bindu_offers_execute_with_retry_which_raises_the_original_error(run):
    run(execute_with_retry(flaky(2), retry="api"))
    with pytest.raises(ConnectionError, match="refused"):
        run(execute_with_retry(flaky(9), retry="api"))


def test_bindu_offers_a_log_line_before_each_sleep_and_at_the_end(run, caplog):
    caplog.set_level(logging.DEBUG, "leadsman.retry")
    run(execute_with_retry(flaky(1), retry="storage"))

    _, before, *_, after = (record.getMessage() for record in caplog.records)
    assert "again in 0.5 s" in before
    assert "succeeded at call 2" in after


# Prodigy


def test_prodigy_offers_a_budget_of_waits_and_whichever_of_count_and_budget_is_first(polled):
    by_budget, by_count = Scripted(fail(99)), Scripted(fail(99))

    polled(by_budget, "24m", retry=10, budget="5m", backoff=FixedBackoff("1m", jitter=0))
    polled(by_count, "24m", retry=3, budget="5m", backoff=FixedBackoff("1m", jitter=0))

    assert gaps(by_budget) == [60] * 5
    assert len(by_count.calls) == 4


def test_prodigy_offers_durations_as_people_write_them(polled):
    sensor = Scripted(fail(99))
    polled(sensor, "3h", interval="1d", retry=9, within="1h30m", backoff=FixedBackoff("30m", jitter=0))

    assert gaps(sensor) == [1800] * 3


def test_prodigy_offers_that_a_budget_is_not_refilled_by_a_restart(polled):
    words = {"retry": 9, "budget": "14s", "backoff": STEADY, "keep_state": True}
    polled(Scripted(fail(99)), "1m", **words).stop()
    again = Scripted(fail(99))

    polled(again, "24m", **words)

    assert len(again.calls) == 1


@pytest.mark.parametrize(
    ("strategy", "waits"),
    [
        ({"backoff": FixedBackoff(5, jitter=0), "retry": 3}, [5, 5, 5]),
        ({"backoff": LinearBackoff(5, jitter=0), "retry": 3}, [5, 10, 15]),
        ({"backoff": STEADY, "retry": 3}, [2, 4, 8]),
        ({"policy": fibonacci(1, 2).max_retries(5)}, [1, 2, 3, 5, 8]),
        ({"policy": sequence(["10s", "30s", "2m"], then="stop")}, [10, 30, 120]),
    ],
)
def test_prodigy_offers_five_shapes_of_backoff_and_a_list_of_delays(polled, strategy, waits):
    sensor = Scripted(fail(99))
    polled(sensor, "24m", **strategy)

    assert gaps(sensor) == waits


def test_prodigy_offers_matchers_of_errors_by_their_text(polled):
    busy = prop("error-message").contains("busy") | prop("error-message").regex("time(d )?out")
    for message, calls in (("bus is busy", 3), ("timed out", 3), ("no such device", 1)):
        sensor = Scripted(fail(99, OSError(message)))
        polled(sensor, "24m", policy=periodic("5s").max_retries(2).only_when(busy))
        assert len(sensor.calls) == calls


def test_prodigy_offers_actions_after_a_failure_for_good(polled):
    async def last_known(error):
        return {"t": None}

    assert polled(Scripted(fail(99)), "1m", on_failure="hold").statuses("d")[-1] == "held"
    assert polled(Scripted(fail(99)), "1m", on_failure="continue").statuses("d")[-1] == "error"
    assert polled(Scripted(fail(99)), "1m", on_failure=last_known).states("d") == [{"t": None}]


# PgQueuer


def test_pgqueuer_offers_retry_requested_with_a_delay_and_a_reason(polled):
    sensor = Scripted(fail(1, RetryRequested(delay="90s", reason="rate limited")), READING)

    running = polled(sensor, "5m")

    assert gaps(sensor) == [90]
    assert running.errors("d") == []
    assert "rate limited" in running.app.trace("d")[0].error_message


def test_pgqueuer_offers_a_counter_of_attempts_from_zero(harness):
    app, seen = App("app"), []

    @app.telemetry("d", interval="25m", retry=3)
    async def d(context: Context):
        seen.append(context.attempts)
        raise OSError("io")

    harness(app).run("24m")

    assert seen == [0, 1, 2, 3]


def test_pgqueuer_offers_any_exception_retried_with_backoff_up_to_a_count_and_then_told_as_final(polled):
    sensor = Scripted(fail(99, LookupError("no row")))

    running = polled(
        sensor, "24m", retry=5, retry_on=(Exception,), backoff=ExponentialBackoff(1, "5m", factor=2, jitter=0)
    )

    assert gaps(sensor) == [1, 2, 4, 8, 16]
    assert [(error["event"], error["type"]) for error in running.errors("d")] == [("onset", "LookupError")]


def test_pgqueuer_offers_a_trace_to_ask(polled):
    running = polled(Scripted(READING, fail(3), READING), "1h", retry=1)

    rows = running.app.trace("d")

    assert [row.reason for row in rows] == ["retry", "count", "retry", "recovered"]


def test_pgqueuer_offers_hold_and_requeue_with_attempts_from_zero_again(polled):
    sensor = Scripted(fail(99))
    running = polled(sensor, "2h", retry=2, on_failure="hold", backoff=STEADY)
    assert gaps(sensor) == [2, 4]

    running.broker.send("app/d/release/set", b"")
    running.run("2h")

    assert gaps(sensor)[3:] == [2, 4]


def test_pgqueuer_offers_that_retries_survive_a_restart(polled):
    words = {"retry": 6, "backoff": STEADY, "keep_state": True}
    polled(Scripted(fail(99)), "10s", **words).stop()
    again = Scripted(fail(99))

    polled(again, "24m", **words)

    assert gaps(again)[0] > 2


# Golem

GOLEM_POLICIES = """
immediate:   immediate
never:       never
periodic:    {periodic: {secs: 5, nanos: 0}}
exponential: {exponential: {baseDelay: {secs: 1, nanos: 0}, factor: 2.0}}
fibonacci:   {fibonacci: {first: {secs: 1, nanos: 0}, second: {secs: 2, nanos: 0}}}
countBox:    {countBox: {maxRetries: 3, inner: immediate}}
timeBox:     {timeBox: {limit: {secs: 60, nanos: 0}, inner: {periodic: 5s}}}
clamp:       {clamp: {minDelay: 100ms, maxDelay: 5s, inner: {exponential: {baseDelay: 1s, factor: 2.0}}}}
addDelay:    {addDelay: {delay: 1s, inner: immediate}}
jitter:      {jitter: {factor: 0.15, inner: {periodic: 5s}}}
filteredOn:  {filteredOn: {predicate: {propEq: {property: errno, value: {integer: 5}}}, inner: immediate}}
andThen:     {andThen: [{countBox: {maxRetries: 2, inner: immediate}}, {periodic: 5s}]}
union:       {union: [immediate, {periodic: 5s}]}
intersect:   {intersect: [{periodic: 9s}, {periodic: 5s}]}
"""
FIRST_WAITS = {
    "immediate": 0,
    "never": None,
    "periodic": 5,
    "exponential": 1,
    "fibonacci": 1,
    "countBox": 0,
    "timeBox": 5,
    "clamp": 1,
    "addDelay": 1,
    "jitter": 5,
    "filteredOn": 0,
    "andThen": 0,
    "union": 0,
    "intersect": 9,
}


def written(policy):
    """Settings with a policy for whatever fails."""
    return Where.nowhere({"retry": {"policy": {"all": {"policy": policy}}}})


@pytest.mark.parametrize(("name", "wait"), FIRST_WAITS.items(), ids=FIRST_WAITS.keys())
def test_golem_offers_fourteen_types_of_policies_in_files(polled, name, wait):
    sensor = Scripted(fail(1, OSError(5, "io")), READING)
    polled(sensor, "1m", written(yaml.safe_load(GOLEM_POLICIES)[name]))

    assert gaps(sensor) == ([] if wait is None else [pytest.approx(wait, rel=0.2)])


GOLEM_PREDICATES = """
propEq:         {propEq: {property: errno, value: {integer: 5}}}
propNeq:        {propNeq: {property: handler, value: {text: x}}}
propGt:         {propGt: {property: errno, value: {integer: 4}}}
propGte:        {propGte: {property: errno, value: {integer: 5}}}
propLt:         {propLt: {property: errno, value: {integer: 6}}}
propLte:        {propLte: {property: errno, value: {integer: 5}}}
propExists:     {propExists: errno}
propIn:         {propIn: {property: errno, values: [{integer: 4}, {integer: 5}]}}
propMatches:    {propMatches: {property: error-type, pattern: "builtins.OS*"}}
propStartsWith: {propStartsWith: {property: error-type, prefix: builtins.OS}}
propContains:   {propContains: {property: error-message, substring: io}}
and:            {and: [true, {propExists: errno}]}
or:             {or: [false, {propExists: errno}]}
not:            {not: {propExists: gatt-code}}
"true":         true
"false":        {not: false}
"""


@pytest.mark.parametrize("name", yaml.safe_load(GOLEM_PREDICATES).keys())
def test_golem_offers_sixteen_predicates_with_typed_values_in_files(polled, name):
    condition = yaml.safe_load(GOLEM_PREDICATES)[name]
    yes, no = Scripted(fail(1, OSError(5, "io")), READING), Scripted(fail(1, OSError(5, "io")), READING)

    for sensor, predicate in ((yes, condition), (no, {"not": condition})):
        polled(sensor, "1m", written({"filteredOn": {"predicate": predicate, "inner": {"periodic": "5s"}}}))

    assert (gaps(yes), gaps(no)) == ([5], [])


def test_golem_offers_named_policies_chosen_by_priority_and_predicate_in_a_file(polled, tmp_path):
    (tmp_path / "leadsman.yaml").write_text(
        """
        retry:
          policy:
            timeouts:
              priority: 10
              predicate: {propEq: {property: error-type, value: {text: builtins.TimeoutError}}}
              policy: {countBox: {maxRetries: 1, inner: {periodic: 7s}}}
            rest:
              policy: {countBox: {maxRetries: 1, inner: {periodic: 3s}}}
        """
    )
    for error, wait in ((TimeoutError(), 7), (OSError(5, "io"), 3)):
        sensor = Scripted(fail(99, error))
        polled(sensor, "1m", Where({}, tmp_path, secrets=tmp_path))
        assert gaps(sensor) == [wait]


def test_golem_offers_a_policy_for_a_block_of_code(harness):
    calls, app = [], App("app")

    @app.telemetry("d", interval="25m", retry=1, backoff=FixedBackoff("4s", jitter=0))
    async def d(context: Context):
        calls.append(context.now().timestamp())
        with app.retrying(periodic("9s").max_retries(2).only_when(prop("errno") == 5)):
            raise OSError(5, "io") if len(calls) < 4 else OSError(19, "gone")

    harness(app).run("49m")

    assert [round(after - before) for before, after in itertools.pairwise(calls)] == [9, 9, 1482, 4]


def test_golem_offers_another_policy_for_a_while_though_the_app_runs(harness):
    sensor = Scripted(fail(99))
    app = App("app")
    app.add_telemetry("d", sensor, interval="25m", retry=1, backoff=FixedBackoff("4s", jitter=0))
    running = harness(app)

    running.run("24m")
    with app.retrying(periodic("9s").max_retries(1)):
        running.run("25m")
    running.run("25m")

    assert gaps(sensor)[::2] == [4, 9, 4]


def test_golem_offers_defaults_by_environment(polled, tmp_path):
    (tmp_path / "leadsman.toml").write_text(
        "[retry.serial]\nmax_attempts = 4\n[env.local.retry.serial]\nmax_attempts = 2\n"
    )
    for variables, calls in (({}, 4), ({"LEADSMAN_ENV": "local"}, 2)):
        sensor = Scripted(fail(99))
        polled(sensor, "24m", Where(variables, tmp_path, secrets=tmp_path), policy="serial")
        assert len(sensor.calls) == calls


# The telemetry-retry decision record


def test_the_record_offers_retries_in_a_poll_with_growing_waits_of_plus_or_minus_a_fifth(polled):
    sensor = Scripted(fail(99))
    polled(sensor, "24m", retry=3)

    assert gaps(sensor) == [pytest.approx(wait, rel=0.2) for wait in (2, 4, 8)]


def test_the_record_offers_that_only_errors_of_input_and_output_are_retried_and_others_on_request(polled):
    for error, words, calls in (
        (OSError("io"), {}, 4),
        (ValueError("bug"), {}, 1),
        (ValueError("checksum"), {"retry_on": (ValueError,)}, 4),
    ):
        sensor = Scripted(fail(99, error))
        polled(sensor, "24m", retry=3, **words)
        assert len(sensor.calls) == calls


def test_the_record_offers_strategies_and_a_protocol_for_ones_own(polled):
    class Golden:
        def delay(self, attempt):
            return 1.618**attempt

    sensor = Scripted(fail(99))
    polled(sensor, "24m", retry=3, backoff=Golden())

    assert gaps(sensor) == [pytest.approx(1.618**n, abs=0.11) for n in (1, 2, 3)]


def test_the_record_offers_a_cumulative_counter_over_the_polls_of_an_outage(polled):
    sensor = Scripted(fail(99))
    polled(sensor, "49m", retry=3, backoff=STEADY)

    assert gaps(sensor)[:3] + gaps(sensor)[4:] == [2, 4, 8, 16, 32, 60]


def test_the_record_offers_a_breaker_that_is_closed_open_and_half_open(polled):
    running = polled(
        Outages(READING, [("0s", "40m")]), "1h", interval="5m", circuit_breaker=CircuitBreaker(threshold=5)
    )
    moves = [row.reason for row in running.app.trace("d") if row.reason.startswith("circuit")]

    assert moves[:2] == ["circuit open", "circuit half_open"]
    assert moves[-1] == "circuit closed"


def test_the_record_offers_that_a_retry_ends_with_the_shutdown(polled):
    sensor = Scripted(fail(99))
    running = polled(sensor, "1s", retry=UNTIL_NEXT_POLL, backoff=FixedBackoff("20m"))
    running.stop()

    assert len(sensor.calls) == 1


def test_the_record_offers_runtime_state_in_the_heartbeat(polled):
    device = polled(Scripted(fail(99)), "6m", interval="1m", circuit_breaker=CircuitBreaker(3)).status()["devices"]["d"]

    assert device["status"] == "circuit_open"
    assert device["consecutive_failures"] >= 3


def test_the_record_offers_that_commands_are_not_retried(harness):
    app, calls = App("app"), []

    @app.command("valve")
    async def valve(payload: str) -> None:
        calls.append(payload)
        raise OSError("io")

    running = harness(app)
    running.run("1s")
    running.broker.send("app/valve/set", b"open")
    running.run("10m")

    assert len(calls) == 1
