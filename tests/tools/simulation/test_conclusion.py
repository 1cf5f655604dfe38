"""The conclusion about policies."""

from hypothesis import given
from hypothesis import strategies as st

from leadsman.tools.simulation.outcome import PolicyDay, conclusion, figures_of

NONE = figures_of([])


def compared(policy, lost, attempts, waited=0.0):
    figures = NONE._replace(slots=1000, readings=1000 - lost, lost=lost, attempts=attempts, gap_total=waited)
    return PolicyDay(policy, (), figures._replace(gaps=1, gap_max=waited))


COMPARED = st.lists(
    st.builds(compared, st.text("abc", min_size=1), st.integers(0, 1000), st.integers(0, 9999), st.floats(0, 1e6)),
    min_size=1,
    max_size=5,
)


def test_the_best_policy_is_named_with_its_cost():
    sentence = conclusion([compared("as written", 50, 1000, 7200.0), compared("retry=3", 10, 1100, 3600.0)])

    assert sentence == (
        "retry=3 would do best: 10 readings lost instead of 50, 1h less without a reading, for 10 % more calls."
    )


def test_an_app_that_no_policy_beats_is_kept():
    only = conclusion([compared("as written", 5, 1000, 60.0), compared("retry=9", 5, 2000, 60.0)])

    assert only.startswith("Keep the app as it is written: it lost 5 readings of 1,000")


def test_a_part_of_a_second_is_no_gain_that_calls_may_cost():
    only = conclusion([compared("as written", 5, 1000, 60.0), compared("retry=9", 5, 9000, 59.5)])

    assert only.startswith("Keep the app as it is written")


def test_a_day_without_gaps_teaches_nothing():
    only = conclusion([PolicyDay(name, (), NONE._replace(slots=10, readings=10)) for name in ("as written", "retry=3")])

    assert only.startswith("No policy had a gap")


def test_a_time_in_which_nothing_was_due_is_too_short():
    assert conclusion([PolicyDay("as written", (), NONE)]) == (
        "No poll was due in this time: simulate a longer one, with --for."
    )


@given(COMPARED)
def test_no_policy_is_better_than_the_one_that_is_advised(found):
    sentence = conclusion(found)
    best = min(each.figures.lost for each in found)
    advised = [each for each in found if sentence.startswith(f"{each.policy} would")]

    assert ": ," not in sentence
    assert not advised or best in [each.figures.lost for each in advised]
    assert len(found) == 1 or advised or found[0].figures.lost == best
