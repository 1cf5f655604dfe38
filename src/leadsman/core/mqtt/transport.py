"""Opens the socket to a broker: TCP, TLS or a unix socket. Nothing here speaks MQTT.

What may block, which is a name server that keeps silent, or a file of a certificate on a slow disk, runs in a daemon
thread. A connection attempt that is given up leaves that thread alone, and the process ends without it.
"""

import asyncio
import contextlib
import math
import os
import socket
import ssl
import struct
from collections.abc import Callable, Iterable
from itertools import chain, zip_longest
from typing import Any, NamedTuple, TypeVar

from leadsman.core.loop.threads import DaemonExecutor
from leadsman.core.mqtt.broker import Broker, why_unreadable
from leadsman.core.mqtt.diagnosis import FileError
from leadsman.core.tls import client_context

NEXT_ADDRESS = 0.25
"""Seconds after which the next address of a name is tried beside the ones before it (RFC 8305 §8)."""
_SOCKET_OPTIONS = (
    ("IPPROTO_TCP", "TCP_NODELAY", 1),  # a small packet would wait for the acknowledgement of the one before it
    ("SOL_SOCKET", "SO_KEEPALIVE", 1),
    ("IPPROTO_TCP", "TCP_KEEPIDLE", 60),
    ("IPPROTO_TCP", "TCP_KEEPINTVL", 15),
    ("IPPROTO_TCP", "TCP_KEEPCNT", 4),
)
"""TCP keep-alive keeps a path through routers open where the broker asks for a long MQTT keep-alive. Seconds, and the
number of probes. A system that lacks an option does without it."""

REACH = 10.0
"""Seconds to open a connection that only shows whether a broker can be reached."""
ADDRESSES_KEPT = 5.0
"""Seconds for which the addresses of a name are tried again after they refused, before the name server is asked anew.
While nothing listens, attempts come several times a second, and some name servers limit the questions of a client."""

T = TypeVar("T")
_threads = DaemonExecutor()
_refusing: dict[tuple[str, int], tuple[float, list["SocketAddress"]]] = {}
"""The addresses of hosts that refused the last attempt, and the monotonic seconds when they were asked for."""


class SocketAddress(NamedTuple):
    """One address of a broker, as `socket.getaddrinfo` returns it."""

    family: int
    kind: int
    protocol: int
    name: str
    where: Any


def forget_unsent(sock: Any) -> None:
    """Let the close of a socket, or of an object that wraps one, discard what the system has not sent, and reset the
    connection (SO_LINGER on, for no time; socket(7)). One that is closed already stays as it is."""
    with contextlib.suppress(OSError, ValueError), socket.socket(fileno=os.dup(sock.fileno())) as same:
        same.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def in_thread(call: Callable[[], T]) -> T:
    """Make a blocking call in a daemon thread. The thread is left alone when the caller is cancelled."""
    return await asyncio.wrap_future(_threads.submit(call))


def tune(sock: Any) -> None:
    """Set the options of a TCP socket, or of an object that wraps one. A socket of another family, or one that is
    closed already, stays as it is."""
    with socket.socket(fileno=os.dup(sock.fileno())) as same:
        if same.family not in (socket.AF_INET, socket.AF_INET6):
            return
        for level, option, value in _SOCKET_OPTIONS:
            if hasattr(socket, option):
                try:
                    same.setsockopt(getattr(socket, level), getattr(socket, option), value)
                except OSError:
                    return


def tls_context(broker: Broker) -> ssl.SSLContext:
    """The certificates and checks of a broker with TLS. Reads files.

    Raises:
        FileError: a file cannot be read, or holds no certificate or key; the message names it.
    """
    for name, path in broker.files.items():
        if (reason := why_unreadable(path)) is not None:
            raise FileError(f"the file of {name}=, {path!r}, cannot be read: {reason}")
    tls = broker.tls
    try:
        context = client_context(tls.ca)
        if tls.cert is not None:
            context.load_cert_chain(tls.cert, tls.key, password="")  # without one OpenSSL asks at the terminal
    except ssl.SSLError as error:
        given = " or ".join(f"{name}={path!r}" for name, path in broker.files.items())
        raise FileError(
            f"{given} is not a certificate or key in PEM format, or the two do not match: {error}"
        ) from error
    if tls.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


async def resolve(host: str, port: int) -> list[SocketAddress]:
    """The addresses of a host, those of both families in turns.

    Raises:
        OSError: the name is not known, or no name server answers.
    """

    def look_up(flags: int = 0) -> list[SocketAddress]:
        return [SocketAddress(*each) for each in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)]

    try:
        return look_up(socket.AI_NUMERICHOST)  # asks nobody
    except socket.gaierror:
        return in_turns(await in_thread(look_up))


