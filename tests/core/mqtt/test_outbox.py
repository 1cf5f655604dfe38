import sys
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from leadsman.core.mqtt.message import Message
from leadsman.core.mqtt.message_state import IN_FLIGHT, REPEATED
from leadsman.core.mqtt.outbox import MAX_TOPICS_BEFORE, Dropped, Outbox, Standing
from leadsman.core.mqtt.send_window import RetainedMessages


def message(topic="t", number=0, **words):
    return Message(topic, str(number).encode(), **words)


def filled(*messages, **bounds):
    outbox = Outbox(**bounds)
    for each in messages:
        outbox.put(each)
    return outbox


def pop(outbox, now=0.0):
    return outbox.pop(now)[0]


def number_of(item):
    return None if item is None else int(item.message.payload)


def taken(outbox):
    """Hand everything out; the numbers in order."""
    numbers = []
    while (item := pop(outbox)) is not None:
        numbers.append(number_of(item))
    return numbers


def refuse(outbox, item, until):
    outbox.refuse(item)
    outbox.pause(item.message.topic, until)


def accept(outbox, item):
    """Acknowledge a message; the numbers of those that arrived by that."""
    return [int(message.payload) for _, message in outbox.accept(item)]


def drained(outbox):
    """Deliver everything; the numbers by topic, in order."""
    arrived = {}
    while (item := pop(outbox)) is not None:
        for _, each in outbox.accept(item):
            arrived.setdefault(each.topic, []).append(int(each.payload))
    return arrived


def test_several_messages_of_a_topic_are_in_flight_in_order():
    outbox = filled(message(number=1), message(number=2), message(number=3))

    assert taken(outbox) == [1, 2, 3]
    assert outbox.in_flight == 3


def test_a_topic_of_which_one_message_is_in_flight_takes_little_memory():
    """The memory that the start of an app takes stays with its process, and all topics have a message then. What is in
    flight of a topic is a list: a deque takes 760 bytes for its first entry."""
    topics, outbox, messages = 1000, Outbox(), [message(f"t/{number}") for number in range(1000)]
    tracemalloc.start()
    try:
        for each in messages:
            outbox.put(each)
        while pop(outbox) is not None:
            pass
        size = tracemalloc.get_traced_memory()[0] / topics
    finally:
        tracemalloc.stop()

    assert outbox.in_flight == topics
    assert size < 1300, f"{size:.0f} bytes a topic"


def test_acknowledgements_count_in_order_whenever_they_come():
    outbox = filled(message(number=1), message(number=2), message(number=3))
    first, second, third = pop(outbox), pop(outbox), pop(outbox)

    assert [accept(outbox, item) for item in (third, first, second)] == [[], [1], [2, 3]]
    assert (outbox.messages, outbox.in_flight, "t" in outbox) == (0, 0, False)


def test_what_was_acknowledged_before_an_older_one_is_sent_again_after_a_break():
    outbox = filled(message(number=1), message(number=2), message(number=3))
    pop(outbox)
    second = pop(outbox)
    assert accept(outbox, second) == []
    assert pop(outbox) is None, "nothing follows"
    outbox.lost()

    assert drained(outbox) == {"t": [1, 2, 3]}


def test_what_was_acknowledged_before_one_that_is_dropped_has_arrived():
    outbox = filled(message(number=1), message(number=2))
    first, second = pop(outbox), pop(outbox)
    outbox.accept(second)
    outbox.drop(first, "refused")

    assert [int(each.payload) for _, each in outbox.settle("t")] == [2]
    assert (outbox.messages, "t" in outbox) == (0, False)


def test_topics_take_turns():
    outbox = filled(message("a", 1), message("a", 2), message("b", 3), message("c", 4))

    assert taken(outbox) == [1, 3, 4, 2]


def test_after_a_broken_link_what_was_in_flight_comes_first_again():
    outbox = filled(message("a", 1), message("b", 2), message("a", 3), message("c", 4))
    assert [number_of(pop(outbox)) for _ in range(3)] == [1, 2, 4]

    assert outbox.lost() == {"a": 1, "b": 1, "c": 1}

    assert taken(outbox) == [1, 2, 4, 3]
    assert outbox.lost() == {"a": 2, "b": 1, "c": 1}
    assert drained(outbox) == {"a": [1, 3], "b": [2], "c": [4]}


