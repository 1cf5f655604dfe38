import itertools
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from leadsman.core.mqtt.message import Message
from leadsman.core.mqtt.suspects import BURST_SECONDS, MAX_TESTED, Suspects


def test_after_a_broken_window_few_messages_go_until_each_of_them_is_acknowledged():
    suspects, flying = Suspects(), {f"t{n}": 1 for n in range(20)}

    suspects.broke(flying, 0, 1.0)

    assert suspects.window(20) == MAX_TESTED
    for topic in flying:
        suspects.acknowledged(topic, 2.0)
    assert suspects.window(20) == 20
    assert not suspects.alone


def test_after_a_broken_window_of_few_each_of_their_topics_goes_alone():
    suspects = Suspects()

    assert suspects.broke({"a": 1, "b": 1}, 0, 1.0) is None

    assert set(suspects.alone) == {"a", "b"}
    assert suspects.window(20) == 20


def test_a_topic_that_went_alone_is_to_blame():
    suspects = Suspects()
    suspects.broke({"a": 1, "b": 1}, 0, 1.0)
    suspects.solo = "a"

    assert suspects.window(20) == 0
    assert suspects.broke({"a": 1}, 7, 2.0) == ("a", 1, 7, False)
    suspects.solo = "a"
    assert suspects.broke({"a": 1}, 9, 3.0) == ("a", 2, 7, False)


def test_a_topic_that_was_refused_just_before_is_to_blame_and_not_the_one_in_flight():
    suspects = Suspects()
    suspects.refused("a", 1.0)

    assert suspects.broke({"b": 1, "c": 1}, 0, 1.1).topic == "a"
    assert "b" not in suspects.alone


def test_a_connection_that_ends_for_another_reason_makes_nobody_suspect():
    suspects = Suspects()
    suspects.broke({"a": 1}, 0, 1.0)
    suspects.solo = "a"

    suspects.acquit()

    assert not suspects.is_blamed("a")
    assert suspects.window(20) == 20


def test_a_refusal_long_before_is_not_to_blame():
    suspects = Suspects()
    suspects.refused("a", 1.0)

    assert suspects.broke({"b": 1}, 0, 2.0) is None
    assert "a" not in suspects.alone


def test_what_was_acknowledged_just_before_goes_alone_the_next_time():
    suspects = Suspects()
    suspects.acknowledged("a", 1.0)

    assert suspects.broke({"b": 1}, 0, 1.0 + BURST_SECONDS / 2) is None

    assert set(suspects.alone) == {"a", "b"}


def test_a_message_of_quality_0_is_made_sure_of_after_a_break():
    suspects = Suspects()
    message = Message("a", b"", qos=0)

    assert suspects.certain(message, 1.0).qos == 0
    suspects.broke({}, 0, 1.5)
    assert suspects.certain(message, 2.0).qos == 1
    suspects.acknowledged("a", 2.1)
    assert suspects.certain(message, 3.0).qos == 0


def test_a_topic_that_gets_through_alone_is_free_again():
    suspects = Suspects()
    suspects.broke({"a": 1}, 0, 1.0)
    suspects.solo = "a"

    assert not suspects.survived("a")

    assert suspects.alone == {}
    assert suspects.window(20) == 20


def test_a_fifth_goes_at_a_time_after_a_wide_window_broke_and_a_fifth_of_that_after_the_next():
    suspects = Suspects()

    suspects.broke({f"t{n}": 20 for n in range(20)}, 0, 1.0)
    assert suspects.window(1000) == 80
    suspects.broke({f"t{n}": 4 for n in range(20)}, 0, 2.0)
    assert suspects.window(1000) == 16
    suspects.broke({"t0": 10, "t1": 6}, 0, 3.0)
    assert suspects.window(1000) == MAX_TESTED


def test_a_topic_with_several_messages_in_flight_is_tested_until_each_of_them_is_settled():
    suspects = Suspects()
    suspects.broke({"a": 5, "b": 1}, 0, 1.0)

    suspects.acknowledged("b", 2.0)
    for _ in range(3):
        suspects.acknowledged("a", 2.0)
    assert suspects.searching
    suspects.gone("a", 2)

    assert not suspects.searching


def test_each_of_several_messages_of_a_topic_goes_alone():
    suspects = Suspects()
    suspects.broke({"a": 3}, 0, 1.0)

    for left in (True, True, False):
        suspects.solo = "a"
        suspects.survived("a")
        assert ("a" in suspects.alone) is left


WIDE = 200
poisoned = st.lists(
    st.tuples(st.sampled_from([f"t{n}" for n in range(30)]), st.integers(0, 9)), min_size=1, max_size=4, unique=True
)


class Sender:
    """Sends ten messages of each of thirty topics, as the link does, to a broker that closes the connection on some."""

    def __init__(self, poison, refuses, silent):
        self.suspects, self.poison, self.refuses, self.silent = Suspects(), set(poison), refuses, silent
        self.queue = [(f"t{topic}", number) for number in range(10) for topic in range(30)]
        self.now, self.breaks, self.found = 0.0, 0, []

    def next_batch(self):
        """What the link would have in flight."""
        if self.queue[0][0] in self.suspects.alone:
            self.suspects.solo = self.queue[0][0]
            return self.queue[:1]
        window = self.queue[: self.suspects.window(WIDE)]
        return list(itertools.takewhile(lambda message: message[0] not in self.suspects.alone, window))

    def arrived(self, messages):
        for topic, number in messages:
            self.suspects.acknowledged(topic, self.now)
            self.queue.remove((topic, number))

    def send(self):
        """Send a window, and count what breaks."""
        self.now += 1.0
        batch = self.next_batch()
        bad = next((message for message in batch if message in self.poison), None)
        if bad is None:
            self.arrived(batch)
            self.suspects.survived(batch[0][0])
            return
        self.breaks += 1
        if not self.silent:  # what the broker acknowledged before it closed
            before = batch[: batch.index(bad)]
            self.arrived(before)
            batch = batch[len(before) :]
            self.now += 1.0
        if self.refuses:
            self.suspects.refused(bad[0], self.now)
        blame = self.suspects.broke(Counter(topic for topic, _ in batch), 0, self.now)
        if blame is not None:
            (culprit,) = [message for message in self.queue if message[0] == blame.topic][:1]
            self.found.append(culprit)
            self.queue.remove(culprit)


@given(poisoned, st.booleans(), st.booleans())
def test_each_message_that_breaks_the_connection_is_found_within_a_few_connections(poison, refuses, silent):
    if refuses and silent:
        return  # a refusal comes after the acknowledgements of what was sent before
    sender = Sender(poison, refuses, silent)
    while sender.queue:
        sender.send()

    assert sorted(sender.found) == sorted(poison)
    assert sender.breaks <= (1 if refuses else 5) * len(poison)
