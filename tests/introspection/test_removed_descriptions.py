"""Which removed descriptions the registry lists."""

from hypothesis import given
from hypothesis import strategies as st

from leadsman.introspection.removed_descriptions import KEPT, MOST, RemovedDescription, RemovedDescriptions

DAY = 86400.0


def listed(found, now):
    return [each.topic for each in found.current(now)]


def test_what_was_removed_is_listed_for_thirty_days():
    found = RemovedDescriptions()
    found.add("a", b"{}", 0.0)

    assert listed(found, 30 * DAY - 1) == ["a"]
    assert listed(found, 30 * DAY) == []


def test_what_this_run_removed_counts_and_not_what_an_earlier_run_listed_of_it():
    found = RemovedDescriptions()
    found.add("a", b"new", 5.0)

    found.take([RemovedDescription("a", b"old", 1.0), RemovedDescription("b", b"old", KEPT)], 5.0)

    assert {each.topic: each.payload for each in found.current(5.0)} == {"a": b"new", "b": b"old"}


def test_a_clock_that_was_far_ahead_lists_nothing_for_longer_than_thirty_days():
    found = RemovedDescriptions()
    found.take([RemovedDescription("a", b"{}", 1e11)], 0.0)

    assert listed(found, 30 * DAY) == []


def test_what_readers_have_seen_is_listed_no_more():
    found = RemovedDescriptions()
    found.add("a", b"{}", 0.0)

    assert [found.forget("a"), found.forget("a")] == [True, False]
    assert listed(found, 0.0) == []


removals = st.tuples(st.sampled_from("abcdef"), st.integers(1, MOST), st.floats(0, 60 * DAY))


@given(st.lists(removals, max_size=20))
def test_the_newest_are_listed_and_never_more_than_there_is_room_for(given_removals):
    found = RemovedDescriptions()
    for topic, size, at in sorted(given_removals, key=lambda each: each[2]):
        found.add(topic, bytes(size), at)

        current = found.current(at)
        assert current[-1] == (topic, bytes(size), at + KEPT)
        assert sum(len(each.payload) for each in current) <= MOST
        assert [each.until for each in current] == sorted(each.until for each in current)