def test_a_message_the_link_broke_on_alone_may_go_behind_the_others():
    outbox = filled(message("a", 1), message("b", 2))
    pop(outbox)

    assert outbox.lost() == {"a": 1}
    outbox.defer("a")

    assert number_of(pop(outbox)) == 2


def test_a_full_outbox_gives_up_the_oldest_but_never_the_newest_of_a_topic():
    outbox = filled(message("rare", 0), *(message("often", n) for n in range(1, 100)), most_messages=100)

    dropped = outbox.put(message("often", 100))

    assert dropped == [Dropped("often", 2, "outbox full", "full")]
    assert (outbox.drops["full"], outbox.dropped) == (2, 2)
    assert outbox.dropped == 2
    assert drained(outbox) == {"rare": [0], "often": list(range(3, 101))}


def test_a_message_in_flight_is_not_given_up():
    outbox = filled(*(message("t", n) for n in range(10)), most_messages=10)
    flying = pop(outbox)

    outbox.put(message("t", 10))
    outbox.accept(flying)

    assert drained(outbox) == {"t": [3, 4, 5, 6, 7, 8, 9, 10]}


def test_what_was_in_flight_when_the_connection_broke_is_given_up_first_again():
    outbox = filled(*(message("t", n) for n in range(10)), most_messages=10)
    pop(outbox)
    outbox.put(message("t", 10))
    outbox.lost()

    assert outbox.put(message("t", 11)) == []
    assert outbox.put(message("t", 12)) == [Dropped("t", 2, "outbox full", "full")]

    assert drained(outbox) == {"t": list(range(4, 13))}


def test_answers_have_an_eighth_of_the_outbox_and_one_more_is_dropped():
    outbox = filled(*(message(f"answers/{n}", n, expires=9.0) for n in range(99)), most_messages=800)
    assert not outbox.expects_answers

    assert outbox.put(message("answers/x", 99, expires=9.0)) == []
    assert outbox.put(message("answers/y", 100, expires=9.0)) == [
        Dropped("answers/y", 1, "too many answers wait", "full", True)
    ]
    assert outbox.put(message("t", 101, taken_at=1.0, expires=9.0)) == []
    assert (outbox.messages, outbox.drops["full"]) == (101, 1)

    for _ in range(51):
        outbox.accept(pop(outbox))
    assert outbox.expects_answers
    outbox.pop(10.0)
    assert (outbox._answers, outbox._answer_bytes) == (0, 0)


def test_answers_have_an_eighth_of_the_bytes_too():
    outbox = filled(most_bytes=80_000)
    for _ in range(20):
        outbox.put(Message("answers", b"x" * 933, expires=9.0))

    assert (outbox.messages, outbox.bytes) == (10, 10_000)


def test_the_newest_of_a_topic_is_given_up_when_a_newer_one_has_come():
    outbox = filled(message("rare", 0), *(message("often", n) for n in range(1, 10)), most_messages=10)
    outbox.put(message("often", 10))
    outbox.put(message("rare", 11))

    outbox.put(message("often", 12))

    assert drained(outbox)["rare"] == [11]


def test_bytes_are_bounded_too():
    outbox = filled(most_bytes=10_000)

    for n in range(100):
        outbox.put(Message("t", b"x" * 1000, taken_at=n))

    assert outbox.bytes <= 10_000
    assert outbox.messages < 10


def test_a_message_too_large_for_the_outbox_is_not_kept_and_pushes_nothing_out():
    outbox = filled(message("a", 1), message("a", 2), most_bytes=10_000)

    dropped = outbox.put(Message("b", b"x" * 2000))

    assert dropped == [Dropped("b", 1, "larger than 1250 bytes", "too_large")]
    assert (outbox.drops["too_large"], outbox.dropped) == (1, 1)
    assert drained(outbox) == {"a": [1, 2]}


def followed(outbox):
    """Hand everything out; the numbers of what is sent without the retain flag, though it is a retained message."""
    items = iter(lambda: pop(outbox), None)
    return [number_of(item) for item in items if item.followed]


def test_of_readings_that_wait_only_the_newest_is_sent_with_the_retain_flag():
    outbox = filled(*(message("t", n, retain=True, taken_at=1.0) for n in range(3)))

    assert followed(outbox) == [0, 1]
    outbox.lost()
    assert followed(outbox) == [0, 1]


