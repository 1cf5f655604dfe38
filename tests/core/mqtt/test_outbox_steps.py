"""What the outbox does with one message costs as much among ten messages as among ten thousand.

Steps are counted, not seconds: lines of leadsman that are executed, each turn of a loop included.
"""

import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leadsman.core.mqtt import outbox as place
from leadsman.core.mqtt.message import Message
from leadsman.core.mqtt.message_state import RowEvent
from leadsman.core.mqtt.outbox import Outbox
from leadsman.core.spool.backlog import Backlog
from leadsman_rigs.examples import examples

FEW, MANY = 10, 10_000
ROUNDS = 100
"""Each operation is done so many times, since one of many may tidy up after all of them."""
MAX_MORE_STEPS = 1000
"""Steps of an operation that may be added to those among few: a tenth of what one look at all that waits takes."""
OURS = place.__file__.partition("/mqtt/")[0]


class Steps:
    """Counts the lines of leadsman that are executed meanwhile."""

    def __init__(self):
        self.count = 0

    def __enter__(self):
        self._before = sys.gettrace()
        sys.settrace(self._called)
        return self

    def __exit__(self, *_):
        sys.settrace(self._before)

    def _called(self, frame, event, argument):
        return self._line if frame.f_code.co_filename.startswith(OURS) else None

    def _line(self, frame, event, argument):
        self.count += event == "line"
        return self._line


