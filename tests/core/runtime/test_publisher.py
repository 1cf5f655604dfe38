import json
import logging

import pytest

from leadsman import Delivery, OnChange
from leadsman.core.events import AppFault, FieldsLeftOut
from leadsman.core.mqtt.message import STANDARD
from leadsman.core.mqtt.outbox import Outbox
from leadsman.core.readings.reading import Reading
from leadsman.core.runtime.publisher import LoggedPublisher, PublishQueue, StatePublisher, publisher_of


def reading(fields, at=0.0, left_out=()):
    return Reading("d", fields, left_out, at, 1_767_225_600.0 + at)


def publisher(bench, rule=None, delivery=STANDARD):
    return StatePublisher("d", rule, delivery, bench.context)


class Counted:
    """The receipt of all readings of a device: counts what became of them, and tells what its rule compares with."""

    def __init__(self, comparison=None):
        self.comparison = comparison
        self.sent = self.suppressed = self.published = self.replayed = self.lost = 0

    def dropped(self, at, messages=1):
        self.lost += messages
        if self.comparison is not None:
            self.comparison.dropped(at, messages)

    def receipt(self, due):
        return self

    def replaced(self):
        self.sent, self.suppressed = self.sent - 1, self.suppressed + 1
        if self.comparison is not None:
            self.comparison.replaced()

    @property
    def by(self):
        waits = self.sent - self.published - self.replayed - self.lost
        words = {"published": self.published, "replayed": self.replayed, "suppressed": self.suppressed}
        return {word: count for word, count in (words | {"dropped": self.lost, "buffered": waits}).items() if count}


def counted(to):
    """Have the readings of a publisher counted."""
    receipt = Counted(to.comparison)
    to.receipts = receipt
    return receipt


class Broken(OnChange):
    def decide(self, previous, reading, now):
        raise ZeroDivisionError


def test_a_reading_becomes_a_message_at_the_state_topic_timed_by_the_reading(bench):
    publisher(bench).publish(reading({"t": 21.5}, at=3.0))

    (message,) = bench.messages
    assert (message.topic, message.payload) == ("app/d/state", b'{"t":21.5}')
    assert (message.taken_at, message.qos, message.retain) == (1_767_225_603.0, 1, True)


def test_a_reading_that_waits_for_the_loop_keeps_its_time_and_is_not_taken_for_one_before_the_clock_was_set(bench):
    clock = bench.context.environment.clock
    taken = Reading("d", {"t": 1}, (), clock.monotonic(), clock.wall())
    bench.loop.block(5.0)
    publisher(bench).publish(taken)

    assert bench.messages[0].clock_offset == pytest.approx(clock.offset(), abs=1e-3)


def test_a_delivery_with_an_expiry_counts_from_the_time_of_the_reading(bench):
    publisher(bench, delivery=Delivery(expiry=60)).publish(reading({"t": 1}, at=3.0))

    assert bench.messages[0].expires == 63.0


def test_the_time_of_a_reading_can_be_a_field_of_its_payload(bench):
    publisher(bench, delivery=Delivery(taken_at="payload")).publish(reading({"t": 1}))

    assert bench.sent("app/d/state") == [{"t": 1, "taken_at": "2026-01-01T00:00:00.000Z"}]


def test_a_publish_rule_compares_with_what_was_published_last(bench):
    to = publisher(bench, OnChange(1.0))
    for at, value in enumerate([20.0, 20.6, 21.2, 21.9]):
        to.publish(reading({"t": value}, at=float(at)))

    assert [sent["t"] for sent in bench.sent("app/d/state")] == [20.0, 21.2]


