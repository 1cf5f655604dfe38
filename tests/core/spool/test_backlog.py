"""The readings of an outbox on disk, with a disk that is a dict."""

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from leadsman.core.mqtt.message import Message
from leadsman.core.mqtt.message_state import (
    HELD,
    IN_FLIGHT,
    PLACES,
    REPEATED,
    REPLACING,
    ROWS,
    WAITING,
    WRITING,
    WRITTEN,
    Item,
)
from leadsman.core.mqtt.outbox import NUMBER, Dropped, Outbox
from leadsman.core.mqtt.send_window import RetainedMessages
from leadsman.core.spool.backlog import DAMAGED, MAX_DEAD, MAX_ROWS, MIN_PAGE_ROWS, REPLACED, Backlog, Times
from leadsman.core.spool.row import EXPIRED, FULL, SUPERSEDED, Evicted, SpoolRow, TopicRows
from leadsman_rigs.examples import examples

NOW = Times(1_800_000_000.0, 100.0)
WINDOW = 20


class Receipts:
    def __init__(self):
        self.published, self.replayed, self.superseded, self.lost = 0, 0, 0, []

    @property
    def arrived(self):
        return self.published + self.replayed

    def dropped(self, at, messages=1):
        self.lost += [at] * messages

    def replaced(self):
        self.superseded += 1


class Disk:
    """Rows by their numbers. `most` is a quota of rows."""

    def __init__(self, most=10**6):
        self.rows: dict[int, SpoolRow] = {}
        self.most = most
        self.written = 0

    @property
    def next_row(self):
        return max([0, *self.rows]) + 1

    def write(self, add, delete):
        self.rows.update((row.id, row) for row in add)
        self.written += len(add)
        for number in delete:
            self.rows.pop(number, None)
        replaced = {}
        latest = {row.topic: number for number, row in sorted(self.rows.items()) if row.latest}
        for number, row in sorted(self.rows.items()):
            if row.latest and number != latest[row.topic]:
                replaced.setdefault(row.topic, []).append(number)
                del self.rows[number]
        gone = {}
        newest = {row.topic: number for number, row in sorted(self.rows.items())}
        for number, row in sorted(self.rows.items()) if len(self.rows) > self.most else ():
            if len(self.rows) > self.most and number != newest[row.topic]:
                gone.setdefault(row.topic, []).append(number)
                del self.rows[number]
        return [
            Evicted(topic, reason, ids)
            for reason, evicted in ((SUPERSEDED, replaced), (FULL, gone))
            for topic, ids in evicted.items()
        ]

    def topics(self):
        counts = {}
        for row in self.rows.values():
            counts[row.topic] = counts.get(row.topic, 0) + 1
        return counts

    def by_topic(self):
        newest = {row.topic: number for number, row in sorted(self.rows.items())}
        latest = {row.topic: number for number, row in sorted(self.rows.items()) if row.latest}
        return {topic: TopicRows(rows, newest[topic], latest.get(topic)) for topic, rows in self.topics().items()}

    def read(self, after, most):
        return [row for number, row in sorted(self.rows.items()) if number > after][:most]


class Life:
    """One life of an app: an outbox, what it has on disk, and a broker that takes what it is sent."""

    def __init__(self, disk, most_messages=40, *, durable=True, run=1):
        self.disk = disk
        self.outbox = Outbox(most_messages)
        self.backlog = None
        self.sent = []
        self.woken = 0
        self.dropped = []
        self.retained = RetainedMessages(self.outbox)
        if durable:
            self.keep_on_disk(run)

    def keep_on_disk(self, run=1):
        self.backlog = Backlog(self.outbox, run, self._wake)
        self.outbox.keep(self.backlog)

    def _wake(self):
        self.woken += 1

    def open(self):
        self.dropped += self.backlog.begin(self.disk.by_topic(), self.disk.next_row)

    def put(self, topic, payload, **fields):
        message = Message(topic, payload, taken_at=NOW.wall, **fields)
        item = self.outbox.hand_over(message) if fields.pop("fast", False) else None
        if item is None:
            self.dropped += self.outbox.put(message)
        return item

    def commit(self, works=True):
        batch, *changes = self.begin_write(self.outbox.number)
        self.end_write(batch, *changes, works)
        return len(batch)

    def begin_write(self, number):
        """Hand readings up to this number, and rows of no use, to the thread that writes."""
        batch = self.backlog.batch(number)
        rows = [self.backlog.row(item, NOW) for item in batch]
        return batch, rows, self.backlog.to_delete()

    def end_write(self, batch, rows, delete, works):
        if works:
            self.dropped += self.backlog.written(batch, self.disk.write(rows, delete))
        else:
            self.backlog.failed(batch, delete)

    def end_write_on_a_full_disk(self, batch, rows, delete):
        """Nothing can be added. Rows no longer needed are deleted all the same."""
        evicted = self.disk.write([], delete) if rows and delete else []
        self.dropped += self.backlog.written([], evicted)
        self.backlog.failed(batch, delete)

    def page(self):
        wanted = self.backlog.wanted(WINDOW)
        if wanted:
            first = [self.disk.rows[number] for number in self.backlog.first() if number in self.disk.rows]
            self.dropped += self.backlog.page(self.disk.read(self.backlog.read, wanted), NOW, first)
        return wanted

    def send(self, most=10**6):
        items = []
        while len(items) < most:
            item, _ = self.outbox.pop(NOW.monotonic)
            if item is None:
                break
            items.append(item)
            self.sent.append(self.retained.flagged(item, item.message))
        return items

    def deliver(self, most=10**6):
        for item in self.send(most):
            self.acknowledge(item)

    def acknowledge(self, item):
        for each, message in self.outbox.accept(item):
            self.retained.arrived(each, message)
            self.retained.settled(message.topic)

    def drain(self):
        """Deliver all there is."""
        for _ in range(1000):
            self.deliver()
            self.commit()
            if not self.page() and not self.outbox.messages:
                return
        raise AssertionError("it does not end")

    def payloads(self, topic="t"):
        return [message.payload for message in self.sent if message.topic == topic]


@pytest.fixture
def disk():
    return Disk()


@pytest.fixture
def life(disk):
    life = Life(disk)
    life.open()
    return life


def numbered(first, last):
    return [b"%d" % number for number in range(first, last)]


def test_what_is_acknowledged_is_never_written(life, disk):
    for payload in numbered(0, 10):
        life.put("t", payload)
        life.deliver()

    assert life.commit() == 0
    assert disk.written == 0


def test_what_waits_is_written_once_and_deleted_when_it_arrived(life, disk):
    life.put("t", b"1")
    life.commit()
    life.commit()
    assert (disk.written, [row.payload for row in disk.rows.values()]) == (1, [b"1"])

    life.deliver()
    life.commit()

    assert disk.rows == {}
    assert life.woken == 1


def test_only_readings_are_written(life, disk):
    life.outbox.put(Message("status", b"{}", latest=True))

    assert life.commit() == 0
    assert not life.outbox.unstored(life.outbox.number)


def test_a_message_in_flight_is_written_when_it_waited(life, disk):
    item = life.outbox.hand_over(Message("t", b"1", taken_at=1.0))

    assert life.outbox.unstored(item.number)
    life.commit()
    assert not life.outbox.unstored(life.outbox.number)
    life.outbox.lost()
    assert life.commit() == 0
    life.drain()
    assert disk.rows == {}


