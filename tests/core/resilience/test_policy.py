import asyncio
import functools
import json
import operator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leadsman import (
    UNTIL_NEXT_POLL,
    CircuitBreaker,
    ExponentialBackoff,
    FixedBackoff,
    Policy,
    RetryRequested,
    exponential,
    fibonacci,
    immediate,
    is_a,
    linear,
    never,
    periodic,
    prop,
    sequence,
    strategy,
)
from leadsman.core.resilience.decision import as_state
from leadsman.core.resilience.failure import Failure, exception_types, matches
from leadsman.core.resilience.policy import ONCE, GiveUp, Retry, as_policy, from_options, options_of
from leadsman.errors import DeviceTimeout, GarbledData, InvalidType, InvalidValue, TransientError
from leadsman_rigs.examples import examples

ERROR = OSError("gone")
STEADY = ExponentialBackoff(jitter=0)


def middle():
    return 0.5


def verdicts(policy, failures, draw=middle):
    """What a policy says to failures, one after the other; a cycle ends when it gives up."""
    state, cycle, said = policy.start(), 0, []
    for number, failure in enumerate(failures):
        state, verdict = policy.step(state, failure._replace(cycle=failure.cycle + cycle, attempts=number), draw)
        said.append(verdict.delay if isinstance(verdict, Retry) else None)
        if isinstance(verdict, GiveUp):
            cycle += 1
    return said


def waits(policy, failures=4, **failure):
    return verdicts(policy, [Failure(ERROR, **failure)] * failures)


def cycles(policy, polls=3):
    """The waits of polls that all fail, and what is remembered after them."""
    state, seen = policy.start(), []
    for cycle in range(polls):
        taken = []
        while True:
            state, verdict = policy.step(state, Failure(ERROR, cycle=cycle), middle)
            if isinstance(verdict, GiveUp):
                break
            taken.append(verdict.delay)
        seen.append(taken)
    return seen


def test_the_words_wait_2_4_8_then_16_32_60_then_60_without_a_hole():
    assert cycles(from_options(3, backoff=STEADY)) == [[2, 4, 8], [16, 32, 60], [60, 60, 60]]


def test_the_algebra_says_what_the_words_say():
    assert cycles(exponential("2s", cap="1m").max_retries(3)) == cycles(from_options(3, backoff=STEADY))


def test_the_state_of_the_words_is_a_small_tuple_of_scopes_and_counts():
    policy = exponential("2s").max_retries(3)
    state = policy.start()
    for cycle in (0, 0, 0, 0, 1):
        state, _ = policy.step(state, Failure(ERROR, cycle=cycle), middle)

    assert json.dumps(state) == "[[1, 1], [0, 4]]"


def test_the_same_words_are_one_object_for_a_thousand_devices():
    assert from_options(3, (OSError,), STEADY) is from_options(3, (OSError,), ExponentialBackoff(jitter=0))


def test_a_strategy_that_cannot_be_a_key_makes_a_policy_too():
    class Mine:
        __hash__ = None

        def delay(self, attempt):
            return 7.0

    assert cycles(from_options(2, backoff=Mine()), 1) == [[7, 7]]


def test_until_the_next_poll_has_no_count():
    assert waits(from_options(UNTIL_NEXT_POLL, backoff=STEADY), 8) == [2, 4, 8, 16, 32, 60, 60, 60]


def test_immediate_and_never():
    assert waits(immediate(), 2) == [0, 0]
    assert waits(never(), 2) == [None, None]


def test_leaves_wait_as_they_are_called():
    assert waits(periodic("5s")) == [5, 5, 5, 5]
    assert waits(exponential("1s", 3, "20s")) == [1, 3, 9, 20]
    assert waits(linear("2s", "5s")) == [2, 4, 5, 5]
    assert waits(fibonacci("1s", "2s"), 9) == [1, 2, 3, 5, 8, 13, 21, 34, 55]
    assert waits(sequence(["1s", "5s"])) == [1, 5, 5, 5]
    assert waits(sequence(["1s", "5s"], then="stop")) == [1, 5, None, None]
    assert waits(strategy(FixedBackoff(3, jitter=0)), 2) == [3, 3]


