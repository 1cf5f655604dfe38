"""Which broker is tried next, and when."""

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from leadsman import Broker, Brokers
from leadsman.core.mqtt.broker_choice import (
    RETURN,
    RETURN_SELDOM,
    Ended,
    after,
    connected,
    first,
    return_wait,
)
from leadsman.core.mqtt.connection_state import PATIENT, failed, not_listening
from leadsman.core.mqtt.connection_state import connected as accepted

A, B, C = (Broker(f"{name}.lan") for name in ("a", "b", "c"))
CUT = Ended("the connection was lost", 0.4, settled=True, stay=True)
FROZEN = Ended("no acknowledgement within 10 s", 0.4, settled=True)
UNREACHABLE = Ended("cannot connect", 0.4)
REFUSED = Ended("bad user name or password", 60.0)


def start(*brokers):
    return first(Brokers(*(brokers or (A, B, C))))


def step(choice, ended, now=0.0, draw=0.5):
    return after(choice, choice.session, ended, now, draw)


def moved(choice, *endings, now=0.0):
    """The hosts that are tried when connections end so, one after the other."""
    hosts = []
    for ended in endings:
        choice, wait = step(choice, ended, now)
        now += wait
        hosts.append(choice.broker.host.removesuffix(".lan"))
    return hosts


def test_the_primary_is_tried_first():
    assert start().broker == A


def test_a_connection_that_worked_is_made_again_at_the_same_broker_first():
    assert moved(start(), CUT, UNREACHABLE) == ["a", "b"]


def test_after_a_replacement_that_worked_the_list_is_tried_from_its_top():
    choice = start()
    for ended in (UNREACHABLE, UNREACHABLE):
        choice, _ = step(choice, ended)
    assert choice.broker == C

    assert moved(connected(choice), CUT, UNREACHABLE, UNREACHABLE, now=100.0) == ["c", "a", "b"]


def test_a_broker_that_acknowledges_nothing_is_left_at_once():
    assert moved(start(), FROZEN) == ["b"]


def test_after_the_last_broker_the_first_one_is_tried():
    assert moved(start(), *[UNREACHABLE] * 4) == ["b", "c", "a", "b"]


def test_a_broker_that_only_a_person_can_mend_is_passed_over_until_its_wait_is_over():
    wrong_password_at_b = [UNREACHABLE, REFUSED, UNREACHABLE, UNREACHABLE, UNREACHABLE, UNREACHABLE]

    assert moved(start(), *wrong_password_at_b) == ["b", "c", "a", "c", "a", "c"]


def test_if_all_brokers_wait_the_first_to_be_due_is_next():
    choice, now = start(A, B), 0.0
    choice, wait = step(choice, REFUSED, now)
    now += wait
    choice, wait = step(choice, Ended("refused", 20.0), now)

    assert (choice.broker, wait) == (B, 20.0)