def test_readings_up_to_a_number_are_written_the_younger_ones_wait(life):
    life.put("t", b"1")
    ripe = life.outbox.number
    life.put("u", b"2")

    assert [item.message.payload for item in life.backlog.batch(ripe)] == [b"1"]
    assert life.outbox.unstored(life.outbox.number)
    assert not life.outbox.unstored(ripe)


def test_no_more_than_a_thousand_rows_are_written_at_once(disk):
    life = Life(disk, 10_000)
    life.open()
    for payload in numbered(0, MAX_ROWS + 5):
        life.put("t", payload)

    assert [life.commit(), life.commit(), life.commit()] == [MAX_ROWS, 5, 0]


def test_the_next_life_sends_what_was_written_before_its_own(life, disk):
    for payload in numbered(0, 5):
        life.put("t", payload)
    life.commit()

    after = Life(disk, run=2)
    after.put("t", b"5")
    assert after.send() == []  # it is not known yet what is on disk
    after.open()
    after.put("t", b"6")
    after.drain()

    assert after.payloads() == numbered(0, 7)
    assert disk.rows == {}


def test_topics_that_are_not_listed_send_before_the_rows_are_counted(life, disk):
    for payload in numbered(0, 3):
        life.put("t", payload)
    life.commit()

    after = Life(disk, run=2)
    after.put("t", b"3")
    after.put("live", b"before the list")
    assert after.send() == []
    after.backlog.list_topics({"t", "of an earlier life"})
    after.put("of an earlier life", b"waits")
    after.put("live", b"after it")
    flying = after.send()
    assert after.payloads("live") == [b"before the list", b"after it"]
    assert (after.payloads(), after.payloads("of an earlier life")) == ([], [])
    assert after.outbox.hand_over(Message("live", b"at once", taken_at=1.0)) is not None

    after.open()
    after.commit()
    assert [row.payload for number, row in disk.rows.items() if number > 3][:2] == [b"3", b"before the list"]
    for item in flying:
        after.outbox.accept(item)
    after.outbox.lost()  # what was handed over at once is not acknowledged
    after.drain()
    assert (after.payloads(), after.payloads("of an earlier life")) == (numbered(0, 4), [b"waits"])
    assert after.payloads("live")[-1] == b"at once"
    assert disk.rows == {}


def test_a_list_of_topics_that_comes_too_late_changes_nothing(life, disk):
    life.put("t", b"1")
    life.commit()
    after = Life(disk, run=2)
    after.backlog.give_up()
    after.backlog.list_topics({"t"})

    after.put("t", b"2")

    assert [item.message.payload for item in after.send()] == [b"2"]


def test_a_topic_without_rows_sends_at_once_while_another_is_replayed(life, disk):
    for payload in numbered(0, 30):
        life.put("t", payload)
    life.commit()

    after = Life(disk, run=2)
    after.open()
    item = after.outbox.hand_over(Message("live", b"now", taken_at=1.0))

    assert item is not None
    assert after.outbox.hand_over(Message("t", b"30", taken_at=1.0)) is None


def test_only_the_newest_row_of_a_topic_is_sent_with_the_retain_flag(life, disk):
    for payload in numbered(0, 3):
        life.put("t", payload, retain=True)
    life.put("u", b"u", retain=True)
    life.commit()

    after = Life(disk, run=2)
    after.open()
    after.put("u", b"newer", retain=True)
    after.drain()

    assert [message.retain for message in after.sent if message.topic == "t"] == [False, False, True]
    assert [message.retain for message in after.sent if message.topic == "u"] == [False, True]


class TestNotAcknowledgedInOrder:
    """A reading is acknowledged, and an older one of its topic is not; then the app is killed."""

    def overtake(self, life, *, before, refused, **fields):
        """Both have waited, or the older one alone: `before` the newer one was sent."""
        life.put("t", b"older", retain=True, **fields)
        (older,) = life.send()
        if before:
            life.commit()
        life.put("t", b"newer", retain=True, **fields)
        (newer,) = life.send()
        if refused:
            life.outbox.refuse(older)
        else:
            life.outbox.accept(newer)
        batch, *changes = life.begin_write(older.number)
        life.end_write(batch, *changes, works=True)
        return older, newer

    def next_life(self, disk):
        life = Life(disk, run=2)
        life.open()
        life.drain()
        return [(message.payload, message.retain) for message in life.sent]

    @pytest.mark.parametrize("refused", [True, False])
    def test_the_next_life_sends_both_if_the_older_one_was_not_on_disk_before(self, life, disk, refused):
        self.overtake(life, before=False, refused=refused)

        assert self.next_life(disk) == [(b"older", False), (b"newer", True)]

    @pytest.mark.parametrize("refused", [True, False])
    def test_it_does_so_too_if_it_was_once_the_newer_one_is_written(self, life, disk, refused):
        self.overtake(life, before=True, refused=refused)
        life.commit()

        assert self.next_life(disk) == [(b"older", False), (b"newer", True)]

    def test_where_only_the_newest_counts_it_sends_that(self, life, disk):
        self.overtake(life, before=True, refused=False, latest=True)
        life.commit()

        assert self.next_life(disk) == [(b"newer", True)]

    def test_nothing_stays_on_disk_when_the_older_one_arrived_as_well(self, life, disk):
        older, _ = self.overtake(life, before=False, refused=False)
        life.outbox.accept(older)
        life.commit()

        assert disk.rows == {}

    def test_what_comes_back_from_disk_is_not_retained_while_a_newer_one_is_in_flight(self, life, disk):
        life.put("t", b"older", retain=True)
        life.commit()
        after = Life(disk, run=2)
        after.open()
        after.backlog.give_up()
        after.put("t", b"newer", retain=True)
        after.send()
        after.backlog.begin(disk.by_topic(), None)
        after.page()
        (older,) = after.send()

        assert older.message.payload == b"older"
        assert older.followed

    def test_a_reading_that_comes_back_after_the_disk_failed_is_retained_if_nothing_newer_arrived(self, life, disk):
        life.put("t", b"1", retain=True)
        life.commit()
        after = Life(disk, run=2)
        after.open()
        after.backlog.give_up()
        after.backlog.begin(disk.by_topic(), None)
        after.drain()

        assert [(message.payload, message.retain) for message in after.sent] == [(b"1", True)]


