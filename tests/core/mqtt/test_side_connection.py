"""The connection of a tool beside that of an app, at a broker in memory."""

import asyncio

import pytest

from leadsman import Broker
from leadsman.core.mqtt import client, side_connection
from leadsman.core.mqtt.message import Message
from leadsman.core.mqtt.side_connection import AT_ONCE, NoAnswer, SideConnection
from leadsman.errors import BrokerError, ConnectionRefused, NotListening
from leadsman.testing import MemoryBroker

SHORT = 0.05
"""Seconds to wait for an answer that does not come."""


@pytest.fixture
def broker(monkeypatch):
    memory = MemoryBroker()

    async def connect(address, clock, packet, listener):
        return await memory.connect(packet, listener)

    monkeypatch.setattr(client, "connect", connect)
    monkeypatch.setattr(side_connection, "ANSWER", SHORT)
    return memory


def visit(scenario, protocol="5.0"):
    """Run `scenario(side)` on a connection, and return its answer."""

    async def run():
        async with SideConnection().at(Broker(protocol=protocol)) as side:
            return await scenario(side)

    return asyncio.run(asyncio.wait_for(run(), 10))


async def nothing(side):
    return side.broken


def test_it_has_a_client_id_of_its_own_and_leaves_neither_a_will_nor_a_session(broker):
    visit(nothing)
    visit(nothing)

    first, second = (packet for _, packet in broker.connects)
    assert first.client_id != second.client_id
    assert (first.will_topic, first.session_expiry) == (None, 0)
    assert not broker.connected


def test_it_is_closed_when_the_block_ends_with_an_error(broker):
    async def fail(side):
        assert broker.connected
        raise ValueError

    with pytest.raises(ValueError, match="^$"):
        visit(fail)
    assert not broker.connected


@pytest.mark.parametrize(
    ("old", "wanted", "tried"),
    [("refuse", "5.0", ["5.0", "3.1.1"]), ("close", "5.0", ["5.0", "3.1.1"]), (None, "3.1.1", ["3.1.1", "5.0"])],
)
def test_a_broker_of_the_other_version_is_spoken_to_in_it(broker, old, wanted, tried):
    broker.only_v311, broker.only_v5 = old, old is None

    assert visit(nothing, wanted) is None
    assert [packet.protocol for _, packet in broker.connects] == tried


def test_a_refused_client_is_not_tried_with_the_other_version(broker):
    broker.refuse_connect = 0x87

    with pytest.raises(ConnectionRefused):
        visit(nothing)
    assert len(broker.connects) == 1


def test_where_nothing_listens_it_says_so(broker):
    broker.stop()

    with pytest.raises(NotListening):
        visit(nothing)


class TestUntil:
    def test_it_ends_as_soon_as_something_is_done(self, broker):
        async def listen(side):
            await side.connection.subscribe("a")
            broker.send("a", "1")
            return await side.until(lambda: len(side.messages) == 1, 5)

        assert visit(listen)

    def test_it_ends_after_its_time(self, broker):
        assert not visit(lambda side: side.until(lambda: False))
        assert not visit(lambda side: side.until(lambda: False, 0.01))

    def test_it_ends_with_the_connection(self, broker):
        async def lose(side):
            broker.cut("gone")
            return await side.until(lambda: False, 5), str(side.broken)

        assert visit(lose) == (False, "gone")


class TestPublishAll:
    MESSAGES = (Message("a", b"1"), Message("denied", b"2"), Message("b", b"3"))

    def publish(self, side):
        return side.publish_all(self.MESSAGES)

    def test_the_codes_come_in_the_order_of_the_messages(self, broker):
        broker.refusals["denied"] = 0x87

        assert visit(self.publish) == [0, 0x87, 0]
        assert [message.topic for message in broker.log] == ["a", "b"]

    def test_a_missing_answer_is_named(self, broker):
        broker.lose_acknowledgements = True

        with pytest.raises(NoAnswer, match="no answer to a message within 0.05 s"):
            visit(self.publish)

    def test_a_message_on_which_the_broker_closes_has_no_code_and_neither_have_those_after_it(self, broker):
        broker.poison.add("denied")

        assert visit(self.publish) == [0, None, None]

    def test_after_the_end_of_the_connection_its_reason_is_raised(self, broker):
        async def late(side):
            broker.cut("gone")
            await side.until(lambda: False)
            await self.publish(side)

        with pytest.raises(BrokerError, match="^gone$"):
            visit(late)


class TestRead:
    @pytest.fixture(autouse=True)
    def keep(self, broker):
        async def fill(side):
            await side.publish_all([Message(f"house/{number}", b"x", retain=True) for number in range(3)])

        visit(fill)

    def test_what_the_broker_keeps_has_come_when_it_returns(self, broker):
        async def read(side):
            assert await side.read(["house/+"], "marker") == {}
            return side.kept()

        assert {topic: message.payload for topic, message in visit(read).items()} == {
            f"house/{number}": b"x" for number in range(3)
        }

    def test_many_filters_are_asked_for_in_parts(self, broker):
        async def read(side):
            await side.read([f"house/{number}" for number in range(3 * AT_ONCE)], "marker")
            return [*side.kept()]

        assert visit(read) == ["house/0", "house/1", "house/2"]

    def test_what_is_published_meanwhile_or_is_empty_is_not_kept(self, broker):
        async def read(side):
            await side.read(["#"], "marker")
            broker.send("house/0", "new")
            broker.send("house/1", b"", retain=True)
            await side.until(lambda: len(side.messages) == 5, 5)
            return {topic: message.payload for topic, message in side.kept().items()}

        assert visit(read) == dict.fromkeys(["house/0", "house/1", "house/2"], b"x")

    def test_a_refused_filter_is_returned_and_the_others_are_read(self, broker):
        broker.refuse_subscriptions.add("secret")

        async def read(side):
            return [*await side.read(["secret", "house/1"], "marker")], [*side.kept()]

        assert visit(read) == (["secret"], ["house/1"])

    def test_another_fault_of_a_subscription_is_raised(self, broker):
        async def read(side):
            async def fail(topic_filter, qos=1):
                raise BrokerError("gone")

            side.connection.subscribe = fail
            await side.read(["house/1"], "marker")

        with pytest.raises(BrokerError, match="^gone$"):
            visit(read)
