"""How large a message may be at a broker that says nothing of its limit."""

from hypothesis import given
from hypothesis import strategies as st

from leadsman.core.mqtt.suspects import MAX_TOPICS, SIZE_RETRY_INTERVAL, SizeLimit

SIZES = st.integers(30, 20_000)
TOPICS = st.sampled_from("abc")


@given(st.integers(100, 10_000), st.lists(st.tuples(TOPICS, SIZES), max_size=60))
def test_only_what_the_broker_does_not_take_is_held_back(limit, messages):
    known = SizeLimit()
    breaks = dict.fromkeys("abc", 0)
    for topic, size in messages:
        learned = known.refused_size(0.0)
        if learned is not None and size >= learned:
            assert size > limit
        elif size <= limit:
            known.accepted(topic, size)
        else:
            breaks[topic] += not known.broke(topic, size, 0.0)
    largest = max((size for _, size in messages if size <= limit), default=0)
    assert not largest or known.refused_size(0.0) is None or known.refused_size(0.0) > largest


@given(SIZES, TOPICS)
def test_a_message_that_is_no_larger_than_one_that_was_taken_is_not_too_large(size, topic):
    known = SizeLimit()
    known.accepted("another", size)

    assert not known.broke(topic, size, 0.0)
    assert known.learned is None


def test_a_topic_that_took_nothing_may_be_denied():
    known = SizeLimit()
    known.accepted("status", 600)

    assert not known.broke("denied", 9000, 0.0)


def test_a_size_is_known_for_all_topics_where_the_topic_is_allowed_and_for_a_day():
    known = SizeLimit()
    known.accepted("a", 600)
    known.broke("a", 9000, 0.0)

    assert known.refused_size(SIZE_RETRY_INTERVAL - 1) == 9000
    assert known.refused_size(SIZE_RETRY_INTERVAL) is None
    assert known.learned is None


def test_a_broker_that_restarts_with_a_lower_limit_is_learned_again():
    known = SizeLimit()
    known.accepted("a", 9000)

    assert not known.broke("a", 5000, 0.0)
    assert not known.broke("a", 5000, 0.0), "the topic may be denied by now"
    known.accepted("a", 600)
    assert known.broke("a", 5000, 0.0)
    assert known.refused_size(0.0) == 5000


def test_what_is_acknowledged_just_before_the_connection_ends_was_not_taken():
    known = SizeLimit()
    known.acknowledged("a", 600)
    known.acknowledged("a", 9000)
    known.ended()

    assert known.broke("a", 9000, 0.0)
    assert not known.broke("a", 500, 0.0)


def test_before_anything_was_taken_and_at_another_broker_nothing_is_known():
    known = SizeLimit()
    assert not known.broke("a", 9000, 0.0)

    known.accepted("a", 600)
    known.broke("a", 9000, 0.0)
    known.forget()

    assert known.refused_size(0.0) is None
    assert not known.broke("a", 9000, 0.0)


def test_what_is_known_of_topics_is_bounded_though_each_answer_has_a_topic_of_its_own():
    known = SizeLimit()
    for number in range(2 * MAX_TOPICS + 10):
        known.acknowledged(f"answers/{number}", 100)
        assert len(known._taken) <= MAX_TOPICS

    assert not known.broke("answers/0", 200, 0.0)  # of an old topic nothing is known
    assert known.broke(f"answers/{2 * MAX_TOPICS + 5}", 200, 0.0)
