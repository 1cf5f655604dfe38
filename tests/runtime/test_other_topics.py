"""Retained topics that leadsman does not publish to by itself."""

from leadsman.runtime.other_topics import MOST, OtherTopics


def test_a_new_topic_is_listed_and_changes_the_registry_once():
    others, changes = OtherTopics(), []
    others.on_change = lambda: changes.append(1)

    for _ in range(3):
        others.add("a", "house/a/map")
    others.add("", "x/house/config")

    assert {name: list(topics) for name, topics in others.topics.items()} == {
        "a": ["house/a/map"],
        "": ["x/house/config"],
    }
    assert len(changes) == 2


def test_what_an_earlier_run_listed_changes_nothing():
    others, changes = OtherTopics(), []
    others.on_change = lambda: changes.append(1)
    others.keep("a", ["house/a/map"])
    others.keep("b", [])

    others.add("a", "house/a/map")

    assert (list(others.topics), changes) == (["a"], [])


def test_a_device_with_ever_new_topics_is_bounded_and_told_once(caplog):
    others = OtherTopics()
    for number in range(2 * MOST):
        others.add("a", f"house/a/{number}")

    assert len(others.topics["a"]) == MOST
    assert caplog.text.count(f"a retains more than {MOST} topics") == 1


def test_a_topic_that_was_removed_is_listed_no_more():
    others, changes = OtherTopics(), []
    others.keep("a", ["house/a/map"])
    others.on_change = lambda: changes.append(1)

    others.remove("a", "house/a/map")
    others.remove("a", "house/a/map")
    others.remove("b", "house/b/map")

    assert (list(others.topics["a"]), changes) == ([], [1])