class Case:
    """An outbox in which so many messages of one kind wait, in one topic or each in its own."""

    def __init__(self, kind, waiting, *, apart):
        self.kind, self.apart, self.now = kind, apart, 0.0
        self.number = 0
        self.flying = []
        self.outbox = Outbox(most_messages=waiting)
        self.backlog = Backlog(self.outbox, 1, lambda: None)
        self.backlog.begin({}, 1)
        self.outbox.keep(self.backlog)
        behind = kind in ("behind a copy", "behind one without a row")
        if behind:
            self._heads(waiting // 2 if apart else 1)
        for _ in range(waiting // 2 if behind and apart else waiting):
            self.put()
        self.write()

    def _heads(self, count):
        """What may not wait on disk only, and comes before readings."""
        for number in range(count):
            message = Message(self.topic_of(number), b"", retain=True, taken_at=1.0)
            if self.kind == "behind a copy":
                self.outbox.repeat(0, message)
            else:
                self.outbox.put(message)
        self.write()
        for queue in self.outbox._queues.values():
            if self.kind == "behind one without a row":
                self.backlog._stored.pop(queue.waiting[0].row)
                queue.waiting[0].change_row(RowEvent.EVICT)

    def write(self):
        while batch := self.backlog.batch(self.outbox.number):
            self.backlog.written(batch, [])

    def topic_of(self, number):
        return f"t{number}" if self.apart else "t"

    def put(self, **fields):
        """Put a message of the kind."""
        fields |= {
            "readings": {"retain": True, "taken_at": 1.0},
            "readings without a row": {"retain": True, "taken_at": 1.0},
            "behind a copy": {"retain": True, "taken_at": 1.0},
            "behind one without a row": {"retain": True, "taken_at": 1.0},
            "readings of which the latest counts": {"retain": True, "taken_at": 1.0, "latest": True},
            "answers": {"expires": fields.get("expires", 1e9)},
            "statuses": {"retain": True, "latest": True},
            "errors": {"retain": True},
            "events": {"qos": 0},
        }[self.kind]
        self.outbox.put(Message(self.topic_of(self.number), b"%d" % self.number, **fields))
        self.number += 1

    def takes(self, most):
        items = []
        for _ in range(most):
            item, _ = self.outbox.pop(self.now)
            if item is None:
                break
            items.append(item)
        return items


def put(case):
    case.put()


def put_a_reading(case):
    case.outbox.put(Message("another", b"", retain=True, taken_at=1.0))


def put_at_a_topic_of_its_own(case):
    case.number += 1
    case.outbox.put(Message(f"own{case.number}", b"", retain=True, taken_at=1.0))


def take_and_acknowledge(case):
    for item in case.takes(1):
        case.outbox.accept(item)


def acknowledge_the_last_one_first(case):
    for item in reversed(case.takes(3)):
        case.outbox.accept(item)


def hand_over(case):
    case.outbox.hand_over(Message("another", b"", retain=True, taken_at=1.0))


def acknowledge_while_many_are_in_flight(case):
    case.put()
    if case.flying:
        case.outbox.accept(case.flying.pop())


def give_back(case):
    for item in case.takes(1):
        case.outbox.back(item)


def refuse_and_go_on(case):
    for item in case.takes(1):
        case.outbox.refuse(item)
        case.outbox.pause(item.message.topic, case.now + 1)
    case.now += 1
    case.outbox.resume(case.now)


def look(case):
    case.outbox.unstored(0)


def refuse_while_many_are_in_flight(case):
    """Of the many that are in flight, the last one comes back."""
    if case.flying:
        case.outbox.refuse(case.flying.pop())


def pause_one_more(case):
    for item in case.takes(1):
        case.outbox.back(item)
        case.outbox.pause(item.message.topic, case.now + 10)


def go_on_while_many_pause(case):
    case.outbox.resume(case.now)
    assert not (case.outbox.only_paused and case.outbox.ready)
    case.put()
    case.now += 0.01


def lose_the_connection(case):
    case.takes(3)
    case.outbox.lost()


def drop(case):
    for item in case.takes(1):
        case.outbox.drop(item, "refused")


def drop_next(case):
    for item in case.takes(1):
        case.outbox.back(item)
        case.outbox.drop_next(item.message.topic, "refused")


def expire(case):
    case.put(expires=case.now + 1)
    case.now += 2
    for item in case.takes(1):
        case.outbox.accept(item)


def look_at_what_is_next(case):
    outbox, topic = case.outbox, case.topic_of(case.number)
    outbox.standing(topic)
    outbox.stores(topic)
    outbox.sendable(20)
    assert outbox.expects_answers in (True, False)
    assert outbox.in_flight <= outbox.messages
    assert outbox.number > 0
    assert outbox.dropped >= 0
    assert outbox.on_disk is not None


def let_another_one_go_first(case):
    for item in case.takes(1):
        case.outbox.back(item)
        case.outbox.prefer(item.message.topic)
        case.outbox.defer(item.message.topic)


def end_the_next_pause(case):
    for item in case.takes(1):
        case.outbox.back(item)
        case.outbox.pause(item.message.topic, case.now + 10)
    case.outbox.resume_next()
    case.outbox.trust(case.topic_of(0))


def repeat_one_that_the_broker_forgot(case):
    case.number += 1
    case.outbox.repeat(0, Message(f"again{case.number}", b"", retain=True))


def write_one_and_deliver_it(case):
    case.outbox.put(Message("another", b"", retain=True, taken_at=1.0))
    batch = case.backlog.batch(case.outbox.number)
    case.backlog.written(batch, [])
    case.backlog.to_delete()
    case.backlog.wanted(20)
    for item in case.takes(1):
        case.outbox.accept(item)


OPERATIONS = (
    put,
    put_a_reading,
    put_at_a_topic_of_its_own,
    take_and_acknowledge,
    acknowledge_the_last_one_first,
    hand_over,
    give_back,
    refuse_and_go_on,
    lose_the_connection,
    drop,
    drop_next,
    expire,
    look,
    acknowledge_while_many_are_in_flight,
    refuse_while_many_are_in_flight,
    pause_one_more,
    go_on_while_many_pause,
    look_at_what_is_next,
    let_another_one_go_first,
    end_the_next_pause,
    repeat_one_that_the_broker_forgot,
    write_one_and_deliver_it,
)
NOT_OF_ONE_MESSAGE = {
    "connected_again": "once for each connection",
    "keep": "once, when the file is open",
    "go_ahead": "once, when the file cannot be used",
    "fall_in": "once, when the file can be used again",
    "renumber": "once, when the file was counted",
    "topics": "once for each connection",
    "unkept": "at the end of the app",
    "gives_up": "after a refusal, of the topic that the broker refused",
    "oldest": "in the heartbeat, and when somebody asks",
    "bring_back": "one row of a page",
    "settle": "after a refusal, as an acknowledgement",
}
"""What is not counted, and why."""


def let_many_fly(case):
    case.flying = case.takes(MANY // 2)


def pause_many(case):
    for _ in range(MANY // 2):
        pause_one_more(case)


def let_none_fly(case):
    """A commit looks at what is in flight, which is a window of messages at most."""
    case.outbox.lost()
    case.flying = []
    case.write()


BEFORE = {
    acknowledge_while_many_are_in_flight: let_many_fly,
    pause_one_more: pause_many,
    write_one_and_deliver_it: let_none_fly,
}
"""What is done before an operation, and is not counted."""
KINDS = (
    "readings",
    "readings without a row",
    "readings of which the latest counts",
    "behind a copy",
    "behind one without a row",
    "answers",
    "statuses",
    "errors",
    "events",
)


def costs(kind, waiting, **how):
    """Steps of one round of each operation, one operation after the other."""
    case, found = Case(kind, waiting, **how), {}
    for operation in OPERATIONS:
        while case.outbox.messages < 0.9 * waiting:  # what the operations before took away
            before = case.outbox.messages
            case.put()
            if case.outbox.messages == before:
                break
        case.write()
        if operation in BEFORE:
            BEFORE[operation](case)
        with Steps() as steps:
            for _ in range(ROUNDS):
                operation(case)
        found[operation.__name__] = steps.count / ROUNDS
    return found


@pytest.mark.parametrize("apart", [False, True], ids=["one topic", "many topics"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_operation_looks_at_all_that_waits(kind, apart):
    few, many = (costs(kind, number, apart=apart) for number in (FEW, MANY))

    assert {name: (cost, many[name]) for name, cost in few.items() if many[name] > 4 * cost + MAX_MORE_STEPS} == {}


@settings(max_examples=examples(5), suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(KINDS),
    st.booleans(),
    st.lists(st.sampled_from([each for each in OPERATIONS if each not in BEFORE]), min_size=2, max_size=8),
)
def test_no_operation_looks_at_all_that_waits_whatever_was_done_before(kind, apart, operations):
    def cost(waiting):
        case = Case(kind, waiting, apart=apart)
        with Steps() as steps:
            for _ in range(ROUNDS):
                for operation in operations:
                    if case.outbox.messages:
                        operation(case)
        return steps.count / ROUNDS / len(operations)

    few, many = cost(FEW), cost(MANY)

    assert many <= 4 * few + MAX_MORE_STEPS


def test_each_operation_of_the_queues_is_counted():
    called = set()

    def note(frame, event, argument):
        called.add(frame.f_code.co_qualname)

    for kind in KINDS:
        for apart in (False, True):
            case = Case(kind, FEW, apart=apart)
            for operation in OPERATIONS:
                before = sys.gettrace()
                sys.settrace(note)
                try:
                    for _ in range(FEW):
                        operation(case)
                finally:
                    sys.settrace(before)
                case.write()
                while case.outbox.messages < FEW - 1:
                    case.outbox.put(Message(f"more{case.outbox.number}", b"", retain=True, taken_at=1.0))
    uncounted = {
        name
        for part in (Outbox,)
        for name in vars(part)
        if not name.startswith("_") and f"{part.__name__}.{name}" not in called
    }

    assert uncounted == NOT_OF_ONE_MESSAGE.keys()
