"""The proxy of bad networks: its lines, and the sockets around them."""

import contextlib
import random
import socket
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman_rigs.proxy import FULL, SEGMENT, Done, End, Line, Proxy, Way

CHUNKS = st.lists(st.tuples(st.floats(0, 2), st.binary(min_size=1, max_size=4000)), max_size=30)


def line(**way):
    return Line(Way(**way), random.Random(1), Done())


def sent(line, chunks):
    """Send `chunks`, pairs of the seconds since the one before and of bytes; all that came out, with its time."""
    now, out = 0.0, []

    def take(until):
        while line.due is not None and line.due <= until:
            out.append((line.due, line.pop(line.due)))

    for pause, chunk in chunks:
        now += pause
        take(now)
        line.push(now, chunk)
    take(float("inf"))
    return out


@given(CHUNKS, st.floats(0, 5))
def test_a_delay_keeps_all_bytes_and_their_order_and_is_the_same_for_each_chunk(chunks, delay):
    out = sent(line(delay=delay), chunks)

    starts, now = [], 0.0
    for pause, _ in chunks:
        now += pause
        starts.append(now)
    assert [part for _, part in out] == [chunk for _, chunk in chunks]
    assert [at for at, _ in out] == [start + delay for start in starts]


@given(CHUNKS, st.integers(100, 100_000))
def test_a_rate_is_not_exceeded_and_keeps_all_bytes(chunks, rate):
    out = sent(line(rate=rate), chunks)

    assert b"".join(part for _, part in out) == b"".join(chunk for _, chunk in chunks)
    assert all(len(part) <= SEGMENT for _, part in out)
    came = 0
    for at, part in out:
        came += len(part)
        assert came <= rate * at + 1e-6 * rate


@given(CHUNKS, st.lists(st.floats(0, 5), min_size=30, max_size=30))
def test_a_delay_that_becomes_shorter_changes_no_order(chunks, delays):
    changing, now = line(), 0.0
    for (pause, chunk), delay in zip(chunks, delays, strict=False):
        now += pause
        changing.way.delay = delay
        changing.push(now, chunk)

    out = []
    while changing.due is not None:
        out.append((changing.due, changing.pop(changing.due)))
    assert [part for _, part in out] == [chunk for _, chunk in chunks]
    assert [at for at, _ in out] == sorted(at for at, _ in out)


@given(CHUNKS)
def test_the_bytes_under_way_are_counted(chunks):
    full = line(delay=100)
    for _, chunk in chunks:
        full.push(0, chunk)

    assert full.waiting == sum(len(chunk) for _, chunk in chunks)
    while full.pop(100) is not None:
        pass
    assert full.waiting == 0


def test_bits_are_flipped_about_as_often_as_asked_and_no_byte_is_lost():
    flipping = line(flip_every=100)
    before = bytes(50_000)

    after = b"".join(part for _, part in sent(flipping, [(0, before[at : at + 70]) for at in range(0, 50_000, 70)]))

    differing = [byte for byte in after if byte]
    assert len(after) == len(before)
    assert len(differing) == flipping.done.flipped
    assert 400 < len(differing) < 600
    assert all(byte.bit_count() == 1 for byte in differing)


def test_a_cut_lets_through_what_came_before_it_and_nothing_after():
    cutting = line(cut_every=1000, delay=1)

    out = sent(cutting, [(0, bytes([number])) for number in range(256)] * 40)

    passed = b"".join(part for _, part in out[:-1])
    assert out[-1][1] is End.RESET
    assert passed == (bytes(range(256)) * 40)[: len(passed)]
    assert 0 < len(passed) < 256 * 40
    assert cutting.done.cuts == 1


def test_an_end_comes_out_behind_the_bytes_that_are_under_way():
    ending = line(delay=1, rate=10)
    ending.push(0, b"0123456789")
    ending.end(0, End.CLOSED)
    ending.push(0, b"too late")

    assert ending.pop(1.9) is None
    assert [ending.pop(2.0), ending.pop(2.0), ending.pop(9.0)] == [b"0123456789", End.CLOSED, None]


