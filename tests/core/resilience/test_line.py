import heapq
import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leadsman.core.resilience.line import FIRST_TURN_SHARE, MIN_LOOK_SECONDS, SHARE, Turns
from leadsman_rigs.examples import examples


class Units:
    """Units on one line that are polled at their intervals, all at the same moment, in virtual time.

    Args:
        answers: seconds until each answers; infinity: it is dead.
        interval: seconds between two polls of each.
        requests: of one poll, one after the other.
        timeout: of the adapter.
    """

    def __init__(self, answers, interval, requests=1, timeout=1.0):
        self.turns, self.answers, self.interval = Turns(), dict(answers), interval
        self.requests, self.timeout = requests, timeout
        self.now, self.number = 0.0, itertools.count()
        self.due = [(0.0, next(self.number), "poll", unit) for unit in self.answers]
        self.left = dict.fromkeys(self.answers, 0)  # requests of the poll under way
        self.asked, self.polled_at = {}, {}
        self.late = {unit: [] for unit in self.answers}
        self.looked = 0.0
        self.at = math.inf

    def run(self, until):
        while True:
            self.at = self.turns.step(self.now)
            holder = self.turns.holder
            ends = math.inf
            if holder is not None:
                answer = self.answers[holder.who]
                ends = min(holder.began + min(answer, self.timeout), max(self.at, self.now))
            when = min(self.due[0][0], ends, self.at if holder is None else math.inf)
            if when > until:
                self.now = until
                return
            self.now = max(self.now, when)
            if holder is not None and ends <= self.due[0][0]:
                self.finish(holder, answered=self.now >= holder.began + self.answers[holder.who] - 1e-9)
            elif self.due[0][0] <= self.now:
                self.poll(heapq.heappop(self.due)[3])

    def poll(self, unit):
        heapq.heappush(self.due, (self.now + self.interval, next(self.number), "poll", unit))
        if self.left[unit] == 0:
            self.left[unit], self.polled_at[unit] = self.requests, self.now
            self.turns.ask(unit, self.now, first=FIRST_TURN_SHARE * self.timeout)

    def finish(self, holder, *, answered):
        unit = holder.who
        if not answered and self.turns.is_silent(unit):
            self.looked += self.now - holder.began
        self.turns.end(holder, self.now, answered=answered)
        self.left[unit] = self.left[unit] - 1 if answered else 0
        if self.left[unit]:
            self.turns.ask(unit, self.now, first=FIRST_TURN_SHARE * self.timeout)
        elif answered:
            self.late[unit].append(self.now - self.polled_at[unit])

    def p99(self):
        """The lateness of the readings of those that answer."""
        all_of_them = sorted(
            late for unit, found in self.late.items() if self.answers[unit] < self.timeout for late in found
        )
        return all_of_them[int(len(all_of_them) * 0.99) - 1]


UNITS = [f"u{n}" for n in range(10)]


def line(dead, interval, answer, requests=1):
    return Units({u: math.inf if u in dead else answer for u in UNITS}, interval, requests)


@pytest.mark.slow
@settings(max_examples=examples(40), deadline=None)
@given(
    dead=st.sets(st.sampled_from(UNITS), min_size=1, max_size=9),
    interval=st.sampled_from([1, 5, 30]),
    answer=st.sampled_from([0.0, 0.004, 0.02]),
    requests=st.integers(1, 3),
)
def test_healthy_units_pay_one_short_look_at_the_most_whatever_is_dead(dead, interval, answer, requests):
    alone, beside = line((), interval, answer, requests), line(dead, interval, answer, requests)
    seconds = max(600, 150 * interval)

    alone.run(seconds)
    beside.run(seconds)

    assert beside.p99() <= alone.p99() + max(MIN_LOOK_SECONDS, 4 * answer) + 1e-6
    assert beside.looked <= SHARE * seconds + 1e-6
    for unit in set(UNITS) - dead:
        assert len(beside.late[unit]) >= seconds / interval - 1 - len(dead) * FIRST_TURN_SHARE / interval


@settings(max_examples=examples(40), deadline=None)
@given(
    dead=st.sets(st.sampled_from(UNITS), min_size=1, max_size=9),
    interval=st.sampled_from([1, 5, 30]),
    back=st.floats(100, 130),
)
def test_a_unit_that_is_back_is_read_within_two_of_its_intervals(dead, interval, back):
    answer = 0.005
    units = line(dead, interval, answer)
    units.run(back * interval)

    units.answers = dict.fromkeys(UNITS, answer)
    units.run((back + 2) * interval)

    assert all(units.late[unit] for unit in dead)


@pytest.mark.parametrize("answer", [0.1, 0.4, 0.9])
def test_a_unit_that_answers_slower_than_the_others_is_read(answer):
    units = Units({"quick": 0.01, "slow": math.inf}, 1)
    units.run(60)

    units.answers["slow"] = answer
    units.run(120)

    assert units.late["slow"]


def test_a_unit_that_has_the_line_to_itself_is_never_cut_however_long_it_is_silent():
    turns = Turns()
    for second, answered in enumerate((True, False, False, False)):
        turns.ask("meter", float(second), first=0.3)

        assert turns.step(float(second)) == math.inf
        assert turns.holder is not None
        turns.end(turns.holder, second + (0.01 if answered else 1.0), answered=answered)


def test_turns_are_given_in_the_order_in_which_they_are_asked_for():
    turns, order = Turns(), []
    for unit in "abc":
        turns.ask(unit, 0.0)
    for second in range(3):
        turns.step(float(second))
        order.append(turns.holder.who)
        turns.end(turns.holder, second + 0.1, answered=True)

    assert order == ["a", "b", "c"]


def test_a_turn_of_nobody_and_one_that_a_person_waits_for_are_never_cut():
    turns = Turns()
    for who, look in ((None, True), ("boiler", False)):
        turn = turns.ask(who, 0.0, look=look)
        turns.ask("other", 0.0)

        assert turns.step(0.0) == math.inf
        assert turns.holder is turn
        turns.end(turn, 5.0, answered=False)
        turns.step(5.0)
        turns.end(turns.holder, 5.0, answered=True)


def test_the_time_that_opening_the_line_takes_is_no_time_of_the_unit():
    turns = Turns()
    turn = turns.ask("a", 0.0)
    turns.ask("b", 0.0)
    turns.step(0.0)
    turns.opening()

    assert turns.step(4.0) == math.inf
    turns.end(turn, 4.0, answered=False)
    assert not turns.is_silent("a")
