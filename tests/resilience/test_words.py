"""Policies in plain English, as an app says them."""

import pytest

from leadsman import (
    UNTIL_NEXT_POLL,
    App,
    ExponentialBackoff,
    FixedBackoff,
    LinearBackoff,
    exponential,
    fibonacci,
    immediate,
    is_a,
    never,
    periodic,
    prop,
    sequence,
)


@pytest.fixture
def sentences(harness):
    """What an app says of its only device."""

    def sentences(app):
        running = harness(app)
        running.run(0.1)
        running.broker.send("house/introspect", {"sections": ["words"]}, response_topic="house/answers")
        running.run(0.1)
        return running.broker.messages("house/answers")[-1].json["data"]["words"]["meter"]

    return sentences


@pytest.fixture
def of_policy(sentences):
    """What an app says of a policy."""

    def of_policy(policy):
        app = App("house")
        app.add_telemetry("meter", lambda: None, interval="1h", policy=policy)
        (found,) = [each for each in sentences(app) if each.startswith("A call that fails is repeated: ")]
        return found.removeprefix("A call that fails is repeated: ").removesuffix(".")

    return of_policy


class Mine:
    def delay(self, attempt):
        return 1.0


@pytest.mark.parametrize(
    ("strategy", "count", "text"),
    [
        (ExponentialBackoff(), None, "after 2 s, 4 s, 8 s, 16 s, … up to 1 min (±20 %)"),
        (ExponentialBackoff(), 3, "after 2 s, 4 s and 8 s (±20 %)"),
        (ExponentialBackoff("300ms", jitter=0), 1, "after 300 ms"),
        (ExponentialBackoff("20s"), None, "after 20 s and 40 s, and then 1 min each time (±20 %)"),
        (LinearBackoff("5s"), 6, "after 5 s, 10 s, 15 s, 20 s, … up to 30 s (±20 %)"),
        (FixedBackoff(3), None, "after 3 s each time (±20 %)"),
        (fibonacci("1s", "2s").strategy, 4, "after 1 s, 2 s, 3 s and 5 s"),
        (Mine(), None, "after the waits of test_words.Mine"),
    ],
)
def test_waits_are_named_until_they_no_longer_grow(sentences, strategy, count, text):
    app = App("house")
    retry = UNTIL_NEXT_POLL if count is None else count
    app.add_telemetry("meter", lambda: None, interval="1h", retry=retry, backoff=strategy)

    said = [each.replace(f"{Mine.__module__}.", "test_words.") for each in sentences(app)]

    often = "until the next poll" if count is None else "once" if count == 1 else f"up to {count} times"
    assert f"A call that fails is repeated {often}, {text}." in said


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (immediate(), "at once"),
        (never(), "not at all"),
        (periodic("10s"), "after 10 s each time"),
        (sequence(["1s", "5s"]), "after 1 s, and then 5 s each time"),
        (immediate().max_retries(2), "at once, at most 2 times in one poll"),
        (
            immediate().max_retries(2) >> periodic("10s"),
            "at once, at most 2 times in one poll; then after 10 s each time",
        ),
        (exponential("2s").clamp("1s", "5s"), "after 2 s, 4 s, 8 s, 16 s, … up to 1 min, each wait from 1 s to 5 s"),
        (immediate() | periodic("10s"), "the sooner of (at once) and (after 10 s each time)"),
        (immediate() & periodic("10s"), "the later of (at once) and (after 10 s each time), while both go on"),
        (periodic("10s").jitter(mode="full"), "after 10 s each time, spread by chance (full)"),
    ],
)
def test_a_policy_is_said_as_one_sentence(of_policy, policy, text):
    assert of_policy(policy) == text


@pytest.mark.parametrize(
    ("predicate", "text"),
    [
        (is_a(OSError), "the error is OSError"),
        (is_a(OSError, ValueError), "the error is OSError or ValueError"),
        (~is_a(OSError), "not (the error is OSError)"),
        (is_a(OSError) & ~is_a(ValueError), "(the error is OSError) and (not (the error is ValueError))"),
        (prop("error-message").contains("busy"), "error-message contains busy"),
    ],
)
def test_a_predicate_says_which_errors_it_matches(of_policy, predicate, text):
    policy = periodic("1m").only_when(predicate).plus("1s")

    assert of_policy(policy) == f"after 1 min each time, if {text}, each 1 s later"
