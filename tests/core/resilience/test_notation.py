import contextlib
import json
import tomllib

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from leadsman import exponential, fibonacci, immediate, linear, never, periodic, prop, sequence
from leadsman.core.resilience import notation
from leadsman.core.resilience.notation import parse, policy_of, predicate_of, render
from leadsman.core.resilience.predicate import Constant
from leadsman.errors import InvalidType, InvalidValue
from leadsman_rigs.examples import examples

POLICIES = {
    "immediate": immediate(),
    "never": never(),
    "periodic: {secs: 5, nanos: 500000000}": periodic(5.5),
    "periodic: 5s": periodic(5),
    "exponential: {baseDelay: {secs: 1, nanos: 0}, factor: 2.0}": exponential(1),
    "exponential: {base_delay: 1s, factor: 3, cap: 5m, scope: cycle}": exponential(1, 3, 300, "cycle"),
    "linear: {step: 2s, cap: 10s}": linear(2, 10),
    "fibonacci: {first: 1s, second: 2s}": fibonacci(1, 2),
    "sequence: [1s, 5s]": sequence([1, 5]),
    "sequence: {delays: [1s, 5s], then: stop}": sequence([1, 5], then="stop"),
    "countBox: {maxRetries: 3, inner: immediate}": immediate().max_retries(3),
    "count_box: {max_retries: 3, inner: immediate, scope: outage}": immediate().max_retries(3, "outage"),
    "timeBox: {limit: 1m, inner: immediate}": immediate().within(60),
    "budget: {limit: 5m, inner: immediate}": immediate().budget(300),
    "clamp: {minDelay: 100ms, maxDelay: 2s, inner: immediate}": immediate().clamp(0.1, 2),
    "addDelay: {delay: 1s, inner: immediate}": immediate().plus(1),
    "retryAfter: {inner: immediate}": immediate().obey_retry_after(),
    "jitter: {factor: 0.15, inner: immediate}": immediate().jitter(0.15),
    "jitter: {inner: {periodic: 5s}, mode: full, cap: 9s}": periodic(5).jitter(mode="full", cap=9),
    "filteredOn: {predicate: false, inner: immediate}": immediate().only_when(False),
    "andThen: [immediate, never]": immediate() >> never(),
    "union: [immediate, never, {periodic: 1s}]": immediate() | never() | periodic(1),
    "intersect: [immediate, never]": immediate() & never(),
}


@pytest.mark.parametrize(("text", "policy"), POLICIES.items(), ids=POLICIES.keys())
def test_every_node_can_be_written_in_a_file(text, policy):
    assert policy_of(yaml.safe_load(text), "x") == policy


PREDICATES = {
    '"true"': Constant(True),
    "true": Constant(True),
    "false": Constant(False),
    "propEq: {property: errno, value: {integer: 19}}": prop("errno") == 19,
    "propEq: {property: handler, value: {text: boiler}}": prop("handler") == "boiler",
    "propNeq: {property: x-dry, value: {boolean: true}}": prop("x-dry") != True,  # noqa: E712  # a question
    "propGt: {property: attempts, value: 2}": prop("attempts") > 2,
    "propGte: {property: attempts, value: 2}": prop("attempts") >= 2,
    "propLt: {property: status-code, value: 500}": prop("status-code") < 500,
    "propLte: {property: interval, value: 60.5}": prop("interval") <= 60.5,
    "propExists: gatt-code": prop("gatt-code").exists(),
    "propExists: {property: gatt-code}": prop("gatt-code").exists(),
    "propIn: {property: adapter, values: [ble, {text: serial}]}": prop("adapter").in_("ble", "serial"),
    "propMatches: {property: handler, pattern: 'k*'}": prop("handler").matches("k*"),
    "propRegex: {property: handler, pattern: '^k'}": prop("handler").regex("^k"),
    "propStartsWith: {property: handler, prefix: k}": prop("handler").starts_with("k"),
    "propContains: {property: error-message, substring: busy}": prop("error-message").contains("busy"),
    "and: [true, false]": Constant(True) & Constant(False),
    "or: [true, false, true]": Constant(True) | Constant(False) | Constant(True),
    "not: {propExists: errno}": ~prop("errno").exists(),
}


@pytest.mark.parametrize(("text", "predicate"), PREDICATES.items(), ids=PREDICATES.keys())
def test_every_predicate_can_be_written_in_a_file(text, predicate):
    assert predicate_of(yaml.safe_load(text), "x") == predicate


def test_a_tree_may_be_written_in_toml_too():
    written = tomllib.loads(
        """
        [policy.countBox]
        maxRetries = 3
        inner.exponential = {baseDelay = "2s", factor = 2.0}
        """
    )

    assert policy_of(written["policy"], "policy") == exponential(2).max_retries(3)