def test_messages_without_a_time_keep_their_retain_flag():
    assert followed(filled(*(message("t", n, retain=True) for n in range(3)))) == []


def test_a_reading_takes_the_place_of_one_that_waits_but_not_of_one_in_flight():
    outbox = filled(message("t", 1, latest=True, taken_at=1.0))
    pop(outbox)
    for number in (2, 3):
        outbox.put(message("t", number, latest=True, taken_at=1.0))

    assert (outbox.messages, outbox.dropped) == (2, 0)
    assert taken(outbox) == [3]
    assert outbox.lost() == {"t": 1}
    assert drained(outbox) == {"t": [3]}


def test_an_older_reading_is_not_sent_again_when_a_newer_one_was_in_flight_too():
    outbox = filled(message("t", 1, latest=True, taken_at=1.0))
    first = pop(outbox)
    outbox.put(message("t", 2, latest=True, taken_at=1.0))
    pop(outbox)
    outbox.refuse(first)

    assert (taken(outbox), outbox.messages) == ([2], 1)


def test_the_newest_replaces_what_waits_where_only_the_latest_counts():
    outbox = filled(message("s", 1, latest=True), message("s", 2, latest=True))
    in_flight = pop(outbox)
    outbox.put(message("s", 3, latest=True))
    outbox.put(message("s", 4, latest=True))

    assert accept(outbox, in_flight) == [2]
    assert drained(outbox) == {"s": [4]}
    assert outbox.dropped == 0


def test_an_expired_message_is_dropped_and_named():
    outbox = filled(message("t", 1, expires=10.0), message("t", 2, expires=30.0), message("u", 3, expires=5.0))

    item, expired = outbox.pop(20.0)

    assert number_of(item) == 2
    assert expired == [Dropped("t", 1, "expired", "expired", True), Dropped("u", 1, "expired", "expired", True)]
    assert (outbox.drops["expired"], outbox.dropped) == (2, 2)
    assert (outbox.messages, outbox.dropped) == (1, 2)


def test_a_topic_that_rests_holds_up_nobody_else():
    outbox = filled(message("a", 1), message("b", 2))
    refuse(outbox, pop(outbox), until=10.0)

    assert number_of(pop(outbox)) == 2
    assert (outbox.resume(9.9), pop(outbox)) == (10.0, None)
    assert (outbox.resume(10.0), number_of(pop(outbox))) == (None, 1)


def test_a_topic_whose_message_was_refused_goes_one_at_a_time_until_it_is_trusted():
    outbox = filled(*(message("a", n) for n in range(1, 5)))
    refuse(outbox, pop(outbox), until=10.0)
    outbox.resume(10.0)

    first = pop(outbox)
    assert (number_of(first), pop(outbox)) == (1, None)
    outbox.accept(first)
    assert (number_of(pop(outbox)), pop(outbox)) == (2, None)
    outbox.trust("a")
    outbox.lost()
    assert taken(outbox) == [2, 3, 4]


def test_a_refused_message_and_all_later_ones_of_its_topic_are_sent_again_in_order():
    outbox = filled(*(message("a", n) for n in range(1, 6)), message("b", 6))
    first, _, second, *_ = [pop(outbox) for _ in range(5)]
    outbox.accept(first)

    refuse(outbox, second, until=10.0)
    assert [number_of(item) for item in outbox.flying] == [6]
    outbox.resume(10.0)

    assert drained(outbox)["a"] == [2, 3, 4, 5]


def test_a_topic_may_rest_before_anything_of_it_waits():
    outbox = filled(message("a", 1))
    outbox.pause("b", until=10.0)
    outbox.put(message("b", 2))

    assert drained(outbox) == {"a": [1]}
    outbox.resume(10.0)
    assert drained(outbox) == {"b": [2]}


def test_the_topic_whose_rest_ends_first_may_go_on_early():
    outbox = filled(message("a", 1), message("b", 2))
    outbox.pause("a", until=20.0)
    outbox.pause("b", until=10.0)

    outbox.resume_next()

    assert drained(outbox) == {"b": [2]}


def test_a_message_that_was_handed_out_and_not_sent_is_the_next_again():
    outbox = filled(message("a", 1), message("b", 2))

    outbox.back(pop(outbox))

    assert number_of(pop(outbox)) == 1