class TestAheadOfTheDisk:
    """A reading arrived while the file could not be used, and older ones of its topic are in the file. Then the file
    can be used again, and the app is killed."""

    def put(self, life, *payloads, topic):
        for payload in payloads:
            life.put(topic, payload, retain=True, latest=topic == "newest")

    def life_without_its_file(self, disk, topic, *, was_open):
        before = Life(disk)
        before.open()
        self.put(before, b"1", topic=topic)
        before.commit()
        life = Life(disk, run=2)
        if was_open:
            life.open()
        life.backlog.give_up()
        return life

    def open_again(self, life, *, was_open, reads):
        life.backlog.begin(life.disk.by_topic(), None if was_open else life.disk.next_row)
        if reads:
            life.page()

    def retained_after_a_kill(self, life):
        """What the broker retains in the end."""
        after = Life(life.disk, run=3)
        after.open()
        after.drain()
        assert life.disk.rows == {}
        return [message.payload for message in life.sent + after.sent if message.retain][-1]

    @pytest.mark.parametrize("reads", [True, False])
    @pytest.mark.parametrize("was_open", [True, False])
    @pytest.mark.parametrize("topic", ["all", "newest"])
    def test_the_next_life_leaves_it_retained(self, disk, topic, was_open, reads):
        life = self.life_without_its_file(disk, topic, was_open=was_open)
        self.put(life, b"2", topic=topic)
        life.deliver()
        self.open_again(life, was_open=was_open, reads=reads)
        life.commit()

        assert self.retained_after_a_kill(life) == b"2"

    @pytest.mark.parametrize("reads", [True, False])
    @pytest.mark.parametrize("was_open", [True, False])
    @pytest.mark.parametrize("topic", ["all", "newest"])
    def test_it_does_so_too_if_the_reading_was_acknowledged_when_the_file_was_open_again(
        self, disk, topic, was_open, reads
    ):
        life = self.life_without_its_file(disk, topic, was_open=was_open)
        self.put(life, b"2", topic=topic)
        flying = life.send()
        self.open_again(life, was_open=was_open, reads=reads)
        for item in flying:
            life.acknowledge(item)
        life.commit()

        assert self.retained_after_a_kill(life) == b"2"

    def test_what_was_removed_at_the_broker_meanwhile_does_not_come_again(self, disk):
        life = self.life_without_its_file(disk, "all", was_open=True)
        self.put(life, b"2", topic="all")
        life.deliver()
        life.outbox.put(Message("all", b"", retain=True))
        life.deliver()
        self.open_again(life, was_open=True, reads=False)
        life.commit()

        assert [row.payload for row in disk.rows.values()] == [b"1"]

    def test_newer_ones_that_wait_come_after_the_older_ones_and_it_does_not_come_again(self, disk):
        life = self.life_without_its_file(disk, "all", was_open=True)
        self.put(life, b"2", topic="all")
        life.deliver()
        self.put(life, b"3", topic="all")
        self.open_again(life, was_open=True, reads=False)
        life.commit()

        assert [row.payload for row in disk.rows.values()] == [b"1", b"3"]
        assert self.retained_after_a_kill(life) == b"3"

    def test_what_arrives_while_the_file_is_opened_for_the_first_time_does_not_come_again(self, disk):
        life = Life(disk, durable=False)
        self.put(life, b"1", topic="all")
        flying = life.send()
        life.keep_on_disk()
        for item in flying:
            life.acknowledge(item)
        life.open()
        life.drain()

        assert life.payloads("all") == [b"1"]

    def test_when_the_file_can_be_used_it_is_remembered_no_longer(self, disk):
        life = self.life_without_its_file(disk, "all", was_open=True)
        self.put(life, b"2", topic="all")
        self.put(life, b"3", topic="another")
        life.deliver()
        assert len(life.outbox._ahead) == 2
        self.open_again(life, was_open=True, reads=True)
        life.deliver()
        self.put(life, b"4", topic="all")
        life.drain()

        assert not life.outbox._ahead


class TestOrder:
    """What waits of a topic is in order, though older readings come to newer ones."""

    def life_with_a_newer_reading(self, disk, most=40):
        """There are seven older ones on disk, which were not read back before the newer one was put."""
        before = Life(disk)
        before.open()
        for payload in numbered(1, 8):
            before.put("t", payload, retain=True)
        before.commit()
        life = Life(disk, most, run=2)
        life.open()
        life.backlog.give_up()
        life.put("t", b"8", retain=True)
        return life

    def open_again(self, life):
        life.backlog.begin(life.disk.by_topic(), None)
        life.page()

    def waiting(self, life):
        return [item.message.payload for item in life.outbox._queues["t"].waiting]

    def test_what_is_read_back_waits_before_newer_readings(self, disk):
        life = self.life_with_a_newer_reading(disk)
        self.open_again(life)

        assert self.waiting(life) == numbered(1, 9)

    def test_what_was_in_flight_waits_behind_what_was_read_back_meanwhile(self, disk):
        life = self.life_with_a_newer_reading(disk)
        life.send()
        self.open_again(life)
        life.outbox.lost()

        assert self.waiting(life) == numbered(1, 9)

    def test_what_the_broker_refuses_for_now_does_so_too(self, disk):
        life = self.life_with_a_newer_reading(disk)
        (newer,) = life.send()
        self.open_again(life)
        life.send(3)
        life.outbox.refuse(newer)

        assert self.waiting(life) == numbered(1, 9)

    def test_the_oldest_are_dropped_where_the_memory_is_full(self, disk):
        life = self.life_with_a_newer_reading(disk, most=8)
        self.open_again(life)
        life.backlog.give_up()
        life.put("another", b"9")

        assert life.dropped == [Dropped("t", 2, "outbox full", "full")]
        assert self.waiting(life) == numbered(3, 9)

    def test_none_of_what_is_read_back_is_retained_while_a_newer_one_is_in_flight(self, disk):
        life = self.life_with_a_newer_reading(disk)
        life.send()
        self.open_again(life)
        life.send()

        assert [message.payload for message in life.sent if message.retain] == [b"8"]

    def test_what_broke_the_connection_is_dropped_and_not_what_was_read_back_meanwhile(self, disk):
        life = self.life_with_a_newer_reading(disk)
        (newer,) = life.send()
        newer.sent_at = NOW.monotonic
        self.open_again(life)
        life.outbox.lost()
        life.outbox.drop_next("t", "it breaks the connection")

        assert self.waiting(life) == numbered(1, 8)


class TestWhileTheFileIsOpenedAgain:
    """What happens between the count of the rows and the moment at which the outbox learns of it."""

    def test_what_is_acknowledged_is_not_expected_on_disk(self, life, disk):
        for payload in numbered(0, 3):
            life.put("t", payload)
        life.commit()
        flying = life.send()
        life.backlog.give_up()
        rows = disk.by_topic()
        for item in flying:
            life.acknowledge(item)
        life.backlog.begin(rows, None)

        assert life.backlog.rows == 0
        life.drain()
        assert (life.dropped, disk.rows) == ([], {})

    def test_what_expired_on_disk_is_counted_and_not_expected_there(self, life, disk):
        for payload in numbered(0, 3):
            life.put("t", payload)
        life.commit()
        after = Life(disk, run=2)
        after.open()
        after.put("t", b"3")
        after.put("u", b"4")
        after.commit()
        after.backlog.give_up()
        expired = [Evicted("t", EXPIRED, [1, 2]), Evicted("u", EXPIRED, [5])]
        for number in (1, 2, 5):
            del disk.rows[number]
        after.dropped += after.backlog.begin(disk.by_topic(), None, expired)

        assert after.dropped == [Dropped("t", 2, EXPIRED, "expired")]  # the other one waits in memory
        after.drain()
        assert (after.payloads(), after.payloads("u")) == ([b"2", b"3"], [b"4"])
        assert (len(after.dropped), disk.rows) == (1, {})


