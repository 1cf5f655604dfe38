from hypothesis import given
from hypothesis import strategies as st

from leadsman.mqtt.message import Message
from leadsman.mqtt.outbox import Dropped, Outbox


def message(topic="t", number=0, **words):
    return Message(topic, str(number).encode(), **words)


def filled(*messages, **bounds):
    outbox = Outbox(**bounds)
    for each in messages:
        outbox.put(each)
    return outbox


def take(outbox, now=0.0):
    return outbox.take(now)[0]


def drained(outbox):
    """Deliver everything; the payloads by topic, in order."""
    arrived = {}
    while (each := take(outbox)) is not None:
        outbox.accept(each.topic)
        arrived.setdefault(each.topic, []).append(int(each.payload))
    return arrived


def test_a_topic_has_one_message_in_flight_and_keeps_its_order():
    outbox = filled(message(number=1), message(number=2))

    first, second = take(outbox), take(outbox)
    outbox.accept("t")

    assert (int(first.payload), second) == (1, None)
    assert int(take(outbox).payload) == 2


def test_topics_take_turns():
    outbox = filled(message("a", 1), message("a", 2), message("b", 3), message("c", 4))

    order = []
    while (each := take(outbox)) is not None:
        order.append(int(each.payload))
        outbox.accept(each.topic)

    assert order == [1, 3, 4, 2]


def test_after_a_broken_link_what_was_in_flight_comes_first_again():
    outbox = filled(message("a", 1), message("b", 2), message("c", 3), message("a", 4))
    take(outbox)
    take(outbox)

    outbox.lost()

    assert [int(take(outbox).payload) for _ in range(3)] == [1, 2, 3]
    outbox.lost()
    assert drained(outbox) == {"a": [1, 4], "b": [2], "c": [3]}


def test_a_message_the_link_broke_on_alone_may_go_behind_the_others():
    outbox = filled(message("a", 1), message("b", 2))
    take(outbox)

    assert outbox.lost() == ["a"]
    outbox.defer("a")

    assert int(take(outbox).payload) == 2


def test_a_full_outbox_gives_up_the_oldest_but_never_the_newest_of_a_topic():
    outbox = filled(message("rare", 0), *(message("often", n) for n in range(1, 100)), most_messages=100)

    dropped = outbox.put(message("often", 100))

    assert dropped == [Dropped("often", 2, "outbox full")]
    assert outbox.dropped == 2
    assert drained(outbox) == {"rare": [0], "often": list(range(3, 101))}


def test_a_message_in_flight_is_not_given_up():
    outbox = filled(*(message("t", n) for n in range(10)), most_messages=10)
    take(outbox)

    outbox.put(message("t", 10))

    assert drained_after_accept(outbox) == [3, 4, 5, 6, 7, 8, 9, 10]


def drained_after_accept(outbox):
    outbox.accept("t")
    return drained(outbox)["t"]


def test_bytes_are_bounded_too():
    outbox = filled(most_bytes=10_000)

    for n in range(100):
        outbox.put(Message("t", b"x" * 1000, taken_at=n))

    assert outbox.bytes <= 10_000
    assert outbox.messages < 10


def test_a_message_too_large_for_the_outbox_is_not_kept_and_pushes_nothing_out():
    outbox = filled(message("a", 1), message("a", 2), most_bytes=10_000)

    dropped = outbox.put(Message("b", b"x" * 2000))

    assert dropped == [Dropped("b", 1, "larger than 1250 bytes")]
    assert drained(outbox) == {"a": [1, 2]}


def test_the_newest_replaces_what_waits_where_only_the_latest_counts():
    outbox = filled(message("s", 1, latest=True), message("s", 2, latest=True))
    in_flight = take(outbox)
    outbox.put(message("s", 3, latest=True))
    outbox.put(message("s", 4, latest=True))
    outbox.accept("s")

    assert int(in_flight.payload) == 2
    assert drained(outbox) == {"s": [4]}
    assert outbox.dropped == 0


def test_an_expired_message_is_dropped_and_named():
    outbox = filled(message("t", 1, expires=10.0), message("t", 2, expires=30.0), message("u", 3, expires=5.0))

    taken, expired = outbox.take(20.0)

    assert int(taken.payload) == 2
    assert expired == [Dropped("t", 1, "expired")]
    assert outbox.take(20.0) == (None, [Dropped("u", 1, "expired")])
    assert (outbox.messages, outbox.dropped) == (1, 2)


def test_a_topic_that_rests_holds_up_nobody_else():
    outbox = filled(message("a", 1), message("b", 2))
    take(outbox)
    outbox.pause("a", until=10.0)

    assert int(take(outbox).payload) == 2
    assert (outbox.resume(9.9), take(outbox)) == (10.0, None)
    assert (outbox.resume(10.0), int(take(outbox).payload)) == (None, 1)


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
    take(outbox)

    outbox.back("a")

    assert int(take(outbox).payload) == 1


def test_a_message_put_while_its_topic_rests_waits_with_it():
    outbox = filled(message("a", 1))
    take(outbox)
    outbox.pause("a", until=10.0)
    outbox.put(message("a", 2))

    assert take(outbox) is None
    outbox.resume(10.0)
    assert drained(outbox) == {"a": [1, 2]}


ACTIONS = "put", "take", "accept", "drop", "rest", "wake", "lost", "defer", "back", "discard", "set aside", "wake next"
actions = st.lists(
    st.tuples(
        st.sampled_from(ACTIONS),
        st.sampled_from("abc"),
    ),
    max_size=120,
)


@given(actions, st.integers(3, 20))
def test_whatever_happens_order_holds_and_every_message_is_accounted_for(history, bound):
    outbox, put, arrived, now = Outbox(most_messages=bound), 0, {}, 0.0
    for action, topic in history:
        now += 1.0
        flying = topic in outbox._flying
        if action == "put":
            put += 1
            outbox.put(message(topic, put))
        elif action == "take":
            outbox.take(now)
        elif action == "accept" and flying:
            arrived.setdefault(topic, []).append(int(outbox.accept(topic).payload))
        elif action == "drop" and flying:
            outbox.drop(topic)
        elif action == "rest" and flying:
            outbox.pause(topic, now + 3)
        elif action == "wake":
            outbox.resume(now)
        elif action == "lost":
            outbox.lost()
        elif action == "defer" and not flying:
            outbox.defer(topic)
        elif action == "back" and flying:
            outbox.back(topic)
        elif action == "set aside" and not flying:
            outbox.pause(topic, now + 3)
        elif action == "wake next":
            outbox.resume_next()
        elif action == "discard" and topic in outbox and not flying:
            outbox.discard(topic)
        assert outbox.messages <= max(bound, 3)
    outbox.lost()
    outbox.resume(now + 100)
    for topic, numbers in drained(outbox).items():
        arrived.setdefault(topic, []).extend(numbers)

    assert all(numbers == sorted(set(numbers)) for numbers in arrived.values())
    assert sum(map(len, arrived.values())) + outbox.dropped == put
    assert (outbox.messages, outbox.bytes, outbox.in_flight) == (0, 0, 0)


def test_the_oldest_reading_is_the_one_that_was_taken_first_whatever_the_clock_said():
    in_1970 = message("a", taken_at=30.0, clock_offset=0.0)
    in_2026 = message("b", taken_at=1_767_225_650.0, clock_offset=1_767_225_600.0)

    assert filled(in_2026, in_1970, message("status")).oldest == 30.0
    assert filled(in_2026).oldest == 50.0
    assert filled(message("status")).oldest is None