def test_a_message_put_while_its_topic_rests_waits_with_it():
    outbox = filled(message("a", 1))
    refuse(outbox, pop(outbox), until=10.0)
    outbox.put(message("a", 2))

    assert pop(outbox) is None
    outbox.resume(10.0)
    assert drained(outbox) == {"a": [1, 2]}


def test_a_message_that_nothing_waits_before_is_handed_over_at_once_and_counted_as_any_other():
    outbox = Outbox()

    item = outbox.hand_over(message("a", 1))
    assert (outbox.messages, outbox.in_flight, bool(outbox.ready)) == (1, 1, False)
    outbox.accept(item)

    assert (outbox.messages, outbox.bytes, outbox.delivered, outbox._queues) == (0, 0, 1, {})


def test_a_message_that_others_wait_before_or_that_finds_no_room_is_not_handed_over():
    waiting, paused, full = Outbox(), Outbox(), Outbox(most_messages=1)
    waiting.put(message("a", 1))
    paused.put(message("a", 1))
    paused.pause("a", 10.0)
    full.hand_over(message("a", 1))

    assert [outbox.hand_over(message("b", 2)) for outbox in (waiting, paused, full)] == [None] * 3
    assert [outbox.messages for outbox in (waiting, paused, full)] == [1] * 3


def test_a_message_that_was_handed_over_is_the_first_of_its_topic_after_a_broken_connection():
    outbox = Outbox()
    outbox.hand_over(message("a", 1))
    outbox.put(message("a", 2))
    outbox.lost()

    assert [number_of(outbox.pop(0.0)[0]) for _ in range(2)] == [1, 2]


ACTIONS = (
    "put",
    "hand over",
    "take",
    "accept",
    "drop",
    "refuse",
    "wake",
    "lost",
    "defer",
    "back",
    "drop next",
    "set aside",
    "wake next",
)
MODES = ("trust",)
history = st.lists(
    st.tuples(st.sampled_from((*ACTIONS, *MODES, "put", "take")), st.sampled_from("abcn"), st.integers(0, 5)),
    max_size=150,
)


class Receipt:
    """What became of one message."""

    def __init__(self):
        self.published = self.replayed = self.drops = self.replacements = 0

    def dropped(self, at, messages=1):
        self.drops += messages

    def replaced(self):
        self.replacements += 1

    @property
    def settled(self):
        arrived = ["delivered"] * (self.published + self.replayed)
        return arrived + ["dropped"] * self.drops + ["replaced"] * self.replacements


class Life:
    """An outbox with a broker that receives what is handed out, in this order."""

    def __init__(self, bound, expiry=None):
        self.outbox, self.now, self.put, self.expiry = Outbox(most_messages=bound), 0.0, 0, expiry
        self.flying, self.received, self.arrived, self.spoilt = [], {}, set(), set()
        self.receipts, self.newest, self.acknowledged = {}, {}, {}
        self.copies = 0
        self.retained = RetainedMessages(self.outbox)

    def message(self, topic, number):
        self.receipts[number] = receipt = Receipt()
        expires = None if self.expiry is None else self.now + self.expiry
        times = {"taken_at": self.now, "clock_offset": 0.0, "expires": expires}
        return message(topic, number, retain=True, latest=topic == "n", receipt=receipt, **times)

    def step(self, action, topic, which):
        self.now += 1.0
        outbox, flying = self.outbox, [item for item in self.flying if item.message.topic == topic]
        item = flying[which % len(flying)] if flying else None
        waiting = topic in outbox and not flying
        match action:
            case "put":
                self.put += 1
                self.newest[topic] = self.put
                outbox.put(self.message(topic, self.put))
            case "hand over":
                self.hand_over(topic)
            case "take":
                self.pop()
            case "accept" if item:
                self.accept(item)
            case "drop" if item:
                self.gone(item)
                self.spoilt.add(topic)
                outbox.drop(item, "refused")
                self.retained.settled(topic)
                self.note(outbox.settle(topic))
            case "refuse" if item:
                self.gone(item)
                refuse(outbox, item, self.now + 3)
                self.flying = [each for each in self.flying if each.place is IN_FLIGHT]
            case "back" if self.flying and self.flying[-1] in outbox.flying:
                item = self.flying[-1]
                self.gone(item)
                outbox.back(item)
            case "wake":
                outbox.resume(self.now)
            case "wake next":
                outbox.resume_next()
            case "lost":
                self.lost()
            case "defer":
                outbox.defer(topic)
            case "set aside" if waiting:
                outbox.pause(topic, self.now + 3)
            case "drop next" if waiting:
                self.spoilt.add(topic)
                outbox.drop_next(topic, "refused")
            case "trust":
                outbox.trust(topic)

    def pop(self):
        item, _ = self.outbox.pop(self.now)
        if item is not None:
            self.flying.append(item)
            retain = self.retained.flagged(item, item.message).retain
            self.received.setdefault(item.message.topic, []).append((item, number_of(item), retain))
        return item

    def hand_over(self, topic):
        item = self.outbox.hand_over(self.message(topic, self.put + 1))
        if item is not None:
            self.put += 1
            self.newest[topic] = self.put
            self.flying.append(item)
            self.received.setdefault(topic, []).append((item, self.put, True))

    def accept(self, item):
        self.flying.remove(item)
        self.acknowledged[item.message.topic] = max(number_of(item), self.acknowledged.get(item.message.topic, 0))
        self.note(self.outbox.accept(item))

    def note(self, arrived):
        for item, message in arrived:
            self.arrived.add(int(message.payload))
            self.copies += item.row_state is REPEATED
            self.retained.arrived(item, message)
        if arrived:
            self.retained.settled(arrived[-1][1].topic)

    def gone(self, item):
        """The broker did not get a message that was handed out."""
        self.flying.remove(item)
        self.received[item.message.topic] = [
            each for each in self.received[item.message.topic] if each[0] is not item or each[1] != number_of(item)
        ]

    def lost(self):
        self.flying.clear()
        self.outbox.lost()

    def drain(self):
        self.lost()
        self.outbox.resume(self.now + 100)
        for topic in "abcn":
            self.outbox.trust(topic)
        while (item := self.pop()) is not None:
            self.accept(item)


