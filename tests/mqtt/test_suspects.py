import itertools

from hypothesis import given
from hypothesis import strategies as st

from leadsman.mqtt.message import Message
from leadsman.mqtt.suspects import FEW, QUIET, Suspects


def test_after_a_broken_window_few_messages_go_until_each_of_them_is_acknowledged():
    suspects, flying = Suspects(), [f"t{n}" for n in range(20)]

    suspects.broke(flying, 0, 1.0)

    assert suspects.window(20) == FEW
    for topic in flying:
        suspects.acknowledged(topic, 2.0)
    assert suspects.window(20) == 20
    assert not suspects.alone


def test_after_a_broken_window_of_few_each_of_their_topics_goes_alone():
    suspects = Suspects()

    assert suspects.broke(["a", "b"], 0, 1.0) is None

    assert set(suspects.alone) == {"a", "b"}
    assert suspects.window(20) == 20


def test_a_topic_that_went_alone_is_to_blame():
    suspects = Suspects()
    suspects.broke(["a", "b"], 0, 1.0)
    suspects.solo = "a"

    assert suspects.window(20) == 0
    assert suspects.broke(["a"], 7, 2.0) == ("a", 1, 7, False)
    suspects.solo = "a"
    assert suspects.broke(["a"], 9, 3.0) == ("a", 2, 7, False)


def test_a_topic_that_was_refused_just_before_is_to_blame_and_not_the_one_in_flight():
    suspects = Suspects()
    suspects.refused("a", 1.0)

    assert suspects.broke(["b", "c"], 0, 1.1).topic == "a"
    assert "b" not in suspects.alone


def test_a_connection_that_ends_for_another_reason_makes_nobody_suspect():
    suspects = Suspects()
    suspects.broke(["a"], 0, 1.0)
    suspects.solo = "a"

    suspects.acquit()

    assert not suspects.is_blamed("a")
    assert suspects.window(20) == 20


def test_a_refusal_long_before_is_not_to_blame():
    suspects = Suspects()
    suspects.refused("a", 1.0)

    assert suspects.broke(["b"], 0, 2.0) is None
    assert "a" not in suspects.alone


def test_what_was_acknowledged_just_before_goes_alone_the_next_time():
    suspects = Suspects()
    suspects.acknowledged("a", 1.0)

    assert suspects.broke(["b"], 0, 1.0 + QUIET / 2) is None

    assert set(suspects.alone) == {"a", "b"}


def test_a_message_of_quality_0_is_made_sure_of_after_a_break():
    suspects = Suspects()
    message = Message("a", b"", qos=0)

    assert suspects.certain(message, 1.0).qos == 0
    suspects.broke([], 0, 1.5)
    assert suspects.certain(message, 2.0).qos == 1
    suspects.acknowledged("a", 2.1)
    assert suspects.certain(message, 3.0).qos == 0


def test_a_topic_that_gets_through_alone_is_free_again():
    suspects = Suspects()
    suspects.broke(["a"], 0, 1.0)
    suspects.solo = "a"

    assert not suspects.survived("a")

    assert suspects.alone == {}
    assert suspects.window(20) == 20


def next_batch(queue, suspects):
    """What the link would have in flight."""
    if queue[0] in suspects.alone:
        suspects.solo = queue[0]
        return queue[:1]
    window = suspects.window(20)
    return list(itertools.takewhile(lambda topic: topic not in suspects.alone, queue[:window]))


@given(st.sets(st.integers(0, 59), min_size=1, max_size=6), st.booleans())
def test_each_topic_that_breaks_the_connection_is_found_within_a_few_connections(numbers, refuses):
    suspects, poison, found, breaks, now = Suspects(), {f"t{n}" for n in numbers}, [], 0, 0.0
    queue = [f"t{n}" for n in range(60)]
    while queue:
        now += 1.0
        batch = next_batch(queue, suspects)
        bad = [topic for topic in batch if topic in poison]
        if not bad:
            for topic in batch:
                suspects.acknowledged(topic, now)
                queue.remove(topic)
            suspects.survived(batch[0])
            continue
        breaks += 1
        if refuses:
            suspects.refused(bad[0], now)
        blame = suspects.broke(batch, 0, now)
        if blame is not None:
            found.append(blame.topic)
            queue.remove(blame.topic)

    assert sorted(found) == sorted(poison)
    assert breaks <= (1 if refuses else 3) * len(poison)