@pytest.mark.parametrize(("lasts", "expires_at"), [(7200.0, None), (60.0, 1060.0)])
def test_a_row_that_is_written_before_the_clock_is_set_expires_only_if_it_is_worth_something_for_a_while(
    life, lasts, expires_at
):
    life.put("t", b"1", expires=NOW.monotonic + lasts)
    (item,) = life.backlog.batch(life.outbox.number)

    assert life.backlog.row(item, Times(1000.0, NOW.monotonic)).expires_at == expires_at


def test_readings_that_arrived_are_not_remembered_though_nothing_is_written(life):
    for number in range(5000):
        life.put("t", b"%d" % number)
        life.deliver()

    assert life.outbox.unkept == 0
    assert len(life.backlog._unstored) < 100


def test_a_row_has_the_time_that_is_left_to_it(life, disk):
    life.put("t", b"1", expires=NOW.monotonic + 60)
    life.commit()
    assert [row.expires_at for row in disk.rows.values()] == [NOW.wall + 60]

    after = Life(disk, run=2)
    after.open()
    after.backlog.page(disk.read(0, 10), Times(NOW.wall + 50, 7.0))

    item, _ = after.outbox.pop(7.0)
    assert item.message.expires == 17.0


def test_what_does_not_fit_in_memory_is_on_disk_only_and_nothing_is_dropped(life, disk):
    for payload in numbered(0, 200):
        life.put("t", payload)
        life.commit()

    assert life.outbox.messages <= 40
    assert life.backlog.kept == 200
    life.drain()
    assert life.payloads() == numbered(0, 200)
    assert life.dropped == []
    assert life.outbox.delivered == 200


def test_status_messages_find_room_in_a_memory_full_of_readings(life):
    for payload in numbered(0, 200):
        life.put("t", payload)
        life.commit()

    for device in range(3):
        life.outbox.put(Message(f"{device}/availability", b"online", latest=True))

    assert life.dropped == []
    assert life.outbox.messages <= 40


def test_a_few_pages_at_a_time_are_in_memory(disk):
    first = Life(disk, 10_000)
    first.open()
    for payload in numbered(0, 2000):
        first.put("t", payload)
    first.commit()
    first.commit()

    after = Life(disk, 10_000, run=2)
    after.open()
    while after.page():
        pass

    assert MIN_PAGE_ROWS // 2 <= after.outbox.messages <= 2 * MIN_PAGE_ROWS
    after.drain()
    assert after.payloads() == numbered(0, 2000)


def test_a_connection_that_waits_for_pages_gets_longer_ones(disk):
    before = Life(disk, 10_000)
    before.open()
    for payload in numbered(0, 2000):
        before.put("t", payload)
    before.commit()
    before.commit()

    after = Life(disk, 10_000)
    after.open()
    sizes = []
    while wanted := after.page():
        sizes.append(wanted)
        after.deliver()

    assert sizes[:4] == [MIN_PAGE_ROWS, 2 * MIN_PAGE_ROWS, 4 * MIN_PAGE_ROWS, 8 * MIN_PAGE_ROWS]
    assert after.payloads() == numbered(0, 2000)


def test_receipts_learn_of_readings_that_were_on_disk_only(disk):
    life = Life(disk, 10)
    life.open()
    receipts = Receipts()
    for payload in numbered(0, 50):
        life.put("t", payload, receipt=receipts, clock_offset=5.0)
        life.commit()
    life.drain()

    assert (receipts.arrived, receipts.lost) == (50, [])


def test_receipts_learn_of_readings_that_the_quota_deleted(disk):
    disk.most = 20
    life = Life(disk, 10)
    life.open()
    receipts = Receipts()
    for payload in numbered(0, 50):
        life.put("t", payload, receipt=receipts, clock_offset=5.0)
        life.commit()
    life.drain()

    lost = sum(each.messages for each in life.dropped)
    assert lost == len(receipts.lost) == 50 - receipts.arrived == life.outbox.dropped
    assert 0 < lost <= 30
    assert life.payloads()[-20:] == numbered(30, 50)


def test_rows_that_the_quota_deletes_are_sent_while_they_are_in_memory(disk):
    disk.most = 5
    life = Life(disk, 1000)
    life.open()
    for payload in numbered(0, 50):
        life.put("t", payload)
        life.commit()

    assert life.commit() == 0
    assert life.dropped == []
    life.drain()
    assert life.payloads() == numbered(0, 50)


def test_a_full_disk_keeps_readings_in_memory_until_it_has_room(life, disk):
    life.put("t", b"0")
    assert life.commit(works=False) == 1
    life.put("t", b"1")
    assert life.commit() == 2

    life.drain()
    assert life.payloads() == numbered(0, 2)
    assert disk.rows == {}


def test_a_full_memory_and_a_full_disk_drop_the_oldest_and_say_so(life, disk):
    for payload in numbered(0, 100):
        life.put("t", payload)
        life.commit(works=False)

    lost = sum(each.messages for each in life.dropped)
    assert life.outbox.messages <= 42
    assert lost + life.outbox.messages == 100
    life.drain()
    assert life.payloads() == numbered(lost, 100)


def test_readings_behind_rows_on_a_full_disk_are_bounded_too(life, disk):
    for payload in numbered(0, 60):
        life.put("t", payload)
        life.commit()
    for payload in numbered(60, 160):
        life.put("t", payload)
        life.commit(works=False)

    lost = sum(each.messages for each in life.dropped)
    assert lost > 0
    assert life.outbox.messages <= 42
    life.drain()
    assert life.payloads() == sorted(life.payloads(), key=int)
    assert len(life.payloads()) == 160 - lost


def test_without_its_file_the_outbox_waits_in_memory_and_rows_come_back_later(life, disk):
    for payload in numbered(0, 60):
        life.put("t", payload, retain=True)
        life.commit()
    life.backlog.give_up()
    life.put("t", b"live", retain=True)
    life.deliver()
    assert life.payloads()[-1] == b"live"

    life.backlog.begin(disk.by_topic(), None)
    life.drain()

    assert set(life.payloads()) == {*numbered(0, 60), b"live"}
    assert [message.payload for message in life.sent if message.retain] == [b"live", b"live"]
    assert life.payloads()[-1] == b"live"  # once more, since it was on disk behind the others, for a next life
    assert disk.rows == {}


def test_what_waits_in_memory_is_written_again_when_the_file_was_replaced(life, disk):
    for payload in numbered(0, 60):
        life.put("t", payload)
        life.commit()
    only = life.backlog.rows
    disk.rows.clear()

    life.open()
    life.commit()

    assert life.dropped == [Dropped("t", only, REPLACED, "damaged")]
    assert life.outbox.drops["damaged"] == only
    assert len(disk.rows) == 60 - only == life.outbox.messages
    life.drain()
    assert life.payloads() == numbered(0, 60 - only)


def test_rows_that_cannot_be_read_do_not_block_their_topic(life, disk):
    for payload in numbered(0, 60):
        life.put("t", payload)
        life.commit()
    for number in sorted(disk.rows)[50:]:
        del disk.rows[number]  # damaged

    life.put("t", b"live")
    life.drain()

    assert life.payloads() == [*numbered(0, 50), b"live"]
    assert life.dropped == [Dropped("t", 10, DAMAGED, "damaged")]
    assert life.outbox.drops["damaged"] == 10


def put_with_receipts(life, receipts, first, last):
    for number in range(first, last):
        message = Message("t", b"%d" % number, taken_at=float(number), clock_offset=0.0, receipt=receipts)
        life.outbox.put(message)
        life.commit()