def test_a_leaf_of_scope_cycle_begins_anew_at_each_poll():
    assert cycles(exponential("2s", scope="cycle").max_retries(3), 2) == [[2, 4, 8], [2, 4, 8]]


def test_a_count_box_of_scope_outage_does_not_begin_anew():
    assert cycles(periodic("1s").max_retries(3, scope="outage"), 2) == [[1, 1, 1], []]


def test_a_count_box_counts_only_granted_retries():
    wanted = periodic("1s").only_when(is_a(TimeoutError)).max_retries(2)
    failures = [Failure(ERROR), Failure(TimeoutError()), Failure(ERROR), Failure(TimeoutError())]

    state, said = wanted.start(), []
    for failure in failures:
        state, verdict = wanted.step(state, failure, middle)
        said.append(verdict)

    assert said == [GiveUp("filtered"), Retry(1), GiveUp("filtered"), Retry(1)]


def test_a_time_box_ends_with_its_limit_and_before_a_retry_that_would_start_after_it():
    box = periodic("10s").within("30s")

    said = verdicts(box, [Failure(ERROR, elapsed=at) for at in (0, 15, 20, 20.1, 30)])

    assert said == [10, 10, 10, None, None]


def test_a_time_box_of_scope_cycle_starts_with_each_poll():
    box = periodic("10s").within("15s", scope="cycle")

    state, said = box.start(), []
    for cycle, elapsed in ((0, 0), (0, 10), (1, 300), (1, 310)):
        state, verdict = box.step(state, Failure(ERROR, cycle=cycle, elapsed=elapsed), middle)
        said.append(verdict)

    assert said == [Retry(10), GiveUp("time"), Retry(10), GiveUp("time")]


def test_a_budget_is_the_sum_of_waits_and_may_be_used_to_the_last_second():
    assert waits(periodic("5s").budget("10s")) == [5, 5, None, None]
    assert waits(exponential("1s").budget("5s")) == [1, 2, None, None]


def test_clamp_and_added_delay_shape_a_wait():
    assert waits(exponential("1s").clamp("2s", "6s")) == [2, 2, 4, 6]
    assert waits(exponential("1s").plus("10s")) == [11, 12, 14, 18]


def test_one_policy_after_another_hands_over_in_the_same_step():
    assert waits(immediate().max_retries(2) >> periodic("5s").max_retries(2), 5) == [0, 0, 5, 5, None]


def test_one_policy_after_another_begins_anew_with_the_next_poll():
    assert cycles(immediate().max_retries(1) >> periodic("5s").max_retries(1), 2) == [[0, 5], [0, 5]]


def test_a_time_box_after_a_hand_over_starts_there():
    both = periodic("10s").max_retries(2) >> periodic("10s").within("15s")

    assert verdicts(both, [Failure(ERROR, elapsed=at) for at in (0, 10, 20, 30, 40)]) == [10, 10, 10, None, 10]


def test_a_union_takes_the_shorter_wait_and_an_intersection_the_longer_one():
    quick, slow = periodic("1s").max_retries(2), periodic("5s").max_retries(3)

    assert waits(quick | slow) == [1, 1, 5, None]
    assert waits(quick & slow) == [5, 5, None, 5]


def test_a_filter_leaves_what_is_inside_untouched():
    only = exponential("2s").only_when(is_a(TimeoutError))
    failures = [Failure(ERROR), Failure(TimeoutError()), Failure(ERROR), Failure(TimeoutError())]

    assert verdicts(only, failures) == [None, 2, None, 4]


