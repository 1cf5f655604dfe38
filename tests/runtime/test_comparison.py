import pytest

from leadsman.publish import LastPublished
from leadsman.runtime.comparison import Comparison


@pytest.fixture
def comparison():
    comparison = Comparison()
    comparison.accepted({"t": 20}, at=1.0, taken=101.0)
    comparison.accepted({"t": 25}, at=2.0, taken=102.0)
    return comparison


def test_the_last_reading_counts_as_soon_as_the_outbox_has_it(comparison):
    assert comparison.last == LastPublished({"t": 25}, 2.0)


def test_when_it_is_dropped_the_one_before_it_counts_and_the_pace_stays(comparison):
    comparison.dropped(102.0)

    assert comparison.last == LastPublished({"t": 20}, 2.0)


def test_when_both_are_dropped_none_counts(comparison):
    comparison.dropped(102.0)
    comparison.dropped(102.0)

    assert comparison.last is None


def test_the_one_before_does_not_count_after_it_was_dropped(comparison):
    comparison.dropped(101.0)
    comparison.dropped(102.0)

    assert comparison.last is None


def test_the_one_before_does_not_count_after_the_last_took_its_place(comparison):
    comparison.replaced()
    comparison.dropped(102.0)

    assert comparison.last is None


def test_an_older_reading_that_is_dropped_changes_nothing(comparison):
    comparison.dropped(50.0)

    assert comparison.last == LastPublished({"t": 25}, 2.0)


def test_none_counts_when_it_is_not_certain_which_one_was_dropped(comparison):
    comparison.dropped(101.7)

    assert comparison.last is None


def test_readings_that_are_not_published_are_counted(comparison):
    comparison.passed_over(comparison.last)
    comparison.passed_over(comparison.last)

    assert comparison.last.since == 2
