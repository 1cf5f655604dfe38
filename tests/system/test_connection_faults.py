"""What may go wrong while a connection is made, in all ways of making one: each client opens the same sockets, within
the same time, and says the same of what is wrong.

All ways meet a fault at the same time, since most of them take as long as an attempt may.
"""

import asyncio
import base64
import contextlib
import datetime
import hashlib
import shutil
import socket
import ssl
import struct
import threading
from typing import NamedTuple

import pytest
import trustme

from leadsman import Broker
from leadsman.core.loop.clock import system_clock
from leadsman.core.mqtt.client import connect
from leadsman.core.mqtt.connection import CONNECT_TIMEOUT, Connect
from leadsman.errors import BrokerError, ConnackMissing, NotListening, TlsRefused
from leadsman_rigs.byte_broker import CONNACK
from leadsman_rigs.one_connection import Hooks

pytestmark = pytest.mark.system


class Way(NamedTuple):
    """How a connection is made."""

    scheme: str
    protocol: str

    @property
    def encrypted(self):
        return self.scheme in ("mqtts", "wss")

    @property
    def websocket(self):
        return self.scheme in ("ws", "wss")


WAYS = {
    "5.0 TCP": Way("mqtt", "5.0"),
    "5.0 TLS": Way("mqtts", "5.0"),
    "3.1.1 TCP": Way("mqtt", "3.1.1"),
    "3.1.1 TLS": Way("mqtts", "3.1.1"),
    "5.0 ws": Way("ws", "5.0"),
    "5.0 wss": Way("wss", "5.0"),
    "3.1.1 ws": Way("ws", "3.1.1"),
    "3.1.1 wss": Way("wss", "3.1.1"),
}
NOT_ENCRYPTED = [name for name, way in WAYS.items() if not way.encrypted]
ENCRYPTED = [name for name, way in WAYS.items() if way.encrypted]