@pytest.mark.parametrize(
    ("mode", "low", "high"),
    [("symmetric", 8, 12), ("add", 10, 12), ("full", 0, 10), ("equal", 5, 10)],
)
def test_jitter_draws_from_the_range_of_its_mode(mode, low, high):
    spread = periodic("10s").jitter(0.2, mode, cap="1m")

    drawn = [verdicts(spread, [Failure(ERROR)], lambda u=u: u)[0] for u in (0.0, 0.5, 0.999999)]

    assert drawn[0] == pytest.approx(low)
    assert drawn[1] == pytest.approx((low + high) / 2)
    assert drawn[2] == pytest.approx(high, abs=0.001)


def test_jitter_stays_inside_the_cap_and_does_not_pile_up_on_it():
    spread = exponential("2s", cap="1m").jitter(0.2)
    draws = iter([u / 100 for u in range(100)] * 2)

    drawn = verdicts(spread, [Failure(ERROR)] * 100, lambda: next(draws))[10:]

    assert max(drawn) < 60
    assert len(set(drawn)) == 90


@pytest.mark.parametrize(
    ("inner", "mode", "low", "high"),
    [
        (periodic("10s"), "symmetric", 5, 15),
        (sequence(["10s"]), "symmetric", 5, 15),
        (periodic("4s").plus("6s"), "symmetric", 5, 15),
        (immediate().max_retries(0) >> periodic("10s"), "symmetric", 5, 15),
        (exponential("10s", cap="10s"), "symmetric", 5, 10),
        (periodic("20s").clamp("0s", "10s"), "symmetric", 5, 10),
        (strategy(FixedBackoff("10s", "12s", jitter=0)), "symmetric", 5, 12),
        (periodic("10s"), "add", 10, 15),
        (periodic("4s").plus("6s"), "add", 10, 15),
        (exponential("10s", cap="10s"), "add", 10, 15),
        (exponential("10s", cap="10s"), "full", 0, 10),
        (exponential("10s", cap="10s"), "equal", 5, 10),
        (exponential("10s", cap="10s"), "decorrelated", 10, 30),
    ],
)
def test_jitter_without_a_cap_keeps_a_cap_that_was_asked_for_and_spreads_other_waits_to_both_sides(
    inner, mode, low, high
):
    spread = inner.jitter(0.5, mode)

    shortest, longest = (verdicts(spread, [Failure(ERROR)], lambda u=u: u)[0] for u in (0.0, 1 - 1e-12))

    assert (shortest, longest) == (pytest.approx(low), pytest.approx(high))
    assert longest <= spread.cap


def test_decorrelated_jitter_goes_by_the_wait_before():
    spread = periodic("2s").jitter(mode="decorrelated", cap="30s")

    assert verdicts(spread, [Failure(ERROR)] * 5, lambda: 1.0 - 1e-12) == pytest.approx([6, 18, 30, 30, 30])


def test_a_request_is_granted_as_it_is_given_whatever_counts_filters_and_shapes():
    shaped = (periodic("5s").max_retries(0).only_when(False) >> never()).jitter(0.5).clamp("1m", "2m").plus("9s")

    assert shaped.step(shaped.start(), Failure(RetryRequested("30s")), middle)[1] == Retry(30)


def test_a_request_without_a_delay_waits_as_the_backoff_says_but_never_spins():
    assert ONCE.step(ONCE.start(), Failure(RetryRequested()), lambda: 0.0)[1] == Retry(1.6)
    assert immediate().step(None, Failure(RetryRequested()), middle)[1] == Retry(0.1)
    assert never().step(None, Failure(RetryRequested()), middle)[1] == Retry(2)
    assert RetryRequested(0).delay == 0.1


def test_a_request_is_bounded_by_budget_and_time():
    assert ONCE.budget("10s").step(ONCE.budget("10s").start(), Failure(RetryRequested("30s")), middle)[1] == GiveUp(
        "budget"
    )
    assert ONCE.within("10s").step(ONCE.within("10s").start(), Failure(RetryRequested("30s")), middle)[1] == GiveUp(
        "time"
    )