def test_receipts_learn_of_the_newest_reading_whose_row_cannot_be_read(life, disk):
    receipts = Receipts()
    put_with_receipts(life, receipts, 0, 60)
    newest = max(disk.rows)
    del disk.rows[newest]  # damaged

    life.drain()

    assert receipts.lost == [59.0]


def test_receipts_learn_of_each_reading_whose_row_cannot_be_read(life, disk):
    first, second, third = Receipts(), Receipts(), Receipts()
    put_with_receipts(life, first, 0, 100)
    put_with_receipts(life, second, 100, 110)
    put_with_receipts(life, third, 110, 120)
    rows = sorted(disk.rows)
    for number in (*rows[70:80], *rows[98:103], *rows[115:119]):
        del disk.rows[number]  # damaged

    life.drain()

    assert (len(first.lost), len(second.lost), len(third.lost)) == (12, 3, 4)
    assert first.lost[-1] == 99.0
    assert 119.0 not in third.lost
    assert (first.arrived, second.arrived, third.arrived) == (88, 7, 6)
    assert life.dropped == [Dropped("t", 19, DAMAGED, "damaged")]


def test_receipts_learn_of_each_reading_of_a_file_that_was_replaced(life, disk):
    receipts = Receipts()
    put_with_receipts(life, receipts, 0, 60)
    only = life.backlog.rows
    disk.rows.clear()

    life.dropped += life.backlog.begin({}, 1)
    life.drain()

    assert 0 < only == len(receipts.lost) == 60 - receipts.arrived
    assert life.dropped == [Dropped("t", only, REPLACED, "damaged")]


def test_a_reading_that_the_broker_does_not_take_becomes_a_dead_letter(life, disk):
    life.put("t", b"1")
    life.commit()
    (item,) = life.send()
    number = item.number
    life.outbox.drop(item, "refused")

    ((dead, why),) = life.backlog.dead_letters()
    assert (life.backlog.row(dead, NOW).id, dead.message.payload, why) == (number, b"1", "refused")
    assert life.backlog.on_disk.dead == 1
    assert life.backlog.dead_letters() == []


def test_dead_letters_that_cannot_be_written_wait_within_bounds(life):
    for number in range(MAX_DEAD + 5):
        life.put("t", b"%d" % number)
        (item,) = life.send()
        life.outbox.drop(item, "refused")
    dead = life.backlog.dead_letters()
    life.backlog.failed([], [], dead)

    assert [item.message.payload for item, _ in life.backlog.dead_letters()] == numbered(5, MAX_DEAD + 5)


class TestNewest:
    """A topic of which only the newest reading counts."""

    def put(self, life, *payloads, **fields):
        for payload in payloads:
            life.put("t", payload, latest=True, retain=True, **fields)

    def test_a_newer_reading_takes_the_place_of_one_that_waits(self, life):
        receipts = Receipts()
        self.put(life, b"1", b"2", b"3", receipt=receipts, clock_offset=0.0)
        life.drain()

        assert life.payloads() == [b"3"]
        assert (receipts.arrived, receipts.superseded, receipts.lost) == (1, 2, [])

    def test_its_row_replaces_the_older_one_when_it_is_written(self, life, disk):
        for payload in numbered(0, 5):
            self.put(life, payload)
            life.commit()

        assert [row.payload for row in disk.rows.values()] == [b"4"]
        life.drain()
        assert (life.payloads(), disk.rows) == ([b"4"], {})

    def test_the_older_row_stays_on_disk_until_the_newer_one_is_written_or_arrived(self, life, disk):
        self.put(life, b"1")
        life.commit()
        self.put(life, b"2")
        assert life.backlog.to_delete() == []
        life.commit(works=False)

        assert [row.payload for row in disk.rows.values()] == [b"1"]
        life.deliver()
        life.commit()
        assert (life.payloads(), disk.rows) == ([b"2"], {})

    def test_a_row_that_comes_back_stays_on_disk_until_the_newer_reading_in_memory_is_written(self, life, disk):
        self.put(life, b"1")
        life.commit()
        after = Life(disk, run=2)
        after.open()
        self.put(after, b"2")
        after.backlog.give_up()  # the file cannot be used for a while
        after.backlog.begin(disk.by_topic(), None)
        after.page()
        after.end_write(*after.begin_write(after.outbox.number - 1), works=True)

        assert [row.payload for row in disk.rows.values()] == [b"1"]
        after.commit()
        assert [row.payload for row in disk.rows.values()] == [b"2"]
        after.drain()
        assert (after.payloads(), disk.rows, after.backlog.kept) == ([b"2"], {}, 0)

    def break_while_a_newer_one_is_written(self, life):
        """The older one, which is on disk, was in flight."""
        self.put(life, b"1")
        life.commit()
        life.send()
        self.put(life, b"2")
        write = life.begin_write(life.outbox.number)
        life.outbox.lost()
        return write

    def test_a_row_that_was_in_flight_stays_on_disk_until_the_newer_one_is_written(self, life, disk):
        write = self.break_while_a_newer_one_is_written(life)
        assert life.backlog.to_delete() == []
        life.end_write(*write, works=False)
        life.end_write_on_a_full_disk(*life.begin_write(life.outbox.number))

        assert [row.payload for row in disk.rows.values()] == [b"1"]
        life.commit()
        assert [row.payload for row in disk.rows.values()] == [b"2"]
        life.drain()
        assert (life.payloads(), disk.rows, life.backlog.kept) == ([b"1", b"2"], {}, 0)

    @pytest.mark.parametrize("works", [True, False])
    def test_a_row_that_was_in_flight_is_deleted_when_the_newer_one_arrived_while_it_is_written(
        self, life, disk, works
    ):
        write = self.break_while_a_newer_one_is_written(life)
        life.deliver()
        life.end_write(*write, works)
        life.commit()

        assert (life.payloads(), disk.rows, life.backlog.kept) == ([b"1", b"2"], {}, 0)

    @pytest.mark.parametrize("works", [True, False])
    def test_a_row_is_not_expected_on_disk_if_it_was_written_together_with_the_newer_one(self, life, disk, works):
        self.put(life, b"1")
        life.send()
        self.put(life, b"2")
        write = life.begin_write(life.outbox.number)
        life.outbox.lost()
        life.end_write(*write, works)
        life.commit()

        assert [row.payload for row in disk.rows.values()] == [b"2"]
        assert life.backlog.kept == 1

    def test_a_reading_that_arrives_while_it_is_written_leaves_no_older_row_behind(self, life, disk):
        self.put(life, b"1")
        life.commit()
        self.put(life, b"2")
        batch = life.backlog.batch(life.outbox.number)
        life.deliver()
        life.backlog.failed(batch, [])
        life.commit()

        assert (life.payloads(), disk.rows) == ([b"2"], {})

    def test_one_message_arrives_after_a_restart_though_a_reading_was_taken_before_the_file_was_open(self, disk):
        first = Life(disk)
        first.open()
        self.put(first, b"1", b"2")
        first.commit()
        second = Life(disk, run=2)
        self.put(second, b"3", b"4")
        second.open()
        second.drain()

        assert (second.payloads(), disk.rows) == ([b"4"], {})

    def test_a_row_of_an_earlier_life_arrives_retained_if_nothing_newer_comes(self, disk):
        first = Life(disk)
        first.open()
        self.put(first, b"1", b"2")
        first.commit()
        second = Life(disk, run=2)
        second.open()
        second.drain()

        assert [(each.payload, each.retain) for each in second.sent] == [(b"2", True)]

    def test_a_row_that_is_read_back_after_a_newer_reading_arrived_is_not_sent(self, disk):
        first = Life(disk)
        first.open()
        self.put(first, b"1")
        first.commit()
        second = Life(disk, run=2)
        second.backlog.give_up()  # the disk did not answer
        self.put(second, b"2")
        second.deliver()
        second.open()
        second.drain()

        assert (second.payloads(), disk.rows) == ([b"2"], {})

    def test_its_row_comes_back_before_all_others(self, disk):
        first = Life(disk, 10_000)
        first.open()
        for payload in numbered(0, 500):
            first.put("all", payload)
        self.put(first, b"newest")
        first.commit()
        second = Life(disk, run=2)
        second.open()
        second.page()
        second.deliver(2)

        assert b"newest" in [message.payload for message in second.sent]
        second.drain()
        assert (second.payloads("all"), disk.rows) == (numbered(0, 500), {})

    def test_readings_that_were_kept_in_order_before_arrive_before_the_newest(self, disk):
        first = Life(disk)
        first.open()
        for payload in numbered(0, 3):
            first.put("t", payload)
        first.commit()
        second = Life(disk, run=2)
        second.open()
        self.put(second, b"3", b"4")
        second.drain()

        assert second.payloads() == [*numbered(0, 3), b"4"]

    def test_rows_that_newer_ones_replaced_are_counted_so(self, life):
        receipts = Receipts()
        life.backlog.known = False
        for payload in numbered(0, 3):
            self.put(life, payload, receipt=receipts, clock_offset=0.0)
            life.commit()

        assert (receipts.superseded, receipts.lost, life.dropped) == (2, [], [])