WRONG = {
    "exponentiel: {baseDelay: 1s}": "x: 'exponentiel' is not a policy; did you mean 'exponential'",
    "countBox: {maxRetries: 3}": "x.countBox: countBox lacks 'inner'",
    "countBox: {maxRetries: -1, inner: immediate}": "x.countBox: max_retries is -1",
    "countBox: {maxRetries: true, inner: immediate}": "x.countBox: max_retries is True",
    "countBox: {maxRetries: 3, inner: {periodic: soon}}": "x.countBox.inner.periodic: delay is 'soon'",
    "countBox: {maxRetries: 3, inner: immediate, scope: poll}": "x.countBox: scope is 'poll'",
    "countBox: {maxretries: 3, inner: immediate}": "'maxretries' is unknown here; did you mean 'maxRetries'",
    "countBox: 3": "x.countBox: countBox takes maxRetries",
    "clamp: {minDelay: 5s, maxDelay: 1s, inner: immediate}": "x.clamp: clamp goes from",
    "periodic: {secs: 1.5}": "x.periodic: secs and nanos are whole numbers",
    "periodic: {secs: -1}": "x.periodic: secs and nanos",
    "periodic: .nan": "x.periodic: delay is nan",
    "periodic: true": "x.periodic: True is not a duration",
    "periodic: [1s]": "not a duration",
    "immediate: 5s": "x.immediate: it takes nothing",
    "union: [immediate]": "x.union: union takes a list of two or more",
    "union: [immediate, {linear: {}}]": r"x.union[1].linear: linear lacks 'step'",
    "jitter: {factor: 2, inner: immediate}": "x.jitter: jitter is 2",
    "sequence: []": "x.sequence: delays is empty",
    "sequence: [1s, x]": "x.sequence: delays[1]",
    "filteredOn: {predicate: {propEq: {property: errnum, value: 1}}, inner: immediate}": (
        "x.filteredOn.predicate.propEq: 'errnum' is not a property"
    ),
    "filteredOn: {predicate: maybe, inner: immediate}": "x.filteredOn.predicate: 'maybe' is not a predicate",
    "filteredOn: {predicate: {propIn: {property: errno, values: 5}}, inner: immediate}": "propIn.values: it is a list",
    "filteredOn: {predicate: {propEq: {property: errno, value: {integer: x}}}, inner: immediate}": "a typed value",
    "filteredOn: {predicate: {propRegex: {property: handler, pattern: '('}}, inner: immediate}": "regex of 'handler'",
    "{immediate: , never: }": "one key",
    "5": "5 is not a policy",
    "[]": "is not a policy",
}


@pytest.mark.parametrize(("text", "message"), WRONG.items(), ids=WRONG.keys())
def test_what_is_wrong_is_told_with_the_path_to_it(text, message):
    with pytest.raises((InvalidType, InvalidValue)) as caught:
        policy_of(yaml.safe_load(text), "x")

    assert message in str(caught.value)


def test_a_bomb_of_nested_nodes_is_refused():
    bomb = "immediate"
    for _ in range(5000):
        bomb = {"countBox": {"maxRetries": 1, "inner": bomb}}

    with pytest.raises(InvalidValue, match="nested deeper than 50"):
        policy_of(bomb, "x")


JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.sampled_from(list(POLICIES))
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                ["countBox", "inner", "maxRetries", "union", "periodic", "secs", "not", "predicate", "propEq"]
            ),
            inner,
            max_size=3,
        ),
    ),
    max_leaves=12,
)


ODD = [10**400, -1, ["add"], {"add": 1}, {"secs": 10**400}, {"periodic": "1s"}, "never", True]
VALUES = JSON | st.sampled_from(ODD)
SYNTAX = [*notation.POLICIES.items(), *notation.PREDICATES.items()]
NODES = st.sampled_from(SYNTAX).flatmap(
    lambda each: st.fixed_dictionaries({each[0]: st.fixed_dictionaries({key.name: VALUES for key in each[1].keys})})
)
"""Each node with all its keys, and anything for their values."""


@settings(max_examples=examples(400))
@given(JSON | NODES)
def test_whatever_a_file_holds_is_a_policy_or_a_named_error(value):
    for read in (policy_of, predicate_of):
        with contextlib.suppress(InvalidType, InvalidValue):
            read(value, "x")


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES.keys())
def test_a_policy_is_written_on_one_line_that_yaml_reads_too(policy):
    line = render(policy)

    assert policy_of(parse(line), "x") == policy
    assert parse(line) == yaml.safe_load(line)


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)


@given(TREES)
def test_a_tree_of_json_is_read_as_json_reads_it(tree):
    assert parse(json.dumps(tree)) == tree


@given(st.text('{}[],:"a1 ') | st.text())
def test_no_text_does_anything_but_be_read_or_refused(text):
    with contextlib.suppress(InvalidValue):
        assert parse(text) is not ...


def test_a_line_that_is_nested_too_deep_is_refused():
    with pytest.raises(InvalidValue, match="nested deeper"):
        parse("[" * 10_000)
