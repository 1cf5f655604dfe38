"""Keeps the HTTP endpoint open while the app runs: binds its address, and serves it. What serves it is imported when it
starts."""

import asyncio
import errno
import functools
import logging
import os
import socket
import stat
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from leadsman.core.events import AppFault
from leadsman.core.introspection.service import Service
from leadsman.core.introspection.watching import Happenings
from leadsman.core.loop.slices import Slices
from leadsman.core.text import log_fields
from leadsman.errors import EndpointError
from leadsman.extensions.http.rules import AccessRules
from leadsman.extensions.http.settings import Endpoint

SOCKET_MODE = 0o660
"""Owner and group may use a unix socket."""
_REASONS = {
    errno.EADDRINUSE: "another program uses it; stop that one, or write another address as http.bind",
    errno.EADDRNOTAVAIL: "this machine has no such address; write an address of this machine as http.bind",
    errno.EACCES: "this user may not open it; write a port above 1023, or a path in a directory of the app",
    errno.ENOENT: "its directory does not exist; write a path in an existing directory as http.bind",
}


def bind(endpoint: Endpoint) -> socket.socket:
    """A socket that is bound to the address of an endpoint. A unix socket that nobody listens to is replaced.

    Raises:
        EndpointError: that is impossible. The message names the cause and the remedy.
    """
    try:
        return _bind_path(endpoint.address) if endpoint.port is None else _bind_port(endpoint.address, endpoint.port)
    except OSError as error:
        reason = _REASONS.get(error.errno or 0) or f"{error.strerror or error}; write another address as http.bind"
        raise EndpointError(f"{endpoint} cannot be opened: {reason}") from None


def _bind_port(address: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(1)  # another program that is bound there, and listens, is found now
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def _bind_path(path: str) -> socket.socket:
    with suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.stat(path).st_mode) and not _is_served(path):
            os.unlink(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(path)
        os.chmod(path, SOCKET_MODE)  # nobody can connect before `listen`
        listener.listen(1)  # an app that starts at the same time must not take it for one that was left behind
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def _is_served(path: str) -> bool:
    """Whether somebody listens to a unix socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(1.0)
        try:
            client.connect(path)
        except ConnectionRefusedError:
            return False
    return True


Application = Callable[..., Awaitable[None]]
"""An ASGI application."""
BIND_RETRY_INTERVAL = 30.0
"""Seconds until an address that cannot be bound is tried again."""
HERE = Path(__file__).parent

logger = logging.getLogger("leadsman")


async def keep_open(
    endpoint: Endpoint,
    service: Service,
    happenings: Happenings,
    slices: Slices,
    emit: Callable[[AppFault], None],
) -> None:
    """Serve the HTTP endpoint of a running app until cancelled. An address that cannot be bound is reported once, and
    tried again and again.

    Args:
        endpoint: where it is, and who may use it.
        service: answers requests.
        happenings: what happens in the app.
        slices: does work that is too long for one turn of the loop.
        emit: takes faults.
    """
    load = functools.partial(_load, endpoint, service, happenings, slices, emit)
    application, serve = await asyncio.get_running_loop().run_in_executor(None, load)
    listener = await _bound(endpoint, emit)
    port = None if endpoint.port is None else listener.getsockname()[1]  # the system may have chosen it
    bound = endpoint._replace(port=port)
    logger.info("The page of the app is at %s", bound, extra=log_fields("http", url=str(bound)))
    try:
        await serve(application, listener)
    finally:
        happenings.close()
        if endpoint.port is None:
            with suppress(OSError):
                os.unlink(endpoint.address)


def _load(
    endpoint: Endpoint,
    service: Service,
    happenings: Happenings,
    slices: Slices,
    emit: Callable[[AppFault], None],
) -> tuple[Application, Callable[[Application, socket.socket], Awaitable[None]]]:
    """Import what serves, and read the files of the page: in a thread, since it takes a while."""
    from leadsman.extensions.http import routes
    from leadsman.extensions.http.server import serve

    files = routes.static_files([*(HERE / "page").iterdir(), HERE / "openapi.json"])
    rules = AccessRules(endpoint, _machine(), {*files, "/livez", "/readyz"} - {"/openapi.json"})
    return routes.Application(service, happenings, slices, rules, files, emit), serve


async def _bound(endpoint: Endpoint, emit: Callable[[AppFault], None]) -> socket.socket:
    reported = False
    while True:
        try:
            return bind(endpoint)
        except EndpointError as error:
            if not reported:
                emit(AppFault("the HTTP endpoint", error.with_traceback(None)))
            reported = True
        await asyncio.sleep(BIND_RETRY_INTERVAL)


def _machine() -> set[str]:
    """The names of this machine, as browsers in the same network write them."""
    name = socket.gethostname()
    short = name.partition(".")[0]
    return {name, short, f"{short}.local"}