class TestAccepted:
    """A publish rule and an outbox that drops readings."""

    def published(self, bench, outbox, *values):
        """Publish a reading for each value; the values that went to the outbox."""

        def send(message):
            bench.messages.append(message)
            outbox.put(message)

        to = StatePublisher("d", OnChange(), STANDARD, bench.context._replace(send=send))
        counted(to)
        for at, value in enumerate(values):
            to.publish(reading({"t": value}, at=float(at)), float(at))
        return [sent["t"] for sent in bench.sent("app/d/state")]

    def test_a_reading_that_waits_is_compared_with(self, bench):
        assert self.published(bench, Outbox(), 20, 25, 25) == [20, 25]

    def test_a_reading_that_the_outbox_did_not_take_is_not_compared_with(self, bench):
        long = "x" * 2000

        assert self.published(bench, Outbox(most_bytes=8000), 20, long, long, 20) == [20, long, long]

    @pytest.mark.parametrize("slot", [True, False], ids=["of the schedule", "on request"])
    def test_a_reading_that_the_broker_refused_for_good_is_not_compared_with(self, bench, slot):
        outbox = Outbox()
        to = StatePublisher("d", OnChange(), STANDARD, bench.context._replace(send=outbox.put))
        counted(to)
        arrived = []
        for at, (value, accepted) in enumerate([(20, True), (25, False), (20, True), (25, True), (25, True)]):
            to.publish(reading({"t": value}, at=float(at)), float(at) if slot else None)
            item, _ = outbox.pop(0.0)
            if item is not None:
                message = item.message
                _ = outbox.accept(item) if accepted else outbox.drop(item, "refused")
                arrived.append((json.loads(message.payload)["t"], accepted))

        assert arrived == [(20, True), (25, False), (25, True)]


class TestHistory:
    """A device with a history topic."""

    def test_each_reading_goes_to_the_history_and_the_newest_to_the_state(self, bench):
        publisher(bench, delivery=Delivery(history="1h")).publish(reading({"t": 21.5}, at=3.0))

        history, state = bench.messages
        assert (history.topic, history.retain, history.latest, history.expires) == (
            "app/d/history",
            False,
            False,
            3603.0,
        )
        assert (state.topic, state.retain, state.latest, state.expires) == ("app/d/state", True, True, None)
        assert (history.payload, history.taken_at) == (state.payload, state.taken_at)

    def test_a_reading_is_counted_once_when_its_history_arrived(self, bench):
        outbox = Outbox()
        to = StatePublisher("d", None, Delivery(history="1h"), bench.context._replace(send=outbox.put))
        receipt = counted(to)
        for at in range(3):
            to.publish(reading({"t": at}, at=float(at)), float(at))
        while (item := outbox.pop(0.0)[0]) is not None:
            outbox.accept(item)

        assert receipt.by == {"published": 3}

    def test_a_state_that_never_arrives_is_not_compared_with_though_its_history_arrived(self, bench):
        outbox = Outbox()
        bench = bench.context._replace(send=outbox.put)
        to = StatePublisher("d", OnChange(), Delivery(expiry="1m", history="1h"), bench)
        receipt = counted(to)
        states = []
        for at in (0.0, 1000.0, 1000.0, 1000.0):  # the first reading waited
            to.publish(reading({"t": 1}, at=0.0 if at == 0.0 else 990.0), at)
            while (item := outbox.pop(1000.0)[0]) is not None:
                states += [message.topic for _, message in outbox.accept(item)]

        assert states == ["app/d/history", "app/d/history", "app/d/state"]
        assert receipt.by == {"published": 2, "suppressed": 2}


def test_a_reading_whose_place_a_newer_one_takes_is_counted_as_suppressed(bench):
    outbox = Outbox()
    to = StatePublisher("d", None, Delivery(keep="newest"), bench.context._replace(send=outbox.put))
    receipt = counted(to)
    for at in range(3):
        to.publish(reading({"t": at}, at=float(at)), float(at))
    outbox.accept(outbox.pop(0.0)[0])

    assert receipt.by == {"published": 1, "suppressed": 2}


def test_a_reading_that_is_always_published_is_the_one_to_compare_with(bench):
    to = publisher(bench, OnChange())
    to.publish(reading({"t": 1}))
    to.publish(reading({"t": 1}), always=True)
    to.publish(reading({"t": 1}))

    assert len(bench.messages) == 2