def test_a_strategy_that_breaks_is_told_and_replaced_by_the_default():
    class Broken:
        def __init__(self, answer):
            self.answer = answer

        def delay(self, attempt):
            return self.answer() if callable(self.answer) else self.answer

    told = []
    for answer in (float("nan"), float("inf"), -1, 1e300, "soon", None, lambda: 1 / 0):
        failure = Failure(ERROR, on_strategy_error=lambda strategy, error: told.append(error))
        state, verdict = strategy(Broken(answer)).step((0, 2), failure, middle)
        assert (state, verdict) == ((0, 3), Retry(8))
    assert len(told) == 7


WRONG = [
    (lambda: exponential(-1), "negative"),
    (lambda: exponential(float("nan")), "finite"),
    (lambda: exponential("2"), "units"),
    (lambda: exponential(True), "seconds"),
    (lambda: exponential(2, 0.5), "factor"),
    (lambda: exponential(2, True), "number"),
    (lambda: exponential("11y"), "units"),
    (lambda: periodic(0), "greater than zero"),
    (lambda: periodic(4e8), "ten years"),
    (lambda: fibonacci(0, 1), "greater than zero"),
    (lambda: sequence([]), "at least one"),
    (lambda: sequence("5s"), "list"),
    (lambda: sequence(["5s", "x"]), r"delays\[1\]"),
    (lambda: sequence(["5s"], then="never"), "'stop'"),
    (lambda: immediate().max_retries(-1), "0 or more"),
    (lambda: immediate().max_retries(2.0), "whole number"),
    (lambda: immediate().max_retries(True), "whole number"),
    (lambda: immediate().max_retries(2, scope="poll"), "'outage'"),
    (lambda: immediate().within("-5s"), "units"),
    (lambda: immediate().budget(float("inf")), "finite"),
    (lambda: immediate().clamp("5s", "1s"), "low end comes first"),
    (lambda: immediate().plus(-1), "negative"),
    (lambda: immediate().jitter(1.5), "from 0 to 1"),
    (lambda: immediate().jitter(float("nan")), "finite"),
    (lambda: immediate().jitter(0.2, "gauss"), "decorrelated"),
    (lambda: immediate().only_when("errno"), "predicate"),
    (lambda: immediate() >> 5, "not a policy"),
    (lambda: immediate() | ExponentialBackoff(), r"strategy\("),
    (lambda: as_policy(Policy), "not a policy"),
    (lambda: strategy(ExponentialBackoff), "brackets"),
    (lambda: is_a(), "empty"),
    (lambda: is_a(BaseException), "subclass of Exception"),
]


@pytest.mark.parametrize(("make", "hint"), WRONG, ids=[hint + str(n) for n, (_, hint) in enumerate(WRONG)])
def test_a_wrong_node_is_refused_where_it_is_written(make, hint):
    with pytest.raises((InvalidType, InvalidValue), match=hint):
        make()


@pytest.mark.parametrize(
    "kind",
    [
        OSError,
        TimeoutError,
        asyncio.TimeoutError,
        ConnectionResetError,
        PermissionError,
        TransientError,
        DeviceTimeout,
        GarbledData,
    ],
)
def test_the_default_retries_what_the_operating_system_and_adapters_report(kind):
    assert isinstance(from_options(1).step(from_options(1).start(), Failure(kind("x")), middle)[1], Retry)


@pytest.mark.parametrize("kind", [ValueError, KeyError, RuntimeError, AttributeError])
def test_the_default_does_not_retry_bugs(kind):
    assert from_options(1).step(from_options(1).start(), Failure(kind("x")), middle)[1] == GiveUp("filtered")


def test_a_group_matches_when_all_its_leaves_do():
    both = ExceptionGroup("two", [OSError(), ExceptionGroup("inner", [TimeoutError()])])
    mixed = ExceptionGroup("two", [OSError(), ValueError()])

    assert matches(both, (OSError,))
    assert not matches(mixed, (OSError,))