@given(history, st.integers(3, 20))
def test_whatever_happens_every_message_is_accounted_for_and_memory_is_bounded(history, bound):
    life = Life(bound)
    for step in history:
        life.step(*step)
        if step[0] == "put":  # which makes room, but never of the newest of a topic, and there are four
            assert life.outbox.messages <= max(bound, life.outbox.in_flight + 4)
    life.drain()

    outbox = life.outbox
    replaced = sum(receipt.replacements for receipt in life.receipts.values())
    assert len(life.arrived) + outbox.dropped + replaced >= life.put
    assert outbox.delivered - life.copies + outbox.dropped + replaced == life.put
    assert (outbox.messages, outbox.bytes, outbox.in_flight, outbox._queues) == (0, 0, 0, {})
    assert not outbox.ready


@given(history, st.integers(3, 20), st.none() | st.floats(1, 20))
def test_whatever_happens_the_receipt_of_each_message_is_settled_once(history, bound, expiry):
    life = Life(bound, expiry)
    for step in history:
        life.step(*step)
        assert all(len(receipt.settled) <= 1 for receipt in life.receipts.values())
    life.drain()

    receipts = {number: receipt.settled for number, receipt in life.receipts.items() if number <= life.put}
    assert {len(settled) for settled in receipts.values()} <= {1}
    assert {number for number, settled in receipts.items() if settled == ["delivered"]} <= life.arrived


@given(history, st.integers(3, 20))
def test_whatever_happens_the_broker_keeps_the_newest_reading_of_each_topic(history, bound):
    life = Life(bound)
    for step in history:
        life.step(*step)
    life.drain()

    for topic in set(life.received) - life.spoilt:
        numbers = [number for _, number, _ in life.received[topic]]
        retained = [number for _, number, retain in life.received[topic] if retain]
        assert numbers[-1] == retained[-1] == max(numbers)


breaks = st.lists(
    st.tuples(st.sampled_from(("put", "take", "take", "accept", "lost")), st.just("a"), st.integers(0, 5)), max_size=30
)


@given(breaks, st.integers(3, 20))
@example([("put", "a", 0)] * 2 + [("take", "a", 0)] * 2 + [("accept", "a", 1), ("lost", "a", 0)], 20)
@example([("put", "a", 0)] * 2 + [("take", "a", 0)] * 2 + [("accept", "a", 1), ("accept", "a", 0)], 20)
def test_whatever_is_acknowledged_before_a_break_the_broker_keeps_the_newest_reading(history, bound):
    test_whatever_happens_the_broker_keeps_the_newest_reading_of_each_topic.hypothesis.inner_test(history, bound)


