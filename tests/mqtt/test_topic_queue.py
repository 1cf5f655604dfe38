from hypothesis import given
from hypothesis import strategies as st

from leadsman.mqtt.message import Message
from leadsman.mqtt.message_state import REPEATED, Item
from leadsman.mqtt.outbox import TopicQueue


def items(count):
    return [Item(number, Message("t", b"%d" % number, retain=True), 1) for number in range(1, count + 1)]


def queue_of(messages):
    queue = TopicQueue()
    queue.waiting.extend(messages)
    return queue


def numbers(queue):
    return [item.number for item in queue.waiting]


def oldest(queue):
    """Hand the oldest out; what is to be sent again after it."""
    queue.in_flight += 1
    return queue.hand_out(queue.waiting.popleft())


def newest(queue):
    queue.in_flight += 1
    return queue.hand_out(queue.waiting.pop())


def test_in_order_nothing_is_ahead_and_every_message_is_retained():
    first, second = items(2)
    queue = queue_of([first, second])

    assert (oldest(queue), oldest(queue)) == (None, None)

    assert queue.ahead is None
    assert first.message.retain
    assert queue.in_flight == 2


def test_what_the_newest_overtook_is_not_retained_and_the_newest_comes_again_after_the_last_of_it():
    first, second, third = items(3)
    queue = queue_of([first, second, third])

    assert (newest(queue), oldest(queue)) == (None, None)
    copy = oldest(queue)
    assert (copy.number, copy.message, copy.row_state) == (third.number, third.message, REPEATED)

    assert [item.message.retain for item in (first, second, third)] == [False, False, True]
    assert queue.ahead is None


def test_what_comes_back_from_disk_after_the_newest_was_sent_again_is_newer():
    first, second, third = items(3)
    queue = queue_of([first, second])
    newest(queue)
    queue.waiting.append(oldest(queue))
    queue.waiting.append(third)

    copy = queue.waiting[0]
    assert (oldest(queue), oldest(queue)) == (None, None)
    assert (copy.message.payload, third.message.retain) == (b"2", True)


def test_the_newest_need_not_come_again_if_a_newer_one_follows_anyway():
    first, second, third = items(3)
    queue = queue_of([first, second])
    newest(queue)
    queue.waiting.append(third)

    assert (oldest(queue), oldest(queue)) == (None, None)

    assert [first.message.retain, third.message.retain] == [False, True]


def test_one_that_arrived_is_ahead_of_an_older_one_that_came_back():
    first, second = items(2)
    queue = queue_of([first, second])
    oldest(queue)
    oldest(queue)
    queue.take_back([first])

    queue.went_ahead(second)

    assert oldest(queue).message == second.message
    assert not first.message.retain


def test_one_that_comes_back_is_no_longer_ahead():
    first, second = items(2)
    queue = queue_of([first, second])
    newest(queue)

    queue.take_back([second])

    assert queue.ahead is None
    assert numbers(queue) == [1, 2]


@given(st.lists(st.sampled_from(["oldest", "newest"]), max_size=12), st.data())
def test_what_comes_back_is_in_order(ways, data):
    flying, queue = [], queue_of(items(12))
    for way in ways:
        flying.append(queue.waiting[0 if way == "oldest" else -1])
        (oldest if way == "oldest" else newest)(queue)
    returned = data.draw(st.lists(st.sampled_from(flying), unique=True) if flying else st.just([]))

    queue.take_back(sorted(returned, key=lambda item: item.number))

    assert numbers(queue) == sorted(numbers(queue))
    assert queue.in_flight == len(flying) - len(returned)
