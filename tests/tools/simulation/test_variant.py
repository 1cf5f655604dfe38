"""Policies of the command line."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman import UNTIL_NEXT_POLL, App, CircuitBreaker, exponential, never
from leadsman.core.resilience.notation import render
from leadsman.core.resilience.policy import from_options
from leadsman.errors import ConfigurationError
from leadsman.tools.simulation.variant import ALONE, AS_WRITTEN, USUAL, WORDS, variant_of

BREAKER = CircuitBreaker(7)


@pytest.fixture
def telemetry():
    app = App("house")
    app.add_telemetry("a", lambda: None, interval=60, retry=1, circuit_breaker=BREAKER)
    return app.telemetries["a"]


def test_a_policy_is_read_as_it_is_shown():
    policy = exponential("2s", cap="1m").max_retries(3).within("1h30m")

    assert variant_of(render(policy)).options == {"policy": policy}


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("retry=3", from_options(3)),
        ("UNTIL_NEXT_POLL", from_options(UNTIL_NEXT_POLL)),
        ("until_next_poll", from_options(UNTIL_NEXT_POLL)),
        ("retry=UNTIL_NEXT_POLL", from_options(UNTIL_NEXT_POLL)),
        ("retry=until next poll", from_options(UNTIL_NEXT_POLL)),
        (" retry = 2 , budget = 30s ", from_options(2, budget=30.0)),
        ("retry=2, within=5m", from_options(2, within=300.0)),
        ("policy={never: {}}", never()),
        ("never", never()),
    ],
)
def test_words_mean_the_options_of_the_decorator(text, policy, telemetry):
    changed = variant_of(text).of(telemetry, None)

    assert changed.guards.policy == policy
    assert changed.guards.breaker is BREAKER


def test_a_circuit_breaker_alone_keeps_the_policy(telemetry):
    changed = variant_of("circuit_breaker=5, recovery=10m").of(telemetry, None)

    assert changed.guards == telemetry.guards._replace(breaker=CircuitBreaker(5, recovery="10m"))


def test_a_circuit_breaker_is_read_as_in_the_settings_of_a_device(telemetry):
    changed = variant_of("circuit_breaker=5, recovery={exponential: {baseDelay: 1m}}").of(telemetry, None)

    assert changed.guards.breaker.recovery == exponential("1m").strategy


def test_a_circuit_breaker_can_be_left_out_and_a_poll_outlasted(telemetry):
    changed = variant_of("retry=2, circuit_breaker=off, overrun=finish").of(telemetry, None)

    assert (changed.guards.breaker, changed.overrun) == (None, True)


def test_a_family_is_a_policy(telemetry):
    assert variant_of("ble").of(telemetry, None).policy_name == "ble"


def test_the_app_as_it_is_written_is_unchanged(telemetry):
    assert AS_WRITTEN.of(telemetry, None) is telemetry


def test_the_usual_policies_can_be_read():
    assert len({variant_of(text).name for text in USUAL}) == len(USUAL)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it is empty"),
        ("retri=3", "'retri' is unknown here; did you mean 'retry'?"),
        ("retry=many", "write the number of retries after the first call"),
        ("retry=" + "9" * 5000, "write the number of retries after the first call"),
        ("retry=1, retry=2", "retry is given twice"),
        ("recovery=5m", "recovery belongs to a circuit breaker"),
        ("circuit_breaker=0", "threshold"),
        ("circuit_breaker=five", "threshold"),
        ("{countBux: {}}", "did you mean 'countBox'?"),
        ("{countBox: {maxRetries: 3", "at 'the end': Expecting ',' delimiter"),
        ("{countBox: {maxRetries 3}}", "at '}}': Expecting ':' delimiter"),
        ("{" * 10_000, "is not a policy"),
        ("{a: " * 10_000, "nested deeper than 50 nodes"),
    ],
)
def test_what_is_no_policy_is_refused_with_what_to_write(text, said):
    with pytest.raises(ConfigurationError) as refused:
        variant_of(text)

    assert str(refused.value).startswith("--policy ")
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gentel", "no policy is called 'gentel'"),
        ("retry=3, ble", "policy and retry both say what is retried"),
        ("retry=3, budget=soon", "budget is 'soon'"),
        ("UNTIL_NEXT_POLL, overrun=finish", "overrun"),
    ],
)
def test_what_no_device_can_take_is_refused_too(text, said, telemetry):
    with pytest.raises(ConfigurationError) as refused:
        variant_of(text).of(telemetry, None)

    assert said in str(refused.value)


PIECES = [*WORDS, *ALONE, *'={}[],:" 3\\', "9" * 5000, "10m", "nan", "1e999", "countBox", "UNTIL_NEXT_POLL", "\ud800"]


@given(st.lists(st.sampled_from(PIECES)).map("".join) | st.text())
def test_no_text_of_the_command_line_is_anything_but_a_policy_or_refused(text):
    with contextlib.suppress(ConfigurationError):
        assert variant_of(text).name.isprintable()