@given(history, st.integers(3, 20))
def test_order_holds_on_each_connection_as_long_as_nothing_is_refused(history, bound):
    life = Life(bound)
    for action, topic, which in history:
        if action == "refuse":
            continue
        life.step(action, topic, which)
        if action == "lost":
            life.received.clear()
        for received in life.received.values():
            numbers = [number for _, number, _ in received]
            assert numbers == sorted(set(numbers))


@given(history)
def test_whatever_happens_a_reading_that_replaces_older_ones_arrives_and_none_of_them_after_it(history):
    life = Life(20)
    for step in history:
        life.step(*step)
        if "n" in life.outbox._queues:
            assert len(life.outbox._queues["n"].waiting) <= 1
    life.drain()

    if "n" not in life.spoilt and "n" in life.newest:
        assert life.newest["n"] in life.arrived
        numbers = [number for _, number, _ in life.received["n"]]
        assert numbers[-1] == life.newest["n"]


@given(history)
def test_what_has_expired_is_never_handed_out(history):
    life = Life(20, expiry=10.0)
    for step in history:
        before = len(life.flying)
        life.step(*step)
        if len(life.flying) > before:
            assert life.flying[-1].message.expires > life.now


def work(operation, size, topics):
    """How many lines of `leadsman.core.mqtt` run for a message, while an outbox of this size is filled and then as many
    messages come again."""
    lines = 0

    def count(frame, event, argument):
        nonlocal lines
        if "mqtt" not in frame.f_code.co_filename:
            return None
        lines += event == "line"
        return count

    outbox, before = Outbox(most_messages=size), sys.gettrace()
    sys.settrace(count)
    try:
        for number in range(size):
            outbox.put(message(f"t{number * topics // size}", number))
        for number in range(size):
            operation(outbox, number)
    finally:
        sys.settrace(before)
    return lines / (2 * size)


def put_on_all_topics(outbox, number):
    outbox.put(message(f"t{number % 20}", number))


def put_on_one_topic(outbox, number):
    outbox.put(message("busy", number))


def put_and_deliver(outbox, number):
    outbox.put(message(f"t{number % 20}", number))
    outbox.accept(pop(outbox))


@pytest.mark.parametrize("operation", [put_on_all_topics, put_on_one_topic, put_and_deliver])
@pytest.mark.parametrize("share", [0.01, 0.9])
def test_the_work_for_a_message_does_not_grow_with_the_outbox(operation, share):
    small, large = (work(operation, size, share * size) for size in (500, 4000))

    assert large <= 1.1 * small


def test_the_oldest_reading_is_the_one_that_was_taken_first_whatever_the_clock_said():
    in_1970 = message("a", taken_at=30.0, clock_offset=0.0)
    in_2026 = message("b", taken_at=1_767_225_650.0, clock_offset=1_767_225_600.0)

    assert filled(in_2026, in_1970, message("status")).oldest(0.0) == 30.0
    assert filled(in_2026).oldest(0.0) == 50.0
    assert filled(message("status")).oldest(0.0) is None


def reading(topic, at, offset=1000.0):
    return Message(topic, b"0", taken_at=at + offset, clock_offset=offset)


def test_the_place_of_a_topic_is_how_many_others_go_first():
    outbox = filled(reading("a", 5.0), reading("b", 6.0), reading("c", 7.0), reading("c", 8.0))

    assert outbox.standing("c") == Standing(2, 0, 2, 7.0, None)
    pop(outbox)
    assert outbox.standing("c").before == 1
    assert outbox.standing("a") == Standing(1, 1, None, None, None)
    assert outbox.standing("nobody") == Standing(0, 0, None, None, None)


def test_a_topic_that_pauses_has_no_place_and_says_until_when():
    outbox = filled(reading("a", 5.0))
    outbox.pause("a", 60.0)

    assert outbox.standing("a") == Standing(1, 0, None, 5.0, 60.0)


def test_the_place_among_very_many_topics_is_not_looked_for():
    outbox = filled(*(reading(f"t{number}", 5.0) for number in range(MAX_TOPICS_BEFORE + 2)))

    assert outbox.standing(f"t{MAX_TOPICS_BEFORE}").before == MAX_TOPICS_BEFORE
    assert outbox.standing(f"t{MAX_TOPICS_BEFORE + 1}").before is None
