"""How the socket to a broker is opened."""

import asyncio
import contextlib
import socket
import threading
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.core.mqtt import transport
from leadsman.core.mqtt.transport import SocketAddress, in_turns, open_tcp
from leadsman.testing import VirtualLoop

V4, V6 = socket.AF_INET, socket.AF_INET6


def address(name, family=V4):
    return SocketAddress(family, socket.SOCK_STREAM, 6, "", (name, 1883))


@given(st.lists(st.sampled_from([V4, V6]), max_size=12))
def test_the_families_take_turns_and_each_keeps_its_order(families):
    addresses = [address(str(number), family) for number, family in enumerate(families)]
    ordered = in_turns(addresses)

    assert sorted(ordered) == sorted(addresses)
    assert ordered[:1] == addresses[:1]
    for family in (V4, V6):
        assert [each for each in ordered if each.family == family] == [a for a in addresses if a.family == family]
    both = 2 * min(families.count(V4), families.count(V6))
    assert all(one.family != other.family for one, other in pairwise(ordered[:both]))


class Net:
    """Hosts that answer after some seconds: with a socket, or with an error."""

    def __init__(self, monkeypatch, **hosts):
        self.loop, self.hosts, self.opened, self.tried = VirtualLoop(), hosts, [], []
        monkeypatch.setattr(transport, "_open", self.open)

    async def open(self, address):
        name = address.where[0]
        self.tried.append((name, self.loop.time()))
        seconds, error = self.hosts[name]
        await asyncio.sleep(seconds)
        if error is not None:
            raise error
        sock = socket.socket()
        self.opened.append(sock)
        return sock

    def connect(self, *addresses):
        started = self.loop.time()
        try:
            sock = self.loop.run_until_complete(open_tcp(list(addresses)))
            return self.opened.index(sock), self.loop.time() - started
        finally:
            self.loop.run_until_complete(asyncio.sleep(100))
            assert len(asyncio.all_tasks(self.loop)) == 0

    def end(self):
        for sock in self.opened:
            sock.close()
        self.loop.close()


@pytest.fixture
def net(monkeypatch):
    nets = []

    def make(**hosts):
        nets.append(Net(monkeypatch, **hosts))
        return nets[-1]

    yield make
    for each in nets:
        each.end()


REFUSED = ConnectionRefusedError(111, "Connect call failed")
UNREACHABLE = OSError(101, "Connect call failed")


def test_an_address_that_does_not_answer_costs_a_quarter_of_a_second(net):
    hosts = net(dead=(60, None), alive=(0.1, None))

    _, seconds = hosts.connect(address("dead", V6), address("alive"))

    assert seconds == pytest.approx(0.35)


def test_an_address_that_refuses_is_followed_by_the_next_at_once(net):
    hosts = net(closed=(0, REFUSED), alive=(0.1, None))

    _, seconds = hosts.connect(address("closed", V6), address("alive"))

    assert seconds == pytest.approx(0.1)


def test_a_slow_first_address_may_still_win_and_the_sockets_of_the_others_are_closed(net):
    hosts = net(slow=(0.3, None), slower=(0.05, None))

    first, _ = hosts.connect(address("slow"), address("slower"))

    assert [sock.fileno() >= 0 for sock in hosts.opened] == [number == first for number in range(len(hosts.opened))]


def test_with_no_address_that_answers_the_error_names_each(net):
    hosts = net(one=(0, REFUSED), two=(0.5, UNREACHABLE))

    with pytest.raises(ConnectionRefusedError, match=r"Connection refused \(one\), Network is unreachable \(two\)"):
        hosts.connect(address("one", V6), address("two"))


def test_a_single_address_is_not_repeated_in_its_error(net):
    with pytest.raises(ConnectionRefusedError) as caught:
        net(one=(0, REFUSED)).connect(address("one"))

    assert caught.value.strerror == "Connection refused"


def test_a_name_without_addresses_is_a_named_error(net):
    with pytest.raises(OSError, match="the name has no address"):
        net().connect()