class Echo:
    """A server that sends back what it gets."""

    def __enter__(self):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.reading = threading.Event()
        self.reading.set()
        self.threads = [threading.Thread(target=self.accept, daemon=True)]
        self.threads[0].start()
        return self

    def accept(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            thread = threading.Thread(target=self.answer, args=(connection,), daemon=True)
            self.threads.append(thread)
            thread.start()

    def answer(self, connection):
        with connection:
            try:
                while self.reading.wait(30) and (data := connection.recv(65536)):
                    connection.sendall(data)
            except OSError:
                pass  # cut

    def __exit__(self, *exc_info):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        for thread in self.threads:
            thread.join(5)


def received(client, count):
    data = b""
    while len(data) < count and (more := client.recv(65536)):
        data += more
    return data


def fill(client):
    """Send until nothing more is taken, or 64 times what a line holds; the bytes sent."""
    client.settimeout(0.5)
    count = 0
    with contextlib.suppress(TimeoutError):
        while count < 64 * FULL:
            count += client.send(bytes(65536))
    return count


def talk(client):
    while True:
        client.sendall(bytes(100))
        client.recv(1000)


@pytest.fixture
def echo():
    with Echo() as echo:
        yield echo


@pytest.fixture
def client(proxy):
    """Connect to a proxy: ``client(bad)``."""
    opened = []

    def connect(bad):
        opened.append(socket.create_connection(("127.0.0.1", bad.port), 60))
        return opened[-1]

    yield connect
    for each in opened:
        each.close()


def test_bytes_pass_both_ways_unharmed_and_many_are_under_way_at_once(echo, proxy, client):
    talker, data = client(proxy(echo.port, delay=0.1)), random.Random(2).randbytes(300_000)

    before = time.monotonic()
    for at in range(0, len(data), 3000):
        talker.sendall(data[at : at + 3000])
    back = received(talker, len(data))
    took = time.monotonic() - before

    assert back == data
    assert took >= 0.2
    assert took < 100 * 0.2  # what a proxy would take that waits for each chunk


def test_a_close_passes_too(echo, proxy, client):
    bad = proxy(echo.port)
    talker = client(bad)
    talker.sendall(b"last words")
    assert received(talker, 10) == b"last words"

    talker.shutdown(socket.SHUT_WR)

    assert talker.recv(1) == b""


def test_a_stall_holds_everything_up_with_the_connection_open_and_loses_nothing(echo, proxy, client):
    bad = proxy(echo.port)
    talker = client(bad)
    talker.sendall(b"one")
    assert received(talker, 3) == b"one"

    bad.stall()
    talker.sendall(b"two")
    talker.settimeout(0.3)
    with pytest.raises(TimeoutError):
        talker.recv(1)
    bad.resume()
    talker.settimeout(60)

    assert received(talker, 3) == b"two"


def test_a_sender_is_held_back_when_the_line_is_full(echo, proxy, client):
    bad = proxy(echo.port)
    talker = client(bad)
    bad.stall()

    sent = fill(talker)

    assert sent < 64 * FULL
    talker.settimeout(60)
    threading.Timer(0.1, bad.resume).start()
    assert len(received(talker, sent)) == sent


def test_a_server_that_reads_nothing_is_not_given_more_than_fits(echo, proxy, client):
    echo.reading.clear()
    talker = client(proxy(echo.port))

    sent = fill(talker)

    assert sent < 64 * FULL
    talker.settimeout(60)
    echo.reading.set()
    assert len(received(talker, sent)) == sent


def test_a_cut_resets_and_the_next_connection_is_served(echo, proxy, client):
    bad = proxy(echo.port)
    first = client(bad)
    first.sendall(b"one")
    assert received(first, 3) == b"one"

    assert bad.cut() == 1

    with pytest.raises(ConnectionResetError):
        first.recv(1)
    second = client(bad)
    second.sendall(b"two")
    assert received(second, 3) == b"two"
    assert (bad.done.accepted, bad.done.cuts) == (2, 1)


def test_faults_may_be_set_while_it_runs(echo, proxy, client):
    bad = proxy(echo.port)
    talker = client(bad)
    talker.sendall(bytes(100_000))
    assert received(talker, 100_000) == bytes(100_000)

    bad.down.flip_every = 1000
    talker.sendall(bytes(100_000))
    back = received(talker, 100_000)
    bad.down.flip_every = None
    bad.up.cut_every = 1000
    with pytest.raises(ConnectionResetError):
        talk(talker)

    assert len(back) - back.count(0) == bad.done.flipped > 0
    assert bad.done.cuts == 1


def test_a_client_is_reset_while_no_server_listens(proxy, client):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    bad = proxy(port)

    with pytest.raises(ConnectionResetError):  # by the first read, or already while it connects
        client(bad).recv(1)


@pytest.mark.system
def test_it_ends_with_connections_open_and_stalled(echo):
    with Proxy(echo.port) as bad:
        talker = socket.create_connection(("127.0.0.1", bad.port), 60)
        talker.sendall(b"x")
        assert received(talker, 1) == b"x"
        bad.stall()

    with talker, pytest.raises(ConnectionResetError):
        talker.recv(1)