class RandomLife:
    """An outbox, its backlog and a disk, to which anything happens in any order that a running app allows."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.disk = Disk(self.chance.choice([5, 15, 10**6]))
        self.life = Life(self.disk, self.chance.choice([8, 30, 1000]))
        self.write, self.flying, self.count = None, [], 0
        if self.chance.random() < 0.8:
            self.life.open()
        self.opened = self.life.backlog.known

    def step(self):
        self.chance.choice(
            [self.put] * 3
            + [self.send, self.accept, self.refuse, self.drop, self.cut, self.deliver, self.deliver, self.begin_write]
            + [self.end_write] * 3
            + [
                self.page,
                self.page,
                *[self.expire_on_disk] * 3,
                self.repeat,
                self.give_up,
                self.open,
                self.replace_the_file,
            ]
        )()

    def put(self):
        for _ in range(self.chance.choice([1, 3, 12])):
            self.count += 1
            topic = self.chance.choice("abno")
            taken_at = self.chance.choice([1.0, 1.0, 1.0, None])
            expires = self.chance.choice([None] * 9 + [NOW.monotonic])
            fields = {"retain": True, "taken_at": taken_at, "latest": topic in "no", "expires": expires}
            self.life.outbox.put(Message(topic, b"%d" % self.count, **fields))

    def send(self):
        self.flying += self.life.send(self.chance.choice([1, 20]))

    def _one_in_flight(self):
        return [self.flying.pop(self.chance.randrange(len(self.flying)))] if self.flying else []

    def accept(self):
        for item in self._one_in_flight():
            self.life.outbox.accept(item)

    def deliver(self):
        for item in self.flying:
            self.life.outbox.accept(item)
        self.flying.clear()
        self.life.deliver()

    def refuse(self):
        for item in self._one_in_flight():
            self.life.outbox.refuse(item)
            self.life.outbox.trust("a")
            self.flying = [each for each in self.flying if each.place is IN_FLIGHT]

    def drop(self):
        for item in self._one_in_flight():
            topic = item.message.topic
            self.life.outbox.drop(item, "refused")
            self.life.outbox.settle(topic)

    def cut(self):
        self.flying.clear()
        self.life.outbox.lost()

    def begin_write(self):
        if self.opened and self.write is None:
            self.write = self.life.begin_write(self.life.outbox.number - self.chance.randrange(3))

    def end_write(self):
        write, self.write = self.write, None
        if write is not None:
            outcome = self.chance.choice(["works", "works", "fails", "is full"])
            if outcome == "is full":
                self.life.end_write_on_a_full_disk(*write)
            else:
                self.life.end_write(*write, works=outcome == "works")

    def page(self):
        if self.opened and self.write is None:
            self.life.page()

    def expire_on_disk(self):
        """A write deletes one that nobody wants any more."""
        if self.opened and self.write is None and self.disk.rows:
            row = self.disk.rows.pop(self.chance.choice([*self.disk.rows]))
            self.life.dropped += self.life.backlog.written([], [Evicted(row.topic, EXPIRED, [row.id])])

    def repeat(self):
        topic = self.chance.choice("abno")
        self.life.outbox.repeat(0, Message(topic, b"0", retain=True, taken_at=1.0, latest=topic in "no"))

    def give_up(self):
        if self.opened and self.write is None and self.chance.random() < 0.3:
            self.life.backlog.give_up()
            self.opened = False

    def open(self):
        if not self.opened:
            self.disk.write([], self.life.backlog.to_delete())
            self.life.backlog.begin(self.disk.by_topic(), None if self.disk.rows else self.disk.next_row)
            self.opened = True

    def replace_the_file(self):
        if self.opened and self.write is None and self.chance.random() < 0.3:
            self.disk.rows.clear()
            self.life.backlog.begin({}, self.life.outbox.number + 1)

    def check(self):
        """Each item is where its state says, and the disk has what it says."""
        outbox, rows = self.life.outbox, self.disk.rows
        writing = () if self.write is None else self.write[0]
        items = {
            WAITING: [item for queue in outbox._queues.values() for item in queue.waiting],
            IN_FLIGHT: [*outbox.flying],
            HELD: [*self.life.backlog.held],
        }
        assert sum(map(len, items.values())) == outbox.messages
        for place, found in items.items():
            assert {item.place for item in found} <= {place}
            for item in found:
                if item.row_state is REPEATED:  # it has the number of another one
                    continue
                stored = item.number in rows and rows[item.number].payload == item.message.payload
                assert stored == (item.row_state is WRITTEN)
                assert (item in writing) >= (item.row_state is WRITING)
                if item.row_state is REPLACING:
                    assert item.row in rows or item in writing
                    assert item.row != item.number
        for queue in outbox._queues.values():
            assert queue.waiting == sorted(queue.waiting, key=NUMBER)


def test_the_outbox_makes_the_transitions_of_the_tables_all_of_them_and_no_others(monkeypatch):
    places, rows = set(), set()
    move, change_row = Item.move, Item.change_row

    def note_move(item, event):
        places.add((item.place, event))
        move(item, event)

    def note_change(item, event):
        rows.add((item.row_state, event))
        change_row(item, event)

    monkeypatch.setattr(Item, "move", note_move)
    monkeypatch.setattr(Item, "change_row", note_change)

    for seed in range(200):
        life = RandomLife(seed)
        for _ in range(150):
            life.step()
            life.check()

    assert places == PLACES.keys()
    assert rows == ROWS.keys()


def test_a_reading_that_is_on_disk_only_may_be_dropped_or_replaced_there(disk):
    before = Life(disk)
    before.open()
    before.put("t", b"1")
    before.put("t", b"2")
    before.put("n", b"3", latest=True)
    before.commit()
    life = Life(disk, run=2)
    life.open()
    assert life.backlog.rows == 3

    del disk.rows[1]
    lost = life.backlog.written([], [Evicted("t", EXPIRED, [1])])
    life.put("n", b"4", latest=True)
    life.commit()

    assert lost == [Dropped("t", 1, EXPIRED, "expired")]
    assert (life.backlog.rows, [*disk.rows]) == (2, [2, 4])
    life.drain()
    assert (life.payloads("t"), life.payloads("n"), life.dropped) == ([b"2"], [b"4"], [])


class Lives(RuleBasedStateMachine):
    """Readings are put, sent, refused for now, lost on the way, written and read back, their acknowledgements come in
    any order or never, the file cannot be used for a while, and the app is killed: each reading that was accepted
    arrives, in order, unless its loss is reported, or it was refused, or a newer one was acknowledged before. Of the
    topics n and o only the newest counts: one that was accepted arrives, or one that is newer, and never an older one
    after it. After a break the broker may be another one, with nothing retained. In the end it retains the newest of
    each topic, unless that arrived in a life before and the broker did not retain it when that life ended: it arrived
    at another broker, or without the flag. What is in the file at the end of a life is never in the way of that."""

    durable = True

    def __init__(self):
        super().__init__()
        self.disk = Disk()
        self.arrived = []
        self.count = self.sends = 0
        self.replaceable = 0
        self.newest = {}
        self.last_put = {}
        self.dropped = 0
        self.flying = {}
        self.at_broker = {}
        self.disordered, self.elsewhere = set(), set()

    @initialize(most=st.sampled_from([8, 30, 1000]), quota=st.sampled_from([15, 10**6]))
    def begin(self, most, quota):
        self.most, self.disk.most = most, quota
        self.start()

    def start(self, *, opens=True):
        self.flying, self.write = {}, None
        self.life = Life(self.disk, self.most, durable=self.durable, run=self.count)
        self.retained, self.known = self.life.retained, {}
        self.opened, self.listed, self.failed = not self.durable, False, False
        self.first, self.counted = True, None
        if opens:
            self.open()

    def open(self):
        if self.failed:
            self.counted = self.counted or self.count_rows()
            self.life.dropped += self.life.backlog.begin(*self.counted)
        elif not self.opened:
            self.life.open()
        self.opened, self.first, self.failed, self.counted = True, False, False, None

    def count_rows(self):
        """In the thread: the file is opened again, and what was settled before is deleted."""
        self.disk.write([], self.life.backlog.to_delete())
        return self.disk.by_topic(), self.disk.next_row if self.first else None

    @precondition(lambda self: self.failed and self.counted is None)
    @rule()
    def file_is_counted(self):
        """What happens before `file_is_open` happens while the call runs."""
        self.counted = self.count_rows()

    @precondition(lambda self: not (self.opened or self.listed or self.failed))
    @rule(more=st.sets(st.sampled_from("abcno")))
    def list_topics(self, more):
        """It is known which topics may have rows, but not how many."""
        self.listed = True
        self.life.backlog.list_topics(self.disk.topics().keys() | more)

    @precondition(lambda self: not self.opened)
    @rule()
    def file_is_open(self):
        self.open()

    @rule(topic=st.sampled_from("abcno"), count=st.integers(1, 12), fast=st.booleans())
    def put(self, topic, count, fast):
        for _ in range(count):
            self.count += 1
            latest = topic in "no"
            self.replaceable += latest
            self.last_put[topic] = self.count
            self.elsewhere.discard(topic)
            message = Message(topic, b"%d" % self.count, retain=True, taken_at=1.0, latest=latest)
            item = self.life.outbox.hand_over(message) if fast else None
            if item is None:
                self.life.dropped += self.life.outbox.put(message)
            else:
                self.life.sent.append(message)
                self.fly([item])
                self.acknowledge_one(-1)

    def arrived_newest(self):
        """The topics whose newest reading arrived, perhaps at another broker."""
        return {topic for _, topic, number in self.arrived if number == self.last_put[topic]}

    def fly(self, items):
        for item in items:
            self.sends += 1
            self.flying[item] = self.sends

    def arrive(self, item):
        """An acknowledgement comes. The broker took the messages in the order in which they were sent."""
        topic, number, sent = item.message.topic, int(item.message.payload), self.flying.pop(item)
        self.arrived.append((sent, topic, number))
        self.known[topic] = max(number, self.known.get(topic, 0))
        if self.retained.flagged(item, item.message).retain and sent > self.at_broker.get(topic, (0, 0))[0]:
            self.at_broker[topic] = sent, number
        self.life.acknowledge(item)

    @rule(count=st.integers(1, 20))
    def send(self, count):
        self.fly(self.life.send(count))

    @rule(topic=st.sampled_from("cno"))
    def put_and_send(self, topic):
        self.put(topic, 1, fast=False)
        self.send(20)

    @precondition(lambda self: self.flying)
    @rule(which=st.integers(0, 19))
    def refuse(self, which):
        item = [*self.flying][which % len(self.flying)]
        del self.flying[item]
        self.disordered.add(item.message.topic)
        self.life.outbox.refuse(item)
        self.life.outbox.trust(item.message.topic)
        self.flying = {each: sent for each, sent in self.flying.items() if each.place is IN_FLIGHT}

    @rule()
    def acknowledge(self):
        for item in [*self.flying]:
            self.arrive(item)

    @precondition(lambda self: self.flying)
    @rule(which=st.integers(0, 19))
    def acknowledge_one(self, which):
        """The acknowledgements of those before it may come later, or be lost."""
        item = [*self.flying][which % len(self.flying)]
        self.disordered.add(item.message.topic)
        self.arrive(item)

    @rule()
    def connection_breaks(self):
        self.life.outbox.lost()
        self.flying = {}

    @rule(other=st.booleans())
    def connect_again(self, other):
        """To the broker of before, or to another one."""
        self.connection_breaks()
        if other:
            self.at_broker = {}
            self.elsewhere |= {
                topic for topic in self.arrived_newest() if self.known.get(topic) != self.last_put[topic]
            }
        self.retained.repeat(lambda topic: False)

    @rule(topic=st.sampled_from("abcno"))
    def pause(self, topic):
        self.life.outbox.pause(topic, NOW.monotonic)

    @rule()
    def resume(self):
        self.life.outbox.resume(NOW.monotonic)

    @precondition(lambda self: self.durable and self.write is None and self.counted is None)
    @rule()
    def file_cannot_be_used(self):
        """What comes meanwhile is sent from memory, before what is on disk."""
        self.life.backlog.give_up()
        self.disordered |= {*"abc"}
        self.opened, self.failed = False, True

    @precondition(lambda self: self.durable and self.opened)
    @rule(works=st.booleans())
    def commit(self, works):
        self.end_write()
        self.life.commit(works)

    @precondition(lambda self: self.durable and self.opened and self.write is None)
    @rule(later=st.integers(0, 3))
    def begin_write(self, later):
        """The last readings have not waited long enough."""
        self.write = self.life.begin_write(self.life.outbox.number - later)

    @precondition(lambda self: self.write is not None)
    @rule(works=st.booleans())
    def end_write(self, works=True):
        write, self.write = self.write, None
        if write is not None:
            self.life.end_write(*write, works)

    @precondition(lambda self: self.write is not None)
    @rule()
    def disk_is_full(self):
        write, self.write = self.write, None
        self.life.end_write_on_a_full_disk(*write)

    @precondition(lambda self: self.durable and self.opened and self.write is None)
    @rule()
    def page(self):
        self.life.page()

    @precondition(lambda self: self.durable)
    @rule(opens=st.booleans())
    def kill(self, opens):
        """After what waits was written. What the quota deleted is in memory alone, and is lost. The next life may have
        readings before its file is open."""
        life = self.life
        self.open()
        self.end_write()
        life.commit()
        self.dropped += sum(each.messages for each in life.dropped)
        self.dropped += life.outbox.unkept
        kept = {topic for topic, (_, number) in self.at_broker.items() if number == self.last_put[topic]}
        self.elsewhere |= self.arrived_newest() - kept
        self.start(opens=opens)

    @invariant()
    def counts_are_right(self):
        outbox = self.life.outbox
        assert outbox.messages >= 0
        assert outbox.bytes >= 0
        assert self.life.backlog is None or self.life.backlog.rows >= 0

    @invariant()
    def what_is_in_the_way_when_the_outbox_is_full_is_found(self):
        """But for the newest of each topic, which stays."""
        outbox = self.life.outbox
        for queue in outbox._queues.values():
            for item in [*queue.waiting][:-1]:
                assert item in outbox._order

    @invariant()
    def what_waits_is_in_order(self):
        for queue in self.life.outbox._queues.values():
            assert queue.waiting == sorted(queue.waiting, key=NUMBER)

    @invariant()
    def topics_that_do_not_pause_are_counted(self):
        outbox = self.life.outbox
        assert outbox.only_paused == all(topic in outbox.paused for topic in outbox.topics)

    @invariant()
    def the_newest_that_was_accepted_is_on_disk_or_arrived(self):
        for topic in "no":
            kept = [int(row.payload) for row in self.disk.rows.values() if row.topic == topic]
            kept += [number for _, each, number in self.arrived if each == topic]
            newest = max(kept, default=0)
            assert newest >= self.newest.get(topic, 0)
            self.newest[topic] = newest

    @invariant()
    def one_of_a_topic_of_which_the_newest_counts_waits(self):
        for topic, queue in self.life.outbox._queues.items():
            assert len(queue.waiting) <= 1 or topic in "abc"

    def teardown(self):
        if not hasattr(self, "life"):
            return
        life = self.life
        self.open()
        self.end_write()
        self.connection_breaks()
        life.outbox.resume(NOW.monotonic)
        for _ in range(500):
            while items := life.send():
                self.fly(items)
                self.acknowledge()
            if not self.durable:
                break
            life.commit()
            if not life.page() and not life.outbox.messages and not life.backlog.rows:
                break
        assert life.outbox.messages == 0
        assert not self.durable or self.disk.rows == {}
        self.dropped += sum(each.messages for each in life.dropped)
        numbers = {number for _, _, number in self.arrived}
        never_replaced = {number for _, topic, number in self.arrived if topic in "abc"}
        assert len(numbers) <= self.count
        assert self.count - self.replaceable - len(never_replaced) <= self.dropped
        self.check_order()
        for topic in "no":
            numbers = [number for _, each, number in sorted(self.arrived) if each == topic]
            assert numbers == sorted(numbers)
            assert max(numbers, default=0) == self.last_put.get(topic, 0)
        for topic in self.last_put.keys() - self.elsewhere:
            assert self.at_broker[topic][1] == self.last_put[topic]

    def check_order(self):
        for topic in {*"abc"} - self.disordered:
            first = list(dict.fromkeys(number for _, each, number in sorted(self.arrived) if each == topic))
            assert first == sorted(first)


@pytest.mark.parametrize("topic", ["c", "n"])
def test_the_rows_of_two_lives_ago_do_not_take_the_place_of_what_arrived_while_the_file_failed(topic):
    """A run that the machine found. The broker retained the older reading in the end."""
    lives = Lives()
    lives.begin(most=8, quota=15)
    lives.put_and_send(topic=topic)
    lives.kill(opens=True)
    lives.file_cannot_be_used()
    lives.put_and_send(topic=topic)
    lives.acknowledge()
    lives.kill(opens=False)
    lives.teardown()


def test_a_reading_does_not_come_again_before_a_newer_one_that_waits_ahead_of_an_older_one():
    """A run that the machine found, while the mending was made."""
    lives = Lives()
    lives.begin(most=8, quota=15)
    lives.put(topic="a", count=1, fast=False)
    lives.kill(opens=False)
    lives.put(topic="a", count=2, fast=False)
    lives.file_cannot_be_used()
    lives.file_is_open()
    lives.page()
    lives.teardown()


@pytest.mark.parametrize("opens", [True, False])
def test_where_only_the_newest_counts_a_row_that_comes_back_does_not_follow_a_newer_one_in_flight(opens):
    """A run that the machine found."""
    lives = Lives()
    lives.begin(most=8, quota=15)
    lives.put(topic="o", count=1, fast=False)
    lives.kill(opens=opens)
    lives.file_cannot_be_used()
    lives.put_and_send(topic="o")
    lives.file_is_open()
    lives.page()
    lives.send(20)
    lives.acknowledge()
    lives.teardown()


def test_a_row_that_comes_back_after_the_file_failed_is_not_deleted_for_a_reading_in_memory():
    """A run that the machine found. The row was deleted before the newer reading was written."""
    lives = Lives()
    lives.begin(most=8, quota=15)
    lives.put(topic="n", count=1, fast=False)
    lives.kill(opens=False)
    lives.file_is_open()
    lives.put(topic="n", count=1, fast=False)
    lives.the_newest_that_was_accepted_is_on_disk_or_arrived()
    lives.file_cannot_be_used()
    lives.file_is_open()
    lives.page()
    lives.begin_write(later=1)
    lives.end_write(works=True)
    lives.the_newest_that_was_accepted_is_on_disk_or_arrived()
    lives.teardown()


def test_the_oldest_is_dropped_and_not_the_newest_when_rows_come_back_behind_it():
    """A run that the machine found. The broker retained the older reading in the end."""
    lives = Lives()
    lives.begin(most=8, quota=15)
    lives.put(topic="c", count=7, fast=False)
    lives.kill(opens=True)
    lives.put_and_send(topic="c")
    lives.file_cannot_be_used()
    lives.file_is_open()
    lives.page()
    lives.file_cannot_be_used()
    lives.put_and_send(topic="n")
    lives.teardown()


class MemoryLives(Lives):
    durable = False


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=examples(100), stateful_step_count=30, deadline=None)
TestMemoryLives = MemoryLives.TestCase
TestMemoryLives.settings = settings(max_examples=examples(25), stateful_step_count=20, deadline=None)