def in_turns(addresses: Iterable[SocketAddress]) -> list[SocketAddress]:
    """The addresses, the families in turns, beginning with the family of the first one (RFC 8305 §4)."""
    families: dict[int, list[SocketAddress]] = {}
    for each in addresses:
        families.setdefault(each.family, []).append(each)
    return [each for each in chain.from_iterable(zip_longest(*families.values())) if each is not None]


async def open_host(host: str, port: int) -> socket.socket:
    """Connect to a host, at the first of its addresses that answers.

    Raises:
        ConnectionRefusedError: nothing listens at one of them, and none can be reached.
        OSError: the name is not known, or no address can be reached.
    """
    now = asyncio.get_running_loop().time()
    asked, addresses = _refusing.pop((host, port), (-math.inf, []))
    if not 0 <= now - asked < ADDRESSES_KEPT:
        asked, addresses = now, await resolve(host, port)
    try:
        return await open_tcp(addresses)
    except ConnectionRefusedError:
        _refusing[host, port] = asked, addresses
        raise


async def open_tcp(addresses: list[SocketAddress]) -> socket.socket:
    """Connect to the first address that answers. The next one is tried beside the others after `NEXT_ADDRESS`.

    Raises:
        OSError: none can be reached; the message names each of them.
    """
    loop = asyncio.get_running_loop()
    waiting = list(reversed(addresses))
    attempts: dict[asyncio.Task[socket.socket], SocketAddress] = {}
    pending: set[asyncio.Task[socket.socket]] = set()
    faults: list[OSError] = []
    try:
        while waiting or pending:
            if waiting:
                address = waiting.pop()
                task = loop.create_task(_open(address))
                attempts[task] = address
                pending.add(task)
            done, pending = await asyncio.wait(
                pending, timeout=NEXT_ADDRESS if waiting else None, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                if task.exception() is None:
                    del attempts[task]
                    return task.result()
                faults.append(_fault(task.exception(), attempts[task]))
        raise _together(faults)
    finally:
        await _discard(attempts)


async def open_unix(path: str) -> socket.socket:
    """Connect to a unix socket.

    Raises:
        OSError: it does not exist, nobody listens, or we may not use it.
    """
    return await _open(SocketAddress(socket.AF_UNIX, socket.SOCK_STREAM, 0, "", path))


async def reach(broker: Broker) -> None:
    """Open a TCP or TLS connection to a broker, or one to its unix socket, and close it.

    Raises:
        OSError: it cannot be opened; or not within `REACH` (TimeoutError), or its certificate is not accepted.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(REACH):
        sock = await (open_unix(broker.path) if broker.unix else open_host(broker.host, broker.port))
        try:
            context = await in_thread(lambda: tls_context(broker)) if broker.encrypted else None
            name = broker.host if broker.encrypted else None
            opened, _ = await loop.create_connection(asyncio.Protocol, sock=sock, ssl=context, server_hostname=name)
        except BaseException:
            sock.close()
            raise
        opened.abort()


async def _open(address: SocketAddress) -> socket.socket:
    sock = socket.socket(address.family, address.kind, address.protocol)
    try:
        sock.setblocking(False)
        tune(sock)
        await asyncio.get_running_loop().sock_connect(sock, address.where)
    except BaseException:
        sock.close()
        raise
    return sock


async def _discard(attempts: Iterable["asyncio.Task[socket.socket]"]) -> None:
    """End the other attempts, and close what they have opened meanwhile."""
    tasks = list(attempts)
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, socket.socket):
            result.close()


def _fault(error: BaseException | None, address: SocketAddress) -> OSError:
    """The error of one address, which it names."""
    if not isinstance(error, OSError):
        raise error or AssertionError("a failed task has an exception")
    reason = os.strerror(error.errno) if error.errno else str(error)
    return type(error)(error.errno, reason, address.where[0])


def _together(faults: list[OSError]) -> OSError:
    """One error for all addresses. It has the type of one that refuses, if there is one, since its host is up; else of
    the first one."""
    if not faults:
        return OSError("the name has no address")
    first = next((each for each in faults if isinstance(each, ConnectionRefusedError)), faults[0])
    if len(faults) > 1:
        return type(first)(first.errno, ", ".join(f"{each.strerror} ({each.filename})" for each in faults))
    return type(first)(first.errno, first.strerror)