@pytest.mark.parametrize("given_", [OSError, [OSError], (OSError,)])
def test_retry_on_may_be_a_class_a_list_or_a_tuple(given_):
    assert exception_types(given_, "retry_on") == (OSError,)


@pytest.mark.parametrize(
    "given_",
    [asyncio.CancelledError, (OSError, KeyboardInterrupt), SystemExit, BaseException, "OSError", (1,), None, int],
)
def test_retry_on_takes_only_subclasses_of_exception(given_):
    with pytest.raises(InvalidType, match="subclass of Exception"):
        exception_types(given_, "retry_on")


def test_an_empty_retry_on_is_refused():
    with pytest.raises(InvalidValue, match="retry_on is empty"):
        exception_types((), "retry_on")
    with pytest.raises(InvalidValue, match="ignore is empty"):
        CircuitBreaker(ignore=[])


# The laws: for trees of any shape, without chance, a run of failures gets the same verdicts.

SCOPES = st.sampled_from(["cycle", "outage"])
DELAYS = st.sampled_from([0.5, 1.0, 2.0, 5.0, 30.0])
LEAVES = st.one_of(
    st.just(immediate()),
    st.just(never()),
    st.builds(periodic, DELAYS, SCOPES),
    st.builds(exponential, DELAYS, st.sampled_from([1.0, 1.5, 2.0]), st.sampled_from([None, 4.0, 60.0]), SCOPES),
    st.builds(linear, DELAYS, st.just(60.0), SCOPES),
    st.builds(fibonacci, DELAYS, DELAYS, st.just(60.0), SCOPES),
    st.builds(sequence, st.lists(DELAYS, min_size=1, max_size=3), st.sampled_from(["last", "stop"]), SCOPES),
)


def _grown(inner):
    return st.one_of(
        st.builds(lambda p, n, s: p.max_retries(n, s), inner, st.integers(0, 5), SCOPES),
        st.builds(lambda p, t, s: p.within(t, s), inner, st.sampled_from([0, 5, 60]), SCOPES),
        st.builds(lambda p, t, s: p.budget(t, s), inner, st.sampled_from([0, 5, 60]), SCOPES),
        st.builds(lambda p, low, high: p.clamp(low, low + high), inner, DELAYS, DELAYS),
        st.builds(lambda p, d: p.plus(d), inner, DELAYS),
        st.builds(
            lambda p, c: p.only_when(c), inner, st.sampled_from([is_a(OSError), prop("errno") == 5, True, False])
        ),
        st.builds(operator.rshift, inner, inner),
        st.builds(operator.or_, inner, inner),
        st.builds(operator.and_, inner, inner),
    )


TREES = st.recursive(LEAVES, _grown, max_leaves=8)
ERRORS = st.sampled_from([OSError(5, "io"), TimeoutError("slow"), ValueError("bug"), OSError("no number")])


@st.composite
def failures(draw, steps=25):
    elapsed, cycle, run = 0.0, 0, []
    for _ in range(steps):
        run.append(Failure(draw(ERRORS), cycle=cycle, elapsed=elapsed))
        elapsed += draw(st.sampled_from([0.0, 0.5, 3.0, 20.0]))
        cycle += draw(st.sampled_from([0, 0, 0, 1]))
    return run


