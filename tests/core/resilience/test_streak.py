import json

import pytest

from leadsman import ExponentialBackoff, exponential, periodic, strategy
from leadsman.core.resilience.decision import FailureStreak, streak_from_json
from leadsman.core.resilience.failure import Failure

POLICY = exponential("2s").max_retries(3)


def streak_of(policy, failures=2):
    state = policy.start()
    for number in range(failures):
        state, _ = policy.step(state, Failure(OSError(), attempts=number), lambda: 0.5)
    return FailureStreak(policy, state, failures, 1, 100.0, 90.0, 1e9)


def restarted(streak, policy, now=500.0, away=60.0, at=130.0):
    """The streak after a restart, as a file would carry it."""
    return streak_from_json(json.loads(json.dumps(streak.to_json(at))), policy, now, away)


def test_a_streak_survives_a_restart_with_its_state_and_its_age():
    streak = streak_of(POLICY)

    found = restarted(streak, POLICY)

    assert found == streak._replace(began=500.0 - 30 - 60, since=500.0 - 40 - 60, resumed=True)


def test_a_streak_of_an_earlier_version_began_with_its_first_failure():
    document = streak_of(POLICY).to_json(130.0)
    del document["called"]

    found = streak_from_json(document, POLICY, 500.0, 60.0)

    assert found.since == found.began == 500.0 - 30 - 60


def test_the_policy_goes_on_where_it_was():
    found = restarted(streak_of(POLICY), POLICY)

    _, verdict = POLICY.step(found.state, Failure(OSError(), cycle=1), lambda: 0.5)

    assert verdict.delay == 8


def test_another_policy_begins_a_new_outage():
    found = restarted(streak_of(POLICY), periodic("5s"))

    assert found.state == periodic("5s").start()
    assert found.waits == 2


def test_a_strategy_is_recognized_though_it_lies_elsewhere_in_memory():
    class Mine:
        def delay(self, attempt):
            return 3.0

    before, after = strategy(Mine()).max_retries(5), strategy(Mine()).max_retries(5)
    streak = streak_of(before)

    assert restarted(streak, after).state == streak.state


@pytest.mark.parametrize("change", [{"state": 7}, {"waits": "many"}, {"elapsed": None}])
def test_a_document_that_makes_no_sense_raises(change):
    document = streak_of(POLICY).to_json(130.0) | change

    with pytest.raises((TypeError, ValueError)):
        streak_from_json(document, POLICY, 500.0, 60.0)


def test_a_document_without_its_state_raises():
    with pytest.raises(KeyError):
        streak_from_json({"elapsed": 3.0}, strategy(ExponentialBackoff()), 500.0, 60.0)