def test_a_publish_rule_that_raises_is_reported_and_the_reading_is_published(bench):
    to = publisher(bench, Broken())
    to.publish(reading({"t": 1}))
    to.publish(reading({"t": 1}))

    assert len(bench.messages) == 2
    assert [event.where for event in bench.of(AppFault)] == ["publish rule of d"]
    assert to.publication.rule_errors == 1  # the first reading is not asked about


def test_a_rule_that_goes_on_raising_is_reported_once_until_it_answers_again(bench):
    class Moody:
        answers = iter(["raise", "raise", False, "raise"])

        def decide(self, previous, reading, now):
            if (answer := next(self.answers)) == "raise":
                raise ZeroDivisionError
            return answer

    to = publisher(bench, Moody())
    for at in range(5):
        to.publish(reading({"t": at}, at=float(at)))

    assert [sent["t"] for sent in bench.sent("app/d/state")] == [0, 1, 2, 4]
    assert len(bench.of(AppFault)) == 2
    assert to.publication.rule_errors == 3


def test_fields_that_are_left_out_are_reported_when_they_change(bench):
    to = publisher(bench)
    for left_out in [("h",), ("h",), (), ("h", "p")]:
        to.publish(reading({"t": 1}, left_out=left_out))

    assert [event.fields for event in bench.of(FieldsLeftOut)] == [("h",), ("h", "p")]


def test_a_reading_that_cannot_be_encoded_is_reported_and_the_next_one_is_published(bench):
    to = publisher(bench)
    to.try_publish(reading({"t": object()}))
    to.try_publish(reading({"t": 1}))

    assert bench.sent("app/d/state") == [{"t": 1}]
    assert [event.where for event in bench.of(AppFault)] == ["publishing d"]


@pytest.mark.parametrize("fields", [{"t": object()}, {"t": 1}], ids=["that cannot be encoded", "that cannot be sent"])
def test_a_reading_that_is_lost_by_a_fault_is_counted_once(bench, fields):
    def send(message):
        raise ZeroDivisionError

    to = StatePublisher("d", None, STANDARD, bench.context._replace(send=send))
    receipt = counted(to)
    to.try_publish(reading(fields), 0.0)

    assert receipt.by == {"dropped": 1}


def test_readings_in_a_queue_are_published_after_what_the_loop_has_still_to_call(bench):
    order = []

    def fill():
        queue, to = PublishQueue(), publisher(bench)
        for value in (1, 2):
            queue.add(to, reading({"t": value}))
            bench.loop.call_soon(lambda: order.append(len(bench.messages)))

    bench.loop.call_soon(fill)
    bench.pass_time(1)

    assert [json.loads(message.payload)["t"] for message in bench.messages] == [1, 2]
    assert order[0] == 2  # published at one go


@pytest.mark.parametrize(("level", "kind"), [(logging.DEBUG, LoggedPublisher), (logging.INFO, StatePublisher)])
def test_only_a_log_level_that_shows_readings_pays_for_them(bench, caplog, level, kind):
    with caplog.at_level(level, "leadsman"):
        to = publisher_of("d", OnChange(), STANDARD, bench.context)
        to.publish(reading({"t": 1}))
        to.publish(reading({"t": 1}))

    assert type(to) is kind
    assert [record.getMessage() for record in caplog.records] == (
        [
            "d: published 1 field in 7 bytes: t",
            "d: not published, because of its publish rule: 1 field in 7 bytes: t",
        ]
        if kind is LoggedPublisher
        else []
    )


def test_it_is_known_what_became_of_the_readings(bench):
    to = publisher(bench, OnChange(1.0))
    assert to.publication == (None, 0, None, None, 0)
    for at, value in enumerate([20.0, 20.6, 20.7]):
        to.publish(reading({"t": value}, at=float(at)))

    assert to.publication == (1_767_225_600.0, 2, {"t": 20.0}, {"t": 20.7}, 0)
    to.publish(reading({"t": 22.0}, at=3.0))
    assert to.publication == (1_767_225_603.0, 0, {"t": 22.0}, None, 0)


def test_without_a_rule_no_reading_is_kept(bench):
    to = publisher(bench)
    to.publish(reading({"t": 20.0}, at=7.0))

    assert to.publication == (1_767_225_607.0, 0, None, None, 0)