class Server:
    """A broker for one way, which is good up to a stage: ``accept``, ``handshake`` (of TLS) or ``connect``; there
    `fault` has the connection. It takes a certificate by name.
    """

    def __init__(self, way, certificates, stage="", fault=None, certificate="server"):
        self.way, self.stage, self.fault = way, stage, fault
        self.certificates, self.certificate = certificates, certificate
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._ending = threading.Event()
        self._threads, self._open = [threading.Thread(target=self._accept, daemon=True)], []

    def __enter__(self):
        self._threads[0].start()
        return self

    def __exit__(self, *exc_info):
        self._ending.set()
        for each in (self._server, *self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(60)
        for each in (self._server, *self._open):
            each.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._server.accept()
                self._open.append(sock)
                thread = threading.Thread(target=self._run, args=(sock,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _run(self, sock):
        with contextlib.suppress(OSError, ValueError), contextlib.ExitStack() as opened:
            opened.callback(sock.close)
            self._serve(sock, opened)

    def _serve(self, sock, opened):
        if self.stage == "accept":
            self.fault(sock, self)
            return
        if self.way.encrypted:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            chain = [f"{self.certificates}/{self.certificate}.{kind}" for kind in ("pem", "key")]
            context.load_cert_chain(*chain)
            sock = opened.enter_context(context.wrap_socket(sock, server_side=True))
            self._open.append(sock)
        if self.stage == "handshake":
            self.fault(sock, self)
            return
        if self.way.websocket:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += sock.recv(1)
            key = next(each for each in head.split(b"\r\n") if each.lower().startswith(b"sec-websocket-key: "))[19:]
            accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
            lines = b"HTTP/1.1 101 x", b"Upgrade: websocket", b"Connection: Upgrade", b"Sec-WebSocket-Protocol: mqtt"
            sock.sendall(b"\r\n".join((*lines, b"Sec-WebSocket-Accept: " + accept, b"", b"")))
        sock.recv(1000)  # CONNECT
        if self.stage == "connect":
            self.fault(sock, self)
            return
        sock.sendall(self.packet(CONNACK[self.way.protocol]))
        while sock.recv(1000):
            pass

    def packet(self, data):
        """Bytes as they travel on this way."""
        return b"\x82" + struct.pack("!B", len(data)) + data if self.way.websocket else data

    def wait(self, seconds):
        """Wait, or for the end of the server. Returns whether it goes on."""
        return not self._ending.wait(seconds)


# What goes wrong.


def is_silent(sock, server):
    while server.wait(60):
        pass


def closes(sock, server):
    pass


def sends_garbage(sock, server):
    sock.sendall(server.packet(b"HTTP/1.1 400 Bad Request\r\nServer: none\r\n\r\n" + bytes(60)))
    is_silent(sock, server)


def drips(sock, server):
    """A byte now and then, of what begins well and does not end."""
    data = server.packet(b"\x20\x7f" + bytes(100))
    if server.stage == "accept":
        data = b"\x16\x03\x03\x40\x00\x02" + bytes(200) if server.way.encrypted else data
        data = b"HTTP/1.1 101 x\r\nX: " + b"y" * 200 if server.way.scheme == "ws" else data
    with contextlib.suppress(OSError):
        for byte in data:
            sock.sendall(bytes([byte]))
            if not server.wait(0.4):
                return


class Fault(NamedTuple):
    """A fault of the server, the ways that can have it, the kind of error that it is, and what its text has."""

    stage: str
    does: object
    error: type
    text: str
    ways: object = tuple(WAYS)


SILENT = f"did not answer within {CONNECT_TIMEOUT:g} s"
FAULTS = {
    "silent after TCP": Fault("accept", is_silent, ConnackMissing, SILENT),
    "silent after TLS": Fault("handshake", is_silent, ConnackMissing, SILENT, ENCRYPTED),
    "silent after CONNECT": Fault("connect", is_silent, ConnackMissing, SILENT),
    "closes after TCP": Fault("accept", closes, BrokerError, "cannot connect|sent no CONNACK"),
    "closes after TLS": Fault("handshake", closes, BrokerError, "cannot connect|sent no CONNACK", ENCRYPTED),
    "closes after CONNECT": Fault("connect", closes, ConnackMissing, "sent no CONNACK"),
    "garbage instead of CONNACK": Fault("connect", sends_garbage, ConnackMissing, "HTTP/1.1 400 Bad' where a CONNACK"),
    "drips after TCP": Fault("accept", drips, BrokerError, SILENT),
    "drips after CONNECT": Fault("connect", drips, BrokerError, SILENT),
}
CASES = [(fault, way) for fault, about in FAULTS.items() for way in about.ways]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    directory = tmp_path_factory.mktemp("certificates")
    for owner in ("ca", "stranger"):
        authority = trustme.CA()
        authority.cert_pem.write_to_path(directory / f"{owner}.pem")
        past = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
        issued = {"server": ("127.0.0.1", "broker.test"), "elsewhere": ("elsewhere.test",), "expired": ("127.0.0.1",)}
        for name, names in issued.items():
            made = authority.issue_cert(*names, not_after=past if name == "expired" else None)
            file = directory / (name if owner == "ca" else f"{owner}-{name}")
            made.private_key_pem.write_to_path(file.with_suffix(".key"))
            made.cert_chain_pems[0].write_to_path(file.with_suffix(".pem"))
    return directory


def url_of(way, port, certificates, host="127.0.0.1", ca="ca"):
    files = f"?ca={certificates}/{ca}.pem" if way.encrypted else ""
    return f"{way.scheme}://{host}:{port}{'/mqtt' if way.websocket else ''}{files}"


async def attempt(way, url):
    """Make a connection, and close it. Returns the error, if there is one."""
    clock = system_clock(asyncio.get_running_loop())
    try:
        connection = await connect(Broker.from_url(url), clock, Connect("me", way.protocol, None, b""), Hooks())
    except BrokerError as error:
        return error
    await connection.close()
    return None


def attempts(urls):
    """Make these connections at the same time, by way; the error of each, or None."""

    async def run():
        return dict(
            zip(urls, await asyncio.gather(*(attempt(WAYS[way], url) for way, url in urls.items())), strict=True)
        )

    return asyncio.run(run())


@pytest.fixture(scope="module")
def errors(certificates):
    """The errors at a fault, by way."""
    known = {}

    def of(fault):
        if fault not in known:
            about = FAULTS[fault]
            with contextlib.ExitStack() as running:
                servers = {
                    way: running.enter_context(Server(WAYS[way], certificates, about.stage, about.does))
                    for way in about.ways
                }
                known[fault] = attempts(
                    {way: url_of(WAYS[way], each.port, certificates) for way, each in servers.items()}
                )
        return known[fault]

    return of


ways = pytest.mark.parametrize("name", WAYS)


@pytest.mark.parametrize(("fault", "way"), CASES)
def test_a_fault_is_the_same_error_in_all_ways(errors, fault, way):
    error, about = errors(fault)[way], FAULTS[fault]

    assert isinstance(error, about.error), repr(error)
    with pytest.raises(BrokerError, match=about.text):
        raise error


@pytest.fixture
def addresses(monkeypatch):
    """Give the name ``broker.test`` these addresses."""
    resolve = socket.getaddrinfo

    def become(*found):
        def look_up(host, port, *arguments, **options):
            if host != "broker.test":
                return resolve(host, port, *arguments, **options)
            if options.get("flags", 0) & socket.AI_NUMERICHOST:
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
            kinds = [socket.AF_INET6 if ":" in each else socket.AF_INET for each in found]
            return [(kind, socket.SOCK_STREAM, 6, "", (each, port)) for kind, each in zip(kinds, found, strict=True)]

        monkeypatch.setattr(socket, "getaddrinfo", look_up)

    return become


@contextlib.contextmanager
def black_hole(port, host="::1"):
    """The port of an address that drops what it gets, as its backlog is full."""
    with contextlib.ExitStack() as opened:
        listener = opened.enter_context(socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET))
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(0)
        for _ in range(2):
            filler = opened.enter_context(socket.socket(listener.family))
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


@ways
@pytest.mark.parametrize("first", ["is dead", "refuses"])
def test_another_address_of_the_name_is_tried_beside_the_first(certificates, addresses, name, first):
    addresses("::1", "127.0.0.1")
    with contextlib.ExitStack() as running:
        server = running.enter_context(Server(WAYS[name], certificates))
        if first == "is dead":
            running.enter_context(black_hole(server.port))
        urls = {name: url_of(WAYS[name], server.port, certificates, "broker.test")}

        assert attempts(urls) == {name: None}


@ways
def test_a_port_where_nothing_listens_is_asked_again_soon(certificates, name):
    with Server(WAYS[name], certificates) as server:
        port = server.port
    error = attempts({name: url_of(WAYS[name], port, certificates)})[name]

    assert isinstance(error, NotListening), repr(error)
    assert f"127.0.0.1:{port}" in str(error)
    assert "start the broker, or correct its URL" in str(error)


def test_a_host_that_drops_all_packets_is_named_with_its_url(certificates):
    with black_hole(0, "127.0.0.1") as port:
        errors = attempts({name: url_of(way, port, certificates) for name, way in WAYS.items()})

    assert [
        name
        for name, each in errors.items()
        if not str(each).endswith(f"{SILENT}; check its URL (--mqtt, MQTT__URL) and the network")
    ] == []
    assert {type(each) for each in errors.values()} == {BrokerError}


@pytest.mark.parametrize("name", ENCRYPTED)
@pytest.mark.parametrize(
    ("certificate", "host", "ca", "reason"),
    [
        ("server", "127.0.0.1", "stranger", "unable to get local issuer|self.signed"),
        ("stranger-server", "127.0.0.1", "ca", "unable to get local issuer|self.signed"),
        ("expired", "127.0.0.1", "ca", "certificate has expired"),
        ("elsewhere", "127.0.0.1", "ca", "certificate is not valid for '127.0.0.1'"),
        ("elsewhere", "broker.test", "ca", "certificate is not valid for 'broker.test'"),
    ],
)
def test_a_certificate_that_does_not_fit_is_a_fault_for_a_person(
    certificates, addresses, name, certificate, host, ca, reason
):
    addresses("127.0.0.1")
    with Server(WAYS[name], certificates, certificate=certificate) as server:
        error = attempts({name: url_of(WAYS[name], server.port, certificates, host, ca)})[name]

    assert isinstance(error, TlsRefused), repr(error)
    with pytest.raises(TlsRefused, match=reason):
        raise error


@pytest.mark.parametrize("name", ENCRYPTED)
def test_files_that_are_renewed_are_read_at_the_next_attempt(certificates, tmp_path, name):
    shutil.copytree(certificates, tmp_path / "live")
    shutil.copy(certificates / "stranger.pem", tmp_path / "live" / "ca.pem")
    with Server(WAYS[name], certificates) as server:
        url = url_of(WAYS[name], server.port, tmp_path / "live")
        before = attempts({name: url})[name]
        shutil.copy(certificates / "ca.pem", tmp_path / "live" / "ca.pem")

        assert isinstance(before, TlsRefused)
        assert attempts({name: url}) == {name: None}