LAWS = {
    "| is commutative": lambda a, b, c: (a | b, b | a),
    "& is commutative": lambda a, b, c: (a & b, b & a),
    "| is associative": lambda a, b, c: ((a | b) | c, a | (b | c)),
    "& is associative": lambda a, b, c: ((a & b) & c, a & (b & c)),
    "| is idempotent": lambda a, b, c: (a | a, a),
    "& is idempotent": lambda a, b, c: (a & a, a),
    "never is the unit of |": lambda a, b, c: (a | never(), a),
    "never absorbs &": lambda a, b, c: (a & never(), never()),
    "immediate is the unit of &": lambda a, b, c: (a & immediate(), a),
    "never is the left unit of >>": lambda a, b, c: (never() >> a, a),
    "never is the right unit of >>": lambda a, b, c: (a >> never(), a),
    ">> is associative": lambda a, b, c: ((a >> b) >> c, a >> (b >> c)),
    "the smaller count rules": lambda a, b, c: (a.max_retries(3).max_retries(2), a.max_retries(2)),
    "no retries is never": lambda a, b, c: (a.max_retries(0), never()),
}


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS.keys())
@settings(max_examples=examples(150), deadline=None)
@given(a=TREES, b=TREES, c=TREES, run=failures())
def test_a_law_holds_for_trees_of_any_shape(law, a, b, c, run):
    one, other = law(a, b, c)

    assert verdicts(one, run) == verdicts(other, run)


@pytest.mark.slow
@settings(max_examples=examples(300), deadline=None)
@given(TREES, failures())
def test_a_step_is_pure_and_its_state_survives_json(tree, run):
    state = tree.start()
    for failure in run:
        again = as_state(json.loads(json.dumps(state)))
        assert again == state
        first, second = tree.step(state, failure, middle), tree.step(again, failure, middle)
        assert first == second
        state = first[0]


@pytest.mark.slow
@settings(max_examples=examples(300), deadline=None)
@given(TREES, failures(), st.sampled_from(["symmetric", "add", "full", "equal", "decorrelated"]), st.randoms())
def test_no_wait_of_any_tree_is_longer_than_its_cap(tree, run, mode, dice):
    spread = tree.jitter(0.5, mode).clamp(0.0, 40.0)

    assert all(wait is None or 0 <= wait <= min(spread.cap, 40.0) for wait in verdicts(spread, run, dice.random))
    assert all(wait is None or wait <= tree.cap for wait in verdicts(tree, run))


@given(TREES, failures(), st.sampled_from([0, 5, 60]))
def test_the_sum_of_waits_never_exceeds_the_budget(tree, run, limit):
    assert sum(wait or 0 for wait in verdicts(tree.jitter(0.3).budget(limit), run)) <= limit + 1e-9


@given(TREES, TREES)
def test_policies_are_values(one, other):
    assert (one == other) == (repr(one) == repr(other))
    assert one != other or hash(one) == hash(other)


@given(st.integers(1, 10**6), st.sampled_from([1.0, 1.1, 2.0, 10.0]), st.floats(0.1, 1e6))
def test_an_exponential_never_decreases_and_never_exceeds_its_cap(attempt, factor, cap):
    leaf = exponential(0.1, factor, cap)
    now = leaf.step((0, attempt - 1), Failure(ERROR), middle)[1].delay
    after = leaf.step((0, attempt), Failure(ERROR), middle)[1].delay

    assert now <= after <= cap


def test_a_tree_of_ten_nodes_is_the_fold_of_its_parts():
    tree = functools.reduce(operator.rshift, [periodic(n).max_retries(1) for n in (1, 2, 3)])

    assert waits(tree, 4) == [1, 2, 3, None]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"retries": 3, "kinds": (OSError,)},
        {"retries": UNTIL_NEXT_POLL, "backoff": FixedBackoff(5), "budget": 30.0},
        {"retries": 1, "within": 60.0},
        {"retries": 2, "budget": 30.0, "within": 60.0},
    ],
)
def test_options_come_back_from_the_policy_that_was_made_of_them(options):
    policy = from_options(**options)

    assert from_options(*options_of(policy)) == policy


@pytest.mark.parametrize(
    "policy",
    [
        immediate(),
        exponential(2).max_retries(3),
        exponential(2, scope="cycle").only_when(is_a(OSError)).max_retries(3),
        exponential(2).only_when(is_a(OSError)).max_retries(3, "outage"),
        exponential(2).within(5).budget(5).only_when(is_a(OSError)),
        exponential(2).only_when(prop("errno") == 19),
    ],
)
def test_a_policy_that_no_options_make_has_none(policy):
    assert options_of(policy) is None
