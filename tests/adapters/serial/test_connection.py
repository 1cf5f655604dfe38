import asyncio

import pytest

from leadsman.adapters.serial.framing import FixedFramer, LineFramer
from leadsman.adapters.serial.port import MAX_UNREAD_BYTES, MAX_UNREAD_MESSAGES, SerialConnection
from leadsman.errors import DeviceTimeout, DeviceUnavailable
from leadsman.testing import SerialTwin


class Transport:
    def __init__(self):
        self.written, self.aborted = b"", False

    def write(self, data):
        self.written += data

    def get_write_buffer_size(self):
        return len(self.written)

    def is_closing(self):
        return self.aborted

    def abort(self):
        self.aborted = True


class Device:
    def __init__(self, error=None):
        self.error, self.discarded = error, False

    def reset_output_buffer(self):
        self.discarded = True
        if self.error is not None:
            raise self.error


@pytest.fixture
def connection():
    connection = SerialConnection("/dev/tty", LineFramer())
    connection.connection_made(Transport())
    return connection


def test_messages_are_given_in_order_whatever_the_pieces(loop, connection):
    for piece in (b"21", b".5\n2", b"2.0\n"):
        connection.data_received(piece)

    assert [loop.run_until_complete(connection.next_message(1.0)) for _ in range(2)] == [b"21.5", b"22.0"]


def test_a_message_is_waited_for(loop, connection):
    loop.call_later(2, connection.data_received, b"21.5\n")

    assert loop.run_until_complete(connection.next_message(3.0)) == b"21.5"
    assert loop.time() == 2


def test_silence_is_a_timeout(loop, connection):
    with pytest.raises(DeviceTimeout, match="no message from /dev/tty within 3s$"):
        loop.run_until_complete(connection.next_message(3.0))


def test_bytes_without_a_message_are_a_hint_at_baud_rate_and_framer(loop, connection):
    loop.call_later(1, connection.data_received, b"\xff\xfe")

    with pytest.raises(DeviceTimeout, match="2 bytes arrived, but no complete message; check the baud rate"):
        loop.run_until_complete(connection.next_message(3.0))


def test_a_lost_connection_ends_the_wait_and_says_why(loop, connection):
    loop.call_later(1, connection.connection_lost, OSError(5, "unplugged"))

    with pytest.raises(DeviceUnavailable, match="went away.*unplugged"):
        loop.run_until_complete(connection.next_message(3.0))

    assert loop.time() == 1
    assert connection.ended.is_set()


def test_messages_that_arrived_before_the_end_can_still_be_read(loop, connection):
    connection.data_received(b"21.5\n")
    connection.connection_lost(None)

    assert loop.run_until_complete(connection.next_message(1.0)) == b"21.5"


def test_a_late_reader_finds_the_newest_messages():
    connection = SerialConnection("/dev/tty", LineFramer())

    for number in range(MAX_UNREAD_MESSAGES + 10):
        connection.data_received(b"%d\n" % number)

    assert len(connection.unread) == MAX_UNREAD_MESSAGES
    assert connection.unread[0] == b"10"


def test_short_messages_are_kept_in_larger_numbers():
    connection = SerialConnection("/dev/tty", FixedFramer(1))

    connection.data_received(bytes(MAX_UNREAD_BYTES + 10))

    assert len(connection.unread) == MAX_UNREAD_BYTES


def test_unread_input_can_be_discarded_with_what_just_arrives(loop, connection):
    connection.data_received(b"old\nhalf")
    loop.call_soon(connection.data_received, b" a line\n")

    loop.run_until_complete(connection.discard())

    assert not connection.unread
    assert connection.stream.waiting == 0


@pytest.mark.parametrize("error", [None, OSError("gone")])
def test_closing_does_not_wait_for_bytes_that_the_device_does_not_take(error):
    transport = Transport()
    transport.serial = Device(error)
    connection = SerialConnection("/dev/tty", LineFramer())
    connection.connection_made(transport)
    connection.write(b"hello")
    assert connection.unsent == 5

    connection.close()

    assert (transport.serial.discarded, transport.aborted) == (True, True)


def test_it_is_known_when_the_port_is_open(loop):
    connection = SerialConnection("/dev/tty", LineFramer())
    loop.call_later(1, connection.connection_made, Transport())

    assert loop.run_until_complete(asyncio.wait_for(connection.made.wait(), 2)) is True


def test_it_is_known_when_the_last_bytes_arrived():
    now = [7.0]
    connection = SerialConnection("/dev/tty", LineFramer(), lambda: now[0])
    assert connection.heard_at is None

    connection.data_received(b"noise")

    assert connection.heard_at == 7.0


def test_a_port_says_how_long_it_has_been_silent_also_after_it_was_closed(loop):
    async def scenario():
        async with SerialTwin(lambda sent: b"21.5\n") as port:
            before = port.health["silent_for"]
            await port.request(b"?")
            await asyncio.sleep(20)
            await port.close()
            await asyncio.sleep(10)
            return before, port.health["silent_for"]

    assert loop.run_until_complete(scenario()) == (None, pytest.approx(30.0, abs=0.1))
