"""Binds the socket of the HTTP endpoint, and says what to do where that is impossible."""

import errno
import os
import socket
import stat
from contextlib import suppress

from leadsman.errors import EndpointError
from leadsman.settings.endpoint import Endpoint

SOCKET_MODE = 0o660
"""Owner and group may use a unix socket."""
_REASONS = {
    errno.EADDRINUSE: "another program uses it; stop that one, or write another address as http.bind",
    errno.EADDRNOTAVAIL: "this machine has no such address; write one that it has as http.bind",
    errno.EACCES: "this user may not; write a port above 1023, or a path in a directory of the app, as http.bind",
    errno.ENOENT: "its directory does not exist; write a path in one that does as http.bind",
}


def bind(endpoint: Endpoint) -> socket.socket:
    """A socket that is bound to the address of an endpoint. A unix socket that nobody listens to is replaced.

    Raises:
        EndpointError: that is impossible. The message says why, and what to do.
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
