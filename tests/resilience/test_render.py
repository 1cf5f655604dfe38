import pytest
import yaml
from hypothesis import given, settings
from tests.resilience.test_notation import POLICIES, PREDICATES
from tests.resilience.test_policy import TREES

from leadsman import ExponentialBackoff, FixedBackoff
from leadsman.resilience.catalogue import FAMILIES, Catalogue, Lookup
from leadsman.resilience.notation import policy_of, predicate_of
from leadsman.resilience.policy import exponential, fibonacci, immediate, linear, never, periodic, sequence, strategy
from leadsman.resilience.predicate import is_a, prop
from leadsman.resilience.render import condition_of, rendered, text_of
from leadsman_rigs.examples import examples


class Golden:
    def delay(self, attempt):
        return 1.618**attempt


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (exponential("2s").max_retries(3), "{countBox: {maxRetries: 3, inner: {exponential: {baseDelay: 2s}}}}"),
        (
            immediate().max_retries(2) >> periodic(5) >> never(),
            "{andThen: [{countBox: {maxRetries: 2, inner: immediate}}, {periodic: 5s}, never]}",
        ),
        (
            linear(2, scope="cycle") | fibonacci(1, 2, "5m"),
            "{union: [{linear: {step: 2s, scope: cycle}}, {fibonacci: {first: 1s, second: 2s, cap: 5m}}]}",
        ),
        (periodic(1 / 3), "{periodic: 0.3333333333333333}"),
        (sequence([1, 0]).within("1m"), "{timeBox: {limit: 1m, inner: {sequence: [1s, 0s]}}}"),
        (strategy(ExponentialBackoff()), "{jitter: {inner: {exponential: {baseDelay: 2s}}}}"),
        (strategy(FixedBackoff(5, 6)), "{jitter: {inner: {periodic: 5s}, cap: 6s}}"),
        (periodic(5).jitter(0.3, "add"), "{jitter: {factor: 0.3, mode: add, inner: {periodic: 5s}}}"),
        (periodic(5).jitter(mode="full", cap=3), "{jitter: {mode: full, cap: 3s, inner: {periodic: 5s}}}"),
        (
            immediate().only_when(is_a(OSError)),
            "{filteredOn: {predicate: {propEq: {property: error-bases, value: builtins.OSError}}, inner: immediate}}",
        ),
        (
            immediate().only_when(prop("error-message").contains("a b")),
            '{filteredOn: {predicate: {propContains: {property: error-message, substring: "a b"}}, inner: immediate}}',
        ),
        (strategy(Golden()), "{strategy: tests.resilience.test_render.Golden}"),
        (Lookup("serial"), "serial"),
    ],
)
def test_a_policy_is_shown_on_one_line_without_what_is_default(policy, text):
    assert rendered(policy) == text


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES.keys())
def test_what_a_file_can_say_is_shown_as_a_file_would_say_it(policy):
    assert policy_of(yaml.safe_load(rendered(policy)), "x") == policy


@pytest.mark.parametrize("predicate", PREDICATES.values(), ids=PREDICATES.keys())
def test_a_predicate_is_shown_as_a_file_would_say_it(predicate):
    assert predicate_of(yaml.safe_load(text_of(condition_of(predicate))), "x") == predicate


@settings(max_examples=examples(200), deadline=None)
@given(TREES)
def test_what_is_shown_can_be_read_and_is_shown_the_same_again(tree):
    text = rendered(tree.jitter(0.5))

    assert rendered(policy_of(yaml.safe_load(text), "x")) == text


@pytest.mark.parametrize("family", FAMILIES)
def test_families_are_shown_in_the_notation_of_a_file(family):
    text = rendered(Catalogue().policy(family))

    assert rendered(policy_of(yaml.safe_load(text), "x")) == text


def test_policies_of_a_file_are_shown_as_a_file_lists_them():
    catalogue = Catalogue(
        {
            "policy": {
                "radio": {
                    "priority": 5,
                    "predicate": {"propEq": {"property": "adapter", "value": "on"}},
                    "policy": "immediate",
                },
                "rest": "never",
            }
        }
    )
    radio = '{name: radio, priority: 5, predicate: {propEq: {property: adapter, value: "on"}}, policy: immediate}'

    assert rendered(catalogue.choice({})) == f"[{radio}, {{name: rest, policy: never}}]"