def test_a_host_where_nothing_listens_is_asked_often_while_a_silent_one_is_left_alone():
    choice, now, tried = start(A, B), 0.0, {A: [], B: []}
    while now < 3600:
        tried[choice.broker].append(now)
        step_of = not_listening if choice.broker == A else failed
        now += 0.0 if choice.broker == A else 5.0
        session, wait = step_of(choice.session, now, 0.5)
        choice, wait = after(choice, session, Ended("away", wait), now, 0.5)
        now += wait

    gaps = [later - earlier for earlier, later in itertools.pairwise(tried[A])]
    assert max(gaps) <= 7  # a turn of the other one, with its timeout
    assert sorted(gaps)[len(gaps) // 2] <= 0.45
    assert len(tried[B]) < 200


def test_one_broker_waits_as_long_as_its_connection_says():
    for ended in (CUT, UNREACHABLE, REFUSED):
        choice, wait = step(start(A), ended)
        assert (choice.broker, wait) == (A, ended.wait)


def test_a_broker_that_is_tried_says_why_it_was_left_until_it_works():
    choice, _ = step(start(A, B), UNREACHABLE)

    assert [each.error for each in choice.candidates] == ["cannot connect", None]
    choice, _ = step(connected(choice), CUT)
    assert connected(choice).candidates[1].error is None


class TestReturn:
    BACK = Ended("the primary can be reached again", 0.4, settled=True, stay=True, back=True)

    def test_the_primary_is_next_at_once(self):
        choice, _ = step(start(A, B), UNREACHABLE)
        choice, wait = step(choice, self.BACK, now=400.0)

        assert (choice.broker, wait) == (A, 0.0)

    def test_a_primary_that_does_not_last_is_asked_ever_less_often(self):
        choice, now, waits = start(A, B), 0.0, []
        for _ in range(6):
            choice, _ = step(choice, UNREACHABLE, now)
            waits.append(return_wait(choice, 0.5))
            choice, _ = step(choice, self.BACK, now + 100)
            now += 200

        assert waits == [RETURN, 2 * RETURN, 4 * RETURN, *[RETURN_SELDOM] * 3]

    def test_a_primary_that_lasts_is_asked_as_often_as_at_first(self):
        choice, _ = step(start(A, B), UNREACHABLE)
        choice, _ = step(choice, self.BACK, now=400.0)
        choice, _ = step(choice, CUT, now=400.0 + RETURN)

        assert return_wait(choice, 0.5) == RETURN


def test_the_connection_is_away_since_its_first_failure_at_any_broker():
    choice, now = start(A, B), 100.0
    for ended in (UNREACHABLE, UNREACHABLE, UNREACHABLE):
        choice, wait = step(choice, ended, now)
        now += wait
    assert choice.away_since == 100.0

    choice, _ = step(connected(choice), CUT, 500.0)
    assert choice.away_since == 500.0


@st.composite
def lives(draw):
    """A list of brokers, those of them that answer, and the random draws of a life."""
    count = draw(st.integers(1, 5))
    up = draw(st.sets(st.integers(0, count - 1)))
    return count, up, draw(st.lists(st.floats(0, 0.999), min_size=40, max_size=40))


@given(lives())
def test_every_broker_of_the_list_gets_its_turn_and_one_that_works_is_found(life):
    count, up, draws = life
    brokers = [Broker(f"b{number}.lan") for number in range(count)]
    choice, now, tried = first(Brokers(*brokers)), 0.0, []
    for draw in draws:
        if choice.current in up:
            break
        tried.append(choice.current)
        session, wait = failed(choice.session, now, draw)
        choice, wait = after(choice, session, Ended("cannot connect", wait), now, draw)
        assert 0.0 <= wait <= PATIENT
        now += wait

    if up:
        assert choice.current in up
        assert len(tried) == len(set(tried)) == min(up)  # each one before it was tried once
    else:
        assert set(tried) == set(range(count))


@given(st.lists(st.tuples(st.sampled_from([CUT, FROZEN, UNREACHABLE, REFUSED]), st.floats(0, 0.999)), max_size=60))
def test_no_broker_is_tried_before_its_own_wait_is_over(events):
    choice, now, due = start(), 0.0, dict.fromkeys((A, B, C), -math.inf)
    for ended, draw in events:
        due[choice.broker] = now + ended.wait
        choice, wait = after(choice, choice.session, ended, now, draw)
        assert wait >= 0.0
        now += wait
        assert now >= due[choice.broker] - 1e-9


@given(st.integers(1, 50), st.floats(0, 0.999))
def test_a_broker_that_works_is_never_left_for_a_cut(cuts, draw):
    choice, now = start(), 0.0
    for _ in range(cuts):
        session, wait = failed(accepted(choice.session, now), now + 60, draw)
        choice, wait = after(connected(choice), session, Ended("cut", wait, settled=True, stay=True), now + 60, draw)
        now += 60 + wait

    assert choice.broker == A