def test_an_attempt_that_is_given_up_leaves_nothing_open(net):
    hosts = net(dead=(60, None), dying=(60, None))

    async def attempt():
        async with asyncio.timeout(1):
            await open_tcp([address("dead"), address("dying")])

    with pytest.raises(TimeoutError):
        hosts.loop.run_until_complete(attempt())
    assert asyncio.all_tasks(hosts.loop) == set()
    assert hosts.opened == []


def test_a_silent_name_server_holds_up_neither_the_caller_nor_the_end_of_the_loop(monkeypatch):
    release = threading.Event()

    def look_up(*args, flags=0, **options):
        if flags:
            raise socket.gaierror
        release.wait(60)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", look_up)

    async def attempt():
        async with asyncio.timeout(0.05):
            await transport.resolve("broker.lan", 1883)

    before = time.monotonic()
    try:
        with pytest.raises(TimeoutError):
            asyncio.run(attempt())
        assert time.monotonic() - before < 30
    finally:
        release.set()


def test_an_address_in_digits_asks_no_name_server():
    assert asyncio.run(transport.resolve("127.0.0.1", 1883))[0].where == ("127.0.0.1", 1883)
    assert asyncio.run(transport.resolve("::1", 1883))[0].where[:2] == ("::1", 1883)


class NameServer:
    """It gives the addresses of every name, and counts the questions."""

    def __init__(self, monkeypatch, *addresses):
        self.questions = 0
        self.addresses = list(addresses)
        monkeypatch.setattr(transport, "resolve", self.resolve)

    async def resolve(self, host, port):
        self.questions += 1
        return self.addresses


def opened(hosts, attempts, every):
    """The kinds of errors of so many attempts."""

    async def attempt():
        kinds = []
        for _ in range(attempts):
            try:
                (await transport.open_host("broker.lan", 1883)).close()
            except OSError as error:
                kinds.append(type(error))
            await asyncio.sleep(every)
        return kinds

    return hosts.loop.run_until_complete(attempt())


def test_addresses_that_refuse_are_tried_for_seconds_before_the_name_server_is_asked_again(net, monkeypatch):
    hosts, names = net(off=(0, ConnectionRefusedError(111, ""))), NameServer(monkeypatch, address("off"))

    assert opened(hosts, 100, 0.4) == [ConnectionRefusedError] * 100
    assert names.questions == pytest.approx(100 * 0.4 / transport.ADDRESSES_KEPT, abs=2)
    assert len(hosts.tried) == 100


@pytest.mark.parametrize("end", [None, OSError(113, "")])
def test_the_name_server_is_asked_each_time_for_a_host_that_does_not_refuse(net, monkeypatch, end):
    hosts, names = net(other=(0, end)), NameServer(monkeypatch, address("other"))

    opened(hosts, 10, 0.4)

    assert names.questions == 10


def test_a_host_is_up_if_one_of_its_addresses_refuses(net, monkeypatch):
    hosts = net(lost=(0, OSError(101, "")), off=(0.1, ConnectionRefusedError(111, "")))
    NameServer(monkeypatch, address("lost", V6), address("off"))

    assert opened(hosts, 1, 0) == [ConnectionRefusedError]


def test_packets_are_sent_at_once_and_the_path_is_kept_open():
    with socket.socket() as sock:
        transport.tune(sock)

        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


@pytest.mark.parametrize("forgotten", [False, True])
def test_what_is_unsent_at_the_close_is_sent_unless_it_is_forgotten(forgotten):
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as sock:
        sock.connect(server.getsockname())
        sock.setblocking(False)
        there, _ = server.accept()
        with there:
            written = 0
            with contextlib.suppress(BlockingIOError):
                while True:
                    written += sock.send(bytes(1 << 20))
            if forgotten:
                transport.forget_unsent(sock)
            sock.close()
            received = 0
            with contextlib.suppress(ConnectionResetError):
                while data := there.recv(1 << 20):
                    received += len(data)

    assert (received < written) is forgotten


def test_a_unix_socket_has_no_such_options():
    with socket.socket(socket.AF_UNIX) as sock:
        transport.tune(sock)

        assert not sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
