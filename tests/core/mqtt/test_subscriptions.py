import asyncio

import pytest

from leadsman import Received
from leadsman.core.event_bus import EventBus
from leadsman.core.events import AppFault, SubscriptionFailed
from leadsman.core.loop.clock import Clock
from leadsman.core.mqtt.link import LEFT_OUT_FOR, Subscriptions
from leadsman.errors import BrokerError, SubscriptionRefused


class Broker:
    """Answers subscriptions: with nothing, with an error, or never."""

    def __init__(self, **answers):
        self.answers, self.asked = answers, []

    async def subscribe(self, topic_filter, qos=1):
        self.asked.append(topic_filter)
        answer = self.answers.get(topic_filter)
        if answer == "never":
            await asyncio.Event().wait()
        if answer is not None:
            raise answer


class Apparatus:
    def __init__(self):
        self.now, self.events, self.asked = 0.0, [], []
        clock = Clock(lambda: self.now, lambda: 0.0)
        bus = EventBus(clock)
        bus.subscribe(self.events.append)
        self.subscriptions = Subscriptions(clock, bus)
        self.subscriptions.listen("a", lambda message: None)
        self.subscriptions.listen("b", lambda message: None)

    def connects(self, **answers):
        """One connection. Returns the filters that it asked for."""
        broker = Broker(**answers)

        async def subscribe():
            task = asyncio.ensure_future(
                self.subscriptions.subscribe(broker, lambda: self.asked.append([*broker.asked]))
            )
            for _ in range(5):  # turns of the loop, more than an answer takes
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait({task})
            return None if task.cancelled() else task.exception()

        self.error = asyncio.run(subscribe())
        return broker.asked


@pytest.fixture
def here():
    return Apparatus()


def test_every_filter_is_subscribed_to_on_every_connection(here):
    assert here.connects() == ["a", "b"]
    assert here.connects() == ["a", "b"]
    assert here.events == []


def test_a_new_connection_is_asked_for_all_filters_before_one_is_answered(here):
    here.subscriptions.unasked = True

    assert here.connects(a="never", b="never") == ["a", "b"]

    assert here.asked == [["a", "b"]]
    assert (here.subscriptions.first, here.subscriptions.unasked) == (False, False), "other messages go after them"


def test_after_a_break_the_filters_are_asked_for_one_after_the_other(here):
    here.connects(a="never")
    here.subscriptions.broke()

    assert here.connects(a="never") == ["a"]
    assert here.subscriptions.first or here.subscriptions.unasked


def test_a_refused_filter_is_reported_and_leaves_the_others_alone(here):
    assert here.connects(a=SubscriptionRefused("not authorized")) == ["a", "b"]

    assert [(each.topic_filter, each.reason) for each in here.events] == [("a", "not authorized")]
    assert here.subscriptions.error == "not authorized"


def test_an_error_is_over_once_the_broker_takes_the_filter(here):
    here.connects(a=SubscriptionRefused("not authorized"))
    here.connects()

    assert here.subscriptions.error is None


def test_a_connection_that_breaks_is_the_error_of_the_link(here):
    here.connects(a=BrokerError("gone"))

    assert isinstance(here.error, BrokerError)
    assert not here.subscriptions.broke()


def test_after_a_break_on_a_filter_nothing_is_sent_before_the_subscriptions(here):
    here.connects(b="never")

    assert here.subscriptions.broke()
    assert here.subscriptions.first
    here.connects()
    assert not here.subscriptions.first


def test_a_filter_that_breaks_two_connections_is_left_out_for_a_while(here):
    for _ in range(3):
        here.connects(b="never")
        here.subscriptions.broke()

    assert [type(each) for each in here.events] == [SubscriptionFailed]
    assert here.connects() == ["a"]
    assert "closes the connection" in here.subscriptions.error
    here.now += LEFT_OUT_FOR
    assert here.connects() == ["a", "b"]


def test_a_message_is_passed_to_the_first_filter_that_takes_it_in(here):
    seen = []
    here.subscriptions.listen("a/+", lambda m: seen.append("one"))
    here.subscriptions.listen("a/#", lambda m: seen.append("many"))

    here.subscriptions.received(Received("a/b", b"", False))
    here.subscriptions.received(Received("a/b/c", b"", False))
    here.subscriptions.received(Received("elsewhere", b"", False))

    assert seen == ["one", "many"]


def test_a_callback_that_raises_costs_its_message_only_and_no_other_callback_of_the_filter(here):
    seen = []
    here.subscriptions.listen("a", lambda message: 1 / 0)
    here.subscriptions.listen("a", seen.append)

    here.subscriptions.received(Received("a", b"", False))

    (fault,) = here.events
    assert isinstance(fault, AppFault)
    assert isinstance(fault.error, ZeroDivisionError)
    assert len(seen) == 1


def test_a_filter_is_subscribed_to_as_long_as_one_of_its_listeners_is_left(here):
    first, second = [], []
    here.subscriptions.listen("c", first.append)
    here.subscriptions.listen("c", second.append)

    assert here.subscriptions.ignore("c", first.append)
    here.subscriptions.received(Received("c", b"", False))
    assert (len(first), len(second)) == (0, 1)
    assert not here.subscriptions.ignore("c", second.append)
    assert here.connects() == ["a", "b"]


def test_everybody_who_waits_for_an_answer_hears_it(here):
    heard = []
    here.subscriptions.answered.add(lambda topic_filter: 1 / 0)
    here.subscriptions.answered.add(heard.append)

    here.connects()

    assert heard == ["a", "b"]
    assert [each.where.partition(",")[0] for each in here.events] == ["the answer to a subscription"] * 2
